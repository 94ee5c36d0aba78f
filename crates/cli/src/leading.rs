//! kubectl takes its connection flags before the verb as well (`kubectl --context x drain n`), and scripts have them there in a variable.
//!
//! They are moved behind the verb, where they are read. Were they flags of the program instead, they would be offered by verbs that reach no
//! cluster, and each would have to be looked up in two places.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Args, Command};

use crate::cluster::ClusterArgs;

/// The words of a command line with the connection flags that stand before the verb moved behind it.
pub fn arranged(command: &Command, words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words = words.into_iter();
    let mut all: Vec<OsString> = words.next().into_iter().collect();
    let mut rest: Vec<OsString> = words.collect();
    let cluster = ClusterArgs::augment_args(Command::new("cluster"));
    let mut moved = Vec::new();
    // A verb may consist of several words, with flags before each of them: `vm list`.
    let mut verb = command;
    while verb.has_subcommands() {
        while let Some(first) = rest.first() {
            let (flag, to) = if let Some(flag) = find(&cluster, first) {
                (flag, &mut moved)
            } else if let Some(flag) = find(command, first) {
                (flag, &mut all)
            } else {
                break;
            };
            let count = if wants_next(flag, first) { 2 } else { 1 };
            to.extend(rest.drain(..count.min(rest.len())));
        }
        let next = rest.first().and_then(|word| word.to_str()).and_then(|word| verb.find_subcommand(word));
        let Some(next) = next else { break };
        verb = next;
        all.push(rest.remove(0));
    }
    all.extend(moved);
    all.extend(rest);
    all
}

/// The flag of a command that a word is, with or without a value in the same word.
fn find<'a>(command: &'a Command, word: &OsStr) -> Option<&'a Arg> {
    let word = word.to_str()?;
    if let Some(long) = word.strip_prefix("--") {
        let name = long.split('=').next()?;
        return command.get_arguments().find(|arg| arg.get_long() == Some(name));
    }
    let short = word.strip_prefix('-')?.chars().next()?;
    command.get_arguments().find(|arg| arg.get_short() == Some(short))
}

/// Whether the value of a flag is the next word.
fn wants_next(flag: &Arg, word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    let alone = if word.starts_with("--") { !word.contains('=') } else { word.chars().count() == 2 };
    alone && flag.get_action().takes_values() && !flag.is_require_equals_set()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::{Cli, Verb};

    fn words(line: &str) -> String {
        let words = arranged(&Cli::command(), line.split(' ').map(OsString::from));
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn connection_flags_before_the_verb_are_read_as_if_they_stood_behind_it() {
        assert_eq!(words("evac --context x drain n"), "evac drain --context x n");
        assert_eq!(words("evac --context=x -n y -sz drain n"), "evac drain --context=x -n y -sz n");
        assert_eq!(
            words("evac --kubeconfig f -v 6 --token t vm list"),
            "evac -v 6 vm list --kubeconfig f --token t"
        );
        assert_eq!(words("evac vm --context x -v 6 list"), "evac vm -v 6 list --context x");
        assert_eq!(
            words("evac --insecure-skip-tls-verify adm drain n"),
            "evac adm drain --insecure-skip-tls-verify n"
        );
        let cli =
            Cli::try_parse_from(words("evac --context x -s https://a --as kim drain n -l a=b").split(' '))
                .unwrap();
        let Verb::Drain(args) = cli.verb else { panic!("{cli:?}") };
        assert_eq!(args.cluster.context.as_deref(), Some("x"));
        assert_eq!(args.cluster.server.as_deref(), Some("https://a"));
        assert_eq!(args.cluster.impersonate.as_deref(), Some("kim"));
        assert_eq!(args.nodes.names, ["n"]);
    }

    #[test]
    fn everything_else_stays_where_it_is() {
        for line in [
            "evac",
            "evac drain n --context x",
            "evac taint nodes n a=b:NoSchedule --overwrite",
            "evac -v 6 drain n",
            "evac --help",
            "evac --context",
            "evac --unknown drain --context x",
            "evac drain --context x -- --server",
        ] {
            assert_eq!(words(line), line);
        }
    }

    #[test]
    fn a_verb_that_reaches_no_cluster_has_no_use_for_them() {
        assert!(Cli::try_parse_from(words("evac --context x manifests").split(' ')).is_err());
    }
}
