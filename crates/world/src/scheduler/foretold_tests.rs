//! What a plan says of places, and what the scheduler then does: in drawn clusters the same guests find a place, each on a node that the scheduler likes best.

use std::sync::Arc;

use evac_api::places::PlacesReader;
use evac_core::cluster::board::{Board, Seat};
use k8s_openapi::serde::de::DeserializeOwned;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use serde_json::{Value, json};

use super::*;
use crate::actor::Answers;
use crate::build::at;
use crate::kinds::Object;
use crate::mirror::Mirror;

/// The node that is emptied.
const SOURCE: &str = "n0";

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

#[derive(Debug, Clone)]
struct DrawnNode {
    cpu: u32,
    gib: u32,
    zone: u8,
    taint: u8,
    fast: bool,
}

#[derive(Debug, Clone)]
struct DrawnPod {
    node: usize,
    milli: u32,
    gib: u32,
    app: u8,
    /// Which of the rules it has.
    rule: u8,
}

fn nodes() -> impl Strategy<Value = Vec<DrawnNode>> {
    let one = (4..20_u32, 4..40_u32, 0..3_u8, 0..6_u8, any::<bool>());
    let one = one.prop_map(|(cpu, gib, zone, taint, fast)| DrawnNode { cpu, gib, zone, taint, fast });
    prop::collection::vec(one, 2..7)
}

fn pods() -> impl Strategy<Value = Vec<DrawnPod>> {
    let one = (0..100_usize, 100..4000_u32, 1..9_u32, 0..4_u8, 0..10_u8);
    let one = one.prop_map(|(node, milli, gib, app, rule)| DrawnPod { node, milli, gib, app, rule });
    prop::collection::vec(one, 1..14)
}

fn node(number: usize, drawn: &DrawnNode) -> Value {
    let taints = match drawn.taint {
        0 => json!([{"key": "gpu", "effect": "NoSchedule"}]),
        1 => json!([{"key": "old", "effect": "PreferNoSchedule"}]),
        _ => Value::Null,
    };
    json!({
        "metadata": {"name": format!("n{number}"), "labels": {
            "kubernetes.io/hostname": format!("n{number}"), "zone": format!("z{}", drawn.zone), "fast": drawn.fast.to_string()}},
        "spec": {"taints": taints, "unschedulable": number == 0},
        "status": {"allocatable": {"cpu": drawn.cpu.to_string(), "memory": format!("{}Gi", drawn.gib), "pods": "12"}},
    })
}

fn pod(number: usize, drawn: &DrawnPod, nodes: usize) -> Value {
    let term = |app: u8, key: &str| json!([{"topologyKey": key, "labelSelector": {"matchLabels": {"app": format!("a{app}")}}}]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let of_nodes = |operator: &str| {
        json!({"nodeAffinity": {required: {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": operator, "values": ["z1", "z2"]}]}]}}})
    };
    let (selector, affinity, tolerations) = match drawn.rule {
        0 => (json!({"fast": "true"}), Value::Null, Value::Null),
        1 => (Value::Null, of_nodes("In"), Value::Null),
        2 => (Value::Null, of_nodes("NotIn"), Value::Null),
        3 => (Value::Null, json!({"podAffinity": {required: term(drawn.app, "zone")}}), Value::Null),
        4 => (
            Value::Null,
            json!({"podAntiAffinity": {required: term(drawn.app, "kubernetes.io/hostname")}}),
            Value::Null,
        ),
        5 => (
            Value::Null,
            json!({"podAntiAffinity": {required: term((drawn.app + 1) % 4, "zone")}}),
            Value::Null,
        ),
        6 => (Value::Null, Value::Null, json!([{"key": "gpu", "operator": "Exists"}])),
        7 => (
            Value::Null,
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 10, "preference": {"matchExpressions": [{"key": "fast", "operator": "In", "values": ["true"]}]}}]}}),
            Value::Null,
        ),
        _ => (Value::Null, Value::Null, Value::Null),
    };
    json!({
        "metadata": {"name": format!("p{number}"), "namespace": "ns", "labels": {"app": format!("a{}", drawn.app)}},
        "spec": {
            "nodeName": format!("n{}", drawn.node % nodes), "nodeSelector": selector, "affinity": affinity, "tolerations": tolerations,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {
                "cpu": format!("{}m", drawn.milli), "memory": format!("{}Gi", drawn.gib)}}}],
        },
        "status": {"phase": "Running"},
    })
}

/// Puts a pod into the mirror as the newest that is known of it.
fn put(mirror: &mut Mirror, version: &mut u32, pod: &Value) {
    *version += 1;
    let mut pod = pod.clone();
    pod["metadata"]["resourceVersion"] = json!(version.to_string());
    mirror.put(Object::Pod(Arc::new(read(&pod))));
}

/// Each guest of the emptied node in turn: the plan gives it a place if and only if the scheduler finds one for its copy, and there is no node that the scheduler likes
/// better. Then it has moved, for both.
fn agree(nodes: &[DrawnNode], pods: &[DrawnPod]) -> Result<(), TestCaseError> {
    let (mut mirror, mut reader, mut version) = (Mirror::default(), PlacesReader::new(None), 0);
    for (number, drawn) in nodes.iter().enumerate() {
        let value = node(number, drawn);
        reader.node(read(&value));
        mirror.put(Object::Node(Arc::new(read(&value))));
    }
    let mut leaving = Vec::new();
    for (number, drawn) in pods.iter().enumerate() {
        let value = pod(number, drawn, nodes.len());
        reader.pod(read(&value));
        put(&mut mirror, &mut version, &value);
        if value["spec"]["nodeName"] == SOURCE {
            leaving.push(value);
        }
    }
    let places = reader.finish();
    let mut board = Board::new(&places);
    let mut seating = board.seating([SOURCE]);
    for mut value in leaving {
        let name = value["metadata"]["name"].as_str().unwrap().to_owned();
        let seat = board.seat(&mut seating, &evac_core::Key::new("ns", name.as_str()), true);
        let copy_key = Key::new("ns", format!("{name}-copy"));
        value["metadata"]["name"] = json!(copy_key.name);
        value["spec"]["nodeName"] = Value::Null;
        let copy: Pod = read(&value);
        put(&mut mirror, &mut version, &value);
        let answers = Answers::new();
        let found = place(View { mirror: &mirror, now: at(0), answers: &answers }, 1, &copy_key, &copy);
        match (&seat, &found) {
            (Seat::On { node, .. }, Ok(chosen)) => {
                let both: Vec<&Arc<Node>> =
                    [node, chosen].into_iter().filter_map(|one| mirror.nodes.named(one)).collect();
                let may_win = (0..200).any(|seed| {
                    score::best(&mirror, seed, &copy_key, &copy, &both)
                        .is_some_and(|best| super::name(&best.metadata) == node)
                });
                prop_assert!(may_win, "{name} goes to {chosen}, and never to {node}");
                // The copy runs where it was said, and the guest's first pod has ended.
                value["spec"]["nodeName"] = json!(node);
                put(&mut mirror, &mut version, &value);
                value["metadata"]["name"] = json!(name);
                value["spec"]["nodeName"] = json!(SOURCE);
                value["status"]["phase"] = json!("Succeeded");
                put(&mut mirror, &mut version, &value);
            }
            (Seat::Nowhere | Seat::Taken | Seat::Company, Err(_)) => {
                value["status"]["phase"] = json!("Failed");
                put(&mut mirror, &mut version, &value);
            }
            _ => prop_assert!(false, "{name}: the plan says {seat:?}, the scheduler {found:?}"),
        }
    }
    Ok(())
}

#[test]
fn where_a_plan_puts_guests_there_the_scheduler_may_put_them_and_nowhere_is_nowhere() {
    let config = Config { cases: 1500, rng_seed: RngSeed::Fixed(22), ..Config::default() };
    proptest!(config, |(nodes in nodes(), pods in pods())| agree(&nodes, &pods)?);
}
