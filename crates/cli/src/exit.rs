//! How the program ends. The numbers are part of the interface and do not change.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, and proven to be.
    Done = 0,
    Error = 1,
    Usage = 2,
    /// Something is in the way that waiting does not remove.
    Blocked = 3,
    TimedOut = 4,
    /// Another drain or a maintenance holds the node, or the request was refused.
    Refused = 5,
    Cancelled = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// Of several ends, the one a script should hear about.
    pub fn worst(ends: impl IntoIterator<Item = Self>) -> Self {
        let weight = |exit: &Self| match exit {
            Self::Done => 0,
            Self::TimedOut => 1,
            Self::Blocked => 2,
            Self::Refused => 3,
            Self::Usage => 4,
            Self::Error => 5,
            Self::Cancelled => 6,
        };
        ends.into_iter().max_by_key(weight).unwrap_or(Self::Done)
    }
}

/// A failure with the number it ends the program with.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
    /// A line of its own after the message, so that scripts find that one as kubectl has it.
    pub hint: Option<String>,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub fn error(message: impl Into<String>) -> Self {
        Self::new(Exit::Error, message)
    }

    #[must_use]
    pub fn with_hint(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_on_one_node_outweighs_a_blocked_one() {
        assert_eq!(Exit::worst([Exit::Done, Exit::Blocked, Exit::Error, Exit::TimedOut]), Exit::Error);
        assert_eq!(Exit::worst([]), Exit::Done);
    }
}
