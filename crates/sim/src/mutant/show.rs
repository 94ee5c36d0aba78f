//! What evac does not see with a planted bug: objects as they are shown to it, in answers, lists and watches.

use serde_json::{Value, json};

use super::Bug;

/// What becomes of something that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// It is shown, perhaps changed.
    Changed,
    /// It is not shown at all.
    Hidden,
}

const LONG_AGO: &str = "2025-01-01T00:00:00.000000Z";

impl Bug {
    /// Whether this bug is one of seeing.
    pub fn is_of_seeing(self) -> bool {
        matches!(
            self,
            Self::MarksUnseen
                | Self::LeasesLapseAtOnce
                | Self::RecordsUnseen
                | Self::CopyingLooksOver
                | Self::ReadinessUnseen
                | Self::SignsUnseen
                | Self::OldServer
                | Self::DeletionsUnseen
                | Self::TaintsUnseen
                | Self::PodsUnseen
                | Self::InstanceMarksUnseen
                | Self::GuestsLookUnmovable
                | Self::NodesStandStill
        )
    }

    /// Changes an answer to an actor: an object, a list, or one event of a watch.
    pub fn show(self, actor: &str, path: &str, answer: &mut Value) -> Shown {
        if let Some(items) = answer["items"].as_array_mut() {
            items.retain_mut(|item| self.show_one(actor, path, item) == Shown::Changed);
            return Shown::Changed;
        }
        let event = answer["type"].as_str().map(ToOwned::to_owned);
        match event.as_deref() {
            Some("MODIFIED") if self == Self::NodesStandStill && path.starts_with("/api/v1/nodes") => {
                Shown::Hidden
            }
            Some("ADDED" | "MODIFIED" | "DELETED") => self.show_one(actor, path, &mut answer["object"]),
            _ => self.show_one(actor, path, answer),
        }
    }

    fn show_one(self, actor: &str, path: &str, object: &mut Value) -> Shown {
        let node = path.starts_with("/api/v1/nodes");
        match self {
            Self::MarksUnseen if node => {
                let mark = object["metadata"]["annotations"]["evac.dev/drain"].as_str().unwrap_or_default();
                let ours = match actor.strip_prefix("drain-") {
                    Some(_) => mark.contains(actor),
                    None => mark.contains("node-maintenance") || mark.contains("evac-operator"),
                };
                if !ours {
                    forget(object, "/metadata/annotations", "evac.dev/drain");
                }
            }
            Self::LeasesLapseAtOnce
                if path.contains("/medik8s-leases/") && !holder(object).starts_with("node-maintenance") =>
            {
                set(object, "/spec/renewTime", json!(LONG_AGO));
            }
            Self::RecordsUnseen if path.contains("/leases") => {
                forget(object, "/metadata/annotations", "evac.dev/record");
            }
            Self::CopyingLooksOver
                if path.contains("migrations") && object["status"]["phase"] == "Running" =>
            {
                set(object, "/status/phase", json!("Succeeded"));
            }
            Self::CopyingLooksOver
                if path.contains("/virtualmachineinstances")
                    && object["status"]["migrationState"]["startTimestamp"].is_string() =>
            {
                object["status"]["migrationState"]["endTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            Self::ReadinessUnseen if node => condition(object, "Ready", "Unknown"),
            Self::SignsUnseen
                if path.contains("/kube-node-lease/")
                    && object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("node-")) =>
            {
                set(object, "/spec/renewTime", json!(LONG_AGO));
                set(object, "/metadata/resourceVersion", json!("1"));
            }
            Self::OldServer if path == "/version" => {
                *object = json!({"major": "1", "minor": "20", "gitVersion": "v1.20.0"});
            }
            Self::DeletionsUnseen if path.contains("/nodemaintenances") => {
                forget(object, "/metadata", "deletionTimestamp");
            }
            Self::TaintsUnseen if node => forget(object, "/spec", "taints"),
            Self::PodsUnseen if path == "/api/v1/pods" => return Shown::Hidden,
            Self::InstanceMarksUnseen if path.contains("/virtualmachineinstances") => {
                forget(object, "/status", "evacuationNodeName");
            }
            Self::GuestsLookUnmovable if path.contains("/virtualmachineinstances") => {
                condition(object, "LiveMigratable", "False");
            }
            _ => {}
        }
        Shown::Changed
    }
}

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default()
}

fn forget(object: &mut Value, parent: &str, field: &str) {
    if let Some(map) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        map.remove(field);
    }
}

/// Sets what is there already.
fn set(object: &mut Value, pointer: &str, value: Value) {
    if let Some(field) = object.pointer_mut(pointer) {
        *field = value;
    }
}

fn condition(object: &mut Value, name: &str, status: &str) {
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for one in conditions.into_iter().flatten().filter(|one| one["type"] == name) {
        one["status"] = json!(status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_missing_from_lists_objects_and_events() {
        let node = || json!({"metadata": {"annotations": {"evac.dev/drain": "{\"owner\":\"drain-kim\"}"}}});
        let mark = |shown: &Value| shown.pointer("/metadata/annotations/evac.dev~1drain").is_some();
        let mut list = json!({"items": [node()]});
        Bug::MarksUnseen.show("drain-lee", "/api/v1/nodes", &mut list);
        assert!(!mark(&list["items"][0]));
        let mut event = json!({"type": "ADDED", "object": node()});
        Bug::MarksUnseen.show("drain-kim", "/api/v1/nodes", &mut event);
        assert!(mark(&event["object"]), "it is that drain's own");
        let mut event = json!({"type": "MODIFIED", "object": node()});
        assert_eq!(Bug::NodesStandStill.show("drain-kim", "/api/v1/nodes", &mut event), Shown::Hidden);
        let mut pods = json!({"items": [{}, {}]});
        Bug::PodsUnseen.show("drain-kim", "/api/v1/pods", &mut pods);
        assert_eq!(pods["items"], json!([]));
    }
}
