//! `evac operator` beside KubeVirt: a cluster whose KubeVirt object says Deployed and whose Service virt-api is KubeVirt's own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use evac_api::Call;
use evac_api::kubevirt::{crds, request};
use evac_apiserver::front::Front;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::{Api, Settings};
use evac_apiserver::service::Service;
use evac_clock::Clock;
use evac_engine::Http;
use evac_engine::operator::install;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

const PATIENCE: Duration = Duration::from_secs(20);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SERVICES: &str = "/api/v1/namespaces/kubevirt/services";
const SECRETS: &str = "/api/v1/namespaces/kubevirt/secrets";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kubevirt/leases";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

struct Cluster {
    http: Http,
    dir: tempfile::TempDir,
    front: Front,
    _api: Arc<Api>,
}

impl Cluster {
    async fn empty() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::real();
        let api = Api::new(clock, Settings { seed: 1, ..Settings::default() });
        let front = Front::open(api.clone(), 0).await.unwrap();
        std::fs::write(dir.path().join("kubeconfig"), &front.kubeconfig).unwrap();
        let client = kube::Client::new(Service::trusted(api.clone(), Identity::admin()), "default");
        Self { http: Http::new(client, clock, Duration::ZERO), dir, front, _api: api }
    }

    /// With what virt-operator leaves of itself.
    async fn with_kubevirt() -> Self {
        let cluster = Self::empty().await;
        install::namespace(&cluster.http, "kubevirt").await.unwrap();
        // KubeVirt's own definitions lack a kind that evac would define if it defined any.
        let theirs: Vec<Value> =
            crds::all().into_iter().filter(|one| one["spec"]["names"]["kind"] != "VirtualMachine").collect();
        install::define(&cluster.http, &theirs).await.unwrap();
        let kubevirt = json!({"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"}, "spec": {}});
        let path = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts";
        cluster.create(path, &kubevirt).await;
        let status = json!({"status": {"phase": "Deployed", "observedKubeVirtVersion": "v1.8.0"}});
        let merge = "application/merge-patch+json";
        let call = request::send("PATCH", format!("{path}/kubevirt/status"), merge, &status);
        assert!(cluster.http.send(&call).await.unwrap().is_success());
        cluster.service("virt-api").await;
        cluster
    }

    async fn create(&self, path: &str, object: &Value) {
        let answer = self.http.send(&request::create(path, object)).await.unwrap();
        assert!(answer.is_success(), "{}", String::from_utf8_lossy(&answer.body));
    }

    /// A Service that is not evac's.
    async fn service(&self, name: &str) {
        let spec = json!({"ports": [{"port": 443}], "selector": {"kubevirt.io": name}});
        let service =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
        self.create(SERVICES, &service).await;
    }

    async fn names(&self, path: &str) -> Vec<String> {
        let answer = self.http.send(&Call::get(path)).await.unwrap();
        assert!(answer.is_success(), "{path}: {}", String::from_utf8_lossy(&answer.body));
        let list: Value = serde_json::from_slice(&answer.body).unwrap();
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
        list["items"].as_array().unwrap().iter().map(name).collect()
    }

    fn operator(&self, args: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_evac"))
            .arg("operator")
            .args(args)
            .env("KUBECONFIG", self.dir.path().join("kubeconfig"))
            .env_remove("POD_NAMESPACE")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// Runs an operator until it says that it runs; gives what it said.
    async fn runs(&self, args: &[&str]) -> (Child, String) {
        let mut child = self.operator(args);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let listening = async {
            while !said.contains("running; Ctrl-C") {
                let line = lines.next_line().await.unwrap();
                said += &line.unwrap_or_else(|| panic!("it ended:\n{said}"));
                said.push('\n');
            }
        };
        tokio::time::timeout(PATIENCE, listening).await.expect("it runs in time");
        (child, said)
    }

    /// Runs an operator that ends by itself; gives its number and what it said.
    async fn ends(&self, args: &[&str]) -> (i32, String) {
        let mut child = self.operator(args);
        let mut said = String::new();
        let mut stderr = child.stderr.take().unwrap();
        let waiting = async {
            stderr.read_to_string(&mut said).await.unwrap();
            child.wait().await.unwrap()
        };
        let status = tokio::time::timeout(PATIENCE, waiting).await.expect("it ends in time");
        (status.code().unwrap(), said)
    }

    /// What of an operator is in the cluster.
    async fn traces(&self) -> Vec<String> {
        let mut all = Vec::new();
        for path in [SECRETS, LEASES, HOOKS, SERVICES] {
            all.extend(self.names(path).await);
        }
        all
    }

    async fn close(self) {
        self.front.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_kubevirt_it_serves_under_its_own_name_and_defines_no_kind_of_another_product() {
    let cluster = Cluster::with_kubevirt().await;
    let (mut child, said) = cluster.runs(&["--install", "--listen", "127.0.0.1:0"]).await;
    assert!(said.contains("beside KubeVirt v1.8.0 (phase Deployed), which does its own part"), "{said}");
    assert!(said.contains("roles tenants,maintenance"), "{said}");
    assert_eq!(cluster.names(SERVICES).await, ["evac", "virt-api"]);
    let kinds = cluster.names(DEFINITIONS).await;
    assert!(kinds.iter().any(|name| name == "nodemaintenances.nodemaintenance.medik8s.io"), "{kinds:?}");
    for foreign in ["hyperconvergeds.hco.kubevirt.io", "virtualmachines.kubevirt.io"] {
        assert!(!kinds.iter().any(|name| name == foreign), "{foreign} is not ours to define: {kinds:?}");
    }
    child.kill().await.unwrap();
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_kubevirt_machines_are_defined_and_hyperconverged_is_not() {
    let cluster = Cluster::empty().await;
    let (mut child, said) = cluster.runs(&["--install", "--listen", "127.0.0.1:0"]).await;
    assert!(said.contains("roles machines,evacuation,budget,tenants,maintenance"), "{said}");
    assert_eq!(cluster.names(SERVICES).await, ["virt-api"]);
    let kinds = cluster.names(DEFINITIONS).await;
    assert!(kinds.iter().any(|name| name == "virtualmachines.kubevirt.io"), "{kinds:?}");
    assert!(!kinds.iter().any(|name| name.starts_with("hyperconvergeds")), "{kinds:?}");
    child.kill().await.unwrap();
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_names_the_flag_and_leaves_nothing() {
    let cluster = Cluster::with_kubevirt().await;
    cluster.service("evac").await;
    let before = cluster.traces().await;
    let kinds = cluster.names(DEFINITIONS).await;
    let (exit, said) = cluster.ends(&["--install", "--listen", "127.0.0.1:0"]).await;
    assert_eq!(exit, 1, "{said}");
    assert!(said.contains("Service evac is there already and is not evac's"), "{said}");
    assert!(said.contains("--service-name"), "{said}");
    assert_eq!(cluster.traces().await, before);
    assert_eq!(cluster.names(DEFINITIONS).await, kinds);
    cluster.close().await;
}

/// The check beforehand passes, and the server refuses what is written then.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_before_a_refusal_is_removed_again() {
    let cluster = Cluster::with_kubevirt().await;
    let no = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "no"},
        "webhooks": [{
            "name": "no.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]}],
        }],
    });
    cluster.create(HOOKS, &no).await;
    let before = cluster.traces().await;
    let (exit, said) = cluster.ends(&["--listen", "127.0.0.1:0"]).await;
    assert_eq!(exit, 1, "{said}");
    assert!(said.contains("Service evac could not be written"), "{said}");
    assert_eq!(cluster.traces().await, before, "{said}");
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_control_plane_is_refused_and_what_is_done_twice_is_warned_of() {
    let cluster = Cluster::with_kubevirt().await;
    let before = cluster.traces().await;
    let (exit, said) = cluster.ends(&["--roles", "all", "--install"]).await;
    assert_eq!(exit, 5, "{said}");
    assert!(
        said.contains("guests could run twice") && said.contains("--roles tenants,maintenance"),
        "{said}"
    );
    assert_eq!(cluster.traces().await, before);
    let (mut child, said) = cluster.runs(&["--roles", "budget,maintenance"]).await;
    assert!(said.contains("does budget itself, so that is done twice here"), "{said}");
    assert!(!said.contains("cannot be started"), "machines are KubeVirt's: {said}");
    child.kill().await.unwrap();
    cluster.close().await;
}
