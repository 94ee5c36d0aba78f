//! The operator's HTTPS server on a real socket: who gets in, and what becomes of nonsense.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evac_api::kubevirt::request;
use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_clock::Clock;
use evac_core::machines::Config;
use evac_engine::Http;
use evac_engine::operator::index_reader::IndexReader;
use evac_engine::operator::install;
use evac_engine::operator::publish::Advertise;
use evac_engine::operator::serve::Server;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::counted::Wire;
use crate::hostile_reviews::published;

const START: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/a/start";

/// An authority that signs client certificates.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// What a client shows.
pub struct Card(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn card(&self, name: &str) -> Card {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Card(vec![certificate.der().clone()], key)
    }
}

pub struct Bench {
    pub server: Server,
    /// The operator's way to the API server, and what it asked for there.
    pub http: Http,
    pub wire: Wire,
    bundle: String,
    front: Authority,
    _config: watch::Sender<Config>,
}

impl Bench {
    pub async fn start() -> Self {
        let clock = Clock::real();
        let api = Api::new(clock, Settings { seed: 7, ..Settings::default() });
        let wire = Wire::new();
        let client = wire.client(Service::trusted(api, Identity::admin()));
        let http = Http::new(client, clock, Duration::ZERO);
        install::kinds(&http).await.unwrap();
        let front = Authority::new();
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
            "data": {
                "requestheader-client-ca-file": front.pem,
                "requestheader-allowed-names": "[\"front-proxy-client\"]",
                "requestheader-username-headers": "[\"X-Remote-User\"]",
                "requestheader-group-headers": "[\"X-Remote-Group\"]",
                "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            },
        });
        let call = request::create("/api/v1/namespaces/kube-system/configmaps", &map);
        assert_eq!(http.send(&call).await.unwrap().status, 201);
        let address = "127.0.0.1:0".parse().unwrap();
        let names = Advertise::for_address(address).names("virt-api", "kubevirt");
        let (publish, config) = watch::channel(Config::default());
        let server =
            Server::open(&http, IndexReader::of_settings(config, clock), address, names).await.unwrap();
        let mut identity = server.identity();
        let bundle = identity.wait_for(Option::is_some).await.unwrap().as_ref().unwrap().bundle.clone();
        let bench = Self { server, http, wire, bundle, front, _config: publish };
        while bench.ask(None, get("/readyz")).await.0 != 200 {}
        bench
    }

    /// What the API server shows.
    fn card(&self) -> Card {
        self.front.card("front-proxy-client")
    }

    pub async fn ask(&self, card: Option<Card>, request: Request<Full<Bytes>>) -> (u16, Value) {
        let stream = self.connect(card).await;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let answer = sender.send_request(request).await.unwrap();
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        connection.abort();
        let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
        (code, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
    }

    /// A connection on which nothing was said yet.
    pub async fn connect(&self, card: Option<Card>) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.bundle.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match card {
            Some(Card(chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
            None => config.with_no_client_auth(),
        };
        let stream = TcpStream::connect(self.server.address).await.unwrap();
        // By the name the API server uses for an aggregated API.
        let name = ServerName::try_from("virt-api.kubevirt.svc").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }
}

pub fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).body(Full::default()).unwrap()
}

fn put(path: &str, user: &str, group: &str) -> Request<Full<Bytes>> {
    let mut request = Request::put(path).header("X-Remote-Group", group);
    if !user.is_empty() {
        request = request.header("X-Remote-User", user);
    }
    request.body(Full::from("{}")).unwrap()
}

pub fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(path).body(Full::new(body.into())).unwrap()
}

pub fn message(body: &Value) -> &str {
    body["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn only_the_front_proxy_may_forward_and_only_for_users_who_may() {
    let bench = Bench::start().await;
    let admin = || put(START, "root", "system:masters");
    let (code, body) = bench.ask(None, admin()).await;
    assert_eq!((code, body["reason"].as_str()), (401, Some("Unauthorized")), "{body}");
    assert!(message(&body).starts_with("no client certificate was shown"), "{body}");
    let stranger = Authority::new().card("front-proxy-client");
    let (code, body) = bench.ask(Some(stranger), admin()).await;
    assert_eq!(code, 401, "{body}");
    assert!(message(&body).contains("not one of the API server's front proxy"), "{body}");
    let (code, body) = bench.ask(Some(bench.front.card("somebody")), admin()).await;
    assert_eq!(code, 401, "{body}");
    assert!(message(&body).contains("\"somebody\""), "{body}");
    let (code, body) = bench.ask(Some(bench.card()), put(START, "", "system:masters")).await;
    assert_eq!(code, 401, "{body}");
    assert!(message(&body).contains("on whose behalf"), "{body}");
    let (code, body) = bench.ask(Some(bench.card()), put(START, "ann", "system:authenticated")).await;
    assert_eq!(code, 403, "{body}");
    assert!(
        message(&body).contains("User \"ann\" cannot update resource \"virtualmachines/start\""),
        "{body}"
    );
    let (code, body) = bench.ask(Some(bench.card()), admin()).await;
    assert_eq!(
        (code, message(&body)),
        (404, "virtualmachine.kubevirt.io \"a\" not found"),
        "it got through to where there is no such machine"
    );
    bench.server.close().await;
}

#[tokio::test]
async fn everybody_may_see_what_there_is_and_whether_it_works() {
    let bench = Bench::start().await;
    let (code, body) = bench.ask(None, get("/apis/subresources.kubevirt.io/v1")).await;
    assert_eq!(code, 200, "{body}");
    let names: Vec<&str> =
        body["resources"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"virtualmachines/start"), "{names:?}");
    assert_eq!(bench.ask(None, get("/healthz")).await, (200, json!("ok")));
    let (code, body) = bench.ask(None, get("/apis/other.example")).await;
    assert_eq!((code, message(&body)), (404, "nothing is served at /apis/other.example"));
}

#[tokio::test]
async fn reviews_are_answered_and_nonsense_gets_one_clear_sentence() {
    let bench = Bench::start().await;
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "r1", "operation": "CREATE", "object": {"spec": {"runStrategy": "Sometimes", "template": {}}}},
    });
    let path = "/virtualmachines-validate";
    let (code, body) = bench.ask(None, post(path, review.to_string())).await;
    assert_eq!(
        (code, &body["response"]["uid"], &body["response"]["allowed"]),
        (200, &json!("r1"), &json!(false))
    );
    let mut nameless = review.clone();
    nameless["request"]["uid"] = json!("");
    let cases = [
        ("{", "this is not an admission review: EOF while parsing"),
        ("[]", "this is not an admission review: kind AdmissionReview"),
        ("{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}", "this is not an admission review: kind AdmissionReview"),
        (&nameless.to_string(), "this is not an admission review: request.uid is missing"),
    ];
    for (nonsense, sentence) in cases {
        let (code, body) = bench.ask(None, post(path, nonsense.to_owned())).await;
        assert_eq!((code, body["kind"].as_str()), (400, Some("Status")), "{body}");
        assert!(message(&body).starts_with(sentence), "{body}");
    }
    let (code, body) = bench.ask(None, get(path)).await;
    assert_eq!((code, message(&body)), (405, "reviews are sent by POST"));
}

#[tokio::test]
async fn what_is_too_large_is_not_read() {
    let bench = Bench::start().await;
    let path = published(&bench, "/virtualmachines-validate");
    let (code, body) = bench.ask(None, post(&path, vec![b' '; 9 * 1024 * 1024])).await;
    assert_eq!(code, 413, "{body}");
    assert_eq!(message(&body), "the request is larger than 8388608 bytes");
    let (code, body) = bench.ask(None, post("/virtualmachines-validate", vec![b' '; 100 * 1024])).await;
    assert_eq!((code, message(&body)), (413, "the request is larger than 65536 bytes"), "of a stranger");
    let mut large = put(START, "root", "system:masters");
    *large.body_mut() = Full::from(vec![b' '; 100 * 1024]);
    let (code, body) = bench.ask(Some(bench.card()), large).await;
    assert_eq!((code, message(&body)), (413, "the request is larger than 65536 bytes"));
}
