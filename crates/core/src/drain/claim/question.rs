//! The asker's side: whether the drain that marked a node is still at work.

use std::time::Duration;

use jiff::Timestamp;

use super::{ANSWER_WITHIN, Life, key, life};
use crate::action::Outcome;
use crate::cluster::fact::Lease;
use crate::drain::action::{Action, Own};
use crate::drain::look::Look;
use crate::drain::ownership::is_marked_by_other;
use crate::drain::policy::DryRun;
use crate::drain::run::{Run, after};
use crate::drain::step::{Event, Step};
use crate::reasons::{OwnerReason, Reason};

/// After this much silence the person at the other end is told what we wait for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Others who ask in the meantime set the time back; this is the end of it in any case.
const AT_MOST: Duration = Duration::from_secs(20);
/// How often a question is put again that did not get through.
const TRIES: u32 = 3;

/// Where a run stands with its question about one node.
///
/// ```text
///  Unasked ── sent ──▶ Put ── it did not get through, too often or for good ──▶ Failed
///     ▲                 │
///     └── it did not ───┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// After so many that did not get through.
    Unasked { failures: u32 },
    Put {
        at: Timestamp,
        /// The person was told that we wait for the answer.
        told: bool,
        failures: u32,
    },
    /// It did not get through, so the drain in question counts as living.
    Failed,
}

impl Default for Question {
    fn default() -> Self {
        Self::Unasked { failures: 0 }
    }
}

impl Question {
    /// Takes in whether it got through.
    pub(super) fn record(&mut self, outcome: &Outcome) {
        let Self::Put { failures, .. } = *self else { return };
        if matches!(outcome, Outcome::Done | Outcome::Gone) {
            return;
        }
        let failures = failures + 1;
        let again = outcome.is_transient() && failures < TRIES;
        *self = if again { Self::Unasked { failures } } else { Self::Failed };
    }
}

/// Asks who drains a node whether it still does, where that decides whether we may; true while the answer is awaited.
///
/// Only for runs that watch the leases: others would not hear the answer and take the silence for death.
pub(crate) fn is_awaited(look: Look<'_>, run: &mut Run, position: usize, step: &mut Step) -> bool {
    let Look { index, policy, now } = look;
    if policy.take_over || policy.dry_run != DryRun::None || !run.answers {
        return false;
    }
    let node = &mut run.nodes[position];
    if !index.node(&node.name).is_some_and(|node| is_marked_by_other(node, &run.owner)) {
        return false;
    }
    let Life::Unheard { holder, .. } = life(index, &node.name, now) else { return false };
    match &mut node.claim.question {
        Question::Unasked { failures } => {
            node.claim.question = Question::Put { at: now, told: false, failures: *failures };
            step.actions.push(Action::Own(Own::Ask { node: node.name.clone(), at: now }));
            step.look_at(after(now, PATIENCE));
            true
        }
        Question::Put { at, told, .. } => {
            let open = index.lease(&key(&node.name)).and_then(Lease::open_question);
            let until = after(open.unwrap_or(*at), ANSWER_WITHIN).min(after(*at, AT_MOST));
            if !*told && now >= after(*at, PATIENCE) {
                *told = true;
                let reason = Reason::Owner(OwnerReason::Unanswered {
                    owner: holder.owner,
                    instance: holder.instance,
                    until,
                });
                step.events.push(Event::Noted { node: node.name.clone(), reason });
            }
            step.look_at(if *told { until } else { after(*at, PATIENCE) });
            now < until
        }
        Question::Failed => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::{Fact, Lease};
    use crate::cluster::index::{Index, ListedAt};
    use crate::drain::claim::{Holder, key};
    use crate::drain::ownership::{Attire, MarkState, new_mark};
    use crate::drain::policy::Policy;
    use crate::drain::run::End;
    use crate::drain::step::step;
    use crate::testing::{at, node, pod};

    /// A node that one owner drains, as the lease says, and a second one that comes for it.
    struct Second {
        index: Index,
        run: Run,
        policy: Policy,
    }

    impl Second {
        fn new(owner: &str) -> Self {
            let mut node = node("n");
            let mark = new_mark(&node, "ann", &Attire::default(), at(0));
            node.unschedulable = true;
            node.mark = Some(MarkState::Valid(Box::new(mark)));
            let mut index = Index::new();
            index.apply(Fact::Node(Box::new(node)));
            index.reset_pods("n", vec![pod("web").on("n")], &ListedAt::default());
            let mut run = Run::new(owner, Vec::new(), ["n".to_owned()]).claiming("lab:2");
            run.answer(true);
            let mut second = Self { index, run, policy: Policy::default() };
            second.lease(1, None, 0);
            second
        }

        fn lease(&mut self, version: u32, asked: Option<i64>, answered: i64) {
            self.index.apply(Fact::Lease(Box::new(Lease {
                record: None,
                key: key("n"),
                uid: crate::cluster::fact::Uid("lease".into()),
                holder: Holder { owner: "ann".into(), instance: "box:1".into() }.to_string(),
                renewed: Some(at(answered)),
                duration_seconds: 3600,
                resource_version: version.to_string(),
                transitions: 0,
                asked: asked.map(at),
                answered: Some(at(answered)),
            })));
        }

        fn at(&mut self, seconds: i64) -> Step {
            step(&self.index, &self.policy, &mut self.run, at(seconds))
        }

        /// Asks at second 100 and sees the question on the lease.
        fn asked(owner: &str) -> Self {
            let mut second = Self::new(owner);
            let asks = second.at(100);
            assert_eq!(asks.actions, [ask()]);
            assert!(asks.events.is_empty(), "{:?}", asks.events);
            second.run.record(&second.index, &ask(), Outcome::Done, at(100));
            second.lease(2, Some(100), 0);
            second
        }

        fn refusal(&self) -> Option<&Reason> {
            match self.run.nodes[0].end() {
                Some(End::Refused { reason }) => Some(reason),
                _ => None,
            }
        }
    }

    fn ask() -> Action {
        Action::Own(Own::Ask { node: "n".into(), at: at(100) })
    }

    fn notes(step: &Step) -> Vec<&'static str> {
        let noted = step.events.iter().filter_map(|event| match event {
            Event::Noted { reason, .. } => Some(reason.code()),
            _ => None,
        });
        noted.collect()
    }

    #[test]
    fn a_drain_that_answers_is_left_alone_and_nobody_is_bothered_with_the_question() {
        let mut second = Second::asked("bob");
        let waits = second.at(100);
        assert!(waits.actions.is_empty() && waits.events.is_empty(), "{waits:?}");
        second.lease(3, Some(100), 100);
        let ends = second.at(100);
        assert!(ends.actions.is_empty(), "{ends:?}");
        assert!(
            matches!(second.refusal(), Some(Reason::Owner(OwnerReason::OwnedByEvac { seen: Some(seen), .. })) if *seen == at(100)),
            "{:?}",
            second.run.nodes[0].phase
        );
    }

    #[test]
    fn a_drain_that_stays_silent_is_taken_over_after_a_while_in_which_the_person_is_told() {
        let mut second = Second::asked("bob");
        let told = second.at(101);
        assert_eq!(notes(&told), ["Unanswered"]);
        assert_eq!(told.look_again, Some(at(110)));
        assert!(second.at(109).events.is_empty(), "told once");
        let goes_on = second.at(110);
        assert_eq!(notes(&goes_on), ["Abandoned"]);
        assert!(matches!(goes_on.actions.as_slice(), [Action::Cordon { .. }]), "{goes_on:?}");
    }

    #[test]
    fn others_who_ask_as_well_do_not_keep_us_waiting_for_ever() {
        let mut second = Second::asked("bob");
        for (version, now) in [(3, 108), (4, 116)] {
            second.lease(version, Some(now), 0);
            assert!(second.at(now).actions.is_empty());
        }
        assert!(second.at(119).actions.is_empty());
        second.at(120);
        assert!(second.refusal().is_some(), "{:?}", second.run.nodes[0].phase);
    }

    #[test]
    fn a_question_that_does_not_get_through_counts_as_answered() {
        let forbidden = Outcome::Forbidden { message: "no".into() };
        let broken = Outcome::Server { status: 500, message: "no".into() };
        for (outcome, tries) in [(forbidden, 1), (broken, TRIES)] {
            let mut second = Second::new("bob");
            for _ in 0..tries {
                let asks = second.at(100);
                assert_eq!(asks.actions, [ask()], "{outcome:?}");
                second.run.record(&second.index, &ask(), outcome.clone(), at(100));
            }
            second.at(100);
            assert!(second.refusal().is_some(), "{outcome:?}: {:?}", second.run.nodes[0].phase);
        }
    }

    #[test]
    fn nobody_is_asked_where_the_answer_would_not_matter_or_not_be_heard() {
        let mut own = Second::new("ann");
        let mut wilful = Second::new("bob");
        wilful.policy.take_over = true;
        let mut trial = Second::new("bob");
        trial.policy.dry_run = DryRun::Client;
        let mut deaf = Second::new("bob");
        deaf.run.answer(false);
        let mut blocked = Second::new("bob");
        blocked.index.reset_pods("n", vec![pod("bare").on("n").bare()], &ListedAt::default());
        for second in [&mut own, &mut wilful, &mut trial, &mut deaf, &mut blocked] {
            let actions = second.at(100).actions;
            assert!(
                !actions.iter().any(|action| matches!(action, Action::Own(Own::Ask { .. }))),
                "{actions:?}"
            );
        }
        assert!(deaf.refusal().is_some());
    }
}
