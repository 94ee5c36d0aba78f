//! Fence agents: programs that switch machines off, as the fence-agents project defines them.
//!
//! An agent reads `key=value` lines from its standard input, among them `action=off` or `action=status`, and answers by its exit
//! code: 0 for success, for `status` 0 if the machine is on and 2 if it is off. One that hangs is killed with all it
//! started. What it prints is kept short and shown without the secrets it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use evac_clock::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::power::{PowerError, PowerState, PowerSwitch};

/// What is kept of an agent's output; the rest is read and dropped.
const KEPT: usize = 4096;
/// What is shown of it in a sentence.
const SHOWN: usize = 300;
/// The exit code of `status` for a machine that is off.
const OFF: i32 = 2;

/// Where a program looks for others when it was given no environment.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// What a program finds in its environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// What we found in ours: a person runs it, who could run it without us.
    Inherited,
    /// Nothing but a path: the operator's environment is no business of a policy's author.
    Bare,
}

/// A program of the fence-agents family and what it is told.
#[derive(Clone)]
pub struct Agent {
    pub program: String,
    pub options: BTreeMap<String, String>,
    /// The options whose values are shown nowhere, whatever they are called.
    pub confidential: BTreeSet<String>,
    pub environment: Environment,
    /// How long one call may take.
    pub timeout: Duration,
    pub clock: Clock,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What an agent is told may be a secret.
        f.debug_struct("Agent").field("program", &self.program).finish_non_exhaustive()
    }
}

struct Ended {
    status: ExitStatus,
    output: String,
}

impl Agent {
    /// The lines for its standard input. Values with line breaks would be read as further options; they are refused where options are read, and if one
    /// came here all the same it loses them.
    fn input(&self, node: &str, action: &str) -> String {
        let mut lines = String::new();
        let told = self.options.iter().filter(|(key, _)| !matches!(key.as_str(), "action" | "nodename"));
        let ours = [("action".to_owned(), action.to_owned()), ("nodename".to_owned(), node.to_owned())];
        for (key, value) in ours.iter().map(|(k, v)| (k, v)).chain(told) {
            let value: String = value.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
            lines.extend([key.as_str(), "=", value.as_str(), "\n"]);
        }
        lines
    }

    async fn call(&self, node: &str, action: &'static str) -> Result<Ended, PowerError> {
        let missing = |why: &dyn std::fmt::Display| PowerError::Missing {
            program: self.program.clone(),
            why: why.to_string(),
        };
        let mut command = Command::new(&self.program);
        if self.environment == Environment::Bare {
            command.env_clear().env("PATH", PATH).current_dir("/");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Its own group, so that what it started can be ended with it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| missing(&error))?;
        let mut group = Group::of(&child);
        let input = self.input(node, action);
        let work = async {
            if let Some(mut stdin) = child.stdin.take() {
                // An agent may end without reading; its exit code tells more than the broken pipe.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
            let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
            let (out, err, status) = futures::join!(kept(&mut stdout), kept(&mut stderr), child.wait());
            status.map(|status| Ended { status, output: format!("{err}\n{out}") })
        };
        let ended = tokio::select! {
            biased;
            ended = work => Some(ended),
            () = self.clock.sleep(self.timeout) => None,
        };
        if let Some(ended) = ended {
            group.ended();
            return ended.map_err(|error| missing(&error));
        }
        drop(group);
        let _ = child.kill().await;
        Err(PowerError::Hung { program: self.program.clone(), action, seconds: self.timeout.as_secs() })
    }

    fn failed(&self, action: &'static str, ended: &Ended) -> PowerError {
        let program = self.program.clone();
        match ended.status.code() {
            Some(code) => PowerError::Failed { program, action, code, said: self.said(&ended.output) },
            None => PowerError::Killed { program, action },
        }
    }

    /// What it said, in one short line and without what it was told in confidence.
    fn said(&self, output: &str) -> String {
        let mut text = output.to_owned();
        let hidden = |key: &String| is_secret(key) || self.confidential.contains(key);
        let told = self.options.iter().filter(|(key, value)| hidden(key) && !value.is_empty());
        let mut secrets: Vec<&String> = told.map(|(_, value)| value).collect();
        secrets.sort_by_key(|value| std::cmp::Reverse(value.len()));
        for secret in secrets {
            text = text.replace(secret.as_str(), "***");
        }
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() {
            return String::new();
        }
        let short: String = line.chars().take(SHOWN).collect();
        format!(": {short}")
    }
}

impl PowerSwitch for Agent {
    fn name(&self) -> String {
        let path = std::path::Path::new(&self.program);
        path.file_name().map_or_else(|| self.program.clone(), |name| name.to_string_lossy().into_owned())
    }

    fn off<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), PowerError>> {
        async move {
            let ended = self.call(node, "off").await?;
            if ended.status.success() { Ok(()) } else { Err(self.failed("off", &ended)) }
        }
        .boxed()
    }

    fn state<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<PowerState, PowerError>> {
        async move {
            let ended = self.call(node, "status").await?;
            match ended.status.code() {
                Some(0) => Ok(PowerState::On),
                Some(OFF) => Ok(PowerState::Off),
                _ => Err(self.failed("status", &ended)),
            }
        }
        .boxed()
    }
}

/// A program and everything it started. Whoever loses interest in it ends it.
struct Group(Option<rustix::process::Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(rustix::process::Pid::from_raw))
    }

    /// It has ended by itself, and its number may be another's soon.
    fn ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// The beginning of a stream; the whole of it is read, so that nobody waits for us.
async fn kept(stream: &mut Option<impl AsyncRead + Unpin>) -> String {
    let mut kept = Vec::new();
    let mut part = [0; 1024];
    if let Some(stream) = stream {
        while let Ok(count @ 1..) = stream.read(&mut part).await {
            let room = KEPT.saturating_sub(kept.len()).min(count);
            kept.extend_from_slice(&part[..room]);
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// Options of the fence-agents family that hold secrets, or the way to them.
fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["pass", "secret", "token", "key", "community", "identity"].iter().any(|part| key.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> Agent {
        let options = [("ip", "10.0.0.1"), ("password", "hun\nter2"), ("action", "on"), ("plug", "7")];
        Agent {
            program: "/usr/sbin/fence_test".into(),
            options: options.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            confidential: ["plug".to_owned()].into(),
            environment: Environment::Bare,
            timeout: Duration::from_secs(1),
            clock: Clock::real(),
        }
    }

    #[test]
    fn options_go_in_as_lines_and_the_action_is_ours() {
        assert_eq!(
            agent().input("n1", "off"),
            "action=off\nnodename=n1\nip=10.0.0.1\npassword=hunter2\nplug=7\n"
        );
        assert_eq!(agent().name(), "fence_test");
    }

    #[test]
    fn secrets_are_shown_nowhere() {
        let mut agent = agent();
        agent.options.insert("password".into(), "hunter2".into());
        assert!(!format!("{agent:?}").contains("hunter2"));
        assert_eq!(
            agent.said("cannot log in\nwith hunter2 at 10.0.0.1 for plug 7"),
            ": cannot log in with *** at 10.0.0.1 for plug ***"
        );
    }
}
