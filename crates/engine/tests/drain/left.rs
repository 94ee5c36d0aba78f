//! What a drain says it leaves is what is there, also when the answer to its cordon was lost.

use std::time::Duration;

use evac_core::Reason;
use evac_core::drain::run::{End, Left};
use evac_core::drain::step::Event;
use evac_core::reasons::NodeReason;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, Told};
use crate::is_drained;
use crate::wire::Fault;

const NODE: &str = "/api/v1/nodes/node-1";

/// A drain whose cordon meets `fault` and that is told to stop while it waits for the next try; `readable` says whether the node can be read then.
async fn stopped(fault: Fault, readable: bool) -> (Bench, Told) {
    let bench = Bench::start(1).await;
    bench.pod("a", |_| {}).await;
    bench.wire.fail(move |method, path| match method {
        "PATCH" if path.starts_with(NODE) => Some(fault.clone()),
        "GET" if path == NODE && !readable => Some(Fault::status(500, "", "etcdserver: no leader")),
        _ => None,
    });
    let stop = CancellationToken::new();
    let (told, ()) = tokio::join!(bench.drain_until(bench.request(&["node-1"]), stop.clone()), async {
        bench.until("the cordon was sent", async || bench.wire.count(&format!("PATCH {NODE}")) == 1).await;
        stop.cancel();
    });
    (bench, told)
}

#[tokio::test(start_paused = true)]
async fn a_stopped_drain_whose_cordon_was_not_answered_says_what_is_on_the_node() {
    for (fault, expected) in [(Fault::Lost, Left::Cordoned), (Fault::Dropped, Left::Nothing)] {
        let (bench, told) = stopped(fault, true).await;
        let End::Stopped { left, .. } = told.end() else { panic!("{:?}", told.end()) };
        assert_eq!(*left, expected);
        assert!(bench.wire.count(&format!("GET {NODE}")) > 0, "it is read, whatever a watch has shown");
        let node = bench.node("node-1").await;
        assert_eq!(node.unschedulable, expected == Left::Cordoned);
        assert_eq!(bench.wire.count(&format!("PATCH {NODE}")), 1, "nothing new is begun");
        let ended = told.events.iter().filter(|(_, event)| matches!(event, Event::Ended { .. })).count();
        assert_eq!(ended, 1, "and it is told once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_drain_that_cannot_read_the_node_either_says_that_it_does_not_know() {
    for fault in [Fault::Lost, Fault::Dropped] {
        let (_, told) = stopped(fault, false).await;
        let End::Stopped { left: Left::Unknown { why }, .. } = told.end() else { panic!("{:?}", told.end()) };
        assert!(why.contains("etcdserver: no leader"), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_stopped_before_its_cordon_leaves_nothing_and_says_so() {
    let bench = Bench::start(1).await;
    bench.wire.fail(|method, path| (method == "POST" && path.contains("/leases")).then_some(Fault::Slow(5)));
    let stop = CancellationToken::new();
    let (told, ()) = tokio::join!(bench.drain_until(bench.request(&["node-1"]), stop.clone()), async {
        bench.until("the record is on its way", async || bench.wire.count("POST /apis/coord") == 1).await;
        stop.cancel();
    });
    assert_eq!(*told.end(), End::Stopped { left: Left::Nothing, to_leave: Vec::new(), blockers: Vec::new() });
    assert!(!bench.node("node-1").await.unschedulable);
}

#[tokio::test(start_paused = true)]
async fn a_cordon_that_is_given_up_is_looked_up_before_it_is_called_undone() {
    for readable in [true, false] {
        let bench = Bench::start(1).await;
        bench.pod("a", |_| {}).await;
        bench.wire.fail(move |method, path| match method {
            "PATCH" if path.starts_with(NODE) => Some(Fault::Dropped),
            "GET" if path == NODE && !readable => Some(Fault::status(500, "", "etcdserver: no leader")),
            _ => None,
        });
        let told = bench.drain(bench.request(&["node-1"])).await;
        let End::Failed { reason, .. } = told.end() else { panic!("{:?}", told.end()) };
        assert_eq!(matches!(reason, Reason::Node(NodeReason::CordonRefused { .. })), readable, "{reason:?}");
        assert_eq!(matches!(reason, Reason::Node(NodeReason::CordonUnknown { .. })), !readable, "{reason:?}");
        assert!(bench.wire.count(&format!("GET {NODE}")) > 0);
        assert!(!bench.node("node-1").await.unschedulable);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cordon_that_was_carried_out_without_any_answer_is_gone_on_from() {
    let bench = Bench::start(1).await;
    bench.pod("a", |_| {}).await;
    bench.wire.fail(|method, path| (method == "PATCH" && path.starts_with(NODE)).then_some(Fault::Lost));
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_fails_reads_its_nodes_once_more_and_tells_what_it_leaves() {
    let bench = Bench::start(1).await;
    bench.pod("strict", |_| {}).await;
    bench.budget("web", "web", json!({"minAvailable": 1})).await;
    let mut request = bench.request(&["node-1"]);
    request.policy.settle = Duration::from_secs(7200);
    let (told, ()) = tokio::join!(bench.drain(request), async {
        bench.until("it is cordoned", async || bench.node("node-1").await.unschedulable).await;
        // When its watch of pods is over it may not begin another.
        bench.wire.fail(|method, path| {
            (method == "GET" && path.contains("/pods")).then(|| Fault::forbidden("pods"))
        });
    });
    let error = told.result.as_ref().unwrap_err().to_string();
    assert_eq!(error, "could not read pods");
    let leaves = told.events.iter().filter_map(|(_, event)| match event {
        Event::Leaves { left, .. } => Some(left),
        _ => None,
    });
    assert_eq!(leaves.collect::<Vec<_>>(), [&Left::Cordoned]);
    assert!(bench.node("node-1").await.unschedulable);
}
