//! Paths and operations: which requests each resource answers, with their parameters.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::schemas::{DELETE_OPTIONS, Dialect, PATCH, STATUS, body_name, type_name};
use crate::kinds::{
    CREATE, DELETE, DELETE_COLLECTION, GET, Kind, LIST, PATCH as PATCH_VERB, Subresource, UPDATE,
};

const PATCH_TYPES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// Adds all paths of a kind.
pub(super) fn add(kind: &Kind, dialect: Dialect, paths: &mut Map<String, Value>) {
    let root = if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    };
    let base = if kind.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        format!("{root}/{}", kind.plural)
    };
    let scope = |named: bool| {
        let mut parameters = Vec::new();
        if named {
            parameters.push(path_parameter("name", dialect));
        }
        if kind.namespaced {
            parameters.push(path_parameter("namespace", dialect));
        }
        parameters.push(query("pretty", "string", dialect));
        parameters
    };
    let own = Target { group: &kind.group, version: &kind.version, kind: &kind.kind, body: type_name(kind) };
    let make = Maker { kind, dialect };
    let mut collection = Map::new();
    if kind.allows(LIST) {
        collection.insert("get".into(), make.list(&own));
    }
    if kind.allows(CREATE) {
        collection.insert("post".into(), make.write("post", &own));
    }
    if kind.allows(DELETE_COLLECTION) {
        collection.insert("delete".into(), make.delete("deletecollection", &own));
    }
    collection.insert("parameters".into(), json!(scope(false)));
    paths.insert(base.clone(), Value::Object(collection));
    if kind.namespaced && kind.allows(LIST) {
        let everywhere = json!({"get": make.list(&own), "parameters": [query("pretty", "string", dialect)]});
        paths.insert(format!("{root}/{}", kind.plural), everywhere);
    }
    let mut item = Map::new();
    if kind.allows(GET) {
        item.insert("get".into(), make.read(&own));
    }
    if kind.allows(UPDATE) {
        item.insert("put".into(), make.write("put", &own));
    }
    if kind.allows(DELETE) {
        item.insert("delete".into(), make.delete("delete", &own));
    }
    if kind.allows(PATCH_VERB) {
        item.insert("patch".into(), make.write("patch", &own));
    }
    if !item.is_empty() {
        item.insert("parameters".into(), json!(scope(true)));
        paths.insert(format!("{base}/{{name}}"), Value::Object(item));
    }
    for sub in &kind.subresources {
        let mut item = make.subresource(sub, &own);
        item.insert("parameters".into(), json!(scope(true)));
        paths.insert(format!("{base}/{{name}}/{}", sub.name), Value::Object(item));
    }
}

/// What an operation is about.
struct Target<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    /// Published name of the type of the body.
    body: String,
}

struct Maker<'a> {
    kind: &'a Kind,
    dialect: Dialect,
}

impl Maker<'_> {
    fn subresource(&self, sub: &Subresource, own: &Target<'_>) -> Map<String, Value> {
        let body = body_name(sub).map_or_else(|| own.body.clone(), str::to_owned);
        // For custom resources every operation is one on the resource.
        let target = if self.kind.is_builtin() {
            Target { group: &sub.group, version: &sub.version, kind: &sub.kind, body }
        } else {
            Target { body, ..*own }
        };
        let mut item = Map::new();
        for verb in sub.verbs {
            match *verb {
                GET => item.insert("get".into(), self.read(&target)),
                CREATE => item.insert("post".into(), self.write("post", &target)),
                UPDATE => item.insert("put".into(), self.write("put", &target)),
                PATCH_VERB => item.insert("patch".into(), self.write("patch", &target)),
                _ => None,
            };
        }
        item
    }

    fn operation(
        &self,
        method: &str,
        action: &str,
        target: &Target<'_>,
        parameters: Vec<Value>,
    ) -> Map<String, Value> {
        let mut operation = Map::new();
        let group = if self.kind.group.is_empty() { "core" } else { &self.kind.group };
        operation.insert("tags".into(), json!([format!("{}_{}", tag(group), self.kind.version)]));
        operation.insert("description".into(), json!(format!("{action} {}", target.kind)));
        operation.insert("parameters".into(), Value::Array(parameters));
        operation.insert("x-kubernetes-action".into(), json!(action));
        operation.insert(
            "x-kubernetes-group-version-kind".into(),
            json!({"group": target.group, "version": target.version, "kind": target.kind}),
        );
        operation.insert("responses".into(), self.responses(method, &target.body));
        operation
    }

    fn body(&self, name: &str) -> Value {
        self.dialect.reference(name)
    }

    /// The forms in which a body may be sent.
    fn content(&self, schema: &Value) -> Value {
        if self.kind.is_builtin() {
            json!({"*/*": {"schema": schema}})
        } else {
            json!({"application/json": {"schema": schema}, "application/yaml": {"schema": schema}})
        }
    }

    /// Custom resources do not say how lists are merged, which a strategic patch would need.
    fn patch_types(&self) -> &'static [&'static str] {
        if self.kind.is_builtin() { &PATCH_TYPES } else { PATCH_TYPES.split_at(3).0 }
    }

    fn responses(&self, method: &str, body: &str) -> Value {
        let answer = |description: &str| match self.dialect {
            Dialect::V2 => json!({"description": description, "schema": self.body(body)}),
            Dialect::V3 => json!({
                "description": description,
                "content": {"application/json": {"schema": self.body(body)}},
            }),
        };
        let mut responses = Map::new();
        responses.insert("200".into(), answer("OK"));
        match method {
            "post" => {
                responses.insert("201".into(), answer("Created"));
                responses.insert("202".into(), answer("Accepted"));
            }
            "put" | "patch" => {
                responses.insert("201".into(), answer("Created"));
            }
            _ => {}
        }
        responses.insert("401".into(), json!({"description": "Unauthorized"}));
        Value::Object(responses)
    }

    fn read(&self, target: &Target<'_>) -> Value {
        Value::Object(self.operation("get", "get", target, Vec::new()))
    }

    fn list(&self, target: &Target<'_>) -> Value {
        let texts = [
            "allowWatchBookmarks:boolean",
            "continue:string",
            "fieldSelector:string",
            "labelSelector:string",
            "limit:integer",
            "resourceVersion:string",
            "resourceVersionMatch:string",
            "sendInitialEvents:boolean",
            "timeoutSeconds:integer",
            "watch:boolean",
        ];
        let parameters = texts
            .iter()
            .filter_map(|t| t.split_once(':'))
            .map(|(name, kind)| query(name, kind, self.dialect))
            .collect();
        let list = Target { body: format!("{}List", target.body), ..*target };
        Value::Object(self.operation("get", "list", &list, parameters))
    }

    fn delete(&self, action: &str, target: &Target<'_>) -> Value {
        // Deleting a collection of custom resources is described as if it took no options.
        let silent = !self.kind.is_builtin() && action == "deletecollection";
        let texts = ["dryRun", "propagationPolicy"].map(|n| query(n, "string", self.dialect));
        let number = query("gracePeriodSeconds", "integer", self.dialect);
        let parameters = if silent { Vec::new() } else { texts.into_iter().chain([number]).collect() };
        let answer = Target { body: STATUS.to_owned(), ..*target };
        let mut operation = self.operation("delete", action, &answer, parameters);
        let schema = self.dialect.reference(DELETE_OPTIONS);
        match self.dialect {
            _ if silent => {}
            Dialect::V3 => {
                operation.insert("requestBody".into(), json!({"content": self.content(&schema)}));
            }
            Dialect::V2 => {
                if let Some(Value::Array(parameters)) = operation.get_mut("parameters") {
                    parameters.push(json!({"name": "body", "in": "body", "schema": schema}));
                }
            }
        }
        Value::Object(operation)
    }

    /// POST, PUT and PATCH: kubectl looks for `fieldValidation` and `dryRun` before it relies on them.
    fn write(&self, method: &str, target: &Target<'_>) -> Value {
        let mut parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation"]
            .iter()
            .map(|n| query(n, "string", self.dialect))
            .collect();
        if method == "patch" {
            parameters.push(query("force", "boolean", self.dialect));
        }
        let body = if method == "patch" { PATCH } else { target.body.as_str() };
        if self.dialect == Dialect::V2 {
            let required = json!({"name": "body", "in": "body", "required": true, "schema": self.body(body)});
            parameters.push(required);
        }
        let mut operation = self.operation(method, method, target, parameters);
        match self.dialect {
            Dialect::V3 => {
                let content = if method == "patch" {
                    let all = self.patch_types().iter();
                    json!(all.map(|t| (*t, json!({"schema": self.body(body)}))).collect::<BTreeMap<_, _>>())
                } else {
                    self.content(&self.body(body))
                };
                operation.insert("requestBody".into(), json!({"content": content, "required": true}));
            }
            Dialect::V2 => {
                let types: &[&str] = if method == "patch" {
                    self.patch_types()
                } else {
                    &["application/json", "application/yaml"]
                };
                operation.insert("consumes".into(), json!(types));
                operation.insert("produces".into(), json!(["application/json"]));
            }
        }
        Value::Object(operation)
    }
}

/// `rbac.authorization.k8s.io` is `rbacAuthorization` here.
fn tag(group: &str) -> String {
    let mut parts = group.trim_end_matches(".k8s.io").split('.');
    let mut tag = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        tag.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        tag.push_str(letters.as_str());
    }
    tag
}

fn query(name: &str, kind: &str, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V2 => json!({"name": name, "in": "query", "type": kind, "uniqueItems": true}),
        Dialect::V3 => {
            json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
        }
    }
}

fn path_parameter(name: &str, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V2 => {
            json!({"name": name, "in": "path", "required": true, "type": "string", "uniqueItems": true})
        }
        Dialect::V3 => json!({
            "name": name, "in": "path", "required": true,
            "schema": {"type": "string", "uniqueItems": true},
        }),
    }
}
