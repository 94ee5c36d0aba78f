//! What the status says while it lasts.

use super::*;
use crate::drain::outlook::Foretold;
use crate::maintenance::status::{Estimate, UNREAD};
use crate::reasons::{GuestReason, OwnerReason};

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
            reason: Reason::Guest(GuestReason::VmUnprotected),
            // The drain may have read its clock after the status did.
            since: at(case.now + 1),
        };
        let survey = Survey {
            node: "n".into(),
            standing: Standing::Draining,
            worn: true,
            total: left,
            pending: pending(left),
            blockers: vec![blocker],
            end: None,
        };
        case.apply(Seen::Survey(survey));
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
fn what_cannot_be_read_is_said_and_old_numbers_are_not_shown_as_new() {
    let mut case = begun();
    case.survey("n", Standing::Draining, &["q"]);
    case.now += 5;
    case.settle("a");
    assert_eq!(case.status("a").drain_progress, 50);
    case.apply(Seen::Blind("n".into(), "could not read pods: no answer within 30 s".into(), at(case.now)));
    let again = case.settle("a");
    assert!(!case.status("a").says(UNREAD), "a watch that breaks off is begun anew in moments");
    assert_eq!(again, Some(at(case.now + 10)));
    case.now += 10;
    case.settle("a");
    let status = case.status("a");
    assert!(status.says(UNREAD), "{status:?}");
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
    assert!(!status.says(UNREAD) && status.blockers.is_empty(), "{status:?}");
    assert_eq!((status.drain_progress, status.last_error.as_str()), (50, ""));
}

#[test]
fn a_node_that_was_empty_is_not_called_empty_while_nobody_can_look() {
    let mut case = begun();
    case.drained("n");
    case.settle("a");
    assert_eq!((case.status("a").phase, case.status("a").drain_progress), (Some(Phase::Succeeded), 100));
    case.apply(Seen::Blind("n".into(), "could not read nodes".into(), at(case.now)));
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
    let seen = |case: &mut Case, seen| drop(case.apply(seen));
    seen(&mut case, Seen::Unread("the list of nodes".into(), "forbidden".into(), at(0)));
    case.now = 30;
    let decision = decide_unread(&case.index, &case.registry, &id("a"), at(case.now));
    let [Action::Own(Own::WriteStatus { status, .. }), ..] = decision.actions.as_slice() else {
        panic!("{decision:?}")
    };
    assert_eq!(status.last_error, "the list of nodes cannot be read since 2026-01-01T00:00:00Z: forbidden");
    case.settle("a");
    assert!(case.status("a").says(UNREAD));
    seen(&mut case, Seen::Read("the list of nodes".into()));
    case.settle("a");
    assert!(!case.status("a").says(UNREAD));
}

/// The drain of node n foretells its end between these seconds from now.
fn foretell(case: &mut Case, end: Option<(Option<i64>, i64)>) {
    let moment = |seconds: i64| at(case.now + seconds);
    let end =
        end.map(|(earliest, latest)| Foretold { earliest: earliest.map(moment), latest: moment(latest) });
    let mut survey = case.registry.survey("n").unwrap().clone();
    survey.end = end;
    case.apply(Seen::Survey(survey));
}

fn writes(case: &mut Case) -> usize {
    let before = case.done.len();
    case.settle("a");
    case.done[before..].iter().filter(|action| matches!(action, Action::Own(Own::WriteStatus { .. }))).count()
}

#[test]
fn the_estimated_end_is_what_the_drain_foretells_and_absent_while_that_is_unknown() {
    let mut case = begun();
    assert_eq!(case.status("a").estimated_end, None, "nothing was foretold");
    case.now += 10;
    foretell(&mut case, Some((Some(20), 40)));
    assert_eq!(writes(&mut case), 1, "that it is known now is news");
    let end =
        |earliest: Option<i64>, latest| Some(Estimate { earliest: earliest.map(at), latest: at(latest) });
    assert_eq!(case.status("a").estimated_end, end(Some(30), 50));
    case.now += 10;
    foretell(&mut case, Some((None, 100)));
    assert_eq!(writes(&mut case), 1);
    assert_eq!(case.status("a").estimated_end, end(None, 120), "only a limit is known");
    case.now += 10;
    foretell(&mut case, None);
    assert_eq!(writes(&mut case), 1, "an end that is not known any more is taken back");
    assert_eq!(case.status("a").estimated_end, None);
}

#[test]
fn the_estimated_end_is_written_again_when_it_has_moved_and_not_before() {
    let mut case = begun();
    case.now += 10;
    foretell(&mut case, Some((Some(50), 100)));
    assert_eq!(writes(&mut case), 1);
    case.now += 10;
    foretell(&mut case, Some((Some(42), 95)));
    assert_eq!(writes(&mut case), 0, "five seconds of ninety mislead no reader");
    foretell(&mut case, Some((Some(42), 125)));
    assert_eq!(writes(&mut case), 1);
    // Shortly before the end every few seconds count.
    case.now += 120;
    foretell(&mut case, Some((Some(0), 10)));
    assert_eq!(writes(&mut case), 1);
}

#[test]
fn what_has_ended_or_is_not_drained_has_no_estimated_end() {
    let told = || {
        let mut case = begun();
        case.now += 10;
        foretell(&mut case, Some((Some(20), 40)));
        case.settle("a");
        assert!(case.status("a").estimated_end.is_some());
        case.now += 10;
        case
    };
    let mut case = told();
    case.drained("n");
    case.settle("a");
    assert_eq!(case.status("a").estimated_end, None, "the node is empty");
    let mut case = told();
    case.learn(Fact::Lease(Box::new(lease("n", "other", 0))));
    case.settle("a");
    assert_eq!(case.status("a").estimated_end, None, "nothing is done to a node that another operator holds");
    let mut case = told();
    let reason = Reason::Owner(OwnerReason::MarkUnreadable { text: "?".into() });
    case.survey("n", Standing::Ended(End::Refused { reason }), &["p"]);
    case.settle("a");
    assert_eq!(case.status("a").estimated_end, None, "it is held up");
}

#[test]
fn an_estimate_is_rounded_outwards() {
    let half = |seconds: i64| at(seconds).checked_add(jiff::SignedDuration::from_millis(500)).unwrap();
    let told = Foretold { earliest: Some(half(3)), latest: half(7) };
    assert_eq!(Estimate::from(told), Estimate { earliest: Some(at(3)), latest: at(8) });
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
    case.apply(Seen::Left("n".into(), vec![mark]));
    let decision = case.decide("a");
    let written = decision.actions.iter().find_map(|action| match action {
        Action::Own(Own::WriteStatus { status, .. }) => Some(status),
        _ => None,
    });
    let status = written.expect("it is said");
    assert!(status.says(crate::maintenance::status::NOT_TAKEN_BACK));
    assert!(
        status.last_error.starts_with("virtual machine shop/db is still marked to leave node n"),
        "{}",
        status.last_error
    );
    assert!(status.blockers[0].fix.contains("evacuate-cancel vmi db -n shop"), "{:?}", status.blockers);
    assert!(
        !decision.actions.iter().any(|action| matches!(action, Action::Own(Own::Finalize { .. }))),
        "{decision:?}"
    );
}
