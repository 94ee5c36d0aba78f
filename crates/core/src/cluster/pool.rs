//! One copy of what many objects say alike.
//!
//! The reader of a collection owns a pool and sends every fact through it, so that only one copy of a namespace, a node's name, a label or a
//! condition's sentence stays in memory. Sharing changes nothing that can be seen: what is equal stays equal.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::condition::{Condition, Said};
use super::fact::{Budget, Fact, Instance, Key, Machine, Migration, Node, Owner, Pod, ReplicaSet, VmRole};
use super::text::{Text, Texts};
use super::text_map::TextMap;
use super::{instance, pod};

/// How many pieces of each sort a pool remembers. What is not remembered is only not shared.
const MOST: usize = 1 << 16;

/// What was seen before, by content.
#[derive(Debug, Default)]
pub struct Pool {
    texts: BTreeSet<Text>,
    /// The keys of maps, and other lists of texts.
    lists: BTreeSet<Texts>,
    maps: BTreeSet<TextMap>,
    said: BTreeSet<Arc<Said>>,
    pods: BTreeSet<Arc<pod::Common>>,
    instances: BTreeSet<Arc<instance::Common>>,
    /// What belongs to the object at hand alone: its names and identities are not worth remembering, but it may repeat them.
    own: Vec<Text>,
}

/// Remembers one more. Where there is no room, first what nothing uses any more goes, then everything.
fn remember<T: Ord>(known: &mut BTreeSet<T>, one: T, is_unused: impl Fn(&T) -> bool) {
    if known.len() >= MOST {
        known.retain(|one| !is_unused(one));
        if known.len() > MOST / 2 {
            known.clear();
        }
    }
    known.insert(one);
}

/// Takes the known copy of what is alike, if there is one.
fn share<T: Ord + ?Sized>(known: &mut BTreeSet<Arc<T>>, one: &mut Arc<T>) {
    match known.get(one) {
        Some(same) => one.clone_from(same),
        None => remember(known, one.clone(), |one| Arc::strong_count(one) == 1),
    }
}

impl Pool {
    /// A pool that knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shares what the fact says with facts that were here before.
    pub fn share(&mut self, fact: &mut Fact) {
        self.own.clear();
        match fact {
            Fact::Node(node) => self.node(node),
            Fact::Pod(pod) => self.pod(pod),
            Fact::Budget(budget) => self.budget(budget),
            Fact::Machine(machine) => self.machine(machine),
            Fact::Instance(instance) => self.instance(instance),
            Fact::ReplicaSet(set) => self.replica_set(set),
            Fact::Migration(migration) => self.migration(migration),
            _ => {}
        }
        self.own.clear();
    }

    /// True if it was known before.
    fn text(&mut self, text: &mut Text) -> bool {
        if let Some(own) = self.own.iter().find(|own| *own == text) {
            text.clone_from(own);
            return false;
        }
        if let Some(known) = self.texts.get(text.as_str()) {
            text.clone_from(known);
            return true;
        }
        remember(&mut self.texts, text.clone(), Text::is_unused);
        false
    }

    fn owned(&mut self, text: &mut Text) {
        match self.own.iter().find(|own| *own == text) {
            Some(own) => text.clone_from(own),
            None => self.own.push(text.clone()),
        }
    }

    fn key(&mut self, key: &mut Key) {
        self.text(&mut key.namespace);
        self.owned(&mut key.name);
    }

    fn owner(&mut self, owner: Option<&mut Owner>) {
        if let Some(owner) = owner {
            self.text(&mut owner.api_version);
            self.text(&mut owner.kind);
            if matches!(owner.kind.as_str(), "VirtualMachine" | "VirtualMachineInstance") {
                self.owned(&mut owner.name);
            } else {
                // One of a set: the others have the same owner.
                self.text(&mut owner.name);
            }
        }
    }

    fn texts<'a>(&mut self, texts: impl IntoIterator<Item = &'a mut Text>) {
        for text in texts {
            self.text(text);
        }
    }

    /// The texts of a map are shared, and its keys together; the map as a whole if there was nothing new in it.
    fn map(&mut self, map: &mut TextMap) {
        let mut known = true;
        let mut shared = map.replaced(|(key, value)| {
            let (mut key, mut value) = (key.clone(), value.clone());
            known &= self.text(&mut key);
            known &= self.text(&mut value);
            (key, value)
        });
        if let Some(keys) = shared.keys_mut() {
            share(&mut self.lists, keys);
        }
        *map = if known { self.whole(shared) } else { shared };
    }

    fn whole(&mut self, map: TextMap) -> TextMap {
        if let Some(known) = self.maps.get(&map) {
            return known.clone();
        }
        remember(&mut self.maps, map.clone(), TextMap::is_unused);
        map
    }

    fn conditions(&mut self, conditions: &mut Vec<Condition>) {
        for condition in conditions.iter_mut() {
            share(&mut self.said, &mut condition.said);
        }
        conditions.shrink_to_fit();
    }

    fn node(&mut self, node: &mut Node) {
        self.map(&mut node.labels);
        node.taints.shrink_to_fit();
    }

    fn pod(&mut self, pod: &mut Pod) {
        self.key(&mut pod.key);
        self.owner(pod.controller.as_mut());
        self.texts(&mut pod.node);
        if let VmRole::Launcher(launcher) = &mut pod.vm {
            if let Some(name) = &mut launcher.instance_name {
                self.owned(name);
            }
            // A label says it, too.
            self.own.push(launcher.instance.text());
            self.conditions(&mut launcher.conditions);
        }
        self.map(&mut pod.labels);
        share(&mut self.pods, &mut pod.common);
    }

    fn instance(&mut self, instance: &mut Instance) {
        self.key(&mut instance.key);
        self.owner(instance.owner.as_mut());
        self.text(&mut instance.node);
        self.texts(instance.active_pods.iter_mut().map(|(_, node)| node));
        share(&mut self.lists, &mut instance.phase_times.phases);
        self.conditions(&mut instance.conditions);
        self.map(&mut instance.labels);
        share(&mut self.instances, &mut instance.common);
    }

    fn machine(&mut self, machine: &mut Machine) {
        self.key(&mut machine.key);
        share(&mut self.lists, &mut machine.finalizers);
        self.conditions(&mut machine.status.conditions);
    }

    fn migration(&mut self, migration: &mut Migration) {
        self.key(&mut migration.key);
        self.text(&mut migration.instance.namespace);
        share(&mut self.lists, &mut migration.phase_times.phases);
        share(&mut self.lists, &mut migration.finalizers);
        self.conditions(&mut migration.conditions);
    }

    fn budget(&mut self, budget: &mut Budget) {
        self.key(&mut budget.key);
        self.owner(budget.controller.as_mut());
    }

    fn replica_set(&mut self, set: &mut ReplicaSet) {
        self.key(&mut set.key);
        self.conditions(&mut set.status.conditions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    fn shared(pool: &mut Pool, pod: Pod) -> Pod {
        let mut fact = Fact::Pod(Box::new(pod));
        pool.share(&mut fact);
        match fact {
            Fact::Pod(pod) => *pod,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sharing_changes_nothing_that_can_be_seen() {
        let mut pool = Pool::new();
        let one = pod("a").labelled("app", "web").labelled("name", "a").running("vm", "u");
        assert_eq!(shared(&mut pool, one.clone()), one);
        assert_eq!(shared(&mut pool, one.clone()), one);
    }

    #[test]
    fn what_two_objects_say_alike_is_there_once_and_what_is_their_own_is_not_remembered() {
        let mut pool = Pool::new();
        let made: Vec<Pod> =
            ["a", "b", "c"].map(|name| shared(&mut pool, pod(name).labelled("app", "web"))).into();
        let place = |text: &Text| text.as_str().as_ptr();
        assert_eq!(place(&made[0].key.namespace), place(&made[1].key.namespace));
        assert_eq!(made[0].node.as_ref().map(place), made[1].node.as_ref().map(place));
        assert_eq!(made[1].labels.get("app").map(place), made[2].labels.get("app").map(place));
        assert!(!pool.texts.contains("a") && !pool.texts.contains("uid-a"));
        assert_eq!(pool.maps.len(), 1, "the labels as a whole, since the second of them");
    }

    #[test]
    fn a_pool_forgets_before_it_grows_without_bound() {
        let mut pool = Pool::new();
        for number in 0..3 * MOST {
            shared(&mut pool, pod("a").labelled("number", &number.to_string()));
        }
        assert!(pool.texts.len() <= MOST && pool.maps.len() <= MOST);
    }
}
