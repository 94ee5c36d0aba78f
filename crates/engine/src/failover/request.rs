//! What a failover is asked for, with what carries it out.

use evac_core::failover::{Attempts, FailoverSpec, ProofFrom, Silence};

use super::power::Fence;

/// A failover that is asked for.
#[derive(Debug, Clone)]
pub struct FailoverRequest {
    /// What is asked for, as it is decided on.
    pub spec: FailoverSpec,
    /// What switches the machine off, where the proof is to come from an agent ([`Fence::proof`]).
    pub fence: Option<Fence>,
    /// What was seen of the node before. Without it the node is watched first.
    pub silence: Silence,
}

impl Fence {
    /// The proof that this fence gives: the machine seen off after it was switched off.
    pub fn proof(&self) -> ProofFrom {
        let (program, attempts) = (self.switch.name(), Attempts::new(self.tries));
        ProofFrom::Agent { program, attempts, pause: self.pause }
    }
}
