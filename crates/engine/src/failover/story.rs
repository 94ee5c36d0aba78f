//! What a failover is asked for, what it tells on its way, and how it ends.

use std::time::Duration;

use evac_core::Key;
use evac_core::drain::step;
use evac_core::failover::{GuestFate, LetGo, PolicyRef, Refusal, Release, Remains, Silence};
use jiff::Timestamp;
use serde::Serialize;

use super::power::Fence;

/// Where the proof is to come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Only from what is written on the node already.
    Nowhere,
    Statement {
        by: String,
        reason: String,
    },
    Provider,
    Time {
        seconds: i64,
        policy: String,
    },
    Fence(Fence),
}

#[derive(Debug, Clone)]
pub struct FailoverRequest {
    pub node: String,
    /// Under which name the node is marked.
    pub owner: String,
    /// The command line, for the mark on the node.
    pub options: Vec<String>,
    pub source: Source,
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
    /// What was seen of the node before. Without it the node is watched first.
    pub silence: Silence,
}

/// Everything that is known, told before anything is done.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that is known")]
pub struct Report {
    pub node: String,
    pub state: &'static str,
    pub since: Option<Timestamp>,
    pub lease_renewed: Option<Timestamp>,
    pub last_report: Option<Timestamp>,
    pub machine_agent_seen: Option<Timestamp>,
    pub kubelet_answers: bool,
    pub cordoned: bool,
    pub out_of_service: bool,
    pub shut_down_by_provider: bool,
    pub proof: Option<String>,
    pub proof_void: Option<String>,
    pub attachments: Vec<String>,
    pub pods: usize,
    pub guests: Vec<GuestFate>,
    pub unread: Vec<String>,
}

/// What happens on the way.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Event {
    Report(Box<Report>),
    Cordoned {
        already: bool,
    },
    /// The kubelet answers, so the node is drained first.
    Drains {
        limit_seconds: u64,
    },
    #[serde(skip)]
    Drain(Box<step::Event>),
    /// The node is watched for signs of life.
    Watching {
        seconds: i64,
    },
    Fencing {
        by: String,
    },
    FenceFailed {
        number: u32,
        why: String,
    },
    Proven {
        how: String,
        recorded: bool,
    },
    Released {
        how: Release,
    },
    Returned {
        instance: Key,
        on: String,
    },
    StaysOff {
        instance: Key,
        why: String,
    },
    /// A guest that should have returned is not waited for any more.
    LetGo(LetGo),
    Waiting {
        remains: Remains,
    },
    Restored,
}

/// How a failover ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Everyone who returns runs elsewhere.
    Done {
        returned: usize,
        off: usize,
    },
    /// The node is released and empty, and these guests should run and cannot.
    Left {
        returned: usize,
        off: usize,
        guests: Vec<LetGo>,
    },
    /// The kubelet answered, and everything left in good order.
    Drained,
    Rehearsed {
        proven: bool,
        /// For how many seconds the node would have to be watched first; a rehearsal does not wait.
        unwatched: i64,
    },
    /// Nothing was released.
    Refused(Refusal),
    NoProof {
        why: Option<String>,
    },
    /// The time is up, or nothing has changed for too long.
    TimedOut {
        remains: Remains,
        released: bool,
    },
    Stopped {
        released: bool,
    },
}
