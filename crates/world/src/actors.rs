//! All actors together: who is asked about which change, and who decides about which key.

use crate::actor::{Actor, Out, View};
use crate::disruption;
use crate::gc;
use crate::handler::Handlers;
use crate::handler::volumes::{claim, volumes};
use crate::instance::instance_of;
use crate::kinds::{Kind, Object};
use crate::kubelet::Kubelets;
use crate::mirror::{Change, Mirror};
use crate::nodes::lifecycle::Lifecycle;
use crate::nodes::pod_gc::PodGc;
use crate::nodes::taint_eviction::TaintEviction;
use crate::objects::{Key, controller_of, deleting, finished, node_of, node_ready, selects};
use crate::options::Options;
use crate::queue::Queue;
use crate::random::Streams;
use crate::scheduler::{Scheduler, Wake};
use crate::workloads::{daemon_set, deployment, job, replica_set, stateful_set};
use k8s_openapi::api::core::v1::{Node, Pod};

/// The state that actors keep between decisions. All of it can be rebuilt from the cluster.
pub struct Actors {
    pub kubelets: Kubelets,
    pub scheduler: Scheduler,
    pub streams: Streams,
    pub lifecycle: Lifecycle,
    pub taint_eviction: TaintEviction,
    pub pod_gc: PodGc,
    pub graph: gc::graph::Graph,
    pub handlers: Handlers,
    on: Options,
}

impl Actors {
    pub fn new(options: &Options) -> Self {
        let nodes = if options.kubelets { options.nodes.as_slice() } else { &[] };
        Self {
            kubelets: Kubelets::new(options.seed, nodes),
            scheduler: Scheduler::new(options.seed),
            streams: Streams::new(options.seed),
            lifecycle: Lifecycle::default(),
            taint_eviction: TaintEviction::default(),
            pod_gc: PodGc::default(),
            graph: gc::graph::Graph::default(),
            handlers: Handlers::new(options.seed, options.migration_bandwidth),
            on: options.clone(),
        }
    }

    /// The kinds that the chosen actors look at.
    pub fn kinds(&self) -> Vec<Kind> {
        let on = &self.on;
        Kind::ALL
            .iter()
            .copied()
            .filter(|kind| match kind {
                Kind::Pod | Kind::Node => true,
                Kind::Lease => on.node_lifecycle,
                Kind::Namespace => on.namespaces || on.scheduler,
                Kind::ServiceAccount => on.namespaces,
                Kind::ReplicaSet | Kind::Deployment | Kind::StatefulSet | Kind::ReplicationController => {
                    on.workloads || on.disruption
                }
                Kind::DaemonSet | Kind::ControllerRevision | Kind::Job => on.workloads,
                Kind::PodDisruptionBudget => on.disruption,
                Kind::PersistentVolumeClaim => on.volumes || on.scheduler || on.workloads || on.hypervisors,
                Kind::PersistentVolume => on.volumes || on.scheduler,
                Kind::StorageClass => on.volumes,
                // Watched once it is served.
                Kind::VirtualMachineInstance => false,
            })
            .collect()
    }

    /// Everything that is due at the beginning.
    pub fn start(&self, queue: &mut Queue) {
        for node in self.kubelets.names() {
            queue.push(Actor::KubeletNode, Key::cluster(node.clone()));
        }
        if self.on.kubelets {
            queue.push(Actor::Heartbeat, Key::default());
        }
        if self.on.node_lifecycle {
            queue.push(Actor::NodeMonitor, Key::default());
        }
        if self.on.pod_gc {
            queue.push(Actor::PodGc, Key::default());
        }
    }

    pub fn decide(&mut self, actor: Actor, key: &Key, view: View<'_>, out: &mut Out) {
        match actor {
            Actor::KubeletNode | Actor::HandlerNode if self.on.as_found => {}
            Actor::KubeletNode => self.kubelets.sync_node(view, key, out),
            Actor::KubeletPod => {
                self.kubelets.sync_pod(view, key, &mut self.handlers, out);
                for (machine, pod) in self.handlers.hypervisor.take_touched() {
                    out.wakes.push((Actor::Instance, machine));
                    if pod != *key {
                        out.wakes.push((Actor::KubeletPod, pod));
                    }
                }
            }
            Actor::Heartbeat => self.kubelets.heartbeat(view, out),
            Actor::Scheduler => self.scheduler.sync(view, out),
            Actor::Deployment => deployment::sync(view, key, out),
            Actor::ReplicaSet => replica_set::sync(view, &mut self.streams, key, out),
            Actor::ReplicationController => {
                replica_set::sync_replication_controller(view, &mut self.streams, key, out);
            }
            Actor::DaemonSet => daemon_set::sync(view, &mut self.streams, key, out),
            Actor::StatefulSet => stateful_set::sync(view, key, out),
            Actor::Job => job::sync(view, &mut self.streams, key, out),
            Actor::Disruption => disruption::sync(view, key, out),
            Actor::StaleDisruption => disruption::stale::sync(view, key, out),
            Actor::NodeMonitor => self.lifecycle.monitor(view, out),
            Actor::NodeTaints => crate::nodes::taints::sync(view, key, out),
            Actor::TaintEviction => self.taint_eviction.sync(view, key, out),
            Actor::PodGc => self.pod_gc.sync(view, out),
            Actor::GarbageCollector => gc::collect(view, &self.graph, &key.name, out),
            Actor::Namespace => gc::namespaces::sync(view, key, out),
            Actor::ServiceAccount => gc::accounts::sync(view, &self.on.root_ca, key, out),
            Actor::Volume => gc::volumes::sync(view, key, out),
            Actor::Instance => self.handlers.sync(view, key, &self.kubelets, out),
            Actor::HandlerNode => self.handlers.sync_node(view, key, &self.kubelets, out),
        }
    }

    /// Instances are served from now on, or no longer: there are agents on our nodes, or none.
    pub fn serve_instances(&mut self, serving: bool, queue: &mut Queue) {
        self.handlers.set_serving(serving);
        for node in self.kubelets.names() {
            queue.push(Actor::HandlerNode, Key::cluster(node.clone()));
        }
    }

    /// Marks what has to be decided anew because of a change.
    pub fn notice(&mut self, view: View<'_>, change: &Change, queue: &mut Queue) {
        self.dispatch(view, change, queue);
        self.handlers.flush(queue);
    }

    fn dispatch(&mut self, view: View<'_>, change: &Change, queue: &mut Queue) {
        if self.on.gc {
            for uid in self.graph.note(change) {
                queue.push(Actor::GarbageCollector, Key::cluster(uid));
            }
        }
        match change.latest() {
            Some(Object::Pod(pod)) => {
                self.pod_changed(view, change, pod, queue);
            }
            Some(Object::Node(node)) => {
                self.node_changed(view, change, node, queue);
            }
            Some(Object::Namespace(namespace)) if self.on.namespaces && change.new.is_some() => {
                let actor =
                    if deleting(&namespace.metadata) { Actor::Namespace } else { Actor::ServiceAccount };
                queue.push(actor, change.key.clone());
            }
            Some(Object::ServiceAccount(account)) if self.on.namespaces && change.new.is_none() => {
                let namespace = account.metadata.namespace.clone().unwrap_or_default();
                queue.push(Actor::ServiceAccount, Key::cluster(namespace));
            }
            Some(Object::PodDisruptionBudget(_)) if self.on.disruption => {
                queue.push(Actor::Disruption, change.key.clone());
            }
            Some(
                Object::PersistentVolumeClaim(_) | Object::PersistentVolume(_) | Object::StorageClass(_),
            ) => {
                self.storage_changed(view, change, queue);
            }
            Some(Object::VirtualMachineInstance(vmi)) => {
                queue.push(Actor::Instance, change.key.clone());
                if change.new.is_none() || vmi.is_final() || vmi.migration().closed() {
                    for pod in view.mirror.pods.controlled_by(vmi.uid()) {
                        queue.push(Actor::KubeletPod, Key::of(&pod.metadata));
                    }
                }
            }
            Some(other) if self.on.workloads => workload_changed(view.mirror, other, &change.key, queue),
            _ => {}
        }
    }

    fn storage_changed(&mut self, view: View<'_>, change: &Change, queue: &mut Queue) {
        if self.on.scheduler {
            self.scheduler.wake(view, Wake::Room);
            self.schedule(queue);
        }
        if self.handlers.serving() && change.kind == Kind::PersistentVolumeClaim {
            // Whether a machine can move depends on its claims.
            for vmi in view.mirror.instances.in_namespace(&change.key.namespace) {
                if volumes(vmi).filter_map(claim).any(|name| name == change.key.name) {
                    queue.push(Actor::Instance, vmi.key());
                }
            }
        }
        if !self.on.volumes {
            return;
        }
        match change.latest() {
            Some(Object::PersistentVolumeClaim(_)) => queue.push(Actor::Volume, change.key.clone()),
            Some(Object::StorageClass(_)) => {
                for (key, _) in view.mirror.claims.iter() {
                    queue.push(Actor::Volume, key.clone());
                }
            }
            Some(Object::PersistentVolume(volume)) => {
                if let Some(claim) = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref()) {
                    let key = Key::new(
                        claim.namespace.clone().unwrap_or_default(),
                        claim.name.clone().unwrap_or_default(),
                    );
                    queue.push(Actor::Volume, key);
                }
            }
            _ => {}
        }
    }

    pub fn schedule(&self, queue: &mut Queue) {
        if self.on.scheduler && self.scheduler.has_work() {
            queue.push(Actor::Scheduler, Key::default());
        }
    }

    fn pod_changed(&mut self, view: View<'_>, change: &Change, pod: &Pod, queue: &mut Queue) {
        let (key, gone) = (&change.key, change.new.is_none());
        let old = match &change.old {
            Some(Object::Pod(old)) => Some(old.as_ref()),
            _ => None,
        };
        if let Some(node) = node_of(pod).filter(|n| self.kubelets.hosts(n)) {
            if gone {
                self.handlers.pod_gone(pod, self.kubelets.alive(node), view.now);
                self.kubelets.forget(pod);
                tracing::trace!(%key, node, "pod is gone");
            } else {
                queue.push(Actor::KubeletPod, key.clone());
            }
        }
        if self.handlers.serving()
            && let Some(instance) = instance_of(pod)
        {
            queue.push(Actor::Instance, instance);
        }
        if self.on.scheduler {
            let spec_changed =
                old.is_none_or(|o| o.spec != pod.spec || o.metadata.labels != pod.metadata.labels);
            self.scheduler.note(key, Some(pod).filter(|_| !gone), spec_changed);
            let freed =
                node_of(pod).is_some() && (gone || (finished(pod) && old.is_some_and(|o| !finished(o))));
            let placed = node_of(pod).is_some() && old.is_none_or(|o| node_of(o).is_none());
            if freed {
                self.scheduler.wake(view, Wake::Room);
            } else if placed || old.is_some_and(|o| o.metadata.labels != pod.metadata.labels) {
                self.scheduler.wake(view, Wake::Places);
            }
            self.schedule(queue);
        }
        if self.on.volumes && old.is_none() {
            for claim in pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
                if let Some(source) = &claim.persistent_volume_claim {
                    queue.push(Actor::Volume, Key::new(key.namespace.clone(), source.claim_name.clone()));
                }
            }
        }
        if self.on.workloads {
            for state in old.into_iter().chain(Some(pod)) {
                owners_of_pod(view.mirror, key, state, queue);
            }
        }
        if self.on.disruption {
            for budget in view.mirror.budgets.in_namespace(&key.namespace) {
                let selector = budget.spec.as_ref().and_then(|s| s.selector.as_ref());
                if old.into_iter().chain(Some(pod)).any(|p| selects(selector, p.metadata.labels.as_ref())) {
                    queue.push(Actor::Disruption, Key::of(&budget.metadata));
                }
            }
            if !gone && crate::objects::pod_condition(pod, "DisruptionTarget").is_some() {
                queue.push(Actor::StaleDisruption, key.clone());
            }
        }
        if self.on.node_lifecycle {
            if gone {
                self.taint_eviction.forget(key);
            } else if node_of(pod).is_some() {
                queue.push(Actor::TaintEviction, key.clone());
            }
        }
    }

    fn node_changed(&mut self, view: View<'_>, change: &Change, node: &Node, queue: &mut Queue) {
        let (key, gone) = (&change.key, change.new.is_none());
        let old = match &change.old {
            Some(Object::Node(old)) => Some(old.as_ref()),
            _ => None,
        };
        if self.kubelets.hosts(&key.name) {
            queue.push(Actor::KubeletNode, key.clone());
            if self.handlers.serving() {
                queue.push(Actor::HandlerNode, key.clone());
            }
            if old.is_none() {
                queue.push(Actor::Heartbeat, Key::default());
                for pod in view.mirror.pods_on(&key.name) {
                    queue.push(Actor::KubeletPod, Key::of(&pod.metadata));
                }
            }
        }
        let place_changed = gone
            || old.is_none_or(|o| {
                o.spec != node.spec
                    || o.metadata.labels != node.metadata.labels
                    || allocatable(o) != allocatable(node)
                    || node_ready(o) != node_ready(node)
            });
        if place_changed {
            if self.on.scheduler && !gone {
                self.scheduler.wake(view, Wake::Room);
                self.schedule(queue);
            }
            if self.on.workloads {
                for (set, _) in view.mirror.daemon_sets.iter() {
                    queue.push(Actor::DaemonSet, set.clone());
                }
            }
        }
        if self.on.node_lifecycle {
            if gone {
                self.lifecycle.forget(&key.name);
            } else {
                queue.push(Actor::NodeTaints, key.clone());
                if old.is_none_or(|o| node_ready(o) != node_ready(node)) {
                    queue.push(Actor::NodeMonitor, Key::default());
                }
            }
            let taints = |n: &Node| n.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default();
            if gone || old.is_none_or(|o| taints(o) != taints(node)) {
                for pod in view.mirror.pods_on(&key.name) {
                    queue.push(Actor::TaintEviction, Key::of(&pod.metadata));
                }
            }
        }
    }
}

fn allocatable(
    node: &Node,
) -> Option<&std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>> {
    node.status.as_ref()?.allocatable.as_ref()
}

/// The controller of a pod, and what controls that; for an orphan, whoever might adopt it.
fn owners_of_pod(mirror: &Mirror, key: &Key, pod: &Pod, queue: &mut Queue) {
    let Some(owner) = controller_of(&pod.metadata) else {
        let labels = pod.metadata.labels.as_ref();
        for set in mirror.replica_sets.in_namespace(&key.namespace) {
            if selects(Some(&set.spec.selector), labels) {
                queue.push(Actor::ReplicaSet, Key::of(&set.metadata));
            }
        }
        for set in mirror.daemon_sets.in_namespace(&key.namespace) {
            if selects(Some(&set.spec.selector), labels) {
                queue.push(Actor::DaemonSet, Key::of(&set.metadata));
            }
        }
        for set in mirror.stateful_sets.in_namespace(&key.namespace) {
            if selects(Some(&set.spec.selector), labels) {
                queue.push(Actor::StatefulSet, Key::of(&set.metadata));
            }
        }
        return;
    };
    let owner_key = Key::new(key.namespace.clone(), owner.name.clone());
    match owner.kind.as_str() {
        "ReplicaSet" => {
            if let Some(above) = mirror.replica_sets.get(&owner_key).and_then(|s| controller_of(&s.metadata))
            {
                queue.push(Actor::Deployment, Key::new(key.namespace.clone(), above.name.clone()));
            }
            queue.push(Actor::ReplicaSet, owner_key);
        }
        "ReplicationController" => queue.push(Actor::ReplicationController, owner_key),
        "DaemonSet" => queue.push(Actor::DaemonSet, owner_key),
        "StatefulSet" => queue.push(Actor::StatefulSet, owner_key),
        "Job" => queue.push(Actor::Job, owner_key),
        _ => {}
    }
}

fn workload_changed(mirror: &Mirror, object: &Object, key: &Key, queue: &mut Queue) {
    match object {
        Object::Deployment(_) => queue.push(Actor::Deployment, key.clone()),
        Object::ReplicaSet(set) => {
            queue.push(Actor::ReplicaSet, key.clone());
            if let Some(owner) = controller_of(&set.metadata) {
                queue.push(Actor::Deployment, Key::new(key.namespace.clone(), owner.name.clone()));
            }
        }
        Object::ReplicationController(_) => queue.push(Actor::ReplicationController, key.clone()),
        Object::DaemonSet(_) => queue.push(Actor::DaemonSet, key.clone()),
        Object::StatefulSet(_) => queue.push(Actor::StatefulSet, key.clone()),
        Object::Job(_) => queue.push(Actor::Job, key.clone()),
        Object::ControllerRevision(revision) => {
            if let Some(owner) = controller_of(&revision.metadata) {
                let owner_key = Key::new(key.namespace.clone(), owner.name.clone());
                if mirror.daemon_sets.get(&owner_key).is_some() && owner.kind == "DaemonSet" {
                    queue.push(Actor::DaemonSet, owner_key);
                } else {
                    queue.push(Actor::StatefulSet, owner_key);
                }
            }
        }
        _ => {}
    }
}
