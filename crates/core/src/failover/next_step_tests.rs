use rstest::rstest;

use super::*;
use crate::cluster::fact::{Key, Uid};
use crate::drain::ownership::{NodeChanges, new_mark};
use crate::failover::suspect::FencedState;
use crate::failover::suspect::testing::{lease, ready, silent};
use crate::reasons::{OwnerReason, Reason};
use crate::testing::{at, taint};

type Change = fn(&mut Suspect);

fn statement() -> How {
    How::Statement { by: "kim".into(), reason: "pulled the plug".into() }
}

fn agent() -> How {
    How::Agent { program: "fence_x".into() }
}

/// A node that has been looked at since this second and has not changed.
fn looked(suspect: &Suspect, since: i64) -> Silence {
    let mut silence = Silence::default();
    silence.see(suspect, at(since));
    silence
}

fn with(mut suspect: Suspect, record: Fenced) -> Suspect {
    suspect.node.life.fenced = Some(FencedState::Valid(Box::new(record)));
    suspect
}

fn recorded(how: How, second: i64) -> Suspect {
    let suspect = silent("n");
    let record = Fenced::new(&suspect, how, "kim", at(second));
    with(suspect, record)
}

fn next_of(suspect: &Suspect, since: i64, now: i64) -> NextStep {
    let mut witness = Witness::default();
    witness.see(suspect, at(since));
    next(suspect, &looked(suspect, since), &witness, at(now))
}

#[test]
fn a_ready_node_has_not_failed() {
    let refused = may_begin(&ready("n", at(0)), &Ownership::Free, None).unwrap_err();
    assert!(refused.message().starts_with("is Ready since "), "{}", refused.message());
    assert!(matches!(next_of(&ready("n", at(0)), 0, 100), NextStep::Refuse(Refusal::Ready { .. })));
}

#[test]
fn d05_a_node_that_another_operator_looks_after_is_left_to_it() {
    let lease = Key::new("medik8s-leases", "node-n");
    let other = Ownership::Other(Reason::Owner(OwnerReason::OwnedByLease {
        lease,
        holder: "NodeHealthCheck-x".into(),
    }));
    assert!(matches!(may_begin(&silent("n"), &other, None), Err(Refusal::Owned { .. })));
    assert_eq!(may_begin(&silent("n"), &Ownership::ForeignCordon, None), Ok(()));
}

#[test]
fn without_a_record_nothing_is_released_and_with_one_once() {
    assert_eq!(next_of(&silent("n"), 0, 100), NextStep::Prove);
    let mut suspect = recorded(statement(), 100);
    assert_eq!(next_of(&suspect, 80, 101), NextStep::Release, "silent before the statement");
    if let Some(FencedState::Valid(record)) = &mut suspect.node.life.fenced {
        record.released = true;
    }
    assert_eq!(next_of(&suspect, 80, 102), NextStep::Await);
}

#[rstest]
#[case(statement())]
#[case(agent())]
#[case(How::Provider { signal: SHUT_DOWN.into() })]
#[case(How::Time { seconds: 180, policy: "p".into() })]
fn a_process_that_has_just_begun_to_look_watches_for_two_lease_intervals_before_it_releases(
    #[case] how: How,
) {
    let suspect = recorded(how, 100);
    assert_eq!(next_of(&suspect, 1000, 1000), NextStep::Watch { until: at(1020) });
    assert_eq!(next_of(&suspect, 1000, 1019), NextStep::Watch { until: at(1020) });
    assert_eq!(next_of(&suspect, 1000, 1020), NextStep::Release);
}

#[test]
fn after_an_agent_two_lease_intervals_pass_however_long_the_node_was_silent_before() {
    let suspect = recorded(agent(), 1000);
    let mut witness = Witness::default();
    witness.see(&suspect, at(1010));
    let silence = looked(&suspect, 0);
    assert_eq!(next(&suspect, &silence, &witness, at(1011)), NextStep::Watch { until: at(1030) });
    assert_eq!(next(&suspect, &silence, &witness, at(1030)), NextStep::Release);
}

#[test]
fn a_sign_of_life_after_an_agent_ends_the_run_with_the_sentence() {
    let suspect = recorded(agent(), 1000);
    let (mut witness, mut silence) = (Witness::default(), looked(&suspect, 900));
    witness.see(&suspect, at(1010));
    let mut alive = suspect.clone();
    // By a clock that is ten minutes slow.
    alive.lease = Some(lease("n", at(415)));
    silence.see(&alive, at(1015));
    witness.see(&alive, at(1015));
    let NextStep::Refuse(refused) = next(&alive, &silence, &witness, at(1015)) else { panic!("it lives") };
    assert!(
        refused.message().contains("the machine behind this agent is not this node"),
        "{}",
        refused.message()
    );
    // So it stays for whoever acts for the same policy, and a person may try anew.
    let policy = PolicyRef { name: "p".into(), uid: Uid("u".into()), generation: 3 };
    let mut record = alive.record().unwrap().clone();
    record.policy = Some(policy.clone());
    let alive = with(alive, record);
    let of = |generation| Witness::new(Some(PolicyRef { generation, ..policy.clone() }));
    assert!(matches!(next(&alive, &silence, &of(3), at(5000)), NextStep::Refuse(_)));
    assert_eq!(next(&alive, &silence, &of(4), at(5000)), NextStep::Prove);
    assert_eq!(next(&alive, &silence, &Witness::default(), at(5000)), NextStep::Prove);
}

#[test]
fn a_record_that_life_refuted_asks_for_a_new_proof() {
    let mut suspect = recorded(statement(), 100);
    suspect.lease = Some(lease("n", at(150)));
    assert_eq!(next_of(&suspect, 0, 160), NextStep::Prove);
    suspect.node.life.fenced = Some(FencedState::Unreadable("yes".into()));
    assert_eq!(next_of(&suspect, 0, 160), NextStep::Prove);
}

#[test]
fn nobody_can_state_that_a_machine_is_off_whose_kubelet_answers() {
    let mut suspect = silent("n");
    suspect.node.health = Health::NotReady;
    let mut silence = looked(&suspect, 90);
    // It answers, by a clock that is ten minutes slow.
    suspect.lease = Some(lease("n", at(-505)));
    silence.see(&suspect, at(95));
    let refused = accept(&suspect, &silence, statement(), "kim", at(100)).unwrap_err();
    assert_eq!(refused, Refusal::Answers { seconds: 5 });
    assert!(accept(&suspect, &silence, agent(), "kim", at(100)).is_ok(), "it was switched off just now");
}

#[test]
fn a_statement_is_accepted_after_two_lease_intervals_of_silence_that_we_saw() {
    let suspect = silent("n");
    let silence = looked(&suspect, 1000);
    let accepted = |second| accept(&suspect, &silence, statement(), "kim", at(second));
    assert_eq!(accepted(1000), Err(Refusal::Unobserved { seconds: 20 }));
    assert_eq!(accepted(1019), Err(Refusal::Unobserved { seconds: 1 }));
    assert!(accepted(1020).is_ok());
    assert_eq!(foresee(&suspect, &silence, &statement(), at(1000)), Ok(()), "a rehearsal does not wait");
}

#[test]
fn a_statement_needs_a_name_and_a_reason() {
    for (by, reason) in [("", "why"), ("kim", " ")] {
        let how = How::Statement { by: by.into(), reason: reason.into() };
        let suspect = silent("n");
        let refused = accept(&suspect, &looked(&suspect, 0), how, "kim", at(100));
        assert!(matches!(refused, Err(Refusal::NothingSaid { .. })));
    }
}

#[test]
fn the_provider_is_believed_by_its_taint_only() {
    let how = || How::Provider { signal: SHUT_DOWN.into() };
    let mut suspect = silent("n");
    let silence = looked(&suspect, 0);
    assert_eq!(accept(&suspect, &silence, how(), "op", at(100)), Err(Refusal::NotShutDown));
    suspect.node.taints.push(taint(SHUT_DOWN, "NoSchedule"));
    assert!(accept(&suspect, &silence, how(), "op", at(100)).is_ok());
}

#[test]
fn d19_d23_time_counts_from_the_last_sign_of_any_kind_that_we_saw() {
    let how = || How::Time { seconds: 180, policy: "p".into() };
    let mut suspect = silent("n");
    let mut silence = looked(&suspect, 50);
    assert_eq!(
        accept(&suspect, &silence, how(), "op", at(229)),
        Err(Refusal::TooEarly { silent: 179, wanted: 180 })
    );
    assert!(accept(&suspect, &silence, how(), "op", at(230)).is_ok());
    // A sign that is dated long ago and came just now.
    suspect.node.life.heartbeat = Some(at(-500));
    silence.see(&suspect, at(200));
    assert_eq!(
        accept(&suspect, &silence, how(), "op", at(230)),
        Err(Refusal::TooEarly { silent: 30, wanted: 180 })
    );
    assert!(accept(&suspect, &Silence::default(), how(), "op", at(9000)).is_err(), "nobody has looked");
}

#[test]
fn servers_before_the_taint_get_the_node_deleted() {
    assert_eq!(suitable((1, 27)), Release::DeleteNode);
    assert_eq!(suitable((1, 28)), Release::Taint);
}

fn marked(owner: &str) -> Suspect {
    let mut suspect = silent("n");
    let mark = new_mark(&suspect.node, owner, &NodeChanges::default(), at(0));
    suspect.node.mark = Some(MarkState::Valid(Box::new(mark)));
    suspect
}

fn before() -> SwitchOffConditions {
    SwitchOffConditions { signs: Some(Signs::of(&marked("op"))), owner: "op".into() }
}

#[test]
fn a_silent_node_with_our_mark_may_be_switched_off() {
    assert_eq!(may_switch_off(&marked("op"), &before(), None), Ok(()));
    assert_eq!(may_switch_off(&marked("op"), &before(), Some(&PolicyNow::InForce)), Ok(()));
}

#[test]
fn what_changed_since_the_last_look_keeps_a_machine_from_being_switched_off() {
    let changes: [(Change, &str); 8] = [
        (|it| it.node.health = Health::Ready, "is Ready"),
        (|it| it.lease = Some(lease("n", at(-700))), "its kubelet renewed its lease while"),
        (|it| it.node.health = Health::NotReady, "its kubelet reported while"),
        (|it| it.node.life.boot = Some("boot-2".into()), "its machine was started while"),
        (|it| it.node.mark = None, "mark of this failover was taken from the node"),
        (|it| it.node.mark = marked("kim").node.mark, "kim is draining it now"),
        (|it| it.node.mark = Some(MarkState::Unreadable("x".into())), "cannot be read"),
        (|it| drop(it.node.labels.insert(EXCLUDE.into(), "true".into())), "is excluded by the label"),
    ];
    for (change, words) in changes {
        let mut suspect = marked("op");
        change(&mut suspect);
        let refused = may_switch_off(&suspect, &before(), Some(&PolicyNow::InForce)).unwrap_err();
        assert!(refused.message().contains(words), "{}", refused.message());
    }
}

#[test]
fn a_node_that_answered_from_the_beginning_may_be_switched_off_while_it_answers() {
    let mut suspect = marked("op");
    suspect.lease = Some(lease("n", at(900)));
    let before = SwitchOffConditions { signs: None, ..before() };
    assert_eq!(may_switch_off(&suspect, &before, None), Ok(()));
}

#[test]
fn a_policy_that_was_paused_changed_or_deleted_switches_nothing_off() {
    let policy = crate::failover::policy::testing::policy("p");
    let begun = policy.reference();
    let now = |change: fn(&mut FailoverPolicy)| {
        let mut policy = policy.clone();
        change(&mut policy);
        PolicyNow::of(&begun, Some(&Ok(policy)))
    };
    assert_eq!(now(|_| {}), PolicyNow::InForce);
    assert_eq!(now(|it| it.generation += 1), PolicyNow::Changed);
    assert_eq!(now(|it| it.uid = Uid("another".into())), PolicyNow::Changed);
    assert_eq!(
        now(|it| (it.generation, it.pause) = (it.generation + 1, vec!["upgrade".into()])),
        PolicyNow::Paused { why: "upgrade".into() }
    );
    assert_eq!(PolicyNow::of(&begun, None), PolicyNow::Changed);
    assert_eq!(PolicyNow::of(&begun, Some(&Err(PolicyError::NoBrake))), PolicyNow::Changed);
    for state in [PolicyNow::Changed, PolicyNow::Paused { why: "upgrade".into() }] {
        assert!(may_switch_off(&marked("op"), &before(), Some(&state)).is_err());
    }
}

#[test]
fn a_lease_that_cannot_be_read_is_not_a_free_node() {
    for ownership in [Ownership::Free, Ownership::ForeignCordon] {
        let refused = may_begin(&silent("n"), &ownership, Some("not allowed")).unwrap_err();
        assert!(
            refused.message().contains("lease medik8s-leases/node-n cannot be read (not allowed)"),
            "{}",
            refused.message()
        );
    }
    let mark = new_mark(&silent("n").node, "me", &NodeChanges::default(), at(0));
    let ours = Ownership::Ours(Box::new(mark));
    assert_eq!(may_begin(&silent("n"), &ours, Some("not allowed")), Ok(()), "it was ours before");
}

#[test]
fn a_failover_goes_on_only_under_its_own_mark() {
    let mut suspect = silent("n");
    let words = |suspect: &Suspect| still_ours(suspect, "me").map_err(|refusal| refusal.message());
    assert!(words(&suspect).unwrap_err().contains("cancelled"), "the mark is gone");
    let mark = |owner: &str| {
        let mark = new_mark(&silent("n").node, owner, &NodeChanges::default(), at(0));
        Some(MarkState::Valid(Box::new(mark)))
    };
    suspect.node.mark = mark("lee");
    assert!(words(&suspect).unwrap_err().contains("lee"));
    suspect.node.mark = Some(MarkState::Unreadable("?".into()));
    assert!(words(&suspect).is_err());
    suspect.node.mark = mark("me");
    assert_eq!(words(&suspect), Ok(()));
}

#[test]
fn what_was_chosen_or_begun_needs_no_version() {
    assert_eq!(settled(None, &silent("n")), None);
    assert_eq!(settled(Some(Release::DeleteNode), &silent("n")), Some(Release::DeleteNode));
    let mut suspect = recorded(statement(), 100);
    assert_eq!(settled(None, &suspect), None);
    if let Some(FencedState::Valid(record)) = &mut suspect.node.life.fenced {
        record.released = true;
    }
    assert_eq!(settled(None, &suspect), Some(Release::Taint));
}
