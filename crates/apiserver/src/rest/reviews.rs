//! Questions that are asked by creating them: who am I, may I, may they.

use serde_json::{Value, json};

use super::call::Call;
use crate::auth::{self, Attributes};
use crate::identity::Identity;
use crate::kinds::meta::seconds;
use crate::reply::Reply;
use crate::server::Api;
use crate::status::ApiError;

pub fn answer(api: &Api, call: &Call) -> Result<Reply, ApiError> {
    let decoded = super::write::decode_body(call)?;
    let mut review = decoded.object;
    if review["metadata"].is_null() || *call.kind.kind == *"SelfSubjectReview" {
        review["metadata"] = json!({});
    }
    super::ownership::Owner::of_body(call, &call.kind.schema, &call.kind.api_version(), api.now())
        .track(None, &mut review);
    if matches!(&*call.kind.kind, "SelfSubjectReview") {
        review["metadata"]["creationTimestamp"] = json!(seconds(api.now()));
    }
    check_access_review(&call.kind.kind, &review["spec"])?;
    match call.kind.kind.as_ref() {
        "SelfSubjectReview" => review["status"] = json!({"userInfo": call.identity.user_info()}),
        "TokenReview" => review["status"] = token_status(api, &review),
        "SelfSubjectAccessReview" => {
            review["status"] = access(api, &call.identity, &review["spec"]);
        }
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let identity = subject(&review["spec"]);
            review["status"] = access(api, &identity, &review["spec"]);
        }
        "SelfSubjectRulesReview" => {
            let namespace = review["spec"]["namespace"].as_str().unwrap_or_default().to_owned();
            if namespace.is_empty() {
                return Err(ApiError::bad_request("no namespace on request"));
            }
            review["status"] = auth::rules_of(api, &call.identity, &namespace);
        }
        other => {
            return Err(ApiError::not_implemented(format!("{other} is outside the profile of this server")));
        }
    }
    Ok(Reply::json(201, &review).with_warnings(decoded.warnings))
}

/// A question about access is about somebody, and about either a resource or a path.
fn check_access_review(kind: &str, spec: &Value) -> Result<(), ApiError> {
    if !kind.ends_with("AccessReview") {
        return Ok(());
    }
    let refuse = |field: &str, value: Value, why: &str| {
        let about = crate::status::About { group: "authorization.k8s.io", kind: "", name: "" };
        Err(ApiError::invalid(about, &[crate::status::FieldError::invalid(field, value, why)]))
    };
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() == path.is_object() {
        let shown = if path.is_object() {
            json!({"Path": path["path"].as_str().unwrap_or_default(), "Verb": path["verb"].as_str().unwrap_or_default()})
        } else {
            Value::Null
        };
        return refuse(
            "spec",
            shown,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        );
    }
    let nobody = spec["user"].as_str().unwrap_or_default().is_empty()
        && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if nobody && !kind.starts_with("Self") {
        return refuse("spec.user", json!(""), "at least one of user or group must be specified");
    }
    Ok(())
}

fn token_status(api: &Api, review: &Value) -> Value {
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    match api.credentials.holder(token, api.now()) {
        Some(identity) => json!({"authenticated": true, "user": identity.user_info()}),
        None => json!({"user": {}, "error": "invalid bearer token"}),
    }
}

fn subject(spec: &Value) -> Identity {
    Identity {
        name: spec["user"].as_str().unwrap_or_default().to_owned(),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        groups: spec["groups"]
            .as_array()
            .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            .unwrap_or_default(),
    }
}

fn access(api: &Api, identity: &Identity, spec: &Value) -> Value {
    let part = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let attributes = if spec["nonResourceAttributes"].is_object() {
        Attributes::Path {
            verb: part("/nonResourceAttributes/verb"),
            path: part("/nonResourceAttributes/path"),
        }
    } else {
        Attributes::Resource {
            verb: part("/resourceAttributes/verb"),
            group: part("/resourceAttributes/group"),
            resource: part("/resourceAttributes/resource"),
            subresource: part("/resourceAttributes/subresource"),
            namespace: part("/resourceAttributes/namespace"),
            name: part("/resourceAttributes/name"),
        }
    };
    match auth::decide(api, identity, &attributes) {
        Some(reason) => json!({"allowed": true, "reason": reason}),
        None => json!({"allowed": false}),
    }
}
