//! I3: how many migrations run at every moment.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Oracle, Seen, text};

const MIGRATIONS: &str = "virtualmachineinstancemigrations.kubevirt.io";
const INSTANCES: &str = "virtualmachineinstances.kubevirt.io";
/// The defaults of a cluster.
const CLUSTER: usize = 5;
const OUTBOUND: usize = 2;

#[derive(Default)]
pub struct Limits {
    /// Where each guest runs.
    nodes: BTreeMap<String, String>,
    /// Migrations under way, by uid, and the node their guest leaves. That begins with a target pod and lasts until the agents say that the copying is over.
    running: BTreeMap<String, String>,
    over: BTreeSet<String>,
}

impl Oracle for Limits {
    fn see(&mut self, seen: &Seen<'_>, violate: &mut dyn FnMut(&'static str, String)) {
        match seen.resource {
            INSTANCES => {
                let status = &seen.object()["status"];
                self.nodes.insert(seen.key().to_owned(), text(status, "/nodeName").to_owned());
                if status["migrationState"]["endTimestamp"].is_string() {
                    self.ends(text(status, "/migrationState/migrationUid"));
                }
            }
            MIGRATIONS => {
                let object = seen.object();
                if seen.deleted() || matches!(text(object, "/status/phase"), "Succeeded" | "Failed") {
                    self.ends(text(object, "/metadata/uid"));
                }
            }
            "pods" => {
                let pod = seen.object();
                let uid = text(pod, "/metadata/labels/kubevirt.io~1migrationJobUID");
                if uid.is_empty() {
                    return;
                }
                if seen.deleted() || matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
                    self.ends(uid);
                } else if !self.over.contains(uid) && !self.running.contains_key(uid) {
                    self.begins(pod, uid, violate);
                }
            }
            _ => {}
        }
    }
}

impl Limits {
    fn ends(&mut self, migration: &str) {
        self.running.remove(migration);
        self.over.insert(migration.to_owned());
    }

    fn begins(&mut self, pod: &Value, migration: &str, violate: &mut dyn FnMut(&'static str, String)) {
        let name = text(pod, "/metadata/labels/vm.kubevirt.io~1name");
        let guest = format!("{}/{name}", text(pod, "/metadata/namespace"));
        let source = self.nodes.get(&guest).cloned().unwrap_or_default();
        self.running.insert(migration.to_owned(), source.clone());
        if self.running.len() > CLUSTER {
            violate("I3", format!("{} migrations run at once", self.running.len()));
        }
        let leaving = self.running.values().filter(|node| **node == source).count();
        if leaving > OUTBOUND {
            violate("I3", format!("{leaving} migrations leave {source} at once"));
        }
    }
}
