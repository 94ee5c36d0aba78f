//! `evac operator`: the controllers, on a cluster.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use clap::{ArgAction, Args};
use evac_api::kubevirt::{NAMESPACE, review};
use evac_engine::Http;
use evac_engine::operator::front::{Front, Wanted};
use evac_engine::operator::leader::Candidate;
use evac_engine::operator::publish::Advertise;
use evac_engine::operator::{Operator, install};

use crate::cluster::{ClusterArgs, instance};
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

/// Run the controllers on a cluster until Ctrl-C or SIGTERM
///
/// The role `machines` is KubeVirt's control plane; do not run it beside KubeVirt's own. Of several operators one acts; the
/// others follow, answer requests, and take over when it is gone.
#[derive(Debug, Clone, Args)]
pub struct OperatorArgs {
    /// Which tasks to take on: all, none, or names separated by commas
    #[arg(long, default_value = "machines")]
    pub roles: Roles,
    /// Create the kinds of virtual machines if they are missing
    #[arg(long)]
    pub install: bool,
    /// Serve admission reviews and the API to start and stop machines over HTTPS, such as 0.0.0.0:8443
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// How the API server reaches this: `service`, or an address such as https://10.1.2.3:8443
    ///
    /// Without it, a loopback address is reached as it is and any other through the service.
    #[arg(long, value_name = "HOW", requires = "listen")]
    pub advertise: Option<Advertise>,
    /// The name of the Service in the namespace kubevirt
    #[arg(long, value_name = "NAME", default_value = review::SERVICE)]
    pub service_name: String,
    /// Act only while holding the lease kubevirt/evac-operator
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub leader_elect: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

pub async fn run(args: &OperatorArgs) -> Result<Exit, Failure> {
    let (http, _) = args.cluster.connect().await?;
    if args.install {
        install::kinds(&http).await.map_err(|error| from_server(&error))?;
    }
    output::talk(&format!("operator: roles {}", args.roles));
    if !args.roles.has(Role::Machines) {
        stopped().await;
        return Ok(Exit::Cancelled);
    }
    let candidate = args.leader_elect.then(|| {
        let me = format!("{}:{}", instance(), http.clock().now().as_millisecond());
        Candidate::run(http.clone(), me)
    });
    let acting = match &candidate {
        Some(candidate) => http.clone().behind(candidate.gate().clone()),
        None => http.clone(),
    };
    let operator = Operator::start(acting);
    let front = open(args, &http, &operator).await?;
    output::talk("operator: running; Ctrl-C stops it and leaves machines as they are");
    stopped().await;
    if let Some(candidate) = candidate {
        candidate.hand_over().await;
    }
    if let Some(front) = front {
        front.close().await;
    }
    operator.stop().await;
    Ok(Exit::Cancelled)
}

async fn open(args: &OperatorArgs, http: &Http, operator: &Operator) -> Result<Option<Front>, Failure> {
    let Some(listen) = args.listen else {
        output::talk("operator: reviews nothing, and machines cannot be started by command; give --listen");
        return Ok(None);
    };
    let wanted = Wanted { listen, advertise: args.advertise.clone(), service: args.service_name.clone() };
    let front = Front::open(http, operator.config(), &wanted)
        .await
        .map_err(|error| Failure::error(error.to_string()))?;
    output::talk(&format!(
        "operator: listens on {}, reached by {}",
        front.address(),
        match front.place.advertise {
            Advertise::Service => format!("service {NAMESPACE}/{}", front.place.service),
            ref url @ Advertise::Url { .. } => url.to_string(),
        }
    ));
    Ok(Some(front))
}

/// Waits for Ctrl-C, or for the request of a kubelet to end.
async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
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
