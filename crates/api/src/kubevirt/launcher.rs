//! Renders the pod in which a guest runs, from the instance as the server holds it.

use evac_core::machines::action::Job;
use evac_core::machines::names;
use serde_json::{Map, Value, json};

use super::API_VERSION;
use crate::quantity;

/// Seconds a guest gets to shut down if its instance does not say.
const DEFAULT_GRACE: i64 = 30;
/// What a launcher needs on top, to end the guest and itself.
const EXTRA_GRACE: i64 = 30;
const MIB: u64 = 1 << 20;

/// Annotations of an instance that say nothing about its pod.
const OWN_ANNOTATIONS: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    "kubevirt.io/latest-observed-api-version",
    "kubevirt.io/storage-observed-api-version",
    names::WANTED_GUEST_STATE,
];

/// The migration a target is rendered for, with the node selector it adds.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    pub job: &'a Job,
    pub added_selector: Option<&'a Map<String, Value>>,
}

pub fn render(instance: &Value, name: &str, target: Option<Target<'_>>) -> Value {
    let meta = &instance["metadata"];
    let spec = &instance["spec"];
    let grace = spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(DEFAULT_GRACE);
    let mut pod_spec = json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace + EXTRA_GRACE,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "readinessGates": [{"conditionType": names::UNPAUSED_GATE}],
        "nodeSelector": node_selector(spec, target),
        "containers": [compute(spec)],
        "volumes": volumes(spec),
    });
    for field in [
        "tolerations",
        "schedulerName",
        "priorityClassName",
        "topologySpreadConstraints",
        "dnsPolicy",
        "dnsConfig",
    ] {
        if !spec[field].is_null() {
            pod_spec[field] = spec[field].clone();
        }
    }
    let affinity = affinity(spec, meta, target);
    if !affinity.is_null() {
        pod_spec["affinity"] = affinity;
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": labels(meta, target),
            "annotations": annotations(meta, target),
            "ownerReferences": [{
                "apiVersion": API_VERSION,
                "kind": "VirtualMachineInstance",
                "name": meta["name"],
                "uid": meta["uid"],
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": pod_spec,
    })
}

fn map_of(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// A label value holds 63 characters; longer names are cut and made distinct.
fn label_value(name: &str) -> String {
    if name.len() <= 63 {
        return name.to_owned();
    }
    let head: String = name.chars().take(57).collect();
    format!("{head}-{}", names::suffix(&[name]))
}

fn labels(meta: &Value, target: Option<Target<'_>>) -> Map<String, Value> {
    let mut labels = map_of(&meta["labels"]);
    labels.remove(names::MIGRATION_TARGET_NODE);
    labels.remove(names::NODE_NAME);
    let name = label_value(text(meta, "name"));
    labels.insert(names::APP.into(), json!("virt-launcher"));
    labels.insert(names::CREATED_BY.into(), meta["uid"].clone());
    labels.insert("vm.kubevirt.io/name".into(), json!(name));
    labels.insert("vmi.kubevirt.io/id".into(), json!(name));
    if let Some(target) = target {
        labels.insert(names::MIGRATION_JOB_UID.into(), json!(target.job.uid));
    }
    labels
}

fn annotations(meta: &Value, target: Option<Target<'_>>) -> Map<String, Value> {
    let mut annotations = map_of(&meta["annotations"]);
    annotations.retain(|key, _| !OWN_ANNOTATIONS.contains(&key.as_str()));
    annotations.insert(names::DOMAIN.into(), meta["name"].clone());
    annotations.insert("kubectl.kubernetes.io/default-container".into(), json!("compute"));
    annotations.insert("kubevirt.io/migrationTransportUnix".into(), json!("true"));
    annotations.insert(names::REQUEST_EVICT_ONLY.into(), json!(""));
    if let Some(target) = target {
        annotations.insert(names::MIGRATION_JOB_NAME.into(), json!(target.job.name));
    }
    annotations
}

/// What a migration adds gives way to what the instance says itself.
fn node_selector(spec: &Value, target: Option<Target<'_>>) -> Map<String, Value> {
    let mut selector = target.and_then(|target| target.added_selector).cloned().unwrap_or_default();
    selector.extend(map_of(&spec["nodeSelector"]));
    selector.insert(names::SCHEDULABLE.into(), json!("true"));
    if let Some(architecture) = spec["architecture"].as_str().filter(|text| !text.is_empty()) {
        selector.insert("kubernetes.io/arch".into(), json!(architecture));
    }
    selector
}

/// A target keeps away from every node where a pod of the same instance is.
fn affinity(spec: &Value, meta: &Value, target: Option<Target<'_>>) -> Value {
    let mut affinity = spec["affinity"].clone();
    if target.is_some() {
        let term = json!({
            "labelSelector": {
                "matchExpressions": [
                    {"key": names::CREATED_BY, "operator": "In", "values": [meta["uid"]]}
                ],
            },
            "topologyKey": "kubernetes.io/hostname",
        });
        if !affinity.is_object() {
            affinity = json!({});
        }
        let rules = &mut affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        match rules.as_array_mut() {
            Some(rules) => rules.push(term),
            None => *rules = json!([term]),
        }
    }
    if let Some(avoid) = target.map(|target| &target.job.avoid).filter(|avoid| !avoid.is_empty()) {
        let rather_not = json!({
            "weight": 100,
            "preference": {
                "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": avoid}],
            },
        });
        let wishes = &mut affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        match wishes.as_array_mut() {
            Some(wishes) => wishes.push(rather_not),
            None => *wishes = json!([rather_not]),
        }
    }
    affinity
}

fn compute(spec: &Value) -> Value {
    let domain = &spec["domain"];
    let cpu = &domain["cpu"];
    let count = |field: &str| cpu[field].as_u64().unwrap_or(1).max(1);
    let processors = count("cores") * count("sockets") * count("threads");
    let mut requests = map_of(&domain["resources"]["requests"]);
    let mut limits = map_of(&domain["resources"]["limits"]);
    let guest = bytes(&domain["memory"]["guest"]).or_else(|| requests.get("memory").and_then(bytes));
    if let Some(guest) = guest {
        let overhead = overhead(guest, processors);
        let asked = requests.get("memory").and_then(bytes).unwrap_or(guest);
        requests.insert("memory".into(), json!((asked + overhead).to_string()));
        if let Some(limit) = limits.get("memory").and_then(bytes) {
            limits.insert("memory".into(), json!((limit + overhead).to_string()));
        }
    }
    if !requests.contains_key("cpu") {
        // A tenth of each virtual processor is what KubeVirt sets aside.
        requests.insert("cpu".into(), json!(format!("{}m", processors * 100)));
    }
    let mut resources = json!({"requests": requests});
    if !limits.is_empty() {
        resources["limits"] = json!(limits);
    }
    json!({
        "name": "compute",
        "image": "kubevirt/virt-launcher",
        "imagePullPolicy": "IfNotPresent",
        "resources": resources,
    })
}

/// What the hypervisor and its helpers need beside the guest's memory.
pub fn overhead(guest: u64, processors: u64) -> u64 {
    let helpers = 25 + 100 + 25 + 40 + 30;
    guest / 512 + (helpers + 8 + 32 + 8 * processors) * MIB
}

/// A quantity in bytes, written as text or as a number.
fn bytes(quantity: &Value) -> Option<u64> {
    quantity.as_u64().or_else(|| quantity::bytes(quantity.as_str()?))
}

fn volumes(spec: &Value) -> Vec<Value> {
    let mut volumes: Vec<Value> =
        ["private", "public", "sockets", "ephemeral-disks", "container-disks", "libvirt-runtime"]
            .iter()
            .map(|name| json!({"name": name, "emptyDir": {}}))
            .collect();
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        let claim = volume
            .pointer("/persistentVolumeClaim/claimName")
            .or_else(|| volume.pointer("/dataVolume/name"))
            .filter(|_| volume.pointer("/persistentVolumeClaim/hotpluggable") != Some(&json!(true)));
        if let Some(claim) = claim {
            volumes.push(json!({"name": volume["name"], "persistentVolumeClaim": {"claimName": claim}}));
        }
    }
    volumes
}

#[cfg(test)]
mod tests {
    use evac_core::Uid;

    use super::*;

    fn instance() -> Value {
        json!({
            "metadata": {
                "name": "vm1", "namespace": "d", "uid": "u1",
                "labels": {"app": "web", "kubevirt.io/nodeName": "n1"},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x", "evac.dev/boot-seconds": "3"},
            },
            "spec": {
                "nodeSelector": {"zone": "a"},
                "domain": {"resources": {"requests": {"memory": "1024M"}}, "cpu": {"cores": 2}},
                "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "c1"}}],
            },
        })
    }

    #[test]
    fn a_launcher_carries_what_others_look_for() {
        let pod = render(&instance(), "virt-launcher-vm1-abcde", None);
        let labels = &pod["metadata"]["labels"];
        assert_eq!(labels["kubevirt.io"], "virt-launcher");
        assert_eq!(labels["kubevirt.io/created-by"], "u1");
        assert_eq!(labels["app"], "web");
        assert!(labels.get("kubevirt.io/nodeName").is_none());
        let annotations = &pod["metadata"]["annotations"];
        assert_eq!(annotations["kubevirt.io/domain"], "vm1");
        assert_eq!(annotations["evac.dev/boot-seconds"], "3");
        assert!(annotations.get("kubectl.kubernetes.io/last-applied-configuration").is_none());
        assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 60);
        assert_eq!(pod["spec"]["nodeSelector"], json!({"kubevirt.io/schedulable": "true", "zone": "a"}));
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"], "200m");
        let memory = bytes(&pod["spec"]["containers"][0]["resources"]["requests"]["memory"]).unwrap();
        assert!(memory > 1_024_000_000 + 200 * MIB, "{memory}");
        assert!(pod["spec"]["volumes"].as_array().unwrap().iter().any(|v| v["emptyDir"].is_object()));
        assert_eq!(pod["spec"]["volumes"].as_array().unwrap().last().unwrap()["name"], "disk");
        assert!(pod["spec"].get("affinity").is_none());
    }

    #[test]
    fn m08_m09_a_target_keeps_away_from_its_source_and_the_instance_has_the_last_word() {
        let mut vmi = instance();
        vmi["spec"]["affinity"] = json!({"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack"}]
        }});
        let job = Job { name: "m".into(), uid: Uid::from("mu"), avoid: vec!["n9".into()], slot: None };
        let added = map_of(&json!({"zone": "b", "disk": "fast"}));
        let pod = render(&vmi, "t", Some(Target { job: &job, added_selector: Some(&added) }));
        assert_eq!(pod["metadata"]["labels"]["kubevirt.io/migrationJobUID"], "mu");
        assert_eq!(pod["metadata"]["annotations"]["kubevirt.io/migrationJobName"], "m");
        let rules =
            &pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(rules[0]["topologyKey"], "rack");
        assert_eq!(rules[1]["topologyKey"], "kubernetes.io/hostname");
        assert_eq!(pod["spec"]["nodeSelector"]["zone"], "a");
        assert_eq!(pod["spec"]["nodeSelector"]["disk"], "fast");
        let wish = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/preference/matchExpressions/0";
        let wish = pod.pointer(wish).expect("a node where it failed before is avoided");
        assert_eq!(*wish, json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n9"]}));
    }
}
