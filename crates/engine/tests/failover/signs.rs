//! Signs of life: nodes whose clocks are wrong, agents that switch off another machine, and nodes that recover while they are about to be
//! switched off.

use std::sync::Arc;
use std::time::Duration;

use evac_core::failover::Refusal;
use evac_engine::failover::{End, Event};
use evac_engine::gate::Gate;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::bench::{Bench, Controller, Controllers, fence, request, statement};
use crate::machines::{Cluster, VMIS};

const NONE: Vec<String> = Vec::new();
const MERGE: &str = "application/merge-patch+json";
const EXCLUDE: &str = "remediation.medik8s.io/exclude-from-remediation";

fn stated(cluster: &Cluster, off: i64) -> Timestamp {
    cluster.clock.now() + SignedDuration::from_secs(off)
}

/// What the kubelet of `node-1` reports, by a clock that is so many seconds off.
async fn report(cluster: &Cluster, ready: &str, off: i64) {
    let at = format!("{:.0}", stated(cluster, off));
    let body = json!({"status": {"conditions": [{"type": "Ready", "status": ready, "reason": "x", "message": "x",
        "lastHeartbeatTime": at, "lastTransitionTime": at}]}});
    let (code, answer) = cluster.send("PATCH", "/api/v1/nodes/node-1/status", MERGE, &body).await;
    assert_eq!(code, 200, "{answer}");
}

/// A kubelet of `node-1` that answers, by a clock that is so many seconds off, and says that its node is not ready.
async fn answering(bench: &Bench, off: i64) -> DropGuard {
    bench.cluster.world.kubelet("node-1").stop();
    report(&bench.cluster, "False", off).await;
    let stop = CancellationToken::new();
    let (cluster, ended) = (bench.cluster.clone(), stop.clone());
    tokio::spawn(async move {
        while !ended.is_cancelled() {
            let lease = json!({"spec": {"renewTime": format!("{:.6}", stated(&cluster, off))}});
            let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1";
            let (code, answer) = cluster.send("PATCH", path, MERGE, &lease).await;
            assert_eq!(code, 200, "{answer}");
            cluster.clock.sleep(Duration::from_secs(10)).await;
        }
    });
    stop.drop_guard()
}

/// A machine that a drain leaves where it is.
async fn immovable(bench: &Bench, name: &str) {
    bench.machine(name, "Manual").await;
    let strategy = json!({"spec": {"evictionStrategy": "None"}});
    let (code, body) = bench.cluster.send("PATCH", &format!("{VMIS}/{name}"), MERGE, &strategy).await;
    assert_eq!(code, 200, "{body}");
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_clock_is_slow_is_not_fenced_before_its_time() {
    let bench = Bench::start(4).await;
    bench.machine("a", "Always").await;
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    assert_eq!(bench.policy("p", |spec| spec["notReadyFor"] = json!("5m")).await.0, 201);
    let _kubelet = answering(&bench, -600).await;
    // It is ill for four minutes at a time, and dates the beginning ten minutes back.
    for _ in 0..5 {
        report(&bench.cluster, "False", -600).await;
        bench.cluster.pass(240).await;
        assert_eq!(bench.verdict("p", "node-1").await, "Waiting");
        report(&bench.cluster, "True", -600).await;
        bench.cluster.pass(60).await;
    }
    assert_eq!(controllers.times_asked(), 0);
    assert!(bench.node("node-1").await["spec"]["unschedulable"].is_null());
    assert_eq!(bench.node_of("a").await, "node-1");
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_clock_is_slow_and_which_answers_is_never_taken_for_dead() {
    let bench = Bench::start(4).await;
    bench.machine("a", "Always").await;
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    let said = bench.policy("p", |spec| spec["proof"] = json!({"assumeOffAfter": "5m"})).await;
    assert_eq!(said.0, 201, "{}", said.1);
    let _kubelet = answering(&bench, -600).await;
    bench.cluster.pass(3600).await;
    assert_eq!(bench.verdict("p", "node-1").await, "Waiting");
    assert!(!bench.out_of_service("node-1").await);
    assert_eq!(bench.node_of("a").await, "node-1");
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn nobody_can_state_that_a_node_is_off_which_answers_with_a_slow_clock() {
    let bench = Bench::start(3).await;
    immovable(&bench, "a").await;
    let _kubelet = answering(&bench, -600).await;
    let (end, events) = bench.failover(&request("node-1", statement())).await;
    let end = end.unwrap();
    assert!(matches!(end, End::Refused(Refusal::Answers { .. })), "{end:?}");
    assert!(matches!(events[1].1, Event::Watching { seconds: 20 }), "{events:?}");
    assert!(!events.iter().any(|(_, event)| matches!(event, Event::Released { .. })));
    assert!(!bench.out_of_service("node-1").await);
    assert_eq!(bench.instance("a").await["status"]["phase"], "Running");
}

#[tokio::test(start_paused = true)]
async fn a_rehearsal_does_not_wait_and_says_what_was_not_observed() {
    let bench = Bench::start(3).await;
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    let mut rehearsal = request("node-1", statement());
    rehearsal.spec.dry_run = true;
    let began = bench.cluster.clock.now();
    let (end, _) = bench.failover(&rehearsal).await;
    assert_eq!(end.unwrap(), End::Rehearsed { proven: true, unwatched: 20 });
    assert!(bench.cluster.clock.now().duration_since(began) < SignedDuration::from_secs(1));
}

async fn the_wrong_machine_is_switched_off_once(off: i64) {
    let bench = Bench::start(5).await;
    immovable(&bench, "a").await;
    let controllers = bench.controllers(Controller::Wrong);
    let role = bench.role(&controllers);
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    let _kubelet = answering(&bench, off).await;
    bench.cluster.pass(1800).await;
    assert_eq!(*controllers.asked.lock().unwrap(), ["off node-1"], "and not again");
    assert!(!bench.out_of_service("node-1").await);
    assert_eq!(bench.instance("a").await["status"]["phase"], "Running");
    assert_eq!(bench.verdict("p", "node-1").await, "WrongMachine");
    let status = bench.policy_status("p").await;
    let words = status["nodes"][0]["message"].as_str().unwrap();
    assert!(words.contains("the machine behind this agent is not this node"), "{words}");
    assert_eq!(bench.events("p").await.get("WrongMachine"), Some(&1));
    assert_eq!(bench.events("node-1").await.get("WrongMachine"), Some(&1));
    let record = bench.node("node-1").await["metadata"]["annotations"]["evac.dev/fenced"].clone();
    let record: Value = serde_json::from_str(record.as_str().unwrap()).unwrap();
    assert_eq!(record["refuted"], "lease", "{record}");
    // An operator that starts anew knows it from the node, also after that has been Ready for a while.
    drop(role);
    let _role = bench.role(&controllers);
    bench.cluster.pass(600).await;
    report(&bench.cluster, "True", off).await;
    bench.cluster.pass(300).await;
    assert!(bench.node("node-1").await["spec"]["unschedulable"].is_null(), "it is in use again");
    report(&bench.cluster, "False", off).await;
    bench.cluster.pass(600).await;
    assert_eq!(controllers.times_asked(), 1);
    assert_eq!(bench.verdict("p", "node-1").await, "WrongMachine");
    // The policy is corrected.
    controllers.become_(Controller::Good);
    bench.patch_policy("p", &json!({"proof": {"agent": {"options": {"ip": "10.0.0.1"}}}})).await;
    bench.cluster.pass(300).await;
    assert_eq!(controllers.times_asked(), 2);
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_switches_off_another_machine_is_found_out_and_not_called_again() {
    the_wrong_machine_is_switched_off_once(0).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_switches_off_another_machine_is_found_out_by_a_node_with_a_slow_clock() {
    the_wrong_machine_is_switched_off_once(-600).await;
}

#[tokio::test(start_paused = true)]
async fn a_person_who_switches_off_the_wrong_machine_is_told_so() {
    let bench = Bench::start(4).await;
    bench.machine("a", "Always").await;
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    let controllers = bench.controllers(Controller::Wrong);
    let returns = async {
        while controllers.times_asked() == 0 {
            bench.cluster.pass(1).await;
        }
        bench.cluster.pass(5).await;
        bench.cluster.world.kubelet("node-1").start();
    };
    let wanted = request("node-1", fence(&controllers));
    let ((end, events), ()) = futures::join!(bench.failover(&wanted), returns);
    let End::Refused(refusal) = end.unwrap() else { panic!("{events:?}") };
    assert!(
        refusal.message().contains("the machine behind this agent is not this node"),
        "{}",
        refusal.message()
    );
    assert!(!bench.out_of_service("node-1").await);
    assert_eq!(bench.node_of("a").await, "node-1");
    assert_eq!(bench.violations().await, NONE);
}

/// Waits for the first try, which fails; the next would succeed.
async fn first_try(bench: &Bench, controllers: &Arc<Controllers>) {
    while controllers.times_asked() == 0 {
        bench.cluster.pass(1).await;
    }
    controllers.become_(Controller::Good);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_recovers_between_two_tries_is_not_switched_off() {
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    let controllers = bench.controllers(Controller::Broken);
    let recovers = async {
        first_try(&bench, &controllers).await;
        bench.cluster.world.kubelet("node-1").start();
    };
    let wanted = request("node-1", fence(&controllers));
    let ((end, _), ()) = futures::join!(bench.failover(&wanted), recovers);
    let End::Refused(refusal) = end.unwrap() else { panic!("it recovered") };
    assert!(matches!(refusal, Refusal::Ready { .. } | Refusal::Recovered { .. }), "{refusal:?}");
    assert_eq!(controllers.times_asked(), 1);
    assert_eq!(bench.instance("a").await["status"]["phase"], "Running");
    assert_eq!(bench.violations().await, NONE);
}

/// The role has tried once in vain; then something happens, and for ten minutes nothing is switched off.
async fn after_the_first_try(happens: impl AsyncFnOnce(&Bench, &Gate)) -> Bench {
    let bench = Bench::start(4).await;
    bench.machine("a", "Always").await;
    let controllers = bench.controllers(Controller::Broken);
    let gate = Gate::shut();
    gate.open_until(Timestamp::MAX, bench.cluster.clock.now());
    let _role = Bench::role_by(bench.cluster.http.clone().behind(gate.clone()), &controllers);
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    bench.cluster.world.kubelet("node-1").stop();
    first_try(&bench, &controllers).await;
    happens(&bench, &gate).await;
    bench.cluster.pass(600).await;
    assert_eq!(controllers.times_asked(), 1);
    assert_eq!(bench.node_of("a").await, "node-1");
    assert_eq!(bench.violations().await, NONE);
    bench
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_paused_between_two_tries_switches_nothing_off() {
    let pause = async |bench: &Bench, _: &Gate| bench.patch_policy("p", &json!({"pause": ["upgrade"]})).await;
    let bench = after_the_first_try(pause).await;
    assert_eq!(bench.verdict("p", "node-1").await, "Paused");
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_deleted_between_two_tries_switches_nothing_off() {
    let delete = async |bench: &Bench, _: &Gate| {
        let path = format!("{}/p", crate::bench::POLICIES);
        bench.cluster.send("DELETE", &path, "application/json", &json!({})).await;
    };
    after_the_first_try(delete).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_excluded_between_two_tries_is_not_switched_off() {
    let exclude = async |bench: &Bench, _: &Gate| {
        bench.patch_node("node-1", &json!({"metadata": {"labels": {EXCLUDE: "true"}}})).await;
    };
    let bench = after_the_first_try(exclude).await;
    assert_eq!(bench.verdict("p", "node-1").await, "Excluded");
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_loses_the_lead_between_two_tries_switches_nothing_off() {
    after_the_first_try(async |_: &Bench, gate: &Gate| gate.close()).await;
}

#[tokio::test(start_paused = true)]
async fn a_failover_whose_mark_is_taken_away_between_two_tries_switches_nothing_off() {
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    let controllers = bench.controllers(Controller::Broken);
    let cancelled = async {
        first_try(&bench, &controllers).await;
        evac_engine::nodes::undo(&bench.cluster.http, "node-1", false, false).await.unwrap();
    };
    let wanted = request("node-1", fence(&controllers));
    let ((end, _), ()) = futures::join!(bench.failover(&wanted), cancelled);
    assert_eq!(end.unwrap(), End::Refused(Refusal::Cancelled));
    assert_eq!(controllers.times_asked(), 1);
}
