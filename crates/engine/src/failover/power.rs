//! Switching a machine off, and believing it only when it has been seen off.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerState {
    On,
    Off,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PowerError {
    #[error("{program} cannot be run: {why}")]
    Missing { program: String, why: String },
    #[error("{program} action={action} ended with exit code {code}{said}")]
    Failed { program: String, action: &'static str, code: i32, said: String },
    #[error("{program} action={action} was ended by a signal")]
    Killed { program: String, action: &'static str },
    #[error("{program} action={action} did not end within {seconds} s and was killed")]
    Hung { program: String, action: &'static str, seconds: u64 },
    #[error("{program} says that it switched the machine off, but action=status says that it is on")]
    StillOn { program: String },
}

impl PowerError {
    /// Another try would give the same answer.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}

/// Whatever can switch machines off and see whether they are: a fence agent, or the simulated power supply of a simulated node.
pub trait PowerSwitch: Send + Sync {
    fn name(&self) -> String;
    fn off<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), PowerError>>;
    fn state<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<PowerState, PowerError>>;
}

/// A switch and how often it is tried.
#[derive(Clone)]
pub struct Fence {
    pub switch: Arc<dyn PowerSwitch>,
    pub tries: u32,
    /// The pause between two tries.
    pub pause: Duration,
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fence").field("switch", &self.switch.name()).finish_non_exhaustive()
    }
}

impl Fence {
    /// One try to switch the machine off and to see it off.
    pub async fn once(&self, node: &str) -> Result<(), PowerError> {
        self.switch.off(node).await?;
        // An agent that could send the command has not yet seen what came of it.
        match self.switch.state(node).await? {
            PowerState::Off => Ok(()),
            PowerState::On => Err(PowerError::StillOn { program: self.switch.name() }),
        }
    }
}
