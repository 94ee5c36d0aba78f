use super::*;
use crate::actor::Answers;
use crate::build::{at, meta};
use crate::kinds::{Kind, Resource};
use crate::mirror::Mirror;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

fn sets() -> Resource {
    Kind::ReplicaSet.resource()
}

fn pods() -> Resource {
    Kind::Pod.resource()
}

fn owned(name: &str, owners: &[&str]) -> ObjectMeta {
    let mut meta = meta("ns", name);
    meta.owner_references = Some(
        owners
            .iter()
            .map(|o| OwnerReference {
                api_version: "apps/v1".into(),
                kind: "ReplicaSet".into(),
                name: (*o).into(),
                uid: format!("uid-{o}"),
                controller: Some(true),
                block_owner_deletion: Some(true),
            })
            .collect(),
    );
    meta
}

fn dying(mut meta: ObjectMeta, finalizer: &str) -> ObjectMeta {
    meta.deletion_timestamp = Some(crate::objects::time(at(0)));
    meta.finalizers = Some(vec![finalizer.into()]);
    meta
}

fn decide(graph: &Graph, uid: &str, answers: &Answers) -> Out {
    let mirror = Mirror::default();
    let mut out = Out::default();
    collect(View { mirror: &mirror, now: at(0), answers }, graph, uid, &mut out);
    out
}

#[test]
fn an_object_is_deleted_only_after_the_server_says_its_owner_is_gone() {
    let mut graph = Graph::default();
    graph.put(&pods(), &owned("pod", &["set"]));
    let first = decide(&graph, "uid-pod", &Answers::new());
    assert!(first.writes.is_empty());
    let absent: Answers = first.asks.iter().map(|a| (a.clone(), Reply::NotFound)).collect();
    let second = decide(&graph, "uid-pod", &absent);
    assert!(matches!(second.writes[0].verb, Verb::Delete(_)));
    let replaced: Answers =
        first.asks.iter().map(|a| (a.clone(), Reply::Found(json!({"metadata": {"uid": "other"}})))).collect();
    assert_eq!(decide(&graph, "uid-pod", &replaced).writes.len(), 1);
    let unsure: Answers = first.asks.iter().map(|a| (a.clone(), Reply::Failed("x".into()))).collect();
    assert!(decide(&graph, "uid-pod", &unsure).writes.is_empty());
}

#[test]
fn an_object_with_one_owner_left_stays_and_loses_the_dead_reference() {
    let mut graph = Graph::default();
    graph.put(&sets(), &meta("ns", "alive"));
    graph.put(&pods(), &owned("pod", &["alive", "dead"]));
    let asks = decide(&graph, "uid-pod", &Answers::new()).asks;
    let answers: Answers = asks.into_iter().map(|a| (a, Reply::NotFound)).collect();
    let out = decide(&graph, "uid-pod", &answers);
    let Verb::MergePatch(body) = &out.writes[0].verb else { panic!("{:?}", out.writes) };
    assert_eq!(body["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
}

#[test]
fn foreground_deletion_waits_for_dependents_that_block() {
    let mut graph = Graph::default();
    graph.put(&sets(), &dying(meta("ns", "set"), FOREGROUND));
    graph.put(&pods(), &owned("pod", &["set"]));
    let out = decide(&graph, "uid-set", &Answers::new());
    assert_eq!(out.writes[0].key.name, "pod");
    assert!(matches!(out.writes[0].verb, Verb::Delete(_)));
    graph.remove("uid-pod");
    let out = decide(&graph, "uid-set", &Answers::new());
    let Verb::MergePatch(body) = &out.writes[0].verb else { panic!("{:?}", out.writes) };
    assert_eq!(body["metadata"]["finalizers"], json!([]));
}

#[test]
fn orphaning_removes_references_and_then_the_finalizer() {
    let mut graph = Graph::default();
    graph.put(&sets(), &dying(meta("ns", "set"), ORPHAN));
    graph.put(&pods(), &owned("pod", &["set"]));
    let out = decide(&graph, "uid-set", &Answers::new());
    assert_eq!(out.writes.len(), 2);
    assert_eq!(out.writes[0].key.name, "pod");
    assert_eq!(out.writes[1].key.name, "set");
    assert!(out.writes.iter().all(|w| matches!(w.verb, Verb::MergePatch(_))));
}

#[test]
fn the_dependents_of_a_vanished_owner_are_looked_at() {
    let mut graph = Graph::default();
    graph.put(&sets(), &meta("ns", "set"));
    graph.put(&pods(), &owned("pod", &["set"]));
    assert_eq!(graph.remove("uid-set"), ["uid-pod"]);
}
