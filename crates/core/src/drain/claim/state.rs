//! The claim of a run on one node: how it stands with the lease, as far as this run knows.
//!
//! ```text
//!             ┌─ conflict, no answer, removed ──┐
//!             ▼                                 │
//!  Without  Wanted ────── sent ──────────────▶ Asked ──── done ────▶ Held ──── sent ────▶ Releasing ──▶ Without
//!                                               ▲                   │   ▲                   │
//!                                               └── to be renewed ──┘   └──── try again ────┘
//!
//!  Asked, Held ── another run of this owner has it ──▶ Lost          Asked ── refused ──▶ Refused ── told ──▶ Without
//! ```

use std::time::Duration;

use evac_apimachinery::backoff::Retry;
use jiff::Timestamp;

use super::life::{Holder, life_of};
use super::probe::LivenessProbe;
use crate::action::Outcome;
use crate::cluster::fact::Lease;
use crate::drain::action::{Action, Own};
use crate::drain::node::NodePhase;
use crate::drain::policy::SERVER_FAILED;
use crate::drain::record::Record;
use crate::drain::run::{after, failure_text};

const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Conflicts at the same instant that are answered by looking again at once.
const CONFLICT_PATIENCE: u32 = 5;
/// How often a release that failed is tried again; after that the lease lapses by itself.
const RELEASE_PATIENCE: u32 = 3;

/// Whether we know what there is of our lease or our cordon in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Trace {
    #[default]
    Known,
    /// A write failed or its answer was lost, so it may be there although we do not hold it.
    Unsure,
}

/// The claim of this run on one node, and what it has asked about the claim of another.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claim {
    state: State,
    /// Failures to give it back at the end.
    release: Retry,
    pub(super) probe: LivenessProbe,
    /// What this run wrote on the node, for the record on its lease.
    pub noted: Option<Box<Record>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum State {
    /// This run makes no claims, or it gave this one back.
    #[default]
    Without,
    Wanted {
        tries: Tries,
        not_before: Option<Timestamp>,
    },
    Asked {
        tries: Tries,
    },
    Held {
        renew_at: Timestamp,
        /// Since when the lease is not to be seen any more.
        missing_since: Option<Timestamp>,
    },
    Releasing,
    /// The cluster does not let us, which is still to be told.
    Refused {
        message: String,
    },
    /// Another run of the same owner took it over.
    Lost {
        instance: String,
    },
}

/// What is known while a claim is not held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tries {
    /// Conflicts in a row.
    conflicts: u32,
    /// It was held before, so a lease that is not there was removed.
    held_before: bool,
    trace: Trace,
}

/// What is to be sent about a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    At(Timestamp),
    Hold,
    Release,
}

impl Next {
    fn hold_at(at: Option<Timestamp>, now: Timestamp) -> Self {
        at.filter(|at| *at > now).map_or(Self::Hold, Self::At)
    }
}

/// What the answers about a claim are judged by.
pub(super) struct Judged<'a> {
    pub ours: &'a Holder,
    /// The lease as it is seen now.
    pub lease: Option<&'a Lease>,
    pub renew_every: Duration,
    /// The work on the node is over.
    pub over: bool,
    pub now: Timestamp,
}

impl Judged<'_> {
    /// Whoever holds the lease may live.
    fn is_alive(&self) -> bool {
        self.lease.is_some_and(|lease| life_of(lease, self.now).perhaps_alive().is_some())
    }
}

impl Claim {
    pub fn wanted() -> Self {
        let state = State::Wanted { tries: Tries::default(), not_before: None };
        Self { state, ..Self::default() }
    }

    /// It is wanted and nothing has gone wrong with it yet, or the answer is on its way.
    pub fn is_first_try(&self) -> bool {
        matches!(self.state, State::Wanted { not_before: None, .. } | State::Asked { .. })
    }

    /// Nothing of ours is left in the cluster, as far as we know or can do something about it.
    pub fn is_settled(&self) -> bool {
        match &self.state {
            State::Without | State::Refused { .. } | State::Lost { .. } => true,
            State::Wanted { tries, .. } => {
                tries.trace == Trace::Known || self.release.failures() > RELEASE_PATIENCE
            }
            State::Asked { .. } | State::Held { .. } | State::Releasing => false,
        }
    }

    /// The other run of the same owner that holds it now.
    pub fn lost_to(&self) -> Option<&str> {
        match &self.state {
            State::Lost { instance } => Some(instance),
            _ => None,
        }
    }

    /// Why the cluster does not let us claim, once.
    pub(super) fn take_refusal(&mut self) -> Option<String> {
        if !matches!(self.state, State::Refused { .. }) {
            return None;
        }
        match std::mem::take(&mut self.state) {
            State::Refused { message } => Some(message),
            _ => None,
        }
    }

    /// What is to be sent now. `answers`: questions on the lease are heard and answered.
    pub(super) fn next(
        &self,
        phase: &NodePhase,
        lease: Option<&Lease>,
        answers: bool,
        now: Timestamp,
    ) -> Next {
        let working = phase.is_emptied();
        // How the node is now is noted before it is cordoned.
        let notes = matches!(phase, NodePhase::Waiting(_)) && self.noted.is_some();
        let over = matches!(phase, NodePhase::Ended(_));
        match &self.state {
            State::Held { .. } if over => self.release.rests(now).map_or(Next::Release, Next::At),
            State::Wanted { not_before, .. } if working || notes => Next::hold_at(*not_before, now),
            // What may be there has to be held before it can be given back.
            State::Wanted { .. } if over && !self.is_settled() => Next::hold_at(self.release.rests(now), now),
            State::Held { renew_at, missing_since } if working => {
                let news = lease.is_some_and(|lease| {
                    lease.open_question().is_some() || lease.answered.is_some() != answers
                });
                let again = missing_since.map(|since| after(since, RETRY_AFTER));
                if news { Next::Hold } else { Next::hold_at(Some(again.unwrap_or(*renew_at)), now) }
            }
            _ => Next::Nothing,
        }
    }

    /// The lease is being written.
    pub(super) fn is_asked(&mut self) {
        let tries = match self.state {
            State::Wanted { tries, .. } | State::Asked { tries } => tries,
            _ => Tries { held_before: true, ..Tries::default() },
        };
        self.state = State::Asked { tries };
    }

    /// The lease is another drain's, and left to it: so nothing of ours is there.
    pub(super) fn is_left(&mut self) {
        if let State::Wanted { tries, .. } = &mut self.state {
            tries.trace = Trace::Known;
        }
    }

    /// The lease is being given back.
    pub(super) fn is_released(&mut self) {
        self.state = State::Releasing;
    }

    /// What the watch shows of a lease that we hold: it may have been taken or removed.
    pub(super) fn notice(&mut self, lease: Option<&Lease>, ours: &Holder, now: Timestamp) {
        let State::Held { missing_since, .. } = &mut self.state else { return };
        let Some(lease) = lease else {
            // It may only look so, where the watch is still behind our own write.
            missing_since.get_or_insert(now);
            return;
        };
        *missing_since = None;
        let holder = Holder::parse(&lease.holder);
        if holder != *ours {
            let is_same_owner = holder.owner == ours.owner;
            self.state =
                if is_same_owner { State::Lost { instance: holder.instance } } else { State::Without };
        }
    }

    /// Takes in what became of something that was sent about it.
    pub(super) fn record(&mut self, action: &Action, outcome: &Outcome, by: &Judged<'_>) {
        match action {
            Action::Hold { .. } => self.record_hold(outcome, by),
            Action::Release { .. } => self.record_release(outcome, by),
            Action::Own(Own::Ask { .. }) => self.probe.record(outcome),
            _ => {}
        }
    }

    fn record_hold(&mut self, outcome: &Outcome, by: &Judged<'_>) {
        let State::Asked { tries } = self.state else { return };
        if by.over && *outcome != Outcome::Done {
            let wait = match outcome {
                Outcome::Throttled { retry_after } => retry_after.unwrap_or(RETRY_AFTER).min(RETRY_AFTER),
                outcome if is_away(outcome) => SERVER_FAILED.pause(self.release.failures()),
                _ => Duration::ZERO,
            };
            self.release.failed_until(after(by.now, wait));
        }
        self.state = match outcome {
            Outcome::Done => State::Held { renew_at: after(by.now, by.renew_every), missing_since: None },
            Outcome::Conflict { .. } => tries.conflict(by),
            // Renewing what was removed: claim anew. Creating where the namespace is missing: do without.
            Outcome::Gone if tries.held_before => {
                let tries = Tries { held_before: false, trace: Trace::Known, ..tries };
                State::Wanted { tries, not_before: None }
            }
            other if other.is_transient() || matches!(other, Outcome::Throttled { .. }) => {
                // Also where nothing can have been written: the lease is the record of what was done to the node, so it is tried again at the end.
                let tries = Tries { trace: Trace::Unsure, ..tries };
                State::Wanted { tries, not_before: Some(after(by.now, RETRY_AFTER)) }
            }
            other => State::Refused { message: failure_text(other) },
        };
    }

    /// A lease that is left behind shows a living drain until it lapses, so a failure that decides nothing is not the end.
    fn record_release(&mut self, outcome: &Outcome, by: &Judged<'_>) {
        let again = match outcome {
            outcome if is_away(outcome) => Some(SERVER_FAILED.pause(self.release.failures())),
            // A question was put at that very moment. A lease that another run holds is theirs and stays.
            Outcome::Conflict { .. } => {
                by.lease.filter(|lease| Holder::parse(&lease.holder) == *by.ours).map(|_| Duration::ZERO)
            }
            // The work is done; a busy server is waited for, but not for long.
            Outcome::Throttled { retry_after } => {
                Some(retry_after.unwrap_or(Duration::from_secs(1))).filter(|wait| *wait <= RETRY_AFTER)
            }
            _ => None,
        };
        self.state = match again.filter(|_| self.release.failures() < RELEASE_PATIENCE) {
            Some(wait) => {
                self.release.failed_until(after(by.now, wait));
                State::Held { renew_at: by.now, missing_since: None }
            }
            None => State::Without,
        };
    }
}

/// The server failed or could not be reached, which may be over in a moment.
fn is_away(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Server { .. } | Outcome::Unknown { .. } | Outcome::Transport { .. })
}

impl Tries {
    /// The lease is not as we thought: another run may hold it.
    fn conflict(self, by: &Judged<'_>) -> State {
        let holder = by.lease.map(|lease| Holder::parse(&lease.holder));
        // The run before this one was killed and this one has ended its work: what it left is given back by this one, or by nobody.
        let left =
            |one: &Holder| by.over && !self.held_before && one.owner == by.ours.owner && one != by.ours;
        let trace = match &holder {
            Some(one) if one == by.ours => self.trace,
            Some(one) if left(one) => Trace::Unsure,
            _ => Trace::Known,
        };
        match holder {
            Some(other) if self.held_before && other.owner == by.ours.owner && other != *by.ours => {
                State::Lost { instance: other.instance }
            }
            // It was taken over from us, as the watch will show, and so was the node.
            Some(other) if self.held_before && other != *by.ours && by.is_alive() => State::Without,
            _ => {
                let conflicts = self.conflicts + 1;
                let not_before = (conflicts > CONFLICT_PATIENCE).then(|| after(by.now, RETRY_AFTER));
                State::Wanted { tries: Self { conflicts, trace, ..self }, not_before }
            }
        }
    }
}
