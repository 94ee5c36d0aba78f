//! The controller of instances: launcher pods, phases up to the hand-over to the node agent, and the end.
//!
//! From `Scheduled` on the node agent speaks for the guest. What stays here is everything that can be seen from pods: readiness,
//! the list of pods, and that a guest without a pod has failed.

use jiff::Timestamp;

use super::action::{Action, Decision, Event, Kind, Own, Part, Tree};
use super::condition::{self, Condition, Conditions, seconds};
use super::names;
use crate::cluster::fact::Key;
use crate::cluster::fact::{Instance, Node, Phase, Pod};
use crate::cluster::index::Index;
use crate::cluster::text::Text;
use crate::cluster::written_time::WrittenTime;

/// The launcher that runs the guest now, not the target of a migration, and not one that the guest has left.
///
/// KubeVirt takes the newest launcher on the node of the instance. After a round trip that is not enough: when the live launcher goes with its
/// node, the first one, completed long ago, is the newest that is left there, and the guest would pass for running for ever. So one that
/// has finished counts only if the guest was in it last; how that one ended is for the node agent to say.
pub fn current<'a>(instance: &Instance, launchers: &[&'a Pod]) -> Option<&'a Pod> {
    let last = last_known_in(instance);
    let is_last = |pod: &Pod| last.is_none_or(|name| pod.key.name == name);
    let fits = |pod: &&&Pod| {
        let there =
            if instance.node.is_empty() { pod.job().is_none() } else { pod.node_name() == instance.node };
        there && (!pod.is_finished() || is_last(pod))
    };
    let rank = |pod: &&Pod| (!pod.is_finished(), pod.created, pod.key.clone());
    launchers.iter().filter(fits).copied().max_by_key(rank)
}

/// The name of the launcher in which the last migration left the guest: its target if the guest arrived there, else the one it was to leave.
fn last_known_in(instance: &Instance) -> Option<&str> {
    let state = instance.migration.as_ref()?;
    let name = if instance.node == state.target_node {
        &state.target_pod
    } else if instance.node == state.source_node {
        &state.source_pod
    } else {
        return None;
    };
    (!name.is_empty()).then_some(name)
}

/// One change of an instance in the making.
struct Change<'a> {
    of: &'a Instance,
    fields: Tree,
}

impl<'a> Change<'a> {
    fn of(instance: &'a Instance) -> Self {
        Self { of: instance, fields: Tree::default() }
    }

    fn phase(&mut self, phase: Phase, now: Timestamp) {
        self.fields.put(&["status", "phase"], Tree::text(phase.text()));
        let entered = self.of.phase_times.iter().any(|(name, _)| name == phase.text());
        if !entered {
            let mut times = self.of.phase_times.clone();
            times.push((phase.text().into(), seconds(now).into()));
            self.fields.put(&["status", "phaseTransitionTimestamps"], phase_times(&times));
        }
    }

    fn finalizers(&mut self, wanted: &[&str]) {
        let same = wanted.len() == self.of.finalizers.len()
            && wanted.iter().zip(&self.of.finalizers).all(|(wanted, have)| wanted == have);
        if !same {
            self.fields.put(&["metadata", "finalizers"], Tree::texts(wanted.iter().copied()));
        }
    }

    fn enter(self, decision: &mut Decision) {
        if !self.fields.is_empty() {
            decision.patch(self.of, Part::Main, self.fields);
        }
    }
}

pub(super) fn phase_times(times: &[(Text, WrittenTime)]) -> Tree {
    Tree::List(
        times
            .iter()
            .map(|(phase, at)| {
                Tree::map([
                    ("phase", Tree::text(phase)),
                    ("phaseTransitionTimestamp", Tree::text(at.to_string())),
                ])
            })
            .collect(),
    )
}

/// What is done about an instance: its launcher, its phase and conditions, and its end.
pub fn decide(index: &Index, key: &Key, now: Timestamp) -> Decision {
    let mut decision = Decision::nothing();
    let Some(instance) = index.instance(key) else { return decision };
    let launchers = index.launchers_of(&instance.uid);
    let pod = current(instance, &launchers);
    let mut change = Change::of(instance);

    finalizers(index, instance, &launchers, &mut change);
    if instance.phase == Phase::Unset {
        change.phase(Phase::Pending, now);
        if instance.eviction_strategy.is_none() {
            let strategy = index.config.default_strategy();
            change.fields.put(&["spec", "evictionStrategy"], Tree::text(strategy));
        }
    } else if !instance.is_final() {
        // On a node that is out of service there is no agent that could say how a launcher ended.
        let unheard = index.node(&instance.node).is_some_and(Node::is_out_of_service);
        let pod = pod.filter(|pod| !(unheard && pod.is_finished()));
        advance(instance, pod, &mut change, &mut decision, now);
    }
    if instance.deleting || instance.is_final() {
        end_pods(instance, &launchers, &mut decision);
    }
    active_pods(instance, &launchers, &mut change);
    let mut conditions = Conditions::of(&instance.conditions);
    set_conditions(instance, pod, &mut conditions, now);
    match index.trouble(Kind::Instance, key) {
        Some(trouble) => {
            conditions.set(Condition::new("Synchronized", false, trouble.reason, &trouble.message), now);
        }
        None if condition::is_false(&instance.conditions, "Synchronized") => {
            conditions.remove("Synchronized");
        }
        None => {}
    }
    if let Some(list) = conditions.changed() {
        change.fields.put(&["status", "conditions"], list);
    }
    change.enter(&mut decision);
    if let Some(pod) = pod {
        pod_marks(instance, pod, &mut decision, now);
    }
    decision
}

/// The instance's own finalizer goes when nothing is left to wait for; the machine's goes with the machine.
fn finalizers(index: &Index, instance: &Instance, launchers: &[&Pod], change: &mut Change<'_>) {
    let done = instance.deleting && instance.is_final() && launchers.is_empty();
    let owner_gone = instance.owner.as_ref().is_none_or(|owner| {
        let key = Key::new(instance.key.namespace.clone(), owner.name.clone());
        owner.kind != "VirtualMachine" || index.machine(&key).is_none_or(|vm| vm.uid != owner.uid)
    });
    let mut wanted: Vec<&str> = instance
        .finalizers
        .iter()
        .map(
            |name| {
                if name == names::LEGACY_INSTANCE_FINALIZER {
                    names::INSTANCE_FINALIZER
                } else {
                    name.as_str()
                }
            },
        )
        .filter(|name| !(done && *name == names::INSTANCE_FINALIZER))
        .filter(|name| {
            !(*name == names::MACHINE_FINALIZER && owner_gone && (instance.is_final() || instance.deleting))
        })
        .collect();
    if !wanted.contains(&names::INSTANCE_FINALIZER) && !instance.deleting {
        wanted.push(names::INSTANCE_FINALIZER);
    }
    change.finalizers(&wanted);
}

fn advance(
    instance: &Instance,
    pod: Option<&Pod>,
    change: &mut Change<'_>,
    decision: &mut Decision,
    now: Timestamp,
) {
    let going = pod.is_some_and(|pod| pod.is_deleting() || pod.is_finished());
    match instance.phase {
        Phase::Pending | Phase::WaitingForSync => match pod {
            _ if instance.deleting => {
                if pod.is_none() {
                    change.phase(Phase::Failed, now);
                }
            }
            Some(_) => change.phase(Phase::Scheduling, now),
            None => decision.push(Action::Own(Own::CreateLauncher {
                instance: instance.key.clone(),
                uid: instance.uid.clone(),
                name: names::launcher(&instance.key.name, &instance.uid.0, None),
                job: None,
            })),
        },
        Phase::Scheduling => match pod {
            None => change.phase(Phase::Failed, now),
            Some(_) if going => change.phase(Phase::Failed, now),
            Some(pod) if pod.is_up() && !pod.node_name().is_empty() && !instance.deleting => {
                change.phase(Phase::Scheduled, now);
                change.fields.put(&["status", "nodeName"], Tree::text(pod.node_name()));
                change.fields.put(&["metadata", "labels", names::NODE_NAME], Tree::text(pod.node_name()));
            }
            Some(_) => {}
        },
        Phase::Scheduled | Phase::Running if pod.is_none() && !instance.is_arriving() => {
            change.phase(Phase::Failed, now);
        }
        _ => {}
    }
}

/// A deleted instance takes its pods along; a finished one leaves its launcher for people to look at.
fn end_pods(instance: &Instance, launchers: &[&Pod], decision: &mut Decision) {
    if !instance.deleting {
        return;
    }
    for pod in launchers.iter().filter(|pod| !pod.is_deleting()) {
        decision.delete(*pod);
        decision.tell(Event::normal(
            instance,
            "SuccessfulDelete",
            format!("Deleted virtual machine pod {}", pod.key.name),
        ));
    }
}

/// Pods that have no place yet run nothing and are left out; the target of a migration is entered with the hand-over.
fn active_pods(instance: &Instance, launchers: &[&Pod], change: &mut Change<'_>) {
    let handed_over = |pod: &Pod| {
        instance.migration.as_ref().is_some_and(|state| state.target_pod == pod.key.name)
            || instance.active_pods.contains_key(&pod.uid.0)
    };
    let wanted: std::collections::BTreeMap<&str, &str> = launchers
        .iter()
        .filter(|pod| !pod.node_name().is_empty() && (pod.job().is_none() || handed_over(pod)))
        .map(|pod| (pod.uid.0.as_str(), pod.node_name()))
        .collect();
    for (uid, node) in &wanted {
        if instance.active_pods.get(uid).map(Text::as_str) != Some(*node) {
            change.fields.put(&["status", "activePods", uid], Tree::text(*node));
        }
    }
    for uid in instance.active_pods.keys().filter(|uid| !wanted.contains_key(uid.as_str())) {
        change.fields.put(&["status", "activePods", uid], Tree::null());
    }
}

fn set_conditions(instance: &Instance, pod: Option<&Pod>, conditions: &mut Conditions, now: Timestamp) {
    conditions.set(ready(instance, pod), now);
    if instance.evacuation_node.is_some() {
        let message = "VMI is marked for eviction";
        conditions.set(Condition::new("EvictionRequested", true, "EvictionRequested", message), now);
    } else if !instance.is_arriving() {
        // While it arrives the node agents are about to write, and one of the two writes would be in vain.
        conditions.remove("EvictionRequested");
    }
    match pod.and_then(|pod| condition::find(pod.launcher_conditions(), "PodScheduled")) {
        Some(scheduled) if scheduled.status == "False" => conditions.set(scheduled.clone(), now),
        _ => conditions.remove("PodScheduled"),
    }
}

fn ready(instance: &Instance, pod: Option<&Pod>) -> Condition {
    let not = |reason: &str, message: &str| Condition::new("Ready", false, reason, message);
    match pod {
        None => not("PodNotExists", "virt-launcher pod has not yet been scheduled"),
        Some(pod) if pod.is_deleting() => not("PodTerminating", "virt-launcher pod is terminating"),
        Some(_) if instance.phase != Phase::Running => {
            not("GuestNotRunning", "Guest VM is not reported as running")
        }
        Some(pod) => match condition::find(pod.launcher_conditions(), "Ready") {
            None => not("PodConditionMissing", "virt-launcher pod is missing the Ready condition"),
            Some(ready) => {
                let before = condition::find(&instance.conditions, "Ready");
                let kept = before
                    .filter(|before| before.status == "True" && waits_for_our_mark(instance, pod, ready));
                kept.cloned().unwrap_or_else(|| Condition {
                    last_probe_time: None,
                    last_transition_time: None,
                    ..ready.clone()
                })
            }
        },
    }
}

/// A guest that has just arrived in the pod of its migration's target is as ready as it was: nothing but our own mark on that pod is
/// missing (see [`pod_marks`]), or the kubelet has not taken it in yet.
fn waits_for_our_mark(instance: &Instance, pod: &Pod, ready: &Condition) -> bool {
    let message = ready.message.as_deref().unwrap_or_default();
    let gates = message.matches("readiness gate ").count();
    !instance.is_paused()
        && ready.reason.as_deref() == Some("ReadinessGatesNotReady")
        && gates == 1
        && message.contains(names::UNPAUSED_GATE)
        && !condition::is_false(pod.launcher_conditions(), names::UNPAUSED_GATE)
}

/// What the launcher has to say for others: that its guest is not paused, and that its eviction is under way.
fn pod_marks(instance: &Instance, pod: &Pod, decision: &mut Decision, now: Timestamp) {
    if pod.is_finished() || pod.is_deleting() {
        return;
    }
    let marked = instance.evacuation_node.is_some();
    if marked != pod.is_marked_for_eviction() && pod.is_up() {
        let value = if marked { Tree::text("true") } else { Tree::null() };
        let path = ["metadata", "annotations", names::EVICTION_IN_PROGRESS];
        decision.patch(pod, Part::Main, Tree::at(&path, value));
        // The second patch would carry an outdated version.
        return;
    }
    let gate = if instance.is_paused() {
        Condition::new(names::UNPAUSED_GATE, false, "Paused", "the virtual machine is paused")
    } else {
        Condition::new(names::UNPAUSED_GATE, true, "NotPaused", "the virtual machine is not paused")
    };
    let mut conditions = Conditions::of(pod.launcher_conditions());
    conditions.set(gate, now);
    if conditions.changed().is_some()
        && let Some(gate) = condition::find(conditions.list(), names::UNPAUSED_GATE)
    {
        // Patches of a pod's status merge conditions by type, so the kubelet's stay as they are.
        let conditions = Tree::List(vec![gate.tree()]);
        decision.patch(pod, Part::Status, Tree::at(&["status", "conditions"], conditions));
    }
}

#[cfg(test)]
#[path = "instance_tests.rs"]
mod tests;
