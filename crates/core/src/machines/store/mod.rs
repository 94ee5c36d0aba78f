//! All that is known of virtual machines, arranged for the questions controllers ask.
//!
//! Every change tells which subjects have to be looked at again, so a burst of events costs as many decisions as there are
//! subjects touched.

mod lookup;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::action::{Kind, Subject};
use super::config::Config;
use super::fact::{
    Host, Instance, Launcher, Machine, Migration, MigrationPhase, MigrationState, ReplicaSet, Seen,
};
use super::guard::Guard;
use super::slots::Ledger;
use crate::fact::{Key, Uid};
use crate::version::is_older;

/// How many identities of gone objects are remembered.
const REMEMBERED: usize = 10_000;

#[derive(Debug, Clone, Default)]
pub struct Machines {
    pub config: Config,
    #[allow(clippy::struct_field_names, reason = "it is what they are")]
    machines: BTreeMap<Key, Machine>,
    instances: BTreeMap<Key, Instance>,
    sets: BTreeMap<Key, ReplicaSet>,
    migrations: BTreeMap<Key, Migration>,
    launchers: BTreeMap<Key, Launcher>,
    launchers_of: BTreeMap<Uid, BTreeSet<Key>>,
    instances_of: BTreeMap<Uid, BTreeSet<Key>>,
    migrations_of: BTreeMap<Key, BTreeSet<Key>>,
    /// Migrations that are not over.
    unfinished: BTreeSet<Key>,
    guards: BTreeMap<Key, Guard>,
    guards_of: BTreeMap<Key, BTreeSet<Key>>,
    hosts: BTreeMap<String, Host>,
    instances_on: BTreeMap<String, BTreeSet<Key>>,
    ledger: Ledger,
    rewinds: u64,
    /// Slots have changed, so it may be somebody else's turn.
    line_moved: bool,
    troubles: BTreeMap<Subject, Trouble>,
    gone: Gone,
}

/// What the server answered when something could not be done for a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In one word: `FailedCreate` or `FailedDelete`.
    pub reason: &'static str,
    pub message: String,
}

/// An answer to a write may arrive after the news that the object is gone; it must not bring the object back.
#[derive(Debug, Clone, Default)]
struct Gone {
    order: VecDeque<Uid>,
    known: BTreeSet<Uid>,
}

impl Gone {
    fn add(&mut self, uid: &Uid) {
        if self.known.insert(uid.clone()) {
            self.order.push_back(uid.clone());
            if self.order.len() > REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
    }

    fn contains(&self, uid: &Uid) -> bool {
        self.known.contains(uid)
    }

    /// A list shows it, so it is there: a backup brings objects back with their identities.
    fn recall(&mut self, uid: &Uid) {
        if self.known.remove(uid) {
            self.order.retain(|known| known != uid);
        }
    }
}

macro_rules! keep {
    ($store:expr, $map:ident, $object:expr) => {{
        let object = $object;
        if $store.gone.contains(&object.uid) {
            return BTreeSet::new();
        }
        if let Some(known) = $store.$map.get(&object.key)
            && ((known.uid == object.uid && is_older(&object.version, &known.version)) || *known == object)
        {
            return BTreeSet::new();
        }
        $store.$map.insert(object.key.clone(), object)
    }};
}

macro_rules! drop_one {
    ($store:expr, $map:ident, $key:expr, $uid:expr) => {{
        $store.gone.add(&$uid);
        if $store.$map.get(&$key).is_some_and(|known| known.uid == $uid) {
            $store.$map.remove(&$key)
        } else {
            return BTreeSet::new();
        }
    }};
}

impl Machines {
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Takes in one observation and says who has to be looked at again.
    pub fn apply(&mut self, seen: Seen) -> BTreeSet<Subject> {
        let mut touched = BTreeSet::new();
        match seen {
            Seen::Machine(machine) if machine.deleting && machine.finalizers.is_empty() => {
                return self.apply(Seen::MachineGone(machine.key, machine.uid));
            }
            Seen::Instance(instance) if instance.deleting && instance.finalizers.is_empty() => {
                return self.apply(Seen::InstanceGone(instance.key, instance.uid));
            }
            Seen::Migration(migration) if migration.deleting && migration.finalizers.is_empty() => {
                return self.apply(Seen::MigrationGone(migration.key, migration.uid));
            }
            Seen::Machine(machine) => {
                let (key, uid) = (machine.key.clone(), machine.uid.clone());
                if keep!(self, machines, *machine).is_none() {
                    // Its instances may have been heard of before, and were taken for orphans.
                    self.touch_owned(&uid, &mut touched);
                }
                touched.insert(Subject::new(Kind::Machine, key));
            }
            Seen::MachineGone(key, uid) => {
                drop_one!(self, machines, key, uid);
                self.touch_owned(&uid, &mut touched);
            }
            Seen::Instance(instance) => {
                let key = instance.key.clone();
                let owner = instance.owner.clone();
                let node = instance.node.clone();
                let is_over = |vmi: &Instance| vmi.migration.as_ref().is_some_and(MigrationState::is_over);
                let frees_slot =
                    is_over(&instance) && self.instances.get(&key).is_none_or(|vmi| !is_over(vmi));
                if let Some(before) = keep!(self, instances, *instance) {
                    self.unlink_instance(&before, &key);
                }
                if frees_slot {
                    self.line_moved = true;
                }
                if !node.is_empty() {
                    self.instances_on.entry(node).or_default().insert(key.clone());
                }
                if let Some(owner) = owner {
                    self.instances_of.entry(owner.uid).or_default().insert(key.clone());
                }
                self.touch_around_instance(&key, &mut touched);
            }
            Seen::InstanceGone(key, uid) => {
                self.touch_around_instance(&key, &mut touched);
                if let Some(gone) = drop_one!(self, instances, key, uid) {
                    self.unlink_instance(&gone, &key);
                }
            }
            Seen::ReplicaSet(set) => {
                let key = set.key.clone();
                keep!(self, sets, *set);
                touched.insert(Subject::new(Kind::ReplicaSet, key));
            }
            Seen::ReplicaSetGone(key, uid) => {
                drop_one!(self, sets, key, uid);
            }
            Seen::Migration(migration) => {
                let (key, instance) = (migration.key.clone(), migration.instance.clone());
                let was = self.migrations.get(&key).map(|known| known.phase);
                let was_final = was.is_some_and(MigrationPhase::is_final);
                let is_final = migration.phase.is_final();
                let joins_the_line =
                    migration.phase == MigrationPhase::Pending && was != Some(MigrationPhase::Pending);
                keep!(self, migrations, *migration);
                if is_final {
                    self.unfinished.remove(&key);
                } else {
                    self.unfinished.insert(key.clone());
                }
                self.migrations_of.entry(instance.clone()).or_default().insert(key.clone());
                touched.insert(Subject::new(Kind::Migration, key));
                // The machine shows whether its guest is on its way, and other migrations of that guest wait for the end of this one.
                self.touch_around_instance(&instance, &mut touched);
                if is_final && !was_final {
                    self.line_moved = true;
                }
                if joins_the_line {
                    self.touch_scheduling(&mut touched);
                }
            }
            Seen::MigrationGone(key, uid) => {
                if let Some(gone) = drop_one!(self, migrations, key, uid) {
                    unlink(&mut self.migrations_of, &gone.instance, &key);
                    self.unfinished.remove(&key);
                    self.touch_around_instance(&gone.instance, &mut touched);
                }
                self.line_moved = true;
            }
            Seen::Launcher(launcher) => {
                let (key, instance) = (launcher.key.clone(), launcher.instance.clone());
                let around = Key::new(key.namespace.clone(), launcher.instance_name.clone());
                keep!(self, launchers, *launcher);
                self.launchers_of.entry(instance).or_default().insert(key);
                self.touch_around_instance(&around, &mut touched);
            }
            Seen::LauncherGone(key, uid) => {
                if let Some(gone) = drop_one!(self, launchers, key, uid) {
                    unlink(&mut self.launchers_of, &gone.instance, &key);
                    self.touch_around_instance(
                        &Key::new(key.namespace.clone(), gone.instance_name),
                        &mut touched,
                    );
                }
            }
            Seen::Guard(guard) => {
                let key = guard.key.clone();
                let around = Key::new(key.namespace.clone(), guard.instance.clone());
                keep!(self, guards, *guard);
                self.guards_of.entry(around.clone()).or_default().insert(key);
                touched.insert(Subject::new(Kind::Instance, around));
            }
            Seen::GuardGone(key, uid) => {
                if let Some(gone) = drop_one!(self, guards, key, uid) {
                    let around = Key::new(key.namespace.clone(), gone.instance);
                    unlink(&mut self.guards_of, &around, &key);
                    touched.insert(Subject::new(Kind::Instance, around));
                }
            }
            Seen::Host(host) => {
                if self.hosts.get(&host.name) != Some(&*host) {
                    self.touch_on(&host.name, &mut touched);
                    self.hosts.insert(host.name.clone(), *host);
                }
            }
            Seen::HostGone(name) => {
                self.touch_on(&name, &mut touched);
                self.hosts.remove(&name);
            }
        }
        touched
    }

    fn touch_on(&self, node: &str, touched: &mut BTreeSet<Subject>) {
        let there = self.instances_on.get(node).into_iter().flatten();
        touched.extend(there.map(|key| Subject::new(Kind::Instance, key.clone())));
    }

    /// A fresh list of one kind: what is not in it is gone, and what is in it is as it says, even if a later version was known or its end was
    /// told: after etcd was restored from a backup that is how things are.
    pub fn reset(&mut self, kind: Kind, list: Vec<Seen>) -> BTreeSet<Subject> {
        let listed: BTreeSet<Uid> = list.iter().filter_map(uid_of).collect();
        let stale: Vec<Seen> = match kind {
            Kind::Machine => left_out(&self.machines, &listed, |m| (&m.key, &m.uid), Seen::MachineGone),
            Kind::Instance => left_out(&self.instances, &listed, |m| (&m.key, &m.uid), Seen::InstanceGone),
            Kind::ReplicaSet => left_out(&self.sets, &listed, |m| (&m.key, &m.uid), Seen::ReplicaSetGone),
            Kind::Migration => left_out(&self.migrations, &listed, |m| (&m.key, &m.uid), Seen::MigrationGone),
            Kind::Pod => left_out(&self.launchers, &listed, |m| (&m.key, &m.uid), Seen::LauncherGone),
            Kind::Budget => left_out(&self.guards, &listed, |m| (&m.key, &m.uid), Seen::GuardGone),
            Kind::Node => {
                let listed: BTreeSet<&str> = list.iter().filter_map(host_name).collect();
                let stale = self.hosts.keys().filter(|name| !listed.contains(name.as_str()));
                stale.cloned().map(Seen::HostGone).collect()
            }
        };
        let rewound: Vec<Seen> = list.iter().filter_map(|seen| self.rewound(seen)).collect();
        let mut touched: BTreeSet<Subject> =
            stale.into_iter().chain(rewound).flat_map(|seen| self.apply(seen)).collect();
        for uid in &listed {
            self.gone.recall(uid);
        }
        touched.extend(list.into_iter().flat_map(|seen| self.apply(seen)));
        touched
    }

    /// The end of what is known of a listed object, if that is later than the list.
    fn rewound(&self, seen: &Seen) -> Option<Seen> {
        macro_rules! end {
            ($map:ident, $object:expr, $gone:expr) => {
                self.$map
                    .get(&$object.key)
                    .filter(|known| known.uid == $object.uid && is_older(&$object.version, &known.version))
                    .map(|known| $gone(known.key.clone(), known.uid.clone()))
            };
        }
        match seen {
            Seen::Machine(object) => end!(machines, object, Seen::MachineGone),
            Seen::Instance(object) => end!(instances, object, Seen::InstanceGone),
            Seen::ReplicaSet(object) => end!(sets, object, Seen::ReplicaSetGone),
            Seen::Migration(object) => end!(migrations, object, Seen::MigrationGone),
            Seen::Launcher(object) => end!(launchers, object, Seen::LauncherGone),
            Seen::Guard(object) => end!(guards, object, Seen::GuardGone),
            _ => None,
        }
    }

    /// The settings of the cluster changed.
    pub fn configure(&mut self, config: Config) -> BTreeSet<Subject> {
        let mut touched = BTreeSet::new();
        if self.config != config {
            self.config = config;
            self.line_moved = true;
            // The key of the drain taint or the default strategy may have changed.
            touched.extend(self.instances.keys().map(|key| Subject::new(Kind::Instance, key.clone())));
        }
        touched
    }

    /// The ledger of running migrations was written, or an event showed it.
    pub fn enter(&mut self, ledger: Ledger) {
        if !is_older(&ledger.version, &self.ledger.version) && ledger != self.ledger {
            self.ledger = ledger;
            self.line_moved = true;
        }
    }

    /// The ledger of running migrations as a list shows it.
    pub fn reset_ledger(&mut self, ledger: Ledger) {
        if is_older(&ledger.version, &self.ledger.version) {
            self.rewinds += 1;
        }
        if ledger != self.ledger {
            self.ledger = ledger;
            self.line_moved = true;
        }
    }

    /// How often the ledger was seen to go back to an earlier version: what was written before that counts for nothing.
    pub fn rewinds(&self) -> u64 {
        self.rewinds
    }

    /// How the last attempt for a subject ended. True if that is news.
    pub fn note(&mut self, subject: &Subject, trouble: Option<Trouble>) -> bool {
        let known = self.troubles.get(subject);
        if known == trouble.as_ref() {
            return false;
        }
        match trouble {
            Some(trouble) => self.troubles.insert(subject.clone(), trouble),
            None => self.troubles.remove(subject),
        };
        true
    }

    pub fn trouble(&self, kind: Kind, key: &Key) -> Option<&Trouble> {
        self.troubles.get(&Subject::new(kind, key.clone()))
    }

    /// Everybody, for the first look.
    pub fn subjects(&self) -> BTreeSet<Subject> {
        let of = |kind| move |key: &Key| Subject::new(kind, key.clone());
        self.machines
            .keys()
            .map(of(Kind::Machine))
            .chain(self.instances.keys().map(of(Kind::Instance)))
            .chain(self.sets.keys().map(of(Kind::ReplicaSet)))
            .chain(self.migrations.keys().map(of(Kind::Migration)))
            .collect()
    }

    fn unlink_instance(&mut self, before: &Instance, key: &Key) {
        if let Some(owner) = &before.owner {
            unlink(&mut self.instances_of, &owner.uid, key);
        }
        unlink(&mut self.instances_on, &before.node, key);
    }

    fn touch_owned(&self, owner: &Uid, touched: &mut BTreeSet<Subject>) {
        let theirs = self.instances_of.get(owner).into_iter().flatten();
        touched.extend(theirs.map(|key| Subject::new(Kind::Instance, key.clone())));
    }

    fn touch_around_instance(&self, key: &Key, touched: &mut BTreeSet<Subject>) {
        touched.insert(Subject::new(Kind::Instance, key.clone()));
        if self.machines.contains_key(key) {
            touched.insert(Subject::new(Kind::Machine, key.clone()));
        }
        for migration in self.migrations_of.get(key).into_iter().flatten() {
            touched.insert(Subject::new(Kind::Migration, migration.clone()));
        }
        let owner = self.instances.get(key).and_then(|instance| instance.owner.as_ref());
        match owner {
            Some(owner) if owner.kind == "VirtualMachineInstanceReplicaSet" => {
                let set = Key::new(key.namespace.clone(), owner.name.clone());
                touched.insert(Subject::new(Kind::ReplicaSet, set));
            }
            Some(_) => {}
            // An instance nobody owns may be one a set wants to adopt.
            None => touched.extend(
                self.sets
                    .keys()
                    .filter(|set| set.namespace == key.namespace)
                    .map(|set| Subject::new(Kind::ReplicaSet, set.clone())),
            ),
        }
    }

    /// One that finds no place for its target gives way when others wait.
    fn touch_scheduling(&self, touched: &mut BTreeSet<Subject>) {
        let scheduling = self.unfinished().filter(|one| one.phase == MigrationPhase::Scheduling);
        touched.extend(scheduling.map(|one| Subject::new(Kind::Migration, one.key.clone())));
    }

    /// Whether something has happened since the last time for which [`super::line::called`] has to be asked: a slot was taken or became free, or
    /// there are more or fewer of them.
    pub fn take_line_moved(&mut self) -> bool {
        std::mem::take(&mut self.line_moved)
    }
}

/// Removes a member, and a set that has none left.
fn unlink<K: Ord>(sets: &mut BTreeMap<K, BTreeSet<Key>>, of: &K, member: &Key) {
    if let Some(members) = sets.get_mut(of) {
        members.remove(member);
        if members.is_empty() {
            sets.remove(of);
        }
    }
}

fn left_out<T>(
    known: &BTreeMap<Key, T>,
    listed: &BTreeSet<Uid>,
    identity: impl Fn(&T) -> (&Key, &Uid),
    gone: impl Fn(Key, Uid) -> Seen,
) -> Vec<Seen> {
    known
        .values()
        .map(identity)
        .filter(|(_, uid)| !listed.contains(uid))
        .map(|(key, uid)| gone(key.clone(), uid.clone()))
        .collect()
}

fn host_name(seen: &Seen) -> Option<&str> {
    match seen {
        Seen::Host(host) => Some(&host.name),
        _ => None,
    }
}

fn uid_of(seen: &Seen) -> Option<Uid> {
    Some(match seen {
        Seen::Machine(object) => object.uid.clone(),
        Seen::Instance(object) => object.uid.clone(),
        Seen::ReplicaSet(object) => object.uid.clone(),
        Seen::Migration(object) => object.uid.clone(),
        Seen::Launcher(object) => object.uid.clone(),
        Seen::Guard(object) => object.uid.clone(),
        _ => return None,
    })
}

#[cfg(test)]
mod touch_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::fact::Phase;
    use crate::machines::testing::{instance, launcher};

    #[test]
    fn an_answer_that_arrives_after_the_end_does_not_bring_the_object_back() {
        let mut machines = Machines::default();
        let seen = instance("a", Phase::Running);
        machines.apply(Seen::Instance(Box::new(seen.clone())));
        machines.apply(Seen::InstanceGone(seen.key.clone(), seen.uid.clone()));
        machines.apply(Seen::Instance(Box::new(seen.clone())));
        assert!(machines.instance(&seen.key).is_none());
    }

    #[test]
    fn an_older_version_does_not_replace_a_newer_one() {
        let mut machines = Machines::default();
        let mut new = instance("a", Phase::Running);
        new.version = "10".into();
        let mut old = instance("a", Phase::Pending);
        old.version = "9".into();
        machines.apply(Seen::Instance(Box::new(new.clone())));
        assert!(machines.apply(Seen::Instance(Box::new(old))).is_empty());
        assert_eq!(machines.instance(&new.key), Some(&new));
    }

    #[test]
    fn a_list_from_a_restored_backup_is_the_truth() {
        let mut machines = Machines::default();
        let with = |version: &str, phase| {
            let mut vmi = instance("a", phase);
            vmi.version = version.into();
            vmi
        };
        machines.apply(Seen::Instance(Box::new(with("900", Phase::Succeeded))));
        let touched =
            machines.reset(Kind::Instance, vec![Seen::Instance(Box::new(with("50", Phase::Running)))]);
        let key = with("50", Phase::Running).key;
        assert_eq!(machines.instance(&key), Some(&with("50", Phase::Running)));
        assert!(touched.contains(&Subject::new(Kind::Instance, key.clone())));
        assert!(machines.instances_on("n1").any(|vmi| vmi.key == key), "it can be found by its node");
        machines.apply(Seen::Instance(Box::new(with("51", Phase::Succeeded))));
        assert_eq!(machines.instance(&key), Some(&with("51", Phase::Succeeded)), "events go on from there");
    }

    #[test]
    fn a_backup_brings_back_what_was_deleted_after_it() {
        let mut machines = Machines::default();
        let seen = instance("a", Phase::Running);
        machines.apply(Seen::Instance(Box::new(seen.clone())));
        machines.apply(Seen::InstanceGone(seen.key.clone(), seen.uid.clone()));
        machines.reset(Kind::Instance, vec![Seen::Instance(Box::new(seen.clone()))]);
        assert_eq!(machines.instance(&seen.key), Some(&seen));
    }

    #[test]
    fn the_ledger_of_a_list_is_the_truth_and_of_an_event_only_if_it_is_newer() {
        let ledger = |version: &str| Ledger { version: version.into(), ..Ledger::default() };
        let mut machines = Machines::default();
        machines.enter(ledger("900"));
        machines.enter(ledger("50"));
        assert_eq!((machines.ledger(), machines.rewinds()), (&ledger("900"), 0));
        machines.reset_ledger(ledger("50"));
        assert_eq!((machines.ledger(), machines.rewinds()), (&ledger("50"), 1));
        machines.reset_ledger(ledger("60"));
        assert_eq!((machines.ledger(), machines.rewinds()), (&ledger("60"), 1));
    }

    #[test]
    fn a_list_without_a_known_object_means_that_it_is_gone() {
        let mut machines = Machines::default();
        let vmi = instance("a", Phase::Running);
        let pod = launcher(&vmi, "n1");
        machines.apply(Seen::Instance(Box::new(vmi.clone())));
        machines.apply(Seen::Launcher(Box::new(pod)));
        let touched = machines.reset(Kind::Pod, Vec::new());
        assert!(machines.launchers_of(&vmi.uid).is_empty());
        assert!(touched.contains(&Subject::new(Kind::Instance, vmi.key)));
    }
}
