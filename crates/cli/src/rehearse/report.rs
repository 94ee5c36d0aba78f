//! What is said of some runs of one rehearsal: what they have in common, and in which ranges they differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use evac_core::drain::explain::{explain, span};
use evac_core::drain::run::End;
use serde_json::{Value, json};

use super::chart::word;
use super::guess;
use super::run::Ran;
use crate::render::blockers;

/// Blockers that are named one by one.
const NAMED: usize = 20;
/// Nodes that are named as targets.
const TARGETS: usize = 6;

/// A report in sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub title: String,
    /// What happens.
    pub lines: Vec<String>,
    /// What is not as it would be in the cluster.
    pub notes: Vec<String>,
    /// What was assumed.
    pub guesses: Vec<String>,
}

fn range(values: impl Iterator<Item = i64> + Clone, say: impl Fn(i64) -> String) -> String {
    let (low, high) = (values.clone().min().unwrap_or(0), values.max().unwrap_or(0));
    if low == high { say(low) } else { format!("{} to {}", say(low), say(high)) }
}

impl Report {
    pub fn of(runs: &[Ran], source: &str) -> Self {
        let mut lines = Vec::new();
        let nodes: Vec<String> = runs
            .first()
            .map(|run| run.ends.iter().map(|(node, _, _)| node.clone()).collect())
            .unwrap_or_default();
        for node in &nodes {
            lines.push(of_node(runs, node));
            lines.extend(in_the_way(runs, node));
        }
        lines.push(of_guests(runs));
        lines.push(of_pods(runs, &nodes));
        let deviations: BTreeSet<String> = runs.iter().flat_map(|run| run.notes.clone()).collect();
        Self {
            title: format!("drain of {}, rehearsed with {source}", nodes.join(", ")),
            lines,
            notes: deviations.into_iter().collect(),
            guesses: guess::assumptions(),
        }
    }

    /// The document for programs.
    pub fn json(&self, runs: &[Ran]) -> Value {
        let seconds = runs.iter().map(Ran::seconds);
        let one = |run: &Ran| {
            let node = |(node, at, end): &(String, jiff::Timestamp, End)| json!({"node": node, "seconds": at.duration_since(run.began).as_secs(), "end": end});
            json!({
                "seed": run.seed,
                "began": run.began,
                "seconds": run.seconds(),
                "nodes": run.ends.iter().map(node).collect::<Vec<_>>(),
                "peakMigrations": run.record.peak(),
                "moves": run.record.moves(),
                "podsEnded": run.record.leaves(),
                "podsStarted": run.record.starts(),
            })
        };
        json!({
            "schema": "evac.dev/rehearsal/v1",
            "title": self.title,
            "atLeastSeconds": seconds.clone().min(),
            "atMostSeconds": seconds.max(),
            "messages": self.lines,
            "notes": self.notes,
            "assumptions": self.guesses,
            "runs": runs.iter().map(one).collect::<Vec<_>>(),
        })
    }
}

/// How the work on a node ends, in all runs or in how many of them.
fn of_node(runs: &[Ran], node: &str) -> String {
    let mut ends: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for run in runs {
        for (_, at, end) in run.ends.iter().filter(|(name, _, _)| name == node) {
            ends.entry(word(end)).or_default().push(at.duration_since(run.began).as_secs());
        }
    }
    let is_one = ends.len() == 1;
    let said = ends.iter().map(|(word, times)| {
        let share =
            if is_one { String::new() } else { format!(" in {} of {} runs", times.len(), runs.len()) };
        format!("{word} after {}{share}", range(times.iter().copied(), span))
    });
    format!("node/{node} {}", said.collect::<Vec<_>>().join(", "))
}

/// What keeps a node from being empty, once for all runs.
fn in_the_way(runs: &[Ran], node: &str) -> Vec<String> {
    let mut said: BTreeMap<String, String> = BTreeMap::new();
    for run in runs {
        for (_, at, end) in run.ends.iter().filter(|(name, _, _)| name == node) {
            if let End::Refused { reason } | End::Failed { reason, .. } = end {
                said.insert(String::new(), format!("  node {node} {}", reason.message()));
            }
            for blocker in blockers(end) {
                let line = format!("  {}", explain(blocker, *at));
                said.entry(format!("{} {}", blocker.pod, blocker.reason.code())).or_insert(line);
            }
        }
    }
    let more = said.len().saturating_sub(NAMED);
    let mut lines: Vec<String> = said.into_values().take(NAMED).collect();
    if more > 0 {
        lines.push(format!("  and {more} more; -o json has all"));
    }
    lines
}

fn of_guests(runs: &[Ran]) -> String {
    let moved = runs.iter().map(|run| run.record.moves().iter().filter(|one| one.succeeded).count() as i64);
    let failed = runs.iter().map(|run| {
        run.record.moves().iter().filter(|one| one.ended.is_some() && !one.succeeded).count() as i64
    });
    let peak = runs.iter().map(|run| run.record.peak() as i64);
    let number = |number: i64| number.to_string();
    let mut line = format!("guests moved: {}", range(moved, number));
    let targets = targets(runs);
    if !targets.is_empty() {
        let _ = write!(line, " ({targets})");
    }
    let _ = write!(line, "; migrations that failed: {}", range(failed, number));
    let _ = write!(line, "; at most {} at once", range(peak, number));
    line
}

/// How many guests went where, by the first run, and whether the others agree.
fn targets(runs: &[Ran]) -> String {
    let of = |run: &Ran| -> BTreeMap<String, String> {
        let moves = run.record.moves().into_iter().filter(|one| one.succeeded);
        moves.filter_map(|one| Some((one.guest, one.to?))).collect()
    };
    let Some(first) = runs.first().map(of) else { return String::new() };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for to in first.values() {
        *counts.entry(to).or_default() += 1;
    }
    if counts.is_empty() {
        return String::new();
    }
    let more = counts.len().saturating_sub(TARGETS);
    let mut said: Vec<String> =
        counts.iter().take(TARGETS).map(|(node, count)| format!("{count} to {node}")).collect();
    if more > 0 {
        said.push(format!("others to {more} more nodes"));
    }
    let same = runs.iter().all(|run| of(run) == first);
    let others = if same { "" } else { " in the first run, others differ" };
    format!("{}{others}", said.join(", "))
}

fn of_pods(runs: &[Ran], nodes: &[String]) -> String {
    let left = runs
        .iter()
        .map(|run| run.record.leaves().iter().filter(|one| nodes.contains(&one.node)).count() as i64);
    let started = runs.iter().map(|run| run.record.starts().len() as i64);
    let number = |number: i64| number.to_string();
    format!("pods that had to end: {}; pods started: {}", range(left, number), range(started, number))
}
