//! Targets that are requests to the embedded server.

use std::sync::Arc;

use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_clock::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Request;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const KINDS: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"];

/// A server, and what is asked of it with a text: what is wrong with its answers.
type Try = for<'a> fn(&'a Arc<Api>, &'a str) -> BoxFuture<'a, Option<String>>;

pub fn each(texts: &mut dyn Iterator<Item = String>, wrong: Try) -> Option<(String, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let Ok(runtime) = runtime else { return Some((String::new(), "there is no runtime".into())) };
    runtime.block_on(async {
        let api = Api::new(Clock::real(), Settings { seed: 1, ..Settings::default() });
        let map = json!({
            "metadata": {"name": "map", "labels": {"a": "b"}, "finalizers": ["example.com/stays"]},
            "data": {"x": "1", "y": "2"},
        });
        send(&api, "POST", MAPS, "application/json", map.to_string()).await;
        for text in texts {
            if let Some(words) = wrong(&api, &text).await {
                return Some((text, words));
            }
        }
        None
    })
}

async fn send(api: &Arc<Api>, method: &str, path: &str, kind: &str, body: String) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, kind);
    let Ok(request) = request.body(Body::from(body.into_bytes())) else { return (0, Value::Null) };
    let Ok(answer) = Service::trusted(api.clone(), Identity::admin()).oneshot(request).await;
    let status = answer.status().as_u16();
    let bytes =
        answer.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Whatever is sent as a patch, the server answers, and the object stays what it is. As in Kubernetes a strategic patch whose lists
/// contradict each other is answered with 500, and so is a version that is no number.
pub fn patch<'a>(api: &'a Arc<Api>, text: &'a str) -> BoxFuture<'a, Option<String>> {
    async move {
        let path = format!("{MAPS}/map");
        for kind in KINDS {
            let (status, answer) = send(api, "PATCH", &path, kind, text.to_owned()).await;
            let message = answer["message"].as_str().unwrap_or_default();
            let as_kubernetes = message.starts_with("strconv.ParseUint") || kind == KINDS[2];
            let excused = status == 500 && answer["kind"] == "Status" && as_kubernetes;
            if !(200..500).contains(&status) && !excused {
                return Some(format!("as {kind} it is answered with {status}: {answer}"));
            }
            let (status, map) = send(api, "GET", &path, "application/json", String::new()).await;
            if status != 200 || map["metadata"]["name"] != "map" || map["kind"] != "ConfigMap" {
                return Some(format!("after it as {kind} the object is {status}: {map}"));
            }
        }
        None
    }
    .boxed()
}

/// Whatever stands in a condition of a webhook, it is taken, refused, or said to be outside of what this server does (501).
pub fn condition<'a>(api: &'a Arc<Api>, text: &'a str) -> BoxFuture<'a, Option<String>> {
    async move {
        let webhook = json!({
            "metadata": {"name": "w"},
            "webhooks": [{
                "name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
                "clientConfig": {"service": {"namespace": "default", "name": "w", "path": "/"}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE"]}],
                "matchConditions": [{"name": "only", "expression": text}],
            }],
        });
        let (status, answer) = send(api, "POST", WEBHOOKS, "application/json", webhook.to_string()).await;
        if !(200..500).contains(&status) && status != 501 {
            return Some(format!("it is answered with {status}: {answer}"));
        }
        if status < 300 {
            // It is evaluated when a secret is created.
            let secret = json!({"metadata": {"generateName": "s-", "labels": {"a": "b"}}});
            let path = "/api/v1/namespaces/default/secrets";
            let (status, answer) = send(api, "POST", path, "application/json", secret.to_string()).await;
            send(api, "DELETE", &format!("{WEBHOOKS}/w"), "application/json", "{}".into()).await;
            if !(200..500).contains(&status) {
                return Some(format!("with it a secret is answered with {status}: {answer}"));
            }
        }
        None
    }
    .boxed()
}
