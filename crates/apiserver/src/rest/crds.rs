//! Custom resource definitions at work: a definition that is stored adds kinds, one that goes takes them
//! and their objects along.

use std::sync::Arc;

use serde_json::{Value, json};

use super::delete::{self, Deleted};
use super::deletion::DeleteOptions;
use crate::kinds::meta::seconds;
use crate::kinds::{Kind, custom};
use crate::schema::crd;
use crate::schema::{SchemaRef, rules, validate};
use crate::server::{Api, meta_of, storage_of};
use crate::status::FieldError;
use crate::store::{Expect, Key, Object};

/// Holds a definition until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn is_definition(kind: &Kind) -> bool {
    kind.group == "apiextensions.k8s.io" && kind.plural == "customresourcedefinitions"
}

/// What the rules of a definition need that this server does not have.
pub fn missing_for_rules(object: &Value) -> Option<String> {
    let versions = object["spec"]["versions"].as_array();
    let schemas = versions.into_iter().flatten().map(|version| &version["schema"]["openAPIV3Schema"]);
    schemas.filter(|schema| schema.is_object()).find_map(|schema| rules::check_schema(schema, "").err())
}

/// What is wrong with the schemas of a definition.
pub fn schema_errors(kind: &Kind, object: &Value) -> Vec<FieldError> {
    if !is_definition(kind) {
        return Vec::new();
    }
    let versions = object["spec"]["versions"].as_array().cloned().unwrap_or_default();
    // Where all versions have the same schema it counts as the schema of the whole definition, and is
    // complained about once.
    let shared = versions.windows(2).all(|pair| pair[0]["schema"] == pair[1]["schema"]);
    versions
        .iter()
        .enumerate()
        .take(if shared { 1 } else { versions.len() })
        .filter(|(_, version)| version["schema"]["openAPIV3Schema"].is_object())
        .flat_map(|(n, version)| {
            let path = if shared {
                "spec.validation.openAPIV3Schema".to_owned()
            } else {
                format!("spec.versions[{n}].schema.openAPIV3Schema")
            };
            let schema = &version["schema"]["openAPIV3Schema"];
            let mut errors = crd::from_openapi(schema, &path).err().unwrap_or_default();
            if errors.is_empty() {
                default_errors(schema, &path, &mut errors);
            }
            if errors.is_empty() {
                // Rules that need what is missing here are refused later, with another code.
                errors.extend(rules::check_schema(schema, &path).unwrap_or_default());
            }
            errors
        })
        .collect()
}

/// Defaults must fit the type they are a default of.
fn default_errors(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = schema.get("default").filter(|d| !d.is_null()) {
        let mut alone = schema.clone();
        if let Some(fields) = alone.as_object_mut() {
            fields.remove("default");
        }
        // The schema of a part is read as that of a field, because only whole resources have metadata.
        let whole = json!({"type": "object", "properties": {"value": alone}});
        if let Ok(described) = crd::from_openapi(&whole, path) {
            let object = json!({"value": default});
            let mut found = validate::validate(described.get(), &object, None);
            if found.is_empty() {
                found = rules::evaluate(described.get(), &object, None).errors;
            }
            for mut error in found {
                let inner = error.field.strip_prefix("value").unwrap_or(&error.field).to_owned();
                error.field = format!("{path}.default{inner}");
                let said = error.detail.strip_prefix("value").map(str::to_owned);
                error.detail = said.unwrap_or(error.detail);
                errors.push(error);
            }
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        default_errors(property, &format!("{path}.properties[{name}]"), errors);
    }
    for part in ["items", "additionalProperties"] {
        if schema[part].is_object() {
            default_errors(&schema[part], &format!("{path}.{part}"), errors);
        }
    }
}

/// After an object was written: a definition is put into effect, a custom object that was the last one
/// of a dying definition lets it go.
pub fn after_write(api: &Api, kind: &Kind, object: &Object) {
    if is_definition(kind) {
        establish(api, kind, object);
    }
}

/// After an object was deleted or marked.
pub fn after_delete(api: &Api, kind: &Kind, deleted: &Deleted) {
    match deleted {
        Deleted::Removed(object) if is_definition(kind) => forget(api, &object.value()),
        Deleted::Marked(object) if is_definition(kind) => finish_deletion(api, kind, &object.value()),
        Deleted::Removed(_) if kind.custom.is_some() => {
            let kinds = api.kinds();
            let Some(definitions) =
                kinds.by_plural("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            else {
                return;
            };
            let name = kind.custom.as_ref().map(|c| c.definition.clone()).unwrap_or_default();
            if let Some(definition) = api.store.get(&storage_of(definitions), &Key::new("", &name)) {
                let value = definition.value();
                if value["metadata"].get("deletionTimestamp").is_some() {
                    finish_deletion(api, definitions, &value);
                }
            }
        }
        _ => {}
    }
}

/// Accepts the names, marks the definition established and starts serving it.
fn establish(api: &Api, kind: &Kind, object: &Object) {
    let mut definition = object.value();
    if definition["metadata"].get("deletionTimestamp").is_some() {
        finish_deletion(api, kind, &definition);
        return;
    }
    let wanted = with_status(&definition, api.now());
    if wanted != definition {
        let meta = meta_of(kind, &wanted);
        let key = Key::new("", &object.meta.name);
        let expect = Expect::Revision(object.revision);
        if api.store.put(&storage_of(kind), &key, expect, wanted.clone(), meta).is_err() {
            // Somebody wrote it again; that write establishes it.
            return;
        }
        definition = wanted;
    }
    let served = custom::kinds_of(&definition, |version| schema_of(&definition, version));
    let group = definition["spec"]["group"].as_str().unwrap_or_default().to_owned();
    let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default().to_owned();
    api.change_kinds(|kinds| {
        let old: Vec<Arc<Kind>> =
            kinds.iter().filter(|k| k.group == group && k.plural == plural).cloned().collect();
        for kind in old {
            kinds.remove(&kind.group, &kind.version, &kind.plural);
        }
        for kind in served {
            kinds.insert(kind);
        }
    });
}

fn with_status(definition: &Value, now: jiff::Timestamp) -> Value {
    let mut definition = definition.clone();
    let has = |definition: &Value, kind: &str| {
        definition["status"]["conditions"]
            .as_array()
            .is_some_and(|list| list.iter().any(|c| c["type"] == kind && c["status"] == "True"))
    };
    definition["status"]["acceptedNames"] = definition["spec"]["names"].clone();
    let stored: Vec<Value> = definition["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    let storage = definition["spec"]["versions"]
        .as_array()
        .and_then(|list| list.iter().find(|v| v["storage"] == true))
        .map(|v| v["name"].clone())
        .unwrap_or_default();
    if !stored.contains(&storage) {
        let mut versions = stored;
        versions.push(storage);
        definition["status"]["storedVersions"] = json!(versions);
    }
    for (kind, reason, message) in [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ] {
        if has(&definition, kind) {
            continue;
        }
        if !definition["status"]["conditions"].is_array() {
            definition["status"]["conditions"] = json!([]);
        }
        if let Some(list) = definition["status"]["conditions"].as_array_mut() {
            list.retain(|c| c["type"] != kind);
            list.push(json!({
                "type": kind, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": seconds(now),
            }));
        }
    }
    if let Some(metadata) = definition["metadata"].as_object_mut() {
        let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut()
            && !list.iter().any(|f| f == CLEANUP)
        {
            list.push(json!(CLEANUP));
        }
    }
    definition
}

/// The type of one version. Definitions are validated when they are written, so a schema that cannot be
/// read any more only loses its checks.
fn schema_of(definition: &Value, version: &str) -> SchemaRef {
    let found = definition["spec"]["versions"]
        .as_array()
        .and_then(|list| list.iter().find(|v| v["name"] == version))
        .map(|v| &v["schema"]["openAPIV3Schema"]);
    found
        .filter(|schema| schema.is_object())
        .and_then(|schema| crd::from_openapi(schema, "").ok())
        .unwrap_or_else(crd::free_resource)
}

/// Deletes the objects of a dying definition; when the last is gone, the definition follows.
fn finish_deletion(api: &Api, definitions: &Kind, definition: &Value) {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let kinds = api.kinds();
    let served = kinds.iter().find(|k| k.custom.as_ref().is_some_and(|c| c.definition == name)).cloned();
    if let Some(kind) = &served {
        for object in api.read_all(&storage_of(kind), "") {
            let key = Key::new(&object.meta.namespace, &object.meta.name);
            let _ = delete::remove(api, kind, &key, &DeleteOptions::default());
        }
        if api.store.count(&storage_of(kind)) > 0 {
            return;
        }
    }
    let key = Key::new("", name);
    let storage = storage_of(definitions);
    while let Some(stored) = api.store.get(&storage, &key) {
        let mut value = stored.value();
        let Some(finalizers) = value.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) else {
            break;
        };
        finalizers.retain(|f| f != CLEANUP);
        let last = finalizers.is_empty();
        let expect = Expect::Revision(stored.revision);
        let done = if last {
            api.store.remove(&storage, &key, expect).is_ok()
        } else {
            let meta = meta_of(definitions, &value);
            api.store.put(&storage, &key, expect, value.clone(), meta).is_ok()
        };
        if done {
            if last {
                forget(api, &value);
            }
            return;
        }
    }
}

/// Stops serving what a definition defined.
fn forget(api: &Api, definition: &Value) {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut storage = None;
    api.change_kinds(|kinds| {
        let gone: Vec<Arc<Kind>> = kinds
            .iter()
            .filter(|k| k.custom.as_ref().is_some_and(|c| c.definition == name))
            .cloned()
            .collect();
        for kind in gone {
            storage = Some(storage_of(&kind));
            kinds.remove(&kind.group, &kind.version, &kind.plural);
        }
    });
    if let Some(storage) = storage {
        api.store.end_watches(&storage);
    }
}
