//! Where the objects of each kind are, and what is sent there.

use evac_core::Key;
use evac_core::machines::Kind;
use serde_json::Value;

use super::{API_VERSION, NAMESPACE, render};
use crate::call::{Call, FIELD_MANAGER, escape};
use crate::failover::definition;
use crate::maintenance;

/// Group and version, kind and plural.
fn names(kind: Kind) -> (&'static str, &'static str, &'static str) {
    match kind {
        Kind::Machine => (API_VERSION, "VirtualMachine", "virtualmachines"),
        Kind::Instance => (API_VERSION, "VirtualMachineInstance", "virtualmachineinstances"),
        Kind::ReplicaSet => {
            (API_VERSION, "VirtualMachineInstanceReplicaSet", "virtualmachineinstancereplicasets")
        }
        Kind::Migration => {
            (API_VERSION, "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations")
        }
        Kind::Pod => ("v1", "Pod", "pods"),
        Kind::Node => ("v1", "Node", "nodes"),
        Kind::Budget => ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        Kind::Lease => ("coordination.k8s.io/v1", "Lease", "leases"),
        Kind::Maintenance(family) => (family.api_version(), maintenance::KIND, maintenance::PLURAL),
        Kind::Policy => (definition::API_VERSION, definition::KIND, "failoverpolicies"),
    }
}

/// Group and version, as objects name them.
pub fn api_version(kind: Kind) -> &'static str {
    names(kind).0
}

pub fn kind_name(kind: Kind) -> &'static str {
    names(kind).1
}

pub fn plural(kind: Kind) -> &'static str {
    names(kind).2
}

/// The path of the group.
fn root(kind: Kind) -> String {
    let api_version = api_version(kind);
    let root = if api_version == "v1" { "api" } else { "apis" };
    format!("/{root}/{api_version}")
}

/// The path of a whole collection over all namespaces.
pub fn collection(kind: Kind) -> String {
    format!("{}/{}", root(kind), plural(kind))
}

/// The path of a collection in a namespace, where the kind has such.
pub fn in_namespace(kind: Kind, namespace: &str) -> String {
    match kind {
        Kind::Node | Kind::Maintenance(_) | Kind::Policy => collection(kind),
        _ => format!("{}/namespaces/{}/{}", root(kind), escape(namespace), plural(kind)),
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
