//! What this process is doing about one instance. Nothing of it has to survive: a new leader begins from the objects.

use std::time::Duration;

use evac_apimachinery::backoff::Backoff;
use jiff::{SignedDuration, Timestamp};

use super::deadline::First;
use super::trouble::Trouble;
use crate::drain::run::after;

/// The pause after the first failure, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// After a drain or an uncordon that did not succeed.
const FAILED: Backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
/// After a write that came too late, and after one that was refused.
const CONFLICT: Backoff = Backoff::new(Duration::from_millis(50), LONGEST_PAUSE);
const REFUSED: Backoff = Backoff::new(Duration::from_secs(1), LONGEST_PAUSE);

/// What this process is doing about one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    /// Nothing.
    #[default]
    Idle,
    /// A visit drains the tenant's node, or waits for its turn.
    Draining,
    /// The drain was told to end and has not yet.
    Stopping,
    /// The node is proven to be empty.
    Drained,
    /// A visit makes the tenant's node schedulable again.
    Uncordoning,
    /// Nothing of ours is left on the node.
    Uncordoned,
}

/// How much of the node is left, as its drain says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Count {
    /// Pods that still have to leave.
    pub left: usize,
    /// Pods that had to leave, with those that have left.
    pub total: usize,
    /// What is in the way of one of them, fit for a terminal.
    pub blocker: Option<String>,
}

/// What is known of the work on one instance besides its objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Work {
    /// What goes on.
    pub stage: Stage,
    /// What the Secret says about timeouts, once it was asked; nothing if it could not be read.
    pub cluster_timeout: Option<Option<String>>,
    /// None until the drain that runs has told anything.
    pub count: Option<Count>,
    /// What kept the last visit from success; none once it goes on.
    pub trouble: Option<Trouble>,
    /// Failures in a row.
    pub failures: u32,
    /// The pause after a visit that failed or made way.
    pub not_before: Option<Timestamp>,
    /// Writes in a row that did not succeed.
    pub refusals: u32,
    /// The pause after a write that was refused or came too late.
    pub writes_not_before: Option<Timestamp>,
    /// When progress was last written on the instance.
    pub noted: Option<Timestamp>,
    /// How far the system's clock was set forward since the work began. No time has passed by that, so the tenant has used none up.
    pub leap: SignedDuration,
}

/// What became of the work on an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The Secret was asked.
    Looked(Option<String>),
    /// It is kept when the eviction was first seen, or not any more.
    FirstKept(First),
    /// The eviction is over, and nothing is kept of it any more.
    FirstForgotten,
    /// The drain tells how much is left.
    Counted(Count),
    /// A drain that was begun has to wait until it can go on.
    Waits(Trouble),
    /// The drain made way for others and has to go on later.
    MadeWay,
    /// The node is proven to be empty.
    Drained,
    /// The drain was told to end, and has.
    Stopped,
    /// The node is schedulable again.
    Uncordoned,
    /// A drain or an uncordon did not succeed.
    Failed(Trouble),
    /// All requests of a decision were carried out.
    Written,
    /// One came too late, or was refused.
    Conflict,
    /// The server refused one.
    Refused,
}

impl Work {
    /// The system's clock was stepped by so much. Pauses go by the calendar, as deadlines do, and are no shorter or longer for it; a deadline is a
    /// time of day, which may come later by it and not sooner.
    pub fn shift(&mut self, by: SignedDuration) {
        self.leap = self.leap.saturating_add(by).max(SignedDuration::ZERO);
        for at in [&mut self.not_before, &mut self.writes_not_before, &mut self.noted].into_iter().flatten() {
            *at = at.checked_add(by).unwrap_or(*at);
        }
    }

    /// Something begins; the pause before it is over.
    pub fn begin(&mut self, stage: Stage) {
        self.stage = stage;
        self.not_before = None;
        if stage == Stage::Draining {
            self.count = None;
        }
    }

    /// Takes in what became of something, with the pause that follows from a failure.
    pub fn record(&mut self, outcome: Report, now: Timestamp) {
        match outcome {
            // The role keeps it for all instances and has taken note.
            Report::FirstKept(_) | Report::FirstForgotten => {}
            Report::Looked(timeout) => self.cluster_timeout = Some(timeout),
            Report::Counted(count) => {
                self.count = Some(count);
                self.trouble = None;
                self.failures = 0;
            }
            Report::Waits(trouble) => self.trouble = Some(trouble),
            Report::MadeWay => {
                self.stage = Stage::Idle;
                self.not_before = Some(after(now, FIRST_PAUSE));
            }
            Report::Drained => {
                self.stage = Stage::Drained;
                self.trouble = None;
            }
            Report::Stopped => self.stage = Stage::Idle,
            Report::Uncordoned => {
                self.stage = Stage::Uncordoned;
                self.trouble = None;
                self.failures = 0;
            }
            Report::Failed(trouble) => {
                self.stage = Stage::Idle;
                self.trouble = Some(trouble);
                self.not_before = Some(FAILED.until(now, self.failures));
                self.failures += 1;
            }
            Report::Written => {
                self.refusals = 0;
                self.writes_not_before = None;
            }
            Report::Conflict | Report::Refused => {
                let backoff = if outcome == Report::Conflict { CONFLICT } else { REFUSED };
                self.writes_not_before = Some(backoff.until(now, self.refusals));
                self.refusals += 1;
            }
        }
    }
}
