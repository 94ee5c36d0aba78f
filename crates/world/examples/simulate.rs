//! Simulated nodes on the cluster of the current kubeconfig: `simulate [nodes] [kubelets|all]`.
//!
//! With `kubelets` (the default) the cluster's own scheduler and controllers do the rest; with `all` the
//! simulated ones do, for a server that runs without them.

use evac_clock::Clock;
use evac_world::{NodeSpec, Options, World};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(3);
    let all = arguments.next().as_deref() == Some("all");
    let nodes = NodeSpec::workers(count);
    let options = if all { Options::cluster(nodes) } else { Options::kubelets_only(nodes) };
    let client = kube::Client::try_default().await?;
    let world = World::start(client, Clock::real(), options);
    tokio::signal::ctrl_c().await?;
    world.stop().await;
    Ok(())
}
