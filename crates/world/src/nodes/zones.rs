//! How fast nodes of a zone may be emptied: the more of a zone is down, the more likely it is us who are cut off.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

pub const NORMAL_RATE: f64 = 0.1;
pub const SECONDARY_RATE: f64 = 0.01;
const UNHEALTHY_SHARE: f64 = 0.55;
const LARGE_ZONE: usize = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneState {
    Normal,
    Partial,
    Full,
}

pub fn zone_state(ready: usize, not_ready: usize) -> ZoneState {
    if ready == 0 && not_ready > 0 {
        ZoneState::Full
    } else if not_ready > 2 && not_ready as f64 / (ready + not_ready) as f64 >= UNHEALTHY_SHARE {
        ZoneState::Partial
    } else {
        ZoneState::Normal
    }
}

/// Nodes per second that may get an evicting taint.
pub fn rate(state: ZoneState, size: usize) -> f64 {
    match state {
        // A zone that is down as a whole, while others are not, is emptied as usual.
        ZoneState::Normal | ZoneState::Full => NORMAL_RATE,
        ZoneState::Partial if size > LARGE_ZONE => SECONDARY_RATE,
        ZoneState::Partial => 0.0,
    }
}

/// Nodes of one zone that wait for their taint.
#[derive(Debug, Default)]
pub struct Line {
    waiting: VecDeque<String>,
    last: Option<Timestamp>,
    rate: f64,
}

impl Line {
    pub fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }

    pub fn join(&mut self, node: &str) {
        if !self.waiting.iter().any(|n| n == node) {
            self.waiting.push_back(node.to_owned());
        }
    }

    pub fn leave(&mut self, node: &str) {
        self.waiting.retain(|n| n != node);
    }

    /// When the next node may be taken; `None` when none waits or none may go.
    pub fn next_at(&self, now: Timestamp) -> Option<Timestamp> {
        if self.waiting.is_empty() || self.rate <= 0.0 {
            return None;
        }
        let pause = SignedDuration::from_millis((1000.0 / self.rate) as i64);
        Some(self.last.and_then(|at| at.checked_add(pause).ok()).unwrap_or(now))
    }

    pub fn take(&mut self, now: Timestamp) -> Option<String> {
        if self.next_at(now)? > now {
            return None;
        }
        self.last = Some(now);
        self.waiting.pop_front()
    }
}

pub type Lines = BTreeMap<String, Line>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::at;

    #[test]
    fn a_zone_is_partly_down_from_three_nodes_and_55_percent() {
        assert_eq!(zone_state(2, 2), ZoneState::Normal);
        assert_eq!(zone_state(3, 3), ZoneState::Normal);
        assert_eq!(zone_state(2, 3), ZoneState::Partial);
        assert_eq!(zone_state(0, 1), ZoneState::Full);
        assert_eq!(zone_state(0, 0), ZoneState::Normal);
    }

    #[test]
    fn a_small_zone_that_is_partly_down_is_not_emptied_at_all() {
        assert!(rate(ZoneState::Partial, 50).abs() < f64::EPSILON);
        assert!((rate(ZoneState::Partial, 51) - SECONDARY_RATE).abs() < f64::EPSILON);
    }

    #[test]
    fn nodes_leave_the_line_one_in_ten_seconds() {
        let mut line = Line::default();
        line.set_rate(NORMAL_RATE);
        line.join("a");
        line.join("b");
        assert_eq!(line.take(at(0)).as_deref(), Some("a"));
        assert_eq!(line.take(at(5)), None);
        assert_eq!(line.next_at(at(5)), Some(at(10)));
        assert_eq!(line.take(at(10)).as_deref(), Some("b"));
    }
}
