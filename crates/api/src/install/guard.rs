//! An admission policy that keeps the accounts of nodes off the keys of evac on Node objects.
//!
//! A kubelet may write its own Node: annotations, most labels, and as part of its status, too. What evac notes there decides what evac undoes
//! later, so no kubelet has business with it. The policy runs inside the API server and looks only at requests of node accounts; it
//! compares the keys of evac before and after, so a kubelet's own updates pass whatever stands there.

use serde_json::{Value, json};

use super::Plan;

const KEYS: &str = "evac.dev/";

/// Policy and binding.
pub fn all(plan: &Plan) -> Vec<Value> {
    let name = format!("{}-node-keys", plan.name);
    let metadata = json!({"name": name, "labels": plan.labels()});
    let kept = |field: &str| {
        format!(
            "variables.new{field}.all(key, !key.startsWith('{KEYS}') || (key in variables.old{field} && variables.old{field}[key] == variables.new{field}[key])) \
             && variables.old{field}.all(key, !key.startsWith('{KEYS}') || key in variables.new{field})"
        )
    };
    let map = |name: &str, object: &str, field: &str| {
        json!({
            "name": name,
            "expression": format!("{object} != null && has({object}.metadata.{field}) ? {object}.metadata.{field} : {{}}"),
        })
    };
    let taints = |name: &str, object: &str| {
        json!({
            "name": name,
            "expression": format!(
                "{object} != null && has({object}.spec) && has({object}.spec.taints) ? {object}.spec.taints.filter(taint, taint.key.startsWith('{KEYS}')) : []"
            ),
        })
    };
    let refused = |what: &str, expression: String| {
        json!({
            "expression": expression,
            "message": format!("the account of a node may not add, change or remove {what} under {KEYS} on nodes"),
            "reason": "Forbidden",
        })
    };
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["nodes", "nodes/status"],
            }]},
            "matchConditions": [{"name": "node-accounts", "expression": "'system:nodes' in request.userInfo.groups"}],
            "variables": [
                map("newAnnotations", "object", "annotations"),
                map("oldAnnotations", "oldObject", "annotations"),
                map("newLabels", "object", "labels"),
                map("oldLabels", "oldObject", "labels"),
                taints("newTaints", "object"),
                taints("oldTaints", "oldObject"),
            ],
            "validations": [
                refused("annotations", kept("Annotations")),
                refused("labels", kept("Labels")),
                refused("taints", "variables.newTaints == variables.oldTaints".to_owned()),
            ],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    vec![policy, binding]
}
