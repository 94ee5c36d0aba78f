//! KubeVirt that is half installed, or silent: each part that is missing is named, with what it means for the drain.

use std::time::Duration;

use evac_core::drain::step::Event;
use evac_engine::{DrainError, HttpError};
use serde_json::json;

use crate::cluster::{Bench, Told};
use crate::wire::Fault;

fn message(told: &Told, code: &str) -> String {
    let said = told.events.iter().find_map(|(_, event)| match event {
        Event::Waiting { blocker, .. } if blocker.reason.code() == code => Some(blocker.reason.message()),
        Event::Noted { reason, .. } if reason.code() == code => Some(reason.message()),
        _ => None,
    });
    said.unwrap_or_else(|| panic!("{code} was never said: {:#?}", told.events))
}

async fn drain_for(bench: &Bench, seconds: u64) -> Told {
    let mut request = bench.request();
    request.policy.timeout = Some(Duration::from_secs(seconds));
    bench.drain(request).await
}

#[tokio::test(start_paused = true)]
async fn a_migration_that_no_controller_picks_up_is_named_within_seconds() {
    let bench = Bench::start(2).await;
    bench.machine("a", "Always", |_| {}).await;
    bench.cluster.operator.halt();
    let told = drain_for(&bench, 20).await;
    let named = told.named();
    assert!(matches!(named.as_slice(), [("VmNotPickedUp", at)] if (4.9..7.0).contains(at)), "{named:?}");
    let said = message(&told, "VmNotPickedUp");
    assert!(said.contains("virt-controller, which has not picked up migration"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_points_nowhere_is_named_with_the_part_that_should_answer() {
    let bench = Bench::start(2).await;
    bench.machine("a", "Always", |_| {}).await;
    bench.wire.fail(|method, path| {
        let asked = method == "POST" && path.contains("virtualmachineinstancemigrations");
        let words = "Internal error occurred: failed calling webhook \"migration-create-validator.kubevirt.io\": failed to call webhook: \
                     service \"virt-api\" not found";
        asked.then(|| Fault::status(500, "InternalError", words))
    });
    let told = drain_for(&bench, 10).await;
    let named = told.named();
    assert!(matches!(named.first(), Some(("VmMoveUnanswered", at)) if *at < 5.0), "{named:?}");
    let said = message(&told, "VmMoveUnanswered");
    assert!(
        said.contains("virt-api does not answer") && said.contains("no migration can be created"),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_kubevirt_that_is_not_ready_or_not_known_is_told_before_its_guests_are_moved() {
    let bench = Bench::start(2).await;
    bench.machine("a", "Always", |_| {}).await;
    let status = json!({"status": {"phase": "Deploying", "observedKubeVirtVersion": "v9.1.0"}});
    let path = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt/status";
    let (code, body) = bench.cluster.send("PATCH", path, "application/merge-patch+json", &status).await;
    assert_eq!(code, 200, "{body}");
    let told = bench.drain(bench.request()).await;
    assert!(message(&told, "KubeVirtNotDeployed").contains("virt-operator says Deploying"));
    assert!(message(&told, "KubeVirtUntested").contains("v9.1.0"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_give_json_ends_the_drain_with_a_sentence() {
    for status in [406, 415] {
        let bench = Bench::start(2).await;
        bench.wire.fail(move |_, _| Some(Fault::status(status, "", "not this way")));
        let told = bench.drain(bench.request()).await;
        let Err(DrainError::Read { source: source @ HttpError::Strange { .. }, .. }) = &told.result else {
            panic!("{:?}", told.result)
        };
        let said = source.to_string();
        assert!(
            said.starts_with(&format!("the API server or a proxy before it answered {status}")),
            "{said}"
        );
    }
}
