//! What an agent reports about a guest: that it runs, with all that is known of it, and how it ended.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::draft::Draft;
use super::migratable;
use super::{plan, volumes};
use crate::actor::{Out, View};
use crate::events::{Notice, event};
use crate::hypervisor::guest::{End, Guest, State};
use crate::instance::VirtualMachineInstance;
use crate::kinds::Kind;
use crate::random::stable_hash;

const COMPONENT: &str = "virt-handler";

/// An event on an instance.
pub fn tell(
    out: &mut Out,
    vmi: &VirtualMachineInstance,
    warning: bool,
    reason: &str,
    text: &str,
    now: Timestamp,
) {
    let kind = Kind::VirtualMachineInstance;
    out.write(event(
        kind,
        &vmi.metadata,
        Notice { component: COMPONENT, warning, reason, message: text },
        now,
    ));
}

/// The status of an instance whose guest is on.
pub fn running(
    view: View<'_>,
    vmi: &VirtualMachineInstance,
    guest: &Guest,
    pod: &Pod,
    draft: &mut Draft<'_>,
    out: &mut Out,
) {
    let now = view.now;
    draft.phase("Running", now);
    draft.set("interfaces", json!(interfaces(vmi, pod)));
    let node = vmi.node().and_then(|n| view.mirror.nodes.named(n));
    let verdict = migratable::verdict(vmi, node.map(AsRef::as_ref), view.mirror);
    draft.set("migrationMethod", json!(verdict.method));
    if draft.status["migrationTransport"].is_null() {
        draft.set("migrationTransport", json!("Unix"));
    }
    match &verdict.against {
        None => draft.condition("LiveMigratable", true, None, None, now),
        Some((reason, text)) => {
            let known = vmi
                .condition("LiveMigratable")
                .is_some_and(|c| c["reason"].as_str() == Some(reason.as_ref()));
            if !known && vmi.spec["evictionStrategy"] == "LiveMigrate" {
                let text = format!("EvictionStrategy is set but vmi is not migratable; {text}");
                tell(out, vmi, true, "Migrated", &text, now);
            }
            draft.condition("LiveMigratable", false, Some(reason), Some(text), now);
        }
    }
    if guest.state == State::Paused {
        draft.condition("Paused", true, Some("PausedByUser"), Some("VMI was paused by user"), now);
    } else {
        draft.drop_condition("Paused");
    }
    if plan::has_agent(vmi) && guest.booted_at() <= now {
        draft.condition("AgentConnected", true, None, None, now);
        let os = json!({ "id": "linux", "name": "Linux", "prettyName": "Linux", "kernelRelease": "6.12.0" });
        draft.set("guestOSInfo", os);
    } else if draft.status["guestOSInfo"].is_null() {
        draft.set("guestOSInfo", json!({}));
    }
    machine(vmi, guest, draft);
    volume_status(vmi, draft);
}

/// What was given to the guest at its start.
fn machine(vmi: &VirtualMachineInstance, guest: &Guest, draft: &mut Draft<'_>) {
    if draft.status["memory"].is_null() {
        let amount = json!(format!("{}", guest.plan.memory as u64));
        draft.set(
            "memory",
            json!({ "guestAtBoot": amount, "guestCurrent": amount, "guestRequested": amount }),
        );
    }
    if draft.status["machine"].is_null() {
        let kind = vmi.spec["domain"]["machine"]["type"].as_str().unwrap_or("q35");
        draft.set("machine", json!({ "type": kind }));
    }
    if draft.status["selinuxContext"].is_null() {
        // Our nodes have no SELinux. KubeVirt moves no guest before it knows.
        draft.set("selinuxContext", json!("none"));
    }
    if draft.status["currentCPUTopology"].is_null() {
        let cpu = &vmi.spec["domain"]["cpu"];
        let part = |name: &str| cpu[name].as_u64().filter(|n| *n > 0).unwrap_or(1);
        draft.set(
            "currentCPUTopology",
            json!({ "cores": part("cores"), "sockets": part("sockets"), "threads": part("threads") }),
        );
    }
}

/// Every volume has a device in the guest. Entries that the control plane made are kept; a volume plugged
/// into the running guest is ready once its pod has brought it to the node.
fn volume_status(vmi: &VirtualMachineInstance, draft: &mut Draft<'_>) {
    let mut all = draft.status["volumeStatus"].as_array().cloned().unwrap_or_default();
    for (number, volume) in volumes::volumes(vmi).enumerate() {
        let Some(name) = volume["name"].as_str() else { continue };
        let target = json!(format!("vd{}", char::from(b'a' + (number % 26) as u8)));
        match all.iter_mut().find(|v| v["name"] == name) {
            None => all.push(json!({ "name": name, "target": target })),
            Some(entry) => {
                if entry["target"].as_str().unwrap_or_default().is_empty() {
                    entry["target"] = target;
                }
                if entry["hotplugVolume"].is_object()
                    && matches!(entry["phase"].as_str(), Some("AttachedToNode" | "MountedToPod"))
                {
                    entry["phase"] = json!("Ready");
                    entry["reason"] = json!("VolumeReady");
                    entry["message"] = json!(format!("Successfully attach hotplugged volume {name} to VM"));
                }
            }
        }
    }
    if !all.is_empty() {
        draft.set("volumeStatus", json!(all));
    }
}

/// The interfaces as seen from outside: the first one has the address of the pod. Their names in the pod are virt-controller's to write and are kept;
/// without that the two would overwrite each other for ever.
pub fn interfaces(vmi: &VirtualMachineInstance, pod: &Pod) -> Vec<Value> {
    let address = pod.status.as_ref().and_then(|s| s.pod_ip.clone()).unwrap_or_default();
    let named: Vec<&str> = vmi.spec["domain"]["devices"]["interfaces"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|i| i["name"].as_str())
        .collect();
    let named = if named.is_empty() && !has_networks(vmi) { vec!["default"] } else { named };
    named
        .into_iter()
        .map(|name| {
            let hash = stable_hash(&["mac", vmi.uid(), name]).to_be_bytes();
            let mac = format!("02:00:00:{:02x}:{:02x}:{:02x}", hash[5], hash[6], hash[7]);
            let mut entry = json!({ "name": name, "mac": mac, "infoSource": "domain" });
            if on_pod_network(vmi, name) && !address.is_empty() {
                entry["ipAddress"] = json!(address);
                entry["ipAddresses"] = json!([address]);
            }
            let known = vmi.status["interfaces"].as_array().into_iter().flatten().find(|i| i["name"] == name);
            if let Some(inside) = known.and_then(|known| known.get("podInterfaceName")) {
                entry["podInterfaceName"] = inside.clone();
            }
            entry
        })
        .collect()
}

fn has_networks(vmi: &VirtualMachineInstance) -> bool {
    vmi.spec["networks"].as_array().is_some_and(|n| !n.is_empty())
}

fn on_pod_network(vmi: &VirtualMachineInstance, interface: &str) -> bool {
    if !has_networks(vmi) {
        return true;
    }
    let mut networks = vmi.spec["networks"].as_array().into_iter().flatten();
    networks.any(|n| n["name"] == interface && n["pod"].is_object())
}

/// The final phase of an instance whose guest ended.
pub fn ended(vmi: &VirtualMachineInstance, how: End, draft: &mut Draft<'_>, out: &mut Out, now: Timestamp) {
    let failed = matches!(how, End::Crashed | End::Killed | End::Lost);
    draft.phase(if failed { "Failed" } else { "Succeeded" }, now);
    draft.drop_condition("AgentConnected");
    draft.drop_condition("Paused");
    let text = if failed {
        "The VirtualMachineInstance crashed."
    } else {
        "The VirtualMachineInstance was shut down."
    };
    tell(out, vmi, failed, "Stopped", text, now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{meta, pod};

    #[test]
    fn the_name_that_virt_controller_gave_an_interface_in_the_pod_is_kept() {
        let launcher = pod("ns", "virt-launcher-vm").make();
        let mut vmi =
            VirtualMachineInstance { metadata: meta("ns", "vm"), spec: json!({}), status: json!({}) };
        let mut told = interfaces(&vmi, &launcher);
        assert_eq!(told[0].get("podInterfaceName"), None);
        told[0]["podInterfaceName"] = json!("eth0");
        vmi.status["interfaces"] = json!(told);
        assert_eq!(interfaces(&vmi, &launcher), told, "nothing is left to write");
    }
}
