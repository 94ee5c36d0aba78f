//! Several operators: one acts, the others know as much, and one of them goes on when it is gone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use evac_api::kubevirt::request;
use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_clock::Clock;
use evac_engine::Http;
use evac_engine::operator::Operator;
use evac_engine::operator::leader::Candidate;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use jiff::Timestamp;
use kube::client::Body;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::cluster::{Cluster, VMIS, VMS, vm};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kubevirt/leases/evac-operator";

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A candidate and its operator, on a line that can be cut and that counts what is written.
struct Replica {
    candidate: Candidate,
    operator: Operator,
    cut: Arc<AtomicBool>,
    writes: Arc<AtomicUsize>,
}

impl Replica {
    fn start(cluster: &Cluster, name: &str) -> Self {
        let (cut, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let line = (cut.clone(), writes.clone(), Service::trusted(cluster.api.clone(), Identity::admin()));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (cut, writes, service) = line.clone();
            async move {
                if cut.load(Ordering::SeqCst) {
                    return Err::<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError>("broken pipe".into());
                }
                if request.method() != Method::GET && !request.uri().path().contains("/leases") {
                    writes.fetch_add(1, Ordering::SeqCst);
                }
                let answer = service.oneshot(request).await?;
                Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
        });
        let client = kube::Client::new(service, "default");
        let http = Http::new(client, cluster.clock, Duration::ZERO);
        let candidate = Candidate::run(http.clone(), name);
        let operator = Operator::start(http.behind(candidate.gate().clone()));
        Self { candidate, operator, cut, writes }
    }

    fn leads(&self, now: Timestamp) -> bool {
        self.candidate.gate().is_open(now)
    }

    fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    fn die(&self) {
        self.candidate.halt();
        self.operator.halt();
    }
}

/// A cluster whose own operator is gone, with two replicas of which `a` leads.
async fn two() -> (Cluster, Replica, Replica) {
    let cluster = Cluster::start(2).await;
    cluster.operator.halt();
    let a = Replica::start(&cluster, "a");
    cluster.until(LEASE, |lease| lease["spec"]["holderIdentity"] == "a").await;
    let b = Replica::start(&cluster, "b");
    (cluster, a, b)
}

async fn runs(cluster: &Cluster, name: &str) {
    let (code, body) = cluster.create(VMS, &vm(name, "Always", &json!({}))).await;
    assert_eq!(code, 201, "{body}");
    cluster.until(&format!("{VMIS}/{name}"), |vmi| vmi["status"]["phase"] == "Running").await;
}

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_follower_writes_nothing_and_takes_over_when_the_leader_dies() {
    let (cluster, a, b) = two().await;
    runs(&cluster, "one").await;
    cluster.pass(120).await;
    assert!(a.writes() > 0 && a.leads(cluster.clock.now()));
    assert_eq!(b.writes(), 0, "a follower only looks");
    let died = cluster.clock.now();
    a.die();
    runs(&cluster, "two").await;
    let waited = cluster.clock.now().duration_since(died).as_secs();
    assert!(waited < 25, "it took {waited} s");
    let lease = cluster.get(LEASE).await.unwrap();
    assert_eq!((holder(&lease), &lease["spec"]["leaseTransitions"]), ("b", &json!(1)));
    assert!(b.writes() > 0);
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_asked_to_end_hands_over_at_once() {
    let (cluster, a, b) = two().await;
    runs(&cluster, "one").await;
    let before = cluster.clock.now();
    a.candidate.hand_over().await;
    a.operator.stop().await;
    cluster.until(LEASE, |lease| holder(lease) == "b").await;
    let waited = cluster.clock.now().duration_since(before);
    assert!(waited.as_millis() < 1000, "{waited:?}");
    assert!(b.leads(cluster.clock.now()));
    runs(&cluster, "two").await;
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_the_next_one_starts() {
    let (cluster, a, b) = two().await;
    runs(&cluster, "one").await;
    a.cut.store(true, Ordering::SeqCst);
    let (mut stopped, mut started) = (None, None);
    for _ in 0..600 {
        let now = cluster.clock.now();
        assert!(!(a.leads(now) && b.leads(now)), "two at once");
        if !a.leads(now) {
            stopped.get_or_insert(now);
        }
        if b.leads(now) {
            started.get_or_insert(now);
        }
        cluster.pass_millis(100).await;
    }
    let gap = started.unwrap().duration_since(stopped.unwrap()).as_secs();
    assert!((1..=10).contains(&gap), "{gap} s without a leader");
    // It comes back as a follower.
    a.cut.store(false, Ordering::SeqCst);
    let written = a.writes();
    cluster.pass(120).await;
    assert!(!a.leads(cluster.clock.now()) && b.leads(cluster.clock.now()));
    runs(&cluster, "two").await;
    assert_eq!(a.writes(), written);
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_removes_is_taken_again() {
    let (cluster, a, b) = two().await;
    cluster.send("DELETE", LEASE, "application/json", &json!({})).await;
    cluster.until(LEASE, |lease| !holder(lease).is_empty()).await;
    cluster.pass(60).await;
    let now = cluster.clock.now();
    assert!(a.leads(now) ^ b.leads(now));
    runs(&cluster, "one").await;
    cluster.rest().await;
}

/// A server of its own, and a client on a line that can be led to another server.
fn exchangeable(clock: Clock) -> (Arc<Mutex<Arc<Api>>>, Http) {
    let server = Arc::new(Mutex::new(Api::new(clock, Settings { seed: 7, ..Settings::default() })));
    let line = server.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let api = line.lock().unwrap().clone();
        Service::trusted(api, Identity::admin()).oneshot(request)
    });
    (server, Http::new(kube::Client::new(service, "default"), clock, Duration::ZERO))
}

async fn create(http: &Http, path: &str, object: &Value) {
    let call = request::send("POST", path.to_owned(), "application/json", object);
    let answer = http.send(&call).await.unwrap();
    assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
}

#[tokio::test(start_paused = true)]
async fn after_etcd_was_restored_from_a_backup_the_operators_have_a_leader_again() {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let (server, http) = exchangeable(clock);
    let namespace = json!({"metadata": {"name": "kubevirt"}});
    create(&http, "/api/v1/namespaces", &namespace).await;
    let maps = "/api/v1/namespaces/kubevirt/configmaps";
    for n in 0..200 {
        create(&http, maps, &json!({"metadata": {"name": format!("history-{n}")}})).await;
    }
    let a = Candidate::run(http.clone(), "a");
    let b = Candidate::run(http.clone(), "b");
    clock.sleep(Duration::from_secs(30)).await;
    let leads = |candidate: &Candidate| candidate.gate().is_open(clock.now());
    assert!(leads(&a) ^ leads(&b));
    let lease: Value =
        serde_json::from_slice(&http.send(&evac_api::Call::get(LEASE)).await.unwrap().body).unwrap();
    let version =
        |lease: &Value| lease["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();

    // The backup is older than the history: the same lease, at a much lower version.
    let (restored, restoring) = exchangeable(clock);
    create(&restoring, "/api/v1/namespaces", &namespace).await;
    let old = json!({"metadata": {"name": "evac-operator"}, "spec": lease["spec"]});
    create(&restoring, "/apis/coordination.k8s.io/v1/namespaces/kubevirt/leases", &old).await;
    let there: Value =
        serde_json::from_slice(&restoring.send(&evac_api::Call::get(LEASE)).await.unwrap().body).unwrap();
    assert!(version(&there) < version(&lease));
    let restored = restored.lock().unwrap().clone();
    let before = std::mem::replace(&mut *server.lock().unwrap(), restored);

    let mut leaderless = 0;
    for _ in 0..120 {
        clock.sleep(Duration::from_secs(1)).await;
        assert!(!(leads(&a) && leads(&b)), "two at once");
        leaderless = if leads(&a) || leads(&b) { 0 } else { leaderless + 1 };
    }
    assert_eq!(leaderless, 0, "nobody has led for {leaderless} s");
    drop(before);
}
