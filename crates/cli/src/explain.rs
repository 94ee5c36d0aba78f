//! `evac explain`: how each pod of a node may leave, and what stands in the way.

mod machine;

use clap::Args;
use evac_core::assess::{Fate, Verdict, assess_pod};
use evac_core::budget::{Charges, Gate, cut_off, gate};
use evac_core::explain::explain;
use evac_core::ownership::{Ownership, lease_key, ownership};
use evac_core::run::Blocker;
use evac_core::{Fact, Index, Key, Policy, Reason, Severity};
use evac_engine::nodes;
use jiff::Timestamp;

use crate::cluster::{ClusterArgs, OwnerArgs};
use crate::drain::PolicyArgs;
use crate::exit::{Exit, Failure};
use crate::look::look;
use crate::output;
use crate::select::from_server;

/// Explain how the pods of a node, one pod or one virtual machine may leave and what stands in the way
///
/// Takes the flags of drain and judges as drain would. Nothing is changed. Exit code 3 says that something is in the way.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// NODE, node/NODE, pod/NAME, vm/NAME, vmi/NAME (with -n) or NAMESPACE/NAME of a pod
    #[arg(value_name = "NODE|POD|VM")]
    pub what: String,
    #[command(flatten)]
    pub policy: PolicyArgs,
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
            let node = nodes::get(&http, &name).await.map_err(|error| from_server(&error))?;
            let mut index = look(&http, vec![node]).await?;
            let lease = lease_key(&name);
            match nodes::lease(&http, &lease).await {
                Ok(Some(lease)) => index.apply(Fact::Lease(lease)),
                Ok(None) => {}
                Err(error) => output::warning(&format!(
                    "whether somebody holds node {name} is not known: lease {lease} cannot be read: {error}"
                )),
            }
            Ok(explain_node(&index, &policy, &name, now))
        }
        What::Machine(key) => machine::explain_machine(&http, &policy, &key).await,
        What::Instance(key) => machine::explain_instance(&http, &policy, &key).await,
        What::Pod(key) => {
            let pod = nodes::pod(&http, &key).await.map_err(|error| from_server(&error))?;
            let Some(name) = pod.node.clone() else {
                output::data(&format!("pod {key} is on no node; there is nothing to leave"));
                return Ok(Exit::Done);
            };
            let node = nodes::get(&http, &name).await.map_err(|error| from_server(&error))?;
            let index = look(&http, vec![node]).await?;
            let blocked = index.pod(&key).is_some_and(|pod| {
                let (line, severity) = sentence(&index, &assess_pod(&index, &policy, pod, now), now);
                output::data(&line);
                severity >= Severity::Slow
            });
            Ok(if blocked { Exit::Blocked } else { Exit::Done })
        }
    }
}

fn explain_node(index: &Index, policy: &Policy, name: &str, now: Timestamp) -> Exit {
    if let Some(node) = index.node(name) {
        match ownership(index, node, &OwnerArgs::default().name(), now) {
            Ownership::Free => output::data(&format!("node {name} is in use and belongs to nobody")),
            Ownership::ForeignCordon => {
                output::data(&format!("node {name} {}", Reason::ForeignCordon.message()));
            }
            Ownership::Ours(mark) => {
                output::data(&format!(
                    "node {name} is being drained by you ({}) since {}",
                    mark.owner, mark.since
                ));
            }
            Ownership::Other(reason) | Ownership::Abandoned(reason) => {
                output::data(&format!("node {name} {}", reason.message()));
            }
        }
    }
    let mut worst = Severity::Note;
    for verdict in evac_core::assess(index, policy, name, now).verdicts {
        let (line, severity) = sentence(index, &verdict, now);
        output::data(&line);
        worst = worst.max(severity);
    }
    if worst >= Severity::Slow { Exit::Blocked } else { Exit::Done }
}

/// One line about one pod, and how bad it is.
fn sentence(index: &Index, verdict: &Verdict, now: Timestamp) -> (String, Severity) {
    let Some(pod) = index.pod(&verdict.pod) else { return (String::new(), Severity::Note) };
    let owner = pod.controller.as_ref().map(ToString::to_string);
    let blocked_by = verdict
        .reasons
        .iter()
        .find(|reason| reason.severity() == Severity::Never)
        .cloned()
        .or_else(|| leaving_or_closed(index, pod, verdict.fate, now));
    if let Some(reason) = blocked_by {
        let severity = reason.severity();
        let since = pod.deletion.map_or(now, |deletion| deletion.requested());
        return (explain(&Blocker { pod: pod.key.clone(), owner, reason, since }, now), severity);
    }
    let does = match verdict.fate {
        Fate::Evict => "can be evicted now",
        Fate::Migrate => "can be live-migrated",
        Fate::Follow => "leaves with its virtual machine",
        Fate::Leave => "stays where it is",
        Fate::Blocked => "is blocked",
    };
    let owner = owner.map_or(String::new(), |owner| format!(" ({owner})"));
    let remarks: Vec<String> = verdict.reasons.iter().map(Reason::message).collect();
    let remarks = if remarks.is_empty() { String::new() } else { format!(": it {}", remarks.join("; it ")) };
    (format!("pod {}{owner} {does}{remarks}", pod.key), Severity::Note)
}

fn leaving_or_closed(index: &Index, pod: &evac_core::Pod, fate: Fate, now: Timestamp) -> Option<Reason> {
    if fate != Fate::Evict {
        return None;
    }
    if let Some(deletion) = pod.deletion {
        let held = !pod.finalizers.is_empty();
        return Some(if held {
            Reason::Finalizer { finalizers: pod.finalizers.clone() }
        } else {
            Reason::Terminating { grace_seconds: deletion.grace_seconds, ends: deletion.ends }
        });
    }
    match gate(index, pod, &Charges::new()) {
        Gate::Closed(reason) => Some(cut_off(index, reason, now).0),
        Gate::Open | Gate::Charged(_) => None,
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
