//! A time that something takes, as far as it is known: what is expected, and how far off that may be.

/// Seconds that are still to pass.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stretch {
    /// The expected time in seconds.
    pub mean: f64,
    /// By how much it may be off for itself, squared: of many, some are longer and some are shorter.
    pub variance: f64,
    /// By how many seconds it may be off together with all others, because what they are measured by may be off.
    pub common: f64,
}

impl Stretch {
    /// A time that is off for itself by `deviation` seconds, and by nothing that others share.
    pub fn new(mean: f64, deviation: f64) -> Self {
        Self { mean, variance: deviation * deviation, common: 0.0 }
    }

    /// How far off it may be in all.
    pub fn deviation(self) -> f64 {
        self.variance.sqrt().hypot(self.common)
    }

    /// One after the other.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        Self {
            mean: self.mean + next.mean,
            variance: self.variance + next.variance,
            common: self.common + next.common,
        }
    }

    /// What is left of it after `passed` seconds. What should be over by now and is not takes the longer the longer it is overdue.
    #[must_use]
    pub fn after(self, passed: f64) -> Self {
        let left = self.mean - passed;
        let soon = (SOON * self.mean).max(SOON);
        if left >= soon {
            return Self { mean: left, ..self };
        }
        let overdue = soon - left;
        Self::new(soon + overdue / 2.0, self.variance.sqrt().min(soon) + overdue / 2.0)
    }
}

/// The share of an expected time that is left at least while it is not over, and the seconds.
const SOON: f64 = 0.1;
/// How much is taken as known before anything was measured: as if so many measurements had been this far apart, relative to their mean.
const PRIOR_COUNT: f64 = 2.0;
const PRIOR_DEVIATION: f64 = 0.15;
/// However often something was measured, the next may be this much different, relative to the mean.
const LEAST_DRIFT: f64 = 0.04;

/// What was measured several times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// In seconds.
    pub mean: f64,
    /// How far apart single ones are.
    pub deviation: f64,
    /// How far off the mean itself may be, as a share of it.
    pub drift: f64,
}

impl Pace {
    /// Nothing if nothing was.
    pub fn of(measured: &[f64]) -> Option<Self> {
        if measured.is_empty() {
            return None;
        }
        let count = measured.len() as f64;
        let mean = measured.iter().sum::<f64>() / count;
        let squares: f64 = measured.iter().map(|one| (one - mean).powi(2)).sum();
        Some(Self::spread(mean, squares, count, PRIOR_DEVIATION))
    }

    /// From the sum of the squared distances to what was expected; `prior` is how far apart they are taken to be before that shows, relative
    /// to the mean.
    pub fn spread(mean: f64, squares: f64, count: f64, prior: f64) -> Self {
        let prior = (prior * mean).powi(2) * PRIOR_COUNT;
        let deviation = ((prior + squares) / (PRIOR_COUNT + count - 1.0)).sqrt();
        let drift = if mean > 0.0 { deviation / count.sqrt() / mean } else { 0.0 };
        Self { mean, deviation, drift: drift.hypot(LEAST_DRIFT) }
    }

    /// What the next one of the same kind will take.
    pub fn one(self) -> Stretch {
        Stretch { common: self.drift * self.mean, ..Stretch::new(self.mean, self.deviation) }
    }
}
