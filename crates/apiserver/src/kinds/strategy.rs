//! How objects of a kind are treated when they are written.

use evac_apimachinery::validation::NameRule;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::fields::{Field, Unsupported};
use super::read::{obj, obj_mut, semantic_eq};
use crate::status::FieldError;

/// Which part of an object a request may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The object itself: everything but the status (where there is a status subresource).
    Main,
    Status,
    /// `pods/ephemeralcontainers`.
    EphemeralContainers,
    /// `pods/resize`.
    Resize,
    /// `pods/binding` and `pods/eviction` write the pod on behalf of the server.
    Internal,
    /// `namespaces/finalize`.
    Finalize,
}

/// When `metadata.generation` moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    None,
    /// A change of these top-level fields.
    Fields(&'static [&'static str]),
    /// A change of the spec or of the annotations (Deployments).
    SpecAndAnnotations,
    /// A change of anything but metadata (and, with a status subresource, status).
    AllButMetadata,
}

/// Conversion between the form of a version and the stored form.
#[derive(Debug, Clone, Copy)]
pub struct Convert {
    pub to_stored: fn(Value) -> Value,
    pub from_stored: fn(Value) -> Value,
}

type Validate = fn(&Value, &mut Vec<FieldError>);
type ValidateUpdate = fn(&Value, &Value, Part, &mut Vec<FieldError>);
type ValidateStatus = fn(&Value, &Value, &mut Vec<FieldError>);

#[allow(clippy::struct_excessive_bools, reason = "independent facts about a kind, named where they are set")]
/// The treatment of one kind. Most kinds differ from [`Strategy::PLAIN`] in a few entries.
#[derive(Debug, Clone, Copy)]
pub struct Strategy {
    pub default: fn(&mut Value),
    pub prepare_create: fn(&mut Value, Timestamp),
    pub prepare_update: fn(&Value, &mut Value, Part, Timestamp),
    pub validate: Validate,
    pub validate_update: ValidateUpdate,
    pub validate_status: ValidateStatus,
    /// There is a status that only `…/status` may change.
    pub has_status: bool,
    /// Creation may set the status (nodes).
    pub status_on_create: bool,
    /// The status subresource keeps the metadata of the stored object whole (all of it, not only
    /// what the server owns). Custom resources and a few newer kinds do this.
    pub status_keeps_metadata: bool,
    pub generation: Generation,
    pub name: NameRule,
    /// A PUT to a name that does not exist creates it.
    pub create_on_update: bool,
    /// A PUT without a resource version overwrites.
    pub unconditional_update: bool,
    /// What a field selector may ask for, besides name and namespace.
    pub fields: &'static [Field],
    /// How an unknown field label is refused.
    pub unsupported: Unsupported,
    pub convert: Option<Convert>,
}

fn nothing(_: &mut Value) {}
fn nothing_at_create(_: &mut Value, _: Timestamp) {}
fn nothing_at_update(_: &Value, _: &mut Value, _: Part, _: Timestamp) {}
fn valid(_: &Value, _: &mut Vec<FieldError>) {}
fn valid_update(_: &Value, _: &Value, _: Part, _: &mut Vec<FieldError>) {}
fn valid_status(_: &Value, _: &Value, _: &mut Vec<FieldError>) {}

impl Strategy {
    /// A kind without status, generation or rules of its own.
    pub const PLAIN: Self = Self {
        default: nothing,
        prepare_create: nothing_at_create,
        prepare_update: nothing_at_update,
        validate: valid,
        validate_update: valid_update,
        validate_status: valid_status,
        has_status: false,
        status_on_create: false,
        status_keeps_metadata: false,
        generation: Generation::None,
        name: NameRule::Subdomain,
        create_on_update: false,
        unconditional_update: true,
        fields: &[],
        unsupported: Unsupported::OnlyMeta,
        convert: None,
    };

    /// A kind with spec, status subresource and a generation that follows the spec.
    pub const SPEC_AND_STATUS: Self =
        Self { has_status: true, generation: Generation::Fields(&["spec"]), ..Self::PLAIN };

    /// A kind with a status subresource and no generation.
    pub const STATUS: Self = Self { has_status: true, ..Self::PLAIN };

    pub(super) fn run_prepare_create(&self, object: &mut Value, now: Timestamp) {
        if self.has_status
            && !self.status_on_create
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        if self.generation != Generation::None {
            obj_mut(object, "metadata").insert("generation".into(), json!(1));
        }
        (self.prepare_create)(object, now);
    }

    pub(super) fn run_prepare_update(&self, old: &Value, new: &mut Value, part: Part, now: Timestamp) {
        match part {
            Part::Status => self.keep_all_but_status(old, new),
            Part::Main if self.has_status => copy_field(old, new, "status"),
            _ => {}
        }
        keep_system_metadata(old, new);
        (self.prepare_update)(old, new, part, now);
        if part != Part::Status && self.has_moved(old, new) {
            let generation = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
            obj_mut(new, "metadata").insert("generation".into(), json!(generation + 1));
        }
    }

    /// A status update leaves everything else as it is stored.
    fn keep_all_but_status(&self, old: &Value, new: &mut Value) {
        let status = new.as_object_mut().and_then(|m| m.remove("status"));
        let metadata = new.as_object_mut().and_then(|m| m.remove("metadata"));
        let mut kept = old.clone();
        if let Some(map) = kept.as_object_mut() {
            match status {
                Some(status) => map.insert("status".into(), status),
                None => map.remove("status"),
            };
            match metadata {
                Some(Value::Object(metadata)) if self.status_keeps_metadata => {
                    let old = obj(old, "metadata");
                    let mut merged = old.cloned().unwrap_or_default();
                    for key in ["managedFields", "resourceVersion"] {
                        carry(&metadata, &mut merged, key);
                    }
                    map.insert("metadata".into(), Value::Object(merged));
                }
                Some(metadata) => {
                    map.insert("metadata".into(), metadata);
                }
                None => {}
            }
        }
        *new = kept;
    }

    fn has_moved(&self, old: &Value, new: &Value) -> bool {
        match self.generation {
            Generation::None => false,
            Generation::Fields(fields) => fields.iter().any(|f| !semantic_eq(old.get(*f), new.get(*f))),
            Generation::SpecAndAnnotations => ["/spec", "/metadata/annotations"]
                .iter()
                .any(|p| !semantic_eq(old.pointer(p), new.pointer(p))),
            Generation::AllButMetadata => {
                let empty = Map::new();
                let (a, b) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
                let counts = |key: &str| {
                    key != "metadata"
                        && key != "apiVersion"
                        && key != "kind"
                        && !(self.has_status && key == "status")
                };
                a.keys().chain(b.keys()).any(|k| counts(k) && a.get(k) != b.get(k))
            }
        }
    }
}

fn carry(from: &Map<String, Value>, to: &mut Map<String, Value>, key: &str) {
    match from.get(key) {
        Some(value) => to.insert(key.to_owned(), value.clone()),
        None => to.remove(key),
    };
}

fn copy_field(old: &Value, new: &mut Value, field: &str) {
    if let Some(map) = new.as_object_mut() {
        match old.get(field) {
            Some(value) => map.insert(field.to_owned(), value.clone()),
            None => map.remove(field),
        };
    }
}

/// What no update can change: a client that sends something else is not told, the stored value stays.
fn keep_system_metadata(old: &Value, new: &mut Value) {
    let Some(stored) = obj(old, "metadata") else { return };
    let metadata = obj_mut(new, "metadata");
    carry(stored, metadata, "generation");
    carry(stored, metadata, "selfLink");
    if !metadata.contains_key("uid") {
        carry(stored, metadata, "uid");
    }
    carry(stored, metadata, "creationTimestamp");
    if stored.contains_key("deletionTimestamp") {
        carry(stored, metadata, "deletionTimestamp");
    }
    if !metadata.contains_key("deletionGracePeriodSeconds") {
        carry(stored, metadata, "deletionGracePeriodSeconds");
    }
}
