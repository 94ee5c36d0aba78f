//! Puts into a cluster what the roles need: kinds, a namespace, a place for settings.

use std::time::Duration;

use evac_api::Call;
use evac_api::failover::definition;
use evac_api::kubevirt::{NAMESPACE, crds, request};
use evac_api::maintenance;
use serde_json::{Value, json};

use super::publish::Reviews;
use crate::http::{Http, HttpError, parse};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Creates what is missing and leaves alone what is there.
pub async fn kinds(http: &Http) -> Result<(), HttpError> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    ensure(http, "/api/v1/namespaces", &namespace).await?;
    let definitions: Vec<Value> = crds::all().into_iter().chain(maintenance::crds::all()).collect();
    for definition in &definitions {
        ensure(http, DEFINITIONS, definition).await?;
    }
    for definition in &definitions {
        established(http, definition["metadata"]["name"].as_str().unwrap_or_default()).await?;
    }
    let settings = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": NAMESPACE},
        "spec": {},
    });
    ensure(http, &format!("/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/kubevirts"), &settings).await
}

/// Creates the kind of failover policies.
pub async fn policies(http: &Http) -> Result<(), HttpError> {
    ensure(http, DEFINITIONS, &definition::definition()).await?;
    established(http, definition::NAME).await
}

/// Whether KubeVirt's own control plane looks after machines here.
pub async fn kubevirt_is_deployed(http: &Http) -> Result<bool, HttpError> {
    let answer = http.send(&Call::get("/apis/kubevirt.io/v1/kubevirts")).await?;
    if answer.status == 404 {
        return Ok(false);
    }
    let list: Value = parse(&answer)?;
    let phases = list["items"].as_array().into_iter().flatten().map(|object| &object["status"]["phase"]);
    Ok(phases.into_iter().any(|phase| phase == "Deployed"))
}

/// Makes the server ask us about new objects. Somebody has to answer for the service they name.
pub async fn reviews(http: &Http, reviews: Reviews) -> Result<(), HttpError> {
    for configuration in reviews.configurations() {
        let plural = match configuration["kind"].as_str() {
            Some("MutatingWebhookConfiguration") => "mutatingwebhookconfigurations",
            _ => "validatingwebhookconfigurations",
        };
        ensure(http, &format!("/apis/admissionregistration.k8s.io/v1/{plural}"), &configuration).await?;
    }
    Ok(())
}

async fn ensure(http: &Http, collection: &str, object: &Value) -> Result<(), HttpError> {
    let answer = http.send(&request::create(collection, object)).await?;
    if answer.status == 409 {
        return Ok(());
    }
    parse::<Value>(&answer).map(|_| ())
}

/// A kind can be used when its definition says so, which takes a moment on a real server.
async fn established(http: &Http, name: &str) -> Result<(), HttpError> {
    let call = Call::get(format!("{DEFINITIONS}/{name}"));
    for _ in 0..100 {
        let definition: Value = http.read(&call).await?;
        let conditions = definition["status"]["conditions"].as_array();
        let is_true = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
        if conditions.is_some_and(|list| list.iter().any(is_true)) {
            return Ok(());
        }
        http.clock().sleep(Duration::from_millis(100)).await;
    }
    Err(HttpError::Lost(format!("the definition {name} was not established within 10 s")))
}
