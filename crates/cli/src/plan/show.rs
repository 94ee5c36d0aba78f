//! A plan for people: groups instead of repetition, and what is in the way with what to do about it.

use std::collections::BTreeMap;

use comfy_table::Table;
use evac_core::drain::forecast::{Expected, Prospect};
use evac_core::plan::{
    Afterwards, Basis, NodePlan, Plan, PodPlan, Sureness, Survey, SurveyedNode, Takes, Verdict,
};
use evac_core::{Fate, Severity};

use crate::output;

/// So many names are shown before the others are counted.
const NAMES: usize = 3;
/// Nodes without trouble that a survey shows before the others are counted.
const WITHOUT_TROUBLE: usize = 3;

/// All of it in groups.
pub fn plan(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    for node in &plan.nodes {
        lines.extend(head(node, plan));
        lines.push(String::new());
        lines.extend(groups(node));
        lines.push(String::new());
    }
    lines.extend(whole(plan));
    lines.push("every pod: -o wide".into());
    lines
}

/// What is said before a table of every pod.
pub fn heads(plan: &Plan) -> Vec<String> {
    plan.nodes.iter().flat_map(|node| head(node, plan)).chain(whole(plan)).collect()
}

fn whole(plan: &Plan) -> Vec<String> {
    let mut lines = vec![format!("room: {}", plan.room.sentence())];
    if plan.moves > 0 {
        let waves = if plan.waves == 1 { "1 wave".into() } else { format!("{} waves", plan.waves) };
        lines.push(format!(
            "moves: {}, {} at a time, {waves}{}",
            plan.moves,
            plan.at_once,
            basis(&plan.takes)
        ));
    }
    for budget in plan.nodes.iter().flat_map(|node| &node.budgets) {
        let fix = budget.reason.fix().map_or(String::new(), |fix| format!(" → {fix}"));
        lines.push(format!(
            "budget {} can never be met: it keeps {}{fix}",
            budget.budget,
            count(budget.pods.len(), "pod")
        ));
    }
    lines
}

fn basis(takes: &Takes) -> &'static str {
    match takes.basis {
        Basis::Measured => "; times by copies that this cluster has seen",
        Basis::Assumed => "; times for a network of 1 to 25 Gbit/s, as no copy was seen yet",
        Basis::GracePeriods | Basis::Nothing => "",
    }
}

fn head(node: &NodePlan, plan: &Plan) -> Vec<String> {
    let time = takes(&node.takes);
    let blocked: Vec<&PodPlan> = node.blocked().collect();
    let seeking = node.pods.iter().filter_map(|pod| pod.forecast.instance.as_ref());
    let without_place = seeking.filter(|instance| plan.room.without_place.contains(instance)).count();
    let first = if blocked.is_empty() && without_place > 0 {
        let (what, find) = (count(without_place, "VM"), if without_place == 1 { "finds" } else { "find" });
        format!("{} cannot be emptied: {what} {find} no place", node.node)
    } else if blocked.is_empty() {
        match node.expected {
            Expected::Drained => format!("{} can be emptied in {time}", node.node),
            _ => format!("{} can be emptied as far as can be seen, in {time}", node.node),
        }
    } else {
        let machines = blocked.iter().filter(|pod| pod.forecast.instance.is_some()).count();
        let what = [(machines, "VM"), (blocked.len() - machines, "pod")];
        let what: Vec<String> =
            what.into_iter().filter(|(some, _)| *some > 0).map(|(some, name)| count(some, name)).collect();
        let is = if blocked.len() == 1 { "is" } else { "are" };
        let never = blocked.iter().any(|pod| never(pod));
        let yet = if never { "cannot be emptied" } else { "cannot be emptied yet" };
        let rest = match node.takes.at_most {
            Some(0) => String::new(),
            _ => format!("; the rest takes {time}"),
        };
        format!("{} {yet}: {} {is} in the way{rest}", node.node, what.join(" and "))
    };
    let mut lines = vec![first];
    lines.extend(node.remarks.iter().map(|remark| format!("  {remark}")));
    lines.extend(node.depends_on.iter().map(|what| format!("  it depends on this: {what}")));
    lines
}

fn never(pod: &PodPlan) -> bool {
    pod.forecast.reason().is_some_and(|reason| reason.severity() == Severity::Never)
}

/// A group of pods: machines or not, what happens to them, and what belongs to that.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    order: u8,
    machines: bool,
    what: String,
    detail: String,
    remedy: String,
}

fn group_of(pod: &PodPlan) -> Group {
    let machines = pod.forecast.instance.is_some();
    let group = |order, what: &str, detail: String| Group {
        order,
        machines,
        what: what.into(),
        detail,
        remedy: String::new(),
    };
    if let Some(reason) = pod.forecast.reason() {
        let what = if never(pod) { "blocked" } else { "in the way for now" };
        let remedy = pod.remedy.clone().unwrap_or_default();
        return Group { remedy, ..group(0, what, reason.brief()) };
    }
    if let Prospect::Turn { budget, at_a_time, .. } = &pod.forecast.prospect {
        return group(6, "evicted in turn", format!("{at_a_time} at a time under {budget}"));
    }
    match (&pod.afterwards, &pod.forecast.prospect) {
        (Afterwards::Moved, _) => group(1, "move while they run", String::new()),
        (Afterwards::Restarted, _) => group(2, "restart elsewhere", String::new()),
        (Afterwards::StaysOff { strategy }, _) => group(3, "stay off", format!("run strategy {strategy}")),
        (Afterwards::Ended, _) => group(3, "end for good", "no VirtualMachine starts them again".into()),
        (Afterwards::HandedOver, _) => group(4, "handed over", "their owner moves or ends them".into()),
        (Afterwards::Unknown, Prospect::Unknown { why }) => group(5, "not known", why.clone()),
        (Afterwards::Unknown, _) => group(5, "not known", String::new()),
        (Afterwards::Gone, _) if pod.forecast.fate == Fate::Follow => {
            group(6, "leave with their VM", String::new())
        }
        (Afterwards::Gone, _) => group(6, "gone for good", "nothing makes them again".into()),
        (Afterwards::Evicted, Prospect::Unknown { why }) => group(6, "evicted perhaps", why.clone()),
        (Afterwards::Evicted, _) => group(6, "evicted", String::new()),
        (Afterwards::Stays, _) => group(7, "stay", why_stays(pod)),
    }
}

fn why_stays(pod: &PodPlan) -> String {
    pod.forecast.reasons.first().map(evac_core::Reason::brief).unwrap_or_default()
}

fn groups(node: &NodePlan) -> Vec<String> {
    let mut found: BTreeMap<Group, Vec<&PodPlan>> = BTreeMap::new();
    for pod in &node.pods {
        found.entry(group_of(pod)).or_default().push(pod);
    }
    let mut lines = Vec::new();
    for (group, pods) in found {
        let noun = match (group.machines, pods.len()) {
            (true, 1) => "VM",
            (true, _) => "VMs",
            (false, 1) => "pod",
            (false, _) => "pods",
        };
        let mut parts: Vec<String> = Vec::new();
        if !group.detail.is_empty() {
            parts.push(group.detail.clone());
        }
        match group.order {
            1 => {
                parts.push(format!("{} at a time", node.at_once));
                parts.push(goals(&pods));
            }
            7 => {}
            _ => parts.push(names(&pods)),
        }
        lines.push(format!("  {:>4} {noun:<5} {:<20} {}", pods.len(), group.what, parts.join("  ")));
        for warning in warnings(&pods) {
            lines.push(format!("{:>34}{warning}", ""));
        }
        if !group.remedy.is_empty() {
            lines.push(format!("{:>34}→ {}", "", group.remedy));
        }
    }
    lines
}

/// What is lost by what was allowed, and what ends by it.
fn warnings(pods: &[&PodPlan]) -> Vec<String> {
    let mut found: BTreeMap<String, Vec<&PodPlan>> = BTreeMap::new();
    for pod in pods {
        for reason in pod.forecast.reasons.iter().filter(|reason| reason.severity() == Severity::Warning) {
            found.entry(reason.brief()).or_default().push(pod);
        }
    }
    found.into_iter().map(|(what, pods)| format!("! {}: {what}", names(&pods))).collect()
}

fn goals(pods: &[&PodPlan]) -> String {
    let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut unknown = 0;
    for pod in pods {
        match pod.target.as_ref().and_then(|goal| goal.node.as_deref()) {
            Some(node) => *nodes.entry(node).or_default() += 1,
            None => unknown += 1,
        }
    }
    let mut nodes: Vec<(&str, usize)> = nodes.into_iter().collect();
    nodes.sort_by_key(|(node, count)| (std::cmp::Reverse(*count), *node));
    let more = nodes.len().saturating_sub(2 * NAMES);
    let mut parts: Vec<String> =
        nodes.iter().take(2 * NAMES).map(|(node, count)| format!("{node} {count}")).collect();
    if more > 0 {
        parts.push(format!("{more} more nodes"));
    }
    if unknown > 0 {
        parts.push(format!("not known {unknown}"));
    }
    let certain =
        pods.iter().all(|pod| pod.target.as_ref().is_some_and(|goal| goal.sure == Sureness::Certain));
    format!("{} {}", if certain { "to" } else { "likely to" }, parts.join(" · "))
}

fn name(pod: &PodPlan) -> String {
    pod.forecast.instance.as_ref().unwrap_or(&pod.forecast.pod).to_string()
}

fn names(pods: &[&PodPlan]) -> String {
    let shown: Vec<String> = pods.iter().take(NAMES).map(|pod| name(pod)).collect();
    let more = pods.len().saturating_sub(NAMES);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

fn count(some: usize, what: &str) -> String {
    if some == 1 { format!("1 {what}") } else { format!("{some} {what}s") }
}

/// A time in words.
pub fn takes(takes: &Takes) -> String {
    match (takes.at_least, takes.at_most) {
        (_, Some(0)) => "no time".into(),
        (0, Some(most)) => format!("at most {}", seconds(most, true)),
        (least, Some(most)) if most < 120 => format!("{least} to {most} s"),
        (least, Some(most)) if least < 60 => format!("{least} s to {}", seconds(most, true)),
        (least, Some(most)) => format!("{} to {} min", least / 60, most.div_ceil(60)),
        (0, None) => "a time that is not known".into(),
        (least, None) => format!("{} or more", seconds(least, false)),
    }
}

fn seconds(some: u64, upwards: bool) -> String {
    match some {
        ..120 => format!("{some} s"),
        _ if upwards => format!("{} min", some.div_ceil(60)),
        _ => format!("{} min", some / 60),
    }
}

fn state(pod: &PodPlan) -> String {
    match &pod.afterwards {
        Afterwards::Moved => "moved".into(),
        Afterwards::Restarted => "restarted".into(),
        Afterwards::StaysOff { strategy } => format!("off ({strategy})"),
        Afterwards::Ended => "off (no owner)".into(),
        Afterwards::Evicted => "replaced".into(),
        Afterwards::Gone => "gone".into(),
        Afterwards::HandedOver => "up to its owner".into(),
        Afterwards::Stays => "here".into(),
        Afterwards::Unknown => "not known".into(),
    }
}

/// A table with a line for each pod of each node.
pub fn every_pod(plan: &Plan) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["NODE", "VM OR POD", "VERDICT", "TARGET", "SURE", "TAKES", "AFTERWARDS", "REASONS"]);
    for node in &plan.nodes {
        for pod in &node.pods {
            let goal = pod.target.as_ref();
            let sure = goal.map_or("", |goal| match goal.sure {
                Sureness::Certain => "certain",
                Sureness::Likely => "likely",
                Sureness::Unknown => "unknown",
            });
            let mut reasons: Vec<&str> = pod.forecast.reasons.iter().map(evac_core::Reason::code).collect();
            if let Some(reason) =
                pod.forecast.reason().filter(|reason| !pod.forecast.reasons.contains(reason))
            {
                reasons.push(reason.code());
            }
            table.add_row([
                output::clean(&node.node),
                output::clean(&name(pod)),
                verdict(pod).to_owned(),
                output::clean(goal.and_then(|goal| goal.node.as_deref()).unwrap_or_default()),
                sure.to_owned(),
                takes(&pod.takes),
                output::clean(&state(pod)),
                reasons.join(","),
            ]);
        }
    }
    table.to_string()
}

fn verdict(pod: &PodPlan) -> &'static str {
    match (&pod.forecast.prospect, pod.forecast.fate) {
        (Prospect::Never { .. } | Prospect::Refused { .. }, _) => "blocked",
        (Prospect::Waits { .. }, _) => "waits",
        (Prospect::Unknown { .. }, _) => "unknown",
        (Prospect::HandedOver, _) => "hand over",
        (_, Fate::Migrate) => "migrate",
        (_, Fate::Evict) => "evict",
        (_, Fate::Follow) => "follow",
        (_, Fate::Leave) => "leave",
        (_, Fate::Blocked) => "blocked",
    }
}

/// One line for each node, those with the most trouble first. Nodes without trouble are counted after the first few, unless all are asked for.
pub fn survey(survey: &Survey, all: bool) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["NODE", "VMS", "PODS", "VERDICT", "TAKES", "SPARE", "IN THE WAY"]);
    let fine = survey.nodes.iter().filter(|node| node.verdict == Verdict::Drainable).count();
    let shown =
        if all { survey.nodes.len() } else { survey.nodes.len() - fine.saturating_sub(WITHOUT_TROUBLE) };
    for node in &survey.nodes[..shown] {
        table.add_row([
            output::clean(&node.node),
            node.machines.to_string(),
            node.pods.to_string(),
            match node.verdict {
                Verdict::Blocked => "blocked",
                Verdict::NoRoom => "no room",
                Verdict::Unknown => "unknown",
                Verdict::Drainable => "yes",
            }
            .to_owned(),
            takes(&node.takes),
            node.spare_memory.map(evac_core::plan::bytes_text).unwrap_or_default(),
            output::clean(&in_the_way(node)),
        ]);
    }
    let left = survey.nodes.len() - shown;
    if left == 0 { table.to_string() } else { format!("{table}\n… {left} more: yes") }
}

fn in_the_way(node: &SurveyedNode) -> String {
    let one = |one: &evac_core::plan::InTheWay| match one.pods {
        1 => format!("{}: {}", one.of, one.reason.brief()),
        more => format!("{} and {} more: {}", one.of, more - 1, one.reason.brief()),
    };
    node.in_the_way.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(at_least: u64, at_most: Option<u64>) -> String {
        takes(&Takes { at_least, at_most, basis: Basis::Measured, unknown: None })
    }

    #[test]
    fn times_are_ranges_in_the_unit_that_fits() {
        assert_eq!(of(0, Some(0)), "no time");
        assert_eq!(of(0, Some(32)), "at most 32 s");
        assert_eq!(of(5, Some(40)), "5 to 40 s");
        assert_eq!(of(20, Some(300)), "20 s to 5 min");
        assert_eq!(of(250, Some(301)), "4 to 6 min");
        assert_eq!((of(0, None), of(130, None)), ("a time that is not known".into(), "2 min or more".into()));
    }
}
