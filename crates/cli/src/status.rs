//! `evac status`: which nodes are being emptied, by whom, and how far that is.

use clap::{Args, ValueEnum};
use comfy_table::Table;
use evac_core::drain::claim::{self, Life};
use evac_core::drain::explain::span;
use evac_core::drain::ownership::MarkState;
use evac_core::{Fate, Index, Key, Node, Policy, assess};
use serde_json::json;

use crate::cluster::ClusterArgs;
use crate::exit::{Exit, Failure};
use crate::look::look;
use crate::output;
use crate::select::{self, NodeArgs};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum StatusFormat {
    #[default]
    Table,
    Json,
}

/// Show which nodes are being drained, by whom, and what is left on them
///
/// Without names: all nodes that are cordoned or carry the mark of a drain. Drains that run are asked for a sign of life by an
/// annotation on their lease; without the right to write it, their last one is shown.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub nodes: NodeArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: StatusFormat,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

pub async fn run(args: &StatusArgs) -> Result<Exit, Failure> {
    let everything = args.nodes.names.is_empty() && args.nodes.selector.is_none();
    let (http, _) = args.cluster.connect().await?;
    let chosen = if everything {
        let all = select::nodes(&http, "", 500).await?;
        all.into_iter().filter(|node| node.unschedulable || node.mark.is_some()).collect()
    } else {
        args.nodes.check("status")?;
        args.nodes.resolve(&http, 500).await?
    };
    let names: Vec<String> = chosen.iter().map(|node: &Node| node.name.clone()).collect();
    let index = look(&http, chosen).await?;
    let now = http.clock().now();
    let rows: Vec<Row> = names.iter().filter_map(|name| Row::of(&index, name, now)).collect();
    match args.output {
        StatusFormat::Json => output::document(
            &json!({"schema": "evac.dev/status/v1", "kind": "NodeStatusList", "nodes": rows.iter().map(Row::json).collect::<Vec<_>>()})
                .to_string(),
        ),
        StatusFormat::Table if rows.is_empty() => output::talk("no node is cordoned or being drained"),
        StatusFormat::Table => print_table(&rows, now),
    }
    Ok(Exit::Done)
}

struct Row {
    node: String,
    state: &'static str,
    owner: Option<String>,
    since: Option<jiff::Timestamp>,
    life: Life,
    to_leave: usize,
    leaving: usize,
    staying: usize,
    finished: usize,
    guests: usize,
    moving: usize,
}

impl Row {
    fn of(index: &Index, name: &str, now: jiff::Timestamp) -> Option<Self> {
        let node = index.node(name)?;
        // Whatever was allowed to go counts as to leave; the flags of the drain are its own business.
        let assessment = assess(index, &Policy::thorough(), name, now);
        let to_leave = assessment.to_leave().count();
        // What held a guest's volume and has finished is left to that guest's controller. Nothing of it is on the node any more, so it does not stay there.
        let is_over = |pod: &Key| index.pod(pod).is_some_and(|pod| pod.phase.is_finished());
        let (finished, staying): (Vec<_>, Vec<_>) =
            assessment.of_fate(Fate::Leave).partition(|verdict| is_over(&verdict.pod));
        let (finished, staying) = (finished.len(), staying.len());
        let leaving = index
            .pods_on(name)
            .filter(|pod| pod.deletion.is_some())
            .filter(|pod| {
                assessment
                    .verdicts
                    .iter()
                    .any(|verdict| verdict.pod == pod.key && verdict.fate != Fate::Leave)
            })
            .count();
        let guests: Vec<_> = assessment
            .verdicts
            .iter()
            .filter(|verdict| verdict.fate != Fate::Leave && !is_over(&verdict.pod))
            .filter_map(|verdict| verdict.instance.as_ref())
            .collect();
        let under_way =
            |vmi: &&&Key| index.migrations_of(vmi).iter().any(|migration| !migration.phase.is_final());
        let moving = guests.iter().filter(under_way).count();
        let guests = guests.len();
        let (owner, since) = match &node.mark {
            Some(MarkState::Valid(mark)) => (Some(mark.owner.clone()), Some(mark.since)),
            Some(MarkState::Unreadable(_)) => (Some("unreadable mark".into()), None),
            None => (None, None),
        };
        let life = claim::life(index, name, now);
        let state = claim::node_state(node.mark.is_some(), node.unschedulable, to_leave == 0, &life);
        Some(Self {
            node: name.to_owned(),
            state,
            owner,
            since,
            life,
            to_leave,
            leaving,
            staying,
            finished,
            guests,
            moving,
        })
    }

    /// The run behind the mark and its last sign of life.
    fn drainer(&self) -> serde_json::Value {
        let (holder, seen, alive) = match &self.life {
            Life::Unclaimed => return serde_json::Value::Null,
            Life::Alive { holder, seen } => (holder, seen, Some(true)),
            Life::Unheard { holder, seen } => (holder, seen, None),
            Life::Dead { holder, seen } => (holder, seen, Some(false)),
        };
        json!({"owner": holder.owner, "run": holder.instance, "lastSeen": seen.to_string(), "alive": alive})
    }

    fn drainer_text(&self, now: jiff::Timestamp) -> String {
        let ago = |seen: &jiff::Timestamp| span(now.duration_since(*seen).as_secs().max(0));
        match &self.life {
            Life::Unclaimed => "-".into(),
            Life::Alive { holder, seen } | Life::Unheard { holder, seen } => {
                format!("{} (seen {} ago)", holder.instance, ago(seen))
            }
            Life::Dead { holder, seen } => format!("{} (lost {} ago)", holder.instance, ago(seen)),
        }
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "node": self.node, "state": self.state, "owner": self.owner, "since": self.since.map(|at| at.to_string()),
            "drainer": self.drainer(),
            "podsToLeave": self.to_leave, "podsLeaving": self.leaving, "podsStaying": self.staying,
            "podsFinished": self.finished,
            "vmsToLeave": self.guests, "vmsMoving": self.moving,
        })
    }
}

fn print_table(rows: &[Row], now: jiff::Timestamp) {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([
        "NODE", "STATE", "BY", "SINCE", "RUN", "TO LEAVE", "LEAVING", "STAYING", "VMS", "MOVING",
    ]);
    for row in rows {
        table.add_row([
            output::clean(&row.node),
            row.state.to_owned(),
            output::clean(row.owner.as_deref().unwrap_or("-")),
            row.since.map_or("-".into(), |since| span(now.duration_since(since).as_secs().max(0))),
            output::clean(&row.drainer_text(now)),
            row.to_leave.to_string(),
            row.leaving.to_string(),
            row.staying.to_string(),
            row.guests.to_string(),
            row.moving.to_string(),
        ]);
    }
    output::document(&table.to_string());
}
