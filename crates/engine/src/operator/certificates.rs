//! The certificates of the HTTPS server: kept in a Secret that all replicas share, made and replaced in time.
//!
//! When to do what is decided by [`evac_core::certificates`]. Each change is written on the version of the Secret it was
//! decided on, so of two replicas that act at the same time one starts over with what the other made.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evac_api::call::{escape, named};
use evac_api::kubevirt::request;
use evac_api::wire::Named;
use evac_core::certificates::{AUTHORITY_LIFE, Known, SERVING_LIFE, Span, Work, decide};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;
use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::feeds::forever;
use super::pass::{Key, Keys, Pass};
use super::publish::PublishError;
use crate::http::{Http, HttpError, parse};
use crate::watch::{Report, Source, list};

/// Where the certificates are kept.
pub const SECRET: &str = "evac-serving";

fn secrets(home: &str) -> String {
    format!("/api/v1/namespaces/{}/secrets", escape(home))
}

/// Where the one secret is.
pub(super) fn path(home: &str) -> String {
    format!("{}/{SECRET}", secrets(home))
}

/// The one secret, if it is there.
pub(super) async fn find(http: &Http) -> Result<Option<Named>, HttpError> {
    let (found, _) = list::<Named, _>(http, &source(http.home()), Some).await?;
    Ok(found.into_iter().next())
}

/// Without it nothing can be served.
pub(super) fn refused(http: &Http, source: HttpError) -> PublishError {
    PublishError::Refused { kind: "Secret".into(), name: format!("{}/{SECRET}", http.home()), source }
}

#[derive(Debug, Error)]
pub enum CertificateError {
    #[error("a certificate could not be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error("the secret {SECRET} holds no usable certificates: {0}")]
    Unusable(String),
    #[error("the system has no randomness to make a key from")]
    NoRandomness,
}

/// The one secret, asked for in the one way for which there is a right.
fn source(home: &str) -> Source {
    Source { path: secrets(home).into(), query: named(SECRET), page: 0 }
}

/// What a server needs to show itself, and what callers need to trust it.
#[derive(Clone)]
pub struct Identity {
    pub key: Arc<CertifiedKey>,
    /// Every authority that callers should trust now, as PEM.
    pub bundle: String,
    /// By which paths the API server sends reviews.
    pub pass: Pass,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Secret {
    metadata: evac_api::wire::Meta,
    data: Option<BTreeMap<String, String>>,
}

/// A certificate and its key as text.
#[derive(Clone, PartialEq, Eq)]
struct Pair {
    certificate: String,
    key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair(…)")
    }
}

/// Everything in the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Store {
    authority: Pair,
    next: Option<Pair>,
    /// Its key is gone: it signs nothing any more.
    former: Option<String>,
    serving: Pair,
    /// None in a Secret that an operator wrote which did not have them.
    keys: Option<Keys>,
}

impl Store {
    fn read(secret: &Secret) -> Option<Self> {
        let text = |name: &str| {
            let value = secret.data.as_ref()?.get(name)?;
            String::from_utf8(STANDARD.decode(value).ok()?).ok().filter(|text| !text.is_empty())
        };
        let pair =
            |certificate: &str, key: &str| Some(Pair { certificate: text(certificate)?, key: text(key)? });
        let key = |name: &str| text(name).and_then(|text| Key::read(&text));
        let keys = key("review.key").zip(key("next-review.key"));
        Some(Self {
            keys: keys.map(|(current, next)| Keys { next, current, former: key("former-review.key") }),
            authority: pair("ca.crt", "ca.key")?,
            next: pair("next-ca.crt", "next-ca.key"),
            former: text("former-ca.crt"),
            serving: pair("tls.crt", "tls.key")?,
        })
    }

    fn data(&self) -> Value {
        let mut data = BTreeMap::new();
        let mut put = |name: &str, text: &str| data.insert(name.to_owned(), STANDARD.encode(text));
        put("ca.crt", &self.authority.certificate);
        put("ca.key", &self.authority.key);
        put("tls.crt", &self.serving.certificate);
        put("tls.key", &self.serving.key);
        if let Some(next) = &self.next {
            put("next-ca.crt", &next.certificate);
            put("next-ca.key", &next.key);
        }
        if let Some(former) = &self.former {
            put("former-ca.crt", former);
        }
        if let Some(keys) = &self.keys {
            put("review.key", keys.current.text());
            put("next-review.key", keys.next.text());
            if let Some(former) = &keys.former {
                put("former-review.key", former.text());
            }
        }
        json!(data)
    }

    fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|pair| pair.certificate.as_str());
        let all = [Some(self.authority.certificate.as_str()), next, self.former.as_deref()];
        let lines: Vec<&str> = all.into_iter().flatten().map(str::trim).collect();
        lines.join("\n") + "\n"
    }

    fn known(&self, names: &BTreeSet<String>) -> Option<Known> {
        let authority = Facts::of(&self.authority.certificate)?;
        let serving = Facts::of(&self.serving.certificate)?;
        Some(Known {
            authority: authority.span,
            next: self.next.as_ref().and_then(|pair| Facts::of(&pair.certificate)).map(|facts| facts.span),
            former: self.former.as_deref().and_then(Facts::of).map(|facts| facts.span),
            serving: serving.span,
            fits: serving.issuer == authority.subject
                && names.is_subset(&serving.names)
                && self.keys.is_some(),
        })
    }

    fn identity(&self) -> Result<Identity, CertificateError> {
        let key = Arc::new(self.certified()?);
        let missing = |what: &str| CertificateError::Unusable(format!("it has no {what}"));
        let keys = self.keys.clone().ok_or_else(|| missing("keys for the paths of reviews"))?;
        let since = Facts::of(&self.serving.certificate).ok_or_else(|| missing("serving certificate"))?.span;
        Ok(Identity { key, bundle: self.bundle(), pass: Pass::new(keys, since) })
    }

    fn certified(&self) -> Result<CertifiedKey, CertificateError> {
        let unusable = |error: &dyn std::fmt::Display| CertificateError::Unusable(error.to_string());
        let chain = CertificateDer::pem_slice_iter(self.serving.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| unusable(&error))?;
        let key =
            PrivateKeyDer::from_pem_slice(self.serving.key.as_bytes()).map_err(|error| unusable(&error))?;
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(chain, key, &provider).map_err(|error| unusable(&error))
    }

    /// What is in the Secret after a piece of work.
    fn after(
        before: Option<&Self>,
        work: Work,
        names: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<Self, CertificateError> {
        let keeps = matches!(work, Work::Renew | Work::Announce | Work::Promote | Work::Forget);
        let Some(mut store) = before.filter(|_| keeps).cloned() else {
            let authority = authority(now)?;
            let serving = serving(&authority, names, now)?;
            let keys = Some(Keys::random().ok_or(CertificateError::NoRandomness)?);
            return Ok(Self { authority, next: None, former: None, serving, keys });
        };
        match work {
            Work::Announce => store.next = Some(authority(now)?),
            Work::Forget => store.former = None,
            _ => {
                if let Some(next) = store.next.take_if(|_| work == Work::Promote) {
                    store.former = Some(std::mem::replace(&mut store.authority, next).certificate);
                }
                // Replicas may be called by different names; none takes away a name that another one needs.
                let mut all =
                    Facts::of(&store.serving.certificate).map(|facts| facts.names).unwrap_or_default();
                all.extend(names.iter().cloned());
                store.serving = serving(&store.authority, &all, now)?;
                let keys = store.keys.as_ref().map_or_else(Keys::random, Keys::renewed);
                store.keys = Some(keys.ok_or(CertificateError::NoRandomness)?);
            }
        }
        Ok(store)
    }
}

/// What a certificate says.
struct Facts {
    span: Span,
    subject: String,
    issuer: String,
    names: BTreeSet<String>,
}

impl Facts {
    fn of(pem: &str) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        let validity = certificate.validity();
        let time = |seconds: i64| Timestamp::from_second(seconds).ok();
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.map(|names| names.value.general_names.iter().filter_map(name_of).collect());
        Some(Self {
            span: Span {
                from: time(validity.not_before.timestamp())?,
                until: time(validity.not_after.timestamp())?,
            },
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            names: names.unwrap_or_default(),
        })
    }
}

fn name_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}

fn dated(mut params: CertificateParams, span: Span) -> CertificateParams {
    let time = |at: Timestamp| OffsetDateTime::from_unix_timestamp(at.as_second());
    if let (Ok(from), Ok(until)) = (time(span.from), time(span.until)) {
        params.not_before = from;
        params.not_after = until;
    }
    params
}

fn authority(now: Timestamp) -> Result<Pair, CertificateError> {
    let key = KeyPair::generate()?;
    let mut params = dated(CertificateParams::default(), Span::starting(now, AUTHORITY_LIFE, None));
    // Two authorities with one name would be taken for each other.
    params.distinguished_name.push(DnType::CommonName, format!("evac authority {}", now.as_millisecond()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(Pair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

fn serving(authority: &Pair, names: &BTreeSet<String>, now: Timestamp) -> Result<Pair, CertificateError> {
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key)?)?;
    let key = KeyPair::generate()?;
    let signed_by = Facts::of(&authority.certificate).map(|facts| facts.span);
    let params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
    let mut params = dated(params, Span::starting(now, SERVING_LIFE, signed_by));
    params.distinguished_name.push(DnType::CommonName, "evac operator");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(Pair { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
}

/// Keeps certificates in the cluster fresh, and tells what to use now.
pub struct Keeper {
    identity: watch::Receiver<Option<Identity>>,
    _tasks: JoinSet<()>,
}

impl Keeper {
    /// Keeps a serving certificate for these DNS names and addresses.
    pub fn start(http: &Http, names: BTreeSet<String>) -> Self {
        let (publish, identity) = watch::channel(None);
        let (sender, inbox) = mpsc::unbounded_channel::<Report<Secret>>();
        let source = source(http.home());
        let mut tasks = JoinSet::new();
        let version = |secret: &Secret| secret.metadata.resource_version.clone();
        tasks.spawn(forever(http.clone(), source, sender, |report| report, version));
        tasks.spawn(Task { http: http.clone(), names, publish, last: None }.run(inbox));
        Self { identity, _tasks: tasks }
    }

    /// `None` until there are certificates.
    pub fn identity(&self) -> watch::Receiver<Option<Identity>> {
        self.identity.clone()
    }
}

struct Task {
    http: Http,
    names: BTreeSet<String>,
    publish: watch::Sender<Option<Identity>>,
    last: Option<Store>,
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Report<Secret>>) {
        let clock = self.http.clock();
        let mut look_again = Timestamp::MAX;
        loop {
            let secret = tokio::select! {
                report = inbox.recv() => match report {
                    Some(Report::Listed(list, _)) => list.into_iter().next(),
                    Some(Report::Seen(secret)) => Some(secret),
                    Some(Report::Gone(_)) => None,
                    Some(Report::Failed { error, .. }) => {
                        tracing::warn!(%error, namespace = self.http.home(), "the secret {SECRET} cannot be read");
                        continue;
                    }
                    None => return,
                },
                // Certificates are valid by the calendar.
                () = clock.sleep_until_calendar(look_again) => match self.reread().await {
                    Ok(secret) => secret,
                    Err(error) => {
                        tracing::warn!(%error, namespace = self.http.home(), "the secret {SECRET} cannot be read");
                        look_again = soon(clock.calendar());
                        continue;
                    }
                },
            };
            look_again = match self.settle(secret).await {
                Ok(at) => at,
                Err(error) => {
                    tracing::warn!(%error, "certificates could not be kept fresh");
                    soon(clock.calendar())
                }
            };
        }
    }

    async fn reread(&self) -> Result<Option<Secret>, HttpError> {
        let (secrets, _) = list::<Secret, _>(&self.http, &source(self.http.home()), Some).await?;
        Ok(secrets.into_iter().next())
    }

    /// Does what is due until nothing is, and tells what to use; the answer is when to look again.
    async fn settle(&mut self, mut secret: Option<Secret>) -> Result<Timestamp, KeeperError> {
        let clock = self.http.clock();
        loop {
            let store = secret.as_ref().and_then(Store::read);
            // What cannot be used is made anew, as if it were not there.
            let known = store
                .as_ref()
                .and_then(|store| store.known(&self.names).filter(|_| store.certified().is_ok()));
            let work = decide(known.as_ref(), clock.calendar());
            if let (Some(store), Some(_)) = (&store, &known)
                && store.keys.is_some()
            {
                self.tell(store)?;
            }
            if let Work::Nothing { look_again } = work {
                return Ok(look_again);
            }
            tracing::info!(?work, "certificates");
            let new = Store::after(
                store.as_ref().filter(|_| known.is_some()),
                work,
                &self.names,
                clock.calendar(),
            )?;
            let answer = self.http.send(&write(self.http.home(), &new, secret.as_ref())).await?;
            // Somebody was faster, or removed it.
            if answer.status == 409 || answer.status == 404 && secret.is_some() {
                secret = self.reread().await?;
                continue;
            }
            secret = Some(parse(&answer)?);
        }
    }

    fn tell(&mut self, store: &Store) -> Result<(), CertificateError> {
        if self.last.as_ref() == Some(store) {
            return Ok(());
        }
        self.publish.send_replace(Some(store.identity()?));
        self.last = Some(store.clone());
        Ok(())
    }
}

#[derive(Debug, Error)]
enum KeeperError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Http(#[from] HttpError),
}

fn soon(now: Timestamp) -> Timestamp {
    now.checked_add(std::time::Duration::from_secs(5)).unwrap_or(now)
}

fn write(home: &str, store: &Store, over: Option<&Secret>) -> evac_api::Call {
    let mut body = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": SECRET,
            "namespace": home,
            "labels": {"app.kubernetes.io/managed-by": "evac"},
        },
        "type": "Opaque",
        "data": store.data(),
    });
    let Some(over) = over else { return request::create(&secrets(home), &body) };
    body["metadata"]["resourceVersion"] = json!(over.metadata.resource_version);
    request::send("PUT", path(home), "application/json", &body)
}
