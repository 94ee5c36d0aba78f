//! A VirtualMachineInstance as a node agent reads it: metadata with its type, the rest as it is in the API, because most
//! of it passes through and belongs to others.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use crate::objects::{Key, label, uid};
use crate::quantity;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct VirtualMachineInstance {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default)]
    pub status: Value,
}

pub const LAUNCHER_LABEL: &str = "kubevirt.io";
pub const NODE_LABEL: &str = "kubevirt.io/nodeName";
pub const TARGET_NODE_LABEL: &str = "kubevirt.io/migrationTargetNodeName";
/// The pod's end comes this much later than the guest's.
pub const LAUNCHER_EXTRA_GRACE: i64 = 30;
const DEFAULT_GRACE: i64 = 30;

impl VirtualMachineInstance {
    pub fn key(&self) -> Key {
        Key::of(&self.metadata)
    }

    pub fn uid(&self) -> &str {
        uid(&self.metadata)
    }

    pub fn phase(&self) -> &str {
        self.status["phase"].as_str().unwrap_or_default()
    }

    pub fn is_final(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// The node whose agent is responsible.
    pub fn node(&self) -> Option<&str> {
        self.status["nodeName"].as_str().filter(|n| !n.is_empty())
    }

    pub fn migration(&self) -> Migration<'_> {
        Migration(&self.status["migrationState"])
    }

    /// How long the guest may take to shut down.
    pub fn grace(&self) -> i64 {
        self.spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(DEFAULT_GRACE).max(0)
    }

    pub fn has_acpi(&self) -> bool {
        self.spec["domain"]["features"]["acpi"]["enabled"].as_bool() != Some(false)
    }

    pub fn memory_bytes(&self) -> Option<f64> {
        let domain = &self.spec["domain"];
        let text = [&domain["memory"]["guest"], &domain["resources"]["requests"]["memory"]]
            .into_iter()
            .chain([&domain["resources"]["limits"]["memory"]])
            .find_map(Value::as_str)?;
        quantity::parse(text).map(|milli| milli as f64 / 1000.0).filter(|bytes| *bytes > 0.0)
    }

    pub fn vcpus(&self) -> u32 {
        let cpu = &self.spec["domain"]["cpu"];
        let part = |name: &str| cpu[name].as_u64().filter(|n| *n > 0).unwrap_or(1);
        let product = part("cores") * part("sockets") * part("threads");
        if cpu.is_object() {
            return u32::try_from(product).unwrap_or(u32::MAX);
        }
        let requested = self.spec["domain"]["resources"]["requests"]["cpu"].as_str();
        let whole = requested.and_then(quantity::parse).map_or(1, |milli| (milli + 999) / 1000);
        u32::try_from(whole.max(1)).unwrap_or(1)
    }

    pub fn condition(&self, kind: &str) -> Option<&Value> {
        self.status["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
    }

    /// When it entered the phase, if it says so.
    pub fn since(&self, phase: &str) -> Option<Timestamp> {
        let entries = self.status["phaseTransitionTimestamps"].as_array()?;
        let entry = entries.iter().find(|e| e["phase"] == phase)?;
        entry["phaseTransitionTimestamp"].as_str()?.parse().ok()
    }
}

/// `status.migrationState`, where two nodes and the control plane talk to each other.
#[derive(Debug, Clone, Copy)]
pub struct Migration<'a>(pub &'a Value);

impl<'a> Migration<'a> {
    pub fn text(self, field: &str) -> Option<&'a str> {
        self.0[field].as_str().filter(|t| !t.is_empty())
    }

    pub fn flag(self, field: &str) -> bool {
        self.0[field].as_bool() == Some(true)
    }

    pub fn id(self) -> Option<&'a str> {
        self.text("migrationUid")
    }

    /// Over, for better or worse.
    pub fn closed(self) -> bool {
        self.flag("completed") || self.flag("failed")
    }
}

/// A pod in which a guest runs, or will.
pub fn is_launcher(pod: &Pod) -> bool {
    label(&pod.metadata, LAUNCHER_LABEL) == Some("virt-launcher")
}

/// The instance that a launcher pod belongs to.
pub fn instance_of(pod: &Pod) -> Option<Key> {
    let owner =
        crate::objects::controller_of(&pod.metadata).filter(|o| o.kind == "VirtualMachineInstance")?;
    Some(Key::new(pod.metadata.namespace.clone().unwrap_or_default(), owner.name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn instance(spec: Value) -> VirtualMachineInstance {
        VirtualMachineInstance { spec, ..Default::default() }
    }

    #[test]
    fn memory_is_what_the_guest_sees_before_what_is_requested() {
        let both = instance(json!({ "domain": {
            "memory": { "guest": "2Gi" }, "resources": { "requests": { "memory": "1Gi" } } } }));
        assert_eq!(both.memory_bytes(), Some(2.0 * 1024.0 * 1024.0 * 1024.0));
        let one = instance(json!({ "domain": { "resources": { "requests": { "memory": "64M" } } } }));
        assert_eq!(one.memory_bytes(), Some(64e6));
        assert_eq!(instance(json!({})).memory_bytes(), None);
    }

    #[test]
    fn processors_multiply_or_follow_from_the_request() {
        let topology = instance(json!({ "domain": { "cpu": { "cores": 2, "sockets": 3 } } }));
        assert_eq!(topology.vcpus(), 6);
        let request = instance(json!({ "domain": { "resources": { "requests": { "cpu": "1500m" } } } }));
        assert_eq!(request.vcpus(), 2);
    }

    #[test]
    fn an_instance_without_a_grace_period_has_thirty_seconds() {
        assert_eq!(instance(json!({})).grace(), 30);
        assert_eq!(instance(json!({ "terminationGracePeriodSeconds": 0 })).grace(), 0);
    }
}
