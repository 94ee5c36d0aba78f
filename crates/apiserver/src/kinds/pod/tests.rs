use rstest::rstest;
use serde_json::{Value, json};

use crate::kinds::{Kinds, Part};
use crate::status::FieldError;

#[allow(clippy::needless_pass_by_value, reason = "reads better in tests")]
fn pod(spec: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "1"},
        "spec": spec,
    })
}

fn simple() -> Value {
    pod(json!({"containers": [{"name": "c", "image": "nginx"}]}))
}

fn defaulted(mut object: Value) -> Value {
    Kinds::builtin().by_kind("", "v1", "Pod").unwrap().default(&mut object);
    object
}

fn complaints(object: Value) -> Vec<String> {
    let kinds = Kinds::builtin();
    let kind = kinds.by_kind("", "v1", "Pod").unwrap();
    let mut object = object;
    kind.default(&mut object);
    kind.validate_create(&object).iter().map(FieldError::to_string).collect()
}

fn update(change: impl FnOnce(&mut Value)) -> Vec<String> {
    let kinds = Kinds::builtin();
    let kind = kinds.by_kind("", "v1", "Pod").unwrap();
    let old = defaulted(simple());
    let mut new = old.clone();
    change(&mut new);
    kind.default(&mut new);
    kind.prepare_update(&old, &mut new, Part::Main, jiff::Timestamp::UNIX_EPOCH);
    kind.validate_update(&old, &new, Part::Main).iter().map(FieldError::to_string).collect()
}

#[test]
fn a_minimal_pod_gets_the_defaults_of_the_server() {
    assert_eq!(
        defaulted(simple())["spec"],
        json!({
            "containers": [{
                "name": "c", "image": "nginx", "imagePullPolicy": "Always", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
            "schedulerName": "default-scheduler", "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        })
    );
    assert_eq!(complaints(simple()), Vec::<String>::new());
}

#[test]
fn defaulting_twice_changes_nothing() {
    let once = defaulted(pod(json!({
        "hostNetwork": true,
        "containers": [{
            "name": "c", "image": "r:5000/nginx:1", "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}},
            "livenessProbe": {"httpGet": {"port": 80}},
        }],
        "volumes": [{"name": "a"}, {"name": "b", "secret": {"secretName": "s"}},
                    {"name": "h", "hostPath": {"path": "/x"}}],
    })));
    assert_eq!(defaulted(once.clone()), once);
    let container = &once["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(container["resources"]["requests"], json!({"cpu": "500m", "memory": "1Gi"}));
    assert_eq!(container["ports"][0], json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"}));
    assert_eq!(container["livenessProbe"]["failureThreshold"], 3);
    assert_eq!(container["livenessProbe"]["httpGet"], json!({"path": "/", "port": 80, "scheme": "HTTP"}));
    assert_eq!(once["spec"]["volumes"][0]["emptyDir"], json!({}));
    assert_eq!(once["spec"]["volumes"][1]["secret"]["defaultMode"], 420);
    assert_eq!(once["spec"]["volumes"][2]["hostPath"]["type"], "");
}

#[rstest]
#[case("nginx", "Always")]
#[case("nginx:latest", "Always")]
#[case("nginx:1.2", "IfNotPresent")]
#[case("registry:5000/nginx", "Always")]
#[case("nginx@sha256:abc", "IfNotPresent")]
#[case("nginx:latest@sha256:abc", "IfNotPresent")]
fn the_pull_policy_follows_the_tag(#[case] image: &str, #[case] wanted: &str) {
    assert_eq!(super::default::image_pull_policy(image), wanted);
}

#[rstest]
#[case(json!([{"resources": {}}]), "BestEffort")]
#[case(json!([{"resources": {"requests": {"cpu": "1"}}}]), "Burstable")]
#[case(json!([{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1024Mi"}}}]), "Guaranteed")]
#[case(json!([{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}}, {}]), "Burstable")]
#[case(json!([{"resources": {"requests": {"cpu": "0"}}}]), "BestEffort")]
fn quality_of_service(#[case] containers: Value, #[case] wanted: &str) {
    assert_eq!(super::qos::class(&json!({"spec": {"containers": containers}})), wanted);
}

#[rstest]
#[case(json!({}), "spec.containers: Required value")]
#[case(json!({"containers": [{"image": "a"}]}), "spec.containers[0].name: Required value")]
#[case(json!({"containers": [{"name": "c"}]}), "spec.containers[0].image: Required value")]
#[case(
    json!({"containers": [{"name": "c", "image": "a"}, {"name": "c", "image": "a"}]}),
    "spec.containers[1].name: Duplicate value: \"c\""
)]
#[case(
    json!({"containers": [{"name": "c", "image": "a", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}),
    "spec.containers[0].volumeMounts[0].name: Not found: \"v\""
)]
#[case(
    json!({"containers": [{"name": "c", "image": "a"}], "restartPolicy": "Sometimes"}),
    "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\""
)]
#[case(
    json!({"containers": [{"name": "c", "image": "a",
        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]}),
    "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"
)]
#[case(
    json!({"containers": [{"name": "c", "image": "a", "ports": [{"containerPort": 70000}]}]}),
    "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"
)]
#[case(
    json!({"containers": [{"name": "c", "image": "a"}], "tolerations": [{"tolerationSeconds": 3, "operator": "Exists"}]}),
    "spec.tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set"
)]
#[case(
    json!({"containers": [{"name": "c", "image": "a"}], "volumes": [{"name": "v"}, {"name": "v"}]}),
    "spec.volumes[1].name: Duplicate value: \"v\""
)]
fn a_bad_pod_is_told_what_is_wrong(#[case] spec: Value, #[case] wanted: &str) {
    assert_eq!(complaints(pod(spec)), [wanted]);
}

#[test]
fn the_image_of_a_running_pod_may_change() {
    assert_eq!(update(|p| p["spec"]["containers"][0]["image"] = json!("nginx:2")), Vec::<String>::new());
}

#[test]
fn the_node_of_a_pod_may_not_change_by_update() {
    let found = update(|p| p["spec"]["nodeName"] = json!("n1"));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with(
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        ),
        "{found:?}"
    );
}

#[test]
fn tolerations_may_be_added_but_not_removed() {
    let extra = json!({"key": "k", "operator": "Exists", "effect": "NoExecute"});
    assert_eq!(update(|p| p["spec"]["tolerations"] = json!([extra])), Vec::<String>::new());
}

#[test]
fn containers_may_not_be_added() {
    let found = update(|p| {
        p["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "d", "image": "x"}));
    });
    assert_eq!(found, ["spec.containers: Forbidden: pod updates may not add or remove containers"]);
}

#[test]
fn a_new_pod_is_pending_and_a_status_sent_with_it_is_dropped() {
    let kinds = Kinds::builtin();
    let kind = kinds.by_kind("", "v1", "Pod").unwrap();
    let mut object = defaulted(simple());
    object["status"] = json!({"phase": "Running"});
    kind.prepare_create(&mut object, jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(object["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    assert_eq!(object["metadata"]["generation"], 1);
}

#[test]
fn a_status_update_changes_nothing_else_and_a_main_update_keeps_the_status() {
    let kinds = Kinds::builtin();
    let kind = kinds.by_kind("", "v1", "Pod").unwrap();
    let mut old = defaulted(simple());
    old["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
    old["metadata"]["generation"] = json!(1);
    let mut new = old.clone();
    new["spec"]["containers"][0]["image"] = json!("other");
    new["status"]["phase"] = json!("Running");
    let mut status = new.clone();
    kind.prepare_update(&old, &mut status, Part::Status, jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(status["spec"], old["spec"]);
    assert_eq!(status["status"]["phase"], "Running");
    assert_eq!(status["metadata"]["generation"], 1);
    kind.prepare_update(&old, &mut new, Part::Main, jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(new["status"]["phase"], "Pending");
    assert_eq!(new["metadata"]["generation"], 2);
}
