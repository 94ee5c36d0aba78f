//! What is known of a node that may have failed.

use jiff::{SignedDuration, Timestamp};

use super::evaluator::EXCLUDE;
use crate::cluster::fact::{Health, Node};
pub use crate::cluster::life::{Fenced, FencedState, Sign};
pub use crate::drain::written_on_nodes::out_of_service;

/// Put there by a cloud's controller when the cloud says that the machine is shut down.
pub const SHUT_DOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// A kubelet renews its lease every ten seconds; one that was not seen to for this long does not answer.
pub const KUBELET_SILENCE: SignedDuration = SignedDuration::from_secs(40);

/// The lease of a kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubeletLease {
    /// When it was renewed, by the node's clock.
    pub renewed: Option<Timestamp>,
    /// Who renewed it: the kubelet names its node.
    pub holder: String,
    /// The `metadata.resourceVersion` it was seen at.
    pub version: String,
    /// For how long it is valid.
    pub seconds: i64,
}

/// A node, and the lease by which its kubelet shows that it lives.
///
/// The times are those of other machines' clocks. They are told to people; what is concluded from them is in
/// [`silence`](super::silence).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    /// The node.
    pub node: Node,
    /// The lease of its kubelet, as far as it was looked at.
    pub lease: Option<KubeletLease>,
}

impl Suspect {
    /// Whether the node's condition Ready is true.
    pub fn is_ready(&self) -> bool {
        self.node.health == Health::Ready
    }

    /// Whether the node carries the taint `node.kubernetes.io/out-of-service`.
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
        [
            (Sign::Lease, self.renewed()),
            (Sign::Report, self.node.life.reported),
            (Sign::Heartbeat, self.node.life.heartbeat),
        ]
        .into_iter()
        .filter_map(|(sign, at)| Some((sign, at?)))
    }

    /// When the kubelet says that it last renewed its lease.
    pub fn renewed(&self) -> Option<Timestamp> {
        self.lease.as_ref().and_then(|lease| lease.renewed)
    }

    /// The record of a proof, if it can be read.
    pub fn record(&self) -> Option<&Fenced> {
        match &self.node.life.fenced {
            Some(FencedState::Valid(record)) => Some(record),
            _ => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::cluster::life::Life;
    use crate::testing::{at, node};

    /// A node that fell silent at second 0 and was declared unreachable 50 seconds later.
    pub fn silent(name: &str) -> Suspect {
        let mut node = node(name);
        node.health = Health::Unknown;
        node.health_since = Some(at(50));
        node.life = Life {
            boot: Some("boot-1".into()),
            reported: Some(at(-100)),
            heartbeat: Some(at(-20)),
            ..Life::default()
        };
        Suspect { node, lease: Some(lease(name, at(0))) }
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
        suspect.node.life.reported = Some(now);
        suspect
    }
}
