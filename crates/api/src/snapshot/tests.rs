//! What is in a snapshot says the same to decisions as the cluster, and nothing that is secret is in it.

use evac_core::cluster::fact::Existence;
use evac_core::{Fact, Key, VmVisibility};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::header::{Cluster, FORMAT, Gap, Header, KindState, Reading, VERSION};
use super::{KINDS, Loaded, SnapshotKind, load, write};
use crate::project::Project;
use crate::{kubevirt::wire as vms, wire};

const CANARY: &str = "correct-horse-battery-staple";

fn container() -> Value {
    json!({
        "name": "compute", "image": format!("registry/{CANARY}"), "command": [CANARY], "args": ["--password", CANARY],
        "env": [{"name": "PASSWORD", "value": CANARY}], "envFrom": [{"secretRef": {"name": CANARY}}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}},
        "ports": [{"containerPort": 80, "hostPort": 8080, "name": CANARY}],
        "lifecycle": {"preStop": {"exec": {"command": [CANARY]}}},
    })
}

fn meta(name: &str) -> Value {
    json!({
        "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": "5", "generation": 2,
        "labels": {"app": "web", "kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "uid-guest"},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": CANARY, "note": CANARY, "kubevirt.io/domain": "guest",
            "kubevirt.io/heartbeat": "2026-01-01T00:00:00Z", "evac.dev/dirty-rate": "7", "evac.dev/drain": "{}",
            "kubevirt.io/eviction-source": "descheduler", "evac.dev/tenant-timeout": "5m",
        },
        "managedFields": [{"manager": CANARY, "fieldsV1": {"f:spec": {CANARY: {}}}}],
        "ownerReferences": [{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "guest", "uid": "uid-guest",
            "controller": true,
        }],
        "finalizers": ["a/b"], "creationTimestamp": "2026-01-01T00:00:00Z",
    })
}

fn conditions() -> Value {
    json!([
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
        {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable", "message": "not shared"},
    ])
}

fn pod_spec() -> Value {
    json!({
        "nodeName": "n1", "nodeSelector": {"zone": "a"}, "priorityClassName": "high", "terminationGracePeriodSeconds": 60,
        "containers": [container()], "initContainers": [container()], "imagePullSecrets": [{"name": CANARY}],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
            ]}},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
            ]},
        },
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": CANARY}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}], "overhead": {"cpu": "10m"},
        "volumes": [
            {"name": "scratch", "emptyDir": {}}, {"name": "keys", "secret": {"secretName": CANARY}},
            {"name": "script", "configMap": {"name": CANARY}}, {"name": "host", "hostPath": {"path": CANARY}},
        ],
    })
}

fn guest_spec() -> Value {
    json!({
        "evictionStrategy": "LiveMigrate", "terminationGracePeriodSeconds": 90, "nodeSelector": {"zone": "a"},
        "accessCredentials": [{"userPassword": {"source": {"secret": {"secretName": CANARY}}}}],
        "domain": {
            "cpu": {"model": "host-model", "cores": 2}, "memory": {"guest": "1Gi"}, "resources": {"requests": {"memory": "1Gi"}},
            "firmware": {"serial": CANARY, "kernelBoot": {"kernelArgs": CANARY}}, "devices": {"disks": [{"name": "root", "serial": CANARY}]},
        },
        "volumes": [
            {"name": "init", "cloudInitNoCloud": {"userData": CANARY, "networkDataBase64": CANARY}},
            {"name": "config", "cloudInitConfigDrive": {"userDataBase64": CANARY}},
            {"name": "sysprep", "sysprep": {"secret": {"name": CANARY}}},
            {"name": "root", "dataVolume": {"name": "disk"}},
        ],
    })
}

/// An object of each kind as a server shows it, with a secret wherever one can stand.
fn object(kind: &SnapshotKind) -> Value {
    let mut object = json!({"metadata": meta("guest"), "stringData": {"key": CANARY}});
    let template = |spec: Value| json!({"metadata": meta("template"), "spec": spec});
    let (spec, status) = match kind.name {
        "nodes" => (
            json!({"unschedulable": true, "taints": [{"key": "gpu", "effect": "NoSchedule"}], "providerID": CANARY}),
            json!({
                "conditions": conditions(), "nodeInfo": {"bootID": "b", "machineID": CANARY}, "addresses": [{"address": CANARY}],
                "images": [{"names": [CANARY]}], "allocatable": {"cpu": "4", "pods": "10"}, "volumesAttached": [{"name": "v"}],
            }),
        ),
        "pods" => (
            pod_spec(),
            json!({
                "phase": "Running", "conditions": conditions(), "podIP": CANARY, "message": CANARY,
                "containerStatuses": [{"name": "compute", "ready": true, "state": {"running": {"startedAt": CANARY}}, "image": CANARY}],
            }),
        ),
        "poddisruptionbudgets" => (
            json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}),
            json!({
                "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3, "observedGeneration": 2,
                "disruptedPods": {"web-1": "2026-01-01T00:00:00Z"},
                "conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no owner"}],
            }),
        ),
        "virtualmachines" => (
            json!({"runStrategy": "Always", "template": template(guest_spec()), "dataVolumeTemplates": [{"spec": {"source": {"http": {"url": CANARY}}}}]}),
            json!({
                "created": true, "ready": true, "printableStatus": "Running", "runStrategy": "Always",
                "stateChangeRequests": [{"action": "Stop", "uid": "u", "data": {"key": CANARY}}],
                "startFailure": {"consecutiveFailCount": 2, "lastFailedVMIUID": "u", "retryAfterTimestamp": "2026-01-01T00:00:00Z"},
            }),
        ),
        "virtualmachineinstances" => (
            guest_spec(),
            json!({
                "phase": "Running", "nodeName": "n1", "evacuationNodeName": "n1", "activePods": {"uid-pod": "n1"}, "conditions": conditions(),
                "changedBlockTracking": {"backupStatus": {"backupName": "nightly", "startTimestamp": "2026-01-01T00:00:00Z", "backupMsg": CANARY}},
                "memory": {"guestCurrent": "2Gi"}, "interfaces": [{"ipAddress": CANARY}], "guestOSInfo": {"name": CANARY},
                "phaseTransitionTimestamps": [{"phase": "Running", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"}],
                "migrationState": {"migrationUid": "m", "sourceNode": "n1", "targetNode": "n2", "startTimestamp": "2026-01-01T00:00:00Z"},
            }),
        ),
        "virtualmachineinstancemigrations" => (
            json!({"vmiName": "guest", "priority": "system-critical"}),
            json!({"phase": "Running", "migrationState": {"targetNode": "n2", "failureReason": "why"}, "conditions": conditions()}),
        ),
        "virtualmachineinstancereplicasets" => (
            json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template(guest_spec())}),
            json!({"replicas": 2, "readyReplicas": 1, "labelSelector": "app=web", "conditions": conditions()}),
        ),
        "claims of drains" | "leases of maintenances" => (
            json!({"holderIdentity": "kim", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40, "leaseTransitions": 1}),
            Value::Null,
        ),
        "kubevirts" => (
            json!({
                "configuration": {"evictionStrategy": "LiveMigrate", "migrations": {"parallelMigrationsPerCluster": 7, "extra": CANARY}, "smbios": {"family": CANARY}},
                "imagePullSecrets": [{"name": CANARY}],
            }),
            json!({"phase": "Deployed", "observedKubeVirtVersion": "v1.9.0"}),
        ),
        _ => (
            json!({"template": template(pod_spec()), "replicas": 2, "nodeName": "n1", "reason": CANARY}),
            json!({"phase": "Active", "message": CANARY}),
        ),
    };
    object["spec"] = spec;
    object["status"] = status;
    object["data"] = json!({"key": CANARY, "migrations": format!("parallelMigrationsPerCluster: 3\npassword: {CANARY}\n")});
    object
}

fn named(name: &str) -> &'static SnapshotKind {
    SnapshotKind::named(name).unwrap()
}

#[test]
fn secrets_that_stand_anywhere_in_an_object_are_in_no_snapshot() {
    for kind in KINDS {
        let whole = object(kind);
        assert!(whole.to_string().contains(CANARY));
        let kept = kind.reduce(&whole).to_string();
        assert!(!kept.contains(CANARY), "{}: {kept}", kind.name);
        assert!(kept.contains("\"uid\":\"uid-guest\""), "{}: {kept}", kind.name);
    }
}

#[test]
fn an_object_of_a_snapshot_says_the_same_to_decisions_as_the_whole_one() {
    fn same<W: Project + DeserializeOwned>(name: &str) {
        let mut whole = object(named(name));
        // Of what a request to start carries along one word decides something.
        if let Some(request) = whole.pointer_mut("/status/stateChangeRequests/0") {
            request["data"] = json!({"paused": "true"});
        }
        let kept = named(name).reduce(&whole);
        let fact = |value: Value| serde_json::from_value::<W>(value).unwrap().seen();
        assert_eq!(fact(kept), fact(whole), "{name}");
    }
    same::<wire::Node>("nodes");
    same::<wire::Pod>("pods");
    same::<wire::Budget>("poddisruptionbudgets");
    same::<wire::Lease>("claims of drains");
    same::<wire::Lease>("leases of maintenances");
    same::<vms::VirtualMachine>("virtualmachines");
    same::<vms::VirtualMachineInstance>("virtualmachineinstances");
    same::<vms::Migration>("virtualmachineinstancemigrations");
    same::<vms::ReplicaSet>("virtualmachineinstancereplicasets");
}

#[test]
fn where_a_pod_fits_is_the_same_by_a_snapshot() {
    use crate::places::PlacesReader;
    let found = |reduced: bool| {
        let of =
            |name: &str| if reduced { named(name).reduce(&object(named(name))) } else { object(named(name)) };
        let mut pod = of("pods");
        pod["spec"]["nodeName"] = json!("guest");
        let mut reader = PlacesReader::new(None);
        reader.node(serde_json::from_value(of("nodes")).unwrap());
        reader.pod(serde_json::from_value(pod).unwrap());
        reader.finish()
    };
    assert_eq!(format!("{:?}", found(true)), format!("{:?}", found(false)));
    let wants = found(true).wants.into_values().next().unwrap();
    assert_eq!(wants.unjudged.len(), 2, "{wants:?}");
    assert!(!wants.apart.is_empty(), "{wants:?}");
}

/// A snapshot of these objects; of kinds without any an empty list was read.
fn snapshot(objects: &[(&str, Value)], states: &[(&str, Reading)]) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut kinds = Vec::new();
    for kind in KINDS {
        let of_kind = objects.iter().filter(|(name, _)| *name == kind.name);
        let found: Vec<String> = of_kind.map(|(_, object)| kind.reduce(object).to_string()).collect();
        let read = Reading::Read { objects: found.len(), resource_version: "9".into() };
        let state =
            states.iter().find(|(name, _)| *name == kind.name).map_or(read, |(_, state)| state.clone());
        lines.extend(found);
        kinds.push(KindState { kind: kind.name.into(), state });
    }
    let header = Header {
        format: FORMAT.into(),
        version: VERSION,
        evac: "1".into(),
        captured: "2026-01-01T00:00:00Z".parse().unwrap(),
        cluster: Cluster::Uid("u".into()),
        kinds,
    };
    write(Vec::new(), &header, lines.iter().map(String::as_str)).unwrap()
}

fn loaded(objects: &[(&str, Value)], states: &[(&str, Reading)]) -> Loaded {
    load(snapshot(objects, states).as_slice()).unwrap()
}

#[test]
fn a_loaded_snapshot_is_an_index_like_one_of_a_cluster() {
    let all: Vec<(&str, Value)> = KINDS.iter().map(|kind| (kind.name, object(kind))).collect();
    let loaded = loaded(&all, &[]);
    let index = &loaded.index;
    assert_eq!(index.nodes().len(), 1);
    assert_eq!(index.pods_on("n1").count(), 1);
    assert_eq!(index.instances_on("n1").count(), 1);
    assert_eq!(index.migrations().count(), 1);
    assert_eq!(index.machines().count(), 1);
    assert_eq!(index.config.parallel_per_cluster, 7, "KubeVirt's own object counts");
    assert!(index.budgets_are_visible());
    assert_eq!(index.vm_visibility(), &VmVisibility::Readable);
    assert_eq!(index.leases().count(), 1, "two of one name in one namespace");
    assert_eq!(loaded.quotas().len(), 1);
}

#[test]
fn the_settings_of_old_releases_count_where_there_are_no_others() {
    let map = object(named("kubevirt-config"));
    assert_eq!(loaded(&[("kubevirt-config", map)], &[]).index.config.parallel_per_cluster, 3);
}

#[test]
fn the_daemonset_of_a_pod_is_there_or_gone_or_not_known() {
    let mut pod = object(named("pods"));
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "guest", "uid": "d", "controller": true}]);
    let existence = |objects: &[(&str, Value)], states: &[(&str, Reading)]| {
        loaded(objects, states).index.daemon_set(&Key::new("shop", "guest")).cloned()
    };
    let set = ("daemonsets", object(named("daemonsets")));
    assert_eq!(existence(&[("pods", pod.clone()), set], &[]), Some(Existence::Found));
    assert!(matches!(existence(&[("pods", pod.clone())], &[]), Some(Existence::Gone(_))));
    let unread = [("daemonsets", Reading::Unread { why: "no".into() })];
    assert_eq!(existence(&[("pods", pod)], &unread), Some(Existence::Unreadable("no".into())));
}

#[test]
fn what_could_not_be_read_is_a_gap_and_not_an_empty_list() {
    let unread = |name: &'static str| (name, Reading::Unread { why: "forbidden".into() });
    let found = loaded(&[], &[unread("poddisruptionbudgets"), unread("virtualmachineinstances")]);
    assert!(!found.index.budgets_are_visible());
    assert_eq!(found.index.vm_visibility(), &VmVisibility::Denied("forbidden".into()));
    let gap =
        |what: &str| Gap { what: what.into(), misses: named(what).misses.into(), why: "forbidden".into() };
    assert_eq!(found.header.gaps(), [gap("virtualmachineinstances"), gap("poddisruptionbudgets")]);
    let absent = [
        ("virtualmachineinstances", Reading::NotServed),
        ("virtualmachineinstancemigrations", Reading::NotServed),
    ];
    let found = loaded(&[], &absent);
    assert_eq!(found.index.vm_visibility(), &VmVisibility::NotInstalled);
    assert_eq!(found.header.gaps(), []);
}

#[test]
fn a_namespace_that_is_being_deleted_is_known() {
    let mut namespace = object(named("namespaces"));
    namespace["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(loaded(&[("namespaces", namespace)], &[]).index.namespace_is_terminating("guest"));
}

#[test]
fn an_object_that_does_not_fit_its_kind_makes_the_snapshot_damaged() {
    let mut pod = object(named("pods"));
    pod["metadata"]["creationTimestamp"] = json!("yesterday");
    let error = load(snapshot(&[("pods", pod)], &[]).as_slice()).unwrap_err();
    assert!(error.to_string().starts_with("is damaged: one of its pods "), "{error}");
}

#[test]
fn kinds_are_named_once_and_only_what_is_essential_misses_everything() {
    for kind in KINDS {
        assert_eq!(KINDS.iter().filter(|other| other.name == kind.name).count(), 1, "{}", kind.name);
        assert_eq!(kind.misses == "everything", kind.is_essential, "{}", kind.name);
    }
    let fact = |name: &str| serde_json::from_value::<wire::Node>(object(named(name))).map(Project::seen);
    assert!(matches!(fact("nodes"), Ok(Fact::Node(_))));
}
