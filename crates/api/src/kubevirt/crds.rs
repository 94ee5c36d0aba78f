//! The definitions of KubeVirt's kinds, as far as a control plane needs the server to know them.
//!
//! Specifications keep fields the schema does not name: the part of KubeVirt that fills a guest's hardware is large and none of
//! our business, and what a user wrote has to survive.

use serde_json::{Value, json};

use super::{GROUP, VERSIONS};

struct Definition {
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    in_all: bool,
    columns: Value,
    subresources: Value,
    schema: Value,
}

/// All definitions, ready to be created.
pub fn all() -> Vec<Value> {
    vec![
        machine().object(),
        instance().object(),
        replica_set().object(),
        migration().object(),
        kubevirt().object(),
    ]
}

/// The object in which clusters with the HyperConverged operator keep their settings; only its strategy is read. It is another product's, so it is
/// never installed: this is for servers that stand for a cluster with that operator, the sandbox and those of tests.
pub fn hyperconverged() -> Value {
    let version = |name: &str, storage: bool| {
        json!({
            "name": name,
            "served": true,
            "storage": storage,
            "schema": {"openAPIV3Schema": object(open(json!({})), open(json!({})))},
            "subresources": {"status": {}},
            "additionalPrinterColumns": [age()],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "hyperconvergeds.hco.kubevirt.io"},
        "spec": {
            "group": "hco.kubevirt.io",
            "scope": "Namespaced",
            "names": {
                "plural": "hyperconvergeds",
                "singular": "hyperconverged",
                "kind": "HyperConverged",
                "listKind": "HyperConvergedList",
                "shortNames": ["hco", "hcos"],
            },
            "versions": [version("v1beta1", true), version("v1", false)],
            "conversion": {"strategy": "None"},
        },
    })
}

#[allow(clippy::needless_pass_by_value, reason = "literals read best this way")]
fn open(properties: Value) -> Value {
    json!({"type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": true})
}

#[allow(clippy::needless_pass_by_value, reason = "literals read best this way")]
fn object(spec: Value, status: Value) -> Value {
    json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    })
}

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}

fn condition_column(name: &str, condition: &str) -> Value {
    column(name, "string", &format!(".status.conditions[?(@.type=='{condition}')].status"))
}

fn wide(mut column: Value) -> Value {
    column["priority"] = json!(1);
    column
}

fn age() -> Value {
    column("Age", "date", ".metadata.creationTimestamp")
}

fn machine() -> Definition {
    Definition {
        plural: "virtualmachines",
        singular: "virtualmachine",
        kind: "VirtualMachine",
        short: &["vm", "vms"],
        in_all: true,
        columns: json!([
            age(),
            column("Status", "string", ".status.printableStatus"),
            condition_column("Ready", "Ready"),
        ]),
        subresources: json!({"status": {}}),
        schema: object(
            open(json!({
                "running": {"type": "boolean"},
                "runStrategy": {"type": "string"},
                "template": open(json!({})),
            })),
            open(json!({"printableStatus": {"type": "string", "default": "Stopped"}})),
        ),
    }
}

fn instance() -> Definition {
    Definition {
        plural: "virtualmachineinstances",
        singular: "virtualmachineinstance",
        kind: "VirtualMachineInstance",
        short: &["vmi", "vmis"],
        in_all: true,
        columns: json!([
            age(),
            column("Phase", "string", ".status.phase"),
            column("IP", "string", ".status.interfaces[0].ipAddress"),
            column("NodeName", "string", ".status.nodeName"),
            condition_column("Ready", "Ready"),
            wide(condition_column("Live-Migratable", "LiveMigratable")),
            wide(condition_column("Paused", "Paused")),
        ]),
        // Status is part of the object, as with KubeVirt.
        subresources: Value::Null,
        schema: object(
            open(json!({
                "evictionStrategy": {"type": "string"},
                "terminationGracePeriodSeconds": {"type": "integer", "format": "int64"},
                "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}},
            })),
            open(json!({"phase": {"type": "string"}, "nodeName": {"type": "string"}})),
        ),
    }
}

fn replica_set() -> Definition {
    Definition {
        plural: "virtualmachineinstancereplicasets",
        singular: "virtualmachineinstancereplicaset",
        kind: "VirtualMachineInstanceReplicaSet",
        short: &["vmirs", "vmirss"],
        in_all: true,
        columns: json!([
            column("Desired", "integer", ".spec.replicas"),
            column("Current", "integer", ".status.replicas"),
            column("Ready", "integer", ".status.readyReplicas"),
            age(),
        ]),
        subresources: json!({
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.labelSelector",
            },
        }),
        schema: object(
            open(json!({
                "replicas": {"type": "integer", "format": "int32"},
                "paused": {"type": "boolean"},
                "selector": open(json!({})),
                "template": open(json!({})),
            })),
            open(json!({
                "replicas": {"type": "integer", "format": "int32"},
                "readyReplicas": {"type": "integer", "format": "int32"},
                "labelSelector": {"type": "string"},
            })),
        ),
    }
}

fn migration() -> Definition {
    Definition {
        plural: "virtualmachineinstancemigrations",
        singular: "virtualmachineinstancemigration",
        kind: "VirtualMachineInstanceMigration",
        short: &["vmim", "vmims"],
        in_all: true,
        columns: json!([
            column("Phase", "string", ".status.phase"),
            column("VMI", "string", ".spec.vmiName"),
        ]),
        subresources: json!({"status": {}}),
        schema: object(
            open(json!({"vmiName": {"type": "string"}, "priority": {"type": "string"}})),
            open(json!({"phase": {"type": "string"}})),
        ),
    }
}

fn kubevirt() -> Definition {
    Definition {
        plural: "kubevirts",
        singular: "kubevirt",
        kind: "KubeVirt",
        short: &["kv", "kvs"],
        in_all: true,
        columns: json!([age(), column("Phase", "string", ".status.phase")]),
        subresources: json!({"status": {}}),
        schema: object(open(json!({})), open(json!({"phase": {"type": "string"}}))),
    }
}

impl Definition {
    fn object(self) -> Value {
        let version = |name: &&str| {
            let mut version = json!({
                "name": name,
                "served": true,
                "storage": *name == VERSIONS[0],
                "schema": {"openAPIV3Schema": self.schema},
                "additionalPrinterColumns": self.columns,
            });
            if self.subresources.is_object() {
                version["subresources"] = self.subresources.clone();
            }
            if *name != VERSIONS[0] {
                version["deprecated"] = json!(true);
                version["deprecationWarning"] = json!(format!(
                    "{GROUP}/{name} is now deprecated and will be removed in a future release."
                ));
            }
            version
        };
        let mut names = json!({
            "plural": self.plural,
            "singular": self.singular,
            "kind": self.kind,
            "listKind": format!("{}List", self.kind),
            "shortNames": self.short,
        });
        if self.in_all {
            names["categories"] = json!(["all"]);
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{}.{GROUP}", self.plural),
                "labels": {"kubevirt.io": ""},
            },
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": names,
                "versions": VERSIONS.iter().map(version).collect::<Vec<_>>(),
                "conversion": {"strategy": "None"},
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_served_in_both_versions_and_stored_once() {
        for definition in all().into_iter().chain([hyperconverged()]) {
            let versions = definition["spec"]["versions"].as_array().unwrap();
            assert_eq!(versions.len(), 2, "{definition}");
            assert_eq!(versions.iter().filter(|version| version["storage"] == true).count(), 1);
        }
    }

    #[test]
    fn no_kind_of_another_product_is_installed() {
        for definition in all() {
            assert_eq!(definition["spec"]["group"], GROUP, "{}", definition["metadata"]["name"]);
        }
    }

    #[test]
    fn only_instances_carry_their_status_in_the_object() {
        for definition in all() {
            let has = definition.pointer("/spec/versions/0/subresources/status").is_some();
            let is_instance = definition["spec"]["names"]["kind"] == "VirtualMachineInstance";
            assert_eq!(has, !is_instance, "{}", definition["metadata"]["name"]);
        }
    }
}
