//! The effectful part: watches feed the index, the core decides, requests are sent, answers come back as facts.

pub mod act;
pub mod call_back;
pub mod capture;
pub mod drain;
mod events;
pub mod failover;
pub mod gate;
pub mod give_back;
pub mod guests;
pub mod http;
mod items;
pub mod life;
pub mod meter;
pub mod metrics;
pub mod nodes;
pub mod operator;
pub mod places;
mod quorum;
mod stated;
pub mod watch;
pub mod whole;

pub use drain::{DrainError, DrainRequest, drain};
pub use http::{Http, HttpError};
