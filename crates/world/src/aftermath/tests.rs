use serde_json::json;

use super::*;
use crate::objects::Key;
use crate::truth::{Doing, Resident, Truth};

fn truth(residents: &[(&str, Doing)], moves: &[&str]) -> Truth {
    let resident = |(node, doing): &(&str, Doing)| Resident {
        instance: Key::new("default", "a"),
        instance_uid: "vmi".into(),
        pod_uid: "pod".into(),
        node: (*node).to_owned(),
        doing: *doing,
    };
    Truth {
        hosts_machines: true,
        residents: residents.iter().map(resident).collect(),
        moves: moves.iter().map(|id| (*id).to_owned()).collect(),
        reachable: ["n1", "n2"].map(str::to_owned).into(),
        violations: Vec::new(),
    }
}

/// A machine that is shown as `shown`, whose instance runs on n1 in a pod that is in `phase`.
fn picture(shown: &str, phase: &str) -> Picture {
    Picture {
        nodes: Vec::new(),
        pods: vec![json!({
            "metadata": {
                "name": "launcher", "namespace": "default", "uid": "pod", "labels": {"kubevirt.io": "virt-launcher"},
                "ownerReferences": [{"kind": "VirtualMachineInstance", "uid": "vmi"}],
            },
            "spec": {"nodeName": "n1"}, "status": {"phase": phase},
        })],
        machines: vec![json!({
            "metadata": {"name": "a", "namespace": "default", "uid": "vm"},
            "status": {"printableStatus": shown, "created": true, "ready": true},
        })],
        instances: vec![json!({
            "metadata": {
                "name": "a", "namespace": "default", "uid": "vmi",
                "ownerReferences": [{"kind": "VirtualMachine", "uid": "vm"}],
            },
            "status": {
                "phase": "Running", "nodeName": "n1", "activePods": {"pod": "n1"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        })],
        migrations: vec![json!({
            "metadata": {"name": "m", "namespace": "default", "uid": "m"},
            "spec": {"vmiName": "a"}, "status": {"phase": "Succeeded"},
        })],
        maintenances: Vec::new(),
    }
}

#[test]
fn what_is_true_is_not_complained_about() {
    assert_eq!(untrue(&truth(&[("n1", Doing::Running)], &[]), &picture("Running", "Running")), [""; 0]);
    assert_eq!(untrue(&Truth::default(), &picture("Stopped", "Failed")), [""; 0], "nobody hosts machines");
}

#[test]
fn a_machine_that_is_shown_as_migrating_when_nothing_is_copied_is_found() {
    let wrong = untrue(&truth(&[("n1", Doing::Running)], &[]), &picture("Migrating", "Running"));
    assert_eq!(wrong, ["machine default/a: is shown as \"Migrating\", and is Running"]);
    let mut on_its_way = picture("Running", "Running");
    on_its_way.migrations[0]["status"]["phase"] = json!("Running");
    let wrong = untrue(&truth(&[("n1", Doing::Running)], &["m"]), &on_its_way);
    assert_eq!(wrong, ["machine default/a: is shown as \"Running\", and is Migrating"]);
}

#[test]
fn an_instance_that_says_running_without_a_guest_is_found_also_on_a_node_that_cannot_be_reached() {
    let wrong = untrue(&truth(&[], &[]), &picture("Running", "Succeeded")).join("\n");
    assert!(wrong.contains("instance default/a: is Running on n1 without a live pod"), "{wrong}");
    assert!(wrong.contains("instance default/a: is Running on n1, and no guest is"), "{wrong}");
    let mut dark = truth(&[], &[]);
    dark.reachable.clear();
    let wrong = untrue(&dark, &picture("Running", "Succeeded"));
    assert_eq!(wrong, ["instance default/a: is Running on n1 without a live pod"]);
    assert_eq!(untrue(&dark, &picture("Running", "Running")), [""; 0], "nobody can know");
}

#[test]
fn a_guest_elsewhere_than_said_is_found() {
    let wrong = untrue(&truth(&[("n2", Doing::Running)], &[]), &picture("Running", "Running"));
    assert_eq!(wrong, ["instance default/a: is Running on n1, and its guest runs on n2"]);
}

#[test]
fn a_target_without_a_place_is_listed_with_no_node() {
    let listed = |on: &str| {
        let mut said = picture("Running", "Running");
        let mut target = said.pods[0].clone();
        target["metadata"]["uid"] = json!("target");
        target["spec"] = json!({});
        target["status"]["phase"] = json!("Pending");
        said.pods.push(target);
        said.instances[0]["status"]["activePods"]["target"] = json!(on);
        untrue(&truth(&[("n1", Doing::Running)], &[]), &said)
    };
    assert_eq!(listed(""), [""; 0]);
    assert_eq!(listed("n2"), ["instance default/a: its active pod target is not on \"n2\""]);
}

#[test]
fn a_migration_that_goes_on_without_a_copy_is_found() {
    let mut said = picture("Migrating", "Running");
    said.migrations[0]["status"]["phase"] = json!("Running");
    let wrong = untrue(&truth(&[("n1", Doing::Running)], &[]), &said);
    assert_eq!(wrong, ["migration default/m: is Running, and nothing is copied"]);
}

#[test]
fn a_guest_that_nobody_speaks_of_is_found() {
    let mut said = picture("Running", "Running");
    (said.instances, said.machines) = (Vec::new(), Vec::new());
    let wrong = untrue(&truth(&[("n1", Doing::Running)], &[]), &said);
    assert_eq!(wrong, ["guest default/a runs on n1, and no instance says so"]);
}
