//! Failovers in paused time: nodes that fall silent, lose their power, flap and come back, with guests that write to disks. The
//! hypervisors keep the sets of writers; no run may end with two writers on a disk.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod agents;
mod bench;
mod hostile;
#[path = "../../../api/tests/corpus/marks.rs"]
mod hostile_marks;
mod leaders;
#[allow(dead_code, reason = "shared with the tests of the machines")]
#[path = "../machines/cluster.rs"]
mod machines;
mod ownership;
mod quorum;
mod rights;
mod role;
mod signs;
mod unknown;
mod waiting;
#[allow(dead_code, reason = "shared with the tests of drains")]
#[path = "../drain/wire.rs"]
mod wire;

use std::time::Duration;

use bench::{Bench, Controller, NO_PROOF, fence, request, statement};
use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_core::failover::{Refusal, Release};
use evac_engine::Http;
use evac_engine::failover::{End, Event, FailoverError, look_back};
use machines::VMIS;
use serde_json::{Value, json};
use wire::{Fault, Wire};

const NONE: Vec<String> = Vec::new();

#[tokio::test(start_paused = true)]
async fn without_proof_nothing_is_released_while_the_guest_still_writes() {
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    // The node is cut off; its guest goes on.
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    let (end, _) = bench.failover(&request("node-1", NO_PROOF)).await;
    assert_eq!(end.unwrap(), End::NoProof { why: None });
    let broken = bench.controllers(Controller::Broken);
    let (end, events) = bench.failover(&request("node-1", fence(&broken))).await;
    assert!(matches!(end.unwrap(), End::NoProof { why: Some(_) }));
    assert_eq!(events.iter().filter(|(_, event)| matches!(event, Event::FenceFailed { .. })).count(), 3);
    bench.cluster.pass(3600).await;
    assert_eq!(bench.node_of("a").await, "node-1");
    assert!(!bench.out_of_service("node-1").await);
    assert_eq!(bench.node("node-1").await["spec"]["unschedulable"], true);
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn d20_d25_power_confirmed_off_brings_guests_back_within_seconds_over_the_floor() {
    let bench = Bench::start(3).await;
    for name in ["a", "b", "c"] {
        bench.machine(name, "Always").await;
    }
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    let controllers = bench.controllers(Controller::Good);
    let began = bench.cluster.clock.now();
    let (end, events) = bench.failover(&request("node-1", fence(&controllers))).await;
    assert_eq!(end.unwrap(), End::Done { returned: 3, off: 0 });
    let took = bench.cluster.clock.now().duration_since(began).as_secs_f64();
    // Two lease intervals before and after the machine is switched off, in which the node could show that it lives. Kubernetes collects the
    // pods of a node that is out of service every 20 seconds; a pod and its guest start within 5.
    assert!(took < 20.0 + 20.0 + 25.0 + 5.0, "took {took} s");
    for name in ["a", "b", "c"] {
        assert_ne!(bench.node_of(name).await, "node-1");
    }
    let told: Vec<&str> = events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Report(_) => Some("report"),
            Event::Cordoned { .. } => Some("cordoned"),
            Event::Watching { .. } => Some("watching"),
            Event::Fencing { .. } => Some("fencing"),
            Event::Proven { .. } => Some("proven"),
            Event::Released { .. } => Some("released"),
            Event::Restored => Some("restored"),
            _ => None,
        })
        .collect();
    assert_eq!(
        told,
        ["report", "watching", "cordoned", "fencing", "proven", "watching", "released", "restored"]
    );
    assert!(!bench.out_of_service("node-1").await, "the taint is taken away when nothing is left");
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn each_run_strategy_is_foretold_and_comes_true() {
    let bench = Bench::start(3).await;
    for (name, strategy) in [("always", "Always"), ("rerun", "RerunOnFailure"), ("manual", "Manual")] {
        bench.machine(name, strategy).await;
    }
    bench.only_node_1(true).await;
    let plain = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "plain"},
        "spec": {"domain": {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}}},
    });
    assert_eq!(bench.cluster.create(VMIS, &plain).await.0, 201);
    bench.runs("plain").await;
    bench.only_node_1(false).await;
    bench.cluster.world.kubelet("node-1").power_off();
    bench.unreachable("node-1").await;
    let (end, events) = bench.failover(&request("node-1", statement())).await;
    assert_eq!(end.unwrap(), End::Done { returned: 2, off: 2 });
    let Some((_, Event::Report(report))) = events.first() else { panic!("{events:?}") };
    let foretold: Vec<(&str, bool)> =
        report.guests.iter().map(|guest| (guest.instance.name.as_str(), guest.fate.returns())).collect();
    assert_eq!(foretold, [("always", true), ("manual", false), ("plain", false), ("rerun", true)]);
    bench.cluster.pass(600).await;
    for (name, returns) in foretold {
        let phase = bench.instance(name).await["status"]["phase"].clone();
        assert_eq!(phase == "Running", returns, "{name} is {phase}");
    }
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn a_false_statement_runs_a_guest_twice_and_is_found_out_when_the_node_returns() {
    // This is what the proof is for: nothing in the cluster can refute a person.
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    let (end, _) = bench.failover(&request("node-1", statement())).await;
    assert_eq!(end.unwrap(), End::Done { returned: 1, off: 0 });
    let found = bench.violations().await;
    assert!(found.iter().any(|line| line.contains("disk default/a has 2 writers")), "{found:?}");
    let (_, doubts) = look_back(&bench.cluster.http, "node-1").await.unwrap().unwrap();
    assert!(doubts[0].words("node-1").contains("does not answer"), "{doubts:?}");
    bench.cluster.world.kubelet("node-1").start();
    bench.ready("node-1").await;
    let (_, doubts) = look_back(&bench.cluster.http, "node-1").await.unwrap().unwrap();
    assert!(doubts[0].words("node-1").contains("was never restarted"), "{doubts:?}");
    bench.cluster.world.kubelet("node-1").reboot();
    let rebooted = |node: &serde_json::Value| node["status"]["nodeInfo"]["bootID"] != json!(null);
    bench.cluster.until("/api/v1/nodes/node-1", rebooted).await;
    bench.cluster.pass(30).await;
    let (_, doubts) = look_back(&bench.cluster.http, "node-1").await.unwrap().unwrap();
    assert_eq!(doubts, []);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_switched_off_by_an_agent_that_lied_once_never_runs_twice() {
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    let controllers = bench.controllers(Controller::Lies(1));
    let (end, events) = bench.failover(&request("node-1", fence(&controllers))).await;
    assert_eq!(end.unwrap(), End::Done { returned: 1, off: 0 });
    assert_eq!(events.iter().filter(|(_, event)| matches!(event, Event::FenceFailed { .. })).count(), 1);
    assert_eq!(controllers.asked.lock().unwrap().len(), 2);
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn d21_what_does_not_come_back_in_time_is_named_and_everything_can_be_taken_back() {
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    // There is no place for it elsewhere.
    bench.only_node_1(true).await;
    bench.cluster.world.kubelet("node-1").power_off();
    bench.unreachable("node-1").await;
    let mut request = request("node-1", statement());
    request.spec.timeout = Some(Duration::from_secs(90));
    let (end, _) = bench.failover(&request).await;
    let End::TimedOut { remains, released: true } = end.unwrap() else { panic!("there is no room") };
    assert!(remains.words()[0].starts_with("vm default/a finds no place: "), "{remains:?}");
    assert!(bench.out_of_service("node-1").await, "for the next run to go on");
    // A place is found, and the next run ends it.
    bench.only_node_1(false).await;
    bench.runs("a").await;
    let (end, _) = bench.failover(&request).await;
    assert!(matches!(end.unwrap(), End::Done { .. }));
    assert!(!bench.out_of_service("node-1").await);
    // Or it is cancelled: what others have changed stays, what is ours goes.
    evac_engine::nodes::undo(&bench.cluster.http, "node-1", false, false).await.unwrap();
    let node = bench.node("node-1").await;
    assert!(
        node["spec"]["unschedulable"].is_null()
            && node["metadata"]["annotations"]["evac.dev/drain"].is_null()
    );
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn attached_volumes_are_told_and_waited_for_before_the_taint_goes() {
    const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    for (name, node) in [("here", "node-1"), ("elsewhere", "node-2")] {
        let attachment = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
            "spec": {"attacher": "x", "nodeName": node, "source": {"persistentVolumeName": format!("pv-{name}")}},
        });
        let (code, body) = bench.cluster.create(ATTACHMENTS, &attachment).await;
        assert_eq!(code, 201, "{body}");
    }
    bench.cluster.world.kubelet("node-1").power_off();
    bench.unreachable("node-1").await;
    let mut wanted = request("node-1", statement());
    wanted.spec.timeout = Some(Duration::from_secs(120));
    let (end, events) = bench.failover(&wanted).await;
    let Some((_, Event::Report(report))) = events.first() else { panic!("{events:?}") };
    assert_eq!(report.attachments, ["pv-here"]);
    let End::TimedOut { remains, .. } = end.unwrap() else { panic!("nobody detaches it") };
    assert_eq!(
        (remains.guests.len(), remains.pods.len(), remains.attachments),
        (0, 0, vec!["pv-here".to_owned()])
    );
    assert!(bench.out_of_service("node-1").await);
    // The volume is detached while somebody waits for it.
    let detach = async {
        bench.cluster.pass(10).await;
        let path = format!("{ATTACHMENTS}/here");
        bench.cluster.send("DELETE", &path, "application/json", &json!({})).await
    };
    let ((end, _), _) = futures::join!(bench.failover(&wanted), detach);
    assert!(matches!(end.unwrap(), End::Done { .. }));
    assert!(!bench.out_of_service("node-1").await);
}

#[tokio::test(start_paused = true)]
async fn d30_a_node_that_was_cordoned_before_stays_cordoned() {
    let bench = Bench::start(3).await;
    bench.patch_node("node-1", &json!({"spec": {"unschedulable": true}})).await;
    bench.cluster.world.kubelet("node-1").power_off();
    bench.unreachable("node-1").await;
    let (end, _) = bench.failover(&request("node-1", statement())).await;
    assert!(matches!(end.unwrap(), End::Done { .. }));
    evac_engine::nodes::undo(&bench.cluster.http, "node-1", false, false).await.unwrap();
    assert_eq!(bench.node("node-1").await["spec"]["unschedulable"], true);
}

#[tokio::test(start_paused = true)]
async fn the_node_object_is_deleted_where_that_is_the_way() {
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    bench.cluster.world.kubelet("node-1").power_off();
    bench.unreachable("node-1").await;
    let mut request = request("node-1", statement());
    request.spec.release = Some(Release::DeleteNode);
    let (end, _) = bench.failover(&request).await;
    assert_eq!(end.unwrap(), End::Done { returned: 1, off: 0 });
    assert_eq!(bench.node("node-1").await, json!(null));
    assert_eq!(bench.violations().await, NONE);
}

fn not_ready(mut node: Value) -> Value {
    for condition in node["status"]["conditions"].as_array_mut().unwrap() {
        if condition["type"] == "Ready" {
            condition["status"] = json!("False");
        }
    }
    // As it will be once the failover has cordoned it.
    let mark = json!({
        "version": 1, "owner": "kim", "since": "2026-01-01T00:00:00Z", "before": {"unschedulable": false, "taints": []},
    });
    node["metadata"]["annotations"]["evac.dev/drain"] = json!(mark.to_string());
    node
}

/// A client that sees `node-1` as NotReady, though its kubelet works and renews its lease: so it is with a broken network plugin.
async fn seeing_it_not_ready(bench: &Bench) -> Http {
    let node = not_ready(bench.node("node-1").await);
    let wire = Wire::new();
    wire.fail(move |method, path| {
        (method == "GET" && path == "/api/v1/nodes/node-1").then(|| Fault::Answer(200, node.clone()))
    });
    let service = Service::trusted(bench.cluster.api.clone(), Identity::admin());
    Http::new(wire.client(service), bench.cluster.clock, Duration::ZERO)
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_kubelet_answers_is_drained_in_good_order() {
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    let old = bench.instance("a").await["metadata"]["uid"].clone();
    let http = seeing_it_not_ready(&bench).await;
    let (end, events) = bench.failover_by(&http, &request("node-1", NO_PROOF)).await;
    assert_eq!(end.unwrap(), End::Drained);
    assert!(events.iter().any(|(_, event)| matches!(event, Event::Drains { .. })));
    assert!(!events.iter().any(|(_, event)| matches!(event, Event::Released { .. })));
    let moved = bench.instance("a").await;
    assert_eq!(moved["metadata"]["uid"], old, "it was moved while it ran");
    assert_ne!(moved["status"]["nodeName"], "node-1");
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn nobody_can_state_that_a_node_is_off_whose_kubelet_answers() {
    let bench = Bench::start(3).await;
    // It would not come back, so the drain leaves it.
    bench.machine("a", "Manual").await;
    let strategy = json!({"spec": {"evictionStrategy": "None"}});
    let path = format!("{VMIS}/a");
    let (code, body) = bench.cluster.send("PATCH", &path, "application/merge-patch+json", &strategy).await;
    assert_eq!(code, 200, "{body}");
    let http = seeing_it_not_ready(&bench).await;
    let (end, events) = bench.failover_by(&http, &request("node-1", statement())).await;
    let end = end.unwrap();
    assert!(matches!(end, End::Refused(Refusal::Answers { .. })), "{end:?}");
    assert!(!events.iter().any(|(_, event)| matches!(event, Event::Released { .. })));
    assert_eq!(bench.instance("a").await["status"]["phase"], "Running");
    assert!(!bench.out_of_service("node-1").await);
}

#[tokio::test(start_paused = true)]
async fn ready_unknown_and_foreign_nodes_are_refused() {
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    let (end, _) = bench.failover(&request("node-1", statement())).await;
    assert!(matches!(end.unwrap(), End::Refused(Refusal::Ready { .. })));
    assert_eq!(bench.node("node-1").await["spec"]["unschedulable"], json!(null));
    let (end, _) = bench.failover(&request("node-9", statement())).await;
    assert!(matches!(end, Err(FailoverError::NodeNotFound(_))));
    bench.cluster.world.kubelet("node-1").power_off();
    bench.unreachable("node-1").await;
    let now = bench.cluster.clock.now();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "node-node-1"},
        "spec": {"holderIdentity": "NodeHealthCheck-x", "leaseDurationSeconds": 3600, "renewTime": format!("{now:.6}")},
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "medik8s-leases"}});
    bench.cluster.create("/api/v1/namespaces", &namespace).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases";
    let (code, body) = bench.cluster.create(leases, &lease).await;
    assert_eq!(code, 201, "{body}");
    let (end, _) = bench.failover(&request("node-1", statement())).await;
    assert!(matches!(end.unwrap(), End::Refused(Refusal::Owned { .. })));
    assert_eq!(bench.node_of("a").await, "node-1");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_returns_before_the_release_is_left_alone() {
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    let wire = Wire::new();
    let service = Service::trusted(bench.cluster.api.clone(), Identity::admin());
    let http = Http::new(wire.client(service), bench.cluster.clock, Duration::ZERO);
    // Between the proof and the release the kubelet reports again.
    let mut patches = 0;
    wire.fail(move |method, path| {
        if method != "PATCH" || !path.starts_with("/api/v1/nodes/node-1") {
            return None;
        }
        patches += 1;
        let now = "2026-01-01T09:00:00Z";
        let body = json!({"status": {"conditions": [{"type": "Ready", "status": "True",
            "lastHeartbeatTime": now, "lastTransitionTime": now}]}});
        (patches == 3).then(|| Fault::Overtaken(vec![("PATCH", "/api/v1/nodes/node-1/status".into(), body)]))
    });
    let (end, events) = bench.failover_by(&http, &request("node-1", statement())).await;
    assert!(matches!(end.unwrap(), End::Refused(Refusal::Ready { .. })));
    assert!(!events.iter().any(|(_, event)| matches!(event, Event::Released { .. })));
    assert!(!bench.out_of_service("node-1").await);
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn a_failover_cut_off_at_any_request_is_finished_by_the_next() {
    for number in 0.. {
        let bench = Bench::start(3).await;
        bench.machine("a", "Always").await;
        bench.cluster.world.kubelet("node-1").stop();
        bench.unreachable("node-1").await;
        let wire = Wire::new();
        let service = Service::trusted(bench.cluster.api.clone(), Identity::admin());
        let http = Http::new(wire.client(service), bench.cluster.clock, Duration::ZERO);
        let mut writes = 0;
        // The server does it, and whoever asked for it never hears.
        wire.fail(move |method, _| {
            writes += usize::from(method != "GET");
            (method != "GET" && writes > number).then_some(Fault::Lost)
        });
        let controllers = bench.controllers(Controller::Good);
        let request = request("node-1", fence(&controllers));
        let (end, _) = bench.failover_by(&http, &request).await;
        let unharmed = matches!(end, Ok(End::Done { .. }));
        let (end, _) = bench.failover(&request).await;
        let end = end.unwrap();
        assert!(matches!(end, End::Done { .. }), "after request {number}: {end:?}");
        bench.runs("a").await;
        assert_ne!(bench.node_of("a").await, "node-1", "after request {number}");
        assert!(!bench.out_of_service("node-1").await, "after request {number}");
        assert_eq!(bench.violations().await, NONE);
        if unharmed {
            assert!(number >= 4, "cordon, proof, release, restore");
            return;
        }
    }
}
