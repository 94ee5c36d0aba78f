//! Two operators with the role: whenever the one that leads loses the cluster in mid-failover, the other goes on from what is written.

use std::sync::Arc;
use std::time::Duration;

use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_engine::Http;
use evac_engine::operator::leader::Candidate;
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
