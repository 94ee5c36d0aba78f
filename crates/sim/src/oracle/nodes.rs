//! I1, I8 and I12 on nodes: who may lift a cordon, how often one is made, and what the taint of a dead machine rests on.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Oracle, Seen, is_evac, text};

const MARK: &str = "evac.dev/drain";
const FENCED: &str = "evac.dev/fenced";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
const LEASES: &str = "leases.coordination.k8s.io";
const HOLDERS: &str = "medik8s-leases/node-";
/// As the lease says; simulated clocks are on time for those who are not evac.
const SECOND: i64 = 1000;

#[derive(Default)]
pub struct Nodes {
    /// Who holds a node by a lease of remediation, and until when.
    held: BTreeMap<String, (String, i64)>,
    /// Cordons by evac since the last time others lifted one, by node and mark.
    cordons: BTreeMap<(String, String), u32>,
}

impl Oracle for Nodes {
    fn see(&mut self, seen: &Seen<'_>, violate: &mut dyn FnMut(&'static str, String)) {
        match seen.resource {
            LEASES => self.lease(seen),
            "nodes" if !seen.deleted() => self.node(seen, violate),
            _ => {}
        }
    }
}

impl Nodes {
    fn lease(&mut self, seen: &Seen<'_>) {
        let Some(node) = seen.key().strip_prefix(HOLDERS) else { return };
        let spec = &seen.object()["spec"];
        let holder = text(spec, "/holderIdentity");
        if seen.deleted() || holder.is_empty() {
            self.held.remove(node);
            return;
        }
        let until = seen.at + spec["leaseDurationSeconds"].as_i64().unwrap_or_default() * SECOND;
        self.held.insert(node.to_owned(), (holder.to_owned(), until));
    }

    fn node(&mut self, seen: &Seen<'_>, violate: &mut dyn FnMut(&'static str, String)) {
        let (now, before) = (seen.object(), seen.before());
        let closed = |node: &Value| node["spec"]["unschedulable"] == true;
        let mark = owner(before);
        if closed(before) && !closed(now) {
            if !seen.by_evac() {
                self.cordons.retain(|(node, _), _| node != seen.key());
                return;
            }
            if !mark.is_empty() && !may_lift(seen.author, &mark) {
                violate("I8", format!("{} uncordons {}, which {mark} holds", seen.author, seen.key()));
            }
            if let Some((holder, until)) = self.held.get(seen.key())
                && seen.at < *until
                && !holder.starts_with("node-maintenance")
                && !holder.starts_with("evac")
            {
                violate(
                    "I8",
                    format!("{} uncordons {}, which {holder} has a lease on", seen.author, seen.key()),
                );
            }
        }
        if !closed(before) && closed(now) && seen.by_evac() {
            let since = text(&mark_of(now), "/since").to_owned();
            let count = self.cordons.entry((seen.key().to_owned(), since)).or_default();
            *count += 1;
            if *count > 1 {
                violate("I12", format!("{} cordons {} again for the same cause", seen.author, seen.key()));
            }
        }
        let tainted = |node: &Value| {
            let taints = node["spec"]["taints"].as_array();
            taints.is_some_and(|all| all.iter().any(|taint| taint["key"] == OUT_OF_SERVICE))
        };
        if is_evac(seen.author) && tainted(now) && !tainted(before) {
            let proof = now["metadata"]["annotations"][FENCED].as_str().unwrap_or_default();
            if proof.is_empty() {
                violate("I1", format!("{} calls {} out of service without a proof", seen.author, seen.key()));
            }
        }
    }
}

fn mark_of(node: &Value) -> Value {
    let text = node["metadata"]["annotations"][MARK].as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

fn owner(node: &Value) -> String {
    text(&mark_of(node), "/owner").to_owned()
}

/// Roles give back what roles of the installation hold, a drain what is its own.
fn may_lift(author: &str, owner: &str) -> bool {
    match author.strip_prefix("drain-") {
        Some(_) => author == owner,
        None => owner.starts_with("node-maintenance") || owner.starts_with("evac"),
    }
}
