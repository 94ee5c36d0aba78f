//! The agents as functions: an instance and pods in, a patch out.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::actor::Answers;
use crate::build::{at, meta, pod};
use crate::effects::{Verb, Write};
use crate::kinds::Object;
use crate::mirror::Mirror;
use crate::options::NodeSpec;

/// One instance, its launchers, and agents on two nodes.
struct Scene {
    mirror: Mirror,
    handlers: Handlers,
    kubelets: Kubelets,
    spec: Value,
    version: u64,
}

impl Scene {
    fn new(status: &Value) -> Self {
        let mut scene = Self {
            mirror: Mirror::default(),
            handlers: Handlers::new(1, 1000.0),
            kubelets: Kubelets::new(1, &[NodeSpec::new("n1"), NodeSpec::new("n2")]),
            spec: json!({ "domain": { "memory": { "guest": "1Gi" } } }),
            version: 0,
        };
        scene.handlers.set_serving(true);
        scene.instance(status);
        scene.launcher("source", "n1");
        scene
    }

    fn instance(&mut self, status: &Value) {
        self.version += 1;
        let mut vmi = VirtualMachineInstance { metadata: meta("ns", "vm"), ..Default::default() };
        vmi.metadata.resource_version = Some(self.version.to_string());
        vmi.spec = self.spec.clone();
        vmi.status = status.clone();
        self.mirror.put(Object::VirtualMachineInstance(Arc::new(vmi)));
    }

    fn launcher(&mut self, name: &str, node: &str) {
        let vmi_uid = meta("ns", "vm").uid.unwrap();
        let mut launcher = pod("ns", name)
            .on(node)
            .labels(&[("kubevirt.io", "virt-launcher")])
            .owner("kubevirt.io/v1", "VirtualMachineInstance", "vm", &vmi_uid)
            .phase("Running")
            .make();
        launcher.metadata.uid = Some(format!("{name}-uid"));
        self.mirror.put(Object::Pod(Arc::new(launcher)));
    }

    fn sync(&mut self, seconds: i64) -> Out {
        let mut out = Out::default();
        let answers = Answers::new();
        let view = View { mirror: &self.mirror, now: at(seconds), answers: &answers };
        self.handlers.sync(view, &Key::new("ns", "vm"), &self.kubelets, &mut out);
        out
    }

    /// The status that the agents want written, or null.
    fn patch(&mut self, seconds: i64) -> Value {
        let out = self.sync(seconds);
        let patch = out.writes.iter().find_map(|w| match w {
            Write { verb: Verb::JsonPatch(patch), .. } => {
                let operations = patch.as_array().into_iter().flatten();
                let field = |o: &Value| {
                    Some((o["path"].as_str()?.strip_prefix("/status/")?.to_owned(), o["value"].clone()))
                };
                Some(Value::Object(operations.filter_map(field).collect()))
            }
            _ => None,
        });
        patch.unwrap_or_default()
    }
}

fn running() -> Value {
    json!({ "phase": "Running", "nodeName": "n1" })
}

fn moving(fields: Value) -> Value {
    let mut state =
        json!({ "migrationUid": "m", "sourceNode": "n1", "targetNode": "n2", "targetPod": "target" });
    if let (Some(state), Value::Object(more)) = (state.as_object_mut(), fields) {
        state.extend(more);
    }
    json!({ "phase": "Running", "nodeName": "n1", "migrationState": state })
}

#[test]
fn an_instance_that_is_not_scheduled_yet_is_nobodys() {
    let mut scene = Scene::new(&json!({ "phase": "Scheduling", "nodeName": "n1" }));
    assert_eq!(scene.patch(0), Value::Null);
    assert!(scene.handlers.hypervisor.domains().next().is_none());
}

#[test]
fn a_scheduled_instance_is_started_and_then_said_to_run() {
    let mut scene = Scene::new(&json!({ "phase": "Scheduled", "nodeName": "n1" }));
    let out = scene.sync(0);
    assert!(out.writes.is_empty());
    assert!(out.again.is_some_and(|t| t <= at(1)));
    assert_eq!(scene.patch(1)["phase"], "Running");
}

#[test]
fn an_agent_whose_node_is_dead_does_nothing() {
    let mut scene = Scene::new(&json!({ "phase": "Scheduled", "nodeName": "n1" }));
    scene.kubelets.set_alive("n1", false);
    assert_eq!(scene.patch(0), Value::Null);
    assert!(scene.handlers.hypervisor.domains().next().is_none());
}

#[test]
fn a_guest_that_ran_before_the_agent_came_is_taken_over_as_it_is() {
    let mut scene = Scene::new(&running());
    let patch = scene.patch(100);
    assert!(patch["phase"].is_null() && patch["conditions"].is_array());
    assert!(scene.handlers.hypervisor.domain("source-uid").unwrap().guest.on());
}

#[test]
fn an_instance_declared_final_by_others_has_its_guest_ended() {
    let mut scene = Scene::new(&running());
    scene.sync(0);
    scene.instance(&json!({ "phase": "Failed", "nodeName": "n1" }));
    scene.sync(1);
    assert!(!scene.handlers.hypervisor.domain("source-uid").unwrap().guest.on());
}

#[test]
fn the_agents_of_a_migration_write_one_after_the_other() {
    let mut scene = Scene::new(&running());
    scene.sync(0);
    scene.launcher("target", "n2");
    // Each step is written onto what the step before gave.
    let mut status = moving(json!({}));
    let mut order = Vec::new();
    let mut time = 1;
    for _ in 0..40 {
        scene.instance(&status);
        let patch = scene.patch(time);
        if patch.is_null() {
            time += 1;
            continue;
        }
        let fields = patch["migrationState"].as_object().into_iter().flat_map(|m| m.keys().cloned());
        order.extend(fields);
        if patch["nodeName"].is_string() {
            let arrival = &patch["migrationState"];
            assert!(arrival["endTimestamp"].is_string() && arrival["targetNodeDomainDetected"] == true);
            order.push("nodeName".to_owned());
        }
        merge(&mut status, &patch);
    }
    let place =
        |field: &str| order.iter().position(|f| f == field).unwrap_or_else(|| panic!("{field}: {order:?}"));
    let steps = [
        "targetNodeAddress",
        "startTimestamp",
        "endTimestamp",
        "targetNodeDomainDetected",
        "nodeName",
        "completed",
    ];
    let places: Vec<usize> = steps.iter().map(|s| place(s)).collect();
    assert!(places.is_sorted(), "{order:?}");
    assert_eq!(status["nodeName"], "n2");
}

#[test]
fn with_post_copy_the_guest_is_seen_on_the_target_long_before_it_is_taken_over() {
    let mut scene = Scene::new(&running());
    scene.sync(0);
    scene.launcher("target", "n2");
    // A gigabyte over a line for ten megabytes a second; after two seconds the guest goes ahead.
    let terms =
        json!({ "bandwidthPerMigration": "10Mi", "allowPostCopy": true, "completionTimeoutPerGiB": 1 });
    let mut status = moving(json!({ "migrationConfiguration": terms }));
    let (mut seen, mut taken_over) = (None, None);
    for time in 1..200 {
        scene.instance(&status);
        let patch = scene.patch(time);
        if !patch.is_null() {
            merge(&mut status, &patch);
        }
        if status["migrationState"]["targetNodeDomainDetected"] == true {
            seen.get_or_insert(time);
        }
        let has_ended = status["migrationState"]["endTimestamp"].is_string();
        assert_eq!(has_ended, status["nodeName"] == "n2", "at {time}");
        if has_ended {
            taken_over.get_or_insert(time);
        }
    }
    let (seen, taken_over) = (seen.unwrap(), taken_over.unwrap());
    assert!(seen < 10 && taken_over > 90, "seen at {seen}, taken over at {taken_over}");
}

fn merge(into: &mut Value, patch: &Value) {
    let (Some(held), Some(fields)) = (into.as_object_mut(), patch.as_object()) else {
        *into = patch.clone();
        return;
    };
    for (key, value) in fields {
        if value.is_null() {
            held.remove(key);
        } else {
            merge(held.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[test]
fn a_start_whose_word_did_not_get_through_is_not_a_second_copy() {
    let mut scene = Scene::new(&running());
    scene.sync(0);
    scene.launcher("target", "n2");
    let ready = moving(json!({ "targetNodeAddress": "10.0.0.2" }));
    scene.instance(&ready);
    assert!(scene.patch(1)["migrationState"]["startTimestamp"].is_string());
    let first = scene.handlers.hypervisor.moving("source-uid").unwrap().transfer.started;
    scene.instance(&ready);
    assert!(scene.patch(2)["migrationState"]["startTimestamp"].is_string());
    assert_eq!(scene.handlers.hypervisor.moving("source-uid").unwrap().transfer.started, first);
}

#[test]
fn a_migration_that_nobody_remembers_is_given_up() {
    let mut scene = Scene::new(&running());
    scene.sync(0);
    scene.launcher("target", "n2");
    scene.instance(&moving(json!({ "targetNodeAddress": "x", "startTimestamp": "2026-01-01T00:00:00Z" })));
    let patch = scene.patch(1);
    assert_eq!(patch["migrationState"]["failed"], true);
    assert_eq!(patch["migrationState"]["completed"], true);
}

#[test]
fn a_volume_plugged_into_a_running_guest_becomes_ready_when_it_is_on_the_node() {
    let mut scene = Scene::new(&running());
    scene.spec["volumes"] = json!([{ "name": "root", "containerDisk": {} },
        { "name": "extra", "persistentVolumeClaim": { "claimName": "extra", "hotpluggable": true } }]);
    let mut status = running();
    status["volumeStatus"] = json!([{ "name": "extra", "phase": "Pending", "hotplugVolume": {} }]);
    scene.instance(&status);
    let entry = |patch: &Value| {
        let all = patch["volumeStatus"].as_array().unwrap().clone();
        all.into_iter().find(|v| v["name"] == "extra").unwrap()
    };
    assert_eq!(entry(&scene.patch(1))["phase"], "Pending");
    status["volumeStatus"][0]["phase"] = json!("AttachedToNode");
    scene.instance(&status);
    let ready = entry(&scene.patch(2));
    assert_eq!((&ready["phase"], &ready["reason"]), (&json!("Ready"), &json!("VolumeReady")));
}
