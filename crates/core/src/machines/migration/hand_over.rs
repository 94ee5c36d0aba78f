//! What the node agents are told when the target is up: from here on the work is theirs.

use super::Look;
use crate::cluster::fact::Pod;
use crate::machines::action::{Decision, Event, Part, Tree};
use crate::machines::{instance, names};

/// What an earlier migration may have left in `status.migrationState`.
const LEFT_OVER: &[&str] = &[
    "startTimestamp",
    "endTimestamp",
    "completed",
    "failed",
    "failureReason",
    "abortRequested",
    "abortStatus",
    "mode",
    "targetNodeAddress",
    "targetDirectMigrationNodePorts",
    "targetNodeDomainDetected",
    "targetNodeDomainReadyTimestamp",
    "targetAttachmentPodUID",
    "targetCPUSet",
    "targetNodeTopology",
    "migrationPolicyName",
    "sourceState",
    "targetState",
];

impl Look<'_> {
    /// Tells the node agents.
    pub(super) fn hand_over(&self, target: &Pod, decision: &mut Decision) {
        let launchers = self.index.launchers_of(&self.instance.uid);
        let source = instance::current(self.instance, &launchers);
        let mut state: Vec<(&str, Tree)> = LEFT_OVER.iter().map(|field| (*field, Tree::null())).collect();
        state.extend([
            ("migrationUid", Tree::text(&self.migration.uid.0)),
            ("sourceNode", Tree::text(&self.instance.node)),
            ("targetNode", Tree::text(target.node_name())),
            ("targetPod", Tree::text(&target.key.name)),
            ("sourcePod", source.map_or_else(Tree::null, |pod| Tree::text(&pod.key.name))),
            ("migrationConfiguration", self.configuration()),
        ]);
        let mut fields = Tree::default();
        fields.put(&["status", "migrationState"], Tree::map(state));
        fields.put(&["status", "activePods", &target.uid.0], Tree::text(target.node_name()));
        fields.put(&["metadata", "labels", names::MIGRATION_TARGET_NODE], Tree::text(target.node_name()));
        decision.patch(self.instance, Part::Main, fields);
        let message = format!(
            "Migration target pod is ready for preparation by virt-handler. Target node: {}",
            target.node_name()
        );
        decision.tell(Event::normal(self.migration, "SuccessfulHandOver", message));
    }

    fn configuration(&self) -> Tree {
        let config = &self.index.config;
        Tree::map([
            ("nodeDrainTaintKey", Tree::text(&config.drain_taint_key)),
            ("parallelMigrationsPerCluster", Tree::Int(config.parallel_per_cluster.into())),
            ("parallelOutboundMigrationsPerNode", Tree::Int(config.parallel_outbound_per_node.into())),
            ("allowAutoConverge", Tree::Bool(config.allow_auto_converge)),
            ("allowPostCopy", Tree::Bool(config.allow_post_copy)),
            (
                "allowWorkloadDisruption",
                Tree::Bool(config.allow_workload_disruption.unwrap_or(config.allow_post_copy)),
            ),
            ("bandwidthPerMigration", Tree::text(&config.bandwidth_per_migration)),
            ("completionTimeoutPerGiB", Tree::Int(config.completion_seconds_per_gib)),
            ("progressTimeout", Tree::Int(config.progress_timeout_seconds)),
            ("unsafeMigrationOverride", Tree::Bool(config.unsafe_override)),
            ("disableTLS", Tree::Bool(false)),
        ])
    }
}
