//! `evac explain`: how each pod of a node may leave, and what stands in the way.

mod machine;

use clap::Args;
use evac_core::drain::forecast::{Forecast, PodForecast};
use evac_core::drain::ownership::{Ownership, lease_key, ownership};
use evac_core::reasons::NodeReason;
use evac_core::{Fact, Index, Key, Policy, Reason, forecast};
use evac_engine::{Http, nodes, places};
use jiff::Timestamp;
use serde_json::json;

use crate::cluster::{ClusterArgs, OwnerArgs};
use crate::drain::{Format, PolicyArgs};
use crate::exit::{Exit, Failure};
use crate::look::look;
use crate::output;
use crate::select::{self, from_server};

/// Explain how the pods of a node, one pod or one virtual machine may leave and what stands in the way
///
/// Takes the flags of drain and judges as drain would. Nothing is changed. Exit code 3 says that something is in the way, 5 that the node
/// is held by another drain or a maintenance.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// NODE, node/NODE, pod/NAME, vm/NAME, vmi/NAME (with -n) or NAMESPACE/NAME of a pod
    #[arg(value_name = "NODE|POD|VM", add = crate::complete::subjects())]
    pub what: String,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: Format,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

enum What {
    Node(String),
    Pod(Key),
    Machine(Key),
    Instance(Key),
}

fn what(text: &str, namespace: &str) -> What {
    match text.split_once('/') {
        None => What::Node(text.to_owned()),
        Some(("node" | "nodes" | "no", name)) => What::Node(name.to_owned()),
        Some(("pod" | "pods" | "po", name)) => What::Pod(Key::new(namespace, name)),
        Some(("vm" | "vms" | "virtualmachine" | "virtualmachines", name)) => {
            What::Machine(Key::new(namespace, name))
        }
        Some(("vmi" | "vmis" | "virtualmachineinstance" | "virtualmachineinstances", name)) => {
            What::Instance(Key::new(namespace, name))
        }
        Some((namespace, name)) => What::Pod(Key::new(namespace, name)),
    }
}

pub async fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    let policy = args.policy.policy()?;
    let (http, namespace) = args.cluster.connect().await?;
    let now = http.clock().now();
    match what(&args.what, &namespace) {
        What::Node(name) => {
            let mut index = read_node(&http, &policy, &name).await?;
            let lease = lease_key(&name);
            match nodes::lease(&http, &lease).await {
                Ok(Some(lease)) => drop(index.apply(Fact::Lease(Box::new(lease)))),
                Ok(None) => {}
                Err(error) => output::warning(&format!(
                    "whether a remediation operator holds node {name} is not known: lease {lease} cannot be read: {error}"
                )),
            }
            Ok(explain_node(&index, &policy, &name, now, args.output))
        }
        What::Machine(key) => machine::explain_machine(&http, &policy, &key, args.output).await,
        What::Instance(key) => machine::explain_instance(&http, &policy, &key, args.output).await,
        What::Pod(key) => {
            let pod = nodes::pod(&http, &key).await.map_err(|error| from_server(&error))?;
            let Some(name) = pod.node.clone() else {
                say(args.output, &[format!("pod {key} is on no node; there is nothing to leave")], None);
                return Ok(Exit::Done);
            };
            let index = read_node(&http, &policy, &name).await?;
            let foretold = foretell(&index, &policy, &name, now);
            let Some(pod) = foretold.pods.into_iter().find(|one| one.pod == key) else {
                say(args.output, &[format!("pod {key} has just left node {name}")], None);
                return Ok(Exit::Done);
            };
            say(args.output, &[pod.sentence(now)], Some(json!({"node": name, "pods": [&pod]})));
            Ok(if pod.reason().is_some() { Exit::Blocked } else { Exit::Done })
        }
    }
}

/// Everything that is needed to foretell a drain of a node.
async fn read_node(http: &Http, policy: &Policy, name: &str) -> Result<Index, Failure> {
    let node = select::get(http, name).await?;
    let mut index = look(http, vec![node]).await?;
    if let Err(error) = places::look(http, &mut index, policy, &[name.to_owned()], places::Depth::Room).await
    {
        output::warning(&format!("whether other nodes take its guests is not known: {error}"));
    }
    Ok(index)
}

fn foretell(index: &Index, policy: &Policy, name: &str, now: Timestamp) -> Forecast {
    forecast(index, policy, &[name.to_owned()], now).remove(0)
}

/// Sentences for people, or the judgement and the same sentences for programs.
fn say(format: Format, sentences: &[String], judgement: Option<serde_json::Value>) {
    match format {
        Format::Text => sentences.iter().for_each(|line| output::data(line)),
        Format::Json => {
            let mut document = json!({"schema": "evac.dev/explain/v1"});
            if let (Some(fields), Some(serde_json::Value::Object(more))) =
                (document.as_object_mut(), judgement)
            {
                fields.extend(more);
                fields.insert("messages".into(), json!(sentences));
            } else {
                document["messages"] = json!(sentences);
            }
            output::document(&document.to_string());
        }
    }
}

fn explain_node(index: &Index, policy: &Policy, name: &str, now: Timestamp, format: Format) -> Exit {
    let mut sentences = Vec::new();
    let mut refused = false;
    if let Some(node) = index.node(name) {
        sentences.push(match ownership(index, node, &OwnerArgs::default().name(), now) {
            Ownership::Free => format!("node {name} is in use, and no drain or maintenance holds it"),
            Ownership::ForeignCordon => {
                format!("node {name} {}", Reason::Node(NodeReason::ForeignCordon).message())
            }
            Ownership::Ours(mark) => {
                format!("node {name} is being drained by you ({}) since {}", mark.owner, mark.since)
            }
            Ownership::Other(reason) => {
                refused = true;
                format!("node {name} {}", reason.message())
            }
            Ownership::Abandoned(reason) => format!("node {name} {}", reason.message()),
        });
    }
    let foretold = foretell(index, policy, name, now);
    sentences.extend(foretold.pods.iter().map(|pod: &PodForecast| pod.sentence(now)));
    say(format, &sentences, serde_json::to_value(&foretold).ok());
    if refused {
        Exit::Refused
    } else if foretold.blockers().is_empty() {
        Exit::Done
    } else {
        Exit::Blocked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_tells_pods_from_nodes() {
        assert!(matches!(what("n1", "d"), What::Node(name) if name == "n1"));
        assert!(matches!(what("node/n1", "d"), What::Node(name) if name == "n1"));
        assert!(matches!(what("pod/a", "d"), What::Pod(key) if key == Key::new("d", "a")));
        assert!(matches!(what("vm/a", "d"), What::Machine(key) if key == Key::new("d", "a")));
        assert!(matches!(what("vmi/a", "d"), What::Instance(key) if key == Key::new("d", "a")));
        assert!(matches!(what("shop/a", "d"), What::Pod(key) if key == Key::new("shop", "a")));
    }
}
