//! The drain without an end, when the cluster cannot be read for a while.

use std::time::Duration;

use evac_core::Policy;
use evac_core::drain::ownership::Attire;
use evac_engine::drain::service::{News, Service, Wanted};
use tokio::sync::mpsc;

use crate::bench::Bench;
use crate::wire::Fault;

#[tokio::test(start_paused = true)]
async fn an_end_is_answered_only_when_no_request_about_the_node_can_land_any_more() {
    let bench = Bench::start(1).await;
    let wanted = || Wanted { attire: Attire::default(), may_shut_down: false };
    bench.wire.fail(|method, path| match method {
        "PATCH" if path.starts_with("/api/v1/nodes/node-1") => Some(Fault::Slow(10)),
        "GET" if path.contains("ghost") => Some(Fault::forbidden("pods")),
        _ => None,
    });
    let (news, mut heard) = mpsc::unbounded_channel();
    let service = Service::start(bench.http.clone(), "node-maintenance", Policy::thorough(), news);
    service.begin("node-1", wanted());
    bench
        .until("the cordon is on its way", async || bench.wire.count("PATCH /api/v1/nodes/node-1") == 1)
        .await;
    // What cannot be read makes the service start anew.
    service.begin("ghost", wanted());
    bench.until("it starts anew", async || bench.wire.count("ghost") > 0).await;
    service.end("node-1").await;
    let then = bench.node("node-1").await.unschedulable;
    let mut interrupted = Vec::new();
    while let Ok(told) = heard.try_recv() {
        if let News::Interrupted(why) = told {
            interrupted.push(why);
        }
    }
    assert!(interrupted.first().is_some_and(|why| why.contains("pods is forbidden")), "{interrupted:?}");
    bench.clock.sleep(Duration::from_secs(30)).await;
    assert_eq!(
        bench.node("node-1").await.unschedulable,
        then,
        "the cordon landed after the end was answered"
    );
    assert_eq!(bench.wire.count("PATCH /api/v1/nodes/node-1"), 1, "and was not sent again");
}
