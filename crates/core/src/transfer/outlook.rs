//! When the guests of a node will have moved, as a range, from what was measured in this drain. Nothing was measured: nothing is said.
//!
//! The lower end takes the fastest pace seen and guests that share out the places evenly; the upper end the slowest, halved, and the
//! unluckiest order. Pauses after failed migrations are not in it.

use std::time::Duration;

use super::Sample;

/// Finished migrations from which on the slowest of them is believed to be as slow as it gets.
const ENOUGH: usize = 3;

/// A guest that is still on the node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Staying {
    /// Its memory in bytes; 0 if that is not known.
    pub memory: u64,
    /// For how long its migration has been under way, in seconds.
    pub under_way: Option<f64>,
    pub copied: Option<Sample>,
}

/// A guest that has moved in this drain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moved {
    pub memory: u64,
    pub seconds: f64,
}

/// How long the guests of a node still take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    pub at_least: Duration,
    /// Missing while a guest changes its memory faster than it can be copied.
    pub at_most: Option<Duration>,
}

/// Seconds, from the fastest to the slowest; without an end where there is none in sight.
#[derive(Debug, Clone, Copy)]
struct Range {
    best: f64,
    worst: f64,
}

impl Range {
    fn times(self, factor: f64) -> Self {
        Self { best: self.best * factor, worst: self.worst * factor }
    }

    fn joined(self, other: Self) -> Self {
        Self { best: self.best.min(other.best), worst: self.worst.max(other.worst) }
    }
}

/// `places` says how many can be on their way at the same time.
pub fn outlook(staying: &[Staying], moved: &[Moved], places: usize) -> Option<Outlook> {
    if staying.is_empty() {
        return None;
    }
    let pace = Pace::of(staying, moved);
    let spans: Vec<Range> = staying.iter().map(|guest| pace.left(guest)).collect::<Option<_>>()?;
    let places = places.clamp(1, spans.len()) as f64;
    let sum = |of: fn(&Range) -> f64| spans.iter().map(of).sum::<f64>() / places;
    let longest = |of: fn(&Range) -> f64| spans.iter().map(of).fold(0.0, f64::max);
    let best = sum(|span| span.best).max(longest(|span| span.best));
    let worst = sum(|span| span.worst) + longest(|span| span.worst) * (1.0 - 1.0 / places);
    Some(Outlook {
        at_least: Duration::try_from_secs_f64(best).ok()?,
        at_most: Duration::try_from_secs_f64(worst).ok(),
    })
}

/// How fast guests have moved so far.
struct Pace {
    /// Seconds for each byte of memory.
    by_memory: Option<Range>,
    /// Seconds for a guest of which the memory is not known.
    by_guest: Option<Range>,
}

impl Pace {
    fn of(staying: &[Staying], moved: &[Moved]) -> Self {
        let doubt = if moved.len() < ENOUGH { 2.0 } else { 1.0 };
        let exactly = |seconds: f64| Range { best: seconds, worst: seconds * doubt };
        let finished = moved.iter().filter(|one| one.memory > 0);
        let finished = finished.map(|one| exactly(one.seconds / one.memory as f64));
        let copying = staying.iter().filter_map(|guest| seconds_per_byte(&guest.copied?));
        let by_memory = finished.chain(copying.filter(|range| range.worst.is_finite()));
        Self {
            by_memory: by_memory.reduce(Range::joined),
            by_guest: moved.iter().map(|one| exactly(one.seconds)).reduce(Range::joined),
        }
    }

    fn left(&self, guest: &Staying) -> Option<Range> {
        if let Some(sample) = &guest.copied
            && let Some(range) = seconds_per_byte(sample)
        {
            return Some(range.times(sample.remaining as f64));
        }
        let whole = match self.by_memory {
            Some(range) if guest.memory > 0 => range.times(guest.memory as f64),
            _ => self.by_guest?,
        };
        Some(Range { best: (whole.best - guest.under_way.unwrap_or(0.0)).max(0.0), ..whole })
    }
}

/// From as fast as now to half as fast, with what the guest changes meanwhile to be copied again.
fn seconds_per_byte(sample: &Sample) -> Option<Range> {
    let rate = sample.rate.filter(|rate| *rate > 0)?;
    let ahead = rate.saturating_sub(sample.dirty_rate.unwrap_or(0));
    let worst = if ahead == 0 { f64::INFINITY } else { 2.0 / ahead as f64 };
    Some(Range { best: 1.0 / rate as f64, worst })
}
