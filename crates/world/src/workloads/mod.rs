//! Workload controllers: each turns one object and the pods it controls into pods to create and delete.
//!
//! Not built: rollback objects, CronJobs, surge in DaemonSets.

pub mod daemon_set;
pub mod deployment;
pub mod job;
pub mod pods;
pub mod replica_set;
pub mod revisions;
pub mod stateful_set;
