//! Actions of the maintenance role as requests.

use evac_core::machines::Kind;
use evac_core::maintenance::{FINALIZER, Family, Id, Status};
use evac_core::{Key, Uid};
use serde_json::{Value, json};

use super::KIND;
use crate::call::{Call, FIELD_MANAGER, MERGE_PATCH};
use crate::kubevirt::request::{self, send};

pub fn collection(family: Family) -> String {
    request::collection(Kind::Maintenance(family))
}

pub fn path(id: &Id) -> String {
    request::object_path(Kind::Maintenance(id.family), &Key::new("", id.name.as_str()))
}

fn patch(path: &str, body: &Value) -> Call {
    send("PATCH", format!("{path}?fieldManager={FIELD_MANAGER}"), MERGE_PATCH, body)
}

/// Puts our finalizer on the object, or takes it off, if it is still the one that was looked at.
pub fn finalizers(id: &Id, uid: &Uid, resource_version: &str, others: &[String], held: bool) -> Call {
    let ours = held.then(|| FINALIZER.to_owned());
    let all: Vec<String> = others.iter().cloned().chain(ours).collect();
    let all = if all.is_empty() { Value::Null } else { json!(all) };
    let metadata = json!({"uid": uid, "resourceVersion": resource_version, "finalizers": all});
    patch(&path(id), &json!({"metadata": metadata}))
}

/// Replaces the status of exactly this incarnation.
pub fn status(id: &Id, uid: &Uid, status: &Status) -> Call {
    let mut fields = json!(status);
    // A patch leaves alone what it does not name, so what is empty now has to be named.
    for field in [
        "phase",
        "drainProgress",
        "lastUpdate",
        "lastError",
        "pendingPods",
        "pendingPodsRefs",
        "totalpods",
        "evictionPods",
        "errorOnLeaseCount",
        "blockers",
        "estimatedEnd",
        "conditions",
    ] {
        if fields.get(field).is_none() {
            fields[field] = Value::Null;
        }
    }
    patch(&format!("{}/status", path(id)), &json!({"metadata": {"uid": uid}, "status": fields}))
}

/// An object that asks for the maintenance of a node.
pub fn new_object(id: &Id, node: &str, reason: &str, annotations: &[(&str, String)]) -> Value {
    let mut object = json!({
        "apiVersion": id.family.api_version(),
        "kind": KIND,
        "metadata": {"name": id.name},
        "spec": {"nodeName": node, "reason": reason},
    });
    for (name, value) in annotations {
        object["metadata"]["annotations"][*name] = json!(value);
    }
    object
}
