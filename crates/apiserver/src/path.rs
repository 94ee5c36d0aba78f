//! Which thing a request is about: the path of a Kubernetes API request, taken apart.

use percent_encoding::percent_decode_str;

/// The part of a path behind `/api/v1` or `/apis/GROUP/VERSION`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourcePath {
    pub group: String,
    pub version: String,
    /// `""` when the path names none.
    pub namespace: String,
    pub resource: String,
    /// `""` for the collection.
    pub name: String,
    /// `""` for the object itself; more than one segment stays joined by `/`, except behind a `proxy`.
    pub subresource: String,
    /// What a `proxy` is asked for, without the first slash.
    pub behind: String,
    /// The old `/watch/` prefix was used.
    pub watch: bool,
}

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    Resource(ResourcePath),
    /// `/api` or `/apis`: the list of groups.
    LegacyGroup,
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    Resources {
        group: String,
        version: String,
    },
    OpenApiV2,
    /// `/openapi/v3` (empty) or `/openapi/v3/apis/GROUP/VERSION`.
    OpenApiV3(String),
    Version,
    Health(String),
    Unknown,
}

impl Route {
    pub fn of(path: &str) -> Self {
        // A slash is a slash, escaped or not.
        let decoded = percent_decode_str(path).decode_utf8_lossy();
        let refs: Vec<&str> = decoded.split('/').filter(|part| !part.is_empty()).collect();
        match refs.as_slice() {
            ["api"] => Self::LegacyGroup,
            ["api", version] => Self::Resources { group: String::new(), version: (*version).into() },
            ["api", version, rest @ ..] => Self::resource("", version, rest),
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group((*group).into()),
            ["apis", group, version] => {
                Self::Resources { group: (*group).into(), version: (*version).into() }
            }
            ["apis", group, version, rest @ ..] => Self::resource(group, version, rest),
            ["openapi", "v2"] => Self::OpenApiV2,
            ["openapi", "v3", rest @ ..] => Self::OpenApiV3(rest.join("/")),
            ["version"] => Self::Version,
            [check @ ("healthz" | "livez" | "readyz"), ..] => Self::Health((*check).into()),
            _ => Self::Unknown,
        }
    }

    fn resource(group: &str, version: &str, rest: &[&str]) -> Self {
        let (watch, rest) = match rest {
            ["watch", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let base =
            ResourcePath { group: group.into(), version: version.into(), watch, ..ResourcePath::default() };
        let path = match rest {
            // A namespace's own subresources look like a resource within the namespace.
            ["namespaces", name, sub @ ("status" | "finalize")] if group.is_empty() => ResourcePath {
                resource: "namespaces".into(),
                name: (*name).into(),
                subresource: (*sub).into(),
                ..base
            },
            ["namespaces", namespace, resource, name, "proxy", behind @ ..] => ResourcePath {
                namespace: (*namespace).into(),
                resource: (*resource).into(),
                name: (*name).into(),
                subresource: "proxy".into(),
                behind: behind.join("/"),
                ..base
            },
            ["namespaces", namespace, resource, tail @ ..] => ResourcePath {
                namespace: (*namespace).into(),
                resource: (*resource).into(),
                name: tail.first().copied().unwrap_or_default().into(),
                subresource: tail.get(1..).unwrap_or_default().join("/"),
                ..base
            },
            [resource, tail @ ..] => ResourcePath {
                resource: (*resource).into(),
                name: tail.first().copied().unwrap_or_default().into(),
                subresource: tail.get(1..).unwrap_or_default().join("/"),
                ..base
            },
            [] => return Self::Unknown,
        };
        Self::Resource(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ResourcePath {
        match Route::of(text) {
            Route::Resource(path) => path,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn a_pod_subresource_is_taken_apart() {
        let p = path("/api/v1/namespaces/default/pods/web-0/eviction");
        assert_eq!(
            (p.namespace.as_str(), p.resource.as_str(), p.name.as_str(), p.subresource.as_str()),
            ("default", "pods", "web-0", "eviction")
        );
    }

    #[test]
    fn what_a_pod_is_asked_through_the_server_is_not_part_of_the_subresource() {
        let p = path("/api/v1/namespaces/kubevirt/pods/https:agent-1:8443/proxy/metrics/more");
        assert_eq!(
            (p.name.as_str(), p.subresource.as_str(), p.behind.as_str()),
            ("https:agent-1:8443", "proxy", "metrics/more")
        );
    }

    #[test]
    fn a_namespace_is_an_object_and_a_prefix() {
        let p = path("/api/v1/namespaces/kube-system");
        assert_eq!(
            (p.namespace.as_str(), p.resource.as_str(), p.name.as_str()),
            ("", "namespaces", "kube-system")
        );
        let p = path("/api/v1/namespaces/kube-system/finalize");
        assert_eq!((p.resource.as_str(), p.subresource.as_str()), ("namespaces", "finalize"));
        let p = path("/api/v1/namespaces/kube-system/pods");
        assert_eq!((p.namespace.as_str(), p.resource.as_str(), p.name.as_str()), ("kube-system", "pods", ""));
    }

    #[test]
    fn escaped_names_are_decoded_within_their_segment() {
        assert_eq!(path("/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab").name, "a:b");
    }

    #[test]
    fn group_documents_are_not_resources() {
        assert_eq!(Route::of("/apis/apps"), Route::Group("apps".into()));
        assert_eq!(
            Route::of("/apis/apps/v1/"),
            Route::Resources { group: "apps".into(), version: "v1".into() }
        );
        assert_eq!(Route::of("/nothing"), Route::Unknown);
    }
}
