//! Drains of nodes with virtual machines in paused time: the operator is the real one, nodes and hypervisors are simulated.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod cluster;
mod copying;
mod crashes;
mod half_installed;
#[allow(dead_code, reason = "shared with the tests of the machines")]
#[path = "../machines/cluster.rs"]
mod machines;
#[allow(dead_code, reason = "shared with the tests of drains")]
#[path = "../drain/wire.rs"]
mod wire;

use std::time::Duration;

use cluster::Bench;
use evac_core::drain::run::End;
use evac_core::drain::step::Event;
use evac_core::{DryRun, Proof};
use evac_engine::give_back::{Whose, call_back};
use evac_engine::nodes as on_nodes;
use machines::{VMIS, VMS, template};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wire::Fault;

fn is_drained(end: &End) -> bool {
    matches!(end, End::Drained { proof: Proof::Yes })
}

fn strategy(word: &'static str) -> impl FnOnce(&mut Value) {
    move |vm| vm["spec"]["template"]["spec"]["evictionStrategy"] = json!(word)
}

/// On a bridge a guest cannot be moved.
fn bridged(vm: &mut Value) {
    vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"] =
        json!([{"name": "default", "bridge": {}}]);
}

#[tokio::test(start_paused = true)]
async fn machines_are_moved_and_a_drain_costs_no_more_than_twelve_requests_beyond_them_and_their_pods() {
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
    // One for each machine, one for each pod that its guest has left.
    assert_eq!(bench.wire.count("/eviction"), 10, "{requests:#?}");
    assert_eq!(bench.wire.count("POST /apis/kubevirt.io"), 10, "{requests:#?}");
    assert!(requests.len() <= 10 + 10 + 12, "{} {requests:#?}", requests.len());
    for n in 0..10 {
        let vmi = bench.instance(&format!("vm-{n}")).await.unwrap();
        assert_eq!(vmi["status"]["phase"], "Running");
    }
}

/// The after-state of each strategy: how the guest leaves and what it is then.
#[tokio::test(start_paused = true)]
async fn guests_leave_as_their_strategy_and_run_strategy_say() {
    // Eviction strategy, run strategy, can be moved → the drain ends, the same instance runs on, another one runs.
    let table = [
        ("LiveMigrate", "Always", true, true, true),
        ("LiveMigrate", "RerunOnFailure", true, true, true),
        ("LiveMigrateIfPossible", "Always", true, true, true),
        ("LiveMigrateIfPossible", "Always", false, true, false),
        ("None", "Always", true, true, false),
        ("LiveMigrate", "Always", false, false, true),
        ("None", "RerunOnFailure", true, false, true),
        ("None", "Once", true, false, true),
        ("LiveMigrateIfPossible", "RerunOnFailure", false, false, true),
    ];
    for (eviction, run, movable, ends, same) in table {
        let row = format!("{eviction} {run} movable {movable}");
        let bench = Bench::start(2).await;
        bench
            .machine("a", run, |vm| {
                strategy(eviction)(vm);
                if !movable {
                    bridged(vm);
                }
            })
            .await;
        let before = bench.instance("a").await.unwrap()["metadata"]["uid"].clone();
        let told = bench.drain(bench.request()).await;
        assert_eq!(is_drained(told.end()), ends, "{row}: {:?} {:#?}", told.end(), told.events);
        if !ends {
            assert!(matches!(told.end(), End::NotStarted { .. }), "{row}: {:?}", told.end());
            assert_eq!(bench.pods_on("node-1").await.len(), 1, "{row}");
        }
        bench.cluster.pass(30).await;
        let after = bench.settled("a").await;
        assert_eq!(after["metadata"]["uid"] == before, same, "{row}");
        assert_eq!(after["status"]["nodeName"] == "node-1", !ends, "{row}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_would_stay_off_is_shut_down_when_allowed_and_its_after_state_is_as_foretold() {
    let bench = Bench::start(2).await;
    bench.machine("a", "RerunOnFailure", strategy("None")).await;
    let mut request = bench.request();
    request.policy.allow_shutdown = true;
    let told = bench.drain(request).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
    let planned = serde_json::to_string(&told.events[0].1).unwrap();
    assert!(planned.contains("\"after\":\"staysOff\"") && planned.contains("RerunOnFailure"), "{planned}");
    bench.cluster.pass(60).await;
    let vm = bench.cluster.get(&format!("{VMS}/a")).await.unwrap();
    assert_eq!(vm["status"]["printableStatus"], "Stopped", "{vm:#}");
}

#[tokio::test(start_paused = true)]
async fn pods_and_guests_leave_together_and_only_guests_with_their_selector() {
    let bench = Bench::start(2).await;
    bench.machine("a", "Always", |_| {}).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "ownerReferences": [
            {"apiVersion": "example.com/v1", "kind": "Thing", "name": "web", "uid": "u", "controller": true}]},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
    });
    bench.cluster.create("/api/v1/namespaces/default/pods", &pod).await;
    bench
        .cluster
        .until("/api/v1/namespaces/default/pods/web", |pod| pod["status"]["phase"] == "Running")
        .await;
    let mut request = bench.request();
    request.policy.pod_selector =
        evac_core::cluster::selector::Selector::parse("kubevirt.io=virt-launcher").unwrap();
    let told = bench.drain(request).await;
    assert!(
        matches!(told.end(), End::Drained { proof: Proof::No { by_choice: true, .. } }),
        "{:?}",
        told.end()
    );
    assert_eq!(told.moved().len(), 1);
    assert_eq!(bench.pods_on("node-1").await.len(), 1);
    assert!(is_drained(bench.drain(bench.request()).await.end()));
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_see_instances_no_guest_is_touched() {
    let bench = Bench::start(2).await;
    bench.machine("a", "Always", |_| {}).await;
    bench.wire.fail(|_, path| {
        path.contains("/virtualmachineinstances").then(|| Fault::forbidden("virtualmachineinstances"))
    });
    let told = bench.drain(bench.request()).await;
    let End::NotStarted { blockers } = told.end() else { panic!("{:?}", told.end()) };
    assert_eq!(blockers[0].reason.code(), "VmUnreadable");
    assert_eq!(bench.pods_on("node-1").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_migration_is_told_and_tried_again_after_its_pause() {
    let bench = Bench::start(2).await;
    bench
        .machine("a", "Always", |vm| {
            vm["spec"]["template"]["metadata"]["annotations"]["evac.dev/migration-fails"] = json!("1");
        })
        .await;
    let told = bench.drain(bench.request()).await;
    assert!(is_drained(told.end()), "{:?} {:#?}", told.end(), told.events);
    let failed: Vec<f64> = told
        .events
        .iter()
        .filter(|(_, event)| matches!(event, Event::MoveFailed { failures: 1, .. }))
        .map(|(at, _)| at.duration_since(told.began).as_secs_f64())
        .collect();
    assert_eq!(failed.len(), 1, "{:#?}", told.events);
    let again =
        told.events.iter().filter(|(_, event)| matches!(event, Event::Moving { .. })).nth(1).unwrap().0;
    let pause = again.duration_since(told.began).as_secs_f64() - failed[0];
    assert!((18.5..=21.0).contains(&pause), "{pause}");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_moves_is_named_and_keeps_running() {
    let bench = Bench::start(2).await;
    bench.machine("good", "Always", |_| {}).await;
    bench
        .machine("bad", "Always", |vm| {
            vm["spec"]["template"]["metadata"]["annotations"]["evac.dev/migration-fails"] = json!("true");
        })
        .await;
    let told = bench.drain(bench.request()).await;
    let End::Blocked { blockers } = told.end() else { panic!("{:?} {:#?}", told.end(), told.events) };
    assert_eq!(blockers[0].reason.code(), "VmMoveGivenUp");
    assert_eq!(told.moved().len(), 1);
    let vmi = bench.instance("bad").await.unwrap();
    assert_eq!((&vmi["status"]["phase"], &vmi["status"]["nodeName"]), (&json!("Running"), &json!("node-1")));
}

#[tokio::test(start_paused = true)]
async fn guests_without_a_place_are_named_at_once_tried_last_and_end_the_drain_blocked() {
    let bench = Bench::start(3).await;
    for n in 0..22 {
        let big = n < 2;
        bench
            .machine(&format!("vm-{n}"), "Always", move |vm| {
                vm["spec"]["template"]["metadata"]["annotations"]["evac.dev/migration-seconds"] = json!("5");
                if big {
                    vm["spec"]["template"]["spec"]["nodeSelector"] =
                        json!({"kubernetes.io/hostname": "node-1"});
                    vm["spec"]["template"]["spec"]["domain"]["resources"]["requests"]["memory"] =
                        json!("256Mi");
                }
            })
            .await;
    }
    let mut request = bench.request();
    request.policy.timeout = Some(Duration::from_secs(300));
    let told = bench.drain(request).await;
    assert!(matches!(told.end(), End::Blocked { blockers } if blockers.len() == 2), "{:?}", told.end());
    assert_eq!(told.moved().len(), 20, "{:#?}", told.events);
    let named = told.named();
    assert!(named.iter().any(|(code, at)| *code == "VmFitsNowhere" && *at <= 1.0), "{named:?}");
    let tries = told.events.iter().filter(|(_, event)| matches!(event, Event::Moving { .. })).count();
    assert_eq!(tries, 22, "one try for each");
    let open = |one: &Value| !matches!(one["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    assert!(!bench.migrations().await.iter().any(open), "nothing of the drain is left");
    let last = told.events.iter().rfind(|(_, event)| matches!(event, Event::Moved { .. })).unwrap().0;
    let took = last.duration_since(told.began).as_secs_f64();
    assert!(
        took <= 58.0,
        "twenty guests, two at a time, five and a half seconds each with the pause between two, and the two come after them; it took {took}: {:#?}",
        told.moves()
    );
}

#[tokio::test(start_paused = true)]
async fn a_trial_on_the_server_creates_no_migration() {
    let bench = Bench::start(2).await;
    bench.machine("a", "Always", |_| {}).await;
    for dry_run in [DryRun::Client, DryRun::Server] {
        let mut request = bench.request();
        request.policy.dry_run = dry_run;
        let told = bench.drain(request).await;
        assert!(matches!(told.end(), End::Rehearsed { blockers } if blockers.is_empty()), "{:?}", told.end());
        assert!(bench.migrations().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_in_any_phase_leaves_nothing() {
    for millis in [300_u64, 1500, 3000, 5000, 9000] {
        let bench = Bench::start(2).await;
        for n in 0..5 {
            bench
                .machine(&format!("vm-{n}"), "Always", |vm| {
                    vm["spec"]["template"]["metadata"]["annotations"]["evac.dev/migration-seconds"] =
                        json!("4");
                })
                .await;
        }
        let stop = CancellationToken::new();
        let (told, ()) = tokio::join!(bench.drain_until(bench.request(), stop.clone()), async {
            bench.cluster.clock.sleep(Duration::from_millis(millis + 100)).await;
            stop.cancel();
        });
        assert!(matches!(told.end(), End::Stopped { .. }), "{millis}: {:?}", told.end());
        let http = &bench.cluster.http;
        on_nodes::undo(http, "node-1", false, false).await.unwrap();
        let done = call_back(http, "node-1", Whose::Owner("tester"), false).await.unwrap();
        assert!(done.left.is_empty(), "{done:?}");
        bench.cluster.pass(30).await;
        for migration in bench.migrations().await {
            let phase = migration["status"]["phase"].as_str().unwrap_or_default();
            assert!(matches!(phase, "Succeeded" | "Failed"), "{millis}: {migration:#}");
        }
        let vmis = bench.cluster.get(VMIS).await.unwrap();
        for vmi in vmis["items"].as_array().unwrap() {
            assert_eq!(vmi["status"]["phase"], "Running", "{millis}");
            assert!(vmi["status"]["evacuationNodeName"].is_null(), "{millis}: {vmi:#}");
        }
        assert!(!on_nodes::get(http, "node-1").await.unwrap().unschedulable);
    }
}

#[tokio::test(start_paused = true)]
async fn plain_instances_move_too_and_one_that_would_end_is_refused() {
    let bench = Bench::start(2).await;
    for (name, word) in [("moves", "LiveMigrate"), ("ends", "None")] {
        let mut body = template(&json!({}));
        body["spec"]["evictionStrategy"] = json!(word);
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": name}, "spec": body["spec"],
        });
        assert_eq!(bench.cluster.create(VMIS, &vmi).await.0, 201);
        bench.settled(name).await;
    }
    let told = bench.drain(bench.request()).await;
    let End::NotStarted { blockers } = told.end() else { panic!("{:?}", told.end()) };
    assert!(blockers[0].reason.message().contains("ends: no VirtualMachine owns it"), "{blockers:?}");
    let mut request = bench.request();
    request.policy.allow_shutdown = true;
    let told = bench.drain(request).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
    assert_eq!(told.moved(), [("moves".to_owned(), "node-2".to_owned())]);
}
