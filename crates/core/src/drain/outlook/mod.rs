//! When a node will be empty, as a range that is meant to hold nine times of ten, or "unknown" until that can be said.
//!
//! ```text
//!  facts ─▶ gather ─▶ guests   slots of migrations, copies under way, the line behind them ┐
//!                     budgets  what each lets go, and how soon again                        ├▶ the latest of all ─▶ told
//!                     pods     that are stopping, within their grace periods                ┘
//! ```
//!
//! Everything comes from what this drain has seen so far: how long targets took to start, copies to finish, pods to stop, budgets to give
//! again. Few measurements make a wide range, many a narrow one. One thing that may never leave makes all of it unknown.

pub(crate) mod gather;
pub mod guests;
pub mod lane;
pub mod pods;
pub mod stretch;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::drain::run::after;
use lane::Range;
use pods::Gone;

/// Why nothing can be said about the time left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unknown {
    /// Nothing that could serve as a measure has happened yet.
    NothingMeasured,
    /// Something is in the way that may never clear by itself.
    Blocked,
    /// A guest changes its memory as fast as it is copied.
    GuestOutrunsCopy,
    /// What went on before does not go on.
    Stalled,
}

/// How long until a node is empty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outlook {
    /// A range that is meant to hold nine times of ten.
    Within(Range),
    /// Only the ends of grace periods are known.
    AtMost(f64),
    /// Why the time left cannot be told.
    Unknown(Unknown),
}

impl Outlook {
    /// The latest of all that has to leave.
    pub fn of(lanes: impl IntoIterator<Item = Result<Option<Gone>, Unknown>>) -> Self {
        let (mut within, mut limit): (Option<Range>, f64) = (None, 0.0);
        for lane in lanes {
            match lane {
                Err(unknown) => return Self::Unknown(unknown),
                Ok(Some(Gone::Within(range))) => {
                    within = Some(within.map_or(range, |known| known.joined(range)));
                }
                Ok(Some(Gone::AtMost(seconds))) => limit = limit.max(seconds),
                Ok(None) => {}
            }
        }
        match within {
            // A limit beyond it hardly changes when the rest is over, or it decides and nothing better is known.
            Some(range) if limit <= range.at_most + LITTLE => {
                Self::Within(Range { at_most: range.at_most.max(limit), ..range })
            }
            Some(range) => Self::AtMost(limit.max(range.at_most)),
            None if limit > 0.0 => Self::AtMost(limit),
            None => Self::Unknown(Unknown::NothingMeasured),
        }
    }
}

/// The end of a drain as two moments, for a reader who does not know when it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foretold {
    /// Missing where only the ends of grace periods are known.
    pub earliest: Option<Timestamp>,
    /// When the node should be empty, or when the last grace period ends.
    pub latest: Timestamp,
}

/// Seconds that do not make a range less useful.
const LITTLE: f64 = 2.0;

/// What is told of one node, and when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Telling {
    /// When the end was last foretold, and for when.
    told: Option<(Timestamp, Outlook)>,
    next: Option<Timestamp>,
    looked: Option<Timestamp>,
}

/// The share of the time left after which a bound has moved most of the way to where it would be now, and the seconds that takes at least.
const FOLLOWS: f64 = 0.08;
const FOLLOWS_AT_LEAST: f64 = 1.0;
/// A range is told again after this part of what is left.
const TELLINGS: f64 = 12.0;
/// Pods come and go many times a second; looking more often than this shows a reader nothing new.
const LOOKS: f64 = 0.5;
/// What was told stands for so many seconds at least.
const STANDS: f64 = 0.9;

impl Telling {
    /// Whether it is worth the work to look again.
    pub fn is_due(&mut self, now: Timestamp) -> bool {
        let due = self.looked.is_none_or(|at| seconds(at, now) >= LOOKS)
            || self.next.is_some_and(|next| next <= now);
        if due {
            self.looked = Some(now);
        }
        due
    }

    /// What is to be told now, if anything. `pause` is the longest time without a word.
    pub fn tell(&mut self, raw: Outlook, pause: Duration, now: Timestamp) -> Option<Outlook> {
        let known = self.told;
        let same_kind =
            known.is_some_and(|(_, before)| std::mem::discriminant(&before) == std::mem::discriminant(&raw));
        match (known, raw) {
            // That nothing is known is no news before anything was.
            (None, Outlook::Unknown(_)) => return None,
            (Some((_, Outlook::Unknown(before))), Outlook::Unknown(why)) if before == why => return None,
            _ => {}
        }
        let early = self.next.is_some_and(|next| next > now);
        if early && (same_kind || known.is_some_and(|(at, _)| seconds(at, now) < STANDS)) {
            return None;
        }
        let outlook = match known {
            Some((at, before)) => smooth(before, raw, seconds(at, now)),
            None => raw,
        };
        self.told = Some((now, outlook));
        let left = match outlook {
            Outlook::Within(range) => range.at_most,
            Outlook::AtMost(seconds) => seconds,
            Outlook::Unknown(_) => f64::INFINITY,
        };
        let gap = (left / TELLINGS).clamp(1.0, pause.as_secs_f64().max(1.0));
        self.next = Some(after(now, Duration::from_secs_f64(gap)));
        Some(outlook)
    }

    /// What was told last, as moments; nothing while the time left is unknown.
    pub fn foretold(&self) -> Option<Foretold> {
        let (at, outlook) = self.told?;
        let moment = |seconds: f64| after(at, Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        match outlook {
            Outlook::Within(range) => {
                Some(Foretold { earliest: Some(moment(range.at_least)), latest: moment(range.at_most) })
            }
            Outlook::AtMost(seconds) => Some(Foretold { earliest: None, latest: moment(seconds) }),
            Outlook::Unknown(_) => None,
        }
    }

    /// When to look at it again although nothing happens.
    pub fn next(&self) -> Option<Timestamp> {
        self.told.filter(|(_, told)| !matches!(told, Outlook::Unknown(_))).and(self.next)
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).max(SignedDuration::ZERO).as_secs_f64()
}

/// The time that was foretold moves towards what is expected now, and does not jump there.
fn smooth(before: Outlook, raw: Outlook, passed: f64) -> Outlook {
    let (Outlook::Within(before), Outlook::Within(now)) = (before, raw) else { return raw };
    let follows = (now.at_most * FOLLOWS).max(FOLLOWS_AT_LEAST);
    let share = 1.0 - (-passed / follows).exp();
    let towards = |before: f64, now: f64| {
        let before = (before - passed).max(0.0);
        before + (now - before) * share
    };
    Outlook::Within(Range {
        at_least: towards(before.at_least, now.at_least),
        at_most: towards(before.at_most, now.at_most),
    })
}
