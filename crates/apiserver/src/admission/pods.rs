//! Admission rules about pods: identity, priority, patience with sick nodes.

use serde_json::{Value, json};

use super::Review;
use crate::server::Api;
use crate::status::{About, ApiError};

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";
/// How long pods stay on a node that stopped answering.
const PATIENCE_SECONDS: i64 = 300;

fn forbidden(review: &Review<'_>, why: &str) -> ApiError {
    ApiError::forbidden(About { group: "", kind: "pods", name: review.name }, why)
}

/// Gives a pod the identity of its service account, and its token as a volume.
pub fn service_account(api: &Api, review: &Review<'_>, pod: &mut Value) -> Result<(), ApiError> {
    const MIRROR: &str = "kubernetes.io/config.mirror";
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return Ok(());
    }
    let spec = &mut pod["spec"];
    if spec["serviceAccountName"].as_str().unwrap_or_default().is_empty() {
        spec["serviceAccountName"] = json!("default");
    }
    let name = spec["serviceAccountName"].as_str().unwrap_or_default().to_owned();
    spec["serviceAccount"] = json!(name);
    let Some(account) = api.read("serviceaccounts", review.namespace, &name) else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount \"{name}\" not found",
            review.namespace
        );
        return Err(forbidden(review, &why));
    };
    let wanted = spec["automountServiceAccountToken"]
        .as_bool()
        .or_else(|| account.value()["automountServiceAccountToken"].as_bool())
        .unwrap_or(true);
    if wanted {
        mount_token(api, spec);
    }
    Ok(())
}

fn mount_token(api: &Api, spec: &mut Value) {
    let existing = spec["volumes"].as_array().and_then(|volumes| {
        volumes
            .iter()
            .filter_map(|v| v["name"].as_str())
            .find(|name| name.starts_with(TOKEN_VOLUME))
            .map(str::to_owned)
    });
    let volume = existing.clone().unwrap_or_else(|| api.ids.name(TOKEN_VOLUME));
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if !container["volumeMounts"].is_array() {
                container["volumeMounts"] = json!([]);
            }
            let Some(mounts) = container["volumeMounts"].as_array_mut() else { continue };
            if !mounts.iter().any(|m| m["mountPath"] == TOKEN_PATH) {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH}));
                mounted = true;
            }
        }
    }
    if !mounted || existing.is_some() {
        return;
    }
    if !spec["volumes"].is_array() {
        spec["volumes"] = json!([]);
    }
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        volumes.push(json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]}}));
    }
}

/// Resolves the priority class of a pod to a number.
pub fn priority(api: &Api, review: &Review<'_>, pod: &mut Value) -> Result<(), ApiError> {
    const CLASSES: &str = "priorityclasses.scheduling.k8s.io";
    let spec = &mut pod["spec"];
    let asked = spec["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let class = if asked.is_empty() {
        let mut defaults: Vec<Value> = api
            .read_all(CLASSES, "")
            .iter()
            .map(crate::store::Object::value)
            .filter(|class| class["globalDefault"] == true)
            .collect();
        defaults.sort_by_key(|class| class["value"].as_i64());
        defaults.into_iter().next()
    } else {
        let found = api.read(CLASSES, "", &asked).map(|class| class.value());
        if found.is_none() {
            return Err(forbidden(review, &format!("no PriorityClass with name {asked} was found")));
        }
        found
    };
    let number = class.as_ref().and_then(|c| c["value"].as_i64()).unwrap_or(0);
    let policy = class
        .as_ref()
        .and_then(|c| c["preemptionPolicy"].as_str())
        .unwrap_or("PreemptLowerPriority")
        .to_owned();
    if let Some(given) = spec["priority"].as_i64()
        && given != number
    {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission \
             controller computed {number} from the given PriorityClass name"
        );
        return Err(forbidden(review, &why));
    }
    if let Some(class) = &class {
        spec["priorityClassName"] = class["metadata"]["name"].clone();
    }
    spec["priority"] = json!(number);
    if spec["preemptionPolicy"].is_null() {
        spec["preemptionPolicy"] = json!(policy);
    }
    Ok(())
}

/// Pods wait a while before they leave a node that is not ready or unreachable.
pub fn default_tolerations(pod: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let spec = &mut pod["spec"];
        if !spec.is_object() {
            return;
        }
        if !spec["tolerations"].is_array() {
            spec["tolerations"] = json!([]);
        }
        let Some(tolerations) = spec["tolerations"].as_array_mut() else { return };
        let covered = tolerations.iter().any(|t| {
            let same_key = t["key"] == key || t["key"].as_str().unwrap_or_default().is_empty();
            let same_effect =
                t["effect"] == "NoExecute" || t["effect"].as_str().unwrap_or_default().is_empty();
            same_key && same_effect
        });
        if !covered {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": PATIENCE_SECONDS,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_wait_five_minutes_on_a_sick_node_unless_they_say_otherwise() {
        let mut pod = json!({"spec": {"tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
        ]}});
        default_tolerations(&mut pod);
        let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
        assert_eq!(tolerations.len(), 2);
        assert_eq!(tolerations[1]["key"], "node.kubernetes.io/unreachable");
        assert_eq!(tolerations[1]["tolerationSeconds"], 300);
    }

    #[test]
    fn a_pod_that_tolerates_everything_gets_nothing_added() {
        let mut pod = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        default_tolerations(&mut pod);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 1);
    }
}
