//! Names for versions of a template: a stable hash, and ControllerRevisions that record them.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde_json::{Value, json};

use super::pods::Owner;
use crate::actor::{Out, View};
use crate::effects::{Deletion, Write, as_value};
use crate::kinds::Kind;
use crate::objects::{Key, name, uid};
use crate::random::{letters, stable_hash};

pub const HASH_LABEL: &str = "controller-revision-hash";

/// Ten letters that stand for a template.
pub fn template_hash(template: &PodTemplateSpec) -> String {
    letters(stable_hash(&[&canonical(&as_value(template))]), 10)
}

/// JSON with sorted keys and without nulls, so that equal templates have equal text.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().filter(|(_, v)| !v.is_null()).collect();
            fields.sort_by_key(|(k, _)| k.as_str());
            let parts: Vec<String> = fields.iter().map(|(k, v)| format!("{k:?}:{}", canonical(v))).collect();
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

/// What the revisions of a controller record, and which of the former ones are kept.
pub struct History<'a> {
    pub template: &'a PodTemplateSpec,
    pub selector: &'a LabelSelector,
    /// How many that nothing uses are kept.
    pub limit: i32,
    /// Their hashes, as pods and statuses name them.
    pub in_use: &'a [String],
}

/// The revision of the template as it is, recorded if it is new or not the latest. Old ones that nothing
/// uses are deleted beyond the limit.
pub fn record(view: View<'_>, owner: &Owner<'_>, history: &History<'_>, out: &mut Out) -> String {
    let History { template, selector, limit, in_use } = *history;
    let hash = template_hash(template);
    let revision_name = format!("{}-{hash}", name(owner.meta));
    let key = Key::new(owner.namespace(), revision_name.clone());
    let mut known: Vec<_> = view.mirror.revisions.controlled_by(uid(owner.meta)).cloned().collect();
    known.sort_by_key(|r| r.revision);
    let latest = known.last().and_then(|r| r.revision).unwrap_or(0);
    match known.iter().find(|r| r.metadata.name.as_deref() == Some(&revision_name)) {
        Some(held) if held.revision == Some(latest) => {}
        Some(held) => {
            let next = ControllerRevision { revision: Some(latest + 1), ..ControllerRevision::clone(held) };
            out.write(Write::replace(Kind::ControllerRevision, key, &next));
        }
        None => {
            let mut labels = selector.match_labels.clone().unwrap_or_default();
            labels.insert(HASH_LABEL.to_owned(), hash.clone());
            let mut data = as_value(template);
            data["$patch"] = json!("replace");
            let revision = json!({
                "apiVersion": "apps/v1", "kind": "ControllerRevision",
                "metadata": ObjectMeta {
                    name: Some(revision_name),
                    namespace: owner.meta.namespace.clone(),
                    labels: Some(labels),
                    owner_references: Some(vec![owner.reference()]),
                    ..Default::default()
                },
                "data": { "spec": { "template": data } },
                "revision": latest + 1,
            });
            out.write(Write::create(Kind::ControllerRevision, key, &revision));
        }
    }
    let unused: Vec<_> = known
        .iter()
        .filter(|r| {
            let own = r.metadata.labels.as_ref().and_then(|l| l.get(HASH_LABEL));
            own.is_some_and(|h| *h != hash && !in_use.contains(h))
        })
        .collect();
    let excess = unused.len().saturating_sub(limit.max(0) as usize);
    for old in unused.into_iter().take(excess) {
        let deletion = Deletion { uid: old.metadata.uid.clone(), ..Deletion::default() };
        out.write(Write::delete(Kind::ControllerRevision, Key::of(&old.metadata), deletion));
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::labels;

    #[test]
    fn the_hash_follows_the_content_and_fits_a_label() {
        let template = |v: &str| PodTemplateSpec {
            metadata: Some(ObjectMeta { labels: Some(labels(&[("v", v)])), ..Default::default() }),
            spec: None,
        };
        assert_eq!(template_hash(&template("1")), template_hash(&template("1")));
        assert_ne!(template_hash(&template("1")), template_hash(&template("2")));
        assert!(template_hash(&template("1")).chars().all(|c| c.is_ascii_alphanumeric()));
    }
}
