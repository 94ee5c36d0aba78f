//! One word for people: `status.printableStatus` of a machine.

use super::condition;
use super::fact::{Instance, Launcher, Machine, Phase, RunStrategy, StartFailure};
use super::instance::current;
use super::store::Machines;

pub fn status(
    machine: &Machine,
    instance: Option<&Instance>,
    failure: Option<&StartFailure>,
    machines: &Machines,
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
    let migrating = live.is_migrating()
        || machines.migrations_of(&live.key).last().is_some_and(|migration| migration.phase.is_handed_over());
    if migrating {
        return "Migrating";
    }
    if live.is_paused() {
        return "Paused";
    }
    if live.phase == Phase::Running {
        return "Running";
    }
    let launchers = machines.launchers_of(&live.uid);
    let unschedulable = current(live, &launchers).is_some_and(Launcher::is_unschedulable)
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
