//! Many migrations, several operators that all believe to lead: the limits hold, and slots do not lie idle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evac_engine::Http;
use evac_engine::operator::Operator;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::{Cluster, VMIMS, VMIS, VMS, vm};
use crate::wire::Wire;

const MIGRATIONS: &str = "virtualmachineinstancemigrations.kubevirt.io";
const INSTANCES: &str = "virtualmachineinstances.kubevirt.io";
const PODS: &str = "pods";

/// What an onlooker sees who misses no commit.
#[derive(Default)]
struct Onlooker {
    /// Migrations under way: the node they leave. That begins with a target pod and lasts until the agents say that the copying is over.
    running: BTreeMap<String, String>,
    nodes: BTreeMap<String, String>,
    begun: BTreeSet<String>,
    over: BTreeSet<String>,
    most: usize,
    most_per_node: usize,
    ended: usize,
    failed: usize,
    /// Slots in use, added up over time while there are enough who wait for one.
    used: f64,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl Onlooker {
    fn on(cluster: &Cluster) -> Arc<Mutex<Self>> {
        let onlooker = Arc::new(Mutex::new(Self::default()));
        let (seen, clock) = (onlooker.clone(), cluster.clock);
        cluster.api.store.observe(move |resource, change| {
            let object = change.object.value();
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let mut seen = seen.lock().unwrap();
            seen.pass_time(clock.now());
            match resource {
                INSTANCES => {
                    let node = object["status"]["nodeName"].as_str().unwrap_or_default();
                    seen.nodes.insert(name, node.to_owned());
                    let state = &object["status"]["migrationState"];
                    if let (Some(uid), Some(_)) =
                        (state["migrationUid"].as_str(), state["endTimestamp"].as_str())
                    {
                        seen.running.remove(uid);
                    }
                }
                PODS => {
                    let labels = &object["metadata"]["labels"];
                    let instance = labels["vm.kubevirt.io/name"].as_str().unwrap_or_default();
                    if let Some(uid) = labels["kubevirt.io/migrationJobUID"].as_str() {
                        seen.begin(uid, instance);
                    }
                }
                MIGRATIONS => seen.migration(&object),
                _ => {}
            }
        });
        onlooker
    }

    fn pass_time(&mut self, now: Timestamp) {
        // Near the end there are fewer than five left to start.
        if self.running.is_empty() || self.ended > 94 {
            return;
        }
        if let Some(before) = self.until {
            self.used += now.duration_since(before).as_secs_f64() * self.running.len() as f64;
        }
        self.since.get_or_insert(now);
        self.until = Some(now);
    }

    fn used_share(&self) -> f64 {
        let (since, until) = self.since.zip(self.until).unwrap();
        self.used / (5.0 * until.duration_since(since).as_secs_f64())
    }

    /// A pod is heard of more than once, also after the end.
    fn begin(&mut self, uid: &str, instance: &str) {
        if !self.begun.insert(uid.to_owned()) {
            return;
        }
        let node = self.nodes.get(instance).cloned().unwrap_or_default();
        self.running.insert(uid.to_owned(), node);
        self.most = self.most.max(self.running.len());
        let mut per_node: BTreeMap<&str, usize> = BTreeMap::new();
        for node in self.running.values() {
            *per_node.entry(node).or_default() += 1;
        }
        self.most_per_node = self.most_per_node.max(per_node.values().copied().max().unwrap_or(0));
    }

    fn migration(&mut self, object: &Value) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let instance = object["spec"]["vmiName"].as_str().unwrap_or_default();
        match object["status"]["phase"].as_str().unwrap_or_default() {
            "" | "Pending" => {}
            end @ ("Succeeded" | "Failed") => {
                self.running.remove(uid);
                if self.over.insert(uid.to_owned()) {
                    self.ended += 1;
                    self.failed += usize::from(end == "Failed");
                }
            }
            _ => self.begin(uid, instance),
        }
    }
}

fn migration_of(n: usize) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": format!("m-{n}")}, "spec": {"vmiName": format!("vm-{n}")},
    })
}

async fn fill(cluster: &Cluster, count: usize, seconds: &str) {
    for n in 0..count {
        let guest = vm(&format!("vm-{n}"), "Always", &json!({"evac.dev/migration-seconds": seconds}));
        let (code, body) = cluster.create(VMS, &guest).await;
        assert_eq!(code, 201, "{body}");
    }
    let movable = |vmi: &Value| {
        vmi["status"]["conditions"]
            .as_array()
            .is_some_and(|list| list.iter().any(|c| c["type"] == "LiveMigratable" && c["status"] == "True"))
    };
    for n in 0..count {
        cluster.until(&format!("{VMIS}/vm-{n}"), movable).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_migrations_with_two_leaders_stay_within_limits_and_use_their_slots() {
    let cluster = Cluster::start(10).await;
    fill(&cluster, 100, "20").await;
    let onlooker = Onlooker::on(&cluster);
    for n in 0..100 {
        let (node, vmi) = (n, cluster.get(&format!("{VMIS}/vm-{n}")).await.unwrap());
        let name = vmi["status"]["nodeName"].as_str().unwrap_or_default().to_owned();
        onlooker.lock().unwrap().nodes.insert(format!("vm-{node}"), name);
    }
    let second = Operator::start(cluster.http.clone());
    for n in 0..100 {
        let (code, body) = cluster.create(VMIMS, &migration_of(n)).await;
        assert_eq!(code, 201, "{body}");
    }
    let (mut full, mut moments) = (0, 0);
    for _ in 0..20_000 {
        let (running, ended) = {
            let seen = onlooker.lock().unwrap();
            (seen.running.len(), seen.ended)
        };
        if ended == 100 {
            break;
        }
        // Near the end there are fewer than five left to start.
        if ended < 94 {
            moments += 1;
            full += usize::from(running == 5);
        }
        cluster.clock.sleep(Duration::from_millis(50)).await;
    }
    cluster.rest().await;
    let seen = onlooker.lock().unwrap();
    assert_eq!((seen.ended, seen.failed), (100, 0));
    assert!(seen.most <= 5, "{} at once", seen.most);
    assert!(seen.most_per_node <= 2, "{} left one node at once", seen.most_per_node);
    assert!(full * 100 >= moments * 95, "all five slots were used in {full} of {moments} moments");
    drop(second);
}

/// Both of two leaders die after each write that reached the server, before they hear of it, and start anew.
#[tokio::test(start_paused = true)]
async fn operators_that_die_after_every_write_keep_the_limits_and_use_their_slots() {
    const GUESTS: usize = 100;
    let cluster = Cluster::start(10).await;
    fill(&cluster, GUESTS, "20").await;
    let onlooker = Onlooker::on(&cluster);
    for n in 0..GUESTS {
        let vmi = cluster.get(&format!("{VMIS}/vm-{n}")).await.unwrap();
        let name = vmi["status"]["nodeName"].as_str().unwrap_or_default().to_owned();
        onlooker.lock().unwrap().nodes.insert(format!("vm-{n}"), name);
    }
    for n in 0..GUESTS {
        let (code, body) = cluster.create(VMIMS, &migration_of(n)).await;
        assert_eq!(code, 201, "{body}");
    }
    cluster.operator.halt();
    let wire = Wire::new(cluster.api.clone());
    let mut deaths = 0;
    while onlooker.lock().unwrap().ended < GUESTS {
        let mortal = || Operator::start(Http::new(wire.client(), cluster.clock, Duration::ZERO));
        let pair = (mortal(), mortal());
        let died = tokio::select! {
            () = wire.one_write() => true,
            () = cluster.clock.sleep(Duration::from_secs(30)) => false,
        };
        pair.0.stop().await;
        pair.1.stop().await;
        deaths += usize::from(died);
        assert!(deaths < 100 * GUESTS, "it does not come to an end");
    }
    {
        let seen = onlooker.lock().unwrap();
        assert_eq!((seen.ended, seen.failed), (GUESTS, 0));
        assert!(seen.most <= 5 && seen.most_per_node <= 2, "{} {}", seen.most, seen.most_per_node);
        let used = seen.used_share();
        println!("{deaths} deaths, slots used {:.1} % of the time", used * 100.0);
        assert!(used >= 0.95, "slots were used {used} of the time");
    }
    assert!(deaths > 5 * GUESTS, "only {deaths} deaths");
    for n in 0..GUESTS {
        let vmi = cluster.get(&format!("{VMIS}/vm-{n}")).await.unwrap();
        assert_eq!(vmi["status"]["phase"], "Running");
        assert_eq!(vmi["status"]["migrationState"]["completed"], true, "vm-{n}");
    }
    cluster.rest().await;
}
