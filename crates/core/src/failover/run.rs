//! A failover under way: what it was asked for, in which phase it is, what it wants done and what became of that.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::event::End;
use super::fencing::{Fenced, How, PolicyRef};
use super::next_step::{PolicyNow, Refusal, Release, SwitchOffConditions, Witness};
use super::silence::Silence;
use super::snapshot::{Holding, NodeSnapshot};
use super::suspect::{Sign, Suspect};
use super::waiting::Waiting;
use crate::action::Event;
use crate::cluster::fact::{Node, Uid};
use crate::cluster::index::Index;
use crate::drain::ownership::Ownership;
use crate::drain::quorum::Shortage;
use crate::drain::run::End as DrainEnd;

/// Conflicts with concurrent writers that are looked at again.
pub const TRIES: u32 = 20;

/// What a failover is asked for.
#[derive(Debug, Clone)]
pub struct FailoverSpec {
    /// The node.
    pub node: String,
    /// Under which name the node is marked.
    pub owner: String,
    /// The command line, for the mark on the node.
    pub options: Vec<String>,
    /// On whose word the machine is taken for off.
    pub proof: ProofFrom,
    /// How to release; without it what suits the server.
    pub release: Option<Release>,
    /// A person answers for the quorum of etcd, where the node is of the control plane.
    pub allow_control_plane: bool,
    /// Look and tell, but change nothing.
    pub dry_run: bool,
    /// How long the whole may take; without it as long as it takes.
    pub timeout: Option<Duration>,
    /// How long the wait for the guests goes on without any change; without it until everything has happened, or the time is up.
    pub stall: Option<Duration>,
    /// How long a node whose kubelet answers is drained before it is switched off.
    pub drain: Duration,
    /// The policy that asks for it; none for a person.
    pub policy: Option<PolicyRef>,
}

/// Where the proof is to come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProofFrom {
    /// Only from what is written on the node already.
    Nowhere,
    /// A person's or a provider's word, or a policy's patience.
    Said(How),
    /// A fence agent switches the machine off.
    Agent {
        /// The name of its program.
        program: String,
        /// Which try is next.
        attempts: Attempts,
        /// Between two tries.
        pause: Duration,
    },
}

impl ProofFrom {
    /// What is said without a fence agent having to act.
    pub(super) fn said(&self) -> Option<How> {
        match self {
            Self::Said(how) => Some(how.clone()),
            Self::Nowhere | Self::Agent { .. } => None,
        }
    }
}

/// How often a machine is tried to be switched off, and which try this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// Which try this is, counted from 1.
    pub number: u32,
    tries: u32,
}

impl Attempts {
    /// The first of so many tries.
    pub fn new(tries: u32) -> Self {
        Self { number: 1, tries }
    }

    /// The next try after one that failed; none if it was the last, or if another would give the same answer.
    #[must_use]
    pub fn after_failure(self, is_final: bool) -> Option<Self> {
        (!is_final && self.number < self.tries).then_some(Self { number: self.number + 1, ..self })
    }
}

/// Everything that was read.
#[derive(Debug, Default)]
pub struct Facts {
    /// The last look at everything about the node.
    pub snapshot: Option<NodeSnapshot>,
    /// The node and its kubelet's lease as they were last read, with what was read of its holder then, if it was. None if the node is gone.
    pub node: Option<(Suspect, Option<Holding>)>,
    /// What is seen of guests, pods and volumes after the release.
    pub after: AfterRelease,
    /// By how much the calendar is ahead of the clock by which is measured.
    pub ahead: SignedDuration,
}

/// What watches have shown after the release.
#[derive(Debug, Default)]
pub struct AfterRelease {
    /// Pods on the node, and the guests and machines that are waited for.
    pub index: Index,
    /// The volumes that are attached to the node.
    pub attachments: Vec<String>,
    /// Every watch has shown what there is. Who is not seen before that is not gone.
    pub is_whole: bool,
}

impl Facts {
    pub(super) fn calendar(&self, now: Timestamp) -> Timestamp {
        now.checked_add(self.ahead).unwrap_or(now)
    }
}

/// What only a failover asks for. Each is answered by an [`Answer`] before the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    /// Reads everything about the node into [`Facts::snapshot`]. With `may_ask` the drain of another is asked whether it still is at work.
    Look {
        /// The drain of another owner is asked whether it is still at work.
        may_ask: bool,
    },
    /// Reads the node and its lease into [`Facts::node`], with its holder if wanted.
    Read {
        /// Who holds the node is read, too.
        holder: bool,
    },
    /// Finds out whether the control plane can spare the node.
    AskQuorum,
    /// Reads the version of the server.
    AskVersion,
    /// Watches the node and its lease for signs of life until then, and ends early if there is one.
    Watch {
        /// The node as it was read last.
        suspect: Box<Suspect>,
        /// The end of the watch, by the steady clock.
        until: Timestamp,
    },
    /// Notes outside the node how it was before this failover wrote on it.
    Note(Box<Node>),
    /// Drains the node, whose kubelet answers.
    Drain(Duration),
    /// Looks whether the machine may be switched off now: the node, the policy, and last who leads.
    LookOut,
    /// Switches the machine off and sees it off.
    SwitchOff,
    /// Waits before the next try, unless the run is to stop.
    Pause(Duration),
    /// Writes a proof on the node, if it still is as it was judged.
    WriteProof {
        /// The node as it was judged.
        node: Box<Node>,
        /// The proof.
        proof: Box<Fenced>,
    },
    /// Releases what the node held, if it still is as it was judged.
    Release {
        /// The node as it was judged.
        node: Box<Node>,
        /// The proof, which is marked as acted upon.
        proof: Box<Fenced>,
        /// How the node is released.
        how: Release,
    },
    /// Publishes events about the node, each with its time by the calendar. Losing one changes nothing, because the record is on the node.
    Publish(Vec<(Timestamp, Event)>),
    /// Begins to watch into [`Facts::after`] what becomes of pods, volumes and, if wanted, guests.
    Follow {
        /// Guests are watched, too.
        guests: bool,
    },
    /// Takes the taint away that released the node, if it still is as it was read.
    Untaint(Box<Node>),
}

/// What is to be done now.
pub type Action = crate::action::Action<Own>;

/// What became of an action. What cannot be told here, such as a server that fails, ends the run: all its state is on the node.
#[derive(Debug, Clone)]
pub enum Answer {
    /// It was carried out.
    Done,
    /// The node is not there any more.
    Gone,
    /// The node has changed since it was judged, and nothing was written.
    Conflict,
    /// Whether the control plane can spare the node.
    Quorum(Result<(), Shortage>),
    /// Major and minor version of the server.
    Version((u32, u32)),
    /// The drain has ended; none where it was cut off.
    Drained(Option<DrainEnd>),
    /// What was seen right before the machine is switched off.
    LookedOut {
        /// The node.
        suspect: Box<Suspect>,
        /// How the policy is now, where one asks for the failover.
        policy: Option<PolicyNow>,
        /// Whether this operator leads.
        leads: bool,
    },
    /// It was given up because the run is to stop.
    Stopped,
    /// The machine was not seen off. If final, another try would give the same answer.
    NotOff {
        /// Why, in words.
        why: String,
        /// Another try would give the same answer.
        is_final: bool,
    },
}

/// Why a failover ended without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The node changed each time before something was written.
    Contended,
    /// The node was deleted while its machine was being switched off.
    NodeGone,
}

/// A failover under way. Kill it at any moment: what it did is on the node (cordon, proof, taint), and the next one goes on from there.
#[derive(Debug, Clone)]
pub struct FailoverRun {
    pub(super) spec: FailoverSpec,
    /// What was seen of the node.
    pub silence: Silence,
    pub(super) deadline: Option<Timestamp>,
    pub(super) stopping: bool,
    /// The node answered, and was drained as far as that went.
    pub(super) drained: bool,
    pub(super) phase: Phase,
    pub(super) outcome: Option<Answer>,
    pub(super) notices: Vec<(Timestamp, Event)>,
}

impl FailoverRun {
    /// `silence` is what was seen of the node before.
    pub fn new(spec: FailoverSpec, silence: Silence, now: Timestamp) -> Self {
        let limit = spec.timeout.and_then(|limit| SignedDuration::try_from(limit).ok());
        let deadline = limit.and_then(|limit| now.checked_add(limit).ok());
        let (phase, outcome, notices) = (Phase::New, None, Vec::new());
        Self { spec, silence, deadline, stopping: false, drained: false, phase, outcome, notices }
    }

    /// Nothing new is begun.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Takes in what became of the last action.
    pub fn record(&mut self, outcome: Answer) {
        self.outcome = Some(outcome);
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<Result<&End, Fault>> {
        match &self.phase {
            Phase::Ended(end) => Some(end.as_ref().map_err(|fault| *fault)),
            _ => None,
        }
    }

    /// Events that are still to be sent where the run is given up.
    pub fn take_notices(&mut self) -> Vec<(Timestamp, Event)> {
        std::mem::take(&mut self.notices)
    }
}

/// Where a failover is. Its picture is in [`step`](super::step). Each phase has what it needs, and most wait for the outcome of one action.
#[derive(Debug, Clone, Default)]
pub(super) enum Phase {
    #[default]
    New,
    Looking,
    /// It is being asked whether the control plane can spare the node.
    Sparing(Ownership),
    Versioning(Ownership),
    Watching(Begun),
    Noting(Begun),
    Draining {
        how: Release,
    },
    LookingAgain {
        how: Release,
    },
    Cordoning(Cordoning),
    ReadingHolder(Cordoning),
    SparingAgain {
        how: Release,
    },
    Proving(Box<Proving>, ProofPhase),
    Publishing(Box<Phase>),
    /// The node is released, and what is on its way is not followed yet.
    Released {
        at: Timestamp,
        how: Release,
    },
    Waiting(Box<Waiting>),
    /// The node is being read to take the taint away.
    Restoring {
        tries: u32,
        end: End,
    },
    Untainting {
        tries: u32,
        end: End,
    },
    Ended(Result<End, Fault>),
}

/// A failover that may begin.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub owned: Ownership,
    pub how: Release,
}

/// A node that is to be cordoned under our mark.
#[derive(Debug, Clone)]
pub(super) struct Cordoning {
    pub how: Release,
    pub suspect: Box<Suspect>,
    pub owned: Ownership,
    pub tries: u32,
}

/// A node under our mark, of which is to be proven that it is off.
#[derive(Debug, Clone)]
pub(super) struct Proving {
    pub how: Release,
    pub tries: u32,
    pub witness: Witness,
    /// What an agent proved in this run. A machine is switched off once, and the signs of life are those of that moment.
    pub fenced: Option<Fenced>,
    /// Whether the proof was told.
    pub told: bool,
}

/// What is being done for the proof.
#[derive(Debug, Clone)]
pub(super) enum ProofPhase {
    /// The node is being read to see what comes next.
    Reading,
    Watching,
    LookingOut(Fencing),
    SwitchingOff {
        fencing: Fencing,
        began: Timestamp,
    },
    Pausing(Fencing),
    /// The machine was seen off, and the node is being read as it is then.
    SeenOff {
        program: String,
        began: Timestamp,
    },
    Recording {
        proof: Box<Fenced>,
        uid: Uid,
    },
    Releasing {
        uid: Uid,
    },
    /// It is being written on the record that it was wrong.
    Refuting(Refuted),
    /// The node changed before that, and is being read again.
    RefuteReading(Refuted),
}

/// A machine that is being switched off.
#[derive(Debug, Clone)]
pub(super) struct Fencing {
    pub program: String,
    pub attempts: Attempts,
    pub pause: Duration,
    pub before: SwitchOffConditions,
}

/// A proof that a sign of life has shown to be wrong.
#[derive(Debug, Clone)]
pub(super) struct Refuted {
    pub refusal: Refusal,
    pub sign: Sign,
    pub tries: u32,
}
