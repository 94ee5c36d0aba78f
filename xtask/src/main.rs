//! The chores of this repository behind one door: `cargo xtask test|lint|deploy|reasons|compatibility|record`.
//!
//! `test` is what people and CI run. It needs only Rust; what it can do beyond that (the arm on a real
//! Kubernetes API server and the programs of KubeVirt need Go) it does when the tool is there, and says what it left out when not.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

mod compatibility;
mod deploy;
mod reasons;
mod record;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["test", rest @ ..] => test(rest),
        ["lint"] => lint(),
        ["deploy"] => deploy::write(&root()),
        ["deploy", "--check"] => deploy::check(&root()),
        ["reasons"] => reasons::write(&root()),
        ["reasons", "--check"] => reasons::check(&root()),
        ["compatibility"] => compatibility::write(&root()),
        ["compatibility", "--check"] => compatibility::check(&root()),
        ["record"] => record::write(&root()),
        ["record", "--check"] => record::check(&root()),
        [name @ ("kubernetes" | "kubevirt" | "helm"), words @ ..] if words.len() < 2 => {
            peer(name, words.first().copied()).map(|peer| match peer {
                Peer::Built(path) => println!("{}", path.display()),
                Peer::Missing(why) => println!("not built: {why}"),
            })
        }
        _ => {
            eprintln!(
                "usage: cargo xtask test [ARGUMENTS OF cargo test] | lint | deploy [--check] | reasons [--check] | compatibility [--check] | record [--check] | kubernetes | kubevirt [previous] | helm"
            );
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// A program of others that we are tested with, if it can be had on this machine.
enum Peer {
    Built(PathBuf),
    Missing(String),
}

/// Builds `tests/NAME`, perhaps in another version, unless that was done before.
fn peer(name: &str, version: Option<&str>) -> Result<Peer> {
    let script = root().join("tests").join(name).join("build.sh");
    let output =
        match Command::new("bash").arg(&script).args(version).stderr(std::process::Stdio::inherit()).output()
        {
            Ok(output) => output,
            Err(error) => return Ok(Peer::Missing(format!("bash cannot be run: {error}"))),
        };
    match output.status.code() {
        Some(0) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let path = text.lines().last().context("the build printed no path")?;
            Ok(Peer::Built(path.trim().into()))
        }
        Some(3) => Ok(Peer::Missing("Go is not installed or too old".into())),
        _ => bail!("tests/{name} could not be built, see above"),
    }
}

/// Where the tests with random cases find the number they start from.
const RANDOM_CASES: &str = "PROPTEST_RNG_SEED";

/// Builds what the tests need, runs them all, and counts what was left out.
fn test(extra: &[&str]) -> Result<()> {
    let skipped = root().join("target/skipped-tests");
    fs::create_dir_all(root().join("target")).context("cannot create target")?;
    fs::write(&skipped, "").context("cannot write target/skipped-tests")?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["test", "--workspace"]).args(extra);
    if extra.is_empty() {
        // Most of the time goes into scenarios, and those wait more than they compute.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cargo.args(["--", "--test-threads", &(cores + cores.div_ceil(2)).to_string()]);
    }
    cargo.env("EVAC_SKIPPED", &skipped);
    if std::env::var_os(RANDOM_CASES).is_none() {
        // A red run is about the change, not about luck. Plain `cargo test` draws new cases each time.
        cargo.env(RANDOM_CASES, "1");
    }
    let peers = [
        ("kubernetes", None, "EVAC_KUBERNETES", "real Kubernetes API server"),
        ("kubevirt", None, "EVAC_KUBEVIRT", "real programs of KubeVirt"),
        ("kubevirt", Some("previous"), "EVAC_KUBEVIRT_PREVIOUS", "those of the release before"),
        ("helm", None, "EVAC_HELM", "Helm's own engine"),
    ];
    for (name, version, variable, what) in peers {
        match peer(name, version)? {
            Peer::Built(path) => {
                println!("{what}: {}", path.display());
                cargo.env(variable, path);
            }
            Peer::Missing(why) => println!("{what}: none ({why})"),
        }
    }
    let status = cargo.status().context("cargo test cannot be run")?;
    report_skipped(&skipped)?;
    compatibility::tell(&root())?;
    if !status.success() {
        bail!("tests failed");
    }
    if extra.is_empty() {
        record::compare(&root())?;
        println!("docs/demo.md and docs/demo.svg are what the demo prints");
    }
    Ok(())
}

/// Tests that cannot run here leave a line in a file: name and reason.
fn report_skipped(path: &Path) -> Result<()> {
    let text = fs::read_to_string(path).context("cannot read target/skipped-tests")?;
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    println!("skipped on this machine: {}", lines.len());
    for line in lines {
        println!("  {line}");
    }
    Ok(())
}

fn lint() -> Result<()> {
    let steps: [&[&str]; 3] = [
        &["fmt", "--all", "--check"],
        &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"],
        &["doc", "--package", "evac-core", "--no-deps", "--quiet"],
    ];
    for step in steps {
        println!("cargo {}", step.join(" "));
        let mut cargo = Command::new(env!("CARGO"));
        let status = cargo.current_dir(root()).args(step).env("RUSTDOCFLAGS", "-D warnings").status()?;
        if !status.success() {
            bail!("cargo {} failed", step[0]);
        }
    }
    println!("cargo xtask deploy --check");
    deploy::check(&root())?;
    println!("cargo xtask reasons --check");
    reasons::check(&root())?;
    println!("cargo xtask compatibility --check");
    compatibility::check(&root())
}
