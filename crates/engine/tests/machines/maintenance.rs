//! NodeMaintenance in paused time: whoever carries it out may die at any write, and objects may be deleted at any moment.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_engine::Http;
use evac_engine::operator::publish::Reviews;
use evac_engine::operator::{Operator, install};
use serde_json::{Value, json};

use crate::cluster::{Cluster, VMIMS, VMIS, VMS, vm};
use crate::hostile_marks;
use crate::wire::Wire;

const OBJECTS: &str = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases";

/// Everything but the role under test.
async fn cluster(nodes: usize) -> Cluster {
    Cluster::start_roles(nodes, "machines,evacuation,budget".parse().unwrap()).await
}

fn object(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": name}, "spec": {"nodeName": node, "reason": "test"},
    })
}

async fn deploy(cluster: &Cluster, name: &str, replicas: usize) {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "example/web"}]},
            },
        },
    });
    assert_eq!(cluster.create(DEPLOYMENTS, &deployment).await.0, 201);
    cluster
        .until(&format!("{DEPLOYMENTS}/{name}"), |deployment| {
            deployment["status"]["availableReplicas"] == replicas
        })
        .await;
}

/// A node as far as a maintenance may touch it.
async fn image(cluster: &Cluster, node: &str) -> Value {
    let node = cluster.get(&format!("/api/v1/nodes/{node}")).await.unwrap();
    let mut annotations = node["metadata"]["annotations"].clone();
    // Heartbeats of the simulated hypervisor go on.
    if let Some(map) = annotations.as_object_mut() {
        map.retain(|name, _| name.starts_with("evac.dev/"));
    }
    json!({"spec": node["spec"], "labels": node["metadata"]["labels"], "annotations": annotations})
}

fn role(http: Http) -> Operator {
    Operator::start_roles(http, "maintenance".parse().unwrap())
}

async fn pods_on(cluster: &Cluster, node: &str) -> usize {
    let pods = cluster.get(PODS).await.unwrap();
    let here = |pod: &&Value| {
        pod["spec"]["nodeName"] == node
            && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    };
    pods["items"].as_array().unwrap().iter().filter(here).count()
}

/// One operator after the other, each of which dies at its first write, until an object is as it should be.
async fn one_write_each(cluster: &Cluster, path: &str, reached: impl Fn(&Value) -> bool) -> usize {
    let mut lives = 0;
    loop {
        let wire = Wire::new(cluster.api.clone());
        let operator = role(Http::new(wire.client(), cluster.clock, Duration::ZERO));
        tokio::select! {
            () = wire.one_write() => {}
            () = cluster.pass(90) => {}
        }
        operator.halt();
        operator.stop().await;
        lives += 1;
        if reached(&cluster.get(path).await.unwrap_or_default()) {
            return lives;
        }
        assert!(lives < 200, "{:#}", cluster.get(path).await.unwrap_or_default());
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_dies_after_every_write_the_next_one_goes_on() {
    let cluster = cluster(3).await;
    deploy(&cluster, "web", 6).await;
    let (code, _) =
        cluster.create(VMS, &vm("db", "Always", &json!({"evac.dev/migration-seconds": "2"}))).await;
    assert_eq!(code, 201);
    let vmi = cluster.until(&format!("{VMIS}/db"), |vmi| vmi["status"]["phase"] == "Running").await;
    let node = vmi["status"]["nodeName"].as_str().unwrap().to_owned();
    let before = image(&cluster, &node).await;
    assert_eq!(cluster.create(OBJECTS, &object("a", &node)).await.0, 201);
    let path = format!("{OBJECTS}/a");
    let lives = one_write_each(&cluster, &path, |object| object["status"]["phase"] == "Succeeded").await;
    assert!(lives >= 6, "{lives}");
    assert_eq!(pods_on(&cluster, &node).await, 0);
    let guest = cluster.get(&format!("{VMIS}/db")).await.unwrap();
    assert_eq!(guest["metadata"]["uid"], vmi["metadata"]["uid"], "the guest was moved, not restarted");
    let migrations = cluster.get(VMIMS).await.unwrap();
    assert_eq!(migrations["items"].as_array().unwrap().len(), 1, "once, although the taint asks for it, too");
    let (code, _) = cluster.send("DELETE", &path, "application/json", &json!({})).await;
    assert_eq!(code, 200);
    let lives = one_write_each(&cluster, &path, Value::is_null).await;
    assert!(lives >= 3, "{lives}");
    assert_eq!(image(&cluster, &node).await, before);
    let leases = cluster.get(LEASES).await.unwrap();
    assert_eq!(leases["items"].as_array().unwrap().len(), 0);
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_after_any_write_nothing_is_left() {
    let mut writes = 0;
    loop {
        let cluster = cluster(2).await;
        deploy(&cluster, "web", 4).await;
        let before = image(&cluster, "node-1").await;
        let steps = Steps::new(&cluster, writes);
        let operator = role(steps.http.clone());
        assert_eq!(cluster.create(OBJECTS, &object("a", "node-1")).await.0, 201);
        let path = format!("{OBJECTS}/a");
        let cut = tokio::select! {
            () = steps.reached() => true,
            _ = cluster.until(&path, |object| object["status"]["phase"] == "Succeeded") => false,
        };
        cluster.send("DELETE", &path, "application/json", &json!({})).await;
        cluster.until(&path, Value::is_null).await;
        cluster.pass(30).await;
        assert_eq!(image(&cluster, "node-1").await, before, "after {writes} writes");
        assert!(cluster.get(LEASES).await.is_none_or(|list| list["items"].as_array().unwrap().is_empty()));
        cluster.rest().await;
        operator.stop().await;
        if !cut {
            break;
        }
        writes += 1;
    }
    assert!(writes >= 6, "{writes}");
}

/// Tells when a number of writes has reached the server.
struct Steps {
    http: Http,
    reached: std::sync::Arc<tokio::sync::Notify>,
}

impl Steps {
    fn new(cluster: &Cluster, writes: usize) -> Self {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let reached = std::sync::Arc::new(tokio::sync::Notify::new());
        let count = std::sync::Arc::new(AtomicUsize::new(0));
        let service = evac_apiserver::Service::trusted(
            cluster.api.clone(),
            evac_apiserver::identity::Identity::admin(),
        );
        let notify = reached.clone();
        if writes == 0 {
            notify.notify_one();
        }
        let counted = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (service, notify, count) = (service.clone(), notify.clone(), count.clone());
            async move {
                let write =
                    request.method() != http::Method::GET && !request.uri().path().ends_with("/events");
                let answer = tower::ServiceExt::oneshot(service, request).await;
                if write && count.fetch_add(1, Ordering::SeqCst) + 1 == writes {
                    notify.notify_one();
                }
                answer
            }
        });
        let client = kube::Client::new(counted, "default");
        Self { http: Http::new(client, cluster.clock, Duration::ZERO), reached }
    }

    async fn reached(&self) {
        self.reached.notified().await;
    }
}

#[tokio::test(start_paused = true)]
async fn twenty_at_once_and_one_that_is_blocked_holds_up_nobody() {
    let cluster = cluster(24).await;
    deploy(&cluster, "web", 96).await;
    // One node has a pod that may never leave.
    deploy(&cluster, "rock", 1).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "rock"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "rock"}}},
    });
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    assert_eq!(cluster.create(budgets, &budget).await.0, 201);
    cluster.until(&format!("{budgets}/rock"), |budget| budget["status"]["currentHealthy"] == 1).await;
    let pods = cluster.get(PODS).await.unwrap();
    let rock =
        pods["items"].as_array().unwrap().iter().find(|pod| pod["metadata"]["labels"]["app"] == "rock");
    let held = rock.unwrap()["spec"]["nodeName"].as_str().unwrap().to_owned();
    let _operator = role(cluster.http.clone());
    let others: Vec<String> =
        (1..=24).map(|n| format!("node-{n}")).filter(|node| *node != held).take(19).collect();
    let begin = cluster.clock.now();
    for node in others.iter().chain([&held]) {
        assert_eq!(cluster.create(OBJECTS, &object(&format!("m-{node}"), node)).await.0, 201);
    }
    for node in &others {
        cluster
            .until(&format!("{OBJECTS}/m-{node}"), |object| object["status"]["phase"] == "Succeeded")
            .await;
    }
    let took = cluster.clock.now().duration_since(begin).as_secs();
    assert!(took <= 60, "{took} s");
    let stuck = cluster
        .until(&format!("{OBJECTS}/m-{held}"), |object| {
            object["status"]["blockers"].as_array().is_some_and(|list| !list.is_empty())
        })
        .await;
    assert_eq!(stuck["status"]["phase"], "Running");
    let blocker = &stuck["status"]["blockers"][0];
    assert!(blocker["object"].as_str().unwrap().starts_with("pod default/rock-"), "{blocker:#}");
    assert!(!blocker["fix"].as_str().unwrap_or_default().is_empty(), "{blocker:#}");
    let said = stuck["status"]["conditions"].to_string();
    assert!(said.contains("NothingMoves") || said.contains("CannotLeave"), "{said}");
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_and_comes_back_is_not_forgotten() {
    let cluster = cluster(2).await;
    let _operator = role(cluster.http.clone());
    let path = format!("{OBJECTS}/a");
    // The review is not asked here: the object may be older than the loss of its node.
    let (code, _) = cluster.send("DELETE", "/api/v1/nodes/node-2", "application/json", &json!({})).await;
    assert_eq!(code, 200);
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    cluster.send("DELETE", &format!("{hooks}/evac-nodemaintenance"), "application/json", &json!({})).await;
    assert_eq!(cluster.create(OBJECTS, &object("a", "ghost")).await.0, 201);
    let failed = cluster.until(&path, |object| object["status"]["phase"] == "Failed").await;
    assert_eq!(failed["status"]["lastError"], "nodes \"ghost\" not found");
    cluster.send("DELETE", &path, "application/json", &json!({})).await;
    cluster.until(&path, Value::is_null).await;
    cluster.rest().await;
}

const HOOK: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/evac-nodemaintenance";

/// What an object says about permissions that do not count.
fn ignored(object: &Value) -> Option<&str> {
    let conditions = object["status"]["conditions"].as_array()?;
    let one = conditions.iter().find(|one| one["type"] == "PermissionIgnored" && one["status"] == "True")?;
    one["message"].as_str()
}

/// Has a guest that stays off once it is shut down, and is told so by an object with permission. The webhook is not there.
async fn unreviewed() -> (Cluster, Value) {
    let cluster = cluster(2).await;
    let (code, body) = cluster.send("DELETE", HOOK, "application/json", &json!({})).await;
    assert_eq!(code, 200, "{body}");
    let mut guest = vm("db", "Once", &json!({}));
    guest["spec"]["template"]["spec"]["evictionStrategy"] = json!("None");
    assert_eq!(cluster.create(VMS, &guest).await.0, 201);
    let vmi = cluster.until(&format!("{VMIS}/db"), |vmi| vmi["status"]["phase"] == "Running").await;
    let mut wish = object("a", vmi["status"]["nodeName"].as_str().unwrap());
    wish["metadata"]["annotations"] = json!({"evac.dev/allow-shutdown": "true"});
    assert_eq!(cluster.create(OBJECTS, &wish).await.0, 201);
    (cluster, wish)
}

async fn phase_of_guest(cluster: &Cluster) -> Value {
    cluster.get(&format!("{VMIS}/db")).await.unwrap_or_default()["status"]["phase"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_permission_that_no_review_has_seen_shuts_no_guest_down() {
    let (cluster, wish) = unreviewed().await;
    let path = format!("{OBJECTS}/a");
    let _operator = role(cluster.http.clone());
    cluster.pass(60).await;
    assert_eq!(phase_of_guest(&cluster).await, "Running", "there is no webhook, so nobody vouches for it");
    let said = cluster.get(&path).await.unwrap();
    let sentence = ignored(&said).unwrap();
    assert!(sentence.starts_with("permission evac.dev/allow-shutdown does not count: "), "{sentence}");
    assert!(sentence.contains("To do: start the operator with --listen"), "{sentence}");
    assert_eq!(said["status"]["blockers"][0]["code"], "VmStaysOff", "{said:#}");

    let reviews = Reviews { machines: false, maintenance: true, failover: false };
    install::reviews(&cluster.http, reviews).await.unwrap();
    cluster.pass(60).await;
    assert_eq!(phase_of_guest(&cluster).await, "Running", "the object is older than the webhook");
    let said = cluster.get(&path).await.unwrap();
    let sentence = ignored(&said).unwrap();
    assert!(sentence.contains("older than the operator's webhook"), "{sentence}");
    assert!(sentence.ends_with("To do: delete and create the object again"), "{sentence}");

    cluster.send("DELETE", &path, "application/json", &json!({})).await;
    cluster.until(&path, Value::is_null).await;
    assert_eq!(phase_of_guest(&cluster).await, "Running");
    assert_eq!(cluster.create(OBJECTS, &wish).await.0, 201);
    let done = cluster.until(&path, |object| object["status"]["phase"] == "Succeeded").await;
    assert_eq!(ignored(&done), None, "{done:#}");
    assert_ne!(phase_of_guest(&cluster).await, "Running", "who created it was reviewed");
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_may_not_read_the_webhook_works_on_and_believes_no_permission() {
    let (cluster, wish) = unreviewed().await;
    let path = format!("{OBJECTS}/a");
    cluster.send("DELETE", &path, "application/json", &json!({})).await;
    cluster.until(&path, Value::is_null).await;
    let reviews = Reviews { machines: false, maintenance: true, failover: false };
    install::reviews(&cluster.http, reviews).await.unwrap();
    cluster.pass(10).await;
    let blind = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let _operator = role(without_hooks(&cluster, blind.clone()));
    assert_eq!(cluster.create(OBJECTS, &wish).await.0, 201);
    cluster.pass(60).await;
    assert_eq!(phase_of_guest(&cluster).await, "Running");
    let said = cluster.get(&path).await.unwrap();
    let sentence = ignored(&said).unwrap();
    assert!(sentence.contains("cannot read the webhook configuration evac-nodemaintenance"), "{sentence}");
    assert_eq!(said["status"]["blockers"][0]["code"], "VmStaysOff", "the node is drained: {said:#}");
    // The right is given: the object was reviewed, so the permission counts from then on.
    blind.store(false, std::sync::atomic::Ordering::SeqCst);
    cluster.until(&path, |object| object["status"]["phase"] == "Succeeded").await;
    assert_ne!(phase_of_guest(&cluster).await, "Running");
    cluster.rest().await;
}

/// The way to the server of an account that may not look at webhook configurations for the time being.
fn without_hooks(cluster: &Cluster, blind: std::sync::Arc<std::sync::atomic::AtomicBool>) -> Http {
    let service =
        evac_apiserver::Service::trusted(cluster.api.clone(), evac_apiserver::identity::Identity::admin());
    let nobody =
        evac_apiserver::Service::trusted(cluster.api.clone(), evac_apiserver::identity::Identity::default());
    let choosing = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let hidden = blind.load(std::sync::atomic::Ordering::SeqCst)
            && request.uri().path().ends_with("/validatingwebhookconfigurations");
        let service = if hidden { nobody.clone() } else { service.clone() };
        tower::ServiceExt::oneshot(service, request)
    });
    Http::new(kube::Client::new(choosing, "default"), cluster.clock, Duration::ZERO)
}

/// A client whose lists of pods on nodes fail while the switch is on.
fn failing_pods(cluster: &Cluster, broken: &std::sync::Arc<std::sync::atomic::AtomicBool>) -> Http {
    use http_body_util::BodyExt as _;
    type BoxError = Box<dyn std::error::Error + Send + Sync>;
    let service =
        evac_apiserver::Service::trusted(cluster.api.clone(), evac_apiserver::identity::Identity::admin());
    let broken = broken.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, broken) = (service.clone(), broken.clone());
        async move {
            let about_pods = request.uri().to_string().contains("spec.nodeName");
            if about_pods && broken.load(std::sync::atomic::Ordering::SeqCst) {
                return Err::<_, BoxError>("broken pipe".into());
            }
            let answer = tower::ServiceExt::oneshot(service, request).await?;
            Ok(answer.map(|body| body.map_err(BoxError::from).boxed_unsync()))
        }
    });
    Http::new(kube::Client::new(service, "default"), cluster.clock, Duration::ZERO)
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_cannot_read_says_so_on_its_object_and_takes_it_back() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let cluster = cluster(2).await;
    deploy(&cluster, "web", 2).await;
    let broken = std::sync::Arc::new(AtomicBool::new(true));
    let _operator = role(failing_pods(&cluster, &broken));
    assert_eq!(cluster.create(OBJECTS, &object("a", "node-1")).await.0, 201);
    let path = format!("{OBJECTS}/a");
    let told = cluster.until(&path, |object| object["status"]["blockers"][0]["code"] == "CannotRead").await;
    let status = &told["status"];
    let error = status["lastError"].as_str().unwrap();
    assert!(error.starts_with("node node-1 and its pods cannot be read since "), "{error}");
    assert!(error.contains("broken pipe"), "{error}");
    assert!(status.get("drainProgress").is_none(), "{status:#}");
    broken.store(false, Ordering::SeqCst);
    let done = cluster.until(&path, |object| object["status"]["phase"] == "Succeeded").await;
    assert!(
        done["status"].get("blockers").is_none() && done["status"].get("lastError").is_none(),
        "{done:#}"
    );
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_mark_in_our_name_without_an_object_is_taken_off_and_nothing_else() {
    let cluster = cluster(2).await;
    let person = json!({"spec": {"unschedulable": true, "taints": [
        {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
        {"key": "kubevirt.io/drain", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    ]}});
    let path = "/api/v1/nodes/node-1";
    let merge = "application/merge-patch+json";
    assert_eq!(cluster.send("PATCH", path, merge, &person).await.0, 200);
    let before = image(&cluster, "node-1").await;
    let _operator = role(cluster.http.clone());
    let mark = json!({
        "version": 1, "owner": "node-maintenance@kubevirt", "since": "2026-01-01T00:00:00Z",
        "before": {"unschedulable": false},
        "addedTaints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}, {"key": "kubevirt.io/drain", "effect": "NoSchedule"}],
    });
    let forged = json!({"metadata": {"annotations": {"evac.dev/drain": mark.to_string()}}});
    assert_eq!(cluster.send("PATCH", path, merge, &forged).await.0, 200);
    cluster.until(path, |node| node["metadata"]["annotations"].get("evac.dev/drain").is_none()).await;
    cluster.pass(30).await;
    assert_eq!(image(&cluster, "node-1").await["spec"], before["spec"]);
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn the_times_in_a_status_follow_a_step_of_the_systems_clock() {
    static SECONDS: AtomicI64 = AtomicI64::new(0);
    for step in [7200, -7200] {
        SECONDS.store(0, Ordering::Relaxed);
        let cluster = cluster(2).await;
        deploy(&cluster, "web", 2).await;
        let client = kube::Client::new(Service::trusted(cluster.api.clone(), Identity::admin()), "default");
        let _operator = role(Http::new(client, cluster.clock.stepped_by(&SECONDS), Duration::ZERO));
        cluster.pass(5).await;
        SECONDS.store(step, Ordering::Relaxed);
        let ahead = |written: &Value| {
            let written: jiff::Timestamp = written.as_str().unwrap().parse().unwrap();
            written.duration_since(cluster.clock.now()).as_secs()
        };
        let mut steps = vec![step];
        // Once more while it is there: what is written from then on follows again.
        for (name, node) in [("a", "node-1"), ("b", "node-2")] {
            assert_eq!(cluster.create(OBJECTS, &object(name, node)).await.0, 201);
            cluster.pass(10).await;
            let found = cluster.get(&format!("{OBJECTS}/{name}")).await.unwrap();
            let step = *steps.last().unwrap();
            let late = ahead(&found["status"]["lastUpdate"]);
            assert!(
                (step - 12..=step).contains(&late),
                "a step of {step} s, written {late} s ahead: {found:#}"
            );
            for condition in found["status"]["conditions"].as_array().unwrap() {
                let late = ahead(&condition["lastTransitionTime"]);
                assert!((step - 12..=step).contains(&late), "a step of {step} s: {condition}");
            }
            let marked = cluster.get(&format!("/api/v1/nodes/{node}")).await.unwrap();
            if let Some(mark) = marked["metadata"]["annotations"]["evac.dev/drain"].as_str() {
                let mark: Value = serde_json::from_str(mark).unwrap();
                let late = ahead(&mark["since"]);
                assert!((step - 12..=step).contains(&late), "a step of {step} s: {mark}");
            }
            SECONDS.store(step * 2, Ordering::Relaxed);
            steps.push(step * 2);
        }
        cluster.rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_times_on_machines_follow_a_step_of_the_systems_clock() {
    static SECONDS: AtomicI64 = AtomicI64::new(0);
    for step in [7200, -7200] {
        SECONDS.store(step, Ordering::Relaxed);
        let cluster = cluster(2).await;
        cluster.operator.halt();
        let client = kube::Client::new(Service::trusted(cluster.api.clone(), Identity::admin()), "default");
        let http = Http::new(client, cluster.clock.stepped_by(&SECONDS), Duration::ZERO);
        let _operator = Operator::start_roles(http, "machines,evacuation,budget".parse().unwrap());
        assert_eq!(cluster.create(VMS, &vm("db", "Always", &json!({}))).await.0, 201);
        let vmi = cluster.until(&format!("{VMIS}/db"), |vmi| vmi["status"]["phase"] == "Running").await;
        let entered = vmi["status"]["phaseTransitionTimestamps"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["phase"] == "Scheduling")
            .unwrap_or_else(|| panic!("{vmi:#}"));
        let written: jiff::Timestamp = entered["phaseTransitionTimestamp"].as_str().unwrap().parse().unwrap();
        let late = written.duration_since(cluster.clock.now()).as_secs();
        assert!((step - 60..=step).contains(&late), "a step of {step} s, written {late} s ahead");
        cluster.rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_hostile_mark_has_the_end_of_a_maintenance_take_off_what_is_of_others() {
    let cluster = cluster(2).await;
    let (path, merge) = ("/api/v1/nodes/node-1", "application/merge-patch+json");
    let mut person = hostile_marks::person();
    // A maintenance of a node of the control plane needs a permission of its own, which is not what is tried here.
    person["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = Value::Null;
    assert_eq!(cluster.send("PATCH", path, merge, &person).await.0, 200);
    cluster.pass(5).await;
    let of_others = || async {
        let image = image(&cluster, "node-1").await;
        json!({"spec": image["spec"], "labels": image["labels"]})
    };
    let before = of_others().await;
    let _operator = role(cluster.http.clone());
    let mut tried = 0;
    for (what, text) in hostile_marks::corpus("node-maintenance@kubevirt") {
        let forged = json!({"metadata": {"annotations": {"evac.dev/drain": text}}});
        // An annotation that is too large is refused by the server.
        if cluster.send("PATCH", path, merge, &forged).await.0 != 200 {
            continue;
        }
        tried += 1;
        // Without an object what is in our name is swept; with one it is given back at its end.
        cluster.pass(10).await;
        assert_eq!(of_others().await, before, "{what}: without an object");
        assert_eq!(cluster.send("PATCH", path, merge, &forged).await.0, 200);
        assert_eq!(cluster.create(OBJECTS, &object("a", "node-1")).await.0, 201);
        cluster.pass(10).await;
        let said = cluster.get(&format!("{OBJECTS}/a")).await.unwrap();
        let error = said["status"]["lastError"].as_str().unwrap_or_default();
        assert!(error.lines().count() <= 1 && !error.chars().any(char::is_control), "{what}: {error}");
        let deleted = cluster.send("DELETE", &format!("{OBJECTS}/a"), "application/json", &json!({})).await;
        assert_eq!(deleted.0, 200, "{what}");
        cluster.until(&format!("{OBJECTS}/a"), Value::is_null).await;
        cluster.pass(5).await;
        assert_eq!(of_others().await, before, "{what}: after its object");
        let off = json!({"metadata": {"annotations": {"evac.dev/drain": null}}});
        assert_eq!(cluster.send("PATCH", path, merge, &off).await.0, 200);
    }
    assert!(tried >= 35, "{tried}");
    cluster.rest().await;
}
