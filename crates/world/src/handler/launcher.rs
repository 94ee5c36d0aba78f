//! The process in a launcher pod, as its kubelet sees it: it runs while its guest does, passes a request to stop on to
//! the guest, and waits with its end until the node agent knows how the guest ended.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::Handlers;
use crate::actor::{Actor, Out, View};
use crate::hypervisor::guest::{End, State};
use crate::instance::{LAUNCHER_EXTRA_GRACE, VirtualMachineInstance, instance_of, is_launcher};
use crate::kubelet::Guests;
use crate::kubelet::behaviour::Behaviour;
use crate::kubelet::life::{Run, Stage};
use crate::objects::{Key, after, deleting, node_of, seconds_between, uid};

/// How long a launcher waits for its node agent after the end of its guest.
const LAST_WORD_SECONDS: f64 = 5.0;
/// Rounding must not put an end that is now a nanosecond into the future.
const ROUNDING: f64 = 1e-6;

impl Handlers {
    /// A launcher that is not needed: it ends by itself.
    pub(super) fn dismiss(&mut self, pod: &Pod, now: Timestamp, out: &mut Out) {
        let pod_uid = uid(&pod.metadata);
        let busy = self.hypervisor.domain(pod_uid).is_some_and(|d| d.guest.on());
        if !busy && !self.exits.contains_key(pod_uid) {
            self.exits.insert(pod_uid.to_owned(), (now, 0));
            out.wakes.push((Actor::KubeletPod, Key::of(&pod.metadata)));
        }
    }

    /// The pod is gone from the API. A kubelet that lives ends what ran in it; a dead one cannot.
    pub fn pod_gone(&mut self, pod: &Pod, kubelet_alive: bool, now: Timestamp) {
        if !is_launcher(pod) {
            return;
        }
        self.exits.remove(uid(&pod.metadata));
        self.shutdowns_told.remove(uid(&pod.metadata));
        if !kubelet_alive {
            return;
        }
        if let Some(domain) = self.hypervisor.domain(uid(&pod.metadata))
            && matches!(
                domain.guest.state,
                State::Off { how: End::Lost, .. } | State::Running | State::Paused
            )
        {
            self.lost.insert(domain.machine.key.clone(), domain.machine.uid.clone());
        }
        self.hypervisor.pod_gone(uid(&pod.metadata), now);
    }

    /// A kubelet that comes back ends what has no pod any more.
    pub fn reap(&mut self, view: View<'_>, node: &str) {
        let orphans: Vec<String> = self
            .hypervisor
            .domains()
            .filter(|d| d.place.node == node)
            .filter(|d| {
                view.mirror.pods.get(&d.place.pod).is_none_or(|p| uid(&p.metadata) != d.place.pod_uid)
            })
            .map(|d| d.place.pod_uid.clone())
            .collect();
        for pod_uid in orphans {
            self.hypervisor.pod_gone(&pod_uid, view.now);
        }
    }
}

impl Guests for Handlers {
    fn shape(&mut self, view: View<'_>, pod: &Pod, run: &Run, how: &mut Behaviour, out: &mut Out) {
        if !self.serving || !is_launcher(pod) {
            return;
        }
        how.run = None;
        how.exit_code = 0;
        let pod_uid = uid(&pod.metadata).to_owned();
        self.hypervisor.advance(view.now);
        let vmi = instance_of(pod).and_then(|key| view.mirror.instances.get(&key));
        let vmi = vmi.filter(|v| pod_of(v, pod));
        let Some(domain) = self.hypervisor.domain(&pod_uid) else {
            if let Some((at, code)) = self.exits.get(&pod_uid).copied() {
                exit(how, run, at, code);
            }
            return;
        };
        if deleting(&pod.metadata) && domain.guest.on() {
            let own = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
            let grace = vmi.map_or_else(|| (own - LAUNCHER_EXTRA_GRACE).max(0), |v| v.grace());
            if !domain.guest.asked_to_stop() {
                out.wakes.extend(instance_of(pod).map(|key| (Actor::Instance, key)));
            }
            self.hypervisor.shut_down(&pod_uid, grace as f64, view.now);
        }
        let state = self.hypervisor.domain(&pod_uid).map(|d| d.guest.state);
        let Some(State::Off { at, how: end }) = state else {
            // As long as the guest runs; the kubelet's patience has its end all the same.
            how.stop = f64::INFINITY;
            if let Some(next) = self.hypervisor.next(&pod_uid) {
                out.again_at(next);
            }
            return;
        };
        if !self.exits.contains_key(&pod_uid) {
            let limit = after(at, LAST_WORD_SECONDS);
            if !noted(vmi.map(AsRef::as_ref), pod, end) && view.now < limit {
                how.stop = f64::INFINITY;
                out.again_at(limit);
                return;
            }
            let code = i32::from(end == End::Crashed);
            self.exits.insert(pod_uid.clone(), (view.now, code));
        }
        if let Some((at, code)) = self.exits.get(&pod_uid).copied() {
            exit(how, run, at, code);
        }
    }

    fn containers_ended(&mut self, pod: &Pod, now: Timestamp) {
        if is_launcher(pod) {
            self.hypervisor.destroy(uid(&pod.metadata), End::Lost, now);
        }
    }
}

fn pod_of(vmi: &VirtualMachineInstance, pod: &Pod) -> bool {
    crate::objects::controlled_by(&pod.metadata, vmi.uid())
}

/// The end of the guest is on record, so that the launcher may go.
fn noted(vmi: Option<&VirtualMachineInstance>, pod: &Pod, end: End) -> bool {
    let Some(vmi) = vmi else { return true };
    if end == End::Migrated {
        return vmi.is_final() || (vmi.node() != node_of(pod) && vmi.migration().flag("completed"));
    }
    vmi.is_final()
}

fn exit(how: &mut Behaviour, run: &Run, at: Timestamp, code: i32) {
    let since = |from: Timestamp| (seconds_between(from, at) - ROUNDING).max(0.0);
    if let Stage::Running { since: started } = run.stage {
        how.run = Some(since(started));
    }
    how.exit_code = code;
    how.stop = run.stop_seen.map_or(0.0, since);
}
