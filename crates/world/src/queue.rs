//! Which decisions are due: keys that changed, first come first served, and keys to look at later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use evac_apimachinery::backoff::Backoff;
use jiff::Timestamp;

use crate::actor::Actor;
use crate::objects::Key;

pub type Task = (Actor, Key);

#[derive(Debug, Default)]
pub struct Queue {
    due: VecDeque<Task>,
    /// Tasks of actors that look at many objects at once: after all others, so that a burst of changes
    /// costs them one look.
    due_later: VecDeque<Task>,
    queued: BTreeSet<Task>,
    /// Being written right now; a change meanwhile waits here for the end of it.
    busy: BTreeMap<Task, bool>,
    timers: BTreeMap<Task, Timestamp>,
    by_time: BTreeSet<(Timestamp, Task)>,
    failures: BTreeMap<Task, u32>,
}

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(30));

impl Queue {
    pub fn push(&mut self, actor: Actor, key: Key) {
        let task = (actor, key);
        if let Some(again) = self.busy.get_mut(&task) {
            *again = true;
        } else if self.queued.insert(task.clone()) {
            if task.0.looks_at_many() {
                self.due_later.push_back(task);
            } else {
                self.due.push_back(task);
            }
        }
    }

    /// Takes the next due task; it is busy until [`Queue::done`].
    pub fn pop(&mut self) -> Option<Task> {
        let task = self.due.pop_front().or_else(|| self.due_later.pop_front())?;
        self.queued.remove(&task);
        self.set_timer(&task, None);
        self.busy.insert(task.clone(), false);
        Some(task)
    }

    pub fn done(&mut self, task: &Task) {
        self.failures.remove(task);
        self.finish(task);
    }

    /// Tries again after a pause that doubles with each failure in a row.
    pub fn failed(&mut self, task: &Task, now: Timestamp) {
        let count = self.failures.entry(task.clone()).or_default();
        let at = BACKOFF.until(now, *count);
        *count += 1;
        self.finish(task);
        self.at(task, at);
    }

    fn finish(&mut self, task: &Task) {
        if self.busy.remove(task) == Some(true) {
            self.push(task.0, task.1.clone());
        }
    }

    /// Due at `at`, or earlier if it already is.
    pub fn at(&mut self, task: &Task, at: Timestamp) {
        if self.timers.get(task).is_none_or(|old| at < *old) {
            self.set_timer(task, Some(at));
        }
    }

    fn set_timer(&mut self, task: &Task, at: Option<Timestamp>) {
        if let Some(old) = self.timers.remove(task) {
            self.by_time.remove(&(old, task.clone()));
        }
        if let Some(at) = at {
            self.timers.insert(task.clone(), at);
            self.by_time.insert((at, task.clone()));
        }
    }

    pub fn next_timer(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Moves what is due by now into the queue.
    pub fn ring(&mut self, now: Timestamp) {
        while let Some((at, task)) = self.by_time.first().cloned() {
            if at > now {
                return;
            }
            self.set_timer(&task, None);
            self.push(task.0, task.1);
        }
    }

    pub fn idle(&self) -> bool {
        self.due.is_empty() && self.due_later.is_empty() && self.busy.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::at;

    fn key(name: &str) -> Key {
        Key::cluster(name)
    }

    #[test]
    fn a_key_that_changes_twice_is_due_once() {
        let mut queue = Queue::default();
        queue.push(Actor::Job, key("a"));
        queue.push(Actor::Job, key("a"));
        assert!(queue.pop().is_some());
        assert!(queue.pop().is_none());
    }

    #[test]
    fn who_looks_at_many_objects_waits_for_the_others() {
        let mut queue = Queue::default();
        queue.push(Actor::DaemonSet, key("a"));
        queue.push(Actor::KubeletPod, key("b"));
        assert_eq!(queue.pop().unwrap().0, Actor::KubeletPod);
        assert_eq!(queue.pop().unwrap().0, Actor::DaemonSet);
    }

    #[test]
    fn a_change_while_busy_is_looked_at_afterwards() {
        let mut queue = Queue::default();
        queue.push(Actor::Job, key("a"));
        let task = queue.pop().unwrap();
        queue.push(Actor::Job, key("a"));
        assert!(queue.pop().is_none());
        queue.done(&task);
        assert_eq!(queue.pop(), Some(task));
    }

    #[test]
    fn failures_wait_longer_each_time_and_success_forgets_them() {
        let mut queue = Queue::default();
        let task = (Actor::Job, key("a"));
        let mut waits = Vec::new();
        for _ in 0..3 {
            queue.push(task.0, task.1.clone());
            queue.pop();
            queue.failed(&task, at(0));
            waits.push(queue.next_timer().unwrap().duration_since(at(0)).as_millis());
        }
        assert_eq!(waits, [50, 100, 200]);
        queue.ring(at(1));
        let popped = queue.pop().unwrap();
        queue.done(&popped);
        queue.push(task.0, task.1.clone());
        queue.pop();
        queue.failed(&task, at(0));
        assert_eq!(queue.next_timer().unwrap().duration_since(at(0)).as_millis(), 50);
    }

    #[test]
    fn the_earlier_of_two_timers_counts() {
        let mut queue = Queue::default();
        let task = (Actor::Job, key("a"));
        queue.at(&task, at(10));
        queue.at(&task, at(5));
        queue.at(&task, at(20));
        assert_eq!(queue.next_timer(), Some(at(5)));
        queue.ring(at(5));
        assert_eq!(queue.next_timer(), None);
        assert_eq!(queue.pop(), Some(task));
    }
}
