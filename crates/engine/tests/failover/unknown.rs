//! What cannot be read is unknown: not old, not free, not empty.

use std::time::Duration;

use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_core::failover::{Refusal, Release};
use evac_engine::Http;
use evac_engine::failover::{End, FailoverError};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, Controller, fence, request, statement};
use crate::wire::{Fault, Wire};

const NONE: Vec<String> = Vec::new();

pub fn wired(bench: &Bench) -> (Http, Wire) {
    let wire = Wire::new();
    let service = Service::trusted(bench.cluster.api.clone(), Identity::admin());
    (Http::new(wire.client(service), bench.cluster.clock, Duration::ZERO), wire)
}

fn writes(wire: &Wire) -> Vec<String> {
    wire.requests().into_iter().filter(|line| !line.starts_with("GET ")).collect()
}

async fn dead_node_with_a_guest() -> Bench {
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    bench.cluster.world.kubelet("node-1").power_off();
    bench.unreachable("node-1").await;
    bench
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_version_cannot_be_found_out_never_gets_a_node_deleted() {
    let faults = [
        Fault::status(500, "InternalError", "etcd is busy"),
        Fault::Crash { after: false, died: CancellationToken::new() },
        Fault::forbidden("/version"),
        Fault::Answer(200, json!({"major": "", "minor": ""})),
        Fault::Answer(200, json!({"major": "1", "minor": "next"})),
    ];
    for fault in faults {
        let bench = dead_node_with_a_guest().await;
        let (http, wire) = wired(&bench);
        wire.fail(move |_, path| (path == "/version").then(|| fault.clone()));
        let controllers = bench.controllers(Controller::Good);
        let (end, _) = bench.failover_by(&http, &request("node-1", fence(&controllers))).await;
        let Err(error @ FailoverError::Version { .. }) = end else { panic!("{end:?}") };
        assert!(error.to_string().contains("--release"), "{error}");
        assert_eq!(writes(&wire), NONE);
        assert!(controllers.asked.lock().unwrap().is_empty(), "nothing is switched off for nothing");
        assert!(!bench.node("node-1").await.is_null());
    }
}

#[tokio::test(start_paused = true)]
async fn one_failed_reading_of_the_version_is_asked_again() {
    let bench = dead_node_with_a_guest().await;
    let (http, wire) = wired(&bench);
    let mut asked = 0;
    wire.fail(move |_, path| {
        asked += u32::from(path == "/version");
        (path == "/version" && asked == 1).then(|| Fault::status(500, "InternalError", "etcd is busy"))
    });
    let (end, _) = bench.failover_by(&http, &request("node-1", statement())).await;
    assert_eq!(end.unwrap(), End::Done { returned: 1, off: 0 });
    assert!(!bench.node("node-1").await.is_null());
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn whoever_chooses_the_release_needs_no_version() {
    let bench = dead_node_with_a_guest().await;
    let (http, wire) = wired(&bench);
    wire.fail(|_, path| (path == "/version").then(|| Fault::status(500, "InternalError", "etcd is busy")));
    let mut request = request("node-1", statement());
    request.release = Some(Release::Taint);
    let (end, _) = bench.failover_by(&http, &request).await;
    assert_eq!(end.unwrap(), End::Done { returned: 1, off: 0 });
    assert_eq!(wire.count("/version"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_read_is_not_a_free_node() {
    let faults = [
        Fault::status(500, "InternalError", "etcd is busy"),
        Fault::Crash { after: false, died: CancellationToken::new() },
        Fault::forbidden("leases"),
    ];
    for fault in faults {
        let bench = dead_node_with_a_guest().await;
        let (http, wire) = wired(&bench);
        wire.fail(move |_, path| path.contains("/medik8s-leases/").then(|| fault.clone()));
        let (end, _) = bench.failover_by(&http, &request("node-1", statement())).await;
        let Ok(End::Refused(refusal @ Refusal::LeaseUnread { .. })) = end else { panic!("{end:?}") };
        assert!(refusal.message().contains("lease medik8s-leases/node-node-1"), "{}", refusal.message());
        assert_eq!(writes(&wire), NONE);
        assert_eq!(bench.node_of("a").await, "node-1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_that_may_not_read_the_maintenance_leases_begins_nothing_and_says_so() {
    let bench = Bench::start(4).await;
    bench.machine("a", "Always").await;
    let (http, wire) = wired(&bench);
    wire.fail(|_, path| path.contains("/medik8s-leases/").then(|| Fault::forbidden("leases")));
    let controllers = bench.controllers(Controller::Good);
    let _role = Bench::role_by(http, &controllers);
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    bench.cluster.pass(300).await;
    assert!(controllers.asked.lock().unwrap().is_empty());
    assert_eq!(bench.verdict("p", "node-1").await, "Unknown");
    assert_eq!(bench.events("p").await.get("FailoverSkipped"), Some(&1));
    // As soon as they can be read it goes on.
    wire.fail(|_, _| None);
    bench.cluster.pass(60).await;
    assert_eq!(*controllers.asked.lock().unwrap(), ["off node-1"]);
}
