//! How kubectl asks its plugins: it runs `kubectl_complete-evac` with the words behind `kubectl evac`, the last of which is to be completed, and reads one
//! candidate a line, with a tab before its description, and at the end what the shell is to do.

use std::ffi::OsString;
use std::io::{Error, Write};
use std::path::Path;

use clap::Command;
use clap_complete::engine::complete;
use clap_complete::env::EnvCompleter;

/// Offer no files.
const NO_FILES: &str = ":4";

pub struct Kubectl;

impl EnvCompleter for Kubectl {
    fn name(&self) -> &'static str {
        "kubectl"
    }

    fn is(&self, name: &str) -> bool {
        name == self.name()
    }

    fn write_registration(
        &self,
        variable: &str,
        _: &str,
        _: &str,
        _: &str,
        script: &mut dyn Write,
    ) -> Result<(), Error> {
        writeln!(script, "#!/bin/sh\n{variable}=kubectl exec kubectl-evac -- kubectl-evac \"$@\"")
    }

    fn write_complete(
        &self,
        command: &mut Command,
        words: Vec<OsString>,
        folder: Option<&Path>,
        answer: &mut dyn Write,
    ) -> Result<(), Error> {
        let last = words.len().saturating_sub(1);
        for candidate in complete(command, words, last, folder)? {
            let value = candidate.get_value().to_string_lossy().into_owned();
            match candidate.get_help().map(ToString::to_string) {
                Some(help) => {
                    writeln!(answer, "{value}\t{}", help.lines().next().unwrap_or_default())?;
                }
                None => writeln!(answer, "{value}")?,
            }
        }
        writeln!(answer, "{NO_FILES}")
    }
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn candidates_come_one_a_line_with_what_the_shell_is_to_do_at_the_end() {
        let mut command = Command::new("kubectl-evac")
            .disable_help_subcommand(true)
            .subcommand(Command::new("drain").about("Empty nodes"))
            .subcommand(Command::new("demo"))
            .subcommand(Command::new("status").arg(Arg::new("node")));
        let mut answer = Vec::new();
        let words = ["kubectl-evac", "d"].map(OsString::from).to_vec();
        Kubectl.write_complete(&mut command, words, None, &mut answer).unwrap();
        assert_eq!(String::from_utf8(answer).unwrap(), "drain\tEmpty nodes\ndemo\n:4\n");
    }
}
