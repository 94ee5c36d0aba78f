//! What was foretold beside what came true.

use super::stage::{Said, Story};
use crate::report::median;

/// A range that was told, and how long it really took then; nothing if there was no end.
struct Told {
    at_least: f64,
    at_most: f64,
    left: Option<f64>,
}

impl Told {
    fn holds(&self) -> bool {
        self.left.is_some_and(|left| self.at_least <= left && left <= self.at_most)
    }
}

/// Several drains together.
#[derive(Default)]
pub struct Row {
    drains: usize,
    ranges: Vec<Told>,
    limits: Vec<bool>,
    /// Seconds in which a range stood, a limit alone, and in all.
    within: f64,
    limited: f64,
    all: f64,
    /// How far the foretold end moved from one range to the next, of what was left.
    jumps: Vec<f64>,
    took: Vec<f64>,
}

/// What was left is not counted as less, where it is compared: nobody minds a second at the end.
const LITTLE: f64 = 5.0;

impl Row {
    pub fn add(&mut self, story: &Story) {
        self.drains += 1;
        self.all += story.took;
        self.took.push(story.took);
        for (number, said) in story.said.iter().enumerate() {
            let until = story.said.get(number + 1).map_or(story.took, |next| next.at);
            let left = story.drained.then_some(story.took - said.at);
            match (said.at_least, said.at_most) {
                (Some(least), Some(most)) => {
                    self.within += until - said.at;
                    self.ranges.push(Told { at_least: least as f64, at_most: most as f64, left });
                }
                (None, Some(most)) => {
                    self.limited += until - said.at;
                    self.limits.push(left.is_some_and(|left| left <= most as f64));
                }
                _ => {}
            }
        }
        self.jumps.extend(story.said.windows(2).filter_map(|pair| jump(&pair[0], &pair[1], story)));
    }

    pub fn merge(&mut self, other: Self) {
        self.drains += other.drains;
        self.ranges.extend(other.ranges);
        self.limits.extend(other.limits);
        self.within += other.within;
        self.limited += other.limited;
        self.all += other.all;
        self.jumps.extend(other.jumps);
        self.took.extend(other.took);
    }

    pub fn head() -> &'static str {
        "| shape | drains | took, s | ranges | right | too short | too long | width ÷ left, median | limits, right | range stands | limit only | unknown | jump p95 | jump max |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    }

    pub fn line(&self, name: &str) -> String {
        let ranges = self.ranges.len();
        let share = |part: usize, all: usize| {
            if all == 0 { "–".to_owned() } else { format!("{:.0} %", part as f64 * 100.0 / all as f64) }
        };
        let percent = |part: f64| format!("{:.0} %", part * 100.0);
        let right = self.ranges.iter().filter(|told| told.holds()).count();
        let short =
            self.ranges.iter().filter(|told| told.left.is_none_or(|left| left > told.at_most)).count();
        let widths: Vec<f64> = self
            .ranges
            .iter()
            .filter_map(|told| Some((told.at_most - told.at_least) / told.left.filter(|left| *left > 0.0)?))
            .collect();
        let width = if widths.is_empty() { "–".to_owned() } else { percent(median(&widths)) };
        let mut jumps = self.jumps.clone();
        jumps.sort_by(f64::total_cmp);
        let at = |share: f64| {
            jumps.get(((jumps.len() as f64 * share) as usize).min(jumps.len().saturating_sub(1)))
        };
        let jump = |share: f64| at(share).map_or("–".to_owned(), |jump| percent(*jump));
        let limits = self.limits.iter().filter(|right| **right).count();
        format!(
            "| {name} | {} | {:.0} | {ranges} | {} | {} | {} | {width} | {}, {} | {} | {} | {} | {} | {} |",
            self.drains,
            median(&self.took),
            share(right, ranges),
            share(short, ranges),
            share(ranges - right - short, ranges),
            self.limits.len(),
            share(limits, self.limits.len()),
            percent(self.within / self.all),
            percent(self.limited / self.all),
            percent(1.0 - (self.within + self.limited) / self.all),
            jump(0.95),
            jump(1.0),
        )
    }
}

/// How far either end of a range moved, as a share of what was left.
fn jump(before: &Said, after: &Said, story: &Story) -> Option<f64> {
    let moved = |one: u64, another: u64| (before.at + one as f64 - after.at - another as f64).abs();
    let earliest = moved(before.at_least?, after.at_least?);
    let latest = moved(before.at_most?, after.at_most?);
    // They are told in whole seconds.
    let farther = (earliest.max(latest) - 1.0).max(0.0);
    Some(farther / (story.took - after.at).max(LITTLE))
}
