//! A tenant whose API server never comes to an end: a visit is cut off at its bounds, the reason stands on the instance, and the machine goes at
//! its deadline.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use evac_api::kubevirt::request::create;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_apiserver::service::Service;
use evac_clock::Clock;
use evac_core::machines::{Role, Roles};
use evac_engine::Http;
use evac_engine::operator::{self, Operator, install, tenants};
use futures::StreamExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::cluster::VMIS;

/// Longer than anything here takes; only a test that fails waits for it.
const LONG: Duration = Duration::from_secs(40);

/// What never ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endless {
    /// Lists: empty pages, each with the promise of another.
    Pages,
    /// Lists: pages full of pods.
    Pods,
    /// One object.
    Object,
    /// Changes after the list.
    Changes,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

fn whole(value: &Value) -> Body {
    Full::new(Bytes::from(value.to_string())).boxed_unsync()
}

fn endless(piece: Bytes) -> Body {
    let pieces = futures::stream::repeat(piece).map(|piece| Ok(Frame::data(piece)));
    StreamBody::new(pieces).boxed_unsync()
}

fn pod(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("p{number}"), "namespace": "shop", "uid": format!("u{number}"), "resourceVersion": "7"},
        "spec": {"nodeName": "worker-1"}, "status": {"phase": "Running"},
    })
}

fn answer(kind: Endless, count: &AtomicUsize, method: &str, uri: &http::Uri) -> (u16, Body) {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "worker-1", "uid": "n", "resourceVersion": "5"},
        "spec": {"providerID": "kubevirt://worker-1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let list = |kind: &str, items: Vec<Value>, next: &str| {
        whole(
            &json!({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "6", "continue": next}, "items": items}),
        )
    };
    let number = count.fetch_add(1, Ordering::Relaxed);
    match (method, path) {
        ("GET", "/api/v1/nodes/worker-1") if kind == Endless::Object => {
            (200, endless(Bytes::from(vec![b' '; 1 << 16])))
        }
        ("GET", "/api/v1/nodes/worker-1") => (200, whole(&node)),
        _ if query.contains("sendInitialEvents") => {
            (400, whole(&json!({"kind": "Status", "code": 400, "message": "streamed lists are unknown"})))
        }
        (_, "/api/v1/pods") if query.contains("watch=true") && kind == Endless::Changes => {
            let event = json!({"type": "MODIFIED", "object": pod(number)}).to_string() + "\n";
            (200, endless(Bytes::from(event)))
        }
        _ if query.contains("watch=true") => {
            (200, StreamBody::new(futures::stream::pending()).boxed_unsync())
        }
        (_, "/api/v1/nodes") => (200, list("NodeList", vec![node], "")),
        (_, "/api/v1/pods") => match kind {
            Endless::Pages => (200, list("PodList", Vec::new(), "more")),
            Endless::Pods => {
                (200, list("PodList", (0..500).map(|n| pod(number * 500 + n)).collect(), "more"))
            }
            Endless::Object | Endless::Changes => (200, list("PodList", vec![pod(0)], "")),
        },
        ("PATCH", _) => (503, whole(&json!({"kind": "Status", "code": 503, "message": "not at the moment"}))),
        ("GET", _) => (
            404,
            whole(&json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"})),
        ),
        _ => (403, whole(&json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}))),
    }
}

/// Opens such a server; the kubeconfig that leads to it, and the number of requests it got.
async fn serve(kind: Endless) -> (String, Arc<AtomicUsize>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let secret = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], secret)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counting = count.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, count) = (acceptor.clone(), counting.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(move |request: Request<Incoming>| {
                    let (code, body) = answer(kind, &count, request.method().as_str(), request.uri());
                    let answer = Response::builder()
                        .status(code)
                        .header("content-type", "application/json")
                        .body(body);
                    async move { answer }
                });
                // A client that has had enough hangs up.
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority-data": STANDARD.encode(certificate.pem()),
        }}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "sesame"}}],
    });
    (kubeconfig.to_string(), count)
}

/// What is told of the visit: reason and message of the condition; and whether the machine went at its deadline.
async fn visited(kind: Endless) -> (String, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let api = Api::new(Clock::real(), Settings { seed: 1, ..Settings::default() });
    let client = kube::Client::new(Service::trusted(api, Identity::admin()), "default");
    let host = Http::new(client, Clock::real(), Duration::ZERO);
    install::kinds(&host).await.unwrap();
    let (kubeconfig, _) = serve(kind).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "blue-kubeconfig"}, "stringData": {"value": kubeconfig},
    });
    let instance = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {
            "name": "blue-x",
            "labels": {
                "cluster.x-k8s.io/cluster-name": "blue",
                "capk.cluster.x-k8s.io/kubevirt-machine-name": "worker-1",
            },
            "annotations": {"evac.dev/tenant-timeout": "12s"},
        },
        "spec": {"evictionStrategy": "External", "domain": {"devices": {}}},
        "status": {"phase": "Running", "nodeName": "node-1", "evacuationNodeName": "node-1"},
    });
    for (path, object) in [("/api/v1/namespaces/default/secrets", &secret), (VMIS, &instance)] {
        assert_eq!(host.send(&create(path, object)).await.unwrap().status, 201);
    }
    let tenants = tenants::Settings { loopback: true, ..tenants::Settings::default() };
    let settings = operator::Settings { tenants, ..operator::Settings::default() };
    let roles: Roles = Role::Tenants.word().parse().unwrap();
    let operator = Operator::start_set(host.clone(), roles, settings);
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance"));
    let instances = kube::Api::<DynamicObject>::namespaced_with(host.client().clone(), "default", &kind);
    let condition = |vmi: Option<&DynamicObject>| {
        let conditions = vmi?.data["status"]["conditions"].as_array()?;
        conditions.iter().find(|one| one["type"] == "TenantBlocked").cloned()
    };
    let blocked =
        await_condition(instances.clone(), "blue-x", |vmi: Option<&DynamicObject>| condition(vmi).is_some());
    let found = tokio::time::timeout(LONG, blocked).await.expect("nothing is told").unwrap();
    let found = condition(found.as_ref()).unwrap();
    let gone = await_condition(instances, "blue-x", |vmi: Option<&DynamicObject>| {
        vmi.is_none_or(|vmi| vmi.metadata.deletion_timestamp.is_some())
    });
    tokio::time::timeout(LONG, gone).await.expect("the deadline does not hold").unwrap();
    operator.stop().await;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

#[tokio::test]
async fn pages_without_end_are_not_read_for_ever() {
    let (reason, message) = visited(Endless::Pages).await;
    assert_eq!(reason, "TenantTooMuch", "{message}");
    assert_eq!(message, "cluster blue sends more than a visit may take: more than 200 pages of lists");
}

#[tokio::test]
async fn objects_without_end_are_not_kept() {
    let (reason, message) = visited(Endless::Pods).await;
    assert_eq!(reason, "TenantTooMuch", "{message}");
    assert_eq!(message, "cluster blue sends more than a visit may take: more than 20000 objects");
}

#[tokio::test]
async fn an_object_without_end_is_not_read_to_its_end() {
    let (reason, message) = visited(Endless::Object).await;
    assert_eq!(reason, "TenantTooMuch", "{message}");
    assert_eq!(message, "cluster blue sends more than a visit may take: more than 16 MiB");
}

#[tokio::test]
async fn changes_without_end_are_not_kept() {
    let (reason, message) = visited(Endless::Changes).await;
    assert_eq!(reason, "TenantTooMuch", "{message}");
    assert!(message.starts_with("cluster blue sends more than a visit may take: more than "), "{message}");
}
