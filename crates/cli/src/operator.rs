//! `evac operator`: the controllers, on a cluster.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use clap::Args;
use evac_engine::operator::{Operator, install};

use crate::cluster::ClusterArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::select::from_server;

/// One task of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Machines,
}

/// Which tasks the operator takes on: `all`, `none`, or names separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles(BTreeSet<Role>);

impl Roles {
    pub fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }
}

impl FromStr for Roles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => return Ok(Self([Role::Machines].into())),
            "none" | "" => return Ok(Self(BTreeSet::new())),
            _ => {}
        }
        let role = |word: &str| match word.trim() {
            "machines" => Ok(Role::Machines),
            other => Err(format!("there is no role '{other}'; give all, none, or: machines")),
        };
        text.split(',').map(role).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let words: Vec<&str> = self.0.iter().map(|Role::Machines| "machines").collect();
        f.write_str(&words.join(","))
    }
}

/// Run the controllers on a cluster until Ctrl-C
///
/// The role `machines` is KubeVirt's control plane; do not run it beside KubeVirt's own.
#[derive(Debug, Clone, Args)]
pub struct OperatorArgs {
    /// Which tasks to take on: all, none, or names separated by commas
    #[arg(long, default_value = "machines")]
    pub roles: Roles,
    /// Create the kinds of virtual machines if they are missing
    #[arg(long)]
    pub install: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

pub async fn run(args: &OperatorArgs) -> Result<Exit, Failure> {
    let (http, _) = args.cluster.connect().await?;
    if args.install {
        install::kinds(&http).await.map_err(|error| from_server(&error))?;
    }
    output::talk(&format!("operator: roles {}", args.roles));
    let operator = args.roles.has(Role::Machines).then(|| Operator::start(http));
    output::talk("operator: running; Ctrl-C stops it and leaves machines as they are");
    let _ = tokio::signal::ctrl_c().await;
    if let Some(operator) = operator {
        operator.stop().await;
    }
    Ok(Exit::Cancelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_named_one_by_one_or_all_or_none() {
        assert!("all".parse::<Roles>().unwrap().has(Role::Machines));
        assert!(!"none".parse::<Roles>().unwrap().has(Role::Machines));
        assert_eq!("machines".parse::<Roles>().unwrap().to_string(), "machines");
        assert!("machines,cooking".parse::<Roles>().unwrap_err().contains("cooking"));
    }
}
