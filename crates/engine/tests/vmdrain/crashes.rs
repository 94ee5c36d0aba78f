//! Killed before or after every single request: the next run goes on, or a cancel takes everything back.

use evac_engine::give_back::{Whose, call_back};
use evac_engine::nodes;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::Bench;
use crate::is_drained;
use crate::machines::VMIS;
use crate::wire::Fault;

const GUESTS: usize = 3;

async fn stage() -> Bench {
    let bench = Bench::start(2).await;
    for n in 0..GUESTS {
        bench
            .machine(&format!("vm-{n}"), "Always", |vm| {
                vm["spec"]["template"]["metadata"]["annotations"]["evac.dev/migration-seconds"] = json!("2");
            })
            .await;
    }
    bench
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
        _ = bench.drain(bench.request()) => false,
    };
    bench.wire.fail(|_, _| None);
    crashed
}

async fn uids(bench: &Bench) -> Vec<Value> {
    let list = bench.cluster.get(VMIS).await.unwrap();
    let all = list["items"].as_array().unwrap();
    assert!(all.iter().all(|vmi| vmi["status"]["phase"] == "Running"), "{list:#}");
    all.iter().map(|vmi| vmi["metadata"]["uid"].clone()).collect()
}

async fn sweep(after: bool, cancel: bool) {
    let mut at = 0;
    loop {
        let bench = stage().await;
        let guests = uids(&bench).await;
        if !dies_at(&bench, at, after).await {
            break;
        }
        let place = format!("request {at}, after {after}, cancel {cancel}");
        if cancel {
            let http = &bench.cluster.http;
            let undone = nodes::undo(http, "node-1", false, false).await.unwrap();
            assert_eq!(undone.left, None, "{place}");
            let done = call_back(http, "node-1", Whose::Owner("tester"), false).await.unwrap();
            assert!(done.left.is_empty(), "{place}: {done:?}");
            bench.cluster.pass(20).await;
            let node = nodes::get(http, "node-1").await.unwrap();
            assert!(!node.unschedulable && node.mark.is_none(), "{place}");
            let unfinished = |migration: &&Value| {
                !matches!(migration["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
            };
            assert_eq!(bench.migrations().await.iter().filter(unfinished).count(), 0, "{place}");
        } else {
            let told = bench.drain(bench.request()).await;
            assert!(is_drained(told.end()), "{place}: {:?}", told.end());
            assert_eq!(bench.migrations().await.len(), GUESTS, "{place}: one migration for each");
        }
        assert_eq!(uids(&bench).await, guests, "{place}: the same guests run");
        at += 1;
    }
    assert!(at >= GUESTS + 9, "the sweep ended at {at}");
}

#[tokio::test(start_paused = true)]
async fn killed_before_any_request_the_next_run_goes_on() {
    sweep(false, false).await;
}

#[tokio::test(start_paused = true)]
async fn killed_after_any_request_the_next_run_goes_on() {
    sweep(true, false).await;
}

#[tokio::test(start_paused = true)]
async fn killed_after_any_request_a_cancel_leaves_nothing() {
    sweep(true, true).await;
}
