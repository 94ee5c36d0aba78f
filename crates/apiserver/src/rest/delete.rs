//! Deleting one object or a collection.

use std::sync::Arc;

use serde_json::{Value, json};

use super::call::Call;
use super::deletion::{DeleteOptions, Step, decide, pod_grace};
use super::selection::Selection;
use super::show::Shower;
use crate::admission::{Operation, Review};
use crate::kinds::Kind;
use crate::kinds::meta::seconds;
use crate::reply::Reply;
use crate::server::{Api, about, about_kind, meta_of, not_found, storage_of};
use crate::status::ApiError;
use crate::store::{Expect, Key, Object};

/// What became of an object that was to be deleted.
pub enum Deleted {
    /// Gone from the store; its last state.
    Removed(Object),
    /// Still there, waiting for its grace period or finalizers.
    Marked(Object),
}

impl Deleted {
    fn object(&self) -> &Object {
        match self {
            Self::Removed(object) | Self::Marked(object) => object,
        }
    }
}

/// Kinds whose delete answers with the object instead of a status.
const ANSWERS_WITH_OBJECT: &[(&str, &str)] = &[
    ("", "namespaces"),
    ("", "persistentvolumes"),
    ("", "persistentvolumeclaims"),
    ("", "pods"),
    ("", "podtemplates"),
    ("", "resourcequotas"),
    ("", "services"),
    ("", "serviceaccounts"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
];

pub async fn delete(api: &Arc<Api>, call: &Call) -> Result<Reply, ApiError> {
    let options = options(call)?;
    let current =
        api.store.get(&call.storage(), &call.key()).ok_or_else(|| not_found(&call.kind, &call.path.name))?;
    let mut warnings = review(api, call, &current.value(), options.is_dry_run()).await?;
    warnings.extend(preserved_pods(call, &options));
    let outcome = remove(api, &call.kind, &call.key(), &options)?;
    let answers_with_object =
        ANSWERS_WITH_OBJECT.contains(&(call.kind.group.as_ref(), call.kind.plural.as_ref()));
    let reply = match &outcome {
        Deleted::Removed(object) if !answers_with_object => Reply::json(200, &success(call, object)),
        other => Reply::text(200, Shower::new(call).one(other.object(), api.now())),
    };
    Ok(reply.with_warnings(warnings))
}

pub async fn delete_collection(api: &Arc<Api>, call: &Call) -> Result<Reply, ApiError> {
    let options = options(call)?;
    let selection = Selection::of(call, &api.kinds())?;
    let listing = super::read::select(api, call, &selection)?;
    let mut shower = Shower::new(call);
    let mut items = Vec::new();
    let mut warnings = Vec::new();
    for object in &listing.objects {
        warnings.extend(review(api, call, &object.value(), options.is_dry_run()).await?);
        let key = Key::new(&object.meta.namespace, &object.meta.name);
        match remove(api, &call.kind, &key, &options) {
            Ok(_) => items.push(object.clone()),
            // Somebody else was faster; the collection is as empty as it was asked to be.
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let mut metadata = json!({"resourceVersion": listing.revision.to_string()});
    if call.kind.custom.is_some() {
        metadata["continue"] = json!("");
    }
    let head =
        json!({"kind": call.kind.list_kind, "apiVersion": call.kind.api_version(), "metadata": metadata});
    warnings.extend(preserved_pods(call, &options));
    Ok(Reply::text(200, shower.list(&head, &items)).with_warnings(warnings))
}

/// Jobs alone leave their pods behind when nobody says otherwise, which surprises people.
fn preserved_pods(call: &Call, options: &DeleteOptions) -> Option<String> {
    let silent = options.propagation_policy.is_none() && options.orphan_dependents.is_none();
    (silent && orphans_by_default(&call.kind)).then(|| {
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
         them or set propagationPolicy=Orphan to suppress this warning"
            .to_owned()
    })
}

fn orphans_by_default(kind: &Kind) -> bool {
    kind.group == "batch" && kind.plural == "jobs"
}

async fn review(api: &Arc<Api>, call: &Call, old: &Value, dry_run: bool) -> Result<Vec<String>, ApiError> {
    let review = Review {
        kind: &call.kind,
        subresource: "",
        operation: Operation::Delete,
        namespace: &call.path.namespace,
        name: old["metadata"]["name"].as_str().unwrap_or_default(),
        identity: &call.identity,
        dry_run,
        old: Some(old),
        options: json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}),
    };
    crate::admission::validate(api, &review, None).await
}

/// The wishes of the caller: the body's, or the query's when there is no body.
fn options(call: &Call) -> Result<DeleteOptions, ApiError> {
    let options = if call.body.iter().all(u8::is_ascii_whitespace) {
        DeleteOptions {
            grace_period_seconds: call.query.grace_period_seconds,
            propagation_policy: call.query.propagation_policy.clone(),
            orphan_dependents: call.query.orphan_dependents,
            dry_run: call.query.dry_run_given().to_vec(),
            ..DeleteOptions::default()
        }
    } else {
        DeleteOptions::from_body(&super::typed::delete_options(call)?)
    };
    options.validate()?;
    Ok(options)
}

/// Deletes an object of a kind, or marks it as being deleted. Repeats when it changes in between, unless
/// the caller named the version it means.
pub fn remove(api: &Api, kind: &Kind, key: &Key, options: &DeleteOptions) -> Result<Deleted, ApiError> {
    let storage = storage_of(kind);
    let options = &DeleteOptions { orphans_by_default: orphans_by_default(kind), ..options.clone() };
    let name = key.as_str().rsplit('/').next().unwrap_or_default().to_owned();
    loop {
        let current = api.store.get(&storage, key).ok_or_else(|| not_found(kind, &name))?;
        let object = current.value();
        if let Some(refusal) = refusal(kind, &name) {
            return Err(refusal);
        }
        let expect = Expect::Revision(current.revision);
        let grace = is_pod(kind).then(|| pod_grace(&object, options));
        let step = if is_namespace(kind) {
            begin_namespace(&object, options, api, about_kind(kind, &name))?
        } else {
            decide(&object, options, grace, about_kind(kind, &name), api.now())?
        };
        let done = match step {
            Step::Pending => return Ok(Deleted::Marked(current)),
            _ if options.is_dry_run() => return Ok(dry(step, &current)),
            Step::Mark(next) => {
                let meta = meta_of(kind, &next);
                api.store.put(&storage, key, expect, next, meta).map(Deleted::Marked)
            }
            Step::Remove(last) if last == object => {
                api.store.remove(&storage, key, expect).map(Deleted::Removed)
            }
            // The last state is written before it goes, so that watchers see the object end.
            Step::Remove(last) => {
                let meta = meta_of(kind, &last);
                api.store.put(&storage, key, expect, last, meta).and_then(|written| {
                    api.store.remove(&storage, key, Expect::Revision(written.revision)).map(Deleted::Removed)
                })
            }
        };
        match done {
            Ok(deleted) => {
                super::crds::after_delete(api, kind, &deleted);
                return Ok(deleted);
            }
            Err(_) if options.resource_version.is_some() => {
                return Err(ApiError::modified(about(kind, &name)));
            }
            Err(_) => {}
        }
    }
}

fn dry(step: Step, current: &Object) -> Deleted {
    let (value, removed) = match step {
        Step::Remove(value) => (value, true),
        Step::Mark(value) => (value, false),
        Step::Pending => (current.value(), false),
    };
    let shown = Object {
        revision: current.revision,
        json: serde_json::to_vec(&value).unwrap_or_default().into(),
        meta: current.meta.clone(),
    };
    if removed { Deleted::Removed(shown) } else { Deleted::Marked(shown) }
}

/// A namespace is emptied before it goes: it becomes Terminating and is removed by `finalize`.
fn begin_namespace(
    object: &Value,
    options: &DeleteOptions,
    api: &Api,
    about: crate::status::About<'_>,
) -> Result<Step, ApiError> {
    let held = object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    // Finalizers of the spec hold it as those of the metadata would.
    let step = decide(object, options, None, about, api.now())?;
    // Even an empty namespace is Terminating first, and goes with the next request.
    let fresh = object["metadata"].get("deletionTimestamp").is_none();
    match step {
        Step::Remove(mut next) | Step::Mark(mut next) if held || fresh => {
            if next["metadata"].get("deletionTimestamp").is_none() {
                next["metadata"]["deletionTimestamp"] = json!(seconds(api.now()));
            }
            next["status"]["phase"] = json!("Terminating");
            if next == *object { Ok(Step::Pending) } else { Ok(Step::Mark(next)) }
        }
        Step::Pending if held => Ok(Step::Pending),
        other => Ok(other),
    }
}

/// The namespaces the cluster itself lives in cannot be deleted.
fn refusal(kind: &Kind, name: &str) -> Option<ApiError> {
    let protected = is_namespace(kind) && matches!(name, "default" | "kube-system" | "kube-public");
    protected.then(|| ApiError::forbidden(about(kind, name), "this namespace may not be deleted"))
}

fn is_pod(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "pods"
}

fn is_namespace(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "namespaces"
}

fn success(call: &Call, object: &Object) -> Value {
    let mut details = json!({
        "name": &*object.meta.name,
        "kind": call.kind.plural,
        "uid": &*object.meta.uid,
    });
    if !call.kind.group.is_empty() {
        details["group"] = json!(call.kind.group);
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    })
}
