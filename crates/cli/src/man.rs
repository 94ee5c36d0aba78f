//! `evac man`: the help of each command as a page of the manual.

use std::path::PathBuf;

use clap::{Args, Command};

use crate::exit::{Exit, Failure};
use crate::output;

/// Write the help of each command as a page of the manual
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ManArgs {
    /// The directory to write them into, such as /usr/local/share/man/man1; it has to be there
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  # Pages for yourself, then: man evac-drain
  mkdir -p ~/.local/share/man/man1 && evac man ~/.local/share/man/man1";

pub fn run(command: Command, args: &ManArgs) -> Result<Exit, Failure> {
    let directory = &args.directory;
    // One that is there is meant; a missing one may be a slip.
    let written = std::fs::metadata(directory).and_then(|_| clap_mangen::generate_to(command, directory));
    written.map_err(|error| {
        Failure::error(format!("the pages cannot be written into {}: {error}", directory.display()))
    })?;
    output::talk(&format!("written into {}: evac.1 and a page for each command", directory.display()));
    Ok(Exit::Done)
}
