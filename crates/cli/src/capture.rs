//! `evac capture`: a cluster in a file, for plans and rehearsals elsewhere.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use evac_api::snapshot::{self, Gap, Header, SnapshotError};
use evac_engine::capture::{CaptureError, Captured, capture};
use tempfile::NamedTempFile;

use crate::cluster::ClusterArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::select::from_server;

/// Write what is needed to judge drains into a file, without anything secret
///
/// Nodes, pods, what owns them, disruption budgets, virtual machines, migrations, settings, quotas and leases, of each the fields by which drains are
/// decided. No secrets, environment, commands, user data or other annotations. The file can be read by its owner alone. Nothing is changed in the cluster.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct CaptureArgs {
    /// The file to write
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// Write the file even if something may not be read; it says what is missing
    #[arg(long)]
    pub allow_partial: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

const EXAMPLES: &str = "\
Examples:
  # Take the cluster with you
  evac capture production.evac

  # With the rights of somebody who may not read everything
  evac capture production.evac --allow-partial

Exit codes:
  0  written
  1  error, or something may not be read; nothing was written
  2  wrong usage, or the file exists";

pub async fn run(args: &CaptureArgs) -> Result<Exit, Failure> {
    let file = &args.file;
    if file.is_dir() {
        return Err(Failure::usage(format!("{} is a directory; name a file", file.display())));
    }
    if !args.force && file.symlink_metadata().is_ok() {
        return Err(exists(file));
    }
    let (http, _) = args.cluster.connect().await?;
    let captured =
        capture(&http, env!("CARGO_PKG_VERSION")).await.map_err(|error| capture_failure(&error))?;
    let unwritten = format!("{} is not written, because it would be incomplete", file.display());
    refuse_gaps(&captured.header, args.allow_partial, &unwritten)?;
    let size = store(file, &captured, args.force)?;
    let gaps = captured.header.gaps();
    for gap in &gaps {
        output::warning(&sentence(gap));
    }
    let count = |kind: &str| captured.header.count(kind);
    output::data(&format!(
        "{}: {} node(s), {} pod(s), {} virtual machine instance(s), {} KiB{}",
        file.display(),
        count("nodes"),
        count("pods"),
        count("virtualmachineinstances"),
        size.div_ceil(1024),
        if gaps.is_empty() { "" } else { "; incomplete" },
    ));
    Ok(Exit::Done)
}

fn sentence(gap: &Gap) -> String {
    format!("{} cannot be read, so an answer would not know {}: {}", gap.what, gap.misses, gap.why)
}

/// Ends a command for which something could not be read, unless that is allowed.
pub fn refuse_gaps(header: &Header, is_allowed: bool, consequence: &str) -> Result<(), Failure> {
    let gaps = header.gaps();
    if gaps.is_empty() || is_allowed {
        return Ok(());
    }
    for gap in &gaps {
        output::error(&sentence(gap));
    }
    Err(Failure::error(format!(
        "{consequence}; ask for the right to list what is missing, or use --allow-partial"
    )))
}

/// What an answer from an incomplete snapshot does not know has to be said with the answer.
pub fn warn_of_gaps(gaps: &[Gap]) {
    for gap in gaps {
        output::warning(&format!(
            "{} could not be read, so it is not known {}: {}",
            gap.what, gap.misses, gap.why
        ));
    }
}

/// Reads a file that `evac capture` wrote.
pub fn read_snapshot<T>(
    file: &Path,
    read: impl FnOnce(File) -> Result<T, SnapshotError>,
) -> Result<T, Failure> {
    let wrong = |error: SnapshotError| Failure::error(format!("{} {error}", file.display()));
    File::open(file).map_err(SnapshotError::Unreadable).and_then(read).map_err(wrong)
}

fn exists(file: &Path) -> Failure {
    Failure::usage(format!("{} exists; give another name, or --force to replace it", file.display()))
}

/// Why nothing could be captured.
pub fn capture_failure(error: &CaptureError) -> Failure {
    let inner = from_server(&error.source);
    Failure::error(format!("{} (while reading {})", inner.message, error.what))
}

/// Writes beside the file and renames, so that nobody ever finds half of it. Only its owner may read it from the beginning.
fn store(file: &Path, captured: &Captured, replace: bool) -> Result<u64, Failure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let cannot = |error: &std::io::Error| Failure::error(format!("cannot write {}: {error}", file.display()));
    let beside = NamedTempFile::new_in(folder).map_err(|error| cannot(&error))?;
    let written =
        snapshot::write(BufWriter::new(beside), &captured.header, captured.lines.iter().map(String::as_str));
    let mut written = written.map_err(|error| cannot(&error))?;
    written.flush().map_err(|error| cannot(&error))?;
    let beside = written.into_inner().map_err(|error| cannot(error.error()))?;
    beside.as_file().sync_all().map_err(|error| cannot(&error))?;
    let size = beside.as_file().metadata().map_err(|error| cannot(&error))?.len();
    let renamed = if replace { beside.persist(file) } else { beside.persist_noclobber(file) };
    match renamed {
        Ok(_) => Ok(size),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(exists(file)),
        Err(error) => Err(cannot(&error.error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use evac_api::snapshot::header::{FORMAT, VERSION};
    use evac_api::snapshot::{Cluster, load};

    use super::*;

    fn captured() -> Captured {
        let header = Header {
            format: FORMAT.into(),
            version: VERSION,
            evac: "1".into(),
            captured: "2026-01-01T00:00:00Z".parse().unwrap(),
            cluster: Cluster::Uid("u".into()),
            kinds: Vec::new(),
        };
        Captured { header, lines: Vec::new() }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn only_its_owner_may_read_a_snapshot_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.evac");
        let size = store(&file, &captured(), false).unwrap();
        let metadata = std::fs::metadata(&file).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, size));
        assert_eq!(names(folder.path()), ["a.evac"]);
        assert_eq!(read_snapshot(&file, load).unwrap().header, captured().header);
    }

    #[test]
    fn a_file_that_exists_is_only_replaced_by_force_and_is_then_private() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.evac");
        std::fs::write(&file, "mine").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(store(&file, &captured(), false).unwrap_err().exit, Exit::Usage);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        store(&file, &captured(), true).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(folder.path()), ["a.evac"]);
    }

    #[test]
    fn where_nothing_can_be_written_one_sentence_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let failure = store(&folder.path().join("none/a.evac"), &captured(), false).unwrap_err();
        assert_eq!(failure.exit, Exit::Error);
        assert!(failure.message.starts_with("cannot write "), "{}", failure.message);
    }

    #[test]
    fn what_is_no_snapshot_is_named_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.evac");
        std::fs::write(&file, "apiVersion: v1").unwrap();
        let failure = read_snapshot(&file, load).unwrap_err();
        assert_eq!(failure.exit, Exit::Error);
        assert!(failure.message.contains("a.evac is not a snapshot of evac"), "{}", failure.message);
        let failure = read_snapshot(&folder.path().join("none"), load).unwrap_err();
        assert!(failure.message.contains("none cannot be read: "), "{}", failure.message);
    }
}
