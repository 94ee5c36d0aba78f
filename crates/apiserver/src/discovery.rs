//! What the server serves: the documents clients read before anything else.
//!
//! Both forms are here: the classic lists (one request per group version) and the aggregated form (one
//! request for everything). They are made from the kinds alone; the caller may cache them until a kind is
//! added or removed.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::kinds::{Kind, Subresource, api_version};

/// The content type of the aggregated form, as clients ask for it and as it is answered.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The release whose API this server speaks.
pub const GIT_VERSION: &str = "v1.37.0+evac";

/// `/version`.
pub fn version() -> Value {
    json!({
        "major": "1",
        "minor": "37",
        "emulationMajor": "1",
        "emulationMinor": "37",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "36",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, platform()),
    })
}

/// The name Kubernetes has for the processor.
fn platform() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// `/api`.
pub fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`.
pub fn group_list<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> Value {
    let groups: Vec<Value> = groups(kinds)
        .into_iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, versions)| group_entry(name, &versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`, if the group exists.
pub fn group<'a>(kinds: impl IntoIterator<Item = &'a Kind>, name: &str) -> Option<Value> {
    let found = groups(kinds).into_iter().find(|(group, _)| *group == name && !name.is_empty())?;
    let mut entry = group_entry(found.0, &found.1);
    entry["kind"] = json!("APIGroup");
    entry["apiVersion"] = json!("v1");
    Some(entry)
}

fn group_entry(name: &str, versions: &[Version<'_>]) -> Value {
    let entry = |v: &Version<'_>| json!({"groupVersion": api_version(name, v.name), "version": v.name});
    json!({
        "name": name,
        "versions": versions.iter().map(entry).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(entry),
    })
}

/// `/api/v1` and `/apis/{group}/{version}`, if the version exists.
pub fn resource_list<'a>(
    kinds: impl IntoIterator<Item = &'a Kind>,
    group: &str,
    version: &str,
) -> Option<Value> {
    let mut of_version: Vec<&Kind> =
        kinds.into_iter().filter(|k| k.group == group && k.version == version).collect();
    if of_version.is_empty() {
        return None;
    }
    of_version.sort_by(|a, b| a.plural.cmp(&b.plural));
    let mut resources = Vec::new();
    for kind in of_version {
        let mut entry = json!({
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": verbs(kind),
        });
        if !kind.short_names.is_empty() {
            entry["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            entry["categories"] = json!(kind.categories);
        }
        if kind.is_stored() {
            entry["storageVersionHash"] = json!(storage_version_hash(kind));
        }
        resources.push(entry);
        for sub in subresources(kind) {
            let mut entry = json!({
                "name": format!("{}/{}", kind.plural, sub.name),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": sub.kind,
                "verbs": sub.verbs,
            });
            if sub.group != kind.group || sub.version != kind.version {
                entry["group"] = json!(sub.group);
                entry["version"] = json!(sub.version);
            }
            resources.push(entry);
        }
    }
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": api_version(group, version),
        "resources": resources,
    });
    // The core group's list is older than the rule that every object says its version.
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

/// The aggregated form for `/api` (`core` true) or `/apis`.
pub fn aggregated<'a>(kinds: impl IntoIterator<Item = &'a Kind>, core: bool) -> Value {
    let items: Vec<Value> = groups(kinds)
        .into_iter()
        .filter(|(name, _)| name.is_empty() == core)
        .map(|(name, versions)| {
            let metadata = if core { json!({}) } else { json!({"name": name}) };
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    json!({
                        "version": version.name,
                        "resources": version.kinds.iter().map(|k| aggregated_resource(k)).collect::<Vec<_>>(),
                        "freshness": "Current",
                    })
                })
                .collect();
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(kind: &Kind) -> Value {
    let mut resource = Map::new();
    resource.insert("resource".into(), json!(kind.plural));
    resource.insert("responseKind".into(), response_kind(kind, &kind.group, &kind.version, &kind.kind));
    resource.insert("scope".into(), json!(if kind.namespaced { "Namespaced" } else { "Cluster" }));
    resource.insert("singularResource".into(), json!(kind.singular));
    resource.insert("verbs".into(), json!(verbs(kind)));
    if !kind.short_names.is_empty() {
        resource.insert("shortNames".into(), json!(kind.short_names));
    }
    if !kind.categories.is_empty() {
        resource.insert("categories".into(), json!(kind.categories));
    }
    if !kind.subresources.is_empty() {
        let subresources: Vec<Value> = subresources(kind)
            .into_iter()
            .map(|sub| {
                json!({
                    "subresource": sub.name,
                    "responseKind": response_kind(kind, &sub.group, &sub.version, &sub.kind),
                    "verbs": sub.verbs,
                })
            })
            .collect();
        resource.insert("subresources".into(), Value::Array(subresources));
    }
    Value::Object(resource)
}

/// Built-in kinds leave group and version out where they are the parent's; custom ones always say them.
fn response_kind(parent: &Kind, group: &str, version: &str, kind: &str) -> Value {
    let same = parent.is_builtin() && group == parent.group && version == parent.version;
    json!({
        "group": if same { "" } else { group },
        "version": if same { "" } else { version },
        "kind": kind,
    })
}

/// Sorted, except for custom resources, where the status comes first.
fn subresources(kind: &Kind) -> Vec<&Subresource> {
    let mut all: Vec<&Subresource> = kind.subresources.iter().collect();
    if kind.is_builtin() {
        all.sort_by(|a, b| a.name.cmp(&b.name));
    }
    all
}

/// Sorted, except for custom resources, which have an order of their own.
fn verbs(kind: &Kind) -> Vec<&'static str> {
    const OF_CUSTOM: &[&str] =
        &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    if kind.is_builtin() {
        return kind.verbs.to_vec();
    }
    OF_CUSTOM.iter().copied().filter(|verb| kind.allows(verb)).collect()
}

struct Version<'a> {
    name: &'a str,
    kinds: Vec<&'a Kind>,
}

/// Groups in the order in which clients prefer them, each with its versions, best first.
fn groups<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> Vec<(&'a str, Vec<Version<'a>>)> {
    let mut found: BTreeMap<&str, BTreeMap<&str, Vec<&Kind>>> = BTreeMap::new();
    for kind in kinds {
        found.entry(&kind.group).or_default().entry(&kind.version).or_default().push(kind);
    }
    let mut groups: Vec<(&str, Vec<Version<'_>>)> = found
        .into_iter()
        .map(|(group, versions)| {
            let mut versions: Vec<Version<'_>> = versions
                .into_iter()
                .map(|(name, mut kinds)| {
                    kinds.sort_by(|a, b| a.plural.cmp(&b.plural));
                    Version { name, kinds }
                })
                .collect();
            versions.sort_by(|a, b| compare_versions(a.name, b.name));
            (group, versions)
        })
        .collect();
    groups.sort_by_key(|(name, _)| (Reverse(priority(name)), *name));
    groups
}

/// How early a group stands in the list; custom groups come last, by name.
fn priority(group: &str) -> u32 {
    const ORDER: &[&str] = &[
        "",
        "apiregistration.k8s.io",
        "apps",
        "events.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "networking.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "storage.k8s.io",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "scheduling.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "resource.k8s.io",
        "lifecycle.k8s.io",
    ];
    ORDER.iter().position(|g| *g == group).map_or(0, |at| (ORDER.len() - at) as u32)
}

/// `v2` before `v1`, stable before beta before alpha, anything else last in alphabetical order.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(x), Some(y)) => y.cmp(&x),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// (stability, major, minor); larger is better.
fn parse_version(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let major = rest[..digits].parse().ok()?;
    let tail = &rest[digits..];
    if tail.is_empty() {
        return Some((2, major, 0));
    }
    for (name, stability) in [("beta", 1), ("alpha", 0)] {
        if let Some(minor) = tail.strip_prefix(name) {
            return Some((stability, major, minor.parse().ok()?));
        }
    }
    None
}

/// A mark of group, version and kind of the stored form, by which clients see that it changed.
fn storage_version_hash(kind: &Kind) -> String {
    use base64::Engine as _;
    let version = match (kind.custom.as_ref(), kind.kind.as_ref()) {
        (Some(custom), _) => custom.storage_version.as_str(),
        // A real server of this release stores these in an older form.
        (None, "CustomResourceDefinition") => "v1beta1",
        (None, "DeviceTaintRule") => "v1beta2",
        (None, _) => kind.version.as_ref(),
    };
    let text = format!("{}/{version}/{}", kind.storage.0, kind.kind);
    let hash = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(hash.as_ref().get(..8).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{Kinds, custom};
    use crate::schema::SchemaRef;

    fn all() -> Kinds {
        let mut kinds = Kinds::builtin();
        let definition = json!({
            "metadata": {"name": "machines.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "machines", "kind": "Machine", "shortNames": ["mc"]},
                "versions": [
                    {"name": "v1beta1", "served": true, "storage": false},
                    {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}},
                    {"name": "v1alpha1", "served": false, "storage": false},
                ],
            },
        });
        for kind in custom::kinds_of(&definition, |_| SchemaRef::default()) {
            kinds.insert(kind);
        }
        kinds
    }

    fn list(group: &str, version: &str) -> Value {
        resource_list(all().iter().map(AsRef::as_ref), group, version).unwrap()
    }

    #[test]
    fn eviction_is_listed_with_the_group_of_its_body() {
        let resources = list("", "v1")["resources"].clone();
        let eviction = resources.as_array().unwrap().iter().find(|r| r["name"] == "pods/eviction").unwrap();
        assert_eq!(
            *eviction,
            json!({"name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy",
                   "version": "v1", "kind": "Eviction", "verbs": ["create"]})
        );
    }

    #[test]
    fn subresources_stand_behind_their_resource_in_alphabetical_order() {
        let resources = list("", "v1")["resources"].clone();
        let pods: Vec<&str> = resources
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["name"].as_str().unwrap())
            .filter(|n| *n == "pods" || n.starts_with("pods/"))
            .collect();
        assert_eq!(
            pods,
            [
                "pods",
                "pods/binding",
                "pods/ephemeralcontainers",
                "pods/eviction",
                "pods/resize",
                "pods/status"
            ]
        );
    }

    #[test]
    fn built_in_groups_come_first_and_custom_groups_prefer_their_stable_version() {
        let document = group_list(all().iter().map(AsRef::as_ref));
        let groups = document["groups"].as_array().unwrap();
        assert_eq!(groups[0]["name"], "apiregistration.k8s.io");
        assert_eq!(groups[1]["name"], "apps");
        let custom = groups.last().unwrap();
        assert_eq!(custom["name"], "example.com");
        assert_eq!(custom["preferredVersion"]["version"], "v1");
        assert_eq!(custom["versions"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn the_aggregated_form_has_every_resource_once() {
        let kinds = all();
        for core in [true, false] {
            let document = aggregated(kinds.iter().map(AsRef::as_ref), core);
            let count: usize = document["items"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|g| g["versions"].as_array().unwrap())
                .map(|v| v["resources"].as_array().unwrap().len())
                .sum();
            assert_eq!(count, kinds.iter().filter(|k| k.group.is_empty() == core).count());
        }
    }

    #[test]
    fn versions_are_ordered_as_kubernetes_prefers_them() {
        let mut versions = ["v1", "foo1", "v11alpha2", "v2", "v10beta3", "v1beta1", "foo10", "v12alpha1"];
        versions.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(versions, ["v2", "v1", "v10beta3", "v1beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]);
    }

    #[test]
    fn an_unknown_group_has_no_document() {
        assert!(group(all().iter().map(AsRef::as_ref), "nope.io").is_none());
        assert!(resource_list(all().iter().map(AsRef::as_ref), "apps", "v2").is_none());
    }
}
