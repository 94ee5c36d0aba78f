//! Maintenances as tables, details and JSON.

use comfy_table::Table;
use evac_core::drain::explain::span;
use evac_core::maintenance::status::{PERMISSION_IGNORED, UNREAD, WAITING};
use evac_core::maintenance::{Maintenance, Phase, Status};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Format;
use crate::output;

fn state(object: &Maintenance) -> &'static str {
    match object.status.phase {
        _ if object.deleting => "ending",
        Some(Phase::Succeeded) => "empty",
        Some(Phase::Failed) => "failed",
        Some(Phase::Running) if object.status.says(UNREAD) => "unknown",
        Some(Phase::Running) if object.status.says(WAITING) => "waiting",
        Some(Phase::Running) => "draining",
        None => "new",
    }
}

/// The share that has left; what the operator cannot read has none.
pub fn progress(status: &Status) -> String {
    if status.says(UNREAD) { "?".to_owned() } else { format!("{}%", status.drain_progress) }
}

fn value(object: &Maintenance) -> Value {
    json!({
        "name": object.id.name,
        "group": object.id.family.group(),
        "node": object.node,
        "reason": (!object.reason.is_empty()).then_some(&object.reason),
        "created": object.created,
        "state": state(object),
        "status": object.status,
    })
}

fn json_of(objects: &[Maintenance]) -> String {
    let items: Vec<Value> = objects.iter().map(value).collect();
    json!({"schema": "evac.dev/maintenance/v1", "kind": "MaintenanceList", "maintenances": items}).to_string()
}

fn age(object: &Maintenance, now: Timestamp) -> String {
    object.created.map(|at| span(now.duration_since(at).as_secs().max(0))).unwrap_or_default()
}

pub fn list(objects: &[Maintenance], format: Format, now: Timestamp) {
    match format {
        Format::Json => output::document(&json_of(objects)),
        Format::Name => {
            for object in objects {
                output::data(&format!("nodemaintenance/{}", object.id.name));
            }
        }
        Format::Table if objects.is_empty() => output::talk("no node is under maintenance"),
        Format::Table => {
            let mut table = Table::new();
            table.load_style(comfy_table::presets::NOTHING);
            table.set_header(["NODE", "STATE", "PROGRESS", "PENDING", "AGE", "NAME", "REASON"]);
            for object in objects {
                table.add_row([
                    output::clean(&object.node),
                    state(object).to_owned(),
                    progress(&object.status),
                    object.status.pending_pods.len().to_string(),
                    age(object, now),
                    object.id.name.clone(),
                    output::clean(&object.reason),
                ]);
            }
            output::document(&table.to_string());
        }
    }
}

pub fn details(objects: &[Maintenance], idle: &[&String], format: Format, now: Timestamp) {
    if format == Format::Table {
        for object in objects {
            detail(object, now);
        }
    } else {
        list(objects, format, now);
    }
    for node in idle {
        output::error(&format!("node {node} is not under maintenance"));
    }
}

fn detail(object: &Maintenance, now: Timestamp) {
    let status = &object.status;
    let line = |name: &str, text: &str| {
        if !text.is_empty() {
            output::data(&format!("{:<11} {}", format!("{name}:"), output::clean(text)));
        }
    };
    line("Node", &object.node);
    line("Object", &object.id.to_string());
    line("Reason", &object.reason);
    line("State", &format!("{}, for {}", state(object), age(object, now)));
    let pods = format!(
        "{} of {} have left ({})",
        status.eviction_pods - i64::try_from(status.pending_pods_refs.len()).unwrap_or(0),
        status.eviction_pods,
        progress(status)
    );
    line("Pods", &pods);
    if let Some(estimate) = &status.estimated_end {
        let until = |at: Timestamp| span(at.duration_since(now).as_secs().max(0));
        let left = match estimate.earliest {
            Some(earliest) => format!("{} to {}", until(earliest), until(estimate.latest)),
            None => format!("at most {}", until(estimate.latest)),
        };
        line("Left", &left);
    }
    line("Waits for", &status.last_error);
    line("Note", status.message(PERMISSION_IGNORED).unwrap_or_default());
    for blocker in &status.blockers {
        output::data(&format!("  {}: {}", blocker.object, output::clean(&blocker.message)));
        if !blocker.fix.is_empty() {
            output::data(&format!("    {}", output::clean(&blocker.fix)));
        }
    }
}
