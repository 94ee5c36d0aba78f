use super::*;
use crate::cluster::fact::Fact;
use crate::cluster::fact::Lease;
use crate::cluster::index::ListedAt;
use crate::drain::ownership::{MarkState, new_mark};
use crate::drain::policy::Policy;
use crate::drain::step::step;
use crate::reasons::{OwnerReason, Reason};
use crate::testing::{at, node, pod};

pub(super) fn lease(holder: &str, renewed: i64) -> Lease {
    Lease {
        key: key("n"),
        uid: crate::cluster::fact::Uid::from("lease"),
        holder: holder.into(),
        renewed: Some(at(renewed)),
        duration_seconds: 90,
        resource_version: "1".into(),
        transitions: 0,
        asked: None,
        answered: None,
        record: None,
    }
}

/// A claiming run on a node it has cordoned, with its time.
struct Held {
    index: Index,
    run: Run,
    policy: Policy,
}

impl Held {
    fn new() -> Self {
        let mut node = node("n");
        let mark = new_mark(&node, "me", &crate::drain::ownership::NodeChanges::default(), at(0));
        node.unschedulable = true;
        node.mark = Some(MarkState::Valid(Box::new(mark)));
        let mut index = Index::new();
        index.apply(Fact::Node(Box::new(node)));
        index.reset_pods("n", vec![pod("stays").deleting(0, 3600)], &ListedAt::default());
        let run = Run::new("me", Vec::new(), ["n".to_owned()]).claiming("box:1");
        Self { index, run, policy: Policy::default() }
    }

    /// The claims asked for at a time.
    fn at(&mut self, seconds: i64) -> Vec<Action> {
        let all = step(&self.index, &self.policy, &mut self.run, at(seconds)).actions;
        all.into_iter().filter(|a| matches!(a, Action::Hold { .. } | Action::Release { .. })).collect()
    }

    fn answer(&mut self, seconds: i64, action: &Action, outcome: Outcome, holder: Option<&str>) {
        if let Some(holder) = holder {
            self.index.apply(Fact::Lease(Box::new(lease(holder, seconds))));
        }
        self.run.record(&self.index, action, outcome, at(seconds));
    }
}

fn conflict() -> Outcome {
    Outcome::Conflict { message: "exists".into() }
}

#[test]
fn a_claim_is_asked_for_once_renewed_in_time_and_given_back() {
    let mut held = Held::new();
    let asked = held.at(0);
    assert!(matches!(asked.as_slice(), [Action::Hold { over: None, .. }]), "{asked:?}");
    assert!(held.at(1).is_empty(), "the answer is awaited");
    held.answer(1, &asked[0], Outcome::Done, Some("me/box:1"));
    assert!(held.at(30).is_empty());
    let renewed = held.at(31);
    assert!(matches!(renewed.as_slice(), [Action::Hold { over: Some(_), .. }]), "{renewed:?}");
    held.answer(31, &renewed[0], Outcome::Done, Some("me/box:1"));
    held.run.stop();
    let released = held.at(32);
    assert!(matches!(released.as_slice(), [Action::Release { .. }]), "{released:?}");
    assert!(!held.run.is_over(), "it is over when the claim is given back");
    held.answer(32, &released[0], conflict(), Some("them/lab:9"));
    assert!(held.run.is_over());
}

#[test]
fn a_lease_whose_writing_went_astray_is_found_and_given_back() {
    let lost = || Outcome::Unknown { message: "broken pipe".into() };
    let failed = || Outcome::Server { status: 500, message: "no".into() };
    for (held_before, outcome) in [(false, lost()), (true, lost()), (true, failed())] {
        let mut held = Held::new();
        let mut asked = held.at(0);
        if held_before {
            held.answer(0, &asked[0], Outcome::Done, Some("me/box:1"));
            asked = held.at(30);
        }
        held.answer(30, &asked[0], outcome, None);
        held.run.stop();
        let again = held.at(31);
        assert!(matches!(again.as_slice(), [Action::Hold { .. }]), "{again:?}");
        held.answer(31, &again[0], conflict(), Some("me/box:1"));
        let renewed = held.at(31);
        assert!(matches!(renewed.as_slice(), [Action::Hold { over: Some(_), .. }]), "{renewed:?}");
        held.answer(31, &renewed[0], Outcome::Done, Some("me/box:1"));
        let released = held.at(31);
        assert!(matches!(released.as_slice(), [Action::Release { .. }]), "{released:?}");
        held.answer(31, &released[0], Outcome::Done, None);
        assert!(held.run.is_over());
    }
}

#[test]
fn a_lease_that_cannot_be_found_out_about_does_not_keep_a_drain_for_ever() {
    let mut held = Held::new();
    let mut asked = held.at(0);
    held.run.stop();
    let mut tries = 0;
    for second in 1..60 {
        if let [action] = asked.as_slice() {
            held.answer(second, action, Outcome::Unknown { message: "broken pipe".into() }, None);
            tries += 1;
        }
        asked = held.at(second);
    }
    assert!(asked.is_empty() && tries < 20, "{tries}: {asked:?}");
    assert!(held.run.is_over());
}

#[test]
fn a_server_that_is_away_for_a_moment_does_not_leave_the_lease_behind() {
    let mut held = Held::new();
    let claimed = held.at(0);
    held.answer(0, &claimed[0], Outcome::Done, Some("me/box:1"));
    held.run.stop();
    for second in [1, 2, 4] {
        let released = held.at(second);
        assert!(matches!(released.as_slice(), [Action::Release { .. }]), "{second}: {released:?}");
        held.answer(second, &released[0], Outcome::Transport { message: "refused".into() }, None);
        assert!(held.at(second).is_empty(), "it rests, longer each time");
        assert!(!held.run.is_over());
    }
    let released = held.at(7);
    held.answer(7, &released[0], Outcome::Done, None);
    assert!(held.run.is_over());
}

#[test]
fn a_busy_server_is_waited_for_with_the_release_but_not_for_long() {
    for (asked, over) in [(Some(2), false), (None, false), (Some(60), true)] {
        let mut held = Held::new();
        let claimed = held.at(0);
        held.answer(0, &claimed[0], Outcome::Done, Some("me/box:1"));
        held.run.stop();
        let released = held.at(1);
        let retry_after = asked.map(Duration::from_secs);
        held.answer(1, &released[0], Outcome::Throttled { retry_after }, None);
        assert!(held.at(1).is_empty());
        assert_eq!(held.run.is_over(), over, "{asked:?}");
        let again = held.at(3);
        assert_eq!(again.len(), usize::from(!over), "{asked:?}: {again:?}");
    }
}

#[test]
fn a_lease_left_by_somebody_is_taken_over_by_whoever_has_the_mark() {
    let mut held = Held::new();
    let asked = held.at(0);
    held.answer(0, &asked[0], conflict(), Some("them/lab:9"));
    let again = held.at(0);
    assert!(
        matches!(again.as_slice(), [Action::Hold { over: Some(seen), .. }] if seen.holder == "them/lab:9"),
        "{again:?}"
    );
}

#[test]
fn the_lease_of_a_killed_run_is_given_back_by_the_next_one_also_if_that_ends_while_it_takes_it_over() {
    let mut held = Held::new();
    held.index.apply(Fact::Lease(Box::new(lease("me/box:0", 0))));
    let asked = held.at(0);
    assert!(matches!(asked.as_slice(), [Action::Hold { over: Some(_), .. }]), "{asked:?}");
    held.run.stop();
    assert!(held.at(1).is_empty(), "the answer is awaited");
    held.answer(1, &asked[0], conflict(), Some("me/box:0"));
    let again = held.at(1);
    assert!(matches!(again.as_slice(), [Action::Hold { over: Some(_), .. }]), "{again:?}");
    held.answer(1, &again[0], Outcome::Done, Some("me/box:1"));
    let released = held.at(1);
    assert!(matches!(released.as_slice(), [Action::Release { .. }]), "{released:?}");
    held.answer(1, &released[0], Outcome::Done, None);
    assert!(held.run.is_over());
}

#[test]
fn a_run_whose_claim_another_run_of_its_owner_took_ends() {
    let mut held = Held::new();
    let asked = held.at(0);
    held.answer(0, &asked[0], Outcome::Done, Some("me/box:1"));
    let renewed = held.at(30);
    held.answer(30, &renewed[0], conflict(), Some("me/box:2"));
    assert!(held.at(30).is_empty(), "the lease is theirs and stays");
    let Some(end) = held.run.nodes[0].end() else { panic!("{:?}", held.run.nodes[0].phase) };
    assert_eq!(
        *end,
        End::Refused { reason: Reason::Owner(OwnerReason::ContinuedElsewhere { instance: "box:2".into() }) }
    );
}

#[test]
fn a_server_in_trouble_is_asked_again_later_and_one_that_forbids_is_not() {
    let mut held = Held::new();
    let asked = held.at(0);
    held.answer(0, &asked[0], Outcome::Server { status: 500, message: "no".into() }, None);
    assert!(held.at(4).is_empty());
    let again = held.at(5);
    assert_eq!(again.len(), 1);
    held.answer(5, &again[0], Outcome::Forbidden { message: "no".into() }, None);
    assert!(held.at(500).is_empty());
}

/// A claiming run that watches the leases and holds its own since the beginning.
fn answering() -> Held {
    let mut held = Held::new();
    held.run.answer(true);
    let asked = held.at(0);
    let [Action::Hold { seconds: 3600, answered: Some(from), over: None, .. }] = asked.as_slice() else {
        panic!("{asked:?}");
    };
    assert_eq!(*from, at(0), "it says from the beginning that it listens");
    held.index.apply(Fact::Lease(Box::new(heard(1, None, 0))));
    held.answer(0, &asked[0], Outcome::Done, None);
    held
}

fn heard(version: u32, asked: Option<i64>, answered: i64) -> Lease {
    Lease {
        resource_version: version.to_string().into(),
        duration_seconds: 3600,
        asked: asked.map(at),
        answered: Some(at(answered)),
        ..lease("me/box:1", 0)
    }
}

#[test]
fn who_watches_its_lease_answers_each_question_once_and_renews_seldom() {
    let mut held = answering();
    assert!(held.at(1199).is_empty());
    held.index.apply(Fact::Lease(Box::new(heard(2, Some(900), 0))));
    let answers = held.at(900);
    assert!(
        matches!(answers.as_slice(), [Action::Hold { answered: Some(to), over: Some(_), .. }] if *to == at(900)),
        "{answers:?}"
    );
    assert!(held.at(900).is_empty(), "one at a time");
    held.index.apply(Fact::Lease(Box::new(heard(3, Some(900), 900))));
    held.answer(900, &answers[0], Outcome::Done, None);
    held.index.apply(Fact::Lease(Box::new(heard(2, Some(900), 0))));
    assert!(held.at(901).is_empty(), "an older state that comes late is no new question");
    assert!(held.at(2099).is_empty());
    let renewed = held.at(2100);
    assert!(
        matches!(renewed.as_slice(), [Action::Hold { answered: Some(to), .. }] if *to == at(900)),
        "what was answered stays answered: {renewed:?}"
    );
}

#[test]
fn who_can_no_longer_listen_says_so_and_renews_often() {
    let mut held = answering();
    held.run.answer(false);
    let deaf = held.at(5);
    assert!(matches!(deaf.as_slice(), [Action::Hold { seconds: 90, answered: None, .. }]), "{deaf:?}");
    let lease = Lease { resource_version: "2".into(), ..lease("me/box:1", 5) };
    held.index.apply(Fact::Lease(Box::new(lease)));
    held.answer(5, &deaf[0], Outcome::Done, None);
    assert!(held.at(34).is_empty());
    let renewed = held.at(35);
    assert!(matches!(renewed.as_slice(), [Action::Hold { answered: None, .. }]), "{renewed:?}");
}

#[test]
fn a_lease_that_somebody_took_is_noticed_at_once_and_left_to_them() {
    for (taker, end) in [
        ("me/box:2", Some(Reason::Owner(OwnerReason::ContinuedElsewhere { instance: "box:2".into() }))),
        ("them/lab:9", None),
    ] {
        let mut held = answering();
        held.index.apply(Fact::Lease(Box::new(Lease { resource_version: "2".into(), ..lease(taker, 5) })));
        assert!(held.at(5).is_empty());
        let ended = match held.run.nodes[0].end() {
            Some(End::Refused { reason }) => Some(reason.clone()),
            _ => None,
        };
        assert_eq!(ended, end, "whose the node is says its mark");
        held.run.stop();
        assert!(held.at(7).is_empty(), "it is not ours to remove");
        assert!(held.run.is_over());
    }
}

#[test]
fn a_lease_that_was_removed_is_written_anew_once_it_stays_away() {
    let mut held = answering();
    held.index.apply(Fact::LeaseAbsent(key("n")));
    assert!(held.at(10).is_empty(), "the watch may be behind");
    assert!(held.at(14).is_empty());
    let uid = crate::cluster::fact::Uid::from("another");
    held.index.apply(Fact::Lease(Box::new(Lease { uid, ..heard(1, None, 0) })));
    assert!(held.at(15).is_empty());
    held.index.apply(Fact::LeaseAbsent(key("n")));
    assert!(held.at(16).is_empty());
    assert!(held.at(20).is_empty());
    let anew = held.at(21);
    assert!(matches!(anew.as_slice(), [Action::Hold { over: None, .. }]), "{anew:?}");
}

#[test]
fn a_question_that_comes_while_the_lease_is_given_back_does_not_keep_it() {
    let mut held = answering();
    held.run.stop();
    let released = held.at(5);
    assert!(matches!(released.as_slice(), [Action::Release { .. }]), "{released:?}");
    held.index.apply(Fact::Lease(Box::new(heard(2, Some(5), 0))));
    held.answer(5, &released[0], conflict(), None);
    let again = held.at(5);
    assert!(
        matches!(again.as_slice(), [Action::Release { resource_version, .. }] if *resource_version == "2"),
        "{again:?}"
    );
    held.answer(5, &again[0], Outcome::Done, None);
    assert!(held.run.is_over());
}

#[test]
fn the_lease_of_another_drain_that_is_about_to_mark_the_node_is_left_to_it_and_the_mark_decides() {
    let begun = |lease: Lease| {
        let mut index = Index::new();
        index.apply(Fact::Node(Box::new(node("n"))));
        index.reset_pods("n", vec![pod("stays").deleting(0, 3600)], &ListedAt::default());
        index.apply(Fact::Lease(Box::new(lease)));
        let mut run = Run::new("me", Vec::new(), ["n".to_owned()]).claiming("box:2");
        run.answer(true);
        step(&index, &Policy::default(), &mut run, at(1)).actions
    };
    let theirs = begun(lease("ann/box:1", 0));
    assert!(matches!(theirs[..], [Action::Cordon { .. }]), "its record goes with the lease: {theirs:?}");
    for free in [lease("ann/box:1", -90), lease("", 0), lease("me/box:1", 0)] {
        let noted = begun(free);
        assert!(matches!(noted[..], [Action::Hold { .. }]), "the record comes before the cordon: {noted:?}");
    }
}

#[test]
fn who_ends_without_knowing_whether_its_lease_was_written_leaves_that_of_the_drain_that_has_the_node() {
    let mut held = Held::new();
    held.run.answer(true);
    let [asked] = &held.at(0)[..] else { panic!("the lease is asked for") };
    held.answer(0, asked, Outcome::Transport { message: "broken pipe".into() }, None);
    let mut theirs = node("n");
    let mark = new_mark(&theirs, "ann", &crate::drain::ownership::NodeChanges::default(), at(0));
    (theirs.unschedulable, theirs.resource_version) = (true, "2".into());
    theirs.mark = Some(MarkState::Valid(Box::new(mark)));
    held.index.apply(Fact::Node(Box::new(theirs)));
    held.index.apply(Fact::Lease(Box::new(lease("ann/box:1", 9))));
    for seconds in [10, 11, 12] {
        assert_eq!(held.at(seconds), [], "it is not ours");
    }
    assert!(held.run.is_over());
}

#[test]
fn an_answer_that_comes_too_late_does_not_take_the_lease_back_from_the_drain_that_took_the_node_over() {
    let mut held = answering();
    held.index.apply(Fact::Lease(Box::new(heard(2, Some(5), 0))));
    let [answer] = &held.at(20)[..] else { panic!("the question is answered") };
    let theirs = Lease { holder: "ann/box:9".into(), ..heard(3, None, 20) };
    held.index.apply(Fact::Lease(Box::new(theirs)));
    held.answer(20, answer, conflict(), None);
    assert_eq!(held.at(21), [], "it is theirs");
}
