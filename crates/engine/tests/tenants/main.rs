//! Tenant clusters, from the Secret of their kubeconfig to the end of the machine.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod hostile;
