//! The definition of the kind `FailoverPolicy`.
//!
//! What can be wrong in one object is refused by the server itself, with the same words that the operator uses.

use evac_core::failover::agent::{COMMAND_PATTERN, LONGEST_VALUE, MOST_NODES, MOST_OPTIONS};
use serde_json::{Value, json};

pub const GROUP: &str = "evac.dev";
pub const VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "evac.dev/v1alpha1";
pub const KIND: &str = "FailoverPolicy";
pub const NAME: &str = "failoverpolicies.evac.dev";

/// As the API machinery writes durations.
const DURATION: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$";

fn duration(text: &str) -> Value {
    json!({"type": "string", "pattern": DURATION, "description": text})
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

/// Options of a fence agent. What they may be called, and what may be in them, is checked by the operator: schemas know no patterns for keys, and
/// servers repeat a value that does not match one, which may be a password.
fn options(description: &str) -> Value {
    json!({
        "type": "object",
        "maxProperties": MOST_OPTIONS,
        "additionalProperties": {"type": "string", "maxLength": LONGEST_VALUE},
        "description": description,
    })
}

fn amount(description: &str) -> Value {
    json!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": "^(100|[1-9]?[0-9])%$",
        "description": description,
        "minimum": 0,
    })
}

fn selector() -> Value {
    json!({
        "type": "object",
        "description": "Which nodes may be failed over. Never all of them.",
        "properties": {
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
            "matchExpressions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string"},
                        "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": {"type": "array", "items": {"type": "string"}},
                    },
                },
            },
        },
        "x-kubernetes-validations": [{
            "rule": "(has(self.matchLabels) && size(self.matchLabels) > 0) || \
                     (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
            "message": "spec.nodeSelector is empty; a policy must say which nodes it may fail over",
        }],
    })
}

fn proof() -> Value {
    let empty = |description: &str| json!({"type": "object", "description": description});
    json!({
        "type": "object",
        "description": "What is taken for proof that a machine is off. Exactly one.",
        "properties": {
            "statement": empty("Only what people state with evac failover --fenced-by."),
            "provider": empty("The taint by which a cloud's controller says that the machine is shut down."),
            "agent": {
                "type": "object",
                "description": "A program of the fence-agents family, from a directory that the operator was started with.",
                "required": ["command"],
                "properties": {
                    "command": {
                        "type": "string", "minLength": 1, "maxLength": 63, "pattern": COMMAND_PATTERN,
                        "description": "The name of the program, such as fence_ipmilan; never a path.",
                    },
                    "options": options("What the agent is told, for all nodes."),
                    "nodeOptions": {
                        "type": "object",
                        "description": "What it is told for single nodes, by their names.",
                        "maxProperties": MOST_NODES,
                        "additionalProperties": options("For this node."),
                    },
                    "optionsSecret": {
                        "type": "object",
                        "description": "A Secret in the operator's own namespace with more options, such as the password.",
                        "required": ["namespace", "name"],
                        "properties": {
                            "namespace": {"type": "string", "minLength": 1, "maxLength": 63},
                            "name": {"type": "string", "maxLength": 253, "pattern": "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"},
                        },
                    },
                    "timeout": duration("How long one call of the agent may take; 60s if not said."),
                    "tries": {"type": "integer", "minimum": 1, "maximum": 10},
                },
            },
            "assumeOffAfter": duration(
                "Silence for this long is taken for the end. Only for machines that switch themselves off.",
            ),
        },
        "x-kubernetes-validations": [{
            "rule": "[has(self.statement), has(self.provider), has(self.agent), has(self.assumeOffAfter)]\
                     .filter(x, x).size() == 1",
            "message": "give exactly one of spec.proof.statement, provider, agent and assumeOffAfter",
        }],
    })
}

fn spec() -> Value {
    json!({
        "type": "object",
        "required": ["nodeSelector", "proof"],
        "properties": {
            "nodeSelector": selector(),
            "notReadyFor": duration("How long a node must have been NotReady; 5m if not said, 1m at least."),
            "proof": proof(),
            "minHealthy": amount("Nothing is done while fewer of the selected nodes are Ready."),
            "maxUnhealthy": amount("Nothing is done while more of the selected nodes are not Ready."),
            "stormCooldown": duration("How long nothing new is begun after too many were down together."),
            "pause": {
                "type": "array", "items": {"type": "string", "minLength": 1},
                "description": "Reasons to begin nothing new; empty means go.",
            },
        },
        "x-kubernetes-validations": [
            {
                "rule": "!(has(self.minHealthy) && has(self.maxUnhealthy))",
                "message": "give one of spec.minHealthy and spec.maxUnhealthy, not both",
            },
            {
                "rule": "has(self.minHealthy) || has(self.maxUnhealthy)",
                "message": "give spec.minHealthy or spec.maxUnhealthy; without a brake a broken network would look like \
                            failed nodes",
            },
        ],
    })
}

fn status() -> Value {
    let number = json!({"type": "integer"});
    json!({
        "type": "object",
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            "observedNodes": number, "healthyNodes": number, "neededNodes": number,
            "stormSince": {"type": "string", "format": "date-time"},
            "coolingUntil": {"type": "string", "format": "date-time"},
            "nodes": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": text("The node."),
                        "verdict": text("FailingOver, or what holds it back."),
                        "message": text("The same in a sentence."),
                    },
                },
            },
            "conditions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["type", "status"],
                    "properties": {
                        "type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"},
                        "message": {"type": "string"},
                        "lastTransitionTime": {"type": "string", "format": "date-time"},
                        "observedGeneration": {"type": "integer", "format": "int64"},
                    },
                },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        },
    })
}

/// Ready to be created.
pub fn definition() -> Value {
    let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "plural": "failoverpolicies", "singular": "failoverpolicy", "kind": KIND,
                "listKind": "FailoverPolicyList", "shortNames": ["fop"],
            },
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "How failed nodes are failed over without a person.",
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": {"type": "string"}, "kind": {"type": "string"},
                        "metadata": {
                            "type": "object",
                            "properties": {"name": {"type": "string", "maxLength": 63}},
                        },
                        "spec": spec(), "status": status(),
                    },
                }},
                "additionalPrinterColumns": [
                    column("Valid", "string", ".status.conditions[?(@.type=='Valid')].status"),
                    column("Healthy", "integer", ".status.healthyNodes"),
                    column("Nodes", "integer", ".status.observedNodes"),
                    column("Needed", "integer", ".status.neededNodes"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ],
            }],
        },
    })
}
