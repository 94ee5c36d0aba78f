//! What becomes of a guest that an eviction shuts down: a value of the reasons about it.

use std::fmt;

use serde::Serialize;

/// Whether a guest comes back after a clean shutdown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "after", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum AfterShutdown {
    /// Its VirtualMachine starts it again, on another node.
    Restarts,
    /// Its replica set makes a new one; this one is gone.
    Replaced,
    /// Its VirtualMachine leaves it off.
    StaysOff {
        /// The run strategy of the VirtualMachine.
        strategy: String,
    },
    /// It has no owner: it ends and stays ended.
    Ends,
    /// Its owner is of a kind we know nothing about, or could not be read.
    Unknown {
        /// Kind and name of the owner.
        owner: String,
    },
}

impl AfterShutdown {
    /// Whether a guest like it will run again without a person doing anything.
    pub fn comes_back(&self) -> bool {
        matches!(self, Self::Restarts | Self::Replaced)
    }
}

/// The rest of a sentence that began with the shutdown.
impl fmt::Display for AfterShutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restarts => f.write_str("restarts elsewhere"),
            Self::Replaced => f.write_str("is replaced by a new instance of its set"),
            Self::StaysOff { strategy } => write!(f, "stays off: {strategy} and a clean shutdown"),
            Self::Ends => f.write_str("ends: no VirtualMachine owns it"),
            Self::Unknown { owner } => write!(f, "may not come back: what {owner} does is not known"),
        }
    }
}
