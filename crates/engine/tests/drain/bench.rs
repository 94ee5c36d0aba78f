//! A cluster for drains: the embedded server and the simulated world in paused time.

use std::sync::atomic::AtomicI64;
use std::time::Duration;

use evac_api::Call;
use evac_api::wire as objects;
use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_clock::Clock;
use evac_core::drain::run::End;
use evac_core::drain::step::Event;
use evac_core::{Node, Policy};
use evac_engine::{DrainError, DrainRequest, Http, drain, nodes};
use evac_world::{NodeSpec, Options, World};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::wire::Wire;

pub struct Bench {
    pub admin: Http,
    /// What the drainer uses.
    pub http: Http,
    pub wire: Wire,
    pub clock: Clock,
    pub world: World,
    service: Service,
}

impl Bench {
    pub async fn start(count: usize) -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let server = Api::new(clock, Settings { seed: 7, ..Settings::default() });
        let service = Service::trusted(server, Identity::admin());
        let client = kube::Client::new(service.clone(), "default");
        let world = World::start(
            client.clone(),
            clock,
            Options { seed: 7, ..Options::cluster(NodeSpec::workers(count)) },
        );
        let wire = Wire::new();
        let http = Http::new(wire.client(service.clone()), clock, Duration::ZERO);
        let bench =
            Self { admin: Http::new(client, clock, Duration::ZERO), http, wire, clock, world, service };
        bench
            .until("all nodes are ready", async || {
                let all = nodes::by_selector(&bench.admin, "", 0).await.unwrap();
                all.len() == count
                    && all.iter().all(|node| node.health == evac_core::cluster::fact::Health::Ready)
            })
            .await;
        bench
    }

    /// A client on a machine whose system clock can be stepped.
    pub fn stepped(&self, seconds: &'static AtomicI64) -> Http {
        let client = self.wire.client(self.service.clone());
        Http::new(client, self.clock.stepped_by(seconds), Duration::ZERO)
    }

    /// A way to the server without faults.
    pub fn admin_client(&self) -> kube::Client {
        kube::Client::new(self.service.clone(), "default")
    }

    /// Waits in simulated time.
    pub async fn until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        for _ in 0..600 {
            if condition().await {
                return;
            }
            self.clock.sleep(Duration::from_millis(100)).await;
        }
        panic!("waited a minute for: {what}");
    }

    pub async fn send(&self, method: &'static str, path: &str, body: &Value) -> Value {
        let content_type =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let call = Call {
            method,
            path: path.to_owned(),
            content_type: Some(content_type),
            body: body.to_string().into_bytes(),
        };
        let answer = self.admin.send(&call).await.unwrap();
        assert!(answer.is_success(), "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// A pod bound to `node-1` and controlled by something, running and ready.
    pub async fn pod(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "labels": {"app": "web"},
                "annotations": {"evac.dev/start-seconds": "0", "evac.dev/stop-seconds": "1"},
                "ownerReferences": [
                    {"apiVersion": "example.com/v1", "kind": "Thing", "name": "web", "uid": "u", "controller": true}
                ],
            },
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
        });
        change(&mut pod);
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        self.send("POST", &format!("/api/v1/namespaces/{namespace}/pods"), &pod).await;
        if pod["metadata"]["annotations"].get("evac.dev/fail").is_none() {
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
            self.until("the pod is running", async || {
                let pod: Value = self.admin.read(&Call::get(&path)).await.unwrap();
                pod["status"]["phase"] == "Running"
            })
            .await;
        }
    }

    pub async fn deployment(&self, name: &str, replicas: u32) {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}, "annotations": {"evac.dev/stop-seconds": "1"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]}
                }
            }
        });
        self.send("POST", "/apis/apps/v1/namespaces/default/deployments", &deployment).await;
        let path = format!("/apis/apps/v1/namespaces/default/deployments/{name}");
        self.until("all replicas are ready", async || {
            let found: Value = self.admin.read(&Call::get(&path)).await.unwrap();
            found["status"]["readyReplicas"] == replicas
        })
        .await;
    }

    /// A pod of it on every node.
    pub async fn daemon_set(&self, name: &str) {
        let daemons = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}
        });
        self.send("POST", "/apis/apps/v1/namespaces/default/daemonsets", &daemons).await;
        let begin = format!("{name}-");
        self.until("its pod is there", async || {
            self.pods_on("node-1").await.iter().any(|pod| pod.starts_with(&begin))
        })
        .await;
    }

    /// Makes the pods on a node unready.
    pub async fn sicken(&self, node: &str) {
        for name in self.pods_on(node).await {
            let path = format!("/api/v1/namespaces/default/pods/{name}");
            self.send("PATCH", &path, &json!({"metadata": {"annotations": {"evac.dev/fail": "unready"}}}))
                .await;
        }
        self.clock.sleep(Duration::from_secs(5)).await;
    }

    pub async fn budget(&self, name: &str, app: &str, spec: Value) {
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": app}});
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec
        });
        self.send("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).await;
        let path = format!("/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}");
        self.until("the budget is computed", async || {
            let found: Value = self.admin.read(&Call::get(&path)).await.unwrap();
            found["status"]["observedGeneration"] == 1
        })
        .await;
    }

    pub async fn node(&self, name: &str) -> Node {
        nodes::get(&self.admin, name).await.unwrap()
    }

    pub async fn pods_on(&self, node: &str) -> Vec<String> {
        let path = evac_api::call::pods_on_node_path(node);
        let list: objects::List<objects::Pod> = self.admin.read(&Call::get(path)).await.unwrap();
        list.items.into_iter().map(|pod| pod.metadata.name).collect()
    }

    #[allow(clippy::unused_self, reason = "reads as what the bench asks for")]
    pub fn request(&self, nodes: &[&str]) -> DrainRequest {
        DrainRequest {
            nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
            policy: Policy::default(),
            owner: "tester".into(),
            instance: Some("box:1".into()),
            options: Vec::new(),
            page: None,
        }
    }

    pub async fn drain(&self, request: DrainRequest) -> Told {
        self.drain_until(request, CancellationToken::new()).await
    }

    pub async fn drain_until(&self, request: DrainRequest, stop: CancellationToken) -> Told {
        let began = self.clock.now();
        let mut events = Vec::new();
        let result =
            drain(self.http.clone(), request, stop, &mut |at, event| events.push((at, event.clone()))).await;
        let took = self.clock.now().duration_since(began).as_secs_f64();
        Told { result, events, took, began }
    }
}

/// What a drain said and how it ended.
pub struct Told {
    pub result: Result<Vec<(String, End)>, DrainError>,
    pub events: Vec<(Timestamp, Event)>,
    pub took: f64,
    pub began: Timestamp,
}

impl Told {
    pub fn end(&self) -> &End {
        &self.result.as_ref().unwrap()[0].1
    }

    /// Codes of what was named as in the way, with the seconds after which it was.
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        self.events
            .iter()
            .filter_map(|(at, event)| match event {
                Event::Waiting { blocker, .. } => {
                    Some((blocker.reason.code(), at.duration_since(self.began).as_secs_f64()))
                }
                _ => None,
            })
            .collect()
    }
}
