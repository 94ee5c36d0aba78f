//! Who is calling, and what they may do: bearer tokens, impersonation, RBAC.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::{Value, json};

use crate::identity::{AUTHENTICATED, Identity};
use crate::path::ResourcePath;
use crate::server::Api;
use crate::status::{About, ApiError};

/// The caller: the transport's word, else a bearer token, else nobody.
pub fn identify(api: &Api, headers: &HeaderMap, trusted: Option<&Identity>) -> Result<Identity, ApiError> {
    let given = headers.get(AUTHORIZATION).and_then(|h| h.to_str().ok()).unwrap_or_default();
    match (given.strip_prefix("Bearer "), trusted) {
        (Some(token), _) => {
            api.credentials.holder(token.trim(), api.now()).ok_or_else(ApiError::unauthorized)
        }
        (None, Some(identity)) => Ok(identity.clone()),
        // Other ways to show who one is are not known here, and so count for nothing.
        (None, None) => Ok(Identity::anonymous()),
    }
}

/// Whom the caller acts for, if they may. `asked` is what the request is about, for the refusal.
pub fn impersonated(
    api: &Api,
    headers: &HeaderMap,
    caller: Identity,
    asked: &Attributes<'_>,
) -> Result<Identity, ApiError> {
    let name = headers.get("impersonate-user").and_then(|h| h.to_str().ok()).unwrap_or_default();
    let mut groups: Vec<String> = headers
        .get_all("impersonate-group")
        .iter()
        .filter_map(|h| h.to_str().ok())
        .map(str::to_owned)
        .collect();
    if name.is_empty() {
        if groups.is_empty() {
            return Ok(caller);
        }
        let groups: Vec<String> = groups.iter().map(|g| crate::status::quoted(g)).collect();
        return Err(ApiError::bad_request(format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:\"\", Groups:[]string{{{}}}, \
             Extra:map[string][]string(nil)}} without impersonating a user name",
            groups.join(", ")
        )));
    }
    let ask = |resource: &str, name: &str| {
        let attributes = Attributes::Resource {
            verb: "impersonate",
            group: "",
            resource,
            subresource: "",
            namespace: "",
            name,
        };
        match decide(api, &caller, &attributes) {
            Some(_) => Ok(()),
            // The last way to be allowed is to act for somebody in this one request only.
            None => Err(refusal(&caller, "impersonate-on:user-info:", asked)),
        }
    };
    ask("users", name)?;
    for group in &groups {
        ask("groups", group)?;
    }
    let mut parts = name.strip_prefix("system:serviceaccount:").into_iter().flat_map(|s| s.split(':'));
    if let (true, Some(namespace), Some(account)) = (groups.is_empty(), parts.next(), parts.next()) {
        return Ok(Identity::service_account(namespace, account));
    }
    if !groups.iter().any(|g| g == AUTHENTICATED) {
        groups.push(AUTHENTICATED.into());
    }
    Ok(Identity { name: name.to_owned(), uid: String::new(), groups })
}

/// What somebody wants to do.
#[derive(Debug, Clone, Copy)]
pub enum Attributes<'a> {
    Resource {
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    Path {
        verb: &'a str,
        path: &'a str,
    },
}

/// Refuses what the caller may not do with a resource.
pub fn allow(api: &Api, identity: &Identity, attributes: &Attributes<'_>) -> Result<(), ApiError> {
    if identity.is_master() || decide(api, identity, attributes).is_some() {
        return Ok(());
    }
    Err(refusal(identity, "", attributes))
}

/// Who lists or watches one object by its name asks for that object: a right to this name is enough.
pub fn named<'a>(path: &'a ResourcePath, field_selector: &str) -> Cow<'a, ResourcePath> {
    let exact = |term: &str| {
        let value = term.strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value).to_owned())
    };
    let name = field_selector.split(',').find_map(exact);
    match name.filter(|name| path.name.is_empty() && !name.is_empty() && !name.contains(['/', '%'])) {
        Some(name) => Cow::Owned(ResourcePath { name, ..path.clone() }),
        None => Cow::Borrowed(path),
    }
}

/// What a request about a resource wants.
pub fn attributes<'a>(verb: &'a str, path: &'a ResourcePath) -> Attributes<'a> {
    // A namespace is in its own scope for the verbs that name it.
    let own = path.group.is_empty() && path.resource == "namespaces";
    Attributes::Resource {
        verb,
        group: &path.group,
        resource: &path.resource,
        subresource: &path.subresource,
        namespace: if own { &path.name } else { &path.namespace },
        name: &path.name,
    }
}

/// What somebody is told who may not; `way` stands before the verb.
fn refusal(identity: &Identity, way: &str, attributes: &Attributes<'_>) -> ApiError {
    match *attributes {
        Attributes::Path { verb, path } => ApiError::routing(
            403,
            "Forbidden",
            format!("forbidden: User \"{}\" cannot {way}{verb} path \"{path}\"", identity.name),
        ),
        Attributes::Resource { verb, group, resource, subresource, namespace, name } => {
            let whole = if subresource.is_empty() {
                resource.to_owned()
            } else {
                format!("{resource}/{subresource}")
            };
            let scope = if namespace.is_empty() || (group.is_empty() && resource == "namespaces") {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace \"{namespace}\"")
            };
            let why = format!(
                "User \"{}\" cannot {way}{verb} resource \"{whole}\" in API group \"{group}\" {scope}",
                identity.name
            );
            ApiError::forbidden(About { group, kind: resource, name }, &why)
        }
    }
}

/// Why somebody may do something; `None` when they may not.
pub fn decide(api: &Api, identity: &Identity, attributes: &Attributes<'_>) -> Option<String> {
    if identity.is_master() {
        return Some(String::new());
    }
    for granted in grants(api, identity, namespace_of(attributes)) {
        if granted.rules.iter().any(|rule| rule_allows(rule, attributes)) {
            return Some(granted.why);
        }
    }
    None
}

fn namespace_of<'a>(attributes: &Attributes<'a>) -> &'a str {
    match attributes {
        Attributes::Resource { namespace, .. } => namespace,
        Attributes::Path { .. } => "",
    }
}

/// `SelfSubjectRulesReview`: everything somebody may do in a namespace.
pub fn rules_of(api: &Api, identity: &Identity, namespace: &str) -> Value {
    let mut resources = Vec::new();
    let mut paths = Vec::new();
    if identity.is_master() {
        resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    for rule in grants(api, identity, namespace).into_iter().flat_map(|granted| granted.rules) {
        if rule.get("nonResourceURLs").is_some() {
            paths.push(rule);
        } else {
            resources.push(rule);
        }
    }
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}

struct Granted {
    rules: Vec<Value>,
    why: String,
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// The roles bound to somebody, cluster-wide and in a namespace.
fn grants(api: &Api, identity: &Identity, namespace: &str) -> Vec<Granted> {
    let mut granted = Vec::new();
    let mut collect = |bindings: &str, scope: &str, word: &str| {
        for binding in api.read_all(&format!("{bindings}.{RBAC}"), scope) {
            let value = binding.value();
            let own = value["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            let subjects = value["subjects"].as_array().cloned().unwrap_or_default();
            if !subjects.iter().any(|subject| is_subject(subject, identity, &own)) {
                continue;
            }
            let (kind, name) =
                (value["roleRef"]["kind"].as_str().unwrap_or_default(), value["roleRef"]["name"].as_str());
            let role = match kind {
                "ClusterRole" => api.read(&format!("clusterroles.{RBAC}"), "", name.unwrap_or_default()),
                _ => api.read(&format!("roles.{RBAC}"), &own, name.unwrap_or_default()),
            };
            let rules = role.map(|r| r.value()["rules"].as_array().cloned().unwrap_or_default());
            granted.push(Granted {
                rules: rules.unwrap_or_default(),
                why: format!(
                    "RBAC: allowed by {word} \"{}\" of {kind} \"{}\" to {}",
                    &*binding.meta.name,
                    name.unwrap_or_default(),
                    identity.name
                ),
            });
        }
    };
    collect("clusterrolebindings", "", "ClusterRoleBinding");
    if !namespace.is_empty() {
        collect("rolebindings", namespace, "RoleBinding");
    }
    granted
}

fn is_subject(subject: &Value, identity: &Identity, binding_namespace: &str) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str() {
        Some("User") => identity.name == name,
        Some("Group") => identity.groups.iter().any(|g| g == name),
        Some("ServiceAccount") => {
            let namespace = subject["namespace"].as_str().unwrap_or(binding_namespace);
            identity.name == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

fn rule_allows(rule: &Value, attributes: &Attributes<'_>) -> bool {
    let has = |key: &str, wanted: &str| {
        rule[key].as_array().is_some_and(|list| list.iter().any(|v| v == "*" || v == wanted))
    };
    match attributes {
        Attributes::Resource { verb, group, resource, subresource, name, .. } => {
            let full = if subresource.is_empty() {
                (*resource).to_owned()
            } else {
                format!("{resource}/{subresource}")
            };
            let names = rule["resourceNames"].as_array().filter(|list| !list.is_empty());
            has("verbs", verb)
                && has("apiGroups", group)
                && (has("resources", &full)
                    || (!subresource.is_empty() && has_exact(rule, &format!("*/{subresource}"))))
                && names.is_none_or(|list| list.iter().any(|n| n == name))
        }
        Attributes::Path { verb, path } => {
            has("verbs", verb)
                && rule["nonResourceURLs"].as_array().is_some_and(|list| {
                    list.iter().filter_map(Value::as_str).any(|allowed| match allowed.strip_suffix('*') {
                        Some(prefix) => path.starts_with(prefix),
                        None => allowed == *path,
                    })
                })
        }
    }
}

fn has_exact(rule: &Value, wanted: &str) -> bool {
    rule["resources"].as_array().is_some_and(|list| list.iter().any(|v| v == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks<'a>(verb: &'a str, resource: &'a str, subresource: &'a str, name: &'a str) -> Attributes<'a> {
        Attributes::Resource { verb, group: "", resource, subresource, namespace: "ns", name }
    }

    #[test]
    fn a_rule_for_a_resource_does_not_cover_its_subresources() {
        let rule = json!({"verbs": ["create"], "apiGroups": [""], "resources": ["pods"]});
        assert!(rule_allows(&rule, &asks("create", "pods", "", "")));
        assert!(!rule_allows(&rule, &asks("create", "pods", "eviction", "p")));
    }

    #[test]
    fn resource_names_narrow_a_rule() {
        let rule =
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]});
        assert!(rule_allows(&rule, &asks("get", "secrets", "", "a")));
        assert!(!rule_allows(&rule, &asks("get", "secrets", "", "b")));
    }

    #[test]
    fn a_path_rule_ends_in_a_star() {
        let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz*"]});
        assert!(rule_allows(&rule, &Attributes::Path { verb: "get", path: "/healthz/etcd" }));
        assert!(!rule_allows(&rule, &Attributes::Path { verb: "get", path: "/metrics" }));
    }
}
