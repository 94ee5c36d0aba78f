//! Marks that no drain wrote: a kubelet may write annotations, and must not have others undo what it could not.

use evac_engine::nodes;
use serde_json::json;

use crate::bench::Bench;
use crate::crashes::written;

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
