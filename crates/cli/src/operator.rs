//! `evac operator`: the controllers, on a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use clap::{ArgAction, Args};
use evac_api::kubevirt::{NAMESPACE, review};
use evac_core::machines::{Role, Roles};
use evac_core::maintenance::queue::{self, Share};
use evac_core::tenants::Limits;
use evac_engine::Http;
use evac_engine::operator::front::{Front, Wanted};
use evac_engine::operator::health::{Health, Vitals};
use evac_engine::operator::leader::Candidate;
use evac_engine::operator::publish::{Advertise, Reviews};
use evac_engine::operator::{Operator, Settings, install, tenants};

use crate::cluster::{ClusterArgs, instance};
use crate::exit::{Exit, Failure};
use crate::log::{self, LogArgs};
use crate::select::from_server;

/// Run the controllers on a cluster until Ctrl-C or SIGTERM
///
/// The roles machines, evacuation and budget are KubeVirt's control plane. Where KubeVirt itself is deployed they are left to
/// it, unless --roles names them. Of several operators one acts; the others follow, answer requests, and take over when it
/// is gone.
#[derive(Debug, Clone, Args)]
pub struct OperatorArgs {
    /// Which tasks to take on: none, or names separated by commas of machines, evacuation, budget, tenants, maintenance and
    /// failover; all is all but failover, which switches machines off and has to be named (all,failover)
    #[arg(long)]
    pub roles: Option<Roles>,
    /// Create the kinds of virtual machines and of maintenance, and with the role failover of its policies, if they are missing
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
    /// The name of the Service that leads to the operator
    #[arg(long, value_name = "NAME", default_value = review::SERVICE)]
    pub service_name: String,
    /// Answer probes (/healthz, /livez, /readyz) and serve /metrics over HTTP, such as 0.0.0.0:8080
    #[arg(long, value_name = "ADDRESS")]
    pub health: Option<SocketAddr>,
    /// The namespace of the operator's own lease, certificates and service
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE", default_value = NAMESPACE)]
    pub home: String,
    /// Act only while holding the lease evac-operator
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub leader_elect: bool,
    /// How many nodes may be under maintenance at once: a number, or a share such as 20% (default: no limit)
    #[arg(long, value_name = "NODES")]
    pub max_maintenance: Option<Share>,
    /// The same for the nodes of each zone
    #[arg(long, value_name = "NODES")]
    pub max_maintenance_per_zone: Option<Share>,
    /// How long a tenant cluster gets to empty a node before the machine under it is deleted, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse, default_value = "10m")]
    pub tenant_timeout: Duration,
    /// The longest that annotations may give to a tenant cluster
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse, default_value = "24h")]
    pub tenant_timeout_limit: Duration,
    /// A directory with fence agents that failover policies may name; can be given several times. Without it policies can run none
    #[arg(long, value_name = "DIRECTORY", value_parser = directory)]
    pub fence_agents: Vec<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

pub async fn run(args: &OperatorArgs) -> Result<Exit, Failure> {
    args.log.begin()?;
    let (http, _) = args.cluster.connect().await?;
    let http = http.at_home_in(&args.home);
    if args.install {
        install::kinds(&http).await.map_err(|error| from_server(&error))?;
    }
    let roles = match &args.roles {
        Some(roles) => roles.clone(),
        None if install::kubevirt_is_deployed(&http).await.map_err(|error| from_server(&error))? => {
            log::say("KubeVirt is deployed here and does its own part");
            Roles::all().beside_kubevirt()
        }
        None => Roles::all(),
    };
    log::say(&format!("roles {roles}"));
    if args.install && roles.has(Role::Failover) {
        install::policies(&http).await.map_err(|error| from_server(&error))?;
    }
    if roles.is_empty() {
        let health = probe(args, &http, None, false).await?;
        stopped().await;
        close(health).await;
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
    let reviews = Reviews::of(&roles);
    let tenants = tenants::Settings {
        limits: Limits { usual: args.tenant_timeout, longest: args.tenant_timeout_limit },
        loopback: args.cluster.is_on_this_machine().await?,
        instance: instance(),
    };
    let maintenance = queue::Limits { cluster: args.max_maintenance, zone: args.max_maintenance_per_zone };
    let fence_agents = args.fence_agents.clone();
    let operator = Operator::start_set(acting, roles, Settings { tenants, maintenance, fence_agents });
    let health = probe(args, &http, Some(&operator), reviews.any() && args.listen.is_some()).await?;
    let opening =
        async { if reviews.any() { open(args, &http, &operator, reviews).await } else { Ok(None) } };
    let mut ending = std::pin::pin!(stopped());
    let opened = tokio::select! {
        front = opening => Some(front?),
        // Told to end before it could begin.
        () = &mut ending => None,
    };
    if let Some(front) = &opened {
        if let (Some(health), Some(front)) = (&health, front) {
            health.front(front.waiting());
        }
        log::say("running; Ctrl-C stops it and leaves machines as they are");
        ending.await;
    }
    let front = opened.flatten();
    if let Some(candidate) = candidate {
        candidate.hand_over().await;
    }
    if let Some(front) = front {
        front.close().await;
    }
    operator.stop().await;
    close(health).await;
    Ok(Exit::Cancelled)
}

/// A directory as it is now, in full; one that is not there would only be noticed when a node has failed.
fn directory(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_dir() {
        return path.canonicalize().map_err(|error| error.to_string());
    }
    Err("it is not a directory that can be read".to_owned())
}

/// Opens the server for probes, if one is wanted.
async fn probe(
    args: &OperatorArgs,
    http: &Http,
    operator: Option<&Operator>,
    serves: bool,
) -> Result<Option<Health>, Failure> {
    let Some(address) = args.health else { return Ok(None) };
    let vitals = Vitals {
        metrics: http.metrics().clone(),
        pulses: operator.map(Operator::pulses).unwrap_or_default(),
        front: serves.then(OnceLock::new),
    };
    let health = Health::open(address, vitals, http.clock())
        .await
        .map_err(|error| Failure::error(error.to_string()))?;
    log::say(&format!("probes and metrics on http://{}", health.address));
    Ok(Some(health))
}

async fn close(health: Option<Health>) {
    if let Some(health) = health {
        health.close().await;
    }
}

async fn open(
    args: &OperatorArgs,
    http: &Http,
    operator: &Operator,
    reviews: Reviews,
) -> Result<Option<Front>, Failure> {
    let Some(listen) = args.listen else {
        log::say("reviews nothing, and machines cannot be started by command; give --listen");
        return Ok(None);
    };
    let wanted =
        Wanted { listen, advertise: args.advertise.clone(), service: args.service_name.clone(), reviews };
    let front = Front::open(http, operator.view(), &wanted)
        .await
        .map_err(|error| Failure::error(error.to_string()))?;
    log::say(&format!(
        "listens on {}, reached by {}",
        front.address(),
        match front.place.advertise {
            Advertise::Service => format!("service {}/{}", front.place.namespace, front.place.service),
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
