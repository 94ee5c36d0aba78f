//! Signs of life: a lease beside the mark tells a drain that works from one that was killed.
//!
//! The mark on the node says who drains it and decides between two drainers, because it is written under a condition. It
//! cannot say whether its writer still lives. So while a drain runs it holds a lease, answers whoever asks there, and removes it
//! at the end. Mark and a lease whose holder answers: somebody is at work. Mark and a lease whose holder is silent: somebody was
//! killed, others may go on from there. Mark without a lease: the drain came to its end, was stopped, or may not write leases.
//!
//! This file is the holder's side; what a lease says to others is in [`life`], how they ask in [`question`].

use std::time::Duration;

use jiff::Timestamp;

use crate::cluster::index::Index;
use crate::drain::action::{Action, Outcome};
use crate::drain::ownership::MarkState;
use crate::drain::policy::DryRun;
use crate::drain::run::{End, NodePhase, NodeRun, Run, after, failure_text};
use crate::drain::step::{Event, Step};
use crate::reasons::OwnerReason;

mod life;
pub(crate) mod question;

pub use life::{ANSWER_WITHIN, Holder, Life, NAMESPACE, key, life, life_of, standing};

/// How often a claim is renewed without being asked, and how long it holds. Two renewals may get lost before it lapses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Terms {
    renew_every: Duration,
    holds: Duration,
}

/// Who watches its lease is asked by those who want to know. The renewals are for those who may not ask.
const ANSWERING: Terms =
    Terms { renew_every: Duration::from_secs(20 * 60), holds: Duration::from_secs(60 * 60) };
/// Clocks of different machines may differ, so this is generous.
const DEAF: Terms = Terms { renew_every: Duration::from_secs(30), holds: Duration::from_secs(90) };

const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Conflicts at the same instant that are answered by looking again at once.
const CONFLICT_PATIENCE: u32 = 5;
/// How often a release that failed is tried again; after that the lease lapses by itself.
const RELEASE_PATIENCE: u32 = 3;

/// Where a run stands with its claim on one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Claim {
    /// This run makes no claims, the cluster does not let it, or it is over.
    #[default]
    Without,
    Wanted {
        not_before: Option<Timestamp>,
    },
    Asked,
    Held {
        renew_at: Timestamp,
    },
    Releasing,
}

impl Claim {
    /// It is wanted and nothing has gone wrong with it yet, or the answer is on its way.
    pub(crate) fn is_first_try(&self) -> bool {
        matches!(self, Self::Wanted { not_before: None } | Self::Asked)
    }
}

/// Whether we know what there is of our lease or our cordon in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    Known,
    /// A write failed or its answer was lost, so it may be there although we do not hold it.
    Unsure,
}

/// Asks for claims, renews them, answers, and gives them back when the work on a node is over.
pub(crate) fn claim(index: &Index, dry_run: DryRun, run: &mut Run, now: Timestamp, step: &mut Step) {
    let Some(instance) = run.instance.clone() else { return };
    if dry_run != DryRun::None {
        return;
    }
    let holder = Holder { owner: run.owner.clone(), instance };
    let answers = run.answers;
    let terms = if answers { ANSWERING } else { DEAF };
    let mut refusal = None;
    for node in &mut run.nodes {
        let lease = index.lease(&key(&node.name));
        if let Some(message) = node.claim_refused.take() {
            refusal.get_or_insert((node.name.clone(), message));
        }
        let working = matches!(node.phase, NodePhase::Draining { .. } | NodePhase::Proving { .. });
        // How the node is now is noted before it is cordoned.
        let notes = node.phase == NodePhase::Waiting && node.record.is_some();
        let over = matches!(node.phase, NodePhase::Ended(_));
        let settled = node.claim_is_settled();
        let due = match &node.claim {
            Claim::Held { .. } if over => {
                if let Some(at) = node.release_not_before.filter(|at| *at > now) {
                    step.wake_at(at);
                    continue;
                }
                let marked = index.node(&node.name).is_some_and(
                    |found| matches!(&found.mark, Some(MarkState::Valid(mark)) if mark.owner == holder.owner),
                );
                step.actions.push(Action::Release {
                    node: node.name.clone(),
                    resource_version: lease.map(|lease| lease.resource_version.clone()).unwrap_or_default(),
                    keep: marked && lease.is_some_and(|lease| lease.record.is_some()),
                });
                node.claim = Claim::Releasing;
                continue;
            }
            Claim::Wanted { not_before } if working || notes => *not_before,
            // What may be there has to be held before it can be given back.
            Claim::Wanted { .. } if over && !settled => node.release_not_before,
            Claim::Held { renew_at } if working => {
                let news = lease.is_some_and(|lease| {
                    lease.open_question().is_some() || lease.answered.is_some() != answers
                });
                let again = node.missing_since.map(|since| after(since, RETRY_AFTER));
                if news { None } else { Some(again.unwrap_or(*renew_at)) }
            }
            _ => continue,
        };
        if let Some(at) = due.filter(|at| *at > now) {
            step.wake_at(at);
            continue;
        }
        let Some(uid) = index.node(&node.name).map(|found| found.uid.clone()) else { continue };
        step.actions.push(Action::Hold {
            node: node.name.clone(),
            uid,
            holder: holder.to_string(),
            at: now,
            seconds: terms.holds.as_secs(),
            // Whatever was asked until now is answered by this; where nothing was, it says that we listen.
            answered: answers.then(|| lease.and_then(|lease| lease.asked).unwrap_or(now)),
            over: lease.map(|lease| Box::new(lease.clone())),
            record: node.record.clone().filter(|record| {
                lease.and_then(|lease| lease.record.as_ref()).is_none_or(|known| known != record)
            }),
        });
        node.claim = Claim::Asked;
    }
    if let Some((node, message)) = refusal
        && !run.claim_refusal_told
    {
        run.claim_refusal_told = true;
        step.events.push(Event::Noted { node, reason: OwnerReason::LeaseUnavailable { message }.into() });
    }
}

/// What the watch shows of leases that we hold: somebody may have taken or removed them.
pub(crate) fn heed(index: &Index, run: &mut Run, now: Timestamp) {
    let Some(instance) = run.instance.clone().filter(|_| run.answers) else { return };
    let ours = Holder { owner: run.owner.clone(), instance };
    for node in run.nodes.iter_mut().filter(|node| matches!(node.claim, Claim::Held { .. })) {
        let Some(lease) = index.lease(&key(&node.name)) else {
            // It may only look so, where the watch is still behind our own write.
            node.missing_since.get_or_insert(now);
            continue;
        };
        node.missing_since = None;
        let holder = Holder::parse(&lease.holder);
        if holder != ours {
            node.claim_lost = (holder.owner == ours.owner).then_some(holder.instance);
            node.claim = Claim::Without;
        }
    }
}

impl NodeRun {
    /// Nothing of ours is left in the cluster, as far as we know or can do something about it.
    pub(crate) fn claim_is_settled(&self) -> bool {
        match self.claim {
            Claim::Without => true,
            Claim::Wanted { .. } => {
                self.claim_trace == Trace::Known || self.release_failures > RELEASE_PATIENCE
            }
            Claim::Asked | Claim::Held { .. } | Claim::Releasing => false,
        }
    }
}

impl Run {
    /// From here on the run gives signs of life. `instance` tells it from other runs of the same owner.
    #[must_use]
    pub fn claiming(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        for node in &mut self.nodes {
            node.claim = Claim::Wanted { not_before: None };
        }
        self
    }

    /// Whether the leases are watched, so that questions are heard and answers of others too.
    pub fn answer(&mut self, answers: bool) {
        self.answers = answers;
    }

    pub fn answers(&self) -> bool {
        self.answers
    }

    pub(crate) fn record_hold(&mut self, index: &Index, name: &str, outcome: &Outcome, now: Timestamp) {
        let (owner, instance) = (self.owner.clone(), self.instance.clone());
        let terms = if self.answers { ANSWERING } else { DEAF };
        let Some(node) = self.node_mut(name) else { return };
        if matches!(node.phase, NodePhase::Ended(_)) && *outcome != Outcome::Done {
            node.release_failures += 1;
            if let Outcome::Throttled { retry_after } = outcome {
                node.release_not_before =
                    Some(after(now, retry_after.unwrap_or(RETRY_AFTER).min(RETRY_AFTER)));
            }
        }
        node.claim = match outcome {
            Outcome::Done => {
                node.claim_trace = Trace::Known;
                node.claim_conflicts = 0;
                node.claim_held_before = true;
                node.missing_since = None;
                Claim::Held { renew_at: after(now, terms.renew_every) }
            }
            Outcome::Conflict { .. } => {
                let holder = index.lease(&key(name)).map(|lease| Holder::parse(&lease.holder));
                let other_run = holder.clone().filter(|holder| {
                    node.claim_held_before
                        && holder.owner == owner
                        && Some(&holder.instance) != instance.as_ref()
                });
                let ours = Holder { owner: owner.clone(), instance: instance.clone().unwrap_or_default() };
                if holder.as_ref() != Some(&ours) {
                    node.claim_trace = Trace::Known;
                }
                if let Some(other) = other_run {
                    node.claim_lost = Some(other.instance);
                    Claim::Without
                } else {
                    node.claim_conflicts += 1;
                    let not_before =
                        (node.claim_conflicts > CONFLICT_PATIENCE).then(|| after(now, RETRY_AFTER));
                    Claim::Wanted { not_before }
                }
            }
            // Renewing what somebody removed: claim anew. Creating where the namespace is missing: do without.
            Outcome::Gone if node.claim_held_before => {
                node.claim_held_before = false;
                node.claim_trace = Trace::Known;
                Claim::Wanted { not_before: None }
            }
            other if other.is_transient() || matches!(other, Outcome::Throttled { .. }) => {
                // Also where nothing can have been written: the lease is the record of what was done to the node, so it is tried again at the end.
                node.claim_trace = Trace::Unsure;
                Claim::Wanted { not_before: Some(after(now, RETRY_AFTER)) }
            }
            other => {
                node.claim_refused = Some(failure_text(other));
                Claim::Without
            }
        };
    }

    /// A lease that is left behind shows a living drain until it lapses, so a failure that decides nothing is not the end.
    pub(crate) fn record_release(&mut self, index: &Index, name: &str, outcome: &Outcome, now: Timestamp) {
        let ours = Holder { owner: self.owner.clone(), instance: self.instance.clone().unwrap_or_default() };
        let Some(node) = self.node_mut(name) else { return };
        let again = match outcome {
            Outcome::Server { .. } | Outcome::Unknown { .. } | Outcome::Transport { .. } => {
                Some(Duration::ZERO)
            }
            // Somebody asked at that very moment. A lease of somebody else is theirs and stays.
            Outcome::Conflict { .. } => index
                .lease(&key(name))
                .filter(|lease| Holder::parse(&lease.holder) == ours)
                .map(|_| Duration::ZERO),
            // The work is done; a busy server is waited for, but not for long.
            Outcome::Throttled { retry_after } => {
                Some(retry_after.unwrap_or(Duration::from_secs(1))).filter(|wait| *wait <= RETRY_AFTER)
            }
            _ => None,
        };
        node.claim = if let Some(wait) = again.filter(|_| node.release_failures < RELEASE_PATIENCE) {
            node.release_failures += 1;
            node.release_not_before = Some(after(now, wait));
            Claim::Held { renew_at: now }
        } else {
            Claim::Without
        };
    }

    /// Another run of the same owner took the claim over, so that one goes on and this one ends.
    pub(crate) fn end_of_lost_claim(&self, position: usize) -> Option<End> {
        let instance = self.nodes[position].claim_lost.clone()?;
        Some(End::Refused { reason: OwnerReason::ContinuedElsewhere { instance }.into() })
    }
}

#[cfg(test)]
mod tests;
