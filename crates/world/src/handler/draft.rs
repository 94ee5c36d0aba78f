//! An instance as an agent wants it to be, and the patch that makes it so.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::effects::{Write, as_value};
use crate::instance::VirtualMachineInstance;
use crate::kinds::Kind;
use crate::objects::{label, time};

/// Kubernetes' way of writing a time.
pub fn stamp(at: Timestamp) -> Value {
    as_value(&time(at))
}

pub struct Draft<'a> {
    held: &'a VirtualMachineInstance,
    pub status: Value,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
}

impl<'a> Draft<'a> {
    pub fn of(held: &'a VirtualMachineInstance) -> Self {
        let status = if held.status.is_object() { held.status.clone() } else { json!({}) };
        Self { held, status, labels: Map::new(), annotations: Map::new() }
    }

    /// Sets a label, or removes it.
    pub fn label(&mut self, key: &str, value: Option<&str>) {
        if label(&self.held.metadata, key) != value {
            self.labels.insert(key.to_owned(), json!(value));
        }
    }

    pub fn remove_annotation(&mut self, key: &str) {
        if crate::objects::annotation(&self.held.metadata, key).is_some() {
            self.annotations.insert(key.to_owned(), Value::Null);
        }
    }

    pub fn set(&mut self, field: &str, value: Value) {
        self.status[field] = value;
    }

    pub fn remove(&mut self, field: &str) {
        if let Some(fields) = self.status.as_object_mut() {
            fields.remove(field);
        }
    }

    pub fn phase(&mut self, phase: &str, now: Timestamp) {
        if self.status["phase"] == phase {
            return;
        }
        self.set("phase", json!(phase));
        let mut entries = self.status["phaseTransitionTimestamps"].as_array().cloned().unwrap_or_default();
        if !entries.iter().any(|e| e["phase"] == phase) {
            entries.push(json!({ "phase": phase, "phaseTransitionTimestamp": stamp(now) }));
        }
        self.set("phaseTransitionTimestamps", json!(entries));
    }

    /// Adds or changes a condition; one that says the same already keeps its times.
    pub fn condition(
        &mut self,
        kind: &str,
        holds: bool,
        reason: Option<&str>,
        message: Option<&str>,
        now: Timestamp,
    ) {
        let status = if holds { "True" } else { "False" };
        let mut all = self.status["conditions"].as_array().cloned().unwrap_or_default();
        // KubeVirt's controllers patch conditions only if they are still what they read, and read a missing time as null.
        let mut wanted = json!({
            "type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": stamp(now),
        });
        if let Some(reason) = reason {
            wanted["reason"] = json!(reason);
        }
        if let Some(message) = message {
            wanted["message"] = json!(message);
        }
        match all.iter_mut().find(|c| c["type"] == kind) {
            Some(old) => {
                let same = |field: &str| {
                    old[field].as_str().unwrap_or_default() == wanted[field].as_str().unwrap_or_default()
                };
                if same("status") && same("reason") && same("message") {
                    return;
                }
                *old = wanted;
            }
            None => all.push(wanted),
        }
        self.set("conditions", json!(all));
    }

    pub fn drop_condition(&mut self, kind: &str) {
        if let Some(all) = self.status["conditions"].as_array_mut() {
            all.retain(|c| c["type"] != kind);
        }
    }

    pub fn migration(&mut self, field: &str, value: Value) {
        self.status["migrationState"][field] = value;
    }

    pub fn changed(&self) -> bool {
        !self.operations().is_empty()
    }

    /// What has to be done to the object as it was read. A merge patch would not do: the server drops nulls from the
    /// entries of its lists, and KubeVirt's controllers test whether theirs are still as they wrote them.
    fn operations(&self) -> Vec<Value> {
        let mut all = Vec::new();
        let meta = &self.held.metadata;
        edit(&mut all, "/metadata/labels", meta.labels.is_some(), &self.labels);
        edit(&mut all, "/metadata/annotations", meta.annotations.is_some(), &self.annotations);
        if let Some(Value::Object(fields)) = self.difference() {
            let wanted = |name: &String| match self.status.get(name) {
                None | Some(Value::Null) => (name.clone(), Value::Null),
                Some(value) => (name.clone(), value.clone()),
            };
            edit(&mut all, "/status", self.held.status.is_object(), &fields.keys().map(wanted).collect());
        }
        all
    }

    fn difference(&self) -> Option<Value> {
        let empty = json!({});
        let held = if self.held.status.is_object() { &self.held.status } else { &empty };
        merge_patch(held, &self.status)
    }

    /// The wanted change, valid only for the version that was read.
    pub fn write(&self) -> Option<Write> {
        let mut operations = self.operations();
        if operations.is_empty() {
            return None;
        }
        let version = json!(self.held.metadata.resource_version);
        // Another version is a conflict, as with an update.
        operations.insert(0, operation("replace", "/metadata/resourceVersion", Some(&version)));
        Some(Write::json_patch(Kind::VirtualMachineInstance, self.held.key(), operations))
    }
}

fn operation(what: &str, path: &str, value: Option<&Value>) -> Value {
    let mut operation = json!({ "op": what, "path": path });
    if let Some(value) = value {
        operation["value"] = value.clone();
    }
    operation
}

/// Sets the fields of a map, and removes those that are to be null.
fn edit(all: &mut Vec<Value>, parent: &str, is_there: bool, fields: &Map<String, Value>) {
    if !is_there && !fields.is_empty() {
        all.push(operation("add", parent, Some(&json!({}))));
    }
    for (name, value) in fields {
        let path = format!("{parent}/{}", name.replace('~', "~0").replace('/', "~1"));
        let value = (!value.is_null()).then_some(value);
        all.push(operation(if value.is_some() { "add" } else { "remove" }, &path, value));
    }
}

/// The merge patch that turns `old` into `new`; `None` when they are equal.
fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in after {
        match before.get(key) {
            // A field that is not there and one that is null read the same.
            None if value.is_null() => {}
            None => {
                patch.insert(key.clone(), value.clone());
            }
            Some(held) => {
                if let Some(inner) = merge_patch(held, value) {
                    patch.insert(key.clone(), inner);
                }
            }
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::at;
    use crate::effects::Verb;

    fn instance(status: Value) -> VirtualMachineInstance {
        VirtualMachineInstance { metadata: crate::build::meta("ns", "vm"), spec: json!({}), status }
    }

    #[test]
    fn only_what_differs_is_patched_and_only_on_the_version_read() {
        let mut held = instance(json!({ "phase": "Scheduled", "other": { "a": 1 }, "old": true }));
        held.metadata.resource_version = Some("7".into());
        let mut draft = Draft::of(&held);
        assert!(draft.write().is_none());
        draft.set("other", json!({ "a": 1, "b": 2 }));
        draft.remove("old");
        draft.label("kubevirt.io/x", Some("y"));
        let Some(Write { verb: Verb::JsonPatch(patch), .. }) = draft.write() else { panic!("no patch") };
        assert_eq!(
            patch,
            json!([
                { "op": "replace", "path": "/metadata/resourceVersion", "value": "7" },
                { "op": "add", "path": "/metadata/labels", "value": {} },
                { "op": "add", "path": "/metadata/labels/kubevirt.io~1x", "value": "y" },
                { "op": "remove", "path": "/status/old" },
                { "op": "add", "path": "/status/other", "value": { "a": 1, "b": 2 } },
            ])
        );
    }

    #[test]
    fn conditions_of_others_are_written_back_as_they_were_read() {
        let theirs = json!({ "type": "Ready", "status": "True", "lastProbeTime": null });
        let mut held = instance(json!({ "conditions": [theirs] }));
        held.metadata.labels = Some(std::collections::BTreeMap::new());
        let mut draft = Draft::of(&held);
        draft.condition("LiveMigratable", true, None, None, at(5));
        let Some(Write { verb: Verb::JsonPatch(patch), .. }) = draft.write() else { panic!("no patch") };
        assert_eq!(patch[1]["path"], "/status/conditions");
        assert_eq!(patch[1]["value"][0], theirs);
        assert_eq!(patch[1]["value"][1]["lastProbeTime"], Value::Null, "as upstream writes it");
        assert!(patch[1]["value"][1].as_object().unwrap().contains_key("lastProbeTime"));
    }

    #[test]
    fn a_phase_is_noted_with_its_first_time() {
        let held = instance(json!({ "phase": "Scheduled" }));
        let mut draft = Draft::of(&held);
        draft.phase("Running", at(5));
        draft.phase("Running", at(9));
        assert_eq!(draft.status["phaseTransitionTimestamps"].as_array().unwrap().len(), 1);
        assert_eq!(draft.status["phaseTransitionTimestamps"][0]["phaseTransitionTimestamp"], stamp(at(5)));
    }

    #[test]
    fn a_condition_that_says_the_same_keeps_its_time_and_those_of_others_stay() {
        let held = instance(json!({ "conditions": [
            { "type": "Ready", "status": "True" },
            { "type": "LiveMigratable", "status": "True", "lastTransitionTime": null } ] }));
        let mut draft = Draft::of(&held);
        draft.condition("LiveMigratable", true, None, None, at(5));
        assert!(!draft.changed());
        draft.condition("LiveMigratable", false, Some("R"), Some("m"), at(6));
        assert!(draft.changed());
        assert_eq!(draft.status["conditions"][0]["type"], "Ready");
    }
}
