//! Which nodes a command is about: names or a label selector, never both.

use clap::Args;
use evac_core::cluster::natural::natural;
use evac_core::cluster::selector::Selector;
use evac_core::{Node, component};
use evac_engine::{Http, HttpError, nodes};

use crate::exit::{Exit, Failure};
use crate::output;
use crate::suggest;

#[derive(Debug, Clone, Args, Default)]
pub struct NodeArgs {
    /// Names of nodes; node/NAME works too
    #[arg(value_name = "NODE", add = crate::complete::nodes())]
    pub names: Vec<String>,
    /// Select nodes by label, such as -l zone=a
    #[arg(long, short = 'l')]
    pub selector: Option<String>,
}

impl NodeArgs {
    /// Checks what can be checked without a cluster.
    pub fn check(&self, verb: &str) -> Result<(), Failure> {
        match &self.selector {
            None if self.names.is_empty() => Err(Failure::usage(format!(
                "USAGE: {verb} NODE [flags]; name a node or select some with -l, see `evac {verb} --help`"
            ))),
            Some(selector) if selector.is_empty() && self.names.is_empty() => {
                Err(Failure::usage("must provide one or more resources by argument or filename"))
            }
            Some(selector) if !selector.is_empty() && !self.names.is_empty() => {
                Err(Failure::usage("cannot specify both a node name and a --selector option"))
            }
            Some(selector) => parse_selector("--selector", selector).map(|_| ()),
            None => Ok(()),
        }?;
        self.plain_names().map(|_| ())
    }

    /// The names without their kind.
    pub fn plain_names(&self) -> Result<Vec<String>, Failure> {
        let mut names: Vec<String> = Vec::new();
        for name in &self.names {
            let plain = match name.split_once('/') {
                None => name.as_str(),
                Some(("node" | "nodes" | "no", plain)) => plain,
                Some((kind, _)) => {
                    return Err(Failure::usage(format!("expected resource of type node, got \"{kind}\"")));
                }
            };
            if plain.is_empty()
                || !plain
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'))
            {
                return Err(Failure::usage(format!("'{name}' is not the name of a node")));
            }
            if !names.iter().any(|known| known == plain) {
                names.push(plain.to_owned());
            }
        }
        Ok(names)
    }

    /// Reads every chosen node before anything is changed; one missing name ends the command. That a selector matches no node is said.
    pub async fn resolve(&self, http: &Http, page: u32) -> Result<Vec<Node>, Failure> {
        if let Some(selector) = self.selector.as_ref().filter(|selector| !selector.is_empty()) {
            let found = nodes(http, selector, page).await?;
            if found.is_empty() {
                output::talk(&format!("no nodes matched the selector '{selector}'"));
            }
            return Ok(found);
        }
        let mut found = Vec::new();
        for name in self.plain_names()? {
            found.push(get(http, &name).await?);
        }
        Ok(found)
    }
}

/// Nodes with these labels, in the order in which people count.
pub async fn nodes(http: &Http, selector: &str, page: u32) -> Result<Vec<Node>, Failure> {
    let mut found = nodes::by_selector(http, selector, page).await.map_err(|error| from_server(&error))?;
    found.sort_by(|one, other| natural(&one.name, &other.name));
    Ok(found)
}

/// Reads one node. If there is none of that name, the failure names the one that was probably meant.
pub async fn get(http: &Http, name: &str) -> Result<Node, Failure> {
    match nodes::get(http, name).await {
        Ok(node) => Ok(node),
        Err(error) if error.is_not_found() => {
            Err(from_server(&error).with_hint(suggest::node(http, name).await))
        }
        Err(error) => Err(from_server(&error)),
    }
}

/// How a verb ends that was to change nodes, where its selector matched none: nothing is done, so it is no success.
/// (kubectl's own verbs, cordon, uncordon and taint, end with 0 all the same, as scripts expect of them.)
pub const NONE_CHOSEN: Exit = Exit::Error;

/// A failure of the server in kubectl's form.
pub fn from_server(error: &HttpError) -> Failure {
    match error {
        HttpError::Status { reason, message, .. } if !reason.is_empty() => {
            Failure::error(format!("Error from server ({reason}): {message}"))
        }
        HttpError::Status { message, .. } => Failure::error(format!("Error from server: {message}")),
        HttpError::Transport(message) => Failure::error(format!(
            "the server could not be reached: {message}; check that it runs and that the kubeconfig names the right one"
        )),
        HttpError::Strange { .. } => {
            Failure::error(format!("{error}. To do: {}", component::strange_fix(component::SERVER)))
        }
        other => Failure::error(other.to_string()),
    }
}

pub fn parse_selector(flag: &str, text: &str) -> Result<Selector, Failure> {
    Selector::parse(text)
        .map_err(|error| Failure::usage(format!("{flag} '{text}' is not a label selector: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(names: &[&str], selector: Option<&str>) -> NodeArgs {
        NodeArgs {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            selector: selector.map(str::to_owned),
        }
    }

    #[test]
    fn a031_a035_a036_names_or_a_selector_are_needed_and_not_both() {
        for bad in [args(&[], None), args(&["a"], Some("x=y")), args(&[], Some("")), args(&[], Some("x y"))] {
            assert_eq!(bad.check("drain").unwrap_err().exit, Exit::Usage, "{bad:?}");
        }
        assert!(args(&["a"], None).check("drain").is_ok());
        assert!(args(&[], Some("x=y")).check("drain").is_ok());
    }

    #[test]
    fn a001_a002_node_slash_name_is_the_same_as_the_name() {
        assert_eq!(args(&["node/a", "a", "b"], None).plain_names().unwrap(), ["a", "b"]);
        assert!(args(&["pod/a"], None).plain_names().is_err());
        assert!(args(&["../a"], None).plain_names().is_err());
    }
}
