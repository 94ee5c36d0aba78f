use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::kinds::custom;
use crate::schema::{Schema, SchemaRef, Shape};

fn kinds() -> Kinds {
    let mut kinds = Kinds::builtin();
    let definition = json!({
        "metadata": {"name": "machines.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "machines", "kind": "Machine"},
            "versions": [{"name": "v1", "served": true, "storage": true}],
        },
    });
    let schema = || {
        let size = SchemaRef::new(Schema::of(Shape::Integer));
        SchemaRef::new(Schema::of(Shape::Object {
            fields: [("size".into(), size)].into_iter().collect(),
            required: Vec::new(),
            atomic: false,
        }))
    };
    for kind in custom::kinds_of(&definition, |_| schema()) {
        kinds.insert(kind);
    }
    kinds
}

fn references<'a>(value: &'a Value, out: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(map) => {
            if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
                out.insert(reference);
            }
            map.values().for_each(|v| references(v, out));
        }
        Value::Array(list) => list.iter().for_each(|v| references(v, out)),
        _ => {}
    }
}

#[test]
fn the_index_names_a_document_for_every_group_version() {
    let kinds = kinds();
    let index = v3_index(&kinds);
    let paths = index["paths"].as_object().unwrap();
    for path in ["api/v1", "apis/apps/v1", "apis/policy/v1", "apis/example.com/v1"] {
        let url = paths[path]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
    }
    for path in paths.keys() {
        assert!(v3(&kinds, path).is_some(), "{path}");
    }
    assert!(v3(&kinds, "apis/nope/v1").is_none());
}

#[test]
fn every_reference_leads_to_a_schema() {
    let kinds = kinds();
    for path in v3_index(&kinds)["paths"].as_object().unwrap().keys() {
        let document = v3(&kinds, path).unwrap();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for reference in found {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{path}: {name}");
        }
    }
    let document = v2(&kinds);
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    for reference in found {
        let name = reference.strip_prefix("#/definitions/").unwrap();
        assert!(document["definitions"][name].is_object(), "{name}");
    }
}

#[test]
fn a_patch_declares_what_kubectl_looks_for() {
    let document = v3(&kinds(), "api/v1").unwrap();
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "", "version": "v1", "kind": "Pod"})
    );
    let names: Vec<&str> =
        patch["parameters"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
}

#[test]
fn lists_carry_how_they_are_merged() {
    let document = v3(&kinds(), "api/v1").unwrap();
    let schemas = &document["components"]["schemas"];
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(
        schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"],
        json!([{"group": "", "kind": "Pod", "version": "v1"}])
    );
    assert!(schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["nodeName"]["description"].is_string());
}

#[test]
fn custom_resources_have_the_fields_every_object_has() {
    let document = v3(&kinds(), "apis/example.com/v1").unwrap();
    let machine = &document["components"]["schemas"]["com.example.v1.Machine"];
    assert_eq!(machine["properties"]["size"]["type"], "integer");
    assert_eq!(machine["properties"]["apiVersion"]["type"], "string");
    assert!(machine["properties"]["metadata"]["allOf"][0]["$ref"].is_string());
    assert!(document["paths"]["/apis/example.com/v1/namespaces/{namespace}/machines/{name}"].is_object());
}
