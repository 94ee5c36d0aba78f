//! Asking the cluster whether a user may do something. Whoever has the operator do something must be allowed to do it themselves.

use serde_json::{Value, json};

/// One thing a user must be allowed to do. What is empty is not said: no subresource, every namespace, every name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right<'a> {
    pub verb: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl<'a> Right<'a> {
    /// In all namespaces.
    pub const fn to(verb: &'static str, resource: &'static str) -> Self {
        Self { verb, resource, subresource: "", namespace: "", name: "" }
    }

    #[must_use]
    pub const fn sub(self, subresource: &'static str) -> Self {
        Self { subresource, ..self }
    }

    #[must_use]
    pub const fn named(self, name: &'a str) -> Self {
        Self { name, ..self }
    }

    #[must_use]
    pub const fn within(self, namespace: &'a str) -> Self {
        Self { namespace, ..self }
    }

    /// A SubjectAccessReview about this right. `user` is the `userInfo` of an admission review.
    pub fn review(&self, user: &Value) -> Value {
        let Self { verb, resource, subresource, namespace, name } = self;
        let mut attributes = json!({"verb": verb, "group": "", "resource": resource});
        for (key, text) in [("subresource", *subresource), ("namespace", *namespace), ("name", *name)] {
            if !text.is_empty() {
                attributes[key] = json!(text);
            }
        }
        let mut spec = json!({
            "user": user["username"],
            "groups": user["groups"],
            "uid": user["uid"],
            "resourceAttributes": attributes,
        });
        if user["extra"].is_object() {
            spec["extra"] = user["extra"].clone();
        }
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
    }

    pub fn words(&self) -> String {
        let Self { verb, resource, subresource, namespace, name } = self;
        let slash = if subresource.is_empty() { "" } else { "/" };
        let what = format!("{verb} {resource}{slash}{subresource}");
        if namespace.is_empty() { what } else { format!("{what} {name} in namespace {namespace}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_asked_for_in_full_and_said_in_short() {
        let user = json!({"username": "jane", "groups": ["a"], "extra": {"k": ["v"]}});
        let secret = Right::to("get", "secrets").within("evac").named("bmc");
        let spec = &secret.review(&user)["spec"];
        assert_eq!(
            spec["resourceAttributes"],
            json!({"verb": "get", "group": "", "resource": "secrets", "namespace": "evac", "name": "bmc"})
        );
        assert_eq!((&spec["user"], &spec["extra"]["k"][0]), (&json!("jane"), &json!("v")));
        assert_eq!(secret.words(), "get secrets bmc in namespace evac");
        assert_eq!(Right::to("create", "pods").sub("eviction").words(), "create pods/eviction");
    }
}
