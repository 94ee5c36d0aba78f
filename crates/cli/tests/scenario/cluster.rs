//! The kinds of cluster a scenario runs on.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
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
use evac_upstream::kubernetes;
use evac_upstream::kubevirt::{self, Release};
use evac_upstream::ready::{hosts_machines, served, usable};
use evac_world::{NodeSpec, Options, World};
use tokio::process::Child;

#[path = "../../src/in_process.rs"]
mod in_process;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// The embedded server with the whole simulated cluster.
    Sandbox,
    /// A real Kubernetes control plane with simulated nodes.
    Kubernetes,
    /// The same, with KubeVirt's own control plane of machines in place of ours.
    KubeVirt(Release),
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
    /// KubeVirt's own control plane leads the machines.
    pub has_kubevirt: bool,
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
        let arm = if matches!(arm, Arm::KubeVirt(_)) { Arm::Kubernetes } else { arm };
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
            Arm::Kubernetes | Arm::KubeVirt(_) | Arm::Installed => {
                let child = start_kubernetes(&kubeconfig, arm == Arm::Installed).await;
                let client = kube::Client::try_from(kubernetes::config(&kubeconfig).await).unwrap();
                (client, Server::Kubernetes { _child: child }, Options::kubelets_only(specs))
            }
        };
        let agents = match arm {
            Arm::KubeVirt(_) => kubevirt::agents(&kubeconfig).await,
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
        } else if let Arm::KubeVirt(release) = arm {
            processes = release.start(&http, &kubeconfig).await;
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
            (_, false) if matches!(arm, Arm::KubeVirt(_)) => {
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
            has_kubevirt: matches!(arm, Arm::KubeVirt(_)),
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

async fn start_kubernetes(kubeconfig: &Path, audit: bool) -> Child {
    if !audit {
        return kubernetes::start(kubeconfig, &[]).await;
    }
    let [log, policy] = ["audit.log", "audit-policy.yaml"].map(|name| kubeconfig.with_file_name(name));
    std::fs::write(&policy, super::installed::AUDIT_POLICY).unwrap();
    let [log_flag, policy_flag] = ["--audit-log", "--audit-policy"].map(OsStr::new);
    kubernetes::start(kubeconfig, &[log_flag, log.as_os_str(), policy_flag, policy.as_os_str()]).await
}
