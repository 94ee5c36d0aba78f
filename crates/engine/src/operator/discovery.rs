//! What the API `subresources.kubevirt.io` says about itself; everybody may read it.

use serde_json::{Value, json};

use super::power::{GROUP, VERSIONS, resources};

/// The document at a path, if there is one.
pub(super) fn document(path: &str) -> Option<Value> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["apis"] => Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]})),
        ["apis", GROUP] => {
            let mut group = group();
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            Some(group)
        }
        ["apis", GROUP, version] if VERSIONS.contains(version) => Some(json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": format!("{GROUP}/{version}"),
            "resources": resources(),
        })),
        _ => None,
    }
}

fn group() -> Value {
    let version = |version: &str| json!({"groupVersion": format!("{GROUP}/{version}"), "version": version});
    let versions: Vec<Value> = VERSIONS.iter().map(|&one| version(one)).collect();
    json!({"name": GROUP, "versions": versions, "preferredVersion": versions.first()})
}
