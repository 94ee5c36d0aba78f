//! Asks the drain of a node whether it is still at work, for the commands that are not drains themselves.

use evac_api::call::{self, CLAIMS, named};
use evac_api::{Call, wire};
use evac_core::Fact;
use evac_core::drain::claim::{self, ANSWER_WITHIN, Life, life_of};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::http::{Http, parse};
use crate::watch::{Feed, Opening, Report, Source, follow};

/// The lease of a node's drain, or that there is none; nothing if that could not be found out.
pub async fn read(http: &Http, node: &str) -> Option<Fact> {
    let key = claim::key(node);
    match http.read_patiently::<wire::Lease>(&Call::get(call::lease_path(&key))).await {
        Ok(lease) => Some(Fact::Lease(Box::new(lease.into()))),
        Err(error) if error.is_not_found() => Some(Fact::LeaseAbsent(key)),
        Err(_) => None,
    }
}

/// The lease of a node's drain, asked for a sign of life where it gives one on demand. Without an answer in time, or without the
/// right to ask, it is what it was; nothing if it could not be read.
pub async fn ask(http: &Http, node: &str) -> Option<Fact> {
    let mut fact = read(http, node).await?;
    let clock = http.clock();
    let is_unheard = |fact: &Fact| match fact {
        Fact::Lease(lease) => matches!(life_of(lease, clock.calendar()), Life::Unheard { .. }),
        _ => false,
    };
    if !is_unheard(&fact) {
        return Some(fact);
    }
    // Written for the holder, who answers with the same time; our own waiting is measured.
    let (asked, began) = (clock.calendar(), clock.now());
    match http.send(&call::ask(node, asked)).await.and_then(|answer| parse::<wire::Lease>(&answer)) {
        Ok(lease) => fact = Fact::Lease(Box::new(lease.into())),
        Err(error) if error.is_not_found() => return Some(Fact::LeaseAbsent(claim::key(node))),
        Err(_) => return Some(fact),
    }
    let (sender, mut reports) = mpsc::unbounded_channel();
    let (path, _) = CLAIMS;
    let key = claim::key(node);
    let query = named(&key.name);
    let source = Source { path: path.into(), query, page: 1 };
    // Ends with this function.
    let mut watching = JoinSet::new();
    let feed = Feed::<wire::Lease, Fact>::facts(source).opened(Opening::Stream);
    watching.spawn(follow(http.clone(), feed, sender, |report| report));
    let deadline = began.checked_add(ANSWER_WITHIN).unwrap_or(began);
    while is_unheard(&fact) {
        let report = tokio::select! {
            biased;
            report = reports.recv() => report,
            () = clock.sleep_until(deadline) => None,
        };
        match report {
            Some(Report::Listed(leases, _)) => {
                let is_its = |fact: &Fact| matches!(fact, Fact::Lease(lease) if lease.key == key);
                fact = leases.into_iter().find(is_its).unwrap_or_else(|| Fact::LeaseAbsent(key.clone()));
            }
            Some(Report::Failed { error, final_ }) if final_ || error.is_forbidden() => break,
            None => break,
            Some(report) => fact = report.into_fact().unwrap_or(fact),
        }
    }
    Some(fact)
}
