//! Hostile marks: a kubelet may write the annotations of its own node, and whoever undoes a drain must not do more for it than it could do
//! itself.
//!
//! Whatever the mark says, and whatever leases there are that were written for somebody or something else, nothing of that may go.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

#[path = "corpus/marks.rs"]
mod hostile;

use evac_api::wire;
use evac_core::drain::give_back::{undo, undo_of};
use evac_core::drain::ownership::{MarkState, Ownership, ownership};
use evac_core::drain::record::{ANNOTATION, Record};
use evac_core::maintenance::OWNER;
use evac_core::{Index, Lease, Node, Uid};
use serde_json::json;

use hostile::{corpus, mark, person};

const ME: &str = "ann@desk";

fn node(mark: &str) -> Node {
    let mut object = person();
    object["metadata"]["name"] = json!("n");
    object["metadata"]["uid"] = json!("u");
    object["metadata"]["resourceVersion"] = json!("5");
    object["metadata"]["annotations"] = json!({"evac.dev/drain": mark});
    serde_json::from_value::<wire::Node>(object).unwrap().into()
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
    assert!(corpus(ME).len() >= 20);
    for (what, text) in corpus(ME) {
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
    for (what, text) in corpus(ME) {
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
    for (what, text) in corpus(ME) {
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
    assert_eq!(lease(&text).record.unwrap().uid, Uid::from("u"));
    for rubbish in ["", "{}", "[]", &text[..20], &format!("{text}{}", " ".repeat(20_000))] {
        assert_eq!(lease(rubbish).record, None);
    }
}
