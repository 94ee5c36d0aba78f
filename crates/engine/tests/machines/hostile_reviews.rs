//! Reviews that the API server did not send, or that say what no API server would: answered with one sentence at most, and nothing
//! is written.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use evac_api::Call;
use evac_api::kubevirt::request::create;
use evac_api::kubevirt::review::{EVICTION_PATH, MACHINE_PATH, MIGRATION_CREATE_PATH};
use evac_api::maintenance::review::PATH as MAINTENANCE_PATH;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::cluster::VMIS;
use crate::guests::PODS;
use crate::https::{Bench, get, message, post};

/// A guest that runs on node-1, and the pod it runs in.
pub async fn guest(bench: &Bench, name: &str, strategy: &str) {
    let vmi = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"evictionStrategy": strategy, "domain": {"devices": {}}},
        "status": {
            "phase": "Running", "nodeName": "node-1",
            "conditions": [{"type": "LiveMigratable", "status": "True"}],
        },
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("virt-launcher-{name}-x"), "namespace": "default",
            "labels": {"kubevirt.io": "virt-launcher"},
            "annotations": {"kubevirt.io/domain": name},
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "compute", "image": "example/launcher"}]},
        "status": {"phase": "Running"},
    });
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    bench.http.send(&create("/api/v1/namespaces/default/serviceaccounts", &account)).await.unwrap();
    for (path, object) in [(VMIS, vmi), (PODS, pod)] {
        let answer = bench.http.send(&create(path, &object)).await.unwrap();
        assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
    }
}

/// What an API server asks about the eviction of a pod.
pub fn eviction(pod: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r1", "operation": "CREATE", "namespace": "default", "name": pod,
            "kind": {"group": "policy", "version": "v1", "kind": "Eviction"},
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "eviction",
            "userInfo": {"username": "ann", "groups": ["system:authenticated"]},
            "object": {
                "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": pod, "namespace": "default"},
            },
            "dryRun": false,
        },
    })
}

/// The path that the webhook configuration has for `path`.
pub fn published(bench: &Bench, path: &str) -> String {
    bench.server.identity().borrow().as_ref().unwrap().pass.published(path)
}

async fn mark(bench: &Bench, name: &str) -> Value {
    let vmi: Value = bench.http.read(&Call::get(format!("{VMIS}/{name}"))).await.unwrap();
    vmi["status"]["evacuationNodeName"].clone()
}

/// The requests by which something could have been written since the first `since`.
fn writes(bench: &Bench, since: usize) -> Vec<String> {
    let is_write = |line: &String| !line.starts_with("GET ") && !line.contains("dryRun=All");
    bench.wire.requests().into_iter().skip(since).filter(is_write).collect()
}

/// Everything that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Logs of this thread go here until the guard is dropped.
    fn keep(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// What is sent, and what comes back: the HTTP status, whether the request would be let through, and how the sentence begins.
struct Case {
    name: &'static str,
    path: String,
    body: Bytes,
    code: u16,
    allowed: Option<bool>,
    says: &'static str,
}

/// Only a test that fails waits for it.
const LONG: Duration = Duration::from_secs(10);
const NOT_SENT: &str = "this review did not come by the path in the operator's webhook configuration";
const NO_REVIEW: &str = "this is not an admission review: ";
const NO_EVICTION: &str = "this is not a review of an eviction: ";

/// A review of the eviction of the guest's pod with one thing changed.
fn changed(pointer: &str, value: Value) -> Bytes {
    let mut review = eviction("virt-launcher-a-x");
    if let Some(place) = review.pointer_mut(pointer) {
        *place = value;
    } else {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        review.pointer_mut(parent).unwrap()[name] = value;
    }
    review.to_string().into()
}

/// Paths that are not the API server's.
fn wrong_paths(bench: &Bench) -> Vec<Case> {
    let right = published(bench, EVICTION_PATH);
    let (tag, _) = evac_api::kubevirt::review::split(&right).unwrap();
    let other = published(bench, MACHINE_PATH);
    let (other, _) = evac_api::kubevirt::review::split(&other).unwrap();
    let case = |name, path: String, code, says| Case {
        name,
        path,
        body: eviction("virt-launcher-ext-x").to_string().into(),
        code,
        allowed: None,
        says,
    };
    vec![
        case("the plain path", EVICTION_PATH.into(), 403, NOT_SENT),
        case(
            "the plain path, with a question",
            format!("{EVICTION_PATH}?tag={}", "0".repeat(64)),
            403,
            NOT_SENT,
        ),
        case("the plain path for migrations", MIGRATION_CREATE_PATH.into(), 403, NOT_SENT),
        case("the plain path for maintenances", MAINTENANCE_PATH.into(), 403, NOT_SENT),
        case("a guessed tag", format!("/review/{}{EVICTION_PATH}", "0".repeat(64)), 403, NOT_SENT),
        case("half a tag", format!("/review/{}{EVICTION_PATH}", &tag[..32]), 403, NOT_SENT),
        case("a tag in capitals", format!("/review/{}{EVICTION_PATH}", tag.to_uppercase()), 403, NOT_SENT),
        case("no tag", format!("/review/{EVICTION_PATH}"), 403, NOT_SENT),
        case("the tag of another path", format!("/review/{other}{EVICTION_PATH}"), 403, NOT_SENT),
        case("a path that goes on", format!("{right}/"), 403, NOT_SENT),
        case("a path that goes up", format!("/review/{tag}/..{EVICTION_PATH}"), 403, NOT_SENT),
        case("a path in other letters", format!("/review/{tag}/pod%2Deviction-validate"), 403, NOT_SENT),
        case("a path above the root", format!("/..{EVICTION_PATH}"), 404, "nothing is served at /../pod-"),
        case("two slashes", format!("/{EVICTION_PATH}"), 404, "nothing is served at //pod-"),
    ]
}

/// Bodies that no API server sends, by its own path.
fn wrong_bodies(bench: &Bench) -> Vec<Case> {
    let path = published(bench, EVICTION_PATH);
    let http =
        |name, body: Bytes, code, says| Case { name, path: path.clone(), body, code, allowed: None, says };
    let answered = |name, body: Bytes, allowed, says| Case {
        name,
        path: path.clone(),
        body,
        code: 200,
        allowed: Some(allowed),
        says,
    };
    let good = eviction("virt-launcher-a-x").to_string();
    let twice = good.replacen("\"request\":", "\"request\":{\"uid\":\"r0\"},\"request\":", 1);
    let twice = twice.replace("virt-launcher-a-x", "virt-launcher-none");
    vec![
        http("nothing", Bytes::new(), 400, NO_REVIEW),
        http("half a review", good[..good.len() / 2].to_owned().into(), 400, NO_REVIEW),
        http("a list", "[]".into(), 400, NO_REVIEW),
        http("a deep nest", "[".repeat(50_000).into(), 400, NO_REVIEW),
        http("no text", Bytes::from_static(b"{\"kind\": \"\xff\xfe\"}"), 400, NO_REVIEW),
        http("another kind", changed("/kind", json!("Pod")), 400, NO_REVIEW),
        http("another version", changed("/apiVersion", json!("admission.k8s.io/v1beta1")), 400, NO_REVIEW),
        http("no request", changed("/request", Value::Null), 400, NO_REVIEW),
        http("no uid", changed("/request/uid", Value::Null), 400, NO_REVIEW),
        http("a uid that is a number", changed("/request/uid", json!(7)), 400, NO_REVIEW),
        http("a huge uid", changed("/request/uid", json!("u".repeat(100_000))), 400, NO_REVIEW),
        http("too large", vec![b' '; 9 << 20].into(), 413, "the request is larger than 8388608 bytes"),
        http("too many parts", b"{\"\":0},".repeat(200_000).into(), 413, "the review has too many parts"),
        answered("another operation", changed("/request/operation", json!("DELETE")), false, NO_EVICTION),
        answered("no subresource", changed("/request/subResource", Value::Null), false, NO_EVICTION),
        answered(
            "another resource",
            changed("/request/resource/resource", json!("nodes")),
            false,
            NO_EVICTION,
        ),
        answered(
            "an object of another kind",
            changed("/request/object/kind", json!("Pod")),
            false,
            NO_EVICTION,
        ),
        answered("no object", changed("/request/object", Value::Null), false, NO_EVICTION),
        answered(
            "an object of another name",
            changed("/request/object/metadata/name", json!("b")),
            false,
            NO_EVICTION,
        ),
        answered(
            "an object of another namespace",
            changed("/request/object/metadata/namespace", json!("kube-system")),
            false,
            NO_EVICTION,
        ),
        answered("no name", changed("/request/name", json!("")), false, NO_EVICTION),
        answered(
            "a name with a slash",
            changed("/request/name", json!("a/../../secrets/s")),
            false,
            NO_EVICTION,
        ),
        answered("a name with a line break", changed("/request/name", json!("a\nb")), false, NO_EVICTION),
        answered(
            "an escaped name",
            changed("/request/name", json!("virt-launcher-a-x%3Fforce=true")),
            false,
            NO_EVICTION,
        ),
        answered(
            "a namespace that is a list",
            changed("/request/namespace", json!(["default"])),
            false,
            NO_EVICTION,
        ),
        answered("a trial", changed("/request/dryRun", json!(true)), false, "Eviction triggered evacuation"),
        answered(
            "a trial by its options",
            changed("/request/object/deleteOptions", json!({"dryRun": ["All"]})),
            false,
            "Eviction triggered evacuation",
        ),
        answered(
            "another incarnation",
            changed("/request/object/deleteOptions", json!({"preconditions": {"uid": "another"}})),
            true,
            "",
        ),
        answered("a request said twice", twice.into(), true, ""),
        answered("a pod that is no guest's", eviction("web").to_string().into(), true, ""),
        answered("a pod that is not there", eviction("virt-launcher-none").to_string().into(), true, ""),
    ]
}

async fn check(bench: &Bench, case: Case) {
    let Case { name, path, body, code, allowed, says } = case;
    let request = Request::post(path.as_str())
        .header("Impersonate-User", "root")
        .header("Impersonate-Group", "system:masters")
        .header("X-Remote-User", "root")
        .body(Full::new(body))
        .unwrap();
    let (answered, body) = bench.ask(None, request).await;
    assert_eq!(answered, code, "{name}: {body}");
    let said = if code == 200 {
        body["response"]["status"]["message"].as_str().unwrap_or_default()
    } else {
        message(&body)
    };
    assert!(said.starts_with(says) && !said.contains('\n') && said.len() < 400, "{name}: {said}");
    assert_eq!(body["response"]["allowed"].as_bool(), allowed, "{name}: {body}");
}

#[tokio::test]
async fn every_hostile_review_gets_one_sentence_and_nothing_is_written_or_given_away() {
    let bench = Bench::start().await;
    guest(&bench, "a", "LiveMigrate").await;
    guest(&bench, "ext", "External").await;
    let web = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "web", "image": "example/web"}]},
    });
    assert_eq!(bench.http.send(&create(PODS, &web)).await.unwrap().status, 201);
    let log = Log::default();
    let keeping = log.keep();
    let before = bench.wire.requests().len();
    let cases: Vec<Case> = wrong_paths(&bench).into_iter().chain(wrong_bodies(&bench)).collect();
    assert!(cases.len() >= 40, "{}", cases.len());
    for case in cases {
        check(&bench, case).await;
    }
    let path = published(&bench, EVICTION_PATH);
    let (code, body) = bench.ask(None, get(&path)).await;
    assert_eq!((code, message(&body)), (405, "reviews are sent by POST"));
    assert_eq!(writes(&bench, before), Vec::<String>::new());
    for name in ["a", "ext"] {
        assert_eq!(mark(&bench, name).await, Value::Null, "{name}");
    }
    let (tag, _) = evac_api::kubevirt::review::split(&path).unwrap();
    drop(keeping);
    assert!(!log.text().contains(tag) && !log.text().contains("-----BEGIN"), "{}", log.text());

    // The same by the right path, in the right form, is the API server's.
    let (code, body) = bench.ask(None, post(&path, eviction("virt-launcher-a-x").to_string())).await;
    assert_eq!((code, &body["response"]["status"]["code"]), (200, &json!(429)), "{body}");
    assert_eq!(mark(&bench, "a").await, "node-1");
    assert_eq!(writes(&bench, before).len(), 1, "the traps would have noticed");
}

#[tokio::test]
async fn a_body_without_end_is_not_read_to_its_end() {
    let bench = Bench::start().await;
    let mut stream = bench.connect(None).await;
    let head = format!("POST {MACHINE_PATH} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = [b"1000\r\n".as_slice(), &[b' '; 0x1000], b"\r\n"].concat();
    let mut sent = 0;
    let mut answer = [0; 12];
    let (mut reading, mut writing) = tokio::io::split(stream);
    let answered = reading.read_exact(&mut answer);
    tokio::pin!(answered);
    loop {
        tokio::select! {
            biased;
            read = &mut answered => { read.unwrap(); break; }
            written = writing.write_all(&chunk) => {
                if written.is_err() { answered.as_mut().await.unwrap(); break; }
                sent += 1;
            }
        }
    }
    assert_eq!(&answer, b"HTTP/1.1 413");
    assert!(sent < 1000, "{sent} pieces of 4 KiB were taken");
}

/// More connections than there is room for, each with a part of a large body that never goes on.
#[tokio::test]
async fn many_who_send_a_part_of_a_large_body_keep_nobody_else_out() {
    let bench = Bench::start().await;
    guest(&bench, "a", "LiveMigrate").await;
    let mut strangers = Vec::new();
    for number in 0..150 {
        let mut stream = bench.connect(None).await;
        let head = format!("POST {MACHINE_PATH} HTTP/1.1\r\nhost: a\r\ncontent-length: 65536\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&[b' '; 1000]).await.unwrap();
        stream.flush().await.unwrap();
        strangers.push(stream);
        if number == 70 {
            let path = published(&bench, EVICTION_PATH);
            let (code, body) = bench.ask(None, post(&path, eviction("virt-launcher-a-x").to_string())).await;
            assert_eq!((code, &body["response"]["status"]["code"]), (200, &json!(429)), "{body}");
        }
    }
    let path = published(&bench, EVICTION_PATH);
    let (code, body) = bench.ask(None, post(&path, eviction("virt-launcher-a-x").to_string())).await;
    assert_eq!((code, &body["response"]["status"]["code"]), (200, &json!(429)), "{body}");
    // The first of them had to make way.
    for stream in &mut strangers[..50] {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(LONG, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "it is still open");
    }
    bench.server.close().await;
}

#[tokio::test]
async fn a_review_that_the_api_server_did_not_send_moves_nobody() {
    let bench = Bench::start().await;
    guest(&bench, "a", "LiveMigrate").await;
    guest(&bench, "ext", "External").await;
    for name in ["a", "ext"] {
        let review = eviction(&format!("virt-launcher-{name}-x"));
        let (code, body) = bench.ask(None, post("/pod-eviction-validate", review.to_string())).await;
        assert_eq!(mark(&bench, name).await, Value::Null, "{name}: {code} {body}");
    }
}
