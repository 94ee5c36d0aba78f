//! Decisions about tenants, one state after the other.

use std::time::Duration;

use jiff::Timestamp;

use super::member::{CLUSTER_NAME, MACHINE_NAME, MACHINE_NAMESPACE};
use super::*;
use crate::action::Event;
use crate::cluster::fact::Fact;
use crate::cluster::fact::Key;
use crate::cluster::fact::Uid;
use crate::cluster::index::Index;
use crate::machines::testing::{Known, boot, instance, later, machine, migration, now, view};
use crate::machines::{
    Condition, Config, Instance, Kind, Machine as VirtualMachine, MigrationPhase, Phase, RunStrategy, names,
};

/// A running node of the cluster blue that has to leave its host, with a deadline in ten minutes.
fn node() -> Instance {
    let mut vmi = instance("blue-x", Phase::Running);
    for (name, value) in [(CLUSTER_NAME, "blue"), (MACHINE_NAME, "worker-1"), (MACHINE_NAMESPACE, "default")]
    {
        vmi.labels.insert(name.into(), value.into());
    }
    vmi.eviction_strategy = Some("External".into());
    vmi.evacuation_node = Some("n1".into());
    with(vmi, |marks| marks.deadline = Some(later(600).to_string()))
}

fn with(mut vmi: Instance, change: impl FnOnce(&mut Marks)) -> Instance {
    change(vmi.tenant.get_or_insert_default());
    vmi
}

/// One that is remembered as cordoned, so that nothing has to be written before it is drained.
fn recorded() -> Instance {
    with(node(), |marks| marks.cordoned = Some(Uid("uid-blue-x".into())))
}

/// About an instance whose eviction was first seen now, with ten minutes of time.
fn asked(index: &Index, work: &Work, at: Timestamp) -> Decision {
    let wanted =
        index.instance(&Key::new("default", "blue-x")).is_some_and(|one| is_wanted(one, &index.config));
    let first = wanted.then(|| First { seen: now(), deadline: later(600) });
    asked_since(first, index, work, at)
}

fn asked_since(first: Option<First>, index: &Index, work: &Work, at: Timestamp) -> Decision {
    let limits = Limits::default();
    decide(&View { index, work, limits: &limits, first }, &Key::new("default", "blue-x"), at)
}

fn about(vmi: &Instance, work: &Work, at: Timestamp) -> Decision {
    asked(&view([vmi.known()]), work, at)
}

/// About one whose eviction was not seen before.
fn about_new(vmi: &Instance, work: &Work, at: Timestamp) -> Decision {
    asked_since(None, &view([vmi.known()]), work, at)
}

fn words(decision: &Decision) -> Vec<&'static str> {
    let word = |action: &Action| match action {
        Action::Own(own) => match own {
            Own::Look { .. } => "look",
            Own::KeepFirst { .. } => "keep first",
            Own::ForgetFirst => "forget first",
            Own::Anchor { .. } => "anchor",
            Own::Remember { instance: Some(_), .. } => "remember",
            Own::Remember { instance: None, .. } => "forget",
            Own::Note { .. } => "note",
            Own::Clear => "clear",
            Own::Begin { .. } => "begin",
            Own::Stop => "stop",
            Own::Uncordon { .. } => "uncordon",
            Own::LetGo => "delete",
        },
        Action::Patch { .. } => "conditions",
        Action::Migrate { .. } => "migrate",
        other => panic!("{other:?}"),
    };
    let mut words: Vec<&'static str> = decision.actions.iter().map(word).collect();
    for event in decision.events.iter().rev() {
        words.insert(event.after, event.reason);
    }
    words
}

fn does(vmi: &Instance, work: &Work) -> Vec<&'static str> {
    words(&about(vmi, work, now()))
}

fn at(stage: Stage) -> Work {
    Work { stage, ..Work::default() }
}

fn in_trouble(trouble: Trouble) -> Work {
    let mut work = at(Stage::Draining);
    work.record(Report::Failed(trouble), now());
    work
}

fn missing() -> Trouble {
    Trouble::SecretMissing(Key::new("default", "blue-kubeconfig"))
}

#[test]
fn c01_c09_an_instance_that_nobody_wants_away_is_left_alone_and_its_tenant_too() {
    let mut vmi = node();
    vmi.evacuation_node = None;
    vmi.tenant = None;
    assert!(does(&vmi, &Work::default()).is_empty());
    vmi.evacuation_node = Some("n0".into());
    assert!(does(&vmi, &Work::default()).is_empty(), "the mark is about another node");
}

#[test]
fn only_machines_of_clusters_are_ours() {
    for label in [MACHINE_NAME, CLUSTER_NAME] {
        let mut vmi = node();
        vmi.labels.remove(label);
        assert!(does(&vmi, &Work::default()).is_empty(), "{label}");
        assert!(!is_wanted(&vmi, &Config::default()));
    }
}

#[test]
fn the_strategy_has_to_be_external_besides_the_mark() {
    for word in ["LiveMigrate", "LiveMigrateIfPossible", "None"] {
        let mut vmi = node();
        vmi.eviction_strategy = Some(word.into());
        assert!(!is_wanted(&vmi, &Config::default()));
        let done = does(&vmi, &Work::default());
        assert_eq!(done, ["clear"], "{word}: what was begun under External is taken back");
    }
}

#[test]
fn the_default_of_the_cluster_counts_and_one_that_is_not_known_yet_changes_nothing() {
    let mut vmi = recorded();
    vmi.eviction_strategy = None;
    assert!(does(&vmi, &at(Stage::Draining)).is_empty());
    let mut index = view([vmi.known()]);
    index.config.eviction_strategy = Some("External".into());
    assert_eq!(words(&asked(&index, &Work::default(), now())), ["begin"]);
}

#[test]
fn c02_c10_an_instance_that_is_being_deleted_is_left_alone() {
    let mut vmi = recorded();
    vmi.deleting = true;
    assert!(does(&vmi, &Work::default()).is_empty());
    assert_eq!(does(&vmi, &at(Stage::Draining)), ["stop"], "whoever deletes it does not wait for us");
    assert!(!is_wanted(&vmi, &Config::default()));
    let mut over = recorded();
    over.phase = Phase::Succeeded;
    assert!(does(&over, &Work::default()).is_empty());
}

#[test]
fn c03_what_an_evacuation_left_behind_is_removed_when_it_is_off() {
    let mut vmi = with(node(), |marks| marks.capk_deadline = Some("whatever".into()));
    vmi.evacuation_node = None;
    vmi.conditions = vec![Condition::new(BLOCKED, true, "SecretMissing", "no")];
    let decision = about(&vmi, &Work::default(), now());
    assert_eq!(words(&decision), ["conditions", "clear"]);
}

#[test]
fn the_deadline_is_written_before_the_tenant_is_touched() {
    let bare = with(node(), |marks| marks.deadline = None);
    let does = |vmi: &Instance, work: &Work| words(&about_new(vmi, work, now()));
    assert_eq!(does(&bare, &Work::default()), ["look"], "the cluster may say how long");
    let mut work = Work::default();
    work.record(Report::Looked(None), now());
    let decision = about_new(&bare, &work, now());
    assert_eq!(words(&decision), ["keep first", "anchor", "TenantDrainStarted"]);
    let first = First { seen: now(), deadline: later(600) };
    assert_eq!(decision.actions[0], Action::Own(Own::KeepFirst { first }));
    assert_eq!(decision.actions[1], Action::Own(Own::Anchor { deadline: later(600) }));
    work.record(Report::Looked(Some("20m".into())), now());
    assert_eq!(about_new(&bare, &work, now()).actions[1], Action::Own(Own::Anchor { deadline: later(1200) }));
    let own = with(bare, |marks| marks.timeout = Some("90s".into()));
    assert_eq!(
        about_new(&own, &Work::default(), now()).actions[1],
        Action::Own(Own::Anchor { deadline: later(90) })
    );
}

#[test]
fn a_deadline_that_is_removed_spoilt_or_moved_too_far_comes_back_as_it_was_first_given() {
    let first = First { seen: now(), deadline: later(600) };
    for text in [None, Some("tomorrow"), Some(""), Some("9999-01-01T00:00:00Z")] {
        let vmi = with(recorded(), |marks| {
            marks.deadline = text.map(Into::into);
            marks.timeout = Some("20h".into());
        });
        for at in [now(), later(599)] {
            let decision = asked_since(Some(first), &view([vmi.known()]), &Work::default(), at);
            assert_eq!(decision.actions, [Action::Own(Own::Anchor { deadline: later(600) })], "{text:?}");
            assert_eq!(decision.look_again, Some(later(600)));
        }
        let up = words(&about(&vmi, &Work::default(), later(600)));
        assert_eq!(up, ["delete", "TenantDeadline"], "{text:?}: it need not be written to hold");
    }
    let moved = with(recorded(), |marks| marks.deadline = Some(later(24 * 3600).to_string()));
    assert_eq!(does(&moved, &Work::default()), ["begin"], "within the limit it may be moved");
    let rolled = with(recorded(), |marks| marks.deadline = Some(later(24 * 3600 + 1).to_string()));
    assert_eq!(
        words(&about(&rolled, &Work::default(), later(500))),
        ["anchor"],
        "from now it would be within"
    );
    let past = with(recorded(), |marks| marks.deadline = Some(later(-5).to_string()));
    assert_eq!(does(&past, &Work::default()), ["delete", "TenantDeadline"], "past is past");
}

#[test]
fn a_deadline_of_which_nothing_was_kept_is_kept_first_and_a_withdrawn_eviction_is_forgotten() {
    let decision = about_new(&recorded(), &Work::default(), later(30));
    let first = First { seen: later(30), deadline: later(600) };
    assert_eq!(decision.actions, [Action::Own(Own::KeepFirst { first })]);
    let mut vmi = recorded();
    vmi.evacuation_node = None;
    let decision = asked_since(Some(first), &view([vmi.known()]), &Work::default(), now());
    assert_eq!(words(&decision), ["clear", "forget first"], "so that the next eviction is a new one");
    let clean = with(vmi, |marks| marks.deadline = None);
    let decision = asked_since(Some(first), &view([clean.known()]), &Work::default(), now());
    assert_eq!(words(&decision), ["forget first"]);
}

#[test]
fn a_deadline_that_cannot_be_read_or_is_too_far_away_is_written_anew() {
    for text in ["tomorrow", "", "9999-01-01T00:00:00Z"] {
        let vmi = with(node(), |marks| {
            marks.deadline = Some(text.into());
            marks.timeout = Some("1m".into());
        });
        let anchor = about_new(&vmi, &Work::default(), now()).actions.into_iter().nth(1);
        assert_eq!(anchor, Some(Action::Own(Own::Anchor { deadline: later(60) })), "{text:?}");
    }
}

#[test]
fn the_deadline_of_the_cluster_api_provider_is_honoured() {
    let vmi = with(recorded(), |marks| {
        marks.deadline = None;
        marks.capk_deadline = Some(later(30).to_string());
    });
    let decision = about(&vmi, &Work::default(), now());
    assert_eq!((words(&decision), decision.look_again), (vec!["begin"], Some(later(30))));
    assert_eq!(words(&about(&vmi, &Work::default(), later(30))), ["delete", "TenantDeadline"]);
}

#[test]
fn the_cordon_is_remembered_where_it_outlives_the_instance_before_it_is_made() {
    let vm = machine("blue-x", RunStrategy::Always);
    let mut vmi = node();
    vmi.owner = boot(&vm, Phase::Running).owner;
    let decision = asked(&view([vm.known(), vmi.known()]), &Work::default(), now());
    let [Action::Own(Own::Remember { at, instance })] = decision.actions.as_slice() else {
        panic!("{decision:?}")
    };
    assert_eq!(
        (at.kind, at.uid.clone(), instance.clone()),
        (Kind::Machine, vm.uid.clone(), Some(vmi.uid.clone()))
    );
    let cordoned = VirtualMachine { tenant_cordoned: Some(vmi.uid.clone()), ..vm };
    let decision = asked(&view([cordoned.known(), vmi.known()]), &Work::default(), now());
    let [Action::Own(Own::Begin { member })] = decision.actions.as_slice() else { panic!("{decision:?}") };
    assert_eq!(
        member.node, "worker-1",
        "the node has the name of the machine, not of the host or the instance"
    );
    assert_eq!(member.secret, Key::new("default", "blue-kubeconfig"));
    let decision = about(&node(), &Work::default(), now());
    assert!(
        matches!(decision.actions.as_slice(), [Action::Own(Own::Remember { at, .. })] if at.kind == Kind::Instance),
        "without a machine there is only the instance"
    );
}

#[test]
fn a_note_about_another_incarnation_or_on_another_machine_is_not_ours() {
    let before = with(node(), |marks| marks.cordoned = Some(Uid("the one before".into())));
    assert_eq!(does(&before, &Work::default()), ["remember"]);
    let namesake = VirtualMachine {
        uid: Uid("somebody else".into()),
        tenant_cordoned: Some(Uid("uid-blue-x".into())),
        ..machine("blue-x", RunStrategy::Always)
    };
    let mut vmi = node();
    vmi.owner = boot(&machine("blue-x", RunStrategy::Always), Phase::Running).owner;
    let decision = asked(&view([namesake.known(), vmi.known()]), &Work::default(), now());
    assert!(
        matches!(decision.actions.as_slice(), [Action::Own(Own::Remember { at, .. })] if at.kind == Kind::Instance),
        "{decision:?}"
    );
}

#[test]
fn a_tenant_that_was_reached_is_given_the_short_pauses_again() {
    let mut work = in_trouble(missing());
    work.record(Report::Failed(missing()), now());
    assert_eq!(work.not_before, Some(later(10)));
    work.record(Report::Counted(Count::default()), now());
    assert_eq!(work.trouble, None);
    work.record(Report::Failed(missing()), now());
    assert_eq!(work.not_before, Some(later(5)));
}

#[test]
fn c04_an_empty_node_lets_its_machine_go() {
    assert_eq!(does(&recorded(), &Work::default()), ["begin"]);
    let mut work = at(Stage::Draining);
    work.record(Report::Drained, now());
    assert_eq!(does(&recorded(), &work), ["delete", "TenantDrained"]);
}

#[test]
fn c05_c14_a_failure_is_tried_again_later_and_the_machine_stays() {
    let trouble = Trouble::Unreachable { cluster: "blue".into(), why: "connection refused".into() };
    let mut work = in_trouble(trouble.clone());
    let decision = about(&recorded(), &work, now());
    assert_eq!(words(&decision), ["conditions", "TenantBlocked", "note"]);
    assert_eq!(decision.look_again, Some(later(5)));
    assert_eq!(words(&about(&recorded(), &work, later(5))), ["begin"]);
    let pauses: Vec<i64> = (0..6)
        .map(|_| {
            work.record(Report::Failed(trouble.clone()), now());
            work.not_before.unwrap().duration_since(now()).as_secs()
        })
        .collect();
    assert_eq!(pauses, [10, 20, 40, 60, 60, 60]);
}

#[test]
fn a_drain_that_waits_for_its_turn_says_so_and_one_that_made_way_goes_on_after_a_pause() {
    let mut work = at(Stage::Draining);
    work.record(Report::Waits(Trouble::Waits { cluster: "blue".into() }), now());
    let decision = about(&recorded(), &work, now());
    assert_eq!(words(&decision), ["conditions", "TenantBlocked", "note"]);
    let [Event { message, after: 1, .. }] = &decision.events[..] else { panic!("{decision:?}") };
    assert_eq!(message, "cluster blue has to wait, because 8 visits to tenants are under way already");
    assert_eq!(words(&about(&recorded(), &work, later(600))), ["stop", "delete", "TenantDeadline"]);
    work.record(Report::Counted(Count::default()), now());
    assert_eq!(work.trouble, None);
    work.record(Report::MadeWay, now());
    assert_eq!(about(&recorded(), &work, now()).look_again, Some(later(5)));
    assert_eq!(words(&about(&recorded(), &work, later(5))), ["begin"]);
}

#[test]
fn trouble_is_told_once_and_stays_in_the_condition() {
    let work = in_trouble(missing());
    let decision = about(&recorded(), &work, now());
    let [Event { message, warning: true, after: 1, .. }] = &decision.events[..] else {
        panic!("{decision:?}")
    };
    assert_eq!(message, "there is no Secret default/blue-kubeconfig with the kubeconfig of the cluster");
    let mut told = recorded();
    told.conditions = vec![Condition::new(BLOCKED, true, "SecretMissing", message)];
    assert_eq!(does(&told, &work), ["note"]);
    // After a restart nothing is known; what is written stays until something is.
    assert_eq!(does(&told, &Work::default()), ["begin"]);
    assert!(does(&told, &at(Stage::Draining)).is_empty());
    let draining = Work { count: Some(Count::default()), ..at(Stage::Draining) };
    assert_eq!(does(&told, &draining), ["conditions", "note"]);
    // Another sentence of the same kind is no news.
    let mut changed = told.clone();
    changed.conditions[0].message = Some("other words".into());
    assert_eq!(does(&changed, &work), ["conditions", "note"]);
}

#[test]
fn c06_when_the_time_is_up_the_machine_goes_whatever_the_drain_does() {
    let up = later(600);
    for (work, expected) in [
        (Work::default(), vec!["delete", "TenantDeadline"]),
        (at(Stage::Draining), vec!["stop", "delete", "TenantDeadline"]),
        (at(Stage::Stopping), vec!["delete", "TenantDeadline"]),
        (in_trouble(missing()), vec!["delete", "TenantDeadline"]),
        (at(Stage::Drained), vec!["delete", "TenantDeadline"]),
    ] {
        assert_eq!(words(&about(&recorded(), &work, up)), expected, "{work:?}");
        let early = words(&about(&recorded(), &work, later(599)));
        assert!(work.stage == Stage::Drained || !early.contains(&"delete"), "{work:?}: {early:?}");
    }
}

#[test]
fn a_clock_that_is_set_forward_takes_nothing_from_a_tenants_time_and_a_pause_is_as_long_as_before() {
    let hour = jiff::SignedDuration::from_secs(3600);
    let mut work = at(Stage::Draining);
    work.record(Report::Failed(missing()), now());
    let pause = work.not_before.unwrap().duration_since(now());
    work.shift(hour);
    assert_eq!(work.not_before.unwrap().duration_since(later(3600)), pause);
    let early = words(&about(&recorded(), &work, later(3600 + 599)));
    assert!(!early.contains(&"delete"), "{early:?}");
    assert_eq!(words(&about(&recorded(), &work, later(3600 + 600))), ["delete", "TenantDeadline"]);
    // Set back to where it was, everything is as it was; set back further, the time of day comes later.
    work.shift(-hour);
    assert_eq!(words(&about(&recorded(), &work, later(600))), ["delete", "TenantDeadline"]);
    work.shift(-hour);
    let early = words(&about(&recorded(), &work, later(599)));
    assert!(!early.contains(&"delete"), "{early:?}");
}

#[test]
fn what_cannot_be_read_is_said_on_machines_that_have_to_go_and_taken_back() {
    let say = |vmi: &Instance, words: Option<&str>| {
        let (index, limits) = (view([vmi.known()]), Limits::default());
        let work = Work::default();
        let view = View { index: &index, work: &work, limits: &limits, first: None };
        say_unread(&view, &Key::new("default", "blue-x"), words, now()).actions
    };
    let words = "the list of virtualmachines cannot be read";
    let actions = say(&recorded(), Some(words));
    let [Action::Patch { fields: list, .. }] = actions.as_slice() else { panic!("{actions:?}") };
    let text = format!("{list:?}");
    assert!(text.contains("TenantUnread") && text.contains("CannotRead") && text.contains(words), "{text}");
    let mut told = recorded();
    told.conditions.push(Condition::new("TenantUnread", true, "CannotRead", words));
    told.conditions.iter_mut().for_each(|one| one.last_transition_time = Some(now().to_string().into()));
    assert_eq!(say(&told, Some(words)), [], "once");
    let actions = say(&told, None);
    let [Action::Patch { fields: list, .. }] = actions.as_slice() else { panic!("{actions:?}") };
    assert!(!format!("{list:?}").contains("TenantUnread"), "{list:?}");
    let mut stays = recorded();
    stays.evacuation_node = None;
    assert_eq!(say(&stays, Some(words)), [], "it does not concern it");
}

#[test]
fn a_machine_that_is_not_ready_goes_at_the_deadline_all_the_same() {
    let mut vmi = recorded();
    vmi.conditions = vec![Condition::new("Ready", false, "GuestNotRunning", "")];
    assert_eq!(does(&vmi, &Work::default()), ["begin"]);
    assert_eq!(words(&about(&vmi, &Work::default(), later(600))), ["delete", "TenantDeadline"]);
}

#[test]
fn what_was_left_is_told_when_the_time_is_up() {
    let mut work = at(Stage::Draining);
    let blocker = Some("pod shop/web-1 is protected".to_owned());
    work.record(Report::Counted(Count { left: 2, total: 5, blocker }), now());
    let decision = about(&recorded(), &work, later(600));
    let [Event { message, .. }] = &decision.events[..] else { panic!("{decision:?}") };
    assert_eq!(
        message,
        "the time for draining node worker-1 of cluster blue is up, the machine is deleted; \
         2 of 5 pods were left: pod shop/web-1 is protected"
    );
}

#[test]
fn progress_is_written_when_it_changes_and_not_more_often_than_every_second() {
    let mut work = at(Stage::Draining);
    assert!(does(&recorded(), &work).is_empty(), "nothing is known yet");
    work.record(Report::Counted(Count { left: 3, total: 3, blocker: None }), now());
    let decision = about(&recorded(), &work, now());
    let [Action::Own(Own::Note { progress })] = decision.actions.as_slice() else { panic!("{decision:?}") };
    assert_eq!((progress.left, progress.deadline), (Some(3), later(600)));
    let noted = with(recorded(), |marks| marks.progress = Some(progress.clone()));
    assert!(does(&noted, &work).is_empty());
    work.noted = Some(now());
    work.record(Report::Counted(Count { left: 2, total: 3, blocker: None }), now());
    let decision = about(&noted, &work, now());
    assert_eq!((words(&decision), decision.look_again), (vec![], Some(later(1))));
    assert_eq!(words(&about(&noted, &work, later(1))), ["note"]);
}

#[test]
fn a_withdrawn_mark_stops_the_drain_clears_the_deadline_and_uncordons() {
    let mut vmi = recorded();
    vmi.evacuation_node = None;
    let mut work = at(Stage::Draining);
    assert_eq!(does(&vmi, &work), ["stop"]);
    work.begin(Stage::Stopping);
    assert!(does(&vmi, &work).is_empty(), "one thing after the other");
    work.record(Report::Stopped, now());
    assert_eq!(does(&vmi, &work), ["clear"], "so that the next evacuation finds no old deadline");
    let clean = with(vmi, |marks| marks.deadline = None);
    assert_eq!(does(&clean, &work), ["uncordon"]);
    work.record(Report::Uncordoned, now());
    assert_eq!(does(&clean, &work), ["forget"]);
    let forgotten = with(clean, |marks| marks.cordoned = None);
    assert!(does(&forgotten, &work).is_empty());
}

#[test]
fn c07_c08_the_next_incarnation_gets_its_node_back_once_it_runs() {
    let vm = VirtualMachine {
        tenant_cordoned: Some(Uid("the one before".into())),
        ..machine("blue-x", RunStrategy::Always)
    };
    let mut vmi = node();
    vmi.owner = boot(&vm, Phase::Running).owner;
    (vmi.evacuation_node, vmi.tenant) = (None, None);
    let ask = |vmi: &Instance, work: &Work| words(&asked(&view([vm.known(), vmi.known()]), work, now()));
    let mut starting = vmi.clone();
    starting.phase = Phase::Scheduling;
    assert!(ask(&starting, &Work::default()).is_empty());
    assert_eq!(ask(&vmi, &Work::default()), ["uncordon"]);
    assert_eq!(ask(&vmi, &at(Stage::Uncordoned)), ["forget"], "c08, c11: nothing to undo is as good");
}

#[test]
fn c12_c13_a_tenant_that_cannot_be_reached_is_asked_again_and_nothing_is_forgotten() {
    let vmi = {
        let mut vmi = with(recorded(), |marks| marks.deadline = None);
        vmi.evacuation_node = None;
        vmi
    };
    let mut work = at(Stage::Uncordoning);
    work.record(Report::Failed(missing()), now());
    let decision = about(&vmi, &work, now());
    assert_eq!((words(&decision), decision.look_again), (vec![], Some(later(5))));
    assert_eq!(words(&about(&vmi, &work, later(5))), ["uncordon"]);
}

#[test]
fn a_machine_that_can_be_moved_is_moved_where_its_policy_says_so() {
    let movable = |policy: Option<&str>, can: bool| {
        let mut vmi = with(recorded(), |marks| marks.policy = policy.map(Into::into));
        vmi.conditions = vec![Condition::new("LiveMigratable", can, "", "")];
        vmi
    };
    assert_eq!(does(&movable(Some("migrate-first"), true), &Work::default()), ["migrate"]);
    assert_eq!(does(&movable(Some("migrate-first"), false), &Work::default()), ["begin"]);
    assert_eq!(does(&movable(Some("drain"), true), &Work::default()), ["begin"]);
    assert_eq!(does(&movable(None, true), &Work::default()), ["begin"]);
}

#[test]
fn moves_that_fail_twice_give_way_to_the_drain_and_the_deadline_holds_for_them_too() {
    let mut vmi = with(recorded(), |marks| marks.policy = Some("migrate-first".into()));
    vmi.conditions = vec![Condition::new("LiveMigratable", true, "", "")];
    let attempt = |name: &str, phase| {
        let mut one = migration(name, &vmi, phase);
        one.annotations.insert(names::EVACUATION_MIGRATION.into(), "n1".into());
        one
    };
    let ask = |seen: Vec<Fact>, at| {
        words(&asked(&view(seen.into_iter().chain([vmi.known()])), &Work::default(), at))
    };
    let (first, second) = (attempt("a", MigrationPhase::Failed), attempt("b", MigrationPhase::Failed));
    let running = attempt("c", MigrationPhase::Running);
    assert_eq!(ask(vec![first.known()], now()), ["migrate"]);
    assert!(ask(vec![running.known()], now()).is_empty());
    assert_eq!(ask(vec![first.known(), second.known()], now()), ["begin"]);
    assert_eq!(ask(vec![running.known()], later(600)), ["delete", "TenantDeadline"]);
}

#[test]
fn a_machine_that_somebody_moves_is_not_deleted_under_way() {
    let vmi = recorded();
    let moving = migration("theirs", &vmi, MigrationPhase::Running);
    let index = view([vmi.known(), moving.known()]);
    assert!(words(&asked(&index, &at(Stage::Drained), now())).is_empty());
    assert!(words(&asked(&index, &Work::default(), now())).is_empty());
}

#[test]
fn a_write_that_came_too_late_is_made_again_soon_and_a_refused_one_later() {
    let mut work = Work::default();
    work.record(Report::Conflict, now());
    let decision = about(&recorded(), &work, now());
    assert!(decision.actions.is_empty());
    assert!(decision.look_again.unwrap() < later(1));
    work.record(Report::Refused, now());
    assert_eq!(words(&about(&recorded(), &work, later(2))), ["begin"]);
    work.record(Report::Written, now());
    assert_eq!(does(&recorded(), &work), ["begin"]);
}

#[test]
fn a_secret_serves_its_own_namespace_and_those_it_names() {
    let secret = Key::new("blue", "blue-kubeconfig");
    let named = |text: &str| [(NAMESPACES.to_owned(), text.to_owned())].into();
    assert!(member::serves(&secret, &[].into(), "blue"));
    assert!(!member::serves(&secret, &[].into(), "evil"));
    assert!(member::serves(&secret, &named("vms, more"), "more"));
    assert!(!member::serves(&secret, &named("vms,more"), "mor"));
}

#[test]
fn c16_a_node_is_the_machine_that_it_says_it_is() {
    let vmi = { Instance { addresses: vec!["10.1.0.7".into()], ..node() } };
    let member = member(&vmi).unwrap();
    let node = |provider_id: &str, addresses: &[&str]| Machine {
        provider_id: provider_id.into(),
        addresses: addresses.iter().map(|&one| one.to_owned()).collect(),
    };
    let refused = |machine| member::contradiction(&member, &vmi, &machine);
    assert_eq!(refused(node("kubevirt://worker-1", &["10.9.9.9"])), None);
    assert_eq!(refused(node("kubevirt://blue-x", &[])), None);
    assert_eq!(
        refused(node("kubevirt://worker-2", &[])),
        Some("its provider id is kubevirt://worker-2".into())
    );
    assert_eq!(refused(node("aws:///i-1", &["10.1.0.7"])), Some("its provider id is aws:///i-1".into()));
    assert_eq!(refused(node("", &["10.1.0.7"])), None);
    assert_eq!(refused(node("", &["10.9.9.9"])), Some("its addresses are 10.9.9.9".into()));
    assert_eq!(refused(node("", &[])), None, "nothing contradicts");
}

#[test]
fn the_terms_wait_for_pods_that_can_be_seen_to_stop_and_not_for_others() {
    assert_eq!(terms::policy(false).skip_wait_for_delete, None);
    let bound = terms::policy(true).skip_wait_for_delete.unwrap();
    assert!(bound < Limits::default().usual);
    let policy = terms::policy(false);
    assert!(policy.force && policy.ignore_daemonsets && policy.delete_emptydir_data);
    assert!(!policy.disable_eviction, "the budgets of the tenant are respected");
    assert!(policy.settle > Duration::from_secs(24 * 3600));
}
