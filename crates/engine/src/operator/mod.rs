//! The operator: one task that owns what is known, looks at what changed, and has the wanted changes carried out.
//!
//! Its loop is in `control_loop.rs`, its watches are in `feeds.rs`, and each role has a module.

mod access;
mod admission;
mod bounds;
mod caller;
pub mod certificates;
mod control_loop;
mod discovery;
pub mod failover;
mod feeds;
pub mod front;
pub mod health;
pub mod index_reader;
pub mod install;
pub mod leader;
pub mod loop_health;
mod machines;
pub mod maintenance;
pub mod pass;
mod perform;
pub mod power;
pub mod publish;
pub mod serve;
mod spawner;
pub mod tenants;
mod tls;
mod work_queue;

use std::path::PathBuf;

use evac_core::machines::{Config, Roles};
use evac_core::maintenance::queue::Limits;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use admission::Reviewer;
pub use bounds::Who;
use control_loop::{Loop, RoleSettings};
use index_reader::IndexReader;
use loop_health::HealthClient;

use crate::http::Http;

/// A running operator, and its settings for those who answer requests.
pub struct Operator {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    view: IndexReader,
    client: HealthClient,
}

/// How the roles are to work, where that is not said in the cluster.
#[derive(Default)]
pub struct Settings {
    pub tenants: tenants::Settings,
    /// How many nodes may be under maintenance at once.
    pub maintenance: Limits,
    /// Where the fence agents of policies are.
    pub fence_agents: Vec<PathBuf>,
}

impl Operator {
    /// Starts all roles on the current runtime. They act while the gate of `http` is open.
    pub fn start(http: Http) -> Self {
        Self::start_roles(http, Roles::all())
    }

    pub fn start_roles(http: Http, roles: Roles) -> Self {
        Self::start_set(http, roles, Settings::default())
    }

    pub fn start_set(http: Http, roles: Roles, settings: Settings) -> Self {
        let Settings { tenants, maintenance, fence_agents } = settings;
        let stop = CancellationToken::new();
        let (publish, config) = watch::channel(Config::default());
        let clock = http.clock();
        let (client, questions) = HealthClient::new(clock);
        let (view, asked) = IndexReader::new(config, clock);
        let switches = failover::programs(fence_agents);
        let settings = RoleSettings { tenants, maintenance, switches, publish };
        let state = Loop::new(http, roles, settings, stop.clone());
        let task = tokio::spawn(state.run(stop.clone(), questions, asked));
        Self { stop, task, view, client }
    }

    /// The cluster's settings as they are now.
    pub fn config(&self) -> watch::Receiver<Config> {
        self.view.config.clone()
    }

    /// What is known, for those who answer requests.
    pub fn view(&self) -> IndexReader {
        self.view.clone()
    }

    /// To ask the loop how it is.
    pub fn health_clients(&self) -> Vec<HealthClient> {
        vec![self.client.clone()]
    }

    /// Ends it without waiting, as a crash would.
    pub fn halt(&self) {
        self.stop.cancel();
    }

    pub async fn stop(mut self) {
        self.stop.cancel();
        // A panic of the loop has been reported by the runtime already.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
