//! Drains of nodes with virtual machines in paused time: the operator is the real one, nodes and hypervisors are simulated.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod cluster;
#[allow(dead_code, reason = "shared with the tests of the machines")]
#[path = "../machines/cluster.rs"]
mod machines;
#[allow(dead_code, reason = "shared with the tests of drains")]
#[path = "../drain/wire.rs"]
mod wire;

use cluster::Bench;
use evac_core::run::End;
use evac_core::{DryRun, Fate, Proof};
use serde_json::json;

fn is_drained(end: &End) -> bool {
    matches!(end, End::Drained { proof: Proof::Yes })
}

#[tokio::test(start_paused = true)]
async fn machines_are_moved_and_a_drain_costs_no_more_than_twelve_requests_beyond_them() {
    let bench = Bench::start(3).await;
    for n in 0..10 {
        bench.machine(&format!("vm-{n}"), "Always", |_| {}).await;
    }
    let told = bench.drain(bench.request()).await;
    assert!(is_drained(told.end()), "{:?} {:#?}", told.end(), told.events);
    assert_eq!(told.moved().len(), 10, "{:#?}", told.events);
    assert!(told.moved().iter().all(|(_, to)| to != "node-1"));
    assert!(bench.pods_on("node-1").await.is_empty());
    let requests = bench.wire.requests();
    assert_eq!(bench.wire.count("/eviction"), 0, "{requests:#?}");
    assert_eq!(bench.wire.count("POST /apis/kubevirt.io"), 10, "{requests:#?}");
    assert!(requests.len() <= 10 + 12, "{} {requests:#?}", requests.len());
}
