//! Would the server let this pod go now?
//!
//! A reading of disruption budgets by the rules of the eviction API, so that a request is sent when it can succeed and not
//! to find out. Evictions we sent and the visible status does not show yet are charged here as well; several nodes
//! drained at once therefore share a budget without trying each other's luck.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::cluster::fact::{Amount, Budget, Key, Pod, PodPhase, UnhealthyPolicy, VmRole};
use crate::cluster::index::{Index, Sight};
use crate::drain::run::after;
use crate::machines::strategy::{Course, course};
use crate::reasons::{BudgetReason, Reason};

/// Evictions under way that a budget's visible status does not include yet.
pub type Charges = BTreeMap<Key, i32>;

/// What the disruption budgets say about the eviction of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// No budget is asked, or none is charged.
    Open,
    /// The eviction takes one disruption from this budget.
    Charged(Key),
    /// The server would refuse it. Says because of which budget, and whether that can change.
    Closed(Reason),
}

/// Judges one eviction. Pods that are finished, Pending or leaving already are let go whatever budgets say, as the eviction API does.
pub fn gate(index: &Index, pod: &Pod, charges: &Charges) -> Gate {
    if pod.phase.is_finished() || pod.phase == PodPhase::Pending || pod.deletion.is_some() {
        return Gate::Open;
    }
    if only_tells(index, pod) {
        return Gate::Open;
    }
    let mut budgets = index.budgets_of(pod);
    let Some(budget) = budgets.next() else { return Gate::Open };
    let others: Vec<Key> = budgets.map(|other| other.key.clone()).collect();
    if !others.is_empty() {
        let mut all = vec![budget.key.clone()];
        all.extend(others);
        return Gate::Closed(BudgetReason::ManyBudgets { budgets: all }.into());
    }
    if !pod.ready {
        let healthy = budget.current_healthy >= budget.desired_healthy && budget.desired_healthy > 0;
        if budget.unhealthy == UnhealthyPolicy::AlwaysAllow || healthy {
            return Gate::Open;
        }
    }
    if let Some(message) = &budget.sync_failed {
        return Gate::Closed(
            BudgetReason::BudgetSyncFailed { budget: budget.key.clone(), message: message.clone() }.into(),
        );
    }
    if budget.observed_generation < budget.generation {
        return Gate::Closed(BudgetReason::BudgetBehind { budget: budget.key.clone() }.into());
    }
    let under_way = charges.get(&budget.key).copied().unwrap_or(0);
    if budget.allowed - under_way > 0 {
        return Gate::Charged(budget.key.clone());
    }
    Gate::Closed(exhausted(budget))
}

/// The eviction of a guest with an external owner tells that owner and ends there: the review answers before budgets are asked.
fn only_tells(index: &Index, pod: &Pod) -> bool {
    matches!(pod.vm, VmRole::Launcher(_))
        && *index.sight() == Sight::Clear
        && index.instance_of(pod).is_some_and(|instance| course(instance, &index.config) == Course::HandOver)
}

/// Tells an exhausted budget from one that can never allow anything.
fn exhausted(budget: &Budget) -> Reason {
    if let Some(rule) = never_rule(budget) {
        return BudgetReason::BudgetNever { budget: budget.key.clone(), rule }.into();
    }
    if budget.current_healthy > budget.desired_healthy {
        return BudgetReason::BudgetGivenOut { budget: budget.key.clone() }.into();
    }
    // One more than desired must be healthy before a pod may go.
    BudgetReason::BudgetExhausted {
        budget: budget.key.clone(),
        needs: budget.desired_healthy + 1,
        has: budget.current_healthy,
    }
    .into()
}

/// For so long the disruption controller counts a pod as gone whose eviction was granted, whether it goes or not.
const GRANT_LASTS: Duration = Duration::from_secs(120);
/// So long the server may take between granting an eviction and deleting the pod.
const GRANT_SETTLES: Duration = Duration::from_secs(2);

/// Says of a closed budget whether it waits for an eviction that was cut off, and when to look again at that.
///
/// The server charges the budget first and deletes the pod then; an asker that dies in between takes the second half with
/// it. The pod stays, the budget counts it as gone, and no other pod gets a disruption until the controller gives up on it.
pub fn cut_off(index: &Index, closed: Reason, now: Timestamp) -> (Reason, Option<Timestamp>) {
    let Reason::Budget(
        BudgetReason::BudgetExhausted { budget: key, .. } | BudgetReason::BudgetGivenOut { budget: key },
    ) = &closed
    else {
        return (closed, None);
    };
    let leaving = |name: &str| {
        index.pod(&Key::new(key.namespace.clone(), name)).is_some_and(|pod| pod.deletion.is_some())
    };
    let grants = index.budget(key).map(|budget| &budget.disrupted);
    let open = grants
        .into_iter()
        .flatten()
        .filter(|(pod, since)| !leaving(pod) && now < after(**since, GRANT_LASTS));
    let (settled, fresh): (Vec<_>, Vec<_>) =
        open.partition(|(_, since)| now >= after(**since, GRANT_SETTLES));
    let look_again = fresh.iter().map(|(_, since)| after(**since, GRANT_SETTLES)).min();
    let Some(since) = settled.iter().map(|(_, since)| **since).min() else { return (closed, look_again) };
    let until = after(since, GRANT_LASTS);
    let pods = settled.into_iter().map(|(pod, _)| pod.clone()).collect();
    let reason = Reason::Budget(BudgetReason::BudgetCutOff { budget: key.clone(), pods, since, until });
    (reason, Some(look_again.map_or(until, |at| at.min(until))))
}

/// With every expected pod healthy there would still be nothing to give.
fn never_rule(budget: &Budget) -> Option<String> {
    if budget.expected <= 0 || budget.desired_healthy < budget.expected {
        return None;
    }
    let rule = match (&budget.max_unavailable, &budget.min_available) {
        (Some(amount), _) if is_zero(amount) => format!("maxUnavailable is {amount}"),
        (Some(amount), _) => format!("maxUnavailable {amount} of {} pods rounds to none", budget.expected),
        (None, Some(amount)) => {
            let pods = if budget.expected == 1 {
                "is 1 pod".into()
            } else {
                format!("are {} pods", budget.expected)
            };
            format!("minAvailable is {amount} and there {pods}")
        }
        (None, None) => format!("it wants {} of {} pods", budget.desired_healthy, budget.expected),
    };
    Some(rule)
}

fn is_zero(amount: &Amount) -> bool {
    match amount {
        Amount::Count(count) => *count == 0,
        Amount::Percent(text) => text.trim_end_matches('%').parse() == Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{budget, index, pod};

    fn web(name: &str) -> Pod {
        pod(name).labelled("app", "web")
    }

    fn gate_with(pod: &Pod, budgets: Vec<Budget>) -> Gate {
        gate(&index(Vec::new(), budgets), pod, &Charges::new())
    }

    #[test]
    fn a069_a070_a081_pending_finished_and_deleting_pods_ask_no_budget() {
        for pod in [
            web("a").in_phase(PodPhase::Pending),
            web("a").in_phase(PodPhase::Succeeded),
            web("a").in_phase(PodPhase::Failed),
            web("a").deleting(0, 0),
        ] {
            assert_eq!(gate_with(&pod, vec![budget("web")]), Gate::Open);
        }
    }

    #[test]
    fn a071_a072_an_allowed_disruption_is_charged_and_other_labels_ask_nothing() {
        assert_eq!(
            gate_with(&web("a"), vec![budget("web").allowing(1)]),
            Gate::Charged(Key::new("default", "web"))
        );
        assert_eq!(gate_with(&pod("a").labelled("app", "db"), vec![budget("web")]), Gate::Open);
    }

    #[test]
    fn evictions_under_way_are_charged_before_the_status_shows_them() {
        let index = index(Vec::new(), vec![budget("web").allowing(2)]);
        let charges = |n| Charges::from([(Key::new("default", "web"), n)]);
        assert!(matches!(gate(&index, &web("a"), &charges(1)), Gate::Charged(_)));
        assert!(matches!(
            gate(&index, &web("a"), &charges(2)),
            Gate::Closed(Reason::Budget(BudgetReason::BudgetGivenOut { .. }))
        ));
    }

    #[test]
    fn an_exhausted_budget_is_slow_and_one_without_room_is_never() {
        let slow = gate_with(&web("a"), vec![budget("web")]);
        assert!(
            matches!(
                slow,
                Gate::Closed(Reason::Budget(BudgetReason::BudgetExhausted { needs: 3, has: 2, .. }))
            ),
            "{slow:?}"
        );
        let mut strict = budget("web");
        strict.max_unavailable = Some(Amount::Count(0));
        strict.desired_healthy = 3;
        let never = gate_with(&web("a"), vec![strict]);
        assert!(
            matches!(&never, Gate::Closed(Reason::Budget(BudgetReason::BudgetNever { rule, .. })) if rule == "maxUnavailable is 0"),
            "{never:?}"
        );
    }

    #[test]
    fn two_budgets_on_one_pod_are_never() {
        let mut second = budget("web");
        second.key.name = "again".into();
        let closed = gate_with(&web("a"), vec![budget("web").allowing(1), second]);
        assert!(
            matches!(closed, Gate::Closed(Reason::Budget(BudgetReason::ManyBudgets { budgets })) if budgets.len() == 2)
        );
    }

    #[test]
    fn a082_a084_an_unready_pod_leaves_freely_when_the_rest_is_healthy_or_the_policy_says_always() {
        let mut unready = web("a");
        unready.ready = false;
        assert_eq!(gate_with(&unready, vec![budget("web")]), Gate::Open);
        let mut sick = budget("web");
        sick.current_healthy = 1;
        assert!(matches!(gate_with(&unready, vec![sick.clone()]), Gate::Closed(_)));
        sick.unhealthy = UnhealthyPolicy::AlwaysAllow;
        assert_eq!(gate_with(&unready, vec![sick]), Gate::Open);
    }

    #[test]
    fn a086_a_budget_that_cannot_be_computed_or_is_behind_says_so() {
        let mut failed = budget("web");
        failed.sync_failed = Some("no scale".into());
        assert!(matches!(
            gate_with(&web("a"), vec![failed]),
            Gate::Closed(Reason::Budget(BudgetReason::BudgetSyncFailed { .. }))
        ));
        let mut behind = budget("web").allowing(1);
        behind.generation = 2;
        assert!(matches!(
            gate_with(&web("a"), vec![behind]),
            Gate::Closed(Reason::Budget(BudgetReason::BudgetBehind { .. }))
        ));
    }
}
