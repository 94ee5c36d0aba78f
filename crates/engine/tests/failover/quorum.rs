//! Nodes of the control plane: whoever takes one away counts what others have taken.

use evac_engine::failover::End;
use serde_json::{Value, json};

use crate::bench::{Bench, Controller, request, statement};
use crate::unknown::wired;

const ETCD: &str = "/api/v1/namespaces/kube-system/pods";

/// A cluster whose first three nodes are a control plane with a member of etcd each.
async fn three_members() -> Bench {
    let bench = Bench::start(5).await;
    for n in 1..=3 {
        let node = format!("node-{n}");
        let labels = json!({"node-role.kubernetes.io/control-plane": "", "machine": node});
        bench.patch_node(&node, &json!({"metadata": {"labels": labels}})).await;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("etcd-{node}"), "labels": {"component": "etcd"},
                "annotations": {"kubernetes.io/config.mirror": "1"},
            },
            "spec": {
                "nodeName": node, "containers": [{"name": "etcd", "image": "example/etcd"}],
                "tolerations": [{"operator": "Exists"}],
            },
        });
        let (code, body) = bench.cluster.create(ETCD, &pod).await;
        assert_eq!(code, 201, "{body}");
    }
    for n in 1..=3 {
        let ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
        };
        bench.cluster.until(&format!("{ETCD}/etcd-node-{n}"), ready).await;
    }
    bench
}

async fn policy_for(bench: &Bench, name: &str, node: &str) {
    let selector = json!({"matchLabels": {"machine": node}});
    let (code, body) = bench.policy(name, |spec| spec["nodeSelector"] = selector).await;
    assert_eq!(code, 201, "{body}");
}

/// A node that somebody is at work on.
fn marked(owner: &str) -> Value {
    let mark = json!({
        "version": 1, "owner": owner, "since": "2026-01-01T00:00:00Z",
        "before": {"unschedulable": false, "taints": []},
    });
    json!({"metadata": {"annotations": {"evac.dev/drain": mark.to_string()}}, "spec": {"unschedulable": true}})
}

fn unmarked() -> Value {
    json!({"metadata": {"annotations": {"evac.dev/drain": null}}, "spec": {"unschedulable": null}})
}

#[tokio::test(start_paused = true)]
async fn two_policies_with_a_node_of_the_control_plane_each_do_not_take_its_quorum() {
    let bench = three_members().await;
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    policy_for(&bench, "a", "node-1").await;
    policy_for(&bench, "b", "node-2").await;
    // Their kubelets are dead; their members of etcd may well be alive.
    bench.cluster.world.kubelet("node-1").stop();
    bench.cluster.world.kubelet("node-2").stop();
    bench.unreachable("node-1").await;
    bench.cluster.pass(900).await;
    assert!(controllers.asked.lock().unwrap().is_empty(), "{:?}", controllers.asked.lock().unwrap());
    assert_eq!(bench.verdict("a", "node-1").await, "Quorum");
    assert_eq!(bench.verdict("b", "node-2").await, "Quorum");
    assert_eq!(bench.events("a").await.get("FailoverSkipped"), Some(&1));
    // With one of them back the other can be spared.
    bench.cluster.world.kubelet("node-2").start();
    bench.ready("node-2").await;
    bench.cluster.pass(120).await;
    assert_eq!(*controllers.asked.lock().unwrap(), ["off node-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_policy_waits_while_somebody_is_at_work_on_another_member() {
    let bench = three_members().await;
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    policy_for(&bench, "a", "node-1").await;
    bench.patch_node("node-2", &marked("lee")).await;
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    bench.cluster.pass(600).await;
    assert!(controllers.asked.lock().unwrap().is_empty());
    assert_eq!(bench.verdict("a", "node-1").await, "Quorum");
    bench.patch_node("node-2", &unmarked()).await;
    bench.cluster.pass(60).await;
    assert_eq!(*controllers.asked.lock().unwrap(), ["off node-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_person_is_refused_a_node_that_the_control_plane_cannot_spare() {
    let bench = three_members().await;
    bench.cluster.world.kubelet("node-1").power_off();
    bench.unreachable("node-1").await;
    bench.patch_node("node-2", &marked("lee")).await;
    let (http, wire) = wired(&bench);
    let (end, _) = bench.failover_by(&http, &request("node-1", statement())).await;
    let Ok(End::Refused(refusal)) = end else { panic!("{end:?}") };
    let said = refusal.message();
    assert!(said.contains("1 of 3 etcd members would be left, and 2 are needed"), "{said}");
    assert!(wire.requests().iter().all(|line| line.starts_with("GET ")), "{:?}", wire.requests());
    bench.patch_node("node-2", &unmarked()).await;
    let (end, _) = bench.failover(&request("node-1", statement())).await;
    assert!(matches!(end, Ok(End::Done { .. })), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_maintenance_counts_nodes_that_are_being_failed_over() {
    let bench = three_members().await;
    // Ready again, and not given back yet.
    bench.patch_node("node-2", &marked("evac-failover-of-lee")).await;
    let object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "m"}, "spec": {"nodeName": "node-1"},
    });
    let objects = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances";
    let (code, body) = bench.cluster.create(objects, &object).await;
    assert_eq!(code, 403, "{body}");
    let said = body["message"].as_str().unwrap_or_default();
    assert!(said.contains("1 of 3 etcd members would be left, and 2 are needed"), "{said}");
    bench.patch_node("node-2", &unmarked()).await;
    assert_eq!(bench.cluster.create(objects, &object).await.0, 201);
}
