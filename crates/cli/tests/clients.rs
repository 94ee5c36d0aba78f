//! Clients that were not written for the sandbox work on its TCP front: the kube crate's watcher and
//! reflector, and a real kube-scheduler. And evac reaches it through a proxy, as a kubeconfig may ask for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test that cannot go on should say where, and what was left out"
)]

use std::process::Stdio;
use std::time::Duration;

use evac_apiserver::front::Front;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_apiserver::service::Service;
use evac_clock::Clock;
use evac_world::{NodeSpec, Options, World};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Sandbox {
    front: Front,
    world: World,
    dir: tempfile::TempDir,
}

impl Sandbox {
    async fn start(options: Options) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let clock = Clock::real();
        let api = Api::new(clock, Settings::default());
        let inside = kube::Client::new(Service::trusted(api.clone(), Identity::admin()), "default");
        let world = World::start(inside, clock, options);
        world.idle().await;
        let front = Front::open(api, 0).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("kubeconfig"), &front.kubeconfig).unwrap();
        Self { front, world, dir }
    }

    /// A client over TCP and TLS, as any other program would have it.
    async fn client(&self) -> kube::Client {
        let read = kube::config::Kubeconfig::from_yaml(&self.front.kubeconfig).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        kube::Client::try_from(kube::Config::from_custom_kubeconfig(read, &options).await.unwrap()).unwrap()
    }

    async fn stop(self) {
        self.world.stop().await;
        self.front.close().await;
    }
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "b"}})).unwrap()
}

async fn reflected(config: watcher::Config) {
    let sandbox = Sandbox::start(Options::cluster(Vec::new())).await;
    let api: kube::Api<ConfigMap> = kube::Api::namespaced(sandbox.client().await, "default");
    api.create(&PostParams::default(), &map("before")).await.unwrap();
    let (reader, writer) = reflector::store();
    let stream = watcher(api.clone(), config).reflect(writer).applied_objects();
    let mut stream = std::pin::pin!(stream);
    let seen = async {
        let mut names = Vec::new();
        while let Some(object) = stream.next().await {
            names.push(object.unwrap().metadata.name.unwrap());
            if names.len() == 1 {
                api.create(&PostParams::default(), &map("after")).await.unwrap();
            }
            if names.iter().any(|n| n == "after") {
                break;
            }
        }
        names
    };
    let names = tokio::time::timeout(Duration::from_secs(20), seen).await.unwrap();
    assert!(names.contains(&"before".to_owned()), "{names:?}");
    assert!(reader.state().iter().any(|object| object.metadata.name.as_deref() == Some("after")));
    api.delete("before", &DeleteParams::default()).await.unwrap();
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kube_watcher_follows_by_list_and_watch() {
    reflected(watcher::Config::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kube_watcher_follows_by_streaming_list() {
    reflected(watcher::Config::default().streaming_lists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_kube_scheduler_places_pods_of_the_sandbox() {
    let Some(program) = std::env::var_os("EVAC_KUBERNETES") else {
        skip("a real kube-scheduler on the sandbox: needs the real Kubernetes programs");
        return;
    };
    let options = Options { scheduler: false, ..Options::cluster(NodeSpec::workers(3)) };
    let sandbox = Sandbox::start(options).await;
    let mut scheduler = tokio::process::Command::new(program)
        .args(["kube-scheduler", "--leader-elect=false", "--kube-api-content-type=application/json"])
        .args(["--secure-port=0", "--kubeconfig"])
        .arg(sandbox.dir.path().join("kubeconfig"))
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(sandbox.dir.path().join("scheduler.log")).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pods: kube::Api<Pod> = kube::Api::namespaced(sandbox.client().await, "default");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "placed"},
        "spec": {"nodeSelector": {"topology.kubernetes.io/zone": "b"},
                 "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let running =
        kube::runtime::wait::await_condition(pods, "placed", kube::runtime::conditions::is_pod_running());
    let placed = tokio::time::timeout(Duration::from_secs(60), running).await;
    let log = std::fs::read_to_string(sandbox.dir.path().join("scheduler.log")).unwrap();
    let placed = placed.unwrap_or_else(|_| panic!("not placed; the scheduler said:\n{log}")).unwrap();
    assert_eq!(placed.unwrap().spec.unwrap().node_name.as_deref(), Some("node-2"));
    scheduler.kill().await.unwrap();
    sandbox.stop().await;
}

/// A proxy as companies have it: it connects those who ask for it, and says to whom.
async fn proxy(listener: tokio::net::TcpListener, asked: tokio::sync::mpsc::UnboundedSender<String>) {
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let asked = asked.clone();
        tokio::spawn(async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap();
            let mut server = tokio::net::TcpStream::connect(target).await.unwrap();
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            asked.send(target.to_owned()).unwrap();
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_behind_a_proxy_is_reached_through_it() {
    let sandbox = Sandbox::start(Options::cluster(NodeSpec::workers(1))).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, mut targets) = tokio::sync::mpsc::unbounded_channel();
    let proxy = tokio::spawn(proxy(listener, asked));
    let mut config = kube::config::Kubeconfig::from_yaml(&sandbox.front.kubeconfig).unwrap();
    config.clusters[0].cluster.as_mut().unwrap().proxy_url = Some(format!("http://{address}"));
    let path = sandbox.dir.path().join("behind-a-proxy");
    std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_evac"))
        .args(["cordon", "node-1", "--kubeconfig"])
        .arg(&path)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "node/node-1 cordoned\n");
    assert_eq!(targets.try_recv().unwrap(), sandbox.front.address.to_string());
    proxy.abort();
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_of_the_environment_is_not_for_this_machine() {
    let sandbox = Sandbox::start(Options::cluster(NodeSpec::workers(1))).await;
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_evac"))
        .args(["cordon", "node-1", "--kubeconfig"])
        .arg(sandbox.dir.path().join("kubeconfig"))
        // Nobody listens there.
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    sandbox.stop().await;
}

fn skip(why: &str) {
    use std::io::Write as _;
    eprintln!("skipped: {why}");
    if let Some(path) = std::env::var_os("EVAC_SKIPPED")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(path)
    {
        let _ = writeln!(file, "{why}");
    }
}
