//! Several places, and a line of guests or pods that wait for one: slots of migrations, or what a disruption budget allows.
//!
//! ```text
//!  place 1  ███ gone ─ pause ─▶ ██████ gone ─ pause ─▶ …
//!  place 2  ███████ gone ─ pause ─▶ ████ gone …            the next in line takes the place that is free first
//! ```

use super::stretch::Stretch;

/// What a guest or a pod needs a place for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stay {
    /// Until it is gone from the node.
    pub gone: Stretch,
    /// Until the next one can have its place: with a budget that is when a replacement is ready, with migrations when the next has begun.
    pub free: Stretch,
}

/// When all of a lane are gone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Seconds until then, as the lower end of the range; never negative.
    pub at_least: f64,
    /// Seconds until then, as the upper end, with the final look at the node.
    pub at_most: f64,
}

/// How many deviations a range has on either side, so that it holds nine times of ten; found with drains of many shapes (`evac-bench outlook`).
const DEVIATIONS: f64 = 1.4;
/// The final look at the node.
const LATER: f64 = 0.3;

/// How much later the last of several is, in deviations of one, for each that the largest of many random numbers is off.
const LAST_OF_MANY: f64 = 0.4;

impl Range {
    /// The range that is meant to hold nine times of ten for a time that is known so well.
    pub fn around(stretch: Stretch) -> Self {
        let deviation = stretch.deviation() * DEVIATIONS;
        Self { at_least: (stretch.mean - deviation).max(0.0), at_most: stretch.mean + deviation + LATER }
    }

    /// When both are gone.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        Self { at_least: self.at_least.max(other.at_least), at_most: self.at_most.max(other.at_most) }
    }
}

/// Gives each a place in turn. Those in `inside` have one now; those in `waiting` come in their order.
pub fn run(inside: &[Stay], waiting: &[Stay], places: usize) -> Option<Range> {
    let mut free: Vec<Stretch> = inside.iter().map(|stay| stay.free).collect();
    // More may be inside than there are places now: settings change.
    free.resize(places.max(inside.len()).max(1), Stretch::default());
    let mut gone: Vec<Stretch> = inside.iter().map(|stay| stay.gone).collect();
    for stay in waiting {
        let Some(first) = free.iter_mut().min_by(|a, b| a.mean.total_cmp(&b.mean)) else { break };
        gone.push(first.then(stay.gone));
        *first = first.then(stay.free);
    }
    // The last of several that end at about the same time is later than any one of them is expected to be.
    let ends = inside.len().max(places).min(gone.len()).max(1) as f64;
    let later = LAST_OF_MANY * (2.0 * ends.ln()).sqrt();
    gone.into_iter()
        .map(|one| Range::around(Stretch { mean: one.mean + later * one.variance.sqrt(), ..one }))
        .reduce(Range::joined)
}
