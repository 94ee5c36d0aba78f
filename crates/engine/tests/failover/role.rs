//! The role: policies, their brake, storms, flapping nodes, and nodes that come back.

use std::collections::BTreeMap;
use std::time::Duration;

use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_engine::Http;
use evac_engine::operator::Operator;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, Controller};
use crate::wire::{Fault, Wire};

const NONE: Vec<String> = Vec::new();

type Change = fn(&mut Value);

#[tokio::test(start_paused = true)]
async fn d01_d03_a_policy_fails_a_dead_node_over_and_gives_it_back_when_it_returns() {
    let bench = Bench::start(5).await;
    for name in ["a", "b"] {
        bench.machine(name, "Always").await;
    }
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    let noticed = bench.cluster.clock.now();
    for name in ["a", "b"] {
        let path = format!("{}/{name}", crate::machines::VMIS);
        let elsewhere =
            |vmi: &Value| vmi["status"]["phase"] == "Running" && vmi["status"]["nodeName"] != "node-1";
        bench.cluster.until(&path, elsewhere).await;
    }
    let took = bench.cluster.clock.now().duration_since(noticed).as_secs_f64();
    // A minute by the policy, two lease intervals after the machine was switched off, 20 seconds until Kubernetes collects the pods, and 5 for
    // a guest to start.
    assert!(took < 60.0 + 20.0 + 25.0 + 5.0, "took {took} s");
    assert_eq!(*controllers.asked.lock().unwrap(), ["off node-1"]);
    assert_eq!(bench.violations().await, NONE);
    let told = bench.events("p").await;
    assert_eq!((told.get("FailingOver"), told.get("FailedOver")), (Some(&1), Some(&1)), "{told:?}");
    assert_eq!(bench.events("node-1").await.get("Fenced"), Some(&1));
    bench.cluster.pass(600).await;
    assert_eq!(bench.node("node-1").await["spec"]["unschedulable"], true, "until it returns");
    // The machine is repaired and started.
    bench.cluster.world.kubelet("node-1").reboot();
    bench.given_back("node-1").await;
    bench.cluster.pass(60).await;
    let status = bench.policy_status("p").await;
    assert_eq!((&status["healthyNodes"], &status["nodes"]), (&json!(4), &json!([])), "{status}");
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn a_dead_kubelet_with_a_guest_that_writes_is_held_for_ever_without_proof() {
    for proof in
        [json!({"statement": {}}), json!({"provider": {}}), json!({"agent": {"command": "fence_broken"}})]
    {
        let bench = Bench::start(4).await;
        bench.machine("a", "Always").await;
        let controllers = bench.controllers(Controller::Broken);
        let _role = bench.role(&controllers);
        let said = bench.policy("p", |spec| spec["proof"] = proof.clone()).await;
        assert_eq!(said.0, 201, "{}", said.1);
        bench.cluster.world.kubelet("node-1").stop();
        bench.unreachable("node-1").await;
        bench.cluster.pass(1800).await;
        assert_eq!(bench.node_of("a").await, "node-1", "{proof}");
        assert!(!bench.out_of_service("node-1").await, "{proof}");
        assert_eq!(bench.violations().await, NONE, "{proof}");
        let verdict = bench.verdict("p", "node-1").await;
        let wanted = if proof["agent"].is_object() { "Resting" } else { "AwaitingProof" };
        assert!(verdict == wanted || verdict == "FailingOver", "{proof}: {verdict}");
        if proof["agent"].is_object() {
            assert!(bench.events("p").await.contains_key("FailoverHeld"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn d02_half_of_the_nodes_silent_is_not_a_failure_of_nodes() {
    let bench = Bench::start(7).await;
    bench.machine("a", "Always").await;
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    assert_eq!(bench.policy("p", |spec| spec["maxUnhealthy"] = json!("33%")).await.0, 201);
    for n in 1..=3 {
        bench.cluster.world.kubelet(&format!("node-{n}")).stop();
    }
    bench.unreachable("node-1").await;
    bench.cluster.pass(3600).await;
    assert_eq!(bench.verdict("p", "node-1").await, "Brake");
    assert!(controllers.asked.lock().unwrap().is_empty());
    let status = bench.policy_status("p").await;
    assert_eq!(
        (&status["observedNodes"], &status["healthyNodes"], &status["neededNodes"]),
        (&json!(6), &json!(3), &json!(4))
    );
    assert_eq!(bench.node_of("a").await, "node-1");
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_flaps_around_the_limits_is_left_alone() {
    let bench = Bench::start(4).await;
    bench.machine("a", "Always").await;
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    let kubelet = bench.cluster.world.kubelet("node-1");
    for round in 0..15_u64 {
        kubelet.stop();
        // Kubernetes needs 50 seconds to notice; the policy wants 60 more.
        bench.cluster.pass(100 + round % 5).await;
        kubelet.start();
        bench.cluster.pass(15).await;
    }
    assert!(controllers.asked.lock().unwrap().is_empty());
    assert!(bench.node("node-1").await["spec"]["unschedulable"].is_null());
    assert_eq!(bench.events("p").await, BTreeMap::new());
    assert_eq!(bench.node_of("a").await, "node-1");
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn when_everybody_is_silent_nobody_is_failed_over_and_afterwards_only_who_stays_silent() {
    let bench = Bench::start(4).await;
    bench.machine("a", "Always").await;
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    // A brake that would let everything through.
    assert_eq!(bench.policy("p", |spec| spec["maxUnhealthy"] = json!("100%")).await.0, 201);
    for n in 1..=4 {
        bench.cluster.world.kubelet(&format!("node-{n}")).stop();
    }
    bench.unreachable("node-1").await;
    bench.cluster.pass(1800).await;
    assert_eq!(bench.verdict("p", "node-1").await, "Blind");
    assert!(controllers.asked.lock().unwrap().is_empty());
    for n in 2..=4 {
        bench.cluster.world.kubelet(&format!("node-{n}")).start();
    }
    bench.cluster.pass(40).await;
    assert!(controllers.asked.lock().unwrap().is_empty(), "the others get the time to report");
    bench.cluster.pass(120).await;
    assert_eq!(*controllers.asked.lock().unwrap(), ["off node-1"]);
    bench.runs("a").await;
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn d05_a_maintenance_lease_is_respected_until_it_ends() {
    let bench = Bench::start(4).await;
    bench.machine("a", "Always").await;
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "medik8s-leases"}});
    bench.cluster.create("/api/v1/namespaces", &namespace).await;
    let now = bench.cluster.clock.now();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "node-node-1"},
        "spec": {"holderIdentity": "node-maintenance", "leaseDurationSeconds": 900, "renewTime": format!("{now:.6}")},
    });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases";
    assert_eq!(bench.cluster.create(leases, &lease).await.0, 201);
    bench.cluster.world.kubelet("node-1").stop();
    bench.cluster.pass(880).await;
    assert_eq!(bench.verdict("p", "node-1").await, "Leased");
    assert!(controllers.asked.lock().unwrap().is_empty());
    // Its end is believed when clocks that differ can no longer explain it.
    bench.cluster.pass(60).await;
    assert_eq!(bench.verdict("p", "node-1").await, "Leased");
    bench.cluster.pass(300).await;
    assert_eq!(*controllers.asked.lock().unwrap(), ["off node-1"]);
}

#[tokio::test(start_paused = true)]
async fn time_is_proof_only_where_a_policy_says_so() {
    let bench = Bench::start(4).await;
    bench.machine("a", "Always").await;
    let controllers = bench.controllers(Controller::Broken);
    let _role = bench.role(&controllers);
    let said = bench.policy("p", |spec| spec["proof"] = json!({"assumeOffAfter": "5m"})).await;
    assert_eq!(said.0, 201, "{}", said.1);
    // A machine with a watchdog: it switches itself off soon after it lost the cluster.
    bench.cluster.world.kubelet("node-1").stop();
    bench.cluster.pass(60).await;
    bench.cluster.world.kubelet("node-1").power_off();
    bench.cluster.pass(240).await;
    assert_eq!(bench.node_of("a").await, "node-1", "not yet");
    let path = format!("{}/a", crate::machines::VMIS);
    let elsewhere =
        |vmi: &Value| vmi["status"]["phase"] == "Running" && vmi["status"]["nodeName"] != "node-1";
    bench.cluster.until(&path, elsewhere).await;
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn d18_bad_policies_are_refused_by_the_server_with_a_sentence() {
    let bench = Bench::start(2).await;
    let cases: [(Change, &str); 8] = [
        (
            |spec| spec["nodeSelector"] = json!({}),
            "spec.nodeSelector is empty; a policy must say which nodes",
        ),
        (|spec| spec["minHealthy"] = json!(1), "give one of spec.minHealthy and spec.maxUnhealthy, not both"),
        (|spec| spec["maxUnhealthy"] = Value::Null, "without a brake a broken network would look like"),
        (|spec| spec["maxUnhealthy"] = json!("150%"), "maxUnhealthy"),
        (|spec| spec["maxUnhealthy"] = json!(-1), "maxUnhealthy"),
        (
            |spec| spec["proof"] = json!({}),
            "give exactly one of spec.proof.statement, provider, agent and assumeOffAfter",
        ),
        (|spec| spec["proof"] = json!({"agent": {"command": ""}}), "command"),
        (|spec| spec["notReadyFor"] = json!("soon"), "notReadyFor"),
    ];
    for (change, words) in cases {
        let (code, body) = bench.policy("p", change).await;
        let message = body["message"].as_str().unwrap_or_default();
        assert_eq!(code, 422, "{body}");
        assert!(message.contains(words), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_matches_every_node_is_not_in_force() {
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    let selector = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]});
    assert_eq!(bench.policy("p", |spec| spec["nodeSelector"] = selector).await.0, 201);
    bench.cluster.world.kubelet("node-1").power_off();
    bench.cluster.pass(1800).await;
    let status = bench.policy_status("p").await;
    let condition = &status["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("MatchesEveryNode")));
    assert_eq!(
        condition["message"],
        "spec.nodeSelector matches every node of the cluster (3); leave out those that must stay"
    );
    assert!(controllers.asked.lock().unwrap().is_empty());
    assert_eq!(bench.events("p").await.get("InvalidPolicy"), Some(&1));
    assert_eq!(bench.node_of("a").await, "node-1");
}

#[tokio::test(start_paused = true)]
async fn d10_d14_excluded_nodes_and_paused_policies_are_left_alone() {
    let bench = Bench::start(4).await;
    bench.machine("a", "Always").await;
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    assert_eq!(bench.policy("p", |spec| spec["pause"] = json!(["upgrade"])).await.0, 201);
    let label = json!({"metadata": {"labels": {"remediation.medik8s.io/exclude-from-remediation": "true"}}});
    bench.patch_node("node-1", &label).await;
    bench.cluster.world.kubelet("node-1").stop();
    bench.cluster.pass(600).await;
    assert_eq!(bench.verdict("p", "node-1").await, "Excluded");
    let label = json!({"metadata": {"labels": {"remediation.medik8s.io/exclude-from-remediation": ""}}});
    bench.patch_node("node-1", &label).await;
    bench.cluster.pass(60).await;
    assert_eq!(bench.verdict("p", "node-1").await, "Paused");
    assert_eq!(bench.events("p").await.get("InvalidNodeLabel"), Some(&1));
    assert!(controllers.asked.lock().unwrap().is_empty());
    let path = format!("{}/p", crate::bench::POLICIES);
    let go = json!({"spec": {"pause": []}});
    assert_eq!(bench.cluster.send("PATCH", &path, "application/merge-patch+json", &go).await.0, 200);
    bench.cluster.pass(60).await;
    assert_eq!(*controllers.asked.lock().unwrap(), ["off node-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_returns_without_a_restart_is_not_used_again() {
    let bench = Bench::start(4).await;
    bench.machine("a", "Always").await;
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    // Silence is taken for the end, and this machine is not what the policy thinks it is.
    let said = bench.policy("p", |spec| spec["proof"] = json!({"assumeOffAfter": "3m"})).await;
    assert_eq!(said.0, 201, "{}", said.1);
    bench.cluster.world.kubelet("node-1").stop();
    bench.cluster.pass(600).await;
    assert_ne!(bench.node_of("a").await, "node-1");
    assert!(!bench.violations().await.is_empty(), "the price of a wrong assumption");
    bench.cluster.world.kubelet("node-1").start();
    bench.ready("node-1").await;
    bench.cluster.pass(300).await;
    assert_eq!(bench.node("node-1").await["spec"]["unschedulable"], true);
    assert!(bench.events("node-1").await.contains_key("StaleGuest"));
}

/// A server that never answers what is told about policies, by status or event.
fn deaf(bench: &Bench) -> (Http, Wire) {
    let wire = Wire::new();
    wire.fail(|method, path| {
        let told = path.contains("/failoverpolicies/") || path.contains("/events");
        (method != "GET" && told).then(|| Fault::Crash { after: false, died: CancellationToken::new() })
    });
    let service = Service::trusted(bench.cluster.api.clone(), Identity::admin());
    (Http::new(wire.client(service), bench.cluster.clock, Duration::ZERO), wire)
}

/// How many seconds after it was noticed a dead node is switched off and put out of service.
async fn released_after(bench: &Bench, http: Http) -> f64 {
    bench.machine("a", "Always").await;
    let controllers = bench.controllers(Controller::Good);
    let role = Bench::role_by(http, &controllers);
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    let noticed = bench.cluster.clock.now();
    let passed = || bench.cluster.clock.now().duration_since(noticed).as_secs_f64();
    let released = |node: &Value| {
        let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
        taints.any(|taint| taint["key"] == "node.kubernetes.io/out-of-service")
    };
    while !released(&bench.node("node-1").await) {
        assert!(passed() < 600.0, "it is never put out of service");
        bench.cluster.pass(1).await;
    }
    assert!(!controllers.asked.lock().unwrap().is_empty());
    // Its work goes on; only its end must not come with this function.
    drop(role.disarm());
    passed()
}

#[tokio::test(start_paused = true)]
async fn a_status_that_the_server_does_not_take_keeps_nobody_waiting_and_is_written_again() {
    let bench = Bench::start(4).await;
    let usual = released_after(&bench, bench.cluster.http.clone()).await;
    let bench = Bench::start(4).await;
    let (http, wire) = deaf(&bench);
    let took = released_after(&bench, http).await;
    assert!(took <= usual + 1.0, "it took {took} s instead of {usual} s");
    assert!(bench.policy_status("p").await.is_null());
    wire.fail(|_, _| None);
    bench.cluster.pass(60).await;
    assert!(bench.policy_status("p").await["observedNodes"].is_number(), "it is told as soon as it can be");
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn every_role_answers_probes_also_when_the_server_does_not() {
    let bench = Bench::start(4).await;
    let (http, _wire) = deaf(&bench);
    let operator = Operator::start_roles(http, "maintenance,tenants,failover".parse().unwrap());
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    for _ in 0..20 {
        bench.cluster.pass(1).await;
        for client in operator.health_clients() {
            assert!(client.ask().await.is_some());
        }
    }
    assert_eq!(operator.health_clients().len(), 1, "one loop for all roles");
    for client in operator.health_clients() {
        assert_eq!(client.ask().await.unwrap().missing, NONE);
    }
    operator.halt();
    bench.cluster.pass(1).await;
    for client in operator.health_clients() {
        assert!(client.ask().await.is_none(), "who has ended is silent");
    }
}
