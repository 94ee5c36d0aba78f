use rstest::rstest;

use super::*;
use crate::machines::testing::*;

fn on(machine: &Machine, instance: Option<&Instance>) -> Decision {
    let seen = [machine.known()].into_iter().chain(instance.map(Known::known));
    decide(&view(seen), &machine.key, now())
}

fn creates(decision: &Decision) -> bool {
    decision.actions.iter().any(|action| matches!(action, Action::Own(Own::CreateInstance { .. })))
}

fn stops(decision: &Decision) -> bool {
    !deletes(decision, Kind::Instance).is_empty()
}

fn status<'a>(decision: &'a Decision, field: &str) -> Option<&'a Tree> {
    decision.actions.iter().find_map(|action| match action {
        Action::Patch { object, part: Part::Status, fields, .. } if object.kind == Kind::Machine => {
            fields.get(&["status", field])
        }
        _ => None,
    })
}

#[rstest]
#[case::r01_always(RunStrategy::Always, true)]
#[case::r01_once(RunStrategy::Once, true)]
#[case::r05_rerun_never_started(RunStrategy::RerunOnFailure, true)]
#[case::manual_waits(RunStrategy::Manual, false)]
#[case::halted_stays_off(RunStrategy::Halted, false)]
fn r01_without_an_instance(#[case] strategy: RunStrategy, #[case] starts: bool) {
    assert_eq!(creates(&on(&machine("a", strategy), None)), starts);
}

#[test]
fn r02_running_false_stops_the_instance() {
    let mut vm = machine("a", RunStrategy::Halted);
    vm.power = Power::Running(false);
    let vmi = boot(&vm, Phase::Running);
    assert!(stops(&on(&vm, Some(&vmi))));
}

#[rstest]
#[case(RunStrategy::Once)]
#[case(RunStrategy::Manual)]
fn r03_a_failed_instance_is_kept_and_released(#[case] strategy: RunStrategy) {
    let vm = machine("a", strategy);
    let vmi = boot(&vm, Phase::Failed);
    let decision = on(&vm, Some(&vmi));
    assert!(!stops(&decision) && !creates(&decision));
    let fields = patches(&decision, Kind::Instance)[0];
    assert_eq!(fields.get(&["metadata", "finalizers"]), Some(&Tree::texts([names::INSTANCE_FINALIZER])));
}

#[test]
fn r04_a_deleted_instance_is_not_deleted_again() {
    let vm = machine("a", RunStrategy::Halted);
    let mut vmi = boot(&vm, Phase::Running);
    vmi.deleting = true;
    assert!(!stops(&on(&vm, Some(&vmi))));
}

#[test]
fn r06_r07_r08_rerun_starts_when_switched_to_and_stays_off_when_stopped() {
    let mut vm = machine("a", RunStrategy::RerunOnFailure);
    for before in ["Halted", "Manual", ""] {
        vm.status.strategy = before.into();
        assert!(creates(&on(&vm, None)), "{before}");
    }
    vm.status.strategy = "RerunOnFailure".into();
    assert!(!creates(&on(&vm, None)));
    vm.status.requests = vec![Request::start(false)];
    assert!(creates(&on(&vm, None)));
}

#[test]
fn r09_a_restart_replaces_the_instance_and_uses_up_both_requests() {
    let mut vm = machine("a", RunStrategy::Always);
    let vmi = boot(&vm, Phase::Running);
    vm.status.requests = vec![Request::stop(&vmi.uid), Request::start(false)];
    let decision = on(&vm, Some(&vmi));
    assert!(stops(&decision));
    assert_eq!(status(&decision, "stateChangeRequests"), None);

    let decision = on(&vm, None);
    assert!(creates(&decision));
    assert_eq!(
        status(&decision, "stateChangeRequests"),
        Some(&requests_tree(&[Request::start(false)])),
        "the stop is done"
    );

    vm.status.requests = vec![Request::start(false)];
    let mut next = boot(&vm, Phase::Pending);
    next.uid.0 = "second".into();
    assert_eq!(status(&on(&vm, Some(&next)), "stateChangeRequests"), Some(&Tree::null()));
}

#[test]
fn a_stop_for_an_earlier_instance_does_not_stop_this_one() {
    let mut vm = machine("a", RunStrategy::Manual);
    vm.status.requests = vec![Request::stop(&crate::cluster::fact::Uid("earlier".into()))];
    let vmi = boot(&vm, Phase::Running);
    assert!(!stops(&on(&vm, Some(&vmi))));
}

#[test]
fn r15_a_failed_instance_under_rerun_is_first_wished_again_then_removed() {
    let mut vm = machine("a", RunStrategy::RerunOnFailure);
    vm.status.strategy = "RerunOnFailure".into();
    let mut vmi = boot(&vm, Phase::Failed);
    vmi.phase_times = vec![("Running".into(), "2026-01-01T00:00:00Z".into())];
    let decision = on(&vm, Some(&vmi));
    assert!(!stops(&decision));
    assert_eq!(status(&decision, "stateChangeRequests"), Some(&requests_tree(&[Request::start(false)])));
    vm.status.requests = vec![Request::start(false)];
    assert!(stops(&on(&vm, Some(&vmi))));
    assert!(creates(&on(&vm, None)));
}

#[test]
fn r45_a_clean_shutdown_under_rerun_leaves_the_machine_off() {
    let mut vm = machine("a", RunStrategy::RerunOnFailure);
    vm.status.strategy = "RerunOnFailure".into();
    let decision = on(&vm, Some(&boot(&vm, Phase::Succeeded)));
    assert!(stops(&decision));
    assert_eq!(status(&decision, "stateChangeRequests"), None);
    assert!(!creates(&on(&vm, None)));
}

#[test]
fn r17_while_a_start_is_held_back_the_machine_says_crash_loop() {
    for (strategy, word) in [
        (RunStrategy::Always, "CrashLoopBackOff"),
        (RunStrategy::RerunOnFailure, "CrashLoopBackOff"),
        (RunStrategy::Manual, "Stopped"),
        (RunStrategy::Halted, "Stopped"),
    ] {
        let mut vm = machine("a", strategy);
        vm.status.start_failure =
            Some(StartFailure { count: 1, last_uid: "x".into(), retry_after: Some(later(12)) });
        let decision = on(&vm, None);
        assert!(!creates(&decision));
        assert_eq!(status(&decision, "printableStatus"), Some(&Tree::text(word)), "{strategy}");
        if word == "CrashLoopBackOff" {
            assert_eq!(decision.look_again, Some(later(12)));
        }
    }
}

#[test]
fn r18_a_machine_that_needs_recovery_is_not_started() {
    let mut vm = machine("a", RunStrategy::Always);
    vm.status.conditions = vec![Condition::new("ManualRecoveryRequired", true, "", "")];
    assert!(!creates(&on(&vm, None)));
}

#[test]
fn r19_a_deleted_machine_goes_after_its_instance() {
    let mut vm = machine("a", RunStrategy::Always);
    vm.deleting = true;
    let vmi = boot(&vm, Phase::Running);
    let decision = on(&vm, Some(&vmi));
    assert!(stops(&decision));
    assert!(patches(&decision, Kind::Machine).iter().all(|fields| fields.get(&["metadata"]).is_none()));
    let decision = on(&vm, None);
    assert_eq!(
        patches(&decision, Kind::Machine)[0].get(&["metadata", "finalizers"]),
        Some(&Tree::List(Vec::new()))
    );
}

#[test]
fn r27_a_paused_start_of_a_halted_machine_turns_it_on_and_starts_it_paused() {
    let mut vm = machine("a", RunStrategy::Halted);
    vm.status.requests = vec![Request::start(true)];
    let decision = on(&vm, None);
    assert_eq!(text(patches(&decision, Kind::Machine)[0], &["spec", "runStrategy"]), Some("Always"));
    vm.power = Power::Strategy(RunStrategy::Always);
    let decision = on(&vm, None);
    assert!(
        decision.actions.iter().any(|a| matches!(a, Action::Own(Own::CreateInstance { paused: true, .. })))
    );
}

#[test]
fn an_instance_of_the_same_name_that_belongs_to_nobody_is_left_alone() {
    let vm = machine("a", RunStrategy::Halted);
    let stranger = instance("a", Phase::Running);
    assert!(!stops(&on(&vm, Some(&stranger))));
}

#[test]
fn r44_r47_r48_after_the_guest_has_ended() {
    for (strategy, phase, goes) in [
        (RunStrategy::Always, Phase::Succeeded, true),
        (RunStrategy::Always, Phase::Failed, true),
        (RunStrategy::Once, Phase::Succeeded, false),
        (RunStrategy::Once, Phase::Failed, false),
        (RunStrategy::Manual, Phase::Succeeded, false),
    ] {
        let vm = machine("a", strategy);
        assert_eq!(stops(&on(&vm, Some(&boot(&vm, phase)))), goes, "{strategy} {phase:?}");
    }
}

#[test]
fn conditions_of_the_instance_are_seen_on_the_machine_and_go_with_it() {
    let mut vm = machine("a", RunStrategy::Always);
    let mut vmi = boot(&vm, Phase::Running);
    vmi.conditions =
        vec![Condition::new("LiveMigratable", true, "", ""), Condition::new("Ready", true, "", "")];
    let decision = on(&vm, Some(&vmi));
    let Some(Tree::List(list)) = status(&decision, "conditions") else { panic!("none") };
    assert!(list.iter().any(|condition| text(condition, &["type"]) == Some("LiveMigratable")));
    assert_eq!(status(&decision, "ready"), Some(&Tree::Bool(true)));
    assert_eq!(status(&decision, "printableStatus"), Some(&Tree::text("Running")));
    vm.status.conditions = vmi.conditions.clone();
    let Some(Tree::List(list)) = status(&on(&vm, None), "conditions").cloned() else { panic!("none") };
    assert_eq!(list.len(), 1, "only Ready is left: {list:?}");
}

#[test]
fn a_guest_that_has_arrived_is_not_shown_as_migrating_although_its_migration_is_still_to_be_closed() {
    let vm = machine("a", RunStrategy::Always);
    let mut vmi = boot(&vm, Phase::Running);
    let one = migration("m", &vmi, crate::machines::MigrationPhase::Running);
    let mut account = crate::machines::MigrationState { uid: one.uid.to_string(), ..Default::default() };
    account.started = true;
    let shown = |vmi: &Instance| {
        let index = view([(&vm).known(), vmi.known(), (&one).known()]);
        status(&decide(&index, &vm.key, now()), "printableStatus").cloned()
    };
    vmi.migration = Some(Box::new(account.clone()));
    assert_eq!(shown(&vmi), Some(Tree::text("Migrating")));
    (account.ended, account.completed) = (true, true);
    vmi.migration = Some(Box::new(account));
    assert_eq!(shown(&vmi), Some(Tree::text("Running")));
}

#[test]
fn nothing_is_done_for_a_machine_that_does_not_say_how_to_run() {
    let mut vm = machine("a", RunStrategy::Always);
    vm.power = Power::Unclear;
    let decision = on(&vm, None);
    assert!(!creates(&decision) && !stops(&decision));
}

#[test]
fn r20_a_creation_that_failed_is_said_on_the_machine() {
    let vm = machine("a", RunStrategy::Always);
    let mut index = view([(&vm).known()]);
    let subject = crate::machines::Subject::new(Kind::Machine, vm.key.clone());
    let trouble = crate::machines::Trouble { reason: "FailedCreate", message: "exceeded quota".into() };
    index.note(&subject, Some(trouble));
    let decision = decide(&index, &vm.key, now());
    let Some(Tree::List(list)) = status(&decision, "conditions") else { panic!("none") };
    let failure = list.iter().find(|one| text(one, &["type"]) == Some("Failure")).unwrap();
    assert_eq!(text(failure, &["message"]), Some("exceeded quota"));
}
