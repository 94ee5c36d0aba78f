//! Actions of the machine controllers become requests.

use evac_core::machines::{Action, Kind, Part};
use evac_core::{Key, Uid};
use serde_json::{Value, json};

use super::{GROUP, NAMESPACE, VERSION, render};
use crate::call::{Call, FIELD_MANAGER, MERGE_PATCH, escape};

pub const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
pub const JSON_PATCH: &str = "application/json-patch+json";

const LEASES: &str = "coordination.k8s.io/v1";

pub fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Machine => "virtualmachines",
        Kind::Instance => "virtualmachineinstances",
        Kind::ReplicaSet => "virtualmachineinstancereplicasets",
        Kind::Migration => "virtualmachineinstancemigrations",
        Kind::Pod => "pods",
        Kind::Node => "nodes",
        Kind::Budget => "poddisruptionbudgets",
        Kind::Lease => "leases",
    }
}

pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Machine => "VirtualMachine",
        Kind::Instance => "VirtualMachineInstance",
        Kind::ReplicaSet => "VirtualMachineInstanceReplicaSet",
        Kind::Migration => "VirtualMachineInstanceMigration",
        Kind::Pod => "Pod",
        Kind::Node => "Node",
        Kind::Budget => "PodDisruptionBudget",
        Kind::Lease => "Lease",
    }
}

/// The path of a whole collection over all namespaces.
pub fn collection(kind: Kind) -> String {
    match kind {
        Kind::Pod | Kind::Node => format!("/api/v1/{}", plural(kind)),
        Kind::Budget => format!("/apis/policy/v1/{}", plural(kind)),
        Kind::Lease => format!("/apis/{LEASES}/{}", plural(kind)),
        _ => format!("/apis/{GROUP}/{VERSION}/{}", plural(kind)),
    }
}

/// The path of a collection in a namespace.
pub fn in_namespace(kind: Kind, namespace: &str) -> String {
    let namespace = escape(namespace);
    match kind {
        Kind::Node => "/api/v1/nodes".to_owned(),
        Kind::Pod => format!("/api/v1/namespaces/{namespace}/pods"),
        Kind::Budget => format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"),
        Kind::Lease => format!("/apis/{LEASES}/namespaces/{namespace}/leases"),
        _ => format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{}", plural(kind)),
    }
}

pub fn object_path(kind: Kind, key: &Key) -> String {
    format!("{}/{}", in_namespace(kind, &key.namespace), escape(&key.name))
}

fn ledger_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps")
}

pub fn read_ledger() -> Call {
    Call::get(format!("{}/{}", ledger_path(), render::LEDGER))
}

/// Writes the ledger as it should be; fails if somebody else wrote it since.
pub fn write_ledger(ledger: &evac_core::machines::slots::Ledger) -> Call {
    let body = render::ledger(ledger);
    if ledger.version.is_empty() {
        create(&ledger_path(), &body)
    } else {
        send(
            "PUT",
            format!("{}/{}?fieldManager={FIELD_MANAGER}", ledger_path(), render::LEDGER),
            "application/json",
            &body,
        )
    }
}

pub fn create(collection: &str, object: &Value) -> Call {
    send("POST", format!("{collection}?fieldManager={FIELD_MANAGER}"), "application/json", object)
}

pub fn send(method: &'static str, path: String, content_type: &'static str, body: &Value) -> Call {
    Call { method, path, content_type: Some(content_type), body: body.to_string().into_bytes() }
}

/// The request of an action that is one request. Creations read their template first and are made by the engine.
pub fn call_for(action: &Action) -> Option<Call> {
    match action {
        Action::Delete { kind, key, uid, grace_seconds } => Some(delete(*kind, key, uid, *grace_seconds)),
        Action::Patch { kind, key, uid, version, part, fields } => {
            let mut body = serde_json::to_value(fields).unwrap_or_default();
            body["metadata"]["uid"] = json!(uid);
            body["metadata"]["resourceVersion"] = json!(version);
            let mut path = object_path(*kind, key);
            if *part == Part::Status {
                path.push_str("/status");
            }
            path.push_str("?fieldManager=");
            path.push_str(FIELD_MANAGER);
            let content_type = if *kind == Kind::Pod { STRATEGIC_MERGE_PATCH } else { MERGE_PATCH };
            Some(send("PATCH", path, content_type, &body))
        }
        _ => None,
    }
}

fn delete(kind: Kind, key: &Key, uid: &Uid, grace_seconds: Option<i64>) -> Call {
    let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    if let Some(seconds) = grace_seconds {
        body["gracePeriodSeconds"] = json!(seconds);
    }
    send("DELETE", object_path(kind, key), "application/json", &body)
}

/// An event about an object. Its name follows from what it says and when, so saying it twice gives one event.
pub fn event(
    kind: Kind,
    key: &Key,
    uid: &Uid,
    warning: bool,
    reason: &str,
    message: &str,
    now: jiff::Timestamp,
) -> Call {
    let api_version = match kind {
        Kind::Pod | Kind::Node => "v1",
        Kind::Budget => "policy/v1",
        Kind::Lease => LEASES,
        _ => super::API_VERSION,
    };
    let involved = json!({
        "apiVersion": api_version,
        "kind": kind_name(kind),
        "namespace": key.namespace,
        "name": key.name,
        "uid": uid,
    });
    crate::call::event(&key.namespace, &key.name, &involved, (warning, reason, message), now)
}

#[cfg(test)]
mod tests {
    use evac_core::machines::Tree;

    use super::*;

    #[test]
    fn a_patch_names_the_incarnation_and_the_version_it_was_decided_on() {
        let mut fields = Tree::default();
        fields.put(&["status", "phase"], Tree::text("Pending"));
        fields.put(&["status", "gone"], Tree::null());
        let call = call_for(&Action::Patch {
            kind: Kind::Migration,
            key: Key::new("d", "m"),
            uid: Uid::from("u"),
            version: "7".into(),
            part: Part::Status,
            fields,
        })
        .unwrap();
        assert_eq!(
            call.path,
            "/apis/kubevirt.io/v1/namespaces/d/virtualmachineinstancemigrations/m/status?fieldManager=evac"
        );
        let body: Value = serde_json::from_slice(&call.body).unwrap();
        assert_eq!(
            body,
            json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "status": {"phase": "Pending", "gone": null}})
        );
    }
}
