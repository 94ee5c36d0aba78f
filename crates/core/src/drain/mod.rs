//! Emptying nodes: how each pod may leave ([`assess`]), what happens next ([`step`]), and when a node may be called empty ([`proof`]).
//!
//! ```text
//!  cordon ─▶ claim ─▶ assess ─▶ evict · migrations ─▶ departures ─▶ proof ─▶ ended
//!                       ▲             │ refused, failed, blocked
//!                       └─────────────┘ waits, and says for what
//! ```
//!
//! All state of a drain is its [`run::Run`], which a successor can rebuild from objects in the cluster.

pub mod action;
pub mod assess;
mod begin;
pub mod budget;
pub mod check;
pub mod claim;
mod context;
mod departures;
mod emptying;
pub mod end;
mod event;
mod evict;
pub mod explain;
pub mod forecast;
pub mod give_back;
pub mod guest;
mod keep_empty;
pub(crate) mod migrations;
pub mod moves;
pub mod node;
pub mod outlook;
pub mod ownership;
mod pod;
pub mod policy;
pub mod progress;
pub mod proof;
pub mod quorum;
pub mod record;
pub mod run;
pub mod step;
#[cfg(test)]
mod step_tests;
pub mod transfer;
pub mod unread;
pub mod written_on_nodes;
