//! What an operator with every role watches, as the audit log of a real API server has it.

use std::collections::BTreeMap;

use evac_upstream::kubectl::apply;
use evac_world::NodeSpec;
use kube::runtime::wait::await_condition;
use serde_json::json;

use crate::alone::{LONG, api, lived};
use crate::audit;
use crate::scenario::installed::{ACCOUNT, NAMESPACE};
use crate::scenario::{Arm, Cluster};
use crate::skip;

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_with_every_role_watches_each_kind_once_and_the_pods_of_nodes_under_maintenance_besides()
{
    if std::env::var_os("EVAC_KUBERNETES").is_none() {
        skip("one watch per kind: needs the real Kubernetes programs");
        return;
    }
    let cluster = Cluster::start(Arm::Installed, NodeSpec::workers(3), true).await;
    let vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "db", "namespace": "default"},
        "spec": {"runStrategy": "Always", "template": {"spec": {
            "evictionStrategy": "LiveMigrate", "domain": {"devices": {}},
        }}},
    });
    apply(&cluster.kubeconfig, &[], vm.to_string().as_bytes()).await;
    let instances = api(&cluster, "kubevirt.io", "v1", "VirtualMachineInstance", Some("default"));
    let runs = await_condition(instances, "db", |found: Option<&kube::api::DynamicObject>| {
        found.is_some_and(|found| found.data["status"]["phase"] == "Running")
    });
    let vmi = tokio::time::timeout(LONG, runs).await.expect("the guest starts in time").unwrap().unwrap();
    let node = vmi.data["status"]["nodeName"].as_str().unwrap();
    let object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "a"}, "spec": {"nodeName": node},
    });
    let maintenances = api(&cluster, "nodemaintenance.medik8s.io", "v1beta1", "NodeMaintenance", None);
    lived(&maintenances, object, "/status/phase", Some(json!("Succeeded"))).await;

    let log = std::fs::read_to_string(cluster.kubeconfig.with_file_name("audit.log")).unwrap();
    let watches = audit::watches(&log, &format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}"));
    println!("{watches:#?}");
    let often: Vec<_> = watches.iter().filter(|(_, at_once)| **at_once > 1).collect();
    assert!(often.is_empty(), "watched more than once at a time: {often:#?}");
    // Of what is selected by name or label there is one watch each; of whole kinds there is no other besides.
    let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for watch in watches.keys() {
        let (path, selected) = watch.split_once(' ').unwrap_or((watch, ""));
        kinds.entry(path).or_default().push(selected);
    }
    // Two scopes of one collection, and why: all pods of the node under maintenance, and guests everywhere; the ledger of migrations and the old
    // settings; the one configuration by which maintenances are reviewed, and those that this operator publishes.
    let scopes: BTreeMap<&str, Vec<String>> = BTreeMap::from([
        (
            "/api/v1/pods",
            vec![
                format!("fieldSelector=spec.nodeName%3D{node}"),
                "labelSelector=kubevirt.io%3Dvirt-launcher".into(),
            ],
        ),
        (
            "/api/v1/namespaces/kubevirt/configmaps",
            vec![
                "fieldSelector=metadata.name%3Devac-migration-slots".into(),
                "fieldSelector=metadata.name%3Dkubevirt-config".into(),
            ],
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            vec![
                "fieldSelector=metadata.name%3Devac-nodemaintenance".into(),
                "labelSelector=app.kubernetes.io%2Fmanaged-by%3Devac".into(),
            ],
        ),
    ]);
    let several = kinds.iter().filter(|(_, selected)| selected.len() > 1);
    let several: BTreeMap<&str, Vec<String>> = several
        .map(|(path, selected)| (*path, selected.iter().map(|one| (*one).to_owned()).collect()))
        .collect();
    assert_eq!(several, scopes);
    for path in [
        "/api/v1/nodes",
        "/apis/policy/v1/poddisruptionbudgets",
        "/apis/kubevirt.io/v1/virtualmachines",
        "/apis/kubevirt.io/v1/virtualmachineinstances",
        "/apis/kubevirt.io/v1/virtualmachineinstancemigrations",
        "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances",
        "/apis/evac.dev/v1alpha1/failoverpolicies",
    ] {
        assert_eq!(kinds.get(path), Some(&vec![""]), "{path}: {kinds:#?}");
    }
    cluster.stop().await;
}
