//! What a policy may say about a fence agent. The operator runs it with its own rights and tells it secrets, and the person who
//! writes a policy is not the one who runs the operator: so a policy names a program and never a place, its options are lines that can only be
//! read as what they are, and its Secret is one that was put beside the operator for this.

use std::collections::BTreeMap;

use thiserror::Error;

use super::policy::Agent;
use crate::cluster::fact::Key;

/// The programs of the family are called so, and live beside others: `/usr/sbin` has `fence_ipmilan`, and `reboot`.
pub const COMMAND_PATTERN: &str = "^fence_[a-z0-9][a-z0-9_.-]{0,56}$";
const PREFIX: &str = "fence_";
const LONGEST_COMMAND: usize = 63;
const LONGEST_OPTION: usize = 63;
/// How many bytes the value of an option may have.
pub const LONGEST_VALUE: usize = 1024;
/// How many options may be given for one node, those of the policy and of its Secret together.
pub const MOST_OPTIONS: usize = 64;
/// How many nodes may have options of their own.
pub const MOST_NODES: usize = 5000;
/// Evac says what is to be done to which node; `option` is an old word for `action`.
pub const OURS: [&str; 3] = ["action", "nodename", "option"];
/// Options of the family with which an agent runs another program, or writes a file where it is told.
pub const REACHING_OUT: [&str; 4] = ["debug", "debug_file", "debug-file", "ssh_options"];
/// The same by the ends of their names.
pub const REACHING_OUT_ENDINGS: [&str; 4] = ["_path", "-path", "_script", "-script"];
/// The operator's own Secret, with which it shows who it is.
pub const OWN_SECRET: &str = "evac-serving";

/// Why a fence agent cannot be used; the sentence is the one people read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AgentError {
    /// No name is given.
    #[error("spec.proof.agent.command is empty")]
    NoCommand,
    /// It is not a name as [`COMMAND_PATTERN`] wants it.
    #[error(
        "spec.proof.agent.command is {command:?}; give the name of a fence agent such as fence_ipmilan, without a path \
         (fence_ and then lower case letters, digits, '_', '.' and '-')"
    )]
    Command {
        /// What was given, shortened.
        command: String,
    },
    /// It is not a name of an option.
    #[error(
        "the fence agent's option {option:?} cannot be used; options are called by lower case letters, digits, '_' and '-', at most \
         {LONGEST_OPTION} of them"
    )]
    Option {
        /// What was given, shortened.
        option: String,
    },
    /// One of [`OURS`].
    #[error("the fence agent's option {option} is evac's to give; leave it out")]
    Ours {
        /// The option.
        option: String,
    },
    /// One of [`REACHING_OUT`], or it ends like one of [`REACHING_OUT_ENDINGS`].
    #[error(
        "the fence agent's option {option} would make it run another program or write a file; leave it out"
    )]
    ReachesOut {
        /// The option.
        option: String,
    },
    /// Two of the policy, its options for a node and its Secret give the option.
    #[error("the fence agent's option {option} is given in two places")]
    Twice {
        /// The option.
        option: String,
    },
    /// The value would not be one line.
    #[error("the value of the fence agent's option {option} has a line break or another control character")]
    ControlCharacter {
        /// The option; its value may be a secret.
        option: String,
    },
    /// The value is longer than [`LONGEST_VALUE`].
    #[error("the value of the fence agent's option {option} is longer than {LONGEST_VALUE} bytes")]
    LongValue {
        /// The option; its value may be a secret.
        option: String,
    },
    /// More than [`MOST_OPTIONS`].
    #[error("the fence agent has {count} options for one node; at most {MOST_OPTIONS} are possible")]
    ManyOptions {
        /// How many there are.
        count: usize,
    },
    /// More than [`MOST_NODES`] nodes have options of their own.
    #[error("spec.proof.agent.nodeOptions names {count} nodes; at most {MOST_NODES} are possible")]
    ManyNodes {
        /// How many there are.
        count: usize,
    },
    /// The Secret is not beside the operator.
    #[error(
        "spec.proof.agent.optionsSecret is in namespace {namespace:?}, but only Secrets of the operator's own namespace {home} are \
         read; put it there"
    )]
    ForeignSecret {
        /// Where it would be.
        namespace: String,
        /// The operator's own namespace.
        home: String,
    },
    /// No object can have this name.
    #[error("spec.proof.agent.optionsSecret is called {name:?}, which no Secret can be called")]
    SecretName {
        /// What was given, shortened.
        name: String,
    },
    /// It is [`OWN_SECRET`].
    #[error(
        "spec.proof.agent.optionsSecret is {OWN_SECRET}, the operator's own; make a Secret for the fence agent"
    )]
    OwnSecret,
    /// The operator was not told where fence agents are.
    #[error(
        "fence agent {command} cannot be run, because the operator was started without --fence-agents DIRECTORY; say there where fence \
         agents are"
    )]
    NoDirectories {
        /// The agent that was to be run.
        command: String,
    },
    /// No directory has a file of this name.
    #[error("fence agent {command} is in none of the directories given with --fence-agents: {directories}")]
    NotFound {
        /// The agent that was to be run.
        command: String,
        /// Where it was looked for.
        directories: String,
    },
    /// The file cannot be run, or leads out of its directory.
    #[error(
        "fence agent {path} cannot be run: it is not a program, or a link that leads out of its directory"
    )]
    NotAProgram {
        /// The file.
        path: String,
    },
}

impl Agent {
    /// Everything that can be said without looking at a Secret or a disk. `home` is the operator's namespace.
    pub fn check(&self, home: &str) -> Result<(), AgentError> {
        self.check_words()?;
        self.check_home(home)
    }

    /// The operator may be allowed to read other Secrets for other roles; a policy is not the way to them.
    pub fn check_home(&self, home: &str) -> Result<(), AgentError> {
        match &self.secret {
            Some(Key { namespace, .. }) if namespace != home => {
                Err(AgentError::ForeignSecret { namespace: shown(namespace), home: home.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// What is wrong wherever the operator is.
    pub fn check_words(&self) -> Result<(), AgentError> {
        command(&self.command)?;
        options(&self.options)?;
        if self.node_options.len() > MOST_NODES {
            return Err(AgentError::ManyNodes { count: self.node_options.len() });
        }
        for own in self.node_options.values() {
            options(own)?;
            if let Some(option) = own.keys().find(|key| self.options.contains_key(*key)) {
                return Err(AgentError::Twice { option: option.clone() });
            }
        }
        self.secret.as_ref().map_or(Ok(()), |secret| secret_name(&secret.name))
    }
}

fn consists_of(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    text.bytes().all(allowed)
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// A name, and so nothing that leads anywhere.
pub fn command(name: &str) -> Result<(), AgentError> {
    if name.trim().is_empty() {
        return Err(AgentError::NoCommand);
    }
    let rest = name.strip_prefix(PREFIX).unwrap_or_default();
    let good = name.len() <= LONGEST_COMMAND
        && rest.bytes().next().is_some_and(plain)
        && consists_of(rest, |byte| plain(byte) || matches!(byte, b'_' | b'.' | b'-'));
    if good { Ok(()) } else { Err(AgentError::Command { command: shown(name) }) }
}

/// Options of a policy or of a Secret: each becomes one line `key=value` that the agent cannot read as another one.
pub fn options(options: &BTreeMap<String, String>) -> Result<(), AgentError> {
    if options.len() > MOST_OPTIONS {
        return Err(AgentError::ManyOptions { count: options.len() });
    }
    options.iter().try_for_each(|(key, value)| option(key, value))
}

fn option(key: &str, value: &str) -> Result<(), AgentError> {
    let good = (1..=LONGEST_OPTION).contains(&key.len())
        && key.bytes().next().is_some_and(plain)
        && consists_of(key, |byte| plain(byte) || matches!(byte, b'_' | b'-'));
    let option = || shown(key);
    if !good {
        return Err(AgentError::Option { option: option() });
    }
    if OURS.contains(&key) {
        return Err(AgentError::Ours { option: option() });
    }
    if REACHING_OUT.contains(&key) || REACHING_OUT_ENDINGS.iter().any(|ending| key.ends_with(ending)) {
        return Err(AgentError::ReachesOut { option: option() });
    }
    // What it is stays unsaid: it may be a secret.
    if value.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        return Err(AgentError::ControlCharacter { option: option() });
    }
    if value.len() > LONGEST_VALUE {
        return Err(AgentError::LongValue { option: option() });
    }
    Ok(())
}

fn secret_name(name: &str) -> Result<(), AgentError> {
    let part = |part: &str| {
        let ends = [part.bytes().next(), part.bytes().next_back()];
        ends.into_iter().all(|end| end.is_some_and(plain))
            && consists_of(part, |byte| plain(byte) || byte == b'-')
    };
    let good = name.len() <= 253 && name.split('.').all(part);
    match good {
        true if name == OWN_SECRET => Err(AgentError::OwnSecret),
        true => Ok(()),
        false => Err(AgentError::SecretName { name: shown(name) }),
    }
}

/// The beginning of a text that may be anything; where it stands in a sentence it is quoted or known to be plain.
fn shown(text: &str) -> String {
    const SHOWN: usize = 80;
    if text.chars().count() <= SHOWN {
        return text.to_owned();
    }
    text.chars().take(SHOWN).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn agent(command: &str) -> Agent {
        Agent {
            command: command.into(),
            options: map(&[("ip", "10.0.0.1"), ("ssl-insecure", ""), ("cipher", "3")]),
            node_options: [("n".to_owned(), map(&[("plug", "7")]))].into(),
            secret: Some(Key::new("evac", "bmc")),
            timeout: SignedDuration::from_secs(60),
            tries: 3,
        }
    }

    #[test]
    fn a_policy_names_a_fence_agent_and_no_place() {
        for good in ["fence_ipmilan", "fence_amt_ws", "fence_x.py", "fence_a-b"] {
            assert_eq!(agent(good).check("evac"), Ok(()), "{good}");
        }
        assert_eq!(command(" "), Err(AgentError::NoCommand));
        let long = format!("fence_{}", "a".repeat(58));
        for bad in [
            "/usr/sbin/fence_x",
            "./fence_x",
            "../fence_x",
            "fence_../x",
            "fence_a/b",
            "reboot",
            "fence_",
            "fence_;id",
            "fence_x y",
            "fence_x\n",
            "fence_.x",
            "Fence_x",
            "fenсe_x",
            "fence_x\0",
            &long,
        ] {
            assert!(matches!(command(bad), Err(AgentError::Command { .. })), "{bad:?}");
        }
        let said = command("a\nb").unwrap_err().to_string();
        assert!(!said.contains('\n'), "what is quoted stays on one line: {said}");
    }

    #[test]
    fn an_option_is_one_line_that_cannot_be_read_as_another() {
        let said = |key: &str, value: &str| options(&map(&[(key, value)])).map_err(|error| error.to_string());
        assert_eq!(said("ssl_insecure", "1 = \"yes\" $(id)"), Ok(()));
        for key in ["", "a=b", "a\nb", "-a", "A", "PATH ", "LD_PRELOAD", "a.b", "ключ", "a\0"] {
            assert!(said(key, "x").unwrap_err().contains("cannot be used"), "{key:?}");
        }
        for key in OURS {
            assert!(said(key, "on").unwrap_err().contains("is evac's to give"), "{key}");
        }
        for key in ["debug_file", "ipmitool_path", "password_script", "ssh-path", "debug"] {
            assert!(said(key, "/x").unwrap_err().contains("leave it out"), "{key}");
        }
        for value in ["hunter2\naction=on", "hunter2\r", "hunter2\0", "hunter2\u{2028}", "hunter2\u{85}"] {
            let said = said("password", value).unwrap_err();
            assert!(said.contains("line break") && !said.contains("hunter2"), "{said}");
        }
        assert!(said("a", &"x".repeat(LONGEST_VALUE + 1)).unwrap_err().contains("longer than"));
        let many = (0..=MOST_OPTIONS).map(|n| (format!("o{n}"), String::new())).collect();
        assert_eq!(options(&many), Err(AgentError::ManyOptions { count: MOST_OPTIONS + 1 }));
    }

    #[test]
    fn a_secret_is_read_from_the_operators_own_namespace_only_and_is_not_its_own() {
        let with = |namespace: &str, name: &str| Agent {
            secret: Some(Key::new(namespace, name)),
            ..agent("fence_x")
        };
        assert_eq!(with("evac", "bmc.rack-1").check("evac"), Ok(()));
        let said = with("kube-system", "root").check("evac").unwrap_err().to_string();
        assert!(said.contains("\"kube-system\"") && said.contains("own namespace evac"), "{said}");
        assert_eq!(with("evac", OWN_SECRET).check("evac"), Err(AgentError::OwnSecret));
        for name in ["", "..", "a/b", "../../kube-system/secrets/root", "a..b", "-a", "a?b", "A"] {
            let error = with("evac", name).check("evac").unwrap_err();
            assert!(matches!(error, AgentError::SecretName { .. }), "{name:?}: {error}");
        }
    }
}
