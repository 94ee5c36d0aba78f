//! The two kinds of cluster a scenario runs on.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use evac_apiserver::front::Front;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_apiserver::service::Service;
use evac_clock::Clock;
use evac_engine::Http;
use evac_engine::operator::{Operator, install};
use evac_world::{NodeSpec, Options, World};
use k8s_openapi::api::core::v1::Node;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

#[path = "../../src/in_process.rs"]
mod in_process;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// The embedded server with the whole simulated cluster.
    Sandbox,
    /// A real Kubernetes control plane with simulated nodes.
    Kubernetes,
}

/// A cluster with nodes, and the kubeconfig to reach it.
pub struct Cluster {
    pub client: kube::Client,
    pub kubeconfig: PathBuf,
    world: World,
    operator: Option<Operator>,
    _dir: tempfile::TempDir,
    _server: Server,
}

enum Server {
    Sandbox { _front: Front, _api: Arc<Api> },
    Kubernetes { _child: Child },
}

impl Cluster {
    pub async fn start(arm: Arm, nodes: usize, machines: bool) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        let clock = Clock::real();
        let specs = NodeSpec::workers(nodes);
        let (client, server, options) = match arm {
            Arm::Sandbox => {
                let api = Api::new(clock, Settings { seed: 1, ..Settings::default() });
                let front = Front::open(api.clone(), 0).await.unwrap();
                std::fs::write(&kubeconfig, &front.kubeconfig).unwrap();
                let service = Service::trusted(api.clone(), Identity::admin());
                let client = kube::Client::new(service, "default");
                (client, Server::Sandbox { _front: front, _api: api }, Options::cluster(specs))
            }
            Arm::Kubernetes => {
                let child = start_kubernetes(&dir, &kubeconfig).await;
                let client = connect(&kubeconfig).await;
                (client, Server::Kubernetes { _child: child }, Options::kubelets_only(specs))
            }
        };
        let world = World::start(client.clone(), clock, options);
        world.idle().await;
        for n in 1..=nodes {
            usable(&client, &format!("node-{n}")).await;
        }
        let operator = match (&server, machines) {
            (Server::Sandbox { _api: api, .. }, true) => {
                Some(in_process::machines(api, client.clone()).await.expect("machines can be installed"))
            }
            (Server::Kubernetes { .. }, true) => {
                let http = Http::new(client.clone(), clock, std::time::Duration::ZERO);
                install::kinds(&http).await.expect("the kinds can be installed");
                Some(Operator::start(http))
            }
            (_, false) => None,
        };
        if operator.is_some() {
            for n in 1..=nodes {
                hosts_machines(&client, &format!("node-{n}")).await;
            }
        }
        Self { client, kubeconfig, world, operator, _dir: dir, _server: server }
    }

    pub fn kubelet(&self, node: &str, on: bool) {
        let kubelet = self.world.kubelet(node);
        if on { kubelet.start() } else { kubelet.stop() }
    }

    pub async fn stop(self) {
        if let Some(operator) = self.operator {
            operator.stop().await;
        }
        self.world.stop().await;
    }
}

/// Waits until the node agent of virtual machines has reported.
async fn hosts_machines(client: &kube::Client, name: &str) {
    let ready = |node: Option<&Node>| {
        let labels = node.and_then(|node| node.metadata.labels.as_ref());
        labels
            .is_some_and(|labels| labels.get("kubevirt.io/schedulable").is_some_and(|value| value == "true"))
    };
    let waiting = kube::runtime::wait::await_condition(kube::Api::<Node>::all(client.clone()), name, ready);
    tokio::time::timeout(std::time::Duration::from_secs(60), waiting)
        .await
        .expect("the node can host machines in time")
        .expect("the node can be watched");
}

/// Waits until a node is ready and the taint of new nodes was taken away.
async fn usable(client: &kube::Client, name: &str) {
    let usable = |node: Option<&Node>| {
        node.is_some_and(|node| {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            taints.is_none_or(Vec::is_empty)
                && conditions
                    .is_some_and(|list| list.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
        })
    };
    let api: kube::Api<Node> = kube::Api::all(client.clone());
    let waiting = kube::runtime::wait::await_condition(api, name, usable);
    tokio::time::timeout(std::time::Duration::from_secs(60), waiting)
        .await
        .expect("the node becomes usable in time")
        .expect("the node can be watched");
}

/// The real control plane, if this machine could build it.
pub fn kubernetes_program() -> Option<PathBuf> {
    std::env::var_os("EVAC_KUBERNETES").map(PathBuf::from)
}

/// The real programs of KubeVirt, if this machine could build them.
pub fn kubevirt_program() -> Option<PathBuf> {
    std::env::var_os("EVAC_KUBEVIRT").map(PathBuf::from)
}

async fn start_kubernetes(dir: &tempfile::TempDir, kubeconfig: &std::path::Path) -> Child {
    let mut child = Command::new(kubernetes_program().expect("EVAC_KUBERNETES"))
        .args(["up", "--exit-on-stdin-close", "--dir"])
        .arg(dir.path().join("kubernetes"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the real control plane starts");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.starts_with("ready:") {
            return child;
        }
    }
    panic!("the real control plane ended before it was ready");
}

async fn connect(kubeconfig: &std::path::Path) -> kube::Client {
    let read = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default())
        .await
        .unwrap();
    kube::Client::try_from(config).unwrap()
}
