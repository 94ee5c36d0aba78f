//! The certificates of the operator's server through the months: replicas agree, and callers are never surprised.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use evac_api::Call;
use evac_api::kubevirt::request;
use evac_api::kubevirt::review::EVICTION_PATH;
use evac_apiserver::Service;
use evac_apiserver::identity::Identity as Caller;
use evac_apiserver::server::{Api, Settings};
use evac_clock::Clock;
use evac_engine::Http;
use evac_engine::operator::certificates::{Identity, Keeper, SECRET};
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::{Value, json};

const NAME: &str = "virt-api.kubevirt.svc";

/// A server without anything on it.
struct Bare(Arc<Api>);

impl Bare {
    async fn start() -> Self {
        let bare = Self(Api::new(Clock::starting_at(day(0.0)), Settings { seed: 7, ..Settings::default() }));
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubevirt"}});
        let call = request::create("/api/v1/namespaces", &namespace);
        assert_eq!(bare.at(0.0).send(&call).await.unwrap().status, 201);
        bare
    }

    /// A client in whose world this many days have passed.
    fn at(&self, days: f64) -> Http {
        let client = kube::Client::new(Service::trusted(self.0.clone(), Caller::admin()), "default");
        Http::new(client, Clock::starting_at(day(days)), Duration::ZERO)
    }
}

fn day(days: f64) -> Timestamp {
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    epoch.checked_add(Duration::from_secs_f64(days * 24.0 * 3600.0)).unwrap()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

async fn identity(keeper: &Keeper) -> Identity {
    keeper.identity().wait_for(Option::is_some).await.unwrap().clone().unwrap()
}

/// Would a caller that trusts this bundle accept the certificate, called by this name at this time?
fn is_trusted(bundle: &str, identity: &Identity, name: &str, now: Timestamp) -> bool {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let (first, rest) = identity.key.cert.split_first().unwrap();
    let seconds = u64::try_from(now.as_second()).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    verifier.verify_server_cert(first, rest, &name, &[], now).is_ok()
}

/// Replicas come and go; each finds what the others left and does what is due.
#[tokio::test(start_paused = true)]
async fn a_caller_that_learns_of_changes_half_a_day_late_is_never_turned_away() {
    let bare = Bare::start().await;
    let mut late = None;
    let (mut seen, mut bundles, mut paths) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for half in 0..2 * 100 {
        let http = bare.at(f64::from(half) / 2.0);
        let one = Keeper::start(&http, names(&[NAME]));
        let two = Keeper::start(&http, names(&[NAME, "10.1.2.3"]));
        http.clock().sleep(Duration::from_secs(60)).await;
        let now = http.clock().now();
        let current = identity(&one).await;
        assert_eq!(current.bundle, identity(&two).await.bundle, "replicas share what they show");
        let path = current.pass.published(EVICTION_PATH);
        assert_eq!(
            path,
            identity(&two).await.pass.published(EVICTION_PATH),
            "and by what they know the API server"
        );
        paths.insert(path);
        let late = late.replace(current.bundle.clone()).unwrap_or_else(|| current.bundle.clone());
        for keeper in [&one, &two] {
            let current = identity(keeper).await;
            assert!(is_trusted(&late, &current, NAME, now), "at {now}");
            assert!(is_trusted(&current.bundle, &current, "10.1.2.3", now), "at {now}");
        }
        seen.insert(current.key.cert[0].to_vec());
        bundles.insert(current.bundle);
    }
    assert!(seen.len() >= 9, "{} certificates in 100 days", seen.len());
    assert_eq!(paths.len(), seen.len(), "the paths of reviews change with the certificate");
    assert!(bundles.len() >= 4, "one authority, two, two after the change, one: {}", bundles.len());
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_is_left_alone_renews_in_time() {
    let bare = Bare::start().await;
    let http = bare.at(0.0);
    let keeper = Keeper::start(&http, names(&[NAME]));
    let first = identity(&keeper).await;
    http.clock().sleep(Duration::from_secs(11 * 24 * 3600)).await;
    let current = identity(&keeper).await;
    assert_ne!(first.key.cert, current.key.cert);
    assert_eq!(first.bundle, current.bundle);
    assert!(is_trusted(&first.bundle, &current, NAME, day(20.0)));
}

/// As an operator left it that knew no secret paths.
#[tokio::test(start_paused = true)]
async fn a_secret_without_keys_for_the_paths_of_reviews_gets_some_and_keeps_its_authority() {
    let bare = Bare::start().await;
    let http = bare.at(0.0);
    let keeper = Keeper::start(&http, names(&[NAME]));
    let mut shown = keeper.identity();
    let first = identity(&keeper).await;
    let path = format!("/api/v1/namespaces/kubevirt/secrets/{SECRET}");
    let mut secret: Value = http.read(&Call::get(&path)).await.unwrap();
    let data = secret["data"].as_object_mut().unwrap();
    assert!(data.remove("review.key").is_some() && data.remove("next-review.key").is_some());
    shown.mark_unchanged();
    let answer = http.send(&request::send("PUT", path, "application/json", &secret)).await.unwrap();
    assert_eq!(answer.status, 200);
    shown.changed().await.unwrap();
    let current = identity(&keeper).await;
    assert_eq!(first.bundle, current.bundle);
    assert_ne!(first.pass.published(EVICTION_PATH), current.pass.published(EVICTION_PATH));
}

#[tokio::test(start_paused = true)]
async fn what_somebody_spoilt_or_removed_is_made_again() {
    let bare = Bare::start().await;
    let http = bare.at(0.0);
    let keeper = Keeper::start(&http, names(&[NAME]));
    let mut shown = keeper.identity();
    identity(&keeper).await;
    let path = format!("/api/v1/namespaces/kubevirt/secrets/{SECRET}");
    let mut secret: Value = http.read(&Call::get(&path)).await.unwrap();
    secret["data"]["tls.key"] = json!("bm90aGluZw==");
    shown.mark_unchanged();
    let answer = http.send(&request::send("PUT", path.clone(), "application/json", &secret)).await.unwrap();
    assert_eq!(answer.status, 200);
    shown.changed().await.unwrap();
    let now = http.clock().now();
    let current = identity(&keeper).await;
    assert!(is_trusted(&current.bundle, &current, NAME, now));
    shown.mark_unchanged();
    http.send(&request::send("DELETE", path, "application/json", &json!({}))).await.unwrap();
    shown.changed().await.unwrap();
    let current = identity(&keeper).await;
    assert!(is_trusted(&current.bundle, &current, NAME, now));
}
