//! The rows A120 to A127 of the acceptance catalogue, and the silence of nodes.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::lifecycle::Lifecycle;
use super::pod_gc::PodGc;
use super::taint_eviction::{Stay, TaintEviction, shortest, stay};
use super::taints::OUT_OF_SERVICE;
use crate::actor::{Answers, Out, Reply, View};
use crate::build::{PodBuilder, at, meta, node, pod, taint};
use crate::effects::{Verb, Write};
use crate::kinds::{Kind, Object};
use crate::mirror::Mirror;
use crate::objects::Key;

struct Bench {
    mirror: Mirror,
    version: u64,
}

impl Bench {
    fn new() -> Self {
        Self { mirror: Mirror::default(), version: 1 }
    }

    fn node(&mut self, mut node: Node) {
        self.version += 1;
        node.metadata.resource_version = Some(self.version.to_string());
        self.mirror.put(Object::Node(Arc::new(node)));
    }

    fn tainted(&mut self, taints: Vec<Taint>) {
        let mut n = node("n", "a");
        n.spec.as_mut().unwrap().taints = Some(taints);
        self.node(n);
    }

    fn pod(&mut self, pod: PodBuilder) {
        self.version += 1;
        let mut pod = pod.make();
        pod.metadata.resource_version = Some(self.version.to_string());
        self.mirror.put(Object::Pod(Arc::new(pod)));
    }

    fn evict(&self, eviction: &mut TaintEviction, now: Timestamp) -> (bool, Option<Timestamp>) {
        let mut out = Out::default();
        let answers = Answers::new();
        eviction.sync(View { mirror: &self.mirror, now, answers: &answers }, &Key::new("ns", "p"), &mut out);
        (out.writes.iter().any(|w| matches!(w.verb, Verb::Delete(_))), out.again)
    }
}

fn no_execute(key: &str) -> Vec<Taint> {
    vec![taint(key, "NoExecute")]
}

fn p() -> PodBuilder {
    pod("ns", "p").ready().on("n")
}

#[test]
fn a120_what_is_not_tolerated_leaves_now_what_is_tolerated_later_or_never() {
    let case = |taints: Vec<Taint>, pod: PodBuilder| {
        let mut bench = Bench::new();
        bench.tainted(taints);
        bench.pod(pod);
        bench.evict(&mut TaintEviction::default(), at(0))
    };
    assert_eq!(case(no_execute("x"), pod("ns", "p")), (false, None), "unscheduled");
    assert_eq!(case(vec![], p()), (false, None), "untainted");
    assert_eq!(case(vec![taint("x", "NoSchedule")], p()), (false, None), "another effect");
    assert_eq!(case(no_execute("x"), p()), (true, None), "tainted");
    assert_eq!(case(no_execute("x"), p().tolerate("x", "NoExecute", Some(100))), (false, Some(at(100))));
    assert_eq!(case(no_execute("x"), p().tolerate("x", "NoExecute", None)), (false, None), "for ever");
    assert_eq!(case(no_execute("x"), p().tolerate("y", "NoExecute", None)), (true, None), "another taint");
}

#[test]
fn a121_a_longer_toleration_does_not_move_the_time_and_a_removed_one_ends_it() {
    let mut bench = Bench::new();
    bench.tainted(no_execute("x"));
    bench.pod(p().tolerate("x", "NoExecute", Some(100)));
    let mut eviction = TaintEviction::default();
    assert_eq!(bench.evict(&mut eviction, at(0)), (false, Some(at(100))));
    bench.pod(p().tolerate("x", "NoExecute", Some(500)));
    assert_eq!(bench.evict(&mut eviction, at(50)), (false, Some(at(100))));
    assert!(bench.evict(&mut eviction, at(100)).0);
    bench.pod(p());
    assert!(bench.evict(&mut TaintEviction::default(), at(60)).0);
}

#[test]
fn a122_all_taints_must_be_tolerated_and_a_removed_taint_cancels() {
    let mut bench = Bench::new();
    bench.tainted(vec![taint("x", "NoExecute"), taint("y", "NoExecute")]);
    bench.pod(p().tolerate("x", "NoExecute", Some(100)));
    assert!(bench.evict(&mut TaintEviction::default(), at(0)).0);

    bench.pod(p().tolerate("x", "NoExecute", Some(100)).tolerate("y", "NoExecute", Some(10)));
    let mut eviction = TaintEviction::default();
    assert_eq!(bench.evict(&mut eviction, at(0)), (false, Some(at(10))));
    bench.tainted(vec![]);
    assert_eq!(bench.evict(&mut eviction, at(5)), (false, None));
    assert_eq!(bench.evict(&mut eviction, at(20)), (false, None));
}

#[test]
fn a123_the_shortest_toleration_that_is_used_counts() {
    let t = |seconds: Option<i64>| Toleration {
        operator: Some("Exists".into()),
        toleration_seconds: seconds,
        ..Default::default()
    };
    assert_eq!(shortest(&[]), Stay::Seconds(0));
    assert_eq!(shortest(&[&t(None)]), Stay::Forever);
    assert_eq!(shortest(&[&t(Some(1)), &t(Some(10))]), Stay::Seconds(1));
    assert_eq!(shortest(&[&t(None), &t(Some(1))]), Stay::Seconds(1));
    assert_eq!(shortest(&[&t(Some(-5))]), Stay::Seconds(0));
    assert_eq!(stay(&[&taint("x", "NoExecute")], &[]), Stay::No);
}

fn gc(mirror: &Mirror, gc: &mut PodGc, now: Timestamp, live: Option<&Reply>) -> Vec<Write> {
    let mut answers = Answers::new();
    for _ in 0..2 {
        let mut out = Out::default();
        gc.sync(View { mirror, now, answers: &answers }, &mut out);
        if out.asks.is_empty() {
            return out.writes;
        }
        for ask in out.asks {
            answers.insert(ask, live.cloned().expect("nobody should ask"));
        }
    }
    panic!("asks again and again");
}

fn not_ready(taints: Vec<Taint>) -> Node {
    let mut n = node("n", "a");
    n.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "Unknown".into();
    n.spec.as_mut().unwrap().taints = Some(taints);
    n
}

#[test]
fn a124_terminating_pods_of_a_node_that_is_only_not_ready_stay() {
    let mut bench = Bench::new();
    bench.node(not_ready(vec![]));
    bench.pod(p().deleting(30));
    assert!(gc(&bench.mirror, &mut PodGc::default(), at(1000), None).is_empty());
}

#[test]
fn a125_out_of_service_removes_terminating_pods_only_whatever_the_effect() {
    for effect in ["NoExecute", "NoSchedule", "PreferNoSchedule"] {
        let mut bench = Bench::new();
        bench.node(not_ready(vec![taint(OUT_OF_SERVICE, effect)]));
        bench.pod(p().deleting(30));
        bench.pod(pod("ns", "living").ready().on("n"));
        let writes = gc(&bench.mirror, &mut PodGc::default(), at(0), None);
        assert_eq!(writes.len(), 2, "{writes:?}");
        assert!(writes.iter().all(|w| w.key.name == "p"));
        assert!(matches!(&writes[0].verb, Verb::StrategicPatch(b) if b["status"]["phase"] == "Failed"));
        assert!(matches!(&writes[1].verb, Verb::Delete(d) if d.grace_seconds == Some(0)));
    }
}

#[test]
fn a126_out_of_service_on_a_ready_node_does_nothing() {
    let mut bench = Bench::new();
    bench.tainted(vec![taint(OUT_OF_SERVICE, "NoExecute")]);
    bench.pod(p().deleting(30));
    assert!(gc(&bench.mirror, &mut PodGc::default(), at(0), None).is_empty());
}

#[test]
fn a127_orphans_go_after_quarantine_and_only_if_the_node_is_really_gone() {
    let mut bench = Bench::new();
    bench.pod(p());
    let mut pod_gc = PodGc::default();
    assert!(gc(&bench.mirror, &mut pod_gc, at(0), None).is_empty());
    assert!(gc(&bench.mirror, &mut pod_gc, at(39), None).is_empty());
    let there = Reply::Found(serde_json::json!({}));
    assert!(gc(&bench.mirror, &mut pod_gc, at(40), Some(&there)).is_empty());
    assert_eq!(gc(&bench.mirror, &mut pod_gc, at(60), Some(&Reply::NotFound)).len(), 2);
}

fn monitor(bench: &Bench, lifecycle: &mut Lifecycle, now: Timestamp) -> Vec<Write> {
    let mut out = Out::default();
    lifecycle.monitor(View { mirror: &bench.mirror, now, answers: &Answers::new() }, &mut out);
    out.writes.retain(|w| w.resource != crate::kinds::EVENTS);
    out.writes
}

fn lease(bench: &mut Bench, node: &str, renewed: Timestamp) {
    bench.version += 1;
    let mut metadata = meta("kube-node-lease", node);
    metadata.resource_version = Some(bench.version.to_string());
    let spec = LeaseSpec { renew_time: Some(MicroTime(renewed)), ..Default::default() };
    bench.mirror.put(Object::Lease(Arc::new(Lease { metadata, spec: Some(spec) })));
}

#[test]
fn a_node_is_unknown_fifty_seconds_after_its_last_lease() {
    let mut bench = Bench::new();
    bench.node(node("n", "a"));
    bench.pod(p());
    let mut lifecycle = Lifecycle::default();
    lease(&mut bench, "n", at(0));
    assert!(monitor(&bench, &mut lifecycle, at(0)).is_empty());
    lease(&mut bench, "n", at(10));
    assert!(monitor(&bench, &mut lifecycle, at(10)).is_empty());
    assert!(monitor(&bench, &mut lifecycle, at(60)).is_empty());
    let writes = monitor(&bench, &mut lifecycle, at(61));
    assert_eq!(writes[0].resource, Kind::Node.resource());
    let Verb::StrategicPatch(body) = &writes[0].verb else { panic!("{writes:?}") };
    assert_eq!(body["status"]["conditions"][0]["status"], "Unknown");
    assert_eq!(body["status"]["conditions"][0]["reason"], "NodeStatusUnknown");
}

fn unready(name: &str, zone: &str) -> Node {
    let mut n = node(name, zone);
    n.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "Unknown".into();
    n
}

fn tainted_nodes(writes: &[Write]) -> Vec<&str> {
    writes
        .iter()
        .filter(|w| matches!(&w.verb, Verb::MergePatch(b) if b["spec"]["taints"].to_string().contains("unreachable")))
        .map(|w| w.key.name.as_str())
        .collect()
}

#[test]
fn silent_nodes_get_the_evicting_taint_one_in_ten_seconds_and_their_pods_are_not_ready() {
    let mut bench = Bench::new();
    bench.node(unready("n1", "a"));
    bench.node(unready("n2", "a"));
    for i in 3..6 {
        bench.node(node(&format!("n{i}"), "a"));
    }
    bench.pod(pod("ns", "p").ready().on("n1"));
    let mut lifecycle = Lifecycle::default();
    let writes = monitor(&bench, &mut lifecycle, at(0));
    assert_eq!(tainted_nodes(&writes), ["n1"]);
    assert!(writes.iter().any(|w| w.resource == Kind::Pod.resource()));
    assert!(tainted_nodes(&monitor(&bench, &mut lifecycle, at(5))).is_empty());
    assert_eq!(tainted_nodes(&monitor(&bench, &mut lifecycle, at(10))), ["n2"]);
}

#[test]
fn when_every_zone_is_down_nobody_is_tainted() {
    let mut bench = Bench::new();
    bench.node(unready("n1", "a"));
    bench.node(unready("n2", "b"));
    assert!(tainted_nodes(&monitor(&bench, &mut Lifecycle::default(), at(0))).is_empty());
    bench.node(node("n3", "c"));
    let both = monitor(&bench, &mut Lifecycle::default(), at(0));
    assert_eq!(tainted_nodes(&both), ["n1", "n2"]);
}

#[test]
fn a_node_that_is_ready_again_loses_the_taint() {
    let mut bench = Bench::new();
    bench.tainted(no_execute("node.kubernetes.io/unreachable"));
    let writes = monitor(&bench, &mut Lifecycle::default(), at(0));
    let Verb::MergePatch(body) = &writes[0].verb else { panic!("{writes:?}") };
    assert_eq!(body["spec"]["taints"], serde_json::json!([]));
}

#[test]
fn taints_follow_conditions_and_cordon() {
    let decide = |node: Node| {
        let mut bench = Bench::new();
        bench.node(node);
        let mut out = Out::default();
        let view = View { mirror: &bench.mirror, now: at(0), answers: &Answers::new() };
        super::taints::sync(view, &Key::cluster("n"), &mut out);
        match out.writes.first().map(|w| &w.verb) {
            Some(Verb::MergePatch(body)) => body["spec"]["taints"]
                .as_array()
                .unwrap()
                .iter()
                .map(|t| t["key"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>(),
            _ => vec!["no write".to_owned()],
        }
    };
    let mut cordoned = node("n", "a");
    cordoned.spec.as_mut().unwrap().unschedulable = Some(true);
    assert_eq!(decide(cordoned), ["node.kubernetes.io/unschedulable"]);
    let mut born = node("n", "a");
    born.spec.as_mut().unwrap().taints = Some(vec![taint("node.kubernetes.io/not-ready", "NoSchedule")]);
    assert_eq!(decide(born), Vec::<String>::new());
    assert_eq!(decide(not_ready(vec![])), ["node.kubernetes.io/unreachable"]);
    assert_eq!(decide(node("n", "a")), ["no write"]);
}
