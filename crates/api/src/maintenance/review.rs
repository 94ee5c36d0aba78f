//! Reviews of NodeMaintenance objects: which requests are shown to us, and what is read from them.

use evac_core::maintenance::admission::is_gained;
use evac_core::maintenance::{ALLOW_CONTROL_PLANE, ALLOW_SHUTDOWN, Family, ON_UNCORDON};
use serde_json::{Value, json};

use super::PLURAL;
use crate::access::Right;
use crate::kubevirt::{NAMESPACE, review};

pub const PATH: &str = "/nodemaintenance-validate";

/// The configuration that makes a server ask us.
pub fn configuration() -> Value {
    let groups: Vec<&str> = Family::ALL.into_iter().map(Family::group).collect();
    let versions: Vec<&str> = Family::ALL.into_iter().map(Family::version).collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "evac-nodemaintenance"},
        "webhooks": [{
            "name": "nodemaintenance.evac.dev",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": review::SERVICE, "path": PATH}},
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "rules": [{
                "apiGroups": groups,
                "apiVersions": versions,
                "operations": ["CREATE", "UPDATE"],
                "resources": [PLURAL],
                "scope": "Cluster",
            }],
        }],
    })
}

/// What a review is about.
pub struct Asked<'a> {
    pub is_update: bool,
    pub is_leaving: bool,
    pub name: &'a str,
    pub node: &'a str,
    pub old_node: &'a str,
    pub on_uncordon: Option<&'a str>,
    pub allow_shutdown: Option<&'a str>,
    pub may_touch_control_plane: bool,
    /// Permissions that the change gives and that were not there before.
    pub gained: Vec<&'static str>,
    pub user: &'a Value,
}

pub fn asked(review: &Value) -> Asked<'_> {
    let request = &review["request"];
    let object = &request["object"];
    let annotation = |name: &str| object["metadata"]["annotations"][name].as_str();
    let before = |name: &str| request["oldObject"]["metadata"]["annotations"][name].as_str();
    let permissions = [ALLOW_SHUTDOWN, ALLOW_CONTROL_PLANE].into_iter();
    let gained = permissions.filter(|name| is_gained(before(name), annotation(name))).collect();
    Asked {
        is_update: request["operation"] == "UPDATE",
        is_leaving: object["metadata"]["deletionTimestamp"].is_string(),
        name: object["metadata"]["name"].as_str().unwrap_or_default(),
        node: object["spec"]["nodeName"].as_str().unwrap_or_default(),
        old_node: request["oldObject"]["spec"]["nodeName"].as_str().unwrap_or_default(),
        on_uncordon: annotation(ON_UNCORDON),
        allow_shutdown: annotation(ALLOW_SHUTDOWN),
        may_touch_control_plane: annotation(ALLOW_CONTROL_PLANE) == Some("true"),
        gained,
        user: &request["userInfo"],
    }
}

/// What draining a node takes.
pub fn rights(node: &str) -> [Right<'_>; 2] {
    [Right::to("patch", "nodes").named(node), Right::to("create", "pods").sub("eviction")]
}
