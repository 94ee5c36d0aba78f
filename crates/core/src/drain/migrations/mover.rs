//! One mover per guest: this drain, or KubeVirt's evacuation controller.
//!
//! Where KubeVirt's control plane is deployed, a drain taint on the node or an eviction mark on the guest has its evacuation controller create a migration. A
//! second one of ours, created within the same millisecond, is accepted beside it and moves the guest again, between healthy nodes. So a guest that KubeVirt is
//! asked to move is left to it: its migration is followed, shown, counted against the limits and waited for. Where two were created all the same, the one
//! that has not begun is called off.

use std::time::Duration;

use jiff::Timestamp;

use crate::cluster::fact::Taint;
use crate::cluster::fact::asks_for_evacuation;
use crate::cluster::index::Index;
use crate::drain::migrations::{MigrationProgress, in_line};
use crate::drain::node::NodeRun;
use crate::drain::run::after;
use crate::machines::{Instance, Migration, names};
use crate::reasons::{MigrationReason, Reason};

/// KubeVirt's evacuation controller looks again after five seconds; after twice that long it is not merely late.
const KUBEVIRT_IS_LATE: Duration = Duration::from_secs(10);

/// Whether a node asks for its evacuation, or will by what this drain has written on it. Our view of the node may be older than that.
pub(crate) fn is_tainted(index: &Index, node: &NodeRun) -> bool {
    let asks = |taints: &[Taint]| asks_for_evacuation(taints, &index.config.drain_taint_key);
    index.node(&node.name).is_some_and(|seen| asks(&seen.taints)) || asks(&node.changes.taints)
}

/// Whether KubeVirt moves this guest.
pub(crate) fn is_kubevirt(index: &Index, tainted: bool, instance: &Instance) -> bool {
    let marked = instance.evacuation_node.as_ref() == Some(&instance.node);
    index.config.upstream.is_in_charge() && (tainted || marked)
}

impl MigrationProgress {
    /// Takes note since when KubeVirt could have created a migration and has not.
    pub(crate) fn watch_kubevirt(&mut self, index: &Index, node: &str, moves: bool, now: Timestamp) {
        self.by_kubevirt = moves;
        let could = moves && in_line(index, node).is_none();
        self.kubevirt_idle_since = could.then(|| self.kubevirt_idle_since.unwrap_or(now));
    }

    /// What a guest waits for that KubeVirt moves and has not begun with, and when that may change by time alone.
    pub(crate) fn waits_for_kubevirt(
        &self,
        index: &Index,
        node: &str,
        now: Timestamp,
    ) -> Option<(Reason, Option<Timestamp>)> {
        if !self.by_kubevirt {
            return None;
        }
        let late = self.kubevirt_idle_since.map(|since| after(since, KUBEVIRT_IS_LATE));
        Some(match late {
            Some(late) if late <= now => (MigrationReason::VmKubeVirtIdle.into(), None),
            late => (MigrationReason::VmLeftToKubeVirt { limit: in_line(index, node) }.into(), late),
        })
    }
}

/// The migrations of a guest that would move it once more: of two that are not over, the one that is further stays. Only ours and evacuations of this
/// node are called off, never what a person asked for, and nothing that is under way.
pub(crate) fn superfluous<'a>(index: &'a Index, instance: &Instance, owner: &str) -> Vec<&'a Migration> {
    let open: Vec<&Migration> = index
        .migrations_of(&instance.key)
        .into_iter()
        .filter(|one| !one.phase.is_final() && !one.deleting)
        .collect();
    let ours = |one: &Migration| one.annotations.get(names::DRAIN).is_some_and(|by| by == owner);
    let evacuates = |one: &Migration| {
        one.annotations.get(names::EVACUATION_MIGRATION).is_some_and(|node| *node == instance.node)
    };
    // Among those that wait, what others created stays.
    let Some(kept) = open.iter().max_by_key(|one| (one.phase.is_under_way(), one.phase, !ours(one))) else {
        return Vec::new();
    };
    let kept = kept.uid.clone();
    open.into_iter()
        .filter(|one| one.uid != kept && !one.phase.is_under_way() && (ours(one) || evacuates(one)))
        .collect()
}

#[cfg(test)]
#[path = "mover_tests.rs"]
mod tests;
