//! What may be done about a failed node now: refuse, ask for proof, or release what it held.

use jiff::Timestamp;
use serde::Serialize;

use super::fencing::{Fenced, How, PolicyRef, Void};
use super::policy::{FailoverPolicy, PolicyError};
use super::silence::{Signs, Silence, window};
use super::suspect::{SHUT_DOWN, Sign, Suspect};
use super::watchman::EXCLUDE;
use crate::cluster::fact::{Health, Key};
use crate::drain::explain::span;
use crate::drain::ownership::{MarkState, Ownership, held_by, lease_key};
use crate::drain::quorum::Shortage;
use crate::reasons::{OwnerReason, Reason};

/// How a node is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Release {
    /// By the taint out-of-service: pods go, volumes are detached, the node stays.
    Taint,
    /// By deleting the Node object: pods go as orphans, after a minute.
    DeleteNode,
}

/// The first Kubernetes in which the taint out-of-service cannot be switched off.
const TAINT_SINCE: (u32, u32) = (1, 28);

/// What suits a server of this version.
pub fn suitable(server: (u32, u32)) -> Release {
    if server >= TAINT_SINCE { Release::Taint } else { Release::DeleteNode }
}

/// The release that needs no knowledge of the server: one that was chosen, or one that was begun. A node that was released and is
/// still there got the taint.
pub fn settled(chosen: Option<Release>, suspect: &Suspect) -> Option<Release> {
    let begun = suspect.record().is_some_and(|record| record.released);
    chosen.or(begun.then_some(Release::Taint))
}

/// Why nothing is done about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Its kubelet says that it is Ready.
    Ready {
        /// Since when, as its condition states.
        since: Option<Timestamp>,
    },
    /// Another owner works on it.
    Owned {
        /// Who, as a sentence about the node.
        message: String,
    },
    /// A remediation operator may work on it: the lease by which it would say so cannot be read.
    LeaseUnread {
        /// The lease that could not be read.
        lease: Key,
        /// The error of reading it.
        why: String,
    },
    /// Without it the control plane would lose its quorum, or it is not known whether it would.
    Quorum(Shortage),
    /// The kubelet answers, so the machine cannot be off.
    Answers {
        /// Seconds since it renewed its lease.
        seconds: i64,
    },
    /// It has not been watched for long enough to know that it is silent.
    Unobserved {
        /// Seconds for which it still has to be watched.
        seconds: i64,
    },
    /// What was given as proof is none.
    Void(Void),
    /// The provider does not say that the machine is shut down.
    NotShutDown,
    /// Not silent for as long as the policy wants.
    TooEarly {
        /// Seconds of silence so far.
        silent: i64,
        /// Seconds that the policy wants.
        wanted: i64,
    },
    /// A person's statement lacks a part.
    NothingSaid {
        /// What is empty.
        what: &'static str,
    },
    /// It has been given up for another node object of the same name.
    Replaced,
    /// It was silent, and before it was switched off it was not any more.
    Recovered {
        /// What it showed of itself.
        sign: Sign,
    },
    /// The mark of this failover was taken from the node.
    Cancelled,
    /// The label [`EXCLUDE`] was set on the node.
    Excluded,
    /// The policy was paused.
    Paused {
        /// The reasons that its `spec.pause` gives.
        why: String,
    },
    /// The policy is not the one by which this was begun.
    PolicyChanged,
}

impl Refusal {
    /// The end of a sentence that begins with the node.
    pub fn message(&self) -> String {
        match self {
            Self::Ready { since } => {
                let since = since.map_or(String::new(), |at| format!(" since {at:.0}"));
                format!("is Ready{since}: it has not failed. To empty it: evac drain")
            }
            Self::Owned { message } => message.clone(),
            Self::LeaseUnread { lease, why } => format!(
                "may be held by somebody else, because the lease {lease} cannot be read ({why}). Try again, or get the right to \
                 get leases in the namespace {}",
                lease.namespace
            ),
            Self::Quorum(shortage) => format!(
                "is of the control plane and cannot be spared: {}. Bring the other members back first, or answer for it with \
                 evac failover --allow-control-plane",
                shortage.words()
            ),
            Self::Answers { seconds } => format!(
                "is not off: its kubelet renewed its lease {} ago. Power it off, or let a fence agent do so",
                span(*seconds)
            ),
            Self::Unobserved { seconds } => format!(
                "is not proven to be off: it has to be watched for {} more without a sign of life",
                span(*seconds)
            ),
            Self::Void(void) => format!("is not proven to be off: {}", void.words()),
            Self::NotShutDown => {
                format!("is not proven to be off: its provider has not put the taint {SHUT_DOWN} on it")
            }
            Self::TooEarly { silent, wanted } => format!(
                "has been silent for {} only; the policy wants {} before it takes that for the end",
                span(*silent),
                span(*wanted)
            ),
            Self::NothingSaid { what } => format!("is not proven to be off: {what} is empty"),
            Self::Replaced => "was replaced by another node of the same name".into(),
            Self::Recovered { sign } => {
                format!("was not switched off: {} while that was about to be done", sign.words())
            }
            Self::Cancelled => {
                "was not switched off: the mark of this failover was taken from the node meanwhile".into()
            }
            Self::Excluded => format!("was not switched off: it is excluded by the label {EXCLUDE} now"),
            Self::Paused { why } => format!("was not switched off: the policy is paused now ({why})"),
            Self::PolicyChanged => {
                "was not switched off: the policy was changed or deleted meanwhile; it is judged anew".into()
            }
        }
    }
}

/// Whether a failover may begin at all. `ownership` is about the drain mark and the leases of remediation operators, and
/// `unread` says why the lease could not be read, if it could not. A server that answers that there is no lease has said that the
/// lease has no holder; one that fails, or does not let us look, has not.
pub fn may_begin(suspect: &Suspect, ownership: &Ownership, unread: Option<&str>) -> Result<(), Refusal> {
    if suspect.is_ready() {
        return Err(Refusal::Ready { since: suspect.node.health_since });
    }
    match (ownership, unread) {
        (Ownership::Other(reason), _) => Err(Refusal::Owned { message: reason.message() }),
        // A mark says more than a lease, so only where there is none the lease decides.
        (Ownership::Free | Ownership::ForeignCordon, Some(why)) => {
            Err(Refusal::LeaseUnread { lease: lease_key(&suspect.node.name), why: why.to_owned() })
        }
        (Ownership::Free | Ownership::ForeignCordon | Ownership::Ours(_) | Ownership::Abandoned(_), _) => {
            Ok(())
        }
    }
}

/// Whether the node still carries the mark under which a failover began. One that was cancelled or taken over meanwhile is not ours to
/// go on with.
pub fn still_ours(suspect: &Suspect, owner: &str) -> Result<(), Refusal> {
    let reason: Reason = match &suspect.node.mark {
        Some(MarkState::Valid(mark)) if mark.owner == owner => return Ok(()),
        Some(MarkState::Valid(mark)) => held_by(mark, None, None),
        Some(MarkState::Unreadable(text)) => OwnerReason::MarkUnreadable { text: text.clone() }.into(),
        None => OwnerReason::CancelledElsewhere.into(),
    };
    Err(Refusal::Owned { message: reason.message() })
}

/// Turns what is said into a record, if nothing that is known speaks against it. For an agent, `suspect` was read after it had seen the
/// machine off, and `at` is when it began.
pub fn accept(
    suspect: &Suspect,
    silence: &Silence,
    how: How,
    owner: &str,
    at: Timestamp,
) -> Result<Fenced, Refusal> {
    match &how {
        // It was switched off a moment ago. Whether that was this machine shows in the two lease intervals that follow.
        How::Agent { .. } => {}
        How::Statement { .. } => {
            said(&how)?;
            watched(suspect, silence, at)?;
        }
        How::Provider { .. } => {
            if !suspect.is_shut_down() {
                return Err(Refusal::NotShutDown);
            }
            watched(suspect, silence, at)?;
        }
        How::Time { seconds, .. } => {
            let since = silence.silent_since(suspect).unwrap_or(at);
            let silent = at.duration_since(since).as_secs();
            if silent < *seconds {
                return Err(Refusal::TooEarly { silent: silent.max(0), wanted: *seconds });
            }
        }
    }
    let record = Fenced::new(suspect, how, owner, at);
    match record.void(suspect, at) {
        None => Ok(record),
        Some(void) => Err(Refusal::Void(void)),
    }
}

/// What would keep a proof from being accepted, as far as it is known without watching the node.
pub fn foresee(suspect: &Suspect, silence: &Silence, how: &How, now: Timestamp) -> Result<(), Refusal> {
    match how {
        How::Provider { .. } if !suspect.is_shut_down() => Err(Refusal::NotShutDown),
        How::Statement { .. } | How::Provider { .. } => {
            said(how)?;
            answers(suspect, silence, now)
        }
        How::Agent { .. } | How::Time { .. } => Ok(()),
    }
}

fn said(how: &How) -> Result<(), Refusal> {
    match how {
        How::Statement { by, .. } if by.trim().is_empty() => {
            Err(Refusal::NothingSaid { what: "who says so" })
        }
        How::Statement { reason, .. } if reason.trim().is_empty() => {
            Err(Refusal::NothingSaid { what: "the reason" })
        }
        _ => Ok(()),
    }
}

fn answers(suspect: &Suspect, silence: &Silence, now: Timestamp) -> Result<(), Refusal> {
    match silence.answered(suspect, now) {
        Some(ago) => Err(Refusal::Answers { seconds: ago.as_secs() }),
        None => Ok(()),
    }
}

/// Two lease intervals without a sign of any kind.
fn watched(suspect: &Suspect, silence: &Silence, now: Timestamp) -> Result<(), Refusal> {
    answers(suspect, silence, now)?;
    let until = silence.quiet_at(suspect, now);
    if until > now {
        return Err(Refusal::Unobserved { seconds: until.duration_since(now).as_secs().max(1) });
    }
    Ok(())
}

/// What comes next for a node whose failover has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing is done, and nothing is going to be without a change.
    Refuse(Refusal),
    /// Nothing may be released yet.
    Prove,
    /// The record holds, and the node has to be watched until then before anything follows from it.
    Watch {
        /// When two lease intervals will have passed, if no sign of life comes.
        until: Timestamp,
    },
    /// The record on the node holds, and what the node held is to be released.
    Release,
    /// That has been done.
    Await,
}

/// What one run of a failover remembers of the proof.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Witness {
    /// For which policy it runs; none for a person.
    pub policy: Option<PolicyRef>,
    /// The record that this run has seen on the node while it held, and since when.
    held: Option<(Timestamp, Timestamp)>,
}

impl Witness {
    /// Begins to watch, with nothing seen yet.
    pub fn new(policy: Option<PolicyRef>) -> Self {
        Self { policy, held: None }
    }

    /// Takes in what is on the node now.
    pub fn see(&mut self, suspect: &Suspect, now: Timestamp) {
        let Some(record) = suspect.record() else { return };
        let is_known = self.held.is_some_and(|(made, _)| made == record.at);
        if !is_known && record.void(suspect, now).is_none() {
            self.held = Some((record.at, now));
        }
    }

    /// Takes in a proof of this run's own, which counts from now whether or not it was written before the node changed.
    pub fn made(&mut self, record: &Fenced, now: Timestamp) {
        self.held = Some((record.at, now));
    }

    fn since(&self, record: &Fenced) -> Option<Timestamp> {
        self.held.filter(|(made, _)| *made == record.at).map(|(_, since)| since)
    }

    /// Whether a refuted record ends this run: it was refuted before its eyes, or under the policy as it still is. A person who
    /// begins anew has read what happened and may mean another agent.
    fn minds(&self, record: &Fenced) -> bool {
        self.since(record).is_some() || (self.policy.is_some() && record.policy == self.policy)
    }
}

/// Decided on the node as it is at this moment, each time anew.
pub fn next(suspect: &Suspect, silence: &Silence, witness: &Witness, now: Timestamp) -> Next {
    let record = suspect.record();
    if let Some(record) = record
        && let Some(sign) = record.wrong_machine(suspect)
        && witness.minds(record)
    {
        return Next::Refuse(Refusal::Void(Void::WrongMachine { sign }));
    }
    if suspect.is_ready() {
        return Next::Refuse(Refusal::Ready { since: suspect.node.health_since });
    }
    let Some(record) = record else { return Next::Prove };
    // A record of an earlier failure, or one that was refuted: a new proof is needed.
    if record.void(suspect, now).is_some() {
        return Next::Prove;
    }
    if record.released {
        return Next::Await;
    }
    let quiet = silence.quiet_at(suspect, now);
    let until = match record.how {
        // What it switched off shows only afterwards.
        How::Agent { .. } => {
            let seen = witness.since(record).unwrap_or(now);
            quiet.max(seen.checked_add(window(suspect)).unwrap_or(Timestamp::MAX))
        }
        How::Statement { .. } | How::Provider { .. } | How::Time { .. } => quiet,
    };
    if until > now { Next::Watch { until } } else { Next::Release }
}

/// What a policy says at the moment when a machine is about to be switched off because of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyNow {
    /// It is the one by which this was begun, and not paused.
    InForce,
    /// Nothing new is to be begun by it.
    Paused {
        /// The reasons that its `spec.pause` gives.
        why: String,
    },
    /// Deleted, or not the one any more by which this was begun.
    Changed,
}

impl PolicyNow {
    /// Compares the policy by which a failover was begun with what is found now; none if it is gone.
    pub fn of(begun: &PolicyRef, found: Option<&Result<FailoverPolicy, PolicyError>>) -> Self {
        match found {
            Some(Ok(policy)) if policy.reference() != *begun => {
                // Pausing changes a policy, too, and is the better word for it.
                if policy.uid == begun.uid && !policy.pause.is_empty() {
                    return Self::Paused { why: policy.pause.join(", ") };
                }
                Self::Changed
            }
            Some(Ok(policy)) if !policy.pause.is_empty() => Self::Paused { why: policy.pause.join(", ") },
            Some(Ok(_)) => Self::InForce,
            Some(Err(_)) | None => Self::Changed,
        }
    }
}

/// The conditions under which a machine is switched off, looked at before each try.
#[derive(Debug, Clone)]
pub struct Before {
    /// The signs of life when the node was last known to be silent; none for a node that answers and is switched off all the same, because
    /// it could not be drained.
    pub signs: Option<Signs>,
    /// Under which name the node is marked.
    pub owner: String,
}

/// Whether the next try to switch a machine off may be made. `policy` is none where a person asked for it.
pub fn may_switch_off(suspect: &Suspect, before: &Before, policy: Option<&PolicyNow>) -> Result<(), Refusal> {
    if suspect.is_ready() {
        return Err(Refusal::Ready { since: suspect.node.health_since });
    }
    let sign = before.signs.as_ref().and_then(|before| Signs::of(suspect).news(before));
    if let Some(sign) = sign {
        return Err(Refusal::Recovered { sign });
    }
    match &suspect.node.mark {
        Some(MarkState::Valid(mark)) if mark.owner == before.owner => {}
        Some(MarkState::Valid(mark)) => {
            let message = format!("was not switched off: {} is draining it now", mark.owner);
            return Err(Refusal::Owned { message });
        }
        Some(MarkState::Unreadable(_)) => {
            let message = "was not switched off: it has a mark now that cannot be read".into();
            return Err(Refusal::Owned { message });
        }
        None => return Err(Refusal::Cancelled),
    }
    match policy {
        Some(PolicyNow::Paused { why }) => Err(Refusal::Paused { why: why.clone() }),
        Some(PolicyNow::Changed) => Err(Refusal::PolicyChanged),
        Some(PolicyNow::InForce) if suspect.is_excluded() => Err(Refusal::Excluded),
        None | Some(PolicyNow::InForce) => Ok(()),
    }
}

/// One word for the state of a node, as `kubectl get nodes` has it.
pub fn health_words(health: Health) -> &'static str {
    match health {
        Health::Ready => "Ready",
        Health::NotReady => "NotReady",
        Health::Unknown => "NotReady (unreachable)",
        Health::Silent => "NotReady (never reported)",
    }
}

#[cfg(test)]
#[path = "course_tests.rs"]
mod tests;
