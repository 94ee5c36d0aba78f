//! Changes to a snapshot before it is rehearsed.

use std::str::FromStr;

use serde_json::{Value, json};

use super::objects::{Objects, key, text};

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhatIf {
    /// How many migrations run at once in the cluster.
    Parallel(u32),
    /// How many leave one node at once.
    PerNode(u32),
    /// One more node, with the labels, taints and size of this one.
    NodeLike(String),
    /// There is no such budget.
    WithoutBudget(String),
}

const KNOWN: &str = "give parallel=N, per-node=N, node-like=NODE or without-budget=NAMESPACE/NAME";

impl FromStr for WhatIf {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let number = |text: &str| match text.parse() {
            Ok(0) | Err(_) => Err("give a whole number from 1 on".to_owned()),
            Ok(number) => Ok(number),
        };
        match words.split_once('=') {
            Some(("parallel", count)) => number(count).map(Self::Parallel),
            Some(("per-node", count)) => number(count).map(Self::PerNode),
            Some(("node-like", node)) if !node.is_empty() => Ok(Self::NodeLike(node.to_owned())),
            Some(("without-budget", name))
                if name.split('/').filter(|part| !part.is_empty()).count() == 2 =>
            {
                Ok(Self::WithoutBudget(name.to_owned()))
            }
            _ => Err(KNOWN.to_owned()),
        }
    }
}

impl WhatIf {
    /// Makes the change. The error says what is not there.
    pub fn apply(&self, snapshot: &mut Objects) -> Result<(), String> {
        match self {
            Self::Parallel(count) => limit(snapshot, "parallelMigrationsPerCluster", *count),
            Self::PerNode(count) => limit(snapshot, "parallelOutboundMigrationsPerNode", *count),
            Self::NodeLike(node) => return node_like(snapshot, node),
            Self::WithoutBudget(name) => {
                let budgets = snapshot.of_mut("poddisruptionbudgets");
                let before = budgets.len();
                budgets.retain(|budget| key(budget) != *name);
                if budgets.len() == before {
                    return Err(format!("there is no PodDisruptionBudget {name}"));
                }
            }
        }
        Ok(())
    }
}

fn limit(snapshot: &mut Objects, name: &str, count: u32) {
    let mut settings = super::pour::settings(snapshot);
    settings["configuration"]["migrations"][name] = json!(count);
    *snapshot.of_mut("kubevirts") = vec![json!({"spec": settings})];
}

fn node_like(snapshot: &mut Objects, model: &str) -> Result<(), String> {
    let nodes = snapshot.of_mut("nodes");
    let names: Vec<String> = nodes.iter().map(key).collect();
    let Some(found) = nodes.iter().find(|node| key(node) == model) else {
        return Err(format!("there is no node {model}"));
    };
    let mut node: Value = found.clone();
    let name = (1..=names.len() + 1)
        .map(|number| format!("{model}-more-{number}"))
        .find(|name| !names.contains(name));
    let name = name.unwrap_or_default();
    let uid = format!("{}-more-{name}", text(&node, "/metadata/uid"));
    node["metadata"]["name"] = json!(name);
    node["metadata"]["uid"] = json!(uid);
    node["metadata"]["labels"]["kubernetes.io/hostname"] = json!(name);
    if let Some(metadata) = node["metadata"].as_object_mut() {
        metadata.remove("annotations");
    }
    // It is new and open, whatever the other one is going through.
    if let Some(spec) = node["spec"].as_object_mut() {
        spec.remove("unschedulable");
    }
    if let Some(taints) = node["spec"]["taints"].as_array_mut() {
        taints.retain(|taint| !text(taint, "/key").starts_with("node.kubernetes.io/"));
    }
    nodes.push(node);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_and_nonsense_is_answered_with_what_there_is() {
        assert_eq!("parallel=9".parse(), Ok(WhatIf::Parallel(9)));
        assert_eq!("per-node=4".parse(), Ok(WhatIf::PerNode(4)));
        assert_eq!("node-like=a".parse(), Ok(WhatIf::NodeLike("a".into())));
        assert_eq!("without-budget=d/web".parse(), Ok(WhatIf::WithoutBudget("d/web".into())));
        for wrong in ["", "parallel", "node-like=", "without-budget=web", "faster"] {
            assert_eq!(wrong.parse::<WhatIf>(), Err(KNOWN.to_owned()), "{wrong}");
        }
        assert!("parallel=0".parse::<WhatIf>().unwrap_err().contains("from 1"));
    }
}
