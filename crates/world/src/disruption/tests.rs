//! The rows A100 to A117 of the acceptance catalogue.

use super::*;
use crate::actor::{Answers, Ask, Reply};
use crate::build::{PodBuilder, at, meta, pod, selector};
use crate::effects::Verb;
use crate::kinds::Object;
use crate::mirror::Mirror;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::{ReplicationController, ReplicationControllerSpec};
use k8s_openapi::api::policy::v1::PodDisruptionBudgetSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

fn int(n: i32) -> IntOrString {
    IntOrString::Int(n)
}

fn percent(text: &str) -> IntOrString {
    IntOrString::String(text.into())
}

fn min(least: IntOrString) -> PodDisruptionBudgetSpec {
    PodDisruptionBudgetSpec {
        min_available: Some(least),
        selector: Some(selector(&[("app", "web")])),
        ..Default::default()
    }
}

fn max(most: IntOrString) -> PodDisruptionBudgetSpec {
    PodDisruptionBudgetSpec {
        max_unavailable: Some(most),
        selector: Some(selector(&[("app", "web")])),
        ..Default::default()
    }
}

struct Bench {
    mirror: Mirror,
    answers: Answers,
    version: u64,
    now: jiff::Timestamp,
    events: Vec<String>,
}

impl Bench {
    fn new(spec: PodDisruptionBudgetSpec) -> Self {
        let mut bench = Self {
            mirror: Mirror::default(),
            answers: Answers::new(),
            version: 1,
            now: at(0),
            events: vec![],
        };
        bench.put(Object::PodDisruptionBudget(Arc::new(PodDisruptionBudget {
            metadata: meta("ns", "budget"),
            spec: Some(spec),
            status: None,
        })));
        bench
    }

    fn put(&mut self, object: Object) {
        self.version += 1;
        let mut value = match object {
            Object::Pod(o) => crate::effects::as_value(&o.as_ref()),
            Object::PodDisruptionBudget(o) => crate::effects::as_value(&o.as_ref()),
            Object::ReplicaSet(o) => crate::effects::as_value(&o.as_ref()),
            Object::ReplicationController(o) => crate::effects::as_value(&o.as_ref()),
            other => panic!("{other:?}"),
        };
        value["metadata"]["resourceVersion"] = self.version.to_string().into();
        let kind = match value["kind"].as_str().unwrap() {
            "Pod" => Kind::Pod,
            "PodDisruptionBudget" => Kind::PodDisruptionBudget,
            "ReplicaSet" => Kind::ReplicaSet,
            _ => Kind::ReplicationController,
        };
        self.mirror.put(kind.parse(value).unwrap());
    }

    fn pod(&mut self, pod: PodBuilder) {
        self.put(Object::Pod(Arc::new(pod.labels(&[("app", "web")]).make())));
    }

    fn replica_set(&mut self, name: &str, replicas: i32) {
        self.put(Object::ReplicaSet(Arc::new(ReplicaSet {
            metadata: meta("ns", name),
            spec: ReplicaSetSpec { replicas: Some(replicas), ..Default::default() },
            status: None,
        })));
    }

    fn controller(&mut self, name: &str, replicas: i32) {
        self.put(Object::ReplicationController(Arc::new(ReplicationController {
            metadata: meta("ns", name),
            spec: Some(ReplicationControllerSpec { replicas: Some(replicas), ..Default::default() }),
            status: None,
        })));
    }

    /// Decides, takes the written status over, and answers it.
    fn status(&mut self) -> PodDisruptionBudgetStatus {
        let mut out = Out::default();
        sync(
            View { mirror: &self.mirror, now: self.now, answers: &self.answers },
            &Key::new("ns", "budget"),
            &mut out,
        );
        assert!(out.asks.is_empty(), "{:?}", out.asks);
        for write in out.writes {
            match write.verb {
                Verb::Create(body) => self.events.push(body["reason"].as_str().unwrap().to_owned()),
                Verb::Replace(body) => {
                    let next: PodDisruptionBudget = serde_json::from_value(body).unwrap();
                    self.put(Object::PodDisruptionBudget(Arc::new(next)));
                }
                other => panic!("{other:?}"),
            }
        }
        let key = Key::new("ns", "budget");
        self.mirror.budgets.get(&key).unwrap().status.clone().unwrap_or_default()
    }

    fn allowed(&mut self) -> i32 {
        self.status().disruptions_allowed.unwrap()
    }
}

fn of_set(name: &str, set: &str) -> PodBuilder {
    pod("ns", name).ready().owner("apps/v1", "ReplicaSet", set, &format!("uid-{set}"))
}

fn of_controller(name: &str, controller: &str) -> PodBuilder {
    pod("ns", name).ready().owner("v1", "ReplicationController", controller, &format!("uid-{controller}"))
}

fn numbers(status: &PodDisruptionBudgetStatus) -> (i32, i32, i32, i32) {
    (
        status.disruptions_allowed.unwrap(),
        status.current_healthy.unwrap(),
        status.desired_healthy.unwrap(),
        status.expected_pods.unwrap(),
    )
}

#[test]
fn a100_with_an_integer_minimum_the_fourth_pod_allows_one() {
    let mut bench = Bench::new(min(int(3)));
    let mut allowed = vec![bench.allowed()];
    for i in 0..4 {
        bench.pod(pod("ns", &format!("p{i}")).ready());
        allowed.push(bench.allowed());
    }
    assert_eq!(allowed, [0, 0, 0, 0, 1]);
    bench.pod(pod("ns", "p0").phase("Running"));
    assert_eq!(numbers(&bench.status()), (0, 3, 3, 4));
}

#[test]
fn a101_a_bare_pod_under_max_unavailable_allows_nothing_and_is_named_unmanaged() {
    let mut bench = Bench::new(max(int(1)));
    bench.pod(pod("ns", "bare").ready());
    assert_eq!(bench.allowed(), 0);
    assert!(bench.events.contains(&"UnmanagedPods".to_owned()));
}

#[test]
fn a102_max_unavailable_follows_the_scale_of_the_set() {
    let mut bench = Bench::new(max(int(2)));
    bench.replica_set("rs", 7);
    bench.pod(of_set("a", "rs"));
    assert_eq!(numbers(&bench.status()), (0, 1, 5, 7));
    bench.replica_set("rs", 5);
    assert_eq!(numbers(&bench.status()), (0, 1, 3, 5));
}

#[test]
fn a103_a_percentage_of_max_unavailable_rounds_up() {
    let mut bench = Bench::new(max(percent("30%")));
    bench.replica_set("rs", 7);
    bench.pod(of_set("a", "rs"));
    assert_eq!(bench.status().desired_healthy, Some(4));
    bench.replica_set("rs", 3);
    assert_eq!(bench.status().desired_healthy, Some(2));
}

#[test]
fn a104_a_naked_pod_under_a_percentage_allows_nothing() {
    let mut bench = Bench::new(min(percent("28%")));
    bench.pod(pod("ns", "naked").ready());
    assert_eq!(bench.allowed(), 0);
    assert!(bench.events.contains(&"UnmanagedPods".to_owned()));
}

fn scale_ask(kind: &str, name: &str) -> Ask {
    Ask::Scale { api_version: "example.com/v1".into(), kind: kind.into(), key: Key::new("ns", name) }
}

#[test]
fn a105_an_owner_that_cannot_be_scaled_fails_safe_and_keeps_the_generation_unobserved() {
    let mut bench = Bench::new(min(percent("28%")));
    bench.answers.insert(scale_ask("Machine", "m"), Reply::NoScale("machines.example.com".into()));
    bench.pod(pod("ns", "p").ready().owner("example.com/v1", "Machine", "m", "uid-m"));
    let status = bench.status();
    assert_eq!(status.disruptions_allowed, Some(0));
    assert_eq!(status.observed_generation, None);
    let condition = &status.conditions.unwrap()[0];
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "SyncFailed"));
    assert_eq!(condition.message, "machines.example.com does not implement the scale subresource");
    assert!(bench.events.contains(&"CalculateExpectedPodCountFailed".to_owned()));
}

#[test]
fn a105_the_fail_safe_leaves_the_other_numbers_as_they_were() {
    let mut bench = Bench::new(min(percent("50%")));
    bench.replica_set("rs", 2);
    bench.pod(of_set("a", "rs"));
    bench.pod(of_set("b", "rs"));
    assert_eq!(numbers(&bench.status()), (1, 2, 1, 2));
    bench.answers.insert(scale_ask("Machine", "m"), Reply::Failed("no matches".into()));
    bench.pod(pod("ns", "p").ready().owner("example.com/v1", "Machine", "m", "uid-m"));
    let status = bench.status();
    assert_eq!(numbers(&status), (0, 2, 1, 2));
    assert_eq!(status.observed_generation, Some(1));
}

#[test]
fn a106_a_percentage_counts_the_scale_and_not_the_pods() {
    let mut bench = Bench::new(min(percent("20%")));
    bench.replica_set("rs", 10);
    bench.pod(of_set("a", "rs"));
    assert_eq!(numbers(&bench.status()), (0, 1, 2, 10));
}

#[test]
fn a107_any_owner_with_a_scale_counts() {
    let mut bench = Bench::new(max(int(5)));
    let scale = json!({ "metadata": { "uid": "uid-m" }, "spec": { "replicas": 10 } });
    bench.answers.insert(scale_ask("Machine", "m"), Reply::Found(scale));
    for i in 0..4 {
        bench.pod(pod("ns", &format!("p{i}")).ready().owner("example.com/v1", "Machine", "m", "uid-m"));
    }
    assert_eq!(numbers(&bench.status()), (0, 4, 5, 10));
}

#[test]
fn a108_an_owner_that_is_gone_or_replaced_fails_safe() {
    for reply in [Reply::NotFound, Reply::Found(json!({ "metadata": { "uid": "other" } }))] {
        let mut bench = Bench::new(max(int(1)));
        bench.answers.insert(scale_ask("Machine", "m"), reply);
        bench.pod(pod("ns", "p").ready().owner("example.com/v1", "Machine", "m", "uid-m"));
        let condition = bench.status().conditions.unwrap()[0].clone();
        assert_eq!(condition.reason, "SyncFailed");
        assert_eq!(condition.message, "found no controllers for pod \"p\"");
    }
}

#[test]
fn an_unknown_scale_is_asked_for_before_anything_is_written() {
    let mut bench = Bench::new(max(int(1)));
    bench.pod(pod("ns", "p").ready().owner("example.com/v1", "Machine", "m", "uid-m"));
    let mut out = Out::default();
    sync(
        View { mirror: &bench.mirror, now: at(0), answers: &bench.answers },
        &Key::new("ns", "budget"),
        &mut out,
    );
    assert_eq!(out.asks, [scale_ask("Machine", "m")]);
}

#[test]
fn a109_pods_beyond_the_scale_still_count_as_healthy() {
    let mut bench = Bench::new(min(percent("1%")));
    bench.controller("rc", 1);
    bench.pod(of_controller("a", "rc"));
    bench.pod(of_controller("b", "rc"));
    assert_eq!(bench.allowed(), 1);
}

#[test]
fn a110_a_rogue_pod_raises_what_is_allowed() {
    let mut bench = Bench::new(min(percent("34%")));
    bench.controller("rc", 3);
    for name in ["a", "b", "c"] {
        bench.pod(of_controller(name, "rc"));
    }
    assert_eq!(numbers(&bench.status()), (1, 3, 2, 3));
    bench.pod(pod("ns", "rogue").ready());
    assert_eq!(bench.allowed(), 2);
}

#[test]
fn a111_two_controllers_add_up() {
    let mut bench = Bench::new(min(percent("28%")));
    bench.controller("one", 11);
    for i in 0..11 {
        bench.pod(of_controller(&format!("one-{i}"), "one"));
    }
    assert_eq!(numbers(&bench.status()), (7, 11, 4, 11));
    bench.controller("two", 11);
    for i in 0..11 {
        bench.pod(of_controller(&format!("two-{i}"), "two").phase("Running").with(|p| {
            p.status.as_mut().unwrap().conditions = None;
        }));
    }
    assert_eq!(numbers(&bench.status()), (4, 11, 7, 22));
}

#[test]
fn a112_only_a_young_entry_of_a_living_pod_stays() {
    let mut bench = Bench::new(min(int(1)));
    for name in ["old", "young"] {
        bench.pod(pod("ns", name).ready());
    }
    bench.pod(pod("ns", "dying").ready().deleting(30));
    let mut budget = PodDisruptionBudget::clone(bench.mirror.budgets.get(&Key::new("ns", "budget")).unwrap());
    let entries = [("dying", 0), ("old", -180), ("young", -60), ("absent", -60)];
    budget.status = Some(PodDisruptionBudgetStatus {
        disrupted_pods: Some(entries.iter().map(|(n, s)| ((*n).to_owned(), Time(at(*s)))).collect()),
        ..Default::default()
    });
    bench.put(Object::PodDisruptionBudget(Arc::new(budget)));
    let status = bench.status();
    let names: Vec<_> = status.disrupted_pods.unwrap().into_keys().collect();
    assert_eq!(names, ["young"]);
    assert_eq!(status.current_healthy, Some(1));
    assert!(bench.events.contains(&"NotDeleted".to_owned()));
    bench.now = at(62);
    assert_eq!(bench.status().current_healthy, Some(2));
}

#[test]
fn a113_a_selector_that_does_not_parse_allows_nothing() {
    let mut spec = min(int(0));
    spec.selector = Some(LabelSelector {
        match_labels: None,
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "app".into(),
            operator: "Unknown".into(),
            values: None,
        }]),
    });
    let mut bench = Bench::new(spec);
    bench.pod(pod("ns", "a").ready());
    assert_eq!(numbers(&bench.status()), (0, 0, 0, 0));
}

#[test]
fn a114_a_stale_mark_is_taken_back_after_two_minutes() {
    let marked =
        |name: &str, age: i64| pod("ns", name).ready().condition("DisruptionTarget", "True", "X", at(-age));
    let decide = |pod: Pod| {
        let mut mirror = Mirror::default();
        let key = Key::of(&pod.metadata);
        mirror.put(Object::Pod(Arc::new(pod)));
        let mut out = Out::default();
        stale::sync(View { mirror: &mirror, now: at(0), answers: &Answers::new() }, &key, &mut out);
        (out.writes.len(), out.again)
    };
    assert_eq!(decide(marked("a", 121).make()), (1, None));
    assert_eq!(decide(marked("a", 119).make()), (0, Some(at(1))));
    assert_eq!(decide(marked("a", 121).deleting(30).make()), (0, None));
    let kubelet =
        pod("ns", "a").condition("DisruptionTarget", "True", "TerminationByKubelet", at(-500)).make();
    assert_eq!(decide(kubelet), (0, None));
    assert_eq!(decide(marked("a", 121).phase("Failed").make()), (0, None));
}

#[test]
fn a115_conditions_of_others_are_kept() {
    let mut bench = Bench::new(min(int(1)));
    let foreign = Condition {
        type_: "Foreign".into(),
        status: "True".into(),
        reason: "X".into(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(at(0)),
    };
    let mut budget = PodDisruptionBudget::clone(bench.mirror.budgets.get(&Key::new("ns", "budget")).unwrap());
    budget.status = Some(PodDisruptionBudgetStatus { conditions: Some(vec![foreign]), ..Default::default() });
    bench.put(Object::PodDisruptionBudget(Arc::new(budget)));
    let kinds: Vec<_> = bench.status().conditions.unwrap().into_iter().map(|c| c.type_).collect();
    assert_eq!(kinds, ["Foreign", "DisruptionAllowed"]);
}

#[test]
fn a116_max_unavailable_over_a_custom_scale_allows_exactly_that() {
    let mut bench = Bench::new(max(int(2)));
    let scale = json!({ "metadata": { "uid": "uid-m" }, "spec": { "replicas": 4 } });
    bench.answers.insert(scale_ask("Machine", "m"), Reply::Found(scale));
    for i in 0..4 {
        bench.pod(pod("ns", &format!("p{i}")).ready().owner("example.com/v1", "Machine", "m", "uid-m"));
    }
    assert_eq!(numbers(&bench.status()), (2, 4, 2, 4));
}

#[test]
fn a117_an_empty_selector_takes_all_pods_and_none_takes_none() {
    let mut spec = min(int(1));
    spec.selector = Some(LabelSelector::default());
    let mut bench = Bench::new(spec.clone());
    bench.pod(pod("ns", "a").ready());
    bench.pod(pod("ns", "b").ready());
    assert_eq!(bench.allowed(), 1);
    spec.selector = None;
    let mut bench = Bench::new(spec);
    bench.pod(pod("ns", "a").ready());
    assert_eq!(bench.status().expected_pods, Some(0));
}

#[test]
fn an_unchanged_status_is_not_written_again() {
    let mut bench = Bench::new(min(int(1)));
    bench.pod(pod("ns", "a").ready());
    bench.status();
    let mut out = Out::default();
    sync(
        View { mirror: &bench.mirror, now: at(5), answers: &bench.answers },
        &Key::new("ns", "budget"),
        &mut out,
    );
    assert!(out.writes.is_empty());
}
