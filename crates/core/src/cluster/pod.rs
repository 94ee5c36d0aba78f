//! A pod, and what there is to know of one that runs a guest.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::condition::{self, Condition};
use super::key::{Key, Owner, Uid};
use super::table::object;
use super::text::{Text, Texts};
use super::text_map::TextMap;
use super::version::Version;

/// How far the life of a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PodPhase {
    /// It is not bound to a node yet, or its containers are not all made.
    Pending,
    /// At least one container runs or is about to.
    Running,
    /// All containers have ended in good order and stay that way.
    Succeeded,
    /// All containers have ended, at least one with an error.
    Failed,
    /// The node did not tell.
    Unknown,
}

impl PodPhase {
    /// Its containers have ended and are not started again.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// A deletion that was asked for. The API's timestamp lies at the end of the grace period, so both are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deletion {
    /// `metadata.deletionTimestamp`: when the grace period is over.
    pub ends: Timestamp,
    /// `metadata.deletionGracePeriodSeconds`.
    pub grace_seconds: i64,
}

impl Deletion {
    /// When the deletion was asked for.
    pub fn requested(&self) -> Timestamp {
        self.ends.checked_sub(jiff::SignedDuration::from_secs(self.grace_seconds)).unwrap_or(self.ends)
    }
}

/// What a pod has to do with virtual machines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum VmRole {
    /// Nothing.
    #[default]
    None,
    /// Runs the guest.
    Launcher(Box<Launcher>),
    /// Holds a volume that was plugged into a running guest; lives and dies with its launcher.
    Hotplug,
}

/// What a pod that runs a guest says of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Launcher {
    /// The instance it runs, by identity; empty if the pod does not say.
    pub instance: Uid,
    /// The same by name, if the pod says it.
    pub instance_name: Option<Text>,
    /// The migration it is the target of.
    pub job: Option<Uid>,
    /// The compute container is up, and every other one is ready.
    pub up: bool,
    /// Of `status.conditions` Ready, PodScheduled and the gate of paused guests.
    pub conditions: Vec<Condition>,
    /// An eviction of the pod was refused for the sake of its guest, and this is noted on it.
    pub eviction_marked: bool,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub key: Key,
    /// `metadata.uid`: evictions name it.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: Version,
    /// `spec.nodeName`; `None` until it is bound.
    pub node: Option<Text>,
    /// The owner reference with `controller: true`; `None` for a bare pod.
    pub controller: Option<Owner>,
    /// `metadata.labels`, by which budgets find it.
    pub labels: TextMap,
    /// What it has to do with virtual machines.
    pub vm: VmRole,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// What many pods have alike.
    pub common: Arc<Common>,
}

/// What many pods have alike, because it is written in what they are made from, or does not last.
#[allow(clippy::struct_excessive_bools, reason = "each is a property of its own")]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Common {
    /// `status.phase`.
    pub phase: PodPhase,
    /// Whether its condition Ready is true.
    pub ready: bool,
    /// Set once it is being deleted.
    pub deletion: Option<Deletion>,
    /// The kubelet made it from a file of its own; deleting it in the API ends nothing.
    pub mirror: bool,
    /// It has an `emptyDir` volume, whose data are lost with the pod.
    pub empty_dir: bool,
    /// `metadata.finalizers`: what holds it when its containers have ended.
    pub finalizers: Texts,
    /// `spec.priorityClassName`.
    pub priority_class: Option<Text>,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_seconds: Option<i64>,
}

impl Deref for Pod {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl DerefMut for Pod {
    fn deref_mut(&mut self) -> &mut Common {
        Arc::make_mut(&mut self.common)
    }
}

impl Pod {
    /// The part about the guest, if it runs one.
    pub fn launcher(&self) -> Option<&Launcher> {
        match &self.vm {
            VmRole::Launcher(launcher) => Some(launcher),
            VmRole::None | VmRole::Hotplug => None,
        }
    }

    /// The name of the instance it runs, if it runs one and says so.
    pub fn instance_name(&self) -> Option<&str> {
        self.launcher()?.instance_name.as_deref()
    }

    /// The instance it runs, by name, if it runs one and says so.
    pub fn instance_key(&self) -> Option<Key> {
        self.instance_name().map(|name| Key::new(self.key.namespace.clone(), name))
    }

    /// The migration it is the target of.
    pub fn job(&self) -> Option<&Uid> {
        self.launcher()?.job.as_ref()
    }

    /// The guest's container is up, and every other one is ready.
    pub fn is_up(&self) -> bool {
        self.launcher().is_some_and(|launcher| launcher.up)
    }

    /// That an eviction of it was refused for the sake of its guest is noted on it.
    pub fn is_marked_for_eviction(&self) -> bool {
        self.launcher().is_some_and(|launcher| launcher.eviction_marked)
    }

    /// The conditions of a pod that runs a guest; they are not kept of others.
    pub fn launcher_conditions(&self) -> &[Condition] {
        self.launcher().map(|launcher| launcher.conditions.as_slice()).unwrap_or_default()
    }

    /// The scheduler finds no node for it.
    pub fn is_unschedulable(&self) -> bool {
        condition::find(self.launcher_conditions(), "PodScheduled").is_some_and(|scheduled| {
            scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable")
        })
    }

    /// The node it is on; empty before it has one.
    pub fn node_name(&self) -> &str {
        self.node.as_deref().unwrap_or_default()
    }

    /// Its containers have ended and are not started again.
    pub fn is_finished(&self) -> bool {
        self.phase.is_finished()
    }

    /// Its deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.deletion.is_some()
    }

    /// The DaemonSet that it belongs to.
    pub fn daemon_set(&self) -> Option<Key> {
        let owner = self.controller.as_ref()?;
        (owner.kind == "DaemonSet" && owner.api_version == "apps/v1")
            .then(|| Key::new(self.key.namespace.clone(), owner.name.clone()))
    }

    /// Pods that keep the cluster itself working: they should leave after the pods that may need them.
    pub fn is_critical(&self) -> bool {
        self.priority_class.as_deref().is_some_and(|class| class.starts_with("system-"))
            || self.labels.get("app.kubernetes.io/part-of").is_some_and(|part| part == "kubevirt")
            || self.labels.get("kubevirt.io").is_some_and(|part| {
                matches!(part.as_str(), "virt-api" | "virt-controller" | "virt-handler" | "virt-operator")
            })
    }
}

object!(Pod, Key, key, version);
