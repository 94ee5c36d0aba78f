//! Puts into a cluster what the roles need: kinds, a namespace, a place for settings.

use std::time::Duration;

use evac_api::Call;
use evac_api::failover::definition;
use evac_api::kubevirt::{NAMESPACE, crds, request, settings, wire};
use evac_api::wire::{List, Named};
use evac_core::machines::beside::Upstream;
use serde_json::{Value, json};

use super::power;
use super::publish::{self, API_SERVICES, Reviews};
use crate::http::{Http, HttpError, parse};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Creates what is missing and leaves alone what is there: the kinds of machines and of maintenance.
pub async fn kinds(http: &Http) -> Result<(), HttpError> {
    machines(http).await?;
    maintenance(http).await
}

/// The kinds of machines, and an object for their settings. Where virt-operator is in charge they are its own.
pub async fn machines(http: &Http) -> Result<(), HttpError> {
    namespace(http, NAMESPACE).await?;
    define(http, &crds::all()).await?;
    let settings = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": NAMESPACE},
        "spec": {},
    });
    ensure(http, &format!("/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/kubevirts"), &settings).await
}

/// The kinds of maintenance.
pub async fn maintenance(http: &Http) -> Result<(), HttpError> {
    define(http, &evac_api::maintenance::crds::all()).await
}

pub async fn namespace(http: &Http, name: &str) -> Result<(), HttpError> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    ensure(http, "/api/v1/namespaces", &namespace).await
}

/// Creates these definitions, and waits until their kinds can be used.
pub async fn define(http: &Http, definitions: &[Value]) -> Result<(), HttpError> {
    for definition in definitions {
        ensure(http, DEFINITIONS, definition).await?;
    }
    for definition in definitions {
        established(http, definition["metadata"]["name"].as_str().unwrap_or_default()).await?;
    }
    Ok(())
}

/// Creates the kind of failover policies.
pub async fn policies(http: &Http) -> Result<(), HttpError> {
    define(http, &[definition::definition()]).await
}

/// What the cluster shows of KubeVirt's own control plane. Whether a virt-api is there is asked only `with_commands`: an account that serves them itself
/// need not have the right to look.
pub async fn upstream(http: &Http, with_commands: bool) -> Result<Upstream, HttpError> {
    let answer = http.send(&Call::get("/apis/kubevirt.io/v1/kubevirts")).await?;
    let mut upstream = match answer.status {
        404 => Upstream::default(),
        _ => settings::upstream(&parse::<List<wire::KubeVirt>>(&answer)?.items),
    };
    if with_commands {
        let path = format!("{API_SERVICES}/v1.{}", power::GROUP);
        // What cannot be read is not known to be there.
        let found = http.read::<Named>(&Call::get(path)).await.ok();
        upstream.virt_api = found.is_some_and(|found| !publish::is_ours(&found));
    }
    Ok(upstream)
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
