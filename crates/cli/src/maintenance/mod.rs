//! `evac maintenance`: nodes under maintenance by NodeMaintenance objects.

pub mod objects;
mod show;
mod wait;

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use evac_api::kubevirt::request::{create, send};
use evac_api::maintenance::request;
use evac_core::Index;
use evac_core::drain::ownership::{Ownership, ownership};
use evac_core::maintenance::{ALLOW_CONTROL_PLANE, ALLOW_SHUTDOWN, Id, Maintenance, ON_UNCORDON};
use evac_engine::http::parse;
use evac_engine::{Http, nodes};
use serde_json::{Value, json};

use self::wait::{Goal, wait_for};
use crate::cluster::ClusterArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::select::{NONE_CHOSEN, NodeArgs, from_server};

#[derive(Debug, Subcommand)]
pub enum MaintenanceCommand {
    /// Put nodes into maintenance and wait until they are empty
    #[command(after_help = START_EXAMPLES)]
    Start(StartArgs),
    /// End the maintenance of nodes and wait until they are as before
    End(EndArgs),
    /// List all maintenances
    List(ListArgs),
    /// Show where the maintenance of nodes stands, and what is in the way
    Status(StatusArgs),
}

const START_EXAMPLES: &str = "Examples:
  evac maintenance start node-1 --reason 'disk swap'
  evac maintenance start -l rack=4 --timeout 30m
  evac maintenance status node-1
  evac maintenance end node-1";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnUncordonArg {
    /// The node is cordoned again
    Reapply,
    /// The maintenance gives way and says so
    Yield,
}

#[derive(Debug, Clone, Args)]
pub struct StartArgs {
    #[command(flatten)]
    pub nodes: NodeArgs,
    /// Why, in words for people
    #[arg(long, default_value = "")]
    pub reason: String,
    /// Virtual machines that would not come back may be shut down
    #[arg(long)]
    pub allow_shutdown: bool,
    /// The node may leave the control plane although the quorum of etcd is not known to bear it
    #[arg(long)]
    pub allow_control_plane: bool,
    /// What happens when the node is uncordoned meanwhile, and not by the operator
    #[arg(long, value_enum, value_name = "WHAT")]
    pub on_uncordon: Option<OnUncordonArg>,
    #[command(flatten)]
    pub waiting: WaitArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Clone, Args)]
pub struct WaitArgs {
    /// Return when the request is made instead of when it is carried out
    #[arg(long)]
    pub no_wait: bool,
    /// Give up waiting after this long, such as 30m (default: never). The operator goes on
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    pub timeout: Option<Duration>,
}

#[derive(Debug, Clone, Args)]
pub struct EndArgs {
    #[command(flatten)]
    pub nodes: NodeArgs,
    #[command(flatten)]
    pub waiting: WaitArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum Format {
    #[default]
    Table,
    Json,
    Name,
}

#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Output format
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: Format,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub nodes: NodeArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: Format,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

pub async fn run(command: &MaintenanceCommand) -> Result<Exit, Failure> {
    match command {
        MaintenanceCommand::Start(args) => start(args).await,
        MaintenanceCommand::End(args) => end(args).await,
        MaintenanceCommand::List(args) => {
            let (http, _) = args.cluster.connect().await?;
            show::list(&objects::all(&http).await?, args.output, http.clock().now());
            Ok(Exit::Done)
        }
        MaintenanceCommand::Status(args) => {
            args.nodes.check("maintenance status")?;
            let (http, _) = args.cluster.connect().await?;
            let wanted = names(&http, &args.nodes).await?;
            let found: Vec<Maintenance> =
                objects::all(&http).await?.into_iter().filter(|one| wanted.contains(&one.node)).collect();
            let idle: Vec<&String> =
                wanted.iter().filter(|node| !found.iter().any(|one| one.node == **node)).collect();
            show::details(&found, &idle, args.output, http.clock().now());
            Ok(if idle.is_empty() { Exit::Done } else { Exit::Error })
        }
    }
}

/// The nodes that are meant. Those that are named need not exist: an object may outlive its node.
async fn names(http: &Http, nodes: &NodeArgs) -> Result<Vec<String>, Failure> {
    if nodes.selector.is_none() {
        return Ok(nodes.names.clone());
    }
    Ok(nodes.resolve(http, 500).await?.into_iter().map(|node| node.name).collect())
}

async fn start(args: &StartArgs) -> Result<Exit, Failure> {
    args.nodes.check("maintenance start")?;
    let (http, _) = args.cluster.connect().await?;
    let wanted: Vec<String> =
        args.nodes.resolve(&http, 500).await?.into_iter().map(|node| node.name).collect();
    if wanted.is_empty() {
        return Ok(NONE_CHOSEN);
    }
    let family = objects::family(&http).await?;
    let known = objects::all(&http).await?;
    let mut annotations = Vec::new();
    if args.allow_shutdown {
        annotations.push((ALLOW_SHUTDOWN, "true".to_owned()));
    }
    if args.allow_control_plane {
        annotations.push((ALLOW_CONTROL_PLANE, "true".to_owned()));
    }
    if let Some(what) = args.on_uncordon {
        let word = if what == OnUncordonArg::Yield { "yield" } else { "reapply" };
        annotations.push((ON_UNCORDON, word.to_owned()));
    }
    let mut begun: Vec<Id> = Vec::new();
    let mut ends = Vec::new();
    for node in &wanted {
        if let Some(there) = known.iter().find(|one| one.node == *node && !one.deleting) {
            output::data(&format!("node/{node} is under maintenance already, by {}", there.id.name));
            begun.push(there.id.clone());
            continue;
        }
        let id = Id { family, name: format!("maintenance-{node}") };
        let object = request::new_object(&id, node, &args.reason, &annotations);
        let answer = http
            .send(&create(&request::collection(family), &object))
            .await
            .map_err(|error| from_server(&error))?;
        match parse::<Value>(&answer) {
            Ok(_) => {
                output::data(&format!("nodemaintenance.{}/{} created", family.group(), id.name));
                begun.push(id);
            }
            Err(error) => {
                output::error(&from_server(&error).message);
                ends.push(if error.is_forbidden() { Exit::Refused } else { Exit::Error });
            }
        }
    }
    if !args.waiting.no_wait && !begun.is_empty() {
        ends.push(wait_for(&http, begun, Goal::Empty, args.waiting.timeout).await?);
    }
    Ok(Exit::worst(ends))
}

async fn end(args: &EndArgs) -> Result<Exit, Failure> {
    args.nodes.check("maintenance end")?;
    let (http, _) = args.cluster.connect().await?;
    let wanted = names(&http, &args.nodes).await?;
    if wanted.is_empty() {
        return Ok(NONE_CHOSEN);
    }
    let known = objects::all(&http).await?;
    let mut leaving = Vec::new();
    let mut ends = Vec::new();
    for node in &wanted {
        let mut found = false;
        for there in known.iter().filter(|one| one.node == *node) {
            found = true;
            let body =
                json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": there.uid}});
            let call = send("DELETE", request::path(&there.id), "application/json", &body);
            let answer = http.send(&call).await.map_err(|error| from_server(&error))?;
            if answer.status == 404 || answer.is_success() {
                output::data(&format!(
                    "nodemaintenance.{}/{} deleted",
                    there.id.family.group(),
                    there.id.name
                ));
                leaving.push(there.id.clone());
            } else {
                output::error(&answer.failure().message);
                ends.push(Exit::Error);
            }
        }
        if !found {
            output::error(&format!("node {node} is not under maintenance"));
            ends.push(Exit::Error);
        }
    }
    if !args.waiting.no_wait && !leaving.is_empty() {
        ends.push(wait_for(&http, leaving, Goal::Gone, args.waiting.timeout).await?);
        for node in &wanted {
            tell_holder(&http, node).await;
        }
    }
    Ok(Exit::worst(ends))
}

/// Who holds a node still although its maintenance has ended: a drain that had it before, for example.
async fn tell_holder(http: &Http, name: &str) {
    // The node may be gone, and what matters has been said.
    let Ok(node) = nodes::get(http, name).await else { return };
    if let Ownership::Other(reason) = ownership(&Index::new(), &node, "", http.clock().now()) {
        output::warning(&format!("node {name} is not in use yet: it {}", reason.message()));
    }
}
