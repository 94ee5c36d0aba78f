//! Whether an `openAPIV3Schema` is structural: every field has a type outside of `allOf` and its kin, and
//! nothing contradicts itself. Complaints are worded and sorted as kube-apiserver does it.

use serde_json::Value;

use crate::status::FieldError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// Everything that is wrong with a schema.
pub(super) fn check(json: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // What no schema may hold hides what a structural one may not.
    let structural = !is_unreadable(json);
    node(json, Level::Root, structural, path, &mut errors);
    if structural {
        completeness(json, path, &mut errors);
    }
    errors.sort_by_cached_key(ToString::to_string);
    errors.dedup();
    errors
}

fn text<'a>(json: &'a Value, key: &str) -> &'a str {
    json.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(json: &Value, key: &str) -> bool {
    json.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn each<'a>(json: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    json.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
}

fn properties(json: &Value) -> impl Iterator<Item = (&String, &Value)> {
    json.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// `anyOf: [{type: integer}, {type: string}]` and nothing else in it.
pub(super) fn is_int_or_string_any_of(json: &Value) -> bool {
    let Some([first, second]) = json.get("anyOf").and_then(Value::as_array).map(Vec::as_slice) else {
        return false;
    };
    let only =
        |v: &Value, wanted: &str| v.as_object().is_some_and(|o| o.len() == 1) && text(v, "type") == wanted;
    only(first, "integer") && only(second, "string")
}

const UNSUPPORTED: &[&str] =
    &["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

fn is_unreadable(json: &Value) -> bool {
    let child = |key: &str| json.get(key).filter(|c| c.is_object()).is_some_and(is_unreadable);
    UNSUPPORTED.iter().any(|word| json.get(word).is_some())
        || json.get("items").is_some_and(Value::is_array)
        || json.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false))
        || child("items")
        || child("additionalProperties")
        || properties(json).any(|(_, property)| is_unreadable(property))
}

fn node(json: &Value, level: Level, structural: bool, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(json, "type");
    if kind == "null" {
        errors.push(FieldError::forbidden(
            format!("{path}.type"),
            "type cannot be set to null, use nullable as an alternative",
        ));
    } else if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(format!("{path}.type"), kind, TYPES));
    }
    unsupported(json, path, errors);
    lists_and_maps(json, path, errors);

    if structural && kind == "array" && json.get("items").is_none() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = json.get("items").filter(|i| i.is_object()) {
        node(items, Level::Item, structural, &format!("{path}.items"), errors);
    }
    for (name, property) in properties(json) {
        node(property, Level::Field, structural, &format!("{path}.properties[{name}]"), errors);
    }
    let embedded = flag(json, "x-kubernetes-embedded-resource");
    if let Some(additional) = json.get("additionalProperties") {
        let at = format!("{path}.additionalProperties");
        if properties(json).next().is_some() && additional != &Value::Bool(false) {
            errors
                .push(FieldError::forbidden(&at, "additionalProperties and properties are mutual exclusive"));
        }
        if structural && level == Level::Root {
            errors.push(FieldError::forbidden(&at, "must not be used at the root"));
        }
        if embedded {
            errors.push(FieldError::forbidden(
                &at,
                "must not be used if x-kubernetes-embedded-resource is set",
            ));
        }
        if additional.is_object() {
            node(additional, Level::Field, structural, &at, errors);
        }
    }
    if !structural {
        return;
    }
    extensions(json, path, errors);
    let skip_first = json.get("allOf").and_then(|all| all.get(0)).is_some_and(is_int_or_string_any_of);
    junctors(json, is_int_or_string_any_of(json), skip_first, path, errors);
    types(json, level, path, errors);
}

fn types(json: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(json, "type");
    let at = format!("{path}.type");
    let embedded = flag(json, "x-kubernetes-embedded-resource");
    let preserves = flag(json, "x-kubernetes-preserve-unknown-fields");
    if embedded && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(&at, why)
        } else {
            FieldError::invalid(&at, kind, why)
        });
    } else if kind.is_empty() && !flag(json, "x-kubernetes-int-or-string") && !preserves {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&at, why));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(&at, kind, "must be object at the root"));
    }
    let is_resource = level == Level::Root || embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(property) = json.get("properties").and_then(|p| p.get(name)).filter(|_| is_resource)
            && text(property, "type") != "string"
        {
            let at = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(at, text(property, "type"), "must be string"));
        }
    }
    if let Some(metadata) = json.get("properties").and_then(|p| p.get("metadata")) {
        let at = format!("{path}.properties[metadata]");
        if is_resource && text(metadata, "type") != "object" {
            errors.push(FieldError::invalid(format!("{at}.type"), text(metadata, "type"), "must be object"));
        }
        let only_names = properties(metadata).all(|(name, _)| name == "name" || name == "generateName");
        let plain = metadata
            .as_object()
            .is_some_and(|m| m.keys().all(|k| matches!(k.as_str(), "type" | "properties" | "default")));
        if level == Level::Root && !(only_names && plain) {
            errors.push(FieldError::forbidden(
                &at,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }
    if embedded && !preserves && properties(json).next().is_none() {
        errors.push(FieldError::required(
            format!("{path}.properties"),
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
}

fn unsupported(json: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for word in UNSUPPORTED {
        if json.get(word).is_some() {
            errors.push(FieldError::forbidden(format!("{path}.{word}"), format!("{word} is not supported")));
        }
    }
    if flag(json, "uniqueItems") {
        errors.push(FieldError::forbidden(
            format!("{path}.uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    if json.get("items").is_some_and(Value::is_array) {
        errors.push(FieldError::forbidden(
            format!("{path}.items"),
            "items must be a schema object and not an array",
        ));
    }
    if json.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        errors.push(FieldError::invalid(
            format!("{path}.x-kubernetes-preserve-unknown-fields"),
            false,
            "must be true or undefined",
        ));
    }
}

fn extensions(json: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if flag(json, "x-kubernetes-int-or-string") {
        for word in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if flag(json, word) {
                errors.push(FieldError::invalid(
                    format!("{path}.{word}"),
                    true,
                    "must be false if x-kubernetes-int-or-string is true",
                ));
            }
        }
    }
    for (index, rule) in each(json, "x-kubernetes-validations") {
        rule_texts(json, rule, &format!("{path}.x-kubernetes-validations[{index}]"), errors);
    }
}

const REASONS: &[&str] =
    &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What a rule says besides its expressions, which are compiled later.
fn rule_texts(json: &Value, rule: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let breaks = |text: &str| text.contains(['\n', '\r']);
    let (message, expression) = (text(rule, "message"), text(rule, "rule").trim());
    let about_message = format!("{at}.message");
    if expression.is_empty() {
        errors.push(FieldError::required(format!("{at}.rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(about_message, message, "must be non-empty if specified"));
    } else if breaks(message.trim()) {
        errors.push(FieldError::invalid(about_message, message, "must not contain line breaks"));
    } else if breaks(expression) && message.is_empty() {
        let why = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(about_message, why));
    }
    let made = text(rule, "messageExpression");
    if !made.is_empty() && made.trim().is_empty() {
        let why = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(format!("{at}.messageExpression"), why));
    }
    if let Some(reason) = rule.get("reason").and_then(Value::as_str)
        && !REASONS.contains(&reason)
    {
        errors.push(FieldError::not_supported(format!("{at}.reason"), reason, REASONS));
    }
    let path = text(rule, "fieldPath");
    let about_path = format!("{at}.fieldPath");
    if !path.is_empty() && path.trim().is_empty() {
        errors.push(FieldError::invalid(&about_path, path, "must be non-empty if specified"));
    }
    if breaks(path) {
        errors.push(FieldError::invalid(&about_path, path, "must not contain line breaks"));
    }
    if !path.is_empty() && super::rules::normal_path(path, json).is_none() {
        errors.push(FieldError::invalid(&about_path, path, "must be a valid path"));
    }
}

fn lists_and_maps(json: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(json, "type");
    let wrong_type = |wanted: &str, word: &str| {
        let why = format!("must be {wanted} if {word} is specified");
        let at = format!("{path}.type");
        if kind.is_empty() { FieldError::required(at, why) } else { FieldError::invalid(at, kind, why) }
    };
    if let Some(map_type) = json.get("x-kubernetes-map-type").and_then(Value::as_str) {
        if kind != "object" {
            errors.push(wrong_type("object", "x-kubernetes-map-type"));
        }
        if !["atomic", "granular"].contains(&map_type) {
            let at = format!("{path}.x-kubernetes-map-type");
            errors.push(FieldError::not_supported(at, map_type, &["atomic", "granular"]));
        }
    }
    let list_type = json.get("x-kubernetes-list-type").and_then(Value::as_str);
    let at = format!("{path}.x-kubernetes-list-type");
    if let Some(list_type) = list_type {
        if kind != "array" {
            errors.push(wrong_type("array", "x-kubernetes-list-type"));
        }
        if !["atomic", "set", "map"].contains(&list_type) {
            errors.push(FieldError::not_supported(&at, list_type, &["atomic", "set", "map"]));
        }
    }
    let keys: Vec<&str> = each(json, "x-kubernetes-list-map-keys").filter_map(|(_, k)| k.as_str()).collect();
    if !keys.is_empty() && list_type != Some("map") {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            None => FieldError::required(&at, why),
            Some(other) => FieldError::invalid(&at, other, why),
        });
    }
    if list_type == Some("map") {
        map_keys(json, &keys, path, errors);
    }
}

fn map_keys(json: &Value, keys: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    let at = format!("{path}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.push(FieldError::required(&at, "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = json.get("items") else {
        errors.push(FieldError::required(
            format!("{path}.items"),
            "must have a schema if x-kubernetes-list-type is map",
        ));
        return;
    };
    if text(items, "type") != "object" {
        errors.push(FieldError::invalid(
            format!("{path}.items.type"),
            text(items, "type"),
            "must be object if parent array's x-kubernetes-list-type is map",
        ));
    }
    let shown = || Value::from(keys.to_vec());
    for (index, key) in keys.iter().enumerate() {
        match items.get("properties").and_then(|p| p.get(key)) {
            None => {
                errors.push(FieldError::invalid(
                    &at,
                    shown(),
                    "entries must all be names of item properties",
                ));
            }
            Some(property) if matches!(text(property, "type"), "object" | "array") => {
                errors.push(FieldError::invalid(
                    format!("{path}.items.properties[{key}].type"),
                    text(items, "type"),
                    "must be a scalar type if parent array's x-kubernetes-list-type is map",
                ));
            }
            Some(property) => {
                let required = each(items, "required").any(|(_, name)| name.as_str() == Some(*key));
                if !required && property.get("default").is_none() {
                    errors.push(FieldError::required(
                        format!("{path}.items.properties[{key}].default"),
                        "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                         required property",
                    ));
                }
            }
        }
        if keys[..index].contains(key) {
            errors.push(FieldError::invalid(&at, shown(), "must not contain duplicate entries"));
        }
    }
}

fn junctors(
    json: &Value,
    skip_any_of: bool,
    skip_first_all_of: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if !skip_any_of {
        for (index, clause) in each(json, "anyOf") {
            nested(clause, false, &format!("{path}.anyOf[{index}]"), errors);
        }
    }
    for (index, clause) in each(json, "allOf") {
        nested(clause, skip_first_all_of && index == 0, &format!("{path}.allOf[{index}]"), errors);
    }
    for (index, clause) in each(json, "oneOf") {
        nested(clause, false, &format!("{path}.oneOf[{index}]"), errors);
    }
    if let Some(clause) = json.get("not").filter(|n| n.is_object()) {
        nested(clause, false, &format!("{path}.not"), errors);
    }
    let pattern = text(json, "pattern");
    if let Err(error) = regex::Regex::new(pattern) {
        errors.push(FieldError::invalid(
            format!("{path}.pattern"),
            pattern,
            format!("must be a valid regular expression, but isn't: error parsing regexp: {}", brief(&error)),
        ));
    }
}

/// What is wrong with a pattern, in one line.
fn brief(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

/// A schema under a junctor may check values but not describe them.
fn nested(json: &Value, skip_any_of: bool, path: &str, errors: &mut Vec<FieldError>) {
    junctors(json, skip_any_of, false, path, errors);
    if let Some(items) = json.get("items").filter(|i| i.is_object()) {
        nested(items, false, &format!("{path}.items"), errors);
    }
    for (name, property) in properties(json) {
        nested(property, false, &format!("{path}.properties[{name}]"), errors);
    }
    let mut forbid = |word: &str, why: &str| {
        errors.push(FieldError::forbidden(format!("{path}.{word}"), format!("{why} to be structural")));
    };
    for word in ["type", "title", "description"] {
        if !text(json, word).is_empty() {
            forbid(word, "must be empty");
        }
    }
    for word in ["additionalProperties", "default", "x-kubernetes-list-type", "x-kubernetes-map-type"] {
        if json.get(word).is_some() {
            forbid(word, "must be undefined");
        }
    }
    for word in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        if flag(json, word) {
            forbid(word, "must be false");
        }
    }
    for word in ["x-kubernetes-list-map-keys", "x-kubernetes-validations"] {
        if each(json, word).next().is_some() {
            forbid(word, "must be empty");
        }
    }
    if json.get("properties").and_then(|p| p.get("metadata")).is_some() {
        errors.push(FieldError::forbidden(
            format!("{path}.properties[metadata]"),
            "must not be specified in a nested context",
        ));
    }
}

/// Every field a junctor speaks of must be described outside of it.
fn completeness(json: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut clauses: Vec<(String, &Value)> = Vec::new();
    for word in ["allOf", "anyOf", "oneOf"] {
        clauses.extend(each(json, word).map(|(index, clause)| (format!("{path}.{word}[{index}]"), clause)));
    }
    clauses.extend(json.get("not").filter(|n| n.is_object()).map(|n| (format!("{path}.not"), n)));
    for (at, clause) in clauses {
        described(clause, Some(json), path, &at, errors);
    }
    if let Some(items) = json.get("items").filter(|i| i.is_object()) {
        completeness(items, &format!("{path}.items"), errors);
    }
    for (name, property) in properties(json) {
        completeness(property, &format!("{path}.properties[{name}]"), errors);
    }
    if let Some(additional) = json.get("additionalProperties").filter(|a| a.is_object()) {
        completeness(additional, &format!("{path}.additionalProperties"), errors);
    }
}

fn described(
    clause: &Value,
    base: Option<&Value>,
    base_path: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(base) = base else {
        errors.push(FieldError::required(base_path, format!("because it is defined in {path}")));
        return;
    };
    for word in ["allOf", "anyOf", "oneOf"] {
        for (index, inner) in each(clause, word) {
            described(inner, Some(base), base_path, &format!("{path}.{word}[{index}]"), errors);
        }
    }
    if let Some(inner) = clause.get("not").filter(|n| n.is_object()) {
        described(inner, Some(base), base_path, &format!("{path}.not"), errors);
    }
    if let Some(items) = clause.get("items").filter(|i| i.is_object()) {
        let at = format!("{base_path}.items");
        described(items, base.get("items"), &at, &format!("{path}.items"), errors);
    }
    for (name, property) in properties(clause) {
        let at = format!("{base_path}.properties[{name}]");
        let base = base.get("properties").and_then(|p| p.get(name));
        described(property, base, &at, &format!("{path}.properties[{name}]"), errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case(json!({"type": "object", "properties": {"a": {}}}),
        &["s.properties[a].type: Required value: must not be empty for specified object fields"])]
    #[case(json!({"type": "object", "properties": {"a": {"$ref": "#/x"}}}),
        &["s.properties[a].$ref: Forbidden: $ref is not supported"])]
    #[case(json!({"properties": {}}), &["s.type: Required value: must not be empty at the root"])]
    #[case(json!({"type": "object", "properties": {"a": {"type": "array"}}}),
        &["s.properties[a].items: Required value: must be specified"])]
    #[case(json!({"type": "object", "additionalProperties": {"type": "string"}}),
        &["s.additionalProperties: Forbidden: must not be used at the root"])]
    #[case(json!({"type": "object", "anyOf": [{"type": "object"}]}),
        &["s.anyOf[0].type: Forbidden: must be empty to be structural"])]
    #[case(json!({"type": "object", "oneOf": [{"properties": {"b": {}}}]}),
        &["s.properties[b]: Required value: because it is defined in s.oneOf[0].properties[b]"])]
    #[case(json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}),
        &["s.properties[a].items.properties[k].default: Required value: this property is in \
           x-kubernetes-list-map-keys, so it must have a default or be a required property"])]
    #[case(json!({"type": "object", "properties": {"a": {"type": "text"}}}),
        &["s.properties[a].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \
           \"integer\", \"number\", \"object\", \"string\""])]
    #[case(json!({"type": "object", "properties": {"metadata": {"type": "object",
            "properties": {"labels": {"type": "object"}}}}}),
        &["s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but \
           metadata is implicitly specified"])]
    #[case(json!({"type": "object", "properties": {"p": {"x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}]}, "metadata": {"type": "object"}}}), &[])]
    fn a_schema_that_is_not_structural_is_told_why(#[case] schema: Value, #[case] wanted: &[&str]) {
        let found: Vec<String> = check(&schema, "s").iter().map(ToString::to_string).collect();
        assert_eq!(found, wanted);
    }
}
