//! Subresources that are neither the object nor its scale: binding, finalize, tokens.

use std::sync::Arc;

use serde_json::{Value, json};

use super::call::Call;
use crate::admission::{Operation, Review};
use crate::identity::Identity;
use crate::kinds::meta::seconds;
use crate::kinds::{Kind, Part};
use crate::reply::Reply;
use crate::server::{Api, meta_of, not_found};
use crate::status::ApiError;
use crate::store::Expect;

/// Which part of an object a subresource writes; `None` for those that have verbs of their own.
pub fn part(name: &str) -> Option<Part> {
    Some(match name {
        "status" | "approval" => Part::Status,
        "finalize" => Part::Finalize,
        "ephemeralcontainers" => Part::EphemeralContainers,
        "resize" => Part::Resize,
        _ => return None,
    })
}

/// A namespace is held by the finalizers of its spec, too.
pub fn namespace_is_held(kind: &Kind, object: &Value) -> bool {
    kind.group.is_empty()
        && kind.plural == "namespaces"
        && object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

/// `pods/binding`: the scheduler's word on where a pod runs. It is final.
pub async fn bind(api: &Arc<Api>, call: &Call) -> Result<Reply, ApiError> {
    call.query.check_write("CreateOptions")?;
    let decoded = super::typed::binding(call)?;
    let mut binding = decoded.object;
    super::write::place(call, &mut binding)?;
    let name = super::write::name_of(&binding);
    if !name.is_empty() && name != call.path.name {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    let target_kind = binding["target"]["kind"].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    if !matches!(target_kind, "" | "Node") {
        errors.push(crate::status::FieldError::not_supported(
            "target.kind",
            target_kind,
            &["Node", "<empty>"],
        ));
    }
    if node.is_empty() {
        errors.push(crate::status::FieldError::required("target.name", ""));
    }
    if !errors.is_empty() {
        let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let one = text.len() == 1;
        let text = text.join(", ");
        return Err(ApiError::unexplained(if one { text } else { format!("[{text}]") }));
    }
    let review = Review {
        kind: &call.kind,
        subresource: "binding",
        operation: Operation::Create,
        namespace: &call.path.namespace,
        name: &call.path.name,
        identity: &call.identity,
        dry_run: call.query.dry_run,
        old: None,
        options: super::write::options_of(call, "CreateOptions"),
    };
    let mut warnings = decoded.warnings;
    warnings.extend(crate::admission::validate(api, &review, Some(&binding)).await?);
    loop {
        let stored = api
            .store
            .get(&call.storage(), &call.key())
            .ok_or_else(|| not_found(&call.kind, &call.path.name))?;
        let mut pod = stored.value();
        let wanted_uid = binding["metadata"]["uid"].as_str().unwrap_or_default();
        if !wanted_uid.is_empty() && pod["metadata"]["uid"] != wanted_uid {
            let stored_uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
            let why = super::write::wrong_uid(call, wanted_uid, stored_uid);
            return Err(ApiError::conflict(call.about(), &why));
        }
        assign(&mut pod, &binding, node, api.now())
            .map_err(|why| ApiError::conflict(binding_about(call), &why))?;
        if call.query.dry_run {
            break;
        }
        let meta = meta_of(&call.kind, &pod);
        if api.store.put(&call.storage(), &call.key(), Expect::Revision(stored.revision), pod, meta).is_ok() {
            break;
        }
    }
    Ok(Reply::json(
        201,
        &json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
        }),
    )
    .with_warnings(warnings))
}

fn binding_about(call: &Call) -> crate::status::About<'_> {
    crate::status::About { group: "", kind: "pods/binding", name: &call.path.name }
}

fn assign(pod: &mut Value, binding: &Value, node: &str, now: jiff::Timestamp) -> Result<(), String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if pod["metadata"].get("deletionTimestamp").is_some() {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let current = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if !current.is_empty() {
        return Err(format!("pod {name} is already assigned to node \"{current}\""));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod["spec"]["nodeName"] = json!(node);
    for key in ["annotations", "labels"] {
        for (k, v) in binding["metadata"][key].as_object().into_iter().flatten() {
            pod["metadata"][key][k.as_str()] = v.clone();
        }
    }
    if !pod["status"]["conditions"].is_array() {
        pod["status"]["conditions"] = json!([]);
    }
    if let Some(conditions) = pod["status"]["conditions"].as_array_mut() {
        conditions.retain(|c| c["type"] != "PodScheduled");
        conditions.push(json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": seconds(now),
        }));
    }
    Ok(())
}

/// `serviceaccounts/token`: a bearer token for a service account.
pub fn token(api: &Api, call: &Call) -> Result<Reply, ApiError> {
    let account =
        api.store.get(&call.storage(), &call.key()).ok_or_else(|| not_found(&call.kind, &call.path.name))?;
    call.query.check_write("CreateOptions")?;
    let decoded = super::typed::token_request(call)?;
    let mut request = decoded.object;
    super::write::place(call, &mut request)?;
    let seconds_valid = request["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
    check_token_request(call, &request, seconds_valid)?;
    request["spec"]["expirationSeconds"] = json!(seconds_valid);
    super::ownership::Owner::of_body(
        call,
        super::typed::token_request_schema(),
        "authentication.k8s.io/v1",
        api.now(),
    )
    .track(None, &mut request);
    if request["spec"]["audiences"].as_array().is_none_or(Vec::is_empty) {
        request["spec"]["audiences"] = json!([AUDIENCE]);
    }
    if request["spec"].get("boundObjectRef").is_none() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    request["metadata"]["name"] = json!(call.path.name);
    request["metadata"]["uid"] = json!(account.meta.uid);
    request["metadata"]["creationTimestamp"] = json!(seconds(api.now()));
    let identity = Identity {
        uid: account.meta.uid.to_string(),
        ..Identity::service_account(&call.path.namespace, &call.path.name)
    };
    let expires = api.now() + jiff::SignedDuration::from_secs(seconds_valid);
    let token = api.credentials.issue(identity, expires).map_err(ApiError::internal)?;
    request["kind"] = json!("TokenRequest");
    request["apiVersion"] = json!("authentication.k8s.io/v1");
    request["status"] = json!({"token": token, "expirationTimestamp": seconds(expires)});
    Ok(Reply::json(201, &request).with_warnings(decoded.warnings))
}

/// Whom tokens are for when the request does not say.
const AUDIENCE: &str = "https://kubernetes.default.svc";
const SHORTEST_TOKEN: i64 = 10 * 60;
const LONGEST_TOKEN: i64 = 1 << 32;

fn check_token_request(call: &Call, request: &Value, seconds: i64) -> Result<(), ApiError> {
    let refuse = |name, error| {
        let about = crate::status::About { group: "authentication.k8s.io", kind: "TokenRequest", name };
        Err(ApiError::invalid(about, &[error]))
    };
    let name = super::write::name_of(request);
    if !name.is_empty() && name != call.path.name {
        let why = "must match the service account name if specified";
        return refuse(&call.path.name, crate::status::FieldError::invalid("metadata.name", name, why));
    }
    let invalid = |why| crate::status::FieldError::invalid("spec.expirationSeconds", seconds, why);
    if seconds < SHORTEST_TOKEN {
        return refuse(name, invalid("may not specify a duration less than 10 minutes"));
    }
    if seconds > LONGEST_TOKEN {
        return refuse(name, invalid("may not specify a duration larger than 2^32 seconds"));
    }
    Ok(())
}
