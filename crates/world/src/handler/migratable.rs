//! Can this instance move to another node while it runs? The condition `LiveMigratable`, with the first reason against it.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use super::{plan, volumes};
use crate::instance::VirtualMachineInstance;
use crate::mirror::Mirror;
use crate::objects::annotation;

const BRIDGE_ANNOTATION: &str = "kubevirt.io/allow-pod-bridge-network-live-migration";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// `LiveMigration`, or `BlockMigration` where local disks are copied along.
    pub method: &'static str,
    /// Reason and message of what stands against it.
    pub against: Option<(Cow<'static, str>, String)>,
}

pub fn verdict(vmi: &VirtualMachineInstance, node: Option<&Node>, mirror: &Mirror) -> Verdict {
    let (block, disks) = volumes::movable(vmi, mirror);
    let method = if block { "BlockMigration" } else { "LiveMigration" };
    let given = plan::not_migratable(vmi).map(|(reason, text)| (reason.into(), text));
    let found = || common(vmi, node).or_else(|| disks.map(|text| ("DisksNotLiveMigratable", text)));
    let against = given.or_else(|| found().map(|(reason, text)| (reason.into(), text)));
    Verdict { method, against }
}

fn common(vmi: &VirtualMachineInstance, node: Option<&Node>) -> Option<(&'static str, String)> {
    let domain = &vmi.spec["domain"];
    let devices = &domain["devices"];
    let features = &domain["features"];
    let security = &domain["launchSecurity"];
    let filled = |list: &Value| list.as_array().is_some_and(|l| !l.is_empty());
    if !network_moves(vmi) {
        let text = format!(
            "cannot migrate VMI which does not use masquerade, bridge with {BRIDGE_ANNOTATION} VM annotation or a migratable plugin to connect to the pod network"
        );
        return Some(("InterfaceNotLiveMigratable", text));
    }
    // The name of the reason is KubeVirt's own.
    if domain["cpu"]["model"] == "host-model" && node.is_some_and(|n| !knows_host_model(n)) {
        let text = format!(
            "the node \"{}\" does not allow migration with host-model",
            vmi.node().unwrap_or_default()
        );
        return Some(("CPUModeLiveMigratable", text));
    }
    if filled(&devices["hostDevices"]) || filled(&devices["gpus"]) {
        return Some(("HostDeviceNotLiveMigratable", "VMI uses a PCI host devices".to_owned()));
    }
    if security["sev"].is_object() {
        return Some(("SEVNotLiveMigratable", "VMI uses SEV".to_owned()));
    }
    if security["tdx"].is_object() {
        return Some(("TDXNotLiveMigratable", "VMI uses TDX".to_owned()));
    }
    if security.is_object() {
        return Some(("SecureExecutionNotLiveMigratable", "VMI uses Secure Execution".to_owned()));
    }
    let tsc_needed = features["hyperv"]["reenlightenment"].is_object()
        && features["hyperv"]["reenlightenment"]["enabled"] != false;
    if tsc_needed && !vmi.status["topologyHints"]["tscFrequency"].is_number() {
        let text = "HyperV Reenlightenment VMIs cannot migrate when TSC Frequency is not exposed on the cluster: guest timers might be inconsistent";
        return Some(("NoTSCFrequencyNotLiveMigratable", text.to_owned()));
    }
    if features["hypervPassthrough"]["enabled"] == true {
        return Some(("HypervPassthroughNotLiveMigratable", "VMI uses hyperv passthrough".to_owned()));
    }
    None
}

fn knows_host_model(node: &Node) -> bool {
    node.metadata.labels.iter().flatten().any(|(key, _)| key.starts_with("host-model-cpu.node.kubevirt.io/"))
}

/// Instances without any interface get the pod network with masquerade or none at all: both move.
fn network_moves(vmi: &VirtualMachineInstance) -> bool {
    let networks = vmi.spec["networks"].as_array().into_iter().flatten();
    let Some(pod_network) = networks.into_iter().find(|n| n["pod"].is_object()) else { return true };
    let interfaces = vmi.spec["domain"]["devices"]["interfaces"].as_array().into_iter().flatten();
    let Some(interface) = interfaces.into_iter().find(|i| i["name"] == pod_network["name"]) else {
        return false;
    };
    let masked = interface["masquerade"].is_object() || interface["passtBinding"].is_object();
    let bridged = interface["bridge"].is_object() && annotation(&vmi.metadata, BRIDGE_ANNOTATION).is_some();
    masked || bridged
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn verdict_of(spec: Value, annotate: bool) -> Option<(Cow<'static, str>, String)> {
        let mut vmi =
            VirtualMachineInstance { metadata: crate::build::meta("ns", "vm"), ..Default::default() };
        if annotate {
            vmi.metadata.annotations = Some(crate::build::labels(&[(BRIDGE_ANNOTATION, "")]));
        }
        vmi.spec = spec;
        verdict(&vmi, Some(&crate::build::node("n", "a")), &Mirror::default()).against
    }

    fn bridged() -> Value {
        json!({
            "domain": { "devices": { "interfaces": [{ "name": "default", "bridge": {} }],
                "gpus": [{ "name": "g" }] } },
            "networks": [{ "name": "default", "pod": {} }],
            "volumes": [{ "name": "d", "hostDisk": { "path": "/x" } }],
        })
    }

    #[test]
    fn the_first_reason_counts_network_before_devices_before_disks() {
        assert_eq!(verdict_of(bridged(), false).unwrap().0, "InterfaceNotLiveMigratable");
        assert_eq!(verdict_of(bridged(), true).unwrap().0, "HostDeviceNotLiveMigratable");
        let mut spec = bridged();
        spec["domain"]["devices"]["gpus"] = json!([]);
        assert_eq!(verdict_of(spec, true).unwrap().0, "DisksNotLiveMigratable");
    }

    #[test]
    fn host_model_needs_a_node_that_knows_its_model() {
        let spec = json!({ "domain": { "cpu": { "model": "host-model" } } });
        assert_eq!(verdict_of(spec, false).unwrap().0, "CPUModeLiveMigratable");
    }

    #[test]
    fn an_instance_that_is_said_not_to_move_does_not_for_the_reason_given() {
        let mut vmi =
            VirtualMachineInstance { metadata: crate::build::meta("ns", "vm"), ..Default::default() };
        let text = "DisksNotLiveMigratable: cannot migrate VMI: PVC a is not shared";
        vmi.metadata.annotations = Some(crate::build::labels(&[(plan::NOT_MIGRATABLE, text)]));
        let (reason, message) = verdict(&vmi, None, &Mirror::default()).against.unwrap();
        assert_eq!(reason, "DisksNotLiveMigratable");
        assert_eq!(message, "cannot migrate VMI: PVC a is not shared");
    }

    #[test]
    fn a_plain_machine_moves() {
        let spec = json!({
            "domain": { "devices": { "interfaces": [{ "name": "default", "masquerade": {} }] } },
            "networks": [{ "name": "default", "pod": {} }],
        });
        assert_eq!(verdict_of(spec, false), None);
        assert_eq!(verdict_of(json!({}), false), None);
    }
}
