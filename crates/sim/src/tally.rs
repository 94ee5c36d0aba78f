//! What many runs come to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::run::Verdict;

#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub runs: u64,
    pub simulated: Duration,
    pub commits: u64,
    pub requests: u64,
    pub activated: BTreeMap<&'static str, u64>,
    pub failed: u64,
    /// The longest time from the last fault to a right and stable end.
    pub slowest: Duration,
    pub wall: Duration,
}

impl Tally {
    pub fn add(&mut self, verdict: &Verdict) {
        self.runs += 1;
        self.simulated += verdict.simulated;
        self.commits += verdict.log.commits;
        self.requests += verdict.log.requests;
        for (class, count) in &verdict.log.by_class {
            *self.activated.entry(class).or_default() += count;
        }
        self.failed += u64::from(!verdict.is_clean());
        self.slowest = self.slowest.max(verdict.settled.unwrap_or_default());
    }

    pub fn merge(&mut self, other: &Self) {
        self.runs += other.runs;
        self.simulated += other.simulated;
        self.commits += other.commits;
        self.requests += other.requests;
        for (class, count) in &other.activated {
            *self.activated.entry(class).or_default() += count;
        }
        self.failed += other.failed;
        self.slowest = self.slowest.max(other.slowest);
        self.wall += other.wall;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.simulated.as_secs_f64() / 3600.0;
        let pace = self.simulated.as_secs_f64() / self.wall.as_secs_f64().max(0.001);
        write!(
            f,
            "{} runs, {} failed, {hours:.1} simulated hours ({pace:.0} simulated seconds per second), {} commits checked, {} requests, right at most {} s after the last fault",
            self.runs,
            self.failed,
            self.commits,
            self.requests,
            self.slowest.as_secs(),
        )?;
        let mut classes: Vec<_> = self.activated.iter().collect();
        classes.sort_by_key(|(class, _)| class[1..].parse::<u32>().unwrap_or_default());
        let words: Vec<String> = classes.iter().map(|(class, count)| format!("{class} {count}")).collect();
        if words.is_empty() { Ok(()) } else { write!(f, "; faults: {}", words.join(", ")) }
    }
}
