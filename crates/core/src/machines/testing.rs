//! Short ways to say what a test is about.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::condition::Condition;
use super::guard::MIN_AVAILABLE;
use super::{Action, Decision, Kind, Part, Tree, names};
use crate::cluster::fact::Fact;
use crate::cluster::fact::{Amount, Budget, Key, Launcher, Owner, PodPhase, Uid, VmRole};
use crate::cluster::fact::{
    Instance, Machine, MachineStatus, Migration, MigrationPhase, Phase, Pod, Power, ReplicaSet,
    ReplicaSetStatus, RunStrategy,
};
use crate::cluster::index::Index;
use crate::cluster::selector::Selector;
use crate::cluster::text_map::TextMap;

pub fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

pub fn later(seconds: i64) -> Timestamp {
    now().checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap()
}

pub fn instance(name: &str, phase: Phase) -> Instance {
    let times = match phase {
        Phase::Running => vec![("Running".into(), "2026-01-01T00:00:00Z".into())],
        _ => Vec::new(),
    };
    Instance {
        key: Key::new("default", name),
        uid: Uid(format!("uid-{name}").into()),
        version: "1".into(),
        created: Some(now()),
        deleting: false,
        labels: TextMap::new(),
        finalizers: vec![names::INSTANCE_FINALIZER.into()],
        owner: None,
        phase,
        phase_times: times,
        node: if phase.is_handed_over() || phase.is_final() { "n1".into() } else { "".into() },
        conditions: Vec::new(),
        active_pods: TextMap::new(),
        eviction_strategy: Some("None".into()),
        grace_seconds: None,
        evacuation_node: None,
        migration: None,
        hotplug_change: false,
        memory: 1 << 30,
        cpu_model: "".into(),
        names_nodes: false,
        eviction_source: None,
        addresses: Vec::new(),
        tenant: None,
    }
}

pub fn owned(mut instance: Instance, kind: &str, name: &str) -> Instance {
    instance.owner = Some(Owner {
        api_version: "kubevirt.io/v1".into(),
        kind: kind.into(),
        name: name.into(),
        uid: Uid(format!("uid-{name}").into()),
    });
    instance
}

pub fn launcher(of: &Instance, node: &str) -> Pod {
    let name = names::launcher(&of.key.name, &of.uid.0, None);
    Pod {
        uid: Uid(format!("uid-{name}").into()),
        key: Key::new("default", name),
        version: "1".into(),
        created: Some(now()),
        node: (!node.is_empty()).then(|| node.into()),
        phase: if node.is_empty() { PodPhase::Pending } else { PodPhase::Running },
        ready: !node.is_empty(),
        vm: VmRole::Launcher(Box::new(Launcher {
            instance: of.uid.clone(),
            instance_name: Some(of.key.name.clone()),
            job: None,
            up: !node.is_empty(),
            conditions: vec![
                Condition::new("Ready", !node.is_empty(), "", ""),
                Condition::new(names::UNPAUSED_GATE, true, "NotPaused", "the virtual machine is not paused"),
            ],
            eviction_marked: false,
        })),
        ..crate::testing::pod("any").bare()
    }
}

impl Pod {
    /// What it says of its guest.
    pub fn guest(&mut self) -> &mut Launcher {
        match &mut self.vm {
            VmRole::Launcher(launcher) => launcher,
            other => panic!("no launcher: {other:?}"),
        }
    }
}

pub fn target(of: &Instance, migration: &Migration, node: &str) -> Pod {
    let mut pod = launcher(of, node);
    pod.key.name = names::launcher(&of.key.name, &of.uid.0, Some(&migration.uid.0)).into();
    pod.uid = Uid(format!("uid-{}", pod.key.name).into());
    pod.guest().job = Some(migration.uid.clone());
    pod
}

/// A budget that protects the guest of an instance of this name and identity.
pub fn protection(name: &str, instance: &str, uid: &str) -> Budget {
    Budget {
        controller: Some(Owner {
            api_version: "kubevirt.io/v1".into(),
            kind: "VirtualMachineInstance".into(),
            name: instance.into(),
            uid: Uid(uid.into()),
        }),
        selector: Selector::from_labels([(names::CREATED_BY, uid)]),
        min_available: Some(Amount::Count(MIN_AVAILABLE)),
        ..crate::testing::budget(name)
    }
}

pub fn machine(name: &str, strategy: RunStrategy) -> Machine {
    Machine {
        key: Key::new("default", name),
        uid: Uid(format!("vm-{name}").into()),
        version: "1".into(),
        created: Some(now()),
        deleting: false,
        orphaning: false,
        finalizers: vec![names::MACHINE_FINALIZER.into()],
        power: Power::Strategy(strategy),
        status: MachineStatus::default(),
        template_strategy: None,
        tenant_cordoned: None,
    }
}

/// The instance of a machine.
pub fn boot(of: &Machine, phase: Phase) -> Instance {
    let mut vmi = instance(&of.key.name, phase);
    vmi.finalizers.push(names::MACHINE_FINALIZER.into());
    vmi.owner = Some(Owner {
        api_version: "kubevirt.io/v1".into(),
        kind: "VirtualMachine".into(),
        name: of.key.name.clone(),
        uid: of.uid.clone(),
    });
    vmi
}

pub fn set(name: &str, replicas: i64) -> ReplicaSet {
    ReplicaSet {
        key: Key::new("default", name),
        uid: Uid(format!("uid-{name}").into()),
        version: "1".into(),
        deleting: false,
        replicas,
        paused: false,
        selector: Some(Selector::from_labels([("app", name)])),
        selector_text: format!("app={name}"),
        prefix: name.into(),
        status: ReplicaSetStatus { selector: format!("app={name}"), ..ReplicaSetStatus::default() },
    }
}

pub fn migration(name: &str, of: &Instance, phase: MigrationPhase) -> Migration {
    Migration {
        key: Key::new("default", name),
        uid: Uid(format!("uid-{name}").into()),
        version: "1".into(),
        created: Some(now()),
        deleting: false,
        finalizers: vec![names::MIGRATION_FINALIZER.into()],
        labelled: true,
        annotations: BTreeMap::new(),
        instance: of.key.clone(),
        priority: String::new(),
        phase,
        phase_times: Vec::new(),
        conditions: Vec::new(),
        state_recorded: false,
        target_node: String::new(),
        failure_reason: String::new(),
    }
}

pub trait Known {
    fn known(self) -> Fact;
}
impl Known for &Instance {
    fn known(self) -> Fact {
        Fact::Instance(Box::new(self.clone()))
    }
}
impl Known for &Pod {
    fn known(self) -> Fact {
        Fact::Pod(Box::new(self.clone()))
    }
}
impl Known for &Machine {
    fn known(self) -> Fact {
        Fact::Machine(Box::new(self.clone()))
    }
}
impl Known for &ReplicaSet {
    fn known(self) -> Fact {
        Fact::ReplicaSet(Box::new(self.clone()))
    }
}
impl Known for &Migration {
    fn known(self) -> Fact {
        Fact::Migration(Box::new(self.clone()))
    }
}

pub fn view(seen: impl IntoIterator<Item = Fact>) -> Index {
    let mut index = Index::new();
    for one in seen {
        index.apply(one);
    }
    index
}

/// The fields patched on objects of a kind, one tree per patch.
pub fn patches(decision: &Decision, wanted: Kind) -> Vec<&Tree> {
    let of = |action| match action {
        Action::Patch { object, fields, .. } if object.kind == wanted => Some(fields),
        _ => None,
    };
    decision.actions.iter().filter_map(of).collect()
}

pub fn part_of(decision: &Decision, wanted: Kind) -> Option<Part> {
    decision.actions.iter().find_map(|action| match action {
        Action::Patch { object, part, .. } if object.kind == wanted => Some(*part),
        _ => None,
    })
}

pub fn text<'a>(tree: &'a Tree, path: &[&str]) -> Option<&'a str> {
    tree.get(path).and_then(Tree::as_text)
}

pub fn deletes(decision: &Decision, wanted: Kind) -> Vec<String> {
    let of = |action: &Action| match action {
        Action::Delete { object, .. } if object.kind == wanted => Some(object.key.name.to_string()),
        _ => None,
    };
    decision.actions.iter().filter_map(of).collect()
}

pub fn events(decision: &Decision) -> Vec<&'static str> {
    decision.events.iter().map(|event| event.reason).collect()
}
