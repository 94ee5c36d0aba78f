//! `evac sandbox`: a whole cluster in this process, for trying things out.

mod ours;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use evac_api::Call;
use evac_api::kubevirt::request;
use evac_apiserver::front::Front;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_apiserver::service::Service;
use evac_clock::Clock;
use evac_core::machines::Kind;
use evac_core::machines::{Role, Roles};
use evac_engine::http::parse;
use evac_engine::operator::Operator;
use evac_engine::{Http, HttpError};
use evac_world::{NodeSpec, Options, World};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::in_process;
use crate::output;

#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Start a cluster in this process and serve it on loopback until Ctrl-C
    #[command(after_help = "Examples:
  # Three nodes; use it with kubectl in another terminal
  evac sandbox up

  # Ten nodes, ten times as fast as real time, always the same names
  evac sandbox up --nodes 10 --speed 10 --seed 7

  # With ten virtual machines that run
  evac sandbox up --vms 10

  # In a script: read the line that says it is ready
  evac sandbox up --kubeconfig /tmp/sandbox.yaml &")]
    Up(UpArgs),
}

#[derive(Debug, Args)]
pub struct UpArgs {
    /// How many worker nodes the cluster has
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = crate::number::from(0_usize))]
    pub nodes: usize,
    /// Port on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 0, value_parser = crate::number::between(0_u16, u16::MAX))]
    pub port: u16,
    /// Where to write the kubeconfig [default: a private file in the temporary folder]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How many seconds of the cluster pass in one second of yours; ages that clients show are off by the difference
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,
    /// Make names, uids and placement repeatable
    #[arg(long, value_name = "N", value_parser = crate::number::from(0_u64))]
    pub seed: Option<u64>,
    /// Only the API server: no nodes, no scheduler, no controllers
    #[arg(long, conflicts_with_all = ["nodes", "vms"])]
    pub bare: bool,
    /// Start with this many running virtual machines
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = crate::number::from(0_usize))]
    pub vms: usize,
    /// What the operator in this process does: all (but failover, which runs beside the sandbox: evac operator), none, or names
    /// separated by commas
    #[arg(long, default_value = "all")]
    pub roles: Roles,
}

pub fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 && value <= 1000.0 => Ok(value),
        _ => Err("give a number above 0 and up to 1000".into()),
    }
}

pub async fn run(command: SandboxCommand) -> Result<Exit, Failure> {
    let SandboxCommand::Up(args) = command;
    up(args).await
}

/// A running sandbox.
pub struct Sandbox {
    pub api: Arc<Api>,
    /// What runs on the server; `None` for a bare one.
    pub world: Option<World>,
    /// The control plane of virtual machines, if it was wanted.
    operator: Option<Operator>,
}

impl Sandbox {
    pub async fn start(nodes: Vec<NodeSpec>, pace: f64, seed: u64) -> Self {
        let clock = Clock::real_at_speed(pace);
        let api = Api::new(clock, Settings { seed, ..Settings::default() });
        let world = World::start(client(&api), clock, Options { seed, ..Options::cluster(nodes) });
        world.answer_for_agents(&api);
        world.idle().await;
        Self { api, world: Some(world), operator: None }
    }

    /// Only the API server.
    pub fn bare(pace: f64, seed: u64) -> Self {
        let api = Api::new(Clock::real_at_speed(pace), Settings { seed, ..Settings::default() });
        Self { api, world: None, operator: None }
    }

    /// Takes on the roles of the operator, in this process.
    pub async fn operate(&mut self, roles: &Roles) -> Result<(), Failure> {
        if !roles.is_empty() {
            let operator = in_process::machines(&self.api, client(&self.api), roles.clone()).await;
            self.operator = Some(operator.map_err(|error| Failure::error(error.to_string()))?);
        }
        Ok(())
    }

    pub async fn stop(self) {
        if let Some(operator) = self.operator {
            operator.stop().await;
        }
        if let Some(world) = self.world {
            world.stop().await;
        }
    }
}

/// A client that reaches the server without a socket, as its owner.
pub fn client(api: &Arc<Api>) -> kube::Client {
    kube::Client::new(Service::trusted(api.clone(), Identity::admin()), "default")
}

async fn up(args: UpArgs) -> Result<Exit, Failure> {
    let path = args.kubeconfig.clone().unwrap_or_else(default_path);
    must_be_ours(&path)?;
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
    if args.vms > 0 && !args.roles.has(Role::Machines) {
        return Err(Failure::usage("--vms needs the role machines; leave --roles away"));
    }
    let mut sandbox = if args.bare {
        Sandbox::bare(args.speed, seed)
    } else {
        Sandbox::start(NodeSpec::workers(args.nodes), args.speed, seed).await
    };
    if !args.bare {
        sandbox.operate(&args.roles).await?;
        machines(&sandbox.api, args.vms).await?;
    }
    let front = Front::open(sandbox.api.clone(), args.port)
        .await
        .map_err(|error| Failure::error(error.to_string()))?;
    write_private(&path, &front.kubeconfig)?;
    output::talk(&format!(
        "sandbox: {}, Kubernetes API on https://{}, {}",
        if args.bare { "no nodes".to_owned() } else { format!("{} node(s)", args.nodes) },
        front.address,
        if (args.speed - 1.0).abs() < f64::EPSILON {
            "in real time".to_owned()
        } else {
            format!("{} times as fast as real time", args.speed)
        }
    ));
    output::talk("sandbox: this is a simulation for trying things out, not a cluster; Ctrl-C stops it");
    output::data(&format!("ready: export KUBECONFIG={}", path.display()));
    wait_for_stop().await;
    let kubeconfig = front.kubeconfig.clone();
    front.close().await;
    sandbox.stop().await;
    remove_ours(&path, &kubeconfig);
    Ok(Exit::Done)
}

/// Creates machines `vm-1` to `vm-N` and waits until all of them run.
async fn machines(api: &Arc<Api>, count: usize) -> Result<(), Failure> {
    let http = Http::new(client(api), api.clock, Duration::ZERO);
    let path = request::in_namespace(Kind::Machine, "default");
    let wrong = |error: HttpError| Failure::error(format!("cannot start the virtual machines: {error}"));
    for n in 1..=count {
        let answer = http.send(&request::create(&path, &machine(n))).await.map_err(wrong)?;
        parse::<Value>(&answer).map_err(wrong)?;
    }
    for n in 1..=count {
        let call = Call::get(format!("{path}/vm-{n}"));
        let mut patience = 1200;
        loop {
            let object: Value = http.read(&call).await.map_err(wrong)?;
            if object["status"]["printableStatus"] == "Running" {
                break;
            }
            patience -= 1;
            if patience == 0 {
                output::warning(&format!(
                    "vm-{n} is {} after two minutes; it may lack room on the nodes",
                    object["status"]["printableStatus"].as_str().unwrap_or("not seen")
                ));
                return Ok(());
            }
            http.clock().sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

/// A small guest that can be moved.
fn machine(n: usize) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": format!("vm-{n}"), "namespace": "default"},
        "spec": {
            "runStrategy": "Always",
            "template": {
                "metadata": {"labels": {"kubevirt.io/domain": format!("vm-{n}")}},
                "spec": {
                    "evictionStrategy": "LiveMigrate",
                    "domain": {
                        "memory": {"guest": "256Mi"},
                        "devices": {
                            "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                            "interfaces": [{"name": "default", "masquerade": {}}],
                        },
                    },
                    "networks": [{"name": "default", "pod": {}}],
                    "volumes": [{"name": "root", "containerDisk": {"image": "example/guest"}}],
                },
            },
        },
    })
}

async fn wait_for_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}

fn default_path() -> PathBuf {
    std::env::temp_dir().join(format!("evac-sandbox-{}.kubeconfig", std::process::id()))
}

/// Never overwrites the kubeconfig of a real cluster.
fn must_be_ours(path: &Path) -> Result<(), Failure> {
    let refused = |why: &str| {
        Err(Failure::usage(format!("{} exists and {why}; give another --kubeconfig", path.display())))
    };
    match fs::read(path) {
        Ok(bytes) if std::str::from_utf8(&bytes).is_ok_and(ours::is_of_a_sandbox) => Ok(()),
        Ok(_) => refused("was not written by evac sandbox, or has more in it than a sandbox by now"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => refused(&format!("cannot be read ({error})")),
    }
}

/// Removes the kubeconfig, unless another sandbox has written its own there since, or other clusters were put into it.
fn remove_ours(path: &Path, kubeconfig: &str) {
    if fs::read_to_string(path).is_ok_and(|text| ours::is_of_this(&text, kubeconfig)) {
        let _ = fs::remove_file(path);
    }
}

/// Writes a file only its owner can read: it holds the token of the cluster.
pub fn write_private(path: &Path, kubeconfig: &str) -> Result<(), Failure> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let cannot = |error: std::io::Error| {
        Failure::error(format!(
            "cannot write the kubeconfig {}: {error}; give another --kubeconfig",
            path.display()
        ))
    };
    let _ = fs::remove_file(path);
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(cannot)?;
    file.write_all(ours::MARK.as_bytes()).map_err(cannot)?;
    file.write_all(kubeconfig.as_bytes()).map_err(cannot)
}
