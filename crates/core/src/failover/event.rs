//! What a failover tells on its way, and how it ends.

use jiff::Timestamp;
use serde::Serialize;

use super::aftermath::{LetGo, Remains};
use super::course::{Refusal, Release};
use super::guests::GuestFate;
use crate::cluster::fact::Key;
use crate::drain::step;

/// Everything that is known, told before anything is done.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that is known")]
pub struct Report {
    /// The node.
    pub node: String,
    /// Its health in the words of `kubectl get nodes`.
    pub state: &'static str,
    /// Since when it is in that state, as its Ready condition says.
    pub since: Option<Timestamp>,
    /// The `renewTime` of its kubelet's lease.
    pub lease_renewed: Option<Timestamp>,
    /// The `lastHeartbeatTime` of its Ready condition.
    pub last_report: Option<Timestamp>,
    /// What the annotation `kubevirt.io/heartbeat` says.
    pub machine_agent_seen: Option<Timestamp>,
    /// The kubelet renews its lease, so the node can be drained.
    pub kubelet_answers: bool,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// It carries the taint out-of-service.
    pub out_of_service: bool,
    /// It carries the taint by which its cloud says that the machine is shut down.
    pub shut_down_by_provider: bool,
    /// What the record of a proof on the node says; none without a record that can be read.
    pub proof: Option<String>,
    /// What speaks against that record.
    pub proof_void: Option<String>,
    /// Names of the persistent volumes that are attached to it.
    pub attachments: Vec<String>,
    /// All pods on it.
    pub pods: usize,
    /// What becomes of its guests.
    pub guests: Vec<GuestFate>,
    /// What could not be read, in sentences.
    pub unread: Vec<String>,
}

/// What happens on the way.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Event {
    /// What is known of the node, before anything is done.
    Report(Box<Report>),
    /// The node is cordoned under the mark of this failover.
    Cordoned {
        /// It was cordoned before.
        already: bool,
    },
    /// The kubelet answers, so the node is drained first.
    Drains {
        /// How long that may take, before the machine is switched off.
        limit_seconds: u64,
    },
    /// What that drain tells.
    #[serde(skip)]
    Drain(Box<step::Event>),
    /// The node is watched for signs of life.
    Watching {
        /// For how many seconds.
        seconds: i64,
    },
    /// A fence agent is about to switch the machine off.
    Fencing {
        /// The name of its program.
        by: String,
    },
    /// The agent could not, or did not see the machine off.
    FenceFailed {
        /// Which try it was, counted from 1.
        number: u32,
        /// What the agent said.
        why: String,
    },
    /// There is proof that the machine is off.
    Proven {
        /// Who or what says so, in words.
        how: String,
        /// It was written now; otherwise it was found on the node.
        recorded: bool,
    },
    /// What the node held may go.
    Released {
        /// By which way.
        how: Release,
    },
    /// A guest runs again.
    Returned {
        /// The guest.
        instance: Key,
        /// Its node.
        on: String,
    },
    /// A guest does not come back by itself.
    StaysOff {
        /// The guest.
        instance: Key,
        /// Why, as the end of a sentence that begins with the VM.
        why: String,
    },
    /// A guest that should have returned is not waited for any more.
    LetGo(LetGo),
    /// What is waited for is not what was told last.
    Waiting {
        /// All that is waited for.
        remains: Remains,
    },
    /// The taint out-of-service was taken away: nothing is left for it to do.
    Restored,
}

/// How a failover ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Everyone who returns runs elsewhere.
    Done {
        /// Guests that run again.
        returned: usize,
        /// Guests that stay off, as was foretold or because they are not wanted any more.
        off: usize,
    },
    /// The node is released and empty, and these guests should run and cannot.
    Left {
        /// Guests that run again.
        returned: usize,
        /// Guests that stay off, as was foretold or because they are not wanted any more.
        off: usize,
        /// Those that are still meant to run.
        guests: Vec<LetGo>,
    },
    /// The kubelet answered, and everything left in good order.
    Drained,
    /// A dry run: nothing was changed.
    Rehearsed {
        /// There would be proof, as things are.
        proven: bool,
        /// For how many seconds the node would have to be watched first; a rehearsal does not wait.
        unwatched: i64,
    },
    /// Nothing was released.
    Refused(Refusal),
    /// Nothing was released, because nothing proves that the machine is off.
    NoProof {
        /// What the fence agent said last; none if no agent was to be asked.
        why: Option<String>,
    },
    /// The time is up, or nothing has changed for too long.
    TimedOut {
        /// What had not happened yet.
        remains: Remains,
        /// The node was released by then.
        released: bool,
    },
    /// The run was told to stop.
    Stopped {
        /// The node was released by then.
        released: bool,
    },
}
