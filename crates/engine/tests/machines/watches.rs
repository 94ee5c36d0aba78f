//! One view: what an operator watches, counted where its requests pass, and the drain that shares it.

use std::collections::BTreeMap;
use std::time::Duration;

use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_core::machines::{Role, Roles};
use evac_engine::Http;
use evac_engine::operator::Operator;
use serde_json::{Value, json};

use crate::cluster::{Cluster, VMIS, VMS, vm};
use crate::counted::{Fault, Wire};

const OBJECTS: &str = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances";

fn object(node: &str) -> Value {
    json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "a"}, "spec": {"nodeName": node, "reason": "test"},
    })
}

fn http(cluster: &Cluster, wire: &Wire) -> Http {
    let client = wire.client(Service::trusted(cluster.api.clone(), Identity::admin()));
    Http::new(client, cluster.clock, Duration::ZERO)
}

/// How often each collection was watched, by its path and what was selected of it.
fn watches(wire: &Wire) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in wire.requests() {
        let Some(uri) = line.strip_prefix("GET ").filter(|uri| uri.contains("watch=true")) else { continue };
        let (path, query) = uri.split_once('?').unwrap();
        let selected: Vec<&str> = query.split('&').filter(|part| part.contains("Selector=")).collect();
        *counts.entry(format!("{path} {}", selected.join(" ")).trim().to_owned()).or_default() += 1;
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn an_operator_with_every_role_watches_each_kind_once_and_the_pods_of_nodes_under_maintenance_besides()
{
    let cluster = Cluster::start_roles(3, "none".parse().unwrap()).await;
    let wire = Wire::new();
    let _operator = Operator::start_roles(http(&cluster, &wire), Roles::of(Role::every()));
    assert_eq!(cluster.create(VMS, &vm("db", "Always", &json!({}))).await.0, 201);
    let vmi = cluster.until(&format!("{VMIS}/db"), |vmi| vmi["status"]["phase"] == "Running").await;
    let node = vmi["status"]["nodeName"].as_str().unwrap().to_owned();
    assert_eq!(cluster.create(OBJECTS, &object(&node)).await.0, 201);
    cluster.until(&format!("{OBJECTS}/a"), |object| object["status"]["phase"] == "Succeeded").await;
    let counts = watches(&wire);
    let often: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(often.is_empty(), "watched more than once: {often:#?}");
    // Of what is selected by name or label there is one watch each; of whole kinds there is no other besides.
    let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for watch in counts.keys() {
        let (path, selected) = watch.split_once(' ').unwrap_or((watch, ""));
        kinds.entry(path).or_default().push(selected);
    }
    let several: BTreeMap<_, _> = kinds.iter().filter(|(_, selected)| selected.len() > 1).collect();
    let pods =
        [format!("fieldSelector=spec.nodeName%3D{node}"), "labelSelector=kubevirt.io%3Dvirt-launcher".into()];
    for (path, selected) in several {
        match *path {
            // All pods of the node under maintenance, and those that run guests everywhere.
            "/api/v1/pods" => assert_eq!(selected, &pods),
            // The ledger of migrations and the old settings are two objects.
            path if path.ends_with("/configmaps") => assert_eq!(selected.len(), 2, "{selected:?}"),
            path => panic!("{path} is watched by {selected:?}"),
        }
    }
    assert!(kinds.contains_key("/api/v1/nodes") && kinds.contains_key(OBJECTS), "{kinds:?}");
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_for_maintenance_watches_guests_and_budgets_only_once_a_node_under_maintenance_has_some()
{
    let cluster = Cluster::start_roles(2, "machines,evacuation,budget".parse().unwrap()).await;
    let wire = Wire::new();
    let _operator = Operator::start_roles(http(&cluster, &wire), "maintenance".parse().unwrap());
    assert_eq!(cluster.create(VMS, &vm("db", "Always", &json!({}))).await.0, 201);
    let vmi = cluster.until(&format!("{VMIS}/db"), |vmi| vmi["status"]["phase"] == "Running").await;
    cluster.pass(30).await;
    for part in ["/pods?", "poddisruptionbudgets", "virtualmachine"] {
        assert_eq!(wire.count(part), 0, "{part}: {:#?}", wire.requests());
    }
    assert_eq!(cluster.create(OBJECTS, &object(vmi["status"]["nodeName"].as_str().unwrap())).await.0, 201);
    cluster.until(&format!("{OBJECTS}/a"), |object| object["status"]["phase"] == "Succeeded").await;
    let counts = watches(&wire);
    for kind in ["virtualmachineinstances", "virtualmachineinstancemigrations"] {
        assert_eq!(counts.get(&format!("/apis/kubevirt.io/v1/{kind}")), Some(&1), "{counts:#?}");
    }
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_is_given_back_only_when_no_request_about_it_can_land_any_more() {
    let cluster = Cluster::start_roles(2, "machines,evacuation,budget".parse().unwrap()).await;
    let wire = Wire::new();
    let mut slow = true;
    wire.fail(move |method, path| {
        let is_cordon = method == "PATCH" && path.starts_with("/api/v1/nodes/node-1") && slow;
        slow &= !is_cordon;
        is_cordon.then_some(Fault::Slow(10))
    });
    let _operator = Operator::start_roles(http(&cluster, &wire), "maintenance".parse().unwrap());
    let path = format!("{OBJECTS}/a");
    assert_eq!(cluster.create(OBJECTS, &object("node-1")).await.0, 201);
    for _ in 0..600 {
        if wire.count("PATCH /api/v1/nodes/node-1") == 1 {
            break;
        }
        cluster.pass_millis(100).await;
    }
    assert_eq!(wire.count("PATCH /api/v1/nodes/node-1"), 1, "the cordon is on its way");
    cluster.send("DELETE", &path, "application/json", &json!({})).await;
    cluster.pass(5).await;
    assert!(cluster.get(&path).await.is_some(), "its cordon may still land");
    cluster.until(&path, Value::is_null).await;
    cluster.pass(60).await;
    let node = cluster.get("/api/v1/nodes/node-1").await.unwrap();
    assert_ne!(node["spec"]["unschedulable"], true, "{node:#}");
    cluster.rest().await;
}
