//! Actions become requests.

use evac_core::action::{Action, Asker, Event, LeaseOf, Part, Tree};
use evac_core::cluster::subject::{Kind, ObjectRef};
use evac_core::drain::claim;
use evac_core::drain::give_back::Undo;
use evac_core::drain::ownership::{ANNOTATION, DrainMark, lease_key};
use evac_core::drain::record::{self, Record};
use evac_core::machines::names;
use evac_core::{Key, Lease, Taint, Uid};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::kubevirt::{self, request};

pub const FIELD_MANAGER: &str = "evac";
/// Says on a drain's lease which node it is about.
pub(crate) const LEASE_ANNOTATION: &str = "evac.dev/node";
/// On the lease of a drain: when somebody asked whether it is still at work, and the last question that it answered.
pub(crate) const ASKED_ANNOTATION: &str = "evac.dev/asked";
pub(crate) const ANSWERED_ANNOTATION: &str = "evac.dev/answered";
/// Marks the migrations of drains, so that they can be found; whose they are says the annotation of the same name.
const DRAIN_LABEL: &str = "migration";
/// Where the node agents of KubeVirt serve their metrics.
const AGENT_PORT: u16 = 8443;
/// Where the leases of drains are, among those of kubelets, and what tells them apart.
pub const CLAIMS: (&str, &str) = (
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
    "labelSelector=app.kubernetes.io/managed-by%3Devac",
);
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// A request without the server's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub method: &'static str,
    pub path: String,
    pub content_type: Option<&'static str>,
    pub body: Vec<u8>,
}

impl Call {
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: "GET", path: path.into(), content_type: None, body: Vec::new() }
    }

    fn with_json(method: &'static str, path: String, content_type: &'static str, body: &Value) -> Self {
        Self { method, path, content_type: Some(content_type), body: body.to_string().into_bytes() }
    }
}

/// What means itself in every part of an address.
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Escapes a name for the path or a value for the query of an address.
pub fn escape(value: &str) -> String {
    utf8_percent_encode(value, &UNRESERVED).to_string()
}

/// The query for the one object of this name.
pub fn named(name: &str) -> String {
    format!("fieldSelector={}", escape(&format!("metadata.name={name}")))
}

/// The query for the pods on a node.
pub fn on_node(node: &str) -> String {
    format!("fieldSelector={}", escape(&format!("spec.nodeName={node}")))
}

/// The query for the objects that a label selector matches.
pub fn labelled(selector: &str) -> String {
    format!("labelSelector={}", escape(selector))
}

pub fn node_path(name: &str) -> String {
    request::object_path(Kind::Node, &Key::new("", name))
}

pub fn pod_path(pod: &Key) -> String {
    request::object_path(Kind::Pod, pod)
}

/// The metrics of a node agent of KubeVirt, through the API server.
pub fn agent_metrics_path(pod: &Key) -> String {
    let (namespace, name) = (escape(&pod.namespace), escape(&pod.name));
    format!("/api/v1/namespaces/{namespace}/pods/https:{name}:{AGENT_PORT}/proxy/metrics")
}

pub fn pods_on_node_path(node: &str) -> String {
    format!("/api/v1/pods?{}", on_node(node))
}

pub fn daemon_set_path(key: &Key) -> String {
    format!("/apis/apps/v1/namespaces/{}/daemonsets/{}", escape(&key.namespace), escape(&key.name))
}

pub fn lease_path(key: &Key) -> String {
    request::object_path(Kind::Lease, key)
}

/// The request of an action that several roles ask for. What only one role asks for is made where it is performed.
pub fn call_for<O>(action: &Action<O>) -> Option<Call> {
    Some(match action {
        Action::Cordon { node, uid, resource_version, mark, taints, dry_run } => {
            cordon((node, uid, resource_version), mark, taints.as_deref(), *dry_run)
        }
        Action::Evict { object, grace_seconds, dry_run } => evict(object, *grace_seconds, *dry_run),
        Action::Delete { object, grace_seconds, dry_run } => delete(object, *grace_seconds, *dry_run),
        Action::Patch { object, version, part, fields } => patch(object, version, *part, fields),
        Action::Migrate { instance, name, node, asker, dry_run, .. } => {
            migrate(&instance.key, name, node, asker, *dry_run)
        }
        Action::Hold { lease, node, uid, holder, at, seconds, answered, over, record } => {
            let (marks, mut notes) = match lease {
                LeaseOf::Drain => (drain_marks(node), json!({ANSWERED_ANNOTATION: answered.map(micros)})),
                LeaseOf::Remediation => (json!({}), json!({})),
            };
            if let Some(record) = record {
                notes[record::ANNOTATION] = noted(record);
            }
            let claim = LeaseClaim { key: key_of(*lease, node), holder, seconds: *seconds, marks, notes };
            write_lease(&claim, (node, uid), *at, over.as_deref())
        }
        Action::Release { node, resource_version, keep: true, .. } if !resource_version.is_empty() => {
            vacate(node, resource_version)
        }
        Action::Release { lease, node, resource_version, .. } => {
            release(&key_of(*lease, node), Some(resource_version))
        }
        Action::Own(_) => return None,
    })
}

/// Where a lease about a node is.
pub fn key_of(lease: LeaseOf, node: &str) -> Key {
    match lease {
        LeaseOf::Drain => claim::key(node),
        LeaseOf::Remediation => lease_key(node),
    }
}

/// By what the lease of a drain is found, and which node it is about.
fn drain_marks(node: &str) -> Value {
    json!({"labels": {"app.kubernetes.io/managed-by": "evac"}, "annotations": {LEASE_ANNOTATION: node}})
}

fn query(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut path = path.to_owned();
    for (position, (name, value)) in parameters.iter().enumerate() {
        path.push(if position == 0 { '?' } else { '&' });
        path.push_str(name);
        path.push('=');
        path.push_str(&escape(value));
    }
    path
}

fn patch_node(node: &str, body: &Value, dry_run: bool) -> Call {
    let mut parameters = vec![("fieldManager", FIELD_MANAGER)];
    if dry_run {
        parameters.push(("dryRun", "All"));
    }
    Call::with_json("PATCH", query(&node_path(node), &parameters), MERGE_PATCH, body)
}

/// Cordon, owner and pre-image in one request that fails if the node changed since we looked.
fn cordon(
    (node, uid, resource_version): (&str, &Uid, &str),
    mark: &DrainMark,
    taints: Option<&[Taint]>,
    dry_run: bool,
) -> Call {
    let text = serde_json::to_string(mark).unwrap_or_default();
    let mut body = json!({
        "metadata": {"uid": uid, "resourceVersion": resource_version, "annotations": {ANNOTATION: text}},
        "spec": {"unschedulable": true},
    });
    if !mark.added_labels.is_empty() {
        body["metadata"]["labels"] = json!(mark.added_labels);
    }
    if let Some(taints) = taints {
        body["spec"]["taints"] = json!(taints);
    }
    patch_node(node, &body, dry_run)
}

/// A cordon or uncordon without a mark, as `kubectl cordon` makes it.
pub fn set_schedulable(node: &str, schedulable: bool, dry_run: bool) -> Call {
    // Null removes the field, which is how a node looks that was never cordoned.
    let value = if schedulable { Value::Null } else { Value::Bool(true) };
    patch_node(node, &json!({"spec": {"unschedulable": value}}), dry_run)
}

/// How a change of taints is recorded and checked.
#[derive(Debug, Clone, Copy)]
pub struct TaintWrite<'a> {
    pub manager: &'a str,
    /// What the server does about fields it does not know: `Strict`, `Warn` or `Ignore`.
    pub validation: &'a str,
    pub dry_run: bool,
}

pub fn set_taints(node: &str, resource_version: &str, taints: &[Taint], write: &TaintWrite<'_>) -> Call {
    let taints = if taints.is_empty() { Value::Null } else { json!(taints) };
    let body = json!({"metadata": {"resourceVersion": resource_version}, "spec": {"taints": taints}});
    let mut parameters = vec![("fieldManager", write.manager), ("fieldValidation", write.validation)];
    if write.dry_run {
        parameters.push(("dryRun", "All"));
    }
    Call::with_json("PATCH", query(&node_path(node), &parameters), MERGE_PATCH, &body)
}

/// Takes back what a drain did to a node, and only if the node is still as it was read.
pub fn undo(node: &str, resource_version: &str, undo: &Undo, dry_run: bool) -> Call {
    let mut metadata = json!({"resourceVersion": resource_version});
    if undo.remove_mark {
        metadata["annotations"] = json!({ANNOTATION: null});
    }
    for label in &undo.labels {
        metadata["labels"][label] = Value::Null;
    }
    let mut body = json!({"metadata": metadata});
    if let Some(unschedulable) = undo.unschedulable {
        body["spec"]["unschedulable"] = if unschedulable { Value::Bool(true) } else { Value::Null };
    }
    if let Some(taints) = &undo.taints {
        body["spec"]["taints"] = if taints.is_empty() { Value::Null } else { json!(taints) };
    }
    patch_node(node, &body, dry_run)
}

/// Asks on its lease whether the drain of a node is still at work.
pub fn ask(node: &str, at: Timestamp) -> Call {
    let body = json!({"metadata": {"annotations": {ASKED_ANNOTATION: micros(at)}}});
    let path = query(&lease_path(&claim::key(node)), &[("fieldManager", FIELD_MANAGER)]);
    Call::with_json("PATCH", path, MERGE_PATCH, &body)
}

/// The form in which leases have their times.
fn micros(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// A lease that somebody wants to hold about a node.
struct LeaseClaim<'a> {
    key: Key,
    holder: &'a str,
    seconds: u64,
    /// Labels and annotations of a new one.
    marks: Value,
    /// Annotations that are set with each write; null removes one.
    notes: Value,
}

/// Creates a lease about a node, renews it, or takes over the one that was last seen; fails if that changed since.
fn write_lease(
    claim: &LeaseClaim<'_>,
    (node, uid): (&str, &Uid),
    at: Timestamp,
    over: Option<&Lease>,
) -> Call {
    let LeaseClaim { key, holder, seconds, marks, notes } = claim;
    let now = micros(at);
    let holder_or_none = Some(*holder).filter(|holder| !holder.is_empty());
    let mut spec =
        json!({"holderIdentity": holder_or_none, "leaseDurationSeconds": seconds, "renewTime": now});
    let manager = [("fieldManager", FIELD_MANAGER)];
    if let Some(seen) = over {
        if seen.holder != *holder {
            spec["acquireTime"] = json!(now);
            spec["leaseTransitions"] = json!(seen.transitions + 1);
        }
        let metadata = json!({"resourceVersion": seen.resource_version, "annotations": notes});
        let body = json!({"metadata": metadata, "spec": spec});
        return Call::with_json("PATCH", query(&lease_path(key), &manager), MERGE_PATCH, &body);
    }
    spec["acquireTime"] = json!(now);
    spec["leaseTransitions"] = json!(0);
    let mut metadata = marks.clone();
    for (name, value) in notes.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        metadata["annotations"][name] = value.clone();
    }
    metadata["name"] = json!(key.name);
    metadata["namespace"] = json!(key.namespace);
    // A node that is removed takes the lease with it.
    metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]);
    let body =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
    let path = request::in_namespace(Kind::Lease, &key.namespace);
    Call::with_json("POST", query(&path, &manager), "application/json", &body)
}

/// Removes a lease; with a version only if it is still that one.
pub fn release(lease: &Key, resource_version: Option<&str>) -> Call {
    let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    if let Some(version) = resource_version.filter(|version| !version.is_empty()) {
        body["preconditions"] = json!({"resourceVersion": version});
    }
    Call::with_json("DELETE", lease_path(lease), "application/json", &body)
}

/// The text of a record in an annotation.
fn noted(record: &Record) -> Value {
    json!(serde_json::to_string(record).unwrap_or_default())
}

/// Leaves the lease without a holder, for its record: it is needed until the mark is taken off the node.
fn vacate(node: &str, resource_version: &str) -> Call {
    let annotations = json!({ANSWERED_ANNOTATION: null, ASKED_ANNOTATION: null});
    let body = json!({
        "metadata": {"resourceVersion": resource_version, "annotations": annotations},
        "spec": {"holderIdentity": null},
    });
    let path = query(&lease_path(&claim::key(node)), &[("fieldManager", FIELD_MANAGER)]);
    Call::with_json("PATCH", path, MERGE_PATCH, &body)
}

/// Notes on the lease of a node's drain what is about to be done to the node, and leaves the holder as it is.
pub fn note(node: (&str, &Uid), record: &Record, at: Timestamp, over: Option<&Lease>) -> Call {
    let notes = json!({record::ANNOTATION: noted(record)});
    if let Some(seen) = over {
        let body = json!({"metadata": {"resourceVersion": seen.resource_version, "annotations": notes}});
        let path = query(&lease_path(&seen.key), &[("fieldManager", FIELD_MANAGER)]);
        return Call::with_json("PATCH", path, MERGE_PATCH, &body);
    }
    let claim =
        LeaseClaim { key: claim::key(node.0), holder: "", seconds: 1, marks: drain_marks(node.0), notes };
    write_lease(&claim, node, at, None)
}

/// An event with its time by the calendar. The same words in the same second are one event; those about what is in no namespace are kept in `default`.
pub fn event(event: &Event, now: Timestamp) -> Call {
    let Event { about: ObjectRef { kind, key, uid }, warning, reason, message, .. } = event;
    let at = evac_core::machines::condition::seconds(now);
    let digest = names::digest(&[&uid.text(), reason, message, &at]);
    let mut involved = json!({
        "apiVersion": request::api_version(*kind),
        "kind": request::kind_name(*kind),
        "name": key.name,
        "uid": uid,
    });
    let mut namespace = "default";
    if !key.namespace.is_empty() {
        namespace = &key.namespace;
        involved["namespace"] = json!(namespace);
    }
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{}.{digest:016x}", key.name), "namespace": namespace},
        "involvedObject": involved,
        "type": if *warning { "Warning" } else { "Normal" },
        "reason": reason,
        "message": message,
        "source": {"component": "evac"},
        "reportingComponent": "evac",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    });
    request::create(&format!("/api/v1/namespaces/{}/events", escape(namespace)), &body)
}

fn delete_options(uid: &Uid, grace_seconds: Option<i64>, dry_run: bool) -> Value {
    let mut options = json!({"preconditions": {"uid": uid}});
    if let Some(grace) = grace_seconds {
        options["gracePeriodSeconds"] = json!(grace);
    }
    if dry_run {
        options["dryRun"] = json!(["All"]);
    }
    options
}

fn evict(object: &ObjectRef, grace_seconds: Option<i64>, dry_run: bool) -> Call {
    let ObjectRef { kind, key, uid } = object;
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "deleteOptions": delete_options(uid, grace_seconds, dry_run),
    });
    let path = format!("{}/eviction", request::object_path(*kind, key));
    let parameters: &[_] = if dry_run { &[("dryRun", "All")] } else { &[] };
    Call::with_json("POST", query(&path, parameters), "application/json", &body)
}

/// Deletes exactly this incarnation.
pub fn delete(object: &ObjectRef, grace_seconds: Option<i64>, dry_run: bool) -> Call {
    let mut body = delete_options(&object.uid, grace_seconds, dry_run);
    body["apiVersion"] = json!("v1");
    body["kind"] = json!("DeleteOptions");
    Call::with_json("DELETE", request::object_path(object.kind, &object.key), "application/json", &body)
}

fn patch(object: &ObjectRef, version: &str, part: Part, fields: &Tree) -> Call {
    let mut body = serde_json::to_value(fields).unwrap_or_default();
    body["metadata"]["uid"] = json!(object.uid);
    body["metadata"]["resourceVersion"] = json!(version);
    let status = if part == Part::Status { "/status" } else { "" };
    let path = format!("{}{status}", request::object_path(object.kind, &object.key));
    let content_type = if object.kind == Kind::Pod { STRATEGIC_MERGE_PATCH } else { MERGE_PATCH };
    Call::with_json("PATCH", query(&path, &[("fieldManager", FIELD_MANAGER)]), content_type, &body)
}

/// A migration that says which node it is to empty, and for whom.
fn migrate(instance: &Key, name: &str, node: &str, asker: &Asker, dry_run: bool) -> Call {
    let mut labels = json!({});
    // A longer name cannot be the value of a label; the controller does without it then.
    if instance.name.len() <= 63 {
        labels[names::MIGRATION_SELECTOR] = json!(instance.name);
    }
    let mut annotations = json!({names::EVACUATION_MIGRATION: node});
    let mut spec = json!({"vmiName": instance.name});
    match asker {
        Asker::Drain { owner, .. } => {
            labels[names::DRAIN] = json!(DRAIN_LABEL);
            annotations[names::DRAIN] = json!(owner);
        }
        Asker::Evacuation(Some(priority)) => spec["priority"] = json!(priority),
        Asker::Evacuation(None) => {}
    }
    let body = json!({
        "apiVersion": kubevirt::API_VERSION,
        "kind": request::kind_name(Kind::Migration),
        "metadata": {
            "name": name,
            "namespace": instance.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    });
    let mut parameters = vec![("fieldManager", FIELD_MANAGER)];
    if dry_run {
        parameters.push(("dryRun", "All"));
    }
    let path = request::in_namespace(Kind::Migration, &instance.namespace);
    Call::with_json("POST", query(&path, &parameters), "application/json", &body)
}

/// The pods of an instance.
pub fn launchers_path(namespace: &str, instance: &Uid) -> String {
    let selector = format!("{}={instance}", names::CREATED_BY);
    format!("{}?{}", request::in_namespace(Kind::Pod, namespace), labelled(&selector))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(call: &Call) -> Value {
        serde_json::from_slice(&call.body).unwrap()
    }

    #[test]
    fn a048_an_eviction_names_the_incarnation_and_the_grace_period() {
        let action = Action::<()>::Evict {
            object: ObjectRef::new(Kind::Pod, Key::new("shop", "web-1"), Uid::from("u1")),
            grace_seconds: Some(10),
            dry_run: false,
        };
        let call = call_for(&action).unwrap();
        assert_eq!(
            (call.method, call.path.as_str()),
            ("POST", "/api/v1/namespaces/shop/pods/web-1/eviction")
        );
        let body = body(&call);
        assert_eq!(body["kind"], "Eviction");
        assert_eq!(body["apiVersion"], "policy/v1");
        assert_eq!(body["deleteOptions"], json!({"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 10}));
    }

    #[test]
    fn without_a_grace_period_the_pods_own_applies() {
        let action = Action::<()>::Delete {
            object: ObjectRef::new(Kind::Pod, Key::new("a", "b"), Uid::from("u")),
            grace_seconds: None,
            dry_run: false,
        };
        assert!(body(&call_for(&action).unwrap()).get("gracePeriodSeconds").is_none());
    }

    #[test]
    fn a_trial_is_marked_in_address_and_body() {
        let action = Action::<()>::Evict {
            object: ObjectRef::new(Kind::Pod, Key::new("a", "b"), Uid::from("u")),
            grace_seconds: None,
            dry_run: true,
        };
        let call = call_for(&action).unwrap();
        assert!(call.path.ends_with("?dryRun=All"));
        assert_eq!(body(&call)["deleteOptions"]["dryRun"], json!(["All"]));
    }

    #[test]
    fn a_patch_names_the_incarnation_and_the_version_it_was_decided_on() {
        let mut fields = Tree::at(&["status", "phase"], Tree::text("Pending"));
        fields.put(&["status", "gone"], Tree::null());
        let object = ObjectRef::new(Kind::Migration, Key::new("d", "m"), Uid::from("u"));
        let action = Action::<()>::Patch { object, version: "7".into(), part: Part::Status, fields };
        let call = call_for(&action).unwrap();
        assert_eq!(
            call.path,
            "/apis/kubevirt.io/v1/namespaces/d/virtualmachineinstancemigrations/m/status?fieldManager=evac"
        );
        assert_eq!(
            body(&call),
            json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "status": {"phase": "Pending", "gone": null}})
        );
    }

    #[test]
    fn a_migration_says_who_asks_and_carries_no_label_that_would_be_too_long() {
        let asked = |name: &str, asker| {
            let instance = ObjectRef::new(Kind::Instance, Key::new("d", name), Uid::from("u"));
            let (name, node) = ("m".to_owned(), "n".to_owned());
            body(&call_for(&Action::<()>::Migrate { instance, name, node, asker, dry_run: false }).unwrap())
        };
        let evacuation = asked("a", Asker::Evacuation(Some("system-critical")));
        assert_eq!(evacuation["spec"], json!({"vmiName": "a", "priority": "system-critical"}));
        assert_eq!(evacuation["metadata"]["labels"], json!({names::MIGRATION_SELECTOR: "a"}));
        let pod = Uid::from("p");
        let drain = asked(&"a".repeat(64), Asker::Drain { owner: "ann".into(), pod });
        assert_eq!(drain["metadata"]["labels"], json!({names::DRAIN: DRAIN_LABEL}));
        assert_eq!(
            drain["metadata"]["annotations"],
            json!({names::EVACUATION_MIGRATION: "n", names::DRAIN: "ann"})
        );
        assert!(drain["spec"].get("priority").is_none());
    }

    #[test]
    fn selectors_are_escaped_in_addresses() {
        assert_eq!(escape("a-b_c.d~e/f+g h%ä"), "a-b_c.d~e%2Ff%2Bg%20h%25%C3%A4");
        assert_eq!(labelled("a in (b,c)"), "labelSelector=a%20in%20%28b%2Cc%29");
        assert_eq!(
            (named("n"), on_node("n")),
            ("fieldSelector=metadata.name%3Dn".into(), "fieldSelector=spec.nodeName%3Dn".into())
        );
        assert_eq!(pods_on_node_path("n1"), "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1");
    }

    #[test]
    fn undoing_everything_leaves_no_field_behind() {
        let all = Undo {
            unschedulable: Some(false),
            taints: Some(Vec::new()),
            labels: Vec::new(),
            remove_mark: true,
            left: Vec::new(),
        };
        let body = body(&undo("n", "7", &all, false));
        assert_eq!(body["spec"], json!({"unschedulable": null, "taints": null}));
        assert_eq!(body["metadata"]["annotations"], json!({"evac.dev/drain": null}));
        assert_eq!(body["metadata"]["resourceVersion"], "7");
    }
}
