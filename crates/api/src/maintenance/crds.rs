//! The definitions of NodeMaintenance, one for each group.

use evac_core::maintenance::Family;
use serde_json::{Value, json};

use super::{KIND, PLURAL};

/// Both definitions, ready to be created.
pub fn all() -> Vec<Value> {
    Family::ALL.into_iter().map(definition).collect()
}

/// The definition in one group.
pub fn definition(family: Family) -> Value {
    let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    let mut reason = column("Reason", "string", ".spec.reason");
    reason["priority"] = json!(1);
    // One short name for two kinds would be ambiguous; users of today's know it.
    let short: &[&str] = if family == Family::Medik8s { &["nm"] } else { &[] };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{PLURAL}.{}", family.group())},
        "spec": {
            "group": family.group(),
            "scope": "Cluster",
            "names": {
                "plural": PLURAL,
                "singular": "nodemaintenance",
                "kind": KIND,
                "listKind": "NodeMaintenanceList",
                "shortNames": short,
            },
            "versions": [{
                "name": family.version(),
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Node", "string", ".spec.nodeName"),
                    column("Phase", "string", ".status.phase"),
                    column("Progress", "integer", ".status.drainProgress"),
                    column("Error", "string", ".status.lastError"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                    reason,
                ],
                "schema": {"openAPIV3Schema": schema()},
            }],
            "conversion": {"strategy": "None"},
        },
    })
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn number(description: &str) -> Value {
    json!({"type": "integer", "description": description})
}

fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

fn record(description: &str, properties: &Value) -> Value {
    json!({"type": "object", "description": description, "properties": properties})
}

fn list(description: &str, item: &Value) -> Value {
    json!({"type": "array", "description": description, "items": item})
}

fn schema() -> Value {
    json!({
        "type": "object",
        "description": "While it exists its node is kept empty; deleting it gives the node back as it was.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "required": ["nodeName"],
                "properties": {
                    "nodeName": {
                        "type": "string",
                        "minLength": 1,
                        "description": "The node to put into maintenance; it cannot be changed.",
                        "x-kubernetes-validations": [{
                            "rule": "self == oldSelf",
                            "message": "updating spec.NodeName isn't allowed; delete this object and create another one",
                        }],
                    },
                    "reason": text("Why, in words for people."),
                },
            },
            "status": status(),
        },
    })
}

fn status() -> Value {
    let blocker = record(
        "One thing in the way.",
        &json!({
            "code": text("A stable word for what it is."),
            "object": text("What cannot leave."),
            "message": text("Why, in a sentence."),
            "fix": text("What to do about it."),
            "since": time("Since when."),
        }),
    );
    let condition = json!({
        "type": "object",
        "required": ["type", "status", "reason"],
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    });
    let pod = record("A pod.", &json!({"namespace": text("Its namespace."), "name": text("Its name.")}));
    let estimate = record(
        "When the node will be empty, as its drain foretells it; absent while that is unknown.",
        &json!({
            "earliest": time("Meant to hold nine times of ten; absent where only a limit is known."),
            "latest": time("Meant to hold nine times of ten, or the limit that grace periods set."),
        }),
    );
    record(
        "Where the maintenance stands.",
        &json!({
            "phase": {
                "type": "string",
                "enum": ["Running", "Succeeded", "Failed"],
                "description": "Succeeded means that the node is empty and kept so.",
            },
            "drainProgress": number("Per cent of the pods that have left; 100 only when that is proven."),
            "lastUpdate": time("When this status was written."),
            "lastError": text("What holds it up, in a sentence."),
            "pendingPods": list("The names of pods that have to leave.", &json!({"type": "string"})),
            "pendingPodsRefs": list("The pods that have to leave.", &pod),
            "totalpods": number("Pods on the node at the beginning."),
            "evictionPods": number("Of those, pods that had to leave."),
            "errorOnLeaseCount": number("How often the lease of the node was found with somebody else."),
            "blockers": list("What is in the way.", &blocker),
            "estimatedEnd": estimate,
            "conditions": list("Drained, Blocked, Waiting, Yielded, PermissionIgnored.", &condition),
        }),
    )
}
