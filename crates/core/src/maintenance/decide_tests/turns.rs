//! Who may begin now, and whose permission counts.

use std::collections::BTreeSet;

use super::*;

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
            node.labels.insert("node-role.kubernetes.io/control-plane".into(), "".into());
            node.health = Health::Ready;
        });
        case = case.with(object(name, name));
    }
    let decision = case.decide("c1");
    assert_eq!(decision.actions, [Action::Own(Own::AskQuorum { node: "c1".into() })]);
    case.apply(Seen::Quorum("c1".into(), Err("not now".into()), at(0)));
    case.settle("c1");
    assert_eq!(case.status("c1").last_error, "not now");
    assert!(!case.node("c1").unschedulable);
    case.apply(Seen::Quorum("c1".into(), Ok(()), at(0)));
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
        case.learn(Fact::Node(Box::new(node(&name))));
        case.apply(Seen::Object(Box::new(object(&name, &name))));
    }
    case.limits.cluster = Some("5".parse().unwrap());
    let turns = Turns::of(&case.index, &case.registry, &case.limits);
    let mut begin = 0;
    for one in case.registry.everybody(&case.index) {
        let decision = decide(&case.index, &case.registry, &turns, &one, at(0));
        begin += usize::from(decision.actions.iter().any(|action| matches!(action, Action::Hold { .. })));
    }
    assert_eq!(begin, 5);
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
    case.apply(Seen::Reviewing(reviewing()));
    case.settle("a");
    assert!(permitted(&case));
    assert!(!case.status("a").says(PERMISSION_IGNORED));
    case.edit("a", |object| object.may_shut_down = false);
    case.settle("a");
    assert!(!permitted(&case), "it was taken back");
    case.edit("a", |object| object.may_shut_down = true);
    case.settle("a");
    assert!(permitted(&case), "it was given later, which is reviewed, too");
    case.apply(Seen::Reviewing(vouched::Reviewing::Absent));
    case.settle("a");
    assert!(!permitted(&case), "the webhook is gone");
    assert!(case.status("a").message(PERMISSION_IGNORED).unwrap().contains("--listen"));
}

#[test]
fn nobody_answers_for_the_quorum_on_an_object_that_is_older_than_the_webhook() {
    let mut case = Case::new(&["c1"]);
    case.edit_node("c1", |node| {
        node.labels.insert("node-role.kubernetes.io/control-plane".into(), "".into());
    });
    case.apply(Seen::Reviewing(reviewing()));
    let wish = Maintenance { may_touch_control_plane: true, may_shut_down: true, ..object("a", "c1") };
    case = case.with(wish);
    assert!(case.decide("a").actions.contains(&Action::Own(Own::AskQuorum { node: "c1".into() })));
    case.apply(Seen::Quorum("c1".into(), Err("not now".into()), at(0)));
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
fn old_news_of_objects_nodes_and_leases_changes_nothing_and_what_has_no_number_is_the_last_word() {
    let mut case = Case::new(&[]);
    let quiet = Touched::Some(BTreeSet::new());
    case.apply(Seen::Object(Box::new(Maintenance { resource_version: String::new(), ..object("b", "n") })));
    for (version, counts) in
        [("9", true), ("8", false), ("10", true), ("9", false), ("soon", true), ("3", true)]
    {
        let version = || version.to_owned();
        let labels = [("version".to_owned(), version())].into();
        case.learn(Fact::Node(Box::new(Node { resource_version: version(), labels, ..node("n") })));
        assert_eq!(case.node("n").labels.get("version").is_some_and(|label| *label == version()), counts);
        let said = Maintenance { resource_version: version(), reason: version(), ..object("a", "n") };
        assert_eq!(case.apply(Seen::Object(Box::new(said))) != quiet, counts, "{}", version());
        let said = Lease { resource_version: version(), ..lease("n", &version(), 0) };
        assert_eq!(case.learn(Fact::Lease(Box::new(said))) != quiet, counts, "{}", version());
        assert_eq!(case.lease("n").unwrap().holder == version(), counts);
    }
}
