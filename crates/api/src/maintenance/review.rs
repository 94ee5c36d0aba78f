//! Reviews of NodeMaintenance objects: which requests are shown to us, and what is read from them.

use evac_core::maintenance::admission::is_gained;
use evac_core::maintenance::vouched::{self, CONFIGURATION};
use evac_core::maintenance::{ALLOW_CONTROL_PLANE, ALLOW_SHUTDOWN, Family, ON_UNCORDON};
use serde::Deserialize;
use serde_json::{Value, json};

use super::PLURAL;
use crate::access::Right;
use crate::kubevirt::{NAMESPACE, review};
use crate::wire::Meta;

pub const PATH: &str = "/nodemaintenance-validate";

/// The configuration that makes a server ask us.
pub fn configuration() -> Value {
    let groups: Vec<&str> = Family::ALL.into_iter().map(Family::group).collect();
    let versions: Vec<&str> = Family::ALL.into_iter().map(Family::version).collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION},
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

/// The configuration as the server has it, which others may have changed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Written {
    pub metadata: Meta,
    /// Read leniently: what is not understood is no reason to believe anybody.
    pub webhooks: Value,
}

impl From<Written> for vouched::Configuration {
    fn from(written: Written) -> Self {
        let hooks = written.webhooks.as_array().into_iter().flatten().map(hook).collect();
        Self { created: written.metadata.creation_timestamp, hooks }
    }
}

fn hook(hook: &Value) -> vouched::Hook {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(|inner| inner.as_array().is_some_and(Vec::is_empty)),
        _ => false,
    };
    vouched::Hook {
        fails_closed: hook["failurePolicy"] == "Fail",
        // Namespaces do not matter to a kind that has none.
        is_partial: !is_empty(&hook["objectSelector"]) || !is_empty(&hook["matchConditions"]),
        rules: hook["rules"].as_array().into_iter().flatten().map(rule).collect(),
    }
}

fn rule(rule: &Value) -> vouched::Rule {
    let words = |name: &str| {
        let list = rule[name].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    vouched::Rule {
        groups: words("apiGroups"),
        versions: words("apiVersions"),
        operations: words("operations"),
        resources: words("resources"),
        scope: rule["scope"].as_str().unwrap_or_default().to_owned(),
    }
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

#[cfg(test)]
mod tests {
    use evac_core::maintenance::vouched::{Reviewing, granted};

    use super::*;
    use crate::maintenance::Object;

    #[test]
    fn our_own_configuration_vouches_for_both_kinds_and_one_that_was_loosened_does_not() {
        let mut configuration = configuration();
        configuration["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        let object = json!({
            "metadata": {
                "name": "m", "creationTimestamp": "2026-01-01T00:00:05Z", "annotations": {ALLOW_SHUTDOWN: "true"},
            },
            "spec": {"nodeName": "n"},
        });
        let counts = |configuration: &Value| {
            let written: Written = serde_json::from_value(configuration.clone()).unwrap();
            let reviewing = Reviewing::By(written.into());
            Family::ALL.map(|family| {
                let object: Object = serde_json::from_value(object.clone()).unwrap();
                granted(&object.of(family), &reviewing).shut_down
            })
        };
        assert_eq!(counts(&configuration), [true, true]);
        // As a server fills it in.
        configuration["webhooks"][0]["objectSelector"] = json!({});
        configuration["webhooks"][0]["namespaceSelector"] = json!({});
        assert_eq!(counts(&configuration), [true, true]);
        let changes = [
            ("failurePolicy", json!("Ignore")),
            ("rules", json!([])),
            ("objectSelector", json!({"matchLabels": {"a": "b"}})),
            ("matchConditions", json!([{"name": "never", "expression": "false"}])),
        ];
        for (field, value) in changes {
            let mut loose = configuration.clone();
            loose["webhooks"][0][field] = value;
            assert_eq!(counts(&loose), [false, false], "{field}");
        }
        configuration["webhooks"] = json!("none");
        assert_eq!(counts(&configuration), [false, false]);
    }
}
