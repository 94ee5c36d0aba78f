//! The leases that drains hold: a drain watches them to be asked, to hear answers, and to see whether another run took its own over.

use evac_api::call::CLAIMS;
use evac_api::wire;
use evac_core::drain::claim;
use evac_core::{DryRun, Fact, Key, Lease};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Input, Loop};
use crate::life;
use crate::watch::Report;

impl Loop<'_> {
    /// Who holds no lease of its own answers nobody, and a trial asks nobody.
    pub(super) fn watch_claims(&mut self, tasks: &mut JoinSet<()>, sender: &mpsc::UnboundedSender<Input>) {
        if self.drainer.request.instance.is_some() && self.drainer.request.policy.dry_run == DryRun::None {
            self.missing.claims = true;
            let (path, query) = CLAIMS;
            self.follow(tasks, sender, path, query.to_owned(), Input::Claim);
        }
    }

    pub(super) fn take_claims(&mut self, report: Report<wire::Lease>) {
        match report {
            Report::Listed(leases, at) => {
                let claims = self.claims();
                let ours = leases.into_iter().map(Lease::from).filter(|lease| claims.contains(&lease.key));
                let leases = ours.map(|lease| self.drainer.lease(lease)).collect();
                self.index.reset_leases(leases, &at, |lease| claims.contains(&lease.key));
                self.missing.claims = false;
                self.drainer.run.answer(!self.started.deaf);
            }
            Report::Failed { error, final_ } => {
                // Without sight of leases a drain works all the same, and renews its own often instead of answering.
                tracing::debug!(%error, "could not follow leases");
                self.started.deaf |= final_ || error.is_forbidden();
                if self.started.deaf || self.missing.claims {
                    self.missing.claims = false;
                    self.drainer.run.answer(false);
                }
            }
            report => {
                if let Some(fact) = report.into_fact()
                    && let Fact::Lease(Lease { key, .. }) | Fact::LeaseGone(key, _) = &fact
                    && self.claims().contains(key)
                {
                    self.learn(fact);
                }
            }
        }
    }

    fn claims(&self) -> Vec<Key> {
        self.drainer.request.nodes.iter().map(|node| claim::key(node)).collect()
    }

    /// Whether those who marked our nodes before are still alive, where that is not seen anyway. Unmarked nodes have nobody to ask about.
    pub(super) async fn read_claims(&mut self) {
        if self.drainer.run.answers() {
            return;
        }
        for node in self.drainer.request.nodes.clone() {
            if self.index.node(&node).is_some_and(|node| node.mark.is_some())
                && let Some(fact) = life::read(&self.http, &node).await
            {
                self.learn(fact);
            }
        }
    }
}
