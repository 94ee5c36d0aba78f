//! Running the steps of a scenario.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use base64::Engine as _;
use evac_clock::Clock;
use evac_upstream::kubernetes;
use evac_upstream::kubevirt::Release;
use futures::{AsyncBufReadExt as _, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::aftermath;
use super::cluster::Cluster;
use super::foretold;
use super::hook::Hooks;
use super::parse::{Expect, Scenario, Step, Test, difference, matches};

/// A condition that does not come true within this time never will. The longest wait is for the controller that
/// declares a node dead.
const PATIENCE: Duration = Duration::from_secs(120);
/// The longest that a command may take: two minutes is how long a budget waits for an eviction that was cut off.
const ENDLESS: Duration = Duration::from_secs(240);

/// Runs a scenario; the error says at which line it went wrong, what was seen, and how the cluster looks now.
pub async fn run(scenario: &Scenario, cluster: &Cluster) -> Result<(), String> {
    let mut end = steps(scenario, cluster).await;
    if end.is_ok() && scenario.unrest.is_none() {
        end = aftermath::check(cluster).await;
    }
    match end {
        Ok(()) => Ok(()),
        Err(why) => Err(format!("{why}\n{}", aftermath::describe(cluster).await)),
    }
}

async fn steps(scenario: &Scenario, cluster: &Cluster) -> Result<(), String> {
    let mut background: BTreeMap<String, Running> = BTreeMap::new();
    let mut values = Hooks::serve().await.values();
    values.insert("home".into(), cluster.home.into());
    let folder = cluster.kubeconfig.parent().unwrap_or(Path::new("/"));
    values.insert("folder".into(), folder.to_string_lossy().into_owned());
    if let Some(tenant) = &cluster.tenant {
        let kubeconfig = std::fs::read(&tenant.kubeconfig).map_err(|e| e.to_string())?;
        let text = base64::engine::general_purpose::STANDARD.encode(kubeconfig);
        values.insert("tenant".into(), text);
    }
    for (line, step) in &scenario.steps {
        let wrong = |why| format!("line {line}: {why}");
        if let Step::Remember { name, path, pointer } = step {
            let seen = objects(&cluster.client, &fill(path, &values)).await.map_err(wrong)?;
            let found = seen.first().and_then(|object| object.pointer(pointer)).and_then(Value::as_str);
            let found = found.ok_or_else(|| wrong(format!("nothing at {pointer}")))?;
            values.insert(name.clone(), found.to_owned());
        } else {
            perform(step, cluster, &values, &mut background).await.map_err(wrong)?;
        }
    }
    Ok(())
}

async fn perform(
    step: &Step,
    cluster: &Cluster,
    values: &BTreeMap<String, String>,
    background: &mut BTreeMap<String, Running>,
) -> Result<(), String> {
    match step {
        Step::InTenant(step) => {
            let tenant = cluster.tenant.as_ref().ok_or("there is no tenant")?;
            Box::pin(perform(step, tenant, values, background)).await
        }
        Step::WithoutKubeVirt(_) if cluster.has_kubevirt => Ok(()),
        Step::WithoutKubeVirt(step) => Box::pin(perform(step, cluster, values, background)).await,
        Step::RestartOperator => {
            cluster.restart_operator().await;
            Ok(())
        }
        Step::Apply(yaml) => apply(&cluster.client, &fill(yaml, values)).await,
        Step::Condition { wait, path, test } => {
            let (path, test) = (fill(path, values), filled(test, values));
            if *wait {
                return until(&cluster.client, &path, &test).await;
            }
            let seen = objects(&cluster.client, &path).await?;
            if holds(&test, &seen) { Ok(()) } else { Err(describe(&path, &test, &seen)) }
        }
        Step::Patch { path, body } => {
            let request = http::Request::patch(fill(path, values))
                .header("content-type", "application/merge-patch+json");
            send(&cluster.client, request.body(fill(body, values).into_bytes())).await
        }
        Step::Post { path, body } => {
            let request = http::Request::post(fill(path, values)).header("content-type", "application/json");
            send(&cluster.client, request.body(fill(body, values).into_bytes())).await
        }
        Step::Ask { step, yes } => {
            // What the server has taken into its own account cannot be watched; it can only be asked.
            let asking =
                async { while Box::pin(perform(step, cluster, values, background)).await.is_ok() != *yes {} };
            tokio::time::timeout(PATIENCE, asking).await.map_err(|_| "the answer stays the same".to_owned())
        }
        Step::Kubelet { node, on } => {
            cluster.kubelet(node, *on);
            Ok(())
        }
        Step::Power { node, on } => {
            cluster.power(&fill(node, values), *on);
            Ok(())
        }
        Step::Delete { path } => {
            send(&cluster.client, http::Request::delete(fill(path, values)).body(Vec::new())).await
        }
        // Needs the values to change; it is done where they are kept.
        Step::Remember { .. } => Ok(()),
        Step::Run { words, expect, foreseen } => {
            let words: Vec<String> = words.iter().map(|word| fill(word, values)).collect();
            let foretold = if *foreseen { foretold::ask(&words, cluster).await? } else { None };
            let running = spawn(&words, cluster)?;
            let output = finish(running).await?;
            judge(&output, expect)?;
            foretold::estimates(&output.stdout)?;
            match foretold {
                Some(foretold) => foretold.compare(output.status.code(), cluster).await,
                None => Ok(()),
            }
        }
        Step::Start { id, words } => {
            background.insert(id.clone(), spawn(words, cluster)?);
            Ok(())
        }
        Step::Signal { id, signal } => {
            let running = background.get(id).ok_or_else(|| format!("{id} was not started"))?;
            let pid = running.child.id().ok_or_else(|| format!("{id} has ended already"))?;
            let status = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().await;
            status.map(|_| ()).map_err(|e| e.to_string())
        }
        Step::Join { id, expect } => {
            let running = background.remove(id).ok_or_else(|| format!("{id} was not started"))?;
            let output = finish(running).await?;
            judge(&output, expect)?;
            foretold::estimates(&output.stdout)
        }
    }
}

/// A test with the values that were remembered.
fn filled(test: &Test, values: &BTreeMap<String, String>) -> Test {
    let (mut test, put) = (test.clone(), |value: &mut String| *value = fill(value, values));
    match &mut test {
        Test::Equals { value, .. } | Test::Differs { value, .. } => put(value),
        Test::Absent { .. } | Test::Count(_) => {}
    }
    test
}

/// Puts in what is only known now: `$hook`, `$ca`, `$now`, `$now-90s` and what was remembered.
fn fill(text: &str, values: &BTreeMap<String, String>) -> String {
    let mut text = text.to_owned();
    // The longer of two names with the same beginning comes first.
    for (name, value) in values.iter().rev() {
        text = text.replace(&format!("${name}"), value);
    }
    let now = Clock::real().now();
    let mut parts = text.split("$now");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let shift = part.strip_prefix('-').and_then(|rest| rest.split_once('s'));
        let shift = shift.and_then(|(seconds, rest)| Some((seconds.parse::<i64>().ok()?, rest)));
        let (seconds, rest) = shift.unwrap_or((0, part));
        let at: Timestamp = now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(now);
        filled.push_str(&at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        filled.push_str(rest);
    }
    filled
}

/// A command at work, listened to.
pub(super) struct Running {
    child: Child,
    stdout: JoinHandle<String>,
    /// Each line with its time since the beginning.
    stderr: JoinHandle<Vec<(Duration, String)>>,
}

/// What a command said and how it ended.
pub(super) struct Output {
    pub status: ExitStatus,
    pub stdout: String,
    stderr: Vec<(Duration, String)>,
}

pub(super) fn spawn(words: &[String], cluster: &Cluster) -> Result<Running, String> {
    // As in a shell: what stands before the program goes into its environment.
    let settings: Vec<(&str, &str)> = words.iter().map_while(|word| word.split_once('=')).collect();
    let (program, arguments) = words[settings.len()..].split_first().ok_or("no command")?;
    let path = match program.as_str() {
        "evac" => env!("CARGO_BIN_EXE_evac").into(),
        "kubectl" => kubernetes::program()
            .map(|program| program.with_file_name("kubectl"))
            .ok_or("kubectl is not there")?,
        "oc" => {
            let arguments = arguments.strip_prefix(&["adm".to_owned()]).unwrap_or(arguments);
            let words: Vec<String> = [&words[..settings.len()], &["kubectl".to_owned()], arguments].concat();
            return spawn(&words, cluster);
        }
        "virtctl" | "./virtctl" => Release::Newest
            .program()
            .map(|program| program.with_file_name("virtctl"))
            .ok_or("virtctl is not there")?,
        other => return Err(format!("unknown program {other}")),
    };
    // Where rights are tested, the person who types `evac` has only those they need.
    let kubeconfig = if program == "evac" { &cluster.person } else { &cluster.kubeconfig };
    let mut child = Command::new(path)
        .args(arguments)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .env("HOME", kubeconfig.parent().unwrap_or(Path::new("/")))
        .env("KUBECONFIG", kubeconfig)
        .env("NO_COLOR", "1")
        .envs(settings)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| format!("cannot run {program}: {e}"))?;
    let began = Instant::now();
    let mut stdout = child.stdout.take().ok_or("no stdout")?;
    let mut stderr = BufReader::new(child.stderr.take().ok_or("no stderr")?).lines();
    let stdout = tokio::spawn(async move {
        let mut text = Vec::new();
        let _ = stdout.read_to_end(&mut text).await;
        String::from_utf8_lossy(&text).into_owned()
    });
    let stderr = tokio::spawn(async move {
        let mut lines = Vec::new();
        while let Ok(Some(line)) = stderr.next_line().await {
            lines.push((began.elapsed(), line));
        }
        lines
    });
    Ok(Running { child, stdout, stderr })
}

pub(super) async fn finish(mut running: Running) -> Result<Output, String> {
    let waited = tokio::time::timeout(ENDLESS, running.child.wait()).await;
    if waited.is_err() {
        let _ = running.child.start_kill();
    }
    let stdout = running.stdout.await.map_err(|e| e.to_string())?;
    let stderr = running.stderr.await.map_err(|e| e.to_string())?;
    match waited {
        Ok(status) => Ok(Output { status: status.map_err(|e| e.to_string())?, stdout, stderr }),
        Err(_) => Err(format!("the command did not end{}", seen(&stdout, &stderr))),
    }
}

fn seen(stdout: &str, stderr: &[(Duration, String)]) -> String {
    let timed: Vec<String> =
        stderr.iter().map(|(at, line)| format!("{:6.2} s  {line}", at.as_secs_f64())).collect();
    format!("\n--- stdout\n{stdout}--- stderr\n{}\n---", timed.join("\n"))
}

fn judge(output: &Output, expect: &Expect) -> Result<(), String> {
    let seen = || seen(&output.stdout, &output.stderr);
    let exit = output.status.code();
    // A command that was killed has no exit code; `exit -9` stands for SIGKILL.
    let code = exit.or_else(|| std::os::unix::process::ExitStatusExt::signal(&output.status).map(|s| -s));
    if code != Some(expect.exit) {
        return Err(format!("ended with {code:?}, expected {}{}", expect.exit, seen()));
    }
    if let Some(lines) = &expect.stdout {
        let actual: Vec<&str> = output.stdout.lines().collect();
        if let Some(why) = difference(lines, &actual) {
            return Err(format!("stdout: {why}{}", seen()));
        }
    }
    let mut rest = output.stderr.iter();
    for said in &expect.stderr {
        let Some((at, _)) = rest.find(|(_, line)| matches(&said.pattern, line.trim_end())) else {
            return Err(format!("stderr: nothing matches {:?}{}", said.pattern, seen()));
        };
        if said.within.is_some_and(|limit| *at > limit) {
            return Err(format!("stderr: too late: {:?}{}", said.pattern, seen()));
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
    let mut objects: Vec<(GroupVersionKind, DynamicObject)> = Vec::new();
    for document in yaml.split("\n---\n") {
        let object: DynamicObject = serde_saphyr::from_str(document).map_err(|e| e.to_string())?;
        let types = object.types.as_ref().ok_or("an object has no type")?;
        objects.push((types.try_into().map_err(|_| format!("no version: {types:?}"))?, object));
    }
    let discovery = knows(client, objects.iter().map(|(kind, _)| kind)).await?;
    for (kind, object) in objects {
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

/// What the server lists. A real one lists a new kind some time after it serves it, so it is asked until it
/// has all of these.
async fn knows<'a>(
    client: &kube::Client,
    kinds: impl Iterator<Item = &'a GroupVersionKind> + Clone,
) -> Result<kube::Discovery, String> {
    let asking = async {
        loop {
            let discovery = kube::Discovery::new(client.clone()).run().await?;
            if kinds.clone().all(|kind| discovery.resolve_gvk(kind).is_some()) {
                return Ok(discovery);
            }
        }
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(found) => found.map_err(|e: kube::Error| e.to_string()),
        Err(_) => Err(format!("not all are listed: {:?}", kinds.collect::<Vec<_>>())),
    }
}

/// The objects at a path: of a collection, or the one with a name (none when it is not there).
pub(super) async fn objects(client: &kube::Client, path: &str) -> Result<Vec<Value>, String> {
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
        Test::Equals { pointer, value } => is_like(objects, pointer, value) == Some(true),
        Test::Differs { pointer, value } => is_like(objects, pointer, value) == Some(false),
    }
}

/// Whether a field of the first object matches; none if there is no such field.
fn is_like(objects: &[Value], pointer: &str, value: &str) -> Option<bool> {
    let found = objects.first().and_then(|object| object.pointer(pointer))?;
    Some(match found {
        Value::String(found) => matches(value, found),
        other => format!("{other}") == value,
    })
}

fn describe(path: &str, test: &Test, seen: &[Value]) -> String {
    let found = match test {
        Test::Count(_) => format!("{} objects", seen.len()),
        Test::Absent { pointer } | Test::Equals { pointer, .. } | Test::Differs { pointer, .. } => {
            match seen.first() {
                Some(object) => format!("{:?}", object.pointer(pointer)),
                None => "no such object".into(),
            }
        }
    };
    format!("{path}: expected {test:?}, found {found}")
}
