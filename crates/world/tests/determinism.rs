//! The same seed gives the same history, to the byte: a long random script of what people and machines do to a
//! cluster, run twice, commits the same objects in the same order at the same simulated times.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api as Server, Settings};
use evac_clock::Clock;
use evac_world::{NodeSpec, Options, World};
use kube::Client;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};

const STEPS: usize = 1000;
const NODES: usize = 6;
const APPS: usize = 5;

type Log = Arc<Mutex<Vec<String>>>;

/// A person who does one thing after the other, chosen by a seed.
struct Script {
    client: Client,
    clock: Clock,
    world: World,
    random: ChaCha8Rng,
    /// How often each kind of step was accepted by the server, to see that the script is not idle.
    done: std::collections::BTreeMap<&'static str, usize>,
}

impl Script {
    fn pick(&mut self, below: usize) -> usize {
        usize::try_from(self.random.next_u64() % below as u64).unwrap()
    }

    async fn send(&self, method: &str, path: &str, content: &str, body: Option<Value>) -> Option<Value> {
        let bytes = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(bytes)
            .unwrap();
        self.client.request::<Value>(request).await.ok()
    }

    async fn post(&self, path: &str, body: Value) -> bool {
        self.send("POST", path, "application/json", Some(body)).await.is_some()
    }

    async fn patch(&self, path: &str, body: Value) -> bool {
        self.send("PATCH", path, "application/merge-patch+json", Some(body)).await.is_some()
    }

    async fn some_pod(&mut self) -> Option<String> {
        let list = self.send("GET", "/api/v1/namespaces/default/pods", "", None).await?;
        let pods = list["items"].as_array()?;
        if pods.is_empty() {
            return None;
        }
        let chosen = self.pick(pods.len());
        Some(pods[chosen]["metadata"]["name"].as_str()?.to_owned())
    }

    async fn step(&mut self) {
        let node = format!("node-{}", self.pick(NODES) + 1);
        let app = format!("app-{}", self.pick(APPS) + 1);
        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        let (what, accepted) = match self.pick(14) {
            0 | 1 => {
                let replicas = self.pick(6);
                ("deploy", self.post(deployments, deployment(&app, replicas)).await)
            }
            2..=4 => {
                let body = json!({ "spec": { "replicas": self.pick(8) } });
                ("scale", self.patch(&format!("{deployments}/{app}"), body).await)
            }
            5 => {
                let label = self.pick(1000).to_string();
                let body =
                    json!({ "spec": { "template": { "metadata": { "labels": { "version": label } } } } });
                ("roll", self.patch(&format!("{deployments}/{app}"), body).await)
            }
            6 => {
                let path = format!("{deployments}/{app}");
                let body = json!({ "propagationPolicy": "Background" });
                ("undeploy", self.send("DELETE", &path, "application/json", Some(body)).await.is_some())
            }
            7 | 8 => match self.some_pod().await {
                Some(pod) => {
                    let path = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
                    let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
                        "metadata": { "name": pod, "namespace": "default" } });
                    ("evict", self.post(&path, body).await)
                }
                None => ("evict", false),
            },
            9 => match self.some_pod().await {
                Some(pod) => {
                    let path = format!("/api/v1/namespaces/default/pods/{pod}");
                    ("delete pod", self.send("DELETE", &path, "", None).await.is_some())
                }
                None => ("delete pod", false),
            },
            10 => {
                self.world.kubelet(&node).stop();
                ("stop", true)
            }
            11 => {
                self.world.kubelet(&node).start();
                ("start", true)
            }
            12 => {
                let closed = self.pick(2) == 0;
                let body = json!({ "spec": { "unschedulable": closed } });
                ("cordon", self.patch(&format!("/api/v1/nodes/{node}"), body).await)
            }
            _ => {
                let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
                let body = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                    "metadata": { "name": app },
                    "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": app } } } });
                ("budget", self.post(path, body).await)
            }
        };
        *self.done.entry(what).or_default() += usize::from(accepted);
        let pause = self.random.next_u64() % 3_000;
        self.clock.sleep(Duration::from_millis(pause)).await;
    }
}

fn deployment(app: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": app },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": app } },
            "template": {
                "metadata": { "labels": { "app": app } },
                "spec": {
                    // Short, so that dead nodes are emptied within the script.
                    "tolerations": [
                        { "key": "node.kubernetes.io/unreachable", "operator": "Exists",
                          "effect": "NoExecute", "tolerationSeconds": 20 }],
                    "containers": [{ "name": "main", "image": "app:1",
                        "resources": { "requests": { "cpu": "500m" } } }],
                },
            },
        },
    })
}

/// Every commit of a run as one line each, and what the script got done.
async fn history(seed: u64, steps: usize) -> (Vec<String>, std::collections::BTreeMap<&'static str, usize>) {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let server = Server::new(clock, Settings { seed, ..Settings::default() });
    let log = Log::default();
    let sink = log.clone();
    server.store.observe(move |resource, change| {
        let mut line = String::new();
        let _ = write!(line, "{resource} {:?} {:?} ", change.kind, change.key);
        line.push_str(std::str::from_utf8(&change.object.json).unwrap());
        sink.lock().unwrap().push(line);
    });
    let client = Client::new(Service::trusted(server, Identity::admin()), "default");
    let options = Options { seed, ..Options::cluster(NodeSpec::workers(NODES)) };
    let world = World::start(client.clone(), clock, options);
    let random = ChaCha8Rng::seed_from_u64(seed);
    let mut script = Script { client, clock, world, random, done: std::collections::BTreeMap::new() };
    for _ in 0..steps {
        script.step().await;
    }
    let done = std::mem::take(&mut script.done);
    script.world.stop().await;
    let lines = std::mem::take(&mut *log.lock().unwrap());
    (lines, done)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_random_steps_give_the_same_commits_to_the_byte_and_another_seed_others() {
    let (first, done) = history(11, STEPS).await;
    for what in
        ["deploy", "scale", "roll", "undeploy", "evict", "delete pod", "stop", "start", "cordon", "budget"]
    {
        assert!(done.get(what).is_some_and(|n| *n > 0), "the script never got to {what}: {done:?}");
    }
    assert!(first.len() > 5 * STEPS, "only {} commits", first.len());
    let (second, _) = history(11, STEPS).await;
    if let Some((a, b)) = first.iter().zip(&second).find(|(a, b)| a != b) {
        panic!("the runs part at\n{a}\n{b}");
    }
    assert_eq!(first.len(), second.len());
    // The first steps tell already; the whole way would tell no more.
    let (other, _) = history(12, STEPS / 20).await;
    assert!(!first.starts_with(&other));
}
