//! Virtual machines end to end in paused time: server, nodes and hypervisors are simulated, the operator is the real one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod aftermath;
mod certificates;
mod cluster;
#[allow(dead_code, reason = "shared with the tests of drains")]
#[path = "../drain/wire.rs"]
mod counted;
mod evacuation;
mod given_back;
mod guests;
#[path = "../../../api/tests/corpus/marks.rs"]
mod hostile_marks;
mod hostile_reviews;
mod https;
mod leaders;
mod limits;
mod maintenance;
mod protection;
mod requests;
mod turns;
mod view;
mod watches;
mod wire;

use cluster::{Cluster, SUB, VMIMS, VMIRS, VMIS, VMS, template, vm};
use serde_json::{Value, json};

fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

fn is_running(object: &Value) -> bool {
    phase(object) == "Running"
}

#[tokio::test(start_paused = true)]
async fn a_machine_runs_and_stops_as_its_run_strategy_says() {
    let cluster = Cluster::start(2).await;
    let (code, body) = cluster.create(VMS, &vm("a", "Always", &json!({}))).await;
    assert_eq!(code, 201, "{body}");
    let vmi = cluster.until(&format!("{VMIS}/a"), is_running).await;
    assert!(vmi["status"]["nodeName"].is_string());
    let machine = cluster.until(&format!("{VMS}/a"), |vm| vm["status"]["printableStatus"] == "Running").await;
    assert_eq!(machine["status"]["ready"], true, "{machine:#}");
    let (code, _) =
        cluster.send("PUT", &format!("{SUB}/virtualmachines/a/stop"), "application/json", &json!({})).await;
    assert_eq!(code, 202);
    let machine = cluster.until(&format!("{VMS}/a"), |vm| vm["status"]["printableStatus"] == "Stopped").await;
    assert_eq!(machine["spec"]["runStrategy"], "Halted");
    cluster.until(&format!("{VMIS}/a"), Value::is_null).await;
    let pods = cluster.get("/api/v1/namespaces/default/pods").await.unwrap();
    assert_eq!(pods["items"].as_array().unwrap().len(), 0, "{pods:#}");
    cluster.rest().await;
}

/// The table of the documents: what each command makes of each run strategy.
#[tokio::test(start_paused = true)]
async fn commands_change_run_strategies_as_documented() {
    let cluster = Cluster::start(2).await;
    // Strategy, whether it runs, command → code, strategy afterwards.
    let table = [
        ("Always", "start", 409, "Always"),
        ("Always", "stop", 202, "Halted"),
        ("Always", "restart", 202, "Always"),
        ("RerunOnFailure", "start", 409, "RerunOnFailure"),
        ("RerunOnFailure", "stop", 202, "RerunOnFailure"),
        ("RerunOnFailure", "restart", 202, "RerunOnFailure"),
        ("Manual", "start", 202, "Manual"),
        ("Manual", "stop", 409, "Manual"),
        ("Manual", "restart", 409, "Manual"),
        ("Halted", "start", 202, "Always"),
        ("Halted", "stop", 409, "Halted"),
        ("Halted", "restart", 409, "Halted"),
        ("Once", "start", 409, "Once"),
        ("Once", "stop", 202, "Halted"),
        ("Once", "restart", 409, "Once"),
    ];
    for (n, (strategy, command, code, after)) in table.into_iter().enumerate() {
        let name = format!("vm-{n}");
        cluster.create(VMS, &vm(&name, strategy, &json!({}))).await;
        let runs = matches!(strategy, "Always" | "RerunOnFailure" | "Once");
        let before = if runs {
            cluster.until(&format!("{VMIS}/{name}"), is_running).await
        } else {
            cluster.pass(5).await;
            Value::Null
        };
        let path = format!("{SUB}/virtualmachines/{name}/{command}");
        let (answer, body) = cluster.send("PUT", &path, "application/json", &json!({})).await;
        assert_eq!(answer, code, "{strategy} {command}: {body}");
        cluster.pass(1).await;
        let machine = cluster.get(&format!("{VMS}/{name}")).await.unwrap();
        assert_eq!(machine["spec"]["runStrategy"], after, "{strategy} {command}");
        if code == 202 {
            let uid = before["metadata"]["uid"].clone();
            match command {
                "stop" => drop(cluster.until(&format!("{VMIS}/{name}"), Value::is_null).await),
                _ => {
                    cluster
                        .until(&format!("{VMIS}/{name}"), |vmi| {
                            is_running(vmi) && vmi["metadata"]["uid"] != uid
                        })
                        .await;
                }
            }
            let done = |vm: &Value| vm["status"]["stateChangeRequests"].is_null();
            cluster.until(&format!("{VMS}/{name}"), done).await;
        }
        cluster.send("DELETE", &format!("{VMS}/{name}"), "application/json", &json!({})).await;
        cluster.until(&format!("{VMS}/{name}"), Value::is_null).await;
    }
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_migration_moves_the_guest_and_its_history_is_kept() {
    let cluster = Cluster::start(3).await;
    cluster.create(VMS, &vm("a", "Always", &json!({}))).await;
    let ready = |vmi: &Value| {
        is_running(vmi)
            && vmi["status"]["conditions"].as_array().is_some_and(|list| {
                list.iter().any(|c| c["type"] == "LiveMigratable" && c["status"] == "True")
            })
    };
    let before = cluster.until(&format!("{VMIS}/a"), ready).await;
    let (code, body) = cluster
        .send("PUT", &format!("{SUB}/virtualmachines/a/migrate"), "application/json", &json!({}))
        .await;
    assert_eq!(code, 202, "{body}");
    let name = {
        let list = cluster.get(VMIMS).await.unwrap();
        list["items"][0]["metadata"]["name"].as_str().unwrap().to_owned()
    };
    // A second one is refused while this one runs.
    let again = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "again"}, "spec": {"vmiName": "a"},
    });
    let (code, body) = cluster.create(VMIMS, &again).await;
    assert_eq!(code, 400, "{body}");
    assert!(body["message"].as_str().unwrap().contains("in-flight migration detected"), "{body}");
    let done =
        cluster.until(&format!("{VMIMS}/{name}"), |m| matches!(phase(m), "Succeeded" | "Failed")).await;
    assert_eq!(phase(&done), "Succeeded", "{done:#}");
    let account = &done["status"]["migrationState"];
    assert!(account["startTimestamp"].is_string() && account["endTimestamp"].is_string(), "{account:#}");
    let after = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_ne!(after["status"]["nodeName"], before["status"]["nodeName"]);
    assert!(is_running(&after));
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_replaces_an_evicted_member_and_scales() {
    let cluster = Cluster::start(2).await;
    let mut guest = template(&json!({}));
    guest["spec"]["evictionStrategy"] = json!("None");
    let set = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "rs"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "guest"}}, "template": guest},
    });
    let (code, body) = cluster.create(VMIRS, &set).await;
    assert_eq!(code, 201, "{body}");
    let path = format!("{VMIRS}/rs");
    cluster.until(&path, |rs| rs["status"]["readyReplicas"] == 2).await;
    let pods = cluster.get("/api/v1/namespaces/default/pods").await.unwrap();
    let pod = pods["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"},
    });
    let (code, body) =
        cluster.create(&format!("/api/v1/namespaces/default/pods/{pod}/eviction"), &eviction).await;
    assert_eq!(code, 201, "{body}");
    cluster.pass(2).await;
    cluster.until(&path, |rs| rs["status"]["readyReplicas"] == 2).await;
    cluster.until(&format!("/api/v1/namespaces/default/pods/{pod}"), Value::is_null).await;
    let scale = json!({"spec": {"replicas": 1}});
    let (code, body) =
        cluster.send("PATCH", &format!("{path}/scale"), "application/merge-patch+json", &scale).await;
    assert_eq!(code, 200, "{body}");
    cluster.until(&path, |rs| rs["status"]["replicas"] == 1 && rs["status"]["readyReplicas"] == 1).await;
    cluster.rest().await;
}

/// A member that takes its time to shut down is replaced at once, and keeps its time.
#[tokio::test(start_paused = true)]
async fn x10_a_replica_set_does_not_wait_for_a_member_that_is_slow_to_end() {
    let cluster = Cluster::start(2).await;
    let mut guest = template(&json!({"evac.dev/shutdown-seconds": "150"}));
    guest["spec"]["terminationGracePeriodSeconds"] = json!(200);
    let set = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "rs"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "guest"}}, "template": guest},
    });
    assert_eq!(cluster.create(VMIRS, &set).await.0, 201);
    let path = format!("{VMIRS}/rs");
    cluster.until(&path, |rs| rs["status"]["readyReplicas"] == 2).await;
    let pods = cluster.get("/api/v1/namespaces/default/pods").await.unwrap();
    let pod = &pods["items"][0]["metadata"];
    let (pod, old) =
        (pod["name"].as_str().unwrap(), pod["annotations"]["kubevirt.io/domain"].as_str().unwrap());
    let (code, body) = cluster
        .send("DELETE", &format!("/api/v1/namespaces/default/pods/{pod}"), "application/json", &json!({}))
        .await;
    assert_eq!(code, 200, "{body}");
    cluster.pass(20).await;
    let members = cluster.get(VMIS).await.unwrap();
    let members = members["items"].as_array().unwrap();
    assert_eq!(members.len(), 3, "two that count and the one that leaves");
    assert!(members.iter().all(is_running));
    let leaving = members.iter().find(|vmi| vmi["metadata"]["name"] == old).expect("it has its time");
    assert!(leaving["metadata"]["deletionTimestamp"].is_string(), "{leaving:#}");
    let ready = leaving["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready");
    assert_eq!(
        ready.map(|c| (&c["status"], &c["reason"])),
        Some((&json!("False"), &json!("PodTerminating")))
    );
    assert_eq!(cluster.get(&path).await.unwrap()["status"]["readyReplicas"], 2);
    cluster.pass(120).await;
    cluster.until(&format!("{VMIS}/{old}"), Value::is_null).await;
    assert_eq!(cluster.get(&path).await.unwrap()["status"]["readyReplicas"], 2);
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn wrong_objects_are_refused_and_nothing_is_changed() {
    let cluster = Cluster::start(1).await;
    let mut both = vm("a", "Always", &json!({}));
    both["spec"]["running"] = json!(true);
    let (code, body) = cluster.create(VMS, &both).await;
    assert_eq!(code, 422, "{body}");
    let (code, body) = cluster.create(VMS, &vm("a", "Sometimes", &json!({}))).await;
    assert_eq!(code, 422);
    assert_eq!(
        body["message"],
        "admission webhook \"virtualmachine-validator.kubevirt.io\" denied the request: Invalid RunStrategy (Sometimes)"
    );
    let (code, body) = cluster
        .send("PUT", &format!("{SUB}/virtualmachines/none/start"), "application/json", &json!({}))
        .await;
    assert_eq!(
        (code, body["message"].as_str()),
        (404, Some("virtualmachine.kubevirt.io \"none\" not found"))
    );
    let stray = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "m"}, "spec": {"vmiName": "none"},
    });
    let (code, body) = cluster.create(VMIMS, &stray).await;
    assert_eq!(code, 400);
    assert!(body["message"].as_str().unwrap().ends_with("the VMI \"default/none\" does not exist"), "{body}");
    let list = cluster.get(VMS).await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 0);
    cluster.rest().await;
}
