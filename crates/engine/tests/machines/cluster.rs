//! A cluster with virtual machines in paused time: the embedded server, simulated nodes and hypervisors, and the operator.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use evac_api::Call;
use evac_api::kubevirt::{NAMESPACE, request, review};
use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_apiserver::reply::Reply;
use evac_apiserver::server::{Api, Settings};
use evac_clock::Clock;
use evac_core::machines::Roles;
use evac_engine::Http;
use evac_engine::operator::publish::Reviews;
use evac_engine::operator::{Operator, Reviewer, Who, install, power};
use evac_world::{NodeSpec, Options, World, aftermath};
use http::Request;
use serde_json::{Value, json};

/// Changes that were refused, each with what else was looked at then.
pub type Asked = Arc<Mutex<Vec<(Value, Value)>>>;

const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

pub struct Cluster {
    pub api: Arc<Api>,
    pub http: Http,
    pub clock: Clock,
    #[allow(dead_code, reason = "kept alive; the tests of failovers switch its nodes off")]
    pub world: World,
    pub operator: Operator,
}

impl Cluster {
    pub async fn start(nodes: usize) -> Self {
        Self::start_roles(nodes, Roles::all()).await
    }

    pub async fn start_roles(nodes: usize, roles: Roles) -> Self {
        Self::start_in(Options::cluster(NodeSpec::workers(nodes)), roles).await
    }

    /// With these parts of a cluster and no others.
    pub async fn start_in(options: Options, roles: Roles) -> Self {
        let nodes = options.nodes.len();
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let api = Api::new(clock, Settings { seed: 7, ..Settings::default() });
        let client = kube::Client::new(Service::trusted(api.clone(), Identity::admin()), "default");
        let http = Http::new(client.clone(), clock, Duration::ZERO);
        install::kinds(&http).await.unwrap();
        let world = World::start(client, clock, Options { seed: 7, ..options });
        world.answer_for_agents(&api);
        let operator = Operator::start_roles(http.clone(), roles);
        serve(&api, &http, &operator);
        install::reviews(&http, Reviews::of(&Roles::all())).await.unwrap();
        let cluster = Self { api, http, clock, world, operator };
        for n in 1..=nodes {
            let path = format!("/api/v1/nodes/node-{n}");
            cluster
                .until(&path, |node| node["metadata"]["labels"]["kubevirt.io/schedulable"] == "true")
                .await;
        }
        cluster
    }

    pub async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.http.send(&Call::get(path)).await.unwrap();
        answer.is_success().then(|| serde_json::from_slice(&answer.body).unwrap())
    }

    pub async fn create(&self, path: &str, object: &Value) -> (u16, Value) {
        self.send("POST", path, "application/json", object).await
    }

    pub async fn send(
        &self,
        method: &'static str,
        path: &str,
        kind: &'static str,
        body: &Value,
    ) -> (u16, Value) {
        let answer = self.http.send(&request::send(method, path.to_owned(), kind, body)).await.unwrap();
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    /// Waits in simulated time until an object is as it should be.
    pub async fn until(&self, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..6000 {
            last = self.get(path).await.unwrap_or_default();
            if condition(&last) {
                return last;
            }
            self.clock.sleep(Duration::from_millis(100)).await;
        }
        panic!("waited ten minutes for {path}; it is {last:#}");
    }

    /// From here on every change of this resource is refused; what was asked for is kept, with what `look` was at that moment.
    pub async fn refuse_writes(&self, resource: &str, look: &str) -> Asked {
        let asked = Asked::default();
        let (seen, http, look) = (asked.clone(), self.http.clone(), look.to_owned());
        let handler = move |review: Value| {
            let (seen, http, look) = (seen.clone(), http.clone(), look.clone());
            Box::pin(async move {
                let answer = http.send(&Call::get(look)).await.map_err(|error| error.to_string())?;
                let then: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                let uid = review["request"]["uid"].clone();
                seen.lock().unwrap().push((review["request"]["object"].clone(), then));
                Ok(json!({
                    "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                    "response": {"uid": uid, "allowed": false, "status": {"code": 403, "message": "not today"}},
                }))
            }) as futures::future::BoxFuture<'static, Result<Value, String>>
        };
        self.api.webhooks().register(NAMESPACE, "no", "/no", Arc::new(handler));
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "no"},
            "webhooks": [{
                "name": "no.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"service": {"namespace": NAMESPACE, "name": "no", "path": "/no"}},
                "rules": [{
                    "apiGroups": ["kubevirt.io"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                    "resources": [resource],
                }],
            }],
        });
        let (code, body) = self.create(HOOKS, &configuration).await;
        assert_eq!(code, 201, "{body}");
        asked
    }

    pub async fn allow_writes(&self) {
        let (code, body) = self.send("DELETE", &format!("{HOOKS}/no"), "application/json", &json!({})).await;
        assert_eq!(code, 200, "{body}");
    }

    /// The end of a test: when nothing more is said, everything that is said is what kubelets and hypervisors know.
    #[allow(dead_code, reason = "the tests of machines end with it")]
    pub async fn rest(&self) {
        let limit = Duration::from_secs(120);
        let wrong = aftermath::at_rest(&self.world, self.http.client(), self.clock, limit).await.unwrap();
        assert!(wrong.is_empty(), "what is said is not true:\n{}", wrong.join("\n"));
    }

    pub async fn pass_millis(&self, millis: u64) {
        self.clock.sleep(Duration::from_millis(millis)).await;
    }

    /// Lets simulated time pass.
    pub async fn pass(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }
}

fn serve(api: &Arc<Api>, http: &Http, operator: &Operator) {
    let reviewer = Reviewer::new(http.clone(), operator.view());
    for path in Reviewer::paths() {
        let reviewer = reviewer.clone();
        let handler = move |review: Value| {
            let reviewer = reviewer.clone();
            Box::pin(async move { reviewer.review(Who::ApiServer, path, &review).await })
                as futures::future::BoxFuture<'static, Result<Value, String>>
        };
        api.webhooks().register(NAMESPACE, review::SERVICE, path, Arc::new(handler));
    }
    for version in power::VERSIONS {
        let (http, config) = (http.clone(), operator.config());
        let handler = move |request: Request<Bytes>| {
            let (http, config) = (http.clone(), config.borrow().clone());
            Box::pin(async move {
                let path = request.uri().path().to_owned();
                let reply =
                    power::answer(&http, &config, request.method().as_str(), &path, request.body()).await;
                match reply.body {
                    Some(body) => Reply::json(reply.code, &body),
                    None => Reply::text(reply.code, Bytes::new()),
                }
            }) as futures::future::BoxFuture<'static, Reply>
        };
        api.aggregate(power::GROUP, version, Arc::new(handler));
        api.announce(power::GROUP, version, power::resources());
    }
}

pub const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
pub const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
pub const VMIMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations";
pub const VMIRS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets";
pub const SUB: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default";

pub fn template(annotations: &Value) -> Value {
    json!({
        "metadata": {"labels": {"app": "guest"}, "annotations": annotations},
        "spec": {
            "evictionStrategy": "LiveMigrate",
            "terminationGracePeriodSeconds": 30,
            "domain": {
                "resources": {"requests": {"memory": "128Mi"}},
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "containerDisk": {"image": "example/guest"}}],
        },
    })
}

pub fn vm(name: &str, strategy: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"runStrategy": strategy, "template": template(annotations)},
    })
}
