use super::*;
use crate::actor::Answers;
use crate::build::{at, labels, meta, selector};
use crate::effects::Verb;
use crate::kinds::Object;
use crate::mirror::Mirror;
use k8s_openapi::api::apps::v1::{
    DeploymentSpec, DeploymentStrategy, ReplicaSetStatus, RollingUpdateDeployment,
};

fn template(version: &str) -> PodTemplateSpec {
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels(&[("app", "web"), ("v", version)])),
            ..Default::default()
        }),
        spec: None,
    }
}

fn deployment(replicas: i32, version: &str, surge: i32, unavailable: i32) -> Deployment {
    Deployment {
        metadata: meta("ns", "web"),
        spec: DeploymentSpec {
            replicas: Some(replicas),
            selector: selector(&[("app", "web")]),
            template: template(version),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(surge)),
                    max_unavailable: Some(IntOrString::Int(unavailable)),
                }),
            }),
            ..Default::default()
        },
        status: None,
    }
}

/// Deployment and ReplicaSets in a loop: each write is applied, and pods come up at once or not at all.
struct Bench {
    mirror: Mirror,
    version: u64,
    seen: Vec<(i32, i32)>,
}

impl Bench {
    fn new(deployment: Deployment) -> Self {
        let mut bench = Self { mirror: Mirror::default(), version: 10, seen: Vec::new() };
        bench.put_deployment(deployment);
        bench
    }

    fn put_deployment(&mut self, mut deployment: Deployment) {
        self.version += 1;
        deployment.metadata.resource_version = Some(self.version.to_string());
        self.mirror.put(Object::Deployment(Arc::new(deployment)));
    }

    fn step(&mut self, pods_come_up: bool) -> bool {
        let mut out = Out::default();
        let answers = Answers::new();
        let view = View { mirror: &self.mirror, now: at(0), answers: &answers };
        sync(view, &Key::new("ns", "web"), &mut out);
        out.writes.retain(|w| w.resource == Kind::ReplicaSet.resource());
        let moved = !out.writes.is_empty();
        for write in out.writes {
            if let Verb::Create(mut body) | Verb::Replace(mut body) = write.verb {
                self.version += 1;
                body["metadata"]["resourceVersion"] = self.version.to_string().into();
                body["metadata"]["uid"] = format!("uid-{}", write.key.name).into();
                let mut set: ReplicaSet = serde_json::from_value(body).unwrap();
                let replicas = wanted(&set);
                let held = available(&set);
                set.status = Some(ReplicaSetStatus {
                    replicas,
                    available_replicas: Some(if pods_come_up { replicas } else { held.min(replicas) }),
                    ..Default::default()
                });
                self.mirror.put(Object::ReplicaSet(Arc::new(set)));
            }
        }
        let total: i32 = self.mirror.replica_sets.values().map(|s| wanted(s)).sum();
        let up: i32 = self.mirror.replica_sets.values().map(|s| available(s)).sum();
        self.seen.push((total, up));
        moved
    }

    fn settle(&mut self, pods_come_up: bool) {
        for _ in 0..100 {
            if !self.step(pods_come_up) {
                return;
            }
        }
        panic!("does not settle: {:?}", self.seen);
    }

    fn sizes(&self) -> Vec<i32> {
        let mut sizes: Vec<i32> = self.mirror.replica_sets.values().map(|s| wanted(s)).collect();
        sizes.sort_unstable();
        sizes
    }
}

#[test]
fn a_new_deployment_gets_one_replica_set() {
    let mut bench = Bench::new(deployment(3, "1", 1, 0));
    bench.settle(true);
    assert_eq!(bench.sizes(), [3]);
}

#[test]
fn a_rolling_update_stays_between_its_limits() {
    let mut bench = Bench::new(deployment(10, "1", 2, 1));
    bench.settle(true);
    bench.seen.clear();
    bench.put_deployment(deployment(10, "2", 2, 1));
    bench.settle(true);
    assert_eq!(bench.sizes(), [0, 10]);
    assert!(bench.seen.iter().all(|(total, up)| *total <= 12 && *up >= 9), "{:?}", bench.seen);
}

#[test]
fn an_update_whose_pods_never_come_up_stops_at_the_limit() {
    let mut bench = Bench::new(deployment(10, "1", 2, 3));
    bench.settle(true);
    bench.put_deployment(deployment(10, "2", 2, 3));
    bench.settle(false);
    assert_eq!(bench.sizes(), [5, 7]);
    assert!(bench.seen.iter().all(|(_, up)| *up >= 7));
}

#[test]
fn scaling_during_an_update_is_shared() {
    let mut bench = Bench::new(deployment(10, "1", 2, 3));
    bench.settle(true);
    bench.put_deployment(deployment(10, "2", 2, 3));
    bench.settle(false);
    bench.put_deployment(deployment(20, "2", 2, 3));
    bench.step(false);
    let sizes = bench.sizes();
    assert_eq!(sizes.iter().sum::<i32>(), 22);
    assert!(sizes[0] > 5 && sizes[1] > 7, "{sizes:?}");
}

#[test]
fn limits_round_surge_up_and_unavailable_down_and_never_both_to_zero() {
    let mut d = deployment(3, "1", 0, 0);
    assert_eq!(limits(&d), Limits { replicas: 3, surge: 0, unavailable: 1 });
    d.spec.strategy = None;
    assert_eq!(limits(&d), Limits { replicas: 3, surge: 1, unavailable: 0 });
}

#[test]
fn going_back_to_an_old_template_reuses_its_replica_set() {
    let mut bench = Bench::new(deployment(2, "1", 1, 1));
    bench.settle(true);
    bench.put_deployment(deployment(2, "2", 1, 1));
    bench.settle(true);
    bench.put_deployment(deployment(2, "1", 1, 1));
    bench.settle(true);
    assert_eq!(bench.sizes(), [0, 2]);
}
