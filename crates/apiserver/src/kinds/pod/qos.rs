//! Quality of service: how much of what a pod may use it has asked for.

use evac_apimachinery::quantity::Quantity;
use serde_json::Value;

use crate::kinds::quantities;
use crate::kinds::read::{list_at, obj};

const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub fn class(pod: &Value) -> &'static str {
    let own = pod.pointer("/spec/resources").filter(|r| r.is_object());
    let containers: Vec<&Value> = match own {
        // Resources of the pod as a whole decide alone.
        Some(resources) => vec![resources],
        None => list_at(pod, "/spec/containers")
            .iter()
            .chain(list_at(pod, "/spec/initContainers"))
            .map(|c| c.get("resources").unwrap_or(&Value::Null))
            .collect(),
    };
    let (mut requests, mut limits) = ([Quantity::ZERO; 2], [Quantity::ZERO; 2]);
    let mut guaranteed = true;
    for resources in containers {
        let mut limited = 0;
        for (i, name) in COMPUTE.iter().enumerate() {
            requests[i] = requests[i].plus(amount(resources, "requests", name));
            let limit = amount(resources, "limits", name);
            if !limit.is_zero() {
                limited += 1;
                limits[i] = limits[i].plus(limit);
            }
        }
        guaranteed &= limited == COMPUTE.len();
    }
    let asked = requests.iter().chain(&limits).any(|q| !q.is_zero());
    if !asked {
        return "BestEffort";
    }
    if guaranteed && requests == limits { "Guaranteed" } else { "Burstable" }
}

fn amount(resources: &Value, list: &str, name: &str) -> Quantity {
    obj(resources, list)
        .and_then(|l| l.get(name))
        .and_then(|q| quantities::read(q).ok())
        .filter(|q| !q.is_negative())
        .unwrap_or(Quantity::ZERO)
}
