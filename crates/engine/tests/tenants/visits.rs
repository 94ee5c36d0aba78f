//! What is given back in a tenant's cluster, over the wire: two embedded servers, the tenant's behind TLS and a kubeconfig.

use std::sync::Arc;
use std::time::Duration;

use evac_api::Call;
use evac_api::kubevirt::request::create;
use evac_apiserver::front::Front;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_apiserver::service::Service;
use evac_clock::Clock;
use evac_core::machines::{Role, Roles};
use evac_engine::Http;
use evac_engine::operator::{self, Operator, install, tenants};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use crate::cluster::VMIS;

const NODES: &str = "/api/v1/nodes";
const LONG: Duration = Duration::from_secs(30);

struct Server {
    api: Arc<Api>,
    http: Http,
}

impl Server {
    fn new() -> Self {
        let api = Api::new(Clock::real(), Settings { seed: 1, ..Settings::default() });
        let client = kube::Client::new(Service::trusted(api.clone(), Identity::admin()), "default");
        Self { http: Http::new(client, Clock::real(), Duration::ZERO), api }
    }

    async fn create(&self, path: &str, object: &Value) -> Value {
        let answer = self.http.send(&create(path, object)).await.unwrap();
        assert!(answer.is_success(), "{}", String::from_utf8_lossy(&answer.body));
        serde_json::from_slice(&answer.body).unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.http.send(&Call::get(path)).await.unwrap();
        serde_json::from_slice(&answer.body).unwrap()
    }
}

/// A host with one node of the cluster blue, which is remembered as cordoned; and that cluster.
struct Both {
    host: Server,
    tenant: Server,
    front: Front,
    operator: Operator,
}

impl Both {
    async fn start(node: Option<Value>, with_secret: bool) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (host, tenant) = (Server::new(), Server::new());
        install::kinds(&host.http).await.unwrap();
        let front = Front::open(tenant.api.clone(), 0).await.unwrap();
        if with_secret {
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "blue-kubeconfig"},
                "stringData": {"value": front.kubeconfig},
            });
            host.create("/api/v1/namespaces/default/secrets", &secret).await;
        }
        if let Some(node) = node {
            tenant.create(NODES, &node).await;
        }
        let instance = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {
                "name": "blue-x",
                "labels": {
                    "cluster.x-k8s.io/cluster-name": "blue",
                    "capk.cluster.x-k8s.io/kubevirt-machine-name": "worker-1",
                },
                "annotations": {"evac.dev/tenant-cordoned": "the one before"},
            },
            "spec": {"evictionStrategy": "External", "domain": {"devices": {}}},
            "status": {"phase": "Running", "nodeName": "node-1"},
        });
        host.create(VMIS, &instance).await;
        let tenants = tenants::Settings { loopback: true, ..tenants::Settings::default() };
        let settings = operator::Settings { tenants, ..operator::Settings::default() };
        let roles: Roles = Role::Tenants.word().parse().unwrap();
        let operator = Operator::start_set(host.http.clone(), roles, settings);
        Self { host, tenant, front, operator }
    }

    /// Waits until the instance is not remembered as cordoned any more, and gives the node as it is then.
    async fn given_back(&self) -> Value {
        let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance");
        let kind = ApiResource::from_gvk(&kind);
        let instances =
            kube::Api::<DynamicObject>::namespaced_with(self.host.http.client().clone(), "default", &kind);
        let forgotten = |vmi: Option<&DynamicObject>| {
            vmi.is_some_and(|vmi| {
                let annotations = vmi.metadata.annotations.as_ref();
                annotations.is_none_or(|all| !all.contains_key("evac.dev/tenant-cordoned"))
            })
        };
        tokio::time::timeout(LONG, await_condition(instances, "blue-x", forgotten)).await.unwrap().unwrap();
        self.tenant.get(&format!("{NODES}/worker-1")).await
    }
}

/// A node that is cordoned, with the mark of a drain by `owner` on a node that was (un)schedulable before.
fn cordoned(owner: &str, before: bool) -> Value {
    let mark = json!({
        "version": 1, "owner": owner, "since": "2026-01-01T00:00:00Z",
        "before": {"unschedulable": before, "taints": []}, "addedTaints": [], "options": [],
    });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "worker-1", "annotations": {"evac.dev/drain": mark.to_string()}},
        "spec": {"unschedulable": true},
    })
}

#[tokio::test]
async fn our_own_cordon_is_taken_back() {
    let both = Both::start(Some(cordoned("evac-tenants", false)), true).await;
    let node = both.given_back().await;
    assert_eq!(node["spec"]["unschedulable"], Value::Null, "{node:#}");
    assert_eq!(node["metadata"]["annotations"]["evac.dev/drain"], Value::Null);
    both.operator.stop().await;
}

#[tokio::test]
async fn cordons_of_others_stay() {
    let theirs = Both::start(Some(cordoned("carla", false)), true).await;
    let node = theirs.given_back().await;
    assert_eq!(node["spec"]["unschedulable"], true, "somebody else drains it");
    assert!(node["metadata"]["annotations"]["evac.dev/drain"].is_string());
    let before = Both::start(Some(cordoned("evac-tenants", true)), true).await;
    let node = before.given_back().await;
    assert_eq!(node["spec"]["unschedulable"], true, "it was cordoned before we came");
    let plain = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}, "spec": {"unschedulable": true},
    });
    let meanwhile = Both::start(Some(plain), true).await;
    assert_eq!(
        meanwhile.given_back().await["spec"]["unschedulable"],
        true,
        "without our mark it is not ours"
    );
}

#[tokio::test]
async fn c11_a_node_that_is_gone_needs_no_uncordon() {
    let both = Both::start(None, true).await;
    assert_eq!(both.given_back().await["code"], 404);
}

#[tokio::test]
async fn what_could_not_be_given_back_is_given_back_once_the_way_is_there() {
    let both = Both::start(Some(cordoned("evac-tenants", false)), false).await;
    let kept = both.host.get(&format!("{VMIS}/blue-x")).await;
    assert_eq!(kept["metadata"]["annotations"]["evac.dev/tenant-cordoned"], "the one before");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "blue-kubeconfig"},
        "stringData": {"value": both.front.kubeconfig},
    });
    both.host.create("/api/v1/namespaces/default/secrets", &secret).await;
    assert_eq!(both.given_back().await["spec"]["unschedulable"], Value::Null);
}
