//! Two movers and one guest.

use crate::cluster::fact::{Fact, Node};
use crate::drain::action::Action;
use crate::drain::migrations::tests::{Case, codes, guest, moved};
use crate::drain::ownership::Attire;
use crate::drain::run::Run;
use crate::drain::step::{Event, Step};
use crate::machines::beside::Upstream;
use crate::machines::testing::migration;
use crate::machines::{Config, Instance, Migration, MigrationPhase, names};
use crate::testing::taint;

fn beside_kubevirt() -> Config {
    let upstream = Upstream { phase: "Deployed".into(), ..Upstream::default() };
    Config { upstream, ..Config::default() }
}

/// Two guests on node `n` beside KubeVirt's own control plane.
fn case() -> (Vec<Instance>, Case) {
    let guests = vec![guest("a"), guest("b")];
    let mut case = Case::new(&guests);
    case.index.configure(beside_kubevirt());
    (guests, case)
}

fn taint_node(case: &mut Case) {
    let mut node: Node = case.index.node("n").unwrap().clone();
    node.taints = vec![taint("kubevirt.io/drain", "NoSchedule")];
    case.index.apply(Fact::Node(Box::new(node)));
}

/// What KubeVirt's evacuation controller creates.
fn evacuation(vmi: &Instance, case: &mut Case) -> Migration {
    let mut made = migration(&format!("kubevirt-evacuation-{}", vmi.key.name), vmi, MigrationPhase::Pending);
    made.annotations = [(names::EVACUATION_MIGRATION.to_owned(), "n".to_owned())].into();
    case.seen(Fact::Migration(Box::new(made.clone())));
    made
}

fn aborted(step: &Step) -> Vec<&str> {
    let aborts = step.actions.iter().filter_map(|action| match action {
        Action::Delete { object, .. } => Some(object.key.name.as_str()),
        _ => None,
    });
    aborts.collect()
}

#[test]
fn guests_of_a_node_with_the_drain_taint_are_left_to_kubevirt() {
    let (guests, mut case) = case();
    taint_node(&mut case);
    assert!(moved(&case.cordoned()).is_empty());
    let made = evacuation(&guests[0], &mut case);
    let adopts = case.step();
    assert!(moved(&adopts).is_empty());
    assert!(
        adopts
            .events
            .iter()
            .any(|event| matches!(event, Event::Adopted { migration, .. } if *migration == made.key.name)),
        "{adopts:?}"
    );
    // b has no migration although there is room: the evacuation controller gets some time.
    assert!(codes(&case.later(9)).is_empty());
    let late = case.later(5);
    assert_eq!(codes(&late), ["VmKubeVirtIdle"]);
    assert!(moved(&late).is_empty(), "never beside it");
}

#[test]
fn a_taint_that_we_wrote_counts_although_we_do_not_see_it_yet() {
    let (_, mut case) = case();
    case.run = Run::new("me", Vec::new(), []);
    let attire = Attire { taints: vec![taint("kubevirt.io/drain", "NoSchedule")], ..Attire::default() };
    case.run.admit("n".into(), attire);
    assert!(moved(&case.cordoned()).is_empty());
}

#[test]
fn a_guest_with_the_mark_of_an_eviction_is_left_to_kubevirt_and_the_others_are_ours() {
    let (mut guests, mut case) = case();
    guests[0].evacuation_node = Some("n".into());
    guests[0].version = "2".into();
    case.seen(Fact::Instance(Box::new(guests[0].clone())));
    assert_eq!(moved(&case.cordoned()), ["b"]);
}

#[test]
fn without_kubevirts_control_plane_the_taint_changes_nothing() {
    let (_, mut case) = case();
    case.index.configure(Config::default());
    taint_node(&mut case);
    assert_eq!(moved(&case.cordoned()), ["a", "b"]);
}

#[test]
fn of_two_migrations_the_one_that_has_not_begun_is_called_off() {
    let (guests, mut case) = case();
    let first = case.cordoned();
    assert_eq!(moved(&first), ["a"], "one after another");
    let ours = case.carry_out(&first.actions[0]);
    let theirs = evacuation(&guests[0], &mut case);
    assert_eq!(aborted(&case.step()), [ours.key.name.as_str()], "what others created stays");

    let (guests, mut case) = self::case();
    let first = case.cordoned();
    let ours = case.carry_out(&first.actions[0]);
    let ours = case.enter(&ours, MigrationPhase::Running);
    evacuation(&guests[0], &mut case);
    assert_eq!(aborted(&case.step()), [theirs.key.name.as_str()], "ours is under way");
    assert_eq!(ours.phase, MigrationPhase::Running);

    let (guests, mut case) = self::case();
    let first = case.cordoned();
    let ours = case.carry_out(&first.actions[0]);
    case.enter(&ours, MigrationPhase::Running);
    let asked = migration("by-ann", &guests[0], MigrationPhase::Pending);
    case.seen(Fact::Migration(Box::new(asked)));
    assert!(aborted(&case.step()).is_empty(), "a person asked for it");
}

#[test]
fn migrations_are_handed_to_kubevirt_one_after_another_and_none_to_wait_in_line() {
    let guests: Vec<Instance> = (0..4).map(|n| guest(&format!("g{n}"))).collect();
    let mut case = Case::new(&guests);
    case.index.configure(beside_kubevirt());
    let first = case.cordoned();
    assert_eq!(moved(&first), ["g0"]);
    let ours = case.carry_out(&first.actions[0]);
    assert!(moved(&case.later(1)).is_empty(), "virt-controller has not begun with it");
    case.enter(&ours, MigrationPhase::Pending);
    assert!(moved(&case.later(1)).is_empty());
    let ours = case.enter(&ours, MigrationPhase::Scheduling);
    let second = case.step();
    assert_eq!(moved(&second), ["g1"]);
    let other =
        second.actions.iter().find(|action| matches!(action, Action::Migrate { .. })).unwrap().clone();
    let other = case.carry_out(&other);
    case.enter(&other, MigrationPhase::Running);
    assert!(moved(&case.later(1)).is_empty(), "two slots");
    case.enter(&ours, MigrationPhase::Succeeded);
    assert_eq!(moved(&case.step()), ["g2"], "the slot that became free");
}

#[test]
fn what_others_have_waiting_in_line_does_not_keep_ours_from_a_free_slot() {
    let (_, mut case) = case();
    for n in 0..9 {
        let mut elsewhere = guest(&format!("other-{n}"));
        elsewhere.node = "m".into();
        let waiting = migration(&format!("theirs-{n}"), &elsewhere, MigrationPhase::Pending);
        case.seen(Fact::Migration(Box::new(waiting)));
    }
    assert_eq!(moved(&case.cordoned()), ["a"]);
}
