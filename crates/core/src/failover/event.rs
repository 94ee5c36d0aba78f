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
