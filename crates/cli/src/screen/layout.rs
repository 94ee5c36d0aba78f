//! How a view is shown: rows for a terminal of some size. A function of what it is given, and nothing else.
//!
//! From above: the nodes, the machines under way, what the others wait for, what is in the way. It takes two thirds of the terminal at most, so that what
//! happened can be read above; where there is no room, each part keeps its first rows and counts the rest.

use evac_core::cluster::fact::Key;
use evac_core::cluster::natural::natural;
use evac_core::drain::explain::span;
use evac_core::drain::transfer::Copied;
use evac_core::{Reason, Severity};
use jiff::Timestamp;

use super::bar::bar;
use super::machine::{Place, copying, in_phase};
use super::time_left::{Told, time_left};
use super::view::{Doing, Gone, NodeView, PodView, View};
use crate::live::{Row, Tone, cut, width};
use crate::output::clean;

const WIDEST_BAR: usize = 24;
const NARROWEST_BAR: usize = 6;
/// What a part keeps when all of them need more than there is.
const LEAST: usize = 2;

/// What belongs together, and how many of what its part lists it stands for.
struct Item {
    rows: Vec<Row>,
    stands_for: usize,
}

/// The rows for a terminal of so many columns and rows.
pub fn layout(view: &View, now: Timestamp, columns: usize, height: usize) -> Vec<Row> {
    if view.nodes.is_empty() {
        return Vec::new();
    }
    let room = (height * 2 / 3).min(height.saturating_sub(2)).max(1);
    let sum = sum_row(view, now, columns);
    let parts = [
        node_rows(view, now, columns),
        machine_rows(view, now, columns),
        waiting_rows(view, now, columns),
        blocker_rows(view, columns),
    ];
    let wanted = parts.each_ref().map(|part| part.iter().map(|item| item.rows.len()).sum());
    let shares = shared(room.saturating_sub(sum.iter().len()), wanted);
    let mut rows: Vec<Row> = sum.into_iter().collect();
    for (part, share) in parts.into_iter().zip(shares) {
        rows.extend(shortened(part, share));
    }
    for row in &mut rows {
        row.text = cut(&clean(&row.text), columns);
    }
    rows.truncate(room);
    rows
}

/// How many rows each part gets: a few for each first, then as much as is left, with what is in the way before all else.
fn shared(room: usize, wanted: [usize; 4]) -> [usize; 4] {
    const NODES: usize = 0;
    const MACHINES: usize = 1;
    const WAITING: usize = 2;
    const BLOCKERS: usize = 3;
    let mut shares = [0; 4];
    let mut left = room;
    for most in [LEAST, usize::MAX] {
        for part in [BLOCKERS, NODES, WAITING, MACHINES] {
            let more = wanted[part].min(most).saturating_sub(shares[part]).min(left);
            shares[part] += more;
            left -= more;
        }
    }
    shares
}

/// The first items, and how many more there are. Of an item that is too high alone, its first rows.
fn shortened(items: Vec<Item>, share: usize) -> Vec<Row> {
    let mut left: usize = items.iter().map(|item| item.stands_for).sum();
    let mut rows = Vec::new();
    for mut item in items {
        // Unless it is the last one, a row has to be left to count the others.
        let room = share.saturating_sub(rows.len() + usize::from(left > item.stands_for));
        if item.rows.len() > room {
            if rows.is_empty() && room > 0 {
                item.rows.truncate(room);
                left -= item.stands_for;
                rows.append(&mut item.rows);
            }
            break;
        }
        left -= item.stands_for;
        rows.append(&mut item.rows);
    }
    if left > 0 && rows.len() < share {
        rows.push(plain(format!("  and {left} more")));
    }
    rows
}

fn plain(text: String) -> Row {
    Row { text, tone: Tone::Plain }
}

fn one(text: String) -> Item {
    Item { rows: vec![plain(text)], stands_for: 1 }
}

/// A text in rows that are not too wide, those after the first a little further in.
fn wrapped(text: &str, tone: Tone, columns: usize) -> Vec<Row> {
    let margin = " ".repeat(text.len() - text.trim_start().len());
    let mut rows: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match rows.last_mut() {
            Some(row) if width(row) + 1 + width(word) <= columns => {
                row.push(' ');
                row.push_str(word);
            }
            Some(_) => rows.push(format!("{margin}  {word}")),
            None => rows.push(format!("{margin}{word}")),
        }
    }
    rows.into_iter().map(|text| Row { text, tone }).collect()
}

/// All nodes together, if there are several.
fn sum_row(view: &View, now: Timestamp, columns: usize) -> Option<Row> {
    let nodes = view.nodes.len() + view.ended;
    if nodes < 2 {
        return None;
    }
    let sum = view.nodes.iter().fold(view.ended_pods, |sum, node| sum + node.all());
    let nothing = Told { at: now, at_least: None, at_most: None };
    let told = view.nodes.iter().map(|node| node.told.unwrap_or(nothing));
    let told = told.reduce(|one, other| one.later(other, now));
    let counts = format!("{} pods", of(sum));
    let told = told.map(|told| told.at(now));
    Some(plain(progress(&format!("all {nodes} nodes"), sum, &counts, told, columns)))
}

fn node_rows(view: &View, now: Timestamp, columns: usize) -> Vec<Item> {
    let longest = view.nodes.iter().map(|node| width(&node.name)).max().unwrap_or(0);
    view.nodes.iter().map(|node| one(node_row(node, longest, now, columns))).collect()
}

fn node_row(node: &NodeView, longest: usize, now: Timestamp, columns: usize) -> String {
    let counts = match (node.vms.total, node.pods.total) {
        (0, _) => format!("{} pods", of(node.pods)),
        (_, 0) => format!("{} VMs", of(node.vms)),
        _ => format!("{} VMs  {} pods", of(node.vms), of(node.pods)),
    };
    let name = format!("{:<longest$}", node.name);
    progress(&name, node.all(), &counts, node.told.map(|told| told.at(now)), columns)
}

fn of(Gone { gone, total }: Gone) -> String {
    format!("{gone}/{total}")
}

/// A name, a bar, counts and the time left, as much as fits. The name is cut before the shortest count is left out.
fn progress(name: &str, all: Gone, counts: &str, told: Option<Told>, columns: usize) -> String {
    let time = if all.gone < all.total { time_left(told) } else { "last look".to_owned() };
    let tails = [format!("{counts}  {time}"), format!("{}  {time}", of(all)), counts.to_owned(), of(all)];
    for tail in &tails {
        let room = columns.saturating_sub(width(name) + 2 + width(tail) + 2);
        if room >= NARROWEST_BAR {
            return format!("{name}  {}  {tail}", bar(all.gone, all.total, room.min(WIDEST_BAR)));
        }
    }
    let tail = of(all);
    format!("{}  {tail}", cut(name.trim_end(), columns.saturating_sub(width(&tail) + 2)))
}

/// A machine on its way.
struct Moving<'a> {
    pod: &'a PodView,
    instance: &'a Key,
    phase: &'a str,
    copied: Option<&'a (u32, Copied)>,
}

/// The longest under way first, so that rows do not jump.
fn machine_rows(view: &View, now: Timestamp, columns: usize) -> Vec<Item> {
    let moving = view.pods.values().filter_map(|pod| match (&pod.doing, &pod.instance) {
        (Doing::Moving { phase, copied }, Some(instance)) => {
            Some(Moving { pod, instance, phase, copied: copied.as_ref() })
        }
        _ => None,
    });
    let mut moving: Vec<Moving<'_>> = moving.collect();
    let name = |one: &Moving<'_>| one.instance.to_string();
    moving.sort_by(|a, b| a.pod.since.cmp(&b.pod.since).then_with(|| natural(&name(a), &name(b))));
    let names = moving.iter().map(|one| width(&name(one))).max().unwrap_or(0);
    let place = Place { columns: columns.saturating_sub(2), names };
    let row = |machine: &Moving<'_>| {
        let text = match machine.copied {
            Some((attempt, copied)) => copying(machine.instance, *attempt, copied, place),
            None => in_phase(machine.instance, machine.phase, &age(machine.pod.since, now), place),
        };
        one(format!("  {text}"))
    };
    moving.iter().map(row).collect()
}

fn age(since: Timestamp, now: Timestamp) -> String {
    span(now.duration_since(since).as_secs().max(0))
}

/// Pods of which the same can be said.
struct Group<'a> {
    what: What<'a>,
    pods: Vec<(&'a Key, &'a PodView)>,
}

#[derive(PartialEq)]
enum What<'a> {
    InLine,
    NotAsked,
    Asked,
    Failed,
    Tenant(&'a str),
    Waiting(&'a Reason),
}

fn groups<'a>(view: &'a View, of: impl Fn(&'a PodView) -> Option<What<'a>>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for (key, pod) in &view.pods {
        let Some(what) = of(pod) else { continue };
        match groups.iter_mut().find(|group| group.what == what) {
            Some(group) => group.pods.push((key, pod)),
            None => groups.push(Group { what, pods: vec![(key, pod)] }),
        }
    }
    groups
}

/// What ends by itself, with as many sentences in a row as fit.
fn waiting_rows(view: &View, now: Timestamp, columns: usize) -> Vec<Item> {
    let mut groups = groups(view, |pod| match &pod.doing {
        Doing::NotAsked => Some(What::NotAsked),
        Doing::Asked => Some(What::Asked),
        Doing::InLine => Some(What::InLine),
        Doing::Failed { .. } => Some(What::Failed),
        Doing::Tenant(words) => Some(What::Tenant(words)),
        Doing::Waiting(reason) if reason.severity() != Severity::Never => Some(What::Waiting(reason)),
        Doing::Waiting(_) | Doing::Moving { .. } => None,
    });
    groups.sort_by_key(|group| match group.what {
        What::InLine => 0,
        What::Asked => 1,
        What::Failed | What::Tenant(_) | What::Waiting(_) => 2,
        What::NotAsked => 3,
    });
    let mut packed: Vec<(String, usize)> = Vec::new();
    for sentence in groups.iter().map(|group| sentence(group, now)) {
        match packed.last_mut() {
            Some((row, sentences)) if width(row) + 3 + width(&sentence) <= columns => {
                row.push_str(" · ");
                row.push_str(&sentence);
                *sentences += 1;
            }
            _ => packed.push((format!("  {sentence}"), 1)),
        }
    }
    let item =
        |(text, stands_for): (String, usize)| Item { rows: wrapped(&text, Tone::Plain, columns), stands_for };
    packed.into_iter().map(item).collect()
}

fn sentence(group: &Group<'_>, now: Timestamp) -> String {
    let pods = &group.pods;
    let who = who(pods);
    let longest = |(a, one): &&(&Key, &PodView), (b, other): &&(&Key, &PodView)| {
        one.since.cmp(&other.since).then_with(|| natural(&a.to_string(), &b.to_string()))
    };
    let (waits, is) = if pods.len() == 1 { ("waits", "is") } else { ("wait", "are") };
    match &group.what {
        What::InLine => format!("{who} {waits} for a migration slot"),
        What::NotAsked if pods.len() == 1 => format!("{who} waits for its turn"),
        What::NotAsked => format!("{who} wait for their turn"),
        What::Asked => match pods.iter().min_by(longest) {
            Some((_, pod)) if pods.len() == 1 => format!("{who} {is} leaving for {}", age(pod.since, now)),
            Some((key, pod)) => format!("{who} {is} leaving, {key} for {}", age(pod.since, now)),
            None => String::new(),
        },
        What::Failed => {
            let retries = pods.iter().filter_map(|(_, pod)| match &pod.doing {
                Doing::Failed { retry_at, failures } => Some((*retry_at, *failures)),
                _ => None,
            });
            match retries.min_by_key(|(retry_at, _)| retry_at.unwrap_or(Timestamp::MAX)) {
                Some((Some(at), failures)) => format!(
                    "migration of {who} failed {}, next try in {}",
                    number_of(failures as usize, "time"),
                    age(now, at)
                ),
                _ => format!("migration of {who} failed and is not tried again"),
            }
        }
        What::Tenant(words) => format!("{who}: {words}"),
        What::Waiting(reason) => format!("{who} {waits}: {}", reason.brief()),
    }
}

/// The one by its name, several by their number: machines where all are machines.
fn who(pods: &[(&Key, &PodView)]) -> String {
    if let [(key, pod)] = pods {
        return pod.instance.as_ref().unwrap_or(key).to_string();
    }
    let vms = pods.iter().filter(|(_, pod)| pod.instance.is_some()).count();
    match (vms, pods.len() - vms) {
        (0, pods) => number_of(pods, "pod"),
        (vms, 0) => number_of(vms, "VM"),
        (vms, pods) => format!("{} and {}", number_of(vms, "VM"), number_of(pods, "pod")),
    }
}

/// `1 pod`, `2 pods`.
pub fn number_of(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// What waiting alone will not end, with what can be done about it.
fn blocker_rows(view: &View, columns: usize) -> Vec<Item> {
    let groups = groups(view, |pod| match &pod.doing {
        Doing::Waiting(reason) if reason.severity() == Severity::Never => Some(What::Waiting(reason)),
        _ => None,
    });
    let item = |group: &Group<'_>| {
        let What::Waiting(reason) = &group.what else { return None };
        let said = format!("  in the way: {}: {}", named(&group.pods), reason.brief());
        let alarm = |text: &str| wrapped(text, Tone::Alarm, columns);
        let rows = match reason.fix() {
            Some(fix) if width(&said) + 3 + width(&fix) <= columns => alarm(&format!("{said} → {fix}")),
            Some(fix) => [alarm(&said), alarm(&format!("    → {fix}"))].concat(),
            None => alarm(&said),
        };
        Some(Item { rows, stands_for: 1 })
    };
    groups.iter().filter_map(item).collect()
}

/// The first by its name, with the number of the others.
fn named(pods: &[(&Key, &PodView)]) -> String {
    let first = pods.first().map(|first| who(std::slice::from_ref(first))).unwrap_or_default();
    match pods.len() {
        ..=1 => first,
        more => format!("{first} and {} more", more - 1),
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
