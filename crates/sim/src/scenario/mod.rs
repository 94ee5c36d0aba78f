//! What is done in a cluster, and how it has to end, whatever fails on the way.

mod cancel;
mod common;
mod drain_budgets;
mod drain_pods;
mod drains_share;
mod eviction;
mod failover;
mod maintenance;
mod own_node;
pub mod people;
mod replica_set;
mod restart;
mod taint;
mod tug;
pub mod upheaval;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::future::BoxFuture;

pub use self::common::PODS;
use crate::stage::{Cast, Stage};

/// One story. A value of it lives as long as one run.
pub trait Play: Send {
    fn cast(&self) -> Cast;

    /// Before any fault: what is there.
    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>>;

    /// While there are faults: what is done. Ends when there is nothing more to do but wait.
    fn act<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>>;

    /// What is not yet as it has to be in the end.
    fn wrong<'a>(&'a self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<Vec<String>>>;
}

/// A story by its name.
#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    pub about: &'static str,
    pub make: fn() -> Box<dyn Play>,
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// How long faults may happen.
pub const WINDOW: Duration = Duration::from_secs(90);
/// How long after the last fault everything has to be right. What a fault began may take that long: a frozen process and a late request
/// come back within 50 s, and a watch that says nothing any more is noticed after 300 s.
pub const BOUND: Duration = Duration::from_secs(420);

/// All of them.
pub const ALL: [Scenario; 14] = [
    drain_pods::SCENARIO,
    drain_budgets::SCENARIO,
    drains_share::SCENARIO,
    taint::SCENARIO,
    eviction::SCENARIO,
    maintenance::SCENARIO,
    cancel::SCENARIO,
    failover::BY_POLICY,
    failover::BY_AGENT,
    failover::BY_STATEMENT,
    restart::SCENARIO,
    replica_set::SCENARIO,
    own_node::SCENARIO,
    tug::SCENARIO,
];

pub fn named(name: &str) -> Option<Scenario> {
    ALL.into_iter().find(|scenario| scenario.name == name)
}
