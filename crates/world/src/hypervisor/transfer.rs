//! The memory of a running guest on its way to another node: rounds of copying what became dirty
//! meanwhile, until the rest is small enough to stop the guest for.
//!
//! With memory M, bandwidth B, dirty rate D < B and an allowed pause T, the rounds take
//! M/B · (1 + ρ + ρ² + …) with ρ = D/B, and end when what is left fits into T. With D ≥ B they never end by
//! themselves: limits, a throttled processor or a switch to post-copy decide.

use jiff::Timestamp;

use crate::objects::{after, seconds_between};

/// What one migration may do, and what its guest does to it. Bytes and seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    pub memory: f64,
    pub dirty_rate: f64,
    /// The longest pause of the guest at the end.
    pub max_downtime: f64,
    /// A limit for this migration alone.
    pub bandwidth: Option<f64>,
    /// Slow the guest down when it writes faster than can be copied.
    pub auto_converge: bool,
    pub post_copy: bool,
    /// When time is up, rather pause the guest (or switch to post-copy) than give up.
    pub may_disrupt: bool,
    pub completion_limit: Option<f64>,
    pub stall_limit: Option<f64>,
    /// Takes this long, whatever the network does.
    pub fixed: Option<f64>,
    /// Breaks shortly before its end.
    pub fails: Option<String>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            memory: 1024.0 * 1024.0 * 1024.0,
            dirty_rate: 0.0,
            max_downtime: 0.3,
            bandwidth: None,
            auto_converge: false,
            post_copy: false,
            may_disrupt: false,
            completion_limit: None,
            stall_limit: None,
            fixed: None,
            fails: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    PreCopy,
    /// The guest runs on the target already and fetches its memory.
    PostCopy,
    /// The guest stands still until all is copied.
    Paused,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// It broke; the guest stays where it was.
    Failed(String),
    /// Nothing got less for so many seconds.
    Stuck(i64),
    /// Not done within so many seconds.
    TooLong(i64),
    Aborted,
}

/// What an event of a transfer means for the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// From now on the guest runs on the target.
    Moves,
}

/// The first slowdown of the guest's processor, and each further one.
const FIRST_THROTTLE: f64 = 0.2;
const MORE_THROTTLE: f64 = 0.1;
const MOST_THROTTLE: f64 = 0.99;

#[derive(Debug, Clone, PartialEq)]
pub struct Transfer {
    pub terms: Terms,
    pub started: Timestamp,
    pub mode: Mode,
    pub rounds: u32,
    /// Left to copy in this round.
    pub remaining: f64,
    /// To be copied again in the next.
    pub dirtied: f64,
    pub sent: f64,
    pub throttle: f64,
    /// How long the guest stood still at the end.
    pub downtime: f64,
    pub outcome: Option<Outcome>,
    at: Timestamp,
    last_copy: bool,
    low_water: f64,
    progressed: Timestamp,
    fast_rounds: u32,
    round_size: f64,
    limit: Option<f64>,
}

impl Transfer {
    pub fn begin(terms: Terms, now: Timestamp) -> Self {
        let memory = terms.memory.max(1.0);
        Self {
            started: now,
            mode: Mode::PreCopy,
            rounds: 1,
            remaining: memory,
            dirtied: 0.0,
            sent: 0.0,
            throttle: 0.0,
            downtime: 0.0,
            outcome: None,
            at: now,
            last_copy: false,
            low_water: memory,
            progressed: now,
            fast_rounds: 0,
            round_size: memory,
            limit: terms.completion_limit,
            terms,
        }
    }

    pub fn active(&self) -> bool {
        self.outcome.is_none()
    }

    /// Takes a share of the network of its two nodes.
    pub fn uses_network(&self) -> bool {
        self.active() && self.terms.fixed.is_none()
    }

    /// Bytes per second when the network would give `share`.
    pub fn rate(&self, share: f64) -> f64 {
        match self.terms.fixed {
            Some(seconds) => self.terms.memory.max(1.0) / seconds.max(1e-3),
            None => self.terms.bandwidth.map_or(share, |own| own.min(share)),
        }
    }

    /// Bytes per second that the guest changes and that have to be copied again.
    pub fn dirty_rate(&self) -> f64 {
        if self.last_copy || self.mode != Mode::PreCopy || self.terms.fixed.is_some() {
            0.0
        } else {
            self.terms.dirty_rate * (1.0 - self.throttle)
        }
    }

    /// Lets the copying go on until `now` at `rate`.
    pub fn run(&mut self, now: Timestamp, rate: f64) {
        let seconds = seconds_between(self.at, now);
        if !self.active() || seconds <= 0.0 {
            return;
        }
        let sent = (rate * seconds).min(self.remaining);
        self.remaining -= sent;
        self.sent += sent;
        self.dirtied = (self.dirtied + self.dirty_rate() * seconds).min(self.terms.memory);
        self.at = now;
        let left = self.remaining + self.dirtied;
        if left < self.low_water - 1.0 {
            self.low_water = left;
            self.progressed = now;
        }
    }

    /// When something happens next, if the rate stays.
    pub fn next(&self, rate: f64) -> Option<Timestamp> {
        if !self.active() {
            return None;
        }
        let round = (rate > 0.0).then(|| after(self.at, self.remaining / rate));
        let watched = self.mode != Mode::PostCopy && !self.last_copy;
        let limit = self.limit.filter(|_| watched).map(|s| after(self.started, s));
        let stall = self.terms.stall_limit.filter(|_| watched).map(|s| after(self.progressed, s));
        [round, limit, stall].into_iter().flatten().min().map(|t| t.max(self.at))
    }

    /// Does what is due at `now`, to which the transfer has been run.
    pub fn step(&mut self, now: Timestamp, rate: f64) -> Step {
        if !self.active() {
            return Step::Nothing;
        }
        // Times have nanoseconds: a few bytes may be left over by rounding.
        let crumbs = (rate * 4e-9).max(64.0);
        if self.remaining <= crumbs {
            return self.end_round(rate, crumbs);
        }
        if self.mode == Mode::PostCopy || self.last_copy {
            return Step::Nothing;
        }
        let elapsed = seconds_between(self.started, now);
        let late = self.limit.is_some_and(|limit| elapsed >= limit);
        if late && self.terms.may_disrupt && self.mode == Mode::PreCopy {
            self.remaining += self.dirtied;
            self.dirtied = 0.0;
            if self.terms.post_copy {
                self.mode = Mode::PostCopy;
                return Step::Moves;
            }
            self.mode = Mode::Paused;
            self.limit = self.limit.map(|limit| limit * 2.0);
            return Step::Nothing;
        }
        let silent = seconds_between(self.progressed, now);
        if self.terms.stall_limit.is_some_and(|limit| silent >= limit) {
            self.outcome = Some(Outcome::Stuck(silent as i64));
        } else if late {
            self.outcome = Some(Outcome::TooLong(self.limit.unwrap_or_default() as i64));
        }
        Step::Nothing
    }

    fn end_round(&mut self, rate: f64, crumbs: f64) -> Step {
        if self.mode == Mode::PostCopy {
            self.outcome = Some(Outcome::Done);
            return Step::Nothing;
        }
        let last = self.last_copy || self.mode == Mode::Paused;
        let fits = self.dirtied <= (rate * self.terms.max_downtime).max(crumbs);
        if !last && fits {
            if let Some(reason) = self.terms.fails.clone() {
                self.outcome = Some(Outcome::Failed(reason));
                return Step::Nothing;
            }
            self.last_copy = true;
            self.remaining = self.dirtied;
            self.dirtied = 0.0;
            self.downtime = self.remaining / rate;
            if self.remaining > crumbs {
                return Step::Nothing;
            }
        } else if !last {
            self.next_round();
            return Step::Nothing;
        } else if let Some(reason) = self.terms.fails.clone() {
            self.outcome = Some(Outcome::Failed(reason));
            return Step::Nothing;
        }
        self.outcome = Some(Outcome::Done);
        Step::Moves
    }

    fn next_round(&mut self) {
        // Half of what was sent is dirty again: copying does not get ahead of the guest.
        let fast = self.dirtied > self.round_size / 2.0;
        self.fast_rounds = if fast { self.fast_rounds + 1 } else { 0 };
        if self.terms.auto_converge && self.fast_rounds >= 2 {
            let next = if self.throttle > 0.0 { self.throttle + MORE_THROTTLE } else { FIRST_THROTTLE };
            self.throttle = next.min(MOST_THROTTLE);
        }
        self.rounds += 1;
        self.round_size = self.dirtied;
        self.remaining = self.dirtied;
        self.dirtied = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::at;

    const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

    /// Runs alone on a link; answers seconds taken.
    fn alone(terms: Terms, bandwidth: f64) -> (Transfer, f64) {
        let mut transfer = Transfer::begin(terms, at(0));
        let rate = transfer.rate(bandwidth);
        for _ in 0..10_000 {
            let Some(next) = transfer.next(rate) else { break };
            transfer.run(next, rate);
            transfer.step(next, rate);
        }
        let took = seconds_between(at(0), transfer.at);
        (transfer, took)
    }

    #[test]
    fn durations_follow_the_closed_form() {
        for (memory, dirty, bandwidth, expected) in [
            (8.0, 50.0 / 1024.0, 1.16, 7.2),
            (64.0, 0.2, 1.16, 66.6),
            (64.0, 0.2, 2.9, 23.7),
            (64.0, 0.9, 1.16, 245.0),
        ] {
            let terms = Terms { memory: memory * GIB, dirty_rate: dirty * GIB, ..Terms::default() };
            let (transfer, took) = alone(terms, bandwidth * GIB);
            assert_eq!(transfer.outcome, Some(Outcome::Done));
            assert!((took - expected).abs() / expected < 0.01, "{memory} GiB: {took} s, not {expected}");
            assert!(transfer.downtime <= 0.3);
        }
    }

    #[test]
    fn a_busy_large_guest_needs_the_rounds_of_the_formula() {
        let terms = Terms { memory: 64.0 * GIB, dirty_rate: 0.9 * GIB, ..Terms::default() };
        let (transfer, _) = alone(terms, 1.16 * GIB);
        // ln(B·T/M)/ln ρ = 20.5: 21 rounds, and the last copy while the guest stands still.
        assert_eq!(transfer.rounds, 21);
    }

    fn too_busy() -> Terms {
        Terms { memory: 4.0 * GIB, dirty_rate: 2.0 * GIB, ..Terms::default() }
    }

    #[test]
    fn a_guest_that_writes_faster_than_the_network_is_stuck_and_given_up() {
        let terms = Terms { stall_limit: Some(150.0), completion_limit: Some(750.0), ..too_busy() };
        let (transfer, took) = alone(terms, GIB);
        assert_eq!(transfer.outcome, Some(Outcome::Stuck(150)));
        assert!((took - 150.0).abs() < 0.001);
        let terms = Terms { completion_limit: Some(100.0), ..too_busy() };
        assert_eq!(alone(terms, GIB).0.outcome, Some(Outcome::TooLong(100)));
    }

    #[test]
    fn auto_converge_slows_the_guest_until_it_can_be_copied() {
        let (transfer, took) = alone(Terms { auto_converge: true, ..too_busy() }, GIB);
        assert_eq!(transfer.outcome, Some(Outcome::Done));
        assert!(transfer.throttle > 0.5, "{}", transfer.throttle);
        assert!(took < 120.0, "{took}");
    }

    #[test]
    fn when_time_is_up_post_copy_moves_first_and_copies_then() {
        let mut transfer = Transfer::begin(
            Terms { post_copy: true, may_disrupt: true, completion_limit: Some(10.0), ..too_busy() },
            at(0),
        );
        let mut moved = None;
        while let Some(next) = transfer.next(GIB) {
            transfer.run(next, GIB);
            if transfer.step(next, GIB) == Step::Moves {
                moved = Some(next);
            }
        }
        assert_eq!(moved, Some(at(10)));
        assert_eq!(transfer.mode, Mode::PostCopy);
        assert_eq!(transfer.outcome, Some(Outcome::Done));
        assert!(seconds_between(at(10), transfer.at) <= 8.0);
    }

    #[test]
    fn without_post_copy_a_disruption_pauses_the_guest_and_then_it_ends() {
        let terms = Terms { may_disrupt: true, completion_limit: Some(10.0), ..too_busy() };
        let (transfer, took) = alone(terms, GIB);
        assert_eq!((transfer.mode, transfer.outcome.clone()), (Mode::Paused, Some(Outcome::Done)));
        assert!(took <= 18.0, "{took}");
    }

    #[test]
    fn a_fixed_duration_is_kept_and_a_failure_comes_at_its_end() {
        let (transfer, took) = alone(Terms { fixed: Some(12.0), ..too_busy() }, 1.0);
        assert_eq!(transfer.outcome, Some(Outcome::Done));
        assert!((took - 12.0).abs() < 0.001);
        let (transfer, _) = alone(Terms { fails: Some("torn".into()), ..Terms::default() }, GIB);
        assert_eq!(transfer.outcome, Some(Outcome::Failed("torn".into())));
    }
}
