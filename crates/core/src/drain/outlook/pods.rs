//! How long pods take that are evicted: those that are stopping, and the line behind each disruption budget.

use super::Unknown;
use super::lane::{self, Range, Stay};
use super::stretch::{Pace, Stretch};

/// A pod that is asked to leave and that no budget holds back.
#[derive(Debug, Clone, PartialEq)]
pub struct Stopping {
    /// For how long, in seconds; 0 if it is about to be asked.
    pub since: f64,
    /// When its grace period ends, in seconds from now.
    pub deadline: Option<f64>,
    /// How long pods of its kind took that have left, in seconds.
    pub others: Vec<f64>,
}

/// The pods of one budget.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Budgeted {
    /// How many may be away at once.
    pub places: usize,
    /// When evictions were granted in this drain, in seconds before now, the first one first.
    pub granted: Vec<f64>,
    /// How long its pods took to stop.
    pub stops: Vec<f64>,
    /// Pods of it on this node that were not granted their eviction yet.
    pub waiting: usize,
}

/// The end of a grace period is not the end of a pod: it is killed then, and its kubelet says so a moment later.
const AFTER_THE_END: f64 = 2.0;
/// No grant for so many times the usual, and so many seconds more.
const STALLED_TIMES: f64 = 2.0;
const STALLED_SECONDS: f64 = 5.0;

/// When pods are gone that no budget holds back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Gone {
    /// Pods of their kind have taken times that are alike.
    Within(Range),
    /// They differ, or none has left yet: only the end of their grace periods is known.
    AtMost(f64),
}

/// When the last of these pods is gone; none if there are none. An error where one is overdue, or has no grace period and no example.
pub fn stopping(pods: &[Stopping]) -> Result<Option<Gone>, Unknown> {
    let mut within: Option<Range> = None;
    let mut at_most: f64 = 0.0;
    for pod in pods {
        let limit = pod.deadline.map(|deadline| deadline + AFTER_THE_END);
        match (like_others(pod), limit) {
            (Some(range), _) => {
                let range = Range {
                    at_most: limit.map_or(range.at_most, |limit| limit.min(range.at_most).max(1.0)),
                    ..range
                };
                within = Some(within.map_or(range, |known| known.joined(range)));
            }
            (None, Some(limit)) if limit > 0.0 => at_most = at_most.max(limit),
            (None, Some(_)) => return Err(Unknown::Stalled),
            (None, None) => return Err(Unknown::NothingMeasured),
        }
    }
    Ok(match within {
        Some(range) if at_most <= range.at_most => Some(Gone::Within(range)),
        Some(range) => Some(Gone::AtMost(at_most.max(range.at_most))),
        None => (at_most > 0.0).then_some(Gone::AtMost(at_most)),
    })
}

/// By those of its kind that took longer than it has taken so far; none is like those that did not.
fn like_others(pod: &Stopping) -> Option<Range> {
    const ENOUGH: usize = 2;
    let longer: Vec<f64> = pod.others.iter().copied().filter(|took| *took + 0.5 > pod.since).collect();
    // One that outlasts most of its kind is not like them.
    if longer.len() < ENOUGH || longer.len() * 4 < pod.others.len() {
        return None;
    }
    let pace = Pace::of(&longer)?;
    let close = pace.deviation < 0.35 * pace.mean || pace.deviation < 1.0;
    close.then(|| Range::around(pace.one().after(pod.since)))
}

/// When the last pod of a budget will be gone: each eviction waits until a replacement of an earlier one is ready.
pub fn budgeted(lane: &Budgeted) -> Result<Option<Range>, Unknown> {
    if lane.waiting == 0 {
        return Ok(None);
    }
    let places = lane.places.max(1);
    let ago = &lane.granted;
    // From a grant to the one that took its place.
    let cycles: Vec<f64> =
        ago.iter().zip(ago.iter().skip(places)).map(|(first, next)| first - next).collect();
    let (Some(cycle), Some(stop)) = (Pace::of(&cycles), Pace::of(&lane.stops)) else {
        return Err(Unknown::NothingMeasured);
    };
    let last = ago.last().copied().unwrap_or(0.0);
    if last > STALLED_TIMES * cycle.mean + STALLED_SECONDS {
        return Err(Unknown::Stalled);
    }
    let inside: Vec<Stay> = ago[ago.len().saturating_sub(places)..]
        .iter()
        .map(|ago| Stay { gone: Stretch::default(), free: cycle.one().after(*ago) })
        .collect();
    let next = Stay { gone: stop.one(), free: cycle.one() };
    Ok(lane::run(&inside, &vec![next; lane.waiting], places))
}
