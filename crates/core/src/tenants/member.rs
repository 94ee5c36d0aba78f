//! Which cluster an instance is a machine of, and whether what is found there is that machine.

use std::collections::BTreeMap;

use super::NAMESPACES;
use crate::cluster::fact::Key;
use crate::machines::Instance;

/// The labels that Cluster API's provider for KubeVirt puts on its instances.
pub const MACHINE_NAME: &str = "capk.cluster.x-k8s.io/kubevirt-machine-name";
/// The namespace of the Cluster API machine, where the Secret of its cluster is; else that of the instance.
pub const MACHINE_NAMESPACE: &str = "capk.cluster.x-k8s.io/kubevirt-machine-namespace";
/// The label with the name of the cluster.
pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// Without these labels an instance is not the machine of a tenant cluster.
pub const LABELS: [&str; 2] = [MACHINE_NAME, CLUSTER_NAME];
/// How nodes call the machine they run on.
const PROVIDER: &str = "kubevirt://";

/// An instance as a machine of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The name of the cluster, by its label.
    pub cluster: String,
    /// The Secret with the kubeconfig of the cluster.
    pub secret: Key,
    /// The node in the cluster. It has the name of the machine, never that of the host.
    pub node: String,
}

/// Which cluster this instance is a machine of, by its labels; none if they do not say it.
pub fn member(instance: &Instance) -> Option<Member> {
    let label = |name: &str| instance.labels.get(name).filter(|value| !value.is_empty());
    let (node, cluster) = (label(MACHINE_NAME)?, label(CLUSTER_NAME)?);
    let namespace = label(MACHINE_NAMESPACE).unwrap_or(&instance.key.namespace);
    Some(Member {
        cluster: cluster.to_string(),
        secret: Key::new(namespace.clone(), format!("{cluster}-kubeconfig")),
        node: node.to_string(),
    })
}

/// Whether instances in `namespace` may be machines of the cluster whose Secret has these annotations.
///
/// A user who can create an instance can label it, and would have evac drain the cluster of another tenant. So a Secret serves
/// its own namespace, and others if it says so itself.
pub fn serves(secret: &Key, annotations: &BTreeMap<String, String>, namespace: &str) -> bool {
    let named = annotations.get(NAMESPACES).map(String::as_str).unwrap_or_default();
    secret.namespace == namespace || named.split(',').any(|name| name.trim() == namespace)
}

/// What a node of a cluster says about the machine it runs on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// `spec.providerID`; empty where the node has none.
    pub provider_id: String,
    /// `status.addresses` of the node, of every type.
    pub addresses: Vec<String>,
}

/// Why a node of the right name is not the instance that is to go; `None` where nothing contradicts.
///
/// A kubeconfig may lead to another cluster that happens to have a node of this name.
pub fn contradiction(member: &Member, instance: &Instance, machine: &Machine) -> Option<String> {
    if !machine.provider_id.is_empty() {
        let named = machine.provider_id.strip_prefix(PROVIDER);
        let ours = named.is_some_and(|name| name == member.node || name == instance.key.name);
        return (!ours).then(|| format!("its provider id is {}", machine.provider_id));
    }
    let known = !machine.addresses.is_empty() && !instance.addresses.is_empty();
    let shared = machine.addresses.iter().any(|address| instance.addresses.contains(address));
    (known && !shared).then(|| format!("its addresses are {}", machine.addresses.join(", ")))
}
