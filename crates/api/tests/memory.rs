//! What a guest costs in memory: its instance, its launcher, and their places in the index, made as the operator makes them.
//!
//! What counts is what the kernel gave to this process, so the waste of the allocator is in the figure.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use evac_api::Project;
use evac_api::kubevirt::wire::VirtualMachineInstance;
use evac_api::wire::Pod;
use evac_core::cluster::pool::Pool;
use evac_core::{Index, Key};
use serde_json::{Value, json};

const GUESTS: usize = 20_000;
const NODES: usize = 1_000;
/// For one guest with its launcher.
const MOST_BYTES: usize = 1_650;

fn uid(kind: usize, number: usize) -> String {
    format!("{kind:08x}-8c6b-4f2e-9d7a-{number:012x}")
}

fn name(number: usize) -> String {
    format!("machine-{number:06}")
}

fn namespace(number: usize) -> String {
    format!("team-{}", number % 100)
}

fn node(number: usize) -> String {
    format!("worker-{:05}.example.com", number % NODES)
}

/// Guests are not all started in the same second.
fn when(number: usize, later: usize) -> String {
    format!("2026-01-{:02}T{:02}:{:02}:{:02}Z", number / 1440 % 28 + 1, number / 60 % 24, number % 60, later)
}

fn metadata(name: &str, number: usize, uid: &str) -> Value {
    json!({
        "name": name, "namespace": namespace(number), "uid": uid, "resourceVersion": (1_000_000 + number).to_string(),
        "creationTimestamp": when(number, 0), "generation": 7,
        "managedFields": [{"manager": "virt-controller", "operation": "Update", "fieldsV1": {"f:status": {"f:phase": {}}}}],
    })
}

fn conditions(kinds: &[&str], number: usize) -> Vec<Value> {
    let since = when(number, 9);
    let of =
        |kind| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": since});
    kinds.iter().map(of).collect()
}

fn instance(number: usize) -> Value {
    let (name, node) = (name(number), node(number));
    let mut vmi = json!({"metadata": metadata(&name, number, &uid(3, number))});
    vmi["metadata"]["finalizers"] = json!(["foregroundDeleteVirtualMachine"]);
    vmi["metadata"]["labels"] = json!({
        "kubevirt.io/nodeName": node, "app": format!("service-{}", number % 500), "kubevirt.io/domain": name,
        "kubevirt.io/size": "medium", "vm.kubevirt.io/name": name,
    });
    vmi["metadata"]["annotations"] =
        json!({"vm.kubevirt.io/os": "linux", "vm.kubevirt.io/workload": "server"});
    vmi["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name, "uid": uid(2, number), "controller": true,
    }]);
    vmi["spec"] = json!({
        "evictionStrategy": "LiveMigrate", "terminationGracePeriodSeconds": 180,
        "domain": {"cpu": {"model": "host-model"}, "memory": {"guest": "4Gi"}, "devices": {"disks": [{"name": "root"}]}},
    });
    let entered: Vec<Value> = ["Pending", "Scheduling", "Scheduled", "Running"]
        .iter()
        .enumerate()
        .map(|(later, phase)| json!({"phase": phase, "phaseTransitionTimestamp": when(number, later)}))
        .collect();
    vmi["status"] = json!({
        "phase": "Running", "nodeName": node, "activePods": {uid(4, number): node}, "phaseTransitionTimestamps": entered,
        "conditions": conditions(&["Ready", "LiveMigratable", "StorageLiveMigratable", "AgentConnected"], number),
        "interfaces": [{"ipAddress": format!("10.64.{}.{}", number / 250, number % 250), "name": "default"}],
        "memory": {"guestCurrent": "4Gi"},
    });
    vmi
}

fn launcher(number: usize) -> Value {
    let (vm, node) = (name(number), node(number));
    let mut pod =
        json!({"metadata": metadata(&format!("virt-launcher-{vm}-x7k2p"), number, &uid(4, number))});
    pod["metadata"]["labels"] = json!({
        "kubevirt.io": "virt-launcher", "kubevirt.io/created-by": uid(3, number), "app": format!("service-{}", number % 500),
        "kubevirt.io/domain": vm, "kubevirt.io/size": "medium", "vm.kubevirt.io/name": vm, "vmi.kubevirt.io/id": vm,
    });
    pod["metadata"]["annotations"] =
        json!({"kubevirt.io/domain": vm, "kubevirt.io/migrationTransportUnix": "true"});
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": vm, "uid": uid(3, number), "controller": true,
    }]);
    pod["spec"] = json!({
        "nodeName": node, "terminationGracePeriodSeconds": 210, "volumes": [{"name": "private", "emptyDir": {}}],
    });
    pod["status"] = json!({
        "phase": "Running",
        "conditions": conditions(&["kubevirt.io/virtual-machine-unpaused", "Ready", "ContainersReady", "PodScheduled"], number),
        "containerStatuses": [{"name": "compute", "ready": true, "state": {"running": {}}}],
    });
    pod
}

/// Pages of this process that are in memory, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
#[cfg(target_os = "linux")]
fn a_guest_with_its_launcher_takes_no_more_room_than_was_agreed() {
    let (mut index, mut pods, mut instances) = (Index::new(), Pool::new(), Pool::new());
    let mut learn = |number: usize| {
        let text = instance(number).to_string();
        let mut fact = serde_json::from_str::<VirtualMachineInstance>(&text).unwrap().seen();
        instances.share(&mut fact);
        drop(index.apply(fact));
        let text = launcher(number).to_string();
        let mut fact = serde_json::from_str::<Pod>(&text).unwrap().seen();
        pods.share(&mut fact);
        drop(index.apply(fact));
    };
    // What is there once is not counted.
    (0..NODES).for_each(&mut learn);
    let before = resident();
    (NODES..NODES + GUESTS).for_each(&mut learn);
    let each = (resident() - before) / GUESTS;
    println!("{each} bytes for one guest with its launcher");
    assert!(each <= MOST_BYTES, "{each} bytes");
    let last = Key::new(namespace(GUESTS), name(GUESTS));
    assert!(index.instance(&last).is_some() && index.pods_on(&node(GUESTS)).count() == 21);
}
