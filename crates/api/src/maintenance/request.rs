//! Actions of the maintenance role as requests.

use evac_core::drain::ownership::lease_key;
use evac_core::drain::record::{self, Record};
use evac_core::maintenance::{About, FINALIZER, Family, Id, LEASE_SECONDS, Status};
use evac_core::{Key, Lease, Uid};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{KIND, PLURAL};
use crate::call::{Call, FIELD_MANAGER, LeaseClaim, MERGE_PATCH, escape, lease_path, noted, write_lease};
use crate::kubevirt::request::send;

pub fn collection(family: Family) -> String {
    format!("/apis/{}/{}/{PLURAL}", family.group(), family.version())
}

pub fn path(id: &Id) -> String {
    format!("{}/{}", collection(id.family), escape(&id.name))
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

/// Creates the lease of a node, renews it, or takes over the one that was last seen.
pub fn take_lease(
    (node, uid): (&str, &Uid),
    holder: &str,
    record: Option<&Record>,
    at: Timestamp,
    over: Option<&Lease>,
) -> Call {
    let mut notes = json!({});
    if let Some(record) = record {
        notes[record::ANNOTATION] = noted(record);
    }
    let (key, seconds) = (lease_key(node), LEASE_SECONDS.unsigned_abs());
    write_lease(&LeaseClaim { key, holder, seconds, marks: json!({}), notes }, (node, uid), at, over)
}

/// Removes a lease if it is still as it was seen.
pub fn return_lease(lease: &Key, resource_version: &str) -> Call {
    let body = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"resourceVersion": resource_version},
    });
    send("DELETE", lease_path(lease), "application/json", &body)
}

/// An event; those about things without a namespace are kept in `default`.
pub fn event(about: &About, warning: bool, reason: &str, message: &str, now: Timestamp) -> Call {
    let (api_version, kind, name, uid) = match about {
        About::Object(id, uid) => {
            (format!("{}/{}", id.family.group(), id.family.version()), KIND, &id.name, uid)
        }
        About::Node(name, uid) => ("v1".to_owned(), "Node", name, uid),
    };
    let involved = json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid});
    crate::call::event("default", name, &involved, (warning, reason, message), now)
}

/// An object that asks for the maintenance of a node.
pub fn new_object(id: &Id, node: &str, reason: &str, annotations: &[(&str, String)]) -> Value {
    let mut object = json!({
        "apiVersion": format!("{}/{}", id.family.group(), id.family.version()),
        "kind": KIND,
        "metadata": {"name": id.name},
        "spec": {"nodeName": node, "reason": reason},
    });
    for (name, value) in annotations {
        object["metadata"]["annotations"][*name] = json!(value);
    }
    object
}
