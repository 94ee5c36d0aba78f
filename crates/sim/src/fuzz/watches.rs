//! A watch that tells what nobody should: evac goes on, and lists again.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use evac_api::wire;
use evac_clock::Clock;
use evac_core::Fact;
use evac_engine::Http;
use evac_engine::watch::{Feed, Opening, Report, Source, follow};
use http::{Request, Response};
use http_body_util::Full;
use kube::client::Body;
use tokio::sync::mpsc;

/// How long it is followed: long enough to be asked for once more.
const LONG: Duration = Duration::from_secs(8);
/// How long an answer is on its way.
const WAY: Duration = Duration::from_secs(1);

pub fn each(texts: &mut dyn Iterator<Item = String>) -> Option<(String, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let Ok(runtime) = runtime else { return Some((String::new(), "there is no runtime".into())) };
    for text in texts {
        if let Some(words) = runtime.block_on(followed(&text)) {
            return Some((text, words));
        }
    }
    None
}

/// Every request is answered with this text.
async fn followed(text: &str) -> Option<String> {
    let bytes = Bytes::from(text.to_owned());
    let service = tower::service_fn(move |_: Request<Body>| {
        let answer = Response::new(Full::from(bytes.clone()));
        async move {
            tokio::time::sleep(WAY).await;
            Ok::<_, Infallible>(answer)
        }
    });
    let http = Http::new(kube::Client::new(service, "default"), Clock::real(), Duration::ZERO);
    let source = Source { path: "/api/v1/nodes".into(), query: String::new(), page: 10 };
    let feed = Feed::<wire::Node, Fact>::facts(source).opened(Opening::Stream);
    let (sender, mut reports) = mpsc::unbounded_channel::<Report<Fact>>();
    let following = tokio::spawn(follow(http, feed, sender, |report| report));
    tokio::time::sleep(LONG).await;
    following.abort();
    let ended = following.await;
    let mut given_up = false;
    while let Ok(report) = reports.try_recv() {
        given_up = matches!(report, Report::Failed { final_: true, .. });
    }
    match ended {
        Err(error) if error.is_panic() => Some("following it panicked".into()),
        // Then it has said so, and whoever listens follows it anew.
        Ok(()) => (!given_up).then(|| "following it has ended without a word".into()),
        // It goes on.
        Err(_) => None,
    }
}
