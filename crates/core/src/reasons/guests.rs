//! How a guest may leave its node: what its eviction strategy comes down to.

use super::Severity::{Never, Note, Slow, Warning};
use super::shutdown::AfterShutdown;
use super::table::family;
use crate::cluster::tenant::TenantProgress;

family! {
    /// Why a guest is moved, shut down, handed over or left alone.
    GuestReason in Reason::Guest {
        title: "How a guest may leave",
        told: "In `assessment.verdicts[].reasons[]` of the event `planned`, in forecasts, and in blockers. \
               The eviction strategy of the virtual machine decides.",
        subject: Pod,
    }

    /// The pod runs a guest.
    VmLauncher {
        /// The VirtualMachineInstance, if the pod names it.
        instance: Option<String> = Some("db".into()),
    } => {
        severity: Note,
        sentence: ("runs {}; its eviction strategy decides how it leaves", match instance {
            Some(name) => format!("virtual machine {name}"),
            None => "a virtual machine".into(),
        }),
    }

    /// The pod holds a volume of a guest that runs in another pod.
    VmHotplug => {
        severity: Note,
        sentence: ("holds a hotplugged volume and leaves together with its virtual machine"),
    }

    /// Deleting the pod would shut its guest down past its eviction strategy.
    VmUnprotected => {
        severity: Never,
        sentence: ("runs a virtual machine, which a plain deletion would shut down"),
        remedy: ("leave out --disable-eviction"),
        kubectl: ("Pods that run virtual machines (without --disable-eviction they leave by their eviction \
                   strategy)"),
    }

    /// It is moved to another node.
    VmMigrates {
        /// The VirtualMachineInstance.
        instance: String = "db".into(),
    } => {
        severity: Note,
        sentence: ("runs virtual machine {instance}, which is live-migrated"),
    }

    /// A backup of it is under way, which its migration ends: KubeVirt aborts it once for the migrations of a drain.
    VmBackup {
        /// The VirtualMachineInstance.
        instance: String = "db".into(),
        /// The backup.
        backup: String = "db-nightly".into(),
    } => {
        severity: Warning,
        sentence: ("runs virtual machine {instance}, whose backup {backup} is under way and is aborted when it leaves"),
        brief: ("its backup {backup} is aborted"),
        remedy: ("wait until the backup is done, or repeat it afterwards"),
        kubectl: ("aborting backups of virtual machines that are under way"),
    }

    /// It must be moved and cannot be: `cause` and `message` are those of its condition LiveMigratable.
    VmStuck {
        /// The VirtualMachineInstance.
        instance: String = "db".into(),
        /// The reason in its condition LiveMigratable.
        cause: String = "DisksNotLiveMigratable".into(),
        /// The message in its condition LiveMigratable.
        message: String = "cannot migrate VMI: PVC db is not shared".into(),
    } => {
        severity: Never,
        sentence: (
            "runs virtual machine {instance}, which must be live-migrated and cannot be ({})",
            why_stuck(cause, message)
        ),
        brief: ("cannot be migrated: {cause}"),
        remedy: ("change what prevents its migration, or stop the machine yourself"),
        kubectl: (
            "Pods of virtual machines that must be live-migrated and cannot be ({})",
            why_stuck(cause, message)
        ),
    }

    /// It is shut down; `after` says what then becomes of it.
    VmShutDown {
        /// The VirtualMachineInstance.
        instance: String = "db".into(),
        /// What then becomes of it.
        #[serde(flatten)]
        after: AfterShutdown = AfterShutdown::Restarts,
    } => {
        severity: if after.comes_back() { Note } else { Warning },
        sentence: ("runs virtual machine {instance}, which is shut down and {after}"),
        kubectl if (!after.comes_back()): ("shutting down virtual machines ({after})"),
        also: { instance: "db".into(), after: AfterShutdown::StaysOff { strategy: "Manual".into() } },
    }

    /// It would be shut down and not come back, without `--allow-shutdown`.
    VmStaysOff {
        /// The VirtualMachineInstance.
        instance: String = "db".into(),
        /// What would become of it.
        #[serde(flatten)]
        after: AfterShutdown = AfterShutdown::Ends,
    } => {
        severity: Never,
        sentence: ("runs virtual machine {instance}, which would be shut down and {after}"),
        remedy: (
            "use --allow-shutdown to shut it down all the same, or give it an eviction strategy that migrates"
        ),
        kubectl: ("Pods of virtual machines that would not come back ({after}; use --allow-shutdown to \
                   override)"),
    }

    /// It shall be left to its external owner, who has not been told yet.
    VmExternal {
        /// The VirtualMachineInstance.
        instance: String = "db".into(),
    } => {
        severity: Note,
        sentence: ("runs virtual machine {instance}, which is left to its external owner"),
    }

    /// Its external owner has been told and has to act; `tenant` is that of the event `tenant`, if it is a
    /// node of a tenant cluster.
    VmHandedOver {
        /// The VirtualMachineInstance.
        instance: String = "blue-worker-1".into(),
        /// How far the tenant is whose node it is, if it is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        tenant: Option<Box<TenantProgress>> = Some(Box::new(example_progress())),
    } => {
        severity: Slow,
        sentence: ("runs virtual machine {instance}, {}", match tenant {
            None => "whose external owner has been told and has to move or end it".into(),
            Some(tenant) => emptied(tenant),
        }),
        brief: ("{}", match tenant {
            None => "its external owner has to act".into(),
            Some(tenant) => tenant.words(),
        }),
        remedy if (tenant.as_ref().is_none_or(|tenant| tenant.blocker.is_some())): ("{}", match tenant {
            None => "ask the owner of the machine, such as those who run the cluster that it is a node of",
            Some(_) => "clear what is in the way in the tenant cluster, or wait for the deadline",
        }),
    }

    /// It starts, stops, arrives or has just left; what it needs is not clear yet.
    VmSettling {
        /// The VirtualMachineInstance, if the pod names it.
        instance: Option<String> = Some("db".into()),
    } => {
        severity: Slow,
        sentence: ("runs {} starting, arriving or leaving", match instance {
            Some(name) => format!("virtual machine {name}, which is"),
            None => "a virtual machine that is".into(),
        }),
        brief: ("its machine starts, arrives or leaves"),
    }

    /// Virtual machines cannot be read, so the pods of none are touched.
    VmUnreadable {
        /// The answer of the server.
        message: String = "virtualmachineinstances.kubevirt.io is forbidden".into(),
    } => {
        severity: Never,
        sentence: ("runs a virtual machine, and virtual machines cannot be read: {message}"),
        remedy: (
            "ask for the rights to list and watch virtualmachineinstances and \
             virtualmachineinstancemigrations"
        ),
        kubectl: ("Pods of virtual machines that cannot be read"),
    }

    /// It is to be moved, and no other node takes it; `lasting` if labels and sizes of nodes rule that out.
    VmFitsNowhere {
        /// The VirtualMachineInstance.
        instance: String = "db".into(),
        /// The rules that speak against the other nodes.
        why: String = "worker-2: too little memory".into(),
        /// By labels and sizes of nodes, which do not change by themselves.
        lasting: bool = false,
    } => {
        severity: if *lasting { Never } else { Slow },
        sentence: (
            "runs virtual machine {instance}, which is to be live-migrated, and no other node takes it \
             ({why})"
        ),
        brief: ("no other node takes it"),
        remedy: ("{}", if *lasting {
            "relax what the machine asks of its node, give another node what it asks for, or stop the \
             machine yourself"
        } else {
            "make room on another node, or relax what the machine asks of its node"
        }),
        also: { instance: "db".into(), why: "only worker-1 matches its nodeSelector".into(), lasting: true },
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

/// How far its tenant is with emptying the node that a guest is.
/// How far a tenant's node might be.
fn example_progress() -> TenantProgress {
    TenantProgress {
        cluster: "blue".into(),
        node: "worker-1".into(),
        left: Some(2),
        total: Some(5),
        blocker: Some("pod shop/web-1 is held by finalizer example.com/backup".into()),
        deadline: super::example_time(600),
    }
}

fn emptied(tenant: &TenantProgress) -> String {
    let blocker = tenant.blocker().map_or(String::new(), |blocker| format!(" ({blocker})"));
    format!(
        "which goes when its node in a tenant cluster is empty, at {:.0} at the latest; {}{blocker}",
        tenant.deadline,
        tenant.words()
    )
}
