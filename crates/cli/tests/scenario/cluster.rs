//! The kinds of cluster a scenario runs on.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use evac_api::kubevirt::crds;
use evac_apiserver::front::Front;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_apiserver::service::Service;
use evac_clock::Clock;
use evac_core::machines::Roles;
use evac_engine::Http;
use evac_engine::operator::front::{Front as Served, Wanted};
use evac_engine::operator::leader::Candidate;
use evac_engine::operator::publish::Reviews;
use evac_engine::operator::{Operator, install};
use evac_world::{NodeSpec, Options, World};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::core::DynamicObject;
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
    /// The same, with KubeVirt's own control plane of machines in place of ours.
    KubeVirt,
    /// A real control plane on which the operator runs as `evac manifests` installs it: with its own account and rights.
    Installed,
}

/// A cluster with nodes, and the kubeconfig to reach it.
pub struct Cluster {
    pub client: kube::Client,
    pub kubeconfig: PathBuf,
    /// The namespace of the operator's own objects.
    pub home: &'static str,
    /// The kubeconfig of whoever types `evac`.
    pub person: PathBuf,
    /// A cluster whose nodes are machines of this one.
    pub tenant: Option<Box<Cluster>>,
    world: World,
    operator: tokio::sync::Mutex<Option<Operator>>,
    /// What the operator does.
    roles: Roles,
    /// What the operator serves on a real server, and its claim to lead there.
    offered: Option<(Served, Candidate)>,
    /// The installed operator, or KubeVirt.
    processes: Vec<Child>,
    _dir: tempfile::TempDir,
    _server: Server,
}

enum Server {
    Sandbox { _front: Front, _api: Arc<Api> },
    Kubernetes { _child: Child },
}

impl Cluster {
    /// Nodes `worker-1`, …, each of which says that it is the machine of its name.
    pub async fn tenant(arm: Arm, nodes: usize) -> Self {
        let named = |n: usize| {
            let mut spec = NodeSpec::new(format!("worker-{n}"));
            spec.provider_id = format!("kubevirt://{}", spec.name);
            spec
        };
        let arm = if arm == Arm::KubeVirt { Arm::Kubernetes } else { arm };
        Self::start(arm, (1..=nodes).map(named).collect(), false).await
    }

    /// Ends the operator as a crash would, and starts another.
    pub async fn restart_operator(&self) {
        let mut operator = self.operator.lock().await;
        if let Some(old) = operator.take() {
            old.halt();
            old.stop().await;
        }
        let http = Http::new(self.client.clone(), Clock::real(), std::time::Duration::ZERO);
        let http = match &self.offered {
            Some((_, candidate)) => http.behind(candidate.gate().clone()),
            None => http,
        };
        *operator = Some(Operator::start_set(http, self.roles.clone(), in_process::local()));
    }

    pub async fn start(arm: Arm, specs: Vec<NodeSpec>, machines: bool) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        let clock = Clock::real();
        let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        let (client, server, options) = match arm {
            Arm::Sandbox => {
                let api = Api::new(clock, Settings { seed: 1, ..Settings::default() });
                let front = Front::open(api.clone(), 0).await.unwrap();
                std::fs::write(&kubeconfig, &front.kubeconfig).unwrap();
                let service = Service::trusted(api.clone(), Identity::admin());
                let client = kube::Client::new(service, "default");
                (client, Server::Sandbox { _front: front, _api: api }, Options::cluster(specs))
            }
            Arm::Kubernetes | Arm::KubeVirt | Arm::Installed => {
                let child = start_kubernetes(&dir, &kubeconfig, arm == Arm::Installed).await;
                let client = connect(&kubeconfig).await;
                (client, Server::Kubernetes { _child: child }, Options::kubelets_only(specs))
            }
        };
        let agents = match arm {
            Arm::KubeVirt => super::upstream::agents(&kubeconfig).await,
            _ => client.clone(),
        };
        let world = World::start(agents, clock, options);
        if let Server::Sandbox { _api: api, .. } = &server {
            world.answer_for_agents(api);
        }
        world.idle().await;
        for name in &names {
            usable(&client, name).await;
        }
        let mut person = kubeconfig.clone();
        let mut roles = Roles::all();
        let mut processes = Vec::new();
        let http = Http::new(client.clone(), clock, std::time::Duration::ZERO);
        if arm == Arm::Installed {
            person = super::installed::prepare(&kubeconfig, machines).await;
            if machines {
                processes.push(super::installed::operator(&client, &kubeconfig).await);
            }
        } else if arm == Arm::KubeVirt {
            processes = super::upstream::start(&http, &kubeconfig).await;
            roles = roles.beside_kubevirt();
        }
        let mut offered = None;
        let operator = match (&server, machines && processes.is_empty()) {
            (Server::Sandbox { _api: api, .. }, true) => Some(
                in_process::machines(api, client.clone(), Roles::all())
                    .await
                    .expect("machines can be installed"),
            ),
            (Server::Kubernetes { .. }, true) => {
                install::kinds(&http).await.expect("the kinds can be installed");
                install::define(&http, &[crds::hyperconverged()]).await.expect("so can a neighbour's");
                let candidate = Candidate::run(http.clone(), "scenario");
                let operator = Operator::start_set(
                    http.clone().behind(candidate.gate().clone()),
                    roles.clone(),
                    in_process::local(),
                );
                let front = serve(&http, &operator, "virt-api", &roles).await;
                served(&client).await;
                offered = Some((front, candidate));
                Some(operator)
            }
            // Beside KubeVirt's control plane ours does the rest.
            (_, false) if arm == Arm::KubeVirt => {
                let candidate = Candidate::run(http.clone(), "scenario");
                let operator = Operator::start_set(
                    http.clone().behind(candidate.gate().clone()),
                    roles.clone(),
                    in_process::local(),
                );
                offered = Some((serve(&http, &operator, "evac-operator", &roles).await, candidate));
                Some(operator)
            }
            (_, false) => None,
        };
        if operator.is_some() || !processes.is_empty() {
            for name in &names {
                hosts_machines(&client, name).await;
            }
        }
        let operator = tokio::sync::Mutex::new(operator);
        Self {
            client,
            kubeconfig,
            home: if arm == Arm::Installed { super::installed::NAMESPACE } else { "kubevirt" },
            person,
            tenant: None,
            world,
            operator,
            roles,
            offered,
            processes,
            _dir: dir,
            _server: server,
        }
    }

    /// The process of the installed operator.
    #[allow(dead_code, reason = "who is installed is looked at by another test")]
    pub fn operator_process(&self) -> Option<u32> {
        self.processes.first().and_then(Child::id)
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    pub fn kubelet(&self, node: &str, on: bool) {
        let kubelet = self.world.kubelet(node);
        if on { kubelet.start() } else { kubelet.stop() }
    }

    pub fn power(&self, node: &str, on: bool) {
        let kubelet = self.world.kubelet(node);
        if on { kubelet.reboot() } else { kubelet.power_off() }
    }

    pub async fn stop(self) {
        if let Some((front, candidate)) = self.offered {
            candidate.hand_over().await;
            front.close().await;
        }
        for mut process in self.processes {
            let _ = process.kill().await;
        }
        if let Some(tenant) = self.tenant {
            Box::pin(tenant.stop()).await;
        }
        if let Some(operator) = self.operator.into_inner() {
            operator.stop().await;
        }
        self.world.stop().await;
    }
}

/// Serves what the roles are asked over HTTPS, as `evac operator --listen` does.
async fn serve(http: &Http, operator: &Operator, service: &str, roles: &Roles) -> Served {
    let wanted = Wanted {
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: None,
        service: service.into(),
        reviews: Reviews::of(roles),
    };
    Served::open(http, operator.view(), &wanted).await.expect("the operator can serve")
}

/// Waits until the server asks for reviews and forwards what is to start and stop machines.
pub async fn served(client: &kube::Client) {
    let resource = kube::core::ApiResource::erase::<APIService>(&());
    let services = kube::Api::<DynamicObject>::all_with(client.clone(), &resource);
    let available = |service: Option<&DynamicObject>| {
        let conditions = service.and_then(|service| service.data["status"]["conditions"].as_array());
        conditions.is_some_and(|list| list.iter().any(|c| c["type"] == "Available" && c["status"] == "True"))
    };
    for version in ["v1", "v1alpha3"] {
        let name = format!("{version}.subresources.kubevirt.io");
        let waiting = kube::runtime::wait::await_condition(services.clone(), &name, available);
        tokio::time::timeout(std::time::Duration::from_secs(60), waiting)
            .await
            .expect("the API to start and stop machines is available in time")
            .expect("it can be watched");
    }
    let reviewed = async { while !is_reviewed(client).await {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), reviewed).await.expect("reviews are asked for");
}

/// Whether the server asks for a review yet: nothing tells when it has taken a configuration in, but what comes of it does.
async fn is_reviewed(client: &kube::Client) -> bool {
    let wrong = serde_json::json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "nobody"},
        "spec": {"runStrategy": "Sometimes", "template": {"spec": {"domain": {"devices": {}}}}},
    });
    let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines?dryRun=All";
    let request = http::Request::post(path).header("content-type", "application/json");
    let answer = client.request_text(request.body(wrong.to_string().into_bytes()).unwrap()).await;
    matches!(answer, Err(kube::Error::Api(status)) if status.message.contains("Invalid RunStrategy"))
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

async fn start_kubernetes(dir: &tempfile::TempDir, kubeconfig: &std::path::Path, audit: bool) -> Child {
    let mut command = Command::new(kubernetes_program().expect("EVAC_KUBERNETES"));
    command.arg("up");
    if audit {
        let policy = kubeconfig.with_file_name("audit-policy.yaml");
        std::fs::write(&policy, super::installed::AUDIT_POLICY).unwrap();
        command.arg("--audit-log").arg(kubeconfig.with_file_name("audit.log"));
        command.arg("--audit-policy").arg(policy);
    }
    let mut child = command
        .args(["--exit-on-stdin-close", "--dir"])
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
    kube::Client::try_from(read(kubeconfig).await).unwrap()
}

pub async fn read(kubeconfig: &std::path::Path) -> kube::Config {
    let read = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default()).await.unwrap()
}
