//! What a drain did about one incarnation of a pod.
//!
//! ```text
//!            ┌──────── refused: asked again later ────────┐
//!            ▼                                            │
//!          Idle ───────────── sent ─────────────────▶ InFlight ── the eviction is granted ──▶ Accepted ──▶ Gone
//!            ▲ └─ too many failures in a row ─▶ Failed ◀──┤                                                 ▲
//!            └── tried again, by a drain without an end ──┘└───────────── it is not there any more ─────────┘
//! ```
//!
//! A migration that is granted leads back to `Idle`: its pod is not leaving yet, and the migration is followed in the cluster.

use std::time::Duration;

use evac_apimachinery::backoff::Backoff;
use jiff::Timestamp;

use crate::action::Outcome;
use crate::cluster::fact::{Key, Pod, VmRole};
use crate::cluster::index::Revision;
use crate::cluster::tenant::TenantProgress;
use crate::drain::migrations::MigrationProgress;
use crate::drain::outlook::gather::Trail;
use crate::drain::policy::SERVER_FAILED;
use crate::drain::run::after;
use crate::reasons::Reason;

/// After this long a failure is no longer held against a pod, by drains without an end.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

const fn seconds(first: u64, longest: u64) -> Backoff {
    Backoff::new(Duration::from_secs(first), Duration::from_secs(longest))
}

const BUDGET: Backoff = seconds(2, 300);
const BUDGET_BROKEN: Backoff = seconds(30, 300);
const WEBHOOK: Backoff = seconds(5, 120);
/// The guest has left the pod, and a webhook that still speaks for it has not seen that yet. It will in a moment.
const LEFT_BEHIND: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(5));
const THROTTLED: Backoff = seconds(1, 30);
const NAMESPACE_TERMINATING: Backoff = seconds(5, 60);
/// A migration exists already, or the guest is not what we think: the watch will tell.
const MIGRATION_REFUSED: Backoff = seconds(1, 30);

/// Where one pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodState {
    /// Nothing is on its way.
    Idle(NextTry),
    /// A request is on its way.
    InFlight,
    /// The server agreed; the pod is leaving.
    Accepted,
    Gone,
    /// It was refused for good, or failed too often in a row.
    Failed {
        /// Until when that is held against it, by drains without an end.
        until: Timestamp,
    },
}

impl PodState {
    pub fn is_idle(self) -> bool {
        matches!(self, Self::Idle(_))
    }

    pub fn is_failed(self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}

/// When a pod that waits is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NextTry {
    pub not_before: Option<Timestamp>,
    /// When to ask although what we see says no, in case we see badly.
    pub probe_at: Option<Timestamp>,
    /// The server asked not to come back earlier.
    pub held_until: Option<Timestamp>,
}

/// What the server said last.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub outcome: Outcome,
    /// Answers of the same kind right before it; decides the backoff.
    pub earlier: u32,
    /// What the index looked like then.
    pub seen: Revision,
}

/// What was told of a pod, so that it is told once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    /// What is in its way, and since when.
    pub blocked: Option<(Reason, Timestamp)>,
    /// The reason that was named last.
    pub named: Option<&'static str>,
    /// That it left.
    pub left: bool,
    /// What the tenant has done whose node its guest is.
    pub tenant: Option<Box<TenantProgress>>,
}

#[derive(Debug, Clone)]
pub(crate) struct PodRun {
    pub key: Key,
    pub node: String,
    /// It ran a guest when it was first seen.
    pub guest: bool,
    pub state: PodState,
    pub answer: Option<Answer>,
    pub told: Told,
    pub moving: Option<Box<MigrationProgress>>,
    /// When it was asked and when it was gone.
    pub trail: Trail,
}

impl PodRun {
    pub(crate) fn new(pod: &Pod, node: &str) -> Self {
        Self {
            key: pod.key.clone(),
            node: node.to_owned(),
            guest: matches!(pod.vm, VmRole::Launcher(_)) && !pod.phase.is_finished(),
            state: PodState::Idle(NextTry::default()),
            answer: None,
            told: Told::default(),
            moving: None,
            trail: Trail::of(pod),
        }
    }

    /// What the server said last.
    pub fn last(&self) -> Option<&Outcome> {
        self.answer.as_ref().map(|answer| &answer.outcome)
    }

    /// How many answers of the last kind came right before the last one.
    pub fn earlier(&self) -> u32 {
        self.answer.as_ref().map_or(0, |answer| answer.earlier)
    }

    /// Which try the next request is, since answers were of another kind.
    pub fn attempt(&self) -> u32 {
        self.answer.as_ref().map_or(1, |answer| answer.earlier + 2)
    }

    /// Whether the server failed so often in a row that asking again is no use.
    pub fn has_failed_for_good(&self, patience: u32) -> bool {
        self.last().is_some_and(Outcome::is_transient) && self.earlier() >= patience
    }

    /// It failed too often in a row.
    pub fn give_up(&mut self, now: Timestamp) {
        self.state = PodState::Failed { until: after(now, FORGOTTEN_AFTER) };
    }

    /// What was held against it is forgotten.
    pub fn try_again(&mut self) {
        self.state = PodState::Idle(NextTry::default());
        if let Some(answer) = &mut self.answer {
            answer.earlier = 0;
        }
    }

    /// Nothing is asked for until then, although nothing was refused.
    pub fn put_off(&mut self, at: Timestamp) {
        match &mut self.state {
            PodState::Idle(next) => next.not_before = Some(at),
            PodState::Failed { until } => *until = at,
            // The answer decides.
            PodState::InFlight | PodState::Accepted | PodState::Gone => {}
        }
    }

    /// Takes in the answer to an eviction or a deletion.
    pub fn record_eviction(&mut self, outcome: Outcome, seen: Revision, now: Timestamp) {
        let earlier = self.row(&outcome);
        self.after_eviction(&outcome, earlier, now);
        self.answer = Some(Answer { outcome, earlier, seen });
    }

    fn after_eviction(&mut self, outcome: &Outcome, earlier: u32, now: Timestamp) {
        let mut held_until = None;
        let until = match outcome {
            Outcome::Done => {
                self.trail.stopping.get_or_insert(now);
                self.state = PodState::Accepted;
                return;
            }
            Outcome::Gone | Outcome::Replaced => {
                self.state = PodState::Gone;
                return;
            }
            Outcome::Forbidden { .. } | Outcome::Unsupported | Outcome::Invalid { .. } => {
                return self.give_up(now);
            }
            Outcome::Budget { retry_after, .. } => {
                held_until = retry_after.map(|wait| after(now, wait));
                BUDGET.until(now, earlier).max(held_until.unwrap_or(now))
            }
            Outcome::Webhook { .. } if self.guest && self.trail.gone.is_some() => {
                LEFT_BEHIND.until(now, earlier)
            }
            Outcome::Webhook { .. } => WEBHOOK.until(now, earlier),
            Outcome::Throttled { retry_after } => busy(*retry_after, earlier, now),
            Outcome::NamespaceTerminating => NAMESPACE_TERMINATING.until(now, earlier),
            Outcome::ManyBudgets { .. } | Outcome::BudgetBroken { .. } => BUDGET_BROKEN.until(now, earlier),
            Outcome::Conflict { .. }
            | Outcome::Server { .. }
            | Outcome::Unknown { .. }
            | Outcome::Transport { .. } => SERVER_FAILED.until(now, earlier),
        };
        self.state = PodState::Idle(NextTry { not_before: Some(until), probe_at: None, held_until });
    }

    /// Takes in the answer to a migration that was asked for.
    pub fn record_migration(&mut self, outcome: Outcome, seen: Revision, now: Timestamp) {
        let earlier = self.row(&outcome);
        self.after_migration(&outcome, earlier, now);
        self.answer = Some(Answer { outcome, earlier, seen });
    }

    fn after_migration(&mut self, outcome: &Outcome, earlier: u32, now: Timestamp) {
        let not_before = match outcome {
            Outcome::Done => None,
            Outcome::Throttled { retry_after } => Some(busy(*retry_after, earlier, now)),
            Outcome::Conflict { .. } | Outcome::Webhook { .. } | Outcome::Gone | Outcome::Replaced => {
                Some(MIGRATION_REFUSED.until(now, earlier))
            }
            Outcome::Server { .. } | Outcome::Unknown { .. } | Outcome::Transport { .. } => {
                Some(SERVER_FAILED.until(now, earlier))
            }
            Outcome::NamespaceTerminating => Some(NAMESPACE_TERMINATING.until(now, earlier)),
            _ => return self.give_up(now),
        };
        self.state = PodState::Idle(NextTry { not_before, ..NextTry::default() });
    }

    /// How many answers of this kind came last.
    fn row(&self, outcome: &Outcome) -> u32 {
        let kind = std::mem::discriminant(outcome);
        let before = self.answer.as_ref().filter(|last| std::mem::discriminant(&last.outcome) == kind);
        before.map_or(0, |last| last.earlier + 1)
    }
}

/// A server that is busy says when to come back, or it is left alone for longer each time.
fn busy(retry_after: Option<Duration>, earlier: u32, now: Timestamp) -> Timestamp {
    retry_after.map_or_else(|| THROTTLED.until(now, earlier), |wait| after(now, wait))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, pod};

    fn webhook() -> Outcome {
        Outcome::Webhook { webhook: "w".into(), message: "no".into() }
    }

    fn lost() -> Outcome {
        Outcome::Unknown { message: "no answer".into() }
    }

    fn not_before(pod: &PodRun) -> Option<Timestamp> {
        match pod.state {
            PodState::Idle(next) => next.not_before,
            _ => None,
        }
    }

    #[test]
    fn answers_of_one_kind_lengthen_the_pause_and_another_kind_begins_anew() {
        let mut pod = PodRun::new(&pod("web"), "n");
        assert_eq!(pod.attempt(), 1);
        let mut pauses = Vec::new();
        for outcome in [webhook(), webhook(), webhook(), lost(), webhook()] {
            pod.state = PodState::InFlight;
            pod.record_eviction(outcome, Revision::default(), at(0));
            pauses.push(not_before(&pod).unwrap().duration_since(at(0)).as_millis());
        }
        assert_eq!(pauses, [5_000, 10_000, 20_000, 500, 5_000]);
        assert_eq!(pod.attempt(), 2);
    }

    #[test]
    fn a_webhook_that_refuses_what_a_guest_has_left_behind_is_asked_again_soon() {
        let mut pod = PodRun::new(&pod("launcher"), "n");
        pod.guest = true;
        let mut pause = |gone| {
            pod.trail.gone = gone;
            pod.state = PodState::InFlight;
            pod.record_eviction(webhook(), Revision::default(), at(0));
            not_before(&pod).unwrap().duration_since(at(0)).as_millis()
        };
        assert_eq!((pause(None), pause(Some(at(0)))), (5_000, 1_000), "the second answer in a row");
    }

    #[test]
    fn what_is_put_off_waits_unless_an_answer_decides() {
        let mut pod = PodRun::new(&pod("web"), "n");
        pod.put_off(at(30));
        assert_eq!(not_before(&pod), Some(at(30)));
        pod.state = PodState::InFlight;
        pod.put_off(at(60));
        assert_eq!(pod.state, PodState::InFlight);
        pod.record_migration(Outcome::Done, Revision::default(), at(0));
        assert_eq!(not_before(&pod), None);
    }

    #[test]
    fn what_failed_for_good_is_forgotten_by_those_who_try_again() {
        let mut pod = PodRun::new(&pod("web"), "n");
        for _ in 0..3 {
            pod.record_eviction(lost(), Revision::default(), at(0));
        }
        assert!(pod.has_failed_for_good(2));
        pod.give_up(at(0));
        assert_eq!(pod.state, PodState::Failed { until: at(60) });
        pod.try_again();
        assert!(pod.state.is_idle() && !pod.has_failed_for_good(2));
        assert_eq!(pod.last(), Some(&lost()), "what is in its way is still known");
    }
}
