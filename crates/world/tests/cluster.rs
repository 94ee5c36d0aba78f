//! The whole world on the embedded API server, in simulated time.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api as Server, Settings};
use evac_clock::Clock;
use evac_world::{NodeSpec, Options, World};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

struct Bench {
    server: Arc<Server>,
    client: Client,
    clock: Clock,
    world: World,
}

impl Bench {
    fn new(nodes: Vec<NodeSpec>) -> Self {
        Self::with(Options::cluster(nodes))
    }

    fn with(options: Options) -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let server = Server::new(clock, Settings { seed: options.seed, ..Settings::default() });
        let client = Client::new(Service::trusted(server.clone(), Identity::admin()), "default");
        let world = World::start(client.clone(), clock, options);
        Self { server, client, clock, world }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + serde::Serialize
            + serde::de::DeserializeOwned
            + Clone
            + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), "default");
        let object: K = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    /// Waits in simulated time until the condition holds; says what it waited for when it does not.
    async fn until<F, Fut>(&self, what: &str, seconds: u64, mut holds: F)
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = bool>,
    {
        for _ in 0..seconds * 5 {
            if holds().await {
                return;
            }
            self.clock.sleep(Duration::from_millis(200)).await;
        }
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        let seen: Vec<_> = pods.items.iter().map(|p| serde_json::to_string(&p.status).unwrap()).collect();
        panic!("not within {seconds} s: {what}\n{}", seen.join("\n"));
    }

    async fn ready_pods(&self, selector: &str) -> Vec<Pod> {
        let pods = self.pods().list(&ListParams::default().labels(selector)).await.unwrap();
        pods.items.into_iter().filter(is_ready).collect()
    }

    async fn until_ready(&self, selector: &str, count: usize, seconds: u64) {
        self.until(&format!("{count} ready pods of {selector}"), seconds, || async {
            self.ready_pods(selector).await.len() == count
        })
        .await;
    }

    async fn until_nodes_ready(&self, count: usize) {
        self.until("nodes ready and open", 60, || async {
            let nodes = self.nodes().list(&ListParams::default()).await.unwrap();
            nodes.items.iter().filter(|n| node_ready(n) && taints(n).is_empty()).count() == count
        })
        .await;
    }
}

fn is_ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && pod
            .status
            .iter()
            .flat_map(|s| s.conditions.iter().flatten())
            .any(|c| c.type_ == "Ready" && c.status == "True")
}

fn node_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.iter().flat_map(|s| s.taints.iter().flatten());
    taints.map(|t| format!("{}:{}", t.key, t.effect)).collect()
}

fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|s| s.node_name.clone()).unwrap_or_default()
}

fn template(app: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": { "containers": [{ "name": "main", "image": "app:1",
            "resources": { "requests": { "cpu": "100m" } } }] },
    })
}

fn deployment(app: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": app },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": app } }, "template": template(app) },
    })
}

#[tokio::test(start_paused = true)]
async fn nodes_register_and_become_ready() {
    let bench = Bench::new(NodeSpec::workers(3));
    bench.until_nodes_ready(3).await;
    bench.clock.sleep(Duration::from_secs(600)).await;
    bench.until_nodes_ready(3).await;
    bench.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_spreads_rolls_and_goes_with_all_it_owns() {
    let bench = Bench::new(NodeSpec::workers(3));
    bench.create::<Deployment>(deployment("web", 3)).await;
    bench.until_ready("app=web", 3, 60).await;
    let mut nodes: Vec<_> = bench.ready_pods("app=web").await.iter().map(node_of).collect();
    nodes.sort();
    assert_eq!(nodes, ["node-1", "node-2", "node-3"]);

    let deployments: Api<Deployment> = Api::namespaced(bench.client.clone(), "default");
    let patch = json!({ "spec": { "template": { "metadata": { "labels": { "version": "2" } } } } });
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    bench.until_ready("app=web,version=2", 3, 60).await;
    bench
        .until("the old pods are gone", 60, || async {
            bench.pods().list(&ListParams::default()).await.unwrap().items.len() == 3
        })
        .await;
    bench
        .until("the deployment says so", 10, || async {
            let status = deployments.get("web").await.unwrap().status.unwrap_or_default();
            status.available_replicas == Some(3)
                && status.updated_replicas == Some(3)
                && status.replicas == Some(3)
        })
        .await;

    deployments.delete("web", &DeleteParams::background()).await.unwrap();
    bench
        .until("nothing is left", 60, || async {
            let sets: Api<ReplicaSet> = Api::namespaced(bench.client.clone(), "default");
            bench.pods().list(&ListParams::default()).await.unwrap().items.is_empty()
                && sets.list(&ListParams::default()).await.unwrap().items.is_empty()
        })
        .await;
    bench.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_come_after_what_they_are_about() {
    for parallel_writes in [1, 8] {
        let options = Options { parallel_writes, ..Options::cluster(NodeSpec::workers(1)) };
        let bench = Bench::with(options);
        bench.until_nodes_ready(1).await;
        let commits = Arc::new(Mutex::new(Vec::new()));
        let log = commits.clone();
        bench.server.store.observe(move |resource, change| {
            let object = change.object.value();
            let what = match resource {
                "pods" => &object["status"]["phase"],
                "events" => &object["reason"],
                _ => return,
            };
            log.lock().unwrap().push(format!("{resource} {}", what.as_str().unwrap_or_default()));
        });
        bench.create::<Deployment>(deployment("web", 1)).await;
        bench.until_ready("app=web", 1, 20).await;
        bench.world.idle().await;
        let commits = commits.lock().unwrap().clone();
        let at = |wanted: &str| commits.iter().position(|commit| commit == wanted);
        let (running, started) = (at("pods Running").unwrap(), at("events Started").unwrap());
        assert!(running < started, "{parallel_writes} at once: {commits:?}");
        bench.world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_cluster_says_why_a_pod_waits_and_takes_it_when_it_opens() {
    let bench = Bench::new(NodeSpec::workers(1));
    bench.until_nodes_ready(1).await;
    let cordon = |closed: bool| Patch::Merge(json!({ "spec": { "unschedulable": closed } }));
    bench.nodes().patch("node-1", &PatchParams::default(), &cordon(true)).await.unwrap();
    bench.create::<Deployment>(deployment("web", 1)).await;
    bench
        .until("the reason is told", 20, || async {
            let pods = bench.pods().list(&ListParams::default()).await.unwrap();
            pods.items.iter().flat_map(|p| &p.status).flat_map(|s| s.conditions.iter().flatten()).any(|c| {
                c.type_ == "PodScheduled"
                    && c.reason.as_deref() == Some("Unschedulable")
                    && c.message.as_deref().is_some_and(|m| {
                        m.starts_with("0/1 nodes are available: 1 node(s) were unschedulable.")
                    })
            })
        })
        .await;
    bench.nodes().patch("node-1", &PatchParams::default(), &cordon(false)).await.unwrap();
    bench.until_ready("app=web", 1, 20).await;
    bench.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn daemon_sets_stateful_sets_and_jobs_do_what_they_are_for() {
    let bench = Bench::new(NodeSpec::workers(3));
    bench.until_nodes_ready(3).await;
    bench
        .create::<DaemonSet>(json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "agent" },
            "spec": { "selector": { "matchLabels": { "app": "agent" } }, "template": template("agent") },
        }))
        .await;
    let classes: Api<k8s_openapi::api::storage::v1::StorageClass> = Api::all(bench.client.clone());
    let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": "fast" }, "provisioner": "csi.evac.dev" });
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    bench
        .create::<StatefulSet>(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
            "spec": {
                "replicas": 2, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
                "template": template("db"),
                "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                    "resources": { "requests": { "storage": "1Gi" } } } }],
            },
        }))
        .await;
    let mut job_template = template("job");
    job_template["spec"]["restartPolicy"] = json!("Never");
    bench
        .create::<Job>(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "once" },
            "spec": { "completions": 3, "parallelism": 2, "template": job_template },
        }))
        .await;
    bench.until_ready("app=agent", 3, 60).await;
    bench.until_ready("app=db", 2, 60).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(bench.client.clone(), "default");
    let claim = claims.get("data-db-1").await.unwrap();
    assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Bound"));
    let jobs: Api<Job> = Api::namespaced(bench.client.clone(), "default");
    bench
        .until("the job is complete", 60, || async {
            let status = jobs.get("once").await.unwrap().status.unwrap_or_default();
            status.succeeded == Some(3) && status.conditions.iter().flatten().any(|c| c.type_ == "Complete")
        })
        .await;
    bench.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_lets_one_pod_go_at_a_time() {
    let bench = Bench::new(NodeSpec::workers(3));
    bench.create::<Deployment>(deployment("web", 3)).await;
    bench
        .create::<PodDisruptionBudget>(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" },
            "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "web" } } },
        }))
        .await;
    bench.until_ready("app=web", 3, 60).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(bench.client.clone(), "default");
    let allowed = || async {
        budgets.get("web").await.unwrap().status.and_then(|s| s.disruptions_allowed).unwrap_or(-1)
    };
    bench.until("one is allowed", 10, || async { allowed().await == 1 }).await;
    let pods = bench.ready_pods("app=web").await;
    let evict = |i: usize| {
        let name = pods[i].metadata.name.clone().unwrap();
        let client = bench.client.clone();
        async move {
            let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": { "name": name, "namespace": "default" } });
            let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
            let request = http::Request::post(path)
                .header("content-type", "application/json")
                .body(body.to_string().into_bytes())
                .unwrap();
            client.request::<Value>(request).await.map(|_| ())
        }
    };
    evict(0).await.unwrap();
    // The default client would try again for minutes; the answer itself is what counts.
    assert_eq!(allowed().await, 0);
    bench.until("one is allowed again", 60, || async { allowed().await == 1 }).await;
    evict(1).await.unwrap();
    bench.until_ready("app=web", 3, 60).await;
    bench.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_is_noticed_emptied_after_five_minutes_and_comes_back() {
    let bench = Bench::new(NodeSpec::workers(3));
    bench.create::<Deployment>(deployment("web", 3)).await;
    bench.until_ready("app=web", 3, 60).await;
    bench.world.kubelet("node-2").stop();
    let died = bench.clock.now();
    bench
        .until("node-2 is not ready", 90, || async {
            !node_ready(&bench.nodes().get("node-2").await.unwrap())
        })
        .await;
    let noticed = bench.clock.now().duration_since(died).as_secs();
    assert!((40..=65).contains(&noticed), "noticed after {noticed} s");
    bench
        .until("it is tainted", 30, || async {
            taints(&bench.nodes().get("node-2").await.unwrap())
                .contains(&"node.kubernetes.io/unreachable:NoExecute".to_owned())
        })
        .await;
    assert_eq!(bench.ready_pods("app=web").await.len(), 2);
    bench.until_ready("app=web", 3, 400).await;
    let took = bench.clock.now().duration_since(died).as_secs();
    assert!((330..=400).contains(&took), "replaced after {took} s");
    let stuck = bench.pods().list(&ListParams::default()).await.unwrap();
    assert_eq!(stuck.items.iter().filter(|p| node_of(p) == "node-2").count(), 1);
    bench.world.kubelet("node-2").start();
    bench
        .until("the old pod is gone", 60, || async {
            bench.pods().list(&ListParams::default()).await.unwrap().items.len() == 3
        })
        .await;
    bench.until_nodes_ready(3).await;
    bench.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_takes_everything_with_it() {
    let bench = Bench::new(NodeSpec::workers(1));
    let namespaces: Api<Namespace> = Api::all(bench.client.clone());
    let team = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "team" } });
    namespaces.create(&PostParams::default(), &serde_json::from_value(team).unwrap()).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(bench.client.clone(), "team");
    let web = serde_json::from_value(deployment("web", 2)).unwrap();
    deployments.create(&PostParams::default(), &web).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(bench.client.clone(), "team");
    bench
        .until("pods run", 60, || async {
            pods.list(&ListParams::default()).await.unwrap().items.iter().filter(|p| is_ready(p)).count() == 2
        })
        .await;
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    bench
        .until("the namespace is gone", 120, || async { namespaces.get_opt("team").await.unwrap().is_none() })
        .await;
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty());
    bench.world.stop().await;
}

async fn history(seed: u64) -> BTreeMap<String, String> {
    let bench = Bench::with(Options { seed, ..Options::cluster(NodeSpec::workers(5)) });
    bench.create::<Deployment>(deployment("web", 12)).await;
    bench.until_ready("app=web", 12, 120).await;
    bench.nodes().delete("node-3", &DeleteParams::default()).await.unwrap();
    bench.clock.sleep(Duration::from_secs(120)).await;
    let pods = bench.pods().list(&ListParams::default()).await.unwrap();
    let found = pods
        .items
        .iter()
        .map(|p| (p.metadata.name.clone().unwrap(), serde_json::to_string(p).unwrap()))
        .collect();
    bench.world.stop().await;
    found
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_history_and_another_seed_another() {
    let first = history(7).await;
    let second = history(7).await;
    assert_eq!(first, second);
    assert_ne!(first.keys().collect::<Vec<_>>(), history(8).await.keys().collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn many_nodes_with_a_daemon_each_stay_ready_by_heartbeat_alone() {
    let bench = Bench::new(NodeSpec::workers(300));
    bench
        .create::<DaemonSet>(json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "agent" },
            "spec": { "selector": { "matchLabels": { "app": "agent" } }, "template": template("agent") },
        }))
        .await;
    bench.clock.sleep(Duration::from_secs(180)).await;
    assert_eq!(bench.ready_pods("app=agent").await.len(), 300);
    let nodes = bench.nodes().list(&ListParams::default()).await.unwrap();
    assert!(nodes.items.iter().all(node_ready));
    bench.world.stop().await;
}

/// Asks once for the eviction of a pod; the answer is the status code.
async fn evict_once(bench: &Bench, name: &str) -> u16 {
    let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } });
    let request = http::Request::post(format!("/api/v1/namespaces/default/pods/{name}/eviction"))
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes().into())
        .unwrap();
    bench.client.send(request).await.unwrap().status().as_u16()
}

fn budget(spec: Value) -> Value {
    let mut spec = spec;
    spec["selector"] = json!({ "matchLabels": { "app": "web" } });
    json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" }, "spec": spec })
}

/// `wanted` replicas on one node with room for `room`, under a budget: what an eviction is answered.
async fn one_eviction(wanted: u32, room: u32, spec: Option<Value>) -> u16 {
    let mut nodes = NodeSpec::workers(1);
    nodes[0].pods = room;
    let bench = Bench::new(nodes);
    if let Some(spec) = spec {
        bench.create::<PodDisruptionBudget>(budget(spec)).await;
    }
    bench.create::<Deployment>(deployment("web", i32::try_from(wanted).unwrap())).await;
    let up = usize::try_from(wanted.min(room)).unwrap();
    bench.until_ready("app=web", up, 120).await;
    bench.world.idle().await;
    let pods = bench.ready_pods("app=web").await;
    let code = evict_once(&bench, pods[0].metadata.name.as_deref().unwrap()).await;
    bench.world.stop().await;
    code
}

#[tokio::test(start_paused = true)]
async fn a118_budgets_let_pods_go_exactly_when_enough_others_are_healthy() {
    for (wanted, room, spec, code) in [
        (2, 20, None, 201),
        (2, 20, Some(json!({ "minAvailable": 2 })), 429),
        (3, 20, Some(json!({ "minAvailable": 2 })), 201),
        (10, 20, Some(json!({ "minAvailable": "90%" })), 201),
        (10, 9, Some(json!({ "minAvailable": "90%" })), 429),
        (10, 20, Some(json!({ "maxUnavailable": "10%" })), 201),
        (10, 9, Some(json!({ "maxUnavailable": 1 })), 429),
    ] {
        let shown = format!("{spec:?} with {wanted} wanted and room for {room}");
        assert_eq!(one_eviction(wanted, room, spec).await, code, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a119_a_changed_or_removed_budget_counts_at_once() {
    let bench = Bench::new(NodeSpec::workers(1));
    bench.create::<PodDisruptionBudget>(budget(json!({ "minAvailable": 3 }))).await;
    bench.create::<Deployment>(deployment("web", 3)).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(bench.client.clone(), "default");
    for (available, code) in [(Some(3), 429), (Some(2), 201), (Some(3), 429), (None, 201)] {
        bench.until_ready("app=web", 3, 120).await;
        if let Some(available) = available {
            let change = json!({ "spec": { "minAvailable": available } });
            budgets.patch("web", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        } else {
            budgets.delete("web", &DeleteParams::default()).await.unwrap();
        }
        bench.world.idle().await;
        let pods = bench.ready_pods("app=web").await;
        let name = pods[0].metadata.name.as_deref().unwrap();
        assert_eq!(evict_once(&bench, name).await, code, "minAvailable {available:?}");
    }
    bench.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a129_unready_pods_go_only_when_the_policy_always_lets_them() {
    for (ready, policy, evicted) in [
        (true, None, 1),
        (true, Some("IfHealthyBudget"), 1),
        (true, Some("AlwaysAllow"), 1),
        (false, None, 0),
        (false, Some("IfHealthyBudget"), 0),
        (false, Some("AlwaysAllow"), 3),
    ] {
        let bench = Bench::new(NodeSpec::workers(1));
        let mut spec = json!({ "minAvailable": 2 });
        if let Some(policy) = policy {
            spec["unhealthyPodEvictionPolicy"] = json!(policy);
        }
        bench.create::<PodDisruptionBudget>(budget(spec)).await;
        let mut web = deployment("web", 3);
        if !ready {
            web["spec"]["template"]["metadata"]["annotations"] = json!({ "evac.dev/fail": "unready" });
        }
        bench.create::<Deployment>(web).await;
        let running = || async {
            let pods = bench.pods().list(&ListParams::default().labels("app=web")).await.unwrap();
            let phase = |pod: &Pod| pod.status.as_ref().and_then(|s| s.phase.clone());
            pods.items.iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count() == 3
        };
        bench.until("three pods run", 60, running).await;
        if ready {
            bench.until_ready("app=web", 3, 60).await;
        }
        bench.world.idle().await;
        let pods = bench.pods().list(&ListParams::default().labels("app=web")).await.unwrap();
        let mut gone = 0;
        for pod in &pods.items {
            gone += usize::from(evict_once(&bench, pod.metadata.name.as_deref().unwrap()).await == 201);
        }
        assert_eq!(gone, evicted, "ready {ready} under {policy:?}");
        bench.world.stop().await;
    }
}
