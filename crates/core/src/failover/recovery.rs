//! After the release: what is still to come, and when it is over.
//!
//! No guest is waited for in vain: one that is not meant to run any more, or that could not start for a while, is named and let go. That
//! releases nothing more; it only ends the waiting.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::guests::{GuestFate, ReturnState, return_state};
use super::next_step::Release;
use crate::cluster::fact::{Key, Pod, Uid};
use crate::cluster::index::Index;

/// How long the successor of a guest may find no place, or fail to start, until it is not waited for any more.
pub const STUCK: SignedDuration = SignedDuration::from_secs(120);
/// How long the controller of machines may take until it is named as what is waited for.
pub const NOTICED: SignedDuration = SignedDuration::from_secs(10);
/// How long a failover waits for it. KubeVirt gives up a node five minutes after its last sign of life, and looks
/// once a minute.
pub const UNATTENDED: SignedDuration = SignedDuration::from_secs(420);

/// The recovery from a node that was released: what was on it then, and since when what is stuck.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The node that was released.
    pub node: String,
    /// All guests that were on it when it was released, those included that stay off.
    pub guests: Vec<GuestFate>,
    pods: Vec<(Key, Uid)>,
    released: Timestamp,
    how: Release,
    /// Since when guests are seen that cannot start.
    stuck: BTreeMap<Key, Timestamp>,
    /// Since when nothing is seen of the controller whose turn it is to start a guest again.
    unattended: BTreeMap<Key, Timestamp>,
    /// What remained when something last changed, and when that was.
    changed: (Option<Pending>, Timestamp),
}

/// What has not happened yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// Guests that should run and do not yet.
    pub guests: Vec<Missing>,
    /// Pods of before the release that are still there and that a controller may still remove.
    pub pods: Vec<Key>,
    /// Names of the persistent volumes that are still attached.
    pub attachments: Vec<String>,
    /// Guests that are not waited for any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub let_go: Vec<LetGo>,
}

/// A guest that is waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// Its instance by name: the new one has the same.
    pub instance: Key,
    /// The phase of its new instance, if there is one.
    pub phase: Option<&'static str>,
    /// What keeps that from starting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Missing {
    /// As a sentence about the VM.
    pub fn words(&self) -> String {
        match (&self.why, self.phase) {
            (Some(why), _) => format!("vm {} {why}", self.instance),
            (None, None) => format!("vm {} has no new instance yet", self.instance),
            (None, Some(phase)) => format!("vm {} has a new instance that is {phase}", self.instance),
        }
    }
}

/// A guest that should have returned and will not, as things are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetGo {
    /// The guest.
    pub instance: Key,
    /// Why, as the end of a sentence that begins with the VM.
    pub why: String,
    /// It is still meant to run.
    pub wanted: bool,
}

impl LetGo {
    /// As a sentence about the VM.
    pub fn words(&self) -> String {
        format!("vm {} {}", self.instance, self.why)
    }
}

impl Pending {
    /// Nothing is waited for any more; those that were let go do not count.
    pub fn is_nothing(&self) -> bool {
        self.guests.is_empty() && self.pods.is_empty() && self.attachments.is_empty()
    }

    /// Everything that is waited for, each in a sentence.
    pub fn words(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.guests.iter().map(Missing::words).collect();
        lines.extend(self.pods.iter().map(|pod| format!("pod {pod} is still on the node")));
        lines.extend(self.attachments.iter().map(|name| format!("volume {name} is still attached")));
        lines
    }

    /// Without the reasons: that the scheduler counts other nodes is no progress.
    fn bare(&self) -> Self {
        let mut bare = self.clone();
        bare.guests.iter_mut().for_each(|guest| guest.why = None);
        bare.let_go.iter_mut().for_each(|guest| guest.why.clear());
        bare
    }
}

impl Recovery {
    /// Begins the wait. `pods` are those on the node at the release; mirror pods, DaemonSet pods and finished ones are not waited for.
    pub fn new(node: &str, guests: Vec<GuestFate>, pods: &[Pod], released: Timestamp, how: Release) -> Self {
        // Agents that belong to every node tolerate everything and come back with it. What has finished runs nowhere, and no controller removes it.
        let pods = pods
            .iter()
            .filter(|pod| !pod.mirror && pod.daemon_set().is_none() && !pod.phase.is_finished())
            .map(|pod| (pod.key.clone(), pod.uid.clone()))
            .collect();
        let (stuck, unattended, changed) = (BTreeMap::new(), BTreeMap::new(), (None, released));
        Self { node: node.to_owned(), guests, pods, released, how, stuck, unattended, changed }
    }

    /// When a pod that is not being removed yet is not going to be: it tolerates the taint, or another controller holds it.
    fn patience_ends(&self) -> Timestamp {
        let patience = match self.how {
            Release::Taint => SignedDuration::from_secs(60),
            // Orphans are collected after 40 seconds, every 20 seconds.
            Release::DeleteNode => SignedDuration::from_secs(120),
        };
        after(self.released, patience)
    }

    /// What remains now. It is remembered since when a guest cannot start, and when something last changed.
    pub fn look(&mut self, index: &Index, pods: &[Pod], attachments: Vec<String>, now: Timestamp) -> Pending {
        let mut remains = Pending { attachments, ..Pending::default() };
        for guest in self.guests.iter().filter(|guest| guest.fate.returns()) {
            let instance = guest.instance.clone();
            let return_state = return_state(index, guest);
            if !matches!(return_state, ReturnState::Stuck { .. }) {
                self.stuck.remove(&instance);
            }
            if !matches!(return_state, ReturnState::Unattended { .. }) {
                self.unattended.remove(&instance);
            }
            match return_state {
                ReturnState::Returned { .. } => {}
                ReturnState::OnItsWay { phase } => {
                    remains.guests.push(Missing { instance, phase, why: None });
                }
                ReturnState::Stuck { phase, why } => {
                    let since = *self.stuck.entry(instance.clone()).or_insert(now);
                    if now < after(since, STUCK) {
                        remains.guests.push(Missing { instance, phase, why: Some(why) });
                    } else {
                        remains.let_go.push(LetGo { instance, why, wanted: true });
                    }
                }
                ReturnState::Unattended { why } => {
                    let since = *self.unattended.entry(instance.clone()).or_insert(now);
                    if now < after(since, UNATTENDED) {
                        let why = (now >= after(since, NOTICED)).then_some(why);
                        remains.guests.push(Missing { instance, phase: None, why });
                    } else {
                        remains.let_go.push(LetGo { instance, why, wanted: true });
                    }
                }
                ReturnState::NotWanted { why } => remains.let_go.push(LetGo { instance, why, wanted: false }),
            }
        }
        let patient = now < self.patience_ends();
        remains.pods = pods
            .iter()
            .filter(|pod| self.pods.iter().any(|(key, uid)| *key == pod.key && *uid == pod.uid))
            .filter(|pod| patient || pod.deletion.is_some())
            .map(|pod| pod.key.clone())
            .collect();
        let bare = Some(remains.bare());
        if self.changed.0 != bare {
            self.changed = (bare, now);
        }
        remains
    }

    /// When to look again if nothing happens.
    pub fn look_again(&self, now: Timestamp) -> Option<Timestamp> {
        let stuck = self.stuck.values().map(|since| after(*since, STUCK));
        let unattended =
            self.unattended.values().flat_map(|since| [NOTICED, UNATTENDED].map(|span| after(*since, span)));
        stuck.chain(unattended).chain([self.patience_ends()]).filter(|at| *at > now).min()
    }

    /// When it is clear that nothing moves, if nothing has to change for so long.
    pub fn stalls_at(&self, limit: SignedDuration) -> Timestamp {
        after(self.changed.1, limit)
    }

    /// Those that do not come back by themselves.
    pub fn stay_off(&self) -> impl Iterator<Item = &GuestFate> {
        self.guests.iter().filter(|guest| !guest.fate.returns())
    }
}

fn after(at: Timestamp, span: SignedDuration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::guests::{AfterFailure, fates};
    use crate::machines::testing::{Known, boot, instance, launcher, machine, view};
    use crate::machines::{Condition, Machine, Phase, RunStrategy};
    use crate::testing::{at, pod};

    fn guest(name: &str, fate: AfterFailure) -> GuestFate {
        let old = instance(name, Phase::Running);
        GuestFate { instance: old.key, uid: old.uid, machine: None, fate }
    }

    fn always() -> AfterFailure {
        AfterFailure::Returns { strategy: "Always".into() }
    }

    #[test]
    fn it_is_over_when_everyone_who_returns_runs_elsewhere_and_nothing_is_left() {
        let guests = vec![guest("a", always()), guest("b", AfterFailure::Ends)];
        let pods = [pod("p").on("n1"), pod("agent").on("n1").owned_by("DaemonSet", "apps/v1", "agent")];
        let mut after = Recovery::new("n1", guests, &pods, at(0), Release::Taint);
        let none = view([]);
        let remains = after.look(&none, &pods, vec!["disk".into()], at(1));
        assert_eq!(remains.guests, [Missing { instance: Key::new("default", "a"), phase: None, why: None }]);
        assert_eq!(remains.pods, [Key::new("default", "p")]);
        assert_eq!(remains.attachments, ["disk"]);
        let mut back = instance("a", Phase::Scheduling);
        back.uid = Uid::from("new");
        let seen = view([(&back).known()]);
        assert_eq!(after.look(&seen, &[], vec![], at(2)).guests[0].phase, Some("Scheduling"));
        (back.phase, back.node) = (Phase::Running, "n2".into());
        assert!(after.look(&view([(&back).known()]), &[], vec![], at(3)).is_nothing());
        assert_eq!(after.stay_off().count(), 1);
    }

    #[test]
    fn pods_that_nobody_removes_are_not_waited_for_for_ever_and_pods_that_are_leaving_are() {
        let stays = [pod("p").on("n1")];
        let mut after = Recovery::new("n1", Vec::new(), &stays, at(0), Release::Taint);
        assert_eq!(after.look_again(at(1)), Some(at(60)));
        assert_eq!(after.look(&view([]), &stays, vec![], at(59)).pods.len(), 1);
        assert!(after.look(&view([]), &stays, vec![], at(60)).is_nothing());
        let leaving = [pod("p").on("n1").deleting(30, 30)];
        assert_eq!(after.look(&view([]), &leaving, vec![], at(600)).pods.len(), 1);
        let anew = [pod("p").on("n1").uid("another")];
        assert!(after.look(&view([]), &anew, vec![], at(1)).is_nothing(), "another pod of that name");
    }

    /// A machine whose guest was on the failed node, and the wait for it.
    fn waiting() -> (Machine, Recovery) {
        let vm = machine("a", RunStrategy::Always);
        let old = boot(&vm, Phase::Running);
        let guests = fates(&view([(&vm).known(), (&old).known()]), "n1", false);
        (vm, Recovery::new("n1", guests, &[], at(0), Release::Taint))
    }

    #[test]
    fn a_guest_that_nobody_wants_any_more_is_let_go_at_once() {
        let (vm, mut after) = waiting();
        assert_eq!(after.look(&view([(&vm).known()]), &[], vec![], at(1)).guests.len(), 1);
        let halted = machine("a", RunStrategy::Halted);
        let remains = after.look(&view([(&halted).known()]), &[], vec![], at(2));
        assert!(remains.is_nothing());
        assert_eq!(remains.let_go[0].words(), "vm default/a stays off: its run strategy is Halted now");
        assert!(!remains.let_go[0].wanted);
        let gone = after.look(&view([]), &[], vec![], at(3));
        assert!(gone.is_nothing() && gone.let_go[0].why.contains("deleted"));
    }

    #[test]
    fn a_guest_without_a_place_is_let_go_after_two_minutes_of_it() {
        let (vm, mut after) = waiting();
        let vmi = crate::machines::Instance { uid: Uid::from("new"), ..boot(&vm, Phase::Scheduling) };
        let mut pod = launcher(&vmi, "");
        pod.guest().conditions.push(Condition::new(
            "PodScheduled",
            false,
            "Unschedulable",
            "0/2 nodes are available",
        ));
        let no_place = view([(&vm).known(), (&vmi).known(), (&pod).known()]);
        let placed = view([(&vm).known(), (&vmi).known()]);
        let remains = after.look(&no_place, &[], vec![], at(10));
        assert_eq!(remains.words(), ["vm default/a finds no place: 0/2 nodes are available"]);
        assert_eq!(after.look_again(at(61)), Some(at(130)));
        assert!(!after.look(&no_place, &[], vec![], at(129)).is_nothing());
        // It found one, and lost it: that begins anew.
        assert!(!after.look(&placed, &[], vec![], at(130)).is_nothing());
        assert!(!after.look(&no_place, &[], vec![], at(140)).is_nothing());
        assert!(!after.look(&no_place, &[], vec![], at(259)).is_nothing());
        let remains = after.look(&no_place, &[], vec!["disk".into()], at(260));
        assert!(remains.guests.is_empty() && remains.let_go[0].wanted);
        assert!(!remains.is_nothing(), "what else is left is still waited for");
    }

    #[test]
    fn a_guest_that_the_controller_of_machines_leaves_alone_is_told_with_what_to_do_and_not_waited_for_for_ever()
     {
        let (vm, mut after) = waiting();
        let old = boot(&vm, Phase::Running);
        let left_alone = view([(&vm).known(), (&old).known()]);
        let remains = after.look(&left_alone, &[], vec![], at(1));
        assert_eq!(remains.words(), ["vm default/a has no new instance yet"], "it may just be about to act");
        assert_eq!(after.look_again(at(1)), Some(at(11)));
        let remains = after.look(&left_alone, &[], vec![], at(11));
        assert!(
            remains.words()[0].contains("still says Running although no pod of it is left"),
            "{remains:?}"
        );
        assert!(remains.words()[0].contains("To do: "), "{remains:?}");
        assert_eq!(after.look_again(at(61)), Some(at(421)));
        let remains = after.look(&left_alone, &[], vec![], at(421));
        assert!(remains.is_nothing() && remains.let_go[0].wanted);
        let back = crate::machines::Instance { uid: Uid::from("new"), ..boot(&vm, Phase::Running) };
        let remains = after.look(&view([(&vm).known(), (&back).known()]), &[], vec![], at(430));
        assert!(remains.is_nothing() && remains.let_go.is_empty(), "it came all the same");
    }

    #[test]
    fn pods_that_have_finished_are_not_waited_for() {
        let mut done = pod("done").on("n1");
        done.phase = crate::cluster::fact::PodPhase::Succeeded;
        let mut after = Recovery::new("n1", Vec::new(), &[done.clone()], at(0), Release::Taint);
        assert!(after.look(&view([]), &[done], vec![], at(1)).is_nothing());
    }

    #[test]
    fn a_wait_in_which_nothing_changes_is_known_by_the_time() {
        let (vm, mut after) = waiting();
        let limit = SignedDuration::from_secs(600);
        let seen = view([(&vm).known()]);
        after.look(&seen, &[], vec!["disk".into()], at(5));
        after.look(&seen, &[], vec!["disk".into()], at(400));
        assert_eq!(after.stalls_at(limit), at(605));
        after.look(&seen, &[], vec![], at(600));
        assert_eq!(after.stalls_at(limit), at(1200), "a volume was detached");
    }
}
