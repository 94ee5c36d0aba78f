use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::kinds::{Kinds, custom};
use crate::schema::SchemaRef;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn options() -> Options {
    Options { include: Include::Metadata, headers: true, now: now() }
}

fn cells(group: &str, version: &str, kind: &str, object: &Value) -> Vec<String> {
    let kinds = Kinds::builtin();
    let table = render(kinds.by_kind(group, version, kind).unwrap(), [object], json!({}), options());
    let columns = table["columnDefinitions"].as_array().unwrap().len();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(columns, cells.len(), "{kind}");
    cells.iter().map(|c| c.as_str().map_or_else(|| c.to_string(), str::to_owned)).collect()
}

fn meta(name: &str) -> Value {
    json!({"name": name, "creationTimestamp": "2026-01-01T00:54:30Z"})
}

#[allow(clippy::needless_pass_by_value, reason = "reads better in tests")]
fn pod(spec: Value, status: Value) -> Value {
    json!({"metadata": meta("web"), "spec": spec, "status": status})
}

#[test]
fn every_builtin_kind_has_as_many_cells_as_columns() {
    let kinds = Kinds::builtin();
    for kind in kinds.iter() {
        let table = render(kind, [&json!({"metadata": {"name": "x"}})], json!({}), options());
        assert_eq!(
            table["columnDefinitions"].as_array().unwrap().len(),
            table["rows"][0]["cells"].as_array().unwrap().len(),
            "{}",
            kind.kind
        );
    }
}

#[rstest]
#[case(json!({"phase": "Pending"}), "0/1", "Pending", "0")]
#[case(json!({"phase": "Running", "containerStatuses": [
    {"ready": true, "restartCount": 0, "state": {"running": {}}}]}), "1/1", "Running", "0")]
#[case(json!({"phase": "Running", "containerStatuses": [
    {"ready": false, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
     "lastState": {"terminated": {"finishedAt": "2026-01-01T00:58:00Z"}}}]}),
    "0/1", "CrashLoopBackOff", "3 (2m ago)")]
#[case(json!({"phase": "Succeeded", "containerStatuses": [
    {"ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}),
    "0/1", "Completed", "0")]
#[case(json!({"phase": "Failed", "reason": "Evicted"}), "0/1", "Evicted", "0")]
#[case(json!({"phase": "Failed", "containerStatuses": [
    {"ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 137, "signal": 9}}}]}),
    "0/1", "Signal:9", "0")]
#[case(json!({"phase": "Pending", "conditions": [
    {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
    "0/1", "SchedulingGated", "0")]
fn the_status_of_a_pod(
    #[case] status: Value,
    #[case] ready: &str,
    #[case] reason: &str,
    #[case] restarts: &str,
) {
    let row = cells("", "v1", "Pod", &pod(json!({"containers": [{"name": "c"}]}), status));
    assert_eq!(row[..5], ["web", ready, reason, restarts, "5m30s"]);
}

#[test]
fn a_pod_with_init_containers_counts_them() {
    let spec = json!({"containers": [{"name": "c"}], "initContainers": [{"name": "a"}, {"name": "b"}]});
    let status = json!({"phase": "Pending", "initContainerStatuses": [
        {"name": "a", "state": {"terminated": {"exitCode": 0}}},
        {"name": "b", "state": {"running": {}}},
    ]});
    assert_eq!(cells("", "v1", "Pod", &pod(spec, status))[2], "Init:1/2");
}

#[test]
fn a_pod_being_deleted_is_terminating_unless_it_has_ended() {
    let mut object = pod(json!({"containers": [{"name": "c"}]}), json!({"phase": "Running"}));
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:59:00Z");
    assert_eq!(cells("", "v1", "Pod", &object)[2], "Terminating");
    object["status"]["phase"] = json!("Succeeded");
    assert_eq!(cells("", "v1", "Pod", &object)[2], "Succeeded");
}

#[test]
fn a_cordoned_node_says_so() {
    let node = json!({
        "metadata": {"name": "n1", "creationTimestamp": "2026-01-01T00:00:00Z",
                     "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "storage"}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.37.0", "kernelVersion": "6.1", "architecture": "amd64"},
        },
    });
    assert_eq!(
        cells("", "v1", "Node", &node),
        [
            "n1",
            "Ready,SchedulingDisabled",
            "storage,worker",
            "60m",
            "v1.37.0",
            "10.0.0.1",
            "<none>",
            "<unknown>",
            "6.1 (amd64)",
            "<unknown>"
        ]
    );
}

#[test]
fn budgets_show_numbers_and_percentages() {
    let budget = json!({
        "metadata": meta("b"), "spec": {"maxUnavailable": "25%"}, "status": {"disruptionsAllowed": 2},
    });
    assert_eq!(cells("policy", "v1", "PodDisruptionBudget", &budget), ["b", "N/A", "25%", "2", "5m30s"]);
}

#[test]
fn events_look_the_same_in_both_versions() {
    let core = json!({
        "metadata": meta("e"), "type": "Normal", "reason": "Evicted", "message": "gone\n",
        "involvedObject": {"kind": "Pod", "name": "web"}, "source": {"component": "kubelet", "host": "n1"},
        "firstTimestamp": "2026-01-01T00:50:00Z", "lastTimestamp": "2026-01-01T00:59:00Z", "count": 2,
    });
    let row = cells("", "v1", "Event", &core);
    assert_eq!(row, ["60s", "Normal", "Evicted", "pod/web", "", "kubelet, n1", "gone", "10m", "2", "e"]);
    let kinds = Kinds::builtin();
    let v1 = kinds.by_kind("events.k8s.io", "v1", "Event").unwrap();
    let converted = v1.from_stored().unwrap()(core);
    assert_eq!(cells("events.k8s.io", "v1", "Event", &converted), row);
}

#[test]
fn rows_carry_what_was_asked_for() {
    let kinds = Kinds::builtin();
    let kind = kinds.by_kind("", "v1", "ConfigMap").unwrap();
    let object = json!({"kind": "ConfigMap", "metadata": meta("c"), "data": {"a": "b"}});
    let with = |include| {
        let table = render(kind, [&object], json!({}), Options { include, headers: false, now: now() });
        assert_eq!(table["columnDefinitions"], json!([]));
        table["rows"][0]["object"].clone()
    };
    assert_eq!(with(Include::None), Value::Null);
    assert_eq!(with(Include::Object), object);
    assert_eq!(with(Include::Metadata)["kind"], "PartialObjectMetadata");
}

#[test]
fn custom_resources_show_their_columns() {
    let definition = json!({
        "metadata": {"name": "machines.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "machines", "kind": "Machine"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "additionalPrinterColumns": [
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                    {"name": "Ready", "type": "string",
                     "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                    {"name": "CPUs", "type": "integer", "jsonPath": ".spec.cpus", "priority": 1},
                    {"name": "Live", "type": "boolean", "jsonPath": ".spec.live"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    });
    let kind = custom::kinds_of(&definition, |_| SchemaRef::default()).remove(0);
    let object = json!({
        "metadata": meta("m"), "spec": {"cpus": 4, "live": true},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let table = render(&kind, [&object, &json!({"metadata": {"name": "bare"}})], json!({}), options());
    assert_eq!(table["columnDefinitions"][3]["priority"], 1);
    assert_eq!(table["rows"][0]["cells"], json!(["m", "Running", "True", 4, true, "5m30s"]));
    assert_eq!(table["rows"][1]["cells"], json!(["bare", null, null, null, null, null]));
}
