//! The embedded Kubernetes API: a store, its REST front, and what kube-apiserver promises on top.
//!
//! Which room knows which is in `tests/rooms.rs`: from the parts of an object over the server as a value to its ways in.

pub mod admission;
pub mod aggregated;
pub mod auth;
mod cel;
pub mod discovery;
pub mod front;
pub mod identity;
mod ids;
pub mod jsonpath;
pub mod kinds;
pub mod openapi;
pub mod patch;
pub mod path;
pub mod protobuf;
pub mod reply;
pub mod rest;
pub mod schema;
pub mod selector;
pub mod server;
pub mod service;
pub mod status;
pub mod store;
pub mod table;
pub mod webhooks;

pub use service::Service;
