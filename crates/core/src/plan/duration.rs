//! How long it takes, as a range, and what that is based on.
//!
//! Moves that this cluster has seen are the measure where there are any: KubeVirt keeps on each instance when its last copy began and ended. Without them
//! the range is that of ordinary networks, and says so. The lanes are those of a drain under way ([`crate::drain::outlook`]).

use std::cell::RefCell;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use evac_apimachinery::quantity::Quantity;

use crate::cluster::index::Index;
use crate::cluster::settings::Config;
use crate::drain::assess::Fate;
use crate::drain::forecast::{PodForecast, Prospect};
use crate::drain::outlook::guests::{Moved, Past, Staying, guests};
use crate::drain::outlook::lane::Range;
use crate::drain::outlook::pods::{Gone, Stopping, stopping};
use crate::drain::policy::Policy;

/// What a time is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// Nothing has to be waited for.
    Nothing,
    /// The grace periods of pods, which end at once or at the latest then.
    GracePeriods,
    /// Copies that were measured in this cluster.
    Measured,
    /// A network of 1 to 25 Gbit/s, because no copy was measured.
    Assumed,
}

/// How long something takes, in whole seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Takes {
    /// At least so long.
    pub at_least: u64,
    /// At most so long; none where that is not known.
    pub at_most: Option<u64>,
    /// What the range is based on.
    pub basis: Basis,
    /// Why the end is not known.
    pub unknown: Option<String>,
}

impl Takes {
    const NOTHING: Self = Self { at_least: 0, at_most: Some(0), basis: Basis::Nothing, unknown: None };

    fn unknown(why: &str) -> Self {
        Self { at_most: None, unknown: Some(why.to_owned()), ..Self::NOTHING }
    }

    fn within(range: Range, basis: Basis) -> Self {
        let (at_least, at_most) = (range.at_least.floor().max(0.0) as u64, range.at_most.ceil() as u64);
        Self { at_least, at_most: Some(at_most), basis, unknown: None }
    }

    /// Both at the same time.
    #[must_use]
    pub fn beside(self, other: Self) -> Self {
        Self {
            at_least: self.at_least.max(other.at_least),
            at_most: self.at_most.zip(other.at_most).map(|(one, other)| one.max(other)),
            basis: self.basis.max(other.basis),
            unknown: self.unknown.or(other.unknown),
        }
    }
}

/// What is assumed to pass between two nodes where nothing was measured, in bytes a second: one gigabit.
pub const SLOW: f64 = 1e9 / 8.0;
/// The same at best: twenty-five gigabits.
pub const FAST: f64 = 25e9 / 8.0;
/// Until a target is ready for the copy, at least and at most, in seconds.
const READY: (f64, f64) = (2.0, 20.0);
/// A guest changes memory while it is copied, so that more has to be sent than it has.
const SENT_AGAIN: f64 = 2.0;
/// So many of the newest copies are enough.
const ENOUGH: usize = 200;

/// Copies that this cluster has seen.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    past: Past,
    /// By memory, what was answered for one guest alone.
    alone: RefCell<BTreeMap<u64, Takes>>,
}

impl History {
    /// What the instances tell of their last copies.
    pub fn of(index: &Index) -> Self {
        let mut copies: Vec<(Timestamp, Moved)> = index
            .instances()
            .filter_map(|instance| {
                let state = instance.migration.as_deref().filter(|state| state.completed && !state.failed)?;
                let (start, end): (Timestamp, Timestamp) =
                    (state.start.parse().ok()?, state.end.parse().ok()?);
                let seconds = end.duration_since(start).as_secs_f64();
                let moved =
                    Moved { memory: instance.memory, began: -READY.0, copied_since: 0.0, gone: seconds };
                (instance.memory > 0 && seconds >= 0.0).then_some((end, moved))
            })
            .collect();
        copies.sort_by_key(|(end, _)| std::cmp::Reverse(*end));
        let moved = copies.into_iter().take(ENOUGH).map(|(_, moved)| moved).collect();
        Self { past: Past { moved, ..Past::default() }, alone: RefCell::default() }
    }

    /// How long guests with so much memory take, so many at once.
    pub fn all(&self, config: &Config, memory: &[u64], at_once: usize) -> Takes {
        if memory.is_empty() {
            return Takes::NOTHING;
        }
        if memory.contains(&0) {
            return Takes::unknown("how much memory a guest has is not written down");
        }
        let staying: Vec<Staying> =
            memory.iter().map(|memory| Staying { memory: *memory, ..Staying::default() }).collect();
        if let Ok(Some(range)) = guests(&staying, &self.past, at_once) {
            return Takes::within(range, Basis::Measured);
        }
        let largest = memory.iter().copied().max().unwrap_or(0);
        let by = |speed: f64, ready: f64, sent: f64| {
            let speed = limit(config).map_or(speed, |limit| speed.min(limit));
            let gone = largest as f64 * sent / speed;
            let moved = Moved { memory: largest, began: -ready, copied_since: 0.0, gone };
            guests(&staying, &Past { moved: vec![moved], ..Past::default() }, at_once).ok().flatten()
        };
        match (by(FAST, READY.0, 1.0), by(SLOW, READY.1, SENT_AGAIN)) {
            (Some(fast), Some(slow)) => {
                Takes::within(Range { at_least: fast.at_least, at_most: slow.at_most }, Basis::Assumed)
            }
            _ => Takes::unknown("nothing was measured"),
        }
    }

    /// How long one pod takes once its turn has come.
    pub fn of_pod(&self, index: &Index, policy: &Policy, pod: &PodForecast, memory: u64) -> Takes {
        match &pod.prospect {
            Prospect::Stays => Takes::NOTHING,
            Prospect::Migrates => {
                let mut alone = self.alone.borrow_mut();
                alone.entry(memory).or_insert_with(|| self.all(&index.config, &[memory], 1)).clone()
            }
            Prospect::LeavesNow | Prospect::Leaving { reason: None } if pod.fate == Fate::Evict => {
                grace(index, policy, pod)
            }
            Prospect::Leaving { .. } => {
                Takes::unknown("it is on its way out, and when it is gone is not known")
            }
            Prospect::Turn { .. } => {
                let own = grace(index, policy, pod);
                let why = "its budget lets it go once replacements of others are ready";
                Takes { at_least: own.at_least, ..Takes::unknown(why) }
            }
            Prospect::HandedOver => Takes::unknown("when its external owner acts is not known"),
            Prospect::LeavesNow
            | Prospect::Waits { .. }
            | Prospect::Never { .. }
            | Prospect::Refused { .. }
            | Prospect::Unknown { .. } => Takes::unknown("whether it leaves is not known"),
        }
    }
}

/// The limit that an administrator has set for each copy, in bytes a second.
fn limit(config: &Config) -> Option<f64> {
    let limit: Quantity = config.bandwidth_per_migration.trim().parse().ok()?;
    Some(limit.value() as f64).filter(|limit| *limit > 0.0)
}

fn grace(index: &Index, policy: &Policy, pod: &PodForecast) -> Takes {
    let own = index.pod(&pod.pod).and_then(|pod| pod.grace_seconds);
    let seconds = policy.grace_seconds.or(own).filter(|seconds| *seconds >= 0);
    let pod = Stopping { since: 0.0, deadline: seconds.map(|seconds| seconds as f64), others: Vec::new() };
    match stopping(&[pod]) {
        Ok(Some(Gone::AtMost(seconds))) => {
            Takes { at_most: Some(seconds.ceil() as u64), basis: Basis::GracePeriods, ..Takes::NOTHING }
        }
        Ok(Some(Gone::Within(range))) => Takes::within(range, Basis::GracePeriods),
        Ok(None) => Takes::NOTHING,
        Err(_) => Takes::unknown("its grace period is not written down"),
    }
}
