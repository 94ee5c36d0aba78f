//! Marks that no drain wrote: a kubelet may write annotations, and must not have others undo what it could not.

use evac_core::drain::ownership::MarkState;
use evac_core::drain::run::End;
use evac_core::drain::step::Event;
use evac_engine::nodes;
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::crashes::written;
use crate::hostile_marks as hostile;

#[tokio::test(start_paused = true)]
async fn a_cancel_of_a_forged_mark_takes_off_the_mark_and_nothing_else() {
    for owner in ["tester", "node-maintenance", "evac-operator"] {
        let bench = Bench::start(1).await;
        let person = json!({
            "metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}},
            "spec": {"unschedulable": true, "taints": [
                {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
                {"key": "kubevirt.io/drain", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            ]},
        });
        bench.send("PATCH", "/api/v1/nodes/node-1", &person).await;
        let before = written(&bench).await;
        let mark = json!({
            "version": 1, "owner": owner, "since": "2026-01-01T00:00:00Z", "before": {"unschedulable": false},
            "addedTaints": [
                {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
                {"key": "kubevirt.io/drain", "effect": "NoSchedule"},
            ],
            "addedLabels": {"node-role.kubernetes.io/control-plane": ""},
        });
        let forged = json!({"metadata": {"annotations": {"evac.dev/drain": mark.to_string()}}});
        bench.send("PATCH", "/api/v1/nodes/node-1", &forged).await;
        let undone = nodes::undo(&bench.admin, "node-1", false, false).await.unwrap();
        assert!(undone.mark_removed && !undone.uncordoned && !undone.taints_removed, "{undone:?}");
        assert_eq!(
            undone.left.unwrap(),
            "node node-1 keeps the cordon, the taint dedicated=gpu:NoSchedule, the taint kubevirt.io/drain:NoSchedule, \
             the label node-role.kubernetes.io/control-plane, because no record outside the node says that evac added it; lift a \
             cordon with \"evac uncordon node-1\", remove taints with \"evac taint\" and labels with \"kubectl label\" if they are \
             not wanted"
        );
        assert_eq!(written(&bench).await, before, "{owner}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_takes_over_a_forged_mark_does_not_make_it_true() {
    let bench = Bench::start(1).await;
    bench.send("PATCH", "/api/v1/nodes/node-1", &json!({"spec": {"unschedulable": true}})).await;
    let mark = json!({
        "version": 1, "owner": "tester", "since": "2026-01-01T00:00:00Z", "before": {"unschedulable": false},
    });
    let forged = json!({"metadata": {"annotations": {"evac.dev/drain": mark.to_string()}}});
    bench.send("PATCH", "/api/v1/nodes/node-1", &forged).await;
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(crate::is_drained(told.end()), "{:?}", told.end());
    let undone = nodes::undo(&bench.admin, "node-1", false, false).await.unwrap();
    assert!(undone.mark_removed && !undone.uncordoned, "{undone:?}");
    assert!(bench.node("node-1").await.unschedulable, "a person cordoned it");
}

/// A node as a person left it, and the same with a hostile mark on it; false if the server itself refuses so large an annotation.
async fn forged(bench: &Bench, text: &str) -> bool {
    let body = json!({"metadata": {"annotations": {"evac.dev/drain": text}}});
    let call = evac_api::kubevirt::request::send(
        "PATCH",
        "/api/v1/nodes/node-1".into(),
        "application/merge-patch+json",
        &body,
    );
    bench.admin.send(&call).await.unwrap().is_success()
}

/// Without the mark, and without what follows from the cordon alone.
async fn of_others(bench: &Bench) -> Value {
    let mut node = written(bench).await;
    if let Some(annotations) = node["metadata"]["annotations"].as_object_mut() {
        annotations.remove("evac.dev/drain");
        if annotations.is_empty() {
            node["metadata"]["annotations"] = Value::Null;
        }
    }
    if let Some(taints) = node["spec"]["taints"].as_array_mut() {
        taints.retain(|taint| taint["key"] != "node.kubernetes.io/unschedulable");
    }
    node
}

async fn attacked() -> (Bench, Value) {
    let bench = Bench::start(1).await;
    bench.send("PATCH", "/api/v1/nodes/node-1", &hostile::person()).await;
    bench.clock.sleep(std::time::Duration::from_secs(5)).await;
    let before = of_others(&bench).await;
    (bench, before)
}

fn is_one_sentence(words: Option<&str>) -> bool {
    words.is_none_or(|words| words.lines().count() == 1 && !words.chars().any(char::is_control))
}

#[tokio::test(start_paused = true)]
async fn no_hostile_mark_has_a_cancel_take_off_what_is_of_others() {
    let (bench, before) = attacked().await;
    let (mut tried, mut removed) = (0, 0);
    for (what, text) in hostile::corpus("tester") {
        if !forged(&bench, &text).await {
            continue;
        }
        tried += 1;
        // As the command does it.
        let undone = match bench.node("node-1").await.mark {
            Some(MarkState::Valid(mark)) => {
                nodes::undo_of(&bench.admin, "node-1", &mark.owner, false).await.unwrap().unwrap()
            }
            _ => nodes::undo(&bench.admin, "node-1", false, false).await.unwrap(),
        };
        assert!(!undone.uncordoned && !undone.taints_removed, "{what}: {undone:?}");
        assert!(is_one_sentence(undone.left.as_deref()), "{what}: {undone:?}");
        removed += usize::from(undone.mark_removed);
        assert_eq!(of_others(&bench).await, before, "{what}");
    }
    assert!(tried >= 35 && removed == tried, "{tried} marks were tried and {removed} removed");
}

#[tokio::test(start_paused = true)]
async fn no_hostile_mark_has_an_uncordon_take_off_more_than_the_cordon() {
    let (bench, before) = attacked().await;
    let mut tried = 0;
    for (what, text) in hostile::corpus("tester") {
        if !forged(&bench, &text).await {
            continue;
        }
        tried += 1;
        let undone = nodes::undo(&bench.admin, "node-1", true, false).await.unwrap();
        assert!(undone.uncordoned && undone.mark_removed && !undone.taints_removed, "{what}: {undone:?}");
        assert!(is_one_sentence(undone.left.as_deref()), "{what}: {undone:?}");
        bench.send("PATCH", "/api/v1/nodes/node-1", &json!({"spec": {"unschedulable": true}})).await;
        assert_eq!(of_others(&bench).await, before, "{what}");
    }
    assert!(tried >= 35, "{tried}");
}

#[tokio::test(start_paused = true)]
async fn no_hostile_mark_becomes_true_by_a_drain_that_takes_it_over() {
    let (bench, before) = attacked().await;
    let (mut drained, mut refused) = (0, 0);
    for (what, text) in hostile::corpus("tester") {
        if !forged(&bench, &text).await {
            continue;
        }
        let mut request = bench.request(&["node-1"]);
        request.policy.take_over = true;
        let told = bench.drain(request).await;
        assert_eq!(of_others(&bench).await, before, "{what}: while it is drained");
        // In the name of a maintenance: a drain does not take that over, and a forced cancel takes it off.
        if matches!(told.end(), End::Refused { .. }) && text.contains("node-maintenance") {
            refused += 1;
            continue;
        }
        drained += usize::from(crate::is_drained(told.end()));
        for (_, event) in &told.events {
            if let Event::Noted { reason, .. } = event {
                assert!(is_one_sentence(Some(&reason.message())), "{what}: {}", reason.message());
            }
        }
        let undone = nodes::undo_of(&bench.admin, "node-1", "tester", false).await.unwrap();
        assert!(undone.is_some_and(|undone| !undone.uncordoned && !undone.taints_removed), "{what}");
        assert_eq!(of_others(&bench).await, before, "{what}");
    }
    assert!(drained >= 30 && drained + refused >= 35, "{drained} drained, {refused} refused");
}
