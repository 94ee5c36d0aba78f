//! The leases that drains hold: a drain watches them to be asked, to hear answers, and to see whether another run took its own over.

use evac_api::call::CLAIMS;
use evac_api::wire;
use evac_core::drain::claim;
use evac_core::{DryRun, Fact, Key};
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
            self.follow::<wire::Lease>(tasks, sender, path, query.to_owned(), Input::Claim);
        }
    }

    pub(super) fn take_claims(&mut self, report: Report<Fact>) {
        match report {
            Report::Listed(leases, at) => {
                let claims = self.claims();
                let ours = leases.into_iter().filter_map(|fact| match fact {
                    Fact::Lease(lease) if claims.contains(&lease.key) => {
                        Some(Box::new(self.drainer.lease(*lease)))
                    }
                    _ => None,
                });
                let ours = ours.collect();
                self.index.reset_leases(ours, &at, |lease| claims.contains(&lease.key));
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
                let Some(fact) = report.into_fact() else { return };
                let is_ours = match &fact {
                    Fact::Lease(lease) => self.claims().contains(&lease.key),
                    Fact::LeaseGone(key, _) => self.claims().contains(key),
                    _ => false,
                };
                if is_ours {
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
