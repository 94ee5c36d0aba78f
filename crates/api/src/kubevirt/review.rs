//! Admission: which requests are shown to us, and how an answer is written.

use evac_core::Key;
use evac_core::machines::admission::{ClusterSpec, Denial, MachineSpec};
use evac_core::machines::condition::seconds;
use evac_core::machines::eviction::Asked;
use evac_core::machines::{Instance, Migration, admission, names};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{GROUP, NAMESPACE, VERSIONS, wire};

/// The service under which the reviewers are registered.
pub const SERVICE: &str = evac_core::machines::beside::VIRT_API;
pub const MACHINE_PATH: &str = "/virtualmachines-validate";
pub const INSTANCE_PATH: &str = "/virtualmachineinstances-validate-create";
pub const SETTINGS_PATH: &str = "/kubevirt-validate-update";
pub const MIGRATION_CREATE_PATH: &str = "/migration-validate-create";
pub const MIGRATION_UPDATE_PATH: &str = "/migration-validate-update";
pub const MIGRATION_MUTATE_PATH: &str = "/migration-mutate-create";
pub const INSTANCE_MUTATE_PATH: &str = "/virtualmachineinstances-mutate";
pub const EVICTION_PATH: &str = "/pod-eviction-validate";

/// What comes before the tag in a path that cannot be guessed.
const GUARDED: &str = "/review/";

/// The path that leads to `path` for those who know its tag.
pub fn guarded(tag: &str, path: &str) -> String {
    format!("{GUARDED}{tag}{path}")
}

/// The tag and the path in a guarded path.
pub fn split(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix(GUARDED)?;
    Some(rest.split_at(rest.find('/')?))
}

/// A text without the tags of guarded paths: an API server that cannot reach a webhook names its address.
pub fn hide(text: &str) -> String {
    let mut hidden = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(GUARDED) {
        let (before, after) = rest.split_at(at + GUARDED.len());
        hidden.push_str(before);
        let digits = after.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(after.len());
        if digits >= 16 {
            hidden.push('…');
            rest = &after[digits..];
        } else {
            rest = after;
        }
    }
    hidden + rest
}

/// Whether a review is answered from what it says itself. Such an answer tells nothing of the cluster and changes nothing in it, so anybody
/// may have it; for every other one the operator reads, and writes, with rights of its own.
pub fn is_advice(path: &str) -> bool {
    matches!(
        path,
        MACHINE_PATH
            | INSTANCE_PATH
            | SETTINGS_PATH
            | MIGRATION_UPDATE_PATH
            | MIGRATION_MUTATE_PATH
            | INSTANCE_MUTATE_PATH
    )
}

fn hook(name: &str, path: &str, resource: &str, operations: &[&str]) -> Value {
    json!({
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": NAMESPACE, "name": SERVICE, "path": path}},
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "rules": [{
            "apiGroups": [GROUP],
            "apiVersions": VERSIONS,
            "operations": operations,
            "resources": [resource],
            "scope": "*",
        }],
    })
}

/// Evictions of pods that belong to guests, told by their names. The others pass without us, so that they do not depend on us being
/// there.
fn eviction_hook(name: &str, prefix: &str) -> Value {
    let mut hook = hook(name, EVICTION_PATH, "pods/eviction", &["*"]);
    hook["rules"][0]["apiGroups"] = json!([""]);
    hook["rules"][0]["apiVersions"] = json!(["v1"]);
    // The mark is an effect, and it is left out in trials.
    hook["sideEffects"] = json!("NoneOnDryRun");
    hook["matchConditions"] = json!([{
        "name": "only-pods-of-guests",
        "expression": format!("object.metadata.name.startsWith('{prefix}')"),
    }]);
    hook
}

/// The configurations that make a server ask us.
pub fn configurations() -> [Value; 2] {
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "virt-api-validator"},
            "webhooks": [
                hook(
                    "virtualmachineinstances-create-validator.kubevirt.io",
                    INSTANCE_PATH,
                    "virtualmachineinstances",
                    &["CREATE"],
                ),
                hook("kubevirt-update-validator.kubevirt.io", SETTINGS_PATH, "kubevirts", &["CREATE", "UPDATE"]),
                hook("virtualmachine-validator.kubevirt.io", MACHINE_PATH, "virtualmachines", &["CREATE", "UPDATE"]),
                eviction_hook("virt-launcher-eviction-interceptor.kubevirt.io", "virt-launcher"),
                eviction_hook("hotplug-pod-eviction-interceptor.kubevirt.io", "hp-volume-"),
                hook(
                    "migration-create-validator.kubevirt.io",
                    MIGRATION_CREATE_PATH,
                    "virtualmachineinstancemigrations",
                    &["CREATE"],
                ),
                hook(
                    "migration-update-validator.kubevirt.io",
                    MIGRATION_UPDATE_PATH,
                    "virtualmachineinstancemigrations",
                    &["UPDATE"],
                ),
            ],
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "virt-api-mutator"},
            "webhooks": [
                hook(
                    "migrations-mutator.kubevirt.io",
                    MIGRATION_MUTATE_PATH,
                    "virtualmachineinstancemigrations",
                    &["CREATE"],
                ),
                hook(
                    "virtualmachineinstances-mutator.kubevirt.io",
                    INSTANCE_MUTATE_PATH,
                    "virtualmachineinstances",
                    &["CREATE"],
                ),
            ],
        }),
    ]
}

fn answer(review: &Value, mut response: Value) -> Value {
    response["uid"] = review["request"]["uid"].clone();
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

pub fn allow(review: &Value) -> Value {
    answer(review, json!({"allowed": true}))
}

pub fn is_allowed(answer: &Value) -> bool {
    answer["response"]["allowed"] == true
}

pub fn deny(review: &Value, denial: &Denial) -> Value {
    let reason = if denial.code == 422 { "Invalid" } else { "" };
    let causes: Vec<Value> = denial
        .causes
        .iter()
        .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
        .collect();
    let mut status = json!({"status": "Failure", "code": denial.code, "message": denial.message});
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    if !causes.is_empty() {
        status["details"] = json!({"causes": causes});
    }
    answer(review, json!({"allowed": false, "status": status}))
}

fn decide(review: &Value, denial: Option<Denial>) -> Value {
    denial.map_or_else(|| allow(review), |denial| deny(review, &denial))
}

/// What the answer to an eviction depends on, of the pod it is about.
pub fn asked(pod: &Value) -> Asked {
    let metadata = &pod["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    Asked {
        name: text(&metadata["name"]),
        namespace: text(&metadata["namespace"]),
        uid: text(&metadata["uid"]),
        role: text(&metadata["labels"][names::APP]),
        finished: matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")),
        domain: metadata["annotations"][names::DOMAIN].as_str().map(str::to_owned),
        node: text(&pod["spec"]["nodeName"]),
        owners: owners.map(|owner| text(&owner["name"])).collect(),
    }
}

/// Which pod is to be evicted, and the uid it must have if that is said; else what is wrong with the review.
pub fn evicted(review: &Value) -> Result<(Key, Option<&str>), &'static str> {
    let request = &review["request"];
    let object = &request["object"];
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    if request["operation"] != "CREATE" {
        return Err("request.operation is not CREATE");
    }
    let resource = &request["resource"];
    if resource["resource"] != "pods" || resource["group"] != "" || request["subResource"] != "eviction" {
        return Err("request.resource is not pods/eviction");
    }
    if object["kind"] != "Eviction" {
        return Err("request.object is not an Eviction");
    }
    let key = Key::new(text(&request["namespace"]), text(&request["name"]));
    if !is_name(&key.namespace) || !is_name(&key.name) {
        return Err("request.namespace and request.name do not name a pod");
    }
    let differs =
        |value: &Value, name: &str| value.as_str().is_some_and(|said| !said.is_empty() && said != name);
    let metadata = &object["metadata"];
    if differs(&metadata["name"], &key.name) || differs(&metadata["namespace"], &key.namespace) {
        return Err("request.object is about another pod than the request");
    }
    Ok((key, object["deleteOptions"]["preconditions"]["uid"].as_str()))
}

/// Whether a text can be the name of a pod or a namespace.
fn is_name(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

/// Whether an eviction is only tried out: both the request and its body can say so.
pub fn is_trial(review: &Value) -> bool {
    let request = &review["request"];
    let options = request["object"]["deleteOptions"]["dryRun"].as_array();
    request["dryRun"] == true || options.is_some_and(|list| list.iter().any(|item| item == "All"))
}

/// Who asked for an eviction, if it says so.
pub fn requested_by(review: &Value) -> Option<&str> {
    review["request"]["object"]["metadata"]["annotations"][names::REQUESTED_BY].as_str()
}

/// Reviews a machine that is created or changed.
pub fn machine(review: &Value) -> Value {
    let request = &review["request"];
    let spec = &request["object"]["spec"];
    if request["object"]["metadata"]["deletionTimestamp"].is_string() {
        return allow(review);
    }
    let denial = admission::machine(&MachineSpec {
        running: spec["running"].as_bool(),
        strategy: spec["runStrategy"].as_str(),
        has_template: spec["template"].is_object(),
        eviction_strategy: spec["template"]["spec"]["evictionStrategy"].as_str(),
    });
    let mut reply = decide(review, denial);
    if reply["response"]["allowed"] == true && spec["running"].is_boolean() {
        reply["response"]["warnings"] =
            json!(["spec.running is deprecated, please use spec.runStrategy instead."]);
    }
    reply
}

/// Reviews an instance that is created.
pub fn instance(review: &Value) -> Value {
    let strategy = review["request"]["object"]["spec"]["evictionStrategy"].as_str();
    decide(review, admission::instance(strategy))
}

/// Reviews the settings of the cluster.
pub fn settings(review: &Value) -> Value {
    let configuration = &review["request"]["object"]["spec"]["configuration"];
    let migrations = &configuration["migrations"];
    let denial = admission::cluster(&ClusterSpec {
        eviction_strategy: configuration["evictionStrategy"].as_str(),
        drain_taint_key: migrations["nodeDrainTaintKey"].as_str(),
        parallel_per_cluster: migrations["parallelMigrationsPerCluster"].as_i64(),
        parallel_outbound_per_node: migrations["parallelOutboundMigrationsPerNode"].as_i64(),
    });
    decide(review, denial)
}

fn parsed<T: serde::de::DeserializeOwned>(value: &Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}

/// The migration under review.
pub fn migration_of(review: &Value) -> Option<Migration> {
    let mut migration: wire::Migration = parsed(&review["request"]["object"])?;
    if migration.metadata.namespace.is_empty() {
        migration.metadata.namespace = review["request"]["namespace"].as_str().unwrap_or_default().into();
    }
    Some(migration.into())
}

/// Reviews a new migration, given what it is about. `home` is the operator's own namespace.
pub fn migration_create(
    review: &Value,
    home: &str,
    instance: Option<&Instance>,
    others: &[Migration],
) -> Value {
    let Some(new) = migration_of(review) else { return allow(review) };
    let trusted = is_system(&review["request"]["userInfo"], home);
    decide(review, admission::migration(&new, trusted, instance, others))
}

/// Only the control plane itself may say how urgent a migration is.
fn is_system(user: &Value, home: &str) -> bool {
    let name = user["username"].as_str().unwrap_or_default();
    // An operator outside the cluster has no service account but is trusted with everything.
    let trusted =
        user["groups"].as_array().is_some_and(|groups| groups.iter().any(|group| group == "system:masters"));
    // Whoever may act in that namespace could take the operator's place anyhow.
    let ours = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    trusted || name.ends_with(":kubevirt-controller") || ours.is_some_and(|(namespace, _)| namespace == home)
}

pub fn migration_update(review: &Value) -> Value {
    let request = &review["request"];
    let (new, old) = (&request["object"], &request["oldObject"]);
    let label = |object: &Value| object["metadata"]["labels"][names::MIGRATION_SELECTOR].clone();
    let phase = old["status"]["phase"].as_str().unwrap_or_default();
    let in_flight = !matches!(phase, "Succeeded" | "Failed");
    let label_kept = label(old).is_null() || label(old) == label(new);
    decide(review, admission::migration_update(new["spec"] == old["spec"], label_kept, in_flight))
}

fn patched(review: &Value, patch: &Value) -> Value {
    use base64::Engine as _;
    let patch = base64::engine::general_purpose::STANDARD.encode(patch.to_string());
    answer(review, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

/// Adds what every new object of a kind carries, without touching what is there.
struct Additions<'a> {
    object: &'a Value,
    patch: Vec<Value>,
}

impl<'a> Additions<'a> {
    fn to(object: &'a Value) -> Self {
        Self { object, patch: Vec::new() }
    }

    fn finalizer(&mut self, name: &str) {
        match self.object["metadata"]["finalizers"].as_array() {
            Some(list) if list.iter().any(|item| item == name) => {}
            Some(_) => self.patch.push(json!({"op": "add", "path": "/metadata/finalizers/-", "value": name})),
            None => self.patch.push(json!({"op": "add", "path": "/metadata/finalizers", "value": [name]})),
        }
    }

    fn label(&mut self, name: &str, value: &str) {
        if self.object["metadata"]["labels"].is_object() {
            let path = format!("/metadata/labels/{}", name.replace('~', "~0").replace('/', "~1"));
            self.patch.push(json!({"op": "add", "path": path, "value": value}));
        } else {
            self.patch.push(json!({"op": "add", "path": "/metadata/labels", "value": {name: value}}));
        }
    }
}

pub fn migration_mutate(review: &Value) -> Value {
    let object = &review["request"]["object"];
    let mut additions = Additions::to(object);
    additions.finalizer(names::MIGRATION_FINALIZER);
    // A longer name cannot be a label; the controller finds such a migration without it.
    if let Some(name) = object["spec"]["vmiName"].as_str().filter(|name| !name.is_empty() && name.len() <= 63)
    {
        additions.label(names::MIGRATION_SELECTOR, name);
    }
    patched(review, &json!(additions.patch))
}

/// A new instance starts in `Pending`, held by its finalizer, with the cluster's eviction strategy.
pub fn instance_mutate(review: &Value, default_strategy: &str, now: Timestamp) -> Value {
    let object = &review["request"]["object"];
    let mut additions = Additions::to(object);
    additions.finalizer(names::INSTANCE_FINALIZER);
    if object["spec"]["evictionStrategy"].is_null() {
        let value = json!({"op": "add", "path": "/spec/evictionStrategy", "value": default_strategy});
        additions.patch.push(value);
    }
    if object["status"]["phase"].as_str().unwrap_or_default().is_empty() {
        let entered = json!([{"phase": "Pending", "phaseTransitionTimestamp": seconds(now)}]);
        let status = json!({"phase": "Pending", "phaseTransitionTimestamps": entered});
        additions.patch.push(json!({"op": "add", "path": "/status", "value": status}));
    }
    patched(review, &json!(additions.patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(object: &Value) -> Value {
        json!({"request": {"uid": "r1", "namespace": "d", "object": object, "userInfo": {"username": "admin"}}})
    }

    #[test]
    fn a_machine_that_names_both_ways_to_run_is_refused_with_the_field() {
        let spec = json!({"running": true, "runStrategy": "Always", "template": {}});
        let reply = machine(&review(&json!({"spec": spec})));
        assert_eq!(reply["response"]["allowed"], false);
        assert_eq!(reply["response"]["uid"], "r1");
        assert_eq!(reply["response"]["status"]["code"], 422);
        assert_eq!(reply["response"]["status"]["details"]["causes"][0]["field"], "spec.running");
        let old = machine(&review(&json!({"spec": {"running": true, "template": {}}})));
        assert_eq!(old["response"]["allowed"], true);
        assert!(old["response"]["warnings"][0].as_str().unwrap().contains("deprecated"));
    }

    #[test]
    fn a_new_instance_gets_what_it_lacks_and_keeps_what_it_has() {
        use base64::Engine as _;
        let patch = |object: Value| -> Vec<Value> {
            let reply = instance_mutate(&review(&object), "LiveMigrate", Timestamp::UNIX_EPOCH);
            let text = reply["response"]["patch"].as_str().unwrap();
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
            serde_json::from_slice(&bytes).unwrap()
        };
        let added = patch(json!({"metadata": {}, "spec": {}}));
        assert_eq!(added.len(), 3);
        let entered = json!([{"phase": "Pending", "phaseTransitionTimestamp": "1970-01-01T00:00:00Z"}]);
        assert_eq!(added[2]["value"], json!({"phase": "Pending", "phaseTransitionTimestamps": entered}));
        let full = json!({
            "metadata": {"finalizers": [names::INSTANCE_FINALIZER]},
            "spec": {"evictionStrategy": "None"},
            "status": {"phase": "Pending"},
        });
        assert!(patch(full).is_empty());
    }

    #[test]
    fn the_address_of_a_webhook_in_an_error_does_not_show_its_tag() {
        let tag = "0123456789abcdef".repeat(4);
        let path = guarded(&tag, EVICTION_PATH);
        assert_eq!(split(&path), Some((tag.as_str(), EVICTION_PATH)));
        let error = format!(
            "failed to call webhook: Post \"https://a.b.svc:443{path}?timeout=10s\": refused; {path}"
        );
        let shown = hide(&error);
        assert!(
            !shown.contains(&tag) && shown.contains("/review/…/pod-eviction-validate?timeout=10s"),
            "{shown}"
        );
        assert_eq!(hide("see /review/notes of /review/"), "see /review/notes of /review/");
    }

    #[test]
    fn only_what_names_one_pod_is_an_eviction() {
        let good = json!({"request": {
            "operation": "CREATE", "namespace": "d", "name": "virt-launcher-a", "subResource": "eviction",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": {"kind": "Eviction", "metadata": {"name": "virt-launcher-a"},
                "deleteOptions": {"preconditions": {"uid": "u"}}},
        }});
        assert_eq!(evicted(&good), Ok((Key::new("d", "virt-launcher-a"), Some("u"))));
        for (path, value) in [
            ("/request/operation", json!("DELETE")),
            ("/request/subResource", json!("")),
            ("/request/resource/resource", json!("secrets")),
            ("/request/object/kind", json!("Pod")),
            ("/request/object/metadata/name", json!("other")),
            ("/request/name", json!("a/../b")),
            ("/request/name", json!("a\nb")),
            ("/request/namespace", json!("")),
            ("/request/namespace", json!(["d"])),
        ] {
            let mut wrong = good.clone();
            *wrong.pointer_mut(path).unwrap() = value.clone();
            assert!(evicted(&wrong).is_err(), "{path} {value}");
        }
    }

    #[test]
    fn m42_a_changed_specification_is_refused() {
        let mut request = review(&json!({"spec": {"vmiName": "b"}}));
        request["request"]["oldObject"] = json!({"spec": {"vmiName": "a"}});
        assert_eq!(migration_update(&request)["response"]["allowed"], false);
    }
}
