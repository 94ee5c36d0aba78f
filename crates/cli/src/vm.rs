//! `evac vm`: list virtual machines, and start, stop, restart or migrate one.

use clap::{Args, Subcommand, ValueEnum};
use comfy_table::Table;
use evac_api::Call;
use evac_api::call::{escape, labelled};
use evac_api::kubevirt::request;
use evac_api::wire::List;
use evac_core::cluster::natural::natural;
use evac_core::drain::explain::span;
use evac_core::machines::Kind;
use evac_engine::http::parse;
use evac_engine::operator::power;
use evac_engine::{Http, HttpError};
use serde_json::{Value, json};

use crate::cluster::ClusterArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::select::from_server;

#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// List virtual machines, and instances that no machine owns
    List(ListArgs),
    /// Start a virtual machine
    Start(StartArgs),
    /// Stop a virtual machine
    Stop(StopArgs),
    /// Restart a virtual machine
    Restart(RestartArgs),
    /// Move a running virtual machine to another node
    Migrate(OneArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum Format {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Of all namespaces
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// Only those with these labels
    #[arg(long, short = 'l')]
    pub selector: Option<String>,
    /// Output format
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: Format,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Clone, Args)]
pub struct OneArgs {
    /// The virtual machine
    #[arg(add = crate::complete::vms())]
    pub name: String,
    /// Only say whether it would be accepted
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Clone, Args)]
pub struct StartArgs {
    #[command(flatten)]
    pub one: OneArgs,
    /// Start it paused
    #[arg(long)]
    pub paused: bool,
}

#[derive(Debug, Clone, Args)]
pub struct StopArgs {
    #[command(flatten)]
    pub one: OneArgs,
    /// Seconds the guest gets to shut down
    #[arg(long, value_name = "SECONDS", value_parser = crate::number::from(0_i64))]
    pub grace_period: Option<i64>,
}

#[derive(Debug, Clone, Args)]
pub struct RestartArgs {
    #[command(flatten)]
    pub one: OneArgs,
    /// 0 restarts at once, without asking the guest
    #[arg(long, value_name = "SECONDS", value_parser = crate::number::from(0_i64))]
    pub grace_period: Option<i64>,
}

pub async fn run(command: &VmCommand) -> Result<Exit, Failure> {
    match command {
        VmCommand::List(args) => list(args).await,
        VmCommand::Start(args) => ask(&args.one, "start", json!({"paused": args.paused})).await,
        VmCommand::Stop(args) => ask(&args.one, "stop", optional("gracePeriod", args.grace_period)).await,
        VmCommand::Restart(args) => {
            ask(&args.one, "restart", optional("gracePeriodSeconds", args.grace_period)).await
        }
        VmCommand::Migrate(args) => ask(args, "migrate", json!({})).await,
    }
}

fn optional(field: &str, value: Option<i64>) -> Value {
    value.map_or_else(|| json!({}), |value| json!({field: value}))
}

async fn ask(one: &OneArgs, verb: &str, mut options: Value) -> Result<Exit, Failure> {
    let (http, namespace) = one.cluster.connect().await?;
    if one.dry_run {
        options["dryRun"] = json!(["All"]);
    }
    let path = format!(
        "/apis/{}/v1/namespaces/{}/virtualmachines/{}/{verb}",
        power::GROUP,
        escape(&namespace),
        escape(&one.name)
    );
    let call = request::send("PUT", path, "application/json", &options);
    let answer = http.send(&call).await.map_err(|error| from_server(&error))?;
    if !answer.is_success() {
        let failure = parse::<Value>(&answer).err().map_or_else(
            || Failure::error(format!("the server answered {}", answer.status)),
            |error| from_server(&error),
        );
        // The machine is not in a state for this: nothing was changed.
        let exit = if answer.status == 409 { Exit::Refused } else { failure.exit };
        return Err(Failure { exit, ..failure });
    }
    let done = match verb {
        "start" => "will start",
        "stop" => "will stop",
        "restart" => "will restart",
        _ => "will be migrated",
    };
    let trial = if one.dry_run { " (server dry run)" } else { "" };
    output::data(&format!("virtualmachine/{} {done}{trial}", one.name));
    Ok(Exit::Done)
}

async fn read(
    http: &Http,
    kind: Kind,
    scope: Option<&str>,
    selector: Option<&str>,
) -> Result<Vec<Value>, HttpError> {
    let path = scope.map_or_else(|| request::collection(kind), |space| request::in_namespace(kind, space));
    let query = selector.map(|text| format!("?{}", labelled(text))).unwrap_or_default();
    let list: List<Value> = http.read(&Call::get(format!("{path}{query}"))).await?;
    Ok(list.items)
}

async fn list(args: &ListArgs) -> Result<Exit, Failure> {
    let (http, namespace) = args.cluster.connect().await?;
    let scope = (!args.all_namespaces).then_some(namespace.as_str());
    let selector = args.selector.as_deref();
    let missing = |error: &HttpError| {
        if error.is_not_found() {
            Failure::error("this cluster has no virtual machines: the kinds of kubevirt.io are not installed")
        } else {
            from_server(error)
        }
    };
    let machines = read(&http, Kind::Machine, scope, selector).await.map_err(|error| missing(&error))?;
    let instances = read(&http, Kind::Instance, scope, None).await.map_err(|error| missing(&error))?;
    let rows = rows(&machines, &instances, selector.is_none());
    match args.output {
        Format::Json => output::document(&document(&rows).to_string()),
        Format::Yaml => {
            let text = serde_saphyr::to_string(&document(&rows))
                .map_err(|error| Failure::error(format!("the list cannot be written as YAML: {error}")))?;
            output::document(&text);
        }
        Format::Name => {
            for row in &rows {
                output::data(&row.reference());
            }
        }
        Format::Table | Format::Wide if rows.is_empty() => output::talk("no virtual machines found"),
        format => table(&rows, args.all_namespaces, format == Format::Wide, http.clock().now()),
    }
    Ok(Exit::Done)
}

/// What scripts read; see docs/json.md.
fn document(rows: &[Row]) -> Value {
    json!({
        "schema": "evac.dev/vms/v1",
        "kind": "VmList",
        "machines": rows.iter().map(Row::json).collect::<Vec<_>>(),
    })
}

/// A machine, or an instance without one.
struct Row {
    kind: &'static str,
    namespace: String,
    name: String,
    status: String,
    strategy: String,
    node: String,
    address: String,
    migratable: String,
    eviction: String,
    created: Option<jiff::Timestamp>,
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn rows(machines: &[Value], instances: &[Value], with_plain: bool) -> Vec<Row> {
    let key = |object: &Value| (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let mut rows: Vec<Row> = machines
        .iter()
        .map(|machine| {
            let is_over = |instance: &Value| {
                matches!(instance["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
            };
            let instance =
                instances.iter().find(|instance| key(instance) == key(machine) && !is_over(instance));
            let strategy = match machine["spec"]["running"].as_bool() {
                Some(true) => "Always".to_owned(),
                Some(false) => "Halted".to_owned(),
                None => text(machine, "/spec/runStrategy"),
            };
            let status = text(machine, "/status/printableStatus");
            Row { strategy, ..Row::of("virtualmachine", machine, instance, status) }
        })
        .collect();
    if with_plain {
        let owned = |instance: &Value| {
            instance["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "VirtualMachine"))
        };
        rows.extend(instances.iter().filter(|instance| !owned(instance)).map(|instance| {
            let status = text(instance, "/status/phase");
            Row::of("virtualmachineinstance", instance, Some(instance), status)
        }));
    }
    rows.sort_by(|a, b| {
        let by_name = natural(&a.namespace, &b.namespace).then_with(|| natural(&a.name, &b.name));
        by_name.then_with(|| a.kind.cmp(b.kind))
    });
    rows
}

impl Row {
    fn of(kind: &'static str, object: &Value, instance: Option<&Value>, status: String) -> Self {
        let of_instance = |pointer: &str| instance.map(|one| text(one, pointer)).unwrap_or_default();
        // A guest that has ended is on no node and has no address, whatever its instance remembers.
        let over = matches!(of_instance("/status/phase").as_str(), "Succeeded" | "Failed");
        let of_guest = |pointer: &str| if over { String::new() } else { of_instance(pointer) };
        let condition = instance
            .and_then(|one| one["status"]["conditions"].as_array())
            .and_then(|list| list.iter().find(|condition| condition["type"] == "LiveMigratable"));
        let migratable = match condition {
            None => String::new(),
            Some(condition) if condition["status"] == "True" => "yes".into(),
            Some(condition) => format!("no: {}", condition["reason"].as_str().unwrap_or("unknown")),
        };
        Self {
            kind,
            namespace: text(object, "/metadata/namespace"),
            name: text(object, "/metadata/name"),
            status,
            strategy: String::new(),
            node: of_guest("/status/nodeName"),
            address: of_guest("/status/interfaces/0/ipAddress"),
            migratable,
            eviction: of_instance("/spec/evictionStrategy"),
            created: text(object, "/metadata/creationTimestamp").parse().ok(),
        }
    }

    fn reference(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    /// What is not known or not there is null.
    fn json(&self) -> Value {
        let known = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
        let kind = if self.kind == "virtualmachine" { "VirtualMachine" } else { "VirtualMachineInstance" };
        json!({
            "kind": kind, "namespace": self.namespace, "name": self.name, "status": known(&self.status),
            "runStrategy": known(&self.strategy), "node": known(&self.node), "ip": known(&self.address),
            "migratable": known(&self.migratable), "evictionStrategy": known(&self.eviction),
        })
    }
}

fn table(rows: &[Row], with_namespace: bool, wide: bool, now: jiff::Timestamp) {
    let mut header = vec!["NAME", "STATUS", "RUN STRATEGY", "NODE", "AGE"];
    if with_namespace {
        header.insert(0, "NAMESPACE");
    }
    if wide {
        header.extend(["IP", "MIGRATABLE", "ON EVICTION"]);
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header);
    let shown = |text: &str| if text.is_empty() { "-".to_owned() } else { output::clean(text) };
    for row in rows {
        let age = row.created.map_or("-".into(), |at| span(now.duration_since(at).as_secs().max(0)));
        let strategy = if row.kind == "virtualmachine" { shown(&row.strategy) } else { "no machine".into() };
        let mut cells = vec![output::clean(&row.name), shown(&row.status), strategy, shown(&row.node), age];
        if with_namespace {
            cells.insert(0, output::clean(&row.namespace));
        }
        if wide {
            cells.extend([shown(&row.address), shown(&row.migratable), shown(&row.eviction)]);
        }
        table.add_row(cells);
    }
    output::document(&table.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_and_its_instance_make_one_row_and_a_plain_instance_its_own() {
        let machines = [json!({
            "metadata": {"name": "a", "namespace": "d"}, "spec": {"running": true},
            "status": {"printableStatus": "Running"},
        })];
        let instances = [
            json!({
                "metadata": {"name": "a", "namespace": "d", "ownerReferences": [{"kind": "VirtualMachine"}]},
                "status": {"nodeName": "n1"},
            }),
            json!({"metadata": {"name": "b", "namespace": "d"}, "status": {"phase": "Succeeded", "nodeName": "n1"}}),
        ];
        let rows = rows(&machines, &instances, true);
        let seen: Vec<_> =
            rows.iter().map(|row| (row.name.as_str(), row.status.as_str(), row.node.as_str())).collect();
        assert_eq!(seen, [("a", "Running", "n1"), ("b", "Succeeded", "")]);
        assert_eq!(rows[0].strategy, "Always");
    }
}
