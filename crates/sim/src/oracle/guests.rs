//! I1 and I2: nothing is deleted by force, and no guest that can be moved is shut down by those who empty nodes.
//!
//! That no disk has two writers is seen on the hypervisors themselves, which keep it for ever: [`crate::stage::Stage::look`].

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Oracle, Seen, has, text};

const INSTANCES: &str = "virtualmachineinstances.kubevirt.io";

/// What is known of an instance.
#[derive(Default)]
struct Instance {
    uid: String,
    node: String,
    movable: bool,
    running: bool,
    /// It is wanted gone: by its owner, or because its machine was stopped.
    ending: bool,
}

#[derive(Default)]
pub struct Guests {
    instances: BTreeMap<String, Instance>,
}

impl Oracle for Guests {
    fn see(&mut self, seen: &Seen<'_>, violate: &mut dyn FnMut(&'static str, String)) {
        match seen.resource {
            INSTANCES if seen.deleted() => drop(self.instances.remove(seen.key())),
            INSTANCES => {
                let object = seen.object();
                let is_true = |one: &Value| one["type"] == "LiveMigratable" && one["status"] == "True";
                let conditions = object["status"]["conditions"].as_array();
                let instance = Instance {
                    uid: text(object, "/metadata/uid").to_owned(),
                    node: text(object, "/status/nodeName").to_owned(),
                    movable: object["spec"]["evictionStrategy"] == "LiveMigrate"
                        && conditions.is_some_and(|all| all.iter().any(is_true)),
                    running: object["status"]["phase"] == "Running",
                    ending: has(object, "/metadata/deletionTimestamp"),
                };
                self.instances.insert(seen.key().to_owned(), instance);
            }
            "pods" if seen.by_evac() => self.pod(seen, violate),
            _ => {}
        }
    }
}

impl Guests {
    fn pod(&self, seen: &Seen<'_>, violate: &mut dyn FnMut(&'static str, String)) {
        let (pod, before) = (seen.object(), seen.before());
        let was_ending = has(before, "/metadata/deletionTimestamp");
        let ended = matches!(text(before, "/status/phase"), "Succeeded" | "Failed");
        let bound = !text(before, "/spec/nodeName").is_empty();
        let forced = seen.deleted() && bound && !ended
            || has(pod, "/metadata/deletionTimestamp") && pod["metadata"]["deletionGracePeriodSeconds"] == 0;
        if forced && !ended {
            violate("I1", format!("{} deletes pod {} by force while it runs", seen.author, seen.key()));
        }
        let ends_now = seen.deleted() || has(pod, "/metadata/deletionTimestamp") && !was_ending;
        if !ends_now || ended || pod["metadata"]["labels"]["kubevirt.io"] != "virt-launcher" {
            return;
        }
        let namespace = text(pod, "/metadata/namespace");
        let owners = pod["metadata"]["ownerReferences"].as_array();
        let owner = owners.and_then(|all| all.iter().find(|one| one["kind"] == "VirtualMachineInstance"));
        let Some(owner) = owner else { return };
        let key = format!("{namespace}/{}", text(owner, "/name"));
        let Some(instance) = self.instances.get(&key).filter(|one| owner["uid"] == *one.uid) else { return };
        let here = instance.node == text(pod, "/spec/nodeName");
        if instance.movable && instance.running && !instance.ending && here {
            violate("I2", format!("{} ends the pod in which guest {key} runs: {}", seen.author, seen.key()));
        }
    }
}
