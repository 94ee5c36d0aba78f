//! Runs every file under `scenarios/` on the sandbox and on a real Kubernetes API server, and some beside KubeVirt's own control
//! plane, too.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test that cannot go on should say where, and what was left out"
)]

mod scenario;

use std::path::Path;

use evac_world::NodeSpec;
use scenario::{Arm, Cluster, Scenario};

fn on(arm: Arm, path: &Path) -> datatest_stable::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let scenario = Scenario::parse(&text)?;
    if scenario.real_server_only && arm == Arm::Sandbox {
        return Ok(());
    }
    let has_kubernetes = std::env::var_os("EVAC_KUBERNETES").is_some();
    if !has_kubernetes && (arm != Arm::Sandbox || scenario.uses(&["kubectl", "oc"])) {
        skip(&format!("scenario {} on {arm:?}: needs the real Kubernetes programs", path.display()));
        return Ok(());
    }
    let needs_kubevirt = arm == Arm::KubeVirt || scenario.uses(&["virtctl", "./virtctl"]);
    if needs_kubevirt && std::env::var_os("EVAC_KUBEVIRT").is_none() {
        skip(&format!("scenario {} on {arm:?}: needs the real programs of KubeVirt", path.display()));
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut cluster = Cluster::start(arm, NodeSpec::workers(scenario.nodes), scenario.machines).await;
        if let Some(nodes) = scenario.tenant {
            cluster.tenant = Some(Box::new(Cluster::tenant(arm, nodes).await));
        }
        let result = scenario::run(&scenario, &cluster).await;
        cluster.stop().await;
        result.map_err(|why| Box::new(Wrong(why)).into())
    })
}

/// A failure that shows its lines as lines.
struct Wrong(String);

impl std::fmt::Debug for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// Says what was left out, and leaves a note for the summary of `cargo xtask test`.
fn skip(why: &str) {
    use std::io::Write as _;
    eprintln!("skipped: {why}");
    if let Some(path) = std::env::var_os("EVAC_SKIPPED")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(path)
    {
        let _ = writeln!(file, "{why}");
    }
}

fn on_the_sandbox(path: &Path) -> datatest_stable::Result<()> {
    on(Arm::Sandbox, path)
}

fn on_a_real_server(path: &Path) -> datatest_stable::Result<()> {
    on(Arm::Kubernetes, path)
}

fn under_kubevirt(path: &Path) -> datatest_stable::Result<()> {
    on(Arm::KubeVirt, path)
}

datatest_stable::harness! {
    { test = on_the_sandbox, root = "../../scenarios", pattern = r"\.scenario$" },
    { test = on_a_real_server, root = "../../scenarios", pattern = r"\.scenario$" },
    // Those that were gone through there; docs/kubevirt.md says what of the rest is known.
    { test = under_kubevirt, root = "../../scenarios", pattern = r"(vm/(upstream|beside|copied|drain-moves|drains-in-turn|pinned)|maintenance/one-mover|failover/upstream|tenants/upstream)\.scenario$" },
}
