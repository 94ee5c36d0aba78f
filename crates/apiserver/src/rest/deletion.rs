//! What a delete request does to an object: pure decisions, in the order kube-apiserver takes them.
//!
//! ```text
//!   stored ──delete──▶ being deleted (deletionTimestamp, grace, finalizers) ──last hold gone──▶ removed
//!      └──────────────── no grace and no finalizer: at once ───────────────────────────────────▶
//! ```
//! The grace period may only be shortened; finalizers only ever disappear from an object being deleted.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::kinds::meta::seconds;
use crate::status::{About, ApiError, FieldError};

pub const ORPHAN: &str = "orphan";
pub const FOREGROUND: &str = "foregroundDeletion";

/// The caller's wishes, from the body and the query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub propagation_policy: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// The kind leaves its dependents alone when nobody says otherwise.
    pub orphans_by_default: bool,
    /// `["All"]` for a dry run.
    pub dry_run: Vec<String>,
}

impl DeleteOptions {
    /// Reads a `DeleteOptions` body.
    pub fn from_body(body: &Value) -> Self {
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Self {
            grace_period_seconds: body.get("gracePeriodSeconds").and_then(Value::as_i64),
            propagation_policy: text("/propagationPolicy"),
            orphan_dependents: body.get("orphanDependents").and_then(Value::as_bool),
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            orphans_by_default: false,
            dry_run: body
                .get("dryRun")
                .and_then(Value::as_array)
                .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
                .unwrap_or_default(),
        }
    }

    pub fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    pub fn validate(&self) -> Result<(), ApiError> {
        let mut errors = Vec::new();
        if self.orphan_dependents.is_some() && self.propagation_policy.is_some() {
            errors.push(FieldError::invalid(
                "propagationPolicy",
                self.propagation_policy.clone().unwrap_or_default(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        if let Some(policy) = &self.propagation_policy
            && !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan")
        {
            errors.push(FieldError::not_supported(
                "propagationPolicy",
                policy.clone(),
                &["Foreground", "Background", "Orphan", "nil"],
            ));
        }
        errors.extend(super::query::dry_run_errors(&self.dry_run));
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(About { group: "meta.k8s.io", kind: "DeleteOptions", name: "" }, &errors))
    }
}

/// Refuses when the object is not the one the caller means.
pub fn check_preconditions(
    options: &DeleteOptions,
    object: &Value,
    about: About<'_>,
) -> Result<(), ApiError> {
    let stored = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    if let Some(uid) = &options.uid
        && *uid != stored("uid")
    {
        return Err(ApiError::conflict(
            about,
            &format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object \
                 might have been deleted and then recreated",
                stored("uid")
            ),
        ));
    }
    if let Some(version) = &options.resource_version
        && *version != stored("resourceVersion")
    {
        return Err(ApiError::conflict(
            about,
            &format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in \
                 record ({}). The object might have been modified",
                stored("resourceVersion")
            ),
        ));
    }
    Ok(())
}

/// What to do with the stored object.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Take it out of the store; this is its last state.
    Remove(Value),
    /// Write it back, marked as being deleted.
    Mark(Value),
    /// Already being deleted, nothing to add.
    Pending,
}

/// Decides one delete request.
///
/// `grace` is the grace period a pod would get (`None` for kinds without graceful deletion).
pub fn decide(
    object: &Value,
    options: &DeleteOptions,
    grace: Option<i64>,
    about: About<'_>,
    now: Timestamp,
) -> Result<Step, ApiError> {
    check_preconditions(options, object, about)?;
    let mut next = object.clone();
    let Some(metadata) = next.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Ok(Step::Remove(next));
    };
    let graceful = match grace {
        None => Graceful::No,
        Some(period) => begin_grace(metadata, options, period, now),
    };
    if graceful == Graceful::Pending {
        return Ok(Step::Pending);
    }
    let finalizers = wanted_finalizers(metadata, options);
    let held = !finalizers.is_empty();
    if held {
        metadata.insert("finalizers".into(), json!(finalizers));
    } else {
        metadata.remove("finalizers");
    }
    match graceful {
        Graceful::Begun { period } if held || period > 0 => Ok(Step::Mark(next)),
        Graceful::No if held => {
            mark(metadata, now);
            if next == *object { Ok(Step::Pending) } else { Ok(Step::Mark(next)) }
        }
        _ => Ok(Step::Remove(next)),
    }
}

/// The grace period of a pod: the caller's, else its own; none for a pod that does not run.
pub fn pod_grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let unscheduled = pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let finished = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    if unscheduled || finished {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
    let period = options.grace_period_seconds.unwrap_or(own);
    if period < 0 { 1 } else { period }
}

/// True when nothing holds an object that is being deleted any more.
pub fn may_be_removed(object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata.get("deletionTimestamp").is_some()
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Graceful {
    No,
    Begun { period: i64 },
    Pending,
}

fn begin_grace(
    metadata: &mut Map<String, Value>,
    options: &DeleteOptions,
    period: i64,
    now: Timestamp,
) -> Graceful {
    let deleting: Option<Timestamp> =
        metadata.get("deletionTimestamp").and_then(Value::as_str).and_then(|t| t.parse().ok());
    let Some(deadline) = deleting else {
        set_deadline(metadata, now + SignedDuration::from_secs(period), period);
        raise_generation(metadata);
        return Graceful::Begun { period };
    };
    let running = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    if running == 0 {
        return Graceful::No;
    }
    let Some(wanted) = options.grace_period_seconds.map(|p| if p < 0 { 1 } else { p }) else {
        return Graceful::Pending;
    };
    if wanted >= running {
        return Graceful::Pending;
    }
    let moved = deadline - SignedDuration::from_secs(running) + SignedDuration::from_secs(wanted);
    if moved < now {
        // The whole shorter period has passed already: the shortest graceful period there is, so that
        // whoever runs the object still does the last step.
        let period = wanted.min(1);
        set_deadline(metadata, now, period);
        return Graceful::Begun { period };
    }
    set_deadline(metadata, moved, wanted);
    Graceful::Begun { period: wanted }
}

fn set_deadline(metadata: &mut Map<String, Value>, at: Timestamp, period: i64) {
    metadata.insert("deletionTimestamp".into(), json!(seconds(at)));
    metadata.insert("deletionGracePeriodSeconds".into(), json!(period));
}

/// Marks an object that only finalizers hold.
fn mark(metadata: &mut Map<String, Value>, now: Timestamp) {
    if !metadata.contains_key("deletionTimestamp") {
        raise_generation(metadata);
        metadata.insert("deletionTimestamp".into(), json!(seconds(now)));
    }
    metadata.insert("deletionGracePeriodSeconds".into(), json!(0));
}

fn raise_generation(metadata: &mut Map<String, Value>) {
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|g| *g > 0) {
        metadata.insert("generation".into(), json!(generation + 1));
    }
}

/// The finalizers after the caller's wish for the dependents was written into them.
fn wanted_finalizers(metadata: &Map<String, Value>, options: &DeleteOptions) -> Vec<String> {
    let existing: Vec<String> = metadata
        .get("finalizers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let has = |name: &str| existing.iter().any(|f| f == name);
    let policy = options.propagation_policy.as_deref();
    let orphan = match (options.orphan_dependents, policy) {
        (Some(wish), _) => wish,
        (None, Some(policy)) => policy == "Orphan",
        (None, None) => has(ORPHAN) || (options.orphans_by_default && !has(FOREGROUND)),
    };
    let foreground = match (options.orphan_dependents, policy) {
        (Some(_), _) => false,
        (None, Some(policy)) => policy == "Foreground",
        (None, None) => has(FOREGROUND),
    };
    let mut wanted: Vec<String> =
        existing.iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).cloned().collect();
    if orphan {
        wanted.push(ORPHAN.into());
    }
    if foreground {
        wanted.push(FOREGROUND.into());
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: About<'static> = About { group: "", kind: "pods", name: "p" };

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn pod() -> Value {
        json!({"metadata": {"name": "p", "uid": "u", "generation": 1},
               "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}})
    }

    fn delete(object: &Value, options: &DeleteOptions, at: Timestamp) -> Step {
        decide(object, options, Some(pod_grace(object, options)), POD, at).unwrap()
    }

    #[test]
    fn a_running_pod_gets_its_grace_and_a_higher_generation() {
        let Step::Mark(marked) = delete(&pod(), &DeleteOptions::default(), now()) else { panic!() };
        assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
        assert_eq!(marked["metadata"]["generation"], 2);
        assert_eq!(delete(&marked, &DeleteOptions::default(), now()), Step::Pending);
    }

    #[test]
    fn a_grace_period_can_only_be_shortened() {
        let Step::Mark(marked) = delete(&pod(), &DeleteOptions::default(), now()) else { panic!() };
        let longer = DeleteOptions { grace_period_seconds: Some(60), ..DeleteOptions::default() };
        assert_eq!(delete(&marked, &longer, now()), Step::Pending);
        let shorter = DeleteOptions { grace_period_seconds: Some(5), ..DeleteOptions::default() };
        let Step::Mark(sooner) = delete(&marked, &shorter, now()) else { panic!() };
        assert_eq!(sooner["metadata"]["deletionTimestamp"], "2026-01-01T00:00:05Z");
        let zero = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        assert!(matches!(delete(&marked, &zero, now()), Step::Remove(_)));
    }

    #[test]
    fn a_pod_that_does_not_run_is_removed_at_once() {
        let mut pending = pod();
        pending["spec"]["nodeName"] = json!("");
        assert!(matches!(delete(&pending, &DeleteOptions::default(), now()), Step::Remove(_)));
        let mut done = pod();
        done["status"]["phase"] = json!("Succeeded");
        assert!(matches!(delete(&done, &DeleteOptions::default(), now()), Step::Remove(_)));
    }

    #[test]
    fn a_finalizer_holds_an_object_whatever_the_grace() {
        let mut held = pod();
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        let zero = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        let Step::Mark(marked) = delete(&held, &zero, now()) else { panic!() };
        assert!(!may_be_removed(&marked));
        let mut released = marked.clone();
        released["metadata"]["finalizers"] = json!([]);
        assert!(may_be_removed(&released));
    }

    #[test]
    fn foreground_and_orphan_are_written_as_finalizers() {
        let object = json!({"metadata": {"name": "d"}});
        let foreground =
            DeleteOptions { propagation_policy: Some("Foreground".into()), ..DeleteOptions::default() };
        let Step::Mark(marked) = decide(&object, &foreground, None, POD, now()).unwrap() else { panic!() };
        assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
        let background =
            DeleteOptions { propagation_policy: Some("Background".into()), ..DeleteOptions::default() };
        assert!(matches!(decide(&marked, &background, None, POD, now()).unwrap(), Step::Remove(_)));
    }

    #[test]
    fn a_wrong_uid_is_a_conflict_that_names_both() {
        let options = DeleteOptions { uid: Some("other".into()), ..DeleteOptions::default() };
        let error = decide(&pod(), &options, Some(30), POD, now()).unwrap_err();
        assert_eq!(error.code, 409);
        assert!(error.message.contains("(other) does not match the UID in record (u)"), "{}", error.message);
    }

    #[test]
    fn orphan_dependents_and_a_policy_exclude_each_other() {
        let options = DeleteOptions {
            orphan_dependents: Some(true),
            propagation_policy: Some("Orphan".into()),
            ..DeleteOptions::default()
        };
        assert_eq!(options.validate().unwrap_err().code, 422);
    }
}
