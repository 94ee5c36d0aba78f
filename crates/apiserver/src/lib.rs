//! The embedded Kubernetes API: a store, its REST front, and what kube-apiserver promises on top.

pub mod admission;
pub mod aggregated;
pub mod auth;
mod bootstrap;
mod cel;
pub mod crds;
pub mod front;
pub mod identity;
mod ids;
pub mod kinds;
pub mod patch;
pub mod protobuf;
pub mod rest;
pub mod schema;
pub mod selector;
pub mod server;
pub mod service;
pub mod status;
pub mod store;

pub use service::Service;
pub mod discovery;
pub mod jsonpath;
pub mod openapi;
pub mod table;
