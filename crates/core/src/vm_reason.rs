//! Why something happens to a virtual machine during a drain, or does not: the part of [`crate::Reason`] about guests.

use jiff::Timestamp;
use serde::Serialize;

use crate::after::After;
use crate::component::SilentHook;
use crate::machines::beside;
use crate::reason::Severity;
use crate::tenants::Progress;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "code", rename_all_fields = "camelCase")]
pub enum VmReason {
    // What the strategy of a guest comes down to.
    VmMigrates {
        instance: String,
    },
    /// It must be moved and cannot be.
    VmStuck {
        instance: String,
        cause: String,
        message: String,
    },
    VmShutDown {
        instance: String,
        #[serde(flatten)]
        after: After,
    },
    /// It would be shut down and not come back.
    VmStaysOff {
        instance: String,
        #[serde(flatten)]
        after: After,
    },
    /// It shall be left to its external owner, who has not been told yet.
    VmExternal {
        instance: String,
    },
    VmHandedOver {
        instance: String,
        /// How far the tenant is whose node it is, if it is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        tenant: Option<Box<Progress>>,
    },
    /// It starts, stops, arrives or has just left; what it needs is not clear yet.
    VmSettling {
        instance: Option<String>,
    },
    VmUnreadable {
        message: String,
    },

    /// It is to be moved, and no other node takes it.
    VmFitsNowhere {
        instance: String,
        why: String,
        /// By labels and sizes of nodes, which do not change by themselves.
        lasting: bool,
    },

    // What a guest that is moved waits for.
    /// Its migration is not asked for before others have gone.
    VmNotAsked,
    /// KubeVirt moves it, because of the taint of its node or of its own mark, and has not created a migration yet.
    VmLeftToKubeVirt {
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<InLine>,
    },
    /// The same, although there is room for a migration.
    VmKubeVirtIdle,
    /// A migration of ours that could not be called off.
    VmMigrationLeft {
        migration: String,
        message: String,
    },
    VmQueued {
        migration: String,
        /// What has to become free.
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<InLine>,
    },
    VmMigrating {
        migration: String,
        phase: String,
    },
    /// A pod that an earlier migration left is still there, and nothing moves before it is gone.
    VmPodLeft {
        migration: String,
        node: String,
    },
    /// There is no place for its copy, or it does not come up.
    VmNoPlace {
        migration: String,
        message: String,
    },
    VmMoveFailed {
        failures: u32,
        message: String,
        retry_at: Option<Timestamp>,
    },
    VmMoveGivenUp {
        failures: u32,
        message: String,
    },
    VmMoveRefused {
        message: String,
    },
    VmMoveForbidden {
        message: String,
    },
    /// No migration can be asked for: the API server would have to ask a webhook that does not answer.
    VmMoveUnanswered {
        #[serde(flatten)]
        hook: SilentHook,
    },
    /// Its migration is there, and no controller has taken note of it.
    VmNotPickedUp {
        migration: String,
    },

    // What is said of the cluster's KubeVirt before guests are moved.
    KubeVirtNotDeployed {
        phase: String,
    },
    KubeVirtUntested {
        version: String,
    },
}

/// What a migration in line waits for: so many run, and more may not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InLine {
    pub running: usize,
    pub at_most: u32,
    /// The node they leave; missing where the limit is that of the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_node: Option<String>,
}

impl InLine {
    fn words(&self) -> String {
        let Self { running, at_most, from_node } = self;
        match from_node {
            Some(node) => format!("{running} of at most {at_most} from node {node} are under way"),
            None => format!("{running} of at most {at_most} in the cluster are under way"),
        }
    }
}

impl VmReason {
    pub fn code(&self) -> &'static str {
        match self {
            Self::VmMigrates { .. } => "VmMigrates",
            Self::VmStuck { .. } => "VmStuck",
            Self::VmShutDown { .. } => "VmShutDown",
            Self::VmStaysOff { .. } => "VmStaysOff",
            Self::VmExternal { .. } => "VmExternal",
            Self::VmHandedOver { .. } => "VmHandedOver",
            Self::VmSettling { .. } => "VmSettling",
            Self::VmUnreadable { .. } => "VmUnreadable",
            Self::VmFitsNowhere { .. } => "VmFitsNowhere",
            Self::VmNotAsked => "VmNotAsked",
            Self::VmLeftToKubeVirt { .. } => "VmLeftToKubeVirt",
            Self::VmKubeVirtIdle => "VmKubeVirtIdle",
            Self::VmMigrationLeft { .. } => "VmMigrationLeft",
            Self::VmQueued { .. } => "VmQueued",
            Self::VmMigrating { .. } => "VmMigrating",
            Self::VmPodLeft { .. } => "VmPodLeft",
            Self::VmNoPlace { .. } => "VmNoPlace",
            Self::VmMoveFailed { .. } => "VmMoveFailed",
            Self::VmMoveGivenUp { .. } => "VmMoveGivenUp",
            Self::VmMoveRefused { .. } => "VmMoveRefused",
            Self::VmMoveForbidden { .. } => "VmMoveForbidden",
            Self::VmMoveUnanswered { .. } => "VmMoveUnanswered",
            Self::VmNotPickedUp { .. } => "VmNotPickedUp",
            Self::KubeVirtNotDeployed { .. } => "KubeVirtNotDeployed",
            Self::KubeVirtUntested { .. } => "KubeVirtUntested",
        }
    }

    pub fn severity(&self) -> Severity {
        match self {
            Self::VmMigrates { .. }
            | Self::VmExternal { .. }
            | Self::KubeVirtNotDeployed { .. }
            | Self::KubeVirtUntested { .. } => Severity::Note,
            Self::VmShutDown { after, .. } if after.comes_back() => Severity::Note,
            Self::VmShutDown { .. } | Self::VmMigrationLeft { .. } => Severity::Warning,
            Self::VmNotAsked
            | Self::VmLeftToKubeVirt { .. }
            | Self::VmQueued { .. }
            | Self::VmMigrating { .. } => Severity::Progress,
            Self::VmHandedOver { .. }
            | Self::VmSettling { .. }
            | Self::VmKubeVirtIdle
            | Self::VmFitsNowhere { lasting: false, .. }
            | Self::VmPodLeft { .. }
            | Self::VmNoPlace { .. }
            | Self::VmMoveFailed { .. }
            | Self::VmMoveUnanswered { .. }
            | Self::VmNotPickedUp { .. }
            | Self::VmMoveRefused { .. } => Severity::Slow,
            Self::VmFitsNowhere { lasting: true, .. }
            | Self::VmStuck { .. }
            | Self::VmStaysOff { .. }
            | Self::VmUnreadable { .. }
            | Self::VmMoveGivenUp { .. }
            | Self::VmMoveForbidden { .. } => Severity::Never,
        }
    }

    /// Words by which pods are grouped in the manner of `kubectl drain`.
    pub fn kubectl_words(&self) -> Option<String> {
        Some(match self {
            Self::VmShutDown { after, .. } if !after.comes_back() => {
                format!("shutting down virtual machines ({})", after.words())
            }
            Self::VmStuck { cause, message, .. } => format!(
                "Pods of virtual machines that must be live-migrated and cannot be ({})",
                why_stuck(cause, message)
            ),
            Self::VmStaysOff { after, .. } => {
                format!(
                    "Pods of virtual machines that would not come back ({}; use --allow-shutdown to override)",
                    after.words()
                )
            }
            Self::VmUnreadable { .. } => "Pods of virtual machines that cannot be read".into(),
            _ => return None,
        })
    }

    pub fn message(&self) -> String {
        match self {
            Self::VmMigrates { instance } => {
                format!("runs virtual machine {instance}, which is live-migrated")
            }
            Self::VmStuck { instance, cause, message } => {
                let why = why_stuck(cause, message);
                format!("runs virtual machine {instance}, which must be live-migrated and cannot be ({why})")
            }
            Self::VmShutDown { instance, after } => {
                format!("runs virtual machine {instance}, which is shut down and {}", after.words())
            }
            Self::VmStaysOff { instance, after } => {
                format!("runs virtual machine {instance}, which would be shut down and {}", after.words())
            }
            Self::VmExternal { instance } => {
                format!("runs virtual machine {instance}, which is left to its external owner")
            }
            Self::VmHandedOver { instance, tenant: None } => format!(
                "runs virtual machine {instance}, whose external owner has been told and has to move or end it"
            ),
            Self::VmHandedOver { instance, tenant: Some(tenant) } => {
                let blocker = tenant.blocker().map_or(String::new(), |blocker| format!(" ({blocker})"));
                format!(
                    "runs virtual machine {instance}, which goes when its node in a tenant cluster is empty, at {:.0} at the latest; {}{blocker}",
                    tenant.deadline,
                    tenant.words()
                )
            }
            Self::VmSettling { instance: Some(name) } => {
                format!("runs virtual machine {name}, which is starting, arriving or leaving")
            }
            Self::VmSettling { instance: None } => {
                "runs a virtual machine that is starting, arriving or leaving".into()
            }
            Self::VmUnreadable { message } => {
                format!("runs a virtual machine, and virtual machines cannot be read: {message}")
            }
            Self::VmFitsNowhere { instance, why, .. } => {
                format!(
                    "runs virtual machine {instance}, which is to be live-migrated, and no other node takes it ({why})"
                )
            }
            Self::VmNotAsked => {
                "has not been asked to leave yet; its guest is live-migrated when others have gone".into()
            }
            Self::VmLeftToKubeVirt { limit: Some(limit) } => {
                format!("is left to KubeVirt, which live-migrates the guests of its node: {}", limit.words())
            }
            Self::VmLeftToKubeVirt { limit: None } => {
                "is left to KubeVirt, which live-migrates the guests of its node, and has no migration yet".into()
            }
            Self::VmKubeVirtIdle => {
                "is left to KubeVirt, and virt-controller has not created a migration although there is room for one".into()
            }
            Self::VmMigrationLeft { migration, message } => format!(
                "keeps migration {migration}, which this drain asked for and could not call off: {message}"
            ),
            Self::VmQueued { migration, limit: Some(limit) } => {
                format!("waits in line to be live-migrated (migration {migration}): {}", limit.words())
            }
            Self::VmQueued { migration, limit: None } => {
                format!("waits for its migration {migration} to begin")
            }
            Self::VmMigrating { migration, phase } => {
                format!("is being live-migrated (migration {migration}: {phase})")
            }
            Self::VmPodLeft { migration, node } => format!(
                "cannot be live-migrated yet, another pod of it is still there on node {node} (migration {migration} waits for it to go)"
            ),
            Self::VmNoPlace { migration, message } => {
                format!(
                    "cannot be live-migrated yet, its copy has no place (migration {migration}): {message}"
                )
            }
            Self::VmMoveFailed { failures, message, retry_at } => {
                let next = retry_at.map_or(String::new(), |at| format!("; next try at {at:.0}"));
                format!("could not be live-migrated ({}: {message}){next}", times(*failures))
            }
            Self::VmMoveGivenUp { failures, message } => {
                format!("could not be live-migrated {failures} times in a row (last: {message})")
            }
            Self::VmMoveRefused { message } => {
                format!("could not be live-migrated, the server refused the migration: {message}")
            }
            Self::VmMoveForbidden { message } => format!("may not be live-migrated by you: {message}"),
            Self::VmMoveUnanswered { hook: SilentHook { webhook, component, why } } => format!(
                "could not be live-migrated, {component} does not answer admission webhook {webhook} ({why}), and until it does no migration can be \
                 created; the guest keeps running here"
            ),
            Self::VmNotPickedUp { migration } => format!(
                "waits for virt-controller, which has not picked up migration {migration}; the guest keeps running here"
            ),
            Self::KubeVirtNotDeployed { phase } => format!(
                "has guests of KubeVirt, which is not ready (virt-operator says {phase}): they wait here until virt-api and virt-controller work"
            ),
            Self::KubeVirtUntested { version } => format!(
                "has guests of KubeVirt {version}, with which evac was not tested ({}); the drain goes on all the same",
                beside::TESTED_WORDS
            ),
        }
    }

    pub fn brief(&self) -> String {
        match self {
            Self::VmStuck { cause, .. } => format!("cannot be migrated: {cause}"),
            Self::VmHandedOver { tenant: Some(tenant), .. } => tenant.words(),
            Self::VmHandedOver { .. } => "its external owner has to act".into(),
            Self::VmSettling { .. } => "its machine starts, arrives or leaves".into(),
            Self::VmFitsNowhere { .. } => "no other node takes it".into(),
            Self::VmNotAsked => "not asked yet".into(),
            Self::VmLeftToKubeVirt { limit: Some(limit) } => format!("left to KubeVirt: {}", limit.words()),
            Self::VmLeftToKubeVirt { limit: None } => "left to KubeVirt".into(),
            Self::VmKubeVirtIdle => "KubeVirt does not migrate it".into(),
            Self::VmQueued { limit: Some(limit), .. } => format!("in line: {}", limit.words()),
            Self::VmQueued { limit: None, .. } => "waits for its migration to begin".into(),
            Self::VmMigrating { phase, .. } => phase.clone(),
            Self::VmPodLeft { node, .. } => format!("another pod of it is left on {node}"),
            Self::VmNoPlace { .. } => "no place for its copy".into(),
            Self::VmMoveFailed { failures, .. } => {
                format!("failed {}, will be tried again", times(*failures))
            }
            Self::VmMoveGivenUp { failures, .. } => format!("failed {}", times(*failures)),
            Self::VmMoveRefused { .. } => "the server refused the migration".into(),
            Self::VmMoveForbidden { .. } => "you may not migrate it".into(),
            Self::VmMoveUnanswered { hook } => format!("{} does not answer", hook.component),
            Self::VmNotPickedUp { .. } => "virt-controller has not picked up its migration".into(),
            other => other.message(),
        }
    }

    pub fn fix(&self) -> Option<String> {
        Some(match self {
            Self::VmStuck { .. } => "change what prevents its migration, or stop the machine yourself".into(),
            Self::VmStaysOff { .. } => {
                "use --allow-shutdown to shut it down all the same, or give it an eviction strategy that migrates"
                    .into()
            }
            Self::VmHandedOver { tenant: Some(tenant), .. } if tenant.blocker.is_some() => {
                "clear what is in the way in the tenant cluster, or wait for the deadline".into()
            }
            Self::VmHandedOver { tenant: Some(_), .. } => return None,
            Self::VmHandedOver { .. } => "ask whoever looks after it, such as the cluster it is a node of".into(),
            Self::VmUnreadable { .. } => {
                "ask for the rights to list and watch virtualmachineinstances and virtualmachineinstancemigrations"
                    .into()
            }
            Self::VmPodLeft { node, .. } => format!(
                "delete what is left of it on node {node} if that does not end by itself; the guest runs in the pod here"
            ),
            Self::VmFitsNowhere { lasting: true, .. } => {
                "relax what the machine asks of its node, give another node what it asks for, or stop the machine yourself".into()
            }
            Self::VmKubeVirtIdle => {
                "look whether virt-controller runs and what it says about this instance: kubectl get pods -A -l kubevirt.io=virt-controller".into()
            }
            Self::VmNoPlace { .. } | Self::VmFitsNowhere { .. } => {
                "make room on another node, or relax what the machine asks of its node".into()
            }
            Self::VmMoveFailed { .. } => "nothing, it is tried again; look at the migration if that goes on".into(),
            Self::VmMoveGivenUp { .. } => {
                "look at the migration and at the machine; it keeps running here and is never shut down".into()
            }
            Self::VmMoveUnanswered { hook } => hook.fix(),
            Self::VmNotPickedUp { .. } => {
                "look at virt-controller (kubectl get pods -A -l kubevirt.io=virt-controller), or at the evac operator with the role machines".into()
            }
            Self::VmMoveForbidden { .. } => {
                "ask for the right to create virtualmachineinstancemigrations".into()
            }
            _ => return None,
        })
    }
}

fn why_stuck(cause: &str, message: &str) -> String {
    match (cause.is_empty(), message.is_empty()) {
        (true, true) => "no reason given".into(),
        (true, false) => message.into(),
        (false, true) => cause.into(),
        (false, false) => format!("{cause}: {message}"),
    }
}

fn times(count: u32) -> String {
    match count {
        1 => "once".into(),
        2 => "twice".into(),
        more => format!("{more} times"),
    }
}
