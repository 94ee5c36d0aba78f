//! Objects become facts.

use evac_core::fact::{Amount, Health, UnhealthyPolicy};
use evac_core::ownership::{self, MarkState};
use evac_core::record;
use evac_core::selector::Selector;
use evac_core::{Budget, Deletion, Fact, Key, Lease, Node, Owner, Pod, PodPhase, Uid, VmRole};

use jiff::Timestamp;

use crate::call;
use crate::wire::{self, Condition, IntOrString, Meta};

/// An API object of which a fact can be made.
pub trait Project: Sized {
    fn metadata(&self) -> &Meta;
    fn seen(self) -> Fact;
    fn gone(self) -> Fact;
}

fn condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

impl From<wire::Node> for Node {
    fn from(node: wire::Node) -> Self {
        let ready = condition(&node.status.conditions, "Ready");
        let mark = node.metadata.annotations.get(ownership::ANNOTATION);
        let mark = mark.map(|text| MarkState::read(text, |text| serde_json::from_str(text).ok()));
        Self {
            name: node.metadata.name,
            uid: Uid(node.metadata.uid),
            resource_version: node.metadata.resource_version,
            unschedulable: node.spec.unschedulable.unwrap_or(false),
            taints: node.spec.taints,
            labels: node.metadata.labels,
            health: match ready.map(|ready| ready.status.as_str()) {
                None => Health::Silent,
                Some("True") => Health::Ready,
                Some("False") => Health::NotReady,
                Some(_) => Health::Unknown,
            },
            health_since: ready.and_then(|ready| ready.last_transition_time),
            mark,
            deleting: node.metadata.deletion_timestamp.is_some(),
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

    fn gone(self) -> Fact {
        Fact::NodeGone(self.metadata.name)
    }
}

impl From<wire::Pod> for Pod {
    fn from(pod: wire::Pod) -> Self {
        let meta = pod.metadata;
        let vm = if meta.name.starts_with("hp-volume-")
            || meta.labels.get("kubevirt.io").is_some_and(|role| role == "hotplug-disk")
        {
            VmRole::Hotplug
        } else if meta.labels.get("kubevirt.io").is_some_and(|role| role == "virt-launcher") {
            VmRole::Launcher(
                meta.annotations
                    .get("kubevirt.io/domain")
                    .or_else(|| meta.labels.get("vm.kubevirt.io/name"))
                    .cloned(),
            )
        } else {
            VmRole::None
        };
        Self {
            vm,
            key: Key::new(meta.namespace, meta.name),
            uid: Uid(meta.uid),
            node: pod.spec.node_name.filter(|node| !node.is_empty()),
            phase: match pod.status.phase.as_deref() {
                Some("Running") => PodPhase::Running,
                Some("Succeeded") => PodPhase::Succeeded,
                Some("Failed") => PodPhase::Failed,
                Some("Unknown") => PodPhase::Unknown,
                // The server fills in Pending; an object without a phase has not started either.
                Some(_) | None => PodPhase::Pending,
            },
            ready: condition(&pod.status.conditions, "Ready").is_some_and(|ready| ready.status == "True"),
            deletion: meta.deletion_timestamp.map(|ends| Deletion {
                ends,
                grace_seconds: meta.deletion_grace_period_seconds.unwrap_or(0),
            }),
            controller: meta.owner_references.into_iter().find(|owner| owner.controller == Some(true)).map(
                |owner| Owner {
                    api_version: owner.api_version,
                    kind: owner.kind,
                    name: owner.name,
                    uid: Uid(owner.uid),
                },
            ),
            mirror: meta.annotations.contains_key("kubernetes.io/config.mirror"),
            empty_dir: pod.spec.volumes.iter().any(|volume| volume.empty_dir.is_some()),
            labels: meta.labels,
            finalizers: meta.finalizers,
            priority_class: pod.spec.priority_class_name,
            grace_seconds: pod.spec.termination_grace_period_seconds,
            created: meta.creation_timestamp,
        }
    }
}

impl Project for wire::Pod {
    fn metadata(&self) -> &Meta {
        &self.metadata
    }

    fn seen(self) -> Fact {
        Fact::Pod(Box::new(self.into()))
    }

    fn gone(self) -> Fact {
        Fact::PodGone(Key::new(self.metadata.namespace, self.metadata.name), Uid(self.metadata.uid))
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
        let selector = match budget.spec.selector {
            None => Selector::nothing(),
            Some(selector) => {
                let expressions = selector
                    .match_expressions
                    .into_iter()
                    .map(|expression| (expression.key, expression.operator, expression.values));
                // The eviction API ignores budgets whose selector does not parse.
                Selector::from_parts(&selector.match_labels, expressions)
                    .unwrap_or_else(|_| Selector::nothing())
            }
        };
        let sync_failed = condition(&budget.status.conditions, "DisruptionAllowed")
            .filter(|allowed| allowed.status == "False" && allowed.reason.as_deref() == Some("SyncFailed"))
            .map(|allowed| allowed.message.clone().unwrap_or_default());
        Self {
            key: Key::new(budget.metadata.namespace, budget.metadata.name),
            selector,
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

    fn gone(self) -> Fact {
        Fact::BudgetGone(Key::new(self.metadata.namespace, self.metadata.name))
    }
}

impl From<wire::Lease> for Lease {
    fn from(lease: wire::Lease) -> Self {
        // What is no time was not written by us and is no question.
        let time_in =
            |name: &str| lease.metadata.annotations.get(name).and_then(|text| text.parse::<Timestamp>().ok());
        Self {
            key: Key::new(lease.metadata.namespace, lease.metadata.name),
            holder: lease.spec.holder_identity.unwrap_or_default(),
            renewed: lease.spec.renew_time,
            duration_seconds: lease.spec.lease_duration_seconds.unwrap_or(0),
            resource_version: lease.metadata.resource_version,
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
        Fact::Lease(self.into())
    }

    fn gone(self) -> Fact {
        Fact::LeaseGone(Key::new(self.metadata.namespace, self.metadata.name))
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
            VmRole::Launcher(Some("a".into()))
        );
        assert_eq!(role(serde_json::json!({"name": "hp-volume-x"})), VmRole::Hotplug);
        assert_eq!(role(serde_json::json!({"name": "web"})), VmRole::None);
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
