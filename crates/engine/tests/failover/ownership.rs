//! A node that changes hands while a failover is at work, or while it is given back, belongs to whoever holds it then.

use evac_core::failover::Refusal;
use evac_engine::failover::{End, Event};
use serde_json::{Value, json};

use crate::bench::{Bench, Controller, fence, request};
use crate::unknown::wired;
use crate::wire::Fault;

const NODE: &str = "/api/v1/nodes/node-1";

fn mark(owner: &str) -> Value {
    let mark = json!({
        "version": 1, "owner": owner, "since": "2026-01-01T00:00:00Z",
        "before": {"unschedulable": false, "taints": []},
    });
    json!({"metadata": {"annotations": {"evac.dev/drain": mark.to_string()}}, "spec": {"unschedulable": true}})
}

/// Marks the node for lee just before the given one of our writes to it arrives.
fn lee_is_faster(number: usize) -> impl FnMut(&str, &str) -> Option<Fault> + Send + 'static {
    let mut writes = 0;
    move |method, path| {
        if method != "PATCH" || !path.starts_with(NODE) {
            return None;
        }
        writes += 1;
        (writes == number).then(|| Fault::Overtaken(vec![("PATCH", NODE.into(), mark("lee"))]))
    }
}

async fn is_lees(bench: &Bench) {
    let node = bench.node("node-1").await;
    let found = node["metadata"]["annotations"]["evac.dev/drain"].as_str().unwrap_or_default();
    let wanted = mark("lee");
    assert_eq!(found, wanted["metadata"]["annotations"]["evac.dev/drain"].as_str().unwrap());
    assert_eq!(node["spec"]["unschedulable"], true);
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_appears_before_our_cordon_is_respected_and_one_that_appears_later_too() {
    // The cordon, the record of the proof, the release.
    for write in 1..=3 {
        let bench = Bench::start(3).await;
        bench.machine("a", "Always").await;
        bench.cluster.world.kubelet("node-1").stop();
        bench.unreachable("node-1").await;
        let (http, wire) = wired(&bench);
        wire.fail(lee_is_faster(write));
        let controllers = bench.controllers(Controller::Good);
        let (end, events) = bench.failover_by(&http, &request("node-1", fence(&controllers))).await;
        let Ok(End::Refused(Refusal::Owned { message })) = &end else { panic!("write {write}: {end:?}") };
        assert!(message.contains("lee"), "{message}");
        assert!(!events.iter().any(|(_, event)| matches!(event, Event::Released { .. })));
        assert!(!bench.out_of_service("node-1").await, "write {write}");
        assert_eq!(controllers.asked.lock().unwrap().is_empty(), write == 1, "write {write}");
        is_lees(&bench).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failover_that_somebody_cancelled_releases_nothing() {
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    let (http, wire) = wired(&bench);
    let mut writes = 0;
    wire.fail(move |method, path| {
        writes += usize::from(method == "PATCH" && path.starts_with(NODE));
        let gone =
            json!({"metadata": {"annotations": {"evac.dev/drain": null}}, "spec": {"unschedulable": null}});
        (writes == 2).then(|| Fault::Overtaken(vec![("PATCH", NODE.into(), gone)]))
    });
    let controllers = bench.controllers(Controller::Good);
    let (end, _) = bench.failover_by(&http, &request("node-1", fence(&controllers))).await;
    assert!(matches!(end, Ok(End::Refused(Refusal::Owned { .. }))), "{end:?}");
    assert!(!bench.out_of_service("node-1").await);
    assert!(bench.node("node-1").await["spec"]["unschedulable"].is_null());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changed_hands_while_it_was_given_back_is_left_to_its_new_owner() {
    let fenced = json!({
        "version": 1, "nodeUid": "filled in below", "boot": "another", "at": "2026-01-01T00:00:00Z",
        "owner": "evac-operator@kubevirt", "how": "agent", "program": "fence_x", "released": true,
    });
    // The record of the proof is taken away first, then the mark.
    for (was_released, write) in [(false, 1), (true, 1), (true, 2)] {
        let bench = Bench::start(3).await;
        bench.patch_node("node-1", &mark("evac-operator@kubevirt")).await;
        if was_released {
            let mut record = fenced.clone();
            record["nodeUid"] = bench.node("node-1").await["metadata"]["uid"].clone();
            let body = json!({"metadata": {"annotations": {"evac.dev/fenced": record.to_string()}}});
            bench.patch_node("node-1", &body).await;
        }
        let (http, wire) = wired(&bench);
        wire.fail(lee_is_faster(write));
        let controllers = bench.controllers(Controller::Good);
        let _role = Bench::role_by(http, &controllers);
        assert_eq!(bench.policy("p", |_| {}).await.0, 201);
        bench.cluster.pass(300).await;
        is_lees(&bench).await;
        assert!(!bench.events("node-1").await.contains_key("Returned"));
        let kept = !bench.node("node-1").await["metadata"]["annotations"]["evac.dev/fenced"].is_null();
        assert_eq!(kept, was_released && write == 1, "the record of a node of another is theirs to judge");
    }
}
