//! Why something happens to a pod or a node, or does not.
//!
//! A closed list: every decision names one of these, each has a stable code for machines, and all words shown to
//! people are made here.

use jiff::Timestamp;
use serde::Serialize;

use crate::component::{self, SilentHook};
use crate::fact::Key;
use crate::ownership::{MAINTENANCE, is_role};
use crate::vm_reason::VmReason;

/// How a reason bears on the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth saying; nothing is in the way.
    Note,
    /// Data or a workload is lost by what was allowed.
    Warning,
    /// Ordinary waiting with an end in sight.
    Progress,
    /// Something is in the way that may clear by itself.
    Slow,
    /// Waiting alone will not help: somebody has to change something.
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "code", rename_all_fields = "camelCase")]
pub enum Reason {
    // What the filters say about a pod.
    DaemonSetPod,
    DaemonSetIgnored,
    DaemonSetGone {
        message: String,
    },
    DaemonSetGoneForced {
        message: String,
    },
    DaemonSetUnreadable {
        message: String,
    },
    MirrorPod,
    LocalStorage,
    LocalStorageLost,
    NoController,
    NoControllerLost,
    Finished,
    NotSelected,
    SkippedDeleting {
        seconds: i64,
    },
    VmLauncher {
        instance: Option<String>,
    },
    VmHotplug,
    /// Deleting the pod would shut its virtual machine down past its eviction strategy.
    VmUnprotected,

    // What a pod waits for.
    Terminating {
        grace_seconds: i64,
        ends: Timestamp,
    },
    Overdue {
        ended: Timestamp,
    },
    Finalizer {
        finalizers: Vec<String>,
    },
    NodeSilent {
        node: String,
        since: Option<Timestamp>,
    },
    BudgetExhausted {
        budget: Key,
        needs: i32,
        has: i32,
    },
    /// All that the budget allows is given out to evictions that are still being accounted for.
    BudgetGivenOut {
        budget: Key,
    },
    /// An eviction was granted and cut off before the pod was deleted; the budget counts that pod as gone.
    BudgetCutOff {
        budget: Key,
        pods: Vec<String>,
        since: Timestamp,
        until: Timestamp,
    },
    BudgetNever {
        budget: Key,
        rule: String,
    },
    BudgetBehind {
        budget: Key,
    },
    BudgetSyncFailed {
        budget: Key,
        message: String,
    },
    ManyBudgets {
        budgets: Vec<Key>,
    },
    BudgetRefused {
        message: String,
    },
    /// The server said no though what we see said yes: one of the two is behind.
    BudgetDisagrees {
        message: String,
    },
    WebhookRefused {
        webhook: String,
        message: String,
    },
    VmNotMigratable {
        webhook: String,
        message: String,
    },
    VmMoving {
        message: String,
    },
    NamespaceTerminating {
        namespace: String,
    },
    Throttled,
    ServerError {
        status: u16,
        message: String,
    },
    Unreachable {
        message: String,
    },
    OutcomeUnknown {
        message: String,
    },
    /// The API server could not ask an admission webhook, and refuses for that.
    WebhookSilent {
        #[serde(flatten)]
        hook: SilentHook,
    },
    /// An answer that no API server gives to such a request.
    StrangeAnswer {
        status: u16,
        message: String,
    },
    LaterWave,

    // What ends the work on a pod or node.
    Forbidden {
        message: String,
    },
    EvictionUnsupported,
    CordonRefused {
        message: String,
    },
    /// The answer to the cordon was lost, and the node could not be read afterwards.
    CordonUnknown {
        message: String,
        why: String,
    },
    NodeMissing,
    OwnedByEvac {
        owner: String,
        since: Timestamp,
        /// The run that holds the node and its last sign of life, if it gives any.
        instance: Option<String>,
        seen: Option<Timestamp>,
    },
    OwnedByLease {
        lease: Key,
        holder: String,
    },
    MarkUnreadable {
        text: String,
    },
    ForeignCordon,
    UncordonedMeanwhile,
    TakenOver {
        owner: String,
    },
    CancelledElsewhere,
    /// The drainer that left its mark gives no signs of life any more.
    Abandoned {
        owner: String,
        instance: String,
        seen: Timestamp,
    },
    /// The drainer that left its mark was asked whether it is still at work, and is silent so far.
    Unanswered {
        owner: String,
        instance: String,
        until: Timestamp,
    },
    /// Another run of the same owner was at it.
    Continued {
        instance: String,
        seen: Timestamp,
    },
    /// Another run of the same owner took over from this one.
    ContinuedElsewhere {
        instance: String,
    },
    LeaseUnavailable {
        message: String,
    },
    #[serde(untagged)]
    Vm(VmReason),
}

impl From<VmReason> for Reason {
    fn from(reason: VmReason) -> Self {
        Self::Vm(reason)
    }
}

impl Reason {
    /// The stable name of this reason.
    pub fn code(&self) -> &'static str {
        match self {
            Self::DaemonSetPod => "DaemonSetPod",
            Self::DaemonSetIgnored => "DaemonSetIgnored",
            Self::DaemonSetGone { .. } => "DaemonSetGone",
            Self::DaemonSetGoneForced { .. } => "DaemonSetGoneForced",
            Self::DaemonSetUnreadable { .. } => "DaemonSetUnreadable",
            Self::MirrorPod => "MirrorPod",
            Self::LocalStorage => "LocalStorage",
            Self::LocalStorageLost => "LocalStorageLost",
            Self::NoController => "NoController",
            Self::NoControllerLost => "NoControllerLost",
            Self::Finished => "Finished",
            Self::NotSelected => "NotSelected",
            Self::SkippedDeleting { .. } => "SkippedDeleting",
            Self::VmLauncher { .. } => "VmLauncher",
            Self::VmHotplug => "VmHotplug",
            Self::VmUnprotected => "VmUnprotected",
            Self::Terminating { .. } => "Terminating",
            Self::Overdue { .. } => "Overdue",
            Self::Finalizer { .. } => "Finalizer",
            Self::NodeSilent { .. } => "NodeSilent",
            Self::BudgetExhausted { .. } => "BudgetExhausted",
            Self::BudgetGivenOut { .. } => "BudgetGivenOut",
            Self::BudgetCutOff { .. } => "BudgetCutOff",
            Self::BudgetNever { .. } => "BudgetNever",
            Self::BudgetBehind { .. } => "BudgetBehind",
            Self::BudgetSyncFailed { .. } => "BudgetSyncFailed",
            Self::ManyBudgets { .. } => "ManyBudgets",
            Self::BudgetRefused { .. } => "BudgetRefused",
            Self::BudgetDisagrees { .. } => "BudgetDisagrees",
            Self::WebhookRefused { .. } => "WebhookRefused",
            Self::VmNotMigratable { .. } => "VmNotMigratable",
            Self::VmMoving { .. } => "VmMoving",
            Self::NamespaceTerminating { .. } => "NamespaceTerminating",
            Self::Throttled => "Throttled",
            Self::ServerError { .. } => "ServerError",
            Self::Unreachable { .. } => "Unreachable",
            Self::OutcomeUnknown { .. } => "OutcomeUnknown",
            Self::WebhookSilent { .. } => "WebhookSilent",
            Self::StrangeAnswer { .. } => "StrangeAnswer",
            Self::LaterWave => "LaterWave",
            Self::Forbidden { .. } => "Forbidden",
            Self::EvictionUnsupported => "EvictionUnsupported",
            Self::CordonRefused { .. } => "CordonRefused",
            Self::CordonUnknown { .. } => "CordonUnknown",
            Self::NodeMissing => "NodeMissing",
            Self::OwnedByEvac { .. } => "OwnedByEvac",
            Self::OwnedByLease { .. } => "OwnedByLease",
            Self::MarkUnreadable { .. } => "MarkUnreadable",
            Self::ForeignCordon => "ForeignCordon",
            Self::UncordonedMeanwhile => "UncordonedMeanwhile",
            Self::TakenOver { .. } => "TakenOver",
            Self::CancelledElsewhere => "CancelledElsewhere",
            Self::Abandoned { .. } => "Abandoned",
            Self::Unanswered { .. } => "Unanswered",
            Self::Continued { .. } => "Continued",
            Self::ContinuedElsewhere { .. } => "ContinuedElsewhere",
            Self::LeaseUnavailable { .. } => "LeaseUnavailable",
            Self::Vm(reason) => reason.code(),
        }
    }

    pub fn severity(&self) -> Severity {
        match self {
            Self::DaemonSetIgnored
            | Self::MirrorPod
            | Self::Finished
            | Self::NotSelected
            | Self::SkippedDeleting { .. }
            | Self::VmLauncher { .. }
            | Self::VmHotplug
            | Self::ForeignCordon
            | Self::Abandoned { .. }
            | Self::Unanswered { .. }
            | Self::Continued { .. }
            | Self::LeaseUnavailable { .. }
            | Self::TakenOver { .. } => Severity::Note,
            Self::LocalStorageLost | Self::NoControllerLost | Self::DaemonSetGoneForced { .. } => {
                Severity::Warning
            }
            Self::Terminating { .. } | Self::LaterWave | Self::VmMoving { .. } => Severity::Progress,
            Self::Overdue { .. }
            | Self::Finalizer { .. }
            | Self::NodeSilent { .. }
            | Self::BudgetExhausted { .. }
            | Self::BudgetBehind { .. }
            | Self::BudgetGivenOut { .. }
            | Self::BudgetCutOff { .. }
            | Self::BudgetDisagrees { .. }
            | Self::WebhookRefused { .. }
            | Self::NamespaceTerminating { .. }
            | Self::Throttled
            | Self::ServerError { .. }
            | Self::Unreachable { .. }
            | Self::WebhookSilent { .. }
            | Self::OutcomeUnknown { .. } => Severity::Slow,
            // A proxy whose server is away for a moment says so with a web page, too.
            Self::StrangeAnswer { status, .. } if *status >= 500 => Severity::Slow,
            Self::StrangeAnswer { .. }
            | Self::DaemonSetPod
            | Self::DaemonSetGone { .. }
            | Self::DaemonSetUnreadable { .. }
            | Self::LocalStorage
            | Self::NoController
            | Self::VmUnprotected
            | Self::BudgetNever { .. }
            | Self::BudgetSyncFailed { .. }
            | Self::ManyBudgets { .. }
            | Self::BudgetRefused { .. }
            | Self::VmNotMigratable { .. }
            | Self::Forbidden { .. }
            | Self::EvictionUnsupported
            | Self::CordonRefused { .. }
            | Self::CordonUnknown { .. }
            | Self::NodeMissing
            | Self::OwnedByEvac { .. }
            | Self::OwnedByLease { .. }
            | Self::MarkUnreadable { .. }
            | Self::UncordonedMeanwhile
            | Self::ContinuedElsewhere { .. }
            | Self::CancelledElsewhere => Severity::Never,
            Self::Vm(reason) => reason.severity(),
        }
    }

    /// The words of `kubectl drain` for the reasons it knows, by which it groups pods; scripts look for them.
    pub fn kubectl_words(&self) -> Option<String> {
        Some(match self {
            Self::DaemonSetPod => "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)".into(),
            Self::DaemonSetIgnored => "ignoring DaemonSet-managed Pods".into(),
            Self::LocalStorage => "Pods with local storage (use --delete-emptydir-data to override)".into(),
            Self::LocalStorageLost => "deleting Pods with local storage".into(),
            Self::NoController => "Pods that declare no controller (use --force to override)".into(),
            Self::NoControllerLost => "deleting Pods that declare no controller".into(),
            Self::VmUnprotected => "Pods that run virtual machines (without --disable-eviction they leave by their eviction strategy)".into(),
            Self::DaemonSetGone { message }
            | Self::DaemonSetGoneForced { message }
            | Self::DaemonSetUnreadable { message } => message.clone(),
            Self::Vm(reason) => return reason.kubectl_words(),
            _ => return None,
        })
    }

    /// What is the case, as the rest of a sentence that began with the object.
    pub fn message(&self) -> String {
        match self {
            Self::DaemonSetPod => "belongs to a DaemonSet, which would start it here again".into(),
            Self::DaemonSetIgnored => "belongs to a DaemonSet".into(),
            Self::DaemonSetGone { message } => {
                format!("belongs to a DaemonSet that is gone ({message}), so nothing would replace it")
            }
            Self::DaemonSetGoneForced { message } => {
                format!("belongs to a DaemonSet that is gone ({message}), so nothing replaces it")
            }
            Self::DaemonSetUnreadable { message } => {
                format!("belongs to a DaemonSet that could not be read: {message}")
            }
            Self::MirrorPod => "is a static pod of the kubelet".into(),
            Self::LocalStorage => "keeps data in an emptyDir volume, which would be lost".into(),
            Self::LocalStorageLost => "loses the data in its emptyDir volume".into(),
            Self::NoController => "has no controller, so nothing would start it elsewhere".into(),
            Self::NoControllerLost => "has no controller and does not come back".into(),
            Self::Finished => "has finished".into(),
            Self::NotSelected => "is not chosen by the pod selector".into(),
            Self::SkippedDeleting { seconds } => {
                format!("has been overdue for {seconds} s and is not waited for")
            }
            Self::VmLauncher { instance: Some(name) } => {
                format!("runs virtual machine {name}; its eviction strategy decides how it leaves")
            }
            Self::VmLauncher { instance: None } => {
                "runs a virtual machine; its eviction strategy decides how it leaves".into()
            }
            Self::VmHotplug => {
                "holds a hotplugged volume and leaves together with its virtual machine".into()
            }
            Self::VmUnprotected => "runs a virtual machine, which a plain deletion would shut down".into(),
            Self::Terminating { grace_seconds, .. } => {
                format!("is stopping, with a grace period of {grace_seconds} s")
            }
            Self::Overdue { ended } => format!("should have stopped at {ended} and has not"),
            Self::Finalizer { finalizers } => format!("is held by finalizer {}", finalizers.join(", ")),
            Self::NodeSilent { node, since: Some(since) } => {
                format!("cannot be confirmed stopped because node {node} has not reported since {since}")
            }
            Self::NodeSilent { node, since: None } => {
                format!("cannot be confirmed stopped because node {node} does not report")
            }
            Self::BudgetExhausted { budget, needs, has } => {
                format!(
                    "waits for PodDisruptionBudget {budget}, which needs {needs} healthy pods and has {has}"
                )
            }
            Self::BudgetGivenOut { budget } => {
                format!(
                    "waits for its turn: PodDisruptionBudget {budget} has given out all it allows for now"
                )
            }
            Self::BudgetCutOff { budget, pods, since, until } => format!(
                "waits for PodDisruptionBudget {budget}, which counts {} as evicted since {since}; that eviction was cut off \
                 before the deletion, and the disruption controller gives up on it at {until}",
                pods.join(", ")
            ),
            Self::BudgetNever { budget, rule } => format!(
                "is protected by PodDisruptionBudget {budget}, which never allows a disruption ({rule})"
            ),
            Self::BudgetBehind { budget } => {
                format!("waits until the disruption controller has processed PodDisruptionBudget {budget}")
            }
            Self::BudgetSyncFailed { budget, message } => {
                format!("is protected by PodDisruptionBudget {budget}, which cannot be computed: {message}")
            }
            Self::ManyBudgets { budgets } => {
                let names: Vec<String> = budgets.iter().map(ToString::to_string).collect();
                if names.is_empty() {
                    "is covered by more than one PodDisruptionBudget, which the eviction API does not support"
                        .into()
                } else {
                    format!(
                        "is covered by {} PodDisruptionBudgets ({}), which the eviction API does not support",
                        names.len(),
                        names.join(", ")
                    )
                }
            }
            Self::BudgetDisagrees { message } => format!("waits for its disruption budget: {message}"),
            Self::BudgetRefused { message } => format!("is refused by its disruption budget: {message}"),
            Self::WebhookRefused { webhook, message } => {
                format!("is refused by admission webhook {webhook}: {message}")
            }
            Self::VmNotMigratable { webhook, message } => format!(
                "runs a virtual machine that must be live-migrated and cannot be ({webhook}: {message})"
            ),
            Self::VmMoving { message } => format!("runs a virtual machine that is being moved: {message}"),
            Self::NamespaceTerminating { namespace } => {
                format!("waits for the deletion of namespace {namespace}, which does not allow evictions")
            }
            Self::Throttled => "waits because the API server asks for fewer requests".into(),
            Self::ServerError { status, message } => {
                format!("could not be evicted, the server answered {status}: {message}")
            }
            Self::Unreachable { message } => {
                format!("could not be evicted, the server was not reached: {message}")
            }
            Self::OutcomeUnknown { message } => {
                format!("may have been evicted, the answer was lost: {message}")
            }
            Self::WebhookSilent { hook: SilentHook { webhook, component, why } } => format!(
                "could not be evicted, {component} does not answer admission webhook {webhook} ({why}), and until it does the API server refuses"
            ),
            Self::StrangeAnswer { status, message } => {
                let words = component::strange_words(component::SERVER, *status, message);
                format!("could not be asked to leave, {words}")
            }
            Self::LaterWave => "leaves after the pods that may need it".into(),
            Self::Forbidden { message } => format!("may not be evicted by you: {message}"),
            Self::EvictionUnsupported => "cannot be evicted because this server has no eviction API".into(),
            Self::CordonRefused { message } => format!("could not be cordoned: {message}"),
            Self::CordonUnknown { message, why } => {
                format!("may have been cordoned or not: {message}; and it could not be read again: {why}")
            }
            Self::NodeMissing => "does not exist".into(),
            Self::OwnedByEvac { owner, since, instance: Some(run), seen: Some(seen) } => {
                format!("is being drained by {owner} ({run}) since {since}, last sign of life at {seen}")
            }
            Self::OwnedByEvac { owner, since, .. } => {
                format!("was taken out of service by {owner} at {since}")
            }
            Self::OwnedByLease { lease, holder } => format!("is held by {holder} (lease {lease})"),
            Self::MarkUnreadable { text } => {
                format!("carries a drain annotation that cannot be read: {text}")
            }
            Self::ForeignCordon => {
                "was cordoned before by somebody else and will stay cordoned after a cancel".into()
            }
            Self::UncordonedMeanwhile => "was uncordoned by somebody else during the drain".into(),
            Self::TakenOver { owner } => format!("is taken over from {owner}"),
            Self::CancelledElsewhere => {
                "is no longer ours: the drain was cancelled or taken over elsewhere".into()
            }
            Self::Abandoned { owner, instance, seen } => format!(
                "is taken over from {owner} ({instance}), whose drain gave its last sign of life at {seen}"
            ),
            Self::Unanswered { owner, instance, until } => {
                format!(
                    "is being drained by {owner} ({instance}), who does not answer; waiting until {until}"
                )
            }
            Self::Continued { instance, seen } => {
                format!(
                    "goes on where your run {instance} left off at {seen}; if that still runs, it will end"
                )
            }
            Self::ContinuedElsewhere { instance } => format!("is drained on by your run {instance}"),
            Self::LeaseUnavailable { message } => format!(
                "is drained without a lease, so others cannot see whether this drain is alive: {message}"
            ),
            Self::Vm(reason) => reason.message(),
        }
    }

    /// A few words for where there is no room for a sentence.
    pub fn brief(&self) -> String {
        match self {
            Self::Finalizer { finalizers } => format!("held by {}", finalizers.join(", ")),
            Self::NodeSilent { .. } => "its node does not report".into(),
            Self::Overdue { .. } => "should have stopped".into(),
            Self::BudgetExhausted { budget, needs, has } => {
                format!("budget {} has {has} of {needs} healthy", budget.name)
            }
            Self::BudgetGivenOut { budget } => format!("its turn at budget {}", budget.name),
            Self::BudgetCutOff { budget, until, .. } => {
                format!("a cut-off eviction at budget {}, until {until}", budget.name)
            }
            Self::BudgetBehind { budget } => format!("budget {} is being computed", budget.name),
            Self::BudgetNever { budget, .. } => format!("budget {} never allows it", budget.name),
            Self::BudgetSyncFailed { budget, .. } => format!("budget {} cannot be computed", budget.name),
            Self::BudgetDisagrees { .. } | Self::BudgetRefused { .. } => "refused by its budget".into(),
            Self::ManyBudgets { .. } => "more than one budget".into(),
            Self::WebhookRefused { webhook, .. } => format!("refused by {webhook}"),
            Self::VmNotMigratable { .. } => "its machine cannot be migrated".into(),
            Self::NamespaceTerminating { namespace } => format!("namespace {namespace} is being deleted"),
            Self::Throttled => "the server asks for fewer requests".into(),
            Self::ServerError { status, .. } => format!("the server answered {status}"),
            Self::Unreachable { .. } => "the server was not reached".into(),
            Self::OutcomeUnknown { .. } => "the answer was lost".into(),
            Self::WebhookSilent { hook } => format!("{} does not answer", hook.component),
            Self::StrangeAnswer { status, .. } => format!("the server answered {status}, not in JSON"),
            Self::Forbidden { .. } => "you may not evict it".into(),
            Self::Vm(reason) => reason.brief(),
            other => other.message(),
        }
    }

    /// What the reader can do about it.
    pub fn fix(&self) -> Option<String> {
        Some(match self {
            Self::DaemonSetPod => "use --ignore-daemonsets to leave such pods".into(),
            Self::DaemonSetGone { .. } | Self::NoController => "use --force to let it go for good".into(),
            Self::DaemonSetUnreadable { .. } => "check that you may read DaemonSets, then run again".into(),
            Self::LocalStorage => "use --delete-emptydir-data if that data may be lost".into(),
            Self::Overdue { .. } => "look at the kubelet and the container runtime of the node".into(),
            Self::Finalizer { .. } => "find the controller that owns the finalizer".into(),
            Self::NodeSilent { .. } => {
                "bring the node back, or make sure it is powered off before removing its pods; --skip-wait-for-delete-timeout ignores them".into()
            }
            Self::BudgetExhausted { .. } | Self::BudgetDisagrees { .. } => "nothing, if the workload is recovering; otherwise look at its unready pods".into(),
            Self::BudgetNever { budget, .. } => {
                format!("add a replica or relax the budget: kubectl edit pdb {} -n {}", budget.name, budget.namespace)
            }
            Self::BudgetCutOff { until, .. } => format!("nothing, it goes on by itself at {until}"),
            Self::BudgetSyncFailed { .. } => "give the budget an integer minAvailable, the only form that works for such pods".into(),
            Self::VmUnprotected => "leave out --disable-eviction".into(),
            Self::ManyBudgets { .. } => "let only one budget select the pod".into(),
            Self::BudgetRefused { .. } => "look at the status of the budget".into(),
            Self::WebhookRefused { webhook, .. } => format!("ask the owner of {webhook}"),
            Self::VmNotMigratable { .. } => "shut the machine down, or change what prevents its migration".into(),
            Self::NamespaceTerminating { .. } => "nothing, the namespace's deletion removes the pod".into(),
            Self::ServerError { .. } | Self::Unreachable { .. } => "check the API server and its webhooks".into(),
            Self::WebhookSilent { hook } => hook.fix(),
            Self::StrangeAnswer { .. } => component::strange_fix(component::SERVER),
            Self::Forbidden { .. } => "ask for the right to create pods/eviction".into(),
            Self::EvictionUnsupported => "use --disable-eviction to delete pods without asking budgets".into(),
            Self::CordonRefused { .. } => "ask for the right to patch nodes".into(),
            Self::OwnedByEvac { owner, .. } if is_role(owner, MAINTENANCE) => {
                "end that maintenance first: `evac maintenance end` with the name of the node; if there is no such maintenance any more, `evac cancel --force`".into()
            }
            Self::CordonUnknown { .. } => {
                "when the API server answers again, `evac status` shows whether it is cordoned, and `evac cancel` takes that back".into()
            }
            Self::OwnedByEvac { .. } => "wait for them, `evac cancel` the node, or use --take-over".into(),
            Self::OwnedByLease { .. } => "end that maintenance first, or use --take-over".into(),
            Self::MarkUnreadable { .. } => "use --take-over to replace it".into(),
            Self::UncordonedMeanwhile | Self::CancelledElsewhere => "agree on who drains the node, then run again".into(),
            Self::Vm(reason) => return reason.fix(),
            _ => return None,
        })
    }
}
