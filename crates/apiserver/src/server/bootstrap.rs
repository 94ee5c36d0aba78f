//! What every cluster has from the start: system namespaces, priority classes, basic roles.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Api;
use crate::kinds::meta::seconds;

pub fn fill(api: &Arc<Api>) {
    api.webhooks.follow(&api.store);
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        put(api, "", "v1", "namespaces", json!({"metadata": {"name": name}}));
    }
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]
    {
        put(
            api,
            "scheduling.k8s.io",
            "v1",
            "priorityclasses",
            json!({
                "metadata": {"name": name},
                "value": value,
                "description": format!("Used for system critical pods; the higher of the two is {}.",
                    "system-node-critical"),
            }),
        );
    }
    roles(api);
    put(
        api,
        "",
        "v1",
        "services",
        json!({
            "metadata": {"name": "kubernetes", "namespace": "default",
                         "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"],
                     "ipFamilyPolicy": "SingleStack",
                     "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
                     "sessionAffinity": "None", "type": "ClusterIP"},
        }),
    );
}

fn roles(api: &Arc<Api>) {
    let label = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    let role = |name: &str, rules: Value| {
        put(
            api,
            "rbac.authorization.k8s.io",
            "v1",
            "clusterroles",
            json!({
                "metadata": {"name": name, "labels": label}, "rules": rules,
            }),
        );
    };
    let bind = |name: &str, groups: &[&str]| {
        let subjects: Vec<Value> = groups
            .iter()
            .map(|group| json!({"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"}))
            .collect();
        put(
            api,
            "rbac.authorization.k8s.io",
            "v1",
            "clusterrolebindings",
            json!({
                "metadata": {"name": name, "labels": label},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": subjects,
            }),
        );
    };
    role(
        "cluster-admin",
        json!([
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]),
    );
    bind("cluster-admin", &["system:masters"]);
    role(
        "system:discovery",
        json!([{"verbs": ["get"], "nonResourceURLs": [
            "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz",
            "/version", "/version/",
        ]}]),
    );
    bind("system:discovery", &["system:authenticated"]);
    role(
        "system:public-info-viewer",
        json!([{"verbs": ["get"], "nonResourceURLs": [
            "/healthz", "/livez", "/readyz", "/version", "/version/",
        ]}]),
    );
    bind("system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]);
    role(
        "system:basic-user",
        json!([
            {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
             "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
            {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
        ]),
    );
    bind("system:basic-user", &["system:authenticated"]);
}

/// Writes an object the way a client's create would end: defaulted, with system fields.
fn put(api: &Arc<Api>, group: &str, version: &str, plural: &str, mut object: Value) {
    let kinds = api.kinds();
    let Some(kind) = kinds.by_plural(group, version, plural) else { return };
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
    object["metadata"]["uid"] = json!(api.ids.uid());
    object["metadata"]["creationTimestamp"] = json!(seconds(api.now()));
    kind.default(&mut object);
    kind.prepare_create(&mut object, api.now());
    crate::schema::canonical::complete(kind.schema.get(), &mut object);
    // The store is empty, so nothing can be in the way.
    let _ = api.store_as_is(kind, object);
}
