//! Targets that are one function of a text.

use evac_api::failover::policy::PolicyObject;
use evac_api::wire;
use evac_apimachinery::quantity::{Quantity, canonical};
use evac_core::Node;
use evac_core::cluster::selector::Selector;
use evac_core::drain::give_back::{CordonAfter, Evidence, GiveBack, Giver, OfNode, Undoing, plan};
use evac_engine::operator::tenants::kubeconfig;
use serde_json::{Value, json};

use super::not_one_line;

/// What is read can be written and read again, and is the same.
pub fn selector(text: &str) -> Option<String> {
    match Selector::parse(text) {
        Ok(selector) => match Selector::parse(&selector.to_string()) {
            Ok(again) if again.to_string() == selector.to_string() => None,
            again => Some(format!("{selector} is read again as {again:?}")),
        },
        Err(error) => error.to_string().is_empty().then(|| "nothing is said of it".into()),
    }
}

/// The canonical form is the same amount.
pub fn quantity(text: &str) -> Option<String> {
    let quantity = text.parse::<Quantity>().ok()?;
    let Ok(canonical) = canonical(text) else { return Some("it has no canonical form".into()) };
    match canonical.parse::<Quantity>() {
        Ok(again) if again == quantity => None,
        again => Some(format!("{canonical} is read as {again:?}")),
    }
}

/// Nothing but an address and what is needed to be let in is taken from it.
pub fn kubeconfig(text: &str) -> Option<String> {
    match kubeconfig::read(text.as_bytes()) {
        Ok(access) => access.host.is_empty().then(|| "it has no host".into()),
        Err(refusal) => not_one_line(&refusal.to_string()),
    }
}

/// Whatever a mark says: without a record outside the node nothing of others is undone.
pub fn mark(text: &str) -> Option<String> {
    let node = json!({
        "metadata": {
            "name": "n", "uid": "node", "resourceVersion": "1", "labels": {"rack": "7"},
            "annotations": {"evac.dev/drain": text},
        },
        "spec": {
            "unschedulable": true,
            "taints": [
                {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
                {"key": "kubevirt.io/drain", "effect": "NoSchedule"},
            ],
        },
    });
    let node = Node::from(serde_json::from_value::<wire::Node>(node).ok()?);
    let of_node = OfNode { by: Giver::Anyone, cordon: CordonAfter::AsBefore, evidence: Evidence::OnLease };
    let request = GiveBack { node: of_node, guests: None, dry_run: false };
    let steps = plan(Some(&node), &request, None).ok()?;
    let Some(Undoing::Node(undo)) = steps.first() else { return None };
    if undo.unschedulable.is_some() || undo.taints.is_some() || !undo.labels.is_empty() {
        return Some(format!("a mark alone has {undo:?}"));
    }
    undo.words("n").and_then(|words| not_one_line(&words))
}

/// A policy that cannot be used says why in one line.
pub fn policy(text: &str) -> Option<String> {
    let spec = serde_json::from_str::<Value>(text).ok()?;
    let object = json!({"metadata": {"name": "p", "uid": "u", "generation": 1}, "spec": spec});
    let object = serde_json::from_value::<PolicyObject>(object).ok()?;
    match object.into_policy() {
        Ok(policy) => policy.selector.is_everything().then(|| "it is about every node".into()),
        Err(error) => not_one_line(&error.to_string()),
    }
}
