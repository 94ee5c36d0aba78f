//! virt-handler on every simulated node: it runs the guests of instances that were given to its node, reports how they
//! fare, and does its half of migrations. KubeVirt's own control plane, or evac's, does the rest; who writes which
//! field is written down in `docs/vms.md`.
//!
//! How guests behave is up to annotations: see [`plan`].

mod draft;
mod launcher;
pub mod metrics;
pub mod migratable;
mod migration;
pub mod node;
pub mod plan;
mod report;
#[cfg(test)]
mod tests;
pub mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use self::draft::Draft;
use self::report::tell;
use crate::actor::{Actor, Out, View};
use crate::hypervisor::guest::{End, State};
use crate::hypervisor::{Hypervisor, Machine, Place};
use crate::instance::{VirtualMachineInstance, is_launcher};
use crate::kubelet::Kubelets;
use crate::objects::{Key, deleting, finished, node_of, phase, uid};
use crate::queue::Queue;

const MIB: f64 = 1024.0 * 1024.0;

/// The agents of all our nodes, and the hypervisors under them.
#[derive(Debug)]
pub struct Handlers {
    pub hypervisor: Hypervisor,
    seed: u64,
    /// Instances are served by the API; before that there are no agents.
    serving: bool,
    /// Launchers that have ended: when, and with which code.
    exits: BTreeMap<String, (Timestamp, i32)>,
    /// Instances (with their uid) whose launcher went away and took the guest along.
    lost: BTreeMap<Key, String>,
    /// Launchers whose guest was asked to stop, and the user was told.
    shutdowns_told: BTreeSet<String>,
}

fn place(pod: &Pod) -> Place {
    Place {
        pod: Key::of(&pod.metadata),
        pod_uid: uid(&pod.metadata).to_owned(),
        node: node_of(pod).unwrap_or_default().to_owned(),
    }
}

fn machine(vmi: &VirtualMachineInstance) -> Machine {
    Machine { key: vmi.key(), uid: vmi.uid().to_owned(), disks: volumes::exclusive(vmi).collect() }
}

impl Handlers {
    /// `bandwidth` in MiB per second.
    pub fn new(seed: u64, bandwidth: f64) -> Self {
        Self {
            hypervisor: Hypervisor::new(bandwidth * MIB),
            seed,
            serving: false,
            exits: BTreeMap::new(),
            lost: BTreeMap::new(),
            shutdowns_told: BTreeSet::new(),
        }
    }

    pub fn set_serving(&mut self, serving: bool) {
        self.serving = serving;
    }

    pub fn serving(&self) -> bool {
        self.serving
    }

    pub fn sync_node(&self, view: View<'_>, key: &Key, kubelets: &Kubelets, out: &mut Out) {
        if !self.serving || !kubelets.alive(&key.name) {
            return;
        }
        if let Some(held) = view.mirror.nodes.get(key) {
            node::sync(held, key, view.now, out);
        }
    }

    /// Wakes everyone who has to do with a guest that changed.
    pub fn flush(&mut self, queue: &mut Queue) {
        for (machine, pod) in self.hypervisor.take_touched() {
            queue.push(Actor::Instance, machine);
            queue.push(Actor::KubeletPod, pod);
        }
    }

    pub fn sync(&mut self, view: View<'_>, key: &Key, kubelets: &Kubelets, out: &mut Out) {
        if !self.serving {
            return;
        }
        self.hypervisor.advance(view.now);
        let held = view.mirror.instances.get(key);
        self.end_strangers(view, key, held.map(AsRef::as_ref), kubelets);
        match held {
            Some(vmi) => self.agents(view, vmi, kubelets, out),
            None => {
                self.lost.remove(key);
            }
        }
        for (machine, pod) in self.hypervisor.take_touched() {
            if machine != *key {
                out.wakes.push((Actor::Instance, machine));
            }
            out.wakes.push((Actor::KubeletPod, pod));
        }
    }

    fn agents(&mut self, view: View<'_>, vmi: &VirtualMachineInstance, kubelets: &Kubelets, out: &mut Out) {
        let mut draft = Draft::of(vmi);
        let mut news = Out::default();
        if let Some(node) = vmi.node().filter(|n| kubelets.alive(n)) {
            self.home(view, vmi, node, &mut draft, &mut news);
        }
        // One agent at a time: what the other does may depend on what this one writes.
        let target = vmi.migration().text("targetNode").filter(|n| kubelets.alive(n));
        if let Some(node) = target.filter(|_| !draft.changed() && !vmi.is_final()) {
            let address = kubelets.address(node).unwrap_or_default();
            self.target(view, vmi, &address, &mut draft, &mut news);
        }
        if let Some(write) = draft.write() {
            out.write(write);
        }
        out.writes.append(&mut news.writes);
        out.wakes.append(&mut news.wakes);
        if let Some(at) = news.again {
            out.again_at(at);
        }
    }

    /// Guests of this name that belong to no instance, or to a former one, are shut down.
    fn end_strangers(
        &mut self,
        view: View<'_>,
        key: &Key,
        held: Option<&VirtualMachineInstance>,
        kubelets: &Kubelets,
    ) {
        let strangers: Vec<String> = self
            .hypervisor
            .of_machine(key)
            .filter(|d| d.guest.on() && held.is_none_or(|v| v.uid() != d.machine.uid || v.is_final()))
            .filter(|d| kubelets.alive(&d.place.node))
            .map(|d| d.place.pod_uid.clone())
            .collect();
        for pod_uid in strangers {
            if held.is_some_and(VirtualMachineInstance::is_final) {
                self.hypervisor.destroy(&pod_uid, End::Destroyed, view.now);
            } else {
                self.hypervisor.shut_down(&pod_uid, 0.0, view.now);
            }
        }
    }

    /// The agent of the node that the instance runs on.
    fn home(
        &mut self,
        view: View<'_>,
        vmi: &VirtualMachineInstance,
        node: &str,
        draft: &mut Draft<'_>,
        out: &mut Out,
    ) {
        if !matches!(vmi.phase(), "Scheduled" | "Running") {
            return;
        }
        let now = view.now;
        let Some(pod) = self.launcher_on(view, vmi, node) else {
            if self.lost.get(&vmi.key()).is_some_and(|lost| lost == vmi.uid()) {
                report::ended(vmi, End::Lost, draft, out, now);
            }
            return;
        };
        let pod_uid = uid(&pod.metadata).to_owned();
        if self.hypervisor.domain(&pod_uid).is_none() && !self.bring_up(vmi, pod, draft, out, now) {
            return;
        }
        self.obey(vmi, &pod_uid, out, now);
        let Some(domain) = self.hypervisor.domain(&pod_uid) else { return };
        match domain.guest.state {
            State::Starting { .. } => {}
            State::Running | State::Paused => {
                let guest = domain.guest.clone();
                if vmi.phase() != "Running" {
                    tell(out, vmi, false, "Created", "VirtualMachineInstance defined.", now);
                    tell(out, vmi, false, "Started", "VirtualMachineInstance started.", now);
                }
                report::running(view, vmi, &guest, pod, draft, out);
                if plan::has_agent(vmi) && guest.booted_at() > now {
                    out.again_at(guest.booted_at());
                }
                self.source(view, vmi, pod, draft, out);
            }
            State::Off { how: End::Migrated, .. } => self.source(view, vmi, pod, draft, out),
            State::Off { how, .. } => {
                if how == End::Killed {
                    tell(out, vmi, false, "Deleted", "Signaled Deletion", now);
                }
                report::ended(vmi, how, draft, out, now);
            }
        }
        if let Some(next) = self.hypervisor.next(&pod_uid) {
            out.again_at(next);
        }
    }

    /// Starts the guest in its launcher, or finds it running there. `false` when there is none.
    fn bring_up(
        &mut self,
        vmi: &VirtualMachineInstance,
        pod: &Pod,
        draft: &mut Draft<'_>,
        out: &mut Out,
        now: Timestamp,
    ) -> bool {
        let doomed = deleting(&vmi.metadata) || deleting(&pod.metadata);
        if finished(pod) || (vmi.phase() == "Scheduled" && doomed) {
            report::ended(vmi, End::Lost, draft, out, now);
            return false;
        }
        if phase(pod) != "Running" {
            return false;
        }
        let guest = plan::plan(vmi, self.seed);
        if vmi.phase() == "Running" {
            let since = vmi.since("Running").unwrap_or(now);
            self.hypervisor.adopt(place(pod), machine(vmi), guest, since, now);
        } else {
            self.hypervisor.start(place(pod), machine(vmi), guest, now);
        }
        true
    }

    /// What the user wants of the guest: to stop, to pause, to go on.
    fn obey(&mut self, vmi: &VirtualMachineInstance, pod_uid: &str, out: &mut Out, now: Timestamp) {
        let Some(domain) = self.hypervisor.domain(pod_uid).filter(|d| d.guest.on()) else { return };
        let asked = domain.guest.asked_to_stop();
        if deleting(&vmi.metadata) || asked {
            let told = self.shutdowns_told.contains(pod_uid);
            self.hypervisor.shut_down(pod_uid, vmi.grace() as f64, now);
            if !told && vmi.grace() > 0 && vmi.has_acpi() {
                self.shutdowns_told.insert(pod_uid.to_owned());
                tell(out, vmi, false, "ShuttingDown", "Signaled Graceful Shutdown", now);
            }
            return;
        }
        match plan::wants_paused(vmi) {
            Some(true) => self.hypervisor.pause(pod_uid, now),
            Some(false) => self.hypervisor.resume(pod_uid, now),
            None => {}
        }
    }

    /// The launcher in which the guest of this instance runs, or will.
    fn launcher_on<'a>(&self, view: View<'a>, vmi: &VirtualMachineInstance, node: &str) -> Option<&'a Pod> {
        let here = view
            .mirror
            .pods
            .controlled_by(vmi.uid())
            .filter(|p| is_launcher(p) && node_of(p) == Some(node))
            .map(AsRef::as_ref);
        let rank = |pod: &&Pod| {
            let on = self.hypervisor.domain(uid(&pod.metadata)).is_some_and(|d| d.guest.on());
            let usable = !finished(pod) && !deleting(&pod.metadata);
            (on, usable, pod.metadata.creation_timestamp.clone().map(|t| t.0))
        };
        here.max_by_key(rank)
    }
}
