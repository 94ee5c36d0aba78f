//! The state of the work on one node. Each phase holds what only it needs.
//!
//! ```text
//!                          ┌──────── conflict, failed ────────┐
//!                          ▼                                  │
//!                       Waiting ──────── sent ──────────▶ Cordoning
//!                        │  │ ▲                             │   │
//!                        │  │ └─ carried out after all ─ LookingUp ◀─ given up, and an answer was lost
//!            it is ours  │  │                               │   │
//!                        ▼  └─ refused, blocked ──▶ Ended ◀─┘   │ done
//!                     Draining ◀────────────────────────────────┘
//!                      │  ▲ │
//!      nothing is left │  │ └─ blocked, failed, timed out, stopped ──▶ Ended
//!                      ▼  │
//!                     Proving ── the reading is judged ──▶ Ended
//!                         └ the reading failed, or something new was found
//! ```

use std::time::Duration;

use evac_apimachinery::backoff::{Backoff, Retry};
use jiff::Timestamp;

use crate::action::Outcome;
use crate::cluster::index::Index;
use crate::drain::claim::{Claim, Trace};
use crate::drain::end::{End, Left};
use crate::drain::ownership::Attire;
use crate::drain::policy::SERVER_FAILED;
use crate::drain::proof::Proof;
use crate::drain::run::{after, failure_text};
use crate::reasons::{NodeReason, Reason};

/// Transient failures of the cordon or of the final reading that are tried again.
const PATIENCE: u32 = 5;
/// Conflicts are the progress of other writers, so there may be more of them.
const CONFLICT_PATIENCE: u32 = 20;
/// The node was written in between, so our view of it will be newer in a moment.
const CONFLICT: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
/// The pause of a server that is busy and does not say for how long.
const BUSY: Duration = Duration::from_secs(1);

/// Where the work on a node stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePhase {
    /// It is not cordoned yet.
    Waiting(Cordon),
    /// The cordon is on its way.
    Cordoning(Cordon),
    /// The drain of it is at its end, and whether it is cordoned is not known: an answer was lost. It is read once more.
    LookingUp {
        /// The tries so far.
        cordon: Cordon,
        /// The reading is on its way.
        asked: bool,
        /// Why the cordon was given up, unless we were told to stop.
        refused: Option<String>,
    },
    /// Pods are asked to leave.
    Draining(Draining),
    /// Nothing is left as far as we see, and the node is read once more to prove it.
    Proving {
        /// When the drain of it began.
        since: Timestamp,
        /// The final reading.
        reading: Reading,
    },
    /// Nothing more is done about it.
    Ended(Ended),
}

/// The tries to cordon a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cordon {
    /// Failures so far.
    pub(crate) retry: Retry,
    /// Whether one was sent whose answer does not say that it was carried out or not.
    pub(crate) trace: Trace,
}

/// A node that is being emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draining {
    /// When that began.
    pub(crate) since: Timestamp,
    /// Final readings that failed.
    pub(crate) readings: Retry,
    /// When migrations are asked for that only wait in line.
    pub(crate) ask_ahead_at: Option<Timestamp>,
}

impl Draining {
    pub(crate) fn since(since: Timestamp) -> Self {
        Self { since, readings: Retry::default(), ask_ahead_at: None }
    }
}

/// The reading that proves a node empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// It is on its way, after so many that failed.
    Asked(Retry),
    /// It is in the index and waits to be judged.
    Arrived,
}

/// A node with which we are done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub end: End,
    /// That it ended has been told.
    pub(crate) told: bool,
    /// Whether a cordon of ours may be on it, of which no answer came.
    pub(crate) cordon: Trace,
}

impl NodePhase {
    /// The tries to cordon it, as long as that is not over.
    pub(crate) fn cordon(&self) -> Option<Cordon> {
        match self {
            Self::Waiting(cordon) | Self::Cordoning(cordon) | Self::LookingUp { cordon, .. } => Some(*cordon),
            Self::Draining(_) | Self::Proving { .. } | Self::Ended(_) => None,
        }
    }

    /// The end of the phase it is in, which is still to be told.
    pub(crate) fn ended(&self, end: End) -> Self {
        let cordon = self.cordon().map_or(Trace::Known, |cordon| cordon.trace);
        Self::Ended(Ended { end, told: false, cordon })
    }

    /// Whether pods leave the node or have left it.
    pub(crate) fn is_emptied(&self) -> bool {
        matches!(self, Self::Draining(_) | Self::Proving { .. })
    }

    /// Whether something of this run may be on the node: a cordon was sent, or the drain of it goes on.
    fn may_leave_traces(&self) -> bool {
        match self {
            Self::Waiting(cordon) => cordon.trace == Trace::Unsure,
            Self::Ended(ended) => ended.cordon == Trace::Unsure,
            Self::Cordoning(_) | Self::LookingUp { .. } | Self::Draining(_) | Self::Proving { .. } => true,
        }
    }
}

/// The work on one node.
#[derive(Debug, Clone)]
pub struct NodeRun {
    /// The name of the node.
    pub name: String,
    /// How far the work is.
    pub phase: NodePhase,
    /// The lease by which others know that it goes on.
    pub(crate) claim: Claim,
    /// What is written on the node besides the cordon.
    pub(crate) attire: Attire,
}

impl NodeRun {
    pub(crate) fn new(name: String, attire: Attire) -> Self {
        Self { name, phase: NodePhase::Waiting(Cordon::default()), claim: Claim::default(), attire }
    }

    /// How the work on it ended, if it has.
    pub fn end(&self) -> Option<&End> {
        match &self.phase {
            NodePhase::Ended(ended) => Some(&ended.end),
            _ => None,
        }
    }

    /// Whether something of this run may be on the node.
    pub(crate) fn is_touched(&self) -> bool {
        self.phase.may_leave_traces()
    }

    pub(crate) fn record_cordon(&mut self, outcome: &Outcome, now: Timestamp) {
        let NodePhase::Cordoning(mut cordon) = self.phase else { return };
        // After another answer than these the node may be cordoned or not, whatever is answered to the next try.
        match outcome {
            Outcome::Done | Outcome::Gone => cordon.trace = Trace::Known,
            Outcome::Unknown { .. } | Outcome::Server { .. } => cordon.trace = Trace::Unsure,
            _ => {}
        }
        let failed = move |reason| {
            let end = End::Failed { reason: Reason::Node(reason), blockers: Vec::new() };
            NodePhase::Cordoning(cordon).ended(end)
        };
        let failures = cordon.retry.failures();
        self.phase = match outcome {
            Outcome::Done => NodePhase::Draining(Draining::since(now)),
            // Another client wrote the node in between: look at it again before deciding.
            Outcome::Conflict { .. } if failures < CONFLICT_PATIENCE => {
                cordon.retry.failed(CONFLICT, now);
                NodePhase::Waiting(cordon)
            }
            Outcome::Throttled { retry_after } => {
                cordon.retry.rest_until(after(now, retry_after.unwrap_or(BUSY)));
                NodePhase::Waiting(cordon)
            }
            other if other.is_transient() && failures < PATIENCE => {
                cordon.retry.failed(SERVER_FAILED, now);
                NodePhase::Waiting(cordon)
            }
            Outcome::Gone => failed(NodeReason::NodeMissing),
            other if cordon.trace == Trace::Unsure => {
                NodePhase::LookingUp { cordon, asked: false, refused: Some(failure_text(other)) }
            }
            other => failed(NodeReason::CordonRefused { message: failure_text(other) }),
        };
    }

    /// The node as it is, after a cordon whose answer was lost.
    pub(crate) fn record_look_up(&mut self, index: &Index, owner: &str, outcome: &Outcome) {
        let NodePhase::LookingUp { cordon, refused, .. } = &self.phase else { return };
        let node = index.node(&self.name);
        let left = match outcome {
            Outcome::Done => Left::on(node, owner),
            other => Left::Unknown { why: failure_text(other) },
        };
        let trace = if matches!(left, Left::Unknown { .. }) { cordon.trace } else { Trace::Known };
        let cordon = Cordon { trace, ..*cordon };
        let ended = |end| NodePhase::Waiting(cordon).ended(end);
        let failed = |reason| ended(End::Failed { reason: Reason::Node(reason), blockers: Vec::new() });
        self.phase = match (refused.clone(), left) {
            (None, left) => ended(End::Stopped { left, to_leave: Vec::new(), blockers: Vec::new() }),
            // It was carried out after all.
            (Some(_), Left::Cordoned) if node.is_some_and(|node| self.attire.is_worn_by(node)) => {
                NodePhase::Waiting(cordon)
            }
            (Some(_), _) if node.is_none() => failed(NodeReason::NodeMissing),
            (Some(message), Left::Cordoned | Left::Nothing) => failed(NodeReason::CordonRefused { message }),
            (Some(message), Left::Unknown { why }) => failed(NodeReason::CordonUnknown { message, why }),
        };
    }

    pub(crate) fn record_reading(&mut self, outcome: &Outcome, now: Timestamp) {
        let NodePhase::Proving { since, reading: Reading::Asked(mut readings) } = self.phase else { return };
        if *outcome == Outcome::Done {
            self.phase = NodePhase::Proving { since, reading: Reading::Arrived };
            return;
        }
        // An unread proof is not a proof; try again, in the end say that we do not know.
        readings.failed(SERVER_FAILED, now);
        self.phase = if readings.failures() > PATIENCE || matches!(outcome, Outcome::Forbidden { .. }) {
            let why = format!("the node could not be read: {}", failure_text(outcome));
            self.phase.ended(End::Drained { proof: Proof::Unknown { why, by_choice: false } })
        } else {
            NodePhase::Draining(Draining { readings, ..Draining::since(since) })
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    fn node(phase: NodePhase) -> NodeRun {
        NodeRun { phase, ..NodeRun::new("n".into(), Attire::default()) }
    }

    fn lost() -> Outcome {
        Outcome::Unknown { message: "no answer".into() }
    }

    #[test]
    fn a_cordon_without_an_answer_is_in_doubt_to_the_end_unless_the_node_was_emptied() {
        let mut node = node(NodePhase::Cordoning(Cordon::default()));
        node.record_cordon(&lost(), at(0));
        assert!(matches!(node.phase, NodePhase::Waiting(_)) && node.is_touched(), "{:?}", node.phase);
        let refused = End::Refused { reason: Reason::Node(NodeReason::NodeMissing) };
        node.phase = node.phase.ended(refused.clone());
        assert!(node.is_touched());
        node.phase = NodePhase::Draining(Draining::since(at(1)));
        node.phase = node.phase.ended(refused);
        assert!(!node.is_touched(), "what is left of it was told");
    }

    #[test]
    fn a_reading_that_fails_is_tried_again_later_each_time_and_not_for_ever() {
        let mut node = node(NodePhase::Draining(Draining::since(at(0))));
        let mut pauses = Vec::new();
        while let NodePhase::Draining(draining) = node.phase {
            pauses
                .extend(draining.readings.rests(at(5)).map(|until| until.duration_since(at(5)).as_millis()));
            let reading = Reading::Asked(draining.readings);
            node.phase = NodePhase::Proving { since: draining.since, reading };
            node.record_reading(&lost(), at(5));
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000]);
        assert!(
            matches!(node.end(), Some(End::Drained { proof: Proof::Unknown { .. } })),
            "{:?}",
            node.phase
        );
    }
}
