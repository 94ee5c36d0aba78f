//! A snapshot becomes the index that decisions are made on, as if its objects had just been listed.

use std::collections::BTreeMap;
use std::io::Read;

use evac_core::cluster::fact::Existence;
use evac_core::cluster::index::ListedAt;
use evac_core::cluster::place::Places;
use evac_core::cluster::pool::Pool;
use evac_core::machines::Kind;
use evac_core::{Fact, Index, Key, Pod, VmVisibility};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::file::{Line, SnapshotError, SnapshotReader};
use super::header::{Header, Reading};
use super::kinds::LEGACY_SETTINGS;
use crate::kubevirt::settings::{HyperConverged, Sources, upstream};
use crate::places::PlacesReader;
use crate::project::Project;
use crate::{kubevirt::wire as vms, places, wire};

/// A cluster as a snapshot has it.
#[derive(Debug)]
pub struct Loaded {
    pub header: Header,
    /// All nodes, pods, budgets, machines and leases, with the cluster's settings; without places.
    pub index: Index,
    nodes: Vec<places::Node>,
    pods: Vec<places::Pod>,
    quotas: Vec<Value>,
}

/// Reads a whole snapshot.
pub fn load(from: impl Read) -> Result<Loaded, SnapshotError> {
    let mut reader = SnapshotReader::open(from)?;
    let mut taken = Taken::default();
    while let Some(line) = reader.next_line()? {
        taken.take(&line)?;
    }
    Ok(taken.into_loaded(reader.header))
}

impl Loaded {
    /// What the nodes have to offer, and what the pods on the nodes `leaving` ask for, or on any: what a plan reads from a cluster besides
    /// the index.
    pub fn places(&self, leaving: Option<&[String]>) -> Places {
        let mut reader = PlacesReader::new(leaving);
        for node in &self.nodes {
            reader.node(node.clone());
        }
        for pod in &self.pods {
            reader.pod(pod.clone());
        }
        let mut found = reader.finish();
        places::keep_host_models(&mut found, &self.index, self.index.launchers());
        found
    }

    /// The quotas of namespaces, as objects of the API.
    pub fn quotas(&self) -> &[Value] {
        &self.quotas
    }
}

/// What was read so far.
#[derive(Default)]
struct Taken {
    pool: Pool,
    facts: BTreeMap<&'static str, Vec<Fact>>,
    nodes: Vec<places::Node>,
    pods: Vec<places::Pod>,
    quotas: Vec<Value>,
    daemon_sets: Vec<Key>,
    terminating: Vec<String>,
    kubevirts: Vec<vms::KubeVirt>,
    sources: Sources,
}

fn parsed<T: DeserializeOwned>(line: &Line<'_>) -> Result<T, SnapshotError> {
    let wrong =
        |error: serde_json::Error| SnapshotError::Damaged(format!("one of its {} {error}", line.kind.name));
    serde_json::from_slice(line.json).map_err(wrong)
}

impl Taken {
    fn fact<W: Project + DeserializeOwned>(&mut self, line: &Line<'_>) -> Result<(), SnapshotError> {
        let mut fact = parsed::<W>(line)?.seen();
        self.pool.share(&mut fact);
        self.facts.entry(line.kind.name).or_default().push(fact);
        Ok(())
    }

    fn take(&mut self, line: &Line<'_>) -> Result<(), SnapshotError> {
        match line.kind.name {
            "nodes" => {
                self.nodes.push(parsed(line)?);
                self.fact::<wire::Node>(line)?;
            }
            "pods" => {
                self.pods.push(parsed(line)?);
                self.fact::<wire::Pod>(line)?;
            }
            "poddisruptionbudgets" => self.fact::<wire::Budget>(line)?,
            "virtualmachines" => self.fact::<vms::VirtualMachine>(line)?,
            "virtualmachineinstances" => self.fact::<vms::VirtualMachineInstance>(line)?,
            "virtualmachineinstancemigrations" => self.fact::<vms::Migration>(line)?,
            "virtualmachineinstancereplicasets" => self.fact::<vms::ReplicaSet>(line)?,
            "claims of drains" | "leases of maintenances" => self.fact::<wire::Lease>(line)?,
            "daemonsets" => {
                let meta = parsed::<wire::Named>(line)?.metadata;
                self.daemon_sets.push(Key::new(meta.namespace, meta.name));
            }
            "namespaces" => {
                let meta = parsed::<wire::Named>(line)?.metadata;
                if meta.deletion_timestamp.is_some() {
                    self.terminating.push(meta.name);
                }
            }
            "resourcequotas" => self.quotas.push(parsed(line)?),
            "kubevirts" => self.kubevirts.push(parsed(line)?),
            "hyperconvergeds" => {
                self.sources.hyperconverged = HyperConverged::of(Some(&parsed::<Value>(line)?));
            }
            LEGACY_SETTINGS => {
                let map: vms::ConfigMap = parsed(line)?;
                let text = map.data.get("migrations");
                self.sources.legacy = text.and_then(|text| serde_json::from_str(text).ok());
            }
            _ => {}
        }
        Ok(())
    }

    fn into_loaded(mut self, header: Header) -> Loaded {
        self.sources.upstream = upstream(&self.kubevirts);
        self.sources.kubevirt = self.kubevirts.into_iter().next().map(|object| object.spec.configuration);
        self.sources.nodes = self.nodes.len();
        let mut index = Index::with(self.sources.config());
        let mut facts = |kind: &str| self.facts.remove(kind).unwrap_or_default();
        let at = |kind: &str| match header.reading(kind) {
            Some(Reading::Read { resource_version, .. }) => {
                Some(ListedAt { version: resource_version.clone(), rewound: false })
            }
            _ => None,
        };
        for (kind, name) in [
            (Kind::Node, "nodes"),
            (Kind::Budget, "poddisruptionbudgets"),
            (Kind::Machine, "virtualmachines"),
            (Kind::Instance, "virtualmachineinstances"),
            (Kind::Migration, "virtualmachineinstancemigrations"),
            (Kind::ReplicaSet, "virtualmachineinstancereplicasets"),
        ] {
            if let Some(at) = at(name) {
                index.reset(kind, facts(name), &at);
            }
        }
        for name in ["pods", "claims of drains", "leases of maintenances"] {
            for fact in facts(name) {
                index.apply(fact);
            }
        }
        for namespace in self.terminating {
            index.apply(Fact::NamespaceTerminating(namespace));
        }
        for (key, existence) in daemon_sets(&index, &header, &self.daemon_sets) {
            index.apply(Fact::DaemonSet(key, existence));
        }
        index.set_vm_visibility(visibility(&header));
        Loaded { header, index, nodes: self.nodes, pods: self.pods, quotas: self.quotas }
    }
}

/// Whether the DaemonSets are there that pods name as their owners.
fn daemon_sets(index: &Index, header: &Header, found: &[Key]) -> BTreeMap<Key, Existence> {
    let existence = |key: Key| {
        let existence = match header.reading("daemonsets") {
            _ if found.contains(&key) => Existence::Found,
            Some(Reading::Read { .. }) => {
                Existence::Gone(format!("daemonsets.apps \"{}\" not found", key.name))
            }
            Some(Reading::Unread { why }) => Existence::Unreadable(why.clone()),
            _ => Existence::Unreadable("DaemonSets are not in the snapshot".into()),
        };
        (key, existence)
    };
    index.pods().filter_map(Pod::daemon_set).map(existence).collect()
}

/// What can be seen of virtual machines: instances and migrations, or neither.
fn visibility(header: &Header) -> VmVisibility {
    let mut visible = VmVisibility::Readable;
    for kind in ["virtualmachineinstances", "virtualmachineinstancemigrations"] {
        match header.reading(kind) {
            Some(Reading::Read { .. }) => {}
            Some(Reading::NotServed) => visible = VmVisibility::NotInstalled,
            Some(Reading::Unread { why }) => return VmVisibility::Denied(why.clone()),
            Some(Reading::NotNeeded) | None => {
                return VmVisibility::Denied(format!("{kind} are not in the snapshot"));
            }
        }
    }
    visible
}
