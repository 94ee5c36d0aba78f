//! What a person or a script sees of a drain.
//!
//! Text goes out as kubectl writes it, so that scripts find the words they look for. On a terminal the view in
//! `screen/` is shown below. With `-o json` every event is one line of JSON and nothing else is data.

use std::collections::BTreeMap;
use std::time::Duration;

use evac_clock::Clock;
use evac_core::cluster::fact::Key;
use evac_core::cluster::tenant::TenantProgress;
use evac_core::drain::explain::{explain, span};
use evac_core::drain::forecast::{Expected, Forecast};
use evac_core::drain::run::{Blocker, End, Left};
use evac_core::drain::step::Event;
use evac_core::{Fate, Reason};
use jiff::Timestamp;

use crate::drain::Format;
use crate::dry_run::DryRunArg;
use crate::output;
use crate::screen::Screen;

/// The name and version of the event format; see docs/events.md.
pub const SCHEMA: &str = "evac.dev/events/v1";

/// Agents take a new sample every five seconds; more is not to be seen.
const MEASURE_FOR_PEOPLE: Duration = Duration::from_secs(5);
const MEASURE_FOR_PROGRAMS: Duration = Duration::from_secs(10);

pub struct Renderer {
    format: Format,
    dry_run: DryRunArg,
    screen: Option<Screen>,
    nodes: Vec<String>,
}

impl Renderer {
    pub fn new(format: Format, dry_run: DryRunArg, nodes: &[String], clock: Clock) -> Self {
        let screen = (format == Format::Text && dry_run == DryRunArg::None && output::is_screen())
            .then(|| Screen::begin(clock));
        Self { format, dry_run, screen, nodes: nodes.to_vec() }
    }

    /// How often it is worth reading how far guests have been copied. Lines of text do not show it.
    pub fn measure(&self) -> Option<Duration> {
        match self.format {
            Format::Json => Some(MEASURE_FOR_PROGRAMS),
            Format::Text => self.screen.as_ref().map(|_| MEASURE_FOR_PEOPLE),
        }
    }

    pub fn event(&mut self, at: Timestamp, event: &Event) {
        match self.format {
            Format::Json => json_line(at, event),
            Format::Text => {
                text_lines(at, event, self.dry_run).iter().for_each(Line::print);
                if let Some(screen) = &mut self.screen {
                    screen.show(at, event);
                }
            }
        }
    }

    /// Takes the view away, and sums up what was seen in it.
    pub fn finish(&mut self) {
        if let Some(screen) = self.screen.take()
            && let Some(line) = screen.end()
        {
            output::talk(&line);
        }
    }

    /// What kubectl says at the end when nodes are left.
    pub fn summary(&self, ends: &[(String, End)]) {
        if self.format == Format::Json {
            return;
        }
        let pending: Vec<&str> = ends
            .iter()
            .filter(|(_, end)| !matches!(end, End::Drained { .. } | End::Rehearsed { .. }))
            .map(|(node, _)| node.as_str())
            .collect();
        if !pending.is_empty() && pending.len() <= self.nodes.len() {
            output::talk("There are pending nodes to be drained:");
            for node in pending {
                output::talk(&format!(" {node}"));
            }
        }
    }
}

fn json_line(at: Timestamp, event: &Event) {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(event) else { return };
    let mut line = serde_json::Map::new();
    line.insert("schema".into(), SCHEMA.into());
    line.insert("time".into(), at.to_string().into());
    line.extend(fields);
    match event {
        Event::Waiting { blocker, .. } => {
            line.insert("message".into(), explain(blocker, at).into());
            line.insert("severity".into(), serde_json::json!(blocker.reason.severity()));
        }
        Event::Tenant { instance, tenant, .. } => {
            line.insert("message".into(), of_tenant(instance, tenant, at).into());
        }
        Event::Noted { node, reason } => {
            line.insert("message".into(), format!("node {node} {}", reason.message()).into());
        }
        Event::Ended { end, .. } => {
            let sentences: Vec<String> = blockers(end).iter().map(|blocker| explain(blocker, at)).collect();
            line.insert("messages".into(), sentences.into());
        }
        _ => {}
    }
    output::document(&serde_json::Value::Object(line).to_string());
}

enum Line {
    Data(String),
    Talk(String),
    Warning(String),
    Error(String),
}

impl Line {
    fn print(&self) {
        match self {
            Self::Data(text) => output::data(text),
            Self::Talk(text) => output::talk(text),
            Self::Warning(text) => output::warning(text),
            Self::Error(text) => output::error(text),
        }
    }
}

/// The sentence about the first of several pods that are held up in the same way, and who the others are.
fn with_others(blocker: &Blocker, also: &[Key], at: Timestamp) -> String {
    let sentence = explain(blocker, at);
    if also.is_empty() {
        return sentence;
    }
    let shown: Vec<String> = also.iter().take(OTHERS_SHOWN).map(ToString::to_string).collect();
    let more = if also.len() > OTHERS_SHOWN { ", …" } else { "" };
    format!("{sentence} (and {} more: {}{more})", also.len(), shown.join(", "))
}

/// Names beyond these add nothing to the sentence.
const OTHERS_SHOWN: usize = 3;

pub fn blockers(end: &End) -> &[Blocker] {
    match end {
        End::Rehearsed { blockers }
        | End::NotStarted { blockers }
        | End::Blocked { blockers }
        | End::TimedOut { blockers, .. }
        | End::Failed { blockers, .. }
        | End::Stopped { blockers, .. } => blockers,
        End::Drained { .. } | End::Refused { .. } => &[],
    }
}

fn text_lines(at: Timestamp, event: &Event, dry_run: DryRunArg) -> Vec<Line> {
    let suffix = dry_run.suffix();
    match event {
        Event::Planned { assessment, .. } => {
            let mut lines = Vec::new();
            let warnings = assessment.warnings();
            if !warnings.is_empty() {
                lines.push(Line::Warning(warnings.join("; ")));
            }
            lines
        }
        Event::Forecast { forecast } => foretold_lines(forecast, dry_run),
        Event::Noted { node, reason } => vec![Line::Warning(format!("node {node} {}", reason.message()))],
        Event::AlreadyCordoned { node } => vec![Line::Data(format!("node/{node} already cordoned{suffix}"))],
        Event::Leaves { node, left } => vec![Line::Talk(what_is_left(node, left))],
        Event::Cordoned { node } => vec![Line::Data(format!("node/{node} cordoned{suffix}"))],
        Event::Evicting { pod, attempt: 1, deleting: false, finished: false, .. } => {
            vec![Line::Data(format!("evicting pod {pod}{suffix}"))]
        }
        Event::Moving { instance, attempt: 1, .. } => {
            vec![Line::Data(format!("migrating vmi {instance}{suffix}"))]
        }
        Event::Adopted { instance, migration, .. } => {
            vec![Line::Data(format!(
                "vmi {instance} is migrated already (migration {migration}, not of this drain)"
            ))]
        }
        Event::Evicting { .. }
        | Event::Progress { .. }
        | Event::Rehearsed { .. }
        | Event::Moving { .. }
        | Event::MovePhase { .. }
        | Event::Copying { .. }
        | Event::Outlook { .. } => Vec::new(),
        Event::Moved { instance, to, .. } => vec![Line::Data(format!("vmi {instance} migrated to {to}"))],
        Event::MoveFailed { instance, failures, message, retry_at, .. } => {
            let next = match retry_at {
                Some(retry) => format!("next try in {}", span(retry.duration_since(at).as_secs().max(0))),
                None => format!("not tried again after {failures} failures"),
            };
            vec![Line::Talk(format!("migration of vmi {instance} failed: {message}; {next}"))]
        }
        Event::Tenant { instance, tenant, .. } => vec![Line::Talk(of_tenant(instance, tenant, at))],
        Event::Waiting { blocker, also, .. } => vec![Line::Talk(with_others(blocker, also, at))],
        Event::Left { pod, by_us: false, .. } => {
            vec![Line::Data(format!("pod/{} is gone (not evicted by this drain)", pod.name))]
        }
        Event::Left { pod, deleting, .. } => {
            let how = if *deleting { "deleted" } else { "evicted" };
            vec![Line::Data(format!("pod/{} {how}", pod.name))]
        }
        Event::Ended { node, end } => ended_lines(at, node, end, suffix),
    }
}

/// What a trial says of pods: which would be asked, and what cannot be known before.
fn foretold_lines(forecast: &Forecast, dry_run: DryRunArg) -> Vec<Line> {
    let mut lines = Vec::new();
    if forecast.expected == Expected::NotStarted {
        return lines;
    }
    // On the server each was asked, and told when it was.
    if dry_run == DryRunArg::Client {
        let suffix = dry_run.suffix();
        for pod in forecast.pods.iter().filter(|pod| pod.is_asked()) {
            lines.push(Line::Data(match (&pod.fate, &pod.instance) {
                (Fate::Migrate, Some(vmi)) => format!("migrating vmi {vmi}{suffix}"),
                _ => format!("evicting pod {}{suffix}", pod.pod),
            }));
        }
    }
    for what in &forecast.depends_on {
        lines.push(Line::Talk(format!("node {}: not known before a drain: {what}", forecast.node)));
    }
    lines
}

/// Host node, machine, node in the tenant, what is left on it, what is in the way, and for how long at most.
fn of_tenant(instance: &Key, tenant: &TenantProgress, at: Timestamp) -> String {
    let left = span(tenant.deadline.duration_since(at).as_secs().max(0));
    let blocker = tenant.blocker().map_or(String::new(), |blocker| format!(": {blocker}"));
    format!("vmi {instance}: {}{blocker}; deleted in {left} at the latest", tenant.words())
}

fn ended_lines(at: Timestamp, node: &str, end: &End, suffix: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let failed = |why: &str| Line::Error(format!("unable to drain node \"{node}\" due to error: {why}"));
    match end {
        End::Drained { proof } => {
            if proof.fulfils_request() {
                lines.push(Line::Data(format!("node/{node} drained")));
            } else {
                lines.push(failed("the node is not proven to be empty"));
            }
            lines.push(Line::Talk(format!("node/{node} safe to power off: {proof}")));
        }
        End::Rehearsed { blockers } if blockers.is_empty() => {
            lines.push(Line::Data(format!("node/{node} drained{suffix}")));
        }
        End::Rehearsed { .. } => lines.push(failed("some pods would not be let go")),
        End::NotStarted { blockers } => {
            let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for blocker in blockers {
                let words = blocker.reason.kubectl_words().unwrap_or_else(|| blocker.reason.message());
                groups.entry(words).or_default().push(blocker.pod.to_string());
            }
            let errors: Vec<String> = groups
                .iter()
                .map(|(words, pods)| format!("cannot delete {words}: {}", pods.join(", ")))
                .collect();
            let errors = if errors.len() == 1 { errors.concat() } else { format!("[{}]", errors.join(", ")) };
            lines.push(failed(&errors));
            lines.push(Line::Talk(format!("nothing was changed on node {node}")));
        }
        End::Blocked { .. } => lines.push(failed("what is left will not leave by waiting")),
        End::TimedOut { after, .. } => {
            lines.push(failed(&format!("global timeout reached: {}", span(after.as_secs() as i64))));
        }
        End::Failed { reason, blockers } if blockers.is_empty() => {
            lines.push(failed(&reason.message()));
            if let Some(fix) = reason.fix() {
                lines.push(Line::Talk(format!("To do: {fix}")));
            }
        }
        End::Failed { .. } => lines.push(failed("some pods could not be evicted")),
        End::Refused { reason } => lines.push(refused(node, reason)),
        End::Stopped { left: Left::Cordoned, to_leave, .. } => {
            lines.push(Line::Talk(format!(
                "stopped; node {node} stays cordoned. Under way or left: {} pods. Run the same command again to go on, or `evac cancel {node}` to undo",
                to_leave.len()
            )));
        }
        End::Stopped { left, .. } => {
            lines.push(Line::Talk(format!("stopped; {}", what_is_left(node, left))));
        }
    }
    if !matches!(end, End::NotStarted { .. }) {
        lines.extend(blockers(end).iter().map(|blocker| Line::Talk(format!("  {}", explain(blocker, at)))));
    }
    lines
}

/// What a drain that came to no end leaves, and what can be done about it.
fn what_is_left(node: &str, left: &Left) -> String {
    match left {
        Left::Nothing => {
            format!("node {node} is not cordoned by this drain, and nothing of it is left there")
        }
        Left::Cordoned => {
            format!(
                "node {node} stays cordoned. Run the same command again to go on, or `evac cancel {node}` to undo"
            )
        }
        Left::Unknown { why } => format!(
            "node {node} may have been cordoned or not: the answer was lost, and it could not be read again: {why}. `evac status {node}` shows it when the API server answers, and `evac cancel {node}` takes it back"
        ),
    }
}

fn refused(node: &str, reason: &Reason) -> Line {
    let fix = reason.fix().map_or(String::new(), |fix| format!(". To do: {fix}"));
    Line::Error(format!("node {node} {}{fix}", reason.message()))
}
