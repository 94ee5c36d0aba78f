//! Strategic merge patch: a merge patch that knows which lists are keyed.
//!
//! Lists with a merge key are merged element by element, lists of plain values are united; everything else
//! follows JSON merge patch. Directives in the patch: `$patch: replace|delete`, `$retainKeys`,
//! `$deleteFromPrimitiveList/<field>`, `$setElementOrder/<field>`.

use serde_json::{Map, Value};

use super::PatchError;
use crate::schema::{PatchStrategy, Schema, SchemaRef, Shape};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Applies a patch to an object of a built-in kind.
pub fn strategic_merge(schema: &Schema, current: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::Malformed("invalid JSON document".to_owned()));
    };
    let original = match current {
        Value::Object(fields) => fields.clone(),
        _ => Map::new(),
    };
    merge_object(Some(schema), original, patch.clone()).map(Value::Object)
}

fn malformed(why: &str) -> PatchError {
    PatchError::Malformed(why.to_owned())
}

fn field_of<'s>(schema: Option<&'s Schema>, name: &str) -> Option<&'s Schema> {
    schema.and_then(|s| s.field(name)).map(SchemaRef::get)
}

fn merge_object(
    schema: Option<&Schema>,
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
) -> Result<Map<String, Value>, PatchError> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Map::new()),
            _ => {
                let shown = go_text(&directive);
                patch.insert(DIRECTIVE.to_owned(), directive);
                Err(unknown_directive(&shown, &Value::Object(patch)))
            }
        };
    }
    retain_keys(&mut original, &mut patch)?;
    ordered_lists(schema, &mut original, &mut patch)?;
    let mut deletions = Vec::new();
    for (name, change) in patch {
        if name.starts_with(DELETE_FROM_LIST) {
            deletions.push((name, change));
            continue;
        }
        if change.is_null() {
            original.remove(&name);
            continue;
        }
        let field = field_of(schema, &name);
        match (original.get_mut(&name), change) {
            (Some(Value::Object(old)), Value::Object(change)) => {
                let replaces = field.is_some_and(|f| f.patch == PatchStrategy::Replace);
                let merged =
                    if replaces { change } else { merge_object(field, std::mem::take(old), change)? };
                original.insert(name, Value::Object(merged));
            }
            (Some(Value::Array(old)), Value::Array(change)) => {
                let merged = merge_list(field, std::mem::take(old), change)?;
                original.insert(name, Value::Array(merged));
            }
            (_, mut change) => {
                without_nulls(&mut change);
                match without_directives(change) {
                    Some(value) => original.insert(name, value),
                    None => original.remove(&name),
                };
            }
        }
    }
    for (directive, gone) in deletions {
        let Some((DELETE_FROM_LIST, field)) = directive.split_once('/') else {
            return Err(malformed("invalid patch format of primitive list"));
        };
        delete_from_list(&mut original, field, &gone)?;
    }
    Ok(original)
}

/// `$retainKeys` names the only fields that stay; the patch may not set others.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else {
        return Err(malformed("invalid patch format of retainKeys"));
    };
    let retained = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    for (name, value) in patch.iter() {
        let directive = name.starts_with(DELETE_FROM_LIST) || name.starts_with(SET_ORDER);
        if !value.is_null() && !directive && !retained(name) {
            return Err(malformed("invalid patch format of retainKeys"));
        }
    }
    original.retain(|name, _| retained(name));
    Ok(())
}

/// Merges the lists for which the patch also says in which order their elements stand.
fn ordered_lists(
    schema: Option<&Schema>,
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let bad = || malformed("invalid patch format of setElementOrder list");
        let Some((SET_ORDER, field)) = directive.split_once('/') else { return Err(bad()) };
        let Some(Value::Array(order)) = patch.remove(&directive) else { return Err(bad()) };
        let list_schema = field_of(schema, field);
        let key = merge_key(list_schema);
        let old = match original.get(field) {
            Some(Value::Array(old)) => Some(old.clone()),
            Some(_) => return Err(bad()),
            None => None,
        };
        let change = match patch.remove(field) {
            Some(Value::Array(change)) => Some(change),
            Some(Value::Null) => {
                // An explicit null still deletes the list.
                original.remove(field);
                continue;
            }
            Some(_) => return Err(bad()),
            None => None,
        };
        if let Some(change) = &change {
            check_order(change, &order, key)?;
        }
        let merged = match (old.clone(), change) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(change)) => {
                let mut added = Value::Array(change);
                without_nulls(&mut added);
                match without_directives(added) {
                    Some(Value::Array(list)) => list,
                    _ => continue,
                }
            }
            (Some(old), Some(change)) => merge_list(list_schema, old, change)?,
        };
        require_key(&merged, key)?;
        let merged = arrange(merged, &order, &old.unwrap_or_default(), key);
        original.insert(field.to_owned(), Value::Array(merged));
    }
    Ok(())
}

/// Elements of the patch must stand in the order that the directive asks for.
fn check_order(change: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if order.is_empty() || change.is_empty() {
        return Ok(());
    }
    let mut wanted = order.iter();
    for item in change.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        if key.is_some_and(|key| item.get(key).is_none()) {
            return Err(no_merge_key(item, key));
        }
        if !wanted.any(|place| identity(place, key) == identity(item, key)) {
            let (list, order) = (go_format(&change.into()), go_format(&order.into()));
            return Err(PatchError::Unmergeable(format!(
                "The order in patch list:\n{list}\n doesn't match {SET_ORDER} list:\n{order}\n"
            )));
        }
    }
    Ok(())
}

fn merge_key(schema: Option<&Schema>) -> Option<&str> {
    match schema.map(|s| &s.shape) {
        Some(Shape::List { patch: PatchStrategy::Merge { key, .. }, .. }) => key.as_deref(),
        _ => None,
    }
}

fn merge_list(
    schema: Option<&Schema>,
    old: Vec<Value>,
    change: Vec<Value>,
) -> Result<Vec<Value>, PatchError> {
    let Some(Schema { shape: Shape::List { item, patch: PatchStrategy::Merge { key, .. }, .. }, .. }) =
        schema
    else {
        return Ok(change);
    };
    if old.iter().chain(&change).any(Value::is_array) {
        return Err(PatchError::DoesNotApply("lists of lists are not supported".to_owned()));
    }
    let objects = old.iter().chain(&change).filter(|item| item.is_object()).count();
    if objects == 0 {
        let mut merged = old.clone();
        merged.extend(change.iter().cloned());
        return Ok(arrange(unique(merged), &change, &old, None));
    }
    if objects < old.len() + change.len() {
        let lists = go_format(&Value::Array(vec![old.into(), change.into()]));
        return Err(PatchError::Unmergeable(format!("list element types are not identical: {lists}")));
    }
    let Some(key) = key.as_deref() else {
        let name = item.name().unwrap_or_default();
        return Err(PatchError::Unmergeable(format!("cannot merge lists without merge key for {name}")));
    };
    merge_keyed(item.get(), key, old, change)
}

fn merge_keyed(
    item: &Schema,
    key: &str,
    mut old: Vec<Value>,
    change: Vec<Value>,
) -> Result<Vec<Value>, PatchError> {
    let mut plain = Vec::new();
    let mut replace = false;
    for element in change {
        let Some(directive) = element.get(DIRECTIVE) else {
            plain.push(element);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let Some(value) = element.get(key) else { return Err(no_merge_key(&element, Some(key))) };
                old.retain(|item| item.get(key) != Some(value));
            }
            Some("replace") => replace = true,
            Some("merge") => {
                let why = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Unmergeable(why.to_owned()));
            }
            _ => return Err(unknown_directive(&go_text(directive), &element)),
        }
    }
    if replace {
        (old, plain) = (plain, Vec::new());
    }
    let server_order = old.clone();
    let patch_order = plain.clone();
    let mut merged = old;
    for element in plain {
        let Some(value) = element.get(key) else { return Err(no_merge_key(&element, Some(key))) };
        let place = merged.iter().position(|item| item.get(key) == Some(value));
        match (place.and_then(|at| merged.get_mut(at)), element) {
            (Some(Value::Object(found)), Value::Object(element)) => {
                let combined = merge_object(Some(item), std::mem::take(found), element)?;
                *found = combined;
            }
            // A new element is taken as it is; directives in it show up as unknown fields.
            (_, element) => merged.push(element),
        }
    }
    require_key(&merged, Some(key))?;
    Ok(arrange(merged, &patch_order, &server_order, Some(key)))
}

fn require_key(list: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    let Some(name) = key else { return Ok(()) };
    match list.iter().find(|item| item.get(name).is_none()) {
        Some(item) => Err(no_merge_key(item, key)),
        None => Ok(()),
    }
}

fn no_merge_key(element: &Value, key: Option<&str>) -> PatchError {
    let (map, key) = (go_format(element), key.unwrap_or_default());
    PatchError::Unmergeable(format!("map: {map} does not contain declared merge key: {key}"))
}

fn unknown_directive(shown: &str, element: &Value) -> PatchError {
    PatchError::Unmergeable(format!("unknown patch type: {shown} in map: {}", go_format(element)))
}

/// What tells an element from others.
fn identity<'v>(item: &'v Value, key: Option<&str>) -> Option<&'v Value> {
    match key {
        Some(key) => item.get(key),
        None => Some(item),
    }
}

fn index_in(order: &[Value], item: &Value, key: Option<&str>) -> Option<usize> {
    let wanted = identity(item, key);
    order.iter().position(|other| identity(other, key) == wanted)
}

/// Elements named in `wanted` stand in that order; the others keep the server's order and are woven in
/// before the first element they stood before.
fn arrange(merged: Vec<Value>, wanted: &[Value], server: &[Value], key: Option<&str>) -> Vec<Value> {
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in merged {
        let before = index_in(server, &item, key);
        match index_in(wanted, &item, key) {
            Some(place) => named.push((place, before, item)),
            None => others.push((before.unwrap_or(usize::MAX), item)),
        }
    }
    named.sort_by_key(|(place, ..)| *place);
    others.sort_by_key(|(place, _)| *place);
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, before, item) in named {
        while let Some((_, other)) =
            others.next_if(|(place, _)| *place != usize::MAX && before.is_some_and(|before| *place < before))
        {
            arranged.push(other);
        }
        arranged.push(item);
    }
    arranged.extend(others.map(|(_, item)| item));
    arranged
}

fn unique(list: Vec<Value>) -> Vec<Value> {
    let mut seen: Vec<Value> = Vec::with_capacity(list.len());
    for item in list {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

fn delete_from_list(original: &mut Map<String, Value>, field: &str, gone: &Value) -> Result<(), PatchError> {
    let Value::Array(gone) = gone else {
        return Err(malformed("invalid patch format of primitive list"));
    };
    if let Some(Value::Array(list)) = original.get_mut(field) {
        list.retain(|item| !gone.contains(item));
    }
    Ok(())
}

/// A value that is put in place as it is has no nulls in its objects.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// A value that is put in place as it is has no directives; an object that carries one vanishes.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            if fields.contains_key(DIRECTIVE) {
                return None;
            }
            let kept = fields
                .into_iter()
                .filter(|(name, _)| {
                    name != RETAIN_KEYS && !name.starts_with(SET_ORDER) && !name.starts_with(DELETE_FROM_LIST)
                })
                .filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

/// A value as Go prints it with `%v`, which is how clients see it in messages.
pub(super) fn go_format(value: &Value) -> String {
    go_print(value, &|leaf| match leaf {
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    })
}

/// A value as Go prints it with `%s`, which complains of everything that is no text.
fn go_text(value: &Value) -> String {
    if value.is_null() {
        return "%!s(<nil>)".to_owned();
    }
    go_print(value, &|leaf| match leaf {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(_) => format!("%!s(bool={leaf})"),
        Value::Number(number) if number.is_f64() => format!("%!s(float64={leaf})"),
        _ => format!("%!s(int64={leaf})"),
    })
}

fn go_print(value: &Value, leaf: &dyn Fn(&Value) -> String) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| go_print(item, leaf)).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", go_print(value, leaf))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => leaf(other),
    }
}

#[cfg(test)]
pub(super) mod tests;
