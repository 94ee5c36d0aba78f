//! The cluster as seen by the actors: typed objects, arranged for their questions.
//!
//! Facts come from watches and from the answers to our own writes. Taking our own answers at once is
//! what keeps an actor from doing the same thing twice: a later watch event with the same or an older
//! resource version says nothing new and is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;

use crate::instance::VirtualMachineInstance;
use crate::kinds::{Kind, Object, Tracked};
use crate::objects::{Key, controller_of, finished, node_of, required_anti_affinity, uid, version};
use crate::quantity::{Amounts, add, amounts, pod_requests, subtract};

/// All objects of one kind, in the order of their keys.
#[derive(Debug)]
pub struct Store<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// Deleted by us, not yet seen deleted by the watch: uids that must not come back.
    gone: BTreeSet<String>,
    /// Controller's uid → the objects it controls; what nobody controls is under "".
    by_controller: BTreeMap<String, BTreeSet<Key>>,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), gone: BTreeSet::new(), by_controller: BTreeMap::new() }
    }
}

impl<K: Tracked> Store<K> {
    pub fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    pub fn named(&self, name: &str) -> Option<&Arc<K>> {
        self.objects.get(&Key::cluster(name))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<K>)> {
        self.objects.iter()
    }

    pub fn values(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
        self.objects
            .range(Key::new(namespace, "")..)
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, object)| object)
    }

    /// What the object with this uid controls.
    pub fn controlled_by(&self, owner_uid: &str) -> impl Iterator<Item = &Arc<K>> {
        self.by_controller.get(owner_uid).into_iter().flatten().filter_map(|key| self.objects.get(key))
    }

    /// What nobody controls, in one namespace.
    pub fn orphans<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
        let all = self.by_controller.get("").into_iter();
        all.flat_map(move |keys| {
            keys.range(Key::new(namespace, "")..).take_while(move |key| key.namespace == namespace)
        })
        .filter_map(|key| self.objects.get(key))
    }

    fn put(&mut self, object: Arc<K>) -> Applied<K> {
        let meta = object.meta();
        let key = Key::of(meta);
        if self.gone.contains(uid(meta)) {
            return Applied::Stale;
        }
        if let Some(old) = self.objects.get(&key)
            && uid(old.meta()) == uid(meta)
            && version(old.meta()) >= version(meta)
        {
            return Applied::Stale;
        }
        self.insert(key, object)
    }

    fn insert(&mut self, key: Key, object: Arc<K>) -> Applied<K> {
        let old = self.objects.insert(key.clone(), object.clone());
        if let Some(old) = &old {
            self.unlink(&key, old);
        }
        self.by_controller.entry(controller_uid(&*object).to_owned()).or_default().insert(key);
        Applied::Changed(old, Some(object))
    }

    fn remove(&mut self, key: &Key, only_uid: &str) -> Applied<K> {
        match self.objects.get(key) {
            Some(held) if only_uid.is_empty() || uid(held.meta()) == only_uid => {}
            _ => return Applied::Stale,
        }
        let old = self.objects.remove(key);
        if let Some(old) = &old {
            self.unlink(key, old);
        }
        Applied::Changed(old, None)
    }

    fn unlink(&mut self, key: &Key, old: &Arc<K>) {
        let owner = controller_uid(&**old);
        if let Some(children) = self.by_controller.get_mut(owner) {
            children.remove(key);
            if children.is_empty() {
                self.by_controller.remove(owner);
            }
        }
    }
}

fn controller_uid<K: Tracked>(object: &K) -> &str {
    controller_of(object.meta()).map_or("", |o| o.uid.as_str())
}

enum Applied<K> {
    Stale,
    Changed(Option<Arc<K>>, Option<Arc<K>>),
}

/// What one fact changed.
#[derive(Debug, Clone)]
pub struct Change {
    pub kind: Kind,
    pub key: Key,
    pub old: Option<Object>,
    pub new: Option<Object>,
}

impl Change {
    fn of<K: Tracked>(key: Key, applied: Applied<K>) -> Option<Self> {
        match applied {
            Applied::Stale => None,
            Applied::Changed(old, new) => {
                Some(Self { kind: K::KIND, key, old: old.map(K::wrap), new: new.map(K::wrap) })
            }
        }
    }

    /// The object as it is, or as it was last.
    pub fn latest(&self) -> Option<&Object> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// What the pods of one node take together.
#[derive(Debug, Default, Clone)]
pub struct Load {
    pub requested: Amounts,
    pub pods: i64,
}

#[derive(Debug, Default)]
pub struct Mirror {
    pub namespaces: Store<Namespace>,
    pub nodes: Store<Node>,
    pub leases: Store<Lease>,
    pub pods: Store<Pod>,
    pub replica_sets: Store<ReplicaSet>,
    pub deployments: Store<Deployment>,
    pub daemon_sets: Store<DaemonSet>,
    pub stateful_sets: Store<StatefulSet>,
    pub revisions: Store<ControllerRevision>,
    pub jobs: Store<Job>,
    pub replication_controllers: Store<ReplicationController>,
    pub budgets: Store<PodDisruptionBudget>,
    pub claims: Store<PersistentVolumeClaim>,
    pub volumes: Store<PersistentVolume>,
    pub storage_classes: Store<StorageClass>,
    pub accounts: Store<ServiceAccount>,
    pub instances: Store<VirtualMachineInstance>,
    pods_by_node: BTreeMap<String, BTreeSet<Key>>,
    loads: BTreeMap<String, Load>,
    requests: BTreeMap<Key, Amounts>,
    allocatable: BTreeMap<String, Amounts>,
    repelling: BTreeSet<Key>,
}

macro_rules! each_store {
    ($self:ident, $kind:expr, |$store:ident| $body:expr) => {
        match $kind {
            Kind::Namespace => {
                let $store = &mut $self.namespaces;
                $body
            }
            Kind::Node => {
                let $store = &mut $self.nodes;
                $body
            }
            Kind::Lease => {
                let $store = &mut $self.leases;
                $body
            }
            Kind::Pod => {
                let $store = &mut $self.pods;
                $body
            }
            Kind::ReplicaSet => {
                let $store = &mut $self.replica_sets;
                $body
            }
            Kind::Deployment => {
                let $store = &mut $self.deployments;
                $body
            }
            Kind::DaemonSet => {
                let $store = &mut $self.daemon_sets;
                $body
            }
            Kind::StatefulSet => {
                let $store = &mut $self.stateful_sets;
                $body
            }
            Kind::ControllerRevision => {
                let $store = &mut $self.revisions;
                $body
            }
            Kind::Job => {
                let $store = &mut $self.jobs;
                $body
            }
            Kind::ReplicationController => {
                let $store = &mut $self.replication_controllers;
                $body
            }
            Kind::PodDisruptionBudget => {
                let $store = &mut $self.budgets;
                $body
            }
            Kind::PersistentVolumeClaim => {
                let $store = &mut $self.claims;
                $body
            }
            Kind::PersistentVolume => {
                let $store = &mut $self.volumes;
                $body
            }
            Kind::StorageClass => {
                let $store = &mut $self.storage_classes;
                $body
            }
            Kind::ServiceAccount => {
                let $store = &mut $self.accounts;
                $body
            }
            Kind::VirtualMachineInstance => {
                let $store = &mut $self.instances;
                $body
            }
        }
    };
}

impl Mirror {
    /// Takes an object as it is in the API. `None` when that is no news.
    pub fn put(&mut self, object: Object) -> Option<Change> {
        let key = object.key();
        let change = match object {
            Object::Namespace(o) => Change::of(key, self.namespaces.put(o)),
            Object::Node(o) => Change::of(key, self.nodes.put(o)),
            Object::Lease(o) => Change::of(key, self.leases.put(o)),
            Object::Pod(o) => Change::of(key, self.pods.put(o)),
            Object::ReplicaSet(o) => Change::of(key, self.replica_sets.put(o)),
            Object::Deployment(o) => Change::of(key, self.deployments.put(o)),
            Object::DaemonSet(o) => Change::of(key, self.daemon_sets.put(o)),
            Object::StatefulSet(o) => Change::of(key, self.stateful_sets.put(o)),
            Object::ControllerRevision(o) => Change::of(key, self.revisions.put(o)),
            Object::Job(o) => Change::of(key, self.jobs.put(o)),
            Object::ReplicationController(o) => Change::of(key, self.replication_controllers.put(o)),
            Object::PodDisruptionBudget(o) => Change::of(key, self.budgets.put(o)),
            Object::PersistentVolumeClaim(o) => Change::of(key, self.claims.put(o)),
            Object::PersistentVolume(o) => Change::of(key, self.volumes.put(o)),
            Object::StorageClass(o) => Change::of(key, self.storage_classes.put(o)),
            Object::ServiceAccount(o) => Change::of(key, self.accounts.put(o)),
            Object::VirtualMachineInstance(o) => Change::of(key, self.instances.put(o)),
        }?;
        self.account(&change);
        Some(change)
    }

    /// The watch saw the object go.
    pub fn deleted(&mut self, kind: Kind, key: &Key, object_uid: &str) -> Option<Change> {
        each_store!(self, kind, |store| {
            store.gone.remove(object_uid);
        });
        self.drop_object(kind, key, object_uid)
    }

    /// We deleted the object for good; the watch will say so later.
    pub fn we_deleted(&mut self, kind: Kind, key: &Key, object_uid: &str) -> Option<Change> {
        let change = self.drop_object(kind, key, object_uid);
        if let Some(old) = change.as_ref().and_then(|c| c.old.as_ref()) {
            let old_uid = uid(old.meta()).to_owned();
            each_store!(self, kind, |store| {
                store.gone.insert(old_uid);
            });
        }
        change
    }

    fn drop_object(&mut self, kind: Kind, key: &Key, object_uid: &str) -> Option<Change> {
        let change = each_store!(self, kind, |store| Change::of(key.clone(), store.remove(key, object_uid)))?;
        self.account(&change);
        Some(change)
    }

    /// A full list at `at`: what it does not name is gone, unless it is younger than the list.
    pub fn listed(&mut self, kind: Kind, objects: Vec<Object>, at: u64) -> Vec<Change> {
        let named: BTreeSet<Key> = objects.iter().map(Object::key).collect();
        let missing: Vec<Key> = each_store!(self, kind, |store| {
            store.gone.clear();
            store
                .objects
                .iter()
                .filter(|(key, held)| !named.contains(key) && version(held.meta()) <= at)
                .map(|(key, _)| key.clone())
                .collect()
        });
        let mut changes: Vec<Change> =
            missing.iter().filter_map(|key| self.drop_object(kind, key, "")).collect();
        changes.extend(objects.into_iter().filter_map(|object| self.put(object)));
        changes
    }

    /// The pod as bound to a node by us: the binding's answer carries no pod, and the next decision must
    /// already count it. The resource version stays, so the watch's pod replaces this one.
    pub fn assume_bound(&mut self, key: &Key, node: &str) -> Option<Change> {
        let held = self.pods.get(key)?;
        let mut bound = Pod::clone(held);
        bound.spec.get_or_insert_default().node_name = Some(node.to_owned());
        let applied = self.pods.insert(key.clone(), Arc::new(bound));
        let change = Change::of(key.clone(), applied)?;
        self.account(&change);
        Some(change)
    }

    pub fn pods_on<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Arc<Pod>> + use<'a> {
        self.pods_by_node.get(node).into_iter().flatten().filter_map(|key| self.pods.get(key))
    }

    /// Names of all nodes that pods refer to, existing or not.
    pub fn nodes_with_pods(&self) -> impl Iterator<Item = &String> {
        self.pods_by_node.keys()
    }

    pub fn load(&self, node: &str) -> Option<&Load> {
        self.loads.get(node)
    }

    /// What a node has to give, in numbers.
    pub fn allocatable(&self, node: &str) -> Option<&Amounts> {
        self.allocatable.get(node)
    }

    pub fn requests(&self, pod: &Key) -> Option<&Amounts> {
        self.requests.get(pod)
    }

    /// Placed pods with a required anti-affinity.
    pub fn repelling_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.repelling.iter().filter_map(|key| self.pods.get(key))
    }

    fn account(&mut self, change: &Change) {
        if change.kind == Kind::Node {
            match &change.new {
                Some(Object::Node(node)) => {
                    let list = node.status.as_ref().and_then(|s| s.allocatable.as_ref());
                    self.allocatable.insert(change.key.name.clone(), amounts(list));
                }
                _ => {
                    self.allocatable.remove(&change.key.name);
                }
            }
        }
        if change.kind != Kind::Pod {
            return;
        }
        if let Some(Object::Pod(old)) = &change.old {
            self.discount(&change.key, old);
        }
        if let Some(Object::Pod(new)) = &change.new {
            let requests = pod_requests(new);
            if let Some(node) = node_of(new) {
                self.pods_by_node.entry(node.to_owned()).or_default().insert(change.key.clone());
                if !finished(new) {
                    if !required_anti_affinity(new).is_empty() {
                        self.repelling.insert(change.key.clone());
                    }
                    let load = self.loads.entry(node.to_owned()).or_default();
                    add(&mut load.requested, &requests);
                    load.pods += 1;
                }
            }
            self.requests.insert(change.key.clone(), requests);
        }
    }

    fn discount(&mut self, key: &Key, old: &Pod) {
        let requests = self.requests.remove(key).unwrap_or_default();
        self.repelling.remove(key);
        let Some(node) = node_of(old) else { return };
        if let Some(keys) = self.pods_by_node.get_mut(node) {
            keys.remove(key);
            if keys.is_empty() {
                self.pods_by_node.remove(node);
            }
        }
        if !finished(old)
            && let Some(load) = self.loads.get_mut(node)
        {
            subtract(&mut load.requested, &requests);
            load.pods -= 1;
            if load.pods == 0 {
                self.loads.remove(node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::pod;

    fn at(name: &str, uid: &str, version: u64) -> Object {
        let mut pod = pod("ns", name).on("n").cpu("500m").make();
        pod.metadata.uid = Some(uid.into());
        pod.metadata.resource_version = Some(version.to_string());
        Object::Pod(Arc::new(pod))
    }

    #[test]
    fn an_older_or_equal_version_is_no_news() {
        let mut mirror = Mirror::default();
        assert!(mirror.put(at("a", "u", 5)).is_some());
        assert!(mirror.put(at("a", "u", 5)).is_none());
        assert!(mirror.put(at("a", "u", 4)).is_none());
        assert!(mirror.put(at("a", "u", 6)).is_some());
    }

    #[test]
    fn what_we_deleted_does_not_come_back_from_a_late_watch() {
        let mut mirror = Mirror::default();
        mirror.put(at("a", "u", 5));
        assert!(mirror.we_deleted(Kind::Pod, &Key::new("ns", "a"), "u").is_some());
        assert!(mirror.put(at("a", "u", 7)).is_none());
        mirror.deleted(Kind::Pod, &Key::new("ns", "a"), "u");
        assert!(mirror.put(at("a", "v", 9)).is_some());
    }

    #[test]
    fn a_late_delete_of_a_former_object_leaves_the_new_one() {
        let mut mirror = Mirror::default();
        mirror.put(at("a", "new", 9));
        assert!(mirror.deleted(Kind::Pod, &Key::new("ns", "a"), "old").is_none());
        assert!(mirror.pods.get(&Key::new("ns", "a")).is_some());
    }

    #[test]
    fn a_list_removes_what_it_does_not_name_but_not_what_is_younger() {
        let mut mirror = Mirror::default();
        mirror.put(at("old", "u1", 3));
        mirror.put(at("young", "u2", 30));
        let changes = mirror.listed(Kind::Pod, vec![at("kept", "u3", 4)], 20);
        assert_eq!(changes.len(), 2);
        let names: Vec<_> = mirror.pods.iter().map(|(k, _)| k.name.clone()).collect();
        assert_eq!(names, ["kept", "young"]);
    }

    #[test]
    fn the_load_of_a_node_follows_its_pods() {
        let mut mirror = Mirror::default();
        mirror.put(at("a", "u", 1));
        mirror.put(at("b", "v", 2));
        assert_eq!(mirror.load("n").unwrap().requested["cpu"], 1000);
        mirror.deleted(Kind::Pod, &Key::new("ns", "a"), "u");
        assert_eq!(mirror.load("n").unwrap().pods, 1);
        mirror.deleted(Kind::Pod, &Key::new("ns", "b"), "v");
        assert!(mirror.load("n").is_none());
    }
}
