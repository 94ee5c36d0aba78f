//! A real admission webhook over HTTPS, one for both arms.
//!
//! The path says what it does: `/allow`, `/deny`, `/deny/CODE`, `/silent` (denies without a word), `/warn`,
//! `/label` (adds a label), `/name` (writes who asked and for what into annotations), `/patch/spoilt` and
//! `/patch/key` (remove what is not there), `/patch/loose` (what only some libraries take),
//! `/status/CODE` (answers with an HTTP error), `/nonsense` (answers no review), `/uid` (answers another
//! request).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A running webhook server.
pub struct Hooks {
    url: String,
    authority: String,
}

impl Hooks {
    pub async fn serve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (config, authority) = certificates();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let server = auto::Builder::new(TokioExecutor::new());
                    // A client that hangs up is no failure of the test.
                    let _ = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
                });
            }
        });
        Self { url, authority: STANDARD.encode(authority) }
    }

    /// What cases may use: `$hook` (the address) and `$ca` (whom to trust).
    pub fn values(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("hook".into(), self.url.clone()), ("ca".into(), self.authority.clone())])
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let bytes =
        request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let review: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let asked = &review["request"];
    let mut response = json!({"uid": asked["uid"], "allowed": true});
    let mut code = 200;
    let last = path.rsplit('/').next().unwrap_or_default();
    match path.trim_start_matches('/').split('/').next().unwrap_or_default() {
        "deny" => {
            response["allowed"] = json!(false);
            response["status"] = json!({"message": "this is not wanted here", "reason": "TooManyRequests"});
            if let Ok(code) = last.parse::<u16>() {
                response["status"] = json!({"code": code, "message": "this is not wanted here"});
            }
        }
        "silent" => response["allowed"] = json!(false),
        "warn" => response["warnings"] = json!(["think twice", "and once more"]),
        "label" => patch(
            &mut response,
            &json!([{"op": "add", "path": "/metadata/labels", "value": {"hooked": "yes"}}]),
        ),
        "name" => {
            let told = json!({
                "by": asked["userInfo"]["username"], "what": asked["operation"],
                "on": format!("{}/{}", asked["resource"]["resource"], asked["subResource"]),
                "kind": asked["kind"].to_string(), "named": asked["name"].to_string(),
                "old": asked["oldObject"].is_object().to_string(), "options": asked["options"].to_string(),
            });
            patch(&mut response, &json!([{"op": "add", "path": "/metadata/annotations", "value": told}]));
        }
        "patch" => patch(
            &mut response,
            &match last {
                "loose" => json!([
                    {"op": "replace", "path": "/metadata/labels", "value": {"hooked": "yes"}},
                    {"op": "add", "path": "/metadata/finalizers", "value": ["a.example.com/1", "b.example.com/2"]},
                    {"op": "remove", "path": "/metadata/finalizers/-1", "reason": "unknown"},
                    {"op": "remove", "path": "/metadata/finalizers/0"},
                ]),
                "key" => json!([{"op": "remove", "path": "/data/nowhere"}]),
                _ => json!([{"op": "remove", "path": "/spec/nowhere"}]),
            },
        ),
        "status" => code = last.parse().unwrap_or(500),
        "nonsense" => return Ok(Response::new(Full::from(r#"{"kind":"Nothing","apiVersion":"v1"}"#))),
        "uid" => response["uid"] = json!("another"),
        _ => {}
    }
    let body = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
    let answer = Response::builder().status(code).header("content-type", "application/json");
    Ok(answer.body(Full::from(body.to_string())).unwrap())
}

fn patch(response: &mut Value, operations: &Value) {
    response["patchType"] = json!("JSONPatch");
    response["patch"] = json!(STANDARD.encode(operations.to_string()));
}

fn certificates() -> (rustls::ServerConfig, String) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::from_params(&authority, &authority_key);
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    (config, authority_pem)
}
