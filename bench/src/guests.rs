//! Four simulated nodes, and virtual machines that are all on the first of them.

use anyhow::Result;
use evac_world::{NodeSpec, Options};
use serde_json::{Value, json};

use crate::audit::Audit;
use crate::cluster::Cluster;

/// How long the memory of each guest is copied, unless a benchmark says otherwise.
pub const MIGRATION_SECONDS: f64 = 5.0;
pub const INSTANCES: &str = "/apis/kubevirt.io/v1/virtualmachineinstances";
const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
/// The node that is emptied.
pub const NODE: &str = "node-1";
const OTHERS: [&str; 3] = ["node-2", "node-3", "node-4"];

/// Nodes each of which has room for all guests.
pub fn nodes() -> Options {
    let mut nodes = NodeSpec::workers(1 + OTHERS.len());
    for node in &mut nodes {
        node.pods = 500;
        "64".clone_into(&mut node.cpu);
        "256Gi".clone_into(&mut node.memory);
    }
    Options { parallel_writes: 32, ..Options::kubelets_only(nodes) }
}

/// A machine of this number whose memory is copied for so long; one that is pinned can run on the first node only.
pub fn machine(number: usize, migration_seconds: f64, is_pinned: bool) -> Value {
    let mut machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": format!("vm-{number}")},
        "spec": {"runStrategy": "Always", "template": {
            // The simulated kubelet starts pods at once: its time is nobody's, and the floor does not know it.
            "metadata": {"annotations": {
                "evac.dev/migration-seconds": migration_seconds.to_string(), "evac.dev/start-seconds": "0",
            }},
            "spec": {
                "evictionStrategy": "LiveMigrate",
                "domain": {"devices": {}, "resources": {"requests": {"memory": "32Mi", "cpu": "10m"}}},
            },
        }},
    });
    if is_pinned {
        machine["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": NODE});
    }
    machine
}

/// Starts the machines on the first node, and waits until all can be moved and the cluster has come to rest.
pub async fn place(cluster: &Cluster, audit: &Audit, machines: &[Value]) -> Result<()> {
    for node in OTHERS {
        cluster.cordon(node, true).await?;
    }
    cluster
        .until("/api/v1/nodes", |all| {
            let hosts = |node: &Value| node["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
            all.len() == 1 + OTHERS.len() && all.values().all(hosts)
        })
        .await?;
    for machine in machines {
        cluster.create(MACHINES, machine).await?;
    }
    cluster
        .until(INSTANCES, |all| {
            let ready = |vmi: &&Value| {
                let conditions = vmi["status"]["conditions"].as_array();
                conditions.is_some_and(|list| {
                    list.iter().any(|one| one["type"] == "LiveMigratable" && one["status"] == "True")
                })
            };
            all.values().filter(ready).count() == machines.len()
        })
        .await?;
    for node in OTHERS {
        cluster.cordon(node, false).await?;
    }
    audit.settle().await
}
