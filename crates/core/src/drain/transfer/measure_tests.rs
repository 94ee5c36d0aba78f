//! When agents are asked, and what is believed of what they say.

use std::time::Duration;

use super::*;
use crate::cluster::fact::{Fact, Key};
use crate::drain::migrations::tests::{Case, guest};
use crate::drain::outlook::Unknown;
use crate::machines::{Instance, MigrationState};
use crate::testing::{at, budget, pod};

const MIB: u64 = 1 << 20;

fn handler() -> Pod {
    agent_named("virt-handler-1")
}

fn agent_named(name: &str) -> Pod {
    pod(name).owned_by("DaemonSet", "apps/v1", "virt-handler").labelled("kubevirt.io", "virt-handler")
}

/// Node `n` with an agent; its guests are being copied from the second 10 on.
fn copying(guests: &[Instance], pods: Vec<Pod>) -> Case {
    let mut case = Case::new(guests);
    case.policy.measure = Some(Duration::from_secs(5));
    case.policy.ignore_daemonsets = true;
    for pod in pods {
        if let Some(set) = pod.daemon_set() {
            case.index.apply(Fact::DaemonSet(set, crate::cluster::fact::Existence::Found));
        }
        case.index.apply(Fact::Pod(Box::new(pod)));
    }
    let made = case.asked_for();
    case.later(9);
    for (migration, vmi) in made.iter().zip(guests) {
        begin(&mut case, migration, vmi, 10);
    }
    case.step();
    case
}

/// The memory is being copied since then, by the clock of the node.
fn begin(case: &mut Case, migration: &Migration, vmi: &Instance, start: i64) {
    case.enter(migration, MigrationPhase::Running);
    let state = MigrationState {
        uid: migration.uid.to_string(),
        started: true,
        target_node: "m".into(),
        start: at(start).to_string(),
        ..MigrationState::default()
    };
    let known = case.index.instance(&vmi.key).unwrap().clone();
    let version = (known.version.parse::<u64>().unwrap_or(0) + 1).to_string();
    case.seen(Fact::Instance(Box::new(Instance { migration: Some(Box::new(state)), version, ..known })));
}

fn reading(step: &Step) -> Option<Action> {
    let mut readings =
        step.actions.iter().filter(|one| matches!(one, Action::Own(Own::ReadTransfers { .. })));
    let first = readings.next().cloned();
    assert!(readings.next().is_none(), "{step:?}");
    first
}

fn answer(case: &mut Case, action: &Action, outcome: Outcome) {
    case.run.record(&case.index, action, outcome, at(case.now));
}

fn says(case: &mut Case, name: &str, seconds: i64, processed: u64, remaining: u64) {
    let sample = Sample {
        at: Some(at(seconds)),
        processed: processed * MIB,
        remaining: remaining * MIB,
        total: None,
        rate: Some(100 * MIB),
        dirty_rate: Some(0),
    };
    case.index.apply(Fact::Transfers([(Key::new("default", name), sample)].into()));
}

fn told(step: &Step) -> Vec<(u32, u16)> {
    let copied = |event: &Event| match event {
        Event::Copying { attempt, copied, .. } => Some((*attempt, copied.share.percent())),
        _ => None,
    };
    step.events.iter().filter_map(copied).collect()
}

#[test]
fn an_agent_is_asked_while_memory_is_copied_and_once_at_a_time() {
    let mut case = copying(&[guest("a"), guest("b")], vec![handler()]);
    let begun = case.step();
    assert_eq!((reading(&begun), begun.look_again), (None, Some(at(12))));
    let action = reading(&case.later(2)).expect("due two seconds after it began");
    let Action::Own(Own::ReadTransfers { node, pod, .. }) = &action else { panic!("{action:?}") };
    assert_eq!((node.as_str(), pod.name.as_str()), ("n", "virt-handler-1"));
    assert_eq!(reading(&case.later(60)), None, "the first has not been answered");
    answer(&mut case, &action, Outcome::Done);
    let again = reading(&case.step()).expect("long due");
    answer(&mut case, &again, Outcome::Done);
    let idle = case.later(1);
    assert_eq!((reading(&idle), idle.look_again), (None, Some(at(77))));
    assert!(reading(&case.later(4)).is_some());
}

#[test]
fn nobody_is_asked_for_nothing() {
    let asked = |change: &dyn Fn(&mut Case), pods: Vec<Pod>| {
        let mut case = copying(&[guest("a")], pods);
        change(&mut case);
        reading(&case.later(30)).is_some()
    };
    assert!(asked(&|_| {}, vec![handler()]));
    assert!(!asked(&|case| case.policy.measure = None, vec![handler()]));
    assert!(!asked(&|case| case.run.stop(), vec![handler()]));
    assert!(!asked(&|_| {}, vec![]));
    assert!(!asked(&|_| {}, vec![handler().owned_by("ReplicaSet", "apps/v1", "web")]));
    assert!(!asked(&|_| {}, vec![handler().deleting(60, 30)]));
    assert!(!asked(&|_| {}, vec![handler().in_phase(PodPhase::Pending)]));
    let back_to = |phase| {
        move |case: &mut Case| {
            let one = case.index.migrations().next().unwrap().clone();
            case.enter(&one, phase);
        }
    };
    assert!(!asked(&back_to(MigrationPhase::TargetReady), vec![handler()]));
    assert!(!asked(&back_to(MigrationPhase::Succeeded), vec![handler()]));
}

#[test]
fn a_refusal_ends_the_asking_and_a_failure_does_not() {
    let after = |outcome: Outcome| {
        let mut case = copying(&[guest("a")], vec![handler()]);
        let action = reading(&case.later(2)).unwrap();
        answer(&mut case, &action, outcome);
        assert_eq!(reading(&case.later(4)), None);
        let again = reading(&case.later(1)).is_some();
        // An agent that was replaced is another one.
        case.index.apply(Fact::Pod(Box::new(agent_named("virt-handler-2"))));
        (again, !again && reading(&case.later(1)).is_some())
    };
    assert_eq!(after(Outcome::Server { status: 503, message: String::new() }), (true, false));
    assert_eq!(after(Outcome::Unknown { message: String::new() }), (true, false));
    assert_eq!(after(Outcome::Forbidden { message: String::new() }), (false, false));
    assert_eq!(after(Outcome::Gone), (false, true));
}

#[test]
fn a_sample_is_told_once_and_one_of_an_earlier_attempt_never() {
    let mut case = copying(&[guest("a")], vec![handler()]);
    says(&mut case, "a", 8, 900, 100);
    assert_eq!(told(&case.step()), []);
    says(&mut case, "a", 12, 250, 750);
    assert_eq!(told(&case.step()), [(1, 25)]);
    assert_eq!(told(&case.step()), []);
    says(&mut case, "a", 17, 500, 500);
    assert_eq!(told(&case.step()), [(1, 50)]);

    let first = case.index.migrations().next().unwrap().clone();
    case.enter(&first, MigrationPhase::Failed);
    case.later(1);
    let retried = case.later(30);
    let [action @ Action::Migrate { .. }] = retried.actions.as_slice() else { panic!("{retried:?}") };
    let second = case.carry_out(action);
    case.later(1);
    begin(&mut case, &second, &guest("a"), 42);
    assert_eq!(told(&case.step()), [], "what is known is about the first");
    says(&mut case, "a", 44, 100, 900);
    assert_eq!(told(&case.step()), [(2, 10)]);
}

/// Guests, the range, and why there is none.
type Told = (usize, Option<u64>, Option<u64>, Option<Unknown>);

fn outlooks(step: &Step) -> Vec<Told> {
    let one = |event: &Event| match event {
        Event::Outlook { guests, at_least_seconds, at_most_seconds, unknown, .. } => {
            Some((*guests, *at_least_seconds, *at_most_seconds, *unknown))
        }
        _ => None,
    };
    step.events.iter().filter_map(one).collect()
}

fn large(name: &str) -> Instance {
    Instance { memory: 1000 * MIB, ..guest(name) }
}

/// The guest of a migration has arrived, and its pod here has ended.
fn arrives(case: &mut Case, migration: &Migration) {
    case.enter(migration, MigrationPhase::Succeeded);
    let launcher = Key::new("default", format!("virt-launcher-{}", migration.instance.name));
    let ended = case.index.pod(&launcher).unwrap().clone().in_phase(PodPhase::Succeeded);
    case.index.apply(Fact::Pod(Box::new(ended)));
}

#[test]
fn those_who_have_moved_are_a_measure_where_no_agent_can_be_asked() {
    let mut case = copying(&[large("a"), large("b"), large("c")], vec![]);
    assert_eq!(outlooks(&case.later(20)), []);
    let first = case.index.migrations().next().unwrap().clone();
    arrives(&mut case, &first);
    // It took 20 seconds to copy, and so long are the others being copied.
    let told = outlooks(&case.later(1));
    let [(2, Some(least), Some(most), None)] = told.as_slice() else { panic!("{told:?}") };
    assert!(*least <= 2 && (4..20).contains(most), "{told:?}");
}

#[test]
fn one_pod_that_can_never_leave_makes_the_time_unknown_and_not_a_range() {
    let mut case = copying(&[large("a"), large("b"), large("c")], vec![]);
    case.later(20);
    let first = case.index.migrations().next().unwrap().clone();
    arrives(&mut case, &first);
    assert!(matches!(outlooks(&case.later(1))[..], [(2, Some(_), Some(_), None)]));
    // It came meanwhile, and its budget wants all of its pods.
    let stuck = crate::cluster::fact::Budget { desired_healthy: 3, ..budget("stuck") };
    case.index.apply(Fact::Budget(Box::new(stuck)));
    case.index.apply(Fact::Pod(Box::new(pod("stuck-1").labelled("app", "stuck"))));
    assert_eq!(outlooks(&case.later(1)), [(2, None, None, Some(Unknown::Blocked))]);
    assert_eq!(outlooks(&case.later(1)), [], "told once");
}

#[test]
fn the_outlook_covers_those_who_wait_and_ends_when_a_guest_outruns_its_copy() {
    let guests: Vec<Instance> = ["a", "b", "c", "d", "e"].into_iter().map(large).collect();
    let mut case = copying(&guests, vec![handler()]);
    assert_eq!(outlooks(&case.later(3)), []);
    says(&mut case, "a", 13, 500, 500);
    // A whole guest takes ten seconds; four are on their way at once, and one waits.
    let told = outlooks(&case.later(1));
    let [(5, Some(least), Some(most), None)] = told.as_slice() else { panic!("{told:?}") };
    assert!((4..18).contains(least) && (18..30).contains(most), "{told:?}");
    assert_eq!(outlooks(&case.step()), []);
    let outruns = Sample {
        at: Some(at(18)),
        processed: 900 * MIB,
        remaining: 600 * MIB,
        rate: Some(MIB),
        dirty_rate: Some(MIB),
        total: None,
    };
    case.index.apply(Fact::Transfers([(Key::new("default", "a"), outruns)].into()));
    assert_eq!(outlooks(&case.later(5)), [(5, None, None, Some(Unknown::GuestOutrunsCopy))]);
}

#[test]
fn a_drain_without_an_end_foretells_the_time_left_and_asks_no_agent_for_it() {
    let mut case = copying(&[large("a"), large("b"), large("c")], vec![handler()]);
    (case.policy.measure, case.policy.standing) = (None, true);
    let surveyed = |case: &Case| {
        crate::drain::survey::survey(&case.index, &case.policy, &case.run, "n", at(case.now)).unwrap().end
    };
    assert_eq!(reading(&case.later(20)), None);
    assert_eq!(surveyed(&case), None, "nothing was measured");
    let first = case.index.migrations().next().unwrap().clone();
    arrives(&mut case, &first);
    let step = case.later(1);
    assert_eq!(reading(&step), None);
    let told = outlooks(&step);
    let [(2, Some(least), Some(most), None)] = told.as_slice() else { panic!("{told:?}") };
    let end = surveyed(&case).expect("it was told");
    let seconds = |until: Timestamp| until.duration_since(at(case.now)).as_secs_f64();
    assert_eq!(end.earliest.map(|earliest| seconds(earliest) as u64), Some(*least), "one judgement");
    assert_eq!(seconds(end.latest).ceil() as u64, *most);
    assert!(step.look_again.is_some(), "it is told anew although nothing happens");
}
