//! Writes are carried out: each is one request, but for the emptying of a namespace.

use http::Method;
use serde_json::{Value, json};

use crate::effects::{Answer, Api, Deletion, EffectError, Verb, Write};
use crate::gc::namespaces;

/// Carries a write out.
pub async fn carry_out(api: &Api, write: &Write) -> Result<Answer, EffectError> {
    const JSON: &str = "application/json";
    let Write { resource, key, subresource, verb, .. } = write;
    let path = resource.object(key, subresource);
    let value = match verb {
        Verb::Create(body) => {
            let path = if subresource.is_empty() { resource.collection(&key.namespace) } else { path };
            api.send(Method::POST, &path, JSON, Some(body)).await?
        }
        Verb::Replace(body) => api.send(Method::PUT, &path, JSON, Some(body)).await?,
        Verb::MergePatch(body) => {
            api.send(Method::PATCH, &path, "application/merge-patch+json", Some(body)).await?
        }
        Verb::JsonPatch(body) => {
            api.send(Method::PATCH, &path, "application/json-patch+json", Some(body)).await?
        }
        Verb::StrategicPatch(body) => {
            api.send(Method::PATCH, &path, "application/strategic-merge-patch+json", Some(body)).await?
        }
        Verb::Bind { node, uid } => {
            let body = json!({
                "apiVersion": "v1", "kind": "Binding",
                "metadata": { "name": key.name, "namespace": key.namespace, "uid": uid },
                "target": { "apiVersion": "v1", "kind": "Node", "name": node },
            });
            api.send(Method::POST, &path, JSON, Some(&body)).await?;
            return Ok(Answer::Done);
        }
        Verb::Upsert { patch, create } => {
            match api.send(Method::PATCH, &path, "application/merge-patch+json", Some(patch)).await {
                Err(error) if error.not_found() => {
                    api.send(Method::POST, &resource.collection(&key.namespace), JSON, Some(create)).await?
                }
                answer => answer?,
            }
        }
        Verb::Delete(deletion) => return delete(api, &path, deletion).await,
        Verb::EmptyNamespace => return namespaces::empty(api, &key.name).await,
    };
    Ok(if value["kind"] == "Status" { Answer::Done } else { Answer::Object(value) })
}

async fn delete(api: &Api, path: &str, deletion: &Deletion) -> Result<Answer, EffectError> {
    let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
    if let Some(grace) = deletion.grace_seconds {
        options["gracePeriodSeconds"] = json!(grace);
    }
    if let Some(policy) = deletion.propagation {
        options["propagationPolicy"] = json!(policy);
    }
    if let Some(uid) = &deletion.uid {
        options["preconditions"]["uid"] = json!(uid);
    }
    if let Some(version) = &deletion.resource_version {
        options["preconditions"]["resourceVersion"] = json!(version);
    }
    match api.send(Method::DELETE, path, "application/json", Some(&options)).await {
        // The API answers with the object while it lingers, and with a status or the last state once it is gone.
        Ok(value) if value["kind"] != "Status" && lingers(&value, deletion) => Ok(Answer::Object(value)),
        Ok(_) => Ok(Answer::Gone),
        Err(error) if error.not_found() => Ok(Answer::Gone),
        Err(error) => Err(error),
    }
}

fn lingers(object: &Value, deletion: &Deletion) -> bool {
    let meta = &object["metadata"];
    let held = meta["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    let graceful = meta["deletionGracePeriodSeconds"].as_i64().is_some_and(|s| s > 0);
    meta["deletionTimestamp"].is_string() && (held || (graceful && deletion.grace_seconds != Some(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_object_lingers_while_finalizers_or_grace_hold_it() {
        let deletion = Deletion::default();
        let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}});
        assert!(!lingers(&gone, &deletion));
        let grace = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}});
        assert!(lingers(&grace, &deletion));
        let held = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
            "finalizers": ["x"]}});
        assert!(lingers(&held, &deletion));
        assert!(!lingers(&json!({"metadata": {}}), &deletion));
    }
}
