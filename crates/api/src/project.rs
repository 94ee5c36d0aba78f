//! Objects become facts.

use evac_core::cluster::condition::{self, Condition};
use evac_core::cluster::fact::{Amount, Health, Launcher, UnhealthyPolicy};
use evac_core::cluster::life::{Fenced, FencedState, Life};
use evac_core::cluster::names;
use evac_core::cluster::pod;
use evac_core::cluster::selector::Selector;
use evac_core::cluster::text::{Text, Texts};
use evac_core::cluster::written_time::WrittenTime;
use evac_core::drain::ownership::{self, MarkState};
use evac_core::drain::record;
use evac_core::failover::fencing;
use evac_core::{Budget, Deletion, Fact, Key, Lease, Node, Owner, Pod, PodPhase, Uid, VmRole};

use jiff::Timestamp;

use crate::call;
use crate::wire::{self, IntOrString, Meta, OwnerReference};

/// An API object of which a fact can be made.
pub trait Project: Sized {
    fn metadata(&self) -> &Meta;
    fn seen(self) -> Fact;

    fn gone(self) -> Fact {
        self.seen().gone()
    }
}

/// What a namespaced object is called.
pub(crate) fn key(meta: &Meta) -> Key {
    Key::new(meta.namespace.clone(), meta.name.clone())
}

pub(crate) fn texts(list: Vec<String>) -> Texts {
    list.into_iter().map(Into::into).collect()
}

/// The owner that looks after an object.
pub(crate) fn controller(references: &[OwnerReference]) -> Option<Owner> {
    references.iter().find(|owner| owner.controller == Some(true)).map(|owner| Owner {
        api_version: owner.api_version.as_str().into(),
        kind: owner.kind.as_str().into(),
        name: owner.name.as_str().into(),
        uid: Uid::from(owner.uid.as_str()),
    })
}

/// The agent of virtual machines writes the time here.
pub(crate) const HEARTBEAT: &str = "kubevirt.io/heartbeat";
/// The kubelet notes here which file a pod was made of.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

impl From<wire::Node> for Node {
    fn from(node: wire::Node) -> Self {
        let wire::NodeStatus { conditions, node_info, volumes_attached } = node.status;
        let ready = conditions.iter().find(|condition| condition.kind == "Ready");
        let annotations = &node.metadata.annotations;
        let fenced = annotations.get(fencing::ANNOTATION).map(|text| {
            serde_json::from_str::<Fenced>(text).map_or_else(
                |_| FencedState::Unreadable(text.clone()),
                |record| FencedState::Valid(Box::new(record)),
            )
        });
        let life = Life {
            boot: Some(node_info.boot_id).filter(|boot| !boot.is_empty()),
            reported: ready.and_then(|ready| ready.last_heartbeat_time),
            heartbeat: annotations.get(HEARTBEAT).and_then(|text| text.parse().ok()),
            fenced,
            attached: volumes_attached.into_iter().map(|volume| volume.name).collect(),
        };
        let mark = node.metadata.annotations.get(ownership::ANNOTATION);
        let mark = mark.map(|text| MarkState::read(text, |text| serde_json::from_str(text).ok()));
        Self {
            name: node.metadata.name,
            uid: Uid::from(node.metadata.uid),
            resource_version: node.metadata.resource_version.into(),
            unschedulable: node.spec.unschedulable.unwrap_or(false),
            taints: node.spec.taints,
            labels: node.metadata.labels.into(),
            health: match ready.map(|ready| ready.status.as_str()) {
                None => Health::Silent,
                Some("True") => Health::Ready,
                Some("False") => Health::NotReady,
                Some(_) => Health::Unknown,
            },
            health_since: ready
                .and_then(|ready| ready.last_transition_time.as_ref())
                .and_then(WrittenTime::timestamp),
            mark,
            deleting: node.metadata.deletion_timestamp.is_some(),
            life,
        }
    }
}

impl Project for wire::Node {
    fn metadata(&self) -> &Meta {
        &self.metadata
    }

    fn seen(self) -> Fact {
        Fact::Node(Box::new(self.into()))
    }
}

impl From<wire::Pod> for Pod {
    fn from(pod: wire::Pod) -> Self {
        let meta = pod.metadata;
        let role = meta.labels.get(names::APP).map(String::as_str);
        let vm = if meta.name.starts_with("hp-volume-") || role == Some("hotplug-disk") {
            VmRole::Hotplug
        } else if role == Some("virt-launcher") {
            VmRole::Launcher(Box::new(launcher(&meta, &pod.status)))
        } else {
            VmRole::None
        };
        let phase = match pod.status.phase.as_deref() {
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some("Unknown") => PodPhase::Unknown,
            // The server fills in Pending; an object without a phase has not started either.
            Some(_) | None => PodPhase::Pending,
        };
        let common = pod::Common {
            phase,
            ready: condition::is_true(&pod.status.conditions, "Ready"),
            deletion: meta.deletion_timestamp.map(|ends| Deletion {
                ends,
                grace_seconds: meta.deletion_grace_period_seconds.unwrap_or(0),
            }),
            mirror: meta.annotations.contains_key(MIRROR),
            empty_dir: pod.spec.volumes.iter().any(|volume| volume.empty_dir.is_some()),
            finalizers: texts(meta.finalizers),
            priority_class: pod.spec.priority_class_name.map(Into::into),
            grace_seconds: pod.spec.termination_grace_period_seconds,
        };
        Self {
            vm,
            key: Key::new(meta.namespace, meta.name),
            controller: controller(&meta.owner_references),
            uid: Uid::from(meta.uid),
            version: meta.resource_version.into(),
            node: pod.spec.node_name.filter(|node| !node.is_empty()).map(Into::into),
            labels: meta.labels.into(),
            created: meta.creation_timestamp,
            common: common.into(),
        }
    }
}

/// What a launcher says of the guest it runs.
fn launcher(meta: &Meta, status: &wire::PodStatus) -> Launcher {
    let owner = controller(&meta.owner_references).filter(|owner| owner.kind == "VirtualMachineInstance");
    let label = |name: &str| meta.labels.get(name).map(Text::from);
    let named = meta.annotations.get(names::DOMAIN).map(Text::from).or_else(|| label(names::MACHINE_NAME));
    // The compute container counts as soon as it runs; everything beside it has to be ready.
    let up = !status.container_statuses.is_empty()
        && status.container_statuses.iter().all(|container| {
            container.ready
                || (matches!(container.name.as_str(), "compute" | "istio-proxy")
                    && container.state.running.is_some())
        });
    let relevant = |one: &&Condition| {
        matches!(one.kind.as_str(), "Ready" | "PodScheduled") || one.kind == names::UNPAUSED_GATE
    };
    Launcher {
        instance_name: named.or_else(|| owner.as_ref().map(|owner| owner.name.clone())),
        instance: label(names::CREATED_BY)
            .map(Uid::from)
            .or_else(|| owner.map(|owner| owner.uid))
            .unwrap_or_default(),
        job: label(names::MIGRATION_JOB_UID).map(Uid::from),
        up,
        conditions: status.conditions.iter().filter(relevant).cloned().collect(),
        eviction_marked: meta.annotations.contains_key(names::EVICTION_IN_PROGRESS),
    }
}

impl Project for wire::Pod {
    fn metadata(&self) -> &Meta {
        &self.metadata
    }

    fn seen(self) -> Fact {
        Fact::Pod(Box::new(self.into()))
    }
}

fn amount(value: IntOrString) -> Amount {
    match value {
        IntOrString::Int(count) => Amount::Count(count),
        IntOrString::String(text) => Amount::Percent(text),
    }
}

impl From<wire::Budget> for Budget {
    fn from(budget: wire::Budget) -> Self {
        // The eviction API ignores budgets whose selector does not parse.
        let selector = budget.spec.selector.and_then(|selector| selector.selector().ok());
        let sync_failed = condition::find(&budget.status.conditions, "DisruptionAllowed")
            .filter(|allowed| allowed.status == "False" && allowed.reason.as_deref() == Some("SyncFailed"))
            .map(|allowed| allowed.message.as_ref().map(String::from).unwrap_or_default());
        Self {
            key: key(&budget.metadata),
            controller: controller(&budget.metadata.owner_references),
            uid: Uid::from(budget.metadata.uid),
            version: budget.metadata.resource_version.into(),
            deleting: budget.metadata.deletion_timestamp.is_some(),
            selector: selector.unwrap_or_else(Selector::nothing),
            min_available: budget.spec.min_available.map(amount),
            max_unavailable: budget.spec.max_unavailable.map(amount),
            unhealthy: match budget.spec.unhealthy_pod_eviction_policy.as_deref() {
                Some("AlwaysAllow") => UnhealthyPolicy::AlwaysAllow,
                _ => UnhealthyPolicy::IfHealthyBudget,
            },
            generation: budget.metadata.generation,
            observed_generation: budget.status.observed_generation,
            allowed: budget.status.disruptions_allowed,
            current_healthy: budget.status.current_healthy,
            desired_healthy: budget.status.desired_healthy,
            expected: budget.status.expected_pods,
            disrupted: budget
                .status
                .disrupted_pods
                .into_iter()
                // A grant without a time is as old as can be: nobody waits for it any more.
                .map(|(pod, since)| (pod, since.unwrap_or(jiff::Timestamp::UNIX_EPOCH)))
                .collect(),
            sync_failed,
        }
    }
}

impl Project for wire::Budget {
    fn metadata(&self) -> &Meta {
        &self.metadata
    }

    fn seen(self) -> Fact {
        Fact::Budget(Box::new(self.into()))
    }
}

impl From<wire::Lease> for Lease {
    fn from(lease: wire::Lease) -> Self {
        // What is no time was not written by us and is no question.
        let time_in =
            |name: &str| lease.metadata.annotations.get(name).and_then(|text| text.parse::<Timestamp>().ok());
        Self {
            key: Key::new(lease.metadata.namespace, lease.metadata.name),
            uid: Uid::from(lease.metadata.uid),
            holder: lease.spec.holder_identity.unwrap_or_default(),
            renewed: lease.spec.renew_time,
            duration_seconds: lease.spec.lease_duration_seconds.unwrap_or(0),
            resource_version: lease.metadata.resource_version.into(),
            transitions: lease.spec.lease_transitions.unwrap_or(0),
            asked: time_in(call::ASKED_ANNOTATION),
            answered: time_in(call::ANSWERED_ANNOTATION),
            record: lease
                .metadata
                .annotations
                .get(record::ANNOTATION)
                .filter(|text| text.len() <= ownership::MARK_SIZE)
                .and_then(|text| serde_json::from_str(text).ok())
                .map(Box::new),
        }
    }
}

impl Project for wire::Lease {
    fn metadata(&self) -> &Meta {
        &self.metadata
    }

    fn seen(self) -> Fact {
        Fact::Lease(Box::new(self.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_keeps_what_decisions_need() {
        let pod: wire::Pod = serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": "web-1", "namespace": "shop", "uid": "u1", "labels": {"app": "web"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "a"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "b", "controller": true}
                ],
                "deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30,
                "finalizers": ["a/b"]
            },
            "spec": {"nodeName": "n1", "volumes": [{"name": "a", "configMap": {}}, {"name": "b", "emptyDir": {}}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        }))
        .unwrap();
        let pod = Pod::from(pod);
        assert_eq!(pod.key.to_string(), "shop/web-1");
        assert_eq!(pod.controller.as_ref().map(|owner| owner.kind.as_str()), Some("ReplicaSet"));
        assert!(pod.empty_dir && pod.ready);
        assert_eq!(pod.deletion.unwrap().requested().to_string(), "2026-01-01T00:00:00Z");
    }

    #[test]
    fn launcher_and_hotplug_pods_are_recognised() {
        let role = |meta: serde_json::Value| {
            Pod::from(serde_json::from_value::<wire::Pod>(serde_json::json!({"metadata": meta})).unwrap()).vm
        };
        assert_eq!(
            role(serde_json::json!({
                "name": "virt-launcher-a", "labels": {"kubevirt.io": "virt-launcher"},
                "annotations": {"kubevirt.io/domain": "a"}
            })),
            VmRole::Launcher(Box::new(Launcher { instance_name: Some("a".into()), ..Launcher::default() }))
        );
        assert_eq!(role(serde_json::json!({"name": "hp-volume-x"})), VmRole::Hotplug);
        assert_eq!(role(serde_json::json!({"name": "web"})), VmRole::None);
    }

    #[test]
    fn m22_a_launcher_is_up_when_compute_runs_and_the_others_are_ready() {
        let up = |containers: serde_json::Value| {
            let labels = serde_json::json!({"kubevirt.io": "virt-launcher"});
            let status = serde_json::json!({"containerStatuses": containers});
            let pod = serde_json::json!({"metadata": {"labels": labels}, "status": status});
            Pod::from(serde_json::from_value::<wire::Pod>(pod).unwrap()).is_up()
        };
        assert!(!up(serde_json::json!([])));
        assert!(up(serde_json::json!([{"name": "compute", "ready": false, "state": {"running": {}}}])));
        assert!(!up(serde_json::json!([
            {"name": "compute", "ready": true, "state": {"running": {}}},
            {"name": "sidecar", "ready": false, "state": {"running": {}}}
        ])));
    }

    #[test]
    fn null_lists_and_unknown_fields_do_not_disturb() {
        let budget: wire::Budget = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "b", "namespace": "d", "labels": null},
            "spec": {"selector": {"matchLabels": {"a": "b"}, "matchExpressions": null}, "maxUnavailable": "10%", "new": 1},
            "status": {"disruptedPods": {"p": "2026-01-01T00:00:00Z"}, "conditions": null}
        }))
        .unwrap();
        let budget = Budget::from(budget);
        assert_eq!(budget.max_unavailable, Some(Amount::Percent("10%".into())));
        assert_eq!(budget.disrupted["p"], "2026-01-01T00:00:00Z".parse().unwrap());
    }

    #[test]
    fn an_annotation_that_is_not_a_mark_is_kept_as_unreadable() {
        let node: wire::Node = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "n", "annotations": {"evac.dev/drain": "what?"}}
        }))
        .unwrap();
        assert_eq!(Node::from(node).mark, Some(MarkState::Unreadable("what?".into())));
    }
}
