//! Tenant clusters: annotations become facts, actions become requests.

use std::collections::BTreeMap;

use evac_core::cluster::subject::{Kind, ObjectRef};
use evac_core::tenants::{CAPK_DEADLINE, CORDONED, DEADLINE, Machine, Marks, Own, POLICY, PROGRESS, TIMEOUT};
use evac_core::{Key, Uid};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::{Call, FIELD_MANAGER, MERGE_PATCH, escape};
use crate::kubevirt::request;
use crate::wire::Meta;

type Annotations = BTreeMap<String, String>;

/// What an instance says about its tenant; `None` for the many that say nothing.
pub fn marks(annotations: &Annotations) -> Option<Marks> {
    let get = |name: &str| annotations.get(name).cloned();
    let progress = annotations.get(PROGRESS);
    let marks = Marks {
        deadline: get(DEADLINE),
        capk_deadline: get(CAPK_DEADLINE),
        timeout: get(TIMEOUT),
        policy: get(POLICY),
        has_progress: progress.is_some(),
        progress: progress.and_then(|text| serde_json::from_str(text).ok()),
        cordoned: cordoned(annotations),
    };
    (marks != Marks::default()).then_some(marks)
}

/// For which instance the node of a machine was cordoned.
pub fn cordoned(annotations: &Annotations) -> Option<Uid> {
    annotations.get(CORDONED).map(|uid| Uid(uid.into()))
}

/// A Secret: only the annotations and the one key that is used.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct Secret {
    pub metadata: Meta,
    pub data: SecretData,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct SecretData {
    pub value: Option<String>,
}

/// Only by its name: a right to list Secrets is never needed.
pub fn read_secret(secret: &Key) -> Call {
    Call::get(format!("/api/v1/namespaces/{}/secrets/{}", escape(&secret.namespace), escape(&secret.name)))
}

/// Where the operator keeps when it first saw the eviction of each instance: where nobody who may edit instances can edit it.
pub const FIRSTS: &str = "evac-tenants";

fn firsts(home: &str) -> String {
    format!("/api/v1/namespaces/{}/configmaps", escape(home))
}

pub fn read_firsts(home: &str) -> Call {
    Call::get(format!("{}/{FIRSTS}", firsts(home)))
}

/// Sets entries, or removes them where they are null; the others stay.
pub fn change_firsts(home: &str, entries: &Value) -> Call {
    let path = format!("{}/{FIRSTS}?fieldManager={FIELD_MANAGER}", firsts(home));
    request::send("PATCH", path, MERGE_PATCH, &json!({"data": entries}))
}

pub fn create_firsts(home: &str, entries: &Value) -> Call {
    let metadata = json!({
        "name": FIRSTS, "namespace": home, "labels": {"app.kubernetes.io/managed-by": "evac"},
    });
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": entries});
    request::create(&firsts(home), &body)
}

/// A node of a tenant, as far as it says which machine it is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TenantNode {
    spec: TenantNodeSpec,
    status: TenantNodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TenantNodeSpec {
    #[serde(rename = "providerID")]
    provider_id: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct TenantNodeStatus {
    addresses: Vec<Address>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

impl From<TenantNode> for Machine {
    fn from(node: TenantNode) -> Self {
        let addresses = node.status.addresses.into_iter();
        let internal = addresses.filter(|address| address.kind == "InternalIP");
        Self { provider_id: node.spec.provider_id, addresses: internal.map(|one| one.address).collect() }
    }
}

/// The request of what is one write to annotations on the host. All of them name the incarnation they mean.
pub fn call_for(own: &Own, instance: &ObjectRef) -> Option<Call> {
    let (object, annotations) = match own {
        Own::Anchor { deadline } => {
            (instance, json!({DEADLINE: evac_core::machines::condition::seconds(*deadline)}))
        }
        Own::Note { progress } => {
            (instance, json!({PROGRESS: serde_json::to_string(progress).unwrap_or_default()}))
        }
        Own::Clear => (instance, json!({DEADLINE: null, CAPK_DEADLINE: null, PROGRESS: null})),
        Own::Remember { at, instance } => (at, json!({CORDONED: instance})),
        _ => return None,
    };
    let path = format!("{}?fieldManager={FIELD_MANAGER}", request::object_path(object.kind, &object.key));
    let body = json!({"metadata": {"uid": object.uid, "annotations": annotations}});
    Some(request::send("PATCH", path, MERGE_PATCH, &body))
}

/// Deletes exactly this state of the instance: whatever was checked on it still holds.
pub fn delete(instance: &Key, uid: &Uid, version: &str) -> Call {
    let body = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": uid, "resourceVersion": version},
    });
    request::send("DELETE", request::object_path(Kind::Instance, instance), "application/json", &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(call: &Call) -> Value {
        serde_json::from_slice(&call.body).unwrap()
    }

    #[test]
    fn an_instance_without_such_annotations_costs_nothing() {
        assert_eq!(marks(&BTreeMap::from([("a".into(), "b".into())])), None);
    }

    #[test]
    fn unreadable_progress_is_seen_but_not_believed() {
        let marks = marks(&BTreeMap::from([(PROGRESS.into(), "{\"cluster\": 7}".into())])).unwrap();
        assert!(marks.has_progress);
        assert_eq!(marks.progress, None);
    }

    #[test]
    fn the_deletion_is_in_the_foreground_and_of_one_state_of_one_incarnation() {
        let call = delete(&Key::new("d", "w"), &Uid("u".into()), "7");
        assert_eq!(call.method, "DELETE");
        let body = body(&call);
        assert_eq!(body["propagationPolicy"], "Foreground");
        assert_eq!(body["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
    }

    #[test]
    fn a_secret_is_read_by_its_name() {
        let call = read_secret(&Key::new("d", "blue-kubeconfig"));
        assert_eq!(call.path, "/api/v1/namespaces/d/secrets/blue-kubeconfig");
    }
}
