//! Our table of list semantics: for each field of the published types how server-side apply and strategic
//! merge patch treat it. The JSON schemas of the types do not carry these facts, so they are kept as text
//! beside this file and read once.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::{ListKind, PatchStrategy, Zero};

/// The facts about one field, or about a type as a whole.
#[derive(Debug, Clone, Default)]
pub(super) struct FieldFacts {
    pub list: Option<ListKind>,
    /// `Some(true)` for atomic, `Some(false)` for granular.
    pub atomic: Option<bool>,
    pub patch: Option<PatchStrategy>,
    pub default: Option<Value>,
    pub go: Option<Arc<str>>,
    pub inlined: Option<Arc<str>>,
    pub zero: Option<Zero>,
    /// Whether the field is required, where the Rust types say otherwise.
    pub needed: Option<bool>,
    /// The values it may have, or its elements.
    pub values: Vec<Arc<str>>,
}

pub(super) type TypeFacts = BTreeMap<&'static str, FieldFacts>;

static TEXT: &str = include_str!("list_semantics.tsv");

/// The facts of one published type; `.` is the type itself.
pub(super) fn facts(definition: &str) -> Option<&'static TypeFacts> {
    static TABLE: OnceLock<BTreeMap<&'static str, TypeFacts>> = OnceLock::new();
    TABLE.get_or_init(|| read(TEXT)).get(definition)
}

fn read(text: &'static str) -> BTreeMap<&'static str, TypeFacts> {
    let mut table: BTreeMap<&'static str, TypeFacts> = BTreeMap::new();
    let mut current = "";
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(row) = line.strip_prefix('\t') else {
            current = line;
            table.entry(current).or_default();
            continue;
        };
        if let Some((field, words)) = row.split_once('\t')
            && let Some(fields) = table.get_mut(current)
        {
            fields.insert(field, read_facts(words));
        }
    }
    table
}

fn read_facts(words: &str) -> FieldFacts {
    let mut facts = FieldFacts::default();
    let mut key = None;
    let mut strategy = None;
    for word in words.split(' ') {
        let Some((name, value)) = word.split_once('=') else { continue };
        match name {
            "list" => {
                facts.list = Some(match value.split_once(':') {
                    Some((_, keys)) => ListKind::Map(keys.split(',').map(Arc::from).collect()),
                    None if value == "set" => ListKind::Set,
                    None => ListKind::Atomic,
                });
            }
            "map" => facts.atomic = Some(value == "atomic"),
            "patch" => strategy = Some(value),
            "key" => key = Some(Arc::from(value)),
            "default" => facts.default = serde_json::from_str(value).ok(),
            "go" => facts.go = Some(value.into()),
            "zero" => {
                facts.zero = Some(match value {
                    "always" => Zero::Always,
                    "keep" => Zero::Keep,
                    _ => Zero::Drop,
                });
            }
            "need" => facts.needed = Some(value == "yes"),
            "enum" => facts.values = value.split(',').map(Arc::from).collect(),
            "via" => facts.inlined = Some(value.into()),
            _ => {}
        }
    }
    facts.patch = strategy.map(|words| {
        if words == "replace" {
            PatchStrategy::Replace
        } else {
            PatchStrategy::Merge { key, retain_keys: words.split(',').any(|w| w == "retainKeys") }
        }
    });
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_table_is_understood() {
        for line in TEXT.lines().filter(|l| l.starts_with('\t')) {
            let (_, words) = line.trim_start_matches('\t').split_once('\t').expect("field and facts");
            for word in words.split(' ') {
                let (name, value) = word.split_once('=').expect("name=value");
                match name {
                    "list" => assert!(
                        ["atomic", "set"].contains(&value)
                            || value.strip_prefix("map:").is_some_and(|k| !k.is_empty()),
                        "{line}"
                    ),
                    "map" => assert!(["atomic", "granular"].contains(&value), "{line}"),
                    "patch" => assert!(
                        ["merge", "replace", "retainKeys", "merge,retainKeys"].contains(&value),
                        "{line}"
                    ),
                    "default" => assert!(serde_json::from_str::<Value>(value).is_ok(), "{line}"),
                    "need" => assert!(["yes", "no"].contains(&value), "{line}"),
                    "zero" => assert!(["always", "keep", "drop"].contains(&value), "{line}"),
                    "key" | "go" | "via" | "enum" => assert!(!value.is_empty(), "{line}"),
                    other => panic!("unknown fact {other} in {line}"),
                }
            }
        }
    }

    #[test]
    fn containers_are_told_apart_by_name_and_ports_by_port_and_protocol() {
        let spec = facts("io.k8s.api.core.v1.PodSpec").expect("type");
        assert_eq!(spec["containers"].list, Some(ListKind::Map(vec!["name".into()])));
        let container = facts("io.k8s.api.core.v1.Container").expect("type");
        assert_eq!(
            container["ports"].list,
            Some(ListKind::Map(vec!["containerPort".into(), "protocol".into()]))
        );
        assert_eq!(
            container["ports"].patch,
            Some(PatchStrategy::Merge { key: Some("containerPort".into()), retain_keys: false })
        );
        let port = facts("io.k8s.api.core.v1.ContainerPort").expect("type");
        assert_eq!(port["protocol"].default, Some("TCP".into()));
    }
}
