//! OpenAPI documents: what kubectl reads for `explain`, `apply` and validation.
//!
//! Version 3 has an index and one document per group version; version 2 is one document for everything
//! (as JSON; clients that insist on protobuf are answered 406 by the caller and fall back to version 3).
//! Everything is made from the kinds; the caller keeps the results until kinds change.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ring::digest;
use serde_json::{Map, Value, json};

use crate::discovery::GIT_VERSION;
use crate::kinds::{Kind, Kinds};

mod operations;
mod schemas;

use schemas::{Dialect, Schemas};

/// `/openapi/v3`: where to find the document of each group version. The address changes with its content.
pub fn v3_index(kinds: &Kinds) -> Value {
    let mut paths = Map::new();
    for (group, version) in group_versions(kinds) {
        let path = path_of(group, version);
        let mark = fingerprint(kinds, group, version);
        paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={mark}")}));
    }
    json!({"paths": paths})
}

/// The document of one group version; `path` is `api/v1` or `apis/apps/v1`.
pub fn v3(kinds: &Kinds, path: &str) -> Option<Value> {
    let (group, version) = parse_path(path)?;
    let of_version: Vec<&Kind> = kinds.of_group_version(group, version).map(AsRef::as_ref).collect();
    if of_version.is_empty() {
        return None;
    }
    let mut schemas = Schemas::new(Dialect::V3);
    let mut paths = Map::new();
    for kind in &of_version {
        schemas.add_kind(kind, kinds);
        operations::add(kind, Dialect::V3, &mut paths);
    }
    schemas.mark_kinds(kinds);
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": GIT_VERSION},
        "paths": paths,
        "components": {"schemas": schemas.finish()},
    }))
}

/// `/openapi/v2`: all group versions in one document.
pub fn v2(kinds: &Kinds) -> Value {
    let mut schemas = Schemas::new(Dialect::V2);
    let mut paths = Map::new();
    for kind in kinds.iter() {
        schemas.add_kind(kind, kinds);
        operations::add(kind, Dialect::V2, &mut paths);
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": GIT_VERSION},
        "paths": paths,
        "definitions": schemas.finish(),
    })
}

fn group_versions(kinds: &Kinds) -> impl Iterator<Item = (&str, &str)> {
    let all: BTreeSet<(&str, &str)> = kinds.iter().map(|k| (k.group.as_ref(), k.version.as_ref())).collect();
    all.into_iter()
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn parse_path(path: &str) -> Option<(&str, &str)> {
    let mut parts = path.trim_matches('/').split('/');
    match (parts.next()?, parts.next()?, parts.next(), parts.next()) {
        ("api", version, None, None) => Some(("", version)),
        ("apis", group, Some(version), None) => Some((group, version)),
        _ => None,
    }
}

/// Changes when the kinds of a group version do: names, verbs, and for custom ones what they look like.
fn fingerprint(kinds: &Kinds, group: &str, version: &str) -> String {
    let mut hash = digest::Context::new(&digest::SHA512);
    let mut add = |text: &str| {
        hash.update(text.as_bytes());
        hash.update(&[0]);
    };
    for kind in kinds.of_group_version(group, version) {
        add(&kind.kind);
        add(&kind.plural);
        for sub in &kind.subresources {
            add(&sub.name);
        }
        if kind.custom.is_some() {
            add(&schemas::inline(&kind.schema, Dialect::V3).to_string());
        }
    }
    hexadecimal(hash.finish().as_ref())
}

/// Bytes as text, two letters each.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    text
}

#[cfg(test)]
mod tests;
