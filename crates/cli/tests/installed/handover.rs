//! The node of the operator is drained: it hands over first, and the other one goes on at once.
//!
//! Two operators run as processes with their own account on a real API server. The pods of their Deployment run on pretended nodes;
//! what a kubelet does when a pod is to go (SIGTERM to its process) is done here.

use std::process::Command;
use std::time::Duration;

use crate::scenario::installed::{self, ACCOUNT, NAMESPACE};
use crate::scenario::{Arm, Cluster};
use crate::skip;
use evac_upstream::kubectl::apply;
use evac_world::NodeSpec;
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::runtime::{wait, watcher};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

/// How long after the signal the other one leads. It is a matter of milliseconds; the machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread")]
async fn when_the_node_of_the_leader_is_drained_the_other_one_leads_at_once() {
    if std::env::var_os("EVAC_KUBERNETES").is_none() {
        skip("hand-over: needs the real Kubernetes programs");
        return;
    }
    let cluster = Cluster::start(Arm::Installed, NodeSpec::workers(3), true).await;
    let leader = cluster.operator_process().unwrap();
    let first = holder(&cluster).await;
    let health = free_address();
    let mut other = installed::start(&cluster.kubeconfig, "other.log", &health).await;
    within("the follower is ready", ready(&health)).await;
    assert_eq!(holder(&cluster).await, first, "a second operator does not disturb the first");
    let page = ask(&health, "/metrics").await.unwrap();
    assert!(page.contains("\nevac_leader 0\n") && page.contains("evac_requests_total{"), "{page}");

    let (node, another) = Box::pin(place_pods(&cluster)).await;
    let kubelet = tokio::spawn(stop_with_the_pod(cluster.client.clone(), node.clone(), leader));
    let led = tokio::spawn(next_holder(cluster.client.clone(), first));
    let drained = tokio::process::Command::new(env!("CARGO_BIN_EXE_evac"))
        .args(["drain", &node, "--timeout", "60s"])
        .env("KUBECONFIG", &cluster.kubeconfig)
        .output()
        .await
        .unwrap();
    assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
    let told = within("the leader is told to end", async { kubelet.await.unwrap() }).await;
    let taken = within("another one leads", async { led.await.unwrap() }).await;
    let took = taken.duration_since(told);
    eprintln!("the other one leads {} ms after the signal", took.as_millis());
    assert!(took < AT_ONCE, "it took {took:?}");

    // It does not only lead, it acts.
    let object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
        "kind": "NodeMaintenance",
        "metadata": {"name": "next"},
        "spec": {"nodeName": another},
    });
    apply(&cluster.kubeconfig, &[], object.to_string().as_bytes()).await;
    let tainted = |node: Option<&Node>| {
        let taints = node.and_then(|node| node.spec.as_ref()).and_then(|spec| spec.taints.as_ref());
        taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == "kubevirt.io/drain"))
    };
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    within("the new leader acts", wait::await_condition(nodes, &another, tainted)).await.unwrap();
    let page = ask(&health, "/metrics").await.unwrap();
    assert!(page.contains("\nevac_leader 1\n") && page.contains("evac_maintenances{"), "{page}");
    other.kill().await.unwrap();
    cluster.stop().await;
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

fn leases(client: kube::Client) -> Api<Lease> {
    Api::namespaced(client, NAMESPACE)
}

async fn holder(cluster: &Cluster) -> String {
    let led = |lease: Option<&Lease>| lease.is_some_and(|lease| name_of(lease).is_some());
    let waiting = wait::await_condition(leases(cluster.client.clone()), "evac-operator", led);
    let lease = within("somebody leads", waiting).await.unwrap();
    lease.as_ref().and_then(name_of).unwrap()
}

fn name_of(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone().filter(|name| !name.is_empty())
}

/// When somebody else than `before` holds the lease.
async fn next_holder(client: kube::Client, before: String) -> Instant {
    let changed = move |lease: Option<&Lease>| lease.and_then(name_of).is_some_and(|holder| holder != before);
    wait::await_condition(leases(client), "evac-operator", changed).await.unwrap();
    Instant::now()
}

/// Starts the Deployment again, whose pods run on pretended nodes, and says on which they are.
async fn place_pods(cluster: &Cluster) -> (String, String) {
    let manifests = Command::new(env!("CARGO_BIN_EXE_evac"))
        .args(["manifests", "--roles", "all", "-o", "json"])
        .output()
        .unwrap();
    let mut list: serde_json::Value = serde_json::from_slice(&manifests.stdout).unwrap();
    let kept = ["Deployment", "PodDisruptionBudget"];
    list["items"].as_array_mut().unwrap().retain(|object| kept.iter().any(|kind| object["kind"] == *kind));
    apply(&cluster.kubeconfig, &[], list.to_string().as_bytes()).await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let available = |deployment: Option<&Deployment>| {
        let status = deployment.and_then(|deployment| deployment.status.as_ref());
        status.is_some_and(|status| status.available_replicas == Some(2))
    };
    let running = Box::pin(wait::await_condition(deployments, ACCOUNT, available));
    within("its pods run", running).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let pods = pods.list(&kube::api::ListParams::default()).await.unwrap().items;
    let mut nodes: Vec<String> =
        pods.iter().map(|pod| pod.spec.as_ref().unwrap().node_name.clone().unwrap()).collect();
    nodes.sort();
    assert!(nodes[0] != nodes[1], "they are on different nodes: {nodes:?}");
    (nodes.remove(0), nodes.remove(0))
}

/// Does what the kubelet of this node does when the operator's pod is to go; says when.
async fn stop_with_the_pod(client: kube::Client, node: String, process: u32) -> Instant {
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let mut events = Box::pin(watcher(pods, config));
    while let Some(event) = events.next().await {
        if let Ok(watcher::Event::Apply(pod)) = event
            && pod.metadata.deletion_timestamp.is_some()
        {
            let now = Instant::now();
            let status = Command::new("kill").args(["-TERM", &process.to_string()]).status().unwrap();
            assert!(status.success());
            return now;
        }
    }
    panic!("the watch ended");
}

pub fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Asks until the probe says yes: what is ready cannot be watched.
pub async fn ready(health: &str) {
    loop {
        if ask(health, "/readyz").await.is_some_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn ask(health: &str, path: &str) -> Option<String> {
    let mut stream = tokio::net::TcpStream::connect(health).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {health}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}
