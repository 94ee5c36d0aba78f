//! The deadline in paused time: to the second, over restarts, and whatever is wrong with the tenant.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_engine::Http;
use evac_engine::gate::Gate;
use evac_engine::operator::Operator;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::{Cluster, VMIS, VMS, vm};
use crate::wire::{Fault, Wire};

const EVENTS: &str = "/api/v1/namespaces/default/events";

/// A node of the cluster blue that runs on a host, and its uid.
async fn node(cluster: &Cluster, annotations: &Value) -> String {
    let mut machine = vm("blue-x", "Always", annotations);
    machine["spec"]["template"]["spec"]["evictionStrategy"] = json!("External");
    machine["spec"]["template"]["metadata"]["labels"] = json!({
        "cluster.x-k8s.io/cluster-name": "blue",
        "capk.cluster.x-k8s.io/kubevirt-machine-name": "worker-1",
        "capk.cluster.x-k8s.io/kubevirt-machine-namespace": "default",
    });
    let (code, body) = cluster.create(VMS, &machine).await;
    assert_eq!(code, 201, "{body}");
    let vmi = cluster.until(&format!("{VMIS}/blue-x"), |vmi| vmi["status"]["phase"] == "Running").await;
    vmi["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Asks for its eviction, as a drain of its host does.
async fn evict(cluster: &Cluster) {
    let pods = cluster.get("/api/v1/namespaces/default/pods?labelSelector=kubevirt.io%3Dvirt-launcher").await;
    let name = pods.unwrap()["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let (code, body) =
        cluster.create(&format!("/api/v1/namespaces/default/pods/{name}/eviction"), &body).await;
    assert_eq!(code, 429, "{body}");
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

async fn anchored(cluster: &Cluster) -> Timestamp {
    let has = |vmi: &Value| annotation(vmi, "evac.dev/tenant-deadline").is_some();
    let vmi = cluster.until(&format!("{VMIS}/blue-x"), has).await;
    annotation(&vmi, "evac.dev/tenant-deadline").unwrap().parse().unwrap()
}

/// What is told of trouble: the condition's reason and message.
async fn blocked(cluster: &Cluster) -> (String, String) {
    let find = |vmi: &Value| {
        let conditions = vmi["status"]["conditions"].as_array()?;
        conditions.iter().find(|one| one["type"] == "TenantBlocked").cloned()
    };
    let vmi = cluster.until(&format!("{VMIS}/blue-x"), |vmi| find(vmi).is_some()).await;
    let found = find(&vmi).unwrap();
    (found["reason"].as_str().unwrap().into(), found["message"].as_str().unwrap().into())
}

async fn sleep_until(cluster: &Cluster, at: Timestamp) {
    cluster.clock.sleep_until(at).await;
}

fn shifted(at: Timestamp, seconds: i64) -> Timestamp {
    at.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap()
}

/// It runs untouched.
async fn is_kept(cluster: &Cluster, uid: &str) -> bool {
    let vmi = cluster.get(&format!("{VMIS}/blue-x")).await.unwrap_or_default();
    vmi["metadata"]["uid"] == uid && vmi["metadata"]["deletionTimestamp"].is_null()
}

async fn told(cluster: &Cluster, reason: &str) -> Vec<String> {
    let events = cluster.get(&format!("{EVENTS}?fieldSelector=reason%3D{reason}")).await.unwrap();
    let items = events["items"].as_array().unwrap().clone();
    items.iter().map(|event| event["message"].as_str().unwrap().to_owned()).collect()
}

/// From one second before the deadline, when it is kept, to two after, when it is gone.
async fn goes_at(cluster: &Cluster, deadline: Timestamp, uid: &str) {
    sleep_until(cluster, shifted(deadline, -1)).await;
    assert!(is_kept(cluster, uid).await, "it is deleted before its deadline");
    sleep_until(cluster, shifted(deadline, 2)).await;
    assert!(!is_kept(cluster, uid).await, "it is kept beyond its deadline");
}

#[tokio::test(start_paused = true)]
async fn without_a_secret_it_is_told_once_and_the_machine_goes_after_ten_minutes() {
    let cluster = Cluster::start(2).await;
    let uid = node(&cluster, &json!({})).await;
    let before = cluster.clock.now();
    evict(&cluster).await;
    let deadline = anchored(&cluster).await;
    let given = deadline.duration_since(before).as_secs();
    assert!((598..=602).contains(&given), "{given}");
    let (reason, message) = blocked(&cluster).await;
    assert_eq!(reason, "SecretMissing");
    assert_eq!(message, "there is no Secret default/blue-kubeconfig with the kubeconfig of the cluster");
    goes_at(&cluster, deadline, &uid).await;
    assert_eq!(told(&cluster, "TenantBlocked").await, [message], "once, however often it was tried");
    assert_eq!(told(&cluster, "TenantDeadline").await.len(), 1);
    let next = cluster
        .until(&format!("{VMIS}/blue-x"), |vmi| {
            vmi["status"]["phase"] == "Running" && vmi["metadata"]["uid"] != uid.as_str()
        })
        .await;
    assert_eq!(annotation(&next, "evac.dev/tenant-deadline"), None);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_does_not_answer_holds_nobody_longer() {
    let cluster = Cluster::start(2).await;
    let uid = node(&cluster, &json!({"evac.dev/tenant-timeout": "3m"})).await;
    let key = rcgen::KeyPair::generate().unwrap();
    let authority = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    // An address that is kept free for documents.
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {
            "server": "https://192.0.2.1:6443",
            "certificate-authority-data": STANDARD.encode(authority.pem()),
        }}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "sesame"}}],
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "blue-kubeconfig"},
        "data": {"value": STANDARD.encode(kubeconfig.to_string())},
    });
    cluster.create("/api/v1/namespaces/default/secrets", &secret).await;
    evict(&cluster).await;
    let deadline = anchored(&cluster).await;
    assert_eq!(blocked(&cluster).await.0, "TenantUnreachable");
    goes_at(&cluster, deadline, &uid).await;
}

#[tokio::test(start_paused = true)]
async fn the_deadline_outlives_operators_and_only_the_leader_acts_on_it() {
    let cluster = Cluster::start(2).await;
    let uid = node(&cluster, &json!({"evac.dev/tenant-timeout": "2m"})).await;
    evict(&cluster).await;
    let deadline = anchored(&cluster).await;
    cluster.operator.halt();
    sleep_until(&cluster, shifted(deadline, 30)).await;
    assert!(is_kept(&cluster, &uid).await, "nobody was there");
    let gate = Gate::shut();
    let follower = Operator::start(cluster.http.clone().behind(gate.clone()));
    cluster.pass(30).await;
    assert!(is_kept(&cluster, &uid).await, "a follower does not act");
    let now = cluster.clock.now();
    gate.open_until(shifted(now, 3600), now);
    cluster.until(&format!("{VMIS}/blue-x"), |vmi| vmi["metadata"]["uid"] != uid.as_str()).await;
    assert!(cluster.clock.now().duration_since(now).as_secs() < 60);
    assert_eq!(told(&cluster, "TenantDrainStarted").await.len(), 1, "it was begun once");
    follower.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_edited_deadline_holds_and_one_beyond_the_limit_does_not() {
    let cluster = Cluster::start(2).await;
    let uid = node(&cluster, &json!({"evac.dev/tenant-timeout": "10m"})).await;
    evict(&cluster).await;
    anchored(&cluster).await;
    let path = format!("{VMIS}/blue-x");
    let write = |text: String| {
        let body = json!({"metadata": {"annotations": {"evac.dev/tenant-deadline": text}}});
        let (cluster, path) = (&cluster, path.clone());
        async move { cluster.send("PATCH", &path, "application/merge-patch+json", &body).await }
    };
    let (code, body) = write("9999-12-31T00:00:00Z".into()).await;
    assert_eq!(code, 200, "{body}");
    let limited = cluster
        .until(&path, |vmi| annotation(vmi, "evac.dev/tenant-deadline").is_some_and(|at| at < "3"))
        .await;
    let again: Timestamp = annotation(&limited, "evac.dev/tenant-deadline").unwrap().parse().unwrap();
    let sooner = shifted(cluster.clock.now(), 60);
    assert!(sooner < again);
    write(sooner.to_string()).await;
    cluster.clock.sleep(Duration::from_secs(1)).await;
    goes_at(&cluster, sooner, &uid).await;
}

#[tokio::test(start_paused = true)]
async fn instances_of_another_namespace_than_the_secret_serves_get_nothing_from_it() {
    let cluster = Cluster::start(2).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "blue-kubeconfig", "annotations": {"evac.dev/tenant-timeout": "1s"}},
        "data": {"value": STANDARD.encode("kind: Config")},
    });
    cluster
        .create(
            "/api/v1/namespaces",
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "victim"}}),
        )
        .await;
    let (code, body) = cluster.create("/api/v1/namespaces/victim/secrets", &secret).await;
    assert_eq!(code, 201, "{body}");
    let mut machine = vm("blue-x", "Always", &json!({}));
    machine["spec"]["template"]["spec"]["evictionStrategy"] = json!("External");
    machine["spec"]["template"]["metadata"]["labels"] = json!({
        "cluster.x-k8s.io/cluster-name": "blue",
        "capk.cluster.x-k8s.io/kubevirt-machine-name": "worker-1",
        "capk.cluster.x-k8s.io/kubevirt-machine-namespace": "victim",
    });
    cluster.create(VMS, &machine).await;
    cluster.until(&format!("{VMIS}/blue-x"), |vmi| vmi["status"]["phase"] == "Running").await;
    evict(&cluster).await;
    let deadline = anchored(&cluster).await;
    assert!(deadline.duration_since(cluster.clock.now()).as_secs() > 500, "its timeout is not ours");
    assert_eq!(blocked(&cluster).await.0, "SecretNotShared");
}

/// Waits until the deadline on the instance is this one.
async fn is_again(cluster: &Cluster, deadline: Timestamp) {
    let same = |vmi: &Value| {
        annotation(vmi, "evac.dev/tenant-deadline").and_then(|text| text.parse().ok()) == Some(deadline)
    };
    cluster.until(&format!("{VMIS}/blue-x"), same).await;
}

async fn annotate(cluster: &Cluster, name: &str, value: &Value) {
    let body = json!({"metadata": {"annotations": {name: value}}});
    let (code, body) =
        cluster.send("PATCH", &format!("{VMIS}/blue-x"), "application/merge-patch+json", &body).await;
    assert_eq!(code, 200, "{body}");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_removed_or_moved_beyond_the_limit_comes_back_as_it_was() {
    let cluster = Cluster::start(2).await;
    let uid = node(&cluster, &json!({"evac.dev/tenant-timeout": "10m"})).await;
    evict(&cluster).await;
    let deadline = anchored(&cluster).await;
    for value in [Value::Null, json!("9999-12-31T00:00:00Z"), json!("whenever"), Value::Null] {
        cluster.pass(60).await;
        annotate(&cluster, "evac.dev/tenant-timeout", &json!("20h")).await;
        annotate(&cluster, "evac.dev/tenant-deadline", &value).await;
        is_again(&cluster, deadline).await;
    }
    assert_eq!(told(&cluster, "TenantDrainStarted").await.len(), 1, "it was begun once");
    goes_at(&cluster, deadline, &uid).await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_removed_while_no_operator_runs_comes_back_as_it_was() {
    let cluster = Cluster::start(2).await;
    let uid = node(&cluster, &json!({"evac.dev/tenant-timeout": "10m"})).await;
    evict(&cluster).await;
    let deadline = anchored(&cluster).await;
    cluster.operator.halt();
    cluster.pass(120).await;
    annotate(&cluster, "evac.dev/tenant-deadline", &Value::Null).await;
    let next = Operator::start(cluster.http.clone());
    is_again(&cluster, deadline).await;
    goes_at(&cluster, deadline, &uid).await;
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_can_keep_nothing_of_its_own_holds_the_deadline_all_the_same() {
    let cluster = Cluster::start(2).await;
    let uid = node(&cluster, &json!({"evac.dev/tenant-timeout": "10m"})).await;
    cluster.operator.halt();
    let homeless = Operator::start(cluster.http.clone().at_home_in("nowhere"));
    evict(&cluster).await;
    let deadline = anchored(&cluster).await;
    cluster.pass(60).await;
    annotate(&cluster, "evac.dev/tenant-deadline", &Value::Null).await;
    is_again(&cluster, deadline).await;
    goes_at(&cluster, deadline, &uid).await;
    homeless.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_forward_takes_nothing_from_a_tenants_time_and_what_is_written_follows_it() {
    static SECONDS: AtomicI64 = AtomicI64::new(0);
    let cluster = Cluster::start(2).await;
    let uid = node(&cluster, &json!({"evac.dev/tenant-timeout": "10m"})).await;
    cluster.operator.halt();
    let client = kube::Client::new(Service::trusted(cluster.api.clone(), Identity::admin()), "default");
    let http = Http::new(client, cluster.clock.stepped_by(&SECONDS), Duration::ZERO);
    let _operator = Operator::start(http);
    evict(&cluster).await;
    let deadline = anchored(&cluster).await;
    cluster.pass(60).await;
    SECONDS.store(7200, Ordering::Relaxed);
    // The pauses between tries go on as before.
    goes_at(&cluster, deadline, &uid).await;
    assert_eq!(told(&cluster, "TenantDeadline").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_role_that_cannot_list_says_so_on_the_machines_that_have_to_go_and_takes_it_back() {
    let cluster = Cluster::start(2).await;
    let uid = node(&cluster, &json!({"evac.dev/tenant-timeout": "30m"})).await;
    evict(&cluster).await;
    anchored(&cluster).await;
    cluster.operator.halt();
    let wire = Wire::new();
    wire.fail(|method, path| {
        let refused = method == "GET" && path.contains("virtualmachineinstancemigrations");
        refused.then(|| Fault::forbidden("virtualmachineinstancemigrations"))
    });
    let service = Service::trusted(cluster.api.clone(), Identity::admin());
    let http = Http::new(wire.client(service), cluster.clock, Duration::ZERO);
    let _operator = Operator::start(http);
    let find = |vmi: &Value| {
        let conditions = vmi["status"]["conditions"].as_array()?;
        conditions.iter().find(|one| one["type"] == "TenantUnread").cloned()
    };
    let path = format!("{VMIS}/blue-x");
    let vmi = cluster.until(&path, |vmi| find(vmi).is_some()).await;
    let said = find(&vmi).unwrap();
    assert_eq!((said["status"].as_str(), said["reason"].as_str()), (Some("True"), Some("CannotRead")));
    let message = said["message"].as_str().unwrap();
    assert!(
        message.starts_with("the list of virtualmachineinstancemigrations cannot be read since"),
        "{message}"
    );
    wire.fail(|_, _| None);
    cluster.until(&path, |vmi| find(vmi).is_none()).await;
    assert!(is_kept(&cluster, &uid).await);
}
