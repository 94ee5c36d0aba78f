//! Virtual machines: what their control plane knows and decides.
//!
//! One pure function per controller turns what is known of the cluster into a [`Decision`]: [`instance::decide`],
//! [`machine::decide`], [`replica_set::decide`] and [`migration::decide`]. The functions behind the start, stop and restart requests
//! are in [`power`], the rules that refuse objects in [`admission`]. Object and field names are KubeVirt's.

pub mod action;
pub mod admission;
pub mod after_shutdown;
pub mod beside;
pub mod condition;
pub mod config;
pub mod evacuation;
pub mod eviction;
pub mod guard;
pub mod instance;
pub mod line;
pub mod machine;
pub mod migration;
pub mod power;
pub mod printable;
mod put_off;
pub mod remains;
pub mod replica_set;
pub mod retries;
pub mod roles;
pub mod slots;
pub mod start_failure;
pub mod strategy;
mod subject;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod touch_tests;

pub use action::{Action, Decision, Own, Part, Tree};
pub use condition::Condition;
pub use config::Config;
pub use put_off::put_off;
pub use roles::{Role, Roles};
pub use strategy::Strategy;
pub use subject::decide;

pub use crate::cluster::fact::{
    Instance, Machine, Migration, MigrationPhase, MigrationState, Phase, Power, ReplicaSet, Request,
    RunStrategy,
};
pub use crate::cluster::names;
pub use crate::cluster::subject::{Kind, Subject, Trouble};
