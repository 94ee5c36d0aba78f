//! Why is it waiting? One sentence per blocker: the object, its owner, the rule, since when, and what to do.

use std::time::Duration;

use jiff::Timestamp;

use crate::action::Outcome;
use crate::cluster::fact::{Health, Node, Pod, VmRole};
use crate::drain::budget::{Charges, Gate, cut_off, gate};
use crate::drain::look::Look;
use crate::drain::pod::{PodRun, PodState};
use crate::drain::run::{Blocker, after};
use crate::reasons::component::{self, SilentHook};
use crate::reasons::{AnswerReason, BudgetReason, GuestReason, Reason, Severity, StoppingReason};

/// A pod may be this late before we call it late: kubelets need a moment after the grace period.
const SLACK: Duration = Duration::from_secs(10);

/// What a pod that has to leave waits for, and when that may change by time alone.
pub(crate) fn waiting_for(
    look: Look<'_>,
    pod: &Pod,
    known: &PodRun,
    charges: &Charges,
) -> (Option<Reason>, Option<Timestamp>) {
    let Look { index, now, .. } = look;
    let node = pod.node.as_deref().and_then(|node| index.node(node));
    if pod.deletion.is_some() {
        return leaving(node, pod, now);
    }
    match known.state {
        PodState::InFlight | PodState::Accepted | PodState::Gone => return (None, None),
        PodState::Failed { .. } => return (known.last().and_then(|last| refusal(pod, last)), None),
        PodState::Idle(_) => {}
    }
    let (closed, look_again) = match gate(index, pod, charges) {
        Gate::Closed(reason) => {
            let (reason, look_again) = cut_off(index, reason, now);
            (Some(reason), look_again)
        }
        Gate::Open | Gate::Charged(_) => (None, None),
    };
    let last = known.last().and_then(|last| refusal(pod, last));
    // What we can see beats what we were told earlier, except for refusals that budgets do not explain.
    let reason = match (closed, last) {
        (Some(reason), _) => Some(reason),
        (None, last) => last,
    };
    let reason = reason.or_else(|| {
        (pod.vm == VmRole::Hotplug).then_some(Reason::Guest(GuestReason::VmHotplug)).or_else(|| {
            index.namespace_is_terminating(&pod.key.namespace).then(|| {
                Reason::Answer(AnswerReason::NamespaceTerminating {
                    namespace: pod.key.namespace.to_string(),
                })
            })
        })
    });
    (reason, look_again)
}

/// What a pod waits for that has been asked to end.
pub(crate) fn leaving(node: Option<&Node>, pod: &Pod, now: Timestamp) -> (Option<Reason>, Option<Timestamp>) {
    let Some(deletion) = pod.deletion else { return (None, None) };
    if let Some(node) = node
        && matches!(node.health, Health::NotReady | Health::Unknown)
    {
        let reason = Reason::Stopping(StoppingReason::NodeSilent {
            node: node.name.clone(),
            since: node.health_since,
        });
        return (Some(reason), None);
    }
    let held_by: Vec<String> =
        pod.finalizers.iter().filter(|name| *name != JOB_TRACKING).map(String::from).collect();
    if !held_by.is_empty() {
        return (Some(Reason::Stopping(StoppingReason::Finalizer { finalizers: held_by })), None);
    }
    let late = after(deletion.ends, SLACK);
    if now >= late {
        let reason = if pod.finalizers.is_empty() {
            Reason::Stopping(StoppingReason::Overdue { ended: deletion.ends })
        } else {
            Reason::Stopping(StoppingReason::Finalizer {
                finalizers: pod.finalizers.iter().map(String::from).collect(),
            })
        };
        return (Some(reason), None);
    }
    let reason = Reason::Stopping(StoppingReason::Terminating {
        grace_seconds: deletion.grace_seconds,
        ends: deletion.ends,
    });
    (Some(reason), Some(late))
}

/// Every pod of a Job has this one, and its controller removes it in the normal course of things.
const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// The reason behind an answer that was not a yes.
pub(crate) fn refusal(pod: &Pod, outcome: &Outcome) -> Option<Reason> {
    Some(match outcome.clone() {
        Outcome::Done | Outcome::Gone | Outcome::Replaced => return None,
        Outcome::Budget { message, .. } => BudgetReason::BudgetDisagrees { message }.into(),
        Outcome::BudgetBroken { message } => BudgetReason::BudgetRefused { message }.into(),
        Outcome::Webhook { webhook, message } => webhook_reason(pod, webhook, message),
        Outcome::Throttled { .. } => AnswerReason::Throttled.into(),
        Outcome::NamespaceTerminating => {
            AnswerReason::NamespaceTerminating { namespace: pod.key.namespace.to_string() }.into()
        }
        Outcome::ManyBudgets { .. } => BudgetReason::ManyBudgets { budgets: Vec::new() }.into(),
        Outcome::Forbidden { message } => AnswerReason::Forbidden { message }.into(),
        Outcome::Unsupported => AnswerReason::EvictionUnsupported.into(),
        Outcome::Conflict { message } => AnswerReason::ServerError { status: 409, message }.into(),
        Outcome::Invalid { status, message } | Outcome::Server { status, message }
            if component::is_strange(status, &message) =>
        {
            AnswerReason::StrangeAnswer { status, message }.into()
        }
        Outcome::Server { message, .. } if SilentHook::in_message(&message).is_some() => {
            AnswerReason::WebhookSilent { hook: SilentHook::in_message(&message)? }.into()
        }
        Outcome::Invalid { status, message } | Outcome::Server { status, message } => {
            AnswerReason::ServerError { status, message }.into()
        }
        Outcome::Unknown { message } => AnswerReason::OutcomeUnknown { message }.into(),
        Outcome::Transport { message } => AnswerReason::Unreachable { message }.into(),
    })
}

/// KubeVirt refuses the eviction of a machine it is about to move, and of one it cannot move. Only the words differ.
fn webhook_reason(pod: &Pod, webhook: String, message: String) -> Reason {
    if matches!(pod.vm, VmRole::Launcher(_)) {
        if message.contains("not live-migratable") || message.contains("cannot be live") {
            return AnswerReason::VmNotMigratable { webhook, message }.into();
        }
        if message.contains("vacuation") {
            return AnswerReason::VmMoving { message }.into();
        }
    }
    AnswerReason::WebhookRefused { webhook, message }.into()
}

/// The whole sentence.
pub fn explain(blocker: &Blocker, now: Timestamp) -> String {
    let owner = blocker.owner.as_ref().map_or(String::new(), |owner| format!(" ({owner})"));
    let age = match now.duration_since(blocker.since).as_secs() {
        ..=0 => String::new(),
        seconds => format!(", for {}", span(seconds)),
    };
    let outlook = match blocker.reason.severity() {
        Severity::Never => "; waiting will not help",
        Severity::Slow => "; this may clear by itself",
        Severity::Note | Severity::Warning | Severity::Progress => "",
    };
    let fix = blocker.reason.fix().map_or(String::new(), |fix| format!(". To do: {fix}"));
    format!("pod {}{owner} {}{age}{outlook}{fix}", blocker.pod, blocker.reason.message())
}

/// `3s`, `2m10s`, `1h05m`, as kubectl writes durations in short.
pub fn span(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::Key;
    use crate::testing::at;

    #[test]
    fn a_sentence_names_object_owner_rule_age_and_what_to_do() {
        let blocker = Blocker {
            pod: Key::new("shop", "web-1"),
            owner: Some("ReplicaSet web".into()),
            reason: Reason::Budget(BudgetReason::BudgetNever {
                budget: Key::new("shop", "web"),
                rule: "maxUnavailable is 0".into(),
            }),
            since: at(0),
        };
        assert_eq!(
            explain(&blocker, at(34)),
            "pod shop/web-1 (ReplicaSet web) is protected by PodDisruptionBudget shop/web, which never allows a \
             disruption (maxUnavailable is 0), for 34s; waiting will not help. To do: add a replica or relax the budget: \
             kubectl edit pdb web -n shop"
        );
    }

    #[test]
    fn times_are_short() {
        let all: Vec<String> = [5, 130, 3900, 90_000].into_iter().map(span).collect();
        assert_eq!(all, ["5s", "2m10s", "1h05m", "1d01h"]);
    }
}
