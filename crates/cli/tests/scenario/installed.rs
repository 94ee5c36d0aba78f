//! The operator as it is installed: with the objects that `evac manifests` prints, its own account, and no other rights.
//!
//! No pod really runs on the test's control plane, so the operator is a process beside it that has the token of its account. Its
//! Deployment and Service are taken away again: the first would start pretended pods, the second leads to pods.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use evac_api::kubevirt::crds;
use evac_upstream::kubectl::{account, apply, kubectl};
use evac_upstream::ready::served;
use serde_json::json;
use tokio::process::{Child, Command};

/// Each role there is.
const ROLES: &str = "all,failover";
pub const NAMESPACE: &str = "evac";
pub const ACCOUNT: &str = "evac-operator";
/// Whoever types `evac`; bound to what the installation offers to people who drain.
pub const PERSON: &str = "person";

/// Who did what to which object; and what aggregated servers ask about their callers, with the answer.
pub const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: RequestResponse
  resources: [{group: authorization.k8s.io, resources: [subjectaccessreviews]}]
- level: Metadata
";

/// Installs everything, and gives the kubeconfig of a person who may drain.
pub async fn prepare(kubeconfig: &Path, machines: bool) -> PathBuf {
    let roles = if machines { ROLES } else { "tenants" };
    let manifests = Command::new(env!("CARGO_BIN_EXE_evac"))
        .args(["manifests", "--roles", roles, "--namespace", NAMESPACE])
        .output()
        .await
        .unwrap();
    assert!(manifests.status.success());
    apply(kubeconfig, &[], &manifests.stdout).await;
    if machines {
        // Another product's, as an installation finds it.
        apply(kubeconfig, &[], crds::hyperconverged().to_string().as_bytes()).await;
        kubectl(kubeconfig, &["wait", "--for=condition=Established", "crd", "--all"]).await;
        let settings = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "KubeVirt",
            "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
            "spec": {},
        });
        apply(kubeconfig, &[], settings.to_string().as_bytes()).await;
    }
    kubectl(kubeconfig, &["delete", "-n", NAMESPACE, "deployment,service,pdb", ACCOUNT]).await;
    kubectl(kubeconfig, &["create", "serviceaccount", "-n", NAMESPACE, PERSON]).await;
    let (role, who) = (format!("{ACCOUNT}-drain"), format!("{NAMESPACE}:{PERSON}"));
    let (cluster, lease) = (format!("--clusterrole={role}"), format!("--role={role}"));
    let who = format!("--serviceaccount={who}");
    kubectl(kubeconfig, &["create", "clusterrolebinding", PERSON, &cluster, &who]).await;
    kubectl(kubeconfig, &["create", "rolebinding", "-n", "kube-node-lease", PERSON, &lease, &who]).await;
    account(kubeconfig, NAMESPACE, PERSON).await
}

/// Starts the operator with its own account, and waits until the server uses it.
pub async fn operator(client: &kube::Client, kubeconfig: &Path) -> Child {
    let child = start(kubeconfig, "operator.log", "127.0.0.1:0").await;
    served(client).await;
    child
}

/// Starts an operator with its account that answers probes at this address.
pub async fn start(kubeconfig: &Path, log: &str, health: &str) -> Child {
    let own = account(kubeconfig, NAMESPACE, ACCOUNT).await;
    let log = std::fs::File::create(kubeconfig.with_file_name(log)).unwrap();
    Command::new(env!("CARGO_BIN_EXE_evac"))
        .args(["operator", "--roles", ROLES, "--listen", "127.0.0.1:0", "--service-name", ACCOUNT])
        .args(["--home", NAMESPACE, "--health", health, "--log-format", "json"])
        .args(["--fence-agents", "scenarios/failover", "--log", "warn,evac_engine=debug"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .env("HOME", kubeconfig.parent().unwrap_or(kubeconfig))
        .env("KUBECONFIG", own)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .expect("the operator starts")
}
