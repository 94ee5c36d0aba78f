//! Custom resources: definitions, and the kinds they add.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::fields::Unsupported;
use super::read::{int_at, list, text, text_at};
use super::strategy::{Generation, Strategy};
use super::{ALL_VERBS, Kind, READ_WRITE, Subresource, Text};
use crate::schema::SchemaRef;

/// What a custom resource definition says beyond what every kind has.
#[derive(Debug, Clone, Default)]
pub struct Custom {
    /// Name of the definition object.
    pub definition: String,
    /// The version in which objects are stored.
    pub storage_version: String,
    pub has_status: bool,
    pub scale: Option<ScalePaths>,
    pub columns: Vec<PrinterColumn>,
    pub selectable: Vec<SelectableField>,
    /// Warning sent with every answer of a deprecated version.
    pub deprecation_warning: Option<String>,
}

/// Where the `scale` subresource finds its numbers (dotted JSON paths such as `.spec.replicas`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

/// One of `additionalPrinterColumns`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrinterColumn {
    pub name: String,
    pub column_type: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub json_path: String,
}

/// One of `selectableFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectableField {
    /// `spec.color`
    pub label: String,
    pub path: Vec<String>,
}

/// The kinds a definition serves, one per served version. `schema` gives the type of a version.
pub fn kinds_of(definition: &Value, mut schema: impl FnMut(&str) -> SchemaRef) -> Vec<Kind> {
    let Some(spec) = definition.get("spec") else { return Vec::new() };
    // Accepted names count: a definition whose names collide serves under none.
    let names = match definition.pointer("/status/acceptedNames") {
        Some(accepted) if !text(accepted, "plural").is_empty() => accepted,
        _ => spec.get("names").unwrap_or(&Value::Null),
    };
    let group = text(spec, "group");
    let storage_version = list(spec, "versions")
        .iter()
        .find(|v| v.get("storage").and_then(Value::as_bool) == Some(true))
        .map_or("", |v| text(v, "name"));
    let defined = Defined { definition, spec, names, group, storage_version };
    list(spec, "versions")
        .iter()
        .filter(|v| v.get("served").and_then(Value::as_bool) == Some(true))
        .map(|version| kind_of(&defined, version, schema(text(version, "name"))))
        .collect()
}

fn owned(value: &str) -> Text {
    Cow::Owned(value.to_owned())
}

fn owned_list(value: &Value, field: &str) -> Vec<Text> {
    list(value, field).iter().filter_map(Value::as_str).map(owned).collect()
}

/// What all versions of a definition have in common.
struct Defined<'a> {
    definition: &'a Value,
    spec: &'a Value,
    /// Those that were accepted, if the definition is in effect already.
    names: &'a Value,
    group: &'a str,
    storage_version: &'a str,
}

fn kind_of(defined: &Defined<'_>, version: &Value, schema: SchemaRef) -> Kind {
    let Defined { definition, spec, names, group, storage_version } = *defined;
    let name = text(version, "name");
    let custom = Custom {
        definition: text_at(definition, "/metadata/name").to_owned(),
        storage_version: storage_version.to_owned(),
        has_status: version.pointer("/subresources/status").is_some_and(|s| !s.is_null()),
        scale: version.pointer("/subresources/scale").filter(|s| !s.is_null()).map(|scale| ScalePaths {
            spec_replicas: text(scale, "specReplicasPath").to_owned(),
            status_replicas: text(scale, "statusReplicasPath").to_owned(),
            label_selector: Some(text(scale, "labelSelectorPath"))
                .filter(|s| !s.is_empty())
                .map(str::to_owned),
        }),
        columns: columns(version),
        selectable: list(version, "selectableFields")
            .iter()
            .map(|f| {
                let label = text(f, "jsonPath").trim_start_matches('.').to_owned();
                let path = label.split('.').map(str::to_owned).collect();
                SelectableField { label, path }
            })
            .collect(),
        deprecation_warning: deprecation(definition, version, group, names),
    };
    let kind = text(names, "kind");
    let mut subresources = Vec::new();
    if custom.has_status {
        subresources.push(Subresource {
            name: Text::Borrowed("status"),
            group: owned(group),
            version: owned(name),
            kind: owned(kind),
            verbs: READ_WRITE,
        });
    }
    if custom.scale.is_some() {
        subresources.push(Subresource {
            name: Text::Borrowed("scale"),
            group: Text::Borrowed("autoscaling"),
            version: Text::Borrowed("v1"),
            kind: Text::Borrowed("Scale"),
            verbs: READ_WRITE,
        });
    }
    Kind {
        group: owned(group),
        version: owned(name),
        kind: owned(kind),
        list_kind: match text(names, "listKind") {
            "" => Cow::Owned(format!("{kind}List")),
            given => owned(given),
        },
        plural: owned(text(names, "plural")),
        singular: owned(&match text(names, "singular") {
            "" => kind.to_lowercase(),
            given => given.to_owned(),
        }),
        short_names: owned_list(names, "shortNames"),
        categories: owned_list(names, "categories"),
        namespaced: text(spec, "scope") == "Namespaced",
        verbs: ALL_VERBS,
        subresources,
        schema,
        storage: (owned(group), owned(text(names, "plural"))),
        strategy: Strategy {
            has_status: custom.has_status,
            status_keeps_metadata: true,
            generation: Generation::AllButMetadata,
            unconditional_update: false,
            unsupported: Unsupported::Label,
            ..Strategy::PLAIN
        },
        custom: Some(Arc::new(custom)),
    }
}

/// Printer columns; without any, the age is shown.
fn columns(version: &Value) -> Vec<PrinterColumn> {
    let given = list(version, "additionalPrinterColumns");
    if given.is_empty() {
        return vec![PrinterColumn {
            name: "Age".to_owned(),
            column_type: "date".to_owned(),
            format: String::new(),
            description: "When the object was created.".to_owned(),
            priority: 0,
            json_path: ".metadata.creationTimestamp".to_owned(),
        }];
    }
    given
        .iter()
        .map(|c| PrinterColumn {
            name: text(c, "name").to_owned(),
            column_type: text(c, "type").to_owned(),
            format: text(c, "format").to_owned(),
            description: text(c, "description").to_owned(),
            priority: int_at(c, "/priority"),
            json_path: text(c, "jsonPath").to_owned(),
        })
        .collect()
}

fn deprecation(definition: &Value, version: &Value, group: &str, names: &Value) -> Option<String> {
    if version.get("deprecated").and_then(Value::as_bool) != Some(true) {
        return None;
    }
    match text(version, "deprecationWarning") {
        "" => {
            let kind = text(names, "kind");
            let mut warning = format!("{group}/{} {kind} is deprecated", text(version, "name"));
            let better = list(&definition["spec"], "versions").iter().find(|v| {
                v["served"] == true && v["deprecated"] != true && !text(v, "name").contains("alpha")
            });
            if let Some(better) = better {
                warning = format!("{warning}; use {group}/{} {kind}", text(better, "name"));
            }
            Some(warning)
        }
        given => Some(given.to_owned()),
    }
}
