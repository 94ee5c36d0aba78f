//! What the server serves: which resource a kind is, which can be scaled, which can be deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::effects::{Api, EffectError};
use crate::kinds::Resource;

#[derive(Debug, Clone)]
struct Served {
    resource: Resource,
    scales: bool,
    collectable: bool,
    preferred: bool,
}

/// A picture of the discovery documents. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    all: Arc<Vec<Served>>,
}

impl Discovery {
    pub async fn ask(api: &Api) -> Result<Self, EffectError> {
        let mut all = Vec::new();
        read_version(&mut all, "", "v1", true, &api.get("/api/v1").await?);
        let groups = api.get("/apis").await?;
        for group in groups["groups"].as_array().into_iter().flatten() {
            let Some(name) = group["name"].as_str() else { continue };
            let preferred = group["preferredVersion"]["version"].as_str();
            for version in group["versions"].as_array().into_iter().flatten() {
                let Some(version) = version["version"].as_str() else { continue };
                match api.get(&format!("/apis/{name}/{version}")).await {
                    Ok(list) => read_version(&mut all, name, version, preferred == Some(version), &list),
                    // One group that does not answer must not hide the others.
                    Err(error) => tracing::debug!(name, version, %error, "a group does not answer"),
                }
            }
        }
        Ok(Self { all: Arc::new(all) })
    }

    /// The resource of a kind, in the version named or else the preferred one.
    pub fn resource(&self, api_version: &str, kind: &str) -> Option<Resource> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut candidates: Vec<_> =
            self.all.iter().filter(|s| s.resource.group == group && s.resource.kind == kind).collect();
        candidates.sort_by_key(|s| (s.resource.version != version, !s.preferred));
        candidates.first().map(|s| s.resource.clone())
    }

    pub fn scales(&self, resource: &Resource) -> bool {
        self.all.iter().any(|s| s.resource == *resource && s.scales)
    }

    /// Everything that can be listed, watched and deleted, once per group and name.
    pub fn collectable(&self) -> Vec<Resource> {
        let mut seen = BTreeSet::new();
        let mut found: Vec<&Served> = self.all.iter().filter(|s| s.collectable).collect();
        found.sort_by_key(|s| !s.preferred);
        let mut resources: Vec<Resource> = found
            .into_iter()
            .filter(|s| seen.insert((s.resource.group.clone(), s.resource.plural.clone())))
            .map(|s| s.resource.clone())
            .collect();
        // Events never own anything and nothing waits for them.
        resources.retain(|r| r.plural != "events");
        resources.sort();
        resources
    }
}

fn read_version(all: &mut Vec<Served>, group: &str, version: &str, preferred: bool, list: &Value) {
    let entries: Vec<&Value> = list["resources"].as_array().into_iter().flatten().collect();
    let names: BTreeSet<&str> = entries.iter().filter_map(|e| e["name"].as_str()).collect();
    for entry in &entries {
        let (Some(plural), Some(kind)) = (entry["name"].as_str(), entry["kind"].as_str()) else { continue };
        if plural.contains('/') {
            continue;
        }
        let verbs: BTreeSet<&str> =
            entry["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let scales = entries.iter().any(|e| {
            e["name"].as_str().is_some_and(|n| n == format!("{plural}/scale"))
                && e["kind"] == "Scale"
                && e["group"].as_str().is_none_or(|g| g.is_empty() || g == "autoscaling" || g == "extensions")
        });
        all.push(Served {
            resource: Resource {
                group: group.to_owned().into(),
                version: version.to_owned().into(),
                plural: plural.to_owned().into(),
                kind: kind.to_owned().into(),
                namespaced: entry["namespaced"] == true,
            },
            scales: scales && names.contains(plural),
            collectable: ["list", "watch", "delete"].iter().all(|v| verbs.contains(v)),
            preferred,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn widgets(scale: &Value) -> Discovery {
        let list = json!({ "resources": [
            { "name": "widgets", "kind": "Widget", "namespaced": true, "verbs": ["list", "watch", "delete", "get"] },
            scale,
        ]});
        let mut all = Vec::new();
        read_version(&mut all, "example.com", "v1", true, &list);
        Discovery { all: Arc::new(all) }
    }

    #[test]
    fn a108_only_an_autoscaling_scale_counts_as_scale() {
        let resource = |d: &Discovery| d.resource("example.com/v1", "Widget").unwrap();
        let good = widgets(
            &json!({ "name": "widgets/scale", "kind": "Scale", "group": "autoscaling", "verbs": [] }),
        );
        assert!(good.scales(&resource(&good)));
        let odd =
            widgets(&json!({ "name": "widgets/scale", "kind": "Scale", "group": "other.io", "verbs": [] }));
        assert!(!odd.scales(&resource(&odd)));
        let none = widgets(&json!({ "name": "widgets/status", "kind": "Widget", "verbs": [] }));
        assert!(!none.scales(&resource(&none)));
    }

    #[test]
    fn what_cannot_be_deleted_is_not_collected() {
        let list = json!({ "resources": [
            { "name": "bindings", "kind": "Binding", "namespaced": true, "verbs": ["create"] },
            { "name": "pods", "kind": "Pod", "namespaced": true, "verbs": ["list", "watch", "delete"] },
        ]});
        let mut all = Vec::new();
        read_version(&mut all, "", "v1", true, &list);
        let found = Discovery { all: Arc::new(all) }.collectable();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].plural, "pods");
    }
}
