//! `evac operator`: the controllers, on a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use clap::{ArgAction, Args};
use evac_api::kubevirt::NAMESPACE;
use evac_core::machines::beside::{self, Arrangement, Upstream};
use evac_core::machines::{Role, Roles};
use evac_core::maintenance::queue::{self, NodeLimit};
use evac_core::tenants::Limits;
use evac_engine::gate::Gate;
use evac_engine::operator::front::{Front, Wanted};
use evac_engine::operator::health::{Health, Vitals};
use evac_engine::operator::leader::Candidate;
use evac_engine::operator::publish::{Advertise, Reviews};
use evac_engine::operator::{Operator, Settings, install, tenants};
use evac_engine::{Http, HttpError};

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
    /// Create the kinds that the roles need (virtual machines, maintenance, failover policies), if they are missing
    ///
    /// Where KubeVirt is installed, the kinds of virtual machines are its own.
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
    /// The name of the Service that leads to the operator (default: virt-api with the role machines, else evac)
    #[arg(long, value_name = "NAME")]
    pub service_name: Option<String>,
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
    pub max_maintenance: Option<NodeLimit>,
    /// The same for the nodes of each zone
    #[arg(long, value_name = "NODES")]
    pub max_maintenance_per_zone: Option<NodeLimit>,
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
    let upstream = upstream(args, &http).await?;
    let arrangement = beside::arrange(args.roles.as_ref(), &upstream)
        .map_err(|message| Failure::new(Exit::Refused, message))?;
    let roles = arrangement.roles.clone();
    for said in arrangement.said.iter().chain(&arrangement.warning) {
        log::say(said);
    }
    log::say(&format!("roles {roles}"));
    let wanted = wanted(args, &arrangement);
    if let Some(wanted) = &wanted {
        // Before anything is written.
        Front::look(&http, wanted).await.map_err(|error| Failure::error(error.to_string()))?;
    }
    if args.install {
        install_kinds(&http, &arrangement).await.map_err(|error| from_server(&error))?;
    }
    if roles.is_empty() {
        let health = probe(args, &http, None, false).await?;
        stopped().await;
        close(health).await;
        return Ok(Exit::Cancelled);
    }
    // Shut until everything is open that was asked for: a start that fails has done nothing.
    let gate = Gate::shut();
    let tenants = tenants::Settings {
        limits: Limits { usual: args.tenant_timeout, longest: args.tenant_timeout_limit },
        loopback: args.cluster.is_on_this_machine().await?,
        instance: instance(),
    };
    let maintenance = queue::Limits { cluster: args.max_maintenance, zone: args.max_maintenance_per_zone };
    let fence_agents = args.fence_agents.clone();
    let unasked = beside::unasked(&roles, &upstream).filter(|_| args.listen.is_none());
    let acting = http.clone().behind(gate.clone());
    let operator = Operator::start_set(acting, roles, Settings { tenants, maintenance, fence_agents });
    let health = probe(args, &http, Some(&operator), wanted.is_some()).await?;
    let mut ending = std::pin::pin!(stopped());
    let opened = tokio::select! {
        front = open(&http, &operator, wanted.as_ref()) => Some(front?),
        // Told to end before it could begin.
        () = &mut ending => None,
    };
    let mut candidate = None;
    if let Some(front) = &opened {
        if let (Some(health), Some(front)) = (&health, front) {
            health.front(front.waiting());
        }
        if let Some(unasked) = unasked {
            log::say(&unasked);
        }
        if args.leader_elect {
            let me = format!("{}:{}", instance(), http.clock().now().as_millisecond());
            candidate = Some(Candidate::run_behind(gate, http.clone(), me));
        } else {
            gate.open();
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

/// What is known of KubeVirt's control plane here. Who names the roles need not be able to look.
async fn upstream(args: &OperatorArgs, http: &Http) -> Result<Upstream, Failure> {
    match install::upstream(http, args.listen.is_none()).await {
        Err(error) if error.is_forbidden() && args.roles.is_some() => Ok(Upstream::default()),
        known => known.map_err(|error| from_server(&error)),
    }
}

/// What is to be served, and how it is to be found.
fn wanted(args: &OperatorArgs, arrangement: &Arrangement) -> Option<Wanted> {
    let reviews = Reviews::of(&arrangement.roles);
    let listen = args.listen.filter(|_| reviews.any())?;
    let service = args.service_name.clone().unwrap_or_else(|| arrangement.service.to_owned());
    Some(Wanted { listen, advertise: args.advertise.clone(), service, reviews })
}

async fn install_kinds(http: &Http, arrangement: &Arrangement) -> Result<(), HttpError> {
    install::namespace(http, http.home()).await?;
    if arrangement.defines_machines {
        install::machines(http).await?;
    }
    if arrangement.roles.has(Role::Maintenance) {
        install::maintenance(http).await?;
    }
    if arrangement.roles.has(Role::Failover) {
        install::policies(http).await?;
    }
    Ok(())
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
        health_clients: operator.map(Operator::health_clients).unwrap_or_default(),
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

async fn open(http: &Http, operator: &Operator, wanted: Option<&Wanted>) -> Result<Option<Front>, Failure> {
    let Some(wanted) = wanted else { return Ok(None) };
    let front = Front::open(http, operator.view(), wanted)
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
