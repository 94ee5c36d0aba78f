use std::sync::Arc;

use super::*;
use crate::actor::Answers;
use crate::build::{at, node, pod};
use crate::effects::Verb;
use crate::kinds::Object;
use crate::mirror::Mirror;

fn cluster(nodes: usize) -> Mirror {
    let mut mirror = Mirror::default();
    for i in 1..=nodes {
        mirror.put(Object::Node(Arc::new(node(&format!("n{i}"), "a"))));
    }
    mirror
}

fn add(mirror: &mut Mirror, pod: Pod) {
    mirror.put(Object::Pod(Arc::new(pod)));
}

fn placed(mirror: &Mirror, name: &str) -> Result<String, String> {
    let key = Key::new("ns", name);
    let answers = Answers::new();
    let view = View { mirror, now: at(0), answers: &answers };
    place(view, 1, &key, mirror.pods.get(&key).unwrap())
}

#[test]
fn the_emptier_node_wins() {
    let mut mirror = cluster(2);
    add(&mut mirror, pod("ns", "big").on("n1").cpu("4").make());
    add(&mut mirror, pod("ns", "new").cpu("1").make());
    assert_eq!(placed(&mirror, "new"), Ok("n2".into()));
}

#[test]
fn the_message_counts_reasons_as_kube_scheduler_does() {
    let mut mirror = cluster(2);
    let mut closed = node("n3", "a");
    closed.spec.as_mut().unwrap().unschedulable = Some(true);
    mirror.put(Object::Node(Arc::new(closed)));
    for n in ["n1", "n2"] {
        add(&mut mirror, pod("ns", &format!("full-{n}")).on(n).cpu("8").make());
    }
    add(&mut mirror, pod("ns", "new").cpu("1").make());
    assert_eq!(
        placed(&mirror, "new"),
        Err("0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: 0/3 nodes are \
             available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
            .into())
    );
}

#[test]
fn a_missing_claim_is_named() {
    let mut mirror = cluster(1);
    add(
        &mut mirror,
        pod("ns", "new")
            .with(|p| {
                p.spec.as_mut().unwrap().volumes = Some(vec![k8s_openapi::api::core::v1::Volume {
                    name: "data".into(),
                    persistent_volume_claim: Some(
                        k8s_openapi::api::core::v1::PersistentVolumeClaimVolumeSource {
                            claim_name: "data".into(),
                            read_only: None,
                        },
                    ),
                    ..Default::default()
                }]);
            })
            .make(),
    );
    let message = placed(&mirror, "new").unwrap_err();
    assert!(
        message.starts_with("0/1 nodes are available: persistentvolumeclaim \"data\" not found."),
        "{message}"
    );
}

#[test]
fn higher_priority_goes_first_and_stranded_pods_wait_for_a_change() {
    let mut mirror = cluster(1);
    let low = pod("ns", "low").cpu("8").make();
    let high = pod("ns", "high").cpu("8").with(|p| p.spec.as_mut().unwrap().priority = Some(10)).make();
    let mut scheduler = Scheduler::new(1);
    for p in [low, high] {
        scheduler.note(&Key::of(&p.metadata), Some(&p), true);
        add(&mut mirror, p);
    }
    let answers = Answers::new();
    let mut out = Out::default();
    scheduler.sync(View { mirror: &mirror, now: at(0), answers: &answers }, &mut out);
    assert_eq!(out.writes[0].key.name, "high");
    assert!(matches!(&out.writes[0].verb, Verb::Bind { node, .. } if node == "n1"));
    mirror.assume_bound(&Key::new("ns", "high"), "n1");

    let mut out = Out::default();
    let view = View { mirror: &mirror, now: at(0), answers: &answers };
    scheduler.sync(view, &mut out);
    assert!(matches!(out.writes[0].verb, Verb::StrategicPatch(_)));
    assert!(!scheduler.has_work());
    scheduler.wake(view, Wake::Places);
    assert!(!scheduler.has_work());
    scheduler.wake(view, Wake::Room);
    assert!(scheduler.has_work());
}

#[test]
fn gated_bound_and_foreign_pods_are_not_ours() {
    assert!(ours(&pod("ns", "a").make()));
    assert!(!ours(&pod("ns", "a").on("n").make()));
    assert!(!ours(
        &pod("ns", "a").with(|p| p.spec.as_mut().unwrap().scheduler_name = Some("x".into())).make()
    ));
    assert!(!ours(&pod("ns", "a").deleting(30).make()));
}

#[test]
fn a_pod_that_names_its_node_is_told_about_that_node_only() {
    let mut mirror = cluster(3);
    add(&mut mirror, pod("ns", "full").on("n2").cpu("8").make());
    let daemon = pod("ns", "daemon").cpu("1").with(|p| {
        let affinity = serde_json::json!({ "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{ "matchFields": [
                { "key": "metadata.name", "operator": "In", "values": ["n2"] }] }] } } });
        p.spec.as_mut().unwrap().affinity = Some(serde_json::from_value(affinity).unwrap());
    });
    add(&mut mirror, daemon.make());
    let message = placed(&mirror, "daemon").unwrap_err();
    assert!(
        message.starts_with(
            "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
        ),
        "{message}"
    );
}
