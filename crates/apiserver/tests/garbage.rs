//! Requests that nobody would send: whatever comes, the server answers with a code of a healthy server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

mod common;

use common::{PODS, Server, pod};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

#[derive(Debug, Clone)]
struct Ask {
    method: &'static str,
    path: String,
    content: String,
    accept: String,
    body: Vec<u8>,
}

/// JSON with the names that objects and patches have, in places where they need not be.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|n| json!(n)),
        "(a|c|object|string|self|1/0==self|self.all(a,a)|1Gi|100m|True|-1|\\$|/|~1|2026-01-01T00:00:00Z|.{0,6})".prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "labels",
        "name",
        "containers",
        "$patch",
        "$retainKeys",
        "finalizers",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/finalizers",
        "resources",
        "requests",
        "cpu",
        "op",
        "path",
        "value",
        "from",
        "managedFields",
        "ownerReferences",
        "kind",
        "apiVersion",
        "conditions",
        "type",
        "ports",
        "tolerations",
        "deleteOptions",
        "preconditions",
        "creationTimestamp",
        "openAPIV3Schema",
        "properties",
        "items",
        "x-kubernetes-validations",
        "rule",
        "messageExpression",
        "matchConditions",
        "expression",
        "",
    ]);
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((name.clone(), inner), 0..5)
                .prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

fn any_ask() -> impl Strategy<Value = Ask> {
    let method = prop::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]);
    let place = prop::sample::select(vec![
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/pods/a",
        "/api/v1/namespaces/default/pods/a/status",
        "/api/v1/namespaces/default/pods/a/eviction",
        "/api/v1/namespaces/default/pods/a/binding",
        "/api/v1/nodes/n",
        "/apis/apps/v1/namespaces/default/deployments/d",
        "/apis/apps/v1/namespaces/default/deployments/d/scale",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis",
        "/openapi/v3/api/v1",
        "/",
    ]);
    let word = prop::sample::select(vec![
        "labelSelector",
        "fieldSelector",
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "fieldManager",
        "fieldValidation",
        "dryRun",
        "force",
        "gracePeriodSeconds",
        "propagationPolicy",
        "includeObject",
        "timeoutSeconds",
        "pretty",
    ]);
    let value =
        "(All|Strict|-1|0|99999999999999999999|Exact|a%3Db|a+in+%28b%29|%21x|true|f|[a-z%0-9(),=!]{0,12})";
    let query = vec((word, value), 0..3);
    let content = "(application/(json|yaml|json-patch\\+json|merge-patch\\+json|strategic-merge-patch\\+json|\
                   apply-patch\\+yaml|vnd\\.kubernetes\\.protobuf)|[a-z/;=]{0,10})";
    let accept = "(application/(json|yaml|vnd\\.kubernetes\\.protobuf)(;as=(Table|PartialObjectMetadata);v=v1;\
                  g=meta\\.k8s\\.io)?|\\*/\\*|[a-z/;=,]{0,10})";
    let body = prop_oneof![
        6 => any_json().prop_map(|value| value.to_string().into_bytes()),
        1 => vec(any_json(), 0..3).prop_map(|items| Value::from(items).to_string().into_bytes()),
        1 => vec(any::<u8>(), 0..60),
        1 => vec(any::<u8>(), 0..60).prop_map(|bytes| [b"k8s\0\n\x0e\n\x02v1\x12\x03Pod\x12".to_vec(), bytes].concat()),
    ];
    (method, place, query, content, accept, body).prop_map(|(method, place, query, content, accept, body)| {
        let query: Vec<String> = query.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        Ask { method, path: format!("{place}?{}", query.join("&")), content, accept, body }
    })
}

/// A definition whose rules were written by nobody, and an object of it.
fn any_rule() -> impl Strategy<Value = (String, Value)> {
    let word = prop::sample::select(vec![
        "self",
        "oldSelf",
        ".spec",
        ".metadata.name",
        ".a",
        ".l",
        "[0]",
        "[?1]",
        ".?a",
        ".all(x, ",
        ".map(x, ",
        ")",
        "(",
        "x",
        " == ",
        " + ",
        " && ",
        " ? ",
        " : ",
        "1",
        "'a'",
        "has(",
        "size(",
        ".size()",
        " in ",
        "!",
        "-",
        "[",
        "]",
        ".matches('a')",
        ".orValue(1)",
        "quantity(",
        "duration('1h')",
        "{",
        "}",
        "true",
    ]);
    (vec(word, 1..9).prop_map(|words| words.concat()), any_json())
}

/// What kube-apiserver too answers with 500 though the request is at fault; see the conformance cases.
const INTERNAL_ANYWHERE: [&str; 8] = [
    "resourceVersion: Invalid value",
    "target.name: Required value",
    "unknown patch type",
    "does not contain declared merge key",
    "list element types are not identical",
    "cannot merge lists without merge key",
    "merging lists cannot yet be specified in the patch",
    "The order in patch list",
];

/// A broken escape in a query is the client's mistake before the request is one.
fn is_sendable(ask: &Ask) -> bool {
    ask.path.parse::<http::Uri>().is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_requests_breaks_the_server(asks in vec(any_ask(), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let server = Server::with_account().await;
            server.post(PODS, pod("a")).await;
            for ask in asks.iter().filter(|ask| is_sendable(ask)) {
                let request = Request::builder()
                    .method(Method::from_bytes(ask.method.as_bytes()).unwrap())
                    .uri(&ask.path)
                    .header("content-type", &ask.content)
                    .header("accept", &ask.accept)
                    .body(Full::from(ask.body.clone()))
                    .unwrap();
                let answer = server.send(request).await;
                let code = answer.status().as_u16();
                if code >= 500 && !matches!(code, 501 | 504) {
                    let body = answer.into_body().collect().await.unwrap().to_bytes();
                    let body = String::from_utf8_lossy(&body);
                    let known = code == 500 && INTERNAL_ANYWHERE.iter().any(|part| body.contains(part));
                    assert!(known, "{code} for {ask:?}: {body}");
                }
            }
            assert_eq!(server.get(PODS).await.0, 200);
        });
    }

    #[test]
    fn no_rule_breaks_the_server((rule, spec) in any_rule()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let server = Server::with_account().await;
            let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
                "properties": {"a": {"type": "integer"}, "l": {"type": "array", "items": {"type": "string"}}},
                "x-kubernetes-validations": [{"rule": rule}]}},
                "x-kubernetes-validations": [{"rule": format!("true || {rule}"), "messageExpression": rule}]});
            let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema}}]}});
            let code = server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await.0;
            assert!(matches!(code, 201 | 422 | 501), "{code} for {rule}");
            let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec});
            let code = server.post("/apis/example.com/v1/namespaces/default/things", thing).await.0;
            assert!(code < 500, "{code} for {rule}");
        });
    }
}
