//! Running the steps of a scenario.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use futures::{AsyncBufReadExt, TryStreamExt};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::Value;
use tokio::process::{Child, Command};

use super::cluster::{Cluster, kubernetes_program};
use super::parse::{Expect, Scenario, Step, Test, difference, matches};

/// A condition that does not come true within this time never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a scenario; the error says at which line it went wrong and what was seen.
pub async fn run(scenario: &Scenario, cluster: &Cluster) -> Result<(), String> {
    let mut background: BTreeMap<String, Child> = BTreeMap::new();
    for (line, step) in &scenario.steps {
        perform(step, cluster, &mut background).await.map_err(|why| format!("line {line}: {why}"))?;
    }
    Ok(())
}

async fn perform(
    step: &Step,
    cluster: &Cluster,
    background: &mut BTreeMap<String, Child>,
) -> Result<(), String> {
    match step {
        Step::Apply(yaml) => apply(&cluster.client, yaml).await,
        Step::Condition { wait: true, path, test } => until(&cluster.client, path, test).await,
        Step::Condition { wait: false, path, test } => {
            let seen = objects(&cluster.client, path).await?;
            if holds(test, &seen) { Ok(()) } else { Err(describe(path, test, &seen)) }
        }
        Step::Patch { path, body } => {
            let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
            send(&cluster.client, request.body(body.clone().into_bytes())).await
        }
        Step::Post { path, body } => {
            let request = http::Request::post(path).header("content-type", "application/json");
            send(&cluster.client, request.body(body.clone().into_bytes())).await
        }
        Step::Delete { path } => send(&cluster.client, http::Request::delete(path).body(Vec::new())).await,
        Step::Run { words, expect } => {
            let child = spawn(words, &cluster.kubeconfig)?;
            judge(&finish(child).await?, expect)
        }
        Step::Start { id, words } => {
            background.insert(id.clone(), spawn(words, &cluster.kubeconfig)?);
            Ok(())
        }
        Step::Signal { id, signal } => {
            let child = background.get(id).ok_or_else(|| format!("{id} was not started"))?;
            let pid = child.id().ok_or_else(|| format!("{id} has ended already"))?;
            let status = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().await;
            status.map(|_| ()).map_err(|e| e.to_string())
        }
        Step::Join { id, expect } => {
            let child = background.remove(id).ok_or_else(|| format!("{id} was not started"))?;
            judge(&finish(child).await?, expect)
        }
    }
}

fn spawn(words: &[String], kubeconfig: &Path) -> Result<Child, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let path = match program.as_str() {
        "evac" => env!("CARGO_BIN_EXE_evac").into(),
        "kubectl" => kubernetes_program()
            .map(|program| program.with_file_name("kubectl"))
            .ok_or("kubectl is not there")?,
        other => return Err(format!("unknown program {other}")),
    };
    Command::new(path)
        .args(arguments)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .env("HOME", kubeconfig.parent().unwrap_or(kubeconfig))
        .env("KUBECONFIG", kubeconfig)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| format!("cannot run {program}: {e}"))
}

async fn finish(child: Child) -> Result<Output, String> {
    match tokio::time::timeout(PATIENCE * 2, child.wait_with_output()).await {
        Ok(output) => output.map_err(|e| e.to_string()),
        Err(_) => Err("the command did not end".into()),
    }
}

fn judge(output: &Output, expect: &Expect) -> Result<(), String> {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let seen = || format!("\n--- stdout\n{stdout}--- stderr\n{stderr}---");
    let exit = output.status.code();
    // A command that was killed has no exit code; `exit -9` stands for SIGKILL.
    let code = exit.or_else(|| std::os::unix::process::ExitStatusExt::signal(&output.status).map(|s| -s));
    if code != Some(expect.exit) {
        return Err(format!("ended with {code:?}, expected {}{}", expect.exit, seen()));
    }
    if let Some(lines) = &expect.stdout {
        let actual: Vec<&str> = stdout.lines().collect();
        if let Some(why) = difference(lines, &actual) {
            return Err(format!("stdout: {why}{}", seen()));
        }
    }
    let mut rest = stderr.lines();
    for pattern in &expect.stderr {
        if !rest.any(|line| matches(pattern, line.trim_end())) {
            return Err(format!("stderr: nothing matches {pattern:?}{}", seen()));
        }
    }
    Ok(())
}

async fn send(
    client: &kube::Client,
    request: Result<http::Request<Vec<u8>>, http::Error>,
) -> Result<(), String> {
    let request = request.map_err(|e| e.to_string())?;
    client.request_text(request).await.map(|_| ()).map_err(|e| e.to_string())
}

async fn apply(client: &kube::Client, yaml: &str) -> Result<(), String> {
    let discovery = kube::Discovery::new(client.clone()).run().await.map_err(|e| e.to_string())?;
    for document in yaml.split("\n---\n") {
        let object: DynamicObject = serde_saphyr::from_str(document).map_err(|e| e.to_string())?;
        let types = object.types.clone().ok_or("an object has no type")?;
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let kind = kube::core::GroupVersionKind::gvk(group, version, &types.kind);
        let (resource, capabilities) =
            discovery.resolve_gvk(&kind).ok_or_else(|| format!("unknown kind {kind:?}"))?;
        let name = object.metadata.name.clone().ok_or("an object has no name")?;
        let api: Api<DynamicObject> = if capabilities.scope == kube::discovery::Scope::Namespaced {
            let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, &resource)
        } else {
            Api::all_with(client.clone(), &resource)
        };
        let parameters = PatchParams::apply("scenario").force();
        api.patch(&name, &parameters, &Patch::Apply(&object)).await.map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The objects at a path: of a collection, or the one with a name (none when it is not there).
async fn objects(client: &kube::Client, path: &str) -> Result<Vec<Value>, String> {
    let request = http::Request::get(path).body(Vec::new()).map_err(|e| e.to_string())?;
    match client.request::<Value>(request).await {
        Ok(mut value) => match value.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) => Ok(std::mem::take(items)),
            None => Ok(vec![value]),
        },
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits by watch until a condition holds.
async fn until(client: &kube::Client, path: &str, test: &Test) -> Result<(), String> {
    let watching = async {
        loop {
            if watch_until(client, path, test).await? {
                return Ok(());
            }
        }
    };
    match tokio::time::timeout(PATIENCE, watching).await {
        Ok(done) => done,
        Err(_) => Err(describe(path, test, &objects(client, path).await.unwrap_or_default())),
    }
}

/// One watch; false when the server ended it before the condition held.
async fn watch_until(client: &kube::Client, path: &str, test: &Test) -> Result<bool, String> {
    let request = http::Request::get(watch_path(path, test)).body(Vec::new()).map_err(|e| e.to_string())?;
    let mut lines = client.request_stream(request).await.map_err(|e| e.to_string())?.lines();
    let mut seen: BTreeMap<String, Value> = BTreeMap::new();
    if holds(test, &objects(client, path).await?) {
        return Ok(true);
    }
    while let Some(line) = lines.try_next().await.map_err(|e| e.to_string())? {
        let event: Value = serde_json::from_str(&line).map_err(|e| e.to_string())?;
        let object = event["object"].clone();
        let key = format!("{}/{}", object["metadata"]["namespace"], object["metadata"]["name"]);
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => {
                seen.insert(key, object);
            }
            Some("DELETED") => {
                seen.remove(&key);
            }
            _ => return Ok(false),
        }
        let current: Vec<Value> = seen.values().cloned().collect();
        // While the initial objects are still coming the picture is incomplete; the list is not.
        if holds(test, &current) && holds(test, &objects(client, path).await?) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn watch_path(path: &str, test: &Test) -> String {
    if matches!(test, Test::Count(_)) {
        let joint = if path.contains('?') { '&' } else { '?' };
        return format!("{path}{joint}watch=1");
    }
    let (collection, name) = path.rsplit_once('/').unwrap_or((path, ""));
    format!("{collection}?watch=1&fieldSelector=metadata.name%3D{name}")
}

fn holds(test: &Test, objects: &[Value]) -> bool {
    match test {
        Test::Count(number) => objects.len() == *number,
        Test::Absent { pointer } => objects.first().and_then(|o| o.pointer(pointer)).is_none(),
        Test::Equals { pointer, value } => {
            objects.first().and_then(|o| o.pointer(pointer)).is_some_and(|found| match found {
                Value::String(found) => matches(value, found),
                other => format!("{other}") == *value,
            })
        }
    }
}

fn describe(path: &str, test: &Test, seen: &[Value]) -> String {
    let found = match test {
        Test::Count(_) => format!("{} objects", seen.len()),
        Test::Absent { pointer } | Test::Equals { pointer, .. } => match seen.first() {
            Some(object) => format!("{:?}", object.pointer(pointer)),
            None => "no such object".into(),
        },
    };
    format!("{path}: expected {test:?}, found {found}")
}
