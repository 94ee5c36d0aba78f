//! Drains of nodes with guests, driven by hand.

use crate::action::{Asker, Outcome};
use crate::cluster::fact::{Fact, Key, Pod, PodPhase, Uid};
use crate::cluster::index::ListedAt;
use crate::cluster::index::{Index, Sight};
use crate::cluster::selector::Selector;
use crate::cluster::tenant::TenantProgress;
use crate::drain::action::{Action, Own};
use crate::drain::assess::{Fate, assess};
use crate::drain::check::{Violation, check};
use crate::drain::ownership::MarkState;
use crate::drain::policy::{DryRun, Policy};
use crate::drain::run::{End, Run};
use crate::drain::step::{Event, Step, step};
use crate::machines::testing::{boot, instance, machine, migration};
use crate::machines::{
    Condition, Instance, Kind, Migration, MigrationPhase, MigrationState, Phase, RunStrategy, names,
};
use crate::tenants::Marks;
use crate::testing::{at, budget, index, pod};

/// A running guest on node `n` that can be moved.
pub(crate) fn guest(name: &str) -> Instance {
    let mut vmi = boot(&machine(name, RunStrategy::Always), Phase::Running);
    vmi.node = "n".into();
    vmi.eviction_strategy = Some("LiveMigrate".into());
    vmi.conditions = vec![Condition::new("LiveMigratable", true, "", "")];
    vmi
}

fn stiff(name: &str) -> Instance {
    let mut vmi = guest(name);
    vmi.conditions =
        vec![Condition::new("LiveMigratable", false, "DisksNotLiveMigratable", "PVC root is not shared")];
    vmi
}

pub(crate) fn launcher(of: &Instance) -> Pod {
    let mut pod = pod(&format!("virt-launcher-{}", of.key.name))
        .with_empty_dir()
        .owned_by("VirtualMachineInstance", "kubevirt.io/v1", &of.key.name)
        .running(&of.key.name, &of.uid.0);
    pod.controller.as_mut().unwrap().uid = of.uid.clone();
    pod
}

pub(crate) struct Case {
    pub index: Index,
    pub policy: Policy,
    pub run: Run,
    pub now: i64,
}

impl Case {
    pub fn new(guests: &[Instance]) -> Self {
        let mut index = index(guests.iter().map(launcher).collect(), Vec::new());
        index.set_sight(Sight::Clear);
        let guests = guests.iter().map(|vmi| Fact::Instance(Box::new(vmi.clone()))).collect();
        index.reset(Kind::Instance, guests, &ListedAt::default());
        let run = Run::new("me", Vec::new(), ["n".to_owned()]);
        Self { index, policy: Policy::default(), run, now: 0 }
    }

    pub fn step(&mut self) -> Step {
        let step = step(&self.index, &self.policy, &mut self.run, at(self.now));
        assert_eq!(check(&self.index, &step.actions), []);
        step
    }

    pub fn later(&mut self, seconds: i64) -> Step {
        self.now += seconds;
        self.step()
    }

    /// The migrations that are there once those are asked for, too, that only wait in line.
    pub fn asked_for(&mut self) -> Vec<Migration> {
        let steps = [self.cordoned(), self.later(1)];
        let moves = steps.iter().flat_map(|step| &step.actions);
        let moves = moves.filter(|action| matches!(action, Action::Migrate { .. }));
        moves.map(|action| self.carry_out(action)).collect()
    }

    pub fn cordoned(&mut self) -> Step {
        let first = self.step();
        let [action @ Action::Cordon { node, mark, .. }] = first.actions.as_slice() else {
            panic!("{first:?}")
        };
        let mut changed = self.index.node(node).unwrap().clone();
        changed.unschedulable = true;
        changed.mark = Some(MarkState::Valid(mark.clone()));
        self.index.apply(Fact::Node(Box::new(changed)));
        self.run.record(&self.index, action, Outcome::Done, at(self.now));
        self.step()
    }

    pub fn seen(&mut self, seen: Fact) {
        self.index.apply(seen);
    }

    /// The server carries out a migration that was asked for.
    pub fn carry_out(&mut self, action: &Action) -> Migration {
        let Action::Migrate { instance, name, node, asker: Asker::Drain { owner, .. }, .. } = action else {
            panic!("{action:?}")
        };
        let vmi = self.index.instance(instance).unwrap().clone();
        let mut made = migration(name, &vmi, MigrationPhase::Unset);
        made.created = Some(at(self.now));
        made.annotations = [
            (names::EVACUATION_MIGRATION.to_owned(), node.clone()),
            (names::DRAIN.to_owned(), owner.clone()),
        ]
        .into();
        self.seen(Fact::Migration(Box::new(made.clone())));
        self.run.record(&self.index, action, Outcome::Done, at(self.now));
        made
    }

    pub fn enter(&mut self, migration: &Migration, phase: MigrationPhase) -> Migration {
        let mut next = self.index.migration(&migration.key).unwrap().clone();
        next.phase = phase;
        next.phase_times.push((phase.text().into(), at(self.now).to_string().into()));
        next.version = (next.version.parse::<u64>().unwrap() + 1).to_string();
        self.seen(Fact::Migration(Box::new(next.clone())));
        next
    }

    pub fn end(&self) -> Option<&End> {
        self.run.nodes[0].end()
    }
}

pub(crate) fn moved(step: &Step) -> Vec<&str> {
    step.actions
        .iter()
        .filter_map(|action| match action {
            Action::Migrate { instance, .. } => Some(instance.name.as_str()),
            _ => None,
        })
        .collect()
}

pub(crate) fn codes(step: &Step) -> Vec<&'static str> {
    step.events
        .iter()
        .filter_map(|event| match event {
            Event::Waiting { blocker, .. } => Some(blocker.reason.code()),
            _ => None,
        })
        .collect()
}

fn verdict(vmi: &Instance, change: impl FnOnce(&mut Index, &mut Policy)) -> (Fate, Vec<&'static str>) {
    let mut case = Case::new(std::slice::from_ref(vmi));
    change(&mut case.index, &mut case.policy);
    let verdict = assess(&case.index, &case.policy, "n", at(0)).verdicts.remove(0);
    (verdict.fate, verdict.reasons.iter().map(crate::reasons::Reason::code).collect())
}

#[test]
fn a_guest_leaves_by_its_strategy_and_needs_no_flags_of_pods() {
    let says = |strategy: &str, vmi: Instance| {
        verdict(&Instance { eviction_strategy: Some(strategy.into()), ..vmi }, |index, _| {
            index.apply(Fact::Machine(Box::new(machine("a", RunStrategy::Always))));
        })
    };
    assert_eq!(says("LiveMigrate", guest("a")), (Fate::Migrate, vec!["VmMigrates"]));
    assert_eq!(says("LiveMigrate", stiff("a")), (Fate::Blocked, vec!["VmStuck"]));
    assert_eq!(says("LiveMigrateIfPossible", guest("a")), (Fate::Migrate, vec!["VmMigrates"]));
    assert_eq!(says("LiveMigrateIfPossible", stiff("a")), (Fate::Evict, vec!["VmShutDown"]));
    assert_eq!(says("None", guest("a")), (Fate::Evict, vec!["VmShutDown"]));
    assert_eq!(says("External", guest("a")), (Fate::Evict, vec!["VmExternal"]));
    let mut told = guest("a");
    told.evacuation_node = Some("n".into());
    assert_eq!(says("External", told), (Fate::Follow, vec!["VmHandedOver"]));
}

#[test]
fn what_would_not_come_back_is_refused_unless_allowed() {
    let vmi = Instance { eviction_strategy: Some("None".into()), ..guest("a") };
    for (strategy, fate) in [
        (RunStrategy::Always, Fate::Evict),
        (RunStrategy::RerunOnFailure, Fate::Blocked),
        (RunStrategy::Once, Fate::Blocked),
        (RunStrategy::Manual, Fate::Blocked),
    ] {
        let told = verdict(&vmi, |index, _| {
            index.apply(Fact::Machine(Box::new(machine("a", strategy))));
        });
        assert_eq!(told.0, fate, "{strategy}");
    }
    assert_eq!(verdict(&vmi, |_, _| {}), (Fate::Blocked, vec!["VmStaysOff"]), "its machine was not read");
    assert_eq!(verdict(&vmi, |_, policy| policy.allow_shutdown = true).0, Fate::Evict);
    let plain = Instance { owner: None, ..vmi };
    assert_eq!(verdict(&plain, |_, _| {}), (Fate::Blocked, vec!["VmStaysOff"]));
}

#[test]
fn what_is_not_known_is_waited_for_and_what_may_not_be_read_is_refused() {
    let mut fresh = guest("a");
    fresh.conditions.clear();
    let soft = Instance { eviction_strategy: Some("LiveMigrateIfPossible".into()), ..fresh.clone() };
    let booting = Instance { phase: Phase::Scheduled, ..guest("a") };
    let leaving = Instance { deleting: true, ..guest("a") };
    for unsettled in [&fresh, &soft, &booting, &leaving] {
        assert_eq!(verdict(unsettled, |_, _| {}), (Fate::Follow, vec!["VmSettling"]));
    }
    let elsewhere = Instance { node: "m".into(), ..guest("a") };
    assert_eq!(verdict(&elsewhere, |_, _| {}).0, Fate::Follow, "the pod of a migration's target");
    let blind = verdict(&guest("a"), |index, _| index.set_sight(Sight::Denied("no".into())));
    assert_eq!(blind, (Fate::Blocked, vec!["VmUnreadable"]));
    let absent = verdict(&guest("a"), |index, _| index.set_sight(Sight::Absent));
    assert_eq!(
        absent,
        (Fate::Blocked, vec!["LocalStorage"]),
        "a pod like others where nobody knows machines"
    );
}

#[test]
fn without_eviction_guests_are_moved_all_the_same_and_none_is_shut_down() {
    let off = |vmi: &Instance| verdict(vmi, |_, policy| policy.disable_eviction = true);
    assert_eq!(off(&guest("a")).0, Fate::Migrate);
    for strategy in ["None", "External"] {
        let vmi = Instance { eviction_strategy: Some(strategy.into()), ..guest("a") };
        assert_eq!(off(&vmi), (Fate::Blocked, vec!["VmUnprotected"]));
    }
}

#[test]
fn a_finished_launcher_is_cleared_away_unless_it_is_all_that_tells_how_its_guest_ended() {
    let ended = |change: &dyn Fn(&mut Index)| {
        verdict(&guest("a"), |index, _| {
            index.apply(Fact::Pod(Box::new(launcher(&guest("a")).in_phase(PodPhase::Succeeded))));
            change(index);
        })
    };
    assert_eq!(ended(&|_| {}), (Fate::Follow, vec!["VmSettling"]), "KubeVirt has not read it yet");
    let cleared = (Fate::Evict, vec!["Finished"]);
    let over = Instance { phase: Phase::Succeeded, version: "2".into(), ..guest("a") };
    assert_eq!(ended(&|index| drop(index.apply(Fact::Instance(Box::new(over.clone()))))), cleared);
    let gone = || Fact::InstanceGone(guest("a").key, guest("a").uid);
    assert_eq!(ended(&|index| drop(index.apply(gone()))), cleared, "it lives elsewhere or not at all");
    // After a round trip it lives here again, in another pod.
    let mut back = launcher(&guest("a"));
    back.key.name = format!("{}-2", back.key.name).into();
    back.uid = Uid(format!("{}-2", back.uid).into());
    assert_eq!(ended(&|index| drop(index.apply(Fact::Pod(Box::new(back.clone()))))), cleared);
}

#[test]
fn what_is_left_of_a_guest_makes_way_for_those_who_are_still_to_be_moved() {
    let guests = [guest("a"), guest("b")];
    let mut case = Case::new(&guests);
    let made = case.asked_for();
    case.enter(&made[0], MigrationPhase::Running);
    case.step();
    case.seen(Fact::InstanceGone(guests[0].key.clone(), guests[0].uid.clone()));
    case.index.apply(Fact::Pod(Box::new(launcher(&guests[0]).in_phase(PodPhase::Succeeded))));
    let evicts = |step: &Step| step.actions.iter().any(|action| matches!(action, Action::Evict { .. }));
    let first = case.step();
    assert!(!evicts(&first));
    assert_eq!(first.look_again, Some(at(case.now + 2)));
    let later = case.later(2);
    assert!(evicts(&later));
    assert!(later.events.iter().any(|event| matches!(event, Event::Evicting { finished: true, .. })));
    assert!(
        !later.events.iter().any(|event| matches!(event, Event::Left { .. })),
        "its guest has been told of"
    );
}

#[test]
fn the_largest_go_first_and_no_more_are_started_than_twice_what_can_run() {
    let guests: Vec<Instance> =
        (0..7).map(|n| Instance { memory: 1 << (20 + n), ..guest(&format!("g{n}")) }).collect();
    let mut case = Case::new(&guests);
    let first = case.cordoned();
    assert_eq!(moved(&first), ["g6", "g5"]);
    assert_eq!(moved(&case.step()), [] as [&str; 0], "those who only wait in line have time");
    let ahead = case.later(1);
    assert_eq!(moved(&ahead), ["g4", "g3"]);
    assert_eq!(moved(&case.later(1)), [] as [&str; 0], "the answers are awaited");
    let asked = first.actions.iter().chain(&ahead.actions);
    let made: Vec<Migration> = asked.map(|action| case.carry_out(action)).collect();
    assert_eq!(moved(&case.later(1)), [] as [&str; 0]);
    case.enter(&made[0], MigrationPhase::Running);
    case.enter(&made[1], MigrationPhase::Running);
    assert_eq!(moved(&case.step()), [] as [&str; 0]);
    // The first has arrived: the watch of this node's instances says that it is gone from here.
    case.enter(&made[0], MigrationPhase::Succeeded);
    case.seen(Fact::InstanceGone(guests[6].key.clone(), guests[6].uid.clone()));
    assert_eq!(moved(&case.step()), [] as [&str; 0]);
    assert_eq!(moved(&case.later(1)), ["g2"]);
}

#[test]
fn more_are_started_where_more_run_than_the_settings_say() {
    let guests: Vec<Instance> = (0..9).map(|n| guest(&format!("g{n}"))).collect();
    let mut case = Case::new(&guests);
    let made = case.asked_for();
    for one in &made {
        case.enter(one, MigrationPhase::Running);
    }
    case.step();
    assert_eq!(moved(&case.later(1)).len(), 2, "four run at once, so two more wait for their turn");
}

#[test]
fn a_guest_that_somebody_else_moves_is_only_waited_for() {
    let vmi = guest("a");
    let mut case = Case::new(std::slice::from_ref(&vmi));
    case.seen(Fact::Migration(Box::new(migration("theirs", &vmi, MigrationPhase::Running))));
    assert_eq!(moved(&case.cordoned()), [] as [&str; 0]);
    let none = Instance { eviction_strategy: Some("None".into()), ..vmi.clone() };
    case.seen(Fact::Instance(Box::new(Instance { version: "2".into(), ..none })));
    assert!(case.later(1).actions.is_empty(), "not even one without a strategy is cut off on its way");
}

#[test]
fn a_move_is_told_from_its_phases_to_its_new_node() {
    let vmi = guest("a");
    let mut case = Case::new(std::slice::from_ref(&vmi));
    let first = case.cordoned();
    assert!(first.events.iter().any(|event| matches!(event, Event::Moving { attempt: 1, .. })));
    let made = case.carry_out(&first.actions[0]);
    let fresh = case.step();
    assert!(
        !fresh.events.iter().any(|event| matches!(event, Event::MovePhase { phase, .. } if phase.is_empty())),
        "a migration that nobody has looked at has no phase to tell: {fresh:?}"
    );
    case.enter(&made, MigrationPhase::Running);
    let mut moving = Instance { version: "2".into(), ..vmi.clone() };
    moving.migration = Some(Box::new(MigrationState {
        uid: made.uid.to_string(),
        target_node: "m".into(),
        ..MigrationState::default()
    }));
    case.seen(Fact::Instance(Box::new(moving)));
    let running = case.later(2);
    assert!(
        running
            .events
            .iter()
            .any(|event| matches!(event, Event::MovePhase { phase, .. } if phase == "Running")),
        "{running:?}"
    );
    case.seen(Fact::InstanceGone(vmi.key.clone(), vmi.uid.clone()));
    assert!(case.later(1).actions.is_empty(), "its pod is still stopping");
    case.index.apply(Fact::Pod(Box::new(launcher(&vmi).in_phase(PodPhase::Succeeded))));
    let last = case.later(1);
    let told = last.events.iter().find_map(|event| match event {
        Event::Moved { instance, to, seconds, .. } => Some((instance.name.as_str(), to.as_str(), *seconds)),
        _ => None,
    });
    assert_eq!(told, Some(("a", "m", 4)));
    let [clears @ Action::Evict { .. }] = last.actions.as_slice() else { panic!("{:?}", last.actions) };
    case.run.record(&case.index, clears, Outcome::Done, at(case.now));
    let pod = launcher(&vmi);
    case.index.apply(Fact::PodGone(pod.key, pod.uid));
    let last = case.later(1);
    assert!(matches!(last.actions.as_slice(), [Action::Own(Own::Prove { .. })]), "{:?}", last.actions);
    assert!(!last.events.iter().any(|event| matches!(event, Event::Left { .. })), "its guest was told of");
}

#[test]
fn the_budget_of_a_guest_that_has_moved_is_not_named_while_its_pod_stops() {
    let vmi = guest("a");
    let mut case = Case::new(std::slice::from_ref(&vmi));
    let mut everything = crate::testing::budget("guard");
    everything.selector = crate::cluster::selector::Selector::everything();
    everything.min_available = Some(crate::cluster::fact::Amount::Count(1000));
    (everything.expected, everything.current_healthy, everything.desired_healthy) = (1, 1, 1000);
    case.index.reset_budgets(vec![everything], &ListedAt::default());
    let first = case.cordoned();
    let made = case.carry_out(&first.actions[0]);
    case.step();
    case.enter(&made, MigrationPhase::Running);
    case.later(2);
    let made = case.enter(&made, MigrationPhase::Succeeded);
    assert!(made.phase.is_final());
    case.seen(Fact::InstanceGone(vmi.key.clone(), vmi.uid.clone()));
    let told = case.later(1);
    assert!(!told.events.iter().any(|event| matches!(event, Event::Waiting { .. })), "{:?}", told.events);
}

#[test]
fn a_failed_move_is_told_once_tried_again_after_its_pause_and_given_up_after_five() {
    let vmi = guest("a");
    let mut case = Case::new(std::slice::from_ref(&vmi));
    let mut next = case.cordoned();
    let mut names = Vec::new();
    for (failures, pause) in [(1, 20), (2, 40), (3, 80), (4, 160)] {
        assert_eq!(moved(&next), ["a"], "try {failures}");
        let made = case.carry_out(&next.actions[0]);
        names.push(made.key.name.clone());
        case.now += 1;
        case.enter(&made, MigrationPhase::Failed);
        let told = case.step();
        assert!(
            told.events.iter().any(
                |event| matches!(event, Event::MoveFailed { failures: n, retry_at: Some(at_), .. } if *n == failures && *at_ == at(case.now + pause))
            ),
            "{told:?}"
        );
        assert_eq!(told.look_again, Some(at(case.now + 3)), "when it is named");
        assert_eq!(moved(&case.later(pause - 1)), [] as [&str; 0]);
        next = case.later(1);
    }
    names.dedup();
    assert_eq!(names.len(), 4, "each try has a name of its own");
    let made = case.carry_out(&next.actions[0]);
    case.now += 1;
    case.enter(&made, MigrationPhase::Failed);
    let told = case.step();
    assert_eq!(codes(&told), ["VmMoveGivenUp"]);
    assert_eq!(case.end(), None);
    case.later(5);
    assert!(
        matches!(case.end(), Some(End::Blocked { blockers }) if blockers[0].reason.code() == "VmMoveGivenUp")
    );
}

#[test]
fn refusals_of_a_migration_are_told_apart() {
    let denied = |text: &str| Outcome::Webhook { webhook: "w".into(), message: text.into() };
    for (outcome, retries, code) in [
        (Outcome::Conflict { message: "exists".into() }, true, "VmMoveRefused"),
        (denied("in-flight migration detected"), true, "VmMoveRefused"),
        (Outcome::Server { status: 500, message: "EOF".into() }, true, "VmMoveRefused"),
        (Outcome::Forbidden { message: "no".into() }, false, "VmMoveForbidden"),
    ] {
        let mut case = Case::new(&[guest("a")]);
        let first = case.cordoned();
        case.run.record(&case.index, &first.actions[0], outcome.clone(), at(0));
        let told = case.later(0);
        assert!(told.actions.is_empty(), "{outcome:?}");
        let next = case.later(3);
        assert_eq!(moved(&next) == ["a"], retries, "{outcome:?}");
        if !retries {
            assert!(
                matches!(case.end(), Some(End::Failed { reason, .. }) if reason.code() == code),
                "{:?}",
                case.end()
            );
        }
    }
}

#[test]
fn a_copy_without_a_place_is_named_in_time_and_gives_way_to_others() {
    let guests: Vec<Instance> = (0..6).map(|n| guest(&format!("g{n}"))).collect();
    let mut case = Case::new(&guests);
    let made = case.asked_for();
    case.step();
    let stuck = case.enter(&made[0], MigrationPhase::Scheduling);
    assert_eq!(case.step().look_again, Some(at(4)));
    let looks = case.later(3);
    let [read @ Action::Own(Own::ReadLaunchers { .. })] = looks.actions.as_slice() else {
        panic!("{looks:?}")
    };
    let mut pod: Pod = crate::machines::testing::target(&guests[0], &stuck, "");
    let mut why = Condition::new("PodScheduled", false, "Unschedulable", "0/3 nodes are available");
    why.status = "False".into();
    pod.guest().conditions = vec![why];
    case.seen(Fact::Pod(Box::new(pod)));
    case.run.record(&case.index, read, Outcome::Done, at(4));
    let gives_way = case.step();
    assert_eq!(codes(&gives_way), ["VmNoPlace"]);
    assert!(
        gives_way
            .actions
            .iter()
            .any(|action| matches!(action, Action::Delete { object, .. } if object.key == stuck.key)),
        "{gives_way:?}"
    );
}

#[test]
fn a_pod_that_an_earlier_migration_left_is_named_as_what_the_next_one_waits_for() {
    let mut vmi = guest("g");
    let mut stray: Pod =
        crate::machines::testing::target(&vmi, &migration("earlier", &vmi, MigrationPhase::Failed), "m");
    vmi.active_pods = [(launcher(&vmi).uid.0, "n".to_owned()), (stray.uid.0.clone(), "m".to_owned())].into();
    let begin = || {
        let mut case = Case::new(std::slice::from_ref(&vmi));
        let asked = case.cordoned();
        let [action] = asked.actions.as_slice() else { panic!("{asked:?}") };
        let made = case.carry_out(action);
        case.enter(&made, MigrationPhase::Pending);
        case.step();
        let looks = case.later(3);
        assert!(matches!(looks.actions.as_slice(), [Action::Own(Own::ReadLaunchers { .. })]), "{looks:?}");
        case
    };
    let mut case = begin();
    case.seen(Fact::Pod(Box::new(stray.clone())));
    case.step();
    assert_eq!(codes(&case.later(3)), ["VmPodLeft"]);
    let mut alone = vmi.clone();
    alone.active_pods.remove(&stray.uid.0);
    case.seen(Fact::Instance(Box::new(alone)));
    assert_eq!(codes(&case.later(10)), Vec::<&str>::new(), "it waits for its turn, which is nothing to tell");

    // The source of an earlier move stays as long as anybody wants to read its log, and holds nothing up.
    stray.phase = PodPhase::Succeeded;
    let mut case = begin();
    case.seen(Fact::Pod(Box::new(stray)));
    case.step();
    assert_eq!(codes(&case.later(5)), Vec::<&str>::new());
}

#[test]
fn who_waits_behind_others_is_not_looked_into() {
    let guests: Vec<Instance> = (0..4)
        .map(|n| {
            let mut vmi = guest(&format!("g{n}"));
            vmi.active_pods = [(launcher(&vmi).uid.0, "n".to_owned()), ("old".into(), "m".to_owned())].into();
            vmi
        })
        .collect();
    let mut case = Case::new(&guests);
    let made: Vec<Migration> = case.cordoned().actions.iter().map(|action| case.carry_out(action)).collect();
    case.step();
    for one in &made[..2] {
        case.enter(one, MigrationPhase::Running);
    }
    case.step();
    let later = case.later(20);
    assert!(
        !later.actions.iter().any(|action| matches!(action, Action::Own(Own::ReadLaunchers { .. }))),
        "{later:?}"
    );
}

#[test]
fn a_trial_asks_for_every_migration_once_and_changes_nothing() {
    let guests: Vec<Instance> = (0..6).map(|n| guest(&format!("g{n}"))).collect();
    let mut case = Case::new(&guests);
    case.policy.dry_run = DryRun::Server;
    let first = case.step();
    case.run.record(&case.index, &first.actions[0], Outcome::Done, at(0));
    let asked = case.step();
    assert_eq!(moved(&asked).len(), 6);
    for action in &asked.actions {
        assert!(matches!(action, Action::Migrate { dry_run: true, .. }));
        case.run.record(&case.index, action, Outcome::Done, at(0));
    }
    case.step();
    assert!(
        matches!(case.end(), Some(End::Rehearsed { blockers }) if blockers.is_empty()),
        "{:?}",
        case.end()
    );
}

#[test]
fn the_second_opinion_never_lets_a_guest_be_shut_down_that_has_to_be_moved() {
    let evict = |vmi: &Instance| Action::Evict {
        object: (&launcher(vmi)).into(),
        grace_seconds: None,
        dry_run: false,
    };
    let found = |vmi: &Instance, known: bool| {
        let mut case = Case::new(if known { std::slice::from_ref(vmi) } else { &[] });
        case.index.apply(Fact::Pod(Box::new(launcher(vmi))));
        let mut node = case.index.node("n").unwrap().clone();
        node.unschedulable = true;
        case.index.apply(Fact::Node(Box::new(node)));
        check(&case.index, &[evict(vmi)])
    };
    let broken = vec![Violation::MachineShutDown(Key::new("default", "virt-launcher-a"))];
    assert_eq!(found(&guest("a"), true), broken);
    assert_eq!(found(&stiff("a"), true), broken);
    assert_eq!(found(&guest("a"), false), broken, "nothing is known of it");
    let none = Instance { eviction_strategy: Some("None".into()), ..instance("a", Phase::Running) };
    assert_eq!(found(&none, true), []);
}

#[test]
fn the_owner_of_an_external_guest_is_told_although_a_budget_guards_it() {
    let mut case = Case::new(&[Instance { eviction_strategy: Some("External".into()), ..guest("a") }]);
    let mut guard = budget("guard");
    guard.selector = Selector::everything();
    case.index.apply(Fact::Budget(Box::new(guard)));
    let step = case.cordoned();
    assert!(matches!(step.actions.as_slice(), [Action::Evict { .. }]), "{step:?}");
    // One that is shut down is guarded like any pod.
    let mut other = Case::new(&[Instance { eviction_strategy: Some("None".into()), ..guest("a") }]);
    other.policy.allow_shutdown = true;
    let mut guard = budget("guard");
    guard.selector = Selector::everything();
    other.index.apply(Fact::Budget(Box::new(guard)));
    assert!(other.cordoned().actions.is_empty());
}

#[test]
fn what_a_tenant_does_is_told_when_it_changes() {
    let progress = |left, blocker: Option<&str>| TenantProgress {
        cluster: "blue".into(),
        node: "worker-1".into(),
        left: Some(left),
        total: Some(3),
        blocker: blocker.map(Into::into),
        deadline: at(600),
    };
    let handed = |version: &str, progress: TenantProgress| Instance {
        eviction_strategy: Some("External".into()),
        evacuation_node: Some("n".into()),
        version: version.into(),
        tenant: Some(Box::new(Marks { progress: Some(progress), ..Marks::default() })),
        ..guest("a")
    };
    let told = |step: &Step| -> Vec<String> {
        let events = step.events.iter();
        let of = |event: &Event| match event {
            Event::Tenant { tenant, .. } => {
                Some(format!("{} {}", tenant.words(), tenant.blocker().unwrap_or_default()))
            }
            _ => None,
        };
        events.filter_map(of).collect()
    };
    let mut case = Case::new(&[handed("1", progress(3, None))]);
    assert_eq!(told(&case.cordoned()), ["node worker-1 of cluster blue has 3 of 3 pods left "]);
    assert!(told(&case.later(1)).is_empty());
    case.seen(Fact::Instance(Box::new(handed("2", progress(2, Some("pod x waits\u{1b}[2J"))))));
    let step = case.later(1);
    assert_eq!(told(&step), ["node worker-1 of cluster blue has 2 of 3 pods left pod x waits [2J"]);
    let named = case.later(5);
    assert_eq!(codes(&named), ["VmHandedOver"]);
}

#[test]
fn where_the_drain_taint_asks_the_control_plane_too_both_want_the_same_name() {
    let mut case = Case::new(&[guest("a")]);
    let mut node = case.index.node("n").unwrap().clone();
    node.taints = vec![crate::testing::taint("kubevirt.io/drain", "NoSchedule")];
    case.index.apply(Fact::Node(Box::new(node)));
    let sent = case.cordoned();
    let [Action::Migrate { name, uid, .. }] = sent.actions.as_slice() else { panic!("{:?}", sent.actions) };
    assert_eq!(*name, crate::machines::names::evacuation("a", &uid.0, "first"));
}
