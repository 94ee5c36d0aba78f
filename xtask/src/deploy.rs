//! The files that install the operator: made from `crates/api/src/install`, never typed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use evac_api::install::files;

/// Directories that hold nothing but generated files.
const OWNED: [&str; 2] = ["deploy", "chart/evac"];

pub fn write(root: &Path) -> Result<()> {
    for stray in strays(root)? {
        fs::remove_file(&stray).with_context(|| format!("cannot remove {}", stray.display()))?;
    }
    for (path, text) in files::all() {
        let path = root.join(path);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Fails when a file is not what would be generated, or nobody generates it any more.
pub fn check(root: &Path) -> Result<()> {
    let mut wrong = strays(root)?;
    for (path, text) in files::all() {
        let path = root.join(path);
        if fs::read_to_string(&path).unwrap_or_default() != text {
            wrong.push(path);
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = wrong.iter().map(|path| path.display().to_string()).collect();
    bail!("not what is generated; run `cargo xtask deploy`: {}", names.join(", "))
}

/// Files in our directories that are not generated.
fn strays(root: &Path) -> Result<Vec<PathBuf>> {
    let ours: BTreeSet<PathBuf> = files::all().into_iter().map(|(path, _)| root.join(path)).collect();
    let mut strays = Vec::new();
    let mut rest: Vec<PathBuf> = OWNED.iter().map(|directory| root.join(directory)).collect();
    while let Some(directory) = rest.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                rest.push(path);
            } else if !ours.contains(&path) {
                strays.push(path);
            }
        }
    }
    Ok(strays)
}
