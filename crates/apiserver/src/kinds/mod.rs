//! The kinds this server knows: one description per resource, for built-in kinds and custom resources alike.
//!
//! A [`Kind`] says how a resource is addressed and discovered, what its objects look like (schema) and how
//! its objects are treated when they are written ([`Strategy`]: defaults, what a client may not set,
//! validation). All of it is data and plain functions on JSON values: no I/O, no clock.
//!
//! Order of calls for a write, as kube-apiserver has it:
//! create: `default` → mutating admission → system fields (uid, creationTimestamp, name) →
//! `prepare_create` → `validate_create` → validating admission.
//! update: `default` → mutating admission → `prepare_update` → `validate_update` → validating admission.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::schema::SchemaRef;
use crate::schema::decode::Target;
use crate::status::FieldError;

mod admission;
mod builtin;
mod cluster;
pub mod custom;
mod definition;
mod events;
pub mod fields;
mod lifecycle;
pub mod meta;
pub mod pod;
mod policy;
mod quantities;
mod rbac;
mod read;
pub mod service;
mod storage;
mod strategy;
mod workloads;

pub use admission::missing_for_conditions;
pub use custom::Custom;
pub use fields::Field;
pub use strategy::{Generation, Part, Strategy};

/// Text that is fixed for built-in kinds and owned for custom ones.
pub type Text = Cow<'static, str>;

pub const CREATE: &str = "create";
pub const DELETE: &str = "delete";
pub const DELETE_COLLECTION: &str = "deletecollection";
pub const GET: &str = "get";
pub const LIST: &str = "list";
pub const PATCH: &str = "patch";
pub const UPDATE: &str = "update";
pub const WATCH: &str = "watch";

/// Every verb of a stored resource, in the order discovery shows them.
pub const ALL_VERBS: &[&str] = &[CREATE, DELETE, DELETE_COLLECTION, GET, LIST, PATCH, UPDATE, WATCH];
/// Namespaces cannot be deleted as a collection.
pub const NO_COLLECTION_DELETE: &[&str] = &[CREATE, DELETE, GET, LIST, PATCH, UPDATE, WATCH];
/// Questions to the server (reviews): asked by creating them, never stored.
pub const CREATE_ONLY: &[&str] = &[CREATE];
/// `status`, `scale` and the like.
pub const READ_WRITE: &[&str] = &[GET, PATCH, UPDATE];

/// A resource behind a resource: `pods/eviction`, `deployments/scale`.
#[derive(Debug, Clone)]
pub struct Subresource {
    pub name: Text,
    /// The kind of its body. Group and version differ from the parent's for `scale`, `eviction`, `token`.
    pub group: Text,
    pub version: Text,
    pub kind: Text,
    pub verbs: &'static [&'static str],
}

/// One resource of one API version.
#[derive(Debug, Clone)]
pub struct Kind {
    pub group: Text,
    pub version: Text,
    pub kind: Text,
    pub list_kind: Text,
    pub plural: Text,
    pub singular: Text,
    pub short_names: Vec<Text>,
    pub categories: Vec<Text>,
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
    pub subresources: Vec<Subresource>,
    pub schema: SchemaRef,
    /// Under which (group, plural) its objects are stored. Two kinds may share a storage
    /// (events of the core group and of `events.k8s.io`).
    pub storage: (Text, Text),
    pub strategy: Strategy,
    /// Present for custom resources.
    pub custom: Option<Arc<Custom>>,
}

impl Kind {
    /// `apps/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `deployments.apps`, or `pods` in the core group.
    pub fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone().into_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    pub fn is_builtin(&self) -> bool {
        self.custom.is_none()
    }

    /// Stored at all? Reviews are answered and forgotten.
    pub fn is_stored(&self) -> bool {
        self.allows(GET)
    }

    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// What an object of this kind is decoded as.
    pub fn target(&self) -> Target<'_> {
        Target {
            group: &self.group,
            version: &self.version,
            kind: &self.kind,
            schema: &self.schema,
            custom: !self.is_builtin(),
        }
    }

    /// Fills in what the client left out. Idempotent. Quantities come out in canonical form.
    ///
    /// For custom resources the defaults of the schema are the caller's step; this does nothing.
    pub fn default(&self, object: &mut Value) {
        if self.is_builtin() {
            quantities::canonicalise(&self.schema, object);
        }
        (self.strategy.default)(object);
    }

    /// Takes away what a client may not set on creation and sets what only the server sets.
    /// `metadata.uid`, `name` and `creationTimestamp` are already there.
    pub fn prepare_create(&self, object: &mut Value, now: Timestamp) {
        self.strategy.run_prepare_create(object, now);
    }

    /// The same for a changed object: `part` says what the request may change.
    pub fn prepare_update(&self, old: &Value, new: &mut Value, part: Part, now: Timestamp) {
        self.strategy.run_prepare_update(old, new, part, now);
    }

    /// Definitions and the objects they define belong to other servers inside kube-apiserver, which do
    /// not ask for a domain in finalizer names.
    fn wants_qualified_finalizers(&self) -> bool {
        self.is_builtin() && !matches!(self.group.as_ref(), "apiextensions.k8s.io" | "apiregistration.k8s.io")
    }

    /// What is wrong with a new object. Empty means valid.
    /// For custom resources the checks of the schema are the caller's step; this checks the metadata.
    pub fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        meta::validate(object, self.namespaced, self.strategy.name, &mut errors);
        if self.wants_qualified_finalizers() {
            meta::finalizer_names(object, &mut errors);
        }
        (self.strategy.validate)(object, &mut errors);
        errors
    }

    /// What is wrong with a change. Empty means valid.
    pub fn validate_update(&self, old: &Value, new: &Value, part: Part) -> Vec<FieldError> {
        let mut errors = Vec::new();
        meta::validate_update(old, new, &mut errors);
        if self.wants_qualified_finalizers() {
            meta::finalizer_names(new, &mut errors);
        }
        match part {
            Part::Status => (self.strategy.validate_status)(old, new, &mut errors),
            other => (self.strategy.validate_update)(old, new, other, &mut errors),
        }
        errors
    }

    /// From the form of this version to the stored form. `None`: they are the same.
    pub fn to_stored(&self) -> Option<fn(Value) -> Value> {
        self.strategy.convert.map(|c| c.to_stored)
    }

    /// From the stored form to the form of this version. `None`: they are the same.
    pub fn from_stored(&self) -> Option<fn(Value) -> Value> {
        self.strategy.convert.map(|c| c.from_stored)
    }
}

/// `apps/v1`, or `v1` in the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Splits `apps/v1` into group and version; a lone `v1` is the core group.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// All kinds, found by resource or by kind. Cheap to copy on change: the entries are shared.
#[derive(Debug, Clone, Default)]
pub struct Kinds {
    /// Ordered by group, version, plural.
    by_plural: Vec<Arc<Kind>>,
    /// Ordered by group, version, kind.
    by_kind: Vec<Arc<Kind>>,
}

fn plural_key(kind: &Kind) -> (&str, &str, &str) {
    (&kind.group, &kind.version, &kind.plural)
}

fn kind_key(kind: &Kind) -> (&str, &str, &str) {
    (&kind.group, &kind.version, &kind.kind)
}

impl Kinds {
    /// The built-in kinds of the profile.
    pub fn builtin() -> Self {
        let mut kinds = Self::default();
        for kind in builtin::all() {
            kinds.insert(kind);
        }
        kinds
    }

    /// Adds a kind, or replaces the one at the same group, version and plural.
    pub fn insert(&mut self, kind: Kind) -> Arc<Kind> {
        let kind = Arc::new(kind);
        self.remove(&kind.group, &kind.version, &kind.plural);
        let at = self.by_plural.partition_point(|k| plural_key(k) < plural_key(&kind));
        self.by_plural.insert(at, kind.clone());
        let at = self.by_kind.partition_point(|k| kind_key(k) < kind_key(&kind));
        self.by_kind.insert(at, kind.clone());
        kind
    }

    pub fn remove(&mut self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        let at = self.by_plural.binary_search_by(|k| plural_key(k).cmp(&(group, version, plural))).ok()?;
        let gone = self.by_plural.remove(at);
        self.by_kind.retain(|k| !Arc::ptr_eq(k, &gone));
        Some(gone)
    }

    pub fn by_plural(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        let at = self.by_plural.binary_search_by(|k| plural_key(k).cmp(&(group, version, plural))).ok()?;
        self.by_plural.get(at)
    }

    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let at = self.by_kind.binary_search_by(|k| kind_key(k).cmp(&(group, version, kind))).ok()?;
        self.by_kind.get(at)
    }

    /// All kinds, ordered by group, version, plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.by_plural.iter()
    }

    pub fn of_group_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Kind>> {
        self.iter().filter(move |k| k.group == group && k.version == version)
    }

    pub fn has_group(&self, group: &str) -> bool {
        self.iter().any(|k| k.group == group)
    }
}

#[cfg(test)]
mod tests;
