//! How far the memory of guests has been copied.
//!
//! No API object says it: only the metrics of the node agent on the source do ([`exposition`] reads them). `measure` decides when they are
//! read, and what is told of them; [`crate::drain::outlook`] says when a node may be empty. All of it is for the person who looks on: a drain goes the same way
//! whether or not anything can be measured.

pub mod exposition;
pub(crate) mod measure;
#[cfg(test)]
mod tests;

pub use crate::cluster::transfer::Sample;
use serde::{Serialize, Serializer};

/// How much of a copy is done, in thousandths. Not whole before it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Share(u16);

impl Share {
    /// A round of copying may end with nothing left and be followed by another: nothing but the end is the end.
    const MOST: u16 = 990;

    /// The share of `done` in what is done and what is left.
    pub fn of(done: u64, left: u64) -> Self {
        let all = u128::from(done) + u128::from(left);
        let thousandths = (u128::from(done) * 1000).checked_div(all).unwrap_or(0);
        Self(u16::try_from(thousandths).unwrap_or(Self::MOST).min(Self::MOST))
    }

    /// Cut off to whole percent, 99 at most.
    pub fn percent(self) -> u16 {
        self.0 / 10
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 1000.0)
    }
}

/// What is told of one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Copied {
    /// Bytes sent so far, with those that had to be sent again.
    pub processed_bytes: u64,
    /// Bytes that are left of the present round.
    pub remaining_bytes: u64,
    /// What the agent calls the total; missing where it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// How fast it is copied: as the agent says, or by the last two samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// How fast the guest changes its memory; missing where the agent does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_bytes_per_second: Option<u64>,
    /// What is done, counting what the guest will change until the end. It never falls within one migration.
    pub share: Share,
    /// Whether copying gets ahead of the guest; missing where the rates are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub converging: Option<bool>,
}

/// Samples in a row in which the guest was faster than the copy, before that is called not converging.
const OUTRUN: u32 = 2;

/// One attempt to copy a guest, as far as it was measured.
#[derive(Debug, Clone)]
pub(crate) struct Copying {
    newest: Sample,
    share: Share,
    outrun: u32,
}

impl Copying {
    pub(crate) fn begin(sample: Sample) -> Self {
        let mut begun = Self { newest: sample, share: Share::default(), outrun: 0 };
        begun.judge();
        begun
    }

    /// Takes in a sample; false if it says nothing new.
    pub(crate) fn take(&mut self, sample: Sample) -> bool {
        let newer = match (sample.at, self.newest.at) {
            (Some(at), Some(known)) => at > known,
            _ => sample != self.newest,
        };
        if newer {
            let rate = sample.rate.or_else(|| pace_between(&self.newest, &sample));
            self.newest = Sample { rate, ..sample };
            self.judge();
        }
        newer
    }

    /// The guest changed its memory as fast as it was copied when it was last measured.
    pub(crate) fn outruns(&self) -> bool {
        let Sample { rate, dirty_rate, .. } = self.newest;
        matches!((rate, dirty_rate), (Some(rate), Some(dirty)) if dirty > 0 && dirty >= rate)
    }

    fn judge(&mut self) {
        let Sample { processed, remaining, rate, dirty_rate, .. } = self.newest;
        let outruns = self.outruns();
        self.outrun = if outruns { self.outrun + 1 } else { 0 };
        // What is changed meanwhile has to be copied as well. Where that has no end, the bar stands still.
        let left = match (rate, dirty_rate) {
            (Some(rate), Some(dirty)) if rate > dirty => with_changes(remaining, rate, dirty),
            _ => remaining,
        };
        if !outruns || self.share == Share::default() {
            self.share = self.share.max(Share::of(processed, left));
        }
    }

    pub(crate) fn converging(&self) -> Option<bool> {
        let Sample { rate, dirty_rate, .. } = self.newest;
        rate.and(dirty_rate)?;
        Some(self.outrun < OUTRUN)
    }

    pub(crate) fn newest(&self) -> &Sample {
        &self.newest
    }

    pub(crate) fn told(&self) -> Copied {
        let Sample { processed, remaining, total, rate, dirty_rate, .. } = self.newest;
        Copied {
            processed_bytes: processed,
            remaining_bytes: remaining,
            total_bytes: total,
            bytes_per_second: rate,
            dirty_bytes_per_second: dirty_rate,
            share: self.share,
            converging: self.converging(),
        }
    }
}

/// The bytes that are still to be copied if the guest goes on changing its memory: a geometric series of ever shorter rounds.
fn with_changes(remaining: u64, rate: u64, dirty: u64) -> u64 {
    let all = u128::from(remaining) * u128::from(rate) / u128::from((rate - dirty).max(1));
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// Bytes per second between two samples, where the agent does not say it.
fn pace_between(before: &Sample, now: &Sample) -> Option<u64> {
    let millis = now.at?.duration_since(before.at?).as_millis();
    let bytes = now.processed.checked_sub(before.processed)?;
    let millis = u64::try_from(millis).ok().filter(|millis| *millis > 0)?;
    Some(bytes.saturating_mul(1000) / millis)
}
