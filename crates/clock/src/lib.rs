//! The one source of time. It gives two readings.
//!
//! [`Clock::now`] is the steady time line: it begins at calendar time, advances with the runtime's monotonic time and never steps, whatever is
//! done to the system's clock. Everything that is measured goes by it: durations, alarms, leadership, silence, pauses between tries. In a
//! paused tokio runtime timestamps and sleeps move together on it, and a simulated hour passes as fast as the work in it allows.
//!
//! [`Clock::calendar`] is the time of day as the system has it at this moment. When an administrator or NTP steps the system's clock, this
//! follows, and the steady line does not. It is for what other programs and people read or have written: the times in leases, events, marks,
//! records and statuses, the validity of certificates, deadlines that are given as a time of day. Two readings of it do not measure anything.
//! [`Clock::on_calendar`] and [`Clock::steady`] lead from one line to the other.
//!
//! A simulated clock ([`Clock::starting_at`], or a speed other than 1 as with the sandbox's `--speed`) has one line: both readings are the
//! same. With such a speed time runs faster than the wall, and sleeping takes proportionally less wall time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The longest sleep towards a time of day after which the calendar is read again, because it may have been stepped.
const LOOK_AT_CALENDAR: Duration = Duration::from_secs(60);

/// A calendar that is off the steady line by less was not stepped.
const STEP: SignedDuration = SignedDuration::from_secs(2);

/// Time on top of the runtime's time. Cheap to copy; all copies agree.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    epoch: Timestamp,
    started: Instant,
    speed: f64,
    calendar: Calendar,
}

/// Where the time of day comes from.
#[derive(Debug, Clone, Copy)]
enum Calendar {
    /// From the steady line itself.
    Steady,
    /// From the system's clock, each time anew.
    System,
    /// So many seconds off the steady line: a system's clock that a test steps.
    Off(&'static AtomicI64),
}

/// The machine's time of day, for lines of a log that nothing is decided by.
#[allow(clippy::disallowed_methods, reason = "this is the place where time enters the program")]
pub fn time_of_day() -> Timestamp {
    Timestamp::now()
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
        let is_real = (speed - 1.0).abs() < f64::EPSILON;
        let calendar = if is_real { Calendar::System } else { Calendar::Steady };
        Self { epoch: Timestamp::now(), started: Instant::now(), speed, calendar }
    }

    /// Starts at a fixed instant: two simulated runs with the same start give the same timestamps.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, started: Instant::now(), speed: 1.0, calendar: Calendar::Steady }
    }

    /// The same clock on a machine whose time of day is so many seconds off. Tests step it by changing the number.
    #[must_use]
    pub fn stepped_by(self, seconds: &'static AtomicI64) -> Self {
        Self { calendar: Calendar::Off(seconds), ..self }
    }

    /// The steady time line, for everything that is measured.
    pub fn now(&self) -> Timestamp {
        let passed = self.started.elapsed().mul_f64(self.speed);
        self.epoch
            .checked_add(SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX))
            .unwrap_or(Timestamp::MAX)
    }

    /// The time of day, for what others read or have written.
    #[allow(clippy::disallowed_methods, reason = "this is the place where time enters the program")]
    pub fn calendar(&self) -> Timestamp {
        match self.calendar {
            Calendar::Steady => self.now(),
            Calendar::System => Timestamp::now(),
            Calendar::Off(seconds) => {
                plus(self.now(), SignedDuration::from_secs(seconds.load(Ordering::Relaxed)))
            }
        }
    }

    /// How far the calendar is ahead of the steady line, in whole seconds. What is less than [`STEP`] is how clocks usually differ and no step.
    pub fn ahead(&self) -> SignedDuration {
        let ahead = match self.calendar {
            Calendar::Steady => SignedDuration::ZERO,
            Calendar::System | Calendar::Off(_) => self.calendar().duration_since(self.now()),
        };
        if ahead.abs() < STEP { SignedDuration::ZERO } else { SignedDuration::from_secs(ahead.as_secs()) }
    }

    /// A time on the steady line as it is told to others.
    pub fn on_calendar(&self, steady: Timestamp) -> Timestamp {
        plus(steady, self.ahead())
    }

    /// A time of day on the steady line, as the calendar is at this moment.
    pub fn steady(&self, calendar: Timestamp) -> Timestamp {
        plus(calendar, -self.ahead())
    }

    /// How long a duration takes in runtime time.
    pub fn wall(&self, duration: Duration) -> Duration {
        if self.speed > 0.0 { duration.div_f64(self.speed) } else { duration }
    }

    /// Waits for a duration.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(self.wall(duration)).await;
    }

    /// Waits until an instant of the steady line; returns at once if it has passed.
    pub async fn sleep_until(&self, at: Timestamp) {
        if let Ok(left) = Duration::try_from(at.duration_since(self.now())) {
            self.sleep(left).await;
        }
    }

    /// Waits until a time of day, also if the calendar is stepped meanwhile; returns at once if it has passed.
    pub async fn sleep_until_calendar(&self, at: Timestamp) {
        if matches!(self.calendar, Calendar::Steady) || at == Timestamp::MAX {
            return self.sleep_until(at).await;
        }
        while let Ok(left) = Duration::try_from(at.duration_since(self.calendar()))
            && !left.is_zero()
        {
            self.sleep(left.min(LOOK_AT_CALENDAR)).await;
        }
    }
}

fn plus(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX })
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
        let clock = Clock {
            epoch: Timestamp::UNIX_EPOCH,
            started: Instant::now(),
            speed: 10.0,
            calendar: Calendar::Steady,
        };
        let wall = Instant::now();
        clock.sleep(Duration::from_secs(100)).await;
        assert_eq!(wall.elapsed(), Duration::from_secs(10));
        assert_eq!(clock.now(), "1970-01-01T00:01:40Z".parse().unwrap());
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// A clock, and the number of seconds by which its calendar is off.
    fn stepped() -> (Clock, &'static AtomicI64) {
        let seconds: &'static AtomicI64 = Box::leak(Box::default());
        (Clock::starting_at(at("2026-01-01T00:00:00Z")).stepped_by(seconds), seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_of_the_systems_clock_changes_the_calendar_and_neither_the_steady_line_nor_sleeps() {
        let (clock, seconds) = stepped();
        for (step, reads) in
            [(3600, "2026-01-01T01:00:10Z"), (-3600, "2025-12-31T23:00:20Z"), (0, "2026-01-01T00:00:30Z")]
        {
            seconds.store(step, Ordering::Relaxed);
            let (steady, wall) = (clock.now(), Instant::now());
            clock.sleep_until(steady + SignedDuration::from_secs(10)).await;
            assert_eq!(wall.elapsed(), Duration::from_secs(10));
            assert_eq!(clock.now().duration_since(steady), SignedDuration::from_secs(10));
            assert_eq!(clock.calendar(), at(reads));
            assert_eq!(clock.ahead(), SignedDuration::from_secs(step));
            assert_eq!(clock.on_calendar(clock.now()), clock.calendar());
            assert_eq!(clock.steady(clock.calendar()), clock.now());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_of_day_is_waited_for_through_steps_of_the_calendar() {
        let (clock, seconds) = stepped();
        let wall = Instant::now();
        let waiting = clock.sleep_until_calendar(at("2026-01-01T02:00:00Z"));
        let stepping = async {
            clock.sleep(Duration::from_secs(600)).await;
            seconds.store(3600, Ordering::Relaxed);
            clock.sleep(Duration::from_secs(600)).await;
            seconds.store(1800, Ordering::Relaxed);
        };
        tokio::join!(waiting, stepping);
        assert_eq!(clock.calendar(), at("2026-01-01T02:00:00Z"));
        assert_eq!(wall.elapsed(), Duration::from_secs(5400));
    }

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_has_one_line() {
        let clock = Clock::starting_at(at("2026-01-01T00:00:00Z"));
        clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(clock.calendar(), clock.now());
        assert_eq!(clock.ahead(), SignedDuration::ZERO);
    }
}
