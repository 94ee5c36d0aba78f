//! Deleting a namespace: everything in it goes, then the namespace.

use http::Method;
use serde_json::{Value, json};

use crate::actor::{Out, View};
use crate::discovery::Discovery;
use crate::effects::{Answer, Api, EffectError, Verb, Write};
use crate::kinds::Kind;
use crate::objects::{Key, deleting, later};

/// How often a namespace that is not empty yet is looked at.
const LOOK_SECONDS: i64 = 5;

pub fn sync(view: View<'_>, key: &Key, out: &mut Out) {
    let Some(namespace) = view.mirror.namespaces.get(key) else { return };
    if !deleting(&namespace.metadata) {
        return;
    }
    out.write(Write {
        resource: Kind::Namespace.resource(),
        key: key.clone(),
        subresource: "",
        verb: Verb::EmptyNamespace,
        optional: true,
    });
    out.again_at(later(view.now, LOOK_SECONDS));
}

/// Deletes all that is in the namespace and, when nothing is left, takes the finalizer off.
pub async fn empty(api: &Api, name: &str) -> Result<Answer, EffectError> {
    let discovery = Discovery::ask(api).await?;
    let mut left = Vec::new();
    for resource in discovery.collectable().into_iter().filter(|r| r.namespaced) {
        let list = match api.get(&resource.collection(name)).await {
            Ok(list) => list,
            Err(error) if matches!(error.code(), Some(404 | 405)) => continue,
            Err(error) => return Err(error),
        };
        for object in list["items"].as_array().into_iter().flatten() {
            let meta = &object["metadata"];
            let Some(object_name) = meta["name"].as_str() else { continue };
            if meta["deletionTimestamp"].is_null() {
                let path = resource.object(&Key::new(name, object_name), "");
                let options = json!({
                    "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
                    "preconditions": { "uid": meta["uid"] },
                });
                match api.send(Method::DELETE, &path, "application/json", Some(&options)).await {
                    Ok(_) => {}
                    Err(error) if error.not_found() || error.conflict() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let rest = api.get(&resource.collection(name)).await?;
        let count = rest["items"].as_array().map_or(0, Vec::len);
        if count > 0 {
            left.push((resource.plural.to_string(), count, finalizers(&rest)));
        }
    }
    if !left.is_empty() {
        report(api, name, &left).await?;
        let names: Vec<_> = left.iter().map(|(plural, count, _)| format!("{count} {plural}")).collect();
        return Err(EffectError::NamespaceBusy(name.to_owned(), names.join(", ")));
    }
    let path = format!("/api/v1/namespaces/{name}");
    let mut namespace = api.get(&path).await?;
    let finalizers = namespace["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    let rest: Vec<Value> = finalizers.into_iter().filter(|f| f != "kubernetes").collect();
    namespace["spec"]["finalizers"] = json!(rest);
    api.send(Method::PUT, &format!("{path}/finalize"), "application/json", Some(&namespace)).await?;
    Ok(Answer::Done)
}

fn finalizers(list: &Value) -> Vec<String> {
    list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|o| o["metadata"]["finalizers"].as_array().cloned().unwrap_or_default())
        .filter_map(|f| f.as_str().map(str::to_owned))
        .collect()
}

/// Says in the namespace's conditions what it still waits for.
async fn report(api: &Api, name: &str, left: &[(String, usize, Vec<String>)]) -> Result<(), EffectError> {
    let path = format!("/api/v1/namespaces/{name}/status");
    let mut namespace = api.get(&format!("/api/v1/namespaces/{name}")).await?;
    let remaining: Vec<String> =
        left.iter().map(|(plural, count, _)| format!("{plural} has {count} resource instances")).collect();
    let mut waiting: Vec<String> = left.iter().flat_map(|(_, _, f)| f.iter().cloned()).collect();
    waiting.sort();
    let mut counted: Vec<(String, usize)> = Vec::new();
    for finalizer in waiting {
        match counted.last_mut() {
            Some((last, count)) if *last == finalizer => *count += 1,
            _ => counted.push((finalizer, 1)),
        }
    }
    let in_the_way: Vec<String> =
        counted.iter().map(|(f, n)| format!("{f} in {n} resource instances")).collect();
    let (content, finalizing) = (
        format!("Some resources are remaining: {}", remaining.join(", ")),
        format!("Some content in the namespace has finalizers remaining: {}", in_the_way.join(", ")),
    );
    let condition = |kind: &str, holds: bool, reason: &str, message: &str| {
        json!({ "type": kind, "status": if holds { "True" } else { "False" }, "reason": reason, "message": message,
            "lastTransitionTime": namespace["metadata"]["deletionTimestamp"] })
    };
    let conditions = json!([
        condition("NamespaceContentRemaining", true, "SomeResourcesRemain", &content),
        if in_the_way.is_empty() {
            condition(
                "NamespaceFinalizersRemaining",
                false,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            )
        } else {
            condition("NamespaceFinalizersRemaining", true, "SomeFinalizersRemain", &finalizing)
        },
    ]);
    if namespace["status"]["conditions"] != conditions {
        namespace["status"]["conditions"] = conditions;
        api.send(Method::PUT, &path, "application/json", Some(&namespace)).await?;
    }
    Ok(())
}
