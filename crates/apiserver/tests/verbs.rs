//! What each verb promises, through the whole server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use common::{PODS, Server, pod};
use evac_apiserver::reply::Reply;
use evac_apiserver::server::backend::Asked;
use evac_clock::Clock;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

#[tokio::test]
async fn a_created_pod_is_defaulted_and_can_be_read() {
    let server = Server::with_account().await;
    let (code, created) = server.post(PODS, pod("a")).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["spec"]["restartPolicy"], "Always");
    assert_eq!(created["spec"]["serviceAccountName"], "default");
    assert_eq!(created["spec"]["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(created["status"]["phase"], "Pending");
    assert_eq!(created["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    let (code, read) = server.get(&format!("{PODS}/a")).await;
    assert_eq!((code, &read), (200, &created));
}

#[tokio::test(start_paused = true)]
async fn what_the_server_writes_follows_a_step_of_the_systems_clock() {
    static SECONDS: AtomicI64 = AtomicI64::new(0);
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()).stepped_by(&SECONDS);
    let server = Server::at(clock);
    for (name, step, written) in [
        ("a", 0, "2026-01-01T00:00:00Z"),
        ("b", 3600, "2026-01-01T01:00:00Z"),
        ("c", -3600, "2025-12-31T23:00:00Z"),
    ] {
        SECONDS.store(step, Ordering::Relaxed);
        let account = json!({"metadata": {"name": name}});
        let (code, created) = server.post("/api/v1/namespaces/default/serviceaccounts", account).await;
        assert_eq!(code, 201, "{created}");
        assert_eq!(created["metadata"]["creationTimestamp"], written);
    }
}

#[tokio::test]
async fn a_second_pod_of_the_same_name_already_exists() {
    let server = Server::with_account().await;
    server.post(PODS, pod("a")).await;
    let (code, status) = server.post(PODS, pod("a")).await;
    assert_eq!((code, status["reason"].as_str()), (409, Some("AlreadyExists")));
    assert_eq!(status["message"], "pods \"a\" already exists");
}

#[tokio::test]
async fn without_a_service_account_a_pod_is_forbidden() {
    let (code, status) = Server::new().post(PODS, pod("a")).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "pods \"a\" is forbidden: error looking up service account default/default: serviceaccount \
         \"default\" not found"
    );
}

#[tokio::test]
async fn an_update_with_an_old_version_conflicts() {
    let server = Server::with_account().await;
    let (_, created) = server.post(PODS, pod("a")).await;
    server.merge(&format!("{PODS}/a"), json!({"metadata": {"labels": {"x": "y"}}})).await;
    let (code, status) = server.put(&format!("{PODS}/a"), created).await;
    assert_eq!((code, status["reason"].as_str()), (409, Some("Conflict")));
}

#[tokio::test]
async fn a_change_that_changes_nothing_is_not_written() {
    let server = Server::with_account().await;
    let (_, created) = server.post(PODS, pod("a")).await;
    let (code, same) =
        server.merge(&format!("{PODS}/a"), json!({"metadata": {"labels": {"app": "web"}}})).await;
    assert_eq!(code, 200);
    assert_eq!(same["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn lists_select_by_label_and_field_and_come_in_chunks() {
    let server = Server::with_account().await;
    for name in ["a", "b", "c"] {
        server.post(PODS, pod(name)).await;
    }
    server.merge(&format!("{PODS}/b"), json!({"metadata": {"labels": {"app": "db"}}})).await;
    let (_, list) = server.get(&format!("{PODS}?labelSelector=app%3Ddb")).await;
    assert_eq!(list["kind"], "PodList");
    assert_eq!(names(&list), ["b"]);
    let (_, list) = server.get("/api/v1/pods?fieldSelector=metadata.name%3Dc").await;
    assert_eq!(names(&list), ["c"]);
    let (code, _) = server.get("/api/v1/pods?fieldSelector=spec.color%3Dred").await;
    assert_eq!(code, 400);
    let (_, page) = server.get(&format!("{PODS}?limit=2")).await;
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
    server.post(PODS, pod("a0")).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = server.get(&format!("{PODS}?limit=2&continue={token}")).await;
    assert_eq!((names(&page), names(&rest)), (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]));
}

fn names(list: &Value) -> Vec<String> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| o["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn deleting_a_running_pod_waits_for_its_kubelet() {
    let server = Server::with_account().await;
    server.post(PODS, pod("a")).await;
    let bound = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
                       "target": {"kind": "Node", "name": "n1"}});
    let (code, _) = server.post(&format!("{PODS}/a/binding"), bound.clone()).await;
    assert_eq!(code, 201);
    let (code, _) = server.post(&format!("{PODS}/a/binding"), bound).await;
    assert_eq!(code, 409);
    let (code, marked) = server.delete(&format!("{PODS}/a"), Value::Null).await;
    assert_eq!((code, marked["metadata"]["deletionGracePeriodSeconds"].as_i64()), (200, Some(30)));
    let uid = marked["metadata"]["uid"].clone();
    let wrong = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "other"}});
    assert_eq!(server.delete(&format!("{PODS}/a"), wrong).await.0, 409);
    let right = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    assert_eq!(server.delete(&format!("{PODS}/a"), right).await.0, 200);
    assert_eq!(server.get(&format!("{PODS}/a")).await.0, 404);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let server = Server::with_account().await;
    let before = server.api.store.revision();
    let (code, created) = server.post(&format!("{PODS}?dryRun=All"), pod("a")).await;
    assert_eq!(code, 201);
    assert!(created["metadata"]["uid"].is_string());
    assert_eq!(server.api.store.revision(), before);
}

#[tokio::test]
async fn evicting_a_pod_charges_its_budget_once() {
    let server = Server::with_account().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1,
                        "selector": {"matchLabels": {"app": "web"}}}});
    assert_eq!(server.post(budgets, budget).await.0, 201);
    for name in ["a", "b"] {
        server.post(PODS, pod(name)).await;
        let bound = json!({"metadata": {"name": name}, "target": {"name": "n1"}});
        server.post(&format!("{PODS}/{name}/binding"), bound).await;
        let running = json!({"status": {"phase": "Running",
                             "conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(server.merge(&format!("{PODS}/{name}/status"), running).await.0, 200);
    }
    let eviction =
        |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let (code, status) = server.post(&format!("{PODS}/a/eviction"), eviction("a")).await;
    assert_eq!((code, status["details"]["retryAfterSeconds"].as_i64()), (429, Some(10)));
    let seen = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
                                 "desiredHealthy": 1, "expectedPods": 2}});
    assert_eq!(server.merge(&format!("{budgets}/b/status"), seen).await.0, 200);
    let (code, answer) = server.post(&format!("{PODS}/a/eviction"), eviction("a")).await;
    assert_eq!((code, answer["status"].as_str()), (201, Some("Success")));
    let (code, status) = server.post(&format!("{PODS}/b/eviction"), eviction("b")).await;
    assert_eq!(code, 429);
    assert_eq!(status["details"]["causes"][0]["reason"], "DisruptionBudget");
    assert!(status["details"].get("retryAfterSeconds").is_none());
    let (_, evicted) = server.get(&format!("{PODS}/a")).await;
    let target =
        evicted["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "DisruptionTarget");
    assert_eq!(target.unwrap()["reason"], "EvictionByEvictionAPI");
    let (code, status) = server.post(&format!("{PODS}/b/eviction"), eviction("other")).await;
    assert_eq!((code, status["reason"].as_str()), (400, Some("BadRequest")));
}

#[tokio::test]
async fn a_watch_tells_what_happens_after_its_version() {
    let server = Server::with_account().await;
    let (_, list) = server.get(PODS).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let uri = format!("{PODS}?watch=1&resourceVersion={version}");
    let response = server.send(Request::get(uri).body(Full::default()).unwrap()).await;
    server.post(PODS, pod("a")).await;
    server.delete(&format!("{PODS}/a"), Value::Null).await;
    let mut frames = response.into_body().into_data_stream();
    let mut text = String::new();
    while text.lines().count() < 3 {
        text.push_str(std::str::from_utf8(&frames.next().await.unwrap().unwrap()).unwrap());
    }
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    // A pod that nobody runs is marked and then removed by the same request.
    assert_eq!(types, ["ADDED", "MODIFIED", "DELETED"]);
    assert_eq!(events[2]["object"]["metadata"]["name"], "a");
}

#[tokio::test]
async fn a_watch_from_a_forgotten_version_ends_with_410() {
    let server = Server::with_account().await;
    server.post(PODS, pod("a")).await;
    server.api.store.compact(server.api.store.revision());
    let uri = format!("{PODS}?watch=1&resourceVersion=1");
    let response = server.send(Request::get(uri).body(Full::default()).unwrap()).await;
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let event: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!((event["type"].as_str(), event["object"]["code"].as_i64()), (Some("ERROR"), Some(410)));
}

#[tokio::test]
async fn a_custom_resource_is_served_as_soon_as_it_is_defined() {
    let server = Server::new().await_definition().await;
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let (code, created) = server
        .post(
            path,
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
                           "spec": {"size": 3, "unknown": true}}),
        )
        .await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["spec"], json!({"size": 3, "color": "red"}));
    let (_, older) = server.get("/apis/example.com/v1alpha1/namespaces/default/widgets/w").await;
    assert_eq!(older["apiVersion"], "example.com/v1alpha1");
    let (code, status) = server
        .post(
            path,
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"},
                           "spec": {"size": "big"}}),
        )
        .await;
    assert_eq!(code, 422, "{status}");
    let (code, scale) = server.merge(&format!("{path}/w/scale"), json!({"spec": {"replicas": 4}})).await;
    assert_eq!((code, scale["spec"]["replicas"].as_i64()), (200, Some(4)));
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, _) = server.delete(&format!("{definitions}/widgets.example.com"), Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(server.get(path).await.0, 404);
    assert_eq!(server.get(&format!("{definitions}/widgets.example.com")).await.0, 404);
}

impl Server {
    async fn await_definition(self) -> Self {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer"}, "color": {"type": "string", "default": "red"},
                "replicas": {"type": "integer"}}},
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}});
        let version = |name: &str, storage: bool| {
            json!({"name": name, "served": true, "storage": storage, "schema": schema,
                   "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                                                            "statusReplicasPath": ".status.replicas"}}})
        };
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced",
                     "names": {"plural": "widgets", "kind": "Widget"},
                     "versions": [version("v1", true), version("v1alpha1", false)]}});
        let (code, answer) =
            self.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
        assert_eq!(code, 201, "{answer}");
        self
    }
}

#[tokio::test]
async fn a_namespace_is_terminating_until_it_is_finalized() {
    let server = Server::new();
    server.post("/api/v1/namespaces", json!({"metadata": {"name": "team"}})).await;
    let (code, going) = server.delete("/api/v1/namespaces/team", Value::Null).await;
    assert_eq!((code, going["status"]["phase"].as_str()), (200, Some("Terminating")));
    let (code, refused) =
        server.post("/api/v1/namespaces/team/configmaps", json!({"metadata": {"name": "late"}})).await;
    assert_eq!(
        (code, refused["details"]["causes"][0]["reason"].as_str()),
        (403, Some("NamespaceTerminating"))
    );
    let (_, mut namespace) = server.get("/api/v1/namespaces/team").await;
    namespace["spec"]["finalizers"] = json!([]);
    let (code, _) = server.put("/api/v1/namespaces/team/finalize", namespace).await;
    assert_eq!(code, 200);
    assert_eq!(server.get("/api/v1/namespaces/team").await.0, 404);
    assert_eq!(server.delete("/api/v1/namespaces/default", Value::Null).await.0, 403);
}

#[tokio::test]
async fn pods_are_asked_through_the_server_if_somebody_answers_for_them() {
    let server = Server::with_account().await;
    let backend = |asked: Asked| -> BoxFuture<'static, Option<Reply>> {
        let words = format!("{} on {} port {} path {}", asked.pod, asked.node, asked.port, asked.path);
        let reachable = asked.port == "8443";
        Box::pin(async move { reachable.then(|| Reply::words(200, words)) })
    };
    server.api.answer_for_pods("role", "agent", Arc::new(backend));
    for (name, role) in [("agent", "agent"), ("other", "other")] {
        let mut object = pod(name);
        object["metadata"]["labels"]["role"] = json!(role);
        object["spec"]["nodeName"] = json!("n");
        server.post(PODS, object).await;
        let address = json!({"status": {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}});
        server.merge(&format!("{PODS}/{name}/status"), address).await;
    }
    let asked = |path: &str| Request::get(format!("{PODS}/{path}")).body(Full::default()).unwrap();
    let answer = server.send(asked("https:agent:8443/proxy/metrics?x=1")).await;
    assert_eq!((answer.status().as_u16(), answer.headers()["content-type"].to_str().unwrap()), (200, PLAIN));
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text, "agent on n port 8443 path /metrics");
    for silent in ["agent:80", "other:8443"] {
        let (code, status) = server.get(&format!("{PODS}/{silent}/proxy/metrics")).await;
        assert_eq!((code, status["reason"].as_str()), (503, Some("ServiceUnavailable")), "{silent}");
        let port = silent.split(':').next_back().unwrap();
        let why =
            format!("error trying to reach service: dial tcp 10.1.2.3:{port}: connect: connection refused");
        assert_eq!(status["message"], why);
    }
    assert_eq!(server.post(&format!("{PODS}/agent:8443/proxy/metrics"), json!({})).await.0, 501);
}

const PLAIN: &str = "text/plain; charset=utf-8";

#[tokio::test]
async fn what_is_not_there_is_said_plainly() {
    let server = Server::new();
    assert_eq!(server.get("/api/v1/nothing").await.0, 404);
    assert_eq!(server.post("/api/v1/pods", pod("a")).await.0, 405);
    let (code, status) = server.get(&format!("{PODS}/a/log")).await;
    assert_eq!((code, status["reason"].as_str()), (501, Some("NotImplemented")));
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}});
    let (code, status) = server.post("/api/v1/namespaces/default/resourcequotas", quota).await;
    assert_eq!(code, 501);
    assert!(status["message"].as_str().unwrap().ends_with("kept but not enforced"), "{status}");
    assert_eq!(server.get("/api/v1/namespaces/default/resourcequotas").await.0, 200);
    let hook = json!({"metadata": {"name": "h"}, "webhooks": [{"name": "h.example.com", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"},
        "matchConditions": [{"name": "m", "expression": "authorizer.path('/healthz').check('get').allowed()"}]}]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let (code, status) = server.post(hooks, hook).await;
    assert_eq!(code, 501, "{status}");
    assert_eq!(server.get(&format!("{hooks}/h")).await.0, 404);
    let rules = json!([{"rule": "quantity(self.spec).isLessThan(quantity('1Gi'))"}]);
    let schema = json!({"type": "object", "properties": {"spec": {"type": "string"}}, "x-kubernetes-validations": rules});
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let (code, status) =
        server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    assert_eq!(code, 501, "{status}");
    assert_eq!(
        status["message"],
        "a validation rule is outside the profile of this server: it needs quantity()"
    );
}
