//! A failed node: what is known of it, what proves that it is off, what may then be released, and which guests return.
//!
//! ```text
//!   failed ──▶ cordoned ──▶ proven off ──▶ released ──▶ everyone who returns runs elsewhere
//!     │            │            │  ▲
//!     ▼            ▼            ▼  └── the proof is void as soon as the node gives a sign of life
//!  is Ready   is another's   no proof:
//!                            nothing is released
//! ```
//!
//! A node that does not answer may still run its guests, and they may still write to their disks. Kubernetes cannot know;
//! it only waits. So nothing here takes silence for an end: a person, an agent, the provider or a policy has to say that the machine is off
//! ([`fencing`]), and for two lease intervals nothing may be seen of it ([`silence`]). Any sign of life is believed instead.
//!
//! What is done next is computed ([`step`]): a failover is a [`FailoverRun`], and the engine reads, writes and reports.

pub mod admission;
pub mod aftermath;
pub mod agent;
pub mod course;
pub mod event;
pub mod fencing;
pub mod guests;
pub mod leftovers;
pub mod look;
pub mod policy;
mod proving;
pub mod run;
pub mod silence;
pub mod step;
#[cfg(test)]
mod step_tests;
pub mod suspect;
mod waiting;
pub mod warnings;
pub mod watchman;

pub use aftermath::{Aftermath, LetGo, Missing, Remains};
pub use agent::AgentError;
pub use course::{Next, Refusal, Release, next};
pub use event::{End, Event, Report};
pub use fencing::{Fenced, How, PolicyRef, Void};
pub use guests::{Fate, GuestFate, Outlook, fates};
pub use leftovers::{Doubt, Return, doubts};
pub use look::{Holding, Look};
pub use policy::{Brake, FailoverPolicy, PolicyError, Proof};
pub use run::{Action, Answer, Attempts, Facts, FailoverRun, Fault, Own, ProofFrom, Seen, TRIES, Wish};
pub use silence::{Signs, Silence};
pub use suspect::{FencedState, KubeletLease, Suspect};
