//! A drain on a terminal: a bar per node, a line per pod that is on its way or held up, and when it will be over.
//!
//! What scrolls by above the bars is the same as without a terminal; the lines below only show the moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evac_core::cluster::fact::Key;
use evac_core::drain::explain::span;
use evac_core::drain::step::Event;
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
    /// On their way or held up, but without a line of their own, with what it would say.
    unseen: BTreeMap<Key, String>,
    more: Option<ProgressBar>,
    stuck: BTreeSet<Key>,
    told: Option<Told>,
}

/// How long it takes until a node is empty, in seconds, as it was told at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    at: Timestamp,
    /// Missing where only a limit is known, or nothing.
    at_least: Option<u64>,
    at_most: Option<u64>,
}

impl Told {
    /// Of two nodes, the one that takes longer; nothing is known if nothing is known of one.
    fn later(self, other: Self, now: Timestamp) -> Self {
        let (one, another) = (self.at(now), other.at(now));
        let at_most = one.at_most.zip(another.at_most).map(|(one, another)| one.max(another));
        let at_least =
            one.at_least.max(another.at_least).filter(|least| at_most.is_some_and(|most| *least <= most));
        Self { at: now, at_least, at_most }
    }

    /// What is left of it later.
    fn at(self, now: Timestamp) -> Self {
        let passed = u64::try_from(now.duration_since(self.at).as_secs()).unwrap_or(0);
        let left = |seconds: Option<u64>| seconds.map(|seconds| seconds.saturating_sub(passed));
        Self { at: now, at_least: left(self.at_least), at_most: left(self.at_most) }
    }
}

/// A bar that shows when it will be full.
struct Pace {
    bar: ProgressBar,
}

impl Pace {
    fn new(bar: ProgressBar, name: &str) -> Self {
        let width = bar_width(output::columns(), name.chars().count());
        let template = format!("{{prefix}} [{{bar:{width}}}] {{pos}}/{{len}} pods  {{msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(output::clean(name));
        bar.enable_steady_tick(TICK);
        Self { bar }
    }

    fn show(&self, at: Timestamp, gone: usize, total: usize, stuck: usize, told: Option<Told>) {
        self.bar.set_length(total as u64);
        self.bar.set_position(gone as u64);
        let time = (gone < total).then(|| time_left(told.map(|told| told.at(at))));
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
                    known.pace.show(at, total - left, *total, known.stuck.len(), known.told);
                }
                self.sum_up(at);
            }
            Event::Evicting { finished: true, .. } => {}
            Event::Evicting { pod, node, .. } => self.line(node, pod, &format!("leaving  {pod}")),
            Event::Moving { node, pod, instance, .. } | Event::Adopted { node, pod, instance, .. } => {
                self.line(node, pod, &format!("moving   vmi {instance}"));
            }
            Event::MovePhase { node, pod, instance, phase, .. } => {
                self.line(node, pod, &moving_line(instance, phase));
            }
            Event::Copying { node, pod, instance, attempt, copied, .. } => {
                let width = output::columns().saturating_sub(BEFORE_LINE);
                self.line(node, pod, &copy_line(instance, *attempt, copied, width));
            }
            Event::Outlook { node, at_least_seconds, at_most_seconds, .. } => {
                if let Some(known) = self.nodes.get_mut(node) {
                    known.told = Some(Told { at, at_least: *at_least_seconds, at_most: *at_most_seconds });
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
            self.total = Some(Pace::new(self.bars.insert(0, ProgressBar::new(0)), "all nodes"));
        }
        let pace = Pace::new(self.bars.add(ProgressBar::new(total as u64)), node);
        let known = NodeBar {
            pace,
            lines: Vec::new(),
            unseen: BTreeMap::new(),
            more: None,
            stuck: BTreeSet::new(),
            told: None,
        };
        self.nodes.insert(node.to_owned(), known);
        self.sum_up(at);
    }

    fn sum_up(&self, at: Timestamp) {
        if let Some(total) = &self.total {
            let sum = |count: fn(&NodeBar) -> usize| self.nodes.values().map(count).sum::<usize>();
            let gone = self.finished.0 + sum(|node| count(node.pace.bar.position()));
            let all = self.finished.1 + sum(|node| count(node.pace.bar.length().unwrap_or(0)));
            let nothing = Told { at, at_least: None, at_most: None };
            let all_told = self.nodes.values().map(|node| node.told.unwrap_or(nothing));
            let told = all_told.reduce(|one, another| one.later(another, at));
            total.show(at, gone, all.max(gone), sum(|node| node.stuck.len()), told);
        }
    }

    fn refresh(&self, at: Timestamp, node: &str) {
        if let Some(known) = self.nodes.get(node) {
            let gone = count(known.pace.bar.position());
            let all = count(known.pace.bar.length().unwrap_or(0));
            known.pace.show(at, gone, all.max(gone), known.stuck.len(), known.told);
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
            known.unseen.insert(pod.clone(), text.to_owned());
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
            && let Some((next, text)) = known.unseen.pop_first()
        {
            return self.line(node, &next, &text);
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

/// A migration that has not begun is waited for; nothing moves yet.
fn moving_line(instance: &Key, phase: &str) -> String {
    match phase {
        "" | "Pending" => format!("in line  vmi {instance}: waits for a migration slot"),
        under_way => format!("moving   vmi {instance}: {under_way}"),
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

fn time_left(told: Option<Told>) -> String {
    match told.map(|told| (told.at_least, told.at_most)) {
        Some((Some(least), Some(most))) => range(least, most),
        Some((None, Some(most))) => format!("at most {} left", words(most.max(1))),
        _ => "time left unknown".into(),
    }
}

fn range(best: u64, worst: u64) -> String {
    if worst < 4 {
        return "a few seconds left".into();
    }
    if best == 0 {
        format!("at most {} left", words(worst))
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

    fn told(at_least: Option<u64>, at_most: Option<u64>) -> Told {
        Told { at: at(0), at_least, at_most }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn the_time_left_is_a_range_a_limit_or_unknown() {
        let shown = |least, most| time_left(Some(told(least, most)));
        assert_eq!(shown(Some(20), Some(100)), "20s to 1m40s left");
        assert_eq!(shown(Some(1), Some(3)), "a few seconds left");
        assert_eq!(shown(Some(0), Some(30)), "at most 30s left");
        assert_eq!(shown(None, Some(30)), "at most 30s left");
        assert_eq!(shown(None, None), "time left unknown");
        assert_eq!(time_left(None), "time left unknown", "nothing was told yet");
        assert_eq!(outlook(Some(shown(None, None)), 2), "time left unknown, 2 cannot leave");
    }

    #[test]
    fn what_was_told_counts_down_until_it_is_told_anew() {
        let told = told(Some(20), Some(40));
        assert_eq!(time_left(Some(told.at(at(15)))), "5s to 25s left");
        assert_eq!(time_left(Some(told.at(at(60)))), "a few seconds left");
    }

    #[test]
    fn all_nodes_take_as_long_as_the_last_and_one_that_is_unknown_makes_all_unknown() {
        let both = told(Some(20), Some(40)).later(told(Some(10), Some(50)), at(0));
        assert_eq!(both, told(Some(20), Some(50)));
        assert_eq!(both.later(told(None, None), at(0)), told(None, None));
        let limit = told(None, Some(90));
        assert_eq!(both.later(limit, at(0)), told(Some(20), Some(90)));
        let earlier = Told { at: at(-10), ..told(Some(40), Some(60)) };
        assert_eq!(both.later(earlier, at(0)), told(Some(30), Some(50)), "told ten seconds ago");
    }

    #[test]
    fn the_bar_of_a_node_gives_way_on_a_narrow_terminal() {
        assert_eq!([120, 80, 60, 50, 20].map(|columns| bar_width(columns, 6)), [24, 24, 16, 8, 8]);
        let line = format!("node-1 [{}] 10/99 pods  {}", "=".repeat(bar_width(60, 6)), range(81, 160));
        assert!(line.len() <= 60, "{line}");
    }

    #[test]
    fn a_guest_in_line_says_so_also_when_a_line_becomes_free_for_it() {
        let at = Timestamp::UNIX_EPOCH;
        let key = |number: usize| Key::new("d", format!("{number:02}"));
        let mut screen = Screen::new(1);
        screen.plan(at, "n", LINES + 1);
        for number in 0..=LINES {
            let (instance, pod, node) = (key(number), key(number), "n".to_owned());
            let (migration, phase) = ("m".to_owned(), "Pending".to_owned());
            screen.show(at, &Event::MovePhase { instance, pod, node, migration, phase });
        }
        let left = Event::Left { pod: key(0), node: "n".into(), by_us: true, deleting: false };
        screen.show(at, &left);
        let lines = &screen.nodes["n"].lines;
        let (pod, line) = lines.last().unwrap();
        assert_eq!(
            (pod, line.message()),
            (&key(LINES), "in line  vmi d/10: waits for a migration slot".into())
        );
    }
}
