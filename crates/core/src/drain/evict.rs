//! Which pods are asked to leave now.
//!
//! Free pods first, then as many as each budget has room for, never more requests at once than the policy allows. A
//! pod that waits holds no place.

use std::collections::BTreeMap;
use std::time::Duration;

use evac_apimachinery::backoff::Backoff;

use crate::action::Outcome;
use crate::cluster::fact::{Key, Pod, Uid};
use crate::cluster::index::Index;
use crate::cluster::subject::{Kind, ObjectRef};
use crate::drain::action::Action;
use crate::drain::assess::{Assessment, Fate};
use crate::drain::budget::{Charges, Gate, gate};
use crate::drain::look::Look;
use crate::drain::pod::{NextTry, PodRun, PodState};
use crate::drain::policy::DryRun;
use crate::drain::run::{Run, after};
use crate::drain::step::{Event, Step};
use crate::reasons::Severity;

/// What each budget has given to evictions that its status does not show yet.
pub(crate) fn charges(index: &Index, run: &Run) -> Charges {
    let mut charges = Charges::new();
    for (uid, known) in &run.pods {
        let Some(budget) = &known.trail.charged else { continue };
        let under_way = matches!(known.state, PodState::InFlight | PodState::Accepted);
        let visible = index.pod(&known.key).is_none_or(|pod| pod.uid != *uid || pod.deletion.is_some())
            || index.budget(budget).is_none_or(|found| found.disrupted.contains_key(known.key.name.as_str()));
        if under_way && !visible {
            *charges.entry(budget.clone()).or_default() += 1;
        }
    }
    charges
}

/// Chooses the pods that are asked to leave now: free ones first, then as many as each budget has room for.
pub(crate) fn send<'a>(
    look: Look<'_>,
    run: &mut Run,
    draining: impl Iterator<Item = &'a Assessment>,
    step: &mut Step,
) {
    let Look { index, policy, now } = look;
    let mut room = policy.parallel.saturating_sub(run.requests_under_way());
    let mut charges = charges(index, run);
    let mut candidates: Vec<(Turn, &Key, &Uid, &str)> = Vec::new();
    let mut later: BTreeMap<&str, Vec<(Turn, &Key, &Uid, &str)>> = BTreeMap::new();
    for assessment in draining {
        let node = assessment.node.as_str();
        let guests_wait = assessment.of_fate(Fate::Migrate).next().is_some();
        for verdict in assessment.of_fate(Fate::Evict) {
            let Some(pod) = index.pod(&verdict.pod) else { continue };
            let ended = run.pods.get(&pod.uid).filter(|known| known.guest).and_then(|known| known.trail.gone);
            if let Some(at) =
                ended.map(|ended| after(ended, CLEARED_AFTER)).filter(|at| guests_wait && *at > now)
            {
                step.look_at(at);
                continue;
            }
            let entry = (Turn::of(index, pod), &pod.key, &pod.uid, node);
            if policy.critical_last && pod.is_critical() {
                later.entry(node).or_default().push(entry);
            } else {
                candidates.push(entry);
            }
        }
    }
    for (node, entries) in later {
        // Those that can never leave do not hold back the last wave; nothing else may be left.
        let waits = candidates.iter().any(|(_, _, uid, on)| {
            *on == node
                && run.pods.get(*uid).is_some_and(|known| {
                    known.told.blocked.as_ref().is_none_or(|(reason, _)| reason.severity() != Severity::Never)
                })
        });
        if !waits {
            candidates.extend(entries);
        }
    }
    candidates.sort();
    for (_, key, uid, node) in candidates {
        if room == 0 {
            break;
        }
        let Some(pod) = index.pod(key) else { continue };
        let known = run.pods.entry(uid.clone()).or_insert_with(|| PodRun::new(pod, node));
        let asked = match may_ask(look, pod, known, &charges) {
            Ask::Free => Some(None),
            Ask::Charge(budget) => Some(Some(budget)),
            // One look behind a closed door is enough: its answer holds for all who wait there.
            Ask::Probe(budget) if charges.get(&budget).is_none_or(|count| *count == 0) => Some(Some(budget)),
            Ask::Probe(_) => {
                if let PodState::Idle(next) = &mut known.state {
                    next.probe_at = Some(after(now, SAFETY_NET));
                }
                None
            }
            Ask::NotNow => None,
        };
        if let Some(charged) = asked {
            if let Some(budget) = &charged {
                *charges.entry(budget.clone()).or_default() += 1;
            }
            known.trail.charged = charged;
            known.state = PodState::InFlight;
            let attempt = known.attempt();
            let dry_run = policy.dry_run == DryRun::Server;
            let grace_seconds = policy.grace_seconds;
            step.events.push(Event::Evicting {
                pod: key.clone(),
                node: node.to_owned(),
                attempt,
                deleting: policy.disable_eviction,
                finished: pod.phase.is_finished(),
            });
            let object = ObjectRef::new(Kind::Pod, key.clone(), uid.clone());
            step.actions.push(if policy.disable_eviction {
                Action::Delete { object, grace_seconds, dry_run }
            } else {
                Action::Evict { object, grace_seconds, dry_run }
            });
            room -= 1;
        } else if let PodState::Idle(next) = known.state
            && (pod.deletion.is_none() || known.last().is_some_and(Outcome::is_transient))
        {
            for at in [next.not_before, next.probe_at].into_iter().flatten().filter(|at| *at > now) {
                step.look_at(at);
            }
        }
    }
}

/// In which order pods are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    Free,
    /// Its budget counts it as gone already, so letting it go costs the workload nothing more.
    Granted,
    Budgeted,
}

impl Turn {
    pub(crate) fn of(index: &Index, pod: &Pod) -> Self {
        match index.budgets_of(pod).next() {
            None => Self::Free,
            Some(budget) if budget.disrupted.contains_key(pod.key.name.as_str()) => Self::Granted,
            Some(_) => Self::Budgeted,
        }
    }
}

/// Whether to ask for a pod now.
enum Ask {
    NotNow,
    Free,
    Charge(Key),
    /// What we see says no, but we have believed that for long.
    Probe(Key),
}

fn when(condition: bool, ask: Ask) -> Ask {
    if condition { ask } else { Ask::NotNow }
}

fn may_ask(look: Look<'_>, pod: &Pod, known: &mut PodRun, charges: &Charges) -> Ask {
    let Look { index, policy, now } = look;
    let PodState::Idle(next) = known.state else { return Ask::NotNow };
    let due = next.not_before.is_none_or(|at| at <= now);
    if policy.dry_run == DryRun::Server {
        return when(known.answer.is_none(), Ask::Free);
    }
    if let Some(deletion) = pod.deletion {
        // It is leaving already. Ask again only to shorten its grace period, and only until the server has answered.
        let shorter = policy.grace_seconds.is_some_and(|grace| grace < deletion.grace_seconds);
        let unanswered = known.last().is_none_or(Outcome::is_transient);
        let fails = known.has_failed_for_good(policy.patience);
        return when(shorter && unanswered && !fails && due, Ask::Free);
    }
    if known.has_failed_for_good(policy.patience) {
        known.give_up(now);
        return Ask::NotNow;
    }
    if policy.disable_eviction {
        return when(due, Ask::Free);
    }
    let held = next.held_until.is_some_and(|at| at > now);
    let refused_by_budget = known.answer.as_ref().filter(|answer| {
        matches!(
            answer.outcome,
            Outcome::Budget { .. } | Outcome::ManyBudgets { .. } | Outcome::BudgetBroken { .. }
        )
    });
    let changed = refused_by_budget.is_some_and(|answer| {
        index.pod_revision(&pod.key) > answer.seen
            || index.budgets_of(pod).any(|budget| index.budget_revision(&budget.key) > answer.seen)
    });
    let free_to_ask = due || (changed && !held);
    match gate(index, pod, charges) {
        Gate::Open => when(free_to_ask, Ask::Free),
        Gate::Charged(budget) => when(free_to_ask, Ask::Charge(budget)),
        Gate::Closed(reason) if reason.severity() < Severity::Never => {
            let at = next.probe_at.unwrap_or_else(|| PROBE.until(now, known.earlier()));
            known.state = PodState::Idle(NextTry { probe_at: Some(at), ..next });
            match index.budgets_of(pod).next() {
                Some(budget) => when(at <= now && !held, Ask::Probe(budget.key.clone())),
                None => Ask::NotNow,
            }
        }
        Gate::Closed(_) => Ask::NotNow,
    }
}

/// What is left of a guest that has gone makes way for the next one: every request while a slot is being filled delays it.
const CLEARED_AFTER: Duration = Duration::from_secs(2);
/// How long a closed budget is believed before the server is asked directly for the first time.
const SAFETY_NET: Duration = Duration::from_secs(60);
/// The same after answers that said no.
const PROBE: Backoff = Backoff::new(SAFETY_NET, Duration::from_secs(300));
