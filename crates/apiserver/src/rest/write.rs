//! Creating and changing objects: decode, default, admit, prepare, validate, own, commit.
//!
//! Every change runs against the stored object it was computed from; if that moved in the meantime the
//! change is computed again, unless the client named the version it meant.

use std::sync::Arc;

use serde_json::{Value, json};

use super::call::Call;
use super::deletion::may_be_removed;
use super::negotiate::{BodyForm, PatchForm, body_form, patch_form};
use super::ownership::{Owner, same_but_for_times};
use super::query;
use super::show::{Shower, convert_from_stored, convert_to_stored};
use crate::admission::{Operation, Review};
use crate::kinds::Part;
use crate::kinds::meta::seconds;
use crate::patch;
use crate::reply::Reply;
use crate::schema::decode::{self, Decoded, FieldValidation, Media};
use crate::schema::rules::{self, Findings};
use crate::schema::{canonical, default, validate};
use crate::server::{Api, about_kind, not_found, stored_meta};
use crate::status::{ApiError, FieldError};
use crate::store::{Expect, Object, Stale};

const OTHER_NAMESPACE: &str =
    "the namespace of the provided object does not match the namespace sent on the request";

/// How often a change is computed again when the object keeps moving.
const TRIES: usize = 50;

pub async fn create(api: &Arc<Api>, call: &Call) -> Result<Reply, ApiError> {
    call.query.check_write("CreateOptions")?;
    let decoded = decode_body(call)?;
    create_object(api, call, decoded.object, decoded.warnings, Way::Update).await
}

/// A refused request is still told what was wrong with its body.
fn noting(warnings: &[String]) -> impl FnOnce(ApiError) -> ApiError {
    let warnings = warnings.to_vec();
    move |mut error| {
        error.warnings = warnings;
        error
    }
}

/// How an object is written, which decides how the ownership of its fields is recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Create, update or patch: recorded by comparing before and after.
    Update,
    /// Server-side apply, which records it itself.
    Apply,
}

async fn create_object(
    api: &Arc<Api>,
    call: &Call,
    mut object: Value,
    mut warnings: Vec<String>,
    way: Way,
) -> Result<Reply, ApiError> {
    let noticed = warnings.clone();
    create_placed(api, call, &mut object, &mut warnings, way).await.map_err(noting(&noticed))
}

async fn create_placed(
    api: &Arc<Api>,
    call: &Call,
    object: &mut Value,
    warnings: &mut Vec<String>,
    way: Way,
) -> Result<Reply, ApiError> {
    let kind = &call.kind;
    place(call, object)?;
    if way == Way::Apply {
        apply_cannot_choose(call, object)?;
    } else if !text_at(object, "resourceVersion").is_empty() {
        return Err(ApiError::unexplained("resourceVersion should not be set on objects to be created"));
    }
    let generated = name_of(object).is_empty() && !text_at(object, "generateName").is_empty();
    fill_defaults(call, object);
    let draft = object.clone();
    for attempt in 0..TRIES {
        let mut object = draft.clone();
        if generated {
            object["metadata"]["name"] = json!(api.ids.name(text_at(&draft, "generateName")));
        }
        system_fields(api, &mut object);
        let name = name_of(&object).to_owned();
        // What admission and the kind add afterwards belongs to nobody.
        if way == Way::Update {
            Owner::of(call, Part::Main, api.now()).track(None, &mut object);
        }
        let review = Review {
            kind,
            subresource: "",
            operation: Operation::Create,
            namespace: &call.path.namespace,
            // A name that was only just made up is not told.
            name: if generated { "" } else { &name },
            identity: &call.identity,
            dry_run: call.query.dry_run,
            old: None,
            options: options_of(call, "CreateOptions"),
        };
        warnings.extend(crate::admission::mutate(api, &review, &mut object).await?);
        fill_defaults(call, &mut object);
        kind.prepare_create(&mut object, api.now());
        super::allocate::on_create(api, kind, &mut object);
        complete(call, &mut object);
        let mut errors = kind.validate_create(&object);
        let findings = schema_findings(call, &object, None, Part::Main);
        errors.extend(findings.errors);
        warnings.extend(findings.warnings);
        refuse_if_any(call, &name, &errors)?;
        // What is stored is defaulted once more when it is read, after the server added its own part.
        fill_defaults(call, &mut object);
        warnings.extend(crate::admission::validate(api, &review, Some(&object)).await?);
        super::profile::must_be_served(kind, &object)?;
        let key = crate::store::Key::new(text_at(&object, "namespace"), &name);
        if call.query.dry_run {
            if api.store.get(&call.storage(), &key).is_some() {
                return Err(ApiError::already_exists(crate::server::about(kind, &name)));
            }
            return Ok(Reply::json(201, &object).with_warnings(std::mem::take(warnings)));
        }
        let stored = convert_to_stored(kind, object);
        let meta = stored_meta(api, kind, &stored);
        match api.store.put(&call.storage(), &key, Expect::Absent, stored, meta) {
            Ok(object) => {
                super::crds::after_write(api, kind, &object);
                return Ok(Reply::text(201, Shower::new(call).one(&object, api.now()))
                    .with_warnings(std::mem::take(warnings)));
            }
            // A generated name that is taken is bad luck, not the caller's mistake.
            Err(_) if generated && attempt + 1 < 8 => {}
            Err(stale) => {
                let mut error = ApiError::already_exists(crate::server::about(kind, &name));
                let going = stale.current.map(|o| o.value()["metadata"]["deletionTimestamp"].is_string());
                if going == Some(true) {
                    error.message = format!("object is being deleted: {}", error.message);
                }
                return Err(error);
            }
        }
    }
    Err(ApiError::internal("no free name was found"))
}

/// A replacement says which object it is.
pub fn must_be_named(call: &Call, object: &Value) -> Result<(), ApiError> {
    if name_of(object).is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.path.name
        )));
    }
    if name_of(object) != call.path.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            name_of(object),
            call.path.name
        )));
    }
    Ok(())
}

/// A patch may not turn an object into another one.
fn must_be_the_same(call: &Call, object: &Value) -> Result<(), ApiError> {
    let namespace = text_at(object, "namespace");
    if call.kind.namespaced && !namespace.is_empty() && namespace != call.path.namespace {
        return Err(ApiError::bad_request(OTHER_NAMESPACE));
    }
    must_be_named(call, object)
}

/// An applied object that is new may name a version, which means nothing, but no uid.
fn apply_cannot_choose(call: &Call, object: &Value) -> Result<(), ApiError> {
    let uid = text_at(object, "uid");
    if uid.is_empty() {
        return Ok(());
    }
    let error = FieldError::invalid("metadata.uid", uid, "field is immutable");
    Err(ApiError::invalid(about_kind(&call.kind, &call.path.name), &[error]))
}

pub async fn update(api: &Arc<Api>, call: &Call, part: Part) -> Result<Reply, ApiError> {
    call.query.check_write("UpdateOptions")?;
    let decoded = decode_body(call)?;
    let mut object = decoded.object;
    place(call, &mut object)?;
    must_be_named(call, &object)?;
    let exists = api.store.get(&call.storage(), &call.key()).is_some();
    if !exists && part == Part::Main && call.kind.strategy.create_on_update {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        return create_object(api, call, object, decoded.warnings, Way::Update).await;
    }
    modify(api, call, part, Way::Update, |_| Ok((object.clone(), decoded.warnings.clone()))).await
}

pub async fn patch(api: &Arc<Api>, call: &Call, part: Part) -> Result<Reply, ApiError> {
    let form = patch_form(&call.headers)?;
    if form == PatchForm::Strategic && !call.kind.is_builtin() {
        return Err(ApiError::new(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        ));
    }
    check_patch_options(call, form)?;
    if form == PatchForm::Apply {
        return apply(api, call, part).await;
    }
    modify(api, call, part, Way::Update, |current| {
        let target = call.kind.target();
        let decoded = match form {
            PatchForm::Json => {
                let (patched, complaints) = patch::json_patch(current, &call.body, validation(call))?;
                patch::finish(patched, &target, validation(call), complaints)?
            }
            PatchForm::Merge => {
                let (wanted, complaints) = patch::read(&call.body)?;
                let patched = patch::merge_patch(current, &wanted);
                patch::finish(patched, &target, validation(call), complaints)?
            }
            PatchForm::Strategic | PatchForm::Apply => {
                let (wanted, complaints) = patch::read_strategic(&call.body)?;
                let patched = patch::strategic_merge(call.kind.schema.get(), current, &wanted)?;
                patch::finish_strategic(patched, &wanted, &target, validation(call), complaints)?
            }
        };
        Ok((decoded.object, decoded.warnings))
    })
    .await
}

async fn apply(api: &Arc<Api>, call: &Call, part: Part) -> Result<Reply, ApiError> {
    let (config, warnings) = read_config(call)?;
    let force = call.query.force.unwrap_or(false);
    if api.store.get(&call.storage(), &call.key()).is_none() {
        if part != Part::Main {
            return Err(not_found(&call.kind, &call.path.name));
        }
        let object = Owner::of(call, part, api.now()).apply(None, &config, force)?;
        let object = applied(call, object)?;
        return create_object(api, call, object, warnings, Way::Apply).await;
    }
    modify(api, call, part, Way::Apply, |current| {
        let merged = Owner::of(call, part, api.now()).apply(Some(current), &config, force)?;
        Ok((applied(call, merged)?, warnings.clone()))
    })
    .await
}

/// The result of an apply in the form in which objects of the kind are stored. It fits the type already.
fn applied(call: &Call, object: Value) -> Result<Value, ApiError> {
    if !name_of(&object).is_empty() && name_of(&object) != call.path.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            name_of(&object),
            call.path.name
        )));
    }
    let mut object = decode::check(object, &call.kind.target(), FieldValidation::Ignore, Vec::new())
        .map_err(|error| ApiError::bad_request(error.to_string()))?
        .object;
    place(call, &mut object)?;
    object["metadata"]["name"] = json!(call.path.name);
    Ok(object)
}

/// The configuration of an apply. What it may contain is checked by the apply itself.
fn read_config(call: &Call) -> Result<(Value, Vec<String>), ApiError> {
    let (config, complaints) = decode::free_document(&call.body, Media::Yaml).map_err(|error| {
        let why = error.to_string();
        let why = why.strip_prefix("error converting YAML to JSON: ").unwrap_or(&why);
        ApiError::bad_request(format!("error encoding patch: {why}"))
    })?;
    let word = |key: &str| config[key].as_str().unwrap_or_default();
    let (group, version) = word("apiVersion").split_once('/').unwrap_or(("", word("apiVersion")));
    if word("kind") != &*call.kind.kind || group != &*call.kind.group || version != &*call.kind.version {
        return Err(ApiError::bad_request(format!(
            "invalid object type: {group}/{version}, Kind={}",
            word("kind")
        )));
    }
    match validation(call) {
        FieldValidation::Strict if !complaints.is_empty() => Err(ApiError::bad_request(format!(
            "error strict decoding patch: error converting YAML to JSON: {}",
            complaints.join(", ")
        ))),
        FieldValidation::Warn => Ok((config, complaints)),
        _ => Ok((config, Vec::new())),
    }
}

/// Computes a change from the stored object and commits it.
async fn modify(
    api: &Arc<Api>,
    call: &Call,
    part: Part,
    way: Way,
    change: impl Fn(&Value) -> Result<(Value, Vec<String>), ApiError>,
) -> Result<Reply, ApiError> {
    let kind = &call.kind;
    let name = &call.path.name;
    for _ in 0..TRIES {
        let stored = api.store.get(&call.storage(), &call.key()).ok_or_else(|| not_found(kind, name))?;
        let current = convert_from_stored(kind, stored.value());
        let (mut object, mut warnings) = change(&current)?;
        if is_patch(call) {
            must_be_the_same(call, &object)?;
        }
        let named_version = check_identity(call, &current, &object)?;
        fill_defaults(call, &mut object);
        if way == Way::Update {
            Owner::of(call, part, api.now()).track(Some(&current), &mut object);
        }
        let review = Review {
            kind,
            subresource: &call.path.subresource,
            operation: Operation::Update,
            namespace: &call.path.namespace,
            name,
            identity: &call.identity,
            dry_run: call.query.dry_run,
            old: Some(&current),
            options: options_of(call, "UpdateOptions"),
        };
        warnings.extend(crate::admission::mutate(api, &review, &mut object).await?);
        fill_defaults(call, &mut object);
        kind.prepare_update(&current, &mut object, part, api.now());
        super::allocate::on_update(api, kind, &current, &mut object);
        complete(call, &mut object);
        keep_resource_version(&current, &mut object);
        let mut errors = kind.validate_update(&current, &object, part);
        let findings = schema_findings(call, &object, Some(&current), part);
        errors.extend(findings.errors);
        warnings.extend(findings.warnings);
        refuse_if_any(call, name, &errors).map_err(noting(&warnings))?;
        warnings.extend(crate::admission::validate(api, &review, Some(&object)).await?);
        super::profile::must_be_served(kind, &object)?;
        if same_but_for_times(&current, &object) {
            return Ok(shown(api, call, &stored, warnings));
        }
        if call.query.dry_run {
            return Ok(Reply::json(200, &object).with_warnings(warnings));
        }
        match commit(api, call, &stored, object) {
            Ok(object) => return Ok(shown(api, call, &object, warnings)),
            Err(_) if named_version => return Err(ApiError::modified(call.about())),
            Err(_) => {}
        }
    }
    Err(ApiError::modified(call.about()))
}

fn shown(api: &Api, call: &Call, object: &Object, warnings: Vec<String>) -> Reply {
    Reply::text(200, Shower::new(call).one(object, api.now())).with_warnings(warnings)
}

/// Writes the changed object; one that was only held by what this change released goes.
fn commit(api: &Arc<Api>, call: &Call, stored: &Object, object: Value) -> Result<Object, Stale> {
    let expect = Expect::Revision(stored.revision);
    let gone = may_be_removed(&object) && !super::subresources::namespace_is_held(&call.kind, &object);
    let value = convert_to_stored(&call.kind, object);
    let meta = stored_meta(api, &call.kind, &value);
    if gone {
        let removed = api.store.remove(&call.storage(), &call.key(), expect)?;
        super::crds::after_delete(api, &call.kind, &super::delete::Deleted::Removed(removed.clone()));
        // The client sees the state it asked for, not the state before.
        let json = serde_json::to_vec(&value).unwrap_or_default().into();
        return Ok(Object { revision: removed.revision, json, meta: meta.into() });
    }
    let written = api.store.put(&call.storage(), &call.key(), expect, value, meta)?;
    super::crds::after_write(api, &call.kind, &written);
    Ok(written)
}

/// Refuses a change meant for another version or another object of the same name; true when the caller
/// named a version.
fn check_identity(call: &Call, current: &Value, object: &Value) -> Result<bool, ApiError> {
    let given = text_at(object, "resourceVersion");
    let given = if is_patch(call) || given != "0" { given } else { "" };
    let stored = text_at(current, "resourceVersion");
    if !given.is_empty() && given.parse::<u64>().is_err() {
        let shown = crate::status::quoted(given);
        return Err(ApiError::unexplained(format!("strconv.ParseUint: parsing {shown}: invalid syntax")));
    }
    if given.is_empty() {
        if !call.kind.strategy.unconditional_update && !is_patch(call) {
            return Err(ApiError::invalid(
                call.about(),
                &[FieldError::invalid(
                    "metadata.resourceVersion",
                    json!(0),
                    "must be specified for an update",
                )],
            ));
        }
    } else if given != stored {
        return Err(ApiError::modified(call.about()));
    }
    let (uid, stored_uid) = (text_at(object, "uid"), text_at(current, "uid"));
    if !uid.is_empty() && uid != stored_uid && !is_patch(call) {
        return Err(ApiError::conflict(call.about(), &wrong_uid(call, uid, stored_uid)));
    }
    // A patch starts from the stored object and so carries its version without meaning it.
    Ok(!given.is_empty() && !is_patch(call))
}

/// The complaint of the store about a precondition, with the path that real servers keep objects under.
pub fn wrong_uid(call: &Call, uid: &str, stored: &str) -> String {
    let kind = &call.kind;
    let place = match (&*kind.group, &*kind.plural) {
        ("", "nodes") => "minions".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("apiextensions.k8s.io" | "apiregistration.k8s.io", plural) => format!("{}/{plural}", kind.group),
        (_, plural) if kind.is_builtin() => plural.to_owned(),
        (group, plural) => format!("{group}/{plural}"),
    };
    format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{place}/{}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {stored}",
        call.key().as_str()
    )
}

fn is_patch(call: &Call) -> bool {
    patch_form(&call.headers).is_ok()
}

fn keep_resource_version(current: &Value, object: &mut Value) {
    object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
}

/// The namespace of the path belongs to the object; another one in the body is a mistake.
pub fn place(call: &Call, object: &mut Value) -> Result<(), ApiError> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    if !call.kind.namespaced {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        return Ok(());
    }
    let given = text_at(object, "namespace");
    if !given.is_empty() && given != call.path.namespace {
        return Err(ApiError::bad_request(OTHER_NAMESPACE));
    }
    object["metadata"]["namespace"] = json!(call.path.namespace);
    Ok(())
}

fn system_fields(api: &Api, object: &mut Value) {
    let uid = api.ids.uid();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.insert("uid".into(), json!(uid));
        metadata.insert("creationTimestamp".into(), json!(seconds(api.now())));
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
            metadata.remove(key);
        }
    }
}

fn fill_defaults(call: &Call, object: &mut Value) {
    if call.kind.is_builtin() {
        call.kind.default(object);
    } else {
        default::default_object(call.kind.schema.get(), object);
    }
}

fn complete(call: &Call, object: &mut Value) {
    if call.kind.is_builtin() {
        canonical::complete(call.kind.schema.get(), object);
    }
}

/// What the type of an object says against it. Rules have their say only about objects of the right shape.
pub fn schema_findings(call: &Call, object: &Value, old: Option<&Value>, part: Part) -> Findings {
    if call.kind.is_builtin() {
        let errors = super::crds::schema_errors(&call.kind, object);
        return Findings { errors, ..Findings::default() };
    }
    let schema = call.kind.schema.get();
    let errors = validate::validate(schema, object, old).into_iter();
    let mut errors: Vec<FieldError> = errors.map(|error| own_words(error, part)).collect();
    if !rules::has_rules(schema) {
        return Findings { errors, ..Findings::default() };
    }
    if errors.iter().any(|error| error.kind.hides_rules()) {
        errors.push(FieldError::invalid(
            "<nil>",
            Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing \
             errors to complete validation",
        ));
        return Findings { errors, ..Findings::default() };
    }
    let mut findings = rules::evaluate(schema, object, old);
    errors.append(&mut findings.errors);
    Findings { errors, ..findings }
}

/// The status of a custom resource is checked on its own, so complaints do not say where it belongs.
fn own_words(mut error: FieldError, part: Part) -> FieldError {
    if part == Part::Status
        && let Some(rest) = error.detail.strip_prefix("status.")
    {
        error.detail = rest.to_owned();
    }
    error
}

fn refuse_if_any(call: &Call, name: &str, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(about_kind(&call.kind, name), errors))
}

fn check_patch_options(call: &Call, form: PatchForm) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    if form == PatchForm::Apply {
        if call.query.field_manager.is_none() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
    } else if call.query.force.is_some() {
        errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
    }
    errors.extend(call.query.write_errors());
    query::refuse("PatchOptions", &errors)
}

pub fn decode_body(call: &Call) -> Result<Decoded, ApiError> {
    let media = match body_form(&call.headers)? {
        BodyForm::Json => Media::Json,
        BodyForm::Yaml => Media::Yaml,
    };
    decode_as(call, media)
}

fn decode_as(call: &Call, media: Media) -> Result<Decoded, ApiError> {
    decode::decode(&call.body, media, &call.kind.target(), validation(call))
}

pub fn validation(call: &Call) -> FieldValidation {
    match call.query.field_validation {
        query::FieldValidation::Ignore => FieldValidation::Ignore,
        query::FieldValidation::Warn => FieldValidation::Warn,
        query::FieldValidation::Strict => FieldValidation::Strict,
    }
}

pub fn options_of(call: &Call, kind: &str) -> Value {
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    if call.query.dry_run {
        options["dryRun"] = json!(["All"]);
    }
    if let Some(manager) = &call.query.field_manager {
        options["fieldManager"] = json!(manager);
    }
    options
}

pub fn name_of(object: &Value) -> &str {
    text_at(object, "name")
}

fn text_at<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}
