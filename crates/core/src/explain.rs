//! Why is it waiting? One sentence per blocker: the object, its owner, the rule, since when, and what to do.

use std::time::Duration;

use jiff::Timestamp;

use crate::action::Outcome;
use crate::budget::{Charges, Gate, cut_off, gate};
use crate::component::{self, SilentHook};
use crate::fact::{Health, Node, Pod, VmRole};
use crate::index::Index;
use crate::reason::{Reason, Severity};
use crate::run::{Blocker, PodRun, PodState, after};

/// A pod may be this late before we call it late: kubelets need a moment after the grace period.
const SLACK: Duration = Duration::from_secs(10);

/// What a pod that has to leave waits for, and when that may change by time alone.
pub(crate) fn waiting_for(
    index: &Index,
    node: Option<&Node>,
    pod: &Pod,
    known: &PodRun,
    charges: &Charges,
    now: Timestamp,
) -> (Option<Reason>, Option<Timestamp>) {
    if pod.deletion.is_some() {
        return leaving(node, pod, now);
    }
    match known.state {
        PodState::InFlight | PodState::Accepted | PodState::Gone => return (None, None),
        PodState::Failed => return (known.last.as_ref().and_then(|last| refusal(pod, last)), None),
        PodState::Idle => {}
    }
    let (closed, look_again) = match gate(index, pod, charges) {
        Gate::Closed(reason) => {
            let (reason, look_again) = cut_off(index, reason, now);
            (Some(reason), look_again)
        }
        Gate::Open | Gate::Charged(_) => (None, None),
    };
    let last = known.last.as_ref().and_then(|last| refusal(pod, last));
    // What we can see beats what we were told earlier, except for refusals that budgets do not explain.
    let reason = match (closed, last) {
        (Some(reason), _) => Some(reason),
        (None, last) => last,
    };
    let reason = reason.or_else(|| {
        (pod.vm == VmRole::Hotplug).then_some(Reason::VmHotplug).or_else(|| {
            index
                .namespace_is_terminating(&pod.key.namespace)
                .then(|| Reason::NamespaceTerminating { namespace: pod.key.namespace.clone() })
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
        let reason = Reason::NodeSilent { node: node.name.clone(), since: node.health_since };
        return (Some(reason), None);
    }
    let held_by: Vec<String> = pod.finalizers.iter().filter(|name| *name != JOB_TRACKING).cloned().collect();
    if !held_by.is_empty() {
        return (Some(Reason::Finalizer { finalizers: held_by }), None);
    }
    let late = after(deletion.ends, SLACK);
    if now >= late {
        let reason = if pod.finalizers.is_empty() {
            Reason::Overdue { ended: deletion.ends }
        } else {
            Reason::Finalizer { finalizers: pod.finalizers.clone() }
        };
        return (Some(reason), None);
    }
    let reason = Reason::Terminating { grace_seconds: deletion.grace_seconds, ends: deletion.ends };
    (Some(reason), Some(late))
}

/// Every pod of a Job has this one, and its controller removes it in the normal course of things.
const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// The reason behind an answer that was not a yes.
pub(crate) fn refusal(pod: &Pod, outcome: &Outcome) -> Option<Reason> {
    Some(match outcome.clone() {
        Outcome::Done | Outcome::Gone | Outcome::Replaced => return None,
        Outcome::Budget { message, .. } => Reason::BudgetDisagrees { message },
        Outcome::BudgetBroken { message } => Reason::BudgetRefused { message },
        Outcome::Webhook { webhook, message } => webhook_reason(pod, webhook, message),
        Outcome::Throttled { .. } => Reason::Throttled,
        Outcome::NamespaceTerminating => {
            Reason::NamespaceTerminating { namespace: pod.key.namespace.clone() }
        }
        Outcome::ManyBudgets { .. } => Reason::ManyBudgets { budgets: Vec::new() },
        Outcome::Forbidden { message } => Reason::Forbidden { message },
        Outcome::Unsupported => Reason::EvictionUnsupported,
        Outcome::Conflict { message } => Reason::ServerError { status: 409, message },
        Outcome::Invalid { status, message } | Outcome::Server { status, message }
            if component::is_strange(status, &message) =>
        {
            Reason::StrangeAnswer { status, message }
        }
        Outcome::Server { message, .. } if SilentHook::in_message(&message).is_some() => {
            Reason::WebhookSilent { hook: SilentHook::in_message(&message)? }
        }
        Outcome::Invalid { status, message } | Outcome::Server { status, message } => {
            Reason::ServerError { status, message }
        }
        Outcome::Unknown { message } => Reason::OutcomeUnknown { message },
        Outcome::Transport { message } => Reason::Unreachable { message },
    })
}

/// KubeVirt refuses the eviction of a machine it is about to move, and of one it cannot move. Only the words differ.
fn webhook_reason(pod: &Pod, webhook: String, message: String) -> Reason {
    if matches!(pod.vm, VmRole::Launcher(_)) {
        if message.contains("not live-migratable") || message.contains("cannot be live") {
            return Reason::VmNotMigratable { webhook, message };
        }
        if message.contains("vacuation") {
            return Reason::VmMoving { message };
        }
    }
    Reason::WebhookRefused { webhook, message }
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
    use crate::fact::Key;
    use crate::testing::at;

    #[test]
    fn a_sentence_names_object_owner_rule_age_and_what_to_do() {
        let blocker = Blocker {
            pod: Key::new("shop", "web-1"),
            owner: Some("ReplicaSet web".into()),
            reason: Reason::BudgetNever {
                budget: Key::new("shop", "web"),
                rule: "maxUnavailable is 0".into(),
            },
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
