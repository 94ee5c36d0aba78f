//! What evac knows and how it decides: facts, the index over them, verdicts, steps and explanations.
//!
//! Nothing here talks to a cluster, reads a clock or draws a random number. Time comes in as an argument,
//! facts come in through [`Index::apply`], and what should happen leaves as [`Action`] values. The same functions
//! serve the command line, the operator, plans and simulations, so these cannot disagree about rules.
//!
//! Each room knows only those to its left:
//!
//! ```text
//!  cluster ◀─ action ◀─ reasons ◀─ machines ◀─ drain ◀─ maintenance · tenants · failover · plan
//! ```

#![cfg_attr(not(test), warn(missing_docs))]

pub mod action;
pub mod certificates;
pub mod cluster;
pub mod drain;
pub mod failover;
pub mod leadership;
pub mod machines;
pub mod maintenance;
pub mod plan;
pub mod reasons;
pub mod tenants;
#[cfg(test)]
#[allow(clippy::return_self_not_must_use, reason = "builders for tests")]
mod testing;

pub use action::Outcome;
pub use cluster::fact::{
    Budget, Deletion, Existence, Fact, Key, Lease, Node, Owner, Pod, PodPhase, Taint, Uid, VmRole,
};
pub use cluster::index::{Index, VmVisibility};
pub use drain::action::Action;
pub use drain::assess::{Assessment, Fate, Verdict, assess};
pub use drain::explain::explain;
pub use drain::forecast::{Forecast, forecast};
pub use drain::ownership::{DrainMark, Ownership};
pub use drain::policy::{DryRun, Policy};
pub use drain::proof::{Proof, prove};
pub use drain::run::{NodePhase, Run};
pub use drain::step::{Event, Step, step};
pub use reasons::{Reason, Severity, component};
