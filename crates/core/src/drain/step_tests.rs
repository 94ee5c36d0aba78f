//! Whole drains, driven by hand: facts in, actions out, answers back.

use std::time::Duration;

use crate::action::Outcome;
use crate::cluster::fact::{Amount, Budget, Fact, Health, Key, Pod, PodPhase, Uid};
use crate::cluster::index::Index;
use crate::drain::action::{Action, Own};
use crate::drain::check::check;
use crate::drain::ownership::MarkState;
use crate::drain::policy::{DryRun, Policy};
use crate::drain::proof::Proof;
use crate::drain::run::{End, Run};
use crate::drain::step::{Event, Step, step};
use crate::reasons::{AnswerReason, NodeReason, OwnerReason, Reason};
use crate::testing::{at, budget, index, node, pod};

/// A drain of node `n` under test, with its time.
struct Case {
    index: Index,
    policy: Policy,
    run: Run,
    now: i64,
}

impl Case {
    fn new(pods: Vec<Pod>, budgets: Vec<Budget>) -> Self {
        Self {
            index: index(pods, budgets),
            policy: Policy::default(),
            run: Run::new("me", Vec::new(), ["n".to_owned()]),
            now: 0,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(&mut self.policy);
        self
    }

    fn step(&mut self) -> Step {
        let step = step(&self.index, &self.policy, &mut self.run, at(self.now));
        assert_eq!(check(&self.index, &step.actions), []);
        step
    }

    fn answer(&mut self, action: &Action, outcome: Outcome) {
        if let (Action::Cordon { node, mark, dry_run: false, .. }, Outcome::Done) = (action, &outcome) {
            let mut changed = self.index.node(node).unwrap().clone();
            changed.unschedulable = true;
            changed.mark = Some(MarkState::Valid(mark.clone()));
            self.index.apply(Fact::Node(Box::new(changed)));
        }
        self.run.record(&self.index, action, outcome, at(self.now));
    }

    /// Lets time pass and returns the step after.
    fn later(&mut self, seconds: i64) -> Step {
        self.now += seconds;
        self.step()
    }

    /// Cordons and returns the step after.
    fn cordoned(&mut self) -> Step {
        let first = self.step();
        assert!(matches!(first.actions.as_slice(), [Action::Cordon { .. }]), "{first:?}");
        self.answer(&first.actions[0], Outcome::Done);
        self.step()
    }

    fn gone(&mut self, name: &str) {
        let pod = self.index.pod(&Key::new("default", name)).unwrap().clone();
        self.index.apply(Fact::PodGone(pod.key, pod.uid));
    }

    fn end(&self) -> &End {
        let node = &self.run.nodes[0];
        node.end().unwrap_or_else(|| panic!("not ended: {:?}", node.phase))
    }

    fn is_over(&self) -> bool {
        self.run.is_over()
    }
}

fn names(step: &Step) -> Vec<&str> {
    step.actions
        .iter()
        .filter_map(|action| match action {
            Action::Evict { object, .. } | Action::Delete { object, .. } => Some(object.key.name.as_str()),
            _ => None,
        })
        .collect()
}

fn codes(step: &Step) -> Vec<&'static str> {
    step.events
        .iter()
        .filter_map(|event| match event {
            Event::Waiting { blocker, .. } => Some(blocker.reason.code()),
            _ => None,
        })
        .collect()
}

fn web(name: &str) -> Pod {
    pod(name).labelled("app", "web")
}

fn refused() -> Outcome {
    Outcome::Budget { retry_after: None, message: "needs 2 has 2".into() }
}

#[test]
fn a010_pods_are_cordoned_evicted_awaited_and_the_end_is_proven() {
    let mut case = Case::new(vec![pod("a"), pod("b")], Vec::new());
    let evictions = case.cordoned();
    assert_eq!(names(&evictions), ["a", "b"]);
    for action in &evictions.actions {
        case.answer(action, Outcome::Done);
    }
    assert!(case.step().actions.is_empty());
    case.gone("a");
    let told = case.step();
    assert!(told.events.iter().any(|event| matches!(event, Event::Left { pod, .. } if pod.name == "a")));
    case.gone("b");
    let last = case.step();
    let [reading] = last.actions.as_slice() else { panic!("{last:?}") };
    assert_eq!(*reading, Action::Own(Own::Prove { node: "n".into() }));
    case.answer(reading, Outcome::Done);
    case.step();
    assert_eq!(*case.end(), End::Drained { proof: Proof::Yes });
}

#[test]
fn a025_an_empty_node_is_proven_without_any_eviction() {
    let mut case = Case::new(Vec::new(), Vec::new());
    let next = case.cordoned();
    assert_eq!(next.actions, [Action::Own(Own::Prove { node: "n".into() })]);
}

#[test]
fn a011_a013_a020_a022_a_refused_pod_means_that_nothing_is_touched() {
    for bad in [pod("a").bare(), pod("a").with_empty_dir(), pod("a").owned_by("DaemonSet", "apps/v1", "ds")] {
        let mut case = Case::new(vec![bad, pod("b")], Vec::new());
        assert!(case.step().actions.is_empty());
        assert!(matches!(case.end(), End::NotStarted { blockers } if blockers.len() == 1));
    }
}

#[test]
fn a_cordon_that_is_refused_evicts_nothing() {
    let mut case = Case::new(vec![pod("a")], Vec::new());
    let first = case.step();
    case.answer(&first.actions[0], Outcome::Forbidden { message: "no".into() });
    assert!(case.step().actions.is_empty());
    assert!(matches!(case.end(), End::Failed { reason: Reason::Node(NodeReason::CordonRefused { .. }), .. }));
}

#[test]
fn a_conflict_at_the_cordon_is_looked_at_again_after_a_pause() {
    let mut case = Case::new(vec![pod("a")], Vec::new());
    let first = case.step();
    case.answer(&first.actions[0], Outcome::Conflict { message: "changed".into() });
    let pause = case.step();
    assert!(pause.actions.is_empty());
    assert!(pause.look_again.is_some());
    case.now = 1;
    assert!(matches!(case.step().actions.as_slice(), [Action::Cordon { .. }]));
}

#[test]
fn all_nodes_are_cordoned_before_the_first_eviction() {
    let mut index = index(vec![pod("a").on("n"), pod("b").on("m")], Vec::new());
    index.apply(Fact::Node(Box::new(node("m"))));
    let mut case = Case {
        index,
        policy: Policy::default(),
        run: Run::new("me", Vec::new(), ["n".to_owned(), "m".to_owned()]),
        now: 0,
    };
    let cordons = case.step();
    assert_eq!(cordons.actions.len(), 2);
    case.answer(&cordons.actions[0], Outcome::Done);
    assert!(case.step().actions.is_empty(), "the other node still takes pods");
    case.answer(&cordons.actions[1], Outcome::Done);
    assert_eq!(names(&case.step()), ["a", "b"]);
}

#[test]
fn a_budget_gives_as_many_as_it_has_and_free_pods_leave_first() {
    let mut case =
        Case::new(vec![web("a"), web("b"), web("c"), pod("free")], vec![budget("web").allowing(2)]);
    assert_eq!(names(&case.cordoned()), ["free", "a", "b"]);
}

#[test]
fn no_request_is_sent_while_the_budget_shows_nothing_and_the_next_one_follows_the_event() {
    let mut case = Case::new(vec![web("a")], vec![budget("web")]);
    let waiting = case.cordoned();
    assert!(waiting.actions.is_empty());
    assert_eq!(codes(&waiting), [] as [&str; 0], "it may clear in a moment");
    assert_eq!(codes(&case.later(3)), ["BudgetExhausted"]);
    assert_eq!(codes(&case.later(3)), [] as [&str; 0], "it is named once");
    case.now = 30;
    assert!(case.step().actions.is_empty(), "thirty seconds of waiting cost nothing");
    case.index.apply(Fact::Budget(Box::new(budget("web").allowing(1))));
    assert_eq!(names(&case.step()), ["a"]);
}

/// A budget that lets one go and counts `charged` as the one, since second 0.
fn charged(pod: &str) -> Budget {
    let mut budget = budget("web");
    budget.disrupted.insert(pod.into(), at(0));
    budget
}

#[test]
fn an_eviction_that_was_cut_off_is_named_with_its_end_and_then_the_drain_goes_on() {
    let mut case = Case::new(vec![web("a"), web("b")], vec![charged("b")]);
    case.now = 1;
    let first = case.cordoned();
    assert_eq!(first.look_again, Some(at(2)), "the server may still be about to delete it");
    assert_eq!(codes(&case.later(1)), [] as [&str; 0]);
    let named = case.later(3);
    assert_eq!(codes(&named), ["BudgetCutOff"]);
    let Some(Event::Waiting { blocker, also, .. }) = named.events.first() else { panic!("{named:?}") };
    assert_eq!(also.len(), 1, "both pods wait for the same");
    let words = blocker.reason.message();
    assert!(words.contains("counts b as evicted since 2026-01-01T00:00:00Z"), "{words}");
    assert!(words.contains("gives up on it at 2026-01-01T00:02:00Z"), "{words}");
    assert!(named.actions.is_empty());
    // The controller gave up: one may go, and the one that the budget had counted is as good as any.
    case.now = 121;
    case.index.apply(Fact::Budget(Box::new(budget("web").allowing(1))));
    assert_eq!(names(&case.step()), ["a"]);
}

#[test]
fn a_grant_is_not_cut_off_while_its_pod_is_leaving_nor_when_it_is_too_old_to_count() {
    let mut case = Case::new(vec![web("a"), web("b").deleting(30, 30)], vec![charged("b")]);
    case.now = 20;
    case.cordoned();
    assert_eq!(codes(&case.later(3)), ["BudgetExhausted"]);
    let mut case = Case::new(vec![web("a"), web("b")], vec![charged("b")]);
    case.now = 120;
    case.cordoned();
    assert_eq!(codes(&case.later(3)), ["BudgetExhausted"]);
}

#[test]
fn a_pod_that_its_budget_counts_as_gone_already_is_asked_before_others() {
    let mut two = charged("b").allowing(1);
    two.max_unavailable = Some(Amount::Count(2));
    let mut case = Case::new(vec![web("a"), web("b"), pod("free")], vec![two]);
    assert_eq!(names(&case.cordoned()), ["free", "b"]);
}

#[test]
fn the_safety_net_asks_once_when_our_view_may_be_wrong() {
    let mut case = Case::new(vec![web("a")], vec![budget("web")]);
    let waiting = case.cordoned();
    let probe = waiting.look_again.unwrap();
    assert!(probe > at(0) && probe <= at(60));
    case.now = 61;
    let asked = case.step();
    assert_eq!(names(&asked), ["a"]);
    case.answer(&asked.actions[0], refused());
    case.now = 70;
    assert!(case.step().actions.is_empty());
}

#[test]
fn the_safety_net_sends_one_probe_for_all_who_wait_at_the_same_budget() {
    let mut case = Case::new(vec![web("a"), web("b"), web("c")], vec![budget("web")]);
    case.cordoned();
    case.now = 61;
    assert_eq!(case.step().actions.len(), 1);
}

#[test]
fn pods_that_wait_for_the_same_thing_are_told_in_one_event() {
    let mut case = Case::new(vec![web("a"), web("b"), web("c")], vec![budget("web")]);
    case.cordoned();
    let told = case.later(3);
    assert!(
        matches!(told.events.as_slice(), [Event::Waiting { also, .. }] if also.len() == 2),
        "{:?}",
        told.events
    );
}

#[test]
fn a_server_that_fails_again_and_again_is_named_though_we_keep_asking() {
    let mut case = Case::new(vec![pod("a")], Vec::new());
    let mut next = case.cordoned();
    let mut named = Vec::new();
    for _ in 0..5 {
        if let [action] = next.actions.as_slice() {
            let action = action.clone();
            case.answer(&action, Outcome::Server { status: 503, message: "down".into() });
        }
        next = case.later(1);
        named.extend(codes(&next));
    }
    assert_eq!(named, ["ServerError"]);
}

#[test]
fn five_blocked_pods_do_not_starve_a_free_one_even_with_one_slot() {
    let mut pods: Vec<Pod> = (0..5).map(|number| web(&format!("blocked-{number}"))).collect();
    pods.push(pod("z-free"));
    let mut case = Case::new(pods, vec![budget("web")]).with(|policy| policy.parallel = 1);
    assert_eq!(names(&case.cordoned()), ["z-free"]);
}

#[test]
fn evictions_of_several_nodes_share_a_budget() {
    let mut index = index(vec![web("a").on("n"), web("b").on("m")], vec![budget("web").allowing(1)]);
    index.apply(Fact::Node(Box::new(node("m"))));
    let mut case = Case {
        index,
        policy: Policy::default(),
        run: Run::new("me", Vec::new(), ["n".to_owned(), "m".to_owned()]),
        now: 0,
    };
    let cordons = case.step();
    for action in &cordons.actions {
        case.answer(action, Outcome::Done);
    }
    let sent = case.step();
    assert_eq!(sent.actions.len(), 1);
    case.answer(&sent.actions[0], Outcome::Done);
    assert!(case.step().actions.is_empty(), "the status does not show our eviction yet, but we know of it");
}

#[test]
fn a_500_is_tried_again_and_the_drain_goes_on() {
    let mut case = Case::new(vec![pod("a")], Vec::new());
    let sent = case.cordoned();
    case.answer(&sent.actions[0], Outcome::Server { status: 500, message: "EOF".into() });
    let pause = case.step();
    assert!(pause.actions.is_empty() && pause.look_again.is_some());
    case.now = 1;
    assert_eq!(names(&case.step()), ["a"]);
}

#[test]
fn a026_a_server_that_never_answers_ends_the_drain_instead_of_an_endless_retry() {
    let mut case = Case::new(vec![pod("a")], Vec::new());
    let mut next = case.cordoned();
    for _ in 0..100 {
        if let [action] = next.actions.as_slice() {
            let action = action.clone();
            case.answer(&action, Outcome::Transport { message: "refused".into() });
        }
        case.now += 30;
        next = case.step();
        if case.is_over() {
            break;
        }
    }
    assert!(
        matches!(case.end(), End::Failed { reason: Reason::Answer(AnswerReason::Unreachable { .. }), .. }),
        "{:?}",
        case.end()
    );
}

#[test]
fn a041_a042_a_pod_that_came_back_under_its_name_elsewhere_is_never_evicted() {
    let mut case = Case::new(vec![pod("db-0")], Vec::new());
    let sent = case.cordoned();
    case.index.apply(Fact::Pod(Box::new(pod("db-0").on("elsewhere").uid("second"))));
    case.answer(&sent.actions[0], Outcome::Replaced);
    let next = case.step();
    assert_eq!(next.actions, [Action::Own(Own::Prove { node: "n".into() })]);
    assert!(next.events.iter().any(|event| matches!(event, Event::Left { .. })));
}

#[test]
fn a_pod_that_was_not_there_any_more_when_asked_is_awaited_and_no_failure() {
    for outcome in [Outcome::Gone, Outcome::Replaced] {
        let mut case = Case::new(vec![pod("a")], Vec::new());
        let sent = case.cordoned();
        case.answer(&sent.actions[0], outcome);
        assert!(case.step().actions.is_empty());
        assert!(!case.is_over(), "what we see has not caught up yet");
        case.gone("a");
        assert_eq!(case.step().actions, [Action::Own(Own::Prove { node: "n".into() })]);
    }
}

#[test]
fn a_pod_that_came_back_on_the_same_node_is_evicted_as_the_new_one() {
    for outcome in [Outcome::Replaced, Outcome::Done] {
        let mut case = Case::new(vec![pod("db-0")], Vec::new());
        let sent = case.cordoned();
        case.answer(&sent.actions[0], outcome);
        case.index.apply(Fact::Pod(Box::new(pod("db-0").uid("second"))));
        let again = case.step();
        assert!(
            matches!(again.actions.as_slice(), [Action::Evict { object, .. }] if object.uid.0 == "second")
        );
        assert!(again.events.iter().any(|event| matches!(event, Event::Left { .. })), "the first has left");
    }
}

#[test]
fn a043_a054_at_the_timeout_the_drain_ends_and_names_what_is_left() {
    let mut case = Case::new(vec![web("a")], vec![budget("web")])
        .with(|policy| policy.timeout = Some(Duration::from_secs(3)));
    assert_eq!(case.cordoned().look_again, Some(at(3)));
    case.now = 3;
    case.step();
    let End::TimedOut { blockers, .. } = case.end() else { panic!("{:?}", case.end()) };
    assert_eq!(blockers[0].pod.name, "a");
}

#[test]
fn a044_a_stop_starts_nothing_new_and_ends_when_requests_have_come_back() {
    let mut case = Case::new(vec![pod("a"), web("b")], vec![budget("web")]);
    let sent = case.cordoned();
    case.run.stop();
    case.index.apply(Fact::Budget(Box::new(budget("web").allowing(1))));
    assert!(case.step().actions.is_empty());
    assert!(!case.is_over(), "one request is still under way");
    case.answer(&sent.actions[0], Outcome::Done);
    case.step();
    assert!(matches!(case.end(), End::Stopped { .. }));
}

#[test]
fn what_waiting_cannot_change_ends_the_drain_after_the_free_pods_left() {
    let mut strict = budget("web");
    strict.desired_healthy = 3;
    strict.max_unavailable = Some(Amount::Count(0));
    let mut case = Case::new(vec![web("a"), pod("free")], vec![strict]);
    let sent = case.cordoned();
    assert_eq!(names(&sent), ["free"]);
    case.answer(&sent.actions[0], Outcome::Done);
    case.now = 60;
    case.step();
    assert!(!case.is_over(), "the free pod is still leaving");
    case.gone("free");
    let settle = case.step().look_again.unwrap();
    assert_eq!(settle, at(65), "a moment in which somebody may change the budget");
    case.now = 65;
    case.step();
    let End::Blocked { blockers } = case.end() else { panic!("{:?}", case.end()) };
    assert_eq!(blockers[0].reason.code(), "BudgetNever");
}

#[test]
fn two_budgets_on_a_pod_are_named_without_asking_the_server() {
    let mut second = budget("web").allowing(1);
    second.key.name = "again".into();
    let mut case = Case::new(vec![web("a")], vec![budget("web").allowing(1), second]);
    let waiting = case.cordoned();
    assert!(waiting.actions.is_empty());
    assert_eq!(codes(&waiting), ["ManyBudgets"]);
}

#[test]
fn a_retry_after_is_respected_even_if_the_budget_changes() {
    let mut case = Case::new(vec![web("a")], vec![budget("web").allowing(1)]);
    let sent = case.cordoned();
    let outcome = Outcome::Budget { retry_after: Some(Duration::from_secs(10)), message: "busy".into() };
    case.answer(&sent.actions[0], outcome);
    case.now = 5;
    case.index.apply(Fact::Budget(Box::new(budget("web").allowing(2))));
    assert!(case.step().actions.is_empty());
    case.now = 10;
    assert_eq!(names(&case.step()), ["a"]);
}

#[test]
fn a053_a_pod_in_a_terminating_namespace_is_awaited() {
    let mut case = Case::new(vec![pod("a")], Vec::new());
    let sent = case.cordoned();
    case.index.apply(Fact::NamespaceTerminating("default".into()));
    case.answer(&sent.actions[0], Outcome::NamespaceTerminating);
    assert!(case.step().actions.is_empty());
    assert_eq!(codes(&case.later(3)), ["NamespaceTerminating"]);
    case.gone("a");
    assert_eq!(case.step().actions, [Action::Own(Own::Prove { node: "n".into() })]);
}

#[test]
fn a_pod_that_is_already_leaving_is_not_asked_again_unless_its_grace_gets_shorter() {
    let mut case = Case::new(vec![pod("a").deleting(30, 30)], Vec::new());
    assert!(case.cordoned().actions.is_empty());
    let mut case =
        Case::new(vec![pod("a").deleting(30, 30)], Vec::new()).with(|policy| policy.grace_seconds = Some(1));
    let shorter = case.cordoned();
    assert_eq!(names(&shorter), ["a"]);
    case.answer(&shorter.actions[0], Outcome::Done);
    assert!(case.step().actions.is_empty());
}

#[test]
fn a_shorter_grace_period_is_asked_for_again_after_a_pause_when_the_server_failed() {
    let mut case =
        Case::new(vec![pod("a").deleting(30, 30)], Vec::new()).with(|policy| policy.grace_seconds = Some(1));
    let shorter = case.cordoned();
    case.answer(&shorter.actions[0], Outcome::Server { status: 500, message: "EOF".into() });
    let pause = case.step();
    assert!(pause.actions.is_empty(), "not at once");
    assert!(pause.look_again.is_some_and(|at| at <= crate::testing::at(1)), "{:?}", pause.look_again);
    let again = case.later(1);
    assert_eq!(names(&again), ["a"]);
    case.answer(&again.actions[0], refused());
    assert!(case.later(20).actions.is_empty(), "an answer is an answer");
}

#[test]
fn a_pod_on_a_silent_node_and_one_with_a_finalizer_are_named_within_five_seconds() {
    let mut held = pod("a").deleting(30, 30);
    held.finalizers = vec!["example.com/hold".into()];
    let mut case = Case::new(vec![held], Vec::new());
    case.cordoned();
    assert_eq!(codes(&case.later(3)), ["Finalizer"]);

    let mut case = Case::new(vec![pod("a").deleting(30, 30)], Vec::new());
    let mut silent = node("n");
    silent.health = Health::Unknown;
    case.index.apply(Fact::Node(Box::new(silent)));
    case.cordoned();
    assert_eq!(codes(&case.later(3)), ["NodeSilent"]);
}

#[test]
fn a_pod_later_than_its_grace_period_is_named() {
    let mut case = Case::new(vec![pod("a").deleting(30, 30)], Vec::new());
    let next = case.cordoned();
    assert_eq!(next.look_again, Some(at(40)));
    case.now = 40;
    case.step();
    assert_eq!(codes(&case.later(3)), ["Overdue"]);
}

#[test]
fn a_forbidden_eviction_fails_with_its_reason() {
    let mut case = Case::new(vec![pod("a")], Vec::new());
    let sent = case.cordoned();
    case.answer(&sent.actions[0], Outcome::Forbidden { message: "no".into() });
    case.step();
    assert!(matches!(case.end(), End::Failed { reason: Reason::Answer(AnswerReason::Forbidden { .. }), .. }));
}

#[test]
fn a_drain_cancelled_or_uncordoned_by_somebody_else_ends() {
    let mut case = Case::new(vec![web("a")], vec![budget("web")]);
    case.cordoned();
    let mut changed = case.index.node("n").unwrap().clone();
    changed.unschedulable = false;
    case.index.apply(Fact::Node(Box::new(changed.clone())));
    case.step();
    assert_eq!(*case.end(), End::Refused { reason: NodeReason::UncordonedMeanwhile.into() });

    let mut case = Case::new(vec![web("a")], vec![budget("web")]);
    case.cordoned();
    changed.mark = None;
    case.index.apply(Fact::Node(Box::new(changed)));
    case.step();
    assert_eq!(*case.end(), End::Refused { reason: OwnerReason::CancelledElsewhere.into() });
}

#[test]
fn a_node_of_another_drainer_is_refused_untouched_and_can_be_taken_over() {
    let theirs = || {
        let mut case = Case::new(vec![pod("a")], Vec::new());
        let mut marked = node("n");
        marked.unschedulable = true;
        let mark = crate::drain::ownership::new_mark(
            &node("n"),
            "them",
            &crate::drain::ownership::Attire::default(),
            at(0),
        );
        marked.mark = Some(MarkState::Valid(Box::new(mark)));
        case.index.apply(Fact::Node(Box::new(marked)));
        case
    };
    let mut case = theirs();
    assert!(case.step().actions.is_empty());
    assert!(matches!(case.end(), End::Refused { reason: Reason::Owner(OwnerReason::OwnedByEvac { .. }) }));
    let mut case = theirs().with(|policy| policy.take_over = true);
    let taken = case.step();
    let [Action::Cordon { mark, .. }] = taken.actions.as_slice() else { panic!("{taken:?}") };
    assert!(!mark.before.unschedulable, "the first pre-image survives");
    assert_eq!(mark.owner, "me");
}

#[test]
fn a_crashed_drain_goes_on_without_a_second_cordon() {
    let mut first = Case::new(vec![pod("a"), pod("b")], Vec::new());
    first.cordoned();
    let mut again = Case {
        index: first.index,
        policy: Policy::default(),
        run: Run::new("me", Vec::new(), ["n".to_owned()]),
        now: 9,
    };
    assert_eq!(names(&again.step()), ["a", "b"]);
}

#[test]
fn a_crashed_drain_of_a_node_that_was_uncordoned_meanwhile_cordons_it_again_with_the_first_pre_image() {
    let mut first = Case::new(vec![pod("a")], Vec::new());
    first.cordoned();
    let mut uncordoned = first.index.node("n").unwrap().clone();
    uncordoned.unschedulable = false;
    uncordoned.taints = vec![crate::testing::taint("late", "NoSchedule")];
    first.index.apply(Fact::Node(Box::new(uncordoned)));
    let mut again = Case {
        index: first.index,
        policy: Policy::default(),
        run: Run::new("me", Vec::new(), ["n".to_owned()]),
        now: 9,
    };
    let cordon = again.step();
    let [Action::Cordon { mark, .. }] = cordon.actions.as_slice() else { panic!("{cordon:?}") };
    assert!(mark.before.taints.is_empty(), "{:?}", mark.before);
    again.answer(&cordon.actions[0], Outcome::Done);
    assert_eq!(names(&again.step()), ["a"]);
}

#[test]
fn a028_a_client_dry_run_changes_nothing_and_a_server_one_asks_each_pod_once() {
    let mut client = Case::new(vec![pod("a")], Vec::new()).with(|policy| policy.dry_run = DryRun::Client);
    assert!(client.step().actions.is_empty());
    assert_eq!(*client.end(), End::Rehearsed { blockers: Vec::new() });

    let mut server = Case::new(vec![web("a"), pod("b")], vec![budget("web")])
        .with(|policy| policy.dry_run = DryRun::Server);
    let trial = server.cordoned();
    assert_eq!(names(&trial), ["b", "a"]);
    server.answer(&trial.actions[0], Outcome::Done);
    server.answer(&trial.actions[1], refused());
    assert!(server.step().actions.is_empty(), "a refused trial is not repeated");
    assert!(matches!(server.end(), End::Rehearsed { blockers } if blockers.len() == 1));
}

#[test]
fn a049_a050_without_eviction_pods_are_deleted_past_their_budget() {
    let mut case =
        Case::new(vec![web("a")], vec![budget("web")]).with(|policy| policy.disable_eviction = true);
    assert!(matches!(case.cordoned().actions.as_slice(), [Action::Delete { .. }]));
}

#[test]
fn a_server_without_evictions_is_refused_instead_of_deleting_silently() {
    let mut case = Case::new(vec![pod("a")], Vec::new());
    let sent = case.cordoned();
    case.answer(&sent.actions[0], Outcome::Unsupported);
    case.step();
    assert!(matches!(
        case.end(),
        End::Failed { reason: Reason::Answer(AnswerReason::EvictionUnsupported), .. }
    ));
}

#[test]
fn pods_that_arrive_during_the_proof_have_to_leave_too() {
    let mut case = Case::new(Vec::new(), Vec::new());
    let reading = case.cordoned();
    case.index.apply(Fact::Pod(Box::new(pod("late"))));
    case.answer(&reading.actions[0], Outcome::Done);
    assert_eq!(names(&case.step()), ["late"]);
}

#[test]
fn critical_pods_leave_last_when_asked() {
    let mut critical = pod("dns");
    critical.priority_class = Some("system-cluster-critical".into());
    let mut case =
        Case::new(vec![critical, pod("web")], Vec::new()).with(|policy| policy.critical_last = true);
    let first = case.cordoned();
    assert_eq!(names(&first), ["web"]);
    case.answer(&first.actions[0], Outcome::Done);
    assert!(case.step().actions.is_empty());
    case.gone("web");
    assert_eq!(names(&case.step()), ["dns"]);
}

#[test]
fn finished_and_pending_pods_leave_though_the_budget_is_empty() {
    let mut case = Case::new(
        vec![web("a").in_phase(PodPhase::Succeeded), web("b").in_phase(PodPhase::Pending)],
        vec![budget("web")],
    );
    assert_eq!(names(&case.cordoned()), ["a", "b"]);
}

/// On a node that is silent nothing is heard between the end of the grace period and the end of our patience.
#[test]
fn a_pod_that_is_not_waited_for_for_ever_is_looked_at_again_when_that_is_over() {
    let mut case = Case::new(vec![pod("stuck").deleting(5, 5)], Vec::new())
        .with(|policy| policy.skip_wait_for_delete = Some(Duration::from_secs(20)));
    let cordons = case.step().actions;
    case.answer(&cordons[0], Outcome::Done);
    let waits = case.later(1);
    assert!(waits.actions.is_empty(), "{waits:?}");
    let again = waits.look_again.unwrap();
    assert!(again <= at(26), "{again}");
    case.now = 25;
    assert_eq!(case.step().look_again, Some(at(26)));
    let over = case.later(1);
    assert!(matches!(over.actions.as_slice(), [Action::Own(Own::Prove { .. })]), "{over:?}");
}
