//! Renders instances from templates, and the small objects beside them.

use evac_core::machines::slots::{Ledger, Slot};
use evac_core::machines::{guard, names};
use evac_core::{Key, Uid};
use serde_json::{Map, Value, json};

use super::{API_VERSION, NAMESPACE, wire};

/// The object that names the running migrations.
pub const LEDGER: &str = "evac-migration-slots";

fn owner(kind: &str, meta: &Value) -> Value {
    json!([{
        "apiVersion": API_VERSION,
        "kind": kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    }])
}

fn from_template(template: &Value, namespace: &Value, name: &str) -> Value {
    let keep = |field: &str| template["metadata"][field].as_object().cloned().unwrap_or_default();
    json!({
        "apiVersion": API_VERSION,
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": keep("labels"),
            "annotations": keep("annotations"),
            "finalizers": [names::INSTANCE_FINALIZER],
        },
        "spec": template["spec"].as_object().cloned().unwrap_or_else(Map::new),
    })
}

/// The instance of a machine; it has the machine's name.
pub fn instance(machine: &Value, paused: bool) -> Value {
    let meta = &machine["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    let mut object = from_template(&machine["spec"]["template"], &meta["namespace"], name);
    object["metadata"]["ownerReferences"] = owner("VirtualMachine", meta);
    object["metadata"]["finalizers"] = json!([names::INSTANCE_FINALIZER, names::MACHINE_FINALIZER]);
    if name.len() <= 63 {
        object["metadata"]["labels"]["vm.kubevirt.io/name"] = json!(name);
    }
    if let Some(generation) = meta["generation"].as_i64() {
        object["metadata"]["annotations"]["kubevirt.io/vm-generation"] = json!(generation.to_string());
    }
    if paused {
        object["spec"]["startStrategy"] = json!("Paused");
    }
    object
}

pub fn replica(set: &Value, name: &str) -> Value {
    let meta = &set["metadata"];
    let mut object = from_template(&set["spec"]["template"], &meta["namespace"], name);
    object["metadata"]["ownerReferences"] = owner("VirtualMachineInstanceReplicaSet", meta);
    object
}

/// A migration somebody asked for by hand.
pub fn migration(namespace: &str, instance: &str, added_selector: Option<&Value>) -> Value {
    let mut object = json!({
        "apiVersion": API_VERSION,
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"generateName": "kubevirt-migrate-vm-", "namespace": namespace},
        "spec": {"vmiName": instance},
    });
    if let Some(selector) = added_selector.filter(|selector| selector.is_object()) {
        object["spec"]["addedNodeSelector"] = selector.clone();
    }
    object
}

/// The budget that keeps the pods of an instance from being evicted.
pub fn budget(instance: &Key, uid: &Uid, name: &str) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": name,
            "namespace": instance.namespace,
            "annotations": {
                "evac.dev/about": "Keeps this guest from being shut down by an eviction; it asks for more pods than a guest can have.",
            },
            "ownerReferences": [{
                "apiVersion": API_VERSION,
                "kind": "VirtualMachineInstance",
                "name": instance.name,
                "uid": uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "minAvailable": guard::MIN_AVAILABLE,
            "selector": {"matchLabels": {names::CREATED_BY: uid}},
        },
    })
}

pub fn ledger(ledger: &Ledger) -> Value {
    let slots = serde_json::to_string(&ledger.slots).unwrap_or_default();
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": LEDGER,
            "namespace": NAMESPACE,
            "annotations": {
                "evac.dev/about": "The running migrations. Written before each start, so that limits hold for all who write.",
            },
        },
        "data": {"slots": slots},
    });
    if !ledger.version.is_empty() {
        object["metadata"]["resourceVersion"] = json!(ledger.version);
    }
    object
}

/// Reads the ledger; what cannot be read counts as nothing, and the next write mends it.
pub fn read_ledger(object: &wire::ConfigMap) -> Ledger {
    let slots: Vec<Slot> =
        object.data.get("slots").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    Ledger { version: object.metadata.resource_version.clone(), slots }
}

#[cfg(test)]
mod tests {
    use evac_core::{Key, Uid};

    use super::*;

    #[test]
    fn an_instance_of_a_machine_has_its_name_template_and_finalizers() {
        let vm = json!({
            "metadata": {"name": "vm1", "namespace": "d", "uid": "u", "generation": 4},
            "spec": {"runStrategy": "Always", "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"domain": {"devices": {}}, "unknownToUs": 7},
            }},
        });
        let vmi = instance(&vm, true);
        assert_eq!(vmi["metadata"]["name"], "vm1");
        assert_eq!(vmi["metadata"]["labels"]["a"], "b");
        assert_eq!(vmi["metadata"]["ownerReferences"][0]["kind"], "VirtualMachine");
        assert_eq!(vmi["metadata"]["finalizers"].as_array().unwrap().len(), 2);
        assert_eq!(vmi["spec"]["unknownToUs"], 7);
        assert_eq!(vmi["spec"]["startStrategy"], "Paused");
        assert!(instance(&vm, false)["spec"].get("startStrategy").is_none());
    }

    #[test]
    fn the_ledger_comes_back_as_it_was_written() {
        let slot = Slot { uid: Uid("u".into()), migration: Key::new("d", "m"), node: "n1".into() };
        let written = Ledger { version: "7".into(), slots: vec![slot] };
        let object: wire::ConfigMap = serde_json::from_value(ledger(&written)).unwrap();
        assert_eq!(read_ledger(&object), written);
    }
}
