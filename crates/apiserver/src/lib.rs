//! The embedded Kubernetes API: a store, its REST front, and what kube-apiserver promises on top.

pub mod schema;
pub mod status;
pub mod store;
pub mod kinds;
pub mod quantity;
pub mod selector;
