//! What may be done about a failed node now: refuse, ask for proof, or release what it held.

use jiff::Timestamp;
use serde::Serialize;

use super::fencing::{Fenced, How, Void};
use super::suspect::{SHUT_DOWN, Suspect};
use crate::explain::span;
use crate::fact::{Health, Key};
use crate::ownership::{MarkState, Ownership, lease_key};
use crate::quorum::Shortage;
use crate::reason::Reason;

/// How a node is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Release {
    /// By the taint out-of-service: pods go, volumes are detached, the node stays.
    Taint,
    /// By deleting the Node object: pods go as orphans, after a minute.
    DeleteNode,
}

/// The first Kubernetes in which everybody has the taint out-of-service.
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
    Ready {
        since: Option<Timestamp>,
    },
    /// Somebody else works on it.
    Owned {
        message: String,
    },
    /// Somebody else may work on it: the lease by which they would say so cannot be read.
    LeaseUnread {
        lease: Key,
        why: String,
    },
    /// Without it the control plane would lose its quorum, or nobody knows whether it would.
    Quorum(Shortage),
    /// The kubelet answers, so the machine cannot be off.
    Answers {
        seconds: i64,
    },
    /// What was given as proof is none.
    Void(Void),
    /// The provider does not say that the machine is shut down.
    NotShutDown,
    /// Not silent for as long as the policy wants.
    TooEarly {
        silent: i64,
        wanted: i64,
    },
    NothingSaid {
        what: &'static str,
    },
    /// It has been given up for another node object of the same name.
    Replaced,
}

impl Refusal {
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
        }
    }
}

/// Whether a failover may begin at all. `ownership` is about the drain mark and the leases of remediation operators, and
/// `unread` says why the lease could not be read, if it could not. A server that answers that there is no lease has said that nobody
/// holds one; one that fails, or does not let us look, has not.
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
    let reason = match &suspect.node.mark {
        Some(MarkState::Valid(mark)) if mark.owner == owner => return Ok(()),
        Some(MarkState::Valid(mark)) => {
            let (owner, since) = (mark.owner.clone(), mark.since);
            Reason::OwnedByEvac { owner, since, instance: None, seen: None }
        }
        Some(MarkState::Unreadable(text)) => Reason::MarkUnreadable { text: text.clone() },
        None => Reason::CancelledElsewhere,
    };
    Err(Refusal::Owned { message: reason.message() })
}

/// Turns what somebody says into a record, if nothing that is known speaks against it.
pub fn accept(suspect: &Suspect, how: How, owner: &str, now: Timestamp) -> Result<Fenced, Refusal> {
    match &how {
        // It was switched off a moment ago; its last lease may be fresh.
        How::Agent { .. } => {}
        How::Statement { by, reason } => {
            if by.trim().is_empty() {
                return Err(Refusal::NothingSaid { what: "who says so" });
            }
            if reason.trim().is_empty() {
                return Err(Refusal::NothingSaid { what: "the reason" });
            }
            silent(suspect, now)?;
        }
        How::Provider { .. } => {
            if !suspect.is_shut_down() {
                return Err(Refusal::NotShutDown);
            }
            silent(suspect, now)?;
        }
        How::Time { seconds, .. } => {
            let since = suspect.signs().map(|(_, at)| at).chain(suspect.node.health_since).max();
            let silent = since.map_or(0, |at| now.duration_since(at).as_secs());
            if silent < *seconds {
                return Err(Refusal::TooEarly { silent, wanted: *seconds });
            }
        }
    }
    let record = Fenced::new(suspect, how, owner, now);
    match record.void(suspect, now) {
        None => Ok(record),
        Some(void) => Err(Refusal::Void(void)),
    }
}

fn silent(suspect: &Suspect, now: Timestamp) -> Result<(), Refusal> {
    match suspect.renewed {
        Some(at) if suspect.kubelet_answers(now) => {
            Err(Refusal::Answers { seconds: now.duration_since(at).as_secs().max(0) })
        }
        _ => Ok(()),
    }
}

/// What comes next for a node whose failover has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Refuse(Refusal),
    /// Nothing may be released yet.
    Prove,
    /// The record on the node holds, and what the node held is to be released.
    Release,
    /// That has been done.
    Await,
}

/// Decided on the node as it is at this moment, each time anew.
pub fn next(suspect: &Suspect, now: Timestamp) -> Next {
    if suspect.is_ready() {
        return Next::Refuse(Refusal::Ready { since: suspect.node.health_since });
    }
    match suspect.record() {
        None => Next::Prove,
        Some(record) => match record.void(suspect, now) {
            // A record of an earlier failure, or one that was refuted: a new proof is needed.
            Some(_) => Next::Prove,
            None if record.released => Next::Await,
            None => Next::Release,
        },
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
mod tests {
    use super::*;
    use crate::failover::suspect::FencedState;
    use crate::failover::suspect::testing::{ready, silent};
    use crate::ownership::{Attire, new_mark};
    use crate::testing::{at, taint};

    fn statement() -> How {
        How::Statement { by: "kim".into(), reason: "pulled the plug".into() }
    }

    fn recorded(second: i64) -> Suspect {
        let mut suspect = silent("n");
        let record = Fenced::new(&suspect, statement(), "kim", at(second));
        suspect.fenced = Some(FencedState::Valid(Box::new(record)));
        suspect
    }

    #[test]
    fn a_ready_node_has_not_failed() {
        let refused = may_begin(&ready("n", at(0)), &Ownership::Free, None).unwrap_err();
        assert!(refused.message().starts_with("is Ready since "), "{}", refused.message());
        assert!(matches!(next(&ready("n", at(0)), at(0)), Next::Refuse(Refusal::Ready { .. })));
    }

    #[test]
    fn d05_a_node_that_somebody_else_looks_after_is_left_to_them() {
        let lease = Key::new("medik8s-leases", "node-n");
        let other = Ownership::Other(Reason::OwnedByLease { lease, holder: "NodeHealthCheck-x".into() });
        assert!(matches!(may_begin(&silent("n"), &other, None), Err(Refusal::Owned { .. })));
        assert_eq!(may_begin(&silent("n"), &Ownership::ForeignCordon, None), Ok(()));
    }

    #[test]
    fn a_lease_that_cannot_be_read_is_not_a_free_node() {
        for ownership in [Ownership::Free, Ownership::ForeignCordon] {
            let refused = may_begin(&silent("n"), &ownership, Some("not allowed")).unwrap_err();
            assert!(
                refused.message().contains("lease medik8s-leases/node-n cannot be read (not allowed)"),
                "{}",
                refused.message()
            );
        }
        let mark = new_mark(&silent("n").node, "me", &Attire::default(), at(0));
        let ours = Ownership::Ours(Box::new(mark));
        assert_eq!(may_begin(&silent("n"), &ours, Some("not allowed")), Ok(()), "it was ours before");
    }

    #[test]
    fn a_failover_goes_on_only_under_its_own_mark() {
        let mut suspect = silent("n");
        let words = |suspect: &Suspect| still_ours(suspect, "me").map_err(|refusal| refusal.message());
        assert!(words(&suspect).unwrap_err().contains("cancelled"), "the mark is gone");
        let mark = |owner: &str| {
            let mark = new_mark(&silent("n").node, owner, &Attire::default(), at(0));
            Some(MarkState::Valid(Box::new(mark)))
        };
        suspect.node.mark = mark("lee");
        assert!(words(&suspect).unwrap_err().contains("lee"));
        suspect.node.mark = Some(MarkState::Unreadable("?".into()));
        assert!(words(&suspect).is_err());
        suspect.node.mark = mark("me");
        assert_eq!(words(&suspect), Ok(()));
    }

    #[test]
    fn without_a_record_nothing_is_released_and_with_one_once() {
        assert_eq!(next(&silent("n"), at(100)), Next::Prove);
        let mut suspect = recorded(100);
        assert_eq!(next(&suspect, at(101)), Next::Release);
        if let Some(FencedState::Valid(record)) = &mut suspect.fenced {
            record.released = true;
        }
        assert_eq!(next(&suspect, at(102)), Next::Await);
    }

    #[test]
    fn a_record_that_life_refuted_asks_for_a_new_proof() {
        let mut suspect = recorded(100);
        suspect.renewed = Some(at(150));
        assert_eq!(next(&suspect, at(160)), Next::Prove);
        suspect.fenced = Some(FencedState::Unreadable("yes".into()));
        assert_eq!(next(&suspect, at(160)), Next::Prove);
    }

    #[test]
    fn nobody_can_state_that_a_machine_is_off_whose_kubelet_answers() {
        let mut suspect = silent("n");
        suspect.node.health = Health::NotReady;
        suspect.renewed = Some(at(95));
        let refused = accept(&suspect, statement(), "kim", at(100)).unwrap_err();
        assert_eq!(refused, Refusal::Answers { seconds: 5 });
        let agent = How::Agent { program: "fence_x".into() };
        assert!(accept(&suspect, agent, "kim", at(100)).is_ok(), "it was switched off just now");
    }

    #[test]
    fn a_statement_needs_a_name_and_a_reason() {
        for (by, reason) in [("", "why"), ("kim", " ")] {
            let how = How::Statement { by: by.into(), reason: reason.into() };
            assert!(matches!(accept(&silent("n"), how, "kim", at(100)), Err(Refusal::NothingSaid { .. })));
        }
    }

    #[test]
    fn the_provider_is_believed_by_its_taint_only() {
        let how = || How::Provider { signal: SHUT_DOWN.into() };
        let mut suspect = silent("n");
        assert_eq!(accept(&suspect, how(), "op", at(100)), Err(Refusal::NotShutDown));
        suspect.node.taints.push(taint(SHUT_DOWN, "NoSchedule"));
        assert!(accept(&suspect, how(), "op", at(100)).is_ok());
    }

    #[test]
    fn d19_d23_time_counts_from_the_last_sign_of_any_kind() {
        let how = || How::Time { seconds: 180, policy: "p".into() };
        let suspect = silent("n");
        assert_eq!(
            accept(&suspect, how(), "op", at(229)),
            Err(Refusal::TooEarly { silent: 179, wanted: 180 })
        );
        assert!(accept(&suspect, how(), "op", at(230)).is_ok());
        let mut agent_lives = suspect;
        agent_lives.heartbeat = Some(at(200));
        assert!(accept(&agent_lives, how(), "op", at(230)).is_err());
    }

    #[test]
    fn servers_before_the_taint_get_the_node_deleted() {
        assert_eq!(suitable((1, 27)), Release::DeleteNode);
        assert_eq!(suitable((1, 28)), Release::Taint);
    }

    #[test]
    fn what_was_chosen_or_begun_needs_no_version() {
        assert_eq!(settled(None, &silent("n")), None);
        assert_eq!(settled(Some(Release::DeleteNode), &silent("n")), Some(Release::DeleteNode));
        let mut suspect = recorded(100);
        assert_eq!(settled(None, &suspect), None);
        if let Some(FencedState::Valid(record)) = &mut suspect.fenced {
            record.released = true;
        }
        assert_eq!(settled(None, &suspect), Some(Release::Taint));
    }
}
