//! The state of one drain, of one or many nodes.
//!
//! ```text
//!  node:  Waiting ─▶ Cordoning ─▶ Draining ─▶ Proving ─▶ Ended
//!            │            │           ▲  │        │
//!            └────────────┴───────────┼──┴────────┘ refused, failed, blocked, timed out, stopped
//!                                     └──────────── the proof found something new
//! ```
//!
//! Only [`crate::drain::step`] and [`Run::record`] move it. Nothing here must survive a crash: the mark on the node and the pods
//! themselves say all that a new run has to know.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::cluster::fact::{Key, Node, Pod, Uid, VmRole};
use crate::cluster::index::{Index, Revision};
use crate::cluster::tenant::TenantProgress;
use crate::drain::action::{Action, Outcome};
use crate::drain::claim::question::Question;
use crate::drain::claim::{Claim, Trace};
use crate::drain::migrations::Move;
use crate::drain::migrations::abort::Aborts;
use crate::drain::outlook::Telling;
use crate::drain::outlook::gather::Trail;
use crate::drain::ownership::{Attire, MarkState};
use crate::drain::policy::back_off;
use crate::drain::proof::Proof;
use crate::drain::record::Record;
use crate::drain::transfer::measure::{Meter, Unreadable};
use crate::reasons::{NodeReason, Reason};

/// As numbers are written in events: whole seconds.
fn whole_seconds<S: serde::Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(span.as_secs())
}

/// One thing in the way, with the moment it was first seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocker {
    pub pod: Key,
    pub owner: Option<String>,
    pub reason: Reason,
    pub since: Timestamp,
}

/// How the work on a node ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "end", rename_all = "camelCase")]
pub enum End {
    Drained {
        proof: Proof,
    },
    /// A trial run: nothing was changed.
    Rehearsed {
        blockers: Vec<Blocker>,
    },
    /// The filters refuse pods, so nothing was touched.
    NotStarted {
        blockers: Vec<Blocker>,
    },
    Blocked {
        blockers: Vec<Blocker>,
    },
    TimedOut {
        #[serde(serialize_with = "whole_seconds")]
        after: Duration,
        blockers: Vec<Blocker>,
    },
    Failed {
        reason: Reason,
        blockers: Vec<Blocker>,
    },
    Refused {
        reason: Reason,
    },
    /// We were told to stop; what was asked to leave may still be leaving.
    Stopped {
        #[serde(flatten)]
        left: Left,
        /// All pods that still have to leave, whether they were asked or not.
        #[serde(rename = "toLeave")]
        to_leave: Vec<Key>,
        blockers: Vec<Blocker>,
    },
}

/// What a drain that comes to no end leaves on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "left", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Left {
    /// No cordon and no mark of this owner.
    Nothing,
    /// The cordon with the mark of this owner.
    Cordoned,
    /// The answer to the cordon was lost, and the node could not be read afterwards.
    Unknown { why: String },
}

impl Left {
    /// What a node shows that was just read.
    pub fn on(node: Option<&Node>, owner: &str) -> Self {
        let ours = |node: &Node| matches!(&node.mark, Some(MarkState::Valid(mark)) if mark.owner == owner);
        if node.is_some_and(|node| node.unschedulable && ours(node)) { Self::Cordoned } else { Self::Nothing }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePhase {
    Waiting,
    Cordoning,
    /// The drain of it is at its end, and whether it is cordoned is not known: an answer was lost. It is read once more.
    LookingUp {
        asked: bool,
        /// Why the cordon was given up, unless we were told to stop.
        refused: Option<String>,
    },
    Draining {
        since: Timestamp,
    },
    Proving {
        since: Timestamp,
    },
    Ended(End),
}

#[derive(Debug, Clone)]
pub struct NodeRun {
    pub name: String,
    pub phase: NodePhase,
    pub(crate) cordon_failures: u32,
    /// Whether a cordon was sent whose answer does not say that it was carried out or not.
    pub(crate) cordon_trace: Trace,
    pub(crate) cordon_not_before: Option<Timestamp>,
    pub(crate) prove_not_before: Option<Timestamp>,
    pub(crate) prove_failures: u32,
    /// The final reading is in the index and waits to be judged.
    pub(crate) reading_arrived: bool,
    /// That the work on it ended has been told.
    pub(crate) end_told: bool,
    pub(crate) claim: Claim,
    pub(crate) claim_conflicts: u32,
    pub(crate) claim_held_before: bool,
    pub(crate) claim_trace: Trace,
    pub(crate) release_failures: u32,
    pub(crate) release_not_before: Option<Timestamp>,
    /// Since when our lease is not to be seen any more.
    pub(crate) missing_since: Option<Timestamp>,
    pub(crate) question: Question,
    pub(crate) question_failures: u32,
    /// Why the cluster does not let us claim, until it is told.
    pub(crate) claim_refused: Option<String>,
    /// The run that took our claim over.
    pub(crate) claim_lost: Option<String>,
    /// When migrations are asked for that only wait in line.
    pub(crate) ask_ahead_at: Option<Timestamp>,
    /// What is written on the node besides the cordon.
    pub(crate) attire: Attire,
    /// What this run wrote on the node, for the record on its lease.
    pub(crate) record: Option<Box<Record>>,
}

impl NodeRun {
    fn new(name: String, attire: Attire) -> Self {
        Self {
            name,
            phase: NodePhase::Waiting,
            cordon_failures: 0,
            cordon_trace: Trace::Known,
            cordon_not_before: None,
            prove_not_before: None,
            prove_failures: 0,
            reading_arrived: false,
            end_told: false,
            claim: Claim::Without,
            claim_conflicts: 0,
            claim_held_before: false,
            claim_trace: Trace::Known,
            release_failures: 0,
            ask_ahead_at: None,
            release_not_before: None,
            missing_since: None,
            question: Question::Unasked,
            question_failures: 0,
            claim_refused: None,
            claim_lost: None,
            attire,
            record: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodState {
    Idle,
    InFlight,
    /// The server agreed; the pod is leaving.
    Accepted,
    Gone,
    Failed,
}

/// What we did about one incarnation of a pod.
#[derive(Debug, Clone)]
pub(crate) struct PodRun {
    pub key: Key,
    pub node: String,
    pub state: PodState,
    pub charged: Option<Key>,
    pub last: Option<Outcome>,
    /// Refusals or failures of the same kind in a row; decides the back-off.
    pub row: u32,
    pub not_before: Option<Timestamp>,
    /// When to ask although what we see says no, in case we see badly.
    pub probe_at: Option<Timestamp>,
    /// The server asked not to come back earlier.
    pub held_until: Option<Timestamp>,
    /// What the index looked like when we last asked.
    pub seen: Revision,
    pub blocked: Option<(Reason, Timestamp)>,
    /// The reason that was told last, so that it is told once.
    pub named: Option<&'static str>,
    pub evicted_by_us: bool,
    /// That it left has been told.
    pub told: bool,
    /// It ran a guest when it was first seen.
    pub guest: bool,
    pub moving: Option<Box<Move>>,
    /// What was last told of the tenant whose node its guest is.
    pub tenant: Option<Box<TenantProgress>>,
    /// When it was asked and when it was gone.
    pub trail: Trail,
}

#[derive(Debug, Clone)]
pub struct Run {
    pub owner: String,
    /// Which run of this owner it is; without it no signs of life are given.
    pub(crate) instance: Option<String>,
    /// Leases are watched, so questions on ours are answered, and answers of others are heard.
    pub(crate) answers: bool,
    pub nodes: Vec<NodeRun>,
    pub(crate) pods: BTreeMap<Uid, PodRun>,
    pub(crate) stopping: bool,
    pub(crate) never_since: BTreeMap<String, Timestamp>,
    pub(crate) claim_refusal_told: bool,
    pub(crate) meters: BTreeMap<String, Meter>,
    pub(crate) unreadable: Unreadable,
    pub(crate) aborts: Aborts,
    /// What was foretold of each node.
    pub(crate) tellings: BTreeMap<String, Telling>,
}

impl Run {
    pub fn new(
        owner: impl Into<String>,
        options: Vec<String>,
        nodes: impl IntoIterator<Item = String>,
    ) -> Self {
        let attire = Attire { options, ..Attire::default() };
        let nodes = nodes.into_iter().map(|name| NodeRun::new(name, attire.clone())).collect();
        Self {
            owner: owner.into(),
            instance: None,
            answers: false,
            nodes,
            pods: BTreeMap::new(),
            stopping: false,
            never_since: BTreeMap::new(),
            claim_refusal_told: false,
            meters: BTreeMap::new(),
            unreadable: Unreadable::default(),
            aborts: Aborts::default(),
            tellings: BTreeMap::new(),
        }
    }

    /// One more node; one that is known already begins anew.
    pub fn admit(&mut self, node: String, attire: Attire) {
        self.forget(&node);
        self.nodes.push(NodeRun::new(node, attire));
    }

    /// Nothing is done about this node any more. Answers that are still on the way are no news then.
    pub fn forget(&mut self, node: &str) {
        self.nodes.retain(|known| known.name != node);
        self.pods.retain(|_, pod| pod.node != node);
        self.never_since.remove(node);
        self.meters.remove(node);
        self.tellings.remove(node);
    }

    /// From now on nothing new is started.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    pub fn is_over(&self) -> bool {
        // Our own claims are given back before we go, and what we called off is answered.
        let ended = |node: &NodeRun| matches!(node.phase, NodePhase::Ended(_)) && node.claim_is_settled();
        self.nodes.iter().all(ended) && self.aborts.is_settled()
    }

    pub fn requests_under_way(&self) -> usize {
        self.pods.values().filter(|pod| pod.state == PodState::InFlight).count()
    }

    pub(crate) fn node_mut(&mut self, name: &str) -> Option<&mut NodeRun> {
        self.nodes.iter_mut().find(|node| node.name == name)
    }

    /// Takes in what became of an action. Facts that came with the answer are applied to the index before this.
    pub fn record(&mut self, index: &Index, action: &Action, outcome: Outcome, now: Timestamp) {
        match action {
            Action::Cordon { node, .. } => self.record_cordon(node, &outcome, now),
            Action::Prove { node } => self.record_reading(node, &outcome, now),
            Action::LookUp { node } => self.record_look_up(index, node, &outcome),
            Action::Hold { node, .. } => self.record_hold(index, node, &outcome, now),
            Action::Release { node, .. } => self.record_release(index, node, &outcome, now),
            Action::Ask { node, .. } => self.record_question(node, &outcome),
            Action::Migrate { pod, .. } => {
                if let Some(pod) = self.pods.get_mut(pod) {
                    pod.record_move(outcome, now);
                }
            }
            Action::ReadTransfers { node, uid, .. } => self.record_measurement(node, uid, &outcome, now),
            Action::Abort { uid, .. } => self.record_abort(uid, &outcome, now),
            // What comes of it is seen in the cluster.
            Action::ReadLaunchers { .. } => {}
            Action::Evict { uid, .. } | Action::Delete { uid, .. } => {
                if let Some(pod) = self.pods.get_mut(uid) {
                    pod.record(index, outcome, now);
                }
            }
        }
    }

    fn record_cordon(&mut self, node: &str, outcome: &Outcome, now: Timestamp) {
        let Some(run) = self.node_mut(node) else { return };
        if run.phase != NodePhase::Cordoning {
            return;
        }
        // After another answer than these the node may be cordoned or not, whatever is answered to the next try.
        match outcome {
            Outcome::Done | Outcome::Gone => run.cordon_trace = Trace::Known,
            Outcome::Unknown { .. } | Outcome::Server { .. } => run.cordon_trace = Trace::Unsure,
            _ => {}
        }
        run.phase = match outcome {
            Outcome::Done => NodePhase::Draining { since: now },
            // Somebody wrote the node in between: look at it again before deciding.
            Outcome::Conflict { .. } if run.cordon_failures < CONFLICT_PATIENCE => {
                run.cordon_failures += 1;
                let pause =
                    back_off(Duration::from_millis(50), Duration::from_secs(2), run.cordon_failures - 1);
                run.cordon_not_before = Some(after(now, pause));
                NodePhase::Waiting
            }
            Outcome::Throttled { retry_after } => {
                run.cordon_not_before = Some(after(now, retry_after.unwrap_or(Duration::from_secs(1))));
                NodePhase::Waiting
            }
            other if other.is_transient() && run.cordon_failures < CORDON_PATIENCE => {
                run.cordon_failures += 1;
                let pause =
                    back_off(Duration::from_millis(500), Duration::from_secs(10), run.cordon_failures - 1);
                run.cordon_not_before = Some(after(now, pause));
                NodePhase::Waiting
            }
            Outcome::Gone => NodePhase::Ended(End::Failed {
                reason: Reason::Node(NodeReason::NodeMissing),
                blockers: Vec::new(),
            }),
            other if run.cordon_trace == Trace::Unsure => {
                NodePhase::LookingUp { asked: false, refused: Some(failure_text(other)) }
            }
            other => NodePhase::Ended(End::Failed {
                reason: Reason::Node(NodeReason::CordonRefused { message: failure_text(other) }),
                blockers: Vec::new(),
            }),
        };
    }

    /// The node as it is, after a cordon whose answer was lost.
    fn record_look_up(&mut self, index: &Index, name: &str, outcome: &Outcome) {
        let owner = self.owner.clone();
        let Some(run) = self.node_mut(name) else { return };
        let NodePhase::LookingUp { refused, .. } = &run.phase else { return };
        let left = match outcome {
            Outcome::Done => Left::on(index.node(name), &owner),
            other => Left::Unknown { why: failure_text(other) },
        };
        if !matches!(left, Left::Unknown { .. }) {
            run.cordon_trace = Trace::Known;
        }
        let failed = |reason| NodePhase::Ended(End::Failed { reason, blockers: Vec::new() });
        run.phase = match (refused.clone(), left) {
            (None, left) => {
                NodePhase::Ended(End::Stopped { left, to_leave: Vec::new(), blockers: Vec::new() })
            }
            // It was carried out after all.
            (Some(_), Left::Cordoned) if index.node(name).is_some_and(|node| run.attire.is_worn_by(node)) => {
                NodePhase::Waiting
            }
            (Some(_), _) if index.node(name).is_none() => failed(Reason::Node(NodeReason::NodeMissing)),
            (Some(message), Left::Cordoned | Left::Nothing) => {
                failed(Reason::Node(NodeReason::CordonRefused { message }))
            }
            (Some(message), Left::Unknown { why }) => {
                failed(Reason::Node(NodeReason::CordonUnknown { message, why }))
            }
        };
    }

    /// Nodes on which something of this run may be: a cordon was sent, or the drain of it goes on.
    pub fn touched(&self) -> impl Iterator<Item = &str> {
        let perhaps = |node: &&NodeRun| match node.phase {
            NodePhase::Waiting | NodePhase::Ended(_) => node.cordon_trace == Trace::Unsure,
            NodePhase::Cordoning
            | NodePhase::LookingUp { .. }
            | NodePhase::Draining { .. }
            | NodePhase::Proving { .. } => true,
        };
        self.nodes.iter().filter(perhaps).map(|node| node.name.as_str())
    }

    fn record_reading(&mut self, node: &str, outcome: &Outcome, now: Timestamp) {
        let Some(run) = self.node_mut(node) else { return };
        let NodePhase::Proving { since } = run.phase else { return };
        if *outcome == Outcome::Done {
            run.prove_failures = 0;
            run.reading_arrived = true;
            return;
        }
        // An unread proof is not a proof; try again, in the end say that we do not know.
        run.prove_failures += 1;
        if run.prove_failures > CORDON_PATIENCE || matches!(outcome, Outcome::Forbidden { .. }) {
            let why = format!("the node could not be read: {}", failure_text(outcome));
            run.phase = NodePhase::Ended(End::Drained { proof: Proof::Unknown { why, by_choice: false } });
        } else {
            let pause = back_off(Duration::from_millis(500), Duration::from_secs(10), run.prove_failures - 1);
            run.prove_not_before = Some(after(now, pause));
            run.phase = NodePhase::Draining { since };
        }
    }
}

/// After this long a failure is no longer held against a pod, by those who never give up.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Transient failures of the cordon or of the final reading that are tried again.
const CORDON_PATIENCE: u32 = 5;
/// Conflicts are somebody else's progress, so there may be more of them.
const CONFLICT_PATIENCE: u32 = 20;

impl PodRun {
    pub(crate) fn new(pod: &Pod, node: &str) -> Self {
        Self {
            key: pod.key.clone(),
            node: node.to_owned(),
            guest: matches!(pod.vm, VmRole::Launcher(_)) && !pod.phase.is_finished(),
            moving: None,
            tenant: None,
            state: PodState::Idle,
            charged: None,
            last: None,
            row: 0,
            not_before: None,
            probe_at: None,
            held_until: None,
            seen: Revision::default(),
            blocked: None,
            named: None,
            evicted_by_us: false,
            told: false,
            trail: Trail::of(pod),
        }
    }

    /// It failed too often in a row.
    pub(crate) fn give_up(&mut self, now: Timestamp) {
        self.state = PodState::Failed;
        self.not_before = Some(after(now, FORGOTTEN_AFTER));
    }

    fn record(&mut self, index: &Index, outcome: Outcome, now: Timestamp) {
        let same_kind = self
            .last
            .as_ref()
            .is_some_and(|last| std::mem::discriminant(last) == std::mem::discriminant(&outcome));
        self.row = if same_kind { self.row + 1 } else { 0 };
        self.held_until = None;
        self.not_before = None;
        self.probe_at = None;
        self.state = PodState::Idle;
        let seconds = Duration::from_secs;
        let pause = match &outcome {
            Outcome::Done => {
                self.state = PodState::Accepted;
                self.evicted_by_us = true;
                self.trail.stopping.get_or_insert(now);
                None
            }
            Outcome::Gone | Outcome::Replaced => {
                self.state = PodState::Gone;
                None
            }
            Outcome::Budget { retry_after, .. } => {
                self.held_until = retry_after.map(|wait| after(now, wait));
                Some(back_off(seconds(2), seconds(300), self.row).max(retry_after.unwrap_or_default()))
            }
            Outcome::Webhook { .. } => Some(back_off(seconds(5), seconds(120), self.row)),
            Outcome::Throttled { retry_after } => {
                Some(retry_after.unwrap_or_else(|| back_off(seconds(1), seconds(30), self.row)))
            }
            Outcome::NamespaceTerminating => Some(back_off(seconds(5), seconds(60), self.row)),
            Outcome::ManyBudgets { .. } | Outcome::BudgetBroken { .. } => {
                Some(back_off(seconds(30), seconds(300), self.row))
            }
            Outcome::Conflict { .. }
            | Outcome::Server { .. }
            | Outcome::Unknown { .. }
            | Outcome::Transport { .. } => Some(back_off(Duration::from_millis(250), seconds(15), self.row)),
            Outcome::Forbidden { .. } | Outcome::Unsupported | Outcome::Invalid { .. } => {
                self.state = PodState::Failed;
                Some(FORGOTTEN_AFTER)
            }
        };
        if let Some(pause) = pause {
            self.not_before = Some(after(now, pause));
        }
        self.seen = index.revision();
        self.last = Some(outcome);
    }
}

pub(crate) fn after(now: Timestamp, pause: Duration) -> Timestamp {
    SignedDuration::try_from(pause)
        .ok()
        .and_then(|pause| now.checked_add(pause).ok())
        .unwrap_or(Timestamp::MAX)
}

pub(crate) fn failure_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Budget { message, .. }
        | Outcome::Webhook { message, .. }
        | Outcome::ManyBudgets { message }
        | Outcome::BudgetBroken { message }
        | Outcome::Forbidden { message }
        | Outcome::Conflict { message }
        | Outcome::Unknown { message }
        | Outcome::Transport { message }
        | Outcome::Invalid { message, .. } => message.clone(),
        Outcome::Server { status, message } => format!("{status}: {message}"),
        Outcome::Throttled { .. } => "too many requests".into(),
        Outcome::NamespaceTerminating => "the namespace is being deleted".into(),
        Outcome::Unsupported => "the server does not know this request".into(),
        Outcome::Done => "done".into(),
        Outcome::Gone => "not found".into(),
        Outcome::Replaced => "replaced by another object of the same name".into(),
    }
}
