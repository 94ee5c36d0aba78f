//! What is said when everything is over.

use serde_json::{Value, json};

use crate::cluster::{Cluster, SUB, VMIMS, VMIS, vm};
use crate::guests::{JSON, PODS, cordon, create_vm, launcher_of, node_of, settled};
use crate::is_running;

/// Moves a guest and waits until it has arrived.
async fn migrate(cluster: &Cluster, name: &str) {
    let from = node_of(&cluster.get(&format!("{VMIS}/{name}")).await.unwrap());
    let path = format!("{SUB}/virtualmachines/{name}/migrate");
    let (code, body) = cluster.send("PUT", &path, JSON, &json!({})).await;
    assert_eq!(code, 202, "{body}");
    let moved = |vmi: &Value| node_of(vmi) != from && vmi["status"]["migrationState"]["completed"] == true;
    cluster.until(&format!("{VMIS}/{name}"), moved).await;
    let over = |list: &Value| {
        list["items"]
            .as_array()
            .is_some_and(|all| all.iter().all(|one| one["status"]["phase"] == "Succeeded"))
    };
    cluster.until(VMIMS, over).await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_made_a_round_trip_and_loses_its_launcher_is_started_again() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &vm("a", "Always", &json!({}))).await;
    let before = settled(&cluster, "a").await;
    migrate(&cluster, "a").await;
    migrate(&cluster, "a").await;
    assert_eq!(node_of(&cluster.get(&format!("{VMIS}/a")).await.unwrap()), node_of(&before));
    // As when its node is gone: the pod is removed, and no node agent has said that the guest has ended.
    cordon(&cluster, &node_of(&before)).await;
    cluster.world.kubelet(&node_of(&before)).power_off();
    let pod = launcher_of(&cluster, "a").await;
    let body = json!({"gracePeriodSeconds": 0});
    let (code, answer) = cluster.send("DELETE", &format!("{PODS}/{pod}"), JSON, &body).await;
    assert_eq!(code, 200, "{answer}");
    cluster.pass(60).await;
    cluster.rest().await;
    let after = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(is_running(&after) && after["metadata"]["uid"] != before["metadata"]["uid"], "{after:#}");
}

/// Every test of this suite in which a cluster runs ends with this check.
#[test]
fn every_test_of_machines_asks_at_its_end_whether_what_is_said_is_true() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for test in text.split("#[tokio::test").skip(1) {
            let body = test.split("\n}\n").next().unwrap_or(test);
            let name = body.split("async fn ").nth(1).and_then(|rest| rest.split('(').next()).unwrap_or("?");
            let runs = body.contains("Cluster::start") || body.contains("= cluster(");
            let judged = body.contains(".rest().await");
            assert!(!runs || judged, "{}: {name} does not end with cluster.rest()", path.display());
            checked += usize::from(runs);
        }
    }
    assert!(checked > 50, "only {checked} tests were found");
}
