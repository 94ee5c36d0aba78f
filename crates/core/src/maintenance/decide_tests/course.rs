//! From the beginning to the end, leases on the way, and two objects for one node.

use super::*;

#[test]
fn b01_the_beginning_counts_what_is_there() {
    let case = begun();
    let status = case.status("a");
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!((status.total_pods, status.eviction_pods, status.drain_progress), (2, 2, 0));
    assert_eq!(status.pending_pods, ["p", "q"]);
    assert_eq!(status.pending_pods_refs.len(), 2);
    assert!(status.last_update.is_some());
}

#[test]
fn b02_a_second_beginning_keeps_the_first_count() {
    let mut case = begun();
    case.registry.forget_orders();
    case.settle("a");
    case.survey("n", Standing::Draining, &["q"]);
    case.now += 5;
    case.settle("a");
    let status = case.status("a");
    assert_eq!((status.total_pods, status.eviction_pods, status.drain_progress), (2, 2, 50));
}

#[test]
fn b06_b07_a_node_is_emptied_and_given_back() {
    let mut case = Case::new(&["n"]);
    case = case.with(Maintenance { held: false, ..object("a", "n") });
    case.settle("a");
    assert_eq!(case.told, ["BeginMaintenance"]);
    case.survey("n", Standing::Draining, &["p", "q"]);
    case.settle("a");
    case.drained("n");
    case.settle("a");
    let status = case.status("a");
    assert_eq!(status.phase, Some(Phase::Succeeded));
    assert_eq!((status.drain_progress, status.total_pods, status.eviction_pods), (100, 2, 2));
    assert!(status.pending_pods.is_empty() && status.last_error.is_empty() && status.says(DRAINED));
    let node = case.node("n");
    assert!(node.unschedulable && node.taints.len() == 3);
    assert_eq!(node.labels.get(EXCLUDE_LABEL), Some(&"true".into()));
    assert_eq!(case.told, ["BeginMaintenance", "SucceedMaintenance"]);

    case.edit("a", |object| object.deleting = true);
    case.settle("a");
    assert_eq!(case.told[2..], ["UncordonNode", "RemovedMaintenance"]);
    let node = case.node("n");
    assert!(!node.unschedulable && node.taints.is_empty() && node.labels.is_empty() && node.mark.is_none());
    assert!(case.lease("n").is_none());
    assert!(case.registry.object(&id("a")).is_none());
}

#[test]
fn b08_a_missing_node_fails_until_it_is_there() {
    let mut case = Case::new(&[]).with(Maintenance { held: false, ..object("a", "n") });
    case.settle("a");
    let status = case.status("a");
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(status.last_error, "nodes \"n\" not found");
    assert_eq!((status.total_pods, status.eviction_pods), (0, 0));
    assert_eq!(case.told, ["BeginMaintenance", "FailedMaintenance"]);
    case.learn(Fact::Node(Box::new(node("n"))));
    case.settle("a");
    case.drained("n");
    case.settle("a");
    assert_eq!(case.status("a").phase, Some(Phase::Succeeded));
}

#[test]
fn b09_b10_a_lease_of_somebody_else_is_waited_for_without_counting() {
    let mut case = Case::new(&["n"]).with(object("a", "n"));
    case.learn(Fact::Lease(Box::new(lease("n", "NodeHealthCheck-x", 0))));
    for _ in 0..5 {
        case.now += 60;
        case.settle("a");
    }
    let status = case.status("a");
    assert_eq!((status.phase, status.error_on_lease_count), (Some(Phase::Running), 0));
    assert!(status.last_error.ends_with("is held by NodeHealthCheck-x"), "{}", status.last_error);
    assert!(status.says(WAITING) && !case.node("n").unschedulable);
    assert!(!case.told.contains(&"FailedMaintenance"));
    case.learn(Fact::LeaseAbsent(lease_key("n")));
    case.settle("a");
    case.drained("n");
    case.settle("a");
    assert_eq!(case.status("a").phase, Some(Phase::Succeeded));
}

#[test]
fn b11_a_lease_lost_on_the_way_and_regained_is_forgiven() {
    let mut case = begun();
    case.learn(Fact::Lease(Box::new(lease("n", "other", 0))));
    case.settle("a");
    case.now += 6;
    case.settle("a");
    assert_eq!(case.status("a").error_on_lease_count, 2);
    assert!(case.registry.order("n").is_none(), "nothing is done to a node that somebody else holds");
    case.learn(Fact::LeaseAbsent(lease_key("n")));
    case.settle("a");
    case.drained("n");
    case.settle("a");
    let status = case.status("a");
    assert_eq!((status.phase, status.error_on_lease_count), (Some(Phase::Succeeded), 0));
}

#[test]
fn b12_a_lease_lost_for_good_fails_and_the_node_is_not_uncordoned() {
    let mut case = begun();
    case.learn(Fact::Lease(Box::new(lease("n", "other", 0))));
    let mut looks = 0;
    while let Some(again) = case.settle("a").filter(|again| *again < at(600)) {
        looks += 1;
        assert!(looks < 10);
        case.now = again.duration_since(at(0)).as_secs();
    }
    let status = case.status("a");
    assert!(status.error_on_lease_count > 3 && status.last_error.contains("lease"), "{status:?}");
    assert_eq!(status.phase, Some(Phase::Failed));
    assert!(case.told.contains(&"FailedMaintenance"));
    assert!(case.now >= 15, "a few seconds of patience, not a few attempts in a row: {}", case.now);
    assert!(case.node("n").unschedulable, "the node is the other's now");
    case.edit("a", |object| object.deleting = true);
    case.settle("a");
    assert!(case.node("n").unschedulable && case.node("n").taints.is_empty());
    assert!(case.told.contains(&"KeptCordon"));
    assert!(case.lease("n").is_some_and(|lease| lease.holder == "other"), "their lease stays");
}

#[test]
fn b13_an_object_kept_by_a_foreign_finalizer_is_not_pursued_again() {
    let mut case = begun();
    case.edit("a", |object| object.deleting = true);
    let decision = case.decide("a");
    assert!(
        decision
            .actions
            .iter()
            .any(|action| matches!(action, Action::Own(Own::Finalize { held: false, .. })))
    );
    for action in decision.actions {
        if let Action::Own(Own::Finalize { id, held: false, .. }) = &action {
            case.edit(&id.name.clone(), |object| object.held = false);
        } else {
            case.carry_out(&action);
        }
    }
    assert!(!case.node("n").unschedulable);
    assert_eq!(case.decide("a"), Decision::default());
}

#[test]
fn b22_the_lease_is_renewed_while_the_maintenance_lasts() {
    let mut case = begun();
    case.drained("n");
    let again = case.settle("a").unwrap();
    assert_eq!(again, at(1800));
    case.now = 1800;
    case.settle("a");
    assert_eq!(case.lease("n").unwrap().renewed, Some(at(1800)));
}

#[test]
fn two_objects_for_one_node_do_not_disturb_each_other() {
    let mut case = begun();
    case = case.with(Maintenance { created: Some(at(-5)), ..object("b", "n") });
    case.settle("b");
    assert_eq!(case.status("b").phase, Some(Phase::Failed));
    assert!(case.status("b").last_error.contains("medik8s.io/a"), "{}", case.status("b").last_error);
    case.edit("b", |object| object.deleting = true);
    case.settle("b");
    assert!(case.node("n").unschedulable, "it was not the one that began");
    case = case.with(object("c", "n"));
    case.settle("c");
    case.edit("a", |object| object.deleting = true);
    case.settle("a");
    case.settle("c");
    assert!(case.node("n").unschedulable && case.status("c").phase == Some(Phase::Running));
}

#[test]
fn a_successor_goes_on_and_repeats_no_news() {
    let mut case = begun();
    case.drained("n");
    case.settle("a");
    case.told.clear();
    case.registry.forget_orders();
    case.settle("a");
    case.survey("n", Standing::Draining, &[]);
    case.settle("a");
    case.drained("n");
    case.settle("a");
    assert!(case.told.is_empty(), "{:?}", case.told);
    case.survey("n", Standing::Draining, &["late"]);
    case.settle("a");
    assert_eq!(case.status("a").phase, Some(Phase::Running), "something came that has to leave");
}

#[test]
fn a_drain_ends_with_its_object_even_if_nobody_kept_it() {
    let mut case = begun();
    let object = case.registry.object(&id("a")).unwrap().clone();
    case.apply(Seen::ObjectGone(object.id, object.uid));
    assert_eq!(case.decide("a").actions, [Action::Own(Own::End { node: "n".into() })]);
}

#[test]
fn a_node_that_goes_away_leaves_no_finalizer_behind() {
    let mut case = begun();
    case.learn(Fact::NodeAbsent("n".into()));
    case.settle("a");
    assert_eq!(case.status("a").phase, Some(Phase::Failed));
    case.edit("a", |object| object.deleting = true);
    case.settle("a");
    assert!(case.registry.object(&id("a")).is_none() && case.lease("n").is_none());
}

#[test]
fn deleting_the_first_of_two_objects_for_a_node_hands_it_to_the_second() {
    let mut case = begun().with(Maintenance { created: Some(at(1)), ..object("b", "n") });
    case.settle("b");
    assert!(case.status("b").last_error.contains("is under maintenance by"), "{:?}", case.status("b"));
    case.done.clear();
    case.edit("a", |object| object.deleting = true);
    case.settle("a");
    let node = case.node("n");
    assert!(node.unschedulable && node.taints.iter().any(|taint| taint.key == "kubevirt.io/drain"));
    assert!(
        !case
            .done
            .iter()
            .any(|action| matches!(action, Action::Own(Own::GiveBack { .. }) | Action::Release { .. }))
    );
    assert!(case.registry.object(&id("a")).is_none(), "the first one may go");
    case.settle("b");
    assert!(case.registry.has_begun(&case.index, case.registry.object(&id("b")).unwrap()));
    assert_eq!(case.status("b").phase, Some(Phase::Running));
    // The second one knows how the node was before the first.
    case.edit("b", |object| object.deleting = true);
    case.settle("b");
    let node = case.node("n");
    assert!(!node.unschedulable && node.taints.is_empty() && node.labels.is_empty(), "{node:?}");
}

#[test]
fn if_both_objects_for_a_node_are_deleted_it_is_given_back_once() {
    let mut case = begun().with(Maintenance { created: Some(at(1)), ..object("b", "n") });
    case.edit("a", |object| object.deleting = true);
    case.edit("b", |object| object.deleting = true);
    case.settle("b");
    assert!(case.node("n").unschedulable, "the mark names the other one");
    case.settle("a");
    assert!(!case.node("n").unschedulable);
}
