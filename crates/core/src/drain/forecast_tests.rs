//! What is foretold, and that the drain then does it.

use super::*;
use crate::cluster::fact::{Amount, Budget, Fact};
use crate::cluster::index::ListedAt;
use crate::cluster::place::{Place, Places, Wants};
use crate::drain::migrations::tests::{guest, launcher};
use crate::drain::policy::DryRun;
use crate::drain::run::{End, Run};
use crate::drain::step::{Event, step};
use crate::machines::{Condition, Instance, Kind};
use crate::reasons::BudgetReason;
use crate::testing::{at, budget, index, node, pod};

fn web(name: &str) -> Pod {
    pod(name).labelled("app", "web")
}

fn one_at_a_time() -> Budget {
    let mut web = budget("web");
    web.max_unavailable = Some(Amount::Count(1));
    (web.desired_healthy, web.expected) = (11, 12);
    web.allowing(1)
}

fn never() -> Budget {
    let mut web = budget("web");
    web.max_unavailable = Some(Amount::Count(0));
    web.desired_healthy = 3;
    web
}

fn of(index: &Index) -> Forecast {
    forecast(index, &Policy::default(), &["n".to_owned()], at(0)).remove(0)
}

fn names(forecast: &Forecast) -> Vec<&'static str> {
    let name = |pod: &PodForecast| match pod.prospect {
        Prospect::LeavesNow => "leavesNow",
        Prospect::Migrates => "migrates",
        Prospect::Leaving { .. } => "leaving",
        Prospect::Turn { .. } => "turn",
        Prospect::HandedOver => "handedOver",
        Prospect::Waits { .. } => "waits",
        Prospect::Never { .. } => "never",
        Prospect::Refused { .. } => "refused",
        Prospect::Unknown { .. } => "unknown",
        Prospect::Stays => "stays",
    };
    forecast.pods.iter().map(name).collect()
}

/// A trial on the client, to its end.
fn rehearsed(index: &Index) -> End {
    let policy = Policy { dry_run: DryRun::Client, ..Policy::default() };
    let mut run = Run::new("me", Vec::new(), ["n".to_owned()]);
    let first = step(index, &policy, &mut run, at(0));
    assert!(first.actions.is_empty(), "{:?}", first.actions);
    assert!(first.events.iter().any(|event| matches!(event, Event::Forecast { .. })), "{:?}", first.events);
    let node = &run.nodes[0];
    node.end().cloned().unwrap_or_else(|| panic!("not ended: {:?}", node.phase))
}

#[test]
fn of_twelve_pods_under_a_budget_of_one_the_first_can_go_and_the_others_wait_for_their_turn() {
    let pods: Vec<Pod> = (10..22).map(|number| web(&format!("web-{number}"))).collect();
    let foretold = of(&index(pods, vec![one_at_a_time()]));
    assert_eq!(foretold.pods[0].sentence(at(0)), "pod default/web-10 (ReplicaSet web) can be evicted now");
    assert_eq!(
        foretold.pods[1].sentence(at(0)),
        "pod default/web-11 (ReplicaSet web) waits for its turn: PodDisruptionBudget default/web lets 1 go at a time, and 1 \
         goes before it"
    );
    assert_eq!(
        foretold.pods[11].prospect,
        Prospect::Turn { budget: Key::new("default", "web"), at_a_time: 1, before: 11 }
    );
    // Nothing is in the way; but whether their replacements become ready is for the cluster to show.
    assert_eq!((foretold.expected, foretold.blockers()), (Expected::Unknown, Vec::new()));
    assert_eq!(foretold.depends_on.len(), 1, "{:?}", foretold.depends_on);
}

#[test]
fn a_trial_on_the_client_names_a_budget_that_never_allows_anything() {
    let index = index(vec![web("a"), pod("b")], vec![never()]);
    assert_eq!((names(&of(&index)), of(&index).expected), (vec!["never", "leavesNow"], Expected::Blocked));
    let End::Rehearsed { blockers } = rehearsed(&index) else { panic!("it is a trial") };
    assert!(matches!(blockers[0].reason, Reason::Budget(BudgetReason::BudgetNever { .. })), "{blockers:?}");
}

#[test]
fn nodes_drained_together_share_their_budgets() {
    let mut index = index(vec![web("a"), web("b").on("m")], vec![one_at_a_time()]);
    index.reset_nodes(vec![node("m"), node("n")], &ListedAt::default());
    let both = forecast(&index, &Policy::default(), &["m".to_owned(), "n".to_owned()], at(0));
    assert_eq!(names(&both[1]), ["leavesNow"]);
    assert_eq!(names(&both[0]), ["turn"]);
}

#[test]
fn what_cannot_be_seen_is_unknown_and_not_in_the_way() {
    let mut blind = Index::new();
    blind.reset_nodes(vec![node("n")], &ListedAt::default());
    blind.apply(Fact::Pod(Box::new(web("a"))));
    blind.apply(Fact::Pod(Box::new(web("done").in_phase(PodPhase::Succeeded))));
    blind.set_vm_visibility(crate::cluster::index::VmVisibility::NotInstalled);
    let foretold = of(&blind);
    assert_eq!((names(&foretold), foretold.expected), (vec!["unknown", "leavesNow"], Expected::Unknown));
    assert!(foretold.blockers().is_empty());
}

#[test]
fn pods_without_a_controller_are_not_counted_on_to_come_back() {
    let mut two = budget("web");
    two.min_available = Some(Amount::Count(1));
    (two.desired_healthy, two.expected) = (1, 2);
    let index = index(vec![web("a").bare(), web("b").bare()], vec![two.allowing(1)]);
    let forced = Policy { force: true, ..Policy::default() };
    let foretold = forecast(&index, &forced, &["n".to_owned()], at(0)).remove(0);
    assert_eq!(names(&foretold), ["leavesNow", "unknown"]);
}

#[test]
fn pods_of_a_node_that_does_not_report_wait_and_those_on_their_way_are_leaving() {
    let mut index = index(vec![web("a"), web("b").deleting(30, 30)], vec![one_at_a_time()]);
    assert_eq!(names(&of(&index)), ["leavesNow", "leaving"]);
    let mut silent = node("n");
    silent.health = Health::Unknown;
    index.reset_nodes(vec![silent], &ListedAt::default());
    assert_eq!(names(&of(&index)), ["waits", "waits"]);
}

#[test]
fn a_refused_pod_is_foretold_as_it_ends_the_drain() {
    let index = index(vec![pod("a").bare(), pod("b")], Vec::new());
    let foretold = of(&index);
    assert_eq!((names(&foretold), foretold.expected), (vec!["refused", "leavesNow"], Expected::NotStarted));
    assert!(matches!(rehearsed(&index), End::NotStarted { blockers } if blockers.len() == 1));
}

#[test]
fn the_answers_of_the_server_correct_what_was_seen() {
    let index = index(vec![web("a"), pod("b"), pod("c")], vec![never()]);
    let answers = |uid: &Uid| -> Option<&Outcome> {
        static DONE: Outcome = Outcome::Done;
        static NO: std::sync::LazyLock<Outcome> =
            std::sync::LazyLock::new(|| Outcome::Forbidden { message: "no".into() });
        Some(if *uid == *"uid-c" { &*NO } else { &DONE })
    };
    let corrected = of(&index).with_answers(answers, &index);
    assert_eq!(names(&corrected), ["leavesNow", "leavesNow", "never"]);
    // Where the server refuses, what we see of the budget says more than its words.
    let refused = Outcome::Budget { message: "Cannot evict".into(), retry_after: None };
    let corrected = of(&index).with_answers(|uid| (*uid == *"uid-a").then_some(&refused), &index);
    assert!(matches!(
        &corrected.pods[0].prospect,
        Prospect::Never { reason: Reason::Budget(BudgetReason::BudgetNever { .. }) }
    ));
}

fn with_guests(guests: &[Instance], free: i128) -> Index {
    let mut index = index(guests.iter().map(launcher).collect(), Vec::new());
    index.set_vm_visibility(crate::cluster::index::VmVisibility::Readable);
    let seen = guests.iter().map(|vmi| Fact::Instance(Box::new(vmi.clone()))).collect();
    index.reset(Kind::Instance, seen, &ListedAt::default());
    let room = |amount: i128| [("pods".to_owned(), 10_000), ("memory".to_owned(), amount)].into();
    let other = Place { free: room(free), size: room(9), ..Place::default() };
    let wants = Wants { requests: [("memory".to_owned(), 2)].into(), ..Wants::default() };
    let wants = guests.iter().map(|vmi| (launcher(vmi).key, std::sync::Arc::new(wants.clone()))).collect();
    let here = Place { free: room(9), size: room(9), ..Place::default() };
    let nodes = [("n".to_owned(), here), ("m".to_owned(), other)].into();
    index.set_places(Places { nodes, wants, companies: Vec::new() });
    index
}

#[test]
fn a_guest_moves_only_if_another_node_takes_it() {
    assert_eq!(names(&of(&with_guests(&[guest("a")], 2))), ["migrates"]);
    let nowhere = of(&with_guests(&[guest("a")], 1));
    assert_eq!((names(&nowhere), nowhere.expected), (vec!["waits"], Expected::Unknown));
    assert!(
        nowhere.pods[0].sentence(at(0)).contains(
            "runs virtual machine a, which is to be live-migrated, and no other node takes it (1 other node: 1 has too little memory left)"
        ),
        "{}",
        nowhere.pods[0].sentence(at(0))
    );
    let mut pinned = with_guests(&[guest("a")], 2);
    let mut places = pinned.places().unwrap().clone();
    places.nodes.get_mut("n").unwrap().labels = [("host".to_owned(), "n".to_owned())].into();
    for wants in places.wants.values_mut() {
        std::sync::Arc::make_mut(wants).selector = [("host".to_owned(), "n".to_owned())].into();
    }
    pinned.set_places(places);
    let never = of(&pinned);
    assert_eq!((names(&never), never.expected), (vec!["never"], Expected::Blocked));
    let sentence = never.pods[0].sentence(at(0));
    assert!(sentence.contains("(only n matches its nodeSelector); waiting will not help"), "{sentence}");
    let crowd = of(&with_guests(&[guest("a"), guest("b")], 3));
    assert_eq!(names(&crowd), ["migrates", "unknown"], "there is room for one of them");
    let mut unread = with_guests(&[guest("a")], 2);
    unread.set_places(Places::default());
    assert_eq!(names(&of(&unread)), ["unknown"]);
}

#[test]
fn a_guest_that_cannot_be_moved_is_refused_with_reason_and_message() {
    let mut stiff = guest("a");
    let no =
        Condition::new("LiveMigratable", false, "HostDeviceNotLiveMigratable", "VMI uses a PCI host devices");
    stiff.conditions = vec![no];
    let foretold = of(&with_guests(&[stiff], 2));
    assert_eq!(foretold.expected, Expected::NotStarted);
    let words = foretold.refusals()[0].reason.kubectl_words().unwrap();
    assert_eq!(
        words,
        "Pods of virtual machines that must be live-migrated and cannot be (HostDeviceNotLiveMigratable: VMI uses a PCI host devices)"
    );
}
