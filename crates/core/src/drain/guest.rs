//! How may a guest leave its node?
//!
//! The eviction strategy of the guest decides, read from the newest state of its instance each time the question comes up. What is
//! not known is never guessed: such a guest is waited for.

use crate::cluster::fact::Pod;
use crate::cluster::index::{Index, VmVisibility};
use crate::drain::assess::Fate;
use crate::drain::policy::Policy;
use crate::machines::after_shutdown::after_shutdown;
use crate::machines::strategy::{Course, Strategy, course, effective};
use crate::machines::{Instance, Phase, condition};
use crate::reasons::{FilterReason, GuestReason, Reason};

/// The fate of an unfinished launcher pod. `None` where the cluster knows no virtual machines: then it is a pod like others.
pub(crate) fn fate(
    index: &Index,
    policy: &Policy,
    pod: &Pod,
    name: Option<&str>,
    reasons: &mut Vec<Reason>,
) -> Option<Fate> {
    let (reason, fate): (Reason, Fate) = match index.vm_visibility() {
        VmVisibility::NotInstalled => return None,
        VmVisibility::Denied(message) => {
            (GuestReason::VmUnreadable { message: message.clone() }.into(), Fate::Blocked)
        }
        VmVisibility::NotYetRead => (settling(name), Fate::Follow),
        VmVisibility::Readable => match index.instance_of(pod).filter(|_| pod.deletion.is_none()) {
            None => (settling(name), Fate::Follow),
            Some(instance) => {
                let (reason, fate) = instance_fate(index, policy, instance);
                reasons.extend(ended_backup(instance, fate));
                (reason, fate)
            }
        },
    };
    reasons.push(reason);
    Some(fate)
}

/// The backup that ends when a guest leaves.
fn ended_backup(instance: &Instance, fate: Fate) -> Option<Reason> {
    let backup = instance.backup.as_ref().filter(|_| matches!(fate, Fate::Migrate | Fate::Evict))?;
    let (instance, backup) = (instance.key.name.to_string(), backup.to_string());
    Some(GuestReason::VmBackup { instance, backup }.into())
}

/// The fate of a finished launcher pod. It is cleared away like any finished pod, unless it is all that tells KubeVirt how a guest ended: an instance whose pod is gone
/// before that was read is taken for a failed one, and may be started again.
pub(crate) fn remains(index: &Index, pod: &Pod, name: Option<&str>, reasons: &mut Vec<Reason>) -> Fate {
    let lives_on = |instance: &Instance| {
        let others = index.pods_on(&instance.node).filter(|other| other.uid != pod.uid);
        let mut others =
            others.filter(|other| other.vm == pod.vm && other.key.namespace == pod.key.namespace);
        others.any(|other| !other.phase.is_finished())
    };
    match index.instance_of(pod) {
        Some(instance) if !instance.is_final() && !lives_on(instance) => {
            reasons.push(settling(name));
            Fate::Follow
        }
        _ => {
            reasons.push(FilterReason::Finished.into());
            Fate::Evict
        }
    }
}

fn settling(name: Option<&str>) -> Reason {
    GuestReason::VmSettling { instance: name.map(str::to_owned) }.into()
}

/// Neither starting nor ending, and known whether it can be moved where that matters.
fn is_settled(index: &Index, instance: &Instance) -> bool {
    let strategy = effective(instance, &index.config).strategy;
    let matters = matches!(strategy, Strategy::LiveMigrate | Strategy::LiveMigrateIfPossible);
    instance.phase == Phase::Running
        && !instance.deleting
        && (!matters || condition::find(&instance.conditions, "LiveMigratable").is_some())
}

/// What a drain of its node would do to an instance, and why.
pub fn instance_fate(index: &Index, policy: &Policy, instance: &Instance) -> (Reason, Fate) {
    if !is_settled(index, instance) {
        return (settling(Some(&instance.key.name)), Fate::Follow);
    }

    let name = instance.key.name.to_string();
    // Whichever program moves it, and whatever its strategy: it is about to leave by itself.
    let moving = index.migrations_of(&instance.key).iter().any(|one| !one.phase.is_final());
    match course(instance, &index.config) {
        _ if moving => (GuestReason::VmMigrates { instance: name }.into(), Fate::Migrate),
        Course::Migrate => (GuestReason::VmMigrates { instance: name }.into(), Fate::Migrate),
        Course::Stuck => {
            let why = condition::find(&instance.conditions, "LiveMigratable");
            let cause = why.and_then(|why| why.reason.as_ref()).map(String::from).unwrap_or_default();
            let message = why.and_then(|why| why.message.as_ref()).map(String::from).unwrap_or_default();
            (GuestReason::VmStuck { instance: name, cause, message }.into(), Fate::Blocked)
        }
        Course::HandOver if instance.evacuation_node.as_ref() == Some(&instance.node) => {
            let tenant = instance.tenant.as_ref().and_then(|marks| marks.progress.clone()).map(Box::new);
            (GuestReason::VmHandedOver { instance: name, tenant }.into(), Fate::Follow)
        }
        Course::HandOver | Course::ShutDown if policy.disable_eviction => {
            (Reason::Guest(GuestReason::VmUnprotected), Fate::Blocked)
        }
        Course::HandOver => (GuestReason::VmExternal { instance: name }.into(), Fate::Evict),
        Course::ShutDown => {
            let after = after_shutdown(index, instance);
            if after.comes_back() || policy.may_shut_down(&instance.node) {
                (GuestReason::VmShutDown { instance: name, after }.into(), Fate::Evict)
            } else {
                (GuestReason::VmStaysOff { instance: name, after }.into(), Fate::Blocked)
            }
        }
    }
}
