//! Switching a machine off, and believing it only when it has been seen off.

use std::sync::Arc;
use std::time::Duration;

use evac_clock::Clock;
use evac_core::failover::Refusal;
use futures::future::BoxFuture;
use jiff::Timestamp;
use thiserror::Error;

use crate::http::HttpError;

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
    fn is_final(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}

/// Whatever can switch machines off and see whether they are: a fence agent, or the simulated power supply of a simulated node.
pub trait PowerSwitch: Send + Sync {
    fn name(&self) -> String;
    fn off<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), PowerError>>;
    fn state<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<PowerState, PowerError>>;
}

/// Looks before each try whether the machine may still be switched off: between two tries a node may recover, a policy may be paused and another
/// operator may lead.
pub trait Lookout: Send {
    fn may_switch_off(&mut self) -> BoxFuture<'_, Result<(), Halt>>;
}

/// Why a machine is not switched off.
#[derive(Debug)]
pub enum Halt {
    /// What was seen speaks against it.
    Refused(Refusal),
    /// Another operator leads.
    NotLeading,
    /// Nobody could look.
    Unseen(HttpError),
}

/// Why a machine is not seen off.
#[derive(Debug)]
pub enum Unfenced {
    Power(PowerError),
    Halted(Halt),
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
    /// Switches the machine off and sees it off, or says why not. `tell` hears of every try that failed. Gives the time when the try began that
    /// succeeded.
    pub async fn fence(
        &self,
        clock: Clock,
        node: &str,
        lookout: &mut dyn Lookout,
        tell: &mut (dyn FnMut(u32, &PowerError) + Send),
    ) -> Result<Timestamp, Unfenced> {
        let mut number = 1;
        loop {
            lookout.may_switch_off().await.map_err(Unfenced::Halted)?;
            let began = clock.now();
            let error = match self.once(node).await {
                Ok(()) => return Ok(began),
                Err(error) => error,
            };
            tell(number, &error);
            if error.is_final() || number >= self.tries {
                return Err(Unfenced::Power(error));
            }
            number += 1;
            clock.sleep(self.pause).await;
        }
    }

    async fn once(&self, node: &str) -> Result<(), PowerError> {
        self.switch.off(node).await?;
        // An agent that could send the command has not yet seen what came of it.
        match self.switch.state(node).await? {
            PowerState::Off => Ok(()),
            PowerState::On => Err(PowerError::StillOn { program: self.switch.name() }),
        }
    }
}
