//! What keeps the node of a tenant from being drained: a closed list, each with a stable code and a sentence.

use thiserror::Error;

use super::ration::{Excess, VISITS};
use crate::cluster::fact::Key;
use crate::cluster::tenant::plain;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Trouble {
    #[error("there is no Secret {0} with the kubeconfig of the cluster")]
    SecretMissing(Key),
    #[error("the Secret {secret} cannot be read: {}", plain(.why))]
    SecretUnreadable { secret: Key, why: String },
    #[error("the Secret {0} has no key \"value\"")]
    SecretWithoutValue(Key),
    #[error(
        "the Secret {secret} does not serve machines in namespace {namespace}; annotate it with evac.dev/tenant-namespaces to allow that"
    )]
    SecretNotShared { secret: Key, namespace: String },
    #[error("the kubeconfig in Secret {secret} is refused: {}", plain(.why))]
    KubeconfigRefused { secret: Key, why: String },
    #[error("cluster {cluster} cannot be reached: {}", plain(.why))]
    Unreachable { cluster: String, why: String },
    #[error("cluster {cluster} does not let us in: {}", plain(.why))]
    Forbidden { cluster: String, why: String },
    #[error("cluster {cluster} sends more than a visit may take: {excess}")]
    TooMuch { cluster: String, excess: Excess },
    #[error("cluster {cluster} has to wait, because {VISITS} visits to tenants are under way already")]
    Waits { cluster: String },
    #[error("cluster {cluster} has no node {node}")]
    NodeUnknown { cluster: String, node: String },
    #[error("node {node} of cluster {cluster} is another machine: {}", plain(.why))]
    NodeForeign { cluster: String, node: String, why: String },
    #[error("node {node} of cluster {cluster} could not be drained: {}", plain(.why))]
    DrainEnded { cluster: String, node: String, why: String },
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
