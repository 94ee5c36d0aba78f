//! Reviews of failover policies: which requests are shown to us, and what is read from them.

use evac_core::failover::{AcceptedProof, FailoverPolicy, PolicyError};
use serde_json::{Value, json};

use super::definition::{GROUP, VERSION};
use super::policy::PolicyObject;
use crate::access::Right;
use crate::kubevirt::{NAMESPACE, review};

pub const PATH: &str = "/failoverpolicy-validate";
pub const CONFIGURATION: &str = "evac-failoverpolicy";

/// The configuration that makes a server ask us.
pub fn configuration() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION},
        "webhooks": [{
            "name": "failoverpolicy.evac.dev",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": review::SERVICE, "path": PATH}},
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "rules": [{
                "apiGroups": [GROUP],
                "apiVersions": [VERSION],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["failoverpolicies"],
                "scope": "Cluster",
            }],
        }],
    })
}

/// What a review is about.
pub struct Asked<'a> {
    /// Nothing that the operator acts on is changed, or the policy is on its way out.
    pub is_idle: bool,
    pub policy: Result<FailoverPolicy, PolicyError>,
    pub user: &'a Value,
}

pub fn asked(review: &Value) -> Asked<'_> {
    let request = &review["request"];
    let object = &request["object"];
    let is_leaving = object["metadata"]["deletionTimestamp"].is_string();
    let same = request["operation"] == "UPDATE" && object["spec"] == request["oldObject"]["spec"];
    let unreadable = || PolicyError::Unreadable { message: "it is not an object".into() };
    let policy = serde_json::from_value::<PolicyObject>(object.clone()).map_err(|_| unreadable());
    Asked {
        is_idle: is_leaving || same,
        policy: policy.and_then(PolicyObject::into_policy),
        user: &request["userInfo"],
    }
}

/// What the operator does for a policy: it cordons, drains and taints nodes, the taint deletes pods, and an agent is told what is in a Secret.
pub fn rights(policy: &FailoverPolicy) -> Vec<Right<'_>> {
    let mut rights = vec![
        Right::to("patch", "nodes"),
        Right::to("create", "pods").sub("eviction"),
        Right::to("delete", "pods"),
    ];
    if let AcceptedProof::Agent(agent) = &policy.proof
        && let Some(secret) = &agent.secret
    {
        rights.push(Right::to("get", "secrets").within(&secret.namespace).named(&secret.name));
    }
    rights
}
