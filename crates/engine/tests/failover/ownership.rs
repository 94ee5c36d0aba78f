//! A node that changes hands while a failover is at work, or while it is given back, belongs to whoever holds it then.

use evac_core::failover::Refusal;
use evac_engine::failover::{End, Event};
use serde_json::{Value, json};

use crate::bench::{Bench, Controller, fence, request};
use crate::hostile_marks;
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

#[tokio::test(start_paused = true)]
async fn no_hostile_mark_has_the_return_of_a_node_take_off_what_is_of_others() {
    let bench = Bench::start_roles(2, "machines".parse().unwrap()).await;
    bench.patch_node("node-1", &hostile_marks::person()).await;
    bench.cluster.pass(5).await;
    let of_others = || async {
        let node = bench.node("node-1").await;
        json!({"spec": node["spec"], "labels": node["metadata"]["labels"]})
    };
    let before = of_others().await;
    let _role = Bench::role_by(bench.cluster.http.clone(), &bench.controllers(Controller::Good));
    let (mut tried, mut returned) = (0, 0);
    for (what, text) in hostile_marks::corpus("evac-operator@kubevirt") {
        let forged = json!({"metadata": {"annotations": {"evac.dev/drain": text}}});
        let merge = "application/merge-patch+json";
        // An annotation that is too large is refused by the server.
        if bench.cluster.send("PATCH", NODE, merge, &forged).await.0 != 200 {
            continue;
        }
        tried += 1;
        bench.cluster.pass(10).await;
        let node = bench.node("node-1").await;
        returned += usize::from(node["metadata"]["annotations"].get("evac.dev/drain").is_none());
        assert_eq!(of_others().await, before, "{what}");
        let off = json!({"metadata": {"annotations": {"evac.dev/drain": null}}});
        bench.patch_node("node-1", &off).await;
    }
    let events = bench.cluster.get("/api/v1/namespaces/default/events").await.unwrap();
    for event in events["items"].as_array().unwrap().iter().filter(|event| event["reason"] == "Returned") {
        let message = event["message"].as_str().unwrap();
        assert!(message.lines().count() == 1 && !message.chars().any(char::is_control), "{message}");
    }
    assert!(tried >= 35 && returned >= 10, "{tried} marks were tried, {returned} were ours to take off");
}
