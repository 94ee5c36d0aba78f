//! Lists that cannot be read: since when, why, and when that is said on the objects it matters to.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::drain::run::after;

/// A list that fails for less is asked for again, and no status mentions it.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What is to be said about lists that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Everything can be read.
    Nothing,
    /// Something cannot, which is told from this moment on.
    Later(Timestamp),
    /// Something has not been readable for [`PATIENCE`] or longer: the sentence that says so.
    Now(String),
}

/// The lists of one role that cannot be read at the moment.
#[derive(Debug, Clone, Default)]
pub struct Unread(BTreeMap<String, (String, Timestamp)>);

impl Unread {
    /// A list failed. The first reason is kept while it lasts: a status that changes with every try is written with every try.
    pub fn failed(&mut self, what: &str, why: &str, now: Timestamp) {
        self.0.entry(what.to_owned()).or_insert_with(|| (why.to_owned(), now));
    }

    /// A list can be read; true if it could not before.
    pub fn read(&mut self, what: &str) -> bool {
        self.0.remove(what).is_some()
    }

    /// What is to be said, where the calendar is so far ahead of the time by which this is measured.
    pub fn word(&self, now: Timestamp, ahead: SignedDuration) -> Word {
        let Some((what, (why, since))) = self.0.iter().min_by_key(|(_, (_, since))| *since) else {
            return Word::Nothing;
        };
        let told = after(*since, PATIENCE);
        if told > now {
            return Word::Later(told);
        }
        let since = since.checked_add(ahead).unwrap_or(*since);
        let since = Timestamp::from_second(since.as_second()).unwrap_or(since);
        Word::Now(format!("the list of {what} cannot be read since {since}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn what_cannot_be_read_is_said_after_a_moment_with_the_first_reason_and_taken_back_when_it_can() {
        let mut unread = Unread::default();
        assert_eq!(unread.word(at(0), SignedDuration::ZERO), Word::Nothing);
        unread.failed("nodes", "etcd is busy", at(0));
        unread.failed("nodes", "nodes is forbidden", at(5));
        unread.failed("policies", "gone", at(6));
        assert_eq!(unread.word(at(9), SignedDuration::ZERO), Word::Later(at(10)));
        let said = "the list of nodes cannot be read since 2026-01-01T01:00:00Z: etcd is busy";
        assert_eq!(unread.word(at(10), SignedDuration::from_hours(1)), Word::Now(said.into()));
        assert!(unread.read("nodes"));
        assert!(!unread.read("nodes"));
        assert_eq!(unread.word(at(10), SignedDuration::ZERO), Word::Later(at(16)));
        assert!(unread.read("policies"));
        assert_eq!(unread.word(at(20), SignedDuration::ZERO), Word::Nothing);
    }
}
