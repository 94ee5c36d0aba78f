//! What is written on a node: put on again, taken off with its record, swept without an object, never trusted alone.

use super::*;
use crate::reasons::NodeReason;

#[test]
fn a_node_that_was_cordoned_before_stays_cordoned() {
    let mut case = Case::new(&["n"]);
    case.edit_node("n", |node| node.unschedulable = true);
    case = case.with(object("a", "n"));
    case.settle("a");
    case.drained("n");
    case.settle("a");
    case.edit("a", |object| object.deleting = true);
    case.settle("a");
    assert!(case.node("n").unschedulable);
    assert!(case.told.contains(&"KeptCordon"));
}

#[test]
fn an_uncordon_by_somebody_is_named_and_put_right_or_given_way_to() {
    for policy in [OnUncordon::Reapply, OnUncordon::Yield] {
        for ended in [true, false] {
            let mut case = begun();
            case.edit("a", |object| object.on_uncordon = policy);
            if ended {
                case.drained("n");
                case.settle("a");
            }
            case.edit_node("n", |node| node.unschedulable = false);
            if ended {
                case.drained("n");
            } else {
                let reason = Reason::Node(NodeReason::UncordonedMeanwhile);
                case.survey("n", Standing::Ended(End::Refused { reason }), &["p"]);
            }
            case.now += 70;
            case.settle("a");
            let status = case.status("a");
            match policy {
                OnUncordon::Reapply => {
                    assert!(case.told.contains(&"Uncordoned"));
                    assert!(case.node("n").unschedulable);
                }
                OnUncordon::Yield => {
                    assert_eq!(status.phase, Some(Phase::Failed));
                    assert!(status.says(YIELDED) && !case.node("n").unschedulable);
                    assert!(case.registry.order("n").is_none());
                }
            }
        }
    }
}

#[test]
fn those_who_fight_over_a_cordon_do_not_do_so_many_times_a_second() {
    let mut case = begun();
    let mut begins = 0;
    for _ in 0..100 {
        case.edit_node("n", |node| node.unschedulable = false);
        case.drained("n");
        let before = case.done.len();
        case.settle("a");
        begins += case.done[before..]
            .iter()
            .filter(|action| matches!(action, Action::Own(Own::Begin { .. })))
            .count();
        case.now += 1;
    }
    assert!(begins <= 7, "{begins}");
}

#[test]
fn an_old_view_of_the_node_is_not_taken_for_an_uncordon() {
    let mut case = begun();
    case.edit("a", |object| object.on_uncordon = OnUncordon::Yield);
    let before = Node { unschedulable: false, mark: None, ..case.node("n").clone() };
    case.drained("n");
    case.learn(Fact::Node(Box::new(before)));
    case.settle("a");
    assert_eq!(case.status("a").phase, Some(Phase::Succeeded));
}

fn strays(case: &Case) -> Vec<Id> {
    case.registry
        .everybody(&case.index)
        .into_iter()
        .filter(|id| case.registry.stray(&case.index, id).is_some())
        .collect()
}

/// The object is gone and its node given back; then the mark is on the node again.
fn landed_late() -> Case {
    let mut case = begun();
    let late = case.node("n").clone();
    case.edit("a", |object| object.deleting = true);
    case.settle("a");
    assert!(case.node("n").mark.is_none() && case.registry.object(&id("a")).is_none());
    assert!(strays(&case).is_empty());
    case.edit_node("n", |node| *node = late);
    case
}

#[test]
fn a_cordon_that_lands_after_its_object_is_gone_is_swept() {
    let mut case = landed_late();
    let [stray] = strays(&case).try_into().unwrap();
    case.settle(&stray.name);
    assert!(
        matches!(case.done.iter().rev().nth(2), Some(Action::Own(Own::Ascertain { node })) if node == "n"),
        "{:?}",
        case.done
    );
    let node = case.node("n");
    assert!(!node.unschedulable && node.mark.is_none() && node.taints.is_empty(), "{node:?}");
    assert!(strays(&case).is_empty());
}

#[test]
fn a_mark_that_comes_back_long_after_the_maintenance_takes_nothing_with_it() {
    let mut case = landed_late();
    case.now += 121;
    let [stray] = strays(&case).try_into().unwrap();
    case.settle(&stray.name);
    let node = case.node("n");
    assert!(node.unschedulable && node.mark.is_none() && node.taints.len() == 3, "{node:?}");
    assert_eq!(case.told.last(), Some(&"KeptUnconfirmed"));
}

#[test]
fn a_record_whose_lease_is_missing_from_a_new_list_does_not_count() {
    let mut case = begun();
    assert!(case.registry.record(&case.index, "n", at(case.now)).is_some());
    case.index.reset_leases(Vec::new(), &ListedAt::default(), |_| true);
    case.registry.listed_leases(&case.index);
    assert!(case.registry.record(&case.index, "n", at(case.now)).is_none());
}

#[test]
fn a_mark_without_an_object_and_without_a_record_takes_nothing_with_it() {
    let mut case = landed_late();
    let forged = case.node("n").clone();
    case = Case::new(&["n"]);
    case.edit_node("n", |node| *node = forged);
    let [stray] = strays(&case).try_into().unwrap();
    case.settle(&stray.name);
    let node = case.node("n");
    assert!(node.unschedulable && node.mark.is_none() && node.taints.len() == 3, "{node:?}");
    assert_eq!(case.told, ["KeptUnconfirmed"]);
}

#[test]
fn a_forged_mark_before_the_maintenance_does_not_become_the_state_to_return_to() {
    let mut case = Case::new(&["n"]);
    case.edit_node("n", |node| {
        let mark = new_mark(node, OWNER, &object("a", "n").attire(), at(0));
        node.mark = Some(MarkState::Valid(Box::new(mark)));
        node.unschedulable = true;
        node.taints = taints();
    });
    case = case.with(object("a", "n"));
    case.settle("a");
    case.edit("a", |object| object.deleting = true);
    case.settle("a");
    let node = case.node("n");
    assert!(node.unschedulable && node.taints.len() == 3, "a person did that: {node:?}");
    assert!(case.told.contains(&"KeptUnconfirmed"), "{:?}", case.told);
}

#[test]
fn two_installations_have_two_names_and_the_one_with_the_lease_acts() {
    assert_eq!(named(OWNER, HOME), OWNER, "what was written before namespaces were named stays ours");
    assert_eq!(named(OWNER, "blue"), "node-maintenance@blue");
    let mut case = begun();
    let lease = case.lease("n").unwrap().clone();
    let mut other = Case::new(&["n"]);
    other.registry = Registry::of(named(OWNER, "blue"));
    other.learn(Fact::Node(Box::new(case.node("n").clone())));
    other.learn(Fact::Lease(Box::new(lease)));
    other = other.with(object("a", "n"));
    assert!(other.decide("a").actions.is_empty(), "the first one is at it");
    assert!(strays(&other).is_empty());
    other.edit("a", |object| object.deleting = true);
    assert!(other.decide("a").actions.is_empty(), "and gives it back");
    case.edit("a", |object| object.deleting = true);
    case.settle("a");
    assert!(!case.node("n").unschedulable);
}
