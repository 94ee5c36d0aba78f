//! What a failover says: to people in lines, to programs in JSON.

use evac_clock::Clock;
use evac_core::drain::explain::span;
use evac_core::failover::{LetGo, Pending, Release};
use evac_engine::failover::{End, Event, Report};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::drain::Format;
use crate::dry_run::DryRunArg;
use crate::output;
use crate::render::{Renderer as DrainRenderer, SCHEMA};

pub struct Renderer {
    format: Format,
    node: String,
    drain: DrainRenderer,
}

impl Renderer {
    pub fn new(format: Format, node: &str, clock: Clock) -> Self {
        let drain = DrainRenderer::new(format, DryRunArg::None, &[node.to_owned()], clock);
        Self { format, node: node.to_owned(), drain }
    }

    pub fn event(&mut self, at: Timestamp, event: &Event) {
        if let Event::Drain(event) = event {
            self.drain.event(at, event);
            return;
        }
        match self.format {
            Format::Json => self.json(at, serde_json::to_value(event).unwrap_or_default()),
            Format::Text => self.text(at, event),
        }
    }

    fn json(&self, at: Timestamp, fields: Value) {
        let mut line = Map::new();
        line.insert("schema".into(), SCHEMA.into());
        line.insert("time".into(), json!(at));
        line.insert("node".into(), json!(self.node));
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        output::document(&Value::Object(line).to_string());
    }

    fn text(&self, at: Timestamp, event: &Event) {
        let node = &self.node;
        match event {
            Event::Report(report) => show(report, at),
            Event::Cordoned { already: true } => output::data(&format!("node/{node} already cordoned")),
            Event::Cordoned { already: false } => output::data(&format!("node/{node} cordoned")),
            Event::Drains { limit_seconds } => output::talk(&format!(
                "the kubelet of node {node} answers; draining it for at most {}",
                span(i64::try_from(*limit_seconds).unwrap_or(i64::MAX))
            )),
            Event::Watching { seconds } => {
                output::talk(&format!("watching node {node} for signs of life, {}", span(*seconds)));
            }
            Event::Fencing { by } => output::talk(&format!("switching node {node} off with {by}")),
            Event::FenceFailed { number, why } => output::warning(&format!("try {number}: {why}")),
            Event::Proven { how, .. } => output::data(&format!("node/{node} proven to be off: {how}")),
            Event::Released { how: Release::Taint } => output::data(&format!("node/{node} out of service")),
            Event::Released { how: Release::DeleteNode } => output::data(&format!("node/{node} deleted")),
            Event::Returned { instance, on } => output::data(&format!("vm {instance} runs on {on}")),
            Event::StaysOff { instance, why } => output::data(&format!("vm {instance} {why}")),
            Event::LetGo(guest) => output::data(&format!("{}; it is not waited for any more", guest.words())),
            Event::Waiting { remains } => {
                if let Some(line) = waiting(remains) {
                    output::talk(&line);
                }
            }
            Event::Restored => output::talk(&format!(
                "nothing is left on node {node}; the taint is removed, and the node stays cordoned"
            )),
            Event::Drain(_) => {}
        }
    }

    pub fn end(&self, at: Timestamp, end: &End) {
        let (word, lines) = self.words(end);
        if self.format == Format::Json {
            self.json(at, json!({"type": "ended", "end": word, "messages": lines}));
        }
        match end {
            End::Done { .. } | End::Drained if self.format == Format::Text => {
                for line in lines {
                    output::data(&line);
                }
            }
            End::Done { .. } | End::Drained => {}
            End::Rehearsed { proven: true, .. } => lines.iter().for_each(|line| output::talk(line)),
            _ => {
                let mut lines = lines.iter();
                if let Some(first) = lines.next() {
                    output::error(first);
                }
                lines.for_each(|line| output::talk(line));
            }
        }
    }

    fn words(&self, end: &End) -> (&'static str, Vec<String>) {
        let node = &self.node;
        match end {
            End::Done { returned, off } => {
                ("done", vec![format!("node/{node} failed over: {returned} returned, {off} stay off")])
            }
            End::Left { guests, .. } => {
                let mut lines = vec![format!(
                    "node {node} is failed over and nothing is left on it, but not everyone could start elsewhere"
                )];
                lines.extend(guests.iter().map(LetGo::words));
                lines.push(format!(
                    "To do: make room for them; or repair the machine, and then: evac uncordon {node}"
                ));
                ("left", lines)
            }
            End::Drained => ("drained", vec![format!("node/{node} drained; nothing had to be released")]),
            End::Rehearsed { proven: true, unwatched } => {
                let mut lines = vec![format!("node {node} would be failed over; nothing was changed")];
                if *unwatched > 0 {
                    lines.push(format!(
                        "Its silence was not observed; a failover first watches it for {} and stops at a sign of life",
                        span(*unwatched)
                    ));
                }
                ("rehearsed", lines)
            }
            End::Rehearsed { proven: false, .. } => ("noProof", self.no_proof(None)),
            End::NoProof { why } => {
                let mut lines = self.no_proof(why.as_deref());
                lines.push(format!("The node stays cordoned; to give it back: evac cancel {node}"));
                ("noProof", lines)
            }
            End::Refused(refusal) => {
                ("refused", vec![format!("node {node} {}; nothing was released", refusal.message())])
            }
            End::TimedOut { remains, .. } => {
                let mut lines =
                    vec![format!("node {node} is released, but not everything came back in time")];
                lines.extend(remains.words());
                lines.push(format!("To go on waiting: evac failover {node}"));
                ("timedOut", lines)
            }
            End::Stopped { released } => {
                let state = if *released { "it is released" } else { "nothing was released" };
                ("stopped", vec![format!("stopped; node {node} stays cordoned, {state}")])
            }
        }
    }

    fn no_proof(&self, why: Option<&str>) -> Vec<String> {
        let node = &self.node;
        let because = why.map_or(String::new(), |why| format!(" ({why})"));
        vec![
            format!(
                "node {node} is not proven to be off{because}; its guests may still run and write to their disks, so \
                 nothing is released"
            ),
            format!(
                "To do: power the machine off, then: evac failover {node} --fenced-by NAME --reason TEXT; or let a fence \
                 agent switch it off: evac failover {node} --fence-agent COMMAND --fence-option KEY=VALUE"
            ),
        ]
    }
}

fn waiting(remains: &Pending) -> Option<String> {
    let mut parts: Vec<String> = remains.guests.iter().map(evac_core::failover::Missing::words).collect();
    if !remains.pods.is_empty() {
        parts.push(format!("{} pods to be removed", remains.pods.len()));
    }
    if !remains.attachments.is_empty() {
        parts.push(format!("{} volumes to be detached", remains.attachments.len()));
    }
    (!parts.is_empty()).then(|| format!("waiting: {}", parts.join(", ")))
}

fn show(report: &Report, now: Timestamp) {
    let ago = |at: Timestamp| span(now.duration_since(at).as_secs().max(0));
    let when = |at: Option<Timestamp>| at.map_or("never".into(), |at| format!("{at:.0} ({} ago)", ago(at)));
    let node = &report.node;
    let since = report.since.map_or(String::new(), |at| format!(" since {at:.0} ({})", ago(at)));
    output::data(&format!("node {node} is {}{since}", report.state));
    output::data(&format!("  lease of its kubelet renewed: {}", when(report.lease_renewed)));
    output::data(&format!("  last report of its kubelet: {}", when(report.last_report)));
    if let Some(at) = report.machine_agent_seen {
        output::data(&format!("  agent of virtual machines seen: {}", when(Some(at))));
    }
    let volumes = if report.attachments.is_empty() { "none".into() } else { report.attachments.join(", ") };
    output::data(&format!("  volumes attached: {volumes}"));
    output::data(&format!("  pods: {}", report.pods));
    for guest in &report.guests {
        output::data(&format!("  vm {} {}", guest.instance, guest.fate.words()));
    }
    let proof = match (&report.proof, &report.proof_void) {
        (Some(proof), Some(void)) => format!("none that holds: {proof}, but {void}"),
        (Some(proof), None) => proof.clone(),
        (None, _) if report.shut_down_by_provider => "its provider says that it is shut down".into(),
        (None, _) => "none".into(),
    };
    output::data(&format!("  proof that it is off: {proof}"));
    for unread in &report.unread {
        output::warning(&format!("not known: {unread}"));
    }
}
