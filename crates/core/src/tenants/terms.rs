//! On which terms the node of a tenant is drained.

use std::time::Duration;

use crate::cluster::fact::Health;
use crate::drain::policy::Policy;
use crate::drain::run::End;
use crate::drain::step::Event;
use crate::reasons::{Reason, StoppingReason};

/// The pods of a node that does not report cannot be seen to stop; this long after their grace period the drain stops waiting for them.
const UNREACHABLE_WAIT: Duration = Duration::from_secs(30);
/// The deadline ends a drain, not the belief that waiting is in vain: what stands in the way today may be gone tomorrow.
const SETTLE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The machine goes in any case: whatever can leave in order had better do so, whatever its controller and whatever it leaves behind.
pub fn policy(unreachable: bool) -> Policy {
    Policy {
        allow_shutdown: true,
        skip_wait_for_delete: unreachable.then_some(UNREACHABLE_WAIT),
        settle: SETTLE,
        ..Policy::thorough()
    }
}

/// Its kubelet does not report, so pods cannot be seen to stop.
pub fn is_unreachable(health: Health) -> bool {
    matches!(health, Health::Unknown | Health::Silent)
}

/// A drain that began on a node that reported, and now does not: it has to go on by other terms.
pub fn lost_touch(event: &Event) -> bool {
    matches!(event, Event::Waiting { blocker, .. } if matches!(blocker.reason, Reason::Stopping(StoppingReason::NodeSilent { .. })))
}

/// Whether nothing is left that the tenant could wish to save; else why not.
pub fn judge(end: &End) -> Result<(), String> {
    match end {
        End::Drained { proof } if proof.fulfils_request() => Ok(()),
        End::Drained { proof } => Err(format!("it is not proven to be empty: {proof}")),
        End::Failed { reason, .. } | End::Refused { reason } => Err(format!("it {}", reason.message())),
        End::Rehearsed { blockers }
        | End::NotStarted { blockers }
        | End::Blocked { blockers }
        | End::TimedOut { blockers, .. }
        | End::Stopped { blockers, .. } => match blockers.first() {
            Some(blocker) => Err(format!("pod {} {}", blocker.pod, blocker.reason.message())),
            None => Err("the drain was stopped".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::Key;
    use crate::drain::proof::Proof;
    use crate::drain::run::{Blocker, Left};
    use crate::reasons::{AnswerReason, OwnerReason};
    use crate::testing::at;

    fn blocker(reason: Reason) -> Blocker {
        Blocker { pod: Key::new("shop", "a"), owner: None, reason, since: at(0) }
    }

    #[test]
    fn only_a_proof_or_what_was_left_out_on_purpose_lets_the_machine_go() {
        assert_eq!(judge(&End::Drained { proof: Proof::Yes }), Ok(()));
        let unseen =
            |by_choice| End::Drained { proof: Proof::Unknown { why: "it is silent".into(), by_choice } };
        assert_eq!(judge(&unseen(true)), Ok(()));
        assert!(judge(&unseen(false)).unwrap_err().contains("it is silent"));
        let stopped = End::Stopped { left: Left::Nothing, to_leave: Vec::new(), blockers: Vec::new() };
        assert!(judge(&stopped).is_err());
        let timed_out = End::TimedOut {
            after: Duration::ZERO,
            blockers: vec![blocker(Reason::Answer(AnswerReason::Throttled))],
        };
        assert!(judge(&timed_out).unwrap_err().starts_with("pod shop/a "));
        let owned =
            Reason::Owner(OwnerReason::OwnedByLease { lease: Key::new("a", "b"), holder: "somebody".into() });
        assert!(judge(&End::Refused { reason: owned }).unwrap_err().contains("somebody"));
    }

    #[test]
    fn a_node_that_falls_silent_under_way_is_noticed() {
        let waiting =
            |reason| Event::Waiting { node: "n".into(), blocker: blocker(reason), also: Vec::new() };
        assert!(lost_touch(&waiting(Reason::Stopping(StoppingReason::NodeSilent {
            node: "n".into(),
            since: None
        }))));
        assert!(!lost_touch(&waiting(Reason::Answer(AnswerReason::Throttled))));
        assert!(is_unreachable(Health::Unknown));
        assert!(!is_unreachable(Health::Ready));
        assert!(!is_unreachable(Health::NotReady), "its kubelet reports");
    }
}
