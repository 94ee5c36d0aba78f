//! Cordon, uncordon and taints on the embedded server, with the requests counted.

use evac_api::Call;
use evac_core::drain::run::End;
use evac_core::{Fact, cluster::taints};
use evac_engine::life;
use evac_engine::nodes::{self, NodeError, TaintRequest};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::is_drained;
use crate::wire::Fault;

async fn set(bench: &Bench, schedulable: bool) -> bool {
    let node = bench.node("node-1").await;
    nodes::set_schedulable(&bench.http, &node, schedulable, false).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a001_a002_a003_a004_a005_a_node_is_written_once_and_only_when_it_changes() {
    let bench = Bench::start(1).await;
    assert!(!set(&bench, true).await, "it is schedulable already");
    assert_eq!(bench.wire.count("PATCH"), 0);
    assert!(set(&bench, false).await);
    assert!(bench.node("node-1").await.unschedulable);
    assert!(!set(&bench, false).await, "it is cordoned already");
    assert_eq!(bench.wire.count("PATCH"), 1);
    assert!(set(&bench, true).await);
    assert!(!bench.node("node-1").await.unschedulable);
    assert_eq!(bench.wire.count("PATCH"), 2);
}

#[tokio::test(start_paused = true)]
async fn a039_a_refused_patch_leaves_the_node_as_it_was() {
    let bench = Bench::start(1).await;
    let node = bench.node("node-1").await;
    bench.wire.fail(|method, _| (method == "PATCH").then(|| Fault::status(500, "", "no")));
    assert!(nodes::set_schedulable(&bench.http, &node, false, false).await.is_err());
    assert!(!bench.node("node-1").await.unschedulable);
}

fn request(words: &[&str]) -> TaintRequest {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    TaintRequest {
        change: taints::parse(&words).unwrap(),
        overwrite: false,
        manager: "evac".into(),
        validation: "Strict",
        dry_run: false,
        send: true,
    }
}

#[tokio::test(start_paused = true)]
async fn a056_a063_a065_a067_taints_are_written_under_our_name_and_refusals_write_nothing() {
    let bench = Bench::start(1).await;
    let (_, node) = nodes::taint(&bench.http, "node-1", &request(&["rack=7:NoSchedule"])).await.unwrap();
    let managers: Vec<&str> = node["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["fieldsV1"].to_string().contains("f:taints"))
        .filter_map(|entry| entry["manager"].as_str())
        .collect();
    assert!(managers.contains(&"evac"), "{managers:?}");
    let written = bench.wire.count("PATCH");
    assert!(bench.wire.count("fieldValidation=Strict") == 1);
    for refused in [request(&["rack=8:NoSchedule"]), request(&["other-"])] {
        let error = nodes::taint(&bench.http, "node-1", &refused).await.unwrap_err();
        assert!(matches!(error, NodeError::Taint(_)), "{error}");
    }
    assert_eq!(bench.wire.count("PATCH"), written);
}

#[tokio::test(start_paused = true)]
async fn taints_changed_by_others_meanwhile_are_kept() {
    let bench = Bench::start(1).await;
    let mut first = true;
    let path = "/api/v1/nodes/node-1";
    bench.wire.fail(move |method, _| {
        (method == "PATCH" && std::mem::take(&mut first)).then(|| {
            Fault::Answer(
                409,
                json!({"kind": "Status", "message": "modified", "reason": "Conflict", "code": 409}),
            )
        })
    });
    bench
        .send("PATCH", path, &json!({"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}}))
        .await;
    nodes::taint(&bench.http, "node-1", &request(&["ours:NoSchedule"])).await.unwrap();
    let node: Value = bench.admin.read(&Call::get(path)).await.unwrap();
    let keys: Vec<&str> =
        node["spec"]["taints"].as_array().unwrap().iter().filter_map(|taint| taint["key"].as_str()).collect();
    assert_eq!(keys, ["ours", "theirs"]);
}

#[tokio::test(start_paused = true)]
async fn a046_pods_that_cannot_be_read_end_the_drain_at_once_and_nothing_is_touched() {
    let bench = Bench::start(1).await;
    bench.pod("a", |_| {}).await;
    bench.wire.fail(|_, path| {
        path.starts_with("/api/v1/pods").then(|| {
            Fault::Answer(400, json!({"kind": "Status", "message": "this is an error", "code": 400}))
        })
    });
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(told.result.is_err());
    assert!(told.took < 1.0);
    assert_eq!(bench.pods_on("node-1").await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a047_a049_without_an_eviction_api_nothing_is_deleted_behind_the_budgets() {
    let bench = Bench::start(1).await;
    bench.pod("a", |_| {}).await;
    bench.wire.fail(|_, path| {
        path.ends_with("/eviction").then(|| Fault::Answer(404, json!({"message": "404 page not found"})))
    });
    let told = bench.drain(bench.request(&["node-1"])).await;
    assert!(matches!(told.end(), End::Failed { .. }), "{:?}", told.end());
    assert_eq!(bench.pods_on("node-1").await, ["a"]);
    let mut request = bench.request(&["node-1"]);
    request.policy.disable_eviction = true;
    assert!(is_drained(bench.drain(request).await.end()));
}

#[tokio::test(start_paused = true)]
async fn a029_only_chosen_pods_are_asked_and_an_overdue_one_is_not_awaited() {
    let bench = Bench::start(2).await;
    bench.pod("chosen", |pod| pod["metadata"]["labels"]["app"] = json!("chosen")).await;
    bench.pod("other", |_| {}).await;
    bench.world.kubelet("node-1").stop();
    bench.clock.sleep(std::time::Duration::from_secs(60)).await;
    let mut request = bench.request(&["node-1"]);
    request.policy.pod_selector = evac_core::cluster::selector::Selector::parse("app=chosen").unwrap();
    request.policy.skip_wait_for_delete = Some(std::time::Duration::from_secs(1));
    request.policy.grace_seconds = Some(1);
    request.policy.timeout = Some(std::time::Duration::from_secs(60));
    let told = bench.drain(request).await;
    assert!(matches!(told.end(), End::Drained { .. }), "{:?}", told.end());
    let deleting = async |name: &str| {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        let pod: Value = bench.admin.read(&Call::get(path)).await.unwrap();
        pod["metadata"].get("deletionTimestamp").is_some()
    };
    assert!(deleting("chosen").await);
    assert!(!deleting("other").await);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_read_says_nothing() {
    let bench = Bench::start(1).await;
    assert!(matches!(life::read(&bench.http, "node-1").await, Some(Fact::LeaseAbsent(_))));
    bench.wire.fail(|_, _| Some(Fault::Unsent));
    assert!(life::read(&bench.http, "node-1").await.is_none());
}
