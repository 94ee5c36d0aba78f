//! Managed fields: who owns which field of an object.
//!
//! [`track`] records what a create, update or patch changed. [`apply`] is server-side apply: it lays a
//! configuration over the live object, refuses to change what others own, and takes away what this
//! manager no longer asks for.

mod entries;
mod set;
mod typed;

use jiff::Timestamp;
use serde_json::{Map, Value};

pub use self::entries::Operation;
use self::entries::{Entry, fold_oldest, starting_from, take};
pub use self::set::FieldSet;
use crate::schema::{Schema, SchemaRef, Shape, Zero, canonical};
use crate::status::ApiError;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotations may not be larger than this together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Who writes, and how.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// The field manager; `unknown` when empty.
    pub manager: &'a str,
    /// `apps/v1`.
    pub api_version: &'a str,
    /// `status`, `scale`, or empty.
    pub subresource: &'a str,
    pub now: Timestamp,
    /// Fields this endpoint does not change (`status` on the main resource): nobody comes to own them here.
    pub ignored: Option<&'a FieldSet>,
}

impl Writer<'_> {
    fn entry(&self, operation: Operation, fields: FieldSet) -> Entry {
        Entry {
            manager: if self.manager.is_empty() { "unknown".to_owned() } else { self.manager.to_owned() },
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            // Ownership through scale goes a way round on which the time is lost.
            time: (self.subresource != "scale").then(|| self.time()),
            fields,
        }
    }

    fn time(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

/// A field that somebody else owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager as the answer names it: `"kubectl" using apps/v1`.
    pub manager: String,
    pub field: String,
}

/// Why a configuration was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The request contradicts itself.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not fit the type.
    #[error("{0}")]
    Untyped(String),
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager, only.field);
    }
    let mut lines = Vec::new();
    let mut before = "";
    for conflict in conflicts {
        if conflict.manager != before {
            lines.push(format!("conflicts with {}:", conflict.manager));
            before = &conflict.manager;
        }
        lines.push(format!("- {}", conflict.field));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        let message = error.to_string();
        match error {
            ApplyError::Conflicts(conflicts) => {
                let mut answer = Self::new(409, "Conflict", message);
                answer.details = Box::default();
                for conflict in conflicts {
                    let text = format!("conflict with {}", conflict.manager);
                    answer = answer.with_cause("FieldManagerConflict", text, &conflict.field);
                }
                answer
            }
            ApplyError::BadRequest(_) => Self::bad_request(message),
            ApplyError::Untyped(_) => Self::new(500, "", message),
        }
    }
}

/// Fields that identify an object or that only the server sets; nobody owns them.
fn identity_fields() -> &'static FieldSet {
    static FIELDS: std::sync::OnceLock<FieldSet> = std::sync::OnceLock::new();
    FIELDS.get_or_init(|| {
        FieldSet::of_fields(&[
            &["apiVersion"],
            &["kind"],
            &["metadata"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "creationTimestamp"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
            &["metadata", "clusterName"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "resourceVersion"],
        ])
    })
}

/// Whether a type is a published one, whose objects are written in the form of its Go types.
fn is_builtin(schema: &SchemaRef) -> bool {
    schema.name().is_some()
}

/// What an object of a type is before it is created: for built-in kinds the parts that always stand there.
pub fn nothing(schema: &SchemaRef) -> Value {
    fn hollow(schema: &Schema) -> Value {
        let mut fields = Map::new();
        if let (Shape::Object { fields: described, .. }, Some(go)) = (&schema.shape, &schema.go) {
            for (name, rule) in &go.zero {
                if *rule == Zero::Always
                    && let Some(field) = described.get(name)
                {
                    let value = match &field.get().shape {
                        Shape::Object { .. } => hollow(field.get()),
                        Shape::List { .. } | Shape::Map { .. } => Value::Null,
                        _ => continue,
                    };
                    fields.insert(name.as_ref().to_owned(), value);
                }
            }
        }
        let mut value = Value::Object(fields);
        canonical::complete(schema, &mut value);
        value
    }
    if is_builtin(schema) { hollow(schema.get()) } else { Value::Object(Map::new()) }
}

/// Records in `new` what this create, update or patch changed against `old`. Built-in objects are also
/// brought into the form in which the server writes them.
pub fn track(schema: &SchemaRef, old: Option<&Value>, new: &mut Value, by: &Writer<'_>) {
    let given = take(new);
    let mut entries = starting_from(old, given, !by.subresource.is_empty());
    if is_builtin(schema) {
        canonical::complete(schema.get(), new);
    }
    let comparison = match old {
        Some(old) => typed::compare(schema.get(), old, new),
        None => typed::compare(schema.get(), &nothing(schema), new),
    };
    let comparison = match by.ignored {
        Some(ignored) => comparison.without_trees(ignored),
        None => comparison,
    };
    if !comparison.is_empty() {
        let changed = comparison.set();
        for entry in &mut entries {
            if entry.fields.intersects(&changed) {
                entry.fields = entry.fields.difference(&changed);
            }
            if entry.fields.intersects(&comparison.removed) {
                entry.fields = entry.fields.difference(&comparison.removed);
            }
        }
        entries.retain(|entry| !entry.fields.is_empty());
        let own = changed.difference(identity_fields());
        if !own.is_empty() {
            let current = by.entry(Operation::Update, own);
            match entries.iter_mut().find(|entry| entry.is_same_manager(&current)) {
                Some(entry) => {
                    entry.fields.unite(&current.fields);
                    entry.time = current.time;
                }
                None => entries.push(current),
            }
        }
    }
    entries::write(new, fold_oldest(entries));
}

/// Server-side apply. Gives the object that results, without defaults for fields that are new; the caller
/// decodes, defaults and compares it as after any patch.
pub fn apply(
    schema: &SchemaRef,
    live: Option<&Value>,
    config: &Value,
    force: bool,
    by: &Writer<'_>,
) -> Result<Value, ApplyError> {
    check_config(schema, config, by)?;
    let mut outcome = apply_once(schema, live, config, force, by);
    // kubectl that used to apply on the client side may take over what it applied then.
    if by.manager == "kubectl"
        && let (Err(ApplyError::Conflicts(conflicts)), Some(live)) = (&outcome, live)
        && let Some(allowed) = last_applied_fields(schema.get(), live, by)
    {
        let allowed: std::collections::BTreeSet<String> = allowed.paths().into_iter().collect();
        let left: Vec<Conflict> = conflicts.iter().filter(|c| !allowed.contains(&c.field)).cloned().collect();
        outcome = if left.is_empty() {
            apply_once(schema, Some(live), config, true, by)
        } else {
            Err(ApplyError::Conflicts(left))
        };
    }
    let mut object = outcome?;
    if by.manager == "kubectl" {
        renew_last_applied(&mut object, config);
    }
    Ok(object)
}

fn check_config(schema: &SchemaRef, config: &Value, by: &Writer<'_>) -> Result<(), ApplyError> {
    let word = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
    if word("apiVersion") != by.api_version {
        return Err(ApplyError::BadRequest(format!(
            "Incorrect version specified in apply patch. Specified patch version: {}, expected: {}",
            word("apiVersion"),
            by.api_version
        )));
    }
    let metadata = config.get("metadata");
    if metadata.and_then(|m| m.get("managedFields")).is_some_and(|m| !m.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let mut errors = Vec::new();
    typed::check(schema.get(), config, "", &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    let of_meta = |key: &str| metadata.and_then(|m| m.get(key)).and_then(Value::as_str).unwrap_or_default();
    let list = match errors.as_slice() {
        [only] => only.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    Err(ApplyError::Untyped(format!(
        "failed to create typed patch object ({}/{}; {}, Kind={}): {list}",
        of_meta("namespace"),
        of_meta("name"),
        if by.api_version.contains('/') { by.api_version.to_owned() } else { format!("/{}", by.api_version) },
        word("kind"),
    )))
}

fn apply_once(
    schema: &SchemaRef,
    live: Option<&Value>,
    config: &Value,
    force: bool,
    by: &Writer<'_>,
) -> Result<Value, ApplyError> {
    let node = schema.get();
    let mut entries = live.map(entries::of).unwrap_or_default();
    let mut before = live.cloned().unwrap_or_else(|| nothing(schema));
    take(&mut before);

    let merged = typed::merge(node, Some(&before), Some(config)).unwrap_or_default();
    let mut asked = typed::fields_of(node, config);
    if let Some(ignored) = by.ignored {
        asked = asked.without_trees(ignored);
    }
    let mut current = by.entry(Operation::Apply, asked);
    let previous =
        entries.iter().position(|entry| entry.is_same_manager(&current)).map(|at| entries.remove(at));
    let after = match &previous {
        Some(last) if !last.fields.is_empty() => {
            prune(node, &merged, &last.fields, &entries, &current.fields)
        }
        _ => merged,
    };

    let comparison = typed::compare(node, &before, &after);
    let comparison = match by.ignored {
        Some(ignored) => comparison.without_trees(ignored),
        None => comparison,
    };
    let changed = comparison.set();
    let mut conflicts = Vec::new();
    for entry in &mut entries {
        let taken = entry.fields.intersection(&changed);
        if !taken.is_empty() {
            let manager = entry.described();
            conflicts
                .extend(taken.paths().into_iter().map(|field| Conflict { manager: manager.clone(), field }));
            entry.fields = entry.fields.difference(&taken);
        }
        if entry.fields.intersects(&comparison.removed) {
            entry.fields = entry.fields.difference(&comparison.removed);
        }
    }
    if !force && !conflicts.is_empty() {
        conflicts.sort_by(|a, b| a.manager.cmp(&b.manager));
        return Err(ApplyError::Conflicts(conflicts));
    }
    entries.retain(|entry| !entry.fields.is_empty());

    let no_change = live.is_some() && typed::same(&before, &after);
    if no_change {
        current.time = previous.and_then(|last| last.time);
    }
    current.fields = current.fields.difference(identity_fields());
    if !current.fields.is_empty() {
        entries.push(current);
    }
    let mut object = if no_change { before } else { after };
    entries::write(&mut object, entries);
    Ok(object)
}

/// Takes away what this manager applied last time and not now, unless somebody else owns it.
fn prune(node: &Schema, merged: &Value, last: &FieldSet, others: &[Entry], asked: &FieldSet) -> Value {
    let wide = |set: &FieldSet| typed::with_declared_parents(node, set);
    let last = wide(last);
    let pruned = typed::remove(node, merged, &last).unwrap_or_default();
    let mut owned = asked.clone();
    for entry in others {
        owned.unite(&entry.fields);
    }
    let all = wide(&typed::fields_of(node, merged));
    let keep = wide(&typed::fields_of(node, &pruned)).union(&wide(&owned));
    let pruned = typed::remove(node, merged, &all.difference(&keep)).unwrap_or_default();
    // Only what was ours may go; what nobody owns stays.
    let left = wide(&typed::fields_of(node, &pruned));
    typed::remove(node, merged, &all.difference(&left).intersection(&last)).unwrap_or_default()
}

/// The fields that a client-side apply set and that are still as it set them.
fn last_applied_fields(schema: &Schema, live: &Value, by: &Writer<'_>) -> Option<FieldSet> {
    let text = live.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
    let config: Value = serde_json::from_str(text).ok()?;
    if config.get("apiVersion")?.as_str()? != by.api_version {
        return None;
    }
    let comparison = typed::compare(schema, &config, live);
    let fields = typed::fields_of(schema, &config);
    Some(fields.difference(&comparison.set()).difference(&comparison.removed))
}

/// Keeps the annotation of client-side apply in step, so that going back to it is possible.
fn renew_last_applied(object: &mut Value, config: &Value) {
    let Some(Value::Object(annotations)) = object.get_mut("metadata").and_then(|m| m.get_mut("annotations"))
    else {
        return;
    };
    if annotations.get(LAST_APPLIED).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = config.clone();
    if let Some(Value::Object(own)) = applied.get_mut("metadata").and_then(|m| m.get_mut("annotations")) {
        own.remove(LAST_APPLIED);
    }
    annotations.insert(LAST_APPLIED.to_owned(), Value::String(format!("{applied}\n")));
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}

/// Whether two states of an object differ in nothing but the times of managed fields. Such a write is no
/// change at all.
pub fn same_but_for_times(old: &Value, new: &Value) -> bool {
    fn equal_except(a: &Map<String, Value>, b: &Map<String, Value>, except: &str) -> bool {
        let count = |m: &Map<String, Value>| m.len() - usize::from(m.contains_key(except));
        count(a) == count(b)
            && a.iter().all(|(k, v)| k == except || b.get(k).is_some_and(|w| typed::same(v, w)))
    }
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return false };
    let nothing = Map::new();
    let old_meta = old.get("metadata").and_then(Value::as_object).unwrap_or(&nothing);
    let new_meta = new.get("metadata").and_then(Value::as_object).unwrap_or(&nothing);
    if !equal_except(old, new, "metadata") || !equal_except(old_meta, new_meta, "managedFields") {
        return false;
    }
    let list = |meta: &Map<String, Value>| -> Vec<Map<String, Value>> {
        let entries = meta.get("managedFields").and_then(Value::as_array);
        entries.into_iter().flatten().filter_map(Value::as_object).cloned().collect()
    };
    let (old, new) = (list(old_meta), list(new_meta));
    old.len() == new.len() && old.iter().zip(&new).all(|(a, b)| equal_except(a, b, "time"))
}

#[cfg(test)]
mod tests;
