//! Hostile marks, shared by the tests of every path that honours a mark.
//!
//! The node under attack was cordoned by a person and carries taints and labels of others, also such as evac itself puts on nodes. Whatever
//! its mark says, nothing of that may go.

use evac_core::maintenance::OWNER;
use serde_json::{Value, json};

/// Labels and taints of others, and a person's cordon.
pub fn person() -> Value {
    json!({
        "metadata": {"labels": {
            "node-role.kubernetes.io/control-plane": "", "tenant.node-restriction.kubernetes.io/team": "red",
            "remediation.medik8s.io/exclude-from-remediation": "true", "rack": "7"
        }},
        "spec": {
            "unschedulable": true,
            "taints": [
                {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
                {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
                {"key": "kubevirt.io/drain", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"},
            ],
        },
    })
}

pub fn mark(owner: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut mark = json!({
        "version": 1, "owner": owner, "since": "2026-01-01T00:00:00Z",
        "before": {"unschedulable": false, "taints": []},
    });
    change(&mut mark);
    mark.to_string()
}

fn taints(key: &str, effect: &str) -> impl FnOnce(&mut Value) {
    let taint = json!([{"key": key, "effect": effect}]);
    move |mark| mark["addedTaints"] = taint
}

fn labels(name: &str, value: &str) -> impl FnOnce(&mut Value) {
    let labels = json!({name: value});
    move |mark| mark["addedLabels"] = labels
}

/// What it tries, and the text of the annotation, most of it in the name of `me`.
pub fn corpus(me: &str) -> Vec<(&'static str, String)> {
    let everything = |mark: &mut Value| {
        mark["addedTaints"] = json!([
            {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
            {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
            {"key": "kubevirt.io/drain", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"},
        ]);
        mark["addedLabels"] = json!({
            "node-role.kubernetes.io/control-plane": "", "tenant.node-restriction.kubernetes.io/team": "red",
            "remediation.medik8s.io/exclude-from-remediation": "true",
        });
    };
    vec![
        ("a pre-image that says schedulable", mark(me, |_| {})),
        ("no pre-image at all", mark(me, |mark| drop(mark.as_object_mut().unwrap().remove("before")))),
        ("an empty pre-image", mark(me, |mark| mark["before"] = json!({}))),
        (
            "a pre-image with a text for a truth",
            mark(me, |mark| mark["before"]["unschedulable"] = json!("false")),
        ),
        (
            "a pre-image with taints that never were",
            mark(me, |mark| {
                mark["before"]["taints"] = json!([{"key": "made/up", "effect": "NoExecute"}]);
            }),
        ),
        ("somebody's dedicated node", mark(me, taints("dedicated", "NoSchedule"))),
        (
            "the taint of the control plane",
            mark(me, taints("node-role.kubernetes.io/control-plane", "NoSchedule")),
        ),
        ("a person's drain taint", mark(me, taints("kubevirt.io/drain", "NoSchedule"))),
        ("a drain taint with another effect", mark(me, taints("kubevirt.io/drain", "NoExecute"))),
        (
            "the taint of a node out of service",
            mark(me, taints("node.kubernetes.io/out-of-service", "NoExecute")),
        ),
        ("a taint without a key", mark(me, taints("", "NoSchedule"))),
        ("a label that says what the node is", mark(me, labels("node-role.kubernetes.io/control-plane", ""))),
        (
            "a label that kubelets may not touch",
            mark(me, labels("tenant.node-restriction.kubernetes.io/team", "red")),
        ),
        (
            "a label of remediation operators",
            mark(me, labels("remediation.medik8s.io/exclude-from-remediation", "true")),
        ),
        ("any label", mark(me, labels("rack", "7"))),
        ("everything at once", mark(me, everything)),
        ("everything in the name of the maintenance", mark(OWNER, everything)),
        ("everything in the name of another installation", mark("node-maintenance@other", everything)),
        ("everything in the name of the failover", mark("evac-operator", everything)),
        ("everything in the name of somebody else", mark("bob@box", everything)),
        ("since the future", mark(me, |mark| mark["since"] = json!("2199-01-01T00:00:00Z"))),
        ("since no time", mark(me, |mark| mark["since"] = json!("yesterday"))),
        ("a version that nobody wrote", mark(me, |mark| mark["version"] = json!(2))),
        ("a negative version", mark(me, |mark| mark["version"] = json!(-1))),
        ("nobody", mark("", |_| {})),
        ("a name of two lines", mark("ann@desk\nnode n uncordoned", |_| {})),
        ("a name that clears the screen", mark("ann@desk\u{1b}[2J", |_| {})),
        ("options that colour the screen", mark(me, |mark| mark["options"] = json!(["\u{1b}[31m--force"]))),
        (
            "the same field twice",
            format!("{}\"owner\":\"{OWNER}\"}}", mark(me, |_| {}).replace('}', ",").replacen(",,", "},", 1)),
        ),
        ("a very long mark", mark(me, |mark| mark["options"] = json!(vec!["--selector=a"; 20_000]))),
        ("a very deep mark", format!("{}1{}", "{\"before\":".repeat(5_000), "}".repeat(5_000))),
        ("a list", "[]".to_owned()),
        ("nothing", String::new()),
        ("null", "null".to_owned()),
        ("half a mark", mark(me, |_| {})[..40].to_owned()),
        (
            "broken escapes",
            r#"{"version":1,"owner":"\ud800","since":"2026-01-01T00:00:00Z","before":{}}"#.to_owned(),
        ),
        ("other kinds of values", r#"{"version":"1","owner":["ann@desk"],"since":0,"before":[]}"#.to_owned()),
    ]
}
