//! What evac knows and how it decides: facts, the index over them, verdicts, steps and explanations.
//!
//! Nothing here talks to a cluster, reads a clock or draws a random number. Time comes in as an argument,
//! facts come in through [`Index::apply`], and what should happen leaves as [`Action`] values. The same functions
//! serve the command line, the operator, plans and simulations, so these cannot disagree about rules.

mod aborts;
pub mod action;
pub mod after;
mod ahead;
pub mod assess;
pub mod budget;
pub mod certificates;
pub mod check;
pub mod claim;
pub mod component;
mod departures;
mod event;
pub mod explain;
pub mod fact;
pub mod failover;
pub mod forecast;
pub mod guest;
pub mod index;
pub mod leadership;
pub mod machines;
pub mod maintenance;
mod mover;
mod moving;
pub mod outlook;
pub mod ownership;
pub mod place;
mod placeless;
pub mod policy;
pub mod proof;
pub mod quorum;
pub mod reason;
pub mod record;
pub mod run;
pub mod selector;
mod send;
mod standing;
pub mod step;
#[cfg(test)]
mod step_tests;
pub mod survey;
pub mod taints;
pub mod tenants;
#[cfg(test)]
#[allow(clippy::return_self_not_must_use, reason = "builders for tests")]
mod testing;
pub mod transfer;
pub mod unread;
pub mod version;
pub mod vm_reason;

pub use action::{Action, Outcome};
pub use assess::{Assessment, Fate, Verdict, assess};
pub use explain::explain;
pub use fact::{
    Budget, Deletion, Existence, Fact, Key, Lease, Node, Owner, Pod, PodPhase, Taint, Uid, VmRole,
};
pub use forecast::{Forecast, forecast};
pub use index::{Index, Sight};
pub use ownership::{DrainMark, Ownership};
pub use policy::{DryRun, Policy};
pub use proof::{Proof, prove};
pub use reason::{Reason, Severity};
pub use run::{NodePhase, Run};
pub use step::{Event, Step, step};
