//! What is read and how: few requests, servers old and new, and the store itself at the end.

use crate::bench::Bench;
use crate::is_drained;
use crate::wire::Fault;

#[tokio::test(start_paused = true)]
async fn with_daemon_sets_too_a_drain_costs_no_more_than_twelve_requests_beyond_its_pods() {
    for daemon_sets in [1, 2, 5] {
        let bench = Bench::start(2).await;
        for number in 0..10 {
            bench.pod(&format!("web-{number}"), |_| {}).await;
        }
        for number in 0..daemon_sets {
            bench.daemon_set(&format!("agent-{number}")).await;
        }
        let mut request = bench.request(&["node-1"]);
        request.policy.ignore_daemonsets = true;
        let told = bench.drain(request).await;
        assert!(is_drained(told.end()), "{:?}", told.end());
        let requests = bench.wire.requests();
        assert!(requests.len() <= 10 + 12, "{daemon_sets} DaemonSets: {requests:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_streamed_lists_is_asked_in_the_old_way() {
    let bench = Bench::start(2).await;
    bench.deployment("web", 4).await;
    bench.budget("web", "web", serde_json::json!({"maxUnavailable": 1})).await;
    bench.wire.fail(|_, path| {
        path.contains("sendInitialEvents").then(|| {
            Fault::status(422, "Invalid", "sendInitialEvents is forbidden for watch unless the feature is on")
        })
    });
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
    assert_eq!(bench.wire.count("sendInitialEvents"), 4, "asked once per kind");
    assert!(bench.wire.requests().iter().any(|line| line.starts_with("GET /api/v1/nodes?fieldSelector")));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_know_streamed_lists_is_asked_in_the_old_way_after_a_moment() {
    let bench = Bench::start(2).await;
    bench.deployment("web", 4).await;
    bench.budget("web", "web", serde_json::json!({"maxUnavailable": 1})).await;
    bench.wire.fail(|_, path| path.contains("sendInitialEvents").then_some(Fault::Older));
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
    assert!(told.took < 20.0, "{}", told.took);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_lost_before_the_server_saw_it_is_sent_again() {
    let bench = Bench::start(2).await;
    bench.pod("a", |_| {}).await;
    let mut lost = false;
    bench.wire.fail(move |_, path| {
        (path.ends_with("/eviction") && !std::mem::replace(&mut lost, true)).then_some(Fault::Dropped)
    });
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
    assert_eq!(bench.wire.count("/eviction"), 2);
    assert!(told.took < 3.0, "{}", told.took);
}

#[tokio::test(start_paused = true)]
async fn the_proof_is_read_from_the_store_itself_after_the_last_eviction() {
    let bench = Bench::start(2).await;
    bench.pod("a", |_| {}).await;
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
    let requests = bench.wire.requests();
    let evicted = requests.iter().position(|line| line.ends_with("/eviction")).unwrap();
    for reading in ["GET /api/v1/nodes/node-1", "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1"] {
        // A resource version, even 0, would allow an answer from a cache.
        assert!(requests[evicted..].iter().any(|line| line == reading), "{reading}: {requests:#?}");
    }
}
