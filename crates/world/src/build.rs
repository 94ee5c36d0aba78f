//! Short ways to write objects down in tests.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodCondition, PodSpec, PodStatus,
    ResourceRequirements, Taint, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference, Time};

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub fn meta(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(format!("uid-{name}")),
        resource_version: Some("1".to_owned()),
        generation: Some(1),
        creation_timestamp: Some(Time(at(0))),
        ..Default::default()
    }
}

pub fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

pub fn selector(pairs: &[(&str, &str)]) -> LabelSelector {
    LabelSelector { match_labels: Some(labels(pairs)), match_expressions: None }
}

pub struct PodBuilder(Pod);

pub fn pod(namespace: &str, name: &str) -> PodBuilder {
    PodBuilder(Pod {
        metadata: meta(namespace, name),
        spec: Some(PodSpec {
            containers: vec![Container {
                name: "main".into(),
                image: Some("app:1".into()),
                ..Default::default()
            }],
            ..Default::default()
        }),
        status: Some(PodStatus { phase: Some("Pending".into()), ..Default::default() }),
    })
}

impl PodBuilder {
    fn spec(&mut self) -> &mut PodSpec {
        self.0.spec.get_or_insert_default()
    }

    pub fn on(mut self, node: &str) -> Self {
        self.spec().node_name = Some(node.to_owned());
        self
    }

    pub fn with(mut self, edit: impl FnOnce(&mut Pod)) -> Self {
        edit(&mut self.0);
        self
    }

    pub fn cpu(mut self, cpu: &str) -> Self {
        self.spec().containers[0].resources = Some(ResourceRequirements {
            requests: Some(BTreeMap::from([("cpu".to_owned(), Quantity(cpu.to_owned()))])),
            ..Default::default()
        });
        self
    }

    pub fn labels(mut self, pairs: &[(&str, &str)]) -> Self {
        self.0.metadata.labels = Some(labels(pairs));
        self
    }

    pub fn annotate(mut self, key: &str, value: &str) -> Self {
        self.0.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn owner(mut self, api_version: &str, kind: &str, name: &str, uid: &str) -> Self {
        self.0.metadata.owner_references = Some(vec![OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: uid.into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]);
        self
    }

    pub fn phase(mut self, phase: &str) -> Self {
        self.0.status.get_or_insert_default().phase = Some(phase.to_owned());
        self
    }

    pub fn condition(mut self, kind: &str, status: &str, reason: &str, since: Timestamp) -> Self {
        self.0.status.get_or_insert_default().conditions.get_or_insert_default().push(PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
            last_transition_time: Some(Time(since)),
            ..Default::default()
        });
        self
    }

    pub fn ready(self) -> Self {
        self.phase("Running").condition("Ready", "True", "", at(0))
    }

    pub fn deleting(mut self, grace: i64) -> Self {
        self.0.metadata.deletion_timestamp = Some(Time(at(grace)));
        self.0.metadata.deletion_grace_period_seconds = Some(grace);
        self
    }

    pub fn tolerate(mut self, key: &str, effect: &str, seconds: Option<i64>) -> Self {
        self.spec().tolerations.get_or_insert_default().push(Toleration {
            key: (!key.is_empty()).then(|| key.to_owned()),
            operator: Some("Exists".into()),
            effect: (!effect.is_empty()).then(|| effect.to_owned()),
            toleration_seconds: seconds,
            ..Default::default()
        });
        self
    }

    pub fn make(self) -> Pod {
        self.0
    }
}

pub fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), effect: effect.to_owned(), ..Default::default() }
}

/// A Ready node with 8 CPU, 32Gi and 110 pods.
pub fn node(name: &str, zone: &str) -> Node {
    let capacity = BTreeMap::from([
        ("cpu".to_owned(), Quantity("8".into())),
        ("memory".to_owned(), Quantity("32Gi".into())),
        ("pods".to_owned(), Quantity("110".into())),
    ]);
    let mut metadata = meta("", name);
    metadata.labels =
        Some(labels(&[("kubernetes.io/hostname", name), ("topology.kubernetes.io/zone", zone)]));
    Node {
        metadata,
        spec: Some(NodeSpec::default()),
        status: Some(NodeStatus {
            capacity: Some(capacity.clone()),
            allocatable: Some(capacity),
            conditions: Some(vec![NodeCondition {
                type_: "Ready".into(),
                status: "True".into(),
                last_heartbeat_time: Some(Time(at(0))),
                last_transition_time: Some(Time(at(0))),
                ..Default::default()
            }]),
            ..Default::default()
        }),
    }
}
