//! Pruning: fields of a custom resource that its type does not describe are dropped.
//!
//! `x-kubernetes-preserve-unknown-fields` keeps them; `apiVersion`, `kind` and `metadata` always stay at the
//! root and in embedded resources.

use serde_json::Value;

use super::{Schema, SchemaRef, Shape};

/// Prunes an object and tells what was dropped, as sorted paths.
pub fn prune_object(schema: &Schema, object: &mut Value) -> Vec<String> {
    let mut walk = Prune { path: String::new(), dropped: Vec::new() };
    walk.visit(Some(schema), object, true);
    walk.dropped.sort();
    walk.dropped
}

struct Prune {
    path: String,
    dropped: Vec<String>,
}

fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

impl Prune {
    fn visit(&mut self, schema: Option<&Schema>, value: &mut Value, resource: bool) {
        let preserve = schema.is_some_and(|s| s.preserve_unknown);
        let resource = resource || schema.is_some_and(|s| s.embedded_resource);
        match value {
            Value::Object(object) => object.retain(|name, child| {
                if resource && is_meta(name) {
                    return true;
                }
                match schema.and_then(|s| s.field(name)) {
                    Some(field) => {
                        self.within(Step::Field(name), |walk| {
                            walk.visit(Some(field.get()), child, false);
                        });
                    }
                    None if preserve => {}
                    None => {
                        if !is_meta(name) || !self.path.is_empty() {
                            let dot = if self.path.is_empty() { "" } else { "." };
                            self.dropped.push(format!("{}{dot}{name}", self.path));
                        }
                        return false;
                    }
                }
                true
            }),
            Value::Array(list) => {
                let item = schema.and_then(|s| match &s.shape {
                    Shape::List { item, .. } => Some(item),
                    _ => None,
                });
                if preserve && item.is_none() {
                    return;
                }
                for (index, child) in list.iter_mut().enumerate() {
                    self.within(Step::Index(index), |walk| {
                        walk.visit(item.map(SchemaRef::get), child, false);
                    });
                }
            }
            _ => {}
        }
    }

    fn within(&mut self, step: Step<'_>, visit: impl FnOnce(&mut Self)) {
        use std::fmt::Write as _;
        let length = self.path.len();
        match step {
            Step::Field(name) => {
                if length > 0 {
                    self.path.push('.');
                }
                self.path.push_str(name);
            }
            Step::Index(index) => {
                let _ = write!(self.path, "[{index}]");
            }
        }
        visit(self);
        self.path.truncate(length);
    }
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(fields: &[(&str, Schema)]) -> Schema {
        Schema::of(Shape::Object {
            fields: fields.iter().map(|(n, s)| ((*n).into(), SchemaRef::new(s.clone()))).collect(),
            required: Vec::new(),
            atomic: false,
        })
    }

    #[test]
    fn unknown_fields_are_dropped_and_named_and_metadata_stays() {
        let item = object(&[("a", Schema::of(Shape::String))]);
        let list = Schema::of(Shape::List {
            item: SchemaRef::new(item),
            kind: super::super::ListKind::Atomic,
            patch: super::super::PatchStrategy::Replace,
        });
        let schema = object(&[("spec", object(&[("list", list)]))]);
        let mut value = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "x"}, "extra": {"deep": 1},
            "spec": {"b": 1, "list": [{"a": "1"}, {"a": "2", "c": 3}]}});
        let dropped = prune_object(&schema, &mut value);
        assert_eq!(dropped, ["extra", "spec.b", "spec.list[1].c"]);
        assert_eq!(
            value,
            json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "x"},
                "spec": {"list": [{"a": "1"}, {"a": "2"}]}})
        );
    }

    #[test]
    fn preserving_keeps_what_is_unknown_but_still_prunes_what_is_described() {
        let mut free = object(&[("known", object(&[]))]);
        free.preserve_unknown = true;
        let schema = object(&[("spec", free)]);
        let mut value = json!({"spec": {"anything": {"x": [1]}, "known": {"y": 1}}});
        assert_eq!(prune_object(&schema, &mut value), ["spec.known.y"]);
        assert_eq!(value, json!({"spec": {"anything": {"x": [1]}, "known": {}}}));
    }

    #[test]
    fn an_embedded_resource_keeps_its_type_and_metadata() {
        let mut embedded = object(&[("spec", object(&[]))]);
        embedded.embedded_resource = true;
        let schema = object(&[("template", embedded)]);
        let mut value =
            json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"x": 1}, "other": 1}});
        assert_eq!(prune_object(&schema, &mut value), ["template.other"]);
        assert_eq!(value, json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"x": 1}}}));
    }
}
