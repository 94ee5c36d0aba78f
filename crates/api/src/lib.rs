//! The border to the Kubernetes API: objects become facts, actions become requests, answers become outcomes.
//!
//! Everything here is synchronous and does no I/O. Objects are read into partial structs, so that a pod costs what we keep of it.

pub mod access;
pub mod answer;
pub mod call;
pub mod failover;
pub mod install;
pub mod kubevirt;
pub mod maintenance;
pub mod places;
pub mod project;
pub mod quantity;
pub mod snapshot;
pub mod tenants;
pub mod wire;

pub use answer::{Answer, classify};
pub use call::{Call, call_for};
pub use project::Project;
