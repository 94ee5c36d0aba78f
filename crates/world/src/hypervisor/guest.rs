//! One guest as a function of time: it starts, boots, hears (or ignores) the power button, crashes, stops.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::objects::after;

/// How a guest behaves; numbers in seconds and bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// From the order to start until the processor of the guest runs.
    pub start: f64,
    /// From there until the system inside is up: it has an agent, and hears the power button.
    pub boot: f64,
    /// How long the system inside takes to shut down.
    pub shutdown: f64,
    /// The machine has a power button at all.
    pub acpi: bool,
    pub ignores_acpi: bool,
    /// From the order to start until the guest crashes.
    pub crash_after: Option<f64>,
    /// From the order to start until the system inside switches itself off.
    pub power_off_after: Option<f64>,
    pub starts_paused: bool,
    pub memory: f64,
    pub vcpus: u32,
    /// Bytes of memory that become dirty per second.
    pub dirty_rate: f64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            start: 0.5,
            boot: 5.0,
            shutdown: 3.0,
            acpi: true,
            ignores_acpi: false,
            crash_after: None,
            power_off_after: None,
            starts_paused: false,
            memory: 1024.0 * 1024.0 * 1024.0,
            vcpus: 1,
            dirty_rate: 50.0 * 1024.0 * 1024.0,
        }
    }
}

/// Why a guest no longer runs where it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The system inside shut down.
    PoweredOff,
    Crashed,
    /// It was asked, had its time, and was killed.
    Killed,
    /// It was ended without being asked, or has no way to be asked.
    Destroyed,
    /// It runs elsewhere now.
    Migrated,
    /// The process it ran in, or the machine under it, is gone.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Starting { until: Timestamp },
    Running,
    Paused,
    Off { at: Timestamp, how: End },
}

/// A request to stop, and how long the guest may take.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stop {
    asked: Timestamp,
    grace: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Guest {
    pub plan: Plan,
    pub state: State,
    pub started: Timestamp,
    stop: Option<Stop>,
    /// Migrations of this guest that were made to fail so far.
    pub failed_moves: BTreeSet<String>,
}

impl Guest {
    pub fn start(plan: Plan, now: Timestamp) -> Self {
        let until = after(now, plan.start);
        Self {
            plan,
            state: State::Starting { until },
            started: now,
            stop: None,
            failed_moves: BTreeSet::new(),
        }
    }

    /// A guest that was already up when its node agent came to know it.
    pub fn adopt(plan: Plan, since: Timestamp) -> Self {
        Self { plan, state: State::Running, started: since, stop: None, failed_moves: BTreeSet::new() }
    }

    pub fn on(&self) -> bool {
        !matches!(self.state, State::Off { .. })
    }

    pub fn booted_at(&self) -> Timestamp {
        after(self.started, self.plan.start + self.plan.boot)
    }

    pub fn asked_to_stop(&self) -> bool {
        self.stop.is_some()
    }

    /// Presses the power button. A later, shorter grace counts from the first press.
    pub fn shut_down(&mut self, grace: f64, now: Timestamp) {
        match &mut self.stop {
            Some(stop) => stop.grace = grace,
            None => self.stop = Some(Stop { asked: now, grace }),
        }
    }

    pub fn end(&mut self, how: End, at: Timestamp) {
        if self.on() {
            self.state = State::Off { at, how };
        }
    }

    pub fn pause(&mut self) {
        if self.state == State::Running {
            self.state = State::Paused;
        }
    }

    pub fn resume(&mut self) {
        if self.state == State::Paused {
            self.state = State::Running;
        }
    }

    /// What happens next by itself, and when.
    pub fn next(&self) -> Option<(Timestamp, State)> {
        let mut next: Option<(Timestamp, State)> = None;
        let mut consider = |at: Timestamp, state: State| {
            if next.is_none_or(|(first, _)| at < first) {
                next = Some((at, state));
            }
        };
        match self.state {
            State::Off { .. } => return None,
            State::Starting { until } => {
                consider(until, if self.plan.starts_paused { State::Paused } else { State::Running });
            }
            State::Running | State::Paused => {}
        }
        if let Some(seconds) = self.plan.crash_after {
            let at = after(self.started, seconds);
            consider(at, State::Off { at, how: End::Crashed });
        }
        if let Some(seconds) = self.plan.power_off_after {
            let at = after(self.started, seconds);
            consider(at, State::Off { at, how: End::PoweredOff });
        }
        if let Some(stop) = self.stop {
            let hears = self.plan.acpi && !self.plan.ignores_acpi && self.state != State::Paused;
            let off = after(stop.asked.max(self.booted_at()), self.plan.shutdown);
            let killed = after(stop.asked, stop.grace);
            // One who gets no time, or cannot be asked, is not at fault for not having stopped.
            if !self.plan.acpi || stop.grace <= 0.0 {
                let at = if self.plan.acpi { killed } else { stop.asked };
                consider(at, State::Off { at, how: End::Destroyed });
            } else if hears && off <= killed {
                consider(off, State::Off { at: off, how: End::PoweredOff });
            } else {
                consider(killed, State::Off { at: killed, how: End::Killed });
            }
        }
        next
    }

    /// Lets everything happen that is due by `now`.
    pub fn advance(&mut self, now: Timestamp) {
        while let Some((at, state)) = self.next() {
            if at > now {
                return;
            }
            self.state = state;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::at;

    fn running(plan: Plan) -> Guest {
        let mut guest = Guest::start(plan, at(0));
        guest.advance(at(10));
        assert_eq!(guest.state, State::Running);
        guest
    }

    #[test]
    fn a_guest_that_hears_the_button_powers_off_within_its_grace() {
        let mut guest = running(Plan::default());
        guest.shut_down(30.0, at(20));
        guest.advance(at(60));
        assert_eq!(guest.state, State::Off { at: at(23), how: End::PoweredOff });
    }

    #[test]
    fn a_guest_that_ignores_the_button_or_is_too_slow_is_killed_at_the_end_of_its_grace() {
        for plan in
            [Plan { ignores_acpi: true, ..Plan::default() }, Plan { shutdown: 31.0, ..Plan::default() }]
        {
            let mut guest = running(plan);
            guest.shut_down(30.0, at(20));
            guest.advance(at(49));
            assert!(guest.on());
            guest.advance(at(50));
            assert_eq!(guest.state, State::Off { at: at(50), how: End::Killed });
        }
    }

    #[test]
    fn without_a_button_or_without_grace_it_is_destroyed_at_once() {
        let mut guest = running(Plan { acpi: false, ..Plan::default() });
        guest.shut_down(30.0, at(20));
        guest.advance(at(20));
        assert_eq!(guest.state, State::Off { at: at(20), how: End::Destroyed });
        let mut guest = running(Plan::default());
        guest.shut_down(0.0, at(20));
        guest.advance(at(20));
        assert_eq!(guest.state, State::Off { at: at(20), how: End::Destroyed });
    }

    #[test]
    fn a_booting_guest_hears_the_button_only_when_it_is_up() {
        let mut guest = Guest::start(Plan { start: 0.0, boot: 10.0, ..Plan::default() }, at(0));
        guest.shut_down(30.0, at(1));
        guest.advance(at(30));
        assert_eq!(guest.state, State::Off { at: at(13), how: End::PoweredOff });
    }

    #[test]
    fn a_paused_guest_does_not_hear_the_button() {
        let mut guest = running(Plan::default());
        guest.pause();
        guest.shut_down(30.0, at(20));
        guest.advance(at(60));
        assert_eq!(guest.state, State::Off { at: at(50), how: End::Killed });
    }

    #[test]
    fn a_grace_that_is_cut_short_ends_the_guest_earlier() {
        let mut guest = running(Plan { ignores_acpi: true, ..Plan::default() });
        guest.shut_down(300.0, at(20));
        guest.shut_down(5.0, at(22));
        guest.advance(at(25));
        assert_eq!(guest.state, State::Off { at: at(25), how: End::Killed });
    }

    #[test]
    fn crashes_and_own_shutdowns_come_at_their_time_and_may_come_before_the_start() {
        let mut guest = Guest::start(Plan { crash_after: Some(0.0), ..Plan::default() }, at(0));
        guest.advance(at(0));
        assert_eq!(guest.state, State::Off { at: at(0), how: End::Crashed });
        let mut guest = running(Plan { power_off_after: Some(60.0), ..Plan::default() });
        guest.advance(at(100));
        assert_eq!(guest.state, State::Off { at: at(60), how: End::PoweredOff });
    }
}
