//! Killed before or after every single request, and cancelled there: nothing is lost and nothing is left behind.

use std::time::Duration;

use evac_api::Call;
use evac_engine::nodes;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bench::Bench;
use crate::is_drained;
use crate::wire::Fault;

/// What others do to the node while the drain is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    Label,
    Taint,
    Cordon,
    Uncordon,
}

pub const PODS: usize = 3;

pub async fn stage() -> Bench {
    let bench = Bench::start(2).await;
    for number in 0..PODS {
        bench.pod(&format!("web-{number}"), |_| {}).await;
    }
    bench
        .send(
            "PATCH",
            "/api/v1/nodes/node-1",
            &json!({"metadata": {"labels": {"rack": "7"}, "annotations": {"note": "kept"}},
        "spec": {"taints": [{"key": "theirs", "value": "x", "effect": "PreferNoSchedule"}]}}),
        )
        .await;
    bench
}

/// The node as people wrote it: without versions, bookkeeping and the kubelet's reports.
pub async fn written(bench: &Bench) -> Value {
    let mut node: Value = bench.admin.read(&Call::get("/api/v1/nodes/node-1")).await.unwrap();
    let metadata = node["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    metadata.remove("managedFields");
    node.as_object_mut().unwrap().remove("status");
    node
}

/// Starts a drain that dies at request `at`; false if it ended before it came that far.
async fn dies_at(bench: &Bench, at: usize, after: bool) -> bool {
    let died = CancellationToken::new();
    let mut count = 0;
    let token = died.clone();
    bench.wire.fail(move |_, _| {
        count += 1;
        (count == at + 1).then(|| Fault::Crash { after, died: token.clone() })
    });
    let crashed = tokio::select! {
        biased;
        () = died.cancelled() => true,
        _ = bench.drain(bench.request(&["node-1"])) => false,
    };
    bench.wire.fail(|_, _| None);
    crashed
}

async fn others(bench: &Bench, meanwhile: Meanwhile) {
    let path = "/api/v1/nodes/node-1";
    match meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::Label => {
            bench.send("PATCH", path, &json!({"metadata": {"labels": {"rack": "8", "new": "1"}}})).await;
        }
        Meanwhile::Taint => {
            let node: Value = bench.admin.read(&Call::get(path)).await.unwrap();
            let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            taints.insert(0, json!({"key": "late", "effect": "NoSchedule"}));
            bench.send("PATCH", path, &json!({"spec": {"taints": taints}})).await;
        }
        Meanwhile::Cordon => {
            bench.send("PATCH", path, &json!({"spec": {"unschedulable": true}})).await;
        }
        Meanwhile::Uncordon => {
            bench.send("PATCH", path, &json!({"spec": {"unschedulable": null}})).await;
        }
    }
}

pub async fn no_lease(bench: &Bench) -> bool {
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/evac-drain-node-1";
    match bench.admin.read::<Value>(&Call::get(path)).await {
        // Without a holder it is only the record of what was done to the node.
        Ok(lease) => lease["spec"].get("holderIdentity").is_none(),
        Err(error) => error.is_not_found(),
    }
}

/// Cancels as another person does. A drain that died between its cordon and the record of it leaves a cordon that has to be lifted in so many
/// words.
pub async fn give_back(bench: &Bench) {
    let marked = bench.node("node-1").await.mark.is_some();
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/evac-drain-node-1";
    let lease: Value = bench.admin.read(&Call::get(path)).await.unwrap_or_default();
    let recorded = lease["metadata"]["annotations"].get("evac.dev/record").is_some();
    let undone = nodes::undo(&bench.admin, "node-1", false, false).await.unwrap();
    if let Some(left) = undone.left {
        assert!(marked && !recorded, "{left}");
        assert!(left.starts_with("node node-1 keeps the cordon, because no record"), "{left}");
        nodes::undo(&bench.admin, "node-1", true, false).await.unwrap();
    }
}

/// Waits until the cluster's own taint follows the cordon, which takes the node controller a moment.
pub async fn taint_settles(bench: &Bench) {
    bench
        .until("the taint follows the cordon", async || {
            let node = bench.node("node-1").await;
            let tainted = node.taints.iter().any(|taint| taint.key == "node.kubernetes.io/unschedulable");
            tainted == node.unschedulable
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn killed_before_or_after_any_request_and_run_again_a_drain_ends_the_same() {
    let mut crashes = 0;
    for after in [false, true] {
        for at in 0.. {
            let bench = stage().await;
            let before = written(&bench).await;
            if !dies_at(&bench, at, after).await {
                assert!(at > PODS + 8, "only {at} requests");
                break;
            }
            crashes += 1;
            let mut again = bench.request(&["node-1"]);
            again.instance = Some("box:2".into());
            let told = bench.drain(again).await;
            let place = format!("request {at}, after it: {after}");
            assert!(is_drained(told.end()), "{place}: {:?}", told.end());
            assert!(bench.pods_on("node-1").await.is_empty(), "{place}");
            assert!(no_lease(&bench).await, "{place}");
            give_back(&bench).await;
            taint_settles(&bench).await;
            assert_eq!(written(&bench).await, before, "{place}");
        }
    }
    assert!(crashes > 2 * PODS, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn cancelled_after_any_request_the_node_is_as_before_but_for_what_others_did() {
    for meanwhile in
        [Meanwhile::Nothing, Meanwhile::Label, Meanwhile::Taint, Meanwhile::Cordon, Meanwhile::Uncordon]
    {
        for at in 0.. {
            let bench = stage().await;
            let mut wanted = written(&bench).await;
            if !dies_at(&bench, at, true).await {
                break;
            }
            let ours = bench.node("node-1").await.mark.is_some();
            others(&bench, meanwhile).await;
            give_back(&bench).await;
            bench.clock.sleep(Duration::from_secs(1)).await;
            taint_settles(&bench).await;
            match meanwhile {
                Meanwhile::Label => {
                    wanted["metadata"]["labels"] = {
                        let mut labels = wanted["metadata"]["labels"].clone();
                        labels["rack"] = json!("8");
                        labels["new"] = json!("1");
                        labels
                    }
                }
                Meanwhile::Taint => {
                    let list = wanted["spec"]["taints"].as_array_mut().unwrap();
                    list.insert(0, json!({"key": "late", "effect": "NoSchedule"}));
                }
                // A cordon on a node that our drain has cordoned changes nothing and cannot be told from ours.
                Meanwhile::Cordon if !ours => {
                    wanted["spec"]["unschedulable"] = json!(true);
                    let found = written(&bench).await;
                    wanted["spec"]["taints"] = found["spec"]["taints"].clone();
                }
                Meanwhile::Nothing | Meanwhile::Cordon | Meanwhile::Uncordon => {}
            }
            assert_eq!(written(&bench).await, wanted, "request {at}, meanwhile {meanwhile:?}");
            assert!(no_lease(&bench).await || !ours, "request {at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_cordoned_before_stays_so_unless_others_uncordon_it() {
    for meanwhile in [Meanwhile::Nothing, Meanwhile::Uncordon] {
        for at in 0.. {
            let bench = stage().await;
            let free = written(&bench).await;
            others(&bench, Meanwhile::Cordon).await;
            taint_settles(&bench).await;
            let cordoned = written(&bench).await;
            if !dies_at(&bench, at, true).await {
                break;
            }
            others(&bench, meanwhile).await;
            give_back(&bench).await;
            taint_settles(&bench).await;
            let wanted = if meanwhile == Meanwhile::Uncordon { free } else { cordoned };
            assert_eq!(written(&bench).await, wanted, "request {at}, meanwhile {meanwhile:?}");
        }
    }
}
