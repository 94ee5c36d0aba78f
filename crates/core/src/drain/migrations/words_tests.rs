//! What is said of guests while they wait: the scheduler's words stay, and who is in line is not forgotten.

use super::tests::{Case, guest};
use crate::cluster::fact::Fact;
use crate::cluster::fact::Pod;
use crate::drain::action::Action;
use crate::drain::explain::explain;
use crate::drain::run::End;
use crate::machines::{Condition, Instance, MigrationPhase};
use crate::testing::at;

fn said(case: &mut Case) -> Vec<String> {
    case.run.stop();
    case.step();
    match case.end() {
        Some(End::Stopped { blockers, to_leave, .. }) => {
            assert_eq!(to_leave.len(), case.index.pods_on("n").count(), "whoever is left is counted");
            blockers.iter().map(|blocker| explain(blocker, at(case.now))).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_words_of_the_scheduler_stay_when_the_migration_failed_for_them() {
    let vmi = guest("g");
    let mut case = Case::new(std::slice::from_ref(&vmi));
    let asked = case.cordoned();
    let [action @ Action::Migrate { .. }] = asked.actions.as_slice() else { panic!("{asked:?}") };
    let made = case.carry_out(action);
    case.step();
    let made = case.enter(&made, MigrationPhase::Scheduling);
    let mut copy: Pod = crate::machines::testing::target(&vmi, &made, "");
    copy.guest().conditions =
        vec![Condition::new("PodScheduled", false, "Unschedulable", "0/3 nodes are available")];
    case.seen(Fact::Pod(Box::new(copy)));
    case.step();
    case.now += 300;
    case.enter(&made, MigrationPhase::Failed);
    let told = case.step();
    let failed = told.events.iter().find_map(|event| match event {
        crate::drain::step::Event::MoveFailed { message, .. } => Some(message.clone()),
        _ => None,
    });
    assert_eq!(failed.as_deref(), Some("its copy found no place: 0/3 nodes are available"));
    let [sentence] = said(&mut case).try_into().unwrap();
    assert!(
        sentence.contains("its copy has no place") && sentence.contains("0/3 nodes are available"),
        "{sentence}"
    );
    assert!(sentence.contains("To do: make room on another node"), "{sentence}");
}

#[test]
fn a_drain_that_is_stopped_counts_guests_in_line_and_guests_not_asked_yet() {
    let guests: Vec<Instance> = (0..6).map(|n| guest(&format!("g{n}"))).collect();
    let mut case = Case::new(&guests);
    let made = case.asked_for();
    assert_eq!(made.len(), 4);
    for running in &made[..2] {
        case.enter(running, MigrationPhase::Running);
    }
    let sentences = said(&mut case);
    let with = |words: &str| sentences.iter().filter(|sentence| sentence.contains(words)).count();
    assert_eq!(sentences.len(), 6);
    assert_eq!(with("is being live-migrated"), 2);
    assert_eq!(with("waits in line to be live-migrated"), 2);
    assert_eq!(with("2 of at most 2 from node n are under way"), 2);
    assert_eq!(with("has not been asked to leave yet"), 2);
}
