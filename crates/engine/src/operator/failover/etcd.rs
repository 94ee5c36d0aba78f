//! The members of etcd, watched while a node of the control plane is down that a policy looks after.

use std::collections::BTreeMap;

use evac_api::wire::Pod;
use evac_core::drain::quorum::{Etcd, EtcdGuard, EtcdMember};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Told;
use crate::http::Http;
use crate::operator::feeds::{Input, Sender, forever};
use crate::quorum;
use crate::watch::Report;

/// Members by the names of their pods, or why they are not known.
type Known = Result<BTreeMap<String, EtcdMember>, String>;

#[derive(Default)]
pub(super) struct Members {
    /// One for each place where members can be; empty while nobody asks.
    places: Vec<Known>,
    /// Counts the times they were watched: what an earlier watch still says is history.
    round: u64,
    /// Ends the watches when it is dropped.
    watching: Option<DropGuard>,
}

impl Members {
    /// Begins to watch, or ends it.
    pub fn follow(&mut self, http: &Http, wanted: bool, sender: &Sender) {
        if !wanted {
            self.watching = None;
            self.places.clear();
            return;
        }
        if self.watching.is_some() {
            return;
        }
        self.round += 1;
        let (round, stop) = (self.round, CancellationToken::new());
        let sources = quorum::members();
        self.places = vec![Err("its members are not read yet".into()); sources.len()];
        for (place, source) in sources.into_iter().enumerate() {
            let wrap = move |report: Report<Pod>| Input::Failover(Told::Etcd { round, place, report });
            let version = |pod: &Pod| pod.metadata.resource_version.clone();
            let following = forever(http.clone(), source, sender.clone(), wrap, version);
            let ended = stop.clone();
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = ended.cancelled() => {}
                    () = following => {}
                }
            });
        }
        self.watching = Some(stop.drop_guard());
    }

    pub fn take(&mut self, round: u64, place: usize, report: Report<Pod>) {
        let Some(known) = self.places.get_mut(place).filter(|_| round == self.round) else { return };
        let member = |pod: Pod| (pod.metadata.name.clone(), EtcdMember::from(&evac_core::Pod::from(pod)));
        match (report, known) {
            (Report::Listed(pods, _), known) => *known = Ok(pods.into_iter().map(member).collect()),
            (Report::Seen(pod), Ok(members)) => members.extend([member(pod)]),
            (Report::Gone(pod), Ok(members)) => drop(members.remove(&pod.metadata.name)),
            // Without the right to see them nothing is known; a server that fails for a moment is asked again.
            (Report::Failed { error, final_ }, known) if final_ || known.is_err() => {
                *known = Err(error.to_string());
            }
            (Report::Seen(_) | Report::Gone(_) | Report::Failed { .. }, _) => {}
        }
    }

    /// All members there are, or why that is not known. What guards etcd on OpenShift is looked at when a failover begins.
    pub fn etcd(&self) -> Result<Etcd, String> {
        let mut members = Vec::new();
        for place in &self.places {
            members.extend(place.as_ref().map_err(Clone::clone)?.values().cloned());
        }
        Ok(Etcd { members, guard: EtcdGuard::NotUsed })
    }
}
