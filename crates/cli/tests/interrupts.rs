//! Ctrl-C twice: the second one leaves at once, even while the server keeps a request waiting.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

use std::process::Stdio;
use std::time::Duration;

use evac_apiserver::front::Front;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_apiserver::service::Service;
use evac_clock::Clock;
use evac_world::{NodeSpec, Options, World};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const PATIENCE: Duration = Duration::from_secs(20);

async fn post(client: &kube::Client, path: &str, body: &Value) {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).unwrap();
    client.request_text(request).await.unwrap();
}

async fn interrupt(child: &Child) {
    let pid = child.id().expect("it is running").to_string();
    Command::new("kill").args(["-INT", &pid]).status().await.unwrap();
}

/// Reads lines until one has these words.
async fn line_with(lines: &mut tokio::io::Lines<BufReader<impl tokio::io::AsyncRead + Unpin>>, words: &str) {
    let reading = async {
        loop {
            let line = lines.next_line().await.unwrap().expect("the program went on talking");
            if line.contains(words) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("never said: {words}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_waits_for_the_request_under_way_and_the_second_leaves_at_once() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let clock = Clock::real();
    let api = Api::new(clock, Settings { seed: 1, ..Settings::default() });
    let front = Front::open(api.clone(), 0).await.unwrap();
    std::fs::write(&kubeconfig, &front.kubeconfig).unwrap();
    let client = kube::Client::new(Service::trusted(api.clone(), Identity::admin()), "default");
    let world = World::start(client.clone(), clock, Options::cluster(NodeSpec::workers(1)));
    world.idle().await;
    let pod = json!({
        "metadata": {"name": "a"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]}
    });
    post(&client, "/api/v1/namespaces/default/pods", &pod).await;
    world.idle().await;
    // A webhook that takes the call and never answers: evictions hang.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://127.0.0.1:{}/", silent.local_addr().unwrap().port());
    let hook = json!({
        "metadata": {"name": "silent"},
        "webhooks": [{
            "name": "silent.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30, "failurePolicy": "Fail", "clientConfig": {"url": url},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}],
        }]
    });
    post(&client, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", &hook).await;

    let mut child = Command::new(env!("CARGO_BIN_EXE_evac"))
        .args(["drain", "node-1", "--force"])
        .env("KUBECONFIG", &kubeconfig)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    line_with(&mut stdout, "evicting pod default/a").await;
    tokio::time::timeout(PATIENCE, silent.accept()).await.expect("the webhook is called").unwrap();
    interrupt(&child).await;
    line_with(&mut stderr, "press Ctrl-C again to leave at once").await;
    assert!(child.try_wait().unwrap().is_none(), "a request is under way, so it waits");
    interrupt(&child).await;
    let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("it leaves").unwrap();
    assert_eq!(status.code(), Some(6));
    world.stop().await;
    front.close().await;
}
