//! A cluster with virtual machines whose nodes can lose their power, and controllers that switch it off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evac_core::failover::{FailoverSpec, How, ProofFrom};
use evac_core::machines::Roles;
use evac_engine::Http;
use evac_engine::failover::{
    End, Event, FailoverError, FailoverRequest, Fence, PowerError, PowerState, PowerSwitch, failover,
};
use evac_engine::operator::failover as role;
use evac_engine::operator::install;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::machines::{Cluster, VMIS, VMS, vm};

pub const POLICIES: &str = "/apis/evac.dev/v1alpha1/failoverpolicies";

pub struct Bench {
    pub cluster: Arc<Cluster>,
    nodes: usize,
}

/// How the controller of a machine behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    Good,
    /// It cannot be reached.
    Broken,
    /// So many times it says that it has switched the machine off, and has not.
    Lies(u32),
    /// It is the controller of another machine, the last one, and does all it is told.
    Wrong,
}

/// The controllers of all simulated machines.
pub struct Controllers {
    cluster: Arc<Cluster>,
    how: Mutex<Controller>,
    stranger: String,
    off: Mutex<BTreeSet<String>>,
    pub asked: Mutex<Vec<String>>,
}

impl Controllers {
    pub fn become_(&self, how: Controller) {
        *self.how.lock().unwrap() = how;
    }

    pub fn times_asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl PowerSwitch for Controllers {
    fn name(&self) -> String {
        "controller".into()
    }

    fn off<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), PowerError>> {
        async move {
            self.asked.lock().unwrap().push(format!("off {node}"));
            let mut how = self.how.lock().unwrap();
            match *how {
                Controller::Broken => {
                    let (program, said) = (self.name(), String::new());
                    return Err(PowerError::Failed { program, action: "off", code: 1, said });
                }
                Controller::Lies(0) | Controller::Good => {
                    self.cluster.world.kubelet(node).power_off();
                    self.off.lock().unwrap().insert(node.to_owned());
                }
                Controller::Wrong => {
                    self.cluster.world.kubelet(&self.stranger).power_off();
                    self.off.lock().unwrap().insert(node.to_owned());
                }
                Controller::Lies(times) => *how = Controller::Lies(times - 1),
            }
            Ok(())
        }
        .boxed()
    }

    fn state<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<PowerState, PowerError>> {
        async move {
            let off = self.off.lock().unwrap().contains(node);
            Ok(if off { PowerState::Off } else { PowerState::On })
        }
        .boxed()
    }
}

impl Bench {
    pub async fn start(nodes: usize) -> Self {
        Self::start_roles(nodes, Roles::all()).await
    }

    /// With an operator that may do everything and has these roles.
    pub async fn start_roles(nodes: usize, roles: Roles) -> Self {
        let cluster = Arc::new(Cluster::start_roles(nodes, roles).await);
        install::policies(&cluster.http).await.unwrap();
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disks"},
            "provisioner": "disks.example.com",
        });
        let (code, body) = cluster.create("/apis/storage.k8s.io/v1/storageclasses", &class).await;
        assert_eq!(code, 201, "{body}");
        let bench = Self { cluster, nodes };
        // Policies never look after all nodes; the last one is left out.
        for n in 1..nodes {
            bench.patch_node(&format!("node-{n}"), &json!({"metadata": {"labels": {"pool": "vms"}}})).await;
        }
        // Everybody has given a sign of life.
        bench.cluster.pass(15).await;
        bench
    }

    pub fn controllers(&self, how: Controller) -> Arc<Controllers> {
        Arc::new(Controllers {
            cluster: self.cluster.clone(),
            how: Mutex::new(how),
            stranger: format!("node-{}", self.nodes),
            off: Mutex::default(),
            asked: Mutex::default(),
        })
    }

    pub async fn patch_node(&self, node: &str, body: &Value) {
        let path = format!("/api/v1/nodes/{node}");
        let (code, answer) = self.cluster.send("PATCH", &path, "application/merge-patch+json", body).await;
        assert_eq!(code, 200, "{answer}");
    }

    /// What is created now starts on `node-1`.
    pub async fn only_node_1(&self, only: bool) {
        for n in 2..=self.nodes {
            let unschedulable = if only { json!(true) } else { Value::Null };
            self.patch_node(&format!("node-{n}"), &json!({"spec": {"unschedulable": unschedulable}})).await;
        }
    }

    /// A machine that runs on `node-1` and writes to a disk of its own.
    pub async fn machine(&self, name: &str, strategy: &str) {
        self.only_node_1(true).await;
        let mut object = vm(name, strategy, &json!({}));
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "disks", "resources": {"requests": {"storage": "1Gi"}}},
        });
        let (code, body) =
            self.cluster.create("/api/v1/namespaces/default/persistentvolumeclaims", &claim).await;
        assert_eq!(code, 201, "{body}");
        object["spec"]["template"]["spec"]["volumes"] =
            json!([{"name": "root", "persistentVolumeClaim": {"claimName": name}}]);
        let (code, body) = self.cluster.create(VMS, &object).await;
        assert_eq!(code, 201, "{body}");
        if strategy == "Manual" || strategy == "RerunOnFailure" {
            let path = format!("{}/virtualmachines/{name}/start", crate::machines::SUB);
            let (code, body) = self.cluster.send("PUT", &path, "application/json", &json!({})).await;
            assert!(code == 202 || strategy == "RerunOnFailure", "{body}");
        }
        self.runs(name).await;
        self.only_node_1(false).await;
    }

    pub async fn runs(&self, name: &str) -> Value {
        self.cluster.until(&format!("{VMIS}/{name}"), |vmi| vmi["status"]["phase"] == "Running").await
    }

    pub async fn instance(&self, name: &str) -> Value {
        self.cluster.get(&format!("{VMIS}/{name}")).await.unwrap_or_default()
    }

    pub async fn node_of(&self, name: &str) -> String {
        self.instance(name).await["status"]["nodeName"].as_str().unwrap_or_default().to_owned()
    }

    pub async fn node(&self, name: &str) -> Value {
        self.cluster.get(&format!("/api/v1/nodes/{name}")).await.unwrap_or_default()
    }

    /// Waits until Kubernetes has noticed that a node is silent.
    pub async fn unreachable(&self, node: &str) {
        let path = format!("/api/v1/nodes/{node}");
        let is_unknown = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "Unknown"))
        };
        self.cluster.until(&path, is_unknown).await;
    }

    pub async fn ready(&self, node: &str) {
        let path = format!("/api/v1/nodes/{node}");
        let is_ready = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
        };
        self.cluster.until(&path, is_ready).await;
    }

    /// Waits until nothing of a failover is left on a node.
    pub async fn given_back(&self, node: &str) {
        let in_use = |node: &Value| {
            let marks = &node["metadata"]["annotations"];
            node["spec"]["unschedulable"].is_null()
                && marks["evac.dev/fenced"].is_null()
                && marks["evac.dev/drain"].is_null()
        };
        self.cluster.until(&format!("/api/v1/nodes/{node}"), in_use).await;
    }

    /// One failover as the command line runs it.
    pub async fn failover(
        &self,
        request: &FailoverRequest,
    ) -> (Result<End, FailoverError>, Vec<(Timestamp, Event)>) {
        self.failover_by(&self.cluster.http, request).await
    }

    pub async fn failover_by(
        &self,
        http: &Http,
        request: &FailoverRequest,
    ) -> (Result<End, FailoverError>, Vec<(Timestamp, Event)>) {
        let mut events = Vec::new();
        let stop = CancellationToken::new();
        let end =
            failover(http, request, &stop, &mut |at, event: &Event| events.push((at, event.clone()))).await;
        (end, events)
    }

    /// Starts the role, with these controllers in the place of fence agents.
    pub fn role(&self, controllers: &Arc<Controllers>) -> DropGuard {
        Self::role_by(self.cluster.http.clone(), controllers)
    }

    pub fn role_by(http: Http, controllers: &Arc<Controllers>) -> DropGuard {
        let stop = CancellationToken::new();
        let switch = controllers.clone();
        let switches: role::Switches = Arc::new(move |_, _, _| Ok(switch.clone()));
        tokio::spawn(role::run(http, switches, stop.clone(), mpsc::channel(1).1));
        stop.drop_guard()
    }

    pub async fn policy(&self, name: &str, change: impl FnOnce(&mut Value)) -> (u16, Value) {
        let mut object = json!({
            "apiVersion": "evac.dev/v1alpha1", "kind": "FailoverPolicy", "metadata": {"name": name},
            "spec": {
                "nodeSelector": {"matchLabels": {"pool": "vms"}},
                "notReadyFor": "1m",
                "proof": {"agent": {"command": "fence_controller"}},
                "maxUnhealthy": 1,
            },
        });
        change(&mut object["spec"]);
        self.cluster.create(POLICIES, &object).await
    }

    pub async fn patch_policy(&self, name: &str, spec: &Value) {
        let path = format!("{POLICIES}/{name}");
        let body = json!({"spec": spec});
        let (code, answer) = self.cluster.send("PATCH", &path, "application/merge-patch+json", &body).await;
        assert_eq!(code, 200, "{answer}");
    }

    pub async fn policy_status(&self, name: &str) -> Value {
        self.cluster.get(&format!("{POLICIES}/{name}")).await.unwrap_or_default()["status"].clone()
    }

    /// The verdict of a policy about a node.
    pub async fn verdict(&self, policy: &str, node: &str) -> String {
        let status = self.policy_status(policy).await;
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        let found = nodes.iter().find(|entry| entry["name"] == node);
        found.and_then(|entry| entry["verdict"].as_str()).unwrap_or_default().to_owned()
    }

    /// The reasons of all events about an object, with how often each was given.
    pub async fn events(&self, name: &str) -> BTreeMap<String, usize> {
        let list = self.cluster.get("/api/v1/namespaces/default/events").await.unwrap_or_default();
        let mut reasons = BTreeMap::new();
        for event in list["items"].as_array().into_iter().flatten() {
            if event["involvedObject"]["name"] == name && event["source"]["component"] == "evac" {
                let reason = event["reason"].as_str().unwrap_or_default().to_owned();
                *reasons.entry(reason).or_default() += 1;
            }
        }
        reasons
    }

    pub async fn violations(&self) -> Vec<String> {
        self.cluster.world.violations().await.iter().map(ToString::to_string).collect()
    }

    pub async fn out_of_service(&self, node: &str) -> bool {
        let node = self.node(node).await;
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.iter().any(|taint| taint["key"] == "node.kubernetes.io/out-of-service")
    }
}

/// Where a proof is to come from, and what switches the machine off for it.
pub type Proof = (ProofFrom, Option<Fence>);

pub const NO_PROOF: Proof = (ProofFrom::Nowhere, None);

pub fn statement() -> Proof {
    (ProofFrom::Said(How::Statement { by: "kim".into(), reason: "pulled the plug".into() }), None)
}

pub fn request(node: &str, (proof, fence): Proof) -> FailoverRequest {
    let spec = FailoverSpec {
        node: node.into(),
        owner: "kim".into(),
        options: vec!["failover".into()],
        proof,
        release: None,
        allow_control_plane: false,
        dry_run: false,
        timeout: Some(Duration::from_secs(600)),
        stall: None,
        drain: Duration::from_secs(30),
        policy: None,
    };
    FailoverRequest { spec, fence, silence: evac_core::failover::Silence::default() }
}

pub fn fence(controllers: &Arc<Controllers>) -> Proof {
    let fence = Fence { switch: controllers.clone(), tries: 3, pause: Duration::from_secs(5) };
    (fence.proof(), Some(fence))
}
