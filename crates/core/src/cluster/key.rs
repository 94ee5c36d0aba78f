//! What objects are called, and by whom they are owned.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::text::Text;

/// Namespace and name of a namespaced object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Empty for what has no namespace, such as a node.
    pub namespace: Text,
    /// `metadata.name`.
    pub name: Text,
}

impl Key {
    /// The key of these two.
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The identity of one incarnation of an object: a pod re-created under its old name has another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(pub Text);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A controlling owner reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Group and version, as `apps/v1`.
    pub api_version: Text,
    /// The kind, as `DaemonSet`.
    pub kind: Text,
    /// Its name, in the namespace of what it owns.
    pub name: Text,
    /// Which incarnation of it.
    pub uid: Uid,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}
