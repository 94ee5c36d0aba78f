//! Who is calling, and whether they may.
//!
//! The API server forwards requests for aggregated groups. It shows a certificate of its front proxy and names the user in
//! headers; both the authority of that certificate and the names of the headers are published in a ConfigMap. Whether
//! the user may do what is asked is then asked back from the API server, so the cluster's own rules decide.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evac_api::call::named;
use evac_api::kubevirt::{request, wire};
use evac_clock::Clock;
use http::HeaderMap;
use percent_encoding::percent_decode_str;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::feeds::forever;
use crate::http::{Http, HttpError};
use crate::watch::{Report, Source};

const NAME: &str = "extension-apiserver-authentication";
const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Why somebody was turned away.
#[derive(Debug, Error)]
pub enum Stranger {
    #[error("the API server has not published who its front proxy is (ConfigMap kube-system/{NAME})")]
    Unprepared,
    #[error("no client certificate was shown; only the API server may forward requests to this address")]
    NoCertificate,
    #[error("the client certificate is not one of the API server's front proxy: {0}")]
    WrongCertificate(String),
    #[error(
        "the client certificate is called {0:?}, which is not among the names allowed for the front proxy"
    )]
    WrongName(String),
    #[error("the request does not say on whose behalf it is made")]
    Nameless,
}

/// A user as the API server knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// How to recognise the API server's front proxy.
pub struct FrontProxy {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Empty: any name of that authority.
    allowed: Vec<String>,
    user_headers: Vec<String>,
    group_headers: Vec<String>,
    extra_prefixes: Vec<String>,
}

impl FrontProxy {
    fn read(map: &wire::ConfigMap) -> Option<Self> {
        let pem = map.data.get("requestheader-client-ca-file")?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()).flatten() {
            if let Err(error) = roots.add(certificate) {
                tracing::warn!(%error, "an authority of the front proxy cannot be used");
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
        let list = |key: &str, usual: &[&str]| -> Vec<String> {
            let parsed = map.data.get(key).and_then(|text| serde_json::from_str::<Vec<String>>(text).ok());
            parsed.unwrap_or_else(|| usual.iter().map(|&word| word.to_owned()).collect())
        };
        Some(Self {
            verifier,
            allowed: list("requestheader-allowed-names", &[]),
            user_headers: list("requestheader-username-headers", &["X-Remote-User"]),
            group_headers: list("requestheader-group-headers", &["X-Remote-Group"]),
            extra_prefixes: list("requestheader-extra-headers-prefix", &["X-Remote-Extra-"]),
        })
    }

    /// The user on whose behalf a request is made.
    pub fn user(
        &self,
        chain: &[CertificateDer<'_>],
        headers: &HeaderMap,
        clock: Clock,
    ) -> Result<User, Stranger> {
        let (first, rest) = chain.split_first().ok_or(Stranger::NoCertificate)?;
        let seconds = u64::try_from(clock.calendar().as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        self.verifier
            .verify_client_cert(first, rest, now)
            .map_err(|error| Stranger::WrongCertificate(error.to_string()))?;
        let (_, certificate) = X509Certificate::from_der(first)
            .map_err(|error| Stranger::WrongCertificate(error.to_string()))?;
        let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        let name = name.unwrap_or_default();
        if !self.allowed.is_empty() && !self.allowed.iter().any(|allowed| allowed == name) {
            return Err(Stranger::WrongName(name.to_owned()));
        }
        self.named(headers).ok_or(Stranger::Nameless)
    }

    fn named(&self, headers: &HeaderMap) -> Option<User> {
        let text = |value: &http::HeaderValue| value.to_str().ok().map(ToOwned::to_owned);
        let name = self.user_headers.iter().find_map(|header| headers.get(header.as_str()).and_then(text));
        let groups = self.group_headers.iter().flat_map(|header| headers.get_all(header.as_str()));
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, value) in headers {
            let key = self.extra_prefixes.iter().find_map(|prefix| {
                // Header names arrive in lower case.
                header.as_str().strip_prefix(prefix.to_ascii_lowercase().as_str())
            });
            if let (Some(key), Some(value)) = (key, text(value)) {
                let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
                extra.entry(key).or_default().push(value);
            }
        }
        Some(User {
            name: name.filter(|name| !name.is_empty())?,
            groups: groups.filter_map(text).collect(),
            extra,
        })
    }
}

/// Follows what the API server says about its front proxy.
pub struct Callers {
    http: Http,
    front: watch::Receiver<Option<Arc<FrontProxy>>>,
    _tasks: JoinSet<()>,
}

/// What somebody wants to do, as the rules of the cluster name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceAttributes {
    pub verb: &'static str,
    pub group: &'static str,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub subresource: String,
    pub name: String,
}

impl Callers {
    pub fn follow(http: &Http) -> Self {
        let (publish, front) = watch::channel(None);
        let (sender, mut inbox) = mpsc::unbounded_channel::<Report<wire::ConfigMap>>();
        let source = Source { path: CONFIG_MAPS.into(), query: named(NAME), page: 0 };
        let version = |map: &wire::ConfigMap| map.metadata.resource_version.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(forever(http.clone(), source, sender, |report| report, version));
        tasks.spawn(async move {
            while let Some(report) = inbox.recv().await {
                let front = match report {
                    Report::Listed(list, _) => list.first().and_then(FrontProxy::read),
                    Report::Seen(map) => FrontProxy::read(&map),
                    Report::Gone(_) => None,
                    Report::Failed { error, .. } => {
                        tracing::warn!(%error, "the ConfigMap kube-system/{NAME} cannot be read");
                        continue;
                    }
                };
                publish.send_replace(front.map(Arc::new));
            }
        });
        Self { http: http.clone(), front, _tasks: tasks }
    }

    /// Whether callers can be told apart yet.
    pub fn is_ready(&self) -> bool {
        self.front.borrow().is_some()
    }

    pub fn user(&self, chain: &[CertificateDer<'_>], headers: &HeaderMap) -> Result<User, Stranger> {
        let front = self.front.borrow().clone().ok_or(Stranger::Unprepared)?;
        front.user(chain, headers, self.http.clock())
    }

    /// `None` if they may, otherwise why not.
    pub async fn objection(
        &self,
        user: &User,
        attributes: &ResourceAttributes,
    ) -> Result<Option<String>, HttpError> {
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name,
                "groups": user.groups,
                "extra": user.extra,
                "resourceAttributes": {
                    "verb": attributes.verb,
                    "group": attributes.group,
                    "version": attributes.version,
                    "namespace": attributes.namespace,
                    "resource": attributes.resource,
                    "subresource": attributes.subresource,
                    "name": attributes.name,
                },
            },
        });
        let review: Value = self.http.read(&request::create(REVIEWS, &body)).await?;
        if review["status"]["allowed"] == true {
            return Ok(None);
        }
        let why = review["status"]["reason"].as_str().unwrap_or_default();
        let ResourceAttributes { verb, group, namespace, resource, subresource, name, .. } = attributes;
        let mut text = format!(
            "{resource}.{group} \"{name}\" is forbidden: User \"{}\" cannot {verb} resource \"{resource}/{subresource}\" in API group \"{group}\" in the namespace \"{namespace}\"",
            user.name
        );
        if !why.is_empty() {
            text.push_str(": ");
            text.push_str(why);
        }
        Ok(Some(text))
    }
}
