//! A rehearsal tells what the drain then does, of clusters that are captured and drained in virtual time.

use std::time::Duration;

use evac_api::kubevirt::request;
use evac_apiserver::server::{Api, Settings};
use evac_clock::Clock;
use evac_core::Policy;
use evac_core::drain::run::End;
use evac_core::machines::{Role, Roles};
use evac_engine::capture::capture;
use evac_engine::http::parse;
use evac_engine::operator::Operator;
use evac_engine::{DrainRequest, Http, drain};
use evac_world::{NodeSpec, Options, World};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::chart::Chart;
use super::objects::{Objects, key, text};
use super::picture::{html, lines, svg};
use super::report::Report;
use super::run::{Ran, Rehearsal, rehearse};
use super::what_if::WhatIf;
use crate::in_process;
use crate::sandbox::client;

const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const BANDWIDTH: f64 = 1188.0;

/// A cluster with machines, in the virtual time of the test.
struct Cluster {
    http: Http,
    clock: Clock,
    world: World,
    operator: Operator,
}

impl Cluster {
    async fn of(nodes: usize) -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let api = Api::new(clock, Settings::default());
        let world = World::start(client(&api), clock, Options::cluster(NodeSpec::workers(nodes)));
        world.answer_for_agents(&api);
        let operator = in_process::machines(&api, client(&api), Roles::of(Role::KUBEVIRT)).await.unwrap();
        let http = Http::new(client(&api), clock, Duration::ZERO);
        clock.sleep(Duration::from_secs(10)).await;
        Self { http, clock, world, operator }
    }

    async fn send(&self, method: &'static str, path: &str, kind: &'static str, body: &Value) {
        let answer = self.http.send(&request::send(method, path.to_owned(), kind, body)).await.unwrap();
        parse::<Value>(&answer).unwrap();
    }

    async fn create(&self, path: &str, object: &Value) {
        self.send("POST", path, "application/json", object).await;
    }

    async fn open(&self, node: &str, is_open: bool) {
        let body = json!({"spec": {"unschedulable": !is_open}});
        self.send("PATCH", &format!("/api/v1/nodes/{node}"), "application/merge-patch+json", &body).await;
    }

    /// What is created meanwhile comes to run on this node.
    async fn only_on(&self, node: &str, nodes: usize, objects: &[(&str, Value)]) {
        let others: Vec<String> =
            (1..=nodes).map(|n| format!("node-{n}")).filter(|one| one != node).collect();
        for other in &others {
            self.open(other, false).await;
        }
        for (path, object) in objects {
            self.create(path, object).await;
        }
        self.clock.sleep(Duration::from_secs(60)).await;
        for other in &others {
            self.open(other, true).await;
        }
        self.clock.sleep(Duration::from_secs(10)).await;
    }

    async fn snapshot(&self) -> Objects {
        Objects::parsed(capture(&self.http, "test").await.unwrap()).unwrap()
    }

    /// Drains for real: seconds, and who has left each node for which.
    async fn drain(&self, policy: &Policy) -> (i64, Vec<(String, End)>, Vec<(String, String)>) {
        let request = DrainRequest {
            nodes: vec!["node-1".into()],
            policy: policy.clone(),
            owner: "test".into(),
            instance: Some("test".into()),
            options: Vec::new(),
            page: None,
        };
        let began = self.clock.now();
        let stop = CancellationToken::new();
        let ends = drain(self.http.clone(), request, stop, &mut |_, _| {}).await.unwrap();
        let seconds = self.clock.now().duration_since(began).as_secs();
        let list: Value = self
            .http
            .read(&evac_api::Call::get("/apis/kubevirt.io/v1/virtualmachineinstances"))
            .await
            .unwrap();
        let host = |one: &Value| (key(one), text(one, "/status/nodeName").to_owned());
        (seconds, ends, list["items"].as_array().unwrap().iter().map(host).collect())
    }

    async fn stop(self) {
        self.operator.stop().await;
        self.world.stop().await;
    }
}

fn machine(name: &str, memory: &str) -> (&'static str, Value) {
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name, "namespace": "default"},
        "spec": {"runStrategy": "Always", "template": {
            // What a rehearsal would have to guess is said, so that both go by the same.
            "metadata": {"annotations": {"evac.dev/dirty-rate": "40", "evac.dev/shutdown-seconds": "3"}},
            "spec": {
                "evictionStrategy": "LiveMigrate",
                "domain": {"devices": {}, "memory": {"guest": memory}},
                "volumes": [{"name": "init", "cloudInitNoCloud": {"userData": "#cloud-config"}}],
            },
        }},
    });
    (MACHINES, object)
}

fn web(replicas: u32) -> (&'static str, Value) {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"evac.dev/stop-seconds": "2"}},
                "spec": {"containers": [{"name": "main", "image": "example/web"}]},
            },
        },
    });
    ("/apis/apps/v1/namespaces/default/deployments", object)
}

fn budget(available: u32) -> (&'static str, Value) {
    let object = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": available, "selector": {"matchLabels": {"app": "web"}}},
    });
    ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", object)
}

fn policy() -> Policy {
    Policy { timeout: Some(Duration::from_secs(3600)), ..Policy::default() }
}

fn rehearsed(snapshot: Objects, seed: u64) -> Ran {
    rehearsed_on(snapshot, seed, &["node-1"], false)
}

/// In a thread of its own, because it has a runtime of its own.
fn rehearsed_on(snapshot: Objects, seed: u64, nodes: &[&str], one_by_one: bool) -> Ran {
    let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
    let rehearsal =
        Rehearsal { nodes, one_by_one, policy: policy(), owner: "test".into(), bandwidth: BANDWIDTH };
    std::thread::spawn(move || rehearse(&snapshot, &rehearsal, seed)).join().unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_rehearsal_foretells_who_moves_and_how_long_it_takes() {
    let cluster = Cluster::of(3).await;
    let guests = [machine("a", "2Gi"), machine("b", "8Gi"), machine("c", "4Gi"), machine("d", "1Gi")];
    cluster.only_on("node-1", 3, &guests).await;
    cluster.only_on("node-1", 3, &[web(2), budget(1)]).await;
    let snapshot = cluster.snapshot().await;
    let ran = rehearsed(snapshot, 1);
    assert_eq!(ran.notes, Vec::<String>::new());
    let (seconds, ends, hosts) = cluster.drain(&policy()).await;
    assert!(matches!(ends.as_slice(), [(_, End::Drained { .. })]), "{ends:?}");
    assert!(matches!(ran.ends.as_slice(), [(_, _, End::Drained { .. })]), "{:?}", ran.ends);
    let apart = (ran.seconds() - seconds).abs();
    assert!(apart * 10 <= seconds, "rehearsed {} s, took {seconds} s", ran.seconds());
    let moved: Vec<String> =
        ran.record.moves().into_iter().filter(|one| one.succeeded).map(|one| one.guest).collect();
    let left: Vec<&String> =
        hosts.iter().filter(|(_, node)| node != "node-1").map(|(guest, _)| guest).collect();
    assert_eq!(moved.len(), left.len(), "{moved:?} {hosts:?}");
    assert!(left.iter().all(|guest| moved.contains(guest)), "{moved:?} {hosts:?}");
    assert_eq!(ran.record.peak(), 2, "two may leave a node at once");
    assert_eq!(ran.record.leaves().len(), 2, "{:?}", ran.record.leaves());
    assert_eq!(ran.record.starts().iter().filter(|one| one.node != "node-1").count(), 2);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_never_met_blocks_the_rehearsal_as_it_blocks_the_drain_and_not_without_it() {
    let cluster = Cluster::of(2).await;
    cluster.only_on("node-1", 2, &[web(2), budget(2)]).await;
    let snapshot = cluster.snapshot().await;
    let mut without = cluster.snapshot().await;
    let ran = rehearsed(snapshot, 1);
    let (_, ends, _) = cluster.drain(&policy()).await;
    let code = |end: &End| match end {
        End::Blocked { blockers } => blockers.iter().map(|one| one.reason.code()).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(code(&ran.ends[0].2), code(&ends[0].1));
    WhatIf::WithoutBudget("default/web".into()).apply(&mut without).unwrap();
    let ran = rehearsed(without, 1);
    assert!(matches!(ran.ends[0].2, End::Drained { .. }), "{:?}", ran.ends);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn more_migrations_at_once_and_one_more_node_are_what_a_drain_would_make_of_them() {
    let cluster = Cluster::of(2).await;
    // Larger than what is left elsewhere: only one of them finds a place.
    cluster.only_on("node-1", 2, &[machine("a", "12Gi"), machine("b", "12Gi")]).await;
    cluster.only_on("node-2", 2, &[machine("c", "12Gi")]).await;
    let mut more = cluster.snapshot().await;
    let ran = rehearsed(cluster.snapshot().await, 1);
    assert!(!matches!(ran.ends[0].2, End::Drained { .. }), "{:?}", ran.ends);
    WhatIf::NodeLike("node-2".into()).apply(&mut more).unwrap();
    WhatIf::PerNode(1).apply(&mut more).unwrap();
    let ran = rehearsed(more, 1);
    assert!(matches!(ran.ends[0].2, End::Drained { .. }), "{:?}", ran.ends);
    assert_eq!(ran.record.peak(), 1, "one at a time was asked for");
    let targets: Vec<Option<String>> = ran.record.moves().into_iter().map(|one| one.to).collect();
    assert!(targets.contains(&Some("node-2-more-1".into())), "{targets:?}");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_cannot_be_migrated_cannot_in_a_rehearsal_either() {
    let cluster = Cluster::of(2).await;
    let (path, mut fixed) = machine("fixed", "1Gi");
    fixed["spec"]["template"]["metadata"]["annotations"]["evac.dev/not-migratable"] =
        json!("HostDeviceNotLiveMigratable: VMI uses a PCI host devices");
    cluster.only_on("node-1", 2, &[(path, fixed)]).await;
    let ran = rehearsed(cluster.snapshot().await, 1);
    let (_, ends, _) = cluster.drain(&policy()).await;
    let words =
        |end: &End| crate::render::blockers(end).iter().map(|one| one.reason.message()).collect::<Vec<_>>();
    assert!(!words(&ends[0].1).is_empty(), "{ends:?}");
    assert_eq!(words(&ran.ends[0].2), words(&ends[0].1));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_seed_is_one_history_and_another_differs_in_what_is_not_known() {
    let cluster = Cluster::of(2).await;
    let (path, mut guest) = machine("a", "8Gi");
    guest["spec"]["template"]["metadata"]["annotations"] = json!({});
    cluster.only_on("node-1", 2, &[(path, guest)]).await;
    let mut times = Vec::new();
    for seed in [1, 2, 2] {
        let ran = rehearsed(cluster.snapshot().await, seed);
        let moves = ran.record.moves();
        let times_of = |at: Option<jiff::Timestamp>| at.map(|at| at.duration_since(ran.began).as_millis());
        times.push((times_of(moves[0].begun), times_of(moves[0].ended)));
    }
    assert_ne!(times[0], times[1]);
    assert_eq!(times[1], times[2]);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn secrets_of_a_cluster_are_in_no_capture_report_or_picture() {
    const CANARY: &str = "correct-horse-battery-staple";
    let cluster = Cluster::of(2).await;
    let of = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "keys", "namespace": "default"}, "data": {"key": "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZQ=="}});
    let mut map = of("ConfigMap");
    map["data"] = json!({"key": CANARY});
    let (path, mut guest) = machine("a", "1Gi");
    guest["metadata"]["annotations"] = json!({"note": CANARY});
    let template = &mut guest["spec"]["template"];
    template["metadata"]["annotations"]["note"] = json!(CANARY);
    template["spec"]["volumes"] = json!([{"name": "init", "cloudInitNoCloud": {"userData": CANARY}}]);
    let (apps, mut web) = web(1);
    let container = &mut web["spec"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{"name": "PASSWORD", "value": CANARY}]);
    container["args"] = json!(["--password", CANARY]);
    web["spec"]["template"]["metadata"]["annotations"]["note"] = json!(CANARY);
    let all = [
        ("/api/v1/namespaces/default/secrets", of("Secret")),
        ("/api/v1/namespaces/default/configmaps", map),
        (path, guest),
        (apps, web),
    ];
    cluster.only_on("node-1", 2, &all).await;
    let note = json!({"metadata": {"annotations": {"note": CANARY}}});
    cluster.send("PATCH", "/api/v1/nodes/node-1", "application/merge-patch+json", &note).await;
    let captured = capture(&cluster.http, "test").await.unwrap();
    let text = captured.lines.join("\n");
    assert!(text.contains("\"web-") && text.contains("default"), "the pods are there");
    let runs = [rehearsed(Objects::parsed(captured).unwrap(), 1)];
    assert_eq!(runs[0].record.moves().len(), 1);
    let report = Report::of(&runs, "a test");
    let chart = Chart::of(&runs[0]);
    let told = [
        text,
        report.json(&runs).to_string(),
        svg(&chart, &report.title),
        html(&chart, &report.title, &report.lines),
        lines(&chart, 120).join("\n"),
    ];
    for one in told {
        assert!(!one.contains(CANARY) && !one.contains("Y29ycmVjdC1ob3JzZS"), "{one}");
    }
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_one_by_one_are_given_back_before_the_next() {
    let cluster = Cluster::of(2).await;
    cluster.only_on("node-1", 2, &[machine("a", "1Gi")]).await;
    let both = ["node-1", "node-2"];
    let ran = rehearsed_on(cluster.snapshot().await, 1, &both, true);
    assert!(ran.ends.iter().all(|(_, _, end)| matches!(end, End::Drained { .. })), "{:?}", ran.ends);
    let way: Vec<(String, Option<String>)> =
        ran.record.moves().into_iter().map(|one| (one.from, one.to)).collect();
    let there = ("node-1".to_owned(), Some("node-2".to_owned()));
    let back = ("node-2".to_owned(), Some("node-1".to_owned()));
    assert_eq!(way, [there, back]);
    let ran = rehearsed_on(cluster.snapshot().await, 1, &both, false);
    assert!(
        !ran.ends.iter().all(|(_, _, end)| matches!(end, End::Drained { .. })),
        "at once there is no place"
    );
    cluster.stop().await;
}
