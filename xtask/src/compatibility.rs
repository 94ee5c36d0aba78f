//! The table in `docs/kubevirt.md` of what is tested beside which release of KubeVirt: made from what scenarios say of themselves and
//! from the versions that are built, never typed.

#[allow(dead_code, reason = "steps are told from notes only where scenarios are run")]
#[path = "../../crates/cli/tests/scenario/beside.rs"]
mod beside;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use beside::{Beside, Notes};

/// What there is of evac that meets KubeVirt; a row without a scenario says so.
const ROWS: [&str; 20] = [
    "evac drain",
    "evac explain",
    "evac status",
    "evac cancel",
    "evac cordon",
    "evac uncordon",
    "evac vm list",
    "evac vm start",
    "evac vm stop",
    "evac vm restart",
    "evac vm migrate",
    "evac maintenance start",
    "evac maintenance status",
    "evac maintenance list",
    "evac maintenance end",
    "evac failover",
    "evac operator",
    "role maintenance",
    "role failover",
    "role tenants",
];
/// The folders of scenarios about machines.
const FOLDERS: [&str; 5] = ["failover", "install", "maintenance", "tenants", "vm"];
const PAGE: &str = "docs/kubevirt.md";
const BEGIN: &str = "<!-- compatibility: begin -->\n";
const END: &str = "<!-- compatibility: end -->";

/// A scenario as `folder/name`, and what it says of itself.
type Scenario = (String, Notes);

/// What is built for the tests.
struct Versions {
    kubernetes: String,
    newest: String,
    previous: String,
}

pub fn write(root: &Path) -> Result<()> {
    let text = made(root)?;
    fs::write(root.join(PAGE), text).with_context(|| format!("cannot write {PAGE}"))
}

/// Fails when the page is not what would be made.
pub fn check(root: &Path) -> Result<()> {
    if made(root)? == page(root)? {
        return Ok(());
    }
    bail!("the table in {PAGE} is not what is made from the scenarios; run `cargo xtask compatibility`")
}

/// Says which scenarios about machines the tests leave out beside KubeVirt, and why.
pub fn tell(root: &Path) -> Result<()> {
    let scenarios = scenarios(root)?;
    let on_demand = names(&scenarios, |when| matches!(when, Beside::OnDemand | Beside::OnDemandNewest));
    println!("beside KubeVirt only with EVAC_ALL=1: {}", on_demand.len());
    for name in on_demand {
        println!("  {name}");
    }
    let never = reasons(&scenarios);
    println!("not beside KubeVirt: {}", never.len());
    for (name, why) in never {
        println!("  {name}: {why}");
    }
    Ok(())
}

fn page(root: &Path) -> Result<String> {
    fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))
}

fn made(root: &Path) -> Result<String> {
    let page = page(root)?;
    let (before, rest) = page.split_once(BEGIN).context("the page has no place for the table")?;
    let (_, after) = rest.split_once(END).context("the place for the table has no end")?;
    let table = table(&versions(root)?, &scenarios(root)?)?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

fn versions(root: &Path) -> Result<Versions> {
    let version = |file: &str, module: &str| -> Result<String> {
        let text = fs::read_to_string(root.join("tests").join(file))
            .with_context(|| format!("cannot read tests/{file}"))?;
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found = lines.find_map(|words| match words.as_slice() {
            [name, version, ..] if *name == module => Some((*version).to_owned()),
            _ => None,
        });
        found.with_context(|| format!("tests/{file} does not name {module}"))
    };
    Ok(Versions {
        kubernetes: version("kubernetes/go.mod", "k8s.io/kubernetes")?,
        newest: version("kubevirt/go.mod", "kubevirt.io/kubevirt")?,
        previous: version("kubevirt/previous.mod", "kubevirt.io/kubevirt")?,
    })
}

fn scenarios(root: &Path) -> Result<Vec<Scenario>> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        let directory = root.join("scenarios").join(folder);
        for entry in fs::read_dir(&directory).with_context(|| format!("cannot read scenarios/{folder}"))? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "scenario") {
                continue;
            }
            let name = format!("{folder}/{}", path.file_stem().unwrap_or_default().display());
            let notes = beside::notes(&fs::read_to_string(&path)?)
                .map_err(|why| anyhow::anyhow!("scenario {name}: {why}"))?;
            if notes.beside.is_none() {
                bail!("scenario {name} does not say whether it runs beside KubeVirt");
            }
            found.push((name, notes));
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

fn names(scenarios: &[Scenario], which: impl Fn(&Beside) -> bool) -> Vec<&str> {
    let chosen = scenarios.iter().filter(|(_, notes)| notes.beside.as_ref().is_some_and(&which));
    chosen.map(|(name, _)| name.as_str()).collect()
}

fn reasons(scenarios: &[Scenario]) -> Vec<(&str, &str)> {
    scenarios
        .iter()
        .filter_map(|(name, notes)| match &notes.beside {
            Some(Beside::No(why)) => Some((name.as_str(), why.as_str())),
            _ => None,
        })
        .collect()
}

fn table(versions: &Versions, scenarios: &[Scenario]) -> Result<String> {
    let strange =
        scenarios.iter().flat_map(|(_, notes)| &notes.covers).find(|one| !ROWS.contains(&one.as_str()));
    if let Some(strange) = strange {
        bail!("a scenario covers {strange:?}, which is not in the table");
    }
    let Versions { kubernetes, newest, previous } = versions;
    let mut text = format!(
        "Made by `cargo xtask compatibility` from what the scenarios say of themselves. *yes*: a scenario covers it in every test run. *on demand*: one covers it that is run with this release where `EVAC_ALL=1` asks for it.\n\n\
         | command or role | KubeVirt {newest}, Kubernetes {kubernetes} | KubeVirt {previous}, Kubernetes {kubernetes} | scenarios |\n\
         |---|---|---|---|\n"
    );
    for row in ROWS {
        let covering: Vec<&Scenario> =
            scenarios.iter().filter(|(_, notes)| notes.covers.iter().any(|one| one == row)).collect();
        let names: Vec<String> = covering.iter().map(|(name, _)| format!("`{name}`")).collect();
        let has = |when: &Beside| covering.iter().any(|(_, notes)| notes.beside.as_ref() == Some(when));
        let both = has(&Beside::BothReleases);
        let on_demand = has(&Beside::OnDemand) || has(&Beside::OnDemandNewest);
        let newest = match (both || has(&Beside::Always), on_demand) {
            (true, _) => "yes",
            (false, true) => "on demand",
            (false, false) => "untested",
        };
        let previous = match (both, has(&Beside::Always) || has(&Beside::OnDemand)) {
            (true, _) => "yes",
            (false, true) => "on demand",
            (false, false) => "untested",
        };
        let shown = match row.strip_prefix("role ") {
            Some(role) => format!("role `{role}`"),
            None => format!("`{row}`"),
        };
        writeln!(text, "| {shown} | {newest} | {previous} | {} |", names.join(", "))?;
    }
    text.push_str(&list("\nAlso in every test run, without a row of their own: ", &rowless(scenarios)));
    let on_demand = names(scenarios, |when| *when == Beside::OnDemand);
    text.push_str(&list("\nThese pass, and are run with `EVAC_ALL=1` only, to save time: ", &on_demand));
    let newest_only = names(scenarios, |when| *when == Beside::OnDemandNewest);
    let words = format!(
        "\nLikewise with {newest} only, because {previous} lacks what they need (`evacuate/cancel`): "
    );
    text.push_str(&list(&words, &newest_only));
    text.push_str("\nThese do not run beside KubeVirt:\n\n| scenario | because |\n|---|---|\n");
    for (name, why) in reasons(scenarios) {
        writeln!(text, "| `{name}` | {why} |")?;
    }
    Ok(text)
}

/// Those that are run and show something else than a command or a role.
fn rowless(scenarios: &[Scenario]) -> Vec<&str> {
    scenarios
        .iter()
        .filter(|(_, notes)| {
            notes.covers.is_empty() && matches!(notes.beside, Some(Beside::Always | Beside::BothReleases))
        })
        .map(|(name, _)| name.as_str())
        .collect()
}

fn list(begin: &str, names: &[&str]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("{begin}{}.\n", names.join(", "))
}

#[cfg(test)]
mod tests {
    use evac_core::machines::beside::{Upstream, notes};

    use super::*;

    fn of(scenarios: &[(&str, &str)]) -> Result<String> {
        let version = |text: &str| text.to_owned();
        let versions = Versions { kubernetes: version("v1"), newest: version("v3"), previous: version("v2") };
        let read = |(name, text): &(&str, &str)| match beside::notes(text) {
            Ok(notes) => Ok(((*name).to_owned(), notes)),
            Err(why) => bail!(why),
        };
        table(&versions, &scenarios.iter().map(read).collect::<Result<Vec<_>>>()?)
    }

    #[test]
    fn a_cell_says_yes_only_where_a_scenario_is_run_with_that_release() -> Result<()> {
        let text = of(&[
            ("vm/a", "beside kubevirt: always\ncovers: evac drain, evac vm start"),
            ("vm/b", "beside kubevirt: both releases\ncovers: evac drain"),
            ("vm/c", "beside kubevirt: on demand\ncovers: role tenants"),
            ("vm/d", "beside kubevirt: on demand with the newest release\ncovers: role failover"),
        ])?;
        assert!(text.contains("| `evac drain` | yes | yes | `vm/a`, `vm/b` |"), "{text}");
        assert!(text.contains("| `evac vm start` | yes | on demand | `vm/a` |"), "{text}");
        assert!(text.contains("| role `tenants` | on demand | on demand | `vm/c` |"), "{text}");
        assert!(text.contains("| role `failover` | on demand | untested | `vm/d` |"), "{text}");
        assert!(text.contains("Likewise with v3 only, because v2 lacks what they need"), "{text}");
        assert!(text.contains("| `evac failover` | untested | untested |  |"), "{text}");
        Ok(())
    }

    #[test]
    fn a_drain_takes_the_releases_that_are_built_for_tested_ones() -> Result<()> {
        let built = versions(&crate::root())?;
        for version in [built.newest, built.previous] {
            let upstream = Upstream { phase: "Deployed".into(), version, virt_api: true };
            assert!(notes(&upstream).is_empty(), "{upstream:?}");
        }
        Ok(())
    }

    #[test]
    fn what_does_not_run_is_listed_with_its_reason_and_covers_nothing() -> Result<()> {
        let text = of(&[("vm/a", "beside kubevirt: no, because a pod is asked")])?;
        assert!(text.contains("| `vm/a` | a pod is asked |"), "{text}");
        assert!(of(&[("vm/a", "beside kubevirt: no, because\ncovers: evac drain")]).is_err());
        assert!(of(&[("vm/a", "beside kubevirt: no, because x\ncovers: evac drain")]).is_err());
        assert!(of(&[("vm/a", "beside kubevirt: always\ncovers: evac dance")]).is_err());
        Ok(())
    }
}
