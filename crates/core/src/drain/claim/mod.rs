//! Signs of life: a lease beside the mark tells a drain that works from one that was killed.
//!
//! The mark on the node says who drains it and decides between two drainers, because it is written under a condition. It
//! cannot say whether its writer still lives. So while a drain runs it holds a lease, answers the questions written there, and removes it
//! at the end. Mark and a lease whose holder answers: its drain is at work. Mark and a lease whose holder is silent: its drain was
//! killed, others may go on from there. Mark without a lease: the drain came to its end, was stopped, or may not write leases.
//!
//! This file is the holder's side, with the claim on one node in `state`; what a lease says to others is in [`life`], how they ask in
//! `probe`.

use std::time::Duration;

use jiff::Timestamp;

use crate::action::{LeaseOf, Outcome};
use crate::cluster::index::Index;
use crate::drain::action::Action;
use crate::drain::context::Context;
use crate::drain::end::End;
use crate::drain::ownership::MarkState;
use crate::drain::policy::DryRun;
use crate::drain::run::Run;
use crate::drain::step::{Event, Step};
use crate::reasons::OwnerReason;
use state::{Judged, Next};

mod life;
pub(crate) mod probe;
mod state;

pub use life::{ANSWER_WITHIN, Holder, Life, NAMESPACE, key, life, life_of, node_state};
pub(crate) use state::{Claim, Trace};

/// How often a claim is renewed without being asked, and how long it holds. Two renewals may get lost before it lapses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Terms {
    renew_every: Duration,
    holds: Duration,
}

/// A run that watches its lease is asked by other drains. The renewals are for those that may not write to the lease.
const ANSWERING: Terms =
    Terms { renew_every: Duration::from_secs(20 * 60), holds: Duration::from_secs(60 * 60) };
/// Clocks of different machines may differ, so this is generous.
const DEAF: Terms = Terms { renew_every: Duration::from_secs(30), holds: Duration::from_secs(90) };

/// Asks for claims, renews them, answers, and gives them back when the work on a node is over.
pub(crate) fn claim(context: Context<'_>, run: &mut Run, step: &mut Step) {
    let Context { index, policy, now } = context;
    let Some(holder) = run.holder().filter(|_| policy.dry_run == DryRun::None) else { return };
    let answers = run.answers;
    let terms = run.terms();
    let mut refusal = None;
    for node in &mut run.nodes {
        if let Some(message) = node.claim.take_refusal() {
            refusal.get_or_insert((node.name.clone(), message));
        }
        let lease = index.lease(&key(&node.name));
        let found = index.node(&node.name);
        match node.claim.next(&node.phase, lease, answers, now) {
            Next::Nothing => {}
            Next::At(at) => step.look_at(at),
            Next::Hold
                if !node.phase.is_emptied() && is_of_another(index, &node.name, &holder.owner, now) =>
            {
                node.claim.is_left();
            }
            Next::Release => {
                let marked = found.is_some_and(
                    |found| matches!(&found.mark, Some(MarkState::Valid(mark)) if mark.owner == holder.owner),
                );
                step.actions.push(Action::Release {
                    lease: LeaseOf::Drain,
                    node: node.name.clone(),
                    resource_version: lease.map(|lease| lease.resource_version.clone()).unwrap_or_default(),
                    keep: marked && lease.is_some_and(|lease| lease.record.is_some()),
                });
                node.claim.is_released();
            }
            Next::Hold => {
                let Some(found) = found else { continue };
                step.actions.push(Action::Hold {
                    lease: LeaseOf::Drain,
                    node: node.name.clone(),
                    uid: found.uid.clone(),
                    holder: holder.to_string(),
                    at: now,
                    seconds: terms.holds.as_secs(),
                    // Whatever was asked until now is answered by this; where nothing was, it says that we listen.
                    answered: answers.then(|| lease.and_then(|lease| lease.asked).unwrap_or(now)),
                    over: lease.map(|lease| Box::new(lease.clone())),
                    record: node.claim.noted.clone().filter(|record| {
                        lease.and_then(|lease| lease.record.as_ref()).is_none_or(|known| known != record)
                    }),
                });
                node.claim.is_asked();
            }
        }
    }
    if let Some((node, message)) = refusal
        && !run.claim_refusal_told
    {
        run.claim_refusal_told = true;
        step.events.push(Event::Noted { node, reason: OwnerReason::LeaseUnavailable { message }.into() });
    }
}

/// Whether a drain of another owner that may live holds the lease of a node. As long as we do not empty the node, it is left to that drain: it
/// has noted how the node was, has marked it or is about to, and its record goes with the lease. Who marks the node first has it.
pub(crate) fn is_of_another(index: &Index, node: &str, owner: &str, now: Timestamp) -> bool {
    life(index, node, now).perhaps_alive().is_some_and(|(holder, _)| holder.owner != owner)
}

/// What the watch shows of leases that we hold: they may have been taken or removed.
pub(crate) fn notice(index: &Index, run: &mut Run, now: Timestamp) {
    let Some(ours) = run.holder().filter(|_| run.answers) else { return };
    for node in &mut run.nodes {
        node.claim.notice(index.lease(&key(&node.name)), &ours, now);
    }
}

impl Run {
    /// From here on the run gives signs of life. `instance` tells it from other runs of the same owner.
    #[must_use]
    pub fn claiming(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        for node in &mut self.nodes {
            node.claim = Claim::wanted();
        }
        self
    }

    /// Whether the leases are watched, so that questions are heard and answers of others too.
    pub fn answer(&mut self, answers: bool) {
        self.answers = answers;
    }

    /// What was last said with [`Run::answer`].
    pub fn answers(&self) -> bool {
        self.answers
    }

    /// How the leases of this run name it, if it claims nodes.
    fn holder(&self) -> Option<Holder> {
        Some(Holder { owner: self.owner.clone(), instance: self.instance.clone()? })
    }

    fn terms(&self) -> Terms {
        if self.answers { ANSWERING } else { DEAF }
    }

    /// Takes in what became of something that was sent about the lease of a node.
    pub(crate) fn record_claim(
        &mut self,
        index: &Index,
        name: &str,
        action: &Action,
        outcome: &Outcome,
        now: Timestamp,
    ) {
        let ours = Holder { owner: self.owner.clone(), instance: self.instance.clone().unwrap_or_default() };
        let renew_every = self.terms().renew_every;
        let Some(node) = self.node_mut(name) else { return };
        let over = node.end().is_some();
        let judged = Judged { ours: &ours, lease: index.lease(&key(name)), renew_every, over, now };
        node.claim.record(action, outcome, &judged);
    }

    /// Another run of the same owner took the claim over, so that one goes on and this one ends.
    pub(crate) fn end_of_lost_claim(&self, position: usize) -> Option<End> {
        let instance = self.nodes[position].claim.lost_to()?.to_owned();
        Some(End::Refused { reason: OwnerReason::ContinuedElsewhere { instance }.into() })
    }
}

#[cfg(test)]
mod tests;
