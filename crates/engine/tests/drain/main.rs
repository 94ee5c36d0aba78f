//! Whole drains on the embedded server, in simulated time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod bench;
mod blockers;
mod claims;
mod crashes;
#[path = "../../../api/tests/corpus/marks.rs"]
mod hostile_marks;
mod left;
mod marks;
mod nodes;
mod races;
mod reading;
mod wire;

use std::time::Duration;

use bench::Bench;
use evac_core::drain::run::End;
use evac_core::drain::step::Event;
use evac_core::reasons::{AnswerReason, NodeReason, OwnerReason};
use evac_core::{DryRun, Proof, Reason};
use evac_engine::nodes as on_nodes;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wire::Fault;

fn is_drained(end: &End) -> bool {
    matches!(end, End::Drained { proof: Proof::Yes })
}

#[tokio::test(start_paused = true)]
async fn a_node_is_emptied_proven_and_costs_no_more_than_twelve_requests_beyond_its_pods() {
    let bench = Bench::start(2).await;
    for number in 0..20 {
        bench.pod(&format!("web-{number}"), |_| {}).await;
    }
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
    assert!(bench.pods_on("node-1").await.is_empty());
    assert!(told.took < 1.5, "the pods take one second to stop, the drain took {}", told.took);
    let requests = bench.wire.requests();
    assert!(requests.len() <= 20 + 12, "{requests:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_used_to_the_full_without_a_single_refused_request() {
    let bench = Bench::start(3).await;
    bench.deployment("shop", 12).await;
    bench.budget("shop", "shop", json!({"maxUnavailable": 2})).await;
    let before = bench.pods_on("node-1").await.len();
    assert!(before > 2, "the scheduler spread {before} pods to node-1");
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
    assert_eq!(bench.wire.count("/eviction"), before, "one request per pod");
}

#[tokio::test(start_paused = true)]
async fn one_500_and_one_lost_answer_do_not_stop_a_drain() {
    let bench = Bench::start(2).await;
    bench.pod("a", |_| {}).await;
    bench.pod("b", |_| {}).await;
    let mut seen = Vec::new();
    bench.wire.fail(move |_, path| {
        let name = ["/pods/a/eviction", "/pods/b/eviction"].into_iter().find(|part| path.ends_with(part))?;
        if seen.contains(&name) {
            return None;
        }
        seen.push(name);
        Some(if name.contains("/a/") {
            Fault::status(500, "", "failed calling webhook: EOF")
        } else {
            Fault::Lost
        })
    });
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
    assert!(told.took < 3.0, "{}", told.took);
}

#[tokio::test(start_paused = true)]
async fn a026_a_server_that_is_gone_ends_the_drain_with_a_reason() {
    let bench = Bench::start(1).await;
    bench.pod("a", |_| {}).await;
    bench.wire.fail(|_, path| path.ends_with("/eviction").then_some(Fault::Unsent));
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(
        matches!(told.end(), End::Failed { reason: Reason::Answer(AnswerReason::Unreachable { .. }), .. }),
        "{:?}",
        told.end()
    );
    assert!(
        told.named().iter().any(|(code, after)| *code == "Unreachable" && *after <= 5.0),
        "{:?}",
        told.named()
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_cordon_leaves_everything_as_it_was() {
    let bench = Bench::start(1).await;
    bench.pod("a", |_| {}).await;
    bench.wire.fail(|method, _| (method == "PATCH").then(|| Fault::forbidden("nodes")));
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(matches!(told.end(), End::Failed { reason: Reason::Node(NodeReason::CordonRefused { .. }), .. }));
    let ends = told.events.iter().filter(|(_, event)| matches!(event, Event::Ended { .. })).count();
    assert_eq!(ends, 1, "and it is told once");
    assert_eq!(bench.wire.count("/eviction"), 0);
    assert_eq!(bench.pods_on("node-1").await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a006_a_node_that_does_not_exist_stops_everything_before_a_change() {
    let bench = Bench::start(1).await;
    let told = bench.drain(bench.request(&["node-1", "nowhere"])).await;
    assert_eq!(told.result.unwrap_err().to_string(), "nodes \"nowhere\" not found");
    assert!(!bench.node("node-1").await.unschedulable);
}

#[tokio::test(start_paused = true)]
async fn every_blocker_is_named_within_five_seconds() {
    let bench = Bench::start(1).await;
    bench.pod("two", |pod| pod["metadata"]["labels"]["app"] = json!("two")).await;
    bench.budget("two-a", "two", json!({"minAvailable": 0})).await;
    bench.budget("two-b", "two", json!({"minAvailable": 0})).await;
    bench.pod("strict", |pod| pod["metadata"]["labels"]["app"] = json!("strict")).await;
    bench.budget("strict", "strict", json!({"minAvailable": 1})).await;
    bench.pod("held", |pod| pod["metadata"]["finalizers"] = json!(["example.com/hold"])).await;
    let mut request = bench.request(&["node-1"]);
    request.policy.timeout = Some(Duration::from_secs(20));
    let told = bench.drain(request).await;
    assert!(matches!(told.end(), End::TimedOut { .. }), "{:?}", told.end());
    let named = told.named();
    for code in ["ManyBudgets", "BudgetNever", "Finalizer"] {
        assert!(named.iter().any(|(found, after)| *found == code && *after <= 5.0), "{code}: {named:?}");
    }
    assert_eq!(bench.wire.count("/eviction"), 1, "only the pod that could go was asked");
}

#[tokio::test(start_paused = true)]
async fn what_can_never_leave_ends_the_drain_as_soon_as_the_others_left() {
    let bench = Bench::start(1).await;
    bench.pod("free", |pod| pod["metadata"]["labels"]["app"] = json!("free")).await;
    bench.pod("strict", |_| {}).await;
    bench.budget("web", "web", json!({"minAvailable": 1})).await;
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(
        matches!(told.end(), End::Blocked { blockers } if blockers[0].pod.name == "strict"),
        "{:?}",
        told.end()
    );
    assert!(told.took < 10.0);
    assert_eq!(bench.pods_on("node-1").await, ["strict"]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_the_filters_refuse_leave_the_node_untouched() {
    let bench = Bench::start(1).await;
    bench.pod("bare", |pod| pod["metadata"]["ownerReferences"] = json!([])).await;
    bench.pod("data", |pod| pod["spec"]["volumes"] = json!([{"name": "d", "emptyDir": {}}])).await;
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(matches!(told.end(), End::NotStarted { blockers } if blockers.len() == 2), "{:?}", told.end());
    assert!(!bench.node("node-1").await.unschedulable);
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_for_a_budget_costs_next_to_nothing() {
    let bench = Bench::start(2).await;
    bench.deployment("shop", 3).await;
    bench.budget("shop", "shop", json!({"minAvailable": 2})).await;
    // One replica elsewhere is sick, so the budget has nothing to give, for an hour.
    for node in ["node-1", "node-2"] {
        assert!(!bench.pods_on(node).await.is_empty(), "the scheduler used both nodes");
    }
    bench.sicken("node-2").await;
    let mut request = bench.request(&["node-1"]);
    request.policy.timeout = Some(Duration::from_secs(3600));
    let told = bench.drain(request).await;
    assert!(matches!(told.end(), End::TimedOut { .. }), "{:?}", told.end());
    let evictions = bench.wire.count("/eviction");
    assert!(evictions <= 30, "{evictions} evictions in {} s", told.took);
}

#[tokio::test(start_paused = true)]
async fn cancel_at_any_moment_gives_the_node_back_as_it_was() {
    for seconds in [0_u64, 1, 2, 4] {
        let bench = Bench::start(1).await;
        bench.pod("free", |pod| pod["metadata"]["labels"]["app"] = json!("free")).await;
        bench.pod("strict", |_| {}).await;
        bench.budget("web", "web", json!({"minAvailable": 1})).await;
        let before = bench.node("node-1").await;
        let stop = CancellationToken::new();
        let (told, ()) = tokio::join!(bench.drain_until(bench.request(&["node-1"]), stop.clone()), async {
            bench.clock.sleep(Duration::from_millis(seconds * 1000 + 50)).await;
            stop.cancel();
        });
        assert!(matches!(told.end(), End::Stopped { .. }), "{:?}", told.end());
        assert!(bench.node("node-1").await.unschedulable);
        on_nodes::undo(&bench.admin, "node-1", false, false).await.unwrap();
        bench
            .until("the cordon's taint is gone", async || bench.node("node-1").await.taints.is_empty())
            .await;
        let after = bench.node("node-1").await;
        assert_eq!((after.unschedulable, &after.taints, &after.mark), (false, &before.taints, &None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_keeps_what_others_did() {
    let bench = Bench::start(1).await;
    bench.send("PATCH", "/api/v1/nodes/node-1", &json!({"spec": {"unschedulable": true}})).await;
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(is_drained(told.end()));
    let undone = on_nodes::undo(&bench.admin, "node-1", false, false).await.unwrap();
    assert!(!undone.uncordoned, "it was cordoned before");
    let node = bench.node("node-1").await;
    assert!(node.unschedulable && node.mark.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_cancelled_by_somebody_else_ends() {
    let bench = Bench::start(1).await;
    bench.deployment("shop", 1).await;
    bench.budget("shop", "shop", json!({"minAvailable": 1})).await;
    let mut request = bench.request(&["node-1"]);
    request.policy.settle = Duration::from_secs(600);
    let (told, ()) = tokio::join!(bench.drain(request), async {
        bench.clock.sleep(Duration::from_secs(5)).await;
        on_nodes::undo(&bench.admin, "node-1", false, false).await.unwrap();
    });
    assert_eq!(*told.end(), End::Refused { reason: Reason::Owner(OwnerReason::CancelledElsewhere) });
}

#[tokio::test(start_paused = true)]
async fn a_second_drainer_is_refused_and_the_same_one_goes_on() {
    let bench = Bench::start(1).await;
    let first = bench.drain(bench.request(&["node-1"])).await;
    assert!(is_drained(first.end()));
    let mut other = bench.request(&["node-1"]);
    other.owner = "somebody".into();
    let refused = bench.drain(other).await;
    assert!(matches!(refused.end(), End::Refused { reason: Reason::Owner(OwnerReason::OwnedByEvac { .. }) }));
    let patches = bench.wire.count("PATCH /api/v1/nodes");
    assert!(is_drained(bench.drain(bench.request(&["node-1"])).await.end()));
    assert_eq!(bench.wire.count("PATCH /api/v1/nodes"), patches, "no second cordon");
}

#[tokio::test(start_paused = true)]
async fn a028_a034_a051_trials_end_at_once_and_change_nothing() {
    let bench = Bench::start(1).await;
    bench.pod("strict", |_| {}).await;
    bench.budget("web", "web", json!({"minAvailable": 1})).await;
    for (dry_run, disable_eviction) in
        [(DryRun::Client, false), (DryRun::Server, false), (DryRun::Client, true), (DryRun::Server, true)]
    {
        let mut request = bench.request(&["node-1"]);
        request.policy.dry_run = dry_run;
        request.policy.disable_eviction = disable_eviction;
        let told = bench.drain(request).await;
        assert!(matches!(told.end(), End::Rehearsed { .. }), "{:?}", told.end());
        assert!(told.took < 1.0);
        assert!(!bench.node("node-1").await.unschedulable);
        assert_eq!(bench.pods_on("node-1").await, ["strict"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a050_without_eviction_pods_are_deleted_past_their_budget() {
    let bench = Bench::start(1).await;
    bench.pod("strict", |_| {}).await;
    bench.budget("web", "web", json!({"minAvailable": 1})).await;
    let mut request = bench.request(&["node-1"]);
    request.policy.disable_eviction = true;
    assert!(is_drained(bench.drain(request).await.end()));
    assert_eq!(bench.wire.count("/eviction"), 0);
}

#[tokio::test(start_paused = true)]
async fn daemonset_pods_stay_when_ignored_and_block_when_not() {
    let bench = Bench::start(2).await;
    bench.daemon_set("agent").await;
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(matches!(told.end(), End::NotStarted { .. }));
    let mut request = bench.request(&["node-1"]);
    request.policy.ignore_daemonsets = true;
    assert!(is_drained(bench.drain(request).await.end()));
    assert_eq!(bench.pods_on("node-1").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_nodes_share_a_budget_and_both_end_empty() {
    let bench = Bench::start(4).await;
    bench.deployment("shop", 12).await;
    bench.budget("shop", "shop", json!({"maxUnavailable": 3})).await;
    let told = bench.drain(bench.request(&["node-1", "node-2"])).await;
    for (node, end) in told.result.as_ref().unwrap() {
        assert!(is_drained(end), "{node}: {end:?}");
        assert!(bench.pods_on(node).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_dead_node_is_named_and_never_forced() {
    let bench = Bench::start(2).await;
    bench.pod("a", |_| {}).await;
    bench.world.kubelet("node-1").stop();
    bench.clock.sleep(Duration::from_secs(90)).await;
    let mut request = bench.request(&["node-1"]);
    request.policy.timeout = Some(Duration::from_secs(30));
    let told = bench.drain(request).await;
    assert!(matches!(told.end(), End::TimedOut { .. }), "{:?}", told.end());
    assert!(
        told.named().iter().any(|(code, after)| *code == "NodeSilent" && *after <= 5.0),
        "{:?}",
        told.named()
    );
    assert_eq!(bench.pods_on("node-1").await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_is_taken_up_again() {
    let bench = Bench::start(2).await;
    bench.pod("a", |_| {}).await;
    let mut broken = 0;
    bench.wire.fail(move |_, path| {
        (path.contains("watch=true") && path.contains("/pods?") && broken < 3).then(|| {
            broken += 1;
            Fault::Unsent
        })
    });
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
    assert!(told.took < 5.0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_a_remediation_operator_holds_is_refused_by_name() {
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
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(
        matches!(told.end(), End::Refused { reason: Reason::Owner(OwnerReason::OwnedByLease { holder, .. }) } if holder == "node-maintenance"),
        "{:?}",
        told.end()
    );
    assert!(!bench.node("node-1").await.unschedulable);
}

#[tokio::test(start_paused = true)]
async fn a032_lists_are_read_page_by_page() {
    let bench = Bench::start(1).await;
    for number in 0..3 {
        bench.pod(&format!("web-{number}"), |_| {}).await;
    }
    let mut request = bench.request(&["node-1"]);
    request.page = Some(1);
    assert!(is_drained(bench.drain(request).await.end()));
    assert_eq!(bench.wire.count("?continue="), 2);
}

#[tokio::test(start_paused = true)]
async fn a053_pods_of_a_namespace_that_is_being_deleted_are_awaited() {
    let bench = Bench::start(1).await;
    bench.send("POST", "/api/v1/namespaces", &json!({"metadata": {"name": "old"}})).await;
    bench
        .until("the namespace has its account", async || {
            let path = "/api/v1/namespaces/old/serviceaccounts/default";
            bench.admin.read::<serde_json::Value>(&evac_api::Call::get(path)).await.is_ok()
        })
        .await;
    bench
        .pod("a", |pod| {
            pod["metadata"]["namespace"] = json!("old");
            pod["metadata"]["annotations"]["evac.dev/stop-seconds"] = json!("6");
        })
        .await;
    bench.wire.fail(|_, path| path.ends_with("/eviction").then(Fault::namespace_terminating));
    let (told, ()) = tokio::join!(bench.drain(bench.request(&["node-1"])), async {
        bench.clock.sleep(Duration::from_secs(8)).await;
        bench.send("DELETE", "/api/v1/namespaces/old", &json!({})).await;
    });
    assert!(is_drained(told.end()), "{:?}", told.end());
    assert!(
        told.named().iter().any(|(code, after)| *code == "NamespaceTerminating" && *after <= 5.0),
        "{:?}",
        told.named()
    );
}
