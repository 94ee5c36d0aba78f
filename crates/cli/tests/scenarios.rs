//! Runs every file under `scenarios/` on the sandbox and on a real Kubernetes API server, and those about machines beside KubeVirt's own
//! control plane, too, where they make sense there.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test that cannot go on should say where, and what was left out"
)]

mod scenario;

use std::path::Path;

use evac_upstream::kubevirt::Release;
use evac_world::NodeSpec;
use scenario::beside::{Beside, notes};
use scenario::{Arm, Cluster, Scenario};

fn on(arm: Arm, path: &Path) -> datatest_stable::Result<()> {
    let scenario = Scenario::parse(&std::fs::read_to_string(path)?)?;
    if scenario.real_server_only && arm == Arm::Sandbox {
        return Ok(());
    }
    run(&scenario, arm, path)
}

fn run(scenario: &Scenario, arm: Arm, path: &Path) -> datatest_stable::Result<()> {
    let has_kubernetes = std::env::var_os("EVAC_KUBERNETES").is_some();
    if !has_kubernetes && (arm != Arm::Sandbox || scenario.uses(&["kubectl", "oc"])) {
        skip(&format!("scenario {} on {arm:?}: needs the real Kubernetes programs", path.display()));
        return Ok(());
    }
    let has = |release: Release| release.program().is_some();
    let has_kubevirt = match arm {
        Arm::KubeVirt(release) => has(release),
        _ => true,
    };
    if !has_kubevirt || (scenario.uses(&["virtctl", "./virtctl"]) && !has(Release::Newest)) {
        skip(&format!("scenario {} on {arm:?}: needs the real programs of KubeVirt", path.display()));
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut cluster = Cluster::start(arm, NodeSpec::workers(scenario.nodes), scenario.machines).await;
        if let Some(nodes) = scenario.tenant {
            cluster.tenant = Some(Box::new(Cluster::tenant(arm, nodes).await));
        }
        let result = scenario::run(scenario, &cluster).await;
        cluster.stop().await;
        result.map_err(|why| Box::new(Wrong(why)).into())
    })
}

/// Runs a scenario beside KubeVirt's own control plane if it says so. One that says nothing fails: it was not gone through there.
fn beside(release: Release, path: &Path) -> datatest_stable::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let (scenario, notes) = (Scenario::parse(&text)?, notes(&text)?);
    let wrong = |why: String| -> datatest_stable::Result<()> { Err(Box::new(Wrong(why))) };
    // What a role does is seen in objects, so it is not looked for.
    let mut commands = notes.covers.iter().filter(|what| !what.starts_with("role "));
    if let Some(claimed) = commands.find(|command| !scenario.uses(&[command.as_str()])) {
        return wrong(format!("it says that it covers {claimed}, and does not run it"));
    }
    let everything = std::env::var_os("EVAC_ALL").is_some();
    match (&notes.beside, release) {
        (None, _) => wrong("it does not say whether it runs beside KubeVirt; see scenario/mod.rs".into()),
        (Some(Beside::No(why)), _) => {
            eprintln!("{} does not run beside KubeVirt: {why}", path.display());
            Ok(())
        }
        (Some(Beside::OnDemandNewest), Release::Previous) => {
            eprintln!("{} runs beside the newest release of KubeVirt only", path.display());
            Ok(())
        }
        (Some(Beside::OnDemand | Beside::OnDemandNewest), _) | (Some(Beside::Always), Release::Previous)
            if !everything =>
        {
            eprintln!("{} runs beside this release of KubeVirt with EVAC_ALL=1", path.display());
            Ok(())
        }
        _ => run(&scenario, Arm::KubeVirt(release), path),
    }
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
    beside(Release::Newest, path)
}

fn under_previous_kubevirt(path: &Path) -> datatest_stable::Result<()> {
    beside(Release::Previous, path)
}

datatest_stable::harness! {
    { test = on_the_sandbox, root = "../../scenarios", pattern = r"\.scenario$" },
    { test = on_a_real_server, root = "../../scenarios", pattern = r"\.scenario$" },
    // Those about machines; each says itself whether it runs there.
    { test = under_kubevirt, root = "../../scenarios", pattern = r"(vm|maintenance|failover|tenants|install)/[^/]*\.scenario$" },
    { test = under_previous_kubevirt, root = "../../scenarios", pattern = r"(vm|maintenance|failover|tenants|install)/[^/]*\.scenario$" },
}
