//! The one source of time.
//!
//! A [`Clock`] maps the runtime's monotonic time onto calendar time, so that in a paused tokio runtime
//! timestamps and sleeps move together and a simulated hour passes as fast as the work in it allows.
//! With a speed other than 1 (the sandbox's `--speed`) calendar time runs faster than the wall, and
//! sleeping for a calendar duration takes proportionally less wall time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Calendar time on top of the runtime's time. Cheap to copy; all copies agree.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    epoch: Timestamp,
    started: Instant,
    speed: f64,
}

impl Clock {
    /// The machine's time, running at its own pace.
    ///
    /// Needs a tokio runtime, because the pace is the runtime's.
    pub fn real() -> Self {
        Self::real_at_speed(1.0)
    }

    /// Starts at the machine's time and runs `speed` times as fast.
    #[allow(clippy::disallowed_methods, reason = "this is the place where time enters the program")]
    pub fn real_at_speed(speed: f64) -> Self {
        Self { epoch: Timestamp::now(), started: Instant::now(), speed }
    }

    /// Starts at a fixed instant: two simulated runs with the same start give the same timestamps.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, started: Instant::now(), speed: 1.0 }
    }

    pub fn now(&self) -> Timestamp {
        let passed = self.started.elapsed().mul_f64(self.speed);
        self.epoch
            .checked_add(SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX))
            .unwrap_or(Timestamp::MAX)
    }

    /// How long a calendar duration takes in runtime time.
    pub fn wall(&self, calendar: Duration) -> Duration {
        if self.speed > 0.0 { calendar.div_f64(self.speed) } else { calendar }
    }

    /// Waits for a calendar duration.
    pub async fn sleep(&self, calendar: Duration) {
        tokio::time::sleep(self.wall(calendar)).await;
    }

    /// Waits until a calendar instant; returns at once if it has passed.
    pub async fn sleep_until(&self, at: Timestamp) {
        if let Ok(left) = Duration::try_from(at.duration_since(self.now())) {
            self.sleep(left).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn timestamps_and_sleeps_move_together_in_a_paused_runtime() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::starting_at(start);
        clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock.now().to_string(), "2026-01-01T01:00:00Z");
    }

    #[tokio::test(start_paused = true)]
    async fn a_faster_clock_sleeps_less_wall_time() {
        let clock = Clock { epoch: Timestamp::UNIX_EPOCH, started: Instant::now(), speed: 10.0 };
        let wall = Instant::now();
        clock.sleep(Duration::from_secs(100)).await;
        assert_eq!(wall.elapsed(), Duration::from_secs(10));
        assert_eq!(clock.now(), "1970-01-01T00:01:40Z".parse().unwrap());
    }
}
