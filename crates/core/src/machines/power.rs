//! Start, stop, restart, pause, migrate: what a request of a person means, and when it is refused.
//!
//! The words of refusals are KubeVirt's, because programs match on them.

use thiserror::Error;

use super::condition;
use crate::cluster::fact::{Instance, Machine, Phase, Power, Request, RunStrategy};

/// Why a request was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It does not fit the state of the machine.
    #[error("{0}")]
    Conflict(String),
    /// Its parameters make no sense: 400.
    #[error("{0}")]
    BadRequest(String),
    /// It cannot be carried out now, for reasons that KubeVirt reports as 500.
    #[error("{0}")]
    Internal(String),
    /// The object does not allow it at all: 403.
    #[error("{0}")]
    Forbidden(String),
}

fn conflict<T>(text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Conflict(text.into()))
}

/// One change that a request leads to, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// `spec.runStrategy` or `spec.running` of the machine.
    Power(Power),
    /// `status.stateChangeRequests` of the machine; a recorded start failure is forgotten.
    Requests(Vec<Request>),
    /// The time the guest gets to shut down.
    Grace {
        /// `spec.terminationGracePeriodSeconds` of the instance until now.
        was: Option<i64>,
        /// The same from now on, in seconds.
        becomes: i64,
    },
}

const NOT_RUNNING: &str = "VM is not running";
const RECOVERY: &str = "VM recovery required: Volume migration failed, leaving some volumes pointing to non-consistent targets; manual intervention is needed to reassign them to their original volumes.";

fn strategy_of(machine: &Machine) -> Result<RunStrategy, Refusal> {
    machine.power.strategy().ok_or_else(|| {
        Refusal::Internal(
            "Running and RunStrategy are mutually exclusive, and one of them must be set".into(),
        )
    })
}

/// The same field the machine uses already.
fn switched(machine: &Machine, on: bool) -> Change {
    Change::Power(match machine.power {
        Power::Running(_) => Power::Running(on),
        _ => Power::Strategy(if on { RunStrategy::Always } else { RunStrategy::Halted }),
    })
}

/// Requests are taken one after the other; only a plain stop may replace what is waiting.
fn requested(machine: &Machine, requests: Vec<Request>) -> Result<Change, Refusal> {
    let waiting = &machine.status.requests;
    let plain_stop = matches!(requests.as_slice(), [one] if one.is_stop());
    if waiting.is_empty() || plain_stop {
        Ok(Change::Requests(requests))
    } else {
        Err(Refusal::Internal("unable to complete request: stop/start already underway".into()))
    }
}

/// Starts a machine, with the guest paused on request. An empty list is an accepted request that changes nothing.
pub fn start(machine: &Machine, instance: Option<&Instance>, paused: bool) -> Result<Vec<Change>, Refusal> {
    if instance.is_some_and(|instance| {
        !instance.is_final() && !matches!(instance.phase, Phase::Unknown | Phase::Unset)
    }) {
        return conflict("VM is already running");
    }
    if condition::is_true(&machine.status.conditions, "ManualRecoveryRequired") {
        return conflict(RECOVERY);
    }
    let strategy = strategy_of(machine)?;
    let over = instance.filter(|instance| instance.is_final());
    match strategy {
        RunStrategy::Halted if paused => Ok(vec![requested(machine, vec![Request::start(true)])?]),
        RunStrategy::Halted => Ok(vec![switched(machine, true)]),
        RunStrategy::RerunOnFailure if over.is_some_and(|over| over.phase == Phase::Failed) => {
            conflict(format!("{strategy} does not support starting VM from failed state"))
        }
        RunStrategy::RerunOnFailure | RunStrategy::Manual => {
            let mut requests: Vec<Request> = over.map(|over| Request::stop(&over.uid)).into_iter().collect();
            requests.push(Request::start(paused));
            Ok(vec![requested(machine, requests)?])
        }
        RunStrategy::Always | RunStrategy::Once => {
            conflict(format!("{strategy} does not support manual start requests"))
        }
        RunStrategy::WaitAsReceiver => Ok(Vec::new()),
    }
}

/// Stops a machine; `grace` is how many seconds the guest gets, if not those of its spec.
pub fn stop(
    machine: &Machine,
    instance: Option<&Instance>,
    grace: Option<i64>,
) -> Result<Vec<Change>, Refusal> {
    let strategy = strategy_of(machine)?;
    let live = instance.filter(|instance| !instance.is_final());
    let mut changes = Vec::new();
    if let (Some(live), Some(becomes)) = (live, grace) {
        changes.push(Change::Grace { was: live.grace_seconds, becomes });
    }
    match (strategy, live) {
        (RunStrategy::Always | RunStrategy::Once, _) => changes.push(switched(machine, false)),
        (RunStrategy::WaitAsReceiver, _) => changes.clear(),
        (_, None) => return conflict(NOT_RUNNING),
        (RunStrategy::Halted, Some(live)) => {
            let shorter = grace.is_some_and(|grace| live.grace_seconds.is_none_or(|was| grace < was));
            if !shorter {
                return conflict(format!(
                    "{strategy} only supports manual stop requests with a shorter graceperiod"
                ));
            }
            changes.push(requested(machine, vec![Request::stop(&live.uid)])?);
        }
        (_, Some(live)) => changes.push(requested(machine, vec![Request::stop(&live.uid)])?),
    }
    Ok(changes)
}

/// Restarts a machine; a `grace` of 0 means without waiting for the guest.
pub fn restart(
    machine: &Machine,
    instance: Option<&Instance>,
    grace: Option<i64>,
) -> Result<Vec<Change>, Refusal> {
    check_restart_grace(grace)?;
    if condition::is_true(&machine.status.conditions, "VolumesChange") {
        return conflict(RECOVERY);
    }
    let strategy = strategy_of(machine)?;
    if matches!(strategy, RunStrategy::Halted | RunStrategy::Once) {
        return conflict(format!("RunStategy {strategy} does not support manual restart requests"));
    }
    let Some(instance) = instance else {
        return conflict(format!("{NOT_RUNNING}: {}", RunStrategy::Halted));
    };
    let requests = requested(machine, vec![Request::stop(&instance.uid), Request::start(false)])?;
    let mut changes = Vec::new();
    if grace == Some(0) {
        // One second is the shortest time in which a guest is ended safely.
        changes.push(Change::Grace { was: instance.grace_seconds, becomes: 1 });
    }
    changes.push(requests);
    Ok(changes)
}

/// Checked before the machine is even looked up.
pub fn check_restart_grace(grace: Option<i64>) -> Result<(), Refusal> {
    match grace {
        Some(seconds) if seconds > 0 => {
            Err(Refusal::BadRequest("For force restart, only gracePeriod=0 is supported for now".into()))
        }
        Some(seconds) if seconds < 0 => {
            Err(Refusal::BadRequest("gracePeriod has to be greater or equal to 0".into()))
        }
        _ => Ok(()),
    }
}

/// Whether a guest may be moved on request: it has to run.
pub fn migrate(instance: &Instance) -> Result<(), Refusal> {
    if instance.phase == Phase::Running { Ok(()) } else { conflict(NOT_RUNNING) }
}

/// Whether a guest may be paused: it runs, is not paused, and is not on its way.
pub fn pause(instance: &Instance) -> Result<(), Refusal> {
    if instance.phase != Phase::Running {
        return conflict(NOT_RUNNING);
    }
    if condition::find(&instance.conditions, "Paused").is_some() {
        return conflict("VMI is already paused");
    }
    if instance.migration.as_ref().is_some_and(|state| !state.completed) {
        return conflict(format!(
            "Cannot pause VM '{}' because it is currently being migrated",
            instance.key.name
        ));
    }
    Ok(())
}

/// Whether a guest may go on: it runs and is paused.
pub fn unpause(instance: &Instance) -> Result<(), Refusal> {
    if instance.phase != Phase::Running {
        return conflict("VMI is not running");
    }
    if condition::find(&instance.conditions, "Paused").is_none() {
        return conflict("VMI is not paused");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::machines::testing::*;

    use RunStrategy::{Always, Halted, Manual, Once, RerunOnFailure};

    fn said<T: std::fmt::Debug>(result: Result<T, Refusal>) -> String {
        result.unwrap_err().to_string()
    }

    #[rstest]
    #[case::r22(Always, None, "Always does not support manual start requests")]
    #[case::r23(Always, Some(Phase::Running), "VM is already running")]
    #[case::r24(Once, None, "Once does not support manual start requests")]
    #[case::r25(
        RerunOnFailure,
        Some(Phase::Failed),
        "RerunOnFailure does not support starting VM from failed state"
    )]
    fn refused_starts(#[case] strategy: RunStrategy, #[case] phase: Option<Phase>, #[case] text: &str) {
        let vm = machine("a", strategy);
        let vmi = phase.map(|phase| boot(&vm, phase));
        assert_eq!(said(start(&vm, vmi.as_ref(), false)), text);
    }

    #[rstest]
    #[case::rerun_succeeded(RerunOnFailure, Phase::Succeeded)]
    #[case::manual_succeeded(Manual, Phase::Succeeded)]
    #[case::manual_failed(Manual, Phase::Failed)]
    fn r26_a_start_over_a_finished_instance_removes_it_first(
        #[case] strategy: RunStrategy,
        #[case] phase: Phase,
    ) {
        let vm = machine("a", strategy);
        let vmi = boot(&vm, phase);
        let expected = Change::Requests(vec![Request::stop(&vmi.uid), Request::start(false)]);
        assert_eq!(start(&vm, Some(&vmi), false), Ok(vec![expected]));
    }

    #[test]
    fn the_field_the_machine_uses_is_the_one_that_changes() {
        let mut vm = machine("a", Halted);
        assert_eq!(start(&vm, None, false), Ok(vec![Change::Power(Power::Strategy(Always))]));
        vm.power = Power::Running(false);
        assert_eq!(start(&vm, None, false), Ok(vec![Change::Power(Power::Running(true))]));
    }

    #[test]
    fn r27_a_paused_start_of_a_halted_machine_is_a_request() {
        let vm = machine("a", Halted);
        assert_eq!(start(&vm, None, true), Ok(vec![Change::Requests(vec![Request::start(true)])]));
    }

    #[test]
    fn r28_r40_recovery_comes_first() {
        let mut vm = machine("a", Manual);
        vm.status.conditions = vec![crate::machines::Condition::new("ManualRecoveryRequired", true, "", "")];
        assert!(said(start(&vm, None, false)).starts_with("VM recovery required"));
        vm.status.conditions = vec![crate::machines::Condition::new("VolumesChange", true, "", "")];
        assert!(said(restart(&vm, None, None)).starts_with("VM recovery required"));
    }

    #[test]
    fn r29_r30_stopping_without_an_instance() {
        for strategy in [Always, Once] {
            let vm = machine("a", strategy);
            assert_eq!(stop(&vm, None, None), Ok(vec![Change::Power(Power::Strategy(Halted))]));
        }
        for strategy in [RerunOnFailure, Manual, Halted] {
            assert_eq!(said(stop(&machine("a", strategy), None, None)), "VM is not running");
        }
    }

    #[test]
    fn r31_stopping_a_running_one() {
        for strategy in [RerunOnFailure, Manual] {
            let vm = machine("a", strategy);
            let vmi = boot(&vm, Phase::Running);
            let expected = Change::Requests(vec![Request::stop(&vmi.uid)]);
            assert_eq!(stop(&vm, Some(&vmi), None), Ok(vec![expected]));
        }
    }

    #[test]
    fn r32_r33_a_halted_machine_can_only_be_stopped_faster() {
        let vm = machine("a", Halted);
        let mut vmi = boot(&vm, Phase::Running);
        vmi.grace_seconds = Some(30);
        for grace in [None, Some(30), Some(60)] {
            assert_eq!(
                said(stop(&vm, Some(&vmi), grace)),
                "Halted only supports manual stop requests with a shorter graceperiod"
            );
        }
        assert!(stop(&vm, Some(&vmi), Some(5)).is_ok());
        vmi.grace_seconds = None;
        assert!(stop(&vm, Some(&vmi), Some(500)).is_ok());
    }

    #[test]
    fn r34_a_stop_without_grace_shortens_a_live_guest_only() {
        let vm = machine("a", Always);
        let live = boot(&vm, Phase::Running);
        let changes = stop(&vm, Some(&live), Some(0)).unwrap();
        assert_eq!(changes[0], Change::Grace { was: None, becomes: 0 });
        let over = boot(&vm, Phase::Failed);
        assert_eq!(stop(&vm, Some(&over), Some(0)).unwrap().len(), 1);
    }

    #[test]
    fn r35_to_r38_restarts() {
        for strategy in [Always, Manual, RerunOnFailure] {
            let vm = machine("a", strategy);
            assert_eq!(said(restart(&vm, None, None)), "VM is not running: Halted");
            let vmi = boot(&vm, Phase::Running);
            let both = Change::Requests(vec![Request::stop(&vmi.uid), Request::start(false)]);
            assert_eq!(restart(&vm, Some(&vmi), None), Ok(vec![both.clone()]));
            let forced = restart(&vm, Some(&vmi), Some(0)).unwrap();
            assert_eq!(forced, [Change::Grace { was: None, becomes: 1 }, both]);
        }
        for strategy in [Halted, Once] {
            let text = said(restart(&machine("a", strategy), None, None));
            assert_eq!(text, format!("RunStategy {strategy} does not support manual restart requests"));
        }
        let vm = machine("a", Always);
        assert!(matches!(restart(&vm, None, Some(5)), Err(Refusal::BadRequest(_))));
        assert!(matches!(restart(&vm, None, Some(-1)), Err(Refusal::BadRequest(_))));
    }

    #[test]
    fn r41_a_waiting_request_blocks_all_but_a_plain_stop() {
        let mut vm = machine("a", Manual);
        let vmi = boot(&vm, Phase::Running);
        vm.status.requests = vec![Request::start(false)];
        assert!(matches!(start(&vm, None, false), Err(Refusal::Internal(_))));
        assert!(matches!(restart(&vm, Some(&vmi), None), Err(Refusal::Internal(_))));
        assert!(stop(&vm, Some(&vmi), None).is_ok());
    }
}
