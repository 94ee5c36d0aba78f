use rstest::rstest;
use serde_json::{Value, json};

use crate::kinds::{Kinds, Part};
use crate::status::FieldError;

#[allow(clippy::needless_pass_by_value, reason = "reads better in tests")]
fn workload(kind: &str, extra: Value) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
        },
    });
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": "web", "namespace": "default", "uid": "u-1", "resourceVersion": "1"},
        "spec": spec,
    })
}

fn group(kind: &str) -> &'static str {
    if kind.ends_with("Job") { "batch" } else { "apps" }
}

fn created(object: &Value) -> (Value, Vec<String>) {
    let kinds = Kinds::builtin();
    let name = object["kind"].as_str().unwrap();
    let kind = kinds.by_kind(group(name), "v1", name).unwrap();
    let mut object = object.clone();
    kind.default(&mut object);
    kind.prepare_create(&mut object, jiff::Timestamp::UNIX_EPOCH);
    let errors = kind.validate_create(&object).iter().map(FieldError::to_string).collect();
    (object, errors)
}

fn updated(object: &Value, change: impl FnOnce(&mut Value)) -> (Value, Vec<String>) {
    let kinds = Kinds::builtin();
    let name = object["kind"].as_str().unwrap();
    let kind = kinds.by_kind(group(name), "v1", name).unwrap();
    let old = created(object).0;
    let mut new = old.clone();
    change(&mut new);
    kind.prepare_update(&old, &mut new, Part::Main, jiff::Timestamp::UNIX_EPOCH);
    let errors = kind.validate_update(&old, &new, Part::Main).iter().map(FieldError::to_string).collect();
    (new, errors)
}

#[rstest]
#[case("Deployment", json!({"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}}))]
#[case("ReplicaSet", json!({"replicas": 1}))]
#[case("DaemonSet", json!({"revisionHistoryLimit": 10,
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}))]
#[case("StatefulSet", json!({"replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
    "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}}))]
fn defaults(#[case] kind: &str, #[case] wanted: Value) {
    let (object, errors) = created(&workload(kind, json!({})));
    assert_eq!(errors, Vec::<String>::new());
    for (key, value) in wanted.as_object().unwrap() {
        assert_eq!(&object["spec"][key], value, "{key}");
    }
    assert_eq!(object["spec"]["template"]["spec"]["restartPolicy"], "Always");
    assert_eq!(object["metadata"]["generation"], 1);
}

#[rstest]
#[case("Deployment")]
#[case("ReplicaSet")]
#[case("StatefulSet")]
fn a_selector_is_required_and_must_match_the_template(#[case] kind: &str) {
    let mut object = workload(kind, json!({}));
    object["spec"].as_object_mut().unwrap().remove("selector");
    assert_eq!(
        created(&object).1,
        [
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`",
        ]
    );
    let other = workload(kind, json!({"selector": {"matchLabels": {"app": "db"}}}));
    assert_eq!(
        created(&other).1,
        [
            "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`",
        ]
    );
}

#[rstest]
#[case("Deployment")]
#[case("ReplicaSet")]
#[case("DaemonSet")]
#[case("StatefulSet")]
fn the_selector_cannot_change(#[case] kind: &str) {
    let (_, errors) = updated(&workload(kind, json!({})), |o| {
        o["spec"]["selector"] = json!({"matchLabels": {"app": "web", "x": "y"}});
        o["spec"]["template"]["metadata"]["labels"] = json!({"app": "web", "x": "y"});
    });
    assert_eq!(
        errors,
        ["spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"web\",\"x\":\"y\"}}: field is immutable"]
    );
}

#[test]
fn the_generation_moves_with_the_spec_and_with_annotations_of_a_deployment() {
    let deployment = workload("Deployment", json!({}));
    assert_eq!(updated(&deployment, |o| o["spec"]["replicas"] = json!(3)).0["metadata"]["generation"], 2);
    assert_eq!(
        updated(&deployment, |o| o["metadata"]["annotations"] = json!({"a": "b"})).0["metadata"]["generation"],
        2
    );
    assert_eq!(
        updated(&deployment, |o| o["metadata"]["labels"] = json!({"a": "b"})).0["metadata"]["generation"],
        1
    );
    assert_eq!(updated(&deployment, |o| o["status"] = json!({"replicas": 9})).0["status"], Value::Null);
}

#[test]
fn a_changed_template_of_a_daemon_set_is_counted() {
    let (object, _) = updated(&workload("DaemonSet", json!({})), |o| {
        o["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:2");
    });
    assert_eq!(object["metadata"]["annotations"]["deprecated.daemonset.template.generation"], "2");
}

#[test]
fn a_job_gets_a_selector_from_its_uid() {
    let mut object = workload("Job", json!({}));
    object["spec"].as_object_mut().unwrap().remove("selector");
    object["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let (job, errors) = created(&object);
    assert_eq!(errors, Vec::<String>::new());
    assert_eq!(job["spec"]["selector"]["matchLabels"], json!({"batch.kubernetes.io/controller-uid": "u-1"}));
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["job-name"], "web");
    assert_eq!(labels["controller-uid"], "u-1");
    assert_eq!((&job["spec"]["completions"], &job["spec"]["backoffLimit"]), (&json!(1), &json!(6)));
}

#[test]
fn pods_of_a_job_may_not_restart_always() {
    let mut object = workload("Job", json!({}));
    object["spec"].as_object_mut().unwrap().remove("selector");
    assert_eq!(
        created(&object).1,
        ["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""]
    );
}

#[test]
fn claims_of_a_stateful_set_can_be_mounted() {
    let mut object = workload(
        "StatefulSet",
        json!({
            "serviceName": "web",
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
        }),
    );
    object["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}]);
    assert_eq!(created(&object).1, Vec::<String>::new());
    let (_, errors) = updated(&object, |o| o["spec"]["serviceName"] = json!("other"));
    assert_eq!(errors, ["spec.serviceName: Invalid value: \"other\": field is immutable"]);
}

#[rstest]
#[case("*/5 * * * *", true)]
#[case("0 0 1 jan mon-fri", true)]
#[case("@daily", true)]
#[case("* * * *", false)]
#[case("60 * * * *", false)]
#[case("@never", false)]
fn schedules(#[case] schedule: &str, #[case] valid: bool) {
    let object = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "x:1"}]}}}}},
    });
    assert_eq!(created(&object).1.is_empty(), valid, "{:?}", created(&object).1);
}
