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
    request.spec.release = Some(Release::Taint);
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

fn condition(status: &serde_json::Value, kind: &str) -> Option<serde_json::Value> {
    status["conditions"].as_array()?.iter().find(|one| one["type"] == kind).cloned()
}

#[tokio::test(start_paused = true)]
async fn a_role_that_cannot_list_nodes_says_so_on_every_policy_and_takes_it_back() {
    for from_the_start in [true, false] {
        let bench = Bench::start_roles(2, "machines".parse().unwrap()).await;
        let (http, wire) = wired(&bench);
        let refuse = || {
            wire.fail(|method, path| {
                (method == "GET" && path.starts_with("/api/v1/nodes")).then(|| Fault::forbidden("nodes"))
            });
        };
        for name in ["p", "q"] {
            assert_eq!(bench.policy(name, |_| {}).await.0, 201);
        }
        if from_the_start {
            refuse();
        }
        let controllers = bench.controllers(Controller::Good);
        let _role = Bench::role_by(http, &controllers);
        bench.cluster.pass(20).await;
        if !from_the_start {
            assert!(condition(&bench.policy_status("p").await, "Unread").is_none());
            refuse();
            // Until its watch is over.
            bench.cluster.pass(1900).await;
        }
        for name in ["p", "q"] {
            let status = bench.policy_status(name).await;
            let said = condition(&status, "Unread").unwrap_or_else(|| panic!("{name}: {status:#}"));
            assert_eq!(
                (said["status"].as_str(), said["reason"].as_str()),
                (Some("True"), Some("CannotRead"))
            );
            let message = said["message"].as_str().unwrap();
            assert!(message.starts_with("the list of nodes cannot be read since 2026-01-01T0"), "{message}");
            assert!(message.ends_with("nodes is forbidden"), "{message}");
        }
        let writes = wire.requests().iter().filter(|line| line.contains("/status")).count();
        assert!(writes <= 4, "it is said once, not with every try: {writes}");
        assert_eq!(controllers.times_asked(), 0);
        wire.fail(|_, _| None);
        bench.cluster.pass(60).await;
        for name in ["p", "q"] {
            let status = bench.policy_status(name).await;
            assert_eq!(condition(&status, "Unread").unwrap()["status"], "False", "{status:#}");
            assert_eq!(condition(&status, "Valid").unwrap()["status"], "True", "{status:#}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_that_cannot_list_policies_any_more_says_so_on_those_it_knows() {
    let bench = Bench::start_roles(2, "machines".parse().unwrap()).await;
    let (http, wire) = wired(&bench);
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    let _role = Bench::role_by(http, &bench.controllers(Controller::Good));
    bench.cluster.pass(20).await;
    wire.fail(|method, path| {
        let lists = method == "GET" && path.contains("/failoverpolicies?");
        lists.then(|| Fault::status(500, "InternalError", "etcd is busy"))
    });
    bench.cluster.pass(2200).await;
    let status = bench.policy_status("p").await;
    let said = condition(&status, "Unread").unwrap_or_else(|| panic!("{status:#}"));
    let message = said["message"].as_str().unwrap();
    assert!(message.starts_with("the list of failoverpolicies cannot be read since"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_cannot_be_written_is_counted_and_tried_again() {
    let bench = Bench::start_roles(2, "machines".parse().unwrap()).await;
    let (http, wire) = wired(&bench);
    wire.fail(|method, path| {
        let status = method == "PATCH" && path.contains("/failoverpolicies/p/status");
        status.then(|| Fault::status(500, "InternalError", "etcd is busy"))
    });
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    let _role = Bench::role_by(http.clone(), &bench.controllers(Controller::Good));
    bench.cluster.pass(20).await;
    let page = http.metrics().render();
    let counted = page.lines().find(|line| line.starts_with("evac_status_failures_total{"));
    let counted = counted.unwrap_or_else(|| panic!("{page}"));
    assert!(counted.starts_with(r#"evac_status_failures_total{kind="FailoverPolicy"} "#), "{counted}");
    wire.fail(|_, _| None);
    bench.cluster.pass(20).await;
    assert_eq!(condition(&bench.policy_status("p").await, "Valid").unwrap()["status"], "True");
}
