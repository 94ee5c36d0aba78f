//! What others do between a look and the request that follows it, and servers that fail once.

use std::time::Duration;

use evac_api::Call;
use evac_core::drain::ownership::{MarkState, PreImage};
use evac_core::drain::run::End;
use evac_core::drain::step::Event;
use evac_core::reasons::OwnerReason;
use evac_core::{Proof, Reason};
use evac_engine::nodes;
use serde_json::{Value, json};

use crate::bench::{Bench, Told};
use crate::crashes::{PODS, no_lease, stage, taint_settles, written};
use crate::is_drained;
use crate::wire::Fault;

const NODE: &str = "/api/v1/nodes/node-1";
const POD: &str = "/api/v1/namespaces/default/pods/db-0";

/// Lets one fault happen, at the first request that `is` it.
fn once(bench: &Bench, is: impl Fn(&str, &str) -> bool + Send + 'static, fault: Fault) {
    let mut fault = Some(fault);
    bench.wire.fail(move |method, path| if is(method, path) { fault.take() } else { None });
}

fn deleted_at_once() -> (&'static str, String, Value) {
    ("DELETE", POD.into(), json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}))
}

fn left_after(told: &Told) -> f64 {
    let left = told.events.iter().find(|(_, event)| matches!(event, Event::Left { .. })).unwrap();
    left.0.duration_since(told.began).as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_made_anew_while_its_eviction_was_on_the_way_is_spared() {
    for disable_eviction in [false, true] {
        let bench = Bench::start(2).await;
        bench.pod("db-0", |_| {}).await;
        let anew = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-0"},
            "spec": {"nodeName": "node-2", "containers": [{"name": "c", "image": "i"}]},
        });
        let others = vec![deleted_at_once(), ("POST", "/api/v1/namespaces/default/pods".into(), anew)];
        let asked =
            |method: &str, path: &str| path.ends_with("/eviction") || (method, path) == ("DELETE", POD);
        once(&bench, asked, Fault::Overtaken(others));
        let mut request = bench.request(&["node-1"]);
        request.policy.disable_eviction = disable_eviction;
        let told = bench.drain(request).await;
        assert!(is_drained(told.end()), "{:?}", told.end());
        let pod: Value = bench.admin.read(&Call::get(POD)).await.unwrap();
        assert_eq!(pod["spec"]["nodeName"], "node-2");
        assert!(pod["metadata"].get("deletionTimestamp").is_none(), "{}", pod["metadata"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_left_while_its_eviction_was_on_the_way_is_no_failure() {
    let bench = Bench::start(2).await;
    bench.pod("db-0", |_| {}).await;
    once(&bench, |_, path| path.ends_with("/eviction"), Fault::Overtaken(vec![deleted_at_once()]));
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
    assert!(told.named().is_empty(), "{:?}", told.named());
    assert_eq!(bench.wire.count("/eviction"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_has_left_when_it_is_gone_and_not_when_its_eviction_is_granted() {
    for blind in [false, true] {
        let bench = Bench::start(2).await;
        bench.pod("slow", |pod| pod["metadata"]["annotations"]["evac.dev/stop-seconds"] = json!("9")).await;
        let mut request = bench.request(&["node-1"]);
        if blind {
            // The eviction is answered while no watch shows what came of it.
            request.page = Some(500);
            let mut broken = 0;
            bench.wire.fail(move |_, path| {
                (path.contains("/pods?") && path.contains("watch=true") && broken < 3).then(|| {
                    broken += 1;
                    Fault::Unsent
                })
            });
        }
        let told = bench.drain(request).await;
        assert!(is_drained(told.end()), "{:?}", told.end());
        assert!(left_after(&told) >= 9.0, "blind: {blind}, left after {}", left_after(&told));
        assert_eq!(bench.wire.count("/eviction"), 1, "asked once, then awaited");
    }
}

#[tokio::test(start_paused = true)]
async fn the_mark_holds_the_node_as_it_was() {
    let bench = stage().await;
    let before = bench.node("node-1").await;
    assert!(is_drained(bench.drain(bench.request(&["node-1"])).await.end()));
    let Some(MarkState::Valid(mark)) = bench.node("node-1").await.mark else { panic!("no mark") };
    assert_eq!(mark.before, PreImage { unschedulable: false, taints: before.taints });
}

#[tokio::test(start_paused = true)]
async fn a_cordon_that_somebody_makes_while_ours_is_on_the_way_is_kept_by_a_cancel() {
    let bench = Bench::start(1).await;
    let theirs = vec![("PATCH", NODE.to_owned(), json!({"spec": {"unschedulable": true}}))];
    once(&bench, |method, _| method == "PATCH", Fault::Overtaken(theirs));
    assert!(is_drained(bench.drain(bench.request(&["node-1"])).await.end()));
    let undone = nodes::undo(&bench.admin, "node-1", false, false).await.unwrap();
    assert!(!undone.uncordoned);
    assert!(bench.node("node-1").await.unschedulable);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_meets_a_concurrent_change_is_made_again_on_what_is_there_now() {
    let bench = Bench::start(1).await;
    assert!(is_drained(bench.drain(bench.request(&["node-1"])).await.end()));
    let theirs = vec![("PATCH", NODE.to_owned(), json!({"metadata": {"labels": {"rack": "9"}}}))];
    once(&bench, |method, _| method == "PATCH", Fault::Overtaken(theirs));
    let undone = nodes::undo(&bench.http, "node-1", false, false).await.unwrap();
    assert!(undone.uncordoned && undone.mark_removed);
    let node = bench.node("node-1").await;
    assert!(!node.unschedulable && node.mark.is_none());
    assert_eq!(node.labels.get("rack"), Some(&"9".into()));
}

#[tokio::test(start_paused = true)]
async fn what_only_the_final_reading_shows_has_to_leave_too() {
    let bench = Bench::start(1).await;
    let unseen = json!({
        "metadata": {
            "name": "unseen", "namespace": "default", "uid": "u-1", "resourceVersion": "1",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}],
        },
        "spec": {"nodeName": "node-1", "containers": []}, "status": {"phase": "Running"},
    });
    let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [unseen]});
    let reading = evac_api::call::pods_on_node_path("node-1");
    once(&bench, move |_, path| path == reading, Fault::Answer(200, list));
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
    assert_eq!(bench.wire.count("/pods/unseen/eviction"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_not_asked_earlier_than_it_says() {
    let evictions = |_: &str, path: &str| path.ends_with("/eviction");
    let cordons = |method: &str, _: &str| method == "PATCH";
    for is in [evictions as fn(&str, &str) -> bool, cordons] {
        let bench = Bench::start(2).await;
        bench.pod("a", |_| {}).await;
        once(&bench, is, Fault::Busy { seconds: 8 });
        let told = bench.drain(bench.request(&["node-1"])).await;
        assert!(is_drained(told.end()), "{:?}", told.end());
        assert!((9.0..11.0).contains(&told.took), "8 s of waiting and 1 s of stopping took {}", told.took);
    }
}

#[tokio::test(start_paused = true)]
async fn one_failure_of_any_request_changes_nothing_about_the_end() {
    let faults = [
        Fault::status(500, "InternalError", "etcdserver: leader changed"),
        Fault::Busy { seconds: 2 },
        Fault::Lost,
        Fault::Unsent,
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        for at in 0.. {
            let bench = stage().await;
            bench.daemon_set("agent").await;
            let before = written(&bench).await;
            let mut count = 0;
            let failing = fault.clone();
            bench.wire.fail(move |_, _| {
                count += 1;
                (count == at + 1).then(|| failing.clone())
            });
            let mut request = bench.request(&["node-1"]);
            request.policy.ignore_daemonsets = true;
            let told = bench.drain(request).await;
            let place = format!("fault {number}, request {at}");
            assert!(told.result.is_ok(), "{place}: {:?}", told.result);
            assert!(is_drained(told.end()), "{place}: {:?}", told.end());
            assert!(told.took < 8.0, "{place}: {}", told.took);
            assert!(no_lease(&bench).await, "{place}");
            nodes::undo(&bench.admin, "node-1", false, false).await.unwrap();
            taint_settles(&bench).await;
            assert_eq!(written(&bench).await, before, "{place}");
            if bench.wire.requests().len() <= at {
                assert!(at > PODS + 8, "only {at} requests");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_somebody_else_holds_is_found_though_the_first_look_fails() {
    for fault in [Fault::status(500, "", "etcdserver: request timed out"), Fault::Unsent] {
        let bench = Bench::start(1).await;
        bench.send("POST", "/api/v1/namespaces", &json!({"metadata": {"name": "medik8s-leases"}})).await;
        let lease = json!({
            "metadata": {"name": "node-node-1"},
            "spec": {
                "holderIdentity": "node-maintenance", "leaseDurationSeconds": 3600,
                "renewTime": "2026-01-01T00:00:00.000000Z"
            }
        });
        bench.send("POST", "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases", &lease).await;
        once(&bench, |_, path| path.ends_with("/leases/node-node-1"), fault);
        let told = bench.drain(bench.request(&["node-1"])).await;
        assert!(
            matches!(told.end(), End::Refused { reason: Reason::Owner(OwnerReason::OwnedByLease { .. }) }),
            "{:?}",
            told.end()
        );
        assert!(!bench.node("node-1").await.unschedulable);
    }
}

#[tokio::test(start_paused = true)]
async fn where_nobody_can_say_who_holds_a_node_it_is_left_alone() {
    let bench = Bench::start(1).await;
    bench.pod("a", |_| {}).await;
    bench.wire.fail(|_, path| {
        path.contains("/leases/").then(|| Fault::status(500, "", "etcdserver: request timed out"))
    });
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(told.result.is_err(), "{:?}", told.result);
    assert!(!bench.node("node-1").await.unschedulable);
    assert_eq!(bench.wire.count("/eviction"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_proof_that_cannot_be_read_is_no_proof() {
    let bench = Bench::start(1).await;
    bench.pod("a", |_| {}).await;
    bench.wire.fail(|method, path| {
        (method == "GET" && path == NODE).then(|| Fault::status(500, "", "etcdserver: no leader"))
    });
    let told = bench.drain(bench.request(&["node-1"])).await;
    let End::Drained { proof } = told.end() else { panic!("{:?}", told.end()) };
    assert!(matches!(proof, Proof::Unknown { by_choice: false, .. }), "{proof}");
    assert!(!proof.fulfils_request());
    assert!(told.took < Duration::from_secs(60).as_secs_f64(), "{}", told.took);
}
