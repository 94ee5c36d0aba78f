//! Reviews that are answered from what the operator knows: a refusal costs no request, and a permission always rests on a reading.

use std::time::Duration;

use evac_api::kubevirt::review::{EVICTION_PATH, MIGRATION_CREATE_PATH};
use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_engine::Http;
use evac_engine::operator::index_reader::IndexReader;
use evac_engine::operator::{Reviewer, Who};
use serde_json::{Value, json};

use crate::cluster::{Cluster, vm};
use crate::counted::Wire;
use crate::guests::{create_vm, launcher_of, settled, with_strategy};
use crate::hostile_reviews::eviction;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// One who reviews, and what it asks the server for.
struct Desk {
    wire: Wire,
    reviewer: Reviewer,
}

impl Desk {
    fn open(cluster: &Cluster, view: IndexReader) -> Self {
        let wire = Wire::new();
        let service = Service::trusted(cluster.api.clone(), Identity::admin());
        let http = Http::new(wire.client(service), cluster.clock, Duration::ZERO);
        Self { wire, reviewer: Reviewer::new(http, view) }
    }

    /// The refusal, if it is one, and the number of requests it took.
    async fn ask(&self, path: &str, request: Value) -> (Option<String>, usize) {
        let before = self.wire.requests().len();
        let answer = self.reviewer.review(Who::ApiServer, path, &json!({"request": request})).await.unwrap();
        let said = answer["response"]["status"]["message"].as_str().map(str::to_owned);
        assert_eq!(answer["response"]["allowed"] == true, said.is_none(), "{answer}");
        (said, self.wire.requests().len() - before)
    }

    async fn evict(&self, pod: &str) -> (Option<String>, usize) {
        self.ask(EVICTION_PATH, eviction(pod)["request"].clone()).await
    }

    async fn migrate(&self, instance: &str) -> (Option<String>, usize) {
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": "m", "namespace": "default"}, "spec": {"vmiName": instance},
        });
        self.ask(MIGRATION_CREATE_PATH, json!({"namespace": "default", "object": object})).await
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_again_is_refused_without_a_request_and_let_through_on_a_reading_only() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "30"}))).await;
    create_vm(&cluster, &with_strategy(vm("off", "Always", &json!({})), Some("None"))).await;
    settled(&cluster, "a").await;
    settled(&cluster, "off").await;
    let (pod, other) = (launcher_of(&cluster, "a").await, launcher_of(&cluster, "off").await);
    let desk = Desk::open(&cluster, cluster.operator.view());

    let (said, requests) = desk.evict(&pod).await;
    assert!(said.unwrap().starts_with("Eviction triggered evacuation"));
    assert_eq!(requests, 3, "pod and instance are read, the mark is written: {:#?}", desk.wire.requests());
    cluster.pass(1).await;
    for _ in 0..5 {
        let (said, requests) = desk.evict(&pod).await;
        assert!(said.unwrap().starts_with("Evacuation in progress"));
        assert_eq!(requests, 0, "{:#?}", desk.wire.requests());
    }
    assert_eq!(desk.evict(&other).await, (None, 2), "pod and instance are read");

    cluster.until(&format!("{PODS}/{pod}"), |pod| pod["status"]["phase"] == "Succeeded").await;
    assert_eq!(desk.evict(&pod).await, (None, 1), "the pod is read: it has ended");
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn who_has_seen_nothing_reads_and_answers_the_same() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "30"}))).await;
    settled(&cluster, "a").await;
    let pod = launcher_of(&cluster, "a").await;
    let blind = Desk::open(&cluster, IndexReader::of_settings(cluster.operator.config(), cluster.clock));
    assert!(blind.evict(&pod).await.0.unwrap().starts_with("Eviction triggered evacuation"));
    let (said, requests) = blind.evict(&pod).await;
    assert!(said.unwrap().starts_with("Evacuation in progress"));
    assert_eq!(requests, 2);
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_migration_is_let_through_by_what_is_known_of_its_guest_and_refused_by_what_is_read() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &vm("a", "Always", &json!({}))).await;
    settled(&cluster, "a").await;
    let desk = Desk::open(&cluster, cluster.operator.view());
    assert_eq!(desk.migrate("a").await, (None, 1), "other migrations are read");
    let (said, requests) = desk.migrate("nobody").await;
    assert!(said.unwrap().contains("does not exist"));
    assert_eq!(requests, 2, "it might have been created just now");
    let blind = Desk::open(&cluster, IndexReader::of_settings(cluster.operator.config(), cluster.clock));
    assert_eq!(blind.migrate("a").await, (None, 2), "its guest is read, too");
    cluster.rest().await;
}
