//! Why something happens to a pod or a node, or does not.
//!
//! A closed list in families, one file each:
//!
//! | family | its reasons say |
//! |---|---|
//! | [`FilterReason`] | what the options of a drain say about a pod |
//! | [`StoppingReason`] | why a pod that was asked to end is still there |
//! | [`BudgetReason`] | why a PodDisruptionBudget does not let a pod go |
//! | [`AnswerReason`] | what the API server answered to an eviction |
//! | [`NodeReason`] | why a node is not cordoned, or not any more |
//! | [`OwnerReason`] | who holds a node, and from whom it is taken over |
//! | [`GuestReason`] | how a guest may leave, by its eviction strategy |
//! | [`MigrationReason`] | what a guest waits for that is moved |
//! | [`KubeVirtReason`] | what is told of the cluster's KubeVirt |
//!
//! In its family each reason has one row (`table.rs`): code, severity, sentence, remedy and an example. All
//! that is told of a reason is made from that row: the lines of a drain and of `evac explain`, the status of
//! a maintenance, and `docs/reasons.md` (`cargo xtask reasons`). Its JSON is the code and the facts behind
//! it.
//!
//! This room knows facts of the cluster, but no roles, machines or drains: what a sentence needs of those is
//! a fact of the reason.

mod answers;
mod budgets;
pub mod component;
mod filters;
mod guests;
mod kubevirt;
mod migrations;
mod nodes;
mod owners;
mod shutdown;
mod stopping;
mod table;
#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

pub use answers::AnswerReason;
pub use budgets::BudgetReason;
pub use filters::FilterReason;
pub use guests::GuestReason;
pub use kubevirt::KubeVirtReason;
pub use migrations::{InLine, MigrationReason};
pub use nodes::NodeReason;
pub use owners::OwnerReason;
pub use shutdown::AfterShutdown;
pub use stopping::StoppingReason;

use table::{Row, Table};

/// How a reason bears on the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth saying; nothing is in the way.
    Note,
    /// Data or a workload is lost by what was allowed.
    Warning,
    /// Ordinary waiting with an end in sight.
    Progress,
    /// Something is in the way that may clear by itself.
    Slow,
    /// Waiting alone will not help: the remedy says what has to be changed.
    Never,
}

/// One reason, of one of the families.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum Reason {
    /// What the options of a drain say about a pod.
    Filter(FilterReason),
    /// Why a pod that was asked to end is still there.
    Stopping(StoppingReason),
    /// Why a PodDisruptionBudget does not let a pod go.
    Budget(BudgetReason),
    /// What the API server answered to an eviction.
    Answer(AnswerReason),
    /// Why a node is not cordoned, or not any more.
    Node(NodeReason),
    /// Who holds a node, and from whom it is taken over.
    Owner(OwnerReason),
    /// How a guest may leave, by its eviction strategy.
    Guest(GuestReason),
    /// What a guest waits for that is moved.
    Migration(MigrationReason),
    /// What is told of the cluster's KubeVirt.
    KubeVirt(KubeVirtReason),
}

impl Reason {
    fn row(&self) -> &dyn Row {
        match self {
            Self::Filter(reason) => reason,
            Self::Stopping(reason) => reason,
            Self::Budget(reason) => reason,
            Self::Answer(reason) => reason,
            Self::Node(reason) => reason,
            Self::Owner(reason) => reason,
            Self::Guest(reason) => reason,
            Self::Migration(reason) => reason,
            Self::KubeVirt(reason) => reason,
        }
    }

    /// The stable name of this reason.
    pub fn code(&self) -> &'static str {
        self.row().code()
    }

    /// What it means, as the documents say it.
    pub fn meaning(&self) -> &'static str {
        self.row().meaning()
    }

    /// How it bears on the drain.
    pub fn severity(&self) -> Severity {
        self.row().severity()
    }

    /// What is the case, as the rest of a sentence that began with the object.
    pub fn message(&self) -> String {
        self.row().sentence()
    }

    /// A few words for where there is no room for a sentence.
    pub fn brief(&self) -> String {
        self.row().brief().unwrap_or_else(|| self.message())
    }

    /// What the reader can do about it.
    pub fn fix(&self) -> Option<String> {
        self.row().remedy()
    }

    /// The words of `kubectl drain` for the reasons it knows, by which it groups pods; scripts look for them.
    pub fn kubectl_words(&self) -> Option<String> {
        self.row().kubectl()
    }
}

/// What the sentences of a family are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A pod on the node that is drained.
    Pod,
    /// The node itself.
    Node,
}

/// A family of reasons as it is documented.
#[derive(Debug, Clone)]
pub struct Family {
    /// Its heading.
    pub title: &'static str,
    /// With which events its reasons are told.
    pub told: &'static str,
    /// What its sentences are about.
    pub subject: Subject,
    /// Each of its reasons; one whose severity depends on its facts once for each severity.
    pub examples: Vec<Reason>,
}

impl Family {
    fn of<T: Table>() -> Self {
        let examples = T::examples().into_iter().map(Into::into).collect();
        Self { title: T::TITLE, told: T::TOLD, subject: T::SUBJECT, examples }
    }
}

/// All reasons there are, by an example of each.
pub fn families() -> Vec<Family> {
    vec![
        Family::of::<FilterReason>(),
        Family::of::<StoppingReason>(),
        Family::of::<BudgetReason>(),
        Family::of::<AnswerReason>(),
        Family::of::<NodeReason>(),
        Family::of::<OwnerReason>(),
        Family::of::<GuestReason>(),
        Family::of::<MigrationReason>(),
        Family::of::<KubeVirtReason>(),
    ]
}

/// A moment in an example, so many seconds after the first one.
fn example_time(seconds: i64) -> Timestamp {
    Timestamp::constant(1_767_258_000, 0) + SignedDuration::from_secs(seconds)
}
