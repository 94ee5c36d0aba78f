//! `evac manifests`: everything an installation needs, for `kubectl apply -f -`.

use clap::{Args, ValueEnum};
use evac_api::install::{self, Plan};
use evac_core::machines::{Role, Roles};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Yaml,
    Json,
}

/// Print the objects that install the operator in a cluster
///
/// Definitions, a namespace, an account with exactly the rights that the roles need, and a Deployment with what stands around
/// it. The operator itself tells the API server where it is and keeps its certificates fresh.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  evac manifests | kubectl apply -f -\n  evac manifests --roles all --image example.com/evac:1.0 | kubectl apply -f -"
)]
pub struct ManifestsArgs {
    /// The namespace of the operator
    #[arg(long, short = 'n', default_value = Plan::NAMESPACE)]
    pub namespace: String,
    /// The name of the Deployment, its account and everything around it
    #[arg(long, default_value = Plan::NAME)]
    pub name: String,
    /// The image of the operator
    #[arg(long, default_value = Plan::IMAGE)]
    pub image: String,
    /// How many operators to run, of which one acts
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = crate::number::between(1_u8, u8::MAX))]
    pub replicas: u8,
    /// What it does: all (but failover, which has to be named), or names separated by commas; by default what KubeVirt does not
    /// do itself: tenants,maintenance
    #[arg(long)]
    pub roles: Option<Roles>,
    #[arg(long, short = 'o', value_enum, default_value = "yaml")]
    pub output: Format,
}

pub fn run(args: &ManifestsArgs) -> Result<Exit, Failure> {
    let roles = args.roles.clone().unwrap_or_else(|| Roles::all().beside_kubevirt());
    if roles.is_empty() {
        return Err(Failure::usage("an operator without a role has nothing to do; give --roles"));
    }
    let plan = Plan {
        namespace: args.namespace.clone(),
        name: args.name.clone(),
        image: args.image.clone(),
        replicas: json!(args.replicas),
        ..Plan::new(roles.clone())
    };
    let objects = install::objects(&plan);
    if roles.has(Role::Machines) {
        output::warning(
            "these define the kinds of virtual machines; where KubeVirt is installed, leave out the roles machines, evacuation and budget",
        );
    }
    let text = match args.output {
        Format::Yaml => install::files::yaml(&objects),
        Format::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            serde_json::to_string_pretty(&list).unwrap_or_default()
        }
    };
    output::document(&text);
    Ok(Exit::Done)
}
