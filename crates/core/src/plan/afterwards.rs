//! How things are with a pod and its guest when the drain is over.

use serde::Serialize;

use crate::drain::assess::Fate;
use crate::drain::forecast::{PodForecast, Prospect};
use crate::reasons::{AfterShutdown, GuestReason, Reason};

/// The state in which a drain leaves a pod, or the guest in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "state", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Afterwards {
    /// The guest runs on another node and has not stopped.
    Moved,
    /// The guest was shut down, and is started again on another node.
    Restarted,
    /// The guest was shut down and stays off.
    StaysOff {
        /// The run strategy of its VirtualMachine.
        strategy: String,
    },
    /// The guest was shut down, and nothing starts it again.
    Ended,
    /// The pod is gone; its controller makes another one.
    Evicted,
    /// The pod is gone, and nothing makes another one.
    Gone,
    /// Its external owner has been told; what comes of it is up to that owner.
    HandedOver,
    /// It is where it was.
    Stays,
    /// It is not known.
    Unknown,
}

impl Afterwards {
    /// By what is foretold of the pod.
    pub fn of(pod: &PodForecast) -> Self {
        match &pod.prospect {
            Prospect::Stays | Prospect::Never { .. } | Prospect::Refused { .. } => Self::Stays,
            Prospect::Migrates => Self::Moved,
            Prospect::HandedOver => Self::HandedOver,
            Prospect::Waits { .. } => Self::Unknown,
            Prospect::Unknown { .. } if pod.fate != Fate::Evict => Self::Unknown,
            Prospect::Leaving { .. }
            | Prospect::LeavesNow
            | Prospect::Turn { .. }
            | Prospect::Unknown { .. } => Self::of_leaving(pod),
        }
    }

    fn of_leaving(pod: &PodForecast) -> Self {
        let shut_down = pod.reasons.iter().find_map(|reason| match reason {
            Reason::Guest(GuestReason::VmShutDown { after, .. }) => Some(after),
            _ => None,
        });
        match shut_down {
            Some(AfterShutdown::Restarts | AfterShutdown::Replaced) => Self::Restarted,
            Some(AfterShutdown::StaysOff { strategy }) => Self::StaysOff { strategy: strategy.clone() },
            Some(AfterShutdown::Ends) => Self::Ended,
            Some(AfterShutdown::Unknown { .. }) => Self::Unknown,
            None if pod.owner.is_some() && pod.fate == Fate::Evict => Self::Evicted,
            None => Self::Gone,
        }
    }
}
