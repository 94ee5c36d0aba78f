//! When a node will be empty, as it was told last, and in words.

use evac_core::drain::explain::span;
use jiff::Timestamp;

/// How long it takes until a node is empty, in seconds, as it was told at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    pub at: Timestamp,
    /// Missing where only a limit is known, or nothing.
    pub at_least: Option<u64>,
    pub at_most: Option<u64>,
}

impl Told {
    /// Of two nodes, the one that takes longer; nothing is known if nothing is known of one.
    pub fn later(self, other: Self, now: Timestamp) -> Self {
        let (one, another) = (self.at(now), other.at(now));
        let at_most = one.at_most.zip(another.at_most).map(|(one, another)| one.max(another));
        let at_least =
            one.at_least.max(another.at_least).filter(|least| at_most.is_some_and(|most| *least <= most));
        Self { at: now, at_least, at_most }
    }

    /// What is left of it later.
    pub fn at(self, now: Timestamp) -> Self {
        let passed = u64::try_from(now.duration_since(self.at).as_secs()).unwrap_or(0);
        let left = |seconds: Option<u64>| seconds.map(|seconds| seconds.saturating_sub(passed));
        Self { at: now, at_least: left(self.at_least), at_most: left(self.at_most) }
    }
}

pub fn time_left(told: Option<Told>) -> String {
    match told.map(|told| (told.at_least, told.at_most)) {
        Some((Some(least), Some(most))) => range(least, most),
        Some((None, Some(most))) => format!("at most {} left", words(most.max(1))),
        _ => "time left unknown".into(),
    }
}

fn range(best: u64, worst: u64) -> String {
    if worst < 4 {
        return "a few seconds left".into();
    }
    if best == 0 {
        format!("at most {} left", words(worst))
    } else {
        format!("{} to {} left", words(best), words(worst))
    }
}

fn words(seconds: u64) -> String {
    span(i64::try_from(seconds).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(at_least: Option<u64>, at_most: Option<u64>) -> Told {
        Told { at: at(0), at_least, at_most }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn the_time_left_is_a_range_a_limit_or_unknown() {
        let shown = |least, most| time_left(Some(told(least, most)));
        assert_eq!(shown(Some(20), Some(100)), "20s to 1m40s left");
        assert_eq!(shown(Some(1), Some(3)), "a few seconds left");
        assert_eq!(shown(Some(0), Some(30)), "at most 30s left");
        assert_eq!(shown(None, Some(30)), "at most 30s left");
        assert_eq!(shown(None, None), "time left unknown");
        assert_eq!(time_left(None), "time left unknown", "nothing was told yet");
    }

    #[test]
    fn what_was_told_counts_down_until_it_is_told_anew() {
        let told = told(Some(20), Some(40));
        assert_eq!(time_left(Some(told.at(at(15)))), "5s to 25s left");
        assert_eq!(time_left(Some(told.at(at(60)))), "a few seconds left");
    }

    #[test]
    fn all_nodes_take_as_long_as_the_last_and_one_that_is_unknown_makes_all_unknown() {
        let both = told(Some(20), Some(40)).later(told(Some(10), Some(50)), at(0));
        assert_eq!(both, told(Some(20), Some(50)));
        assert_eq!(both.later(told(None, None), at(0)), told(None, None));
        let limit = told(None, Some(90));
        assert_eq!(both.later(limit, at(0)), told(Some(20), Some(90)));
        let earlier = Told { at: at(-10), ..told(Some(40), Some(60)) };
        assert_eq!(both.later(earlier, at(0)), told(Some(30), Some(50)), "told ten seconds ago");
    }
}
