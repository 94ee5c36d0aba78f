//! I7: a pod that a budget guards is only ever asked to leave through the budget.
//!
//! The server notes the pod in the budget's status in the commit before it deletes it. A pod that goes without that note was deleted, not evicted.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Oracle, Seen, has, text};

const BUDGETS: &str = "poddisruptionbudgets.policy";

#[derive(Default)]
pub struct Budgets {
    budgets: BTreeMap<String, Value>,
}

impl Oracle for Budgets {
    fn see(&mut self, seen: &Seen<'_>, violate: &mut dyn FnMut(&'static str, String)) {
        match seen.resource {
            BUDGETS if seen.deleted() => drop(self.budgets.remove(seen.key())),
            BUDGETS => drop(self.budgets.insert(seen.key().to_owned(), seen.object().clone())),
            "pods" if seen.by_evac() => {
                let (pod, before) = (seen.object(), seen.before());
                let ends = seen.deleted() || has(pod, "/metadata/deletionTimestamp");
                // A launcher is ended by the controller of its machine; that is what I2 is about.
                let launcher = pod["metadata"]["labels"]["kubevirt.io"] == "virt-launcher";
                if !ends || launcher || has(before, "/metadata/deletionTimestamp") || !is_ready(before) {
                    return;
                }
                for (key, budget) in self.of(pod) {
                    if !has(budget, &format!("/status/disruptedPods/{}", text(pod, "/metadata/name"))) {
                        violate(
                            "I7",
                            format!("{} deletes pod {} past budget {key}", seen.author, seen.key()),
                        );
                    }
                }
            }
            _ => {}
        }
    }
}

impl Budgets {
    fn of<'a>(&'a self, pod: &'a Value) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.budgets.iter().filter(|(_, budget)| {
            let wanted = budget["spec"]["selector"]["matchLabels"].as_object();
            budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
                && wanted.is_some_and(|labels| {
                    labels.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value)
                })
        })
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}
