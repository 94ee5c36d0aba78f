//! The rights of each role alone, and of each pair: the server knows the account and its rights as they are installed, and nothing that the operator asks
//! for may be refused. (That nothing is granted which is not used is shown on a real API server, over all roles.)

use std::sync::{Arc, Mutex};
use std::time::Duration;

use evac_api::install::{self as manifests, Plan, Step};
use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_core::machines::{Role, Roles};
use evac_engine::Http;
use evac_engine::failover::End;
use evac_engine::operator::Operator;
use serde_json::{Value, json};

use crate::bench::{Bench, Controller, NO_PROOF, request};
use crate::wire::{Fault, Wire};

const MAINTENANCES: &str = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances";
const PODS: &str = "/api/v1/namespaces/default/pods";

type Refused = Arc<Mutex<Vec<String>>>;

/// Installs the rights of these roles, and gives the client of the account that has them.
/// Where `shown` is given, it is what the account sees of `node-1`.
async fn account(bench: &Bench, roles: &Roles, shown: Option<Value>) -> (Http, Refused) {
    let plan = Plan::new(roles.clone());
    for step in [Step::Namespace, Step::Account, Step::Rights, Step::Bindings] {
        for object in manifests::objects_of(&plan, step) {
            let kind = object["kind"].as_str().unwrap();
            let (group, plural) = match kind {
                "Namespace" => ("/api/v1".to_owned(), "namespaces"),
                "ServiceAccount" => ("/api/v1".to_owned(), "serviceaccounts"),
                "ClusterRole" => (rbac(), "clusterroles"),
                "ClusterRoleBinding" => (rbac(), "clusterrolebindings"),
                "Role" => (rbac(), "roles"),
                "RoleBinding" => (rbac(), "rolebindings"),
                other => panic!("{other}"),
            };
            let path = match object["metadata"]["namespace"].as_str() {
                Some(namespace) => format!("{group}/namespaces/{namespace}/{plural}"),
                None => format!("{group}/{plural}"),
            };
            let (code, body) = bench.cluster.create(&path, &object).await;
            assert!(code == 201 || code == 409 && kind == "Namespace", "{body}");
        }
    }
    let refused = Refused::default();
    let service =
        Service::trusted(bench.cluster.api.clone(), Identity::service_account(&plan.namespace, &plan.name));
    let seen = refused.clone();
    let wire = Wire::new();
    wire.fail(move |method, path| {
        let node = (method, path) == ("GET", "/api/v1/nodes/node-1");
        shown.clone().filter(|_| node).map(|shown| Fault::Answer(200, shown))
    });
    wire.hear(move |line, status| {
        if status == 403 {
            seen.lock().unwrap().push(line.to_owned());
        }
    });
    let client = wire.client(service);
    let http = Http::new(client, bench.cluster.clock, Duration::ZERO).at_home_in(&plan.namespace);
    (http, refused)
}

fn rbac() -> String {
    "/apis/rbac.authorization.k8s.io/v1".to_owned()
}

fn others(roles: &Roles) -> Roles {
    Roles::of(Role::every().filter(|role| !roles.has(*role) && *role != Role::Failover))
}

/// Something for every role to do: a guest starts, its pod is evicted, its node is maintained.
async fn story(bench: &Bench) {
    bench.machine("a", "Always").await;
    let pods = bench.cluster.get(PODS).await.unwrap();
    let name = pods["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let (code, body) = bench.cluster.create(&format!("{PODS}/{name}/eviction"), &eviction).await;
    assert_eq!(code, 429, "{body}");
    // What comes of it depends on how roles in several operators play together; here it counts what they ask for.
    bench.cluster.pass(60).await;
    let node = bench.node_of("a").await;
    let object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance", "metadata": {"name": "m"},
        "spec": {"nodeName": node},
    });
    assert_eq!(bench.cluster.create(MAINTENANCES, &object).await.0, 201);
    bench.cluster.pass(60).await;
    let path = format!("{MAINTENANCES}/m");
    let (code, body) = bench.cluster.send("DELETE", &path, "application/json", &json!({})).await;
    assert_eq!(code, 200, "{body}");
    bench.cluster.pass(30).await;
}

#[tokio::test(start_paused = true)]
async fn the_role_failover_alone_may_drain_a_node_that_answers_before_it_fences_it() {
    let bench = Bench::start(3).await;
    bench.machine("a", "Always").await;
    let shown = crate::not_ready(bench.node("node-1").await);
    let (http, refused) = account(&bench, &Roles::of([Role::Failover]), Some(shown)).await;
    let (end, _) = bench.failover_by(&http, &request("node-1", NO_PROOF)).await;
    assert_eq!(*refused.lock().unwrap(), Vec::<String>::new());
    assert_eq!(end.unwrap(), End::Drained);
    assert_ne!(bench.node_of("a").await, "node-1", "it was moved and not fenced");
}

#[tokio::test(start_paused = true)]
async fn every_role_alone_and_every_pair_of_roles_is_refused_nothing() {
    let every: Vec<Role> = Role::every().collect();
    let mut sets: Vec<Vec<Role>> = every.iter().map(|role| vec![*role]).collect();
    for (at, one) in every.iter().enumerate() {
        sets.extend(every[at + 1..].iter().map(|other| vec![*one, *other]));
    }
    assert_eq!(sets.len(), 21);
    for set in sets {
        let roles = Roles::of(set.iter().copied());
        let bench = Bench::start_roles(4, others(&roles)).await;
        let (http, refused) = account(&bench, &roles, None).await;
        let without = Roles::of(set.iter().copied().filter(|role| *role != Role::Failover));
        let operator = Operator::start_roles(http.clone(), without);
        let controllers = bench.controllers(Controller::Good);
        let _failover = roles.has(Role::Failover).then(|| Bench::role_by(http, &controllers));
        story(&bench).await;
        if roles.has(Role::Failover) {
            assert_eq!(bench.policy("p", |_| {}).await.0, 201);
            bench.cluster.world.kubelet("node-1").power_off();
            bench.unreachable("node-1").await;
            bench.cluster.pass(180).await;
            assert!(!controllers.asked.lock().unwrap().is_empty(), "{set:?}: it was switched off");
        }
        assert_eq!(*refused.lock().unwrap(), Vec::<String>::new(), "{set:?}");
        operator.halt();
    }
}

#[tokio::test(start_paused = true)]
async fn who_adds_a_permission_to_a_maintenance_needs_the_rights_to_drain_the_node() {
    let bench = Bench::start(3).await;
    let object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance", "metadata": {"name": "m"},
        "spec": {"nodeName": "node-1"},
    });
    assert_eq!(bench.cluster.create(MAINTENANCES, &object).await.0, 201);
    bench.cluster.pass(5).await;
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"});
    let grant = async |name: &str, group: &str, resource: &str, verb: &str| {
        let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
        let kind = |kind: &str| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            })
        };
        let (mut granted, mut binding) = (kind("ClusterRole"), kind("ClusterRoleBinding"));
        granted.as_object_mut().unwrap().remove("roleRef");
        granted["rules"] = json!([rule]);
        binding["subjects"] = json!([subject]);
        assert_eq!(bench.cluster.create(&format!("{}/clusterroles", rbac()), &granted).await.0, 201);
        assert_eq!(bench.cluster.create(&format!("{}/clusterrolebindings", rbac()), &binding).await.0, 201);
    };
    let jane =
        Identity { name: "jane".into(), groups: vec!["system:authenticated".into()], ..Identity::default() };
    let client = kube::Client::new(Service::trusted(bench.cluster.api.clone(), jane), "default");
    let http = Http::new(client, bench.cluster.clock, Duration::ZERO);
    let patch = async |annotations: Value| {
        let body = json!({"metadata": {"annotations": annotations}});
        let path = format!("{MAINTENANCES}/m");
        let call = evac_api::kubevirt::request::send("PATCH", path, "application/merge-patch+json", &body);
        let answer = http.send(&call).await.unwrap();
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        (answer.status, body["message"].as_str().unwrap_or_default().to_owned())
    };
    grant("edit", "nodemaintenance.medik8s.io", "nodemaintenances", "patch").await;
    assert_eq!(patch(json!({"a": "b"})).await.0, 200, "what is no permission may change");
    for (permission, right) in
        [("evac.dev/allow-shutdown", "nodes"), ("evac.dev/allow-control-plane", "pods/eviction")]
    {
        let (code, said) = patch(json!({permission: "true"})).await;
        assert_eq!(code, 403, "{said}");
        assert!(said.contains(&format!("may not add annotation {permission}")), "{said}");
        let verb = if right == "nodes" { "patch" } else { "create" };
        grant(&right.replace('/', "-"), "", right, verb).await;
    }
    assert_eq!(patch(json!({"evac.dev/allow-shutdown": "true"})).await.0, 200, "who may drain may say so");
    assert_eq!(patch(json!({"evac.dev/allow-shutdown": null})).await.0, 200);
}
