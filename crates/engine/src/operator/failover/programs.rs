//! Fence agents as programs beside the operator. Policies name them; where they are is said by whoever starts the operator.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use evac_core::failover::AgentError;
use evac_core::failover::agent::command;

use super::Switches;
use crate::failover::{Agent, Environment};

/// Agents from these directories, and from nowhere else.
pub fn programs(directories: Vec<PathBuf>) -> Switches {
    Arc::new(move |policy, options, clock| {
        let program = find(&directories, &policy.command)?;
        let timeout = Duration::try_from(policy.timeout).unwrap_or(Duration::from_secs(60));
        let written = |key: &String| {
            policy.options.contains_key(key) || policy.node_options.values().any(|own| own.contains_key(key))
        };
        // Whatever is not written in the policy came from the Secret.
        let confidential: BTreeSet<String> = options.keys().filter(|key| !written(key)).cloned().collect();
        let environment = Environment::Bare;
        let program = program.to_string_lossy().into_owned();
        Ok(Arc::new(Agent { program, options, confidential, environment, timeout, clock }))
    })
}

/// The first directory that has something of this name decides: what is wrong there is said, not passed over.
fn find(directories: &[PathBuf], name: &str) -> Result<PathBuf, AgentError> {
    command(name)?;
    if directories.is_empty() {
        return Err(AgentError::NoDirectories { command: name.to_owned() });
    }
    let there = directories.iter().find(|directory| directory.join(name).symlink_metadata().is_ok());
    let Some(directory) = there else {
        let directories: Vec<String> = directories.iter().map(|it| it.display().to_string()).collect();
        return Err(AgentError::NotFound { command: name.to_owned(), directories: directories.join(", ") });
    };
    let path = directory.join(name);
    program(directory, &path).ok_or_else(|| AgentError::NotAProgram { path: path.display().to_string() })
}

/// A file in this very directory that can be run. Links are followed and what they lead to is run, so that nothing can be put in between.
fn program(directory: &Path, path: &Path) -> Option<PathBuf> {
    let (directory, path) = (directory.canonicalize().ok()?, path.canonicalize().ok()?);
    let about = path.metadata().ok()?;
    let runs = about.is_file() && about.permissions().mode() & 0o111 != 0;
    (runs && path.parent() == Some(&directory)).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn file(path: &Path, mode: u32) {
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn an_agent_is_a_program_in_a_named_directory_and_no_link_leads_out_of_it() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        file(&one.path().join("fence_good"), 0o755);
        file(&one.path().join("fence_text"), 0o644);
        file(&two.path().join("fence_other"), 0o755);
        std::fs::create_dir(one.path().join("fence_folder")).unwrap();
        symlink("fence_good", one.path().join("fence_near")).unwrap();
        symlink(two.path().join("fence_other"), one.path().join("fence_far")).unwrap();
        symlink("/bin/sh", one.path().join("fence_sh")).unwrap();
        symlink("nowhere", one.path().join("fence_dangling")).unwrap();
        let only = [one.path().to_owned()];
        let good = one.path().canonicalize().unwrap().join("fence_good");
        assert_eq!(find(&only, "fence_good"), Ok(good.clone()));
        assert_eq!(find(&only, "fence_near"), Ok(good), "what a link leads to is run");
        for bad in ["fence_text", "fence_folder", "fence_far", "fence_sh", "fence_dangling"] {
            assert!(matches!(find(&only, bad), Err(AgentError::NotAProgram { .. })), "{bad}");
        }
        assert!(matches!(find(&only, "fence_other"), Err(AgentError::NotFound { .. })));
        assert!(find(&[one.path().to_owned(), two.path().to_owned()], "fence_other").is_ok());
        let path = one.path().join("fence_good");
        assert!(matches!(find(&only, path.to_str().unwrap()), Err(AgentError::Command { .. })));
        assert!(matches!(find(&[], "fence_good"), Err(AgentError::NoDirectories { .. })));
    }
}
