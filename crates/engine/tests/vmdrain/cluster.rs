//! A cluster with virtual machines, and a drainer whose requests are counted.

use std::time::Duration;

use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_core::drain::run::End;
use evac_core::drain::step::Event;
use evac_core::{Key, Policy};
use evac_engine::{DrainError, DrainRequest, Http, drain};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::machines::{Cluster, VMIMS, VMIS, VMS, vm};
use crate::wire::Wire;

pub struct Bench {
    pub cluster: Cluster,
    pub wire: Wire,
    http: Http,
    nodes: usize,
}

pub struct Told {
    pub result: Result<Vec<(String, End)>, DrainError>,
    pub events: Vec<(Timestamp, Event)>,
    pub began: Timestamp,
}

impl Told {
    pub fn end(&self) -> &End {
        &self.result.as_ref().unwrap()[0].1
    }

    /// When each guest was asked for and had gone, in seconds since the drain began.
    pub fn moves(&self) -> Vec<(f64, &'static str, String)> {
        let told = self.events.iter().filter_map(|(at, event)| {
            let (what, instance) = match event {
                Event::Moving { instance, .. } => ("asked for", instance),
                Event::Moved { instance, .. } => ("gone", instance),
                _ => return None,
            };
            Some((at.duration_since(self.began).as_secs_f64(), what, instance.name.to_string()))
        });
        told.collect()
    }

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

    /// Who moved, where to.
    pub fn moved(&self) -> Vec<(String, String)> {
        self.events
            .iter()
            .filter_map(|(_, event)| match event {
                Event::Moved { instance, to, .. } => Some((instance.name.to_string(), to.clone())),
                _ => None,
            })
            .collect()
    }
}

impl Bench {
    pub async fn start(nodes: usize) -> Self {
        let cluster = Cluster::start(nodes).await;
        let wire = Wire::new();
        let service = Service::trusted(cluster.api.clone(), Identity::admin());
        let http = Http::new(wire.client(service), cluster.clock, Duration::ZERO);
        let bench = Self { cluster, wire, http, nodes };
        // What is created now starts on node-1.
        bench.cordon_others(true).await;
        bench
    }

    /// A machine that runs on `node-1` and is known to be migratable or not.
    pub async fn machine(&self, name: &str, strategy: &str, change: impl FnOnce(&mut Value)) {
        let mut object = vm(name, strategy, &json!({}));
        change(&mut object);
        let (code, body) = self.cluster.create(VMS, &object).await;
        assert_eq!(code, 201, "{body}");
        self.settled(name).await;
    }

    /// Whether the other nodes take pods.
    pub async fn cordon_others(&self, cordoned: bool) {
        for n in 2..=self.nodes {
            let (path, body) =
                (format!("/api/v1/nodes/node-{n}"), json!({"spec": {"unschedulable": cordoned}}));
            let (code, answer) =
                self.cluster.send("PATCH", &path, "application/merge-patch+json", &body).await;
            assert_eq!(code, 200, "{answer}");
        }
        // Schedulers hear of it a moment later.
        self.cluster.clock.sleep(Duration::from_millis(100)).await;
    }

    /// Waits until an instance runs and it is known whether it can be moved.
    pub async fn settled(&self, name: &str) -> Value {
        self.cluster
            .until(&format!("{VMIS}/{name}"), |vmi| {
                let known = |list: &Vec<Value>| list.iter().any(|one| one["type"] == "LiveMigratable");
                vmi["status"]["phase"] == "Running"
                    && vmi["status"]["conditions"].as_array().is_some_and(known)
            })
            .await
    }

    pub async fn instance(&self, name: &str) -> Option<Value> {
        self.cluster.get(&format!("{VMIS}/{name}")).await
    }

    pub async fn migrations(&self) -> Vec<Value> {
        let list = self.cluster.get(VMIMS).await.unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Unfinished pods on a node.
    pub async fn pods_on(&self, node: &str) -> Vec<Key> {
        let path = evac_api::call::pods_on_node_path(node);
        let list = self.cluster.get(&path).await.unwrap();
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|pod| !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")))
            .map(|pod| {
                let text = |name: &str| pod["metadata"][name].as_str().unwrap().to_owned();
                Key::new(text("namespace"), text("name"))
            })
            .collect()
    }

    #[allow(clippy::unused_self, reason = "reads as what the bench asks for")]
    pub fn request(&self) -> DrainRequest {
        DrainRequest {
            nodes: vec!["node-1".into()],
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
        self.cordon_others(false).await;
        self.drain_now(request, stop).await
    }

    /// Drains with the other nodes as they are.
    pub async fn drain_now(&self, request: DrainRequest, stop: CancellationToken) -> Told {
        let clock = self.cluster.clock;
        let began = clock.now();
        let mut events = Vec::new();
        let result =
            drain(self.http.clone(), request, stop, &mut |at, event| events.push((at, event.clone()))).await;

        Told { result, events, began }
    }
}
