//! Completion: scripts for shells and for kubectl, and the names that only the cluster knows.
//!
//! The scripts ask the program itself what fits, so what is offered is what this version takes.

mod kubectl;
mod names;

use std::ffi::OsString;
use std::io::Write as _;

use clap::{Args, Command, ValueEnum};
use clap_complete::env::{Bash, CompleteEnv, EnvCompleter, Fish, Shells, Zsh};

use self::kubectl::Kubectl;
pub use self::names::{namespaces, nodes, subjects, vms};
use crate::exit::{Exit, Failure};
use crate::output;

/// Set where the program is asked to complete a command line instead of carrying it out.
const VARIABLE: &str = "EVAC_COMPLETE";

const SHELLS: Shells<'static> = Shells(&[&Bash, &Zsh, &Fish, &Kubectl]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    /// The program kubectl_complete-evac, by which kubectl completes `kubectl evac`
    Kubectl,
}

/// Print what a shell needs to complete commands, flags, nodes, machines and namespaces
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionArgs {
    #[arg(value_enum)]
    pub shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  # In ~/.bashrc
  source <(evac completion bash)

  # In ~/.zshrc, after compinit
  source <(evac completion zsh)

  # In ~/.config/fish/config.fish
  evac completion fish | source

  # For kubectl evac, in a directory of your path
  evac completion kubectl > kubectl_complete-evac && chmod +x kubectl_complete-evac";

pub fn run(args: &CompletionArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
        Shell::Kubectl => &Kubectl,
    };
    shell
        .write_registration(VARIABLE, "evac", "evac", "evac", &mut script)
        .map_err(|error| Failure::error(format!("the script cannot be made: {error}")))?;
    // A script is not for people: its control characters belong to it.
    let _ = std::io::stdout().write_all(&script);
    Ok(Exit::Done)
}

/// Answers a shell that asks for completions, and says whether one did.
pub fn answer(command: fn() -> Command) -> bool {
    if std::env::var_os(VARIABLE).is_none() {
        return false;
    }
    let words = arranged(&command(), std::env::args_os());
    let folder = std::env::current_dir().ok();
    let asked = CompleteEnv::with_factory(command).var(VARIABLE).shells(SHELLS);
    asked.try_complete(words, folder.as_deref()).unwrap_or_else(|error| {
        output::error(&error.to_string());
        true
    })
}

/// The words with connection flags behind the verb, where they are known.
fn arranged(command: &Command, words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut before: Vec<OsString> = words.into_iter().collect();
    match before.iter().position(|word| word == "--") {
        Some(end) => {
            let typed = before.split_off(end + 1);
            before.extend(crate::leading::arranged(command, typed));
            before
        }
        None => before,
    }
}
