//! The cluster's own admission rules, in kube-apiserver's order.

use serde_json::{Value, json};

use super::{Operation, Review, pods};
use crate::server::Api;
use crate::status::{About, ApiError};

/// Changes an object as the cluster's rules demand, or refuses it.
pub fn apply(api: &Api, review: &Review<'_>, object: &mut Value) -> Result<(), ApiError> {
    namespace_must_accept(api, review)?;
    if !review.subresource.is_empty() {
        return Ok(());
    }
    let creating = review.operation == Operation::Create;
    match (review.kind.group.as_ref(), review.kind.plural.as_ref()) {
        ("", "pods") => {
            if creating {
                pods::service_account(api, review, object)?;
                pods::priority(api, review, object)?;
            }
            pods::default_tolerations(object);
        }
        ("", "nodes") if creating => taint_new_node(object),
        ("", "persistentvolumeclaims") if creating => {
            default_storage_class(api, object);
            protect_claim(object);
        }
        _ => {}
    }
    Ok(())
}

/// Nothing is created in a namespace that does not exist or is on its way out.
fn namespace_must_accept(api: &Api, review: &Review<'_>) -> Result<(), ApiError> {
    if !review.kind.namespaced || review.operation == Operation::Delete {
        return Ok(());
    }
    let Some(namespace) = api.read("namespaces", "", review.namespace) else {
        return Err(ApiError::not_found(About { group: "", kind: "namespaces", name: review.namespace }));
    };
    // An eviction, a binding or a token is something created, too.
    if review.operation != Operation::Create {
        return Ok(());
    }
    let value = namespace.value();
    if value["metadata"].get("deletionTimestamp").is_none() {
        return Ok(());
    }
    let why = format!(
        "unable to create new content in namespace {} because it is being terminated",
        review.namespace
    );
    let about = About { group: &review.kind.group, kind: &review.kind.plural, name: review.name };
    Err(ApiError::forbidden(about, &why).with_cause(
        "NamespaceTerminating",
        format!("namespace {} is being terminated", review.namespace),
        "metadata.namespace",
    ))
}

/// A node is not to be used before somebody has seen it ready.
fn taint_new_node(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    if !node["spec"].is_object() {
        node["spec"] = json!({});
    }
    if !node["spec"]["taints"].is_array() {
        node["spec"]["taints"] = json!([]);
    }
    if let Some(taints) = node["spec"]["taints"].as_array_mut()
        && !taints.iter().any(|t| t["key"] == KEY && t["effect"] == "NoSchedule")
    {
        taints.push(json!({"key": KEY, "effect": "NoSchedule"}));
    }
}

/// A claim stays until no pod uses it; a controller takes this hold away.
fn protect_claim(claim: &mut Value) {
    const HOLD: &str = "kubernetes.io/pvc-protection";
    if !claim["metadata"]["finalizers"].is_array() {
        claim["metadata"]["finalizers"] = json!([]);
    }
    if let Some(finalizers) = claim["metadata"]["finalizers"].as_array_mut()
        && !finalizers.iter().any(|f| f == HOLD)
    {
        finalizers.push(json!(HOLD));
    }
}

fn default_storage_class(api: &Api, claim: &mut Value) {
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    if claim["spec"].get("storageClassName").is_some_and(|v| !v.is_null()) {
        return;
    }
    let mut defaults: Vec<Value> = api
        .read_all("storageclasses.storage.k8s.io", "")
        .iter()
        .map(crate::store::Object::value)
        .filter(|class| class["metadata"]["annotations"][DEFAULT] == "true")
        .collect();
    // The newest default wins, by name among equals.
    defaults.sort_by(|a, b| {
        let key = |v: &Value| {
            (
                std::cmp::Reverse(v["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned()),
                v["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            )
        };
        key(a).cmp(&key(b))
    });
    if let Some(class) = defaults.first() {
        claim["spec"]["storageClassName"] = class["metadata"]["name"].clone();
    }
}
