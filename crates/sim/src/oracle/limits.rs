//! I3 and I13: how many migrations run at every moment, and that nothing is begun for a node that was given back.

use std::collections::BTreeMap;

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
    /// Migrations that occupy a place, and the node their guest leaves.
    running: BTreeMap<String, String>,
}

impl Oracle for Limits {
    fn see(&mut self, seen: &Seen<'_>, violate: &mut dyn FnMut(&'static str, String)) {
        match seen.resource {
            INSTANCES => {
                self.nodes.insert(seen.key().to_owned(), text(seen.object(), "/status/nodeName").to_owned());
            }
            MIGRATIONS => {
                let object = seen.object();
                let occupies = !seen.deleted()
                    && !matches!(text(object, "/status/phase"), "" | "Pending" | "Succeeded" | "Failed");
                if !occupies {
                    self.running.remove(seen.key());
                    return;
                }
                if self.running.contains_key(seen.key()) {
                    return;
                }
                let guest =
                    format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/spec/vmiName"));
                let source = self.nodes.get(&guest).cloned().unwrap_or_default();
                self.running.insert(seen.key().to_owned(), source.clone());
                if self.running.len() > CLUSTER {
                    violate("I3", format!("{} migrations run at once", self.running.len()));
                }
                let leaving = self.running.values().filter(|node| **node == source).count();
                if leaving > OUTBOUND {
                    violate("I3", format!("{leaving} migrations leave {source} at once"));
                }
            }
            _ => {}
        }
    }
}
