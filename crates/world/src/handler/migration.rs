//! The two node agents of a migration: the target prepares and takes over, the source copies and says how it went.
//!
//! They talk through `status.migrationState` only, one field after the other, as KubeVirt's agents do.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::draft::{Draft, stamp};
use super::report::{ended, interfaces, tell};
use super::{Handlers, place, plan};
use crate::actor::{Out, View};
use crate::hypervisor::guest::{End, State};
use crate::hypervisor::transfer::{Mode, Outcome};
use crate::instance::{NODE_LABEL, TARGET_NODE_LABEL, VirtualMachineInstance};
use crate::objects::{Key, deleting, node_of, phase, uid};
use crate::random::stable_hash;

const EVICTION_SOURCE: &str = "kubevirt.io/eviction-source";

/// The pod that the guest is to move into, once it is there and runs.
fn target_pod<'a>(view: View<'a>, vmi: &VirtualMachineInstance) -> Option<&'a Pod> {
    let migration = vmi.migration();
    let name = migration.text("targetPod")?;
    let key = Key::new(vmi.metadata.namespace.clone().unwrap_or_default(), name);
    let pod = view.mirror.pods.get(&key)?;
    (node_of(pod) == migration.text("targetNode")).then_some(pod.as_ref())
}

impl Handlers {
    /// What the agent of the source does: `launcher` is where the guest runs, or ran.
    pub(super) fn source(
        &mut self,
        view: View<'_>,
        vmi: &VirtualMachineInstance,
        launcher: &Pod,
        draft: &mut Draft<'_>,
        out: &mut Out,
    ) {
        let (migration, now) = (vmi.migration(), view.now);
        let source_uid = uid(&launcher.metadata);
        let Some(id) = migration.id() else { return };
        if migration.closed() || migration.text("sourceNode") != vmi.node() {
            return;
        }
        if migration.text("startTimestamp").is_none() {
            if migration.flag("abortRequested") {
                give_up(vmi, draft, out, view, "Live migration aborted", Some("Succeeded"));
            } else if migration.text("targetNodeAddress").is_some()
                && migration.text("endTimestamp").is_none()
            {
                self.begin(view, vmi, source_uid, draft, out);
            }
            return;
        }
        let Some(moving) = self.hypervisor.moving(source_uid).filter(|m| m.id == id) else {
            let alive = self.hypervisor.domain(source_uid).is_some_and(|d| d.guest.on());
            if alive && migration.text("endTimestamp").is_none() {
                give_up(vmi, draft, out, view, "the node agent lost the migration", None);
            }
            return;
        };
        if moving.transfer.active() {
            let mode = mode_name(moving.transfer.mode);
            if migration.text("mode") != Some(mode) {
                draft.migration("mode", json!(mode));
            }
            if migration.flag("abortRequested") && migration.text("abortStatus").is_none() {
                if self.hypervisor.abort_move(source_uid, now) {
                    tell(out, vmi, false, "Migrating", "VirtualMachineInstance is aborting migration.", now);
                } else {
                    draft.migration("abortStatus", json!("Failed"));
                    return;
                }
            } else {
                return;
            }
        }
        let outcome = self.hypervisor.moving(source_uid).and_then(|m| m.transfer.outcome.clone());
        match outcome {
            // The agent of the target says so.
            None | Some(Outcome::Done) => {}
            Some(Outcome::Aborted) => {
                give_up(vmi, draft, out, view, "Live migration aborted", Some("Succeeded"));
            }
            Some(Outcome::Failed(why)) => {
                let staged = self
                    .hypervisor
                    .moving(source_uid)
                    .is_some_and(|m| m.transfer.terms.fails.as_ref() == Some(&why));
                if staged {
                    self.hypervisor.note_failed_move(source_uid, id);
                }
                give_up(vmi, draft, out, view, &format!("Live migration failed: {why}"), None);
            }
            Some(Outcome::Stuck(seconds)) => {
                let text = format!("Live migration stuck for {seconds} seconds and has been aborted");
                give_up(vmi, draft, out, view, &text, Some("Succeeded"));
            }
            Some(Outcome::TooLong(seconds)) => {
                let text =
                    format!("Live migration is not completed after {seconds} seconds and has been aborted");
                give_up(vmi, draft, out, view, &text, Some("Succeeded"));
            }
        }
    }

    fn begin(
        &mut self,
        view: View<'_>,
        vmi: &VirtualMachineInstance,
        source_uid: &str,
        draft: &mut Draft<'_>,
        out: &mut Out,
    ) {
        let (Some(id), Some(pod)) = (vmi.migration().id(), target_pod(view, vmi)) else { return };
        let known = self.hypervisor.moving(source_uid).is_some_and(|m| m.id == id);
        let failed_before = self.hypervisor.domain(source_uid).map_or(0, |d| d.guest.failed_moves.len());
        let terms = plan::terms(vmi, failed_before);
        // Known already: the copying has begun, but the word of it did not get through.
        if known || self.hypervisor.begin_move(id, source_uid, place(pod), terms, view.now) {
            draft.migration("startTimestamp", stamp(view.now));
            draft.migration("mode", json!(mode_name(Mode::PreCopy)));
            if !known {
                tell(out, vmi, false, "Migrating", "VirtualMachineInstance is migrating.", view.now);
            }
        }
    }

    /// What the agent of the target does.
    pub(super) fn target(
        &mut self,
        view: View<'_>,
        vmi: &VirtualMachineInstance,
        address: &str,
        draft: &mut Draft<'_>,
        out: &mut Out,
    ) {
        let (migration, now) = (vmi.migration(), view.now);
        let Some(node) = migration.text("targetNode") else { return };
        let pod = target_pod(view, vmi);
        if migration.closed() {
            if vmi.node() != Some(node) || !migration.flag("failed") {
                draft.label(TARGET_NODE_LABEL, None);
            }
            // A launcher that waited in vain goes.
            if migration.flag("failed")
                && vmi.node() != Some(node)
                && let Some(pod) = pod
            {
                self.dismiss(pod, now, out);
            }
            return;
        }
        let Some(pod) = pod else { return };
        let domain = self.hypervisor.domain(uid(&pod.metadata));
        let Some(domain) = domain else {
            let ready = phase(pod) == "Running" && !deleting(&pod.metadata);
            if ready
                && migration.text("targetNodeAddress").is_none()
                && migration.text("endTimestamp").is_none()
            {
                draft.migration("targetNodeAddress", json!(address));
                draft.migration("targetDirectMigrationNodePorts", ports(vmi));
                let text = "VirtualMachineInstance Migration Target Prepared.";
                tell(out, vmi, false, "PreparingTarget", text, now);
            }
            return;
        };
        if let State::Off { how, .. } = domain.guest.state {
            if how != End::Migrated && vmi.node() != Some(node) {
                ended(vmi, how, draft, out, now);
            }
            return;
        }
        if !migration.flag("targetNodeDomainDetected") {
            draft.migration("targetNodeDomainDetected", json!(true));
            draft.migration("targetNodeDomainReadyTimestamp", stamp(now));
        }
        // After post-copy has begun the guest is here, but its memory is not.
        if self.hypervisor.is_arriving(uid(&pod.metadata)) {
            return;
        }
        if vmi.node() == Some(node) {
            draft.migration("completed", json!(true));
            draft.label(TARGET_NODE_LABEL, None);
            return;
        }
        draft.migration("endTimestamp", stamp(now));
        draft.set("nodeName", json!(node));
        draft.label(NODE_LABEL, Some(node));
        draft.remove("evacuationNodeName");
        draft.remove("launcherContainerImageVersion");
        draft.remove_annotation(EVICTION_SOURCE);
        draft.set("migrationTransport", json!("Unix"));
        draft.set("interfaces", json!(interfaces(vmi, pod)));
        let text = format!("The VirtualMachineInstance migrated to node {node}.");
        tell(out, vmi, false, "Migrated", &text, now);
    }
}

/// The migration has failed, the guest stays.
fn give_up(
    vmi: &VirtualMachineInstance,
    draft: &mut Draft<'_>,
    out: &mut Out,
    view: View<'_>,
    why: &str,
    abort: Option<&str>,
) {
    let now = view.now;
    draft.migration("failed", json!(true));
    draft.migration("completed", json!(true));
    draft.migration("failureReason", json!(why));
    draft.migration("endTimestamp", stamp(now));
    if vmi.migration().text("startTimestamp").is_none() {
        draft.migration("startTimestamp", stamp(now));
    }
    if let Some(status) = abort {
        draft.migration("abortStatus", json!(status));
    }
    let id = vmi.migration().id().unwrap_or_default();
    let text = format!("VirtualMachineInstance migration uid {id} failed. reason:{why}");
    tell(out, vmi, true, "Migrated", &text, now);
}

/// Where the target listens: the port on the node, and what it stands for (0 is the management connection).
fn ports(vmi: &VirtualMachineInstance) -> Value {
    let id = vmi.migration().id().unwrap_or_default();
    let mut listening = vec![0, 49152];
    if vmi.status["migrationMethod"] == "BlockMigration" {
        listening.push(49153);
    }
    let first = 32_768 + stable_hash(&["ports", vmi.uid(), id]) % 28_000;
    (first..).zip(listening).map(|(port, purpose)| (port.to_string(), json!(purpose))).collect()
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::PreCopy => "PreCopy",
        Mode::PostCopy => "PostCopy",
        Mode::Paused => "Paused",
    }
}
