//! Each thing that can be in the way, alone on a node: named within five seconds, with its fix, and the documented end.

use std::time::Duration;

use evac_core::Reason;
use evac_core::drain::run::{Blocker, End};
use evac_core::reasons::AnswerReason;
use serde_json::{Value, json};

use crate::bench::{Bench, Told};
use crate::wire::Fault;

const IN_TIME: f64 = 5.0;

fn has_fix(blockers: &[Blocker], code: &str) {
    let found = blockers.iter().find(|blocker| blocker.reason.code() == code);
    let found = found.unwrap_or_else(|| panic!("{code} is not among {blockers:?}"));
    assert!(found.reason.fix().is_some_and(|fix| !fix.is_empty()), "{code} has no fix");
}

fn named_in_time(told: &Told, code: &str) {
    let named = told.named();
    assert!(named.iter().any(|(found, after)| *found == code && *after <= IN_TIME), "{code}: {named:?}");
}

/// It was named in time, and the drain ended as blocked (3).
fn is_blocked(told: &Told, code: &str) {
    named_in_time(told, code);
    let End::Blocked { blockers } = told.end() else { panic!("{:?}", told.end()) };
    has_fix(blockers, code);
}

/// It was named in time, and the drain waited until its time was up (4).
fn timed_out(told: &Told, code: &str) {
    named_in_time(told, code);
    let End::TimedOut { blockers, .. } = told.end() else { panic!("{:?}", told.end()) };
    has_fix(blockers, code);
}

fn not_started(told: &Told, code: &str) {
    assert!(told.took < 1.0, "{}", told.took);
    let End::NotStarted { blockers } = told.end() else { panic!("{:?}", told.end()) };
    has_fix(blockers, code);
}

async fn drain(bench: &Bench) -> Told {
    let mut request = bench.request(&["node-1"]);
    request.policy.timeout = Some(Duration::from_secs(20));
    bench.drain(request).await
}

async fn with_pod(change: impl FnOnce(&mut Value)) -> Bench {
    let bench = Bench::start(2).await;
    bench.pod("a", change).await;
    bench
}

#[tokio::test(start_paused = true)]
async fn two_budgets_on_a_pod() {
    let bench = with_pod(|_| {}).await;
    bench.budget("one", "web", json!({"minAvailable": 0})).await;
    bench.budget("two", "web", json!({"minAvailable": 0})).await;
    is_blocked(&drain(&bench).await, "ManyBudgets");
}

#[tokio::test(start_paused = true)]
async fn budgets_that_allow_none_whatever_their_form() {
    for spec in [
        json!({"minAvailable": 1}),
        json!({"maxUnavailable": 0}),
        json!({"maxUnavailable": "0%"}),
        json!({"minAvailable": "100%"}),
    ] {
        let bench = Bench::start(1).await;
        bench.deployment("web", 1).await;
        bench.budget("web", "web", spec).await;
        is_blocked(&drain(&bench).await, "BudgetNever");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_waits_for_a_sick_replica() {
    let bench = Bench::start(2).await;
    bench.deployment("web", 4).await;
    bench.budget("web", "web", json!({"minAvailable": 3})).await;
    bench.sicken("node-2").await;
    timed_out(&drain(&bench).await, "BudgetExhausted");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_being_deleted() {
    let bench = with_pod(|_| {}).await;
    bench.wire.fail(|_, path| path.ends_with("/eviction").then(Fault::namespace_terminating));
    let told = drain(&bench).await;
    timed_out(&told, "NamespaceTerminating");
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_on_a_pod() {
    let bench = with_pod(|pod| pod["metadata"]["finalizers"] = json!(["example.com/hold"])).await;
    timed_out(&drain(&bench).await, "Finalizer");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_report() {
    let bench = with_pod(|_| {}).await;
    bench.world.kubelet("node-1").stop();
    bench.clock.sleep(Duration::from_secs(90)).await;
    timed_out(&drain(&bench).await, "NodeSilent");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_says_no() {
    let bench = with_pod(|_| {}).await;
    let words = "admission webhook \"guard.example.com\" denied the request: not today";
    bench.wire.fail(move |_, path| path.ends_with("/eviction").then(|| Fault::status(400, "", words)));
    let told = drain(&bench).await;
    timed_out(&told, "WebhookRefused");
    assert!(bench.wire.count("/eviction") <= 4, "a refusal is not answered by hammering");
}

#[tokio::test(start_paused = true)]
async fn a020_a_bare_pod_without_force() {
    let bench = with_pod(|pod| pod["metadata"]["ownerReferences"] = json!([])).await;
    not_started(&drain(&bench).await, "NoController");
}

#[tokio::test(start_paused = true)]
async fn a022_local_data_without_its_flag() {
    let bench = with_pod(|pod| pod["spec"]["volumes"] = json!([{"name": "d", "emptyDir": {}}])).await;
    not_started(&drain(&bench).await, "LocalStorage");
}

#[tokio::test(start_paused = true)]
async fn a011_a_daemon_set_without_its_flag() {
    let bench = Bench::start(1).await;
    bench.daemon_set("agent").await;
    not_started(&drain(&bench).await, "DaemonSetPod");
}

#[tokio::test(start_paused = true)]
async fn no_right_to_evict() {
    let bench = with_pod(|_| {}).await;
    bench.wire.fail(|_, path| path.ends_with("/eviction").then(|| Fault::forbidden("pods/eviction")));
    let told = drain(&bench).await;
    let End::Failed { reason: Reason::Answer(AnswerReason::Forbidden { .. }), blockers } = told.end() else {
        panic!("{:?}", told.end())
    };
    has_fix(blockers, "Forbidden");
    assert!(told.took < IN_TIME);
    assert_eq!(bench.wire.count("/eviction"), 1, "asking again does not give rights");
}

#[tokio::test(start_paused = true)]
async fn no_right_to_read_pods_ends_before_anything_is_changed() {
    let bench = with_pod(|_| {}).await;
    bench.wire.fail(|_, path| path.starts_with("/api/v1/pods").then(|| Fault::forbidden("pods")));
    let told = drain(&bench).await;
    assert!(told.result.is_err());
    assert!(!bench.node("node-1").await.unschedulable);
}

#[tokio::test(start_paused = true)]
async fn no_right_to_read_budgets_and_the_server_still_guards_them() {
    let bench = Bench::start(2).await;
    bench.pod("free", |pod| pod["metadata"]["labels"]["app"] = json!("free")).await;
    bench.pod("strict", |_| {}).await;
    bench.budget("web", "web", json!({"minAvailable": 1})).await;
    bench.wire.fail(|_, path| {
        path.contains("poddisruptionbudgets").then(|| Fault::forbidden("poddisruptionbudgets"))
    });
    let told = drain(&bench).await;
    timed_out(&told, "BudgetDisagrees");
    assert_eq!(bench.pods_on("node-1").await, ["strict"]);
}
