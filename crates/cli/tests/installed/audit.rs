//! What an audit log says about one user.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// One kind of request, as the rules of the cluster name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deed {
    pub verb: String,
    pub group: String,
    /// With its subresource.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub refused: bool,
}

/// The requests of a user that were answered.
pub fn read(log: &str, user: &str) -> BTreeSet<Deed> {
    let mut deeds = BTreeSet::new();
    for line in log.lines() {
        // The last line may be half written.
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        // A watch that goes on has been answered, too.
        if text("/objectRef/resource") == "subjectaccessreviews" && text("/requestObject/spec/user") == user {
            deeds.extend(asked_about(&event));
        }
        let answered = matches!(text("/stage"), "ResponseComplete" | "ResponseStarted");
        if text("/user/username") != user || !answered || event["objectRef"].is_null() {
            continue;
        }
        let resource = match (text("/objectRef/resource"), text("/objectRef/subresource")) {
            (resource, "") => resource.to_owned(),
            (resource, sub) => format!("{resource}/{sub}"),
        };
        // Slashes in a key of a pointer are written as ~1.
        let decision = text("/annotations/authorization.k8s.io~1decision");
        let deed = Deed {
            verb: text("/verb").to_owned(),
            group: text("/objectRef/apiGroup").to_owned(),
            resource,
            namespace: text("/objectRef/namespace").to_owned(),
            name: text("/objectRef/name").to_owned(),
            refused: decision == "forbid" || event["responseStatus"]["code"] == 403 && decision.is_empty(),
        };
        // What is applied and was not there is created: the server asks for that right, too.
        if deed.verb == "patch" && event["responseStatus"]["code"] == 201 {
            deeds.insert(Deed { verb: "create".into(), ..deed.clone() });
        }
        deeds.insert(deed);
    }
    deeds
}

/// How many watches of each collection a user had open at a time, at most: by its path and what was selected of it.
pub fn watches(log: &str, user: &str) -> BTreeMap<String, usize> {
    let (mut open, mut most) = (BTreeMap::<String, BTreeSet<String>>::new(), BTreeMap::new());
    for line in log.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if text("/user/username") != user || text("/verb") != "watch" {
            continue;
        }
        let (path, query) = text("/requestURI").split_once('?').unwrap_or_default();
        let selected: Vec<&str> = query.split('&').filter(|part| part.contains("Selector=")).collect();
        let watched = format!("{path} {}", selected.join(" ")).trim().to_owned();
        let now = open.entry(watched.clone()).or_default();
        match text("/stage") {
            "ResponseStarted" => drop(now.insert(text("/auditID").to_owned())),
            "ResponseComplete" => drop(now.remove(text("/auditID"))),
            _ => continue,
        }
        let most = most.entry(watched).or_default();
        *most = now.len().max(*most);
    }
    most
}

/// What an aggregated server asked about this user before it served a request.
fn asked_about(event: &Value) -> Option<Deed> {
    let attributes = event.pointer("/requestObject/spec/resourceAttributes")?;
    let allowed = event.pointer("/responseObject/status/allowed")?.as_bool()?;
    let text = |name: &str| attributes[name].as_str().unwrap_or_default().to_owned();
    Some(Deed {
        verb: text("verb"),
        group: text("group"),
        resource: format!("{}/{}", text("resource"), text("subresource")),
        namespace: text("namespace"),
        name: text("name"),
        refused: !allowed,
    })
}

/// The deeds that were allowed.
pub struct Used<'a>(Vec<&'a Deed>);

impl<'a> Used<'a> {
    pub fn of(deeds: &'a BTreeSet<Deed>) -> Self {
        Self(deeds.iter().filter(|deed| !deed.refused).collect())
    }

    /// Whether this was done; a namespace and a name count if they are given.
    pub fn has(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> bool {
        self.0.iter().any(|deed| {
            (deed.verb.as_str(), deed.group.as_str(), deed.resource.as_str()) == (verb, group, resource)
                && namespace.is_none_or(|namespace| deed.namespace == namespace)
                && name.is_none_or(|name| deed.name == name)
        })
    }
}

#[test]
fn a_refusal_is_told_from_what_was_done_and_others_do_not_count() {
    let line = |user: &str, stage: &str, verb: &str, decision: &str, code: u16| {
        serde_json::json!({
            "stage": stage, "verb": verb, "user": {"username": user}, "responseStatus": {"code": code},
            "objectRef": {"resource": "pods", "subresource": "eviction", "namespace": "d", "name": "p"},
            "annotations": {"authorization.k8s.io/decision": decision},
        })
        .to_string()
    };
    let log = [
        line("me", "ResponseComplete", "create", "allow", 201),
        line("me", "ResponseComplete", "delete", "forbid", 403),
        line("me", "ResponseStarted", "watch", "allow", 200),
        line("me", "ResponseComplete", "patch", "allow", 201),
        line("you", "ResponseComplete", "update", "allow", 200),
        line("me", "RequestReceived", "get", "", 0),
    ];
    let deeds = read(&log.join("\n"), "me");
    let refused: Vec<&str> = deeds.iter().filter(|deed| deed.refused).map(|deed| &*deed.verb).collect();
    assert_eq!(refused, ["delete"]);
    let used = Used::of(&deeds);
    let has = |verb| used.has(verb, "", "pods/eviction", Some("d"), Some("p"));
    assert!(has("create") && has("watch") && has("patch"));
    assert!(!has("delete") && !has("update") && !has("get"));
    assert!(!used.has("create", "", "pods/eviction", Some("e"), None));
}

#[test]
fn watches_that_are_open_together_are_told_from_those_that_follow_each_other() {
    let line = |id: &str, stage: &str, uri: &str| {
        serde_json::json!({
            "auditID": id, "stage": stage, "verb": "watch", "user": {"username": "me"}, "requestURI": uri,
        })
        .to_string()
    };
    let (pods, nodes) = ("/api/v1/pods?watch=true&labelSelector=a%3Db", "/api/v1/nodes?watch=true");
    let log = [
        line("1", "ResponseStarted", pods),
        line("2", "ResponseStarted", nodes),
        line("2", "ResponseComplete", nodes),
        line("3", "ResponseStarted", nodes),
        line("4", "RequestReceived", pods),
        line("4", "ResponseStarted", pods),
    ];
    let counts = watches(&log.join("\n"), "me");
    let expected = [("/api/v1/nodes", 1), ("/api/v1/pods labelSelector=a%3Db", 2)];
    assert_eq!(counts, expected.map(|(path, count)| (path.to_owned(), count)).into());
    assert!(watches(&log.join("\n"), "you").is_empty());
}
