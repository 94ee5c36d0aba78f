//! What a schema makes of data: the type that expressions see, and the values they get.
//!
//! Names that the language cannot write are escaped (`a-b` is `a__dash__b`, `namespace` is `__namespace__`).
//! What has no type of its own (`x-kubernetes-preserve-unknown-fields` alone) cannot be reached.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use serde_json::Value as Json;

use super::time;
use super::types::{ObjectType, Type};
use super::value::{Flavour, List, Object, Val};

#[derive(Debug)]
pub struct Decl {
    nullable: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    IntOrString,
    Text,
    Bytes,
    Duration,
    Date,
    DateTime,
    Bool,
    Number,
    Integer,
    List(Box<Decl>, Flavour),
    Map(Box<Decl>),
    /// By the name in the data: the escaped name and what it is.
    Object(BTreeMap<String, (String, Decl)>),
}

const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A name as expressions write it, if they can.
pub fn escaped(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut found = String::new();
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            found.push_str("__underscores__");
            rest = after;
            continue;
        }
        match c {
            '.' => found.push_str("__dot__"),
            '-' => found.push_str("__dash__"),
            '/' => found.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => found.push(c),
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(found)
}

impl Decl {
    /// What a part of an `openAPIV3Schema` describes. `resource` for objects that have metadata.
    pub fn of(schema: &Json, resource: bool) -> Option<Self> {
        let flag = |key: &str| schema.get(key).and_then(Json::as_bool).unwrap_or(false);
        let word = |key: &str| schema.get(key).and_then(Json::as_str).unwrap_or_default();
        let nullable = flag("nullable");
        if flag("x-kubernetes-int-or-string") {
            return Some(Self { nullable, kind: Kind::IntOrString });
        }
        let child = |part: &Json| Self::of(part, is_embedded(part));
        let kind = match word("type") {
            "array" => {
                let keys = schema.get("x-kubernetes-list-map-keys").and_then(Json::as_array);
                let keys = keys.into_iter().flatten().filter_map(Json::as_str);
                let flavour = match word("x-kubernetes-list-type") {
                    "set" => Flavour::Set,
                    "map" => Flavour::Keyed(
                        keys.map(|key| escaped(key).unwrap_or_else(|| key.to_owned())).collect(),
                    ),
                    _ => Flavour::Atomic,
                };
                Kind::List(Box::new(child(schema.get("items")?)?), flavour)
            }
            "object" => match schema.get("additionalProperties") {
                Some(value @ Json::Object(_)) if !resource => Kind::Map(Box::new(child(value)?)),
                _ => {
                    let mut fields = BTreeMap::new();
                    let properties = schema.get("properties").and_then(Json::as_object);
                    for (name, property) in properties.into_iter().flatten() {
                        if let (Some(decl), Some(escaped)) = (child(property), escaped(name)) {
                            fields.insert(name.clone(), (escaped, decl));
                        }
                    }
                    if resource {
                        add_metadata(&mut fields);
                    }
                    Kind::Object(fields)
                }
            },
            "string" => match word("format") {
                "byte" => Kind::Bytes,
                "duration" => Kind::Duration,
                "date" => Kind::Date,
                "date-time" => Kind::DateTime,
                _ => Kind::Text,
            },
            "boolean" => Kind::Bool,
            "number" => Kind::Number,
            "integer" => Kind::Integer,
            _ => return None,
        };
        Some(Self { nullable, kind })
    }

    /// The type, with the name that objects are called by in complaints.
    pub fn cel_type(&self, name: &str) -> Type {
        match &self.kind {
            Kind::IntOrString => Type::Dyn,
            Kind::Text => Type::Text,
            Kind::Bytes => Type::Bytes,
            Kind::Duration => Type::Duration,
            Kind::Date | Kind::DateTime => Type::Timestamp,
            Kind::Bool => Type::Bool,
            Kind::Number => Type::Double,
            Kind::Integer => Type::Int,
            Kind::List(item, _) => Type::list(item.cel_type(&format!("{name}.@idx"))),
            Kind::Map(value) => Type::map(Type::Text, value.cel_type(&format!("{name}.@elem"))),
            Kind::Object(fields) => {
                let typed = |(escaped, decl): &(String, Self)| {
                    (escaped.clone(), decl.cel_type(&format!("{name}.{escaped}")))
                };
                let fields = fields.values().map(typed).collect();
                Type::Object(Arc::new(ObjectType { name: name.to_owned(), fields }))
            }
        }
    }

    /// Data as a value of that type.
    pub fn value(&self, json: &Json) -> Val {
        let broken = |why: String| Val::Broken(why.into());
        if json.is_null() {
            return if self.nullable {
                Val::Null
            } else {
                broken("invalid data, got null for schema with nullable=false".into())
            };
        }
        let found = match (&self.kind, json) {
            (Kind::IntOrString | Kind::Text, Json::String(text)) => Some(Val::text(text.as_str())),
            (Kind::IntOrString | Kind::Integer, Json::Number(n)) => whole(n).map(Val::Int),
            (Kind::Number, Json::Number(n)) => n.as_f64().map(Val::Double),
            (Kind::Bool, Json::Bool(b)) => Some(Val::Bool(*b)),
            (Kind::Bytes, Json::String(text)) => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok();
                bytes.map(|bytes| Val::Bytes(bytes.into()))
            }
            (Kind::Duration, Json::String(text)) => time::duration(text).map(Val::Duration),
            (Kind::Date, Json::String(text)) => time::date(text).map(Val::Timestamp),
            (Kind::DateTime, Json::String(text)) => time::timestamp(text).map(Val::Timestamp),
            (Kind::List(item, flavour), Json::Array(items)) => Some(Val::List(Arc::new(List {
                items: items.iter().map(|json| item.value(json)).collect(),
                flavour: flavour.clone(),
            }))),
            (Kind::Map(value), Json::Object(fields)) => {
                let entries = fields.iter().map(|(k, v)| (Val::text(k.as_str()), value.value(v)));
                Some(Val::Map(Arc::new(entries.collect())))
            }
            (Kind::Object(known), Json::Object(fields)) => Some(object(known, fields)),
            _ => None,
        };
        found.unwrap_or_else(|| broken(format!("invalid data, expected {}", self.cel_type("object"))))
    }
}

fn object(known: &BTreeMap<String, (String, Decl)>, data: &serde_json::Map<String, Json>) -> Val {
    let (mut fields, mut rest) = (BTreeMap::new(), BTreeMap::new());
    for (name, json) in data {
        match known.get(name) {
            // A field that is null is a field that is not there.
            Some((escaped, decl)) if !json.is_null() => {
                fields.insert(escaped.clone(), decl.value(json));
            }
            _ => {
                rest.insert(name.clone(), json.clone());
            }
        }
    }
    Val::Object(Arc::new(Object { fields, rest }))
}

#[allow(clippy::cast_possible_truncation, reason = "checked to be a whole number of that size")]
fn whole(number: &serde_json::Number) -> Option<i64> {
    number
        .as_i64()
        .or_else(|| number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9.0e18).map(|n| n as i64))
}

pub fn is_embedded(schema: &Json) -> bool {
    schema.get("x-kubernetes-embedded-resource").and_then(Json::as_bool).unwrap_or(false)
}

/// Of metadata, expressions see the name and what it was made from.
fn add_metadata(fields: &mut BTreeMap<String, (String, Decl)>) {
    let text = || Decl { nullable: false, kind: Kind::Text };
    let word = |name: &str| (name.to_owned(), (name.to_owned(), text()));
    let metadata = Kind::Object([word("name"), word("generateName")].into());
    let metadata = Decl { nullable: false, kind: metadata };
    fields.extend([word("kind"), word("apiVersion")]);
    fields.insert("metadata".to_owned(), ("metadata".to_owned(), metadata));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("size", Some("size"))]
    #[case("namespace", Some("__namespace__"))]
    #[case("a-b.c/d", Some("a__dash__b__dot__c__slash__d"))]
    #[case("a__b", Some("a__underscores__b"))]
    #[case("_x_", Some("_x_"))]
    #[case("", None)]
    #[case("1a", None)]
    #[case("ä", None)]
    #[case("a b", None)]
    fn names_are_escaped(#[case] name: &str, #[case] wanted: Option<&str>) {
        assert_eq!(escaped(name).as_deref(), wanted);
    }
}
