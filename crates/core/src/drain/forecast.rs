//! What a drain would do to each pod of its nodes, and how that would end, as far as it can be known from here.
//!
//! One judgement for all who foretell: both dry runs, `evac explain`, and the drain itself, which does not begin where something is refused. It goes by
//! the rules of the drain: [`crate::assess()`], [`gate`], and the order in which pods are asked. What cannot be known without asking the server (webhooks,
//! rights, whether replacements become ready) is not guessed: it is [`Expected::Unknown`], or said in [`Forecast::depends_on`].

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use crate::action::Outcome;
use crate::cluster::board::Board;
use crate::cluster::fact::{Health, Key, Pod, PodPhase, Uid};
use crate::cluster::index::Index;
use crate::drain::assess::{Assessment, Fate, Verdict, assess};
use crate::drain::budget::{Charges, Gate, cut_off, gate};
use crate::drain::evict::Turn;
use crate::drain::explain::{explain, leaving, refusal};
use crate::drain::migrations;
use crate::drain::moves::{Moves, Target, judge_moves};
use crate::drain::policy::Policy;
use crate::drain::run::Blocker;
use crate::reasons::{AnswerReason, BudgetReason, GuestReason, Reason, Severity, StoppingReason};

/// What becomes of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "prospect", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Prospect {
    /// It is asked to leave at once, and nothing that can be seen speaks against it.
    LeavesNow,
    /// Its guest is live-migrated as soon as the limits allow.
    Migrates,
    /// It is on its way out already, or leaves with something else.
    Leaving {
        /// What it waits for on its way; missing where nothing is to be remarked.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
    },
    /// Its budget lets it go after others.
    Turn {
        /// The budget that all of them are charged to.
        budget: Key,
        /// How many pods of this budget may be away at the same time.
        at_a_time: i32,
        /// Pods of this budget on the nodes in question that are asked before it.
        before: usize,
    },
    /// Its external owner is told and has to move or end it.
    HandedOver,
    /// Something is in the way that may clear by itself.
    Waits {
        /// What that is, with a severity that lets it clear.
        reason: Reason,
    },
    /// Something is in the way that waiting does not remove. The drain goes around it, and ends blocked.
    Never {
        /// What that is.
        reason: Reason,
    },
    /// The drain does not begin because of it.
    Refused {
        /// The first refusal; all of them are among [`PodForecast::reasons`].
        reason: Reason,
    },
    /// What decides about it cannot be seen.
    Unknown {
        /// What cannot be seen, as a sentence.
        why: String,
    },
    /// A drain leaves it where it is, and the node counts as empty all the same.
    Stays,
}

/// What a drain would do to one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodForecast {
    /// The pod.
    pub pod: Key,
    /// The incarnation that was judged; the server's answers are found by it.
    #[serde(serialize_with = "text_of")]
    pub uid: Uid,
    /// Its controller as kind and name; none for a pod that stands for itself.
    pub owner: Option<String>,
    /// The virtual machine instance it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<Key>,
    /// What the filters say.
    pub fate: Fate,
    /// What would come of that.
    #[serde(flatten)]
    pub prospect: Prospect,
    /// Everything there is to remark about it.
    pub reasons: Vec<Reason>,
    /// Since when it is on its way out, or now.
    #[serde(skip)]
    pub since: Timestamp,
    /// Where its guest would go, if it is moved.
    #[serde(skip)]
    pub target: Option<Target>,
}

fn text_of<S: serde::Serializer>(uid: &Uid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&uid.text())
}

impl PodForecast {
    /// What is in the way, if something is.
    pub fn reason(&self) -> Option<&Reason> {
        match &self.prospect {
            Prospect::Waits { reason } | Prospect::Never { reason } | Prospect::Refused { reason } => {
                Some(reason)
            }
            _ => None,
        }
    }

    fn blocker(&self, reason: &Reason) -> Blocker {
        Blocker {
            pod: self.pod.clone(),
            owner: self.owner.clone(),
            reason: reason.clone(),
            since: self.since,
        }
    }

    /// Whether a drain asks for its eviction or migration. What is seen to be in the way of an eviction is not tried; a migration is, in case a place comes up.
    pub fn is_asked(&self) -> bool {
        match self.fate {
            Fate::Migrate => !matches!(self.prospect, Prospect::Leaving { .. }),
            Fate::Evict => {
                matches!(
                    self.prospect,
                    Prospect::LeavesNow
                        | Prospect::Turn { .. }
                        | Prospect::HandedOver
                        | Prospect::Unknown { .. }
                ) || matches!(
                    self.prospect,
                    Prospect::Waits { reason: Reason::Stopping(StoppingReason::NodeSilent { .. }) }
                )
            }
            Fate::Follow | Fate::Leave | Fate::Blocked => false,
        }
    }

    /// All of it in one sentence.
    pub fn sentence(&self, now: Timestamp) -> String {
        let does = match &self.prospect {
            Prospect::Waits { reason }
            | Prospect::Never { reason }
            | Prospect::Refused { reason }
            | Prospect::Leaving { reason: Some(reason) } => return explain(&self.blocker(reason), now),
            Prospect::LeavesNow => "can be evicted now".to_owned(),
            Prospect::Migrates => "can be live-migrated".to_owned(),
            Prospect::Leaving { reason: None } => "leaves with its virtual machine".to_owned(),
            Prospect::HandedOver => "is told to its owner, and whether it leaves is not known".to_owned(),
            Prospect::Stays => "stays where it is".to_owned(),
            Prospect::Unknown { why } => format!("may leave or not, that is not known: {why}"),
            Prospect::Turn { budget, at_a_time, before } => {
                let go = if *before == 1 { "goes" } else { "go" };
                format!(
                    "waits for its turn: PodDisruptionBudget {budget} lets {at_a_time} go at a time, and {before} {go} before it"
                )
            }
        };
        let owner = self.owner.as_ref().map_or(String::new(), |owner| format!(" ({owner})"));
        let remarks: Vec<String> = self.reasons.iter().map(Reason::message).collect();
        let remarks =
            if remarks.is_empty() { String::new() } else { format!(": it {}", remarks.join("; it ")) };
        format!("pod {}{owner} {does}{remarks}", self.pod)
    }
}

/// How a drain would end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Expected {
    /// Everything that has to leave would leave.
    Drained,
    /// Nothing is begun, because pods are refused.
    NotStarted,
    /// Not all leaves, however long it waits.
    Blocked,
    /// It depends on what cannot be seen or may still change: see [`Forecast::depends_on`].
    Unknown,
}

impl Expected {
    /// The worse an end, the higher.
    pub fn rank(self) -> u8 {
        match self {
            Self::Drained => 0,
            Self::Unknown => 1,
            Self::Blocked => 2,
            Self::NotStarted => 3,
        }
    }
}

/// How the drain of one node would go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// The node.
    pub node: String,
    /// The worst that any of its pods leads to.
    pub expected: Expected,
    /// What else has to come true for the node to become empty, in sentences.
    pub depends_on: Vec<String>,
    /// One for each pod on the node, those that stay included.
    pub pods: Vec<PodForecast>,
}

impl Forecast {
    fn of(node: String, pods: Vec<PodForecast>) -> Self {
        let mut depends_on: BTreeSet<String> = BTreeSet::new();
        let mut expected = Expected::Drained;
        let mut worsen = |to: Expected| {
            if to.rank() > expected.rank() {
                expected = to;
            }
        };
        for pod in &pods {
            match &pod.prospect {
                Prospect::LeavesNow | Prospect::Migrates | Prospect::Leaving { .. } | Prospect::Stays => {}
                Prospect::Turn { budget, .. } => {
                    worsen(Expected::Unknown);
                    depends_on.insert(format!(
                        "the pods that replace those of PodDisruptionBudget {budget} have to become ready elsewhere"
                    ));
                }
                Prospect::HandedOver => {
                    worsen(Expected::Unknown);
                    depends_on.insert(format!("the external owner of pod {} has to move or end it", pod.pod));
                }
                Prospect::Unknown { why } => {
                    worsen(Expected::Unknown);
                    depends_on.insert(why.clone());
                }
                Prospect::Waits { .. } => worsen(Expected::Unknown),
                Prospect::Never { .. } => worsen(Expected::Blocked),
                Prospect::Refused { .. } => worsen(Expected::NotStarted),
            }
        }
        Self { node, expected, depends_on: depends_on.into_iter().collect(), pods }
    }

    /// What is in the way now, whether it may clear or not.
    pub fn blockers(&self) -> Vec<Blocker> {
        self.pods.iter().filter_map(|pod| Some(pod.blocker(pod.reason()?))).collect()
    }

    /// Everything because of which a drain does not begin.
    pub fn refusals(&self) -> Vec<Blocker> {
        let refused = self.pods.iter().filter(|pod| matches!(pod.prospect, Prospect::Refused { .. }));
        refused
            .flat_map(|pod| {
                let never = pod.reasons.iter().filter(|reason| reason.severity() == Severity::Never);
                never.map(|reason| pod.blocker(reason)).collect::<Vec<_>>()
            })
            .collect()
    }

    /// The same with what the server answered when it was asked about each pod: it knows budgets better than we do, and webhooks and rights at all.
    #[must_use]
    pub fn with_answers<'a>(self, answer: impl Fn(&Uid) -> Option<&'a Outcome>, index: &Index) -> Self {
        let Self { node, pods, .. } = self;
        let pods = pods.into_iter().map(|mut one| {
            if let Some(outcome) = answer(&one.uid)
                && let Some(pod) = index.pod(&one.pod)
            {
                one.prospect = corrected(one.fate, one.prospect, pod, outcome);
            }
            one
        });
        Self::of(node, pods.collect())
    }
}

fn corrected(fate: Fate, seen: Prospect, pod: &Pod, outcome: &Outcome) -> Prospect {
    let told = if fate == Fate::Migrate { migrations::refusal(outcome) } else { refusal(pod, outcome) };
    match (seen, told) {
        // The server would grant it, so what we see of its budget is not of today.
        (Prospect::Waits { reason } | Prospect::Never { reason }, None) if is_of_budgets(&reason) => {
            Prospect::LeavesNow
        }
        // Of a refusal by budgets we can see more than the server says.
        (seen, None)
        | (
            seen @ (Prospect::Waits { .. } | Prospect::Never { .. }),
            Some(Reason::Budget(BudgetReason::BudgetDisagrees { .. })),
        ) => seen,
        (Prospect::Never { reason }, Some(_)) if is_of_budgets(&reason) => Prospect::Never { reason },
        (_, Some(reason)) => held(reason),
    }
}

fn is_of_budgets(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Budget(
            BudgetReason::BudgetExhausted { .. }
                | BudgetReason::BudgetGivenOut { .. }
                | BudgetReason::BudgetCutOff { .. }
                | BudgetReason::BudgetNever { .. }
                | BudgetReason::BudgetBehind { .. }
                | BudgetReason::BudgetSyncFailed { .. }
                | BudgetReason::ManyBudgets { .. }
        )
    )
}

pub(super) fn held(reason: Reason) -> Prospect {
    match reason.severity() {
        Severity::Never => Prospect::Never { reason },
        Severity::Slow => Prospect::Waits { reason },
        Severity::Note | Severity::Warning | Severity::Progress => Prospect::Leaving { reason: Some(reason) },
    }
}

/// Judges nodes that are drained together, in the order in which they were named.
pub fn forecast(index: &Index, policy: &Policy, nodes: &[String], now: Timestamp) -> Vec<Forecast> {
    let mut board = index.places().map(Board::new);
    forecast_on(&mut Moves::of(board.as_mut(), nodes), index, policy, nodes, now)
}

/// The same with a board that is kept for other drains.
pub fn forecast_on(
    moves: &mut Moves<'_, '_>,
    index: &Index,
    policy: &Policy,
    nodes: &[String],
    now: Timestamp,
) -> Vec<Forecast> {
    let assessments: Vec<Assessment> = nodes.iter().map(|node| assess(index, policy, node, now)).collect();
    let mut prospects: BTreeMap<Key, Prospect> = BTreeMap::new();
    judge_evictions(index, policy, &assessments, now, &mut prospects);
    let mut targets = judge_moves(moves, index, &assessments, &mut prospects);
    let forecasts = assessments.into_iter().map(|assessment| {
        let pods = assessment.verdicts.into_iter().map(|verdict| {
            let pod = index.pod(&verdict.pod);
            let prospect = prospects.remove(&verdict.pod).unwrap_or_else(|| plain(index, pod, &verdict, now));
            PodForecast {
                owner: pod.and_then(|pod| pod.controller.as_ref()).map(ToString::to_string),
                since: pod.and_then(|pod| pod.deletion).map_or(now, |deletion| deletion.requested()),
                target: targets.remove(&verdict.pod),
                pod: verdict.pod,
                uid: verdict.uid,
                instance: verdict.instance,
                fate: verdict.fate,
                prospect,
                reasons: verdict.reasons,
            }
        });
        Forecast::of(assessment.node, pods.collect())
    });
    forecasts.collect()
}

/// What can be said of a pod without looking at any other.
fn plain(index: &Index, pod: Option<&Pod>, verdict: &Verdict, now: Timestamp) -> Prospect {
    let says = |at_least| verdict.reasons.iter().find(|reason| reason.severity() >= at_least).cloned();
    match verdict.fate {
        Fate::Leave => Prospect::Stays,
        Fate::Blocked => match says(Severity::Never) {
            Some(reason) => Prospect::Refused { reason },
            None => Prospect::Unknown { why: "nothing says why it is refused".into() },
        },
        _ if pod.is_some_and(|pod| pod.deletion.is_some()) => {
            let node = pod.and_then(|pod| index.node(pod.node.as_deref()?));
            let (reason, _) = pod.map_or((None, None), |pod| leaving(node, pod, now));
            reason.map_or(Prospect::Leaving { reason: None }, held)
        }
        Fate::Follow => says(Severity::Slow).map_or(Prospect::Leaving { reason: None }, held),
        Fate::Evict | Fate::Migrate => Prospect::LeavesNow,
    }
}

/// A node that does not report cannot confirm that anything ended on it.
pub(super) fn silence(index: &Index, node: &str) -> Option<Reason> {
    let node = index.node(node).filter(|node| matches!(node.health, Health::NotReady | Health::Unknown))?;
    Some(Reason::Stopping(StoppingReason::NodeSilent { node: node.name.clone(), since: node.health_since }))
}

/// Pods that are asked to leave, in the order in which a drain asks them.
fn judge_evictions(
    index: &Index,
    policy: &Policy,
    assessments: &[Assessment],
    now: Timestamp,
    prospects: &mut BTreeMap<Key, Prospect>,
) {
    let mut line: Vec<(bool, Turn, &Pod, &Verdict)> = Vec::new();
    for verdict in assessments.iter().flat_map(|assessment| assessment.of_fate(Fate::Evict)) {
        if let Some(pod) = index.pod(&verdict.pod).filter(|pod| pod.deletion.is_none()) {
            line.push((policy.critical_last && pod.is_critical(), Turn::of(index, pod), pod, verdict));
        }
    }
    line.sort_by(|a, b| (a.0, a.1, &a.2.key).cmp(&(b.0, b.1, &b.2.key)));
    let mut charges = Charges::new();
    let mut irreplaceable: BTreeSet<Key> = BTreeSet::new();
    for (_, _, pod, verdict) in line {
        let silent = silence(index, pod.node.as_deref().unwrap_or_default());
        let told = verdict
            .reasons
            .iter()
            .any(|reason| matches!(reason, Reason::Guest(GuestReason::VmExternal { .. })));
        let prospect = if let Some(reason) = silent.filter(|_| !pod.phase.is_finished()) {
            Prospect::Waits { reason }
        } else if told {
            Prospect::HandedOver
        } else if policy.disable_eviction {
            Prospect::LeavesNow
        } else if index.namespace_is_terminating(&pod.key.namespace) {
            let namespace = pod.key.namespace.to_string();
            Prospect::Waits { reason: AnswerReason::NamespaceTerminating { namespace }.into() }
        } else if !index.budgets_are_visible() && asks_budgets(pod) {
            let why = "PodDisruptionBudgets cannot be read, and one may keep it".to_owned();
            Prospect::Unknown { why }
        } else {
            through_budgets(index, pod, now, &mut charges, &mut irreplaceable)
        };
        prospects.insert(pod.key.clone(), prospect);
    }
}

/// Pods that do not run, or not any more, are let go whatever budgets say.
fn asks_budgets(pod: &Pod) -> bool {
    !pod.phase.is_finished() && pod.phase != PodPhase::Pending
}

fn through_budgets(
    index: &Index,
    pod: &Pod,
    now: Timestamp,
    charges: &mut Charges,
    irreplaceable: &mut BTreeSet<Key>,
) -> Prospect {
    let key = match gate(index, pod, &Charges::new()) {
        Gate::Open => return Prospect::LeavesNow,
        Gate::Closed(reason) => return held(cut_off(index, reason, now).0),
        Gate::Charged(key) => key,
    };
    let (allowed, at_a_time) = index.budget(&key).map_or((1, 1), |budget| {
        (budget.allowed, budget.allowed.max(budget.expected - budget.desired_healthy))
    });
    let given = charges.entry(key.clone()).or_default();
    let before = usize::try_from(*given).unwrap_or(0);
    let prospect = if *given < allowed {
        Prospect::LeavesNow
    } else if irreplaceable.contains(&key) {
        let why = format!(
            "pods of PodDisruptionBudget {key} that go before it have no controller, so nothing takes their place"
        );
        Prospect::Unknown { why }
    } else {
        Prospect::Turn { budget: key.clone(), at_a_time, before }
    };
    *given += 1;
    if pod.controller.is_none() {
        irreplaceable.insert(key);
    }
    prospect
}

#[cfg(test)]
#[path = "forecast_tests.rs"]
mod tests;
