//! Two operators with the role: whenever the one that leads loses the cluster in mid-failover, the other goes on from what is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_engine::Http;
use evac_engine::operator::leader::Candidate;
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::DropGuard;

use crate::bench::{Bench, Controller, Controllers};
use crate::wire::{Fault, Wire};

const NONE: Vec<String> = Vec::new();
const LEADER: &str = "/leases/evac-operator";

struct Replica {
    wire: Wire,
    candidate: Candidate,
    _role: DropGuard,
}

impl Replica {
    fn start(bench: &Bench, name: &str, controllers: &Arc<Controllers>) -> Self {
        let wire = Wire::new();
        let service = Service::trusted(bench.cluster.api.clone(), Identity::admin());
        let http = Http::new(wire.client(service), bench.cluster.clock, Duration::ZERO);
        let candidate = Candidate::run(http.clone(), name);
        let role = Bench::role_by(http.behind(candidate.gate().clone()), controllers);
        Self { wire, candidate, _role: role }
    }

    fn leads(&self, bench: &Bench) -> bool {
        self.candidate.gate().is_open(bench.cluster.clock.now())
    }

    /// The answer to this write is the first thing that does not arrive any more; what it is watching goes on.
    fn lose_the_cluster_at_write(&self, number: usize) {
        let mut writes = 0;
        self.wire.fail(move |method, path| {
            if writes >= number {
                return Some(Fault::Unsent);
            }
            writes += usize::from(method != "GET" && !path.contains(LEADER));
            (writes == number).then_some(Fault::Lost)
        });
    }
}

/// Whether the leader got as far as that write.
async fn guests_come_back_when_the_leader_is_lost_at(write: usize) -> bool {
    let bench = Bench::start(4).await;
    bench.machine("a", "Always").await;
    let controllers = bench.controllers(Controller::Good);
    let first = Replica::start(&bench, "first", &controllers);
    bench
        .cluster
        .until("/apis/coordination.k8s.io/v1/namespaces/kubevirt/leases/evac-operator", |lease| {
            lease["spec"]["holderIdentity"] == "first"
        })
        .await;
    let second = Replica::start(&bench, "second", &controllers);
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    first.lose_the_cluster_at_write(write);
    let elsewhere =
        |vmi: &Value| vmi["status"]["phase"] == "Running" && vmi["status"]["nodeName"] != "node-1";
    bench.cluster.until(&format!("{}/a", crate::machines::VMIS), elsewhere).await;
    bench.cluster.pass(120).await;
    assert_eq!(bench.violations().await, NONE, "lost at write {write}");
    bench.cluster.world.kubelet("node-1").reboot();
    bench.given_back("node-1").await;
    assert_eq!(bench.violations().await, NONE, "lost at write {write}");
    assert!(first.leads(&bench) != second.leads(&bench), "one leads");
    second.leads(&bench)
}

#[tokio::test(start_paused = true)]
async fn a_leader_lost_at_any_write_of_a_failover_is_followed_by_another() {
    let mut write = 1;
    while guests_come_back_when_the_leader_is_lost_at(write).await {
        write += 1;
    }
    assert!(write > 8, "only {} writes were cut off", write - 1);
}

/// A client on a machine whose system clock can be stepped.
fn stepped(bench: &Bench, seconds: &'static AtomicI64) -> Http {
    let service = Service::trusted(bench.cluster.api.clone(), Identity::admin());
    Http::new(kube::Client::new(service, "default"), bench.cluster.clock.stepped_by(seconds), Duration::ZERO)
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_system_clock_changes_what_is_written_in_the_lease_and_not_who_leads() {
    static SECONDS: AtomicI64 = AtomicI64::new(0);
    let bench = Bench::start(2).await;
    let first = Candidate::run(stepped(&bench, &SECONDS), "first");
    bench.cluster.pass(5).await;
    let second = Candidate::run(bench.cluster.http.clone(), "second");
    for step in [0, 3600, -3600, 0] {
        SECONDS.store(step, Ordering::Relaxed);
        for _ in 0..60 {
            bench.cluster.pass(1).await;
            let now = bench.cluster.clock.now();
            assert!(first.gate().is_open(now), "a step of {step} s");
            assert!(!second.gate().is_open(now), "a step of {step} s");
        }
        let path = "/apis/coordination.k8s.io/v1/namespaces/kubevirt/leases/evac-operator";
        let lease = bench.cluster.get(path).await.unwrap();
        let renewed: Timestamp = lease["spec"]["renewTime"].as_str().unwrap().parse().unwrap();
        let ahead = renewed.duration_since(bench.cluster.clock.now()).as_secs();
        assert!((step - 10..=step).contains(&ahead), "a step of {step} s, written {ahead} s ahead");
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_system_clock_neither_hastens_nor_delays_a_failover() {
    static SECONDS: AtomicI64 = AtomicI64::new(0);
    for step in [3600, -3600] {
        SECONDS.store(0, Ordering::Relaxed);
        let bench = Bench::start(4).await;
        bench.machine("a", "Always").await;
        let controllers = bench.controllers(Controller::Good);
        let _role = Bench::role_by(stepped(&bench, &SECONDS), &controllers);
        assert_eq!(bench.policy("p", |_| {}).await.0, 201);
        bench.cluster.pass(30).await;
        bench.cluster.world.kubelet("node-1").stop();
        bench.unreachable("node-1").await;
        SECONDS.store(step, Ordering::Relaxed);
        bench.cluster.pass(50).await;
        assert_eq!(controllers.times_asked(), 0, "a step of {step} s");
        bench.cluster.pass(20).await;
        assert_eq!(controllers.times_asked(), 1, "a step of {step} s");
        bench.cluster.pass(60).await;
        let node = bench.node("node-1").await;
        let record = node["metadata"]["annotations"]["evac.dev/fenced"].as_str().unwrap();
        let record: Value = serde_json::from_str(record).unwrap();
        let made: Timestamp = record["at"].as_str().unwrap().parse().unwrap();
        let ahead = made.duration_since(bench.cluster.clock.now()).as_secs();
        assert!((step - 120..=step - 40).contains(&ahead), "a step of {step} s, written {ahead} s ahead");
        assert_ne!(bench.node_of("a").await, "node-1", "a step of {step} s");
        assert_eq!(bench.violations().await, NONE);
    }
}
