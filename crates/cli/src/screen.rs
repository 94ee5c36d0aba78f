//! A drain on a terminal: a bar per node, a line per pod that is on its way or held up, and when it will be over.
//!
//! What scrolls by above the bars is the same as without a terminal; the lines below only show the moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evac_core::explain::span;
use evac_core::fact::Key;
use evac_core::pace::forecast;
use evac_core::step::Event;
use evac_core::{Fate, Severity};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use jiff::Timestamp;

use crate::copy_line::copy_line;
use crate::output;

/// More lines than these, over all nodes, would push the bars off a small terminal.
const LINES: usize = 10;
/// What stands before the text of a line: its age.
const BEFORE_LINE: usize = 7;
const TICK: Duration = Duration::from_millis(500);

pub struct Screen {
    bars: MultiProgress,
    nodes: BTreeMap<String, NodeBar>,
    /// Over all nodes, if there are several.
    total: Option<Pace>,
    /// Pods that left and all pods of nodes whose bar is gone.
    finished: (usize, usize),
    lines_per_node: usize,
}

struct NodeBar {
    pace: Pace,
    /// In the order in which they appeared, so that lines do not jump.
    lines: Vec<(Key, ProgressBar)>,
    /// On their way or held up, but without a line of their own.
    unseen: BTreeSet<Key>,
    more: Option<ProgressBar>,
    stuck: BTreeSet<Key>,
    guests: Option<Guests>,
}

/// How long the guests of a node take, by what was measured, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Guests {
    at_least: u64,
    /// Missing where no end is in sight.
    at_most: Option<u64>,
}

impl Guests {
    fn later(self, other: Self) -> Self {
        let at_most = self.at_most.zip(other.at_most).map(|(one, another)| one.max(another));
        Self { at_least: self.at_least.max(other.at_least), at_most }
    }
}

/// A bar and what is needed to say when it will be full.
struct Pace {
    bar: ProgressBar,
    began: Timestamp,
}

impl Pace {
    fn new(bar: ProgressBar, name: &str, began: Timestamp) -> Self {
        let width = bar_width(output::columns(), name.chars().count());
        let template = format!("{{prefix}} [{{bar:{width}}}] {{pos}}/{{len}} pods  {{msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(output::clean(name));
        bar.enable_steady_tick(TICK);
        Self { bar, began }
    }

    fn show(&self, at: Timestamp, gone: usize, total: usize, stuck: usize, guests: Option<Guests>) {
        self.bar.set_length(total as u64);
        self.bar.set_position(gone as u64);
        // Guests take longest, so where they were measured they decide.
        let time = match guests {
            Some(guests) => Some(time_of(guests)),
            None => time_left(self.began, at, gone, (total - gone).saturating_sub(stuck)),
        };
        self.bar.set_message(outlook(time, stuck));
    }
}

impl Screen {
    pub fn new(nodes: usize) -> Self {
        let lines_per_node = (LINES / nodes.max(1)).max(1);
        Self {
            bars: MultiProgress::new(),
            nodes: BTreeMap::new(),
            total: None,
            finished: (0, 0),
            lines_per_node,
        }
    }

    /// Prints above the bars.
    pub fn above(&self, print: impl FnOnce()) {
        self.bars.suspend(print);
    }

    pub fn show(&mut self, at: Timestamp, event: &Event) {
        match event {
            Event::Planned { node, assessment } => {
                let total = assessment.verdicts.iter().filter(|verdict| verdict.fate != Fate::Leave).count();
                self.plan(at, node, total);
            }
            Event::Progress { node, left, total, .. } => {
                if let Some(known) = self.nodes.get(node) {
                    known.pace.show(at, total - left, *total, known.stuck.len(), known.guests);
                }
                self.sum_up(at);
            }
            Event::Evicting { pod, node, .. } => self.line(node, pod, &format!("leaving  {pod}")),
            Event::Moving { node, pod, instance, .. } => {
                self.line(node, pod, &format!("moving   vmi {instance}"));
            }
            Event::MovePhase { node, pod, instance, phase, .. } => {
                let phase = if phase.is_empty() || phase == "Pending" { "queued" } else { phase };
                self.line(node, pod, &format!("moving   vmi {instance}: {phase}"));
            }
            Event::Copying { node, pod, instance, attempt, copied, .. } => {
                let width = output::columns().saturating_sub(BEFORE_LINE);
                self.line(node, pod, &copy_line(instance, *attempt, copied, width));
            }
            Event::Outlook { node, at_least_seconds, at_most_seconds, .. } => {
                if let Some(known) = self.nodes.get_mut(node) {
                    known.guests =
                        at_least_seconds.map(|at_least| Guests { at_least, at_most: *at_most_seconds });
                }
                self.refresh(at, node);
            }
            Event::MoveFailed { node, pod, instance, failures, retry_at, .. } => {
                let next = retry_at.map_or("not tried again".into(), |retry| {
                    format!("next try in {}", span(retry.duration_since(at).as_secs().max(0)))
                });
                self.line(node, pod, &format!("waiting  vmi {instance}: failed {failures} times, {next}"));
            }
            Event::Tenant { node, pod, instance, tenant } => {
                self.line(node, pod, &format!("waiting  vmi {instance}: {}", tenant.words()));
            }
            Event::Waiting { node, blocker, also } => {
                let brief = blocker.reason.brief();
                let never = blocker.reason.severity() == Severity::Never;
                for pod in std::iter::once(&blocker.pod).chain(also) {
                    self.line(node, pod, &format!("waiting  {pod}: {brief}"));
                    if let Some(known) = self.nodes.get_mut(node)
                        && never
                    {
                        known.stuck.insert(pod.clone());
                    }
                }
                self.refresh(at, node);
            }
            Event::Left { pod, node, .. } | Event::Moved { pod, node, .. } => {
                if let Some(known) = self.nodes.get_mut(node) {
                    known.stuck.remove(pod);
                    known.unseen.remove(pod);
                    if let Some(at) = known.lines.iter().position(|(key, _)| key == pod) {
                        let (_, line) = known.lines.remove(at);
                        line.finish_and_clear();
                        self.bars.remove(&line);
                    }
                    self.fill(node);
                }
            }
            Event::Ended { node, .. } => {
                if let Some(known) = self.nodes.remove(node) {
                    self.finished.0 += count(known.pace.bar.position());
                    self.finished.1 += count(known.pace.bar.length().unwrap_or(0));
                    let lines = known.lines.iter().map(|(_, line)| line);
                    lines.chain(&known.more).for_each(ProgressBar::finish_and_clear);
                    known.pace.bar.finish_and_clear();
                }
            }
            _ => {}
        }
    }

    fn plan(&mut self, at: Timestamp, node: &str, total: usize) {
        // A bar of its own for the sum as soon as there is something to add up.
        if self.nodes.len() == 1 && self.total.is_none() {
            self.total = Some(Pace::new(self.bars.insert(0, ProgressBar::new(0)), "all nodes", at));
        }
        let pace = Pace::new(self.bars.add(ProgressBar::new(total as u64)), node, at);
        let known = NodeBar {
            pace,
            lines: Vec::new(),
            unseen: BTreeSet::new(),
            more: None,
            stuck: BTreeSet::new(),
            guests: None,
        };
        self.nodes.insert(node.to_owned(), known);
        self.sum_up(at);
    }

    fn sum_up(&self, at: Timestamp) {
        if let Some(total) = &self.total {
            let sum = |count: fn(&NodeBar) -> usize| self.nodes.values().map(count).sum::<usize>();
            let gone = self.finished.0 + sum(|node| count(node.pace.bar.position()));
            let all = self.finished.1 + sum(|node| count(node.pace.bar.length().unwrap_or(0)));
            let guests = self.nodes.values().filter_map(|node| node.guests).reduce(Guests::later);
            total.show(at, gone, all.max(gone), sum(|node| node.stuck.len()), guests);
        }
    }

    fn refresh(&self, at: Timestamp, node: &str) {
        if let Some(known) = self.nodes.get(node) {
            let gone = count(known.pace.bar.position());
            let all = count(known.pace.bar.length().unwrap_or(0));
            known.pace.show(at, gone, all.max(gone), known.stuck.len(), known.guests);
        }
        self.sum_up(at);
    }

    /// Writes the line of a pod, or counts it among those without one.
    fn line(&mut self, node: &str, pod: &Key, text: &str) {
        let room = self.lines_per_node;
        let Some(known) = self.nodes.get_mut(node) else { return };
        if let Some((_, line)) = known.lines.iter().find(|(key, _)| key == pod) {
            return line.set_message(output::clean(text));
        }
        if known.lines.len() >= room {
            known.unseen.insert(pod.clone());
            return self.fill(node);
        }
        known.unseen.remove(pod);
        let above = known.lines.last().map_or(&known.pace.bar, |(_, line)| line);
        let line = self.bars.insert_after(above, ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("  {elapsed:>4} {wide_msg}") {
            line.set_style(style);
        }
        line.enable_steady_tick(TICK);
        line.set_message(output::clean(text));
        known.lines.push((pod.clone(), line));
    }

    /// Gives free lines to pods that have none, and counts the rest.
    fn fill(&mut self, node: &str) {
        let room = self.lines_per_node;
        let Some(known) = self.nodes.get_mut(node) else { return };
        if known.lines.len() < room
            && let Some(next) = known.unseen.pop_first()
        {
            return self.line(node, &next, &format!("leaving  {next}"));
        }
        if known.unseen.is_empty() {
            if let Some(more) = known.more.take() {
                more.finish_and_clear();
                self.bars.remove(&more);
            }
            return;
        }
        let after = known.lines.last().map_or(&known.pace.bar, |(_, line)| line).clone();
        let more = known.more.get_or_insert_with(|| {
            let more = self.bars.insert_after(&after, ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("       {wide_msg}") {
                more.set_style(style);
            }
            more
        });
        more.set_message(format!("and {} more", known.unseen.len()));
    }

    pub fn clear(self) {
        let _ = self.bars.clear();
    }
}

/// On a narrow terminal the bar gives way to the name of the node and to the words behind it.
fn bar_width(columns: usize, name: usize) -> usize {
    const WORDS: usize = 38;
    columns.saturating_sub(name + WORDS).clamp(8, 24)
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// When it will be over and what will not, in words.
fn outlook(time: Option<String>, stuck: usize) -> String {
    let held = (stuck > 0).then(|| format!("{stuck} cannot leave"));
    [time, held].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// By the pace at which pods have left.
fn time_left(began: Timestamp, now: Timestamp, gone: usize, moving: usize) -> Option<String> {
    let (best, worst) = forecast(began, now, gone, moving)?;
    Some(range(best.as_secs(), worst.as_secs_f64().ceil() as u64))
}

fn time_of(guests: Guests) -> String {
    match guests.at_most {
        Some(most) => range(guests.at_least, most),
        None => format!("{} or more left", words(guests.at_least)),
    }
}

fn range(best: u64, worst: u64) -> String {
    if worst < 4 {
        return "a few seconds left".into();
    }
    if best == 0 {
        format!("up to {} left", words(worst))
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

    fn after(seconds: i64, gone: usize, left: usize, stuck: usize) -> String {
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        outlook(time_left(at(0), at(seconds), gone, left.saturating_sub(stuck)), stuck)
    }

    #[test]
    fn the_time_left_is_a_range_and_absent_before_there_is_a_pace() {
        assert_eq!(after(10, 2, 8, 0), "");
        assert_eq!(after(10, 10, 20, 0), "20s to 40s left");
        assert_eq!(after(10, 10, 0, 0), "");
        assert_eq!(after(10, 30, 2, 0), "a few seconds left");
    }

    #[test]
    fn the_bar_of_a_node_gives_way_on_a_narrow_terminal() {
        assert_eq!([120, 80, 60, 50, 20].map(|columns| bar_width(columns, 6)), [24, 24, 16, 8, 8]);
        let line = format!("node-1 [{}] 10/99 pods  {}", "=".repeat(bar_width(60, 6)), range(81, 160));
        assert!(line.len() <= 60, "{line}");
    }

    #[test]
    fn pods_that_cannot_leave_are_not_waited_for_in_the_forecast() {
        assert_eq!(after(10, 10, 21, 1), "20s to 40s left, 1 cannot leave");
        assert_eq!(after(10, 10, 2, 2), "2 cannot leave");
    }

    #[test]
    fn measured_guests_give_the_range_and_one_without_an_end_leaves_it_open() {
        let guests = |at_least, at_most| Guests { at_least, at_most };
        assert_eq!(time_of(guests(20, Some(100))), "20s to 1m40s left");
        assert_eq!(time_of(guests(1, Some(3))), "a few seconds left");
        assert_eq!(time_of(guests(0, Some(30))), "up to 30s left");
        assert_eq!(time_of(guests(20, None)), "20s or more left");
        let both = guests(20, Some(40)).later(guests(10, Some(50)));
        assert_eq!(both, guests(20, Some(50)));
        assert_eq!(both.later(guests(5, None)), guests(20, None));
    }
}
