//! A failed node: what is known of it, what proves that it is off, what may then be released, and which guests return.
//!
//! ```text
//!   failed ──▶ cordoned ──▶ proven off ──▶ released ──▶ everyone who returns runs elsewhere
//!     │            │            │  ▲
//!     ▼            ▼            ▼  └── the proof is void as soon as the node gives a sign of life
//!  is Ready   is somebody    no proof:
//!             else's         nothing is released
//! ```
//!
//! A node that does not answer may still run its guests, and they may still write to their disks. Kubernetes cannot know;
//! it only waits. So nothing here takes silence for an end: somebody or something has to say that the machine is off
//! ([`fencing`]), and whoever sees it alive after that is believed instead.

pub mod admission;
pub mod aftermath;
pub mod agent;
pub mod course;
pub mod fencing;
pub mod guests;
pub mod leftovers;
pub mod policy;
pub mod suspect;
pub mod warnings;
pub mod watchman;

pub use aftermath::{Aftermath, Missing, Remains};
pub use agent::AgentError;
pub use course::{Next, Refusal, Release, next};
pub use fencing::{Fenced, How, Void};
pub use guests::{Fate, GuestFate, fates};
pub use leftovers::{Doubt, doubts};
pub use policy::{Brake, FailoverPolicy, PolicyError, Proof};
pub use suspect::{FencedState, Suspect};
