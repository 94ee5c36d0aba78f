//! The embedded Kubernetes API: a store, its REST front, and what kube-apiserver promises on top.

pub mod patch;
pub mod protobuf;
pub mod schema;
pub mod status;
pub mod store;
pub mod kinds;
pub mod quantity;
pub mod selector;
pub mod admission;
pub mod aggregated;
pub mod auth;
pub mod crds;
pub mod front;
pub mod identity;
pub mod rest;
pub mod server;
pub mod service;
mod bootstrap;
mod ids;

pub use service::Service;
pub mod jsonpath;
pub mod discovery;
pub mod table;
pub mod openapi;
