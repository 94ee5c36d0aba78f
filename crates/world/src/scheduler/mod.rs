//! The scheduler: which pod next, which node for it, and what to say when there is none.
//!
//! Not built: preemption, dynamic resource allocation, pod groups.

pub mod fit;
pub mod neighbours;
mod score;
mod volumes;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

use self::fit::Refusal;
use self::neighbours::{Neighbours, depends_on_others};
use crate::actor::{Out, View};
use crate::effects::Write;
use crate::events::{Notice, event};
use crate::kinds::Kind;
use crate::objects::{Key, deleting, finished, name, node_of, pod_condition, time, uid};

const COMPONENT: &str = "default-scheduler";

/// What changed, as far as a pod that found no place may care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Room, nodes, taints, volumes.
    Room,
    /// Only where other pods are.
    Places,
}

type Turn = (Reverse<i32>, Timestamp, Key);

#[derive(Debug, Default)]
pub struct Scheduler {
    seed: u64,
    waiting: BTreeSet<Turn>,
    turns: BTreeMap<Key, Turn>,
    stranded: BTreeSet<Key>,
    last: Option<Key>,
}

/// Ours to place: by name, unbound, alive, and not held back by gates.
pub fn ours(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let scheduler = spec.scheduler_name.as_deref().unwrap_or_default();
    (scheduler.is_empty() || scheduler == COMPONENT)
        && node_of(pod).is_none()
        && !deleting(&pod.metadata)
        && !finished(pod)
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
}

impl Scheduler {
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The pod may have become, or stopped being, something to place.
    pub fn note(&mut self, key: &Key, pod: Option<&Pod>, spec_changed: bool) {
        if let Some(pod) = pod.filter(|p| ours(p)) {
            if spec_changed || !self.stranded.contains(key) {
                self.enqueue(key, pod);
            }
        } else {
            self.stranded.remove(key);
            if let Some(turn) = self.turns.remove(key) {
                self.waiting.remove(&turn);
            }
        }
    }

    fn enqueue(&mut self, key: &Key, pod: &Pod) {
        self.stranded.remove(key);
        if self.turns.contains_key(key) {
            return;
        }
        let priority = pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0);
        let created = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
        let turn = (Reverse(priority), created, key.clone());
        self.turns.insert(key.clone(), turn.clone());
        self.waiting.insert(turn);
    }

    pub fn wake(&mut self, view: View<'_>, why: Wake) {
        let stranded: Vec<Key> = self.stranded.iter().cloned().collect();
        for key in stranded {
            if let Some(pod) = view.mirror.pods.get(&key)
                && (why == Wake::Room || depends_on_others(pod))
            {
                self.enqueue(&key, pod);
            }
        }
    }

    pub fn has_work(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The last placement could not be written.
    pub fn failed(&mut self, view: View<'_>) {
        if let Some(key) = self.last.take() {
            let pod = view.mirror.pods.get(&key).cloned();
            self.note(&key, pod.as_deref(), true);
        }
    }

    /// Places the pod whose turn it is.
    pub fn sync(&mut self, view: View<'_>, out: &mut Out) {
        let Some(turn) = self.waiting.pop_first() else { return };
        let key = turn.2;
        self.turns.remove(&key);
        self.last = Some(key.clone());
        let Some(pod) = view.mirror.pods.get(&key).filter(|p| ours(p)) else { return };
        match place(view, self.seed, &key, pod) {
            Ok(node) => {
                out.write(Write::bind(key.clone(), &node, uid(&pod.metadata)));
                let text = format!("Successfully assigned {key} to {node}");
                out.write(event(
                    Kind::Pod,
                    &pod.metadata,
                    Notice::normal(COMPONENT, "Scheduled", &text),
                    view.now,
                ));
            }
            Err(message) => {
                self.stranded.insert(key.clone());
                report(view, &key, pod, &message, out);
            }
        }
    }
}

/// The best node for the pod, or why there is none.
pub fn place(view: View<'_>, seed: u64, key: &Key, pod: &Pod) -> Result<String, String> {
    let mirror = view.mirror;
    let total = mirror.nodes.len();
    if total == 0 {
        return Err("no nodes available to schedule pods".to_owned());
    }
    if let Some(problem) = volumes::problem(mirror, pod) {
        return Err(explain_all(total, &problem));
    }
    let neighbours = Neighbours::of(mirror, pod);
    let mut fitting = Vec::new();
    let mut refusals = Vec::new();
    let named = fit::named_nodes(pod);
    let candidates: Vec<&Arc<Node>> = match &named {
        Some(listed) => listed.iter().filter_map(|n| mirror.nodes.named(n)).collect(),
        None => mirror.nodes.values().collect(),
    };
    let left_out = Refusal::fixed("node(s) didn't satisfy plugin(s) [NodeAffinity]");
    refusals.extend(std::iter::repeat_n(left_out, total - candidates.len()));
    for node in candidates {
        let refusal = fit::refusal(mirror, pod, key, node)
            .or_else(|| volumes::refusal(mirror, pod, node))
            .or_else(|| neighbours.refusal(node));
        match refusal {
            None => fitting.push(node),
            Some(refusal) => refusals.push(refusal),
        }
    }
    if fitting.is_empty() {
        return Err(explain(total, &refusals));
    }
    let best = score::best(mirror, seed, key, pod, &fitting);
    Ok(best.map(|n| name(&n.metadata).to_owned()).unwrap_or_default())
}

fn histogram(total: usize, reasons: &BTreeMap<String, usize>) -> String {
    let mut parts: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort();
    format!("0/{total} nodes are available: {}.", parts.join(", "))
}

/// The sentence kube-scheduler says, with the part about preemption it always adds.
fn explain(total: usize, refusals: &[Refusal]) -> String {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut preemption: BTreeMap<String, usize> = BTreeMap::new();
    for refusal in refusals {
        for reason in &refusal.reasons {
            *reasons.entry(reason.clone()).or_default() += 1;
        }
        let why = if refusal.fixed {
            "Preemption is not helpful for scheduling"
        } else {
            "No preemption victims found for incoming pod"
        };
        *preemption.entry(why.to_owned()).or_default() += 1;
    }
    format!("{} preemption: {}", histogram(total, &reasons), histogram(total, &preemption))
}

fn explain_all(total: usize, problem: &str) -> String {
    let not_helpful = BTreeMap::from([("Preemption is not helpful for scheduling".to_owned(), total)]);
    format!("0/{total} nodes are available: {problem}. preemption: {}", histogram(total, &not_helpful))
}

fn report(view: View<'_>, key: &Key, pod: &Pod, message: &str, out: &mut Out) {
    let old = pod_condition(pod, "PodScheduled").filter(|c| c.status == "False");
    if old.is_some_and(|c| c.message.as_deref() == Some(message)) {
        return;
    }
    let since = old.and_then(|c| c.last_transition_time.clone()).unwrap_or_else(|| time(view.now));
    let patch = json!({
        "metadata": { "uid": pod.metadata.uid },
        "status": { "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastTransitionTime": since, "lastProbeTime": null,
        }]},
    });
    out.write(Write::patch_status(Kind::Pod, key.clone(), patch));
    out.write(event(
        Kind::Pod,
        &pod.metadata,
        Notice::warning(COMPONENT, "FailedScheduling", message),
        view.now,
    ));
}

#[cfg(test)]
mod foretold_tests;
#[cfg(test)]
mod tests;
