//! What the options of a drain say about a pod: those that `kubectl drain` has, too.

use super::Severity::{Never, Note, Warning};
use super::table::family;

family! {
    /// Why a pod is left alone, refused, or lost by the options of a drain.
    FilterReason in Reason::Filter {
        title: "What the options of a drain say about a pod",
        told: "In `assessment.verdicts[].reasons[]` of the event `planned`, in forecasts, and as blockers of \
               a drain that does not begin.",
        subject: Pod,
    }

    /// A pod of a DaemonSet, without `--ignore-daemonsets`.
    DaemonSetPod => {
        severity: Never,
        sentence: ("belongs to a DaemonSet, which would start it here again"),
        remedy: ("use --ignore-daemonsets to leave such pods"),
        kubectl: ("DaemonSet-managed Pods (use --ignore-daemonsets to ignore)"),
    }

    /// A pod of a DaemonSet, which stays (`--ignore-daemonsets`).
    DaemonSetIgnored => {
        severity: Note,
        sentence: ("belongs to a DaemonSet"),
        kubectl: ("ignoring DaemonSet-managed Pods"),
    }

    /// The DaemonSet of the pod does not exist any more.
    DaemonSetGone {
        /// The answer of the server.
        message: String = "daemonsets.apps \"log-agent\" not found".into(),
    } => {
        severity: Never,
        sentence: ("belongs to a DaemonSet that is gone ({message}), so nothing would replace it"),
        remedy: ("use --force to let it go for good"),
        kubectl: ("{message}"),
    }

    /// The DaemonSet of the pod does not exist any more, and the pod is let go (`--force`).
    DaemonSetGoneForced {
        /// The answer of the server.
        message: String = "daemonsets.apps \"log-agent\" not found".into(),
    } => {
        severity: Warning,
        sentence: ("belongs to a DaemonSet that is gone ({message}), so nothing replaces it"),
        kubectl: ("{message}"),
    }

    /// The DaemonSet of the pod could not be looked up.
    DaemonSetUnreadable {
        /// The answer of the server.
        message: String = "daemonsets.apps \"log-agent\" is forbidden".into(),
    } => {
        severity: Never,
        sentence: ("belongs to a DaemonSet that could not be read: {message}"),
        remedy: ("check that you may read DaemonSets, then run again"),
        kubectl: ("{message}"),
    }

    /// A static pod, which only its kubelet can end; it stays.
    MirrorPod => {
        severity: Note,
        sentence: ("is a static pod of the kubelet"),
    }

    /// A pod with an emptyDir volume, without `--delete-emptydir-data`.
    LocalStorage => {
        severity: Never,
        sentence: ("keeps data in an emptyDir volume, which would be lost"),
        remedy: ("use --delete-emptydir-data if that data may be lost"),
        kubectl: ("Pods with local storage (use --delete-emptydir-data to override)"),
    }

    /// A pod with an emptyDir volume, which leaves (`--delete-emptydir-data`).
    LocalStorageLost => {
        severity: Warning,
        sentence: ("loses the data in its emptyDir volume"),
        kubectl: ("deleting Pods with local storage"),
    }

    /// A pod without a controller, without `--force`.
    NoController => {
        severity: Never,
        sentence: ("has no controller, so nothing would start it elsewhere"),
        remedy: ("use --force to let it go for good"),
        kubectl: ("Pods that declare no controller (use --force to override)"),
    }

    /// A pod without a controller, which leaves (`--force`).
    NoControllerLost => {
        severity: Warning,
        sentence: ("has no controller and does not come back"),
        kubectl: ("deleting Pods that declare no controller"),
    }

    /// The pod has ended by itself; nothing has to leave.
    Finished => {
        severity: Note,
        sentence: ("has finished"),
    }

    /// The pod is not matched by `--pod-selector`; it stays.
    NotSelected => {
        severity: Note,
        sentence: ("is not chosen by the pod selector"),
    }

    /// The pod has been overdue for so long that it is not waited for (`--skip-wait-for-delete-timeout`).
    SkippedDeleting {
        /// How long it has been overdue.
        seconds: i64 = 120,
    } => {
        severity: Note,
        sentence: ("has been overdue for {seconds} s and is not waited for"),
    }
}
