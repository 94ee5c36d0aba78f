//! A plan says what the drain says, gives room once, and tells times as far as something is known.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::cluster::company::Company;
use crate::cluster::fact::{Amount, Fact};
use crate::cluster::index::{ListedAt, VmVisibility};
use crate::cluster::place::{Place, Places};
use crate::drain::forecast::forecast;
use crate::drain::migrations::tests::{guest, launcher};
use crate::machines::testing::machine;
use crate::machines::{Instance, Kind, MigrationState, RunStrategy};
use crate::reasons::GuestReason;
use crate::testing::{at, budget, index, node, pod};

const GIB: u64 = 1 << 30;

fn memory(gib: i128) -> BTreeMap<String, i128> {
    [("pods".to_owned(), 100_000), ("memory".to_owned(), gib * i128::from(GIB) * 1000)].into()
}

fn place(name: &str, gib: i128) -> (String, Place) {
    let labels = [("host".to_owned(), name.to_owned())].into();
    (name.to_owned(), Place { labels, free: memory(gib), size: memory(gib), ..Place::default() })
}

/// A guest of so many GiB on a node.
fn on(name: &str, node: &str, gib: u64) -> Instance {
    let mut vmi = guest(name);
    vmi.node = node.into();
    vmi.memory = gib * GIB;
    vmi
}

fn key(vmi: &Instance) -> Key {
    launcher(vmi).key
}

/// These guests, each asking for its memory, on nodes with so much of it free.
fn cluster(guests: &[Instance], nodes: &[(&str, i128)]) -> Index {
    let pods = guests.iter().map(|vmi| launcher(vmi).on(&vmi.node)).collect();
    let mut index = index(pods, Vec::new());
    index.reset_nodes(nodes.iter().map(|(name, _)| node(name)).collect(), &ListedAt::default());
    index.set_vm_visibility(VmVisibility::Readable);
    let seen = guests.iter().map(|vmi| Fact::Instance(Box::new(vmi.clone()))).collect();
    index.reset(Kind::Instance, seen, &ListedAt::default());
    let wants = |vmi: &Instance| Wants {
        requests: [("memory".to_owned(), i128::from(vmi.memory) * 1000)].into(),
        ..Wants::default()
    };
    let wants = guests.iter().map(|vmi| (key(vmi), Arc::new(wants(vmi)))).collect();
    let nodes = nodes.iter().map(|(name, gib)| place(name, *gib)).collect();
    index.set_places(Places { nodes, wants, companies: Vec::new() });
    index
}

/// The same, but these have to be near to those.
fn near(mut index: Index, groups: &[(&Instance, &[&Instance])]) -> Index {
    let mut places = index.places().unwrap().clone();
    for (follower, members) in groups {
        let members = members.iter().map(|vmi| (key(vmi), vmi.node.to_string())).collect();
        places.companies.push(Company { topology: "host".into(), members });
        let position = places.companies.len() - 1;
        Arc::make_mut(places.wants.get_mut(&key(follower)).unwrap()).near.push(position);
    }
    index.set_places(places);
    index
}

fn plan_of(index: &Index, nodes: &[&str]) -> Plan {
    let nodes: Vec<String> = nodes.iter().map(|name| (*name).to_owned()).collect();
    Planner::new(index, &Policy::default(), at(0)).plan(&nodes)
}

/// Each guest, where it goes and how sure that is.
fn goals(plan: &Plan) -> Vec<(String, String, Option<Sureness>)> {
    let pods = plan.nodes.iter().flat_map(|node| &node.pods);
    pods.map(|pod| {
        let node = pod.target.as_ref().and_then(|goal| goal.node.clone()).unwrap_or_default();
        let name = pod.forecast.instance.as_ref().map(|key| key.name.to_string()).unwrap_or_default();
        (name, node, pod.target.as_ref().map(|goal| goal.sure))
    })
    .collect()
}

fn goal(name: &str, node: &str, sure: Sureness) -> (String, String, Option<Sureness>) {
    (name.into(), node.into(), Some(sure))
}

#[test]
fn a_plan_says_of_each_pod_what_the_forecast_of_a_drain_says() {
    let guests = [on("a", "n", 4), on("b", "n", 2), on("c", "n", 30)];
    let mut index = cluster(&guests, &[("n", 0), ("m", 5), ("o", 5)]);
    index.apply(Fact::Pod(Box::new(pod("bare").bare())));
    index.apply(Fact::Pod(Box::new(pod("web-1").labelled("app", "web"))));
    let mut never = budget("web");
    never.max_unavailable = Some(Amount::Count(0));
    never.desired_healthy = 3;
    index.reset_budgets(vec![never], &ListedAt::default());
    let nodes = ["n".to_owned()];
    let foretold = forecast(&index, &Policy::default(), &nodes, at(0));
    let plan = plan_of(&index, &["n"]);
    let judged: Vec<&PodForecast> = plan.nodes[0].pods.iter().map(|pod| &pod.forecast).collect();
    assert_eq!(judged, foretold[0].pods.iter().collect::<Vec<_>>());
    assert_eq!((plan.expected, plan.is_drainable()), (foretold[0].expected, false));
    let hopeless = &plan.nodes[0].budgets;
    assert_eq!((hopeless.len(), hopeless[0].pods.len()), (1, 1), "{hopeless:?}");
    assert!(
        plan.nodes[0]
            .pods
            .iter()
            .filter(|pod| pod.forecast.reason().is_some())
            .all(|pod| pod.remedy.is_some())
    );
}

#[test]
fn room_that_was_given_counts_for_those_who_come_after() {
    let guests = [on("a", "n", 4), on("b", "n", 3), on("c", "n", 3)];
    let index = cluster(&guests, &[("n", 0), ("m", 8), ("o", 6)]);
    // The largest first, each to the emptiest of those that still have room.
    let plan = plan_of(&index, &["n"]);
    assert_eq!(
        goals(&plan),
        [
            goal("a", "m", Sureness::Likely),
            goal("b", "o", Sureness::Likely),
            goal("c", "m", Sureness::Likely)
        ]
    );
    assert_eq!(plan.room.sentence(), "fits with 4 GiB of memory to spare by requests");
    assert!(plan.is_drainable());
}

#[test]
fn what_finds_no_room_is_counted_with_what_one_node_would_need() {
    let guests = [on("a", "n", 6), on("b", "n", 6)];
    let index = cluster(&guests, &[("n", 0), ("m", 8), ("o", 4)]);
    let plan = plan_of(&index, &["n"]);
    assert_eq!(goals(&plan)[0], goal("a", "m", Sureness::Certain), "only m is large enough");
    assert_eq!(plan.room.without_place, [Key::new("default", "b")]);
    assert_eq!(plan.room.sentence(), "1 machine has no place: one node would need 2 GiB more");
    assert!(!plan.is_drainable(), "one of them stays");
}

#[test]
fn no_machine_goes_to_a_node_that_is_emptied_as_well() {
    let guests = [on("a", "n", 1), on("b", "m", 1)];
    let index = cluster(&guests, &[("n", 50), ("m", 50), ("o", 9)]);
    let plan = plan_of(&index, &["n", "m"]);
    assert_eq!(goals(&plan), [goal("a", "o", Sureness::Certain), goal("b", "o", Sureness::Certain)]);
    assert_eq!((plan.moves, plan.at_once, plan.waves), (2, 2, 1));
}

#[test]
fn machines_that_must_stay_together_on_one_node_can_never_move() {
    let (a, b) = (on("a", "n", 1), on("b", "n", 1));
    let pair = cluster(&[a.clone(), b.clone()], &[("n", 9), ("m", 9)]);
    let pair = near(pair, &[(&a, &[&b]), (&b, &[&a])]);
    let plan = plan_of(&pair, &["n"]);
    for pod in &plan.nodes[0].pods {
        let Some(Reason::Guest(GuestReason::VmFitsNowhere { lasting, why, .. })) = pod.forecast.reason()
        else {
            panic!("{:?}", pod.forecast)
        };
        assert!(lasting, "{why}");
        assert_eq!(why, "it has to be near to pods on n, and these cannot leave before it");
    }
    // It is one of those that it has to be near to, and the only one.
    let alone = near(cluster(std::slice::from_ref(&a), &[("n", 9), ("m", 9)]), &[(&a, &[&a])]);
    assert!(!plan_of(&alone, &["n"]).is_drainable());
}

#[test]
fn one_that_follows_another_goes_where_that_one_went() {
    let (a, b) = (on("a", "n", 3), on("b", "n", 1));
    let index = near(cluster(&[a.clone(), b.clone()], &[("n", 9), ("m", 8), ("o", 6)]), &[(&a, &[&b])]);
    let plan = plan_of(&index, &["n"]);
    assert!(plan.is_drainable(), "{:?}", plan.nodes[0].pods);
    let goals = goals(&plan);
    assert_eq!(goals[0].1, goals[1].1, "{goals:?}");
}

#[test]
fn what_is_not_judged_makes_a_goal_unknown_and_is_named() {
    let mut index = cluster(&[on("a", "n", 1)], &[("n", 9), ("m", 9)]);
    let mut places = index.places().unwrap().clone();
    for wants in places.wants.values_mut() {
        Arc::make_mut(wants).scheduler = "packer".into();
    }
    index.set_places(places);
    let plan = plan_of(&index, &["n"]);
    let goal = plan.nodes[0].pods[0].target.clone().unwrap();
    assert_eq!(
        (goal.sure, goal.not_judged),
        (Sureness::Unknown, vec!["the rules of the scheduler packer".into()])
    );
}

#[test]
fn the_state_afterwards_is_that_of_owner_and_run_strategy() {
    let strategies =
        [RunStrategy::Always, RunStrategy::RerunOnFailure, RunStrategy::Manual, RunStrategy::Once];
    let names = ["always", "rerun", "manual", "once"];
    let guests: Vec<Instance> = names
        .iter()
        .map(|name| {
            let mut vmi = on(name, "n", 1);
            vmi.eviction_strategy = None;
            vmi
        })
        .collect();
    let mut index = cluster(&guests, &[("n", 9), ("m", 9)]);
    for (name, strategy) in names.into_iter().zip(strategies) {
        index.apply(Fact::Machine(Box::new(machine(name, strategy))));
    }
    let afterwards = |allow_shutdown: bool| -> Vec<Afterwards> {
        let policy = Policy { allow_shutdown, delete_emptydir_data: true, ..Policy::default() };
        let plan = Planner::new(&index, &policy, at(0)).plan(&["n".to_owned()]);
        plan.nodes[0].pods.iter().map(|pod| pod.afterwards.clone()).collect()
    };
    let off = |strategy: &str| Afterwards::StaysOff { strategy: strategy.into() };
    // By name: always, manual, once, rerun.
    assert_eq!(afterwards(true), [Afterwards::Restarted, off("Manual"), off("Once"), off("RerunOnFailure")]);
    let refused = [Afterwards::Restarted, Afterwards::Stays, Afterwards::Stays, Afterwards::Stays];
    assert_eq!(afterwards(false), refused, "none is shut down for good without --allow-shutdown");
}

#[test]
fn times_come_from_copies_that_were_seen_and_say_so_where_none_was() {
    let guests: Vec<Instance> = (0..10).map(|number| on(&format!("g{number}"), "n", 4)).collect();
    let index = cluster(&guests, &[("n", 0), ("m", 99)]);
    let assumed = plan_of(&index, &["n"]);
    assert_eq!((assumed.waves, assumed.takes.basis), (5, Basis::Assumed));
    let mut seen = on("seen", "m", 4);
    let account = |seconds: i64| MigrationState {
        completed: true,
        start: at(0).to_string(),
        end: at(seconds).to_string(),
        ..MigrationState::default()
    };
    seen.migration = Some(Box::new(account(20)));
    let mut known = index.clone();
    known.apply(Fact::Instance(Box::new(seen)));
    let measured = plan_of(&known, &["n"]);
    assert_eq!(measured.takes.basis, Basis::Measured);
    // Five times two guests of about 22 seconds.
    let (least, most) = (measured.takes.at_least, measured.takes.at_most.unwrap());
    assert!((70..110).contains(&least) && (110..170).contains(&most), "{least} to {most}");
    let (widest, narrower) = (assumed.takes.at_most.unwrap() - assumed.takes.at_least, most - least);
    assert!(narrower < widest, "{narrower} {widest}");
}

#[test]
fn a_survey_puts_trouble_first_and_each_node_is_lost_alone() {
    let mut stiff = on("stiff", "q", 1);
    stiff.conditions = vec![crate::machines::Condition::new("LiveMigratable", false, "Disks", "not shared")];
    let guests = [on("a", "n", 1), on("big", "m", 30), stiff];
    let index = cluster(&guests, &[("m", 5), ("n", 9), ("o-10", 9), ("o-9", 9), ("q", 9)]);
    let policy = Policy::default();
    let survey = Planner::new(&index, &policy, at(0)).survey();
    let said: Vec<(&str, Verdict)> =
        survey.nodes.iter().map(|node| (node.node.as_str(), node.verdict)).collect();
    assert_eq!(
        said,
        [
            ("q", Verdict::Blocked),
            ("m", Verdict::NoRoom),
            ("n", Verdict::Drainable),
            ("o-9", Verdict::Drainable),
            ("o-10", Verdict::Drainable)
        ]
    );
    assert_eq!(survey.nodes[0].in_the_way[0].reason.code(), "VmStuck");
    assert!(!survey.is_drainable());
    for node in &survey.nodes {
        let alone = plan_of(&index, &[&node.node]);
        assert_eq!((node.moves, &node.takes), (alone.moves, &alone.nodes[0].takes), "{}", node.node);
    }
}

#[test]
fn a_backup_under_way_is_named_and_a_second_launcher_is_in_the_way() {
    let mut saved = on("saved", "n", 1);
    saved.backup = Some("nightly".into());
    let plan = plan_of(&cluster(&[saved], &[("n", 9), ("m", 9)]), &["n"]);
    let codes: Vec<&str> = plan.nodes[0].pods[0].forecast.reasons.iter().map(Reason::code).collect();
    assert_eq!((codes, plan.is_drainable()), (vec!["VmBackup", "VmMigrates"], true));
    let mut doubled = on("doubled", "n", 1);
    let left = launcher(&doubled).on("m").uid("left");
    doubled.active_pods = [(left.uid.clone(), "m".into()), (launcher(&doubled).uid, "n".into())].into();
    let mut index = cluster(&[doubled], &[("n", 9), ("m", 9)]);
    let mut left = left;
    left.key.name = "virt-launcher-left".into();
    index.apply(Fact::Pod(Box::new(left)));
    let plan = plan_of(&index, &["n"]);
    assert_eq!(plan.nodes[0].pods[0].forecast.reason().map(Reason::code), Some("VmPodLeft"));
}
