//! One drain: a cluster that is nothing but this, in simulated time, or in real time.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use evac_api::Call;
use evac_api::kubevirt::request;
use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_clock::Clock;
use evac_core::Policy;
use evac_core::drain::run::End;
use evac_core::drain::step::Event;
use evac_core::machines::Roles;
use evac_engine::operator::{Operator, install};
use evac_engine::{DrainRequest, Http, drain};
use evac_world::{NodeSpec, Options, World};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::shapes::{Draw, Guest, Pods, Shape};

const MERGE: &str = "application/merge-patch+json";
const NODES: usize = 4;
/// As `evac drain -o json` reads them.
const MEASURE: Duration = Duration::from_secs(10);

/// What was foretold at a moment; in seconds since the drain began.
#[derive(Debug, Clone, Copy)]
pub struct Said {
    pub at: f64,
    pub at_least: Option<u64>,
    pub at_most: Option<u64>,
}

/// What one drain said, and when it was over, if it ended with an empty node.
pub struct Story {
    pub said: Vec<Said>,
    pub took: f64,
    pub drained: bool,
}

struct Stage {
    http: Http,
    clock: Clock,
    /// Alive as long as this is.
    _world: World,
    _operator: Operator,
}

/// Drains a node of this shape.
pub async fn play(shape: &Shape, draw: &Draw, clock: Clock) -> Result<Story> {
    let stage = Stage::set(shape, draw, clock).await?;
    let policy = Policy {
        ignore_daemonsets: true,
        measure: Some(MEASURE),
        timeout: shape.timeout.map(Duration::from_secs),
        ..Policy::default()
    };
    let request = DrainRequest {
        nodes: vec!["node-1".into()],
        policy,
        owner: "bench".into(),
        instance: Some("bench:1".into()),
        options: Vec::new(),
        page: None,
    };
    let began = clock.now();
    let since = |at: Timestamp| at.duration_since(began).as_secs_f64();
    let mut said = Vec::new();
    let mut ended = None;
    let mut hear = |at: Timestamp, event: &Event| match event {
        Event::Outlook { at_least_seconds, at_most_seconds, .. } => {
            said.push(Said { at: since(at), at_least: *at_least_seconds, at_most: *at_most_seconds });
        }
        Event::Ended { end, .. } => {
            ended = Some((since(at), matches!(end, End::Drained { .. }), format!("{end:?}")));
        }
        _ => {}
    };
    drain(stage.http.clone(), request, CancellationToken::new(), &mut hear).await?;
    let (took, drained, end) = ended.context("the drain has no end")?;
    if !drained && shape.timeout.is_none() {
        bail!("not drained: {end}");
    }
    Ok(Story { said, took, drained })
}

impl Stage {
    async fn set(shape: &Shape, draw: &Draw, clock: Clock) -> Result<Self> {
        let seed = draw.seed;
        let api = Api::new(clock, Settings { seed, ..Settings::default() });
        let client = kube::Client::new(Service::trusted(api.clone(), Identity::admin()), "default");
        let http = Http::new(client.clone(), clock, Duration::ZERO);
        install::kinds(&http).await.map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut nodes = NodeSpec::workers(NODES);
        for node in &mut nodes {
            // Room for everything on any of them.
            node.pods = 600;
            "200".clone_into(&mut node.cpu);
            "2Ti".clone_into(&mut node.memory);
        }
        let world = World::start(client, clock, Options { seed, ..Options::cluster(nodes) });
        world.answer_for_agents(&api);
        let operator = Operator::start_roles(http.clone(), Roles::all());
        let stage = Self { http, clock, _world: world, _operator: operator };
        stage.furnish(shape).await?;
        Ok(stage)
    }

    async fn furnish(&self, shape: &Shape) -> Result<()> {
        for node in 1..=NODES {
            let schedulable = |node: &Value| node["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
            self.until(&format!("/api/v1/nodes/node-{node}"), schedulable).await?;
        }
        if shape.agents {
            self.agents().await?;
        }
        if shape.migrations.is_object() {
            let body = json!({"spec": {"configuration": {"migrations": shape.migrations}}});
            self.send("PATCH", "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt", MERGE, &body)
                .await?;
        }
        self.cordon_others(true).await?;
        for (number, guest) in shape.guests.iter().enumerate() {
            let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
            self.send("POST", path, "application/json", &machine(number, guest)).await?;
        }
        for (number, pods) in shape.pods.iter().enumerate() {
            for (path, object) in deployment(number, pods) {
                self.send("POST", path, "application/json", &object).await?;
            }
        }
        let guests = shape.guests.len();
        self.until("/apis/kubevirt.io/v1/virtualmachineinstances", |list| {
            let movable = |vmi: &&Value| {
                let conditions = vmi["status"]["conditions"].as_array();
                conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "LiveMigratable"))
            };
            list["items"].as_array().is_some_and(|items| items.iter().filter(movable).count() == guests)
        })
        .await?;
        for (number, pods) in shape.pods.iter().enumerate() {
            let path = format!("/apis/apps/v1/namespaces/default/deployments/app-{number}");
            self.until(&path, |found| found["status"]["readyReplicas"] == pods.count).await?;
        }
        self.cordon_others(false).await?;
        // Guests boot, and budgets have seen their pods.
        self.clock.sleep(Duration::from_secs(10)).await;
        Ok(())
    }

    /// KubeVirt's agents run in pods, as they do in a real cluster.
    async fn agents(&self) -> Result<()> {
        let agents = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "virt-handler"},
            "spec": {
                "selector": {"matchLabels": {"kubevirt.io": "virt-handler"}},
                "template": {
                    "metadata": {"labels": {"kubevirt.io": "virt-handler"}},
                    "spec": {"containers": [{"name": "virt-handler", "image": "example/virt-handler:1"}]},
                },
            },
        });
        let path = "/apis/apps/v1/namespaces/kubevirt/daemonsets";
        self.send("POST", path, "application/json", &agents).await?;
        self.until(&format!("{path}/virt-handler"), |set| set["status"]["numberReady"] == NODES).await
    }

    async fn cordon_others(&self, cordoned: bool) -> Result<()> {
        for node in 2..=NODES {
            let body = json!({"spec": {"unschedulable": cordoned}});
            self.send("PATCH", &format!("/api/v1/nodes/node-{node}"), MERGE, &body).await?;
        }
        self.clock.sleep(Duration::from_millis(200)).await;
        Ok(())
    }

    async fn send(&self, method: &'static str, path: &str, kind: &'static str, body: &Value) -> Result<()> {
        let answer = self.http.send(&request::send(method, path.to_owned(), kind, body)).await;
        let answer = answer.map_err(|error| anyhow::anyhow!("{method} {path}: {error:?}"))?;
        if !answer.is_success() {
            bail!("{method} {path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
        Ok(())
    }

    async fn until(&self, path: &str, condition: impl Fn(&Value) -> bool) -> Result<()> {
        for _ in 0..1200 {
            let answer = self.http.send(&Call::get(path)).await;
            let answer = answer.map_err(|error| anyhow::anyhow!("{path}: {error:?}"))?;
            if condition(&serde_json::from_slice(&answer.body).unwrap_or_default()) {
                return Ok(());
            }
            self.clock.sleep(Duration::from_millis(500)).await;
        }
        bail!("waited ten minutes for {path}")
    }
}

fn machine(number: usize, guest: &Guest) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": format!("vm-{number}")},
        "spec": {"runStrategy": "Always", "template": {
            "metadata": {"annotations": guest.annotations},
            "spec": {
                "evictionStrategy": "LiveMigrate",
                "domain": {"devices": {}, "resources": {"requests": {"memory": format!("{}Mi", guest.memory_mib), "cpu": "10m"}}},
            },
        }},
    })
}

fn deployment(number: usize, pods: &Pods) -> Vec<(&'static str, Value)> {
    let name = format!("app-{number}");
    let labels = json!({"app": name});
    let mut objects = vec![(
        "/apis/apps/v1/namespaces/default/deployments",
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": pods.count, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": pods.annotations},
                    "spec": {
                        "terminationGracePeriodSeconds": pods.grace,
                        "containers": [{"name": "main", "image": "example/app:1"}],
                    },
                },
            },
        }),
    )];
    if let Some(max) = &pods.max_unavailable {
        objects.push((
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
                "spec": {"maxUnavailable": max, "selector": {"matchLabels": labels}},
            }),
        ));
    }
    objects
}
