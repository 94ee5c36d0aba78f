//! The rows of the acceptance catalogue about NodeMaintenance that are decisions, and what the earlier operator got wrong.

use super::queue::{Limits, Turns};
use super::status::{BLOCKED, DRAINED, PERMISSION_IGNORED, WAITING, YIELDED};
use super::*;
use crate::fact::{Health, Node};
use crate::ownership::{MarkState, lease_key, new_mark};
use crate::proof::Proof;
use crate::reason::Reason;
use crate::run::{Blocker, End};
use crate::survey::{Standing, Survey};
use crate::testing::{at, node};

fn id(name: &str) -> Id {
    Id { family: Family::Medik8s, name: name.into() }
}

fn object(name: &str, node: &str) -> Maintenance {
    Maintenance {
        id: id(name),
        uid: Uid(format!("uid-{name}")),
        resource_version: "1".into(),
        node: node.into(),
        reason: "disk swap".into(),
        created: Some(at(0)),
        deleting: false,
        held: true,
        other_finalizers: Vec::new(),
        status: Status::default(),
        on_uncordon: OnUncordon::Reapply,
        may_shut_down: false,
        may_touch_control_plane: false,
    }
}

fn lease(node: &str, holder: &str, renewed: i64) -> Lease {
    Lease {
        key: lease_key(node),
        holder: holder.into(),
        renewed: Some(at(renewed)),
        duration_seconds: LEASE_SECONDS,
        resource_version: "7".into(),
        transitions: 0,
        asked: None,
        answered: None,
        record: None,
    }
}

/// A cluster in which actions are carried out as if every request succeeded.
struct Case {
    registry: Registry,
    limits: Limits,
    now: i64,
    told: Vec<&'static str>,
    done: Vec<Action>,
}

impl Case {
    fn new(nodes: &[&str]) -> Self {
        let mut registry = Registry::default();
        for name in nodes {
            registry.apply(Seen::Node(Box::new(node(name))));
        }
        Self { registry, limits: Limits::default(), now: 0, told: Vec::new(), done: Vec::new() }
    }

    fn with(mut self, object: Maintenance) -> Self {
        self.registry.apply(Seen::Object(Box::new(object)));
        self
    }

    fn edit(&mut self, name: &str, change: impl FnOnce(&mut Maintenance)) {
        let mut object = self.registry.object(&id(name)).unwrap().clone();
        change(&mut object);
        self.registry.apply(Seen::Object(Box::new(object)));
    }

    fn edit_node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        let mut node = self.registry.node(name).unwrap().clone();
        change(&mut node);
        self.registry.apply(Seen::Node(Box::new(node)));
    }

    fn decide(&self, name: &str) -> Decision {
        decide(&self.registry, &Turns::of(&self.registry, &self.limits), &id(name), at(self.now))
    }

    /// Decides and carries out until nothing more is wanted at this instant.
    fn settle(&mut self, name: &str) -> Option<Timestamp> {
        for _ in 0..20 {
            let decision = self.decide(name);
            if decision.actions.is_empty() {
                return decision.look_again;
            }
            for action in decision.actions {
                self.carry_out(&action);
                self.done.push(action);
            }
        }
        panic!("{name} never settles: {:?}", self.done.last());
    }

    fn carry_out(&mut self, action: &Action) {
        match action {
            Action::Finalize { id, held: true, .. } => self.edit(&id.name, |object| object.held = true),
            Action::Finalize { id, uid, held: false, .. } => {
                self.registry.apply(Seen::ObjectGone(id.clone(), uid.clone()));
            }
            Action::TakeLease { node, at, over, holder, record, .. } => {
                let before = over.as_ref().and_then(|lease| lease.record.clone());
                let record = record.clone().or(before);
                let lease = Lease { renewed: Some(*at), record, ..lease(node, holder, 0) };
                self.registry.apply(Seen::Lease(lease));
            }
            Action::ReturnLease { lease, .. } => {
                self.registry.apply(Seen::LeaseGone(lease.clone(), at(self.now)));
            }
            Action::Begin { node, id, attire, may_shut_down } => {
                let begun = Seen::Begun(node.clone(), id.clone(), *may_shut_down, at(self.now));
                self.registry.apply(begun);
                let seen = self.registry.node(node).unwrap().clone();
                let mark = new_mark(&seen, OWNER, attire, at(self.now));
                self.edit_node(node, |node| {
                    node.taints = attire.taints_on(node).unwrap_or_else(|| node.taints.clone());
                    node.labels.extend(attire.labels.clone());
                    node.unschedulable = true;
                    node.mark = Some(MarkState::Valid(Box::new(mark)));
                });
            }
            Action::End { node } => {
                self.registry.apply(Seen::Ended(node.clone()));
            }
            Action::Restore { node, keep_cordon, record } => self.edit_node(node, |node| {
                let undo = crate::ownership::undo_of(node, OWNER, *keep_cordon, record.as_deref());
                let Some(undo) = undo else { return };
                node.taints = undo.taints.unwrap_or_else(|| node.taints.clone());
                undo.labels.iter().for_each(|label| drop(node.labels.remove(label)));
                node.unschedulable &= undo.unschedulable != Some(false);
                node.mark = None;
            }),
            Action::WriteStatus { id, status, .. } => {
                self.edit(&id.name, |object| object.status = *status.clone());
            }
            Action::Tell { reason, .. } => self.told.push(reason),
            Action::CallBack { .. } | Action::AskQuorum { .. } | Action::Ascertain { .. } => {}
        }
    }

    fn survey(&mut self, node: &str, standing: Standing, pending: &[&str]) {
        let pending: Vec<Key> = pending.iter().map(|name| Key::new("default", *name)).collect();
        let worn = self.node(node).unschedulable;
        let survey =
            Survey { node: node.into(), standing, worn, total: pending.len(), pending, blockers: Vec::new() };
        self.registry.apply(Seen::Survey(survey));
    }

    fn drained(&mut self, node: &str) {
        self.survey(node, Standing::Ended(End::Drained { proof: Proof::Yes }), &[]);
    }

    fn status(&self, name: &str) -> &Status {
        &self.registry.object(&id(name)).unwrap().status
    }

    fn node(&self, name: &str) -> &Node {
        self.registry.node(name).unwrap()
    }
}

fn begun() -> Case {
    let mut case = Case::new(&["n", "m"]).with(object("a", "n"));
    case.settle("a");
    case.survey("n", Standing::Draining, &["p", "q"]);
    case.settle("a");
    case
}

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
    assert_eq!(node.labels.get(EXCLUDE_LABEL).map(String::as_str), Some("true"));
    assert_eq!(case.told, ["BeginMaintenance", "SucceedMaintenance"]);

    case.edit("a", |object| object.deleting = true);
    case.settle("a");
    assert_eq!(case.told[2..], ["UncordonNode", "RemovedMaintenance"]);
    let node = case.node("n");
    assert!(!node.unschedulable && node.taints.is_empty() && node.labels.is_empty() && node.mark.is_none());
    assert!(case.registry.lease("n").is_none());
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
    case.registry.apply(Seen::Node(Box::new(node("n"))));
    case.settle("a");
    case.drained("n");
    case.settle("a");
    assert_eq!(case.status("a").phase, Some(Phase::Succeeded));
}

#[test]
fn b09_b10_a_lease_of_somebody_else_is_waited_for_without_counting() {
    let mut case = Case::new(&["n"]).with(object("a", "n"));
    case.registry.apply(Seen::Lease(lease("n", "NodeHealthCheck-x", 0)));
    for _ in 0..5 {
        case.now += 60;
        case.settle("a");
    }
    let status = case.status("a");
    assert_eq!((status.phase, status.error_on_lease_count), (Some(Phase::Running), 0));
    assert!(status.last_error.ends_with("is held by NodeHealthCheck-x"), "{}", status.last_error);
    assert!(status.says(WAITING) && !case.node("n").unschedulable);
    assert!(!case.told.contains(&"FailedMaintenance"));
    case.registry.apply(Seen::LeaseGone(lease_key("n"), at(case.now)));
    case.settle("a");
    case.drained("n");
    case.settle("a");
    assert_eq!(case.status("a").phase, Some(Phase::Succeeded));
}

#[test]
fn b11_a_lease_lost_on_the_way_and_regained_is_forgiven() {
    let mut case = begun();
    case.registry.apply(Seen::Lease(lease("n", "other", 0)));
    case.settle("a");
    case.now += 6;
    case.settle("a");
    assert_eq!(case.status("a").error_on_lease_count, 2);
    assert!(case.registry.order("n").is_none(), "nothing is done to a node that somebody else holds");
    case.registry.apply(Seen::LeaseGone(lease_key("n"), at(case.now)));
    case.settle("a");
    case.drained("n");
    case.settle("a");
    let status = case.status("a");
    assert_eq!((status.phase, status.error_on_lease_count), (Some(Phase::Succeeded), 0));
}

#[test]
fn b12_a_lease_lost_for_good_fails_and_the_node_is_not_uncordoned() {
    let mut case = begun();
    case.registry.apply(Seen::Lease(lease("n", "other", 0)));
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
    assert!(case.registry.lease("n").is_some_and(|lease| lease.holder == "other"), "their lease stays");
}

#[test]
fn b13_an_object_kept_by_a_foreign_finalizer_is_not_pursued_again() {
    let mut case = begun();
    case.edit("a", |object| object.deleting = true);
    let decision = case.decide("a");
    assert!(decision.actions.iter().any(|action| matches!(action, Action::Finalize { held: false, .. })));
    for action in decision.actions {
        if let Action::Finalize { id, held: false, .. } = &action {
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
    assert_eq!(case.registry.lease("n").unwrap().renewed, Some(at(1800)));
}

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
                let reason = Reason::UncordonedMeanwhile;
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
        begins += case.done[before..].iter().filter(|action| matches!(action, Action::Begin { .. })).count();
        case.now += 1;
    }
    assert!(begins <= 7, "{begins}");
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
    case.registry.apply(Seen::ObjectGone(object.id, object.uid));
    assert_eq!(case.decide("a").actions, [Action::End { node: "n".into() }]);
}

#[test]
fn a_node_that_goes_away_leaves_no_finalizer_behind() {
    let mut case = begun();
    case.registry.apply(Seen::NodeGone("n".into()));
    case.settle("a");
    assert_eq!(case.status("a").phase, Some(Phase::Failed));
    case.edit("a", |object| object.deleting = true);
    case.settle("a");
    assert!(case.registry.object(&id("a")).is_none() && case.registry.lease("n").is_none());
}

#[test]
fn blockers_are_named_with_what_to_do_and_progress_never_runs_backwards() {
    let mut case = begun();
    let pending =
        |count: usize| (0..count).map(|at| Key::new("default", format!("p{at}"))).collect::<Vec<_>>();
    let mut progress = Vec::new();
    for left in [2, 1, 5, 2] {
        case.now += 3;
        let blocker = Blocker {
            pod: Key::new("default", "p0"),
            owner: None,
            reason: Reason::VmUnprotected,
            since: at(case.now),
        };
        let survey = Survey {
            node: "n".into(),
            standing: Standing::Draining,
            worn: true,
            total: left,
            pending: pending(left),
            blockers: vec![blocker],
        };
        case.registry.apply(Seen::Survey(survey));
        case.settle("a");
        progress.push(case.status("a").drain_progress);
    }
    assert_eq!(progress, [0, 50, 50, 60]);
    let status = case.status("a");
    assert!(status.says(BLOCKED));
    assert_eq!(status.blockers[0].object, "pod default/p0");
    assert!(!status.blockers[0].message.is_empty() && !status.last_error.is_empty());
}

#[test]
fn limits_hold_first_come_first_served_and_zones_do_not_hold_up_each_other() {
    let mut case = Case::new(&["a1", "a2", "b1", "b2"]);
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")] {
        case.edit_node(name, |node| {
            node.labels.insert("topology.kubernetes.io/zone".into(), zone.into());
        });
    }
    case.limits = Limits { cluster: Some("75%".parse().unwrap()), zone: Some("1".parse().unwrap()) };
    for (order, name) in ["a1", "a2", "b1", "b2"].into_iter().enumerate() {
        let created = Some(at(i64::try_from(order).unwrap()));
        case = case.with(Maintenance { created, ..object(name, name) });
    }
    for name in ["b2", "b1", "a2", "a1"] {
        case.settle(name);
    }
    let cordoned = |case: &Case| {
        ["a1", "a2", "b1", "b2"].into_iter().filter(|name| case.node(name).unschedulable).collect::<Vec<_>>()
    };
    assert_eq!(cordoned(&case), ["a1", "b1"]);
    assert!(
        case.status("a2").last_error.contains("1 of at most 1 nodes of zone a"),
        "{:?}",
        case.status("a2")
    );
    case.edit("a1", |object| object.deleting = true);
    case.settle("a1");
    case.settle("a2");
    assert_eq!(cordoned(&case), ["a2", "b1"]);
    for wrong in ["0", "-1", "0%", "101%", "many", ""] {
        assert!(wrong.parse::<queue::Share>().is_err(), "{wrong}");
    }
}

#[test]
fn nodes_of_the_control_plane_go_one_at_a_time_and_only_with_a_known_quorum() {
    let mut case = Case::new(&["c1", "c2", "c3"]);
    for name in ["c1", "c2", "c3"] {
        case.edit_node(name, |node| {
            node.labels.insert("node-role.kubernetes.io/control-plane".into(), String::new());
            node.health = Health::Ready;
        });
        case = case.with(object(name, name));
    }
    let decision = case.decide("c1");
    assert_eq!(decision.actions, [Action::AskQuorum { node: "c1".into() }]);
    case.registry.apply(Seen::Quorum("c1".into(), Err("not now".into()), at(0)));
    case.settle("c1");
    assert_eq!(case.status("c1").last_error, "not now");
    assert!(!case.node("c1").unschedulable);
    case.registry.apply(Seen::Quorum("c1".into(), Ok(()), at(0)));
    for name in ["c1", "c2", "c3"] {
        case.settle(name);
    }
    assert!(case.node("c1").unschedulable && !case.node("c2").unschedulable);
    assert!(case.status("c3").last_error.contains("because c1"), "{}", case.status("c3").last_error);
}

#[test]
fn ten_thousand_objects_at_once_wait_for_their_turn() {
    let mut case = Case::new(&[]);
    for number in 0..10_000 {
        let name = format!("n{number}");
        case.registry.apply(Seen::Node(Box::new(node(&name))));
        case.registry.apply(Seen::Object(Box::new(object(&name, &name))));
    }
    case.limits.cluster = Some("5".parse().unwrap());
    let turns = Turns::of(&case.registry, &case.limits);
    let mut begin = 0;
    for one in case.registry.everybody() {
        let decision = decide(&case.registry, &turns, &one, at(0));
        begin +=
            usize::from(decision.actions.iter().any(|action| matches!(action, Action::TakeLease { .. })));
    }
    assert_eq!(begin, 5);
}

#[test]
fn an_old_view_of_the_node_is_not_taken_for_an_uncordon() {
    let mut case = begun();
    case.edit("a", |object| object.on_uncordon = OnUncordon::Yield);
    let before = Node { unschedulable: false, mark: None, ..case.node("n").clone() };
    case.drained("n");
    case.registry.apply(Seen::Node(Box::new(before)));
    case.settle("a");
    assert_eq!(case.status("a").phase, Some(Phase::Succeeded));
}

/// A webhook that vouches for every object made five seconds after the beginning.
fn reviewing() -> vouched::Reviewing {
    let all = || vec!["*".to_owned()];
    let rule = vouched::Rule {
        groups: all(),
        versions: all(),
        operations: all(),
        resources: all(),
        scope: "*".into(),
    };
    let hook = vouched::Hook { fails_closed: true, is_partial: false, rules: vec![rule] };
    vouched::Reviewing::By(vouched::Configuration { created: Some(at(0)), hooks: vec![hook] })
}

#[test]
fn a_permission_counts_as_long_as_somebody_vouches_for_it() {
    let permitted = |case: &Case| case.registry.order("n").unwrap().may_shut_down;
    let wish = Maintenance { may_shut_down: true, created: Some(at(5)), ..object("a", "n") };
    let mut case = Case::new(&["n"]).with(wish);
    case.settle("a");
    assert!(!permitted(&case), "nothing is known about reviews");
    assert!(case.status("a").message(PERMISSION_IGNORED).unwrap().contains("cannot read the webhook"));
    assert_eq!(
        case.told.iter().filter(|reason| **reason == PERMISSION_IGNORED).count(),
        1,
        "{:?}",
        case.told
    );
    case.registry.apply(Seen::Reviewing(reviewing()));
    case.settle("a");
    assert!(permitted(&case));
    assert!(!case.status("a").says(PERMISSION_IGNORED));
    case.edit("a", |object| object.may_shut_down = false);
    case.settle("a");
    assert!(!permitted(&case), "it was taken back");
    case.edit("a", |object| object.may_shut_down = true);
    case.settle("a");
    assert!(permitted(&case), "it was given later, which is reviewed, too");
    case.registry.clear(|subject| matches!(subject, Subject::Reviewing));
    case.settle("a");
    assert!(!permitted(&case), "the webhook is gone");
    assert!(case.status("a").message(PERMISSION_IGNORED).unwrap().contains("--listen"));
}

#[test]
fn nobody_answers_for_the_quorum_on_an_object_that_is_older_than_the_webhook() {
    let mut case = Case::new(&["c1"]);
    case.edit_node("c1", |node| {
        node.labels.insert("node-role.kubernetes.io/control-plane".into(), String::new());
    });
    case.registry.apply(Seen::Reviewing(reviewing()));
    let wish = Maintenance { may_touch_control_plane: true, may_shut_down: true, ..object("a", "c1") };
    case = case.with(wish);
    assert!(case.decide("a").actions.contains(&Action::AskQuorum { node: "c1".into() }));
    case.registry.apply(Seen::Quorum("c1".into(), Err("not now".into()), at(0)));
    case.settle("a");
    assert!(!case.node("c1").unschedulable);
    let said = case.status("a").message(PERMISSION_IGNORED).unwrap();
    let begin = "permissions evac.dev/allow-shutdown and evac.dev/allow-control-plane do not count: the object is older";
    assert!(said.starts_with(begin), "{said}");
    case.edit("a", |object| object.created = Some(at(5)));
    case.settle("a");
    assert!(case.node("c1").unschedulable, "who created it was reviewed");
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
    assert!(!case.done.iter().any(|action| matches!(
        action,
        Action::Restore { .. } | Action::CallBack { .. } | Action::ReturnLease { .. }
    )));
    assert!(case.registry.object(&id("a")).is_none(), "the first one may go");
    case.settle("b");
    assert!(case.registry.has_begun(case.registry.object(&id("b")).unwrap()));
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

fn strays(case: &Case) -> Vec<Id> {
    case.registry.everybody().into_iter().filter(|id| case.registry.stray(id).is_some()).collect()
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
        matches!(case.done.iter().rev().nth(3), Some(Action::Ascertain { node }) if node == "n"),
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
    let is_lease = |subject: &Subject<'_>| matches!(subject, Subject::Lease(_));
    assert!(case.registry.record("n", at(case.now)).is_some());
    case.registry.clear(is_lease);
    assert!(case.registry.record("n", at(case.now)).is_none());
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
    let lease = case.registry.lease("n").unwrap().clone();
    let mut other = Case::new(&["n"]);
    other.registry = Registry::of(named(OWNER, "blue"));
    other.registry.apply(Seen::Node(Box::new(case.node("n").clone())));
    other.registry.apply(Seen::Lease(lease));
    other = other.with(object("a", "n"));
    assert!(other.decide("a").actions.is_empty(), "the first one is at it");
    assert!(strays(&other).is_empty());
    other.edit("a", |object| object.deleting = true);
    assert!(other.decide("a").actions.is_empty(), "and gives it back");
    case.edit("a", |object| object.deleting = true);
    case.settle("a");
    assert!(!case.node("n").unschedulable);
}

#[test]
fn what_cannot_be_read_is_said_and_old_numbers_are_not_shown_as_new() {
    let mut case = begun();
    case.survey("n", Standing::Draining, &["q"]);
    case.now += 5;
    case.settle("a");
    assert_eq!(case.status("a").drain_progress, 50);
    case.registry.apply(Seen::Blind("could not read pods: no answer within 30 s".into(), at(case.now)));
    let again = case.settle("a");
    assert!(
        !case.status("a").says(super::status::UNREAD),
        "a watch that breaks off is begun anew in moments"
    );
    assert_eq!(again, Some(at(case.now + 10)));
    case.now += 10;
    case.settle("a");
    let status = case.status("a");
    assert!(status.says(super::status::UNREAD), "{status:?}");
    assert_eq!((status.drain_progress, status.estimated_end.is_none()), (0, true));
    assert_eq!(status.blockers[0].code, "CannotRead");
    assert!(
        status.last_error.contains("could not read pods: no answer within 30 s"),
        "{}",
        status.last_error
    );
    case.now += 60;
    assert!(case.decide("a").actions.is_empty(), "it is said once");
    case.survey("n", Standing::Draining, &["q"]);
    case.settle("a");
    let status = case.status("a");
    assert!(!status.says(super::status::UNREAD) && status.blockers.is_empty(), "{status:?}");
    assert_eq!((status.drain_progress, status.last_error.as_str()), (50, ""));
}

#[test]
fn a_node_that_was_empty_is_not_called_empty_while_nobody_can_look() {
    let mut case = begun();
    case.drained("n");
    case.settle("a");
    assert_eq!((case.status("a").phase, case.status("a").drain_progress), (Some(Phase::Succeeded), 100));
    case.registry.apply(Seen::Blind("could not read nodes".into(), at(case.now)));
    case.now += 20;
    case.settle("a");
    let status = case.status("a");
    assert_eq!((status.phase, status.drain_progress), (Some(Phase::Running), 0));
    assert!(status.conditions.iter().any(|one| one.kind == DRAINED && one.status == "Unknown"), "{status:?}");
    case.drained("n");
    case.settle("a");
    assert_eq!(case.status("a").phase, Some(Phase::Succeeded));
    assert!(case.status("a").says(DRAINED));
}

#[test]
fn a_list_that_cannot_be_read_is_named_on_every_object_and_taken_back() {
    let mut case = begun();
    let seen = |case: &mut Case, seen| drop(case.registry.apply(seen));
    seen(&mut case, Seen::Unread("the list of nodes".into(), "forbidden".into(), at(0)));
    case.now = 30;
    let decision = decide_unread(&case.registry, &id("a"), at(case.now));
    let [Action::WriteStatus { status, .. }, ..] = decision.actions.as_slice() else {
        panic!("{decision:?}")
    };
    assert_eq!(status.last_error, "the list of nodes cannot be read since 2026-01-01T00:00:00Z: forbidden");
    case.settle("a");
    assert!(case.status("a").says(super::status::UNREAD));
    seen(&mut case, Seen::Read("the list of nodes".into()));
    case.settle("a");
    assert!(!case.status("a").says(super::status::UNREAD));
}

#[test]
fn what_giving_back_could_not_undo_is_written_before_it_is_tried_again_and_holds_the_object() {
    let mut case = Case::new(&["n"]).with(object("a", "n"));
    case.settle("a");
    case.edit("a", |object| object.deleting = true);
    let mark = crate::machines::remains::Remains::Mark {
        instance: Key::new("shop", "db"),
        node: "n".into(),
        why: "virt-api answered 406".into(),
    };
    case.registry.apply(Seen::Left("n".into(), vec![mark]));
    let decision = case.decide("a");
    let written = decision.actions.iter().find_map(|action| match action {
        Action::WriteStatus { status, .. } => Some(status),
        _ => None,
    });
    let status = written.expect("it is said");
    assert!(status.says(super::status::NOT_TAKEN_BACK));
    assert!(
        status.last_error.starts_with("virtual machine shop/db is still marked to leave node n"),
        "{}",
        status.last_error
    );
    assert!(status.blockers[0].fix.contains("evacuate-cancel vmi db -n shop"), "{:?}", status.blockers);
    assert!(!decision.actions.iter().any(|action| matches!(action, Action::Finalize { .. })), "{decision:?}");
}
