//! The `scale` subresource: replicas of a workload, whatever its kind.

use std::sync::Arc;

use serde_json::{Value, json};

use super::call::Call;
use super::negotiate::{PatchForm, patch_form};
use super::ownership::{Owner, same_but_for_times};
use crate::kinds::{Kind, Part};
use crate::patch;
use crate::reply::Reply;
use crate::selector::{label_selector, plain_selector};
use crate::server::{Api, about_kind, meta_of, not_found};
use crate::status::{ApiError, FieldError};
use crate::store::Expect;

/// Where a kind keeps its numbers.
struct Paths {
    spec: Vec<String>,
    status: Vec<String>,
    selector: Option<Vec<String>>,
}

fn paths(kind: &Kind) -> Option<Paths> {
    let split = |path: &str| path.trim_start_matches('.').split('.').map(str::to_owned).collect::<Vec<_>>();
    match &kind.custom {
        Some(custom) => custom.scale.as_ref().map(|scale| Paths {
            spec: split(&scale.spec_replicas),
            status: split(&scale.status_replicas),
            selector: scale.label_selector.as_deref().map(split),
        }),
        None => {
            Some(Paths { spec: split("spec.replicas"), status: split("status.replicas"), selector: None })
        }
    }
}

fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let mut place = object;
    for key in path {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[key.as_str()];
    }
    *place = value;
}

/// The `Scale` of an object.
fn scale_of(kind: &Kind, paths: &Paths, object: &Value) -> Value {
    let number = |path: &[String]| at(object, path).and_then(Value::as_i64).unwrap_or(0);
    let metadata = &object["metadata"];
    let mut status = json!({"replicas": number(&paths.status)});
    let selector = match (&paths.selector, kind.is_builtin()) {
        (Some(path), _) => at(object, path).and_then(Value::as_str).map(str::to_owned),
        (None, true) => selector_text(&object["spec"]["selector"]),
        (None, false) => None,
    };
    if let Some(selector) = selector.filter(|s| !s.is_empty()) {
        status["selector"] = json!(selector);
    }
    let mut spec = json!({});
    if number(&paths.spec) != 0 {
        spec["replicas"] = json!(number(&paths.spec));
    }
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": spec,
        "status": status,
    })
}

fn selector_text(selector: &Value) -> Option<String> {
    // Replication controllers have a plain map, everybody else a selector object.
    let plain = selector.get("matchLabels").is_none() && selector.get("matchExpressions").is_none();
    let parsed =
        if plain { plain_selector(selector.as_object()) } else { label_selector(Some(selector)).ok()? };
    Some(parsed.to_string())
}

pub fn serve(api: &Arc<Api>, call: &Call, verb: &str) -> Result<Reply, ApiError> {
    let paths = paths(&call.kind).ok_or_else(ApiError::no_such_path)?;
    loop {
        let stored = api
            .store
            .get(&call.storage(), &call.key())
            .ok_or_else(|| not_found(&call.kind, &call.path.name))?;
        let current = stored.value();
        let scale = scale_of(&call.kind, &paths, &current);
        let wanted = match verb {
            "get" => return Ok(Reply::json(200, &scale)),
            "update" => replacement(call)?,
            _ => patched(call, &scale)?,
        };
        let given = wanted["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if verb == "update" && !given.is_empty() && scale["metadata"]["resourceVersion"] != given {
            return Err(ApiError::modified(call.about()));
        }
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 {
            let about = crate::status::About { group: "autoscaling", kind: "Scale", name: &call.path.name };
            return Err(ApiError::invalid(
                about,
                &[FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0")],
            ));
        }
        let mut object = current.clone();
        set(&mut object, &paths.spec, json!(replicas));
        call.kind.prepare_update(&current, &mut object, Part::Main, api.now());
        let mut errors = call.kind.validate_update(&current, &object, Part::Main);
        let findings = super::write::schema_findings(call, &object, Some(&current), Part::Main);
        errors.extend(findings.errors);
        let warnings = findings.warnings;
        if !errors.is_empty() {
            return Err(ApiError::invalid(about_kind(&call.kind, &call.path.name), &errors));
        }
        Owner::of(call, Part::Main, api.now()).track(Some(&current), &mut object);
        if same_but_for_times(&current, &object) || call.query.dry_run {
            return Ok(Reply::json(200, &scale_of(&call.kind, &paths, &object)).with_warnings(warnings));
        }
        let meta = meta_of(&call.kind, &object);
        let expect = Expect::Revision(stored.revision);
        match api.store.put(&call.storage(), &call.key(), expect, object, meta) {
            Ok(written) => {
                let scale = scale_of(&call.kind, &paths, &written.value());
                return Ok(Reply::json(200, &scale).with_warnings(warnings));
            }
            Err(_) if verb == "update" && !given.is_empty() => return Err(ApiError::modified(call.about())),
            Err(_) => {}
        }
    }
}

fn replacement(call: &Call) -> Result<Value, ApiError> {
    call.query.check_write("UpdateOptions")?;
    let mut scale = super::typed::scale(call)?.object;
    super::write::place(call, &mut scale)?;
    super::write::must_be_named(call, &scale)?;
    Ok(scale)
}

fn patched(call: &Call, scale: &Value) -> Result<Value, ApiError> {
    match patch_form(&call.headers)? {
        PatchForm::Json => Ok(patch::json_patch(scale, &call.body, super::write::validation(call))?.0),
        PatchForm::Merge | PatchForm::Strategic => Ok(patch::merge_patch(scale, &patch::read(&call.body)?.0)),
        PatchForm::Apply => Err(ApiError::not_implemented(
            "server-side apply of scale is outside the profile of this server; use a merge patch",
        )),
    }
}
