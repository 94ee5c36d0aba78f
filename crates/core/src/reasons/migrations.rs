//! What a guest waits for that is to be moved to another node.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::Severity::{Never, Progress, Slow};
use super::component::SilentHook;
use super::example_time;
use super::table::family;

family! {
    /// How far the live migration of a guest is, and what holds it up.
    MigrationReason in Reason::Migration {
        title: "What a guest waits for that is moved",
        told: "In blockers. Those that are `progress` are not told with `waiting`. `limit` has `running`, \
               `atMost` and, if it is the limit of one node and not of the cluster, `fromNode`.",
        subject: Pod,
    }

    /// Its migration is not asked for before others have gone.
    VmNotAsked => {
        severity: Progress,
        sentence: ("has not been asked to leave yet; its guest is live-migrated when others have gone"),
        brief: ("not asked yet"),
    }

    /// KubeVirt moves it, because of the taint of its node or of its own mark, and has not created a
    /// migration yet.
    VmLeftToKubeVirt {
        /// What has to become free.
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<InLine> = Some(InLine::example()),
    } => {
        severity: Progress,
        sentence: ("is left to KubeVirt, which live-migrates the guests of its node{}", match limit {
            Some(limit) => format!(": {limit}"),
            None => ", and has no migration yet".into(),
        }),
        brief: ("left to KubeVirt{}", limit.as_ref().map_or(String::new(), |limit| format!(": {limit}"))),
    }

    /// KubeVirt moves it, and has not created a migration for ten seconds although there is room for one.
    VmKubeVirtIdle => {
        severity: Slow,
        sentence: (
            "is left to KubeVirt, and virt-controller has not created a migration although there is room for \
             one"
        ),
        brief: ("KubeVirt does not migrate it"),
        remedy: (
            "look whether virt-controller runs and what it says about this instance: kubectl get pods -A -l \
             kubevirt.io=virt-controller"
        ),
    }

    /// Its migration waits in line.
    VmQueued {
        /// The VirtualMachineInstanceMigration.
        migration: String = "evac-db-1".into(),
        /// What has to become free.
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<InLine> = Some(InLine::example()),
    } => {
        severity: Progress,
        sentence: ("{}", match limit {
            Some(limit) => format!("waits in line to be live-migrated (migration {migration}): {limit}"),
            None => format!("waits for its migration {migration} to begin"),
        }),
        brief: ("{}", match limit {
            Some(limit) => format!("in line: {limit}"),
            None => "waits for its migration to begin".into(),
        }),
    }

    /// Its migration is under way.
    VmMigrating {
        /// The VirtualMachineInstanceMigration.
        migration: String = "evac-db-1".into(),
        /// Its phase.
        phase: String = "Running".into(),
    } => {
        severity: Progress,
        sentence: ("is being live-migrated (migration {migration}: {phase})"),
        brief: ("{phase}"),
    }

    /// A pod that an earlier migration left is still there, and nothing moves before it is gone.
    VmPodLeft {
        /// The VirtualMachineInstanceMigration that waits for it, if there is one yet.
        #[serde(skip_serializing_if = "Option::is_none")]
        migration: Option<String> = Some("evac-db-2".into()),
        /// The node of that pod.
        node: String = "worker-2".into(),
    } => {
        severity: Slow,
        sentence: (
            "cannot be live-migrated yet, another pod of it is still there on node {node}{}",
            match migration {
                Some(migration) => format!(" (migration {migration} waits for it to go)"),
                None => String::new(),
            }
        ),
        brief: ("another pod of it is left on {node}"),
        remedy: (
            "delete what is left of it on node {node} if that does not end by itself; the guest runs in the \
             pod here"
        ),
    }

    /// There is no place for its copy, or it does not come up.
    VmNoPlace {
        /// The VirtualMachineInstanceMigration.
        migration: String = "evac-db-1".into(),
        /// What the scheduler or the kubelet says of the copy.
        message: String = "0/3 nodes are available: 3 Insufficient memory.".into(),
    } => {
        severity: Slow,
        sentence: ("cannot be live-migrated yet, its copy has no place (migration {migration}): {message}"),
        brief: ("no place for its copy"),
        remedy: ("make room on another node, or relax what the machine asks of its node"),
    }

    /// Its migration failed and is tried again at `retryAt`.
    VmMoveFailed {
        /// How many failed in a row.
        failures: u32 = 1,
        /// Why the last one did.
        message: String = "migration aborted: connection reset".into(),
        /// When the next one is created.
        retry_at: Option<Timestamp> = Some(example_time(20)),
    } => {
        severity: Slow,
        sentence: (
            "could not be live-migrated ({}: {message}){}",
            times(*failures),
            retry_at.map_or(String::new(), |at| format!("; next try at {at:.0}"))
        ),
        brief: ("failed {}, will be tried again", times(*failures)),
        remedy: ("nothing, it is tried again; look at the migration if that goes on"),
    }

    /// Five of its migrations in a row failed, and it is not tried again.
    VmMoveGivenUp {
        /// How many failed in a row.
        failures: u32 = 5,
        /// Why the last one did.
        message: String = "migration aborted: connection reset".into(),
    } => {
        severity: Never,
        sentence: ("could not be live-migrated {failures} times in a row (last: {message})"),
        brief: ("failed {}", times(*failures)),
        remedy: ("look at the migration and at the machine; it keeps running here and is never shut down"),
    }

    /// The server did not take its migration.
    VmMoveRefused {
        /// The answer of the server.
        message: String = "in-flight migration detected".into(),
    } => {
        severity: Slow,
        sentence: ("could not be live-migrated, the server refused the migration: {message}"),
        brief: ("the server refused the migration"),
    }

    /// The right to create migrations is missing.
    VmMoveForbidden {
        /// The answer of the server.
        message: String = "User \"kim\" cannot create resource \"virtualmachineinstancemigrations\"".into(),
    } => {
        severity: Never,
        sentence: ("may not be live-migrated by you: {message}"),
        brief: ("you may not migrate it"),
        remedy: ("ask for the right to create virtualmachineinstancemigrations"),
    }

    /// No migration can be asked for: the API server would have to ask a webhook that does not answer.
    VmMoveUnanswered {
        /// The webhook and who should have answered.
        #[serde(flatten)]
        hook: SilentHook = SilentHook::example("migration-create-validator.kubevirt.io"),
    } => {
        severity: Slow,
        sentence: (
            "could not be live-migrated, {hook}, and until it does no migration can be created; the guest \
             keeps running here"
        ),
        brief: ("{} does not answer", hook.component),
        remedy: ("{}", hook.fix()),
    }

    /// Its migration was created, and no controller has taken note of it for five seconds.
    VmNotPickedUp {
        /// The VirtualMachineInstanceMigration.
        migration: String = "evac-db-1".into(),
    } => {
        severity: Slow,
        sentence: (
            "waits for virt-controller, which has not picked up migration {migration}; the guest keeps \
             running here"
        ),
        brief: ("virt-controller has not picked up its migration"),
        remedy: (
            "look at virt-controller (kubectl get pods -A -l kubevirt.io=virt-controller), or at the evac \
             operator with the role machines"
        ),
    }
}

/// What a migration in line waits for: so many run, and more may not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InLine {
    /// How many are under way.
    pub running: usize,
    /// How many may be.
    pub at_most: u32,
    /// The node they leave; missing where the limit is that of the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_node: Option<String>,
}

impl InLine {
    fn example() -> Self {
        Self { running: 2, at_most: 2, from_node: Some("worker-1".into()) }
    }
}

impl fmt::Display for InLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { running, at_most, from_node } = self;
        match from_node {
            Some(node) => write!(f, "{running} of at most {at_most} from node {node} are under way"),
            None => write!(f, "{running} of at most {at_most} in the cluster are under way"),
        }
    }
}

fn times(count: u32) -> String {
    match count {
        1 => "once".into(),
        2 => "twice".into(),
        more => format!("{more} times"),
    }
}
