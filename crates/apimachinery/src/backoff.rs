//! Exponential backoff: how long to wait after failures in a row.
//!
//! ```text
//!   1st failure   2nd        3rd        …   nth
//!   base          2 · base   4 · base       at most the cap
//! ```
//!
//! There is no jitter, so that the same run gives the same times. Who must not act together with others adds it.
//! [`Backoff`] is the rule; [`Retry`] counts the failures of one thing and knows until when it rests.

use std::time::Duration;

use jiff::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
}

impl Backoff {
    /// The pause after the first failure doubles with each further one in a row, up to the cap.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap }
    }

    /// The pause after a failure that had so many others right before it.
    pub fn pause(self, earlier: u32) -> Duration {
        self.base.saturating_mul(2_u32.saturating_pow(earlier)).min(self.cap)
    }

    /// When to try again after a failure that had so many others right before it.
    pub fn until(self, failed: Timestamp, earlier: u32) -> Timestamp {
        failed.checked_add(self.pause(earlier)).unwrap_or(Timestamp::MAX)
    }
}

/// The failures in a row of one thing, and until when it rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retry {
    failures: u32,
    not_before: Option<Timestamp>,
}

impl Retry {
    /// How often it failed in a row.
    pub const fn failures(self) -> u32 {
        self.failures
    }

    /// One more failure, with a pause that grows with each.
    pub fn failed(&mut self, backoff: Backoff, now: Timestamp) {
        self.failed_until(backoff.until(now, self.failures));
    }

    /// One more failure, with a time for the next try that does not follow from how many there were.
    pub fn failed_until(&mut self, at: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        self.rest_until(at);
    }

    /// A rest that is not for a failure: a server asked not to be called before that.
    pub fn rest_until(&mut self, at: Timestamp) {
        self.not_before = Some(at);
    }

    /// When it may be tried again; nothing if that is now.
    pub fn rests(self, now: Timestamp) -> Option<Timestamp> {
        self.not_before.filter(|at| *at > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_in_a_row_doubles_the_pause_up_to_the_cap() {
        let backoff = Backoff::new(Duration::from_secs(20), Duration::from_secs(320));
        let pauses: Vec<u64> = (0..7).map(|earlier| backoff.pause(earlier).as_secs()).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 320, 320]);
        assert_eq!(backoff.pause(u32::MAX).as_secs(), 320);
        let beyond = Backoff::new(Duration::from_millis(50), Duration::from_secs(200_000));
        assert_eq!(beyond.pause(21).as_millis(), 50 << 21, "no other limit than the cap");
    }

    #[test]
    fn the_next_try_is_counted_from_the_failure() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::MAX);
        let failed = Timestamp::from_second(100).unwrap();
        assert_eq!(backoff.until(failed, 3).as_second(), 108);
        assert_eq!(backoff.until(failed, u32::MAX), failed + Duration::from_secs(u32::MAX.into()));
        assert_eq!(Backoff::new(Duration::MAX, Duration::MAX).until(failed, 0), Timestamp::MAX);
    }

    #[test]
    fn a_retry_rests_longer_after_each_failure_and_a_rest_that_was_asked_for_is_no_failure() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(3));
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut retry = Retry::default();
        assert_eq!((retry.failures(), retry.rests(at(0))), (0, None));
        retry.failed(backoff, at(0));
        retry.failed(backoff, at(10));
        assert_eq!((retry.failures(), retry.rests(at(11)), retry.rests(at(12))), (2, Some(at(12)), None));
        retry.rest_until(at(20));
        assert_eq!((retry.failures(), retry.rests(at(12))), (2, Some(at(20))));
        retry.failed(backoff, at(20));
        assert_eq!((retry.failures(), retry.rests(at(20))), (3, Some(at(23))), "never longer than the cap");
        retry.failed_until(at(21));
        assert_eq!((retry.failures(), retry.rests(at(20))), (4, Some(at(21))));
    }
}
