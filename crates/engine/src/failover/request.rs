//! What a failover is asked for.

use std::time::Duration;

use evac_core::failover::suspect::SHUT_DOWN;
use evac_core::failover::{Attempts, FailoverSpec, How, PolicyRef, ProofFrom, Release, Silence};

use super::power::Fence;

/// Where the proof is to come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Only from what is written on the node already.
    Nowhere,
    Statement {
        by: String,
        reason: String,
    },
    Provider,
    Time {
        seconds: i64,
        policy: String,
    },
    Fence(Fence),
}

#[derive(Debug, Clone)]
pub struct FailoverRequest {
    pub node: String,
    /// Under which name the node is marked.
    pub owner: String,
    /// The command line, for the mark on the node.
    pub options: Vec<String>,
    pub source: Source,
    /// How to release; without it what suits the server.
    pub release: Option<Release>,
    /// A person answers for the quorum of etcd, where the node is of the control plane.
    pub allow_control_plane: bool,
    /// Look and tell, but change nothing.
    pub dry_run: bool,
    /// How long the whole may take; without it as long as it takes.
    pub timeout: Option<Duration>,
    /// How long the wait for the guests goes on without any change; without it until everything has happened, or the time is up.
    pub stall: Option<Duration>,
    /// How long a node whose kubelet answers is drained before it is switched off.
    pub drain: Duration,
    /// The policy that asks for it; none for a person.
    pub policy: Option<PolicyRef>,
    /// What was seen of the node before. Without it the node is watched first.
    pub silence: Silence,
}

impl FailoverRequest {
    /// What is asked for, as it is decided on.
    pub(super) fn spec(&self) -> FailoverSpec {
        FailoverSpec {
            node: self.node.clone(),
            owner: self.owner.clone(),
            options: self.options.clone(),
            proof: self.source.proof(),
            release: self.release,
            allow_control_plane: self.allow_control_plane,
            dry_run: self.dry_run,
            timeout: self.timeout,
            stall: self.stall,
            drain: self.drain,
            policy: self.policy.clone(),
        }
    }
}

impl Source {
    fn proof(&self) -> ProofFrom {
        ProofFrom::Said(match self {
            Self::Nowhere => return ProofFrom::Nowhere,
            Self::Fence(fence) => {
                let (program, attempts) = (fence.switch.name(), Attempts::new(fence.tries));
                return ProofFrom::Agent { program, attempts, pause: fence.pause };
            }
            Self::Statement { by, reason } => How::Statement { by: by.clone(), reason: reason.clone() },
            Self::Provider => How::Provider { signal: SHUT_DOWN.into() },
            Self::Time { seconds, policy } => How::Time { seconds: *seconds, policy: policy.clone() },
        })
    }
}
