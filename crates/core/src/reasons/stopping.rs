//! Why a pod that was asked to end is still there.

use jiff::Timestamp;

use super::Severity::{Progress, Slow};
use super::example_time;
use super::table::family;

family! {
    /// What a pod waits for that is being deleted.
    StoppingReason in Reason::Stopping {
        title: "What a pod waits for that is being deleted",
        told: "In blockers. `Terminating` is not told with `waiting`: it ends by itself at a known time.",
        subject: Pod,
    }

    /// It is within its grace period.
    Terminating {
        /// Its grace period.
        grace_seconds: i64 = 30,
        /// When the grace period is over.
        ends: Timestamp = example_time(30),
    } => {
        severity: Progress,
        sentence: ("is stopping, with a grace period of {grace_seconds} s"),
    }

    /// Its grace period is over.
    Overdue {
        /// When it was over.
        ended: Timestamp = example_time(30),
    } => {
        severity: Slow,
        sentence: ("should have stopped at {ended} and has not"),
        brief: ("should have stopped"),
        remedy: ("look at the kubelet and the container runtime of the node"),
    }

    /// It is deleted when its finalizers are removed.
    Finalizer {
        /// Those that are left.
        finalizers: Vec<String> = vec!["example.com/backup".into()],
    } => {
        severity: Slow,
        sentence: ("is held by finalizer {}", finalizers.join(", ")),
        brief: ("held by {}", finalizers.join(", ")),
        remedy: ("find the controller that owns the finalizer"),
    }

    /// The kubelet that would end it does not report.
    NodeSilent {
        /// The node of the pod.
        node: String = "worker-1".into(),
        /// The last report, if there was one.
        since: Option<Timestamp> = Some(example_time(0)),
    } => {
        severity: Slow,
        sentence: ("cannot be confirmed stopped because node {node} {}", silence(*since)),
        brief: ("its node does not report"),
        remedy: (
            "bring the node back, or make sure it is powered off before removing its pods; \
             --skip-wait-for-delete-timeout ignores them"
        ),
    }
}

fn silence(since: Option<Timestamp>) -> String {
    since.map_or("does not report".into(), |since| format!("has not reported since {since}"))
}
