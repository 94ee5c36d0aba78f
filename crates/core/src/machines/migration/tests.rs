use super::*;
use crate::cluster::fact::Fact;
use crate::cluster::fact::Phase;
use crate::cluster::fact::{PodPhase, Uid};
use crate::machines::action::{Action, Job, Kind, Own};
use crate::machines::line::{self, backoff, under_way};
use crate::machines::slots::{Ledger, Slot};
use crate::machines::testing;
use crate::machines::testing::{Known, deletes, events, instance, later, launcher, now, patches, text, view};

fn running(name: &str) -> Instance {
    instance(name, Phase::Running)
}

fn job(name: &str, of: &Instance, phase: MigrationPhase) -> Migration {
    testing::migration(name, of, phase)
}

/// An instance that runs on n1 with its launcher, and this migration of it.
fn scene(vmi: &Instance, migration: &Migration, more: Vec<Fact>) -> Index {
    let pod = launcher(vmi, "n1");
    view([vmi.known(), (&pod).known(), migration.known()].into_iter().chain(more))
}

fn slot(of: &Migration, node: &str) -> Slot {
    Slot { uid: of.uid.clone(), migration: of.key.clone(), node: node.into() }
}

fn ledger(slots: Vec<Slot>) -> Ledger {
    Ledger { version: "1".into(), slots }
}

fn takes_slot(decision: &Decision) -> bool {
    decision.actions.iter().any(|action| action.slot().is_some())
}

/// Creates a target that needs no slot any more.
fn creates(decision: &Decision) -> bool {
    let of = |job: &Option<Job>| job.as_ref().is_some_and(|job| job.slot.is_none());
    decision
        .actions
        .iter()
        .any(|action| matches!(action, Action::Own(Own::CreateLauncher { job, .. }) if of(job)))
}

fn phase(decision: &Decision) -> Option<&str> {
    patches(decision, Kind::Migration).into_iter().find_map(|fields| text(fields, &["status", "phase"]))
}

fn state(of: &Migration) -> MigrationState {
    MigrationState {
        uid: of.uid.to_string(),
        source_node: "n1".into(),
        target_node: "n2".into(),
        target_pod: "t".into(),
        ..MigrationState::default()
    }
}

#[test]
fn m01_a_pending_migration_first_takes_a_slot_and_then_creates_the_target() {
    let vmi = running("a");
    let m = job("m", &vmi, MigrationPhase::Pending);
    let mut index = scene(&vmi, &m, vec![]);
    let decision = decide(&index, &m.key, now());
    assert!(takes_slot(&decision) && !creates(&decision));
    index.enter(ledger(vec![slot(&m, "n1")]));
    let decision = decide(&index, &m.key, now());
    assert!(creates(&decision) && !takes_slot(&decision));
}

#[test]
fn m02_two_active_pods_hold_it_back() {
    let vmi = running("a");
    let m = job("m", &vmi, MigrationPhase::Pending);
    let mut second = launcher(&vmi, "n3");
    second.key.name = format!("{}x", second.key.name).into();
    second.uid = Uid("second".into());
    let decision = decide(&scene(&vmi, &m, vec![(&second).known()]), &m.key, now());
    assert!(!takes_slot(&decision));
}

#[test]
fn m03_to_m07_the_limits_of_cluster_and_node_hold_it_back() {
    let vmi = running("a");
    let m = job("m", &vmi, MigrationPhase::Pending);
    let other = running("b");
    let busy: Vec<Migration> = (0..5)
        .map(|n| {
            let mut one = job(&format!("busy-{n}"), &other, MigrationPhase::Running);
            one.instance.name = format!("other-{n}").into();
            one
        })
        .collect();
    let with = |nodes: &[&str]| {
        let mut index = scene(&vmi, &m, busy.iter().take(nodes.len()).map(Known::known).collect());
        index.enter(ledger(busy.iter().zip(nodes).map(|(one, node)| slot(one, node)).collect()));
        takes_slot(&decide(&index, &m.key, now()))
    };
    assert!(with(&["x", "x", "y", "y"]), "four in the cluster leave room");
    assert!(!with(&["x", "x", "y", "y", "z"]), "five do not");
    assert!(with(&["n1"]), "one leaving the node leaves room");
    assert!(!with(&["n1", "n1"]), "two do not");
}

#[test]
fn entries_of_finished_migrations_do_not_count() {
    let vmi = running("a");
    let m = job("m", &vmi, MigrationPhase::Pending);
    let over: Vec<Migration> =
        (0..5).map(|n| job(&format!("over-{n}"), &running("b"), MigrationPhase::Succeeded)).collect();
    let mut index = scene(&vmi, &m, over.iter().map(Known::known).collect());
    index.enter(ledger(over.iter().map(|one| slot(one, "x")).collect()));
    assert!(takes_slot(&decide(&index, &m.key, now())));
}

#[test]
fn a_slot_is_free_as_soon_as_the_agents_say_that_nothing_is_copied_any_more() {
    let vmi = running("a");
    let m = job("m", &vmi, MigrationPhase::Pending);
    let busy: Vec<(Instance, Migration)> = (0..2)
        .map(|n| {
            let mut other = running(&format!("b{n}"));
            let one = job(&format!("busy-{n}"), &other, MigrationPhase::Running);
            other.migration = Some(Box::new(MigrationState { started: true, ..state(&one) }));
            (other, one)
        })
        .collect();
    let known = busy.iter().flat_map(|(vmi, one)| [vmi.known(), one.known()]).collect();
    let mut index = scene(&vmi, &m, known);
    index.enter(ledger(busy.iter().map(|(_, one)| slot(one, "n1")).collect()));
    assert!(!takes_slot(&decide(&index, &m.key, now())));
    assert_eq!(under_way(&index).len(), 2);
    for over in [MigrationState { ended: true, ..state(&busy[0].1) }, MigrationState::default()] {
        let mut arrived = busy[0].0.clone();
        arrived.version = "2".into();
        let is_about_it = !over.uid.is_empty();
        arrived.migration = Some(Box::new(MigrationState { completed: true, ..over }));
        let mut index = index.clone();
        index.take_line_moved();
        index.apply((&arrived).known());
        assert!(index.take_line_moved());
        let called = line::called(&index, now());
        assert_eq!(called.iter().any(|subject| subject.key == m.key), is_about_it);
        assert_eq!(
            takes_slot(&decide(&index, &m.key, now())),
            is_about_it,
            "only the account of this one counts"
        );
    }
}

#[test]
fn a_target_without_a_phase_about_it_occupies_a_slot() {
    let vmi = running("a");
    let m = job("m", &vmi, MigrationPhase::Pending);
    assert!(under_way(&scene(&vmi, &m, vec![])).is_empty());
    let cold = testing::target(&vmi, &m, "");
    assert_eq!(under_way(&scene(&vmi, &m, vec![(&cold).known()])), [slot(&m, "n1")]);
}

#[test]
fn m10_the_target_pod_moves_it_on_and_its_readiness_further() {
    let vmi = running("a");
    let m = job("m", &vmi, MigrationPhase::Pending);
    let cold = testing::target(&vmi, &m, "");
    let decision = decide(&scene(&vmi, &m, vec![(&cold).known()]), &m.key, later(1));
    assert_eq!((phase(&decision), decision.look_again), (None, Some(later(2))), "it may pass at once");
    let decision = decide(&scene(&vmi, &m, vec![(&cold).known()]), &m.key, later(2));
    assert_eq!(phase(&decision), Some("Scheduling"));
    let mut placeless = cold.clone();
    placeless.guest().conditions = vec![Condition::new("PodScheduled", false, "Unschedulable", "")];
    let decision = decide(&scene(&vmi, &m, vec![(&placeless).known()]), &m.key, later(1));
    assert_eq!(phase(&decision), Some("Scheduling"), "this will not pass at once");
    let noted = job("m", &vmi, MigrationPhase::Scheduling);
    let decision = decide(&scene(&vmi, &noted, vec![(&cold).known()]), &m.key, later(2));
    assert_eq!(phase(&decision), None);
    for m in [m, noted] {
        let warm = testing::target(&vmi, &m, "n2");
        let decision = decide(&scene(&vmi, &m, vec![(&warm).known()]), &m.key, later(1));
        assert_eq!(events(&decision), ["SuccessfulHandOver"]);
    }
}

#[test]
fn a_target_is_not_given_up_before_that_it_exists_is_written() {
    let vmi = running("a");
    let m = job("m", &vmi, MigrationPhase::Pending);
    let cold = testing::target(&vmi, &m, "");
    let decision = decide(&scene(&vmi, &m, vec![(&cold).known()]), &m.key, later(1000));
    assert!(deletes(&decision, Kind::Pod).is_empty());
    assert_eq!(phase(&decision), Some("Scheduling"));
}

#[test]
fn m11_m12_m13_m14_a_target_that_stays_pending_is_deleted_in_time() {
    let vmi = running("a");
    let mut m = job("m", &vmi, MigrationPhase::Scheduling);
    let mut pod = testing::target(&vmi, &m, "");
    let check = |m: &Migration, pod: &Pod, seconds: i64| {
        let decision = decide(&scene(&vmi, m, vec![pod.known()]), &m.key, later(seconds));
        !deletes(&decision, Kind::Pod).is_empty()
    };
    assert!(!check(&m, &pod, 899));
    assert!(check(&m, &pod, 900));
    pod.guest().conditions = vec![Condition::new("PodScheduled", false, "Unschedulable", "")];
    assert!(!check(&m, &pod, 290));
    assert!(check(&m, &pod, 300));
    m.annotations.insert(names::UNSCHEDULABLE_TIMEOUT.into(), "10".into());
    assert!(check(&m, &pod, 10));
    pod.node = Some("n2".into());
    assert!(!check(&m, &pod, 1000));
}

#[test]
fn a_target_without_a_place_gives_way_also_to_those_who_come_later() {
    let config = crate::machines::Config { parallel_outbound_per_node: 1, ..Default::default() };
    let (vmi, other) = (running("a"), running("b"));
    let m = automatic("m", &vmi, MigrationPhase::Scheduling, 0);
    let mut pod = testing::target(&vmi, &m, "");
    pod.guest().conditions = vec![Condition::new("PodScheduled", false, "Unschedulable", "")];
    let mut index = scene(&vmi, &m, vec![(&pod).known(), (&other).known()]);
    index.configure(config);
    index.enter(ledger(vec![slot(&m, "n1")]));
    assert!(deletes(&decide(&index, &m.key, later(3)), Kind::Pod).is_empty(), "nobody waits");
    let newcomer = job("late", &other, MigrationPhase::Pending);
    let touched = index.apply((&newcomer).known());
    assert!(touched.contains(&crate::machines::Subject::new(Kind::Migration, m.key.clone())));
    assert!(!deletes(&decide(&index, &m.key, later(3)), Kind::Pod).is_empty());
}

#[test]
fn m18_the_five_newest_finished_ones_are_kept() {
    let vmi = running("a");
    let mut all: Vec<Migration> = (0..7)
        .map(|n| {
            let mut one = job(&format!("m{n}"), &vmi, MigrationPhase::Failed);
            one.created = Some(later(n));
            one
        })
        .collect();
    all.push(job("live", &vmi, MigrationPhase::Pending));
    let index = scene(&vmi, &all[7], all[..7].iter().map(Known::known).collect());
    let decision = decide(&index, &all[6].key, later(60));
    assert_eq!(deletes(&decision, Kind::Migration), ["m1", "m0"]);
}

#[test]
fn m19_m20_m21_ends_elsewhere_end_the_migration() {
    let vmi = running("a");
    for at in [MigrationPhase::Pending, MigrationPhase::Scheduling, MigrationPhase::Running] {
        let mut over = vmi.clone();
        let m = job("m", &vmi, at);
        over.migration = Some(Box::new(state(&m)));
        over.phase = Phase::Succeeded;
        let warm = testing::target(&vmi, &m, "n2");
        let decision = decide(&scene(&over, &m, vec![(&warm).known()]), &m.key, now());
        assert_eq!(phase(&decision), Some("Failed"), "instance over at {at:?}");
        assert_eq!(events(&decision), ["FailedMigration"]);

        let mut ended = warm.clone();
        ended.phase = PodPhase::Failed;
        let decision = decide(&scene(&vmi, &m, vec![(&ended).known()]), &m.key, now());
        assert_eq!(phase(&decision), Some("Failed"), "target over at {at:?}");
    }
    let m = job("m", &vmi, MigrationPhase::Running);
    let mut reported = vmi.clone();
    reported.migration = Some(Box::new(MigrationState { failed: true, ..state(&m) }));
    let warm = testing::target(&vmi, &m, "n2");
    let decision = decide(&scene(&reported, &m, vec![(&warm).known()]), &m.key, now());
    assert_eq!(phase(&decision), Some("Failed"));
}

#[test]
fn m22_m23_m24_the_hand_over_happens_once_and_replaces_older_state() {
    let mut vmi = running("a");
    let m = job("m", &vmi, MigrationPhase::Scheduling);
    vmi.migration = Some(Box::new(MigrationState {
        uid: "older".into(),
        completed: true,
        target_node: "n1".into(),
        ..state(&m)
    }));
    let warm = testing::target(&vmi, &m, "n2");
    let decision = decide(&scene(&vmi, &m, vec![(&warm).known()]), &m.key, now());
    assert_eq!(phase(&decision), None);
    let fields = patches(&decision, Kind::Instance)[0];
    assert_eq!(text(fields, &["status", "migrationState", "migrationUid"]), Some("uid-m"));
    assert_eq!(text(fields, &["status", "migrationState", "targetNode"]), Some("n2"));
    assert_eq!(fields.get(&["status", "migrationState", "completed"]), Some(&Tree::null()));

    vmi.migration = Some(Box::new(state(&m)));
    let decision = decide(&scene(&vmi, &m, vec![(&warm).known()]), &m.key, now());
    assert!(decision.actions.is_empty());
    let decision = decide(&scene(&vmi, &m, vec![(&warm).known()]), &m.key, later(2));
    assert!(patches(&decision, Kind::Instance).is_empty());
    assert_eq!(phase(&decision), Some("PreparingTarget"));

    let mut cold = warm.clone();
    cold.guest().up = false;
    vmi.migration = None;
    let decision = decide(&scene(&vmi, &m, vec![(&cold).known()]), &m.key, now());
    assert!(patches(&decision, Kind::Instance).is_empty());
}

#[test]
fn phases_follow_the_node_agents_and_m25_a_hotplug_change_keeps_it_running() {
    let mut vmi = running("a");
    let mut m = job("m", &vmi, MigrationPhase::PreparingTarget);
    let warm = testing::target(&vmi, &m, "n2");
    let step = |m: &Migration, vmi: &Instance| {
        let decision = decide(&scene(vmi, m, vec![(&warm).known()]), &m.key, later(2));
        phase(&decision).map(str::to_owned)
    };
    vmi.migration = Some(Box::new(state(&m)));
    assert_eq!(step(&m, &vmi), None);
    vmi.migration = Some(Box::new(MigrationState { target_address: "10.0.0.2".into(), ..state(&m) }));
    assert_eq!(step(&m, &vmi).as_deref(), Some("TargetReady"));
    m.phase = MigrationPhase::TargetReady;
    assert_eq!(step(&m, &vmi), None);
    vmi.migration = Some(Box::new(MigrationState { started: true, ..state(&m) }));
    assert_eq!(step(&m, &vmi).as_deref(), Some("Running"));
    m.phase = MigrationPhase::Running;
    vmi.migration =
        Some(Box::new(MigrationState { started: true, ended: true, completed: true, ..state(&m) }));
    assert_eq!(step(&m, &vmi).as_deref(), Some("Succeeded"));
    vmi.hotplug_change = true;
    assert_eq!(step(&m, &vmi), None);
}

#[test]
fn steps_that_passed_at_once_are_in_the_account_with_the_time_of_the_first_that_was_written() {
    let mut vmi = running("a");
    let mut m = job("m", &vmi, MigrationPhase::Pending);
    m.phase_times = vec![("Pending".into(), seconds(now()).into())];
    vmi.migration = Some(Box::new(MigrationState { started: true, ..state(&m) }));
    let warm = testing::target(&vmi, &m, "n2");
    let decision = decide(&scene(&vmi, &m, vec![(&warm).known()]), &m.key, later(1));
    assert_eq!(phase(&decision), Some("Running"));
    let fields = patches(&decision, Kind::Migration)[0];
    let Some(Tree::List(times)) = fields.get(&["status", "phaseTransitionTimestamps"]) else {
        panic!("{fields:?}")
    };
    let names: Vec<_> = times.iter().filter_map(|entry| text(entry, &["phase"])).collect();
    assert_eq!(names, ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running"]);
    m.phase = MigrationPhase::Scheduling;
    m.phase_times.push(("Scheduling".into(), seconds(later(20)).into()));
    vmi.migration = Some(Box::new(state(&m)));
    let decision = decide(&scene(&vmi, &m, vec![(&warm).known()]), &m.key, later(21));
    assert_eq!((phase(&decision), decision.look_again), (None, Some(later(22))), "each step has its time");
}

#[test]
fn a_target_lost_after_the_hand_over_ends_it_whatever_was_written() {
    let mut vmi = running("a");
    let m = job("m", &vmi, MigrationPhase::Pending);
    vmi.migration = Some(Box::new(state(&m)));
    let decision = decide(&scene(&vmi, &m, vec![]), &m.key, now());
    assert_eq!(phase(&decision), Some("Failed"));
}

#[test]
fn m26_without_its_instance_a_migration_is_deleted_but_not_in_haste() {
    let vmi = running("a");
    let m = job("m", &vmi, MigrationPhase::Pending);
    let index = view([(&m).known()]);
    let early = decide(&index, &m.key, later(1));
    assert!(early.actions.is_empty());
    assert_eq!(early.look_again, Some(later(10)));
    assert_eq!(deletes(&decide(&index, &m.key, later(11)), Kind::Migration), ["m"]);
}

#[test]
fn m27_deleting_a_running_migration_asks_the_node_agent_to_abort() {
    let mut vmi = running("a");
    let mut m = job("m", &vmi, MigrationPhase::Running);
    m.deleting = true;
    vmi.migration = Some(Box::new(MigrationState { started: true, ..state(&m) }));
    let warm = testing::target(&vmi, &m, "n2");
    let first = decide(&scene(&vmi, &m, vec![(&warm).known()]), &m.key, now());
    assert!(patches(&first, Kind::Migration)[0].get(&["status", "conditions"]).is_some());
    m.conditions = vec![abort_condition()];
    let decision = decide(&scene(&vmi, &m, vec![(&warm).known()]), &m.key, now());
    let fields = patches(&decision, Kind::Instance)[0];
    assert_eq!(fields.get(&["status", "migrationState", "abortRequested"]), Some(&Tree::Bool(true)));
    assert_eq!(events(&decision), ["SuccessfulAbortMigration"]);
}

#[test]
fn m28_deleting_it_before_the_hand_over_fails_it_and_its_target_goes() {
    let vmi = running("a");
    let mut m = job("m", &vmi, MigrationPhase::Scheduling);
    m.deleting = true;
    let warm = testing::target(&vmi, &m, "n2");
    let decision = decide(&scene(&vmi, &m, vec![(&warm).known()]), &m.key, now());
    assert_eq!(phase(&decision), Some("Failed"));
    assert!(patches(&decision, Kind::Migration)[0].get(&["status", "conditions"]).is_some());
    m.phase = MigrationPhase::Failed;
    let decision = decide(&scene(&vmi, &m, vec![(&warm).known()]), &m.key, now());
    assert_eq!(deletes(&decision, Kind::Pod), std::slice::from_ref(&warm.key.name));
    assert_eq!(
        patches(&decision, Kind::Migration)[0].get(&["metadata", "finalizers"]),
        Some(&Tree::List(Vec::new()))
    );
}

#[test]
fn m29_a_target_lost_before_the_start_ends_the_instances_account_of_it() {
    let mut vmi = running("a");
    let m = job("m", &vmi, MigrationPhase::Failed);
    vmi.migration = Some(Box::new(state(&m)));
    let decision = decide(&scene(&vmi, &m, vec![]), &m.key, now());
    let fields = patches(&decision, Kind::Instance)[0];
    assert_eq!(fields.get(&["status", "migrationState", "failed"]), Some(&Tree::Bool(true)));
    assert_eq!(fields.get(&["status", "migrationState", "completed"]), Some(&Tree::Bool(true)));
    assert_eq!(text(fields, &["status", "migrationState", "failureReason"]), Some("Target pod is down"));
}

fn automatic(name: &str, vmi: &Instance, phase: MigrationPhase, at: i64) -> Migration {
    let mut one = job(name, vmi, phase);
    one.created = Some(later(at));
    one.annotations.insert(names::EVACUATION_MIGRATION.into(), "n1".into());
    if phase == MigrationPhase::Failed {
        one.phase_times = vec![("Failed".into(), seconds(later(at + 5)).into())];
    }
    one
}

#[test]
fn m32_m33_m34_automatic_migrations_wait_after_failures() {
    let vmi = running("a");
    let failed = automatic("m0", &vmi, MigrationPhase::Failed, 0);
    let next = automatic("m1", &vmi, MigrationPhase::Pending, 6);
    let index = scene(&vmi, &next, vec![(&failed).known()]);
    let decision = decide(&index, &next.key, later(7));
    assert!(!takes_slot(&decision));
    assert_eq!(events(&decision), ["MigrationBackoff"]);
    assert_eq!(decision.look_again, Some(later(25)));
    assert!(takes_slot(&decide(&index, &next.key, later(25))));

    let mut by_hand = next.clone();
    by_hand.annotations.clear();
    let index = scene(&vmi, &by_hand, vec![(&failed).known()]);
    assert!(takes_slot(&decide(&index, &by_hand.key, later(7))));

    let succeeded = automatic("m05", &vmi, MigrationPhase::Succeeded, 5);
    let index = scene(&vmi, &next, vec![(&failed).known(), (&succeeded).known()]);
    assert!(takes_slot(&decide(&index, &next.key, later(7))));

    let twice = automatic("m01", &vmi, MigrationPhase::Failed, 3);
    let index = scene(&vmi, &next, vec![(&failed).known(), (&twice).known()]);
    assert_eq!(backoff(&index, &next), Some(later(8 + 40)));
}

#[test]
fn after_many_failures_a_migration_waits_no_longer_than_kubevirt_would() {
    let vmi = running("a");
    let failed: Vec<Migration> =
        (0..9).map(|at| automatic(&format!("m{at}"), &vmi, MigrationPhase::Failed, at * 400)).collect();
    let next = automatic("next", &vmi, MigrationPhase::Pending, 9 * 400);
    let machines = scene(&vmi, &next, failed.iter().map(Known::known).collect());
    assert_eq!(backoff(&machines, &next), Some(later(8 * 400 + 5 + 320)));
}

#[test]
fn a_new_migration_is_labelled_and_held_before_it_is_accepted() {
    let vmi = running("a");
    let mut m = job("m", &vmi, MigrationPhase::Unset);
    m.labelled = false;
    m.finalizers.clear();
    let decision = decide(&scene(&vmi, &m, vec![]), &m.key, now());
    let fields = patches(&decision, Kind::Migration)[0];
    assert_eq!(text(fields, &["metadata", "labels", names::MIGRATION_SELECTOR]), Some("a"));
    let m = job("m", &vmi, MigrationPhase::Unset);
    let decision = decide(&scene(&vmi, &m, vec![]), &m.key, now());
    assert_eq!(phase(&decision), Some("Pending"));
}

#[test]
fn m44_a_target_over_quota_waits_and_says_so_until_there_is_room() {
    let vmi = running("a");
    let mut m = job("m", &vmi, MigrationPhase::Pending);
    let mut index = scene(&vmi, &m, vec![]);
    index.enter(ledger(vec![slot(&m, "n1")]));
    let subject = crate::machines::Subject::new(Kind::Migration, m.key.clone());
    let trouble = crate::machines::Trouble { reason: "FailedCreate", message: "exceeded quota: q".into() };
    index.note(&subject, Some(trouble));
    let decision = decide(&index, &m.key, now());
    assert!(creates(&decision), "it keeps trying");
    assert!(patches(&decision, Kind::Migration)[0].get(&["status", "conditions"]).is_some());
    m.conditions = vec![Condition::new(OVER_QUOTA, true, "FailedCreate", "")];
    let cold = testing::target(&vmi, &m, "");
    let decision = decide(&scene(&vmi, &m, vec![(&cold).known()]), &m.key, now());
    let fields = patches(&decision, Kind::Migration)[0];
    assert_eq!(fields.get(&["status", "conditions"]), Some(&Tree::List(Vec::new())));
}

#[test]
fn when_a_slot_becomes_free_only_those_are_looked_at_whose_turn_it_is_or_who_hold_one() {
    let guests: Vec<Instance> = (0..40).map(|n| running(&format!("vm-{n:02}"))).collect();
    let jobs: Vec<Migration> = guests
        .iter()
        .enumerate()
        .map(|(n, vmi)| {
            let phase = if n < 2 { MigrationPhase::Running } else { MigrationPhase::Pending };
            job(&format!("m-{n:02}"), vmi, phase)
        })
        .collect();
    let pods = guests.iter().map(|vmi| (&launcher(vmi, "n1")).known());
    let mut index = view(pods.chain(guests.iter().map(Known::known)).chain(jobs.iter().map(Known::known)));
    index.enter(ledger(jobs[..2].iter().map(|one| slot(one, "n1")).collect()));
    let called = |index: &Index| -> Vec<String> {
        line::called(index, now()).into_iter().map(|subject| subject.key.name.into()).collect()
    };
    assert!(index.take_line_moved());
    assert_eq!(called(&index), ["m-00", "m-01"], "the node is full");
    assert!(!index.take_line_moved(), "nothing has happened since");

    let mut arrived = guests[0].clone();
    arrived.version = "2".into();
    arrived.migration = Some(Box::new(MigrationState { ended: true, ..state(&jobs[0]) }));
    index.apply((&arrived).known());
    assert!(index.take_line_moved());
    assert_eq!(called(&index), ["m-00", "m-01", "m-02"]);

    index.enter(Ledger { version: "2".into(), slots: vec![slot(&jobs[1], "n1"), slot(&jobs[2], "n1")] });
    assert!(index.take_line_moved());
    assert_eq!(called(&index), ["m-01", "m-02"]);

    index.configure(crate::machines::Config { parallel_outbound_per_node: 3, ..Default::default() });
    assert!(index.take_line_moved());
    assert_eq!(called(&index), ["m-01", "m-02", "m-03"]);
    index.apply(Fact::MigrationGone(jobs[3].key.clone(), jobs[3].uid.clone()));
    assert!(index.take_line_moved());
    assert_eq!(called(&index), ["m-01", "m-02", "m-04"]);
}

#[test]
fn whose_turn_it_is_matters_to_those_who_wait_for_a_slot_only() {
    let vmi = running("a");
    for (phase, held, expected) in [
        (MigrationPhase::Pending, false, true),
        (MigrationPhase::Pending, true, false),
        (MigrationPhase::Unset, false, false),
        (MigrationPhase::Running, false, false),
    ] {
        let m = job("m", &vmi, phase);
        let mut index = scene(&vmi, &m, vec![]);
        index.enter(ledger(held.then(|| slot(&m, "n1")).into_iter().collect()));
        assert_eq!(line::waits(&index, &m.key), expected, "{phase:?} {held}");
    }
}
