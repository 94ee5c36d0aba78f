//! What keeps the node of a tenant from being drained: a closed list, each with a stable code and a sentence.

use thiserror::Error;

use super::ration::{Excess, VISITS};
use crate::cluster::fact::Key;
use crate::cluster::tenant::plain;

/// Why the node of a tenant is not being drained; the sentence is written on the instance of the host.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Trouble {
    /// The cluster's Secret does not exist.
    #[error("there is no Secret {0} with the kubeconfig of the cluster")]
    SecretMissing(Key),
    /// The server does not give the Secret out.
    #[error("the Secret {secret} cannot be read: {}", plain(.why))]
    SecretUnreadable {
        /// The Secret.
        secret: Key,
        /// The error.
        why: String,
    },
    /// The Secret has no kubeconfig.
    #[error("the Secret {0} has no key \"value\"")]
    SecretWithoutValue(Key),
    /// The instance is in a namespace that the Secret does not name.
    #[error(
        "the Secret {secret} does not serve machines in namespace {namespace}; annotate it with evac.dev/tenant-namespaces to allow that"
    )]
    SecretNotShared {
        /// The Secret.
        secret: Key,
        /// The namespace of the instance.
        namespace: String,
    },
    /// The kubeconfig asks for what evac does not do for a tenant, or cannot be read.
    #[error("the kubeconfig in Secret {secret} is refused: {}", plain(.why))]
    KubeconfigRefused {
        /// The Secret it is in.
        secret: Key,
        /// What is refused.
        why: String,
    },
    /// No answer, or too late.
    #[error("cluster {cluster} cannot be reached: {}", plain(.why))]
    Unreachable {
        /// The cluster.
        cluster: String,
        /// The error.
        why: String,
    },
    /// The tenant's server refuses a request.
    #[error("cluster {cluster} does not let us in: {}", plain(.why))]
    Forbidden {
        /// The cluster.
        cluster: String,
        /// What it answered.
        why: String,
    },
    /// The visit ended because of [`Ration`](super::ration::Ration).
    #[error("cluster {cluster} sends more than a visit may take: {excess}")]
    TooMuch {
        /// The cluster.
        cluster: String,
        /// What there was too much of.
        excess: Excess,
    },
    /// All places for visits are taken.
    #[error("cluster {cluster} has to wait, because {VISITS} visits to tenants are under way already")]
    Waits {
        /// The cluster.
        cluster: String,
    },
    /// The cluster can be reached, and the node is not in it.
    #[error("cluster {cluster} has no node {node}")]
    NodeUnknown {
        /// The cluster.
        cluster: String,
        /// The name that the labels of the instance give.
        node: String,
    },
    /// A node of this name is there, and it is not this instance.
    #[error("node {node} of cluster {cluster} is another machine: {}", plain(.why))]
    NodeForeign {
        /// The cluster.
        cluster: String,
        /// The node.
        node: String,
        /// What contradicts.
        why: String,
    },
    /// The drain ended, and pods are left or may be.
    #[error("node {node} of cluster {cluster} could not be drained: {}", plain(.why))]
    DrainEnded {
        /// The cluster.
        cluster: String,
        /// The node.
        node: String,
        /// How it ended.
        why: String,
    },
}

impl Trouble {
    /// The reason of the condition.
    pub fn code(&self) -> &'static str {
        match self {
            Self::SecretMissing(_) => "SecretMissing",
            Self::SecretUnreadable { .. } => "SecretUnreadable",
            Self::SecretWithoutValue(_) => "SecretWithoutValue",
            Self::SecretNotShared { .. } => "SecretNotShared",
            Self::KubeconfigRefused { .. } => "KubeconfigRefused",
            Self::Unreachable { .. } => "TenantUnreachable",
            Self::Forbidden { .. } => "TenantForbids",
            Self::TooMuch { .. } => "TenantTooMuch",
            Self::Waits { .. } => "TooManyVisits",
            Self::NodeUnknown { .. } => "NodeUnknown",
            Self::NodeForeign { .. } => "NodeForeign",
            Self::DrainEnded { .. } => "DrainEnded",
        }
    }
}
