//! I1, I5, I8 and I12 on nodes: who may lift a cordon or replace a mark, how often a cordon is made, what the taint of a dead machine rests on, and that
//! nothing of others is taken off.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Oracle, Seen, has, is_command, is_evac, text};

const MARK: &str = "evac.dev/drain";
const FENCED: &str = "evac.dev/fenced";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// All taints that evac ever puts on a node, and so may take off.
const TAINTS: [&str; 4] =
    ["node.kubernetes.io/unschedulable", "kubevirt.io/drain", "medik8s.io/drain", OUT_OF_SERVICE];
const EXCLUDE: &str = "remediation.medik8s.io/exclude-from-remediation";
/// Half of the shortest time for which a node has to be silent after the proof: the record of it may have been written late.
const SILENT: i64 = 10 * SECOND;
/// How long the drain that holds a lease may take to answer whether it lives.
const ANSWERS: i64 = 10 * SECOND;
const DRAINS: &str = "kube-node-lease/evac-drain-";
const ASKED: &str = "/metadata/annotations/evac.dev~1asked";
const ANSWERED: &str = "/metadata/annotations/evac.dev~1answered";
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
    /// Nodes that evac has cordoned at some time.
    closed: BTreeSet<String>,
    /// The leases of drains: who holds them, and since when a question was not answered.
    drains: BTreeMap<String, (String, Option<i64>)>,
    /// When the proof on a node was first written.
    proven: BTreeMap<String, i64>,
}

impl Oracle for Nodes {
    fn see(&mut self, seen: &Seen<'_>, violate: &mut dyn FnMut(&'static str, String)) {
        match seen.resource {
            LEASES => self.lease(seen),
            "nodes" if seen.deleted() && seen.by_evac() => {
                violate(
                    "I1",
                    format!("{} deletes node {}, on which its guest may run", seen.author, seen.key()),
                );
            }
            "nodes" if !seen.deleted() => {
                foreign(seen, violate);
                self.mark(seen, violate);
                self.node(seen, violate);
            }
            "pods" if seen.by_evac() => self.pod(seen, violate),
            _ => {}
        }
    }
}

impl Nodes {
    fn lease(&mut self, seen: &Seen<'_>) {
        if let Some(node) = seen.key().strip_prefix(DRAINS) {
            let (lease, before) = (seen.object(), seen.before());
            let asked = text(lease, ASKED);
            let open = !seen.deleted() && !asked.is_empty() && asked != text(lease, ANSWERED);
            let since =
                self.drains.get(node).and_then(|(_, since)| *since).filter(|_| text(before, ASKED) == asked);
            let holder = if seen.deleted() { "" } else { text(&lease["spec"], "/holderIdentity") };
            self.drains.insert(node.to_owned(), (holder.to_owned(), open.then(|| since.unwrap_or(seen.at))));
            return;
        }
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

    /// A mark is replaced by another owner only where its drain did not answer.
    fn mark(&mut self, seen: &Seen<'_>, violate: &mut dyn FnMut(&'static str, String)) {
        let (was, is) = (owner(seen.before()), owner(seen.object()));
        if was.is_empty() || is.is_empty() || was == is || !seen.by_evac() {
            return;
        }
        let Some((holder, silent)) = self.drains.get(seen.key()) else { return };
        let alive =
            holder.starts_with(&format!("{was}/")) && silent.is_none_or(|since| seen.at - since < ANSWERS);
        if alive {
            violate("I8", format!("{} replaces the mark of {was} on {}", seen.author, seen.key()));
        }
    }

    /// Where nothing was ever cordoned, no eviction can be one that was late.
    fn pod(&self, seen: &Seen<'_>, violate: &mut dyn FnMut(&'static str, String)) {
        let (pod, before) = (seen.object(), seen.before());
        let node = text(pod, "/spec/nodeName");
        let ends = has(pod, "/metadata/deletionTimestamp") && !has(before, "/metadata/deletionTimestamp");
        let launcher = pod["metadata"]["labels"]["kubevirt.io"] == "virt-launcher";
        if ends && !launcher && !node.is_empty() && !self.closed.contains(node) {
            violate(
                "I8",
                format!("{} ends pod {} on {node}, which it never cordoned", seen.author, seen.key()),
            );
        }
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
        if closed(now) {
            self.closed.insert(seen.key().to_owned());
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
            // Who says so has watched the node before; what an agent has switched off shows only afterwards.
            let by_agent = proof.contains("\"how\":\"agent\"");
            if by_agent && self.proven.get(seen.key()).is_none_or(|proven| seen.at - proven < SILENT) {
                violate(
                    "I1",
                    format!("{} calls {} out of service right after the proof", seen.author, seen.key()),
                );
            }
        }
        let proof = |node: &Value| node["metadata"]["annotations"][FENCED].as_str().map(ToOwned::to_owned);
        if proof(now) != proof(before) && !tainted(now) {
            self.proven.insert(seen.key().to_owned(), seen.at);
        }
    }
}

/// What evac takes off a node is what evac puts on nodes.
fn foreign(seen: &Seen<'_>, violate: &mut dyn FnMut(&'static str, String)) {
    if !seen.by_evac() {
        return;
    }
    let (now, before) = (seen.object(), seen.before());
    let mut gone = Vec::new();
    let keys = |node: &Value| -> BTreeSet<String> {
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        taints.filter_map(|taint| Some(taint["key"].as_str()?.to_owned())).collect()
    };
    let ours = |key: &str| TAINTS.contains(&key) || key == EXCLUDE || key.starts_with("evac.dev/");
    gone.extend(keys(before).difference(&keys(now)).cloned());
    for part in ["labels", "annotations"] {
        let there = before["metadata"][part].as_object().into_iter().flatten();
        gone.extend(
            there.filter(|(key, _)| now["metadata"][part].get(key).is_none()).map(|(key, _)| key.clone()),
        );
    }
    for key in gone.iter().filter(|key| !ours(key)) {
        violate("I5", format!("{} takes {key} off {}, which is not evac's", seen.author, seen.key()));
    }
}

fn mark_of(node: &Value) -> Value {
    let text = node["metadata"]["annotations"][MARK].as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

fn owner(node: &Value) -> String {
    text(&mark_of(node), "/owner").to_owned()
}

/// Roles give back what roles of the installation hold, a command what is its own.
fn may_lift(author: &str, owner: &str) -> bool {
    if is_command(author) {
        return author == owner;
    }
    owner.starts_with("node-maintenance") || owner.starts_with("evac")
}
