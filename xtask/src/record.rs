//! The picture of a run in the README: made by running the demo, never typed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

const BEGIN: &str = "<!-- recorded by `cargo xtask record` -->\n```console\n";
const END: &str = "```\n<!-- end of record -->";

/// Runs the demo and puts what it prints into the README.
pub fn write(root: &Path) -> Result<()> {
    build(root)?;
    let path = root.join("README.md");
    let readme = fs::read_to_string(&path)?;
    let (before, _, after) = parts(&readme)?;
    fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", demo(root)?))?;
    Ok(())
}

/// Builds the program and compares.
pub fn check(root: &Path) -> Result<()> {
    build(root)?;
    compare(root)
}

/// Fails when the demo prints something else than the README shows, with the program as it was built last: the tests have built one, and another build
/// for itself alone takes minutes, because it asks for other features of the same crates. Made-up names and times differ from run to run and do not count;
/// neither does the order in which pods end.
pub fn compare(root: &Path) -> Result<()> {
    let readme = fs::read_to_string(root.join("README.md"))?;
    let (_, shown, _) = parts(&readme)?;
    let (shown, printed) = (comparable(shown), comparable(&demo(root)?));
    if shown != printed {
        bail!(
            "README.md does not show what the demo prints; run `cargo xtask record`.\nshown: {shown:#?}\nprinted: {printed:#?}"
        );
    }
    Ok(())
}

fn parts(readme: &str) -> Result<(&str, &str, &str)> {
    let (before, rest) = readme.split_once(BEGIN).context("README.md has no place for the record")?;
    let (shown, after) = rest.split_once(END).context("README.md has no end of the record")?;
    Ok((before, shown, after))
}

fn build(root: &Path) -> Result<()> {
    let built = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["build", "--quiet", "--package", "evac"])
        .status();
    if !built.context("cargo build cannot be run")?.success() {
        bail!("the program could not be built, see above");
    }
    Ok(())
}

fn demo(root: &Path) -> Result<String> {
    let output = Command::new("sh")
        .current_dir(root)
        .args(["-c", "target/debug/evac demo 2>&1"])
        .env("NO_COLOR", "1")
        .output()
        .context("cannot run the demo")?;
    let text = String::from_utf8(output.stdout).context("the demo prints something that is not text")?;
    if !output.status.success() {
        bail!("the demo failed:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

/// The different lines without what differs from run to run: how many pods a node has is the scheduler's
/// choice, and depends on what was up first.
fn comparable(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        // Where a maintenance stands at the moment at which it is looked at.
        .filter(|line| !line.ends_with(" have to leave") && !line.ends_with(" has to leave"))
        .map(|line| {
            let line = line.split(" (and ").next().unwrap_or_default();
            line.split(' ')
                .map(|word| {
                    let parts: Vec<&str> =
                        word.split('-').map(|part| if is_made_up(part) { "*" } else { part }).collect();
                    parts.join("-")
                })
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    lines.sort();
    lines.dedup();
    lines
}

/// The endings of generated names, and durations.
fn is_made_up(part: &str) -> bool {
    let part = part.trim_end_matches([')', ',', ';', ':']);
    let generated =
        (5..=10).contains(&part.len()) && part.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c));
    let duration = part.ends_with('s') && part[..part.len() - 1].parse::<f64>().is_ok();
    generated || duration
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_differ_in_nothing_that_is_compared() {
        let seen = "node node-3: 30%, 7 pods have to leave\nnode node-3: 90%, 1 pod has to leave\npod/web-4k7gd evicted";
        assert_eq!(comparable(seen), comparable("pod/web-9xqzt evicted"));
    }
}
