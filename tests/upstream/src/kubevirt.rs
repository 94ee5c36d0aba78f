//! KubeVirt's own control plane in place of ours, on a real API server with our simulated nodes.
//!
//! `virt-api` and `virt-controller` are upstream's, each with its own account and no other rights. What `virt-operator`
//! would have installed for them is printed by upstream's own code (`evac-kubevirt manifests`). Two things are put
//! differently: `virt-api` is a process beside the server, because nothing is routed to pods there, and the node agents
//! are simulated ones with the account of `virt-handler`, which may patch instances in every release.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use evac_api::kubevirt::crds;
use evac_core::machines::names;
use evac_engine::Http;
use evac_engine::operator::install;
use http::{HeaderValue, Method, Request};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::client::{Body, ClientBuilder};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::process::{Child, Command};
use tower::util::MapRequestLayer;

use crate::kubectl::{account, apply, kubectl};
use crate::kubernetes;
use crate::ready::served;

const NAMESPACE: &str = "kubevirt";
/// The account of the node agents.
const HANDLER: &str = "system:serviceaccount:kubevirt:kubevirt-handler";

/// Which release of KubeVirt; `tests/kubevirt` has the modules of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    Newest,
    Previous,
}

/// What upstream's operator would install, and a folder with the certificates it would mount. It is the same for every
/// cluster, and takes seconds to compute.
struct Installation {
    version: String,
    objects: Value,
    certificates: tempfile::TempDir,
}

/// Installs the newest release and starts it.
pub async fn start(http: &Http, kubeconfig: &Path) -> Vec<Child> {
    Release::Newest.start(http, kubeconfig).await
}

impl Release {
    /// Where tests and benchmarks are told about its programs.
    fn variable(self) -> &'static str {
        match self {
            Self::Newest => "EVAC_KUBEVIRT",
            Self::Previous => "EVAC_KUBEVIRT_PREVIOUS",
        }
    }

    /// Its programs, if this machine could build them.
    pub fn program(self) -> Option<PathBuf> {
        std::env::var_os(self.variable()).map(PathBuf::from)
    }

    fn installation(self) -> &'static Installation {
        static NEWEST: OnceLock<Installation> = OnceLock::new();
        static PREVIOUS: OnceLock<Installation> = OnceLock::new();
        let kept = match self {
            Self::Newest => &NEWEST,
            Self::Previous => &PREVIOUS,
        };
        kept.get_or_init(|| {
            let certificates = tempfile::tempdir().unwrap();
            let folder = certificates.path().to_str().unwrap();
            let objects = self.says(&["manifests", "--namespace", NAMESPACE, "--certificates", folder]);
            let objects = serde_json::from_str(&objects).unwrap();
            let version = self.says(&["virtctl", "version", "--client"]);
            let version = version.split('"').nth(1).expect("virtctl says its version").to_owned();
            Installation { version, objects, certificates }
        })
    }

    fn says(self, words: &[&str]) -> String {
        let mut command = std::process::Command::new(
            self.program().unwrap_or_else(|| panic!("{} is not set", self.variable())),
        );
        let said = command.args(words).output().expect("a program of KubeVirt can be run");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap()
    }

    /// Installs KubeVirt and starts it. The words of its programs go to files beside the kubeconfig.
    pub async fn start(self, http: &Http, kubeconfig: &Path) -> Vec<Child> {
        let client = http.client();
        // Bound and not listened on, no other process gets the port, and virt-api can still have it.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = socket.local_addr().unwrap().port();
        let objects = led_to(&self.installation().objects, port).to_string();
        apply(kubeconfig, &["--force-conflicts"], objects.as_bytes()).await;
        kubectl(kubeconfig, &["wait", "--for=condition=Established", "crd", "--all"]).await;
        // What of ours is beside KubeVirt; its own is there already.
        install::kinds(http).await.expect("the kinds can be installed");
        install::define(http, &[crds::hyperconverged()]).await.expect("so can a neighbour's");
        deployed(client, &self.installation().version).await;
        let api = self.run(kubeconfig, "virt-api", "kubevirt-apiserver", port).await;
        let controller = self.run(kubeconfig, "virt-controller", "kubevirt-controller", 0).await;
        served(client).await;
        let mut answer = String::new();
        let asking = async { while !is_held(client, &mut answer).await {} };
        let asked = tokio::time::timeout(Duration::from_secs(30), asking).await;
        assert!(asked.is_ok(), "new instances are not completed: {answer}");
        vec![api, controller]
    }

    /// Starts one of upstream's programs with its account.
    async fn run(self, kubeconfig: &Path, name: &str, owner: &str, port: u16) -> Child {
        let own = account(kubeconfig, NAMESPACE, owner).await;
        let log = std::fs::File::create(log(kubeconfig, name)).unwrap();
        let file = |secret: &str, file: &str| self.installation().certificates.path().join(secret).join(file);
        let certificates = match name {
            "virt-api" => vec![
                ("--tls-cert-file", file("kubevirt-virt-api-certs", "tls.crt")),
                ("--tls-key-file", file("kubevirt-virt-api-certs", "tls.key")),
                ("--handler-cert-file", file("kubevirt-virt-handler-certs", "tls.crt")),
                ("--handler-key-file", file("kubevirt-virt-handler-certs", "tls.key")),
            ],
            _ => vec![
                ("--prom-cert-file", file("kubevirt-controller-certs", "tls.crt")),
                ("--prom-key-file", file("kubevirt-controller-certs", "tls.key")),
            ],
        };
        let mut command =
            Command::new(self.program().unwrap_or_else(|| panic!("{} is not set", self.variable())));
        command
            .arg(name)
            .args(["--listen", "127.0.0.1", "--port", &port.to_string(), "--kubeconfig"])
            .arg(own);
        for (flag, path) in certificates {
            command.arg(flag).arg(path);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("a program of KubeVirt starts")
    }
}

/// The objects, with whatever leads to virt-api leading to a port of this machine, and the right that simulated node agents need.
///
/// The API server takes the host from a service that only names one, and the port from the object that names the service. Which name the
/// certificate has to bear is not changed by that.
fn led_to(objects: &Value, port: u16) -> Value {
    let mut objects = objects.clone();
    for object in objects["items"].as_array_mut().into_iter().flatten() {
        match object["kind"].as_str() {
            Some("Service") if object["metadata"]["name"] == "virt-api" => {
                object["spec"] = json!({"type": "ExternalName", "externalName": "127.0.0.1"});
            }
            // The simulated node agents send patches. virt-handler does since v1.8; the one before sends whole objects.
            Some("ClusterRole") if object["metadata"]["name"] == "kubevirt-handler" => {
                for rule in object["rules"].as_array_mut().into_iter().flatten() {
                    let names = rule["resources"].as_array();
                    if !names.is_some_and(|names| names.contains(&json!("virtualmachineinstances"))) {
                        continue;
                    }
                    if let Some(verbs) = rule["verbs"].as_array_mut()
                        && !verbs.contains(&json!("patch"))
                    {
                        verbs.push(json!("patch"));
                    }
                }
            }
            Some("APIService") => object["spec"]["service"]["port"] = json!(port),
            Some("ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
                for hook in object["webhooks"].as_array_mut().into_iter().flatten() {
                    hook["clientConfig"]["service"]["port"] = json!(port);
                }
            }
            _ => {}
        }
        // virt-operator writes it later.
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
    }
    objects
}

/// Where a program of KubeVirt writes what it does.
pub fn log(kubeconfig: &Path, name: &str) -> PathBuf {
    kubeconfig.with_file_name(format!("{name}.log"))
}

/// A client for simulated nodes: what is written about instances is written by the account of virt-handler, whom alone
/// virt-api lets say on which node a guest is.
pub async fn agents(kubeconfig: &Path) -> kube::Client {
    let layer = MapRequestLayer::new(|mut request: Request<Body>| {
        if request.method() != Method::GET && request.uri().path().starts_with("/apis/kubevirt.io/") {
            request.headers_mut().insert("impersonate-user", HeaderValue::from_static(HANDLER));
        }
        request
    });
    ClientBuilder::try_from(kubernetes::config(kubeconfig).await).unwrap().with_layer(&layer).build()
}

/// Whether an instance would get what virt-api adds to it, and what the server said: nothing tells when the server has taken a configuration in, but what
/// comes of it does.
async fn is_held(client: &kube::Client, answer: &mut String) -> bool {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let spec = json!({"spec": {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}});
    let nobody = DynamicObject::new("nobody", &kind).data(spec);
    let only_asked = PostParams { dry_run: true, ..PostParams::default() };
    let made = api.create(&only_asked, &nobody).await;
    *answer = format!("{made:?}");
    let finalizers = made.map(|made| made.metadata.finalizers.unwrap_or_default()).unwrap_or_default();
    finalizers.iter().any(|one| one == names::INSTANCE_FINALIZER)
}

/// Says what KubeVirt's operator says when it has installed everything.
async fn deployed(client: &kube::Client, version: &str) {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &kind);
    let status = json!({"status": {
        "phase": "Deployed", "observedKubeVirtVersion": version, "defaultArchitecture": "amd64",
    }});
    // As its administrators have it where guests are to move: on a bridge, which is the default, they cannot.
    let spec = json!({"spec": {"configuration": {"network": {"defaultNetworkInterface": "masquerade"}}}});
    api.patch("kubevirt", &PatchParams::default(), &Patch::Merge(&spec)).await.unwrap();
    api.patch_status("kubevirt", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}
