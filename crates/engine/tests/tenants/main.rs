//! Tenant clusters, from the Secret of their kubeconfig to the end of the machine.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../machines/cluster.rs"]
#[allow(dead_code, reason = "only a part of it is needed here")]
mod cluster;
mod deadline;
mod endless;
mod hostile;
mod visits;
#[allow(dead_code, reason = "shared with the tests of drains")]
#[path = "../drain/wire.rs"]
mod wire;
