//! What a drain would do, as a whole, before anything is changed: who goes where, how long it takes, what is in the way, and what is different afterwards.
//!
//! ```text
//!  Index ─▶ Planner ─▶ forecast (the judgement of the drain itself) ─┐
//!              │          seats: where each guest goes               ├▶ Plan      nodes drained together
//!              │       history: how long moves took here             ┘   Survey    each node by itself: can it be lost?
//!              └─ the board of all nodes, made once
//! ```
//!
//! Nothing is judged here: verdicts, reasons and places are those of [`crate::drain::forecast`], so what a plan says of a pod is what `evac explain` and a
//! drain say of it. What is added is what only the whole shows: time, waves, room.

mod afterwards;
mod duration;
mod room;
mod survey;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

pub use afterwards::Afterwards;
pub use duration::{Basis, Takes};
pub use room::{Room, bytes_text};
pub use survey::{InTheWay, Survey, SurveyedNode, Verdict};

use crate::cluster::board::{Board, Seat};
use crate::cluster::fact::Key;
use crate::cluster::index::Index;
use crate::cluster::mark::MarkState;
use crate::cluster::place::Wants;
use crate::drain::assess::Fate;
use crate::drain::forecast::{Expected, Forecast, PodForecast, Prospect, forecast_on};
use crate::drain::moves::{Moves, Sure};
use crate::drain::policy::Policy;
use crate::reasons::{BudgetReason, Reason};
use duration::History;

/// Where a guest goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Goal {
    /// The node; none where none can be named.
    pub node: Option<String>,
    /// How sure that is.
    pub sure: Sureness,
    /// What would have to be known to be surer.
    pub not_judged: Vec<String>,
}

/// How sure a goal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Sureness {
    /// Only this node would take it, or it is on its way there.
    Certain,
    /// The scheduler likes it best of those that would take it, as far as can be seen.
    Likely,
    /// Something decides that is not judged.
    Unknown,
}

/// What happens to one pod.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodPlan {
    /// The judgement of the drain: verdict, prospect and reasons.
    #[serde(flatten)]
    pub forecast: PodForecast,
    /// Where its guest goes: of those that move, and of those that restart.
    pub target: Option<Goal>,
    /// How long it takes from the moment in which its turn comes.
    pub takes: Takes,
    /// How things are when the drain is over.
    pub afterwards: Afterwards,
    /// What a person can do about what is in the way.
    pub remedy: Option<String>,
}

/// A disruption budget that can never be met, and whom it keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HopelessBudget {
    /// The budget.
    pub budget: Key,
    /// Why it never lets anybody go.
    pub reason: Reason,
    /// The pods that it keeps.
    pub pods: Vec<Key>,
}

/// What happens on one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlan {
    /// The node.
    pub node: String,
    /// How the drain would end.
    pub expected: Expected,
    /// What else has to come true for the node to become empty, in sentences.
    pub depends_on: Vec<String>,
    /// What is to be remarked about the node itself, in sentences.
    pub remarks: Vec<String>,
    /// How many guests move.
    pub moves: usize,
    /// How many of them at once, by what may leave one node.
    pub at_once: usize,
    /// In how many waves.
    pub waves: usize,
    /// How long it takes until all have gone that can go.
    pub takes: Takes,
    /// Budgets that can never be met.
    pub budgets: Vec<HopelessBudget>,
    /// One for each pod, those that stay included.
    pub pods: Vec<PodPlan>,
}

/// What happens when some nodes are drained together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The worst that any of the nodes leads to.
    pub expected: Expected,
    /// How many guests move.
    pub moves: usize,
    /// How many of them at once.
    pub at_once: usize,
    /// In how many waves.
    pub waves: usize,
    /// How long it takes until all have gone that can go.
    pub takes: Takes,
    /// Whether there is room for all of them.
    pub room: Room,
    /// In the order in which they were named.
    pub nodes: Vec<NodePlan>,
}

impl NodePlan {
    /// Pods with something in the way.
    pub fn blocked(&self) -> impl Iterator<Item = &PodPlan> {
        self.pods.iter().filter(|pod| pod.forecast.reason().is_some())
    }
}

impl Plan {
    /// Nothing that can be seen is in the way.
    pub fn is_drainable(&self) -> bool {
        self.room.without_place.is_empty() && self.nodes.iter().all(|node| node.blocked().next().is_none())
    }
}

/// Answers for any nodes of one cluster at one moment; what all answers have in common is made once.
#[derive(Debug)]
pub struct Planner<'a> {
    index: &'a Index,
    policy: &'a Policy,
    now: Timestamp,
    board: Option<Board<'a>>,
    history: History,
}

impl<'a> Planner<'a> {
    /// For drains by this policy.
    pub fn new(index: &'a Index, policy: &'a Policy, now: Timestamp) -> Self {
        let board = index.places().map(Board::new);
        Self { index, policy, now, board, history: History::of(index) }
    }

    /// The drain of these nodes together, as if it began now.
    pub fn plan(&mut self, nodes: &[String]) -> Plan {
        let mut moves = Moves::of(self.board.as_mut(), nodes);
        let forecasts = forecast_on(&mut moves, self.index, self.policy, nodes, self.now);
        let restarts = seat_the_rest(&mut moves, &forecasts);
        let room = Room::of(&mut moves, self.index, &forecasts, &restarts);
        let limits = Limits::of(self.index);
        let planned: Vec<NodePlan> =
            forecasts.into_iter().map(|forecast| self.node(forecast, &restarts, limits)).collect();
        let total = planned.iter().map(|node| node.moves).sum();
        let senders = planned.iter().filter(|node| node.moves > 0).count();
        let at_once = limits.cluster.min(limits.node * senders).min(total);
        let by_node = planned.iter().map(|node| node.waves).max().unwrap_or(0);
        let by_cluster = if limits.cluster == 0 { 0 } else { total.div_ceil(limits.cluster) };
        let takes = match planned.as_slice() {
            [one] => one.takes.clone(),
            several => {
                let guests =
                    several.iter().flat_map(|node| &node.pods).filter(|pod| moves_guest(&pod.forecast));
                let memory: Vec<u64> = guests.map(|pod| self.memory(&pod.forecast)).collect();
                let together = self.history.all(&self.index.config, &memory, at_once);
                several.iter().map(|node| node.takes.clone()).fold(together, Takes::beside)
            }
        };
        Plan {
            expected: planned
                .iter()
                .map(|node| node.expected)
                .max_by_key(|end| end.rank())
                .unwrap_or(Expected::Drained),
            moves: total,
            at_once,
            waves: by_node.max(by_cluster),
            takes,
            room,
            nodes: planned,
        }
    }

    /// Each node of the cluster by itself: could it be lost?
    pub fn survey(&mut self) -> Survey {
        let names: Vec<String> = self.index.nodes().map(|node| node.name.clone()).collect();
        Survey::of(names.into_iter().map(|name| self.plan(&[name])))
    }

    fn memory(&self, pod: &PodForecast) -> u64 {
        pod.instance.as_ref().and_then(|key| self.index.instance(key)).map_or(0, |instance| instance.memory)
    }

    fn node(&self, forecast: Forecast, restarts: &BTreeMap<Key, Seat>, limits: Limits) -> NodePlan {
        let Forecast { node, expected, depends_on, pods } = forecast;
        let pods: Vec<PodPlan> = pods.into_iter().map(|pod| self.pod(pod, restarts)).collect();
        let guests = pods.iter().filter(|pod| moves_guest(&pod.forecast));
        let memory: Vec<u64> = guests.map(|pod| self.memory(&pod.forecast)).collect();
        let moved = self.history.all(&self.index.config, &memory, limits.node);
        let evicted =
            pods.iter().filter(|pod| !moves_guest(&pod.forecast) && pod.forecast.reason().is_none());
        NodePlan {
            expected,
            depends_on,
            remarks: self.remarks(&node),
            moves: memory.len(),
            at_once: limits.node.min(memory.len()),
            waves: if limits.node == 0 { 0 } else { memory.len().div_ceil(limits.node) },
            takes: evicted.map(|pod| pod.takes.clone()).fold(moved, Takes::beside),
            budgets: hopeless(&pods),
            node,
            pods,
        }
    }

    fn pod(&self, forecast: PodForecast, restarts: &BTreeMap<Key, Seat>) -> PodPlan {
        let takes = self.history.of_pod(self.index, self.policy, &forecast, self.memory(&forecast));
        PodPlan {
            target: self.goal(&forecast, restarts.get(&forecast.pod)),
            takes,
            afterwards: Afterwards::of(&forecast),
            remedy: forecast.reason().and_then(Reason::fix),
            forecast,
        }
    }

    fn goal(&self, pod: &PodForecast, restart: Option<&Seat>) -> Option<Goal> {
        let wants = self.index.places().and_then(|places| places.wants.get(&pod.pod));
        let not_judged = wants.map(|wants| not_judged(wants)).unwrap_or_default();
        let goal = |node: Option<String>, sure| {
            let sure = if not_judged.is_empty() && node.is_some() { sure } else { Sureness::Unknown };
            Some(Goal { node, sure, not_judged: not_judged.clone() })
        };
        if moves_guest(pod) {
            return match &pod.target {
                Some(target) if target.sure == Sure::Certain => {
                    goal(Some(target.node.clone()), Sureness::Certain)
                }
                Some(target) => goal(Some(target.node.clone()), Sureness::Likely),
                None => goal(None, Sureness::Unknown),
            };
        }
        if pod.instance.is_some() && Afterwards::of(pod) == Afterwards::Restarted {
            return match restart {
                Some(Seat::On { node, only: true }) => goal(Some(node.clone()), Sureness::Certain),
                Some(Seat::On { node, .. }) => goal(Some(node.clone()), Sureness::Likely),
                _ => goal(None, Sureness::Unknown),
            };
        }
        None
    }

    fn remarks(&self, name: &str) -> Vec<String> {
        let Some(node) = self.index.node(name) else { return Vec::new() };
        match &node.mark {
            Some(MarkState::Valid(mark)) => {
                vec![format!("a mark on it says that {} drains it since {:.0}", mark.owner, mark.since)]
            }
            Some(_) => vec!["a mark on it that cannot be read says that it is drained".into()],
            None if node.unschedulable => vec!["it is cordoned, and no mark says by whom".into()],
            None => Vec::new(),
        }
    }
}

/// How many guests may be on their way.
#[derive(Debug, Clone, Copy)]
struct Limits {
    node: usize,
    cluster: usize,
}

impl Limits {
    fn of(index: &Index) -> Self {
        Self { node: index.config.at_once_from_a_node(), cluster: index.config.parallel_per_cluster as usize }
    }
}

fn moves_guest(pod: &PodForecast) -> bool {
    pod.prospect == Prospect::Migrates
}

fn not_judged(wants: &Wants) -> Vec<String> {
    let scheduler =
        (!wants.scheduler.is_empty()).then(|| format!("the rules of the scheduler {}", wants.scheduler));
    wants.unjudged.iter().cloned().chain(scheduler).collect()
}

/// What ends and is started again elsewhere needs room, too. Guests come before other pods.
fn seat_the_rest(moves: &mut Moves<'_, '_>, forecasts: &[Forecast]) -> BTreeMap<Key, Seat> {
    let pods = forecasts.iter().flat_map(|forecast| &forecast.pods);
    let comes_back = |pod: &&PodForecast| {
        pod.fate == Fate::Evict && matches!(Afterwards::of(pod), Afterwards::Restarted | Afterwards::Evicted)
    };
    let mut leaving: Vec<&PodForecast> = pods.filter(comes_back).collect();
    leaving.sort_by_key(|pod| pod.instance.is_none());
    leaving.into_iter().map(|pod| (pod.pod.clone(), moves.seat(&pod.pod, false))).collect()
}

fn hopeless(pods: &[PodPlan]) -> Vec<HopelessBudget> {
    let mut found: BTreeMap<Key, HopelessBudget> = BTreeMap::new();
    for pod in pods {
        if let Some(reason @ Reason::Budget(BudgetReason::BudgetNever { budget, .. })) = pod.forecast.reason()
        {
            let entry = found.entry(budget.clone()).or_insert_with(|| HopelessBudget {
                budget: budget.clone(),
                reason: reason.clone(),
                pods: Vec::new(),
            });
            entry.pods.push(pod.forecast.pod.clone());
        }
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests;
