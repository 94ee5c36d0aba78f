//! Groups that another program answers for, in the documents clients read first.

use serde_json::{Value, json};

use crate::kinds::api_version;

/// A group version that is answered elsewhere, with its resources in the classic form.
#[derive(Debug, Clone)]
pub struct Announced {
    pub group: String,
    pub version: String,
    pub resources: Value,
}

fn versions_of<'a>(announced: &'a [Announced], group: &str) -> Vec<&'a Announced> {
    announced.iter().filter(|one| one.group == group).collect()
}

fn group_names(announced: &[Announced]) -> Vec<&str> {
    let mut names: Vec<&str> = announced.iter().map(|one| one.group.as_str()).collect();
    names.dedup();
    names
}

/// `/apis/{group}`.
pub fn group(announced: &[Announced], name: &str) -> Option<Value> {
    let versions: Vec<Value> = versions_of(announced, name)
        .iter()
        .map(|one| json!({"groupVersion": api_version(name, &one.version), "version": one.version}))
        .collect();
    let first = versions.first()?.clone();
    Some(json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": versions,
        "preferredVersion": first,
    }))
}

/// `/apis/{group}/{version}`.
pub fn resource_list(announced: &[Announced], group: &str, version: &str) -> Option<Value> {
    let one = announced.iter().find(|one| one.group == group && one.version == version)?;
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version(group, version),
        "resources": one.resources,
    }))
}

/// Adds the groups to `/apis`.
pub fn join_groups(mut list: Value, announced: &[Announced]) -> Value {
    if let Some(groups) = list["groups"].as_array_mut() {
        for name in group_names(announced) {
            if let Some(mut entry) = group(announced, name) {
                if let Some(entry) = entry.as_object_mut() {
                    entry.remove("kind");
                    entry.remove("apiVersion");
                }
                groups.push(entry);
            }
        }
    }
    list
}

/// Adds the groups to the form in which everything is one document.
pub fn join_everything(mut list: Value, announced: &[Announced]) -> Value {
    if let Some(items) = list["items"].as_array_mut() {
        for name in group_names(announced) {
            let versions: Vec<Value> = versions_of(announced, name)
                .iter()
                .map(|one| json!({"version": one.version, "resources": parents(one), "freshness": "Current"}))
                .collect();
            items.push(json!({"metadata": {"name": name}, "versions": versions}));
        }
    }
    list
}

/// Subresources hang under a resource that itself has no verbs.
fn parents(one: &Announced) -> Vec<Value> {
    let mut parents: Vec<Value> = Vec::new();
    for entry in one.resources.as_array().into_iter().flatten() {
        let name = entry["name"].as_str().unwrap_or_default();
        let Some((parent, sub)) = name.split_once('/') else { continue };
        let kind = json!({"group": one.group, "version": one.version, "kind": entry["kind"]});
        let sub = json!({"subresource": sub, "responseKind": kind, "verbs": entry["verbs"]});
        match parents.iter_mut().find(|known| known["resource"] == parent) {
            Some(known) => {
                if let Some(list) = known["subresources"].as_array_mut() {
                    list.push(sub);
                }
            }
            None => parents.push(json!({
                "resource": parent,
                "scope": if entry["namespaced"] == true { "Namespaced" } else { "Cluster" },
                "singularResource": "",
                "verbs": [],
                "subresources": [sub],
            })),
        }
    }
    parents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subresources_are_gathered_under_their_parent() {
        let announced = [Announced {
            group: "sub.example".into(),
            version: "v1".into(),
            resources: json!([
                {"name": "machines/start", "namespaced": true, "kind": "Machine", "verbs": ["update"]},
                {"name": "machines/stop", "namespaced": true, "kind": "Machine", "verbs": ["update"]},
            ]),
        }];
        let all = join_everything(json!({"items": []}), &announced);
        assert_eq!(
            all["items"][0]["versions"][0]["resources"][0]["subresources"].as_array().unwrap().len(),
            2
        );
        let groups = join_groups(json!({"groups": []}), &announced);
        assert_eq!(groups["groups"][0]["preferredVersion"]["groupVersion"], "sub.example/v1");
        assert!(resource_list(&announced, "sub.example", "v2").is_none());
    }
}
