//! KubeVirt's objects become facts.

use std::collections::BTreeSet;

use evac_core::cluster::fact::{
    Fact, Instance, Key, Machine, MachineStatus, Migration, MigrationPhase, MigrationState, Phase,
    PhaseTimes, Power, ReplicaSet, ReplicaSetStatus, RunStrategy, StartFailure, Uid,
};
use evac_core::cluster::instance;
use evac_core::cluster::text::Texts;
use evac_core::machines::{Kind, condition, names};
use evac_core::tenants::member;

use super::wire;
use crate::project::{Project, controller, key, texts};
use crate::tenants;
use crate::wire::{Budget, Meta, Node, Pod};

/// An object of a kind that the controllers of virtual machines follow.
pub trait Follow: Project {
    const KIND: Kind;

    /// Whether it has to do with machines at all.
    fn concerns_us(&self) -> bool {
        true
    }
}

fn times(list: Vec<wire::PhaseTime>) -> PhaseTimes {
    list.into_iter().map(|time| (time.phase.into(), time.phase_transition_timestamp.into())).collect()
}

impl From<wire::VirtualMachine> for Machine {
    fn from(vm: wire::VirtualMachine) -> Self {
        let strategy = vm.spec.run_strategy.as_deref();
        let tenant_cordoned = tenants::cordoned(&vm.metadata.annotations);
        let power = match (vm.spec.running, strategy.map(RunStrategy::of)) {
            (Some(running), None) => Power::Running(running),
            (None, Some(Some(strategy))) => Power::Strategy(strategy),
            _ => Power::Unclear,
        };
        let status = vm.status;
        Self {
            key: key(&vm.metadata),
            uid: Uid::from(vm.metadata.uid),
            version: vm.metadata.resource_version.into(),
            created: vm.metadata.creation_timestamp,
            deleting: vm.metadata.deletion_timestamp.is_some(),
            orphaning: vm.metadata.finalizers.iter().any(|name| name == "orphan"),
            finalizers: texts(vm.metadata.finalizers),
            power,
            status: MachineStatus {
                created: status.created,
                ready: status.ready,
                printable: status.printable_status,
                strategy: status.run_strategy,
                requests: status.state_change_requests,
                start_failure: status.start_failure.map(|failure| StartFailure {
                    count: failure.consecutive_fail_count,
                    last_uid: failure.last_failed_vmi_uid,
                    retry_after: failure.retry_after_timestamp,
                }),
                conditions: status.conditions,
            },
            template_strategy: vm.spec.template.spec.eviction_strategy,
            tenant_cordoned,
        }
    }
}

impl Follow for wire::VirtualMachine {
    const KIND: Kind = Kind::Machine;
}

impl Project for wire::VirtualMachine {
    fn metadata(&self) -> &Meta {
        &self.metadata
    }

    fn seen(self) -> Fact {
        Fact::Machine(Box::new(self.into()))
    }
}

impl From<wire::MigrationState> for MigrationState {
    fn from(state: wire::MigrationState) -> Self {
        Self {
            uid: state.migration_uid,
            source_node: state.source_node,
            source_pod: state.source_pod,
            target_node: state.target_node,
            target_pod: state.target_pod,
            target_address: state.target_node_address,
            started: state.start_timestamp.is_some(),
            ended: state.end_timestamp.is_some(),
            start: state.start_timestamp.unwrap_or_default(),
            end: state.end_timestamp.unwrap_or_default(),
            completed: state.completed,
            failed: state.failed,
            abort_requested: state.abort_requested,
            failure_reason: state.failure_reason,
        }
    }
}

impl From<wire::VirtualMachineInstance> for Instance {
    fn from(vmi: wire::VirtualMachineInstance) -> Self {
        let status = vmi.status;
        let has = |kind: &str| condition::find(&status.conditions, kind).is_some();
        let hotplug_change = has("HotVCPUChange")
            || condition::is_true(&status.conditions, "HotMemoryChange")
            || condition::is_true(&status.conditions, "MigrationRequired");
        let cpu = vmi.spec.domain.cpu.as_ref();
        let cpu_model = cpu.and_then(|cpu| cpu.model.as_deref()).unwrap_or_default().into();
        let eviction_source = vmi.metadata.annotations.get(names::EVICTION_SOURCE).map(Into::into);
        let tenant = tenants::marks(&vmi.metadata.annotations).map(Box::new);
        // They tell machines of tenant clusters apart; of other guests nothing asks for them.
        let is_machine = member::LABELS.iter().all(|label| vmi.metadata.labels.contains_key(*label));
        let addresses = if is_machine { addresses(&status.interfaces) } else { Texts::default() };
        let key = key(&vmi.metadata);
        let common = instance::Common {
            finalizers: texts(vmi.metadata.finalizers),
            eviction_strategy: vmi.spec.eviction_strategy.map(Into::into),
            grace_seconds: vmi.spec.termination_grace_period_seconds,
            evacuation_node: Some(status.evacuation_node_name)
                .filter(|node| !node.is_empty())
                .map(Into::into),
            hotplug_change,
            memory: memory(&vmi.spec.domain, status.memory.as_ref()),
            cpu_model,
            names_nodes: vmi.spec.node_selector || vmi.spec.affinity.node_affinity.is_some(),
            eviction_source,
            addresses,
            backup: status.changed_block_tracking.backup_status.under_way().map(Into::into),
            tenant,
        };
        let launchers = status.active_pods.into_iter();
        Self {
            key,
            uid: Uid::from(vmi.metadata.uid),
            version: vmi.metadata.resource_version.into(),
            deleting: vmi.metadata.deletion_timestamp.is_some(),
            owner: controller(&vmi.metadata.owner_references),
            labels: vmi.metadata.labels.into(),
            phase: Phase::of(&status.phase),
            phase_times: times(status.phase_transition_timestamps),
            node: status.node_name.into(),
            conditions: status.conditions,
            active_pods: launchers.map(|(pod, node)| (pod.into(), node.into())).collect(),
            migration: status.migration_state.map(|state| Box::new(state.into())),
            common: common.into(),
        }
    }
}

fn addresses(interfaces: &[wire::Interface]) -> Texts {
    let all = interfaces.iter().flat_map(|one| one.ip_addresses.iter().chain([&one.ip_address]));
    let all: BTreeSet<&String> = all.filter(|address| !address.is_empty()).collect();
    all.into_iter().map(Into::into).collect()
}

/// What the guest has now, else what it asked for.
fn memory(domain: &wire::Domain, status: Option<&wire::MemoryStatus>) -> u64 {
    let now = status.and_then(|memory| memory.guest_current.as_ref());
    let guest = domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let requested = domain.resources.requests.get("memory");
    now.or(guest).or(requested).and_then(wire::Quantity::bytes).unwrap_or(0)
}

impl Follow for wire::VirtualMachineInstance {
    const KIND: Kind = Kind::Instance;
}

impl Project for wire::VirtualMachineInstance {
    fn metadata(&self) -> &Meta {
        &self.metadata
    }

    fn seen(self) -> Fact {
        Fact::Instance(Box::new(self.into()))
    }
}

impl Follow for Node {
    const KIND: Kind = Kind::Node;
}

impl Follow for Pod {
    const KIND: Kind = Kind::Pod;
}

impl Follow for Budget {
    const KIND: Kind = Kind::Budget;

    fn concerns_us(&self) -> bool {
        controller(&self.metadata.owner_references)
            .is_some_and(|owner| owner.kind == "VirtualMachineInstance")
    }
}

impl From<wire::ReplicaSet> for ReplicaSet {
    fn from(set: wire::ReplicaSet) -> Self {
        let name = set.metadata.name.clone();
        let labels = set.spec.template.as_ref().map(|template| &template.metadata.labels);
        let parsed = set.spec.selector.as_ref().and_then(|selector| selector.selector().ok());
        // For the scale subresource.
        let selector_text = parsed.as_ref().map(ToString::to_string).unwrap_or_default();
        let selector = match (parsed, labels) {
            (Some(parsed), Some(labels)) if !labels.is_empty() && parsed.matches(labels) => Some(parsed),
            _ => None,
        };
        let prefix = set
            .spec
            .template
            .as_ref()
            .map(|template| &template.metadata)
            .map(|meta| if meta.name.is_empty() { &meta.generate_name } else { &meta.name })
            .filter(|prefix| !prefix.is_empty())
            .cloned()
            .unwrap_or(name);
        Self {
            key: key(&set.metadata),
            uid: Uid::from(set.metadata.uid),
            version: set.metadata.resource_version.into(),
            deleting: set.metadata.deletion_timestamp.is_some(),
            replicas: set.spec.replicas.unwrap_or(1),
            paused: set.spec.paused,
            selector_text,
            selector,
            prefix,
            status: ReplicaSetStatus {
                replicas: set.status.replicas,
                ready: set.status.ready_replicas,
                selector: set.status.label_selector,
                conditions: set.status.conditions,
            },
        }
    }
}

impl Follow for wire::ReplicaSet {
    const KIND: Kind = Kind::ReplicaSet;
}

impl Project for wire::ReplicaSet {
    fn metadata(&self) -> &Meta {
        &self.metadata
    }

    fn seen(self) -> Fact {
        Fact::ReplicaSet(Box::new(self.into()))
    }
}

/// The annotations of a migration that decisions look at.
pub(crate) const STEERING: &[&str] = &[
    names::EVACUATION_MIGRATION,
    names::WORKLOAD_UPDATE_MIGRATION,
    names::UNSCHEDULABLE_TIMEOUT,
    names::PENDING_TIMEOUT,
    names::IGNORE_BACKOFF,
    names::DRAIN,
];

impl From<wire::Migration> for Migration {
    fn from(migration: wire::Migration) -> Self {
        let meta = migration.metadata;
        let mut annotations = meta.annotations.clone();
        annotations.retain(|name, _| STEERING.contains(&name.as_str()));
        let state = migration.status.migration_state.clone().unwrap_or_default();
        Self {
            key: key(&meta),
            instance: Key::new(meta.namespace.clone(), migration.spec.vmi_name.clone()),
            uid: Uid::from(meta.uid),
            version: meta.resource_version.into(),
            created: meta.creation_timestamp,
            deleting: meta.deletion_timestamp.is_some(),
            labelled: meta.labels.get(names::MIGRATION_SELECTOR) == Some(&migration.spec.vmi_name),
            finalizers: texts(meta.finalizers),
            annotations,
            priority: migration.spec.priority,
            phase: MigrationPhase::of(&migration.status.phase),
            phase_times: times(migration.status.phase_transition_timestamps),
            conditions: migration.status.conditions,
            state_recorded: migration.status.migration_state.is_some(),
            target_node: state.target_node,
            failure_reason: state.failure_reason,
        }
    }
}

impl Follow for wire::Migration {
    const KIND: Kind = Kind::Migration;
}

impl Project for wire::Migration {
    fn metadata(&self) -> &Meta {
        &self.metadata
    }

    fn seen(self) -> Fact {
        Fact::Migration(Box::new(self.into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_with_both_ways_to_run_is_unclear() {
        let power = |spec: serde_json::Value| {
            let vm: wire::VirtualMachine = serde_json::from_value(json!({"spec": spec})).unwrap();
            Machine::from(vm).power
        };
        assert_eq!(power(json!({"running": true})), Power::Running(true));
        assert_eq!(power(json!({"runStrategy": "Manual"})), Power::Strategy(RunStrategy::Manual));
        assert_eq!(power(json!({"runStrategy": "manual"})), Power::Unclear);
        assert_eq!(power(json!({"runStrategy": "Manual", "running": false})), Power::Unclear);
    }

    #[test]
    fn a_set_whose_selector_misses_its_own_template_is_ignored() {
        let set = |labels: serde_json::Value| {
            let set: wire::ReplicaSet = serde_json::from_value(json!({
                "metadata": {"name": "web"},
                "spec": {
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": labels}},
                }
            }))
            .unwrap();
            ReplicaSet::from(set)
        };
        assert!(set(json!({"app": "web", "more": "x"})).selector.is_some());
        assert!(set(json!({"app": "other"})).selector.is_none());
        assert!(set(json!({})).selector.is_none());
        assert_eq!(set(json!({})).replicas, 1);
        assert_eq!(set(json!({})).prefix, "web");
    }
}
