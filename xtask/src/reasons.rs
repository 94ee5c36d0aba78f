//! The page of all reasons: made from the tables in `crates/core/src/reasons`, never typed.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use evac_core::reasons::{Family, Reason, Subject, families};
use serde_json::Value;

const PAGE: &str = "docs/reasons.md";

const HEAD: &str = "\
<!-- Made from crates/core/src/reasons by `cargo xtask reasons`. -->
# Reasons

Why something happens to a pod or a node, or does not. In JSON ([events](events.md), `evac explain -o json`) a reason is an object with
its stable `code` and the facts behind it; people are told the sentence and what to do. The severity tells how a reason bears on the
drain:

| severity | meaning |
|---|---|
| `note` | worth saying; nothing is in the way |
| `warning` | data or a workload is lost by what was allowed |
| `progress` | ordinary waiting with an end in sight; not told with `waiting` |
| `slow` | in the way, and may clear by itself; named after 3 seconds |
| `never` | waiting alone will not help; named at once |
";

pub fn write(root: &Path) -> Result<()> {
    let path = root.join(PAGE);
    fs::write(&path, page()?).with_context(|| format!("cannot write {}", path.display()))
}

/// Fails when the page is not what would be generated.
pub fn check(root: &Path) -> Result<()> {
    if fs::read_to_string(root.join(PAGE)).unwrap_or_default() != page()? {
        bail!("{PAGE} is not what is generated; run `cargo xtask reasons`");
    }
    Ok(())
}

fn page() -> Result<String> {
    let mut page = HEAD.to_owned();
    for Family { title, told, subject, examples } in families() {
        write!(page, "\n## {title}\n\n{told}\n\n")?;
        page.push_str(
            "| code | severity | facts | meaning | example | what to do |\n|---|---|---|---|---|---|\n",
        );
        for reason in examples {
            page.push_str(&row(subject, &reason)?);
        }
    }
    Ok(page)
}

fn row(subject: Subject, reason: &Reason) -> Result<String> {
    let facts = match serde_json::to_value(reason)? {
        Value::Object(facts) => {
            facts.keys().filter(|name| *name != "code").map(|name| format!("`{name}`")).collect()
        }
        _ => Vec::new(),
    };
    let object = match subject {
        Subject::Pod => "the pod",
        Subject::Node => "the node",
    };
    let severity = serde_json::to_value(reason.severity())?;
    let cells = [
        format!("`{}`", reason.code()),
        severity.as_str().unwrap_or_default().to_owned(),
        facts.join(", "),
        reason.meaning().to_owned(),
        format!("{object} {}", reason.message()),
        reason.fix().unwrap_or_default(),
    ];
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    Ok(format!("| {} |\n", cells.join(" | ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_reasons_is_what_their_tables_say() {
        check(&crate::root()).unwrap();
    }
}
