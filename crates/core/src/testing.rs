//! Chained builders for the facts that tests need.

use jiff::{SignedDuration, Timestamp};

use crate::cluster::fact::{
    Budget, Deletion, Health, Key, Launcher, Node, Owner, Pod, PodPhase, Taint, Uid, UnhealthyPolicy, VmRole,
};
use crate::cluster::index::{Index, ListedAt};
use crate::cluster::life::Life;
use crate::cluster::selector::Selector;
use crate::cluster::text_map::TextMap;

/// Seconds after the beginning of all tests.
pub fn at(seconds: i64) -> Timestamp {
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    epoch.checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

pub fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        uid: Uid(format!("uid-{name}").into()),
        resource_version: "1".into(),
        unschedulable: false,
        taints: Vec::new(),
        labels: TextMap::new(),
        health: Health::Ready,
        health_since: None,
        mark: None,
        deleting: false,
        life: Life::default(),
    }
}

pub fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.into(), value: None, effect: effect.into(), time_added: None }
}

/// A running, ready pod of a ReplicaSet in namespace `default` on node `n`.
pub fn pod(name: &str) -> Pod {
    Pod {
        key: Key::new("default", name),
        uid: Uid(format!("uid-{name}").into()),
        version: "1".into(),
        node: Some("n".into()),
        phase: PodPhase::Running,
        ready: true,
        deletion: None,
        controller: None,
        mirror: false,
        empty_dir: false,
        labels: TextMap::new(),
        finalizers: Vec::new(),
        vm: VmRole::None,
        priority_class: None,
        grace_seconds: Some(30),
        created: None,
    }
    .owned_by("ReplicaSet", "apps/v1", "web")
}

impl Pod {
    /// Runs the guest of an instance.
    pub fn running(mut self, instance: &str, uid: &str) -> Self {
        self.vm = VmRole::Launcher(Box::new(Launcher {
            instance: Uid(uid.into()),
            instance_name: Some(instance.into()),
            up: true,
            ..Launcher::default()
        }));
        self
    }

    pub fn on(mut self, node: &str) -> Self {
        self.node = Some(node.into());
        self
    }

    pub fn uid(mut self, uid: &str) -> Self {
        self.uid = Uid(uid.into());
        self
    }

    pub fn owned_by(mut self, kind: &str, api_version: &str, name: &str) -> Self {
        self.controller = Some(Owner {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: Uid(format!("uid-{name}").into()),
        });
        self
    }

    pub fn bare(mut self) -> Self {
        self.controller = None;
        self
    }

    pub fn with_empty_dir(mut self) -> Self {
        self.empty_dir = true;
        self
    }

    pub fn in_phase(mut self, phase: PodPhase) -> Self {
        self.phase = phase;
        self
    }

    pub fn labelled(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    pub fn deleting(mut self, ends: i64, grace_seconds: i64) -> Self {
        self.deletion = Some(Deletion { ends: at(ends), grace_seconds });
        self
    }
}

/// A budget over `app=<name>` that allows nothing and needs 2 of 3.
pub fn budget(name: &str) -> Budget {
    Budget {
        key: Key::new("default", name),
        uid: Uid(format!("uid-{name}").into()),
        version: "1".into(),
        deleting: false,
        controller: None,
        selector: Selector::from_labels([("app", name)]),
        min_available: None,
        max_unavailable: None,
        unhealthy: UnhealthyPolicy::IfHealthyBudget,
        generation: 1,
        observed_generation: 1,
        allowed: 0,
        current_healthy: 2,
        desired_healthy: 2,
        expected: 3,
        disrupted: std::collections::BTreeMap::new(),
        sync_failed: None,
    }
}

impl Budget {
    pub fn allowing(mut self, allowed: i32) -> Self {
        self.allowed = allowed;
        self.current_healthy = self.desired_healthy + allowed;
        self
    }
}

/// An index with node `n`, these pods, and these budgets, in a cluster without virtual machines.
pub fn index(pods: Vec<Pod>, budgets: Vec<Budget>) -> Index {
    let mut index = Index::new();
    index.reset_nodes(vec![node("n")], &ListedAt::default());
    for pod in pods {
        index.apply(crate::cluster::fact::Fact::Pod(Box::new(pod)));
    }
    index.reset_budgets(budgets, &ListedAt::default());
    index.set_vm_visibility(crate::cluster::index::VmVisibility::NotInstalled);
    index
}
