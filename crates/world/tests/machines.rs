//! Virtual machines on simulated nodes: the tests play the control plane, the world is virt-handler and hypervisor.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api as Server, Settings};
use evac_clock::Clock;
use evac_world::hypervisor::Violation;
use evac_world::{NodeSpec, Options, World};
use kube::Client;
use serde_json::{Value, json};

const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const PODS: &str = "/api/v1/namespaces/default/pods";

type Log = Arc<Mutex<Vec<String>>>;

struct Bench {
    client: Client,
    clock: Clock,
    world: World,
}

impl Bench {
    fn new(nodes: usize) -> Self {
        Self::logged(nodes, &Log::default())
    }

    /// Writes every commit down.
    fn logged(nodes: usize, log: &Log) -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let server = Server::new(clock, Settings::default());
        let sink = log.clone();
        server.store.observe(move |resource, change| {
            let json = String::from_utf8_lossy(&change.object.json);
            sink.lock().unwrap().push(format!("{resource} {:?} {json}", change.kind));
        });
        let client = Client::new(Service::trusted(server, Identity::admin()), "default");
        let world = World::start(client.clone(), clock, Options::cluster(NodeSpec::workers(nodes)));
        Self { client, clock, world }
    }

    /// With the definition of instances, as the control plane installs it.
    async fn with_machines(nodes: usize) -> Self {
        Self::new(nodes).serving(nodes).await
    }

    async fn serving(self, nodes: usize) -> Self {
        let bench = self;
        bench.define().await;
        for n in 1..=nodes {
            bench
                .until(&format!("node-{n} takes guests"), 60, &format!("/api/v1/nodes/node-{n}"), |node| {
                    node["metadata"]["labels"]["kubevirt.io/schedulable"] == "true"
                        && node["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
                })
                .await;
        }
        bench
    }

    async fn define(&self) {
        let schema =
            json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "virtualmachineinstances.kubevirt.io" },
            "spec": {
                "group": "kubevirt.io", "scope": "Namespaced",
                "names": { "plural": "virtualmachineinstances", "singular": "virtualmachineinstance",
                           "kind": "VirtualMachineInstance", "shortNames": ["vmi"] },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
            },
        });
        self.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", Some(definition))
            .await
            .unwrap();
    }

    async fn send(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value, kube::Error> {
        let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let bytes = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(bytes)
            .unwrap();
        self.client.request::<Value>(request).await
    }

    async fn get(&self, path: &str) -> Value {
        self.send("GET", path, None).await.unwrap_or(Value::Null)
    }

    async fn instance(&self) -> Value {
        self.get(&format!("{INSTANCES}/vm")).await
    }

    async fn patch(&self, path: &str, body: Value) {
        self.send("PATCH", path, Some(body)).await.unwrap();
    }

    /// Waits in simulated time until the object is as wanted; null when there is none.
    async fn until(&self, what: &str, seconds: u64, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..seconds * 10 {
            let seen = self.get(path).await;
            if holds(&seen) {
                return seen;
            }
            self.clock.sleep(Duration::from_millis(100)).await;
        }
        panic!("not within {seconds} s: {what}\n{}", self.get(path).await);
    }

    async fn until_instance(&self, what: &str, seconds: u64, holds: impl Fn(&Value) -> bool) -> Value {
        self.until(what, seconds, &format!("{INSTANCES}/vm"), holds).await
    }

    async fn create_launcher(&self, name: &str, vmi: &Value, node: &str) {
        let uid = &vmi["metadata"]["uid"];
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": { "kubevirt.io": "virt-launcher", "kubevirt.io/created-by": uid },
                "annotations": { "kubevirt.io/domain": "vm" },
                "ownerReferences": [{ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                    "name": "vm", "uid": uid, "controller": true, "blockOwnerDeletion": true }],
            },
            "spec": {
                "nodeName": node, "restartPolicy": "Never",
                "terminationGracePeriodSeconds": vmi["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30) + 30,
                "containers": [{ "name": "compute", "image": "launcher" }],
            },
        });
        self.send("POST", PODS, Some(pod)).await.unwrap();
        self.until("the launcher runs", 30, &format!("{PODS}/{name}"), |p| p["status"]["phase"] == "Running")
            .await;
    }

    /// An instance as the control plane hands it over to `node`.
    async fn start(&self, node: &str, annotations: Value, grace: i64) -> Value {
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": "vm", "annotations": annotations,
                "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"] },
            "spec": {
                "terminationGracePeriodSeconds": grace, "evictionStrategy": "LiveMigrate",
                "domain": { "memory": { "guest": "1Gi" },
                    "devices": { "disks": [{ "name": "root", "disk": {} }],
                                 "interfaces": [{ "name": "default", "masquerade": {} }] } },
                "networks": [{ "name": "default", "pod": {} }],
                "volumes": [{ "name": "root", "persistentVolumeClaim": { "claimName": "root" } }],
            },
            "status": { "phase": "Scheduling", "volumeStatus": [
                { "name": "root", "persistentVolumeClaimInfo": { "accessModes": ["ReadWriteMany"] } }] },
        });
        let vmi = self.send("POST", INSTANCES, Some(vmi)).await.unwrap();
        self.create_launcher("launcher", &vmi, node).await;
        self.patch(
            &format!("{INSTANCES}/vm"),
            json!({ "metadata": { "labels": { "kubevirt.io/nodeName": node } },
                    "status": { "phase": "Scheduled", "nodeName": node } }),
        )
        .await;
        vmi
    }

    async fn started(&self, node: &str, annotations: Value, grace: i64) -> Value {
        self.start(node, annotations, grace).await;
        self.until_instance("it runs and has its agent", 60, |v| {
            v["status"]["phase"] == "Running" && condition(v, "AgentConnected") == "True"
        })
        .await
    }

    /// A migration as the control plane hands it over to the nodes.
    async fn hand_over(&self, target: &str, config: Value) {
        let vmi = self.instance().await;
        self.create_launcher("launcher-target", &vmi, target).await;
        self.patch(
            &format!("{INSTANCES}/vm"),
            json!({ "metadata": { "labels": { "kubevirt.io/migrationTargetNodeName": target } },
                    "status": { "migrationState": {
                        "migrationUid": "m-1", "sourceNode": vmi["status"]["nodeName"], "targetNode": target,
                        "sourcePod": "launcher", "targetPod": "launcher-target", "migrationConfiguration": config } } }),
        )
        .await;
    }

    async fn no_violations(self) {
        let found = self.world.violations().await;
        assert!(found.is_empty(), "{found:?}");
        self.world.stop().await;
    }
}

fn condition(vmi: &Value, kind: &str) -> Value {
    let all = vmi["status"]["conditions"].as_array().into_iter().flatten();
    all.into_iter().find(|c| c["type"] == kind).map_or(Value::Null, |c| c["status"].clone())
}

fn pod_phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or("gone")
}

#[tokio::test(start_paused = true)]
async fn nodes_take_guests_only_once_instances_are_served_and_beat_from_then_on() {
    let bench = Bench::new(2);
    bench.clock.sleep(Duration::from_secs(120)).await;
    let node = bench.get("/api/v1/nodes/node-1").await;
    assert!(node["metadata"]["labels"]["kubevirt.io/schedulable"].is_null());
    bench.define().await;
    let node = bench
        .until("the node takes guests", 5, "/api/v1/nodes/node-1", |n| {
            n["metadata"]["labels"]["kubevirt.io/schedulable"] == "true"
                && n["status"]["allocatable"]["devices.kubevirt.io/kvm"] == "1k"
        })
        .await;
    let first = node["metadata"]["annotations"]["kubevirt.io/heartbeat"].clone();
    bench
        .until("it beats", 70, "/api/v1/nodes/node-1", |n| {
            n["metadata"]["annotations"]["kubevirt.io/heartbeat"] != first
        })
        .await;
    bench.world.kubelet("node-1").stop();
    let last =
        bench.get("/api/v1/nodes/node-1").await["metadata"]["annotations"]["kubevirt.io/heartbeat"].clone();
    bench.clock.sleep(Duration::from_secs(300)).await;
    let now =
        bench.get("/api/v1/nodes/node-1").await["metadata"]["annotations"]["kubevirt.io/heartbeat"].clone();
    assert_eq!(last, now);
    bench.no_violations().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_runs_reports_itself_and_shuts_down_when_it_is_deleted() {
    let bench = Bench::with_machines(1).await;
    let vmi = bench.started("node-1", json!({ "evac.dev/shutdown-seconds": "7" }), 30).await;
    let pod = bench.get(&format!("{PODS}/launcher")).await;
    assert_eq!(vmi["status"]["interfaces"][0]["ipAddress"], pod["status"]["podIP"]);
    assert_eq!(condition(&vmi, "LiveMigratable"), "True");
    assert_eq!(vmi["status"]["migrationMethod"], "LiveMigration");
    assert_eq!(vmi["status"]["phaseTransitionTimestamps"][0]["phase"], "Running");

    let asked = bench.clock.now();
    bench.send("DELETE", &format!("{INSTANCES}/vm"), None).await.unwrap();
    bench.send("DELETE", &format!("{PODS}/launcher"), None).await.unwrap();
    bench.until_instance("it ended well", 30, |v| v["status"]["phase"] == "Succeeded").await;
    let took = bench.clock.now().duration_since(asked).as_secs();
    assert!((7..=8).contains(&took), "{took} s");
    bench.until("the launcher is gone", 5, &format!("{PODS}/launcher"), Value::is_null).await;
    bench.no_violations().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_listen_is_killed_after_its_grace_and_has_failed() {
    let bench = Bench::with_machines(1).await;
    bench.started("node-1", json!({ "evac.dev/ignores-acpi": "true" }), 20).await;
    let asked = bench.clock.now();
    bench.send("DELETE", &format!("{PODS}/launcher"), None).await.unwrap();
    bench.until_instance("it failed", 60, |v| v["status"]["phase"] == "Failed").await;
    let took = bench.clock.now().duration_since(asked).as_secs();
    assert!((20..=21).contains(&took), "{took} s");
    bench.until("the launcher is gone", 5, &format!("{PODS}/launcher"), Value::is_null).await;
    bench.no_violations().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_grace_that_is_shorter_cuts_the_guest_off() {
    let bench = Bench::with_machines(1).await;
    bench.started("node-1", json!({ "evac.dev/shutdown-seconds": "60" }), 180).await;
    let asked = bench.clock.now();
    let options = json!({ "gracePeriodSeconds": 5 });
    bench.send("DELETE", &format!("{PODS}/launcher"), Some(options)).await.unwrap();
    bench.until_instance("it failed", 60, |v| v["status"]["phase"] == "Failed").await;
    assert!(bench.clock.now().duration_since(asked).as_secs() <= 6);
    bench.no_violations().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_fails_instance_and_launcher_and_an_own_shutdown_lets_both_succeed() {
    for (annotation, phase) in
        [("evac.dev/crash-after-seconds", "Failed"), ("evac.dev/power-off-after-seconds", "Succeeded")]
    {
        let bench = Bench::with_machines(1).await;
        bench.started("node-1", json!({ annotation: "60" }), 30).await;
        bench.until_instance(phase, 90, |v| v["status"]["phase"] == phase).await;
        bench.until("the launcher too", 10, &format!("{PODS}/launcher"), |p| pod_phase(p) == phase).await;
        bench.no_violations().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_cannot_start_fails_without_ever_running() {
    let bench = Bench::with_machines(1).await;
    bench.start("node-1", json!({ "evac.dev/crash-after-seconds": "0" }), 30).await;
    let vmi = bench.until_instance("it failed", 10, |v| v["status"]["phase"] == "Failed").await;
    let phases: Vec<_> = vmi["status"]["phaseTransitionTimestamps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["phase"].clone())
        .collect();
    assert_eq!(phases, ["Failed"]);
    bench.no_violations().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_pauses_and_goes_on() {
    let bench = Bench::with_machines(1).await;
    bench.started("node-1", json!({}), 30).await;
    let want =
        |state: &str| json!({ "metadata": { "annotations": { "evac.dev/wanted-guest-state": state } } });
    bench.patch(&format!("{INSTANCES}/vm"), want("Paused")).await;
    bench.until_instance("paused", 5, |v| condition(v, "Paused") == "True").await;
    bench.patch(&format!("{INSTANCES}/vm"), want("Running")).await;
    bench.until_instance("not paused", 5, |v| condition(v, "Paused").is_null()).await;
    bench.no_violations().await;
}

#[tokio::test(start_paused = true)]
async fn a_migration_moves_the_guest_and_the_source_launcher_ends() {
    let bench = Bench::with_machines(2).await;
    bench.started("node-1", json!({ "evac.dev/migration-seconds": "12" }), 30).await;
    bench
        .patch(
            &format!("{INSTANCES}/vm"),
            json!({ "metadata": { "annotations": { "kubevirt.io/eviction-source": "x" } },
                    "status": { "evacuationNodeName": "node-1" } }),
        )
        .await;
    bench.hand_over("node-2", json!({})).await;
    let started = bench
        .until_instance("it began", 5, |v| !v["status"]["migrationState"]["startTimestamp"].is_null())
        .await;
    assert_eq!(started["status"]["migrationState"]["mode"], "PreCopy");
    assert!(started["status"]["migrationState"]["targetNodeAddress"].is_string());
    assert_eq!(started["status"]["nodeName"], "node-1");
    let began = bench.clock.now();
    let vmi =
        bench.until_instance("it is done", 60, |v| v["status"]["migrationState"]["completed"] == true).await;
    let took = bench.clock.now().duration_since(began).as_secs();
    assert!((11..=13).contains(&took), "{took} s");
    let state = &vmi["status"]["migrationState"];
    assert_eq!(state["targetNodeDomainDetected"], true);
    assert!(state["endTimestamp"].is_string() && state["failed"].is_null());
    assert_eq!(vmi["status"]["nodeName"], "node-2");
    assert_eq!(vmi["metadata"]["labels"]["kubevirt.io/nodeName"], "node-2");
    assert!(vmi["metadata"]["labels"]["kubevirt.io/migrationTargetNodeName"].is_null());
    assert!(vmi["status"]["evacuationNodeName"].is_null());
    assert!(vmi["metadata"]["annotations"]["kubevirt.io/eviction-source"].is_null());
    let target = bench.get(&format!("{PODS}/launcher-target")).await;
    assert_eq!(vmi["status"]["interfaces"][0]["ipAddress"], target["status"]["podIP"]);
    bench.until("the source ends", 5, &format!("{PODS}/launcher"), |p| pod_phase(p) == "Succeeded").await;
    bench.clock.sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.instance().await["status"]["phase"], "Running");
    assert_eq!(pod_phase(&bench.get(&format!("{PODS}/launcher-target")).await), "Running");
    bench.no_violations().await;
}

#[tokio::test(start_paused = true)]
async fn an_aborted_or_broken_migration_leaves_the_guest_and_sends_the_target_away() {
    for abort in [true, false] {
        let bench = Bench::with_machines(2).await;
        let mut annotations = json!({ "evac.dev/migration-seconds": "30" });
        if !abort {
            annotations["evac.dev/migration-fails"] = json!("true");
        }
        bench.started("node-1", annotations, 30).await;
        bench.hand_over("node-2", json!({})).await;
        bench
            .until_instance("it began", 5, |v| !v["status"]["migrationState"]["startTimestamp"].is_null())
            .await;
        if abort {
            bench
                .patch(
                    &format!("{INSTANCES}/vm"),
                    json!({ "status": { "migrationState": { "abortRequested": true } } }),
                )
                .await;
        }
        let vmi = bench
            .until_instance("it is over", 60, |v| v["status"]["migrationState"]["completed"] == true)
            .await;
        let state = &vmi["status"]["migrationState"];
        assert_eq!(state["failed"], true);
        assert!(state["failureReason"].is_string() && state["endTimestamp"].is_string());
        assert_eq!(state["abortStatus"], if abort { json!("Succeeded") } else { Value::Null });
        assert_eq!(
            (&vmi["status"]["nodeName"], &vmi["status"]["phase"]),
            (&json!("node-1"), &json!("Running"))
        );
        bench
            .until("the target ends", 5, &format!("{PODS}/launcher-target"), |p| pod_phase(p) == "Succeeded")
            .await;
        assert_eq!(pod_phase(&bench.get(&format!("{PODS}/launcher")).await), "Running");
        bench.no_violations().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_guest_on_a_slow_network_is_given_up_on_with_the_reason() {
    let bench = Bench::with_machines(2).await;
    bench.started("node-1", json!({ "evac.dev/dirty-rate": "500" }), 30).await;
    bench.hand_over("node-2", json!({ "bandwidthPerMigration": "64Mi", "progressTimeout": 150 })).await;
    let vmi =
        bench.until_instance("it is over", 200, |v| v["status"]["migrationState"]["completed"] == true).await;
    assert_eq!(
        vmi["status"]["migrationState"]["failureReason"],
        "Live migration stuck for 150 seconds and has been aborted"
    );
    bench.no_violations().await;
}

#[tokio::test(start_paused = true)]
async fn a_target_pod_that_is_deleted_fails_the_migration() {
    let bench = Bench::with_machines(2).await;
    bench.started("node-1", json!({ "evac.dev/migration-seconds": "30" }), 30).await;
    bench.hand_over("node-2", json!({})).await;
    bench.until_instance("it began", 5, |v| !v["status"]["migrationState"]["startTimestamp"].is_null()).await;
    bench.send("DELETE", &format!("{PODS}/launcher-target"), None).await.unwrap();
    let vmi =
        bench.until_instance("it failed", 20, |v| v["status"]["migrationState"]["failed"] == true).await;
    assert_eq!(vmi["status"]["phase"], "Running");
    bench.no_violations().await;
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_cut_off_fails_the_migration_and_the_guest_stays() {
    let bench = Bench::with_machines(2).await;
    bench.started("node-1", json!({ "evac.dev/migration-seconds": "30" }), 30).await;
    bench.hand_over("node-2", json!({})).await;
    bench.until_instance("it began", 5, |v| !v["status"]["migrationState"]["startTimestamp"].is_null()).await;
    bench.world.kubelet("node-2").stop();
    let vmi = bench.until_instance("it failed", 5, |v| v["status"]["migrationState"]["failed"] == true).await;
    assert_eq!(vmi["status"]["nodeName"], "node-1");
    bench.clock.sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.instance().await["status"]["phase"], "Running");
    bench.no_violations().await;
}

/// The control plane believes that node-1 is dead and starts the machine on node-2.
async fn fail_over(fenced: bool) -> Vec<Violation> {
    let bench = Bench::with_machines(2).await;
    bench.started("node-1", json!({}), 30).await;
    if fenced {
        bench.world.kubelet("node-1").power_off();
    } else {
        bench.world.kubelet("node-1").stop();
    }
    bench.clock.sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.instance().await["status"]["phase"], "Running", "nobody can know");
    let force = json!({ "gracePeriodSeconds": 0 });
    bench.send("DELETE", &format!("{PODS}/launcher"), Some(force)).await.unwrap();
    bench.send("DELETE", &format!("{INSTANCES}/vm"), None).await.unwrap();
    bench.patch(&format!("{INSTANCES}/vm"), json!({ "metadata": { "finalizers": [] } })).await;
    bench.until_instance("it is gone", 10, Value::is_null).await;
    bench.started("node-2", json!({}), 30).await;
    let found = bench.world.violations().await;
    // When the node comes back, it ends what it should not run.
    bench.world.kubelet("node-1").start();
    bench.clock.sleep(Duration::from_secs(30)).await;
    assert_eq!(bench.instance().await["status"]["phase"], "Running");
    bench.world.stop().await;
    found
}

#[tokio::test(start_paused = true)]
async fn a_machine_started_elsewhere_without_fencing_runs_twice_and_with_fencing_once() {
    let found = fail_over(false).await;
    assert!(found.iter().any(|v| matches!(v, Violation::TwoWriters { disk, .. } if disk == "default/root")));
    assert!(found.iter().any(|v| matches!(v, Violation::RunsTwice { .. })));
    assert_eq!(fail_over(true).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_restarts_reports_its_guest_as_failed() {
    let bench = Bench::with_machines(1).await;
    bench.started("node-1", json!({}), 30).await;
    bench.world.kubelet("node-1").reboot();
    bench.until_instance("it failed", 10, |v| v["status"]["phase"] == "Failed").await;
    bench.until("the launcher too", 10, &format!("{PODS}/launcher"), |p| pod_phase(p) == "Failed").await;
    bench.no_violations().await;
}

#[tokio::test(start_paused = true)]
async fn a_migration_runs_the_same_way_twice_to_the_byte() {
    let history = || async {
        let log = Log::default();
        let bench = Bench::logged(2, &log).serving(2).await;
        bench.started("node-1", json!({ "evac.dev/dirty-rate": "300" }), 30).await;
        bench.hand_over("node-2", json!({})).await;
        bench.until_instance("done", 60, |v| v["status"]["migrationState"]["completed"] == true).await;
        bench.send("DELETE", &format!("{PODS}/launcher-target"), None).await.unwrap();
        bench.until_instance("it ended", 60, |v| v["status"]["phase"] == "Succeeded").await;
        bench.no_violations().await;
        std::mem::take(&mut *log.lock().unwrap())
    };
    let first = history().await;
    assert!(first.iter().any(|line| line.starts_with("virtualmachineinstances")), "{:?}", first.last());
    assert_eq!(first, history().await);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_becomes_known_decides_whether_the_machine_can_move() {
    let bench = Bench::with_machines(1).await;
    bench.start("node-1", json!({}), 30).await;
    bench.patch(&format!("{INSTANCES}/vm"), json!({ "status": { "volumeStatus": null } })).await;
    let vmi = bench.until_instance("it cannot move", 10, |v| condition(v, "LiveMigratable") == "False").await;
    let all = vmi["status"]["conditions"].as_array().unwrap();
    assert!(all.iter().any(|c| c["reason"] == "DisksNotLiveMigratable"));
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "root" },
        "spec": { "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "1Gi" } } } });
    bench.send("POST", "/api/v1/namespaces/default/persistentvolumeclaims", Some(claim)).await.unwrap();
    bench.until_instance("now it can", 2, |v| condition(v, "LiveMigratable") == "True").await;
    bench.no_violations().await;
}

#[tokio::test(start_paused = true)]
async fn an_annotation_of_its_node_switches_a_machine_off_and_on() {
    let bench = Bench::with_machines(2).await;
    bench.started("node-1", json!({}), 30).await;
    let node = "/api/v1/nodes/node-1";
    let boot = bench.get(node).await["status"]["nodeInfo"]["bootID"].clone();
    let simulate = |what: Value| {
        bench.patch(node, json!({ "metadata": { "annotations": { "evac.dev/simulate": what } } }))
    };
    let ready = |status: &'static str| {
        move |node: &Value| {
            let all = node["status"]["conditions"].as_array();
            all.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == status))
        }
    };
    simulate(json!("cut-off")).await;
    bench.until("nobody hears of it", 120, node, ready("Unknown")).await;
    simulate(Value::Null).await;
    let back = bench.until("it is back", 30, node, ready("True")).await;
    assert_eq!(back["status"]["nodeInfo"]["bootID"], boot, "it never stopped");
    assert_eq!(bench.instance().await["status"]["phase"], "Running");
    simulate(json!("power-off")).await;
    bench.until("nobody hears of it", 120, node, ready("Unknown")).await;
    assert_eq!(bench.instance().await["status"]["phase"], "Running", "nobody can know");
    simulate(Value::Null).await;
    let back = bench.until("it is back", 30, node, ready("True")).await;
    assert_ne!(back["status"]["nodeInfo"]["bootID"], boot, "it was started anew");
    bench.until_instance("its guest is lost", 30, |v| v["status"]["phase"] == "Failed").await;
    bench.no_violations().await;
}
