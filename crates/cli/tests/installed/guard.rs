//! Node accounts cannot write what evac keeps on nodes, on a real API server; everything else they write is none of our business.

use std::process::Output;
use std::time::Duration;

use crate::scenario::{Arm, Cluster};
use crate::skip;
use evac_upstream::kubectl::{apply, kubectl, try_kubectl};
use evac_world::NodeSpec;
use tokio::time::Instant;

const MARK: &str = r#"{"metadata":{"annotations":{"evac.dev/drain":"forged"}}}"#;

/// A patch of node-1 by its kubelet.
async fn patch(cluster: &Cluster, words: &[&str], body: &str) -> Output {
    let kubelet =
        ["--as", "system:node:node-1", "--as-group", "system:nodes", "--as-group", "system:authenticated"];
    let mut all = vec!["patch", "node", "node-1", "--type", "merge", "-p", body];
    all.extend(words);
    all.extend(kubelet);
    try_kubectl(&cluster.kubeconfig, &all).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_cannot_write_the_keys_of_evac_on_its_node() {
    if std::env::var_os("EVAC_KUBERNETES").is_none() {
        skip("keys of evac on nodes: needs the real Kubernetes programs");
        return;
    }
    let cluster = Cluster::start(Arm::Kubernetes, NodeSpec::workers(1), false).await;
    let admin = &cluster.kubeconfig;
    // The rights of kubelets, wherever this server takes them from.
    let rights =
        ["create", "clusterrolebinding", "kubelets", "--clusterrole=system:node", "--group=system:nodes"];
    kubectl(admin, &rights).await;
    // kubectl reads a status before it patches it, which kubelets have no need of.
    let reading = ["create", "clusterrole", "status-readers", "--verb=get", "--resource=nodes/status"];
    kubectl(admin, &reading).await;
    let readers = [
        "create",
        "clusterrolebinding",
        "status-readers",
        "--clusterrole=status-readers",
        "--group=system:nodes",
    ];
    kubectl(admin, &readers).await;
    let before = patch(&cluster, &[], MARK).await;
    assert!(
        before.status.success(),
        "without the policy it may: {}",
        String::from_utf8_lossy(&before.stderr)
    );
    let manifests = std::process::Command::new(env!("CARGO_BIN_EXE_evac"))
        .args(["manifests", "--roles", "maintenance"])
        .output()
        .unwrap();
    apply(admin, &[], &manifests.stdout).await;
    // A policy takes effect a moment after it was accepted.
    let end = Instant::now() + Duration::from_secs(60);
    let refused = loop {
        let change = r#"{"metadata":{"annotations":{"evac.dev/drain":"changed"}}}"#;
        let answer = patch(&cluster, &["--dry-run=server"], change).await;
        if !answer.status.success() {
            break String::from_utf8_lossy(&answer.stderr).into_owned();
        }
        assert!(Instant::now() < end, "the policy never took effect");
    };
    let words = "the account of a node may not add, change or remove annotations under evac.dev/ on nodes";
    assert!(refused.contains(words), "{refused}");
    for (body, subresource) in [
        (r#"{"metadata":{"annotations":{"evac.dev/drain":null}}}"#, None),
        (r#"{"metadata":{"annotations":{"evac.dev/fenced":"x"}}}"#, None),
        (r#"{"metadata":{"labels":{"evac.dev/x":"y"}}}"#, None),
        (r#"{"metadata":{"annotations":{"evac.dev/drain":"by status"}}}"#, Some("--subresource=status")),
    ] {
        let answer = patch(&cluster, &Vec::from_iter(subresource), body).await;
        let error = String::from_utf8_lossy(&answer.stderr);
        assert!(
            !answer.status.success() && error.contains("the account of a node may not"),
            "{body}: {error}"
        );
    }
    for (body, subresource) in [
        (
            r#"{"metadata":{"annotations":{"volumes.kubernetes.io/controller-managed-attach-detach":"true"}}}"#,
            None,
        ),
        (r#"{"status":{"nodeInfo":{"kernelVersion":"6.1"}}}"#, Some("--subresource=status")),
    ] {
        let answer = patch(&cluster, &Vec::from_iter(subresource), body).await;
        assert!(answer.status.success(), "{body}: {}", String::from_utf8_lossy(&answer.stderr));
    }
    // People are not kubelets.
    kubectl(admin, &["annotate", "node", "node-1", "evac.dev/drain-"]).await;
    cluster.stop().await;
}
