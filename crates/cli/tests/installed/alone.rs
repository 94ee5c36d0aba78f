//! Roles alone and in pairs on a real API server, each with an account that has exactly the rights that are installed for them.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use evac_upstream::kubectl::{apply, kubectl, try_kubectl};
use evac_world::NodeSpec;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::audit::{self, Deed};
use crate::handover::{free_address, ready};
use crate::scenario::{Arm, Cluster};
use crate::skip;

const SETS: [&str; 5] = ["failover", "maintenance", "tenants", "failover,maintenance", "maintenance,tenants"];
pub const LONG: Duration = Duration::from_secs(60);

/// The objects of a kind: of one namespace, if it has namespaces.
pub fn api(
    cluster: &Cluster,
    group: &str,
    version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(cluster.client.clone(), namespace, &resource),
        None => Api::all_with(cluster.client.clone(), &resource),
    }
}

/// Creates an object once the operator answers the reviews that it has asked for, waits until it is as it should be, and removes it.
pub async fn lived(
    objects: &Api<DynamicObject>,
    object: Value,
    pointer: &'static str,
    wanted: Option<Value>,
) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let name = object.metadata.name.clone().unwrap();
    // When the API server reaches the reviews cannot be watched; it can only be asked.
    let created = async {
        while let Err(error) = objects.create(&PostParams::default(), &object).await {
            assert!(error.to_string().contains("webhook"), "{error}");
        }
    };
    tokio::time::timeout(LONG, created).await.expect("the operator answers reviews");
    let reached = await_condition(objects.clone(), &name, move |found: Option<&DynamicObject>| {
        let at = found.and_then(|found| found.data.pointer(pointer));
        at.is_some_and(|at| wanted.as_ref().is_none_or(|wanted| wanted == at))
    });
    tokio::time::timeout(LONG, reached).await.expect("the operator does its work in time").unwrap();
    objects.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
    let gone = await_condition(objects.clone(), &name, |found: Option<&DynamicObject>| found.is_none());
    tokio::time::timeout(LONG, gone).await.expect("it is let go").unwrap();
}

/// What the account of these roles did while there was something for each of them to do.
async fn story(cluster: &Cluster, name: &str, roles: &str) -> BTreeSet<Deed> {
    let admin = &cluster.kubeconfig;
    let manifests = Command::new(env!("CARGO_BIN_EXE_evac"))
        .args(["manifests", "--roles", roles, "--namespace", name, "--name", name])
        .output()
        .await
        .unwrap();
    apply(admin, &[], &manifests.stdout).await;
    kubectl(admin, &["wait", "--for=condition=Established", "crd", "--all"]).await;
    // No pod really runs here: the operator is a process beside the control plane.
    try_kubectl(admin, &["delete", "-n", name, "deployment,service,pdb", name]).await;
    let token = kubectl(admin, &["create", "token", "-n", name, name]).await;
    let own = admin.with_file_name(format!("{name}.kubeconfig"));
    let text = std::fs::read_to_string(admin).unwrap();
    let lines = text.lines().map(|line| match line.split_once("token: ") {
        Some((before, _)) => format!("{before}token: {}", String::from_utf8_lossy(&token.stdout).trim()),
        None => line.to_owned(),
    });
    std::fs::write(&own, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let log = std::fs::File::create(admin.with_file_name(format!("{name}.log"))).unwrap();
    let health = free_address();
    let mut operator = Command::new(env!("CARGO_BIN_EXE_evac"))
        .args(["operator", "--roles", roles, "--listen", "127.0.0.1:0", "--service-name", name])
        .args(["--home", name, "--health", &health, "--log", "warn,evac_engine=debug"])
        .env("HOME", admin.parent().unwrap())
        .env("KUBECONFIG", own)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // It is ready when every role has read what it watches.
    tokio::time::timeout(LONG, ready(&health)).await.expect("the operator is ready in time");
    if roles.contains("maintenance") {
        let objects = api(cluster, "nodemaintenance.medik8s.io", "v1beta1", "NodeMaintenance", None);
        let object = json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": name}, "spec": {"nodeName": "node-1"},
        });
        lived(&objects, object, "/status/phase", Some(json!("Succeeded"))).await;
    }
    if roles.contains("failover") {
        let objects = api(cluster, "evac.dev", "v1alpha1", "FailoverPolicy", None);
        let object = json!({
            "apiVersion": "evac.dev/v1alpha1", "kind": "FailoverPolicy", "metadata": {"name": name},
            "spec": {
                "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "node-1"}}, "maxUnhealthy": 1,
                "proof": {"statement": {}},
            },
        });
        lived(&objects, object, "/status/observedNodes", Some(json!(1))).await;
    }
    let user = format!("system:serviceaccount:{name}:{name}");
    let audit_log = admin.with_file_name("audit.log");
    operator.kill().await.unwrap();
    let all = ["delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "--all"];
    try_kubectl(admin, &all).await;
    audit::read(&std::fs::read_to_string(&audit_log).unwrap(), &user)
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_alone_and_in_pairs_are_refused_nothing_on_a_real_server() {
    if std::env::var_os("EVAC_KUBERNETES").is_none() {
        skip("rights of single roles and pairs: needs the real Kubernetes programs");
        return;
    }
    let cluster = Cluster::start(Arm::Installed, NodeSpec::workers(2), false).await;
    for (number, roles) in SETS.iter().enumerate() {
        let deeds = story(&cluster, &format!("alone-{number}"), roles).await;
        let refused: Vec<&Deed> = deeds.iter().filter(|deed| deed.refused).collect();
        assert!(refused.is_empty(), "{roles}: was refused {refused:#?}");
        assert!(!deeds.is_empty(), "{roles}: nothing was done by its account");
        let looks = |resource: &str| deeds.iter().any(|deed| deed.resource == resource);
        assert!(!roles.contains("tenants") || looks("virtualmachineinstances"), "{roles}: {deeds:#?}");
    }
    cluster.stop().await;
}
