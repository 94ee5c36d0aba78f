//! What objects are called, and by whom they are owned.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::text::Text;
pub use super::uid::Uid;

/// Namespace and name of a namespaced object. Clones share it: it stands in the object, in its table and in every link to it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Parts", into = "Parts")]
pub struct Key(Arc<Parts>);

/// The parts of a [`Key`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Parts {
    /// Empty for what has no namespace, such as a node.
    pub namespace: Text,
    /// `metadata.name`.
    pub name: Text,
}

impl Key {
    /// The key of an object with these names.
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>) -> Self {
        Parts { namespace: namespace.into(), name: name.into() }.into()
    }
}

impl From<Parts> for Key {
    fn from(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl From<Key> for Parts {
    fn from(key: Key) -> Self {
        Arc::unwrap_or_clone(key.0)
    }
}

impl Deref for Key {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl DerefMut for Key {
    fn deref_mut(&mut self) -> &mut Parts {
        Arc::make_mut(&mut self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
