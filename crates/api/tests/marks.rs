//! Hostile marks: a kubelet may write the annotations of its own node, and whoever undoes a drain must not do more for it than it could do
//! itself.
//!
//! The node under attack was cordoned by a person and carries taints and labels of others, also such as evac itself puts on nodes. Whatever
//! its mark says, and whatever leases there are that were written for somebody or something else, nothing of that may go.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

use evac_api::wire;
use evac_core::maintenance::OWNER;
use evac_core::ownership::{MarkState, Ownership, ownership, undo, undo_of};
use evac_core::record::{ANNOTATION, Record};
use evac_core::{Index, Lease, Node, Uid};
use serde_json::{Value, json};

const ME: &str = "ann@desk";

fn node(mark: &str) -> Node {
    let object = json!({
        "metadata": {
            "name": "n", "uid": "u", "resourceVersion": "5",
            "annotations": {"evac.dev/drain": mark},
            "labels": {
                "node-role.kubernetes.io/control-plane": "", "tenant.node-restriction.kubernetes.io/team": "red",
                "remediation.medik8s.io/exclude-from-remediation": "true", "rack": "7"
            },
        },
        "spec": {
            "unschedulable": true,
            "taints": [
                {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
                {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
                {"key": "kubevirt.io/drain", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"},
            ],
        },
    });
    serde_json::from_value::<wire::Node>(object).unwrap().into()
}

fn mark(owner: &str, change: impl FnOnce(&mut Value)) -> String {
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

/// What it tries, and the text of the annotation.
fn corpus() -> Vec<(&'static str, String)> {
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
        ("a pre-image that says schedulable", mark(ME, |_| {})),
        ("no pre-image at all", mark(ME, |mark| drop(mark.as_object_mut().unwrap().remove("before")))),
        ("an empty pre-image", mark(ME, |mark| mark["before"] = json!({}))),
        (
            "a pre-image with a text for a truth",
            mark(ME, |mark| mark["before"]["unschedulable"] = json!("false")),
        ),
        (
            "a pre-image with taints that never were",
            mark(ME, |mark| {
                mark["before"]["taints"] = json!([{"key": "made/up", "effect": "NoExecute"}]);
            }),
        ),
        ("somebody's dedicated node", mark(ME, taints("dedicated", "NoSchedule"))),
        (
            "the taint of the control plane",
            mark(ME, taints("node-role.kubernetes.io/control-plane", "NoSchedule")),
        ),
        ("a person's drain taint", mark(ME, taints("kubevirt.io/drain", "NoSchedule"))),
        ("a drain taint with another effect", mark(ME, taints("kubevirt.io/drain", "NoExecute"))),
        (
            "the taint of a node out of service",
            mark(ME, taints("node.kubernetes.io/out-of-service", "NoExecute")),
        ),
        ("a taint without a key", mark(ME, taints("", "NoSchedule"))),
        ("a label that says what the node is", mark(ME, labels("node-role.kubernetes.io/control-plane", ""))),
        (
            "a label that kubelets may not touch",
            mark(ME, labels("tenant.node-restriction.kubernetes.io/team", "red")),
        ),
        (
            "a label of remediation operators",
            mark(ME, labels("remediation.medik8s.io/exclude-from-remediation", "true")),
        ),
        ("any label", mark(ME, labels("rack", "7"))),
        ("everything at once", mark(ME, everything)),
        ("everything in the name of the maintenance", mark(OWNER, everything)),
        ("everything in the name of another installation", mark("node-maintenance@other", everything)),
        ("everything in the name of the failover", mark("evac-operator", everything)),
        ("everything in the name of somebody else", mark("bob@box", everything)),
        ("since the future", mark(ME, |mark| mark["since"] = json!("2199-01-01T00:00:00Z"))),
        ("since no time", mark(ME, |mark| mark["since"] = json!("yesterday"))),
        ("a version that nobody wrote", mark(ME, |mark| mark["version"] = json!(2))),
        ("a negative version", mark(ME, |mark| mark["version"] = json!(-1))),
        ("nobody", mark("", |_| {})),
        ("a name of two lines", mark("ann@desk\nnode n uncordoned", |_| {})),
        ("a name that clears the screen", mark("ann@desk\u{1b}[2J", |_| {})),
        ("options that colour the screen", mark(ME, |mark| mark["options"] = json!(["\u{1b}[31m--force"]))),
        (
            "the same field twice",
            format!("{}\"owner\":\"{OWNER}\"}}", mark(ME, |_| {}).replace('}', ",").replacen(",,", "},", 1)),
        ),
        ("a very long mark", mark(ME, |mark| mark["options"] = json!(vec!["--selector=a"; 20_000]))),
        ("a very deep mark", format!("{}1{}", "{\"before\":".repeat(5_000), "}".repeat(5_000))),
        ("a list", "[]".to_owned()),
        ("nothing", String::new()),
        ("null", "null".to_owned()),
        ("half a mark", mark(ME, |_| {})[..40].to_owned()),
        (
            "broken escapes",
            r#"{"version":1,"owner":"\ud800","since":"2026-01-01T00:00:00Z","before":{}}"#.to_owned(),
        ),
        ("other kinds of values", r#"{"version":"1","owner":["ann@desk"],"since":0,"before":[]}"#.to_owned()),
    ]
}

fn record(uid: &str, owner: &str) -> Record {
    let cluttered = json!({
        "uid": uid, "owner": owner, "unschedulable": false,
        "taints": [
            {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
            {"key": "kubevirt.io/drain", "effect": "NoSchedule"},
        ],
        "labels": {"rack": "7", "remediation.medik8s.io/exclude-from-remediation": "true"},
    });
    serde_json::from_value(cluttered).unwrap()
}

/// Records that say nothing about this mark.
fn beside_the_point() -> Vec<Option<Record>> {
    vec![None, Some(record("another-incarnation", ME)), Some(record("u", "carol@lab")), Some(record("u", ""))]
}

#[test]
fn nothing_is_removed_on_the_word_of_a_mark_alone() {
    assert!(corpus().len() >= 20);
    for (what, text) in corpus() {
        let node = node(&text);
        for record in beside_the_point() {
            let undone = undo(&node, record.as_ref());
            assert_eq!(undone.unschedulable, None, "{what}: the cordon of a person");
            assert_eq!(undone.taints, None, "{what}: taints of others");
            assert_eq!(undone.labels, Vec::<String>::new(), "{what}: labels of others");
            for owner in [OWNER, "evac-operator"] {
                if let Some(undone) = undo_of(&node, owner, false, record.as_ref()) {
                    assert_eq!((undone.unschedulable, undone.taints), (None, None), "{what}");
                    assert!(undone.labels.is_empty(), "{what}");
                }
            }
        }
    }
}

#[test]
fn what_no_drain_can_have_written_belongs_to_nobody_and_is_shown_as_one_short_line() {
    let mut unreadable = 0;
    for (what, text) in corpus() {
        let node = node(&text);
        let Some(MarkState::Unreadable(shown)) = &node.mark else { continue };
        unreadable += 1;
        assert!(shown.chars().count() <= 120 && !shown.chars().any(char::is_control), "{what}: {shown:?}");
        let owned = ownership(&Index::new(), &node, ME, "2026-01-02T00:00:00Z".parse().unwrap());
        let Ownership::Other(reason) = owned else { panic!("{what}: {owned:?}") };
        assert_eq!(reason.message().lines().count(), 1, "{what}: {}", reason.message());
    }
    assert!(unreadable >= 14, "{unreadable}");
}

#[test]
fn what_is_left_is_said_in_one_sentence_with_what_a_person_can_do() {
    for (what, text) in corpus() {
        let node = node(&text);
        let undone = undo(&node, None);
        let Some(MarkState::Valid(_)) = &node.mark else {
            assert_eq!(undone.words("n"), None, "{what}: it names nothing");
            continue;
        };
        if let Some(words) = undone.words("n") {
            assert!(
                words.starts_with("node n keeps ") && words.contains("evac uncordon n"),
                "{what}: {words}"
            );
            assert!(words.lines().count() == 1 && words.len() < 1200, "{what}: {words}");
        }
    }
    let words = undo(&node(&mark(ME, |_| {})), None).words("n").unwrap();
    assert!(words.starts_with("node n keeps the cordon, because no record outside the node"), "{words}");
}

#[test]
fn even_with_a_record_only_what_both_name_and_evac_ever_adds_is_taken_off() {
    let text = mark(ME, |mark| {
        mark["addedTaints"] = json!([
            {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
            {"key": "kubevirt.io/drain", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"},
        ]);
        mark["addedLabels"] = json!({"rack": "7", "remediation.medik8s.io/exclude-from-remediation": "true"});
    });
    let undone = undo(&node(&text), Some(&record("u", ME)));
    assert_eq!(undone.unschedulable, Some(false));
    let kept: Vec<String> = undone.taints.unwrap().into_iter().map(|taint| taint.key).collect();
    assert_eq!(
        kept,
        ["dedicated", "node-role.kubernetes.io/control-plane", "node.kubernetes.io/out-of-service"],
        "the record names the first but evac never adds it, and does not name the last"
    );
    assert_eq!(undone.labels, ["remediation.medik8s.io/exclude-from-remediation"]);
    let left = [
        "the taint dedicated=gpu:NoSchedule",
        "the taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        "the label rack",
    ];
    assert_eq!(undone.left, left);
}

#[test]
fn a_record_is_read_from_a_lease_and_rubbish_there_is_none() {
    let lease = |text: &str| {
        let object = json!({
            "metadata": {"name": "evac-drain-n", "namespace": "kube-node-lease", "annotations": {ANNOTATION: text}},
            "spec": {},
        });
        Lease::from(serde_json::from_value::<wire::Lease>(object).unwrap())
    };
    let text = serde_json::to_string(&record("u", ME)).unwrap();
    assert_eq!(lease(&text).record.unwrap().uid, Uid("u".into()));
    for rubbish in ["", "{}", "[]", &text[..20], &format!("{text}{}", " ".repeat(20_000))] {
        assert_eq!(lease(rubbish).record, None);
    }
}
