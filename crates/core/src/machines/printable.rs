//! One word for people: `status.printableStatus` of a machine.

use super::condition;
use super::instance::current;
use super::line::has_ended;
use crate::cluster::fact::{Instance, Machine, Migration, Phase, Pod, RunStrategy, StartFailure};
use crate::cluster::index::Index;

/// The word for a machine, with its live or last instance and how often starting it failed.
pub fn status(
    machine: &Machine,
    instance: Option<&Instance>,
    failure: Option<&StartFailure>,
    index: &Index,
) -> &'static str {
    if machine.deleting {
        return "Terminating";
    }
    let Some(live) = instance.filter(|instance| !instance.is_final()) else {
        let restarts = matches!(
            machine.power.strategy(),
            Some(RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Once)
        );
        return if restarts && failure.is_some_and(|failure| failure.count > 0) {
            "CrashLoopBackOff"
        } else {
            "Stopped"
        };
    };
    if live.deleting {
        return "Stopping";
    }
    // Where the guest is counts, not what is written about it: the end of a migration is put off for a moment.
    let is_under_way = |one: &&Migration| one.phase.is_handed_over() && !has_ended(index, one);
    let migrating = live.is_migrating() || index.migrations_of(&live.key).last().is_some_and(is_under_way);
    if migrating {
        return "Migrating";
    }
    if live.is_paused() {
        return "Paused";
    }
    if live.phase == Phase::Running {
        return "Running";
    }
    let launchers = index.launchers_of(&live.uid);
    let unschedulable = current(live, &launchers).is_some_and(Pod::is_unschedulable)
        || condition::find(&live.conditions, "PodScheduled").is_some_and(|scheduled| {
            scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable")
        });
    match live.phase {
        Phase::Unset | Phase::Pending | Phase::Scheduling if unschedulable => "ErrorUnschedulable",
        Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::Scheduled => "Starting",
        Phase::WaitingForSync => "WaitingForReceiver",
        _ => "Unknown",
    }
}
