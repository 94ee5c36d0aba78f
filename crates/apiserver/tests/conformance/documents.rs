//! Discovery and OpenAPI on both arms.
//!
//! The documents of a real server tell of more than the profile; what both have must be the same, and what
//! only the real one has must be named in [`ABSENT`]. Of OpenAPI everything that clients go by is compared:
//! names, types, required fields, list keys, patch strategies, enumerations, operations and their bodies.
//! Left out are descriptions (help texts), `default` (of Go's zero values) and unions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::arm::{Answer, Arm, Ask};
use super::compare::differences;
use super::run::Outcome;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What a real server has and the profile has not: groups, `group/version resource`, or subresources.
const ABSENT: &[&str] = &[
    "autoscaling",
    "certificates.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "storagemigration.k8s.io",
    "/v1 componentstatuses",
    "/v1 nodes/proxy",
    "/v1 pods/attach",
    "/v1 pods/exec",
    "/v1 pods/log",
    "/v1 pods/portforward",
    "/v1 pods/proxy",
    "/v1 services/proxy",
    "admissionregistration.k8s.io/v1 mutatingadmissionpolicies",
    "admissionregistration.k8s.io/v1 mutatingadmissionpolicies/status",
    "admissionregistration.k8s.io/v1 mutatingadmissionpolicybindings",
    "storage.k8s.io/v1 volumeattributesclasses",
];

/// Places of OpenAPI where the real one says something of no use.
const LEFT_OUT: &[&str] = &[
    // A list type on what is a text in JSON, and none on lists without a type of their own.
    "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIServiceSpec/properties/caBundle/x-kubernetes-list-type",
    "io.k8s.api.authentication.v1.UserInfo/properties/extra/additionalProperties/x-kubernetes-list-type",
    "io.k8s.api.authorization.v1.SubjectAccessReviewSpec/properties/extra/additionalProperties/x-kubernetes-list-type",
    "io.k8s.api.authentication.v1.TokenRequestSpec/properties/attestations/additionalProperties/x-kubernetes-list-type",
    // In the documents of custom resources it lists every group of the server.
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions/x-kubernetes-group-version-kind",
];

/// Two definitions that show what custom resources look like in all these documents.
const DEFINITION: &str = r#"{"metadata":{"name":"machines.documents.example.com"},"spec":{
  "group":"documents.example.com","scope":"Namespaced",
  "names":{"plural":"machines","kind":"Machine","shortNames":["mc"],"categories":["all"]},
  "versions":[
    {"name":"v1beta1","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}},
    {"name":"v1","served":true,"storage":true,
     "subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
     "schema":{"openAPIV3Schema":{"type":"object","required":["spec"],"properties":{
       "spec":{"type":"object","properties":{
         "replicas":{"type":"integer","format":"int32","minimum":0,"default":1},
         "disks":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
                  "items":{"type":"object","required":["name"],"properties":{"name":{"type":"string","maxLength":63},"bus":{"type":"string","enum":["sata","virtio"]}}}},
         "size":{"x-kubernetes-int-or-string":true},
         "free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
         "labels":{"type":"object","additionalProperties":{"type":"string"}}}},
       "status":{"type":"object","properties":{"replicas":{"type":"integer"},"since":{"type":"string","format":"date-time","nullable":true}}}}}}}]}}"#;

/// Compares all documents; one outcome each.
pub async fn run(ours: &Arm, theirs: &Arm) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for arm in [ours, theirs] {
        define(arm).await;
    }
    for path in ["/api", "/apis"] {
        outcomes.push(aggregated(path, ours, theirs).await);
    }
    let versions = versions(ours).await;
    for (group, version) in &versions {
        outcomes.push(resources(group, version, ours, theirs).await);
        outcomes.push(schemas(group, version, ours, theirs).await);
    }
    outcomes.push(index(ours, theirs).await);
    outcomes.push(groups(ours, theirs).await);
    outcomes.push(version_2(ours, theirs).await);
    outcomes
}

async fn get(arm: &Arm, path: &str, accept: &str) -> Answer {
    let headers = vec![("Accept".to_owned(), accept.to_owned())];
    let (method, path) = ("GET".to_owned(), path.to_owned());
    arm.send(&Ask { method, path, headers, body: Bytes::new(), events: None }).await
}

async fn json(arm: &Arm, path: &str) -> Value {
    get(arm, path, "application/json").await.body
}

/// Creates the definition and waits until discovery and OpenAPI know it.
async fn define(arm: &Arm) {
    let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned();
    arm.send(&Ask { method: "POST".into(), path, headers, body: DEFINITION.into(), events: None }).await;
    for _ in 0..200 {
        let known = get(arm, "/openapi/v3/apis/documents.example.com/v1", "application/json").await;
        let found = get(arm, "/apis", AGGREGATED).await.body.to_string().contains("documents.example.com");
        if known.code == 200 && found {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the definition is not served");
}

fn outcome(name: &str, ours: &Value, theirs: &Value) -> Outcome {
    Outcome { title: format!("documents: {name}"), differences: differences(ours, theirs) }
}

/// A list of objects as a map by one of their fields.
fn by<'a>(list: &'a Value, field: &str) -> BTreeMap<&'a str, &'a Value> {
    list.as_array()
        .into_iter()
        .flatten()
        .map(|item| (item[field].as_str().unwrap_or_default(), item))
        .collect()
}

fn is_absent(name: &str) -> bool {
    ABSENT.contains(&name)
}

/// Every group version of the embedded server, the core one with an empty group.
async fn versions(arm: &Arm) -> Vec<(String, String)> {
    let document = get(arm, "/apis", AGGREGATED).await.body;
    let mut all = vec![(String::new(), "v1".to_owned())];
    for group in document["items"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            all.push((text(&group["metadata"]["name"]), text(&version["version"])));
        }
    }
    // Other cases define resources at the same time.
    all.retain(|(group, _)| !group.contains("example") || group == "documents.example.com");
    all
}

/// One aggregated document without what is outside the profile.
async fn aggregated(path: &str, ours: &Arm, theirs: &Arm) -> Outcome {
    let pick = |answer: Answer| {
        let mut body = answer.body;
        let groups = body["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let mut kept = Vec::new();
        for mut group in groups {
            let name = group["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if is_absent(&name) || (name.contains("example") && name != "documents.example.com") {
                continue;
            }
            for version in group["versions"].as_array_mut().into_iter().flatten() {
                let place = format!("{name}/{}", version["version"].as_str().unwrap_or_default());
                for resource in version["resources"].as_array_mut().into_iter().flatten() {
                    let plural = resource["resource"].as_str().unwrap_or_default().to_owned();
                    if let Some(subs) = resource.get_mut("subresources").and_then(Value::as_array_mut) {
                        subs.retain(|s| {
                            let sub = s["subresource"].as_str().unwrap_or_default();
                            !is_absent(&format!("{place} {plural}/{sub}"))
                        });
                    }
                }
                if let Some(resources) = version["resources"].as_array_mut() {
                    resources.retain(|r| {
                        !is_absent(&format!("{place} {}", r["resource"].as_str().unwrap_or_default()))
                    });
                }
            }
            kept.push(group);
        }
        body["items"] = Value::Array(kept);
        json!({"code": answer.code, "headers": answer.headers, "body": body})
    };
    let (a, b) = (get(ours, path, AGGREGATED).await, get(theirs, path, AGGREGATED).await);
    outcome(&format!("{path}, aggregated"), &pick(a), &pick(b))
}

/// The list of resources of a group version.
async fn resources(group: &str, version: &str, ours: &Arm, theirs: &Arm) -> Outcome {
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let pick = |mut body: Value| {
        if let Some(all) = body["resources"].as_array_mut() {
            all.retain(|r| {
                let name = r["name"].as_str().unwrap_or_default();
                !is_absent(&format!("{group}/{version} {name}"))
            });
        }
        body
    };
    let (a, b) = (json(ours, &path).await, json(theirs, &path).await);
    outcome(&path, &pick(a), &pick(b))
}

/// The groups in the order of preference, and each alone.
async fn groups(ours: &Arm, theirs: &Arm) -> Outcome {
    let pick = |mut body: Value| {
        if let Some(all) = body["groups"].as_array_mut() {
            all.retain(|g| {
                let name = g["name"].as_str().unwrap_or_default();
                !is_absent(name) && (!name.contains("example") || name == "documents.example.com")
            });
        }
        body
    };
    let (a, b) = (pick(json(ours, "/apis").await), pick(json(theirs, "/apis").await));
    let names: Vec<String> = by(&a["groups"], "name").keys().map(|n| (*n).to_owned()).collect();
    let (mut all_a, mut all_b) = (vec![a], vec![b]);
    for name in names {
        all_a.push(json(ours, &format!("/apis/{name}")).await);
        all_b.push(json(theirs, &format!("/apis/{name}")).await);
    }
    outcome("groups", &json!(all_a), &json!(all_b))
}

/// The index of OpenAPI: a document for every group version, at an address that carries its mark.
async fn index(ours: &Arm, theirs: &Arm) -> Outcome {
    let (a, b) = (json(ours, "/openapi/v3").await, json(theirs, "/openapi/v3").await);
    let theirs_has: BTreeSet<&String> =
        b["paths"].as_object().map(|m| m.keys().collect()).unwrap_or_default();
    let mut lines = Vec::new();
    for (path, entry) in a["paths"].as_object().into_iter().flatten() {
        let url = entry["serverRelativeURL"].as_str().unwrap_or_default();
        if !path.contains("example") && !theirs_has.contains(path) {
            lines.push(format!("    {path} is in the index of the embedded server alone"));
        }
        let mark = url.strip_prefix(&format!("/openapi/v3/{path}?hash="));
        if mark.is_none_or(|mark| mark.len() != 128) {
            lines.push(format!("    {path}: {url}"));
        }
    }
    Outcome { title: "documents: the index of OpenAPI".to_owned(), differences: lines }
}

/// Version 2: the same definitions, in one document.
async fn version_2(ours: &Arm, theirs: &Arm) -> Outcome {
    let (a, b) = (json(ours, "/openapi/v2").await, json(theirs, "/openapi/v2").await);
    let (a, b) = (compared_schemas(&a["definitions"]), compared_schemas(&b["definitions"]));
    outcome("OpenAPI version 2", &Value::Object(a.clone()), &only(&b, &a))
}

async fn schemas(group: &str, version: &str, ours: &Arm, theirs: &Arm) -> Outcome {
    let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
    let url = format!("/openapi/v3/{path}");
    let (a, b) = (json(ours, &url).await, json(theirs, &url).await);
    let types = |document: &Value| compared_schemas(&document["components"]["schemas"]);
    let (types_a, types_b) = (types(&a), types(&b));
    let (paths_a, paths_b) = (operations(&a["paths"]), operations(&b["paths"]));
    outcome(
        &format!("OpenAPI of {path}"),
        &json!({"schemas": types_a, "paths": paths_a}),
        &json!({"schemas": only(&types_b, &types_a), "paths": only(&paths_b, &paths_a)}),
    )
}

/// The entries of `all` whose names `wanted` has, too.
fn only(all: &Map<String, Value>, wanted: &Map<String, Value>) -> Value {
    all.iter().filter(|(name, _)| wanted.contains_key(*name)).map(|(n, v)| (n.clone(), v.clone())).collect()
}

fn compared_schemas(types: &Value) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, schema) in types.as_object().into_iter().flatten() {
        if name.starts_with("com.example") && !name.starts_with("com.example.documents") {
            continue;
        }
        let mut schema = schema.clone();
        plain(name, &mut schema);
        all.insert(name.clone(), schema);
    }
    all
}

/// Takes away what is not compared; `required` is a set.
fn plain(place: &str, value: &mut Value) {
    let is_schema = !place.ends_with("/properties");
    if let Value::Object(map) = value {
        if is_schema {
            for word in ["description", "default", "x-kubernetes-unions", "x-kubernetes-validations"] {
                map.remove(word);
            }
            if let Some(Value::Array(required)) = map.get_mut("required") {
                required.sort_by_key(ToString::to_string);
            }
            map.retain(|key, _| !LEFT_OUT.contains(&format!("{place}/{key}").as_str()));
        }
        for (key, inner) in map {
            plain(&format!("{place}/{key}"), inner);
        }
    } else if let Value::Array(items) = value {
        for item in items {
            plain(place, item);
        }
    }
}

/// For every path its methods: what they do, to what, with which body and which options of writing.
fn operations(paths: &Value) -> Map<String, Value> {
    let mut all = Map::new();
    for (path, item) in paths.as_object().into_iter().flatten() {
        let mut methods = Map::new();
        for (method, operation) in item.as_object().into_iter().flatten() {
            if method == "parameters" {
                continue;
            }
            let given = |parameters: &Value| -> BTreeSet<String> {
                let names = parameters.as_array().into_iter().flatten().filter_map(|p| p["name"].as_str());
                let writing = ["dryRun", "fieldManager", "fieldValidation", "force", "gracePeriodSeconds"];
                names.filter(|name| writing.contains(name)).map(str::to_owned).collect()
            };
            let mut options = given(&operation["parameters"]);
            options.extend(given(&item["parameters"]));
            methods.insert(
                method.clone(),
                json!({
                    "action": operation["x-kubernetes-action"],
                    "kind": operation["x-kubernetes-group-version-kind"],
                    "tags": operation["tags"],
                    "body": operation["requestBody"]["content"],
                    "answer": operation["responses"]["200"]["content"]["application/json"]
                        .as_object().filter(|_| method != "delete"),
                    "options": options,
                }),
            );
        }
        all.insert(path.clone(), Value::Object(methods));
    }
    all
}
