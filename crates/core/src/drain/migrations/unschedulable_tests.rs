//! Guests without a place, driven by hand.

use std::collections::BTreeMap;

use crate::action::Outcome;
use crate::cluster::fact::Fact;
use crate::cluster::place::{Place, Places, Wants};
use crate::drain::action::{Action, Own};
use crate::drain::migrations::tests::{Case, codes, guest, launcher, moved};
use crate::drain::run::End;
use crate::drain::step::Step;
use crate::machines::{Condition, Instance, Migration, MigrationPhase};
use crate::testing::at;

fn labels(host: &str) -> BTreeMap<String, String> {
    [("host".to_owned(), host.to_owned())].into()
}

/// These guests on node `n`, of which `pinned` can be nowhere else, and a second node.
fn case(guests: &[Instance], pinned: &[&str]) -> Case {
    let mut case = Case::new(guests);
    let wants = guests.iter().map(|vmi| {
        let selector = if pinned.contains(&vmi.key.name.as_str()) { labels("n") } else { BTreeMap::new() };
        (launcher(vmi).key, std::sync::Arc::new(Wants { selector, ..Wants::default() }))
    });
    let place = |host| Place { labels: labels(host), ..Place::default() };
    let nodes = ["n", "m"].map(|name| (name.to_owned(), place(name))).into();
    case.index.set_places(Places { nodes, wants: wants.collect(), companies: Vec::new() });
    case
}

fn guests(names: &[&str]) -> Vec<Instance> {
    names.iter().map(|name| guest(name)).collect()
}

fn aborted(step: &Step) -> Vec<&str> {
    let aborts = step.actions.iter().filter_map(|action| match action {
        Action::Delete { object, .. } => Some(object.key.name.as_str()),
        _ => None,
    });
    aborts.collect()
}

impl Case {
    /// The scheduler finds no node for the copy of a migration, and the drain reads that.
    fn finds_no_node(&mut self, vmi: &Instance, migration: &Migration) {
        let mut copy = crate::machines::testing::target(vmi, migration, "");
        let mut why = Condition::new("PodScheduled", false, "Unschedulable", "0/2 nodes are available");
        why.status = "False".into();
        copy.guest().conditions = vec![why];
        self.seen(Fact::Pod(Box::new(copy)));
    }

    fn answer_aborts(&mut self, step: &Step, outcome: &Outcome) {
        for action in step.actions.iter().filter(|action| matches!(action, Action::Delete { .. })) {
            self.run.record(&self.index, action, outcome.clone(), at(self.now));
        }
    }

    fn gone(&mut self, migration: &Migration) {
        self.seen(Fact::MigrationGone(migration.key.clone(), migration.uid.clone()));
    }
}

#[test]
fn a_guest_that_fits_nowhere_is_named_at_once_and_tried_when_no_other_guest_waits() {
    let all = guests(&["a", "b", "c"]);
    let mut case = case(&all, &["a"]);
    let first = case.cordoned();
    assert_eq!(moved(&first), ["b", "c"], "a goes last");
    assert_eq!(codes(&first), ["VmFitsNowhere"]);
    let made: Vec<Migration> = first.actions.iter().map(|action| case.carry_out(action)).collect();
    assert!(moved(&case.later(1)).is_empty(), "b and c hold no slot yet");
    for one in &made {
        case.enter(one, MigrationPhase::Running);
    }
    case.step();
    assert_eq!(moved(&case.later(1)), ["a"], "nobody is held up by it now");
}

#[test]
fn its_one_try_is_called_off_and_the_drain_ends_blocked_with_nothing_left() {
    let all = guests(&["a"]);
    let mut case = case(&all, &["a"]);
    let first = case.cordoned();
    assert_eq!(moved(&first), ["a"]);
    assert!(case.end().is_none(), "not before its try");
    let made = case.carry_out(&first.actions[0]);
    case.step();
    let made = case.enter(&made, MigrationPhase::Scheduling);
    case.step();
    let looks = case.later(1);
    assert!(matches!(looks.actions.as_slice(), [Action::Own(Own::ReadLaunchers { .. })]), "{looks:?}");
    case.finds_no_node(&all[0], &made);
    let calls_off = case.step();
    assert_eq!(aborted(&calls_off), [made.key.name.as_str()]);
    assert!(aborted(&case.later(1)).is_empty(), "once");
    case.answer_aborts(&calls_off, &Outcome::Done);
    case.gone(&made);
    for _ in 0..40 {
        assert!(moved(&case.later(10)).is_empty(), "one try");
    }
    let Some(End::Blocked { blockers }) = case.end() else { panic!("{:?}", case.end()) };
    assert!(blockers[0].reason.message().contains("only n matches its nodeSelector"), "{blockers:?}");
    assert!(case.run.is_over());
}

#[test]
fn a_drain_that_times_out_calls_off_what_nobody_copies_yet_and_waits_for_the_answer() {
    let all = guests(&["a", "b", "c"]);
    let mut case = case(&all, &[]);
    case.policy.timeout = Some(std::time::Duration::from_secs(60));
    let made = case.asked_for();
    case.enter(&made[0], MigrationPhase::Running);
    case.step();
    let ends = case.later(60);
    assert!(matches!(case.end(), Some(End::TimedOut { .. })), "{:?}", case.end());
    let mut names: Vec<&str> = made[1..].iter().map(|one| one.key.name.as_str()).collect();
    names.sort_unstable();
    let mut called = aborted(&ends);
    called.sort_unstable();
    assert_eq!(called, names, "the one that is being copied arrives");
    assert!(!case.run.is_over());
    case.answer_aborts(&ends, &Outcome::Server { status: 500, message: "no".into() });
    assert!(!case.run.is_over(), "it is asked again");
    let again = case.later(5);
    assert_eq!(aborted(&again).len(), 2);
    case.answer_aborts(&again, &Outcome::Forbidden { message: "you may not".into() });
    let told = case.step();
    assert_eq!(
        told.events.iter().filter(|event| format!("{event:?}").contains("VmMigrationLeft")).count(),
        2
    );
    assert!(case.run.is_over(), "what is left was named");
}
