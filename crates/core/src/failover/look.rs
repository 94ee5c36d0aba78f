//! Everything that is read about a failed node at one moment, and what is told of it before anything is done.

use jiff::Timestamp;

use super::course::{Refusal, health_words, may_begin};
use super::event::Report;
use super::guests::GuestFate;
use super::silence::Silence;
use super::suspect::Suspect;
use crate::cluster::fact::Pod;
use crate::cluster::index::Index;
use crate::drain::ownership::{Ownership, ownership};

/// A failed node and what was on it.
#[derive(Debug, Clone)]
pub struct Look {
    /// The node with its kubelet's lease.
    pub suspect: Suspect,
    /// All pods on it.
    pub pods: Vec<Pod>,
    /// What becomes of its guests. None where the cluster knows no virtual machines, or they may not be read.
    pub guests: Vec<GuestFate>,
    /// Names of the persistent volumes that are attached to it.
    pub attachments: Vec<String>,
    /// Whose the node may be.
    pub holding: Holding,
    /// What could not be read and would have been told.
    pub unread: Vec<String>,
}

/// Who marked or claimed a node, as far as could be found out.
#[derive(Debug, Clone)]
pub struct Holding {
    /// The node with its leases.
    pub index: Index,
    /// Why the lease of a remediation operator could not be read.
    pub unread: Option<String>,
}

impl Holding {
    /// Whose the node is, or why it must be left alone. `now` is by the calendar, as the times in leases are.
    pub fn judge(&self, suspect: &Suspect, owner: &str, now: Timestamp) -> Result<Ownership, Refusal> {
        let whose = ownership(&self.index, &suspect.node, owner, now);
        may_begin(suspect, &whose, self.unread.as_deref())?;
        Ok(whose)
    }
}

impl Look {
    pub(super) fn report(&self, silence: &Silence, now: Timestamp) -> Report {
        let suspect = &self.suspect;
        let record = suspect.record();
        Report {
            node: suspect.node.name.clone(),
            state: health_words(suspect.node.health),
            since: suspect.node.health_since,
            lease_renewed: suspect.renewed(),
            last_report: suspect.reported,
            machine_agent_seen: suspect.heartbeat,
            kubelet_answers: silence.answered(suspect, now).is_some(),
            cordoned: suspect.node.unschedulable,
            out_of_service: suspect.is_out_of_service(),
            shut_down_by_provider: suspect.is_shut_down(),
            proof: record.map(|record| record.how.words()),
            proof_void: record.and_then(|record| record.void(suspect, now)).map(|void| void.words()),
            attachments: self.attachments.clone(),
            pods: self.pods.len(),
            guests: self.guests.clone(),
            unread: self.unread.clone(),
        }
    }
}
