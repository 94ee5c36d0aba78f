//! What a simulated world consists of.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;

/// A node whose kubelet is simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSpec {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub zone: Option<String>,
    pub cpu: String,
    pub memory: String,
    pub pods: u32,
    /// Further resources, such as `devices.kubevirt.io/kvm`.
    pub resources: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub roles: Vec<String>,
    /// How the node names the machine it runs on.
    pub provider_id: String,
}

impl NodeSpec {
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            provider_id: format!("evac://{name}"),
            name,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            zone: None,
            cpu: "8".to_owned(),
            memory: "32Gi".to_owned(),
            pods: 110,
            resources: BTreeMap::new(),
            taints: Vec::new(),
            roles: Vec::new(),
        }
    }

    /// `node-1` to `node-<count>`, in the zones a, b and c by turns.
    pub fn workers(count: usize) -> Vec<Self> {
        (1..=count)
            .map(|i| {
                let mut node = Self::new(format!("node-{i}"));
                node.zone = Some(["a", "b", "c"][(i - 1) % 3].to_owned());
                node.roles = vec!["worker".to_owned()];
                node
            })
            .collect()
    }

    #[must_use]
    pub fn in_zone(mut self, zone: &str) -> Self {
        self.zone = Some(zone.to_owned());
        self
    }

    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    #[must_use]
    pub fn resource(mut self, key: &str, amount: &str) -> Self {
        self.resources.insert(key.to_owned(), amount.to_owned());
        self
    }
}

/// Which actors run, on which nodes, from which seed.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch for one part of the cluster")]
pub struct Options {
    pub seed: u64,
    pub nodes: Vec<NodeSpec>,
    /// The nodes were stored beforehand, as another cluster had them: kubelets and agents run what is on them, and leave the Node objects as they are.
    pub as_found: bool,
    pub kubelets: bool,
    pub scheduler: bool,
    /// Deployments, ReplicaSets, ReplicationControllers, DaemonSets, StatefulSets and Jobs.
    pub workloads: bool,
    pub disruption: bool,
    pub gc: bool,
    /// Deletion of namespaces, and the default ServiceAccount and `kube-root-ca.crt` in each.
    pub namespaces: bool,
    /// The certificate (PEM) that pods are told to trust; empty where the server is reached without TLS.
    pub root_ca: String,
    /// Ready=Unknown, taints by condition, eviction by taint.
    pub node_lifecycle: bool,
    pub pod_gc: bool,
    /// Volumes for claims.
    pub volumes: bool,
    /// A virt-handler with a hypervisor on every simulated node, once virtual machines are served.
    pub hypervisors: bool,
    /// What a node can send to, and receive from, others for migrations: MiB per second.
    pub migration_bandwidth: f64,
    /// How many decisions may be written at the same time. 1 is deterministic; more is for a server
    /// across a network, in real time.
    pub parallel_writes: usize,
}

/// A 10 Gbit/s network, in MiB per second, less what its protocols take.
const TEN_GIGABIT: f64 = 1188.0;

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            nodes: Vec::new(),
            as_found: false,
            kubelets: true,
            scheduler: true,
            workloads: true,
            disruption: true,
            gc: true,
            namespaces: true,
            root_ca: String::new(),
            node_lifecycle: true,
            pod_gc: true,
            volumes: true,
            hypervisors: true,
            migration_bandwidth: TEN_GIGABIT,
            parallel_writes: 1,
        }
    }
}

impl Options {
    /// Everything, on these nodes.
    pub fn cluster(nodes: Vec<NodeSpec>) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// Only simulated nodes, for a server that has its own scheduler and controllers.
    pub fn kubelets_only(nodes: Vec<NodeSpec>) -> Self {
        Self {
            nodes,
            scheduler: false,
            workloads: false,
            disruption: false,
            gc: false,
            namespaces: false,
            node_lifecycle: false,
            pod_gc: false,
            volumes: false,
            parallel_writes: 8,
            ..Self::default()
        }
    }
}
