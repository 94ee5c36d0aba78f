//! What the person asking for a drain allows, and how hard we try.

use std::collections::BTreeSet;
use std::time::Duration;

use evac_apimachinery::backoff::Backoff;
use serde::{Deserialize, Serialize};

use crate::cluster::selector::Selector;

/// Whether anything is sent at all, as `--dry-run` of kubectl says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DryRun {
    /// Everything is sent, and takes effect.
    #[default]
    None,
    /// Nothing is sent; verdicts are printed.
    Client,
    /// Every request is sent once, marked as a trial; the drain does not wait for a result that cannot come.
    Server,
}

/// All options of a drain. The defaults are those of `kubectl drain`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one flag of the command line")]
pub struct Policy {
    /// Allow pods without a controller, and DaemonSet pods whose DaemonSet is gone.
    pub force: bool,
    /// Leave the pods of DaemonSets where they are; without it they stand in the way.
    pub ignore_daemonsets: bool,
    /// Let pods with emptyDir volumes leave although the data is lost; without it they stand in the way.
    pub delete_emptydir_data: bool,
    /// `None` leaves each pod its own grace period.
    pub grace_seconds: Option<i64>,
    /// Counted per node, from the moment its first pod may be asked to leave.
    pub timeout: Option<Duration>,
    /// Only pods with these labels have to leave.
    pub pod_selector: Selector,
    /// Delete pods instead of evicting them: disruption budgets are not asked.
    pub disable_eviction: bool,
    /// Stop waiting for a pod whose grace period ended longer ago than this.
    pub skip_wait_for_delete: Option<Duration>,
    /// What is sent, and whether it takes effect.
    pub dry_run: DryRun,
    /// Let the pods that keep the cluster working leave only after the others.
    pub critical_last: bool,
    /// Shut virtual machines down although they would not come back.
    pub allow_shutdown: bool,
    /// Take a node over from another drainer instead of refusing.
    pub take_over: bool,
    /// Requests under way at the same time. A pod that waits holds no place.
    pub parallel: usize,
    /// Transient failures in a row after which a pod counts as failed.
    pub patience: u32,
    /// How long a "never" must hold before we believe it and end.
    pub settle: Duration,
    /// Keep the nodes empty until told otherwise: go around what is in the way, never give up on it, and ask whatever comes later to
    /// leave as well.
    pub standing: bool,
    /// Nodes on which virtual machines may be shut down although they would not come back.
    pub shutdown_on: BTreeSet<String>,
    /// The pause between readings of how far guests have been copied; without it nothing is read.
    pub measure: Option<Duration>,
}

/// After an answer that decides nothing: the server failed, could not be reached, or what it answered was lost.
pub(crate) const SERVER_FAILED: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));

/// A status is read now and then, where a screen is looked at all the time.
const STANDING_TELLS: Duration = Duration::from_secs(30);

impl Default for Policy {
    fn default() -> Self {
        Self {
            force: false,
            ignore_daemonsets: false,
            delete_emptydir_data: false,
            grace_seconds: None,
            timeout: None,
            pod_selector: Selector::everything(),
            disable_eviction: false,
            skip_wait_for_delete: None,
            dry_run: DryRun::None,
            critical_last: false,
            allow_shutdown: false,
            take_over: false,
            parallel: 32,
            patience: 8,
            settle: Duration::from_secs(5),
            standing: false,
            shutdown_on: BTreeSet::new(),
            measure: None,
        }
    }
}

impl Policy {
    /// What a failover or the drain of a tenant's node allows itself, which empties a node whatever is on it: `--force --ignore-daemonsets
    /// --delete-emptydir-data`. Budgets and eviction strategies bind it like any other drain.
    pub fn thorough() -> Self {
        Self { force: true, ignore_daemonsets: true, delete_emptydir_data: true, ..Self::default() }
    }

    /// The longest time for which what was foretold of the time left stands, where it is foretold at all: to a person who looks on, and in
    /// the status of a drain without an end.
    pub fn foretells(&self) -> Option<Duration> {
        let told = self.measure.or(self.standing.then_some(STANDING_TELLS));
        told.filter(|_| self.dry_run == DryRun::None)
    }

    /// Whether machines on this node may be shut down although they would not come back.
    pub fn may_shut_down(&self, node: &str) -> bool {
        self.allow_shutdown || self.shutdown_on.contains(node)
    }
}
