//! Times that are written for other programs to read, and those that other programs wrote.
//!
//! Decisions are made on the steady line of the clock ([`Clock::now`]); what stands in objects is of the calendar. They are translated here,
//! where they leave and where they arrive. A time that was read once keeps its place on the steady line: when the system's clock is stepped
//! afterwards, what is being waited for comes neither sooner nor later.

use std::collections::BTreeMap;

use evac_clock::Clock;
use evac_core::drain::action::Own;
use evac_core::{Action, Fact, Key, Lease};
use jiff::Timestamp;

/// The times of a lease that can be compared with ours.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    renewed: Option<Timestamp>,
    asked: Option<Timestamp>,
    answered: Option<Timestamp>,
}

impl Times {
    fn of(lease: &Lease) -> Self {
        Self { renewed: lease.renewed, asked: lease.asked, answered: lease.answered }
    }
}

/// Leases as they were last read: what was written in them, and where that is on the steady line.
#[derive(Debug)]
pub struct Stated {
    clock: Clock,
    known: BTreeMap<Key, (Times, Times)>,
}

impl Stated {
    pub fn new(clock: Clock) -> Self {
        Self { clock, known: BTreeMap::new() }
    }

    /// The lease with its times on the steady line.
    pub fn lease(&mut self, mut lease: Lease) -> Lease {
        let written = Times::of(&lease);
        let (before, placed) = self.known.get(&lease.key).copied().unwrap_or_default();
        let place = |now: Option<Timestamp>, before: Option<Timestamp>, placed: Option<Timestamp>| {
            if now == before { placed } else { now.map(|at| self.clock.steady(at)) }
        };
        lease.renewed = place(written.renewed, before.renewed, placed.renewed);
        // Both are compared with one another, so one value has one place.
        lease.asked = place(written.asked, before.asked, placed.asked);
        lease.answered = if written.answered == written.asked {
            lease.asked
        } else {
            place(written.answered, before.answered, placed.answered)
        };
        self.known.insert(lease.key.clone(), (written, Times::of(&lease)));
        lease
    }

    pub fn fact(&mut self, fact: Fact) -> Fact {
        match fact {
            Fact::Lease(lease) => Fact::Lease(Box::new(self.lease(*lease))),
            Fact::LeaseGone(ref key, _) | Fact::LeaseAbsent(ref key) => {
                self.known.remove(key);
                fact
            }
            other => other,
        }
    }

    /// The action as it is written. An answer to a question repeats the very time that was asked with.
    pub fn written(&self, mut action: Action) -> Action {
        match &mut action {
            Action::Cordon { mark, .. } => mark.since = self.clock.on_calendar(mark.since),
            Action::Hold { node, at, answered, .. } => {
                *at = self.clock.on_calendar(*at);
                let known = self.known.get(&evac_core::drain::claim::key(node));
                *answered = answered.map(|time| match known {
                    Some((Times { asked: Some(question), .. }, placed)) if placed.asked == Some(time) => {
                        *question
                    }
                    _ => self.clock.on_calendar(time),
                });
            }
            Action::Own(Own::Ask { at, .. }) => *at = self.clock.on_calendar(*at),
            _ => {}
        }
        action
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use evac_core::action::LeaseOf;
    use evac_core::{Uid, drain::claim};
    use jiff::SignedDuration;

    use super::*;

    fn lease(renewed: Timestamp, asked: Option<Timestamp>, answered: Option<Timestamp>) -> Lease {
        Lease {
            key: claim::key("n"),
            uid: Uid("lease".into()),
            holder: "ann/box:1".into(),
            renewed: Some(renewed),
            duration_seconds: 3600,
            resource_version: "1".into(),
            transitions: 0,
            asked,
            answered,
            record: None,
        }
    }

    fn stepped() -> (Stated, Clock, &'static AtomicI64) {
        let seconds: &'static AtomicI64 = Box::leak(Box::default());
        let clock = Clock::starting_at("2026-01-01T12:00:00Z".parse().unwrap()).stepped_by(seconds);
        (Stated::new(clock), clock, seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_read_before_a_step_is_no_older_after_it_and_a_question_no_less_open() {
        for step in [3600, -3600] {
            let (mut stated, clock, seconds) = stepped();
            let then = clock.now();
            let read = stated.lease(lease(then, Some(then), Some(then - SignedDuration::from_secs(60))));
            assert_eq!((read.renewed, read.asked), (Some(then), Some(then)));
            seconds.store(step, Ordering::Relaxed);
            let again = stated.lease(lease(then, Some(then), Some(then - SignedDuration::from_secs(60))));
            assert_eq!(again, read, "a step of {step} s");
            // What was written after the step is read by the calendar of then.
            let renewed = stated.lease(lease(clock.calendar(), Some(then), Some(then)));
            assert_eq!(renewed.renewed, Some(clock.now()), "a step of {step} s");
            assert_eq!(renewed.open_question(), None, "a step of {step} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_repeats_the_question_although_the_clock_was_stepped_in_between() {
        for step in [3600, -3600] {
            let (mut stated, clock, seconds) = stepped();
            let asked = clock.calendar();
            let read = stated.lease(lease(asked - SignedDuration::from_secs(60), Some(asked), Some(asked)));
            seconds.store(step, Ordering::Relaxed);
            let hold = Action::Hold {
                lease: LeaseOf::Drain,
                node: "n".into(),
                uid: Uid("u".into()),
                holder: "ann/box:1".into(),
                at: clock.now(),
                seconds: 3600,
                answered: read.asked,
                over: None,
                record: None,
            };
            let Action::Hold { at, answered, .. } = stated.written(hold) else { panic!("another action") };
            assert_eq!(answered, Some(asked), "a step of {step} s");
            assert_eq!(at, clock.calendar(), "a step of {step} s");
        }
    }
}
