//! The fields of a patch.
//!
//! A patch is written as a tree of fields and always names the incarnation, and the version that was looked at, so that a
//! decision made on an old view fails instead of overwriting.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cluster::text::Text;

/// A value in a patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Tree {
    /// Removes the field.
    Null(()),
    /// True or false.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Tree>),
    /// Fields by their names.
    Map(BTreeMap<String, Tree>),
}

impl Tree {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Removes the field.
    pub fn null() -> Self {
        Self::Null(())
    }

    /// Fields by their names.
    pub fn map<K: Into<String>>(fields: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Map(fields.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    /// A list of texts.
    pub fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    /// One value at a path, and nothing else.
    pub fn at(path: &[&str], value: Self) -> Self {
        let mut tree = Self::default();
        tree.put(path, value);
        tree
    }

    /// The finalizers without this one, if it is among them.
    pub fn without_finalizer(finalizers: &[Text], name: &str) -> Option<Self> {
        let left = finalizers.iter().map(Text::as_str).filter(|known| *known != name);
        let is_there = finalizers.iter().any(|known| known == name);
        is_there.then(|| Self::at(&["metadata", "finalizers"], Self::texts(left)))
    }

    /// Puts a value at a path, making maps on the way.
    pub fn put(&mut self, path: &[&str], value: Self) {
        let Some((first, rest)) = path.split_first() else {
            *self = value;
            return;
        };
        if !matches!(self, Self::Map(_)) {
            *self = Self::Map(BTreeMap::new());
        }
        if let Self::Map(fields) = self {
            fields.entry((*first).to_owned()).or_insert_with(|| Self::Map(BTreeMap::new())).put(rest, value);
        }
    }

    /// The value at a path.
    pub fn get(&self, path: &[&str]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        match self {
            Self::Map(fields) => fields.get(*first)?.get(rest),
            _ => None,
        }
    }

    /// The text that it is, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether no field is changed.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Map(fields) if fields.is_empty())
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::Map(BTreeMap::new())
    }
}

/// Which face of an object a patch is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The object itself.
    Main,
    /// Its subresource `status`.
    Status,
}
