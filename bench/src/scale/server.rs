//! The server of the scale bench, as a program of its own: the sandbox's API server with a whole cluster in its store.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use evac_apiserver::Service;
use evac_apiserver::front::Front;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_clock::Clock;
use evac_engine::Http;
use evac_engine::operator::install;
use serde_json::Value;

use super::{Size, objects};

/// Fills a server, says that it is ready, and serves until it is ended.
pub async fn serve(size: Size, kubeconfig: &str) -> Result<()> {
    let api = Api::new(Clock::real(), Settings::default());
    let client = kube::Client::new(Service::trusted(api.clone(), Identity::admin()), "default");
    let http = Http::new(client, api.clock, Duration::ZERO);
    install::kinds(&http).await?;
    install::policies(&http).await?;
    fill(&api, size)?;
    let front = Front::open(api.clone(), 0).await?;
    fs::write(kubeconfig, &front.kubeconfig)?;
    println!("ready: export KUBECONFIG={kubeconfig}");
    std::future::pending().await
}

fn fill(api: &Arc<Api>, size: Size) -> Result<()> {
    let Size { nodes, instances, pods, budgets } = size;
    let guarded = || (0..instances).filter(|number| objects::is_guarded(*number));
    put(api, "namespaces", "v1", "namespaces", objects::namespaces())?;
    put(api, "nodes", "v1", "nodes", (0..nodes).map(objects::node))?;
    put(api, "leases", "coordination.k8s.io/v1", "leases", (0..nodes).map(objects::lease))?;
    let vmis = (0..instances).map(|number| objects::instance(number, nodes));
    put(api, "instances", "kubevirt.io/v1", "virtualmachineinstances", vmis)?;
    let launchers = (0..instances).map(|number| objects::launcher(number, nodes));
    put(api, "launcher pods", "v1", "pods", launchers)?;
    put(api, "other pods", "v1", "pods", (0..pods).map(|number| objects::pod(number, nodes)))?;
    let of_apps = (0..budgets - guarded().count()).map(objects::budget);
    put(api, "budgets", "policy/v1", "poddisruptionbudgets", guarded().map(objects::guard).chain(of_apps))
}

/// Stores objects as they are, and says how large they are.
fn put(
    api: &Arc<Api>,
    what: &str,
    version: &str,
    plural: &str,
    objects: impl Iterator<Item = Value>,
) -> Result<()> {
    let kinds = api.kinds();
    let (group, version) = evac_apiserver::kinds::split_api_version(version);
    let kind = kinds.by_plural(group, version, plural).with_context(|| format!("{plural} are not known"))?;
    let (mut count, mut bytes) = (0_usize, 0_usize);
    for object in objects {
        let stored = api.store_as_is(kind, object).map_err(|_| anyhow::anyhow!("two {what} of one name"))?;
        count += 1;
        bytes += stored.json.len();
    }
    eprintln!("  {count} {what}, {} bytes each", bytes.checked_div(count).unwrap_or_default());
    Ok(())
}
