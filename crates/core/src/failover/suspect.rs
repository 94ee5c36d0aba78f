//! What is known of a node that may have failed.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::fencing::Fenced;
use super::watchman::EXCLUDE;
use crate::cluster::fact::{Health, Node};
pub use crate::drain::written_on_nodes::out_of_service;

/// Put there by a cloud's controller when the cloud says that the machine is shut down.
pub const SHUT_DOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// A kubelet renews its lease every ten seconds; one that was not seen to for this long does not answer.
pub const KUBELET_SILENCE: SignedDuration = SignedDuration::from_secs(40);

/// The record of the proof, as found on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FencedState {
    Valid(Box<Fenced>),
    Unreadable(String),
}

/// The lease of a kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubeletLease {
    /// When it was renewed, by the node's clock.
    pub renewed: Option<Timestamp>,
    pub holder: String,
    pub version: String,
    /// For how long it is valid.
    pub seconds: i64,
}

/// A node with everything that tells whether it lives.
///
/// The times are those of other machines' clocks. They are told to people; what is concluded from them is in
/// [`silence`](super::silence).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    pub node: Node,
    /// Changes each time the machine starts.
    pub boot: Option<String>,
    /// When the kubelet last reported on the node's condition.
    pub reported: Option<Timestamp>,
    /// The lease by which its kubelet shows that it lives.
    pub lease: Option<KubeletLease>,
    /// When the agent of virtual machines last gave a sign.
    pub heartbeat: Option<Timestamp>,
    pub fenced: Option<FencedState>,
    /// Volumes that are attached to it, as far as the cluster knows.
    pub attached: Vec<String>,
}

impl Suspect {
    pub fn is_ready(&self) -> bool {
        self.node.health == Health::Ready
    }

    pub fn is_out_of_service(&self) -> bool {
        self.node.is_out_of_service()
    }

    /// The cloud says that the machine is shut down.
    pub fn is_shut_down(&self) -> bool {
        self.node.taints.iter().any(|taint| taint.key == SHUT_DOWN)
    }

    /// Policies leave it alone.
    pub fn is_excluded(&self) -> bool {
        self.node.labels.get(EXCLUDE).is_some_and(|value| value == "true")
    }

    /// The newest sign of life of each kind, in words and with its time.
    pub fn signs(&self) -> impl Iterator<Item = (Sign, Timestamp)> {
        [(Sign::Lease, self.renewed()), (Sign::Report, self.reported), (Sign::Heartbeat, self.heartbeat)]
            .into_iter()
            .filter_map(|(sign, at)| Some((sign, at?)))
    }

    /// When the kubelet says that it last renewed its lease.
    pub fn renewed(&self) -> Option<Timestamp> {
        self.lease.as_ref().and_then(|lease| lease.renewed)
    }

    /// The record of a proof, if it can be read.
    pub fn record(&self) -> Option<&Fenced> {
        match &self.fenced {
            Some(FencedState::Valid(record)) => Some(record),
            _ => None,
        }
    }
}

/// How a node shows that it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sign {
    Lease,
    Report,
    Heartbeat,
    Boot,
}

impl Sign {
    pub fn words(self) -> &'static str {
        match self {
            Self::Lease => "its kubelet renewed its lease",
            Self::Report => "its kubelet reported",
            Self::Heartbeat => "its agent of virtual machines gave a sign of life",
            Self::Boot => "its machine was started",
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::testing::{at, node};

    /// A node that fell silent at second 0 and was declared unreachable 50 seconds later.
    pub fn silent(name: &str) -> Suspect {
        let mut node = node(name);
        node.health = Health::Unknown;
        node.health_since = Some(at(50));
        Suspect {
            node,
            boot: Some("boot-1".into()),
            reported: Some(at(-100)),
            lease: Some(lease(name, at(0))),
            heartbeat: Some(at(-20)),
            fenced: None,
            attached: Vec::new(),
        }
    }

    /// The lease of a kubelet that renewed it then.
    pub fn lease(name: &str, renewed: Timestamp) -> KubeletLease {
        KubeletLease {
            renewed: Some(renewed),
            holder: name.into(),
            version: renewed.as_second().to_string(),
            seconds: 40,
        }
    }

    pub fn ready(name: &str, now: Timestamp) -> Suspect {
        let mut suspect = silent(name);
        suspect.node.health = Health::Ready;
        suspect.node.health_since = Some(at(-1000));
        suspect.lease = Some(lease(name, now));
        suspect.reported = Some(now);
        suspect
    }
}
