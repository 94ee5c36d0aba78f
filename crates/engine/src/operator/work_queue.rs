//! The work queue of one role: which subjects have to be looked at, and when. They were touched, are being acted upon, back off after a
//! refusal, or wait for a time.
//!
//! ```text
//!   touched ─▶ ready ─▶ acting ─▶ finished ─▶ (touched meanwhile, or something may have changed by it) ─▶ touched
//!                │                    └ refused: rests, longer each time
//!                ├ nothing to do until a time
//!                └ put off for a moment, counted from the first time
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evac_apimachinery::backoff::Backoff;
use jiff::Timestamp;

use crate::http::HttpError;
use crate::metrics::Queues;

/// How the actions of one subject ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Done,
    /// The view was old, or another client was faster.
    Conflict,
    Failed,
}

impl From<HttpError> for Ending {
    fn from(error: HttpError) -> Self {
        tracing::debug!(%error, "not carried out");
        if error.is_outdated() { Self::Conflict } else { Self::Failed }
    }
}

const CONFLICT: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(3200));
const FAILED: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(64));

/// After a refusal a subject rests for a while, longer each time.
#[derive(Debug, Clone, Copy)]
struct Requeue {
    count: u32,
    until: Timestamp,
}

#[derive(Debug)]
pub(super) struct WorkQueue<S> {
    dirty: BTreeSet<S>,
    busy: BTreeSet<S>,
    /// Touched while their actions were under way.
    again: BTreeSet<S>,
    alarms: BTreeMap<S, Timestamp>,
    requeues: BTreeMap<S, Requeue>,
    /// Since when something is to be done about those that are put off.
    wanted: BTreeMap<S, Timestamp>,
}

impl<S> Default for WorkQueue<S> {
    fn default() -> Self {
        Self {
            dirty: BTreeSet::new(),
            busy: BTreeSet::new(),
            again: BTreeSet::new(),
            alarms: BTreeMap::new(),
            requeues: BTreeMap::new(),
            wanted: BTreeMap::new(),
        }
    }
}

impl<S: Ord + Clone> WorkQueue<S> {
    pub fn touch(&mut self, subjects: impl IntoIterator<Item = S>) {
        for subject in subjects {
            self.alarms.remove(&subject);
            self.dirty.insert(subject);
        }
    }

    /// Those that can be looked at now.
    pub fn ready(&mut self, now: Timestamp) -> Vec<S> {
        let due: Vec<S> =
            self.alarms.iter().filter(|(_, at)| **at <= now).map(|(subject, _)| subject.clone()).collect();
        self.touch(due);
        let mut ready = Vec::new();
        for subject in std::mem::take(&mut self.dirty) {
            if self.busy.contains(&subject) {
                self.again.insert(subject);
            } else if let Some(rest) = self.requeues.get(&subject).filter(|rest| rest.until > now) {
                self.alarms.insert(subject, rest.until);
            } else {
                ready.push(subject);
            }
        }
        ready
    }

    /// Has it looked at again at that time, or sooner if that was asked for before.
    pub fn wake(&mut self, subject: &S, at: Timestamp) {
        let alarm = self.alarms.entry(subject.clone()).or_insert(at);
        *alarm = at.min(*alarm);
    }

    /// Since when something is to be done about it.
    pub fn wanted_since(&mut self, subject: &S, now: Timestamp) -> Timestamp {
        *self.wanted.entry(subject.clone()).or_insert(now)
    }

    /// There is nothing to do about it (any more).
    pub fn settle(&mut self, subject: &S) {
        self.wanted.remove(subject);
    }

    pub fn begin(&mut self, subject: &S) {
        self.settle(subject);
        self.busy.insert(subject.clone());
    }

    /// Its actions ended; with `news` it has to be looked at again in any case.
    pub fn finish(&mut self, subject: S, ending: Ending, news: bool, now: Timestamp) {
        self.busy.remove(&subject);
        let touched = self.again.remove(&subject);
        let backoff = match ending {
            Ending::Done => {
                self.requeues.remove(&subject);
                if news || touched {
                    self.dirty.insert(subject);
                }
                return;
            }
            // Somebody else was faster; the view will show it in a moment.
            Ending::Conflict => CONFLICT,
            Ending::Failed => FAILED,
        };
        let earlier = self.requeues.get(&subject).map_or(0, |requeue| requeue.count);
        let requeue = Requeue { count: earlier + 1, until: backoff.until(now, earlier) };
        self.requeues.insert(subject.clone(), requeue);
        self.dirty.insert(subject);
    }

    pub fn next_alarm(&self) -> Option<Timestamp> {
        self.alarms.values().min().copied()
    }

    pub fn queues(&self, now: Timestamp) -> Queues {
        Queues {
            touched: self.dirty.len() + self.again.len(),
            acting: self.busy.len(),
            resting: self.requeues.values().filter(|requeue| requeue.until > now).count(),
            scheduled: self.alarms.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn what_is_touched_while_it_is_acted_upon_is_looked_at_afterwards() {
        let mut queue = WorkQueue::default();
        queue.touch(["a", "b"]);
        assert_eq!(queue.ready(at(0)), ["a", "b"]);
        queue.begin(&"a");
        queue.touch(["a"]);
        assert!(queue.ready(at(0)).is_empty());
        queue.finish("a", Ending::Done, false, at(0));
        assert_eq!(queue.ready(at(0)), ["a"]);
        assert!(queue.ready(at(0)).is_empty());
    }

    #[test]
    fn what_is_put_off_is_wanted_since_the_first_time_until_it_is_done_or_not_wanted_any_more() {
        let mut queue = WorkQueue::default();
        for second in [0, 1, 2] {
            queue.touch(["a"]);
            assert_eq!(queue.ready(at(second)), ["a"]);
            assert_eq!(queue.wanted_since(&"a", at(second)), at(0));
            queue.wake(&"a", at(9));
            queue.wake(&"a", at(second + 1));
            assert_eq!(queue.next_alarm(), Some(at(second + 1)));
        }
        queue.begin(&"a");
        queue.finish("a", Ending::Done, true, at(3));
        assert_eq!(queue.wanted_since(&"a", at(3)), at(3));
        queue.settle(&"a");
        assert_eq!(queue.wanted_since(&"a", at(4)), at(4));
    }

    #[test]
    fn refusals_make_it_rest_longer_each_time_until_something_succeeds() {
        let mut queue = WorkQueue::default();
        for (second, rest) in [(0, 1), (1, 2), (3, 4)] {
            queue.touch(["a"]);
            assert_eq!(queue.ready(at(second)), ["a"]);
            queue.begin(&"a");
            queue.finish("a", Ending::Failed, true, at(second));
            assert!(queue.ready(at(second)).is_empty());
            assert_eq!(queue.next_alarm(), Some(at(second + rest)));
        }
        assert_eq!(queue.ready(at(7)), ["a"]);
        queue.finish("a", Ending::Done, false, at(7));
        queue.touch(["a"]);
        assert_eq!(queue.ready(at(7)), ["a"]);
    }
}
