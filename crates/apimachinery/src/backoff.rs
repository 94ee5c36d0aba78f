//! Exponential backoff: how long to wait after failures in a row.
//!
//! ```text
//!   1st failure   2nd        3rd        …   nth
//!   base          2 · base   4 · base       at most the cap
//! ```
//!
//! There is no jitter, so that the same run gives the same times. Who must not act together with others adds it.

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
}
