//! Hostile policies (`hostile/*.yaml`): each is refused with one sentence, and nothing is written, run, read or told because of it.
//!
//! The first line of a file says when it is refused, and in which words. `written`: by the server and the operator when it is written, and by the operator
//! again if it is older than both. `judged`: by the operator, which knows nodes and programs. `used`: when its Secret has been read. In the texts `$agents` is the
//! directory with fence agents.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_engine::Http;
use evac_engine::failover::{PowerError, PowerState, PowerSwitch};
use evac_engine::operator::failover as role;
use evac_engine::operator::install;
use evac_engine::operator::publish::Reviews;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::bench::{Bench, POLICIES};
use crate::wire::Wire;

const SECRET: &str = "hunter2";
const SECRETS: &str = "/api/v1/namespaces/kubevirt/secrets";

struct Case {
    name: String,
    when: String,
    words: String,
    policy: Value,
    secret: Option<Value>,
}

fn corpus(agents: &Path) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failover/hostile");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap().replace("$agents", agents.to_str().unwrap());
        let head = text.lines().next().unwrap().strip_prefix("# ").unwrap();
        let (when, words) = head.split_once(": ").unwrap();
        let mut objects: Vec<Value> =
            text.split("---\n").map(|part| serde_saphyr::from_str(part).unwrap()).collect();
        Case {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            when: when.to_owned(),
            words: words.to_owned(),
            policy: objects.pop().unwrap(),
            secret: objects.pop(),
        }
    };
    paths.iter().map(read).collect()
}

/// A directory with a fence agent that leaves a trace when it runs, and things that only look like one.
struct Agents {
    directory: tempfile::TempDir,
    outside: tempfile::TempDir,
}

impl Agents {
    fn new() -> Self {
        let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let trace = outside.path().join("ran");
        let script = format!("#!/bin/sh\necho \"$0\" >>'{}'\n", trace.display());
        let put = |path: PathBuf, mode: u32| {
            std::fs::write(&path, &script).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        put(directory.path().join("fence_trap"), 0o755);
        put(directory.path().join("sh"), 0o755);
        put(directory.path().join("fence_text"), 0o644);
        put(outside.path().join("fence_trap"), 0o755);
        std::fs::create_dir(directory.path().join("fence_folder")).unwrap();
        symlink(outside.path().join("fence_trap"), directory.path().join("fence_link")).unwrap();
        Self { directory, outside }
    }

    fn ran(&self) -> bool {
        self.outside.path().join("ran").exists()
    }
}

/// Asks the real program, and writes down that it was asked before it can run.
struct Watched {
    switch: Arc<dyn PowerSwitch>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl PowerSwitch for Watched {
    fn name(&self) -> String {
        self.switch.name()
    }

    fn off<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), PowerError>> {
        self.asked.lock().unwrap().push(format!("off {node}"));
        self.switch.off(node)
    }

    fn state<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<PowerState, PowerError>> {
        self.asked.lock().unwrap().push(format!("status {node}"));
        self.switch.state(node)
    }
}

/// What is logged on this thread, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The role as it runs in the operator, with everything it asks the server and its agents written down.
struct Observed {
    wire: Wire,
    asked: Arc<Mutex<Vec<String>>>,
    _stop: DropGuard,
}

fn observe(bench: &Bench, agents: &Agents) -> Observed {
    let wire = Wire::new();
    let service = Service::trusted(bench.cluster.api.clone(), Identity::admin());
    let http = Http::new(wire.client(service), bench.cluster.clock, Duration::ZERO);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (stop, seen) = (CancellationToken::new(), asked.clone());
    let programs = role::programs(vec![agents.directory.path().to_owned()]);
    let switches: role::Switches = Arc::new(move |policy, options, clock| {
        let switch = programs(policy, options, clock)?;
        Ok(Arc::new(Watched { switch, asked: seen.clone() }))
    });
    tokio::spawn(role::run(http, switches, stop.clone(), mpsc::channel(1).1));
    Observed { wire, asked, _stop: stop.drop_guard() }
}

/// The kind as it could have been before anything of it was checked.
async fn take_anything(bench: &Bench) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/failoverpolicies.evac.dev";
    let mut definition = bench.cluster.get(path).await.unwrap();
    let anything = json!({"x-kubernetes-preserve-unknown-fields": true});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "properties": {"spec": anything, "status": anything}});
    let (code, body) = bench.cluster.send("PUT", path, "application/json", &definition).await;
    assert_eq!(code, 200, "{body}");
}

async fn put_secret(bench: &Bench, secret: &Value) {
    let mut secret = secret.clone();
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let data: BTreeMap<String, String> = secret["stringData"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| (key.clone(), encode(value.as_str().unwrap())))
        .collect();
    secret.as_object_mut().unwrap().remove("stringData");
    secret["data"] = json!(data);
    let (code, body) = bench.cluster.create(SECRETS, &secret).await;
    assert_eq!(code, 201, "{body}");
}

async fn delete(bench: &Bench, path: &str) {
    let (code, body) = bench.cluster.send("DELETE", path, "application/json", &json!({})).await;
    assert_eq!(code, 200, "{body}");
}

/// The sentences of all events about the policy, by the names of the events.
async fn told(bench: &Bench) -> BTreeMap<String, String> {
    let list = bench.cluster.get("/api/v1/namespaces/default/events").await.unwrap_or_default();
    let about = |event: &&Value| event["involvedObject"]["name"] == "hostile";
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events = list["items"].as_array().cloned().unwrap_or_default();
    events.iter().filter(about).map(|it| (text(&it["metadata"]["name"]), text(&it["message"]))).collect()
}

#[tokio::test(start_paused = true)]
async fn hostile_policies_are_refused_when_they_are_written() {
    let agents = Agents::new();
    let bench = Bench::start(4).await;
    let reviews = Reviews { machines: false, maintenance: false, failover: true };
    install::reviews(&bench.cluster.http, reviews).await.unwrap();
    let cases = corpus(agents.directory.path());
    assert!(cases.len() >= 20);
    for Case { name, when, policy, .. } in cases {
        let (code, body) = bench.cluster.create(POLICIES, &policy).await;
        let said = body["message"].as_str().unwrap_or_default();
        if when == "written" {
            assert!((400..500).contains(&code), "{name}: {code} {body}");
            assert!(!said.is_empty() && !said.contains('\n') && !said.contains(SECRET), "{name}: {said}");
        } else {
            assert_eq!(code, 201, "{name}: {said}");
            delete(&bench, &format!("{POLICIES}/hostile")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hostile_policies_that_are_there_run_nothing_read_nothing_and_tell_no_secret() {
    let log = Log::default();
    let writer = log.clone();
    // With one subscriber only, a thread without one decides for all which places are logged; tests run on many threads.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("evac_engine=trace,evac_core=trace,evac_api=trace")
        .with_writer(move || writer.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let agents = Agents::new();
    let bench = Bench::start(4).await;
    take_anything(&bench).await;
    let role = observe(&bench, &agents);
    bench.cluster.world.kubelet("node-1").power_off();
    bench.unreachable("node-1").await;
    bench.cluster.pass(120).await;
    for Case { name, when, words, policy, secret } in corpus(agents.directory.path()) {
        let before = role.wire.requests().len();
        let known = told(&bench).await;
        if let Some(secret) = &secret {
            put_secret(&bench, secret).await;
        }
        let (code, body) = bench.cluster.create(POLICIES, &policy).await;
        assert_eq!(code, 201, "{name}: {body}");
        bench.cluster.pass(100).await;
        let status = bench.policy_status("hostile").await;
        let condition = &status["conditions"][0];
        let mut told = told(&bench).await;
        told.retain(|event, _| !known.contains_key(event));
        let told: Vec<String> = told.into_values().collect();
        let sentence = if when == "used" {
            assert_eq!(condition["status"], "True", "{name}: {status}");
            told.iter().find(|said| said.contains(&words)).cloned()
        } else {
            assert_eq!(condition["status"], "False", "{name}: {status}");
            condition["message"].as_str().map(str::to_owned)
        };
        let sentence = sentence.unwrap_or_else(|| panic!("{name}: {words}: {told:?}"));
        assert!(sentence.contains(&words) && !sentence.contains('\n'), "{name}: {sentence}");
        // Nothing was done but to say so.
        let asked = role.wire.requests().split_off(before);
        let said = |line: &String| {
            line.contains("/failoverpolicies/hostile/status")
                || line.starts_with("POST") && line.contains("/events")
        };
        let written: Vec<&String> =
            asked.iter().filter(|line| !line.starts_with("GET") && !said(line)).collect();
        assert!(written.is_empty(), "{name}: {written:?}");
        let own = format!("GET {SECRETS}/bmc");
        let read: Vec<&String> = asked.iter().filter(|line| line.contains("secrets")).collect();
        assert!(read.iter().all(|line| when == "used" && **line == own), "{name}: {read:?}");
        assert_eq!(*role.asked.lock().unwrap(), Vec::<String>::new(), "{name}");
        assert!(!status.to_string().contains(SECRET), "{name}: {status}");
        assert!(!told.concat().contains(SECRET), "{name}: {told:?}");
        delete(&bench, &format!("{POLICIES}/hostile")).await;
        if secret.is_some() {
            delete(&bench, &format!("{SECRETS}/bmc")).await;
        }
        bench.cluster.pass(1).await;
    }
    assert!(!agents.ran());
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(!logged.contains(SECRET), "{logged}");
    // Not because nobody was looking: a policy without malice has its Secret read and its agent run.
    put_secret(
        &bench,
        &json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bmc", "namespace": "kubevirt"},
            "stringData": {"password": SECRET},
        }),
    )
    .await;
    let agent = json!({"agent": {"command": "fence_trap", "optionsSecret": {"namespace": "kubevirt", "name": "bmc"}}});
    assert_eq!(bench.policy("good", |spec| spec["proof"] = agent).await.0, 201);
    bench.cluster.pass(120).await;
    assert!(role.wire.count(&format!("GET {SECRETS}/bmc")) > 0);
    assert_eq!(role.asked.lock().unwrap().first().map(String::as_str), Some("off node-1"));
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(!logged.contains(SECRET), "{logged}");
    assert!(logged.contains("Fencing"), "the log is the role's: {logged}");
}

#[tokio::test(start_paused = true)]
async fn without_a_directory_no_agent_is_run_and_the_status_names_the_flag() {
    let bench = Bench::start(4).await;
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    tokio::spawn(role::run(bench.cluster.http.clone(), role::programs(Vec::new()), stop, mpsc::channel(1).1));
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    bench.cluster.pass(5).await;
    let condition = bench.policy_status("p").await["conditions"][0].clone();
    assert_eq!(condition["status"], "False");
    assert!(condition["message"].as_str().unwrap().contains("--fence-agents DIRECTORY"), "{condition}");
}

#[tokio::test(start_paused = true)]
async fn who_writes_a_policy_needs_the_rights_that_the_operator_uses_for_it() {
    let bench = Bench::start(4).await;
    let reviews = Reviews { machines: false, maintenance: false, failover: true };
    install::reviews(&bench.cluster.http, reviews).await.unwrap();
    let jane =
        Identity { name: "jane".into(), groups: vec!["system:authenticated".into()], ..Identity::default() };
    let client = kube::Client::new(Service::trusted(bench.cluster.api.clone(), jane), "default");
    let http = Http::new(client, bench.cluster.clock, Duration::ZERO);
    let send = async |method: &'static str, path: String, kind: &'static str, body: &Value| {
        let call = evac_api::kubevirt::request::send(method, path, kind, body);
        let answer = http.send(&call).await.unwrap();
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        (answer.status, body["message"].as_str().unwrap_or_default().to_owned())
    };
    let grant = async |name: &str, group: &str, resource: &str, verbs: &[&str], named: Option<&str>| {
        let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        if let Some(named) = named {
            rule["resourceNames"] = json!([named]);
        }
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let granted = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
        });
        assert_eq!(bench.cluster.create(&format!("{rbac}/clusterroles"), &granted).await.0, 201);
        assert_eq!(bench.cluster.create(&format!("{rbac}/clusterrolebindings"), &binding).await.0, 201);
    };
    let policy = json!({
        "apiVersion": "evac.dev/v1alpha1", "kind": "FailoverPolicy", "metadata": {"name": "p"},
        "spec": {
            "nodeSelector": {"matchLabels": {"pool": "vms"}}, "maxUnhealthy": 1,
            "proof": {"agent": {"command": "fence_x", "optionsSecret": {"namespace": "kubevirt", "name": "bmc"}}},
        },
    });
    grant("policies", "evac.dev", "failoverpolicies", &["create", "patch"], None).await;
    for (number, (resource, verb, named, lacking)) in [
        ("nodes", "patch", None, "patch nodes"),
        ("pods/eviction", "create", None, "create pods/eviction"),
        ("pods", "delete", None, "delete pods"),
        ("secrets", "get", Some("bmc"), "get secrets bmc in namespace kubevirt"),
    ]
    .into_iter()
    .enumerate()
    {
        let (code, said) = send("POST", POLICIES.into(), "application/json", &policy).await;
        assert_eq!(code, 403, "{said}");
        assert!(said.contains("user \"jane\" may not write failover policy p"), "{said}");
        assert!(said.ends_with(&format!("needs the right to {lacking}")), "{said}");
        grant(&format!("right-{number}"), "", resource, &[verb], named).await;
    }
    let (code, said) = send("POST", POLICIES.into(), "application/json", &policy).await;
    assert_eq!(code, 201, "{said}");
    // A change is as good as a new one; what the operator does not act on is free.
    let merge = "application/merge-patch+json";
    let path = format!("{POLICIES}/p");
    let other = json!({"spec": {"proof": {"agent": {"optionsSecret": {"name": "root"}}}}});
    let (code, said) = send("PATCH", path.clone(), merge, &other).await;
    assert_eq!(code, 403, "{said}");
    assert!(said.ends_with("get secrets root in namespace kubevirt"), "{said}");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send("PATCH", path, merge, &label).await.0, 200);
}
