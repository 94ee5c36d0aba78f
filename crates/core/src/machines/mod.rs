//! Virtual machines: what their control plane knows and decides.
//!
//! One pure function per controller turns the [`Machines`] known so far into a [`Decision`]: [`instance::decide`],
//! [`machine::decide`], [`replica_set::decide`] and [`migration::decide`]. The functions behind the start, stop and restart requests
//! are in [`power`], the rules that refuse objects in [`admission`]. Object and field names are KubeVirt's.

pub mod action;
pub mod admission;
pub mod beside;
pub mod condition;
pub mod config;
pub mod evacuation;
pub mod eviction;
pub mod fact;
pub mod guard;
pub mod instance;
pub mod line;
pub mod machine;
pub mod migration;
pub mod names;
pub mod power;
pub mod printable;
mod put_off;
pub mod remains;
pub mod replica_set;
pub mod roles;
pub mod slots;
pub mod start_failure;
mod store;
pub mod strategy;
mod subject;
#[cfg(test)]
pub(crate) mod testing;

pub use action::{Action, Decision, Kind, Part, Subject, Tree};
pub use condition::Condition;
pub use config::Config;
pub use fact::{
    Host, Instance, Launcher, Machine, Migration, MigrationPhase, MigrationState, Phase, Power, ReplicaSet,
    Request, RunStrategy, Seen,
};
pub use put_off::put_off;
pub use roles::{Role, Roles};
pub use store::{Machines, Trouble};
pub use strategy::Strategy;
pub use subject::decide;
