//! Watches one node and the lease of its kubelet until enough silence has been seen, or a sign of life.

use evac_api::call::named;
use evac_api::failover::KUBELET_LEASES;
use evac_api::wire;
use evac_core::failover::{Silence, Suspect};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::look;
use crate::http::{Http, HttpError};
use crate::watch::{Feed, Report, Source, follow};

enum Input {
    Node(Report<wire::Node>),
    Lease(Report<wire::Lease>),
}

/// Ends at `until`, or earlier when something is seen that `silence` takes for a sign of life, when the node becomes Ready or is deleted, or when
/// `stop` is cancelled. The node as it is then has been read and taken in; none if it is gone.
///
/// The watch is there to end early. What counts is the reading at the end: values that are the same as at the beginning have not changed in
/// between, also if the watch was broken or is not allowed.
pub(super) async fn until_quiet(
    http: &Http,
    suspect: &Suspect,
    silence: &mut Silence,
    until: Timestamp,
    stop: &CancellationToken,
) -> Result<Option<Suspect>, HttpError> {
    let clock = http.clock();
    let (sender, mut inbox) = mpsc::unbounded_channel();
    // They end with this function.
    let mut tasks = JoinSet::new();
    let name = &suspect.node.name;
    let source = |path: &'static str| Source { path: path.into(), query: named(name), page: 0 };
    let version = |node: &wire::Node| node.metadata.resource_version.clone();
    let feed = Feed::whole(source("/api/v1/nodes"), version);
    tasks.spawn(follow(http.clone(), feed, sender.clone(), Input::Node));
    let version = |lease: &wire::Lease| lease.metadata.resource_version.clone();
    let feed = Feed::whole(source(KUBELET_LEASES), version);
    tasks.spawn(follow(http.clone(), feed, sender, Input::Lease));
    let mut seen = suspect.clone();
    let before = silence.since();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(input) = inbox.recv() => {
                if !take(&mut seen, input) {
                    break;
                }
                silence.see(&seen, clock.now());
                if silence.since() != before || seen.is_ready() {
                    break;
                }
            }
            () = clock.sleep_until(until) => {
                // Timers are coarse, and a hair too early is too early.
                if clock.now() >= until {
                    break;
                }
                clock.sleep(std::time::Duration::from_millis(1)).await;
            }
        }
    }
    drop(tasks);
    match look::suspect(http, name).await {
        Ok(suspect) => {
            silence.see(&suspect, clock.now());
            Ok(Some(suspect))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// False if the node is gone.
fn take(seen: &mut Suspect, input: Input) -> bool {
    match input {
        Input::Node(Report::Listed(list, _)) if list.is_empty() => return false,
        Input::Node(Report::Gone(_)) => return false,
        Input::Node(Report::Listed(list, _)) => {
            for node in list {
                seen.node = node.into();
            }
        }
        Input::Node(Report::Seen(node)) => seen.node = node.into(),
        Input::Lease(Report::Listed(list, _)) => {
            for lease in list {
                seen.lease = Some(lease.into());
            }
        }
        Input::Lease(Report::Seen(lease)) => seen.lease = Some(lease.into()),
        // A lease that is gone says nothing, and what cannot be watched is read at the end.
        Input::Lease(Report::Gone(_) | Report::Failed { .. }) | Input::Node(Report::Failed { .. }) => {}
    }
    true
}
