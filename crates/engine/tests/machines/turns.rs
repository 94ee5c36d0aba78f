//! Whose turn it is to move, and what is tried again.

use serde_json::{Value, json};

use crate::cluster::{Cluster, VMIMS, VMIS, vm};
use crate::guests::{MERGE, PODS, create_vm, evict, launcher_of, node_of, settled};
use crate::{is_running, phase};

#[tokio::test(start_paused = true)]
async fn v17_a_migration_that_cannot_be_created_is_told_and_tried_again() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "2"}))).await;
    let before = settled(&cluster, "a").await;
    let asked = cluster.refuse_writes("virtualmachineinstancemigrations", VMIS).await;
    assert_eq!(evict(&cluster, &launcher_of(&cluster, "a").await, json!({})).await.0, 429);
    let told = |list: &Value| {
        list["items"].as_array().is_some_and(|events| {
            events.iter().any(|event| {
                event["reason"] == "FailedCreate"
                    && event["message"].as_str().is_some_and(|text| text.contains("not today"))
            })
        })
    };
    cluster.until("/api/v1/namespaces/default/events", told).await;
    cluster.pass(60).await;
    let tries = asked.lock().unwrap().len();
    assert!((2..=60).contains(&tries), "{tries} tries in a minute");
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(is_running(&vmi) && node_of(&vmi) == node_of(&before));
    cluster.allow_writes().await;
    let after = cluster.until(&format!("{VMIS}/a"), |vmi| node_of(vmi) != node_of(&before)).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    cluster.rest().await;
}

/// A success wipes out what failed before it.
#[tokio::test(start_paused = true)]
async fn v35_after_a_success_the_next_one_does_not_wait() {
    let cluster = Cluster::start(3).await;
    let guest =
        vm("a", "Always", &json!({"evac.dev/migration-seconds": "2", "evac.dev/migration-fails": "1"}));
    create_vm(&cluster, &guest).await;
    let mut took = Vec::new();
    for _ in 0..2 {
        let before = settled(&cluster, "a").await;
        let at = cluster.clock.now();
        assert_eq!(evict(&cluster, &launcher_of(&cluster, "a").await, json!({})).await.0, 429);
        let moved = |vmi: &Value| {
            node_of(vmi) != node_of(&before) && vmi["status"]["migrationState"]["completed"] == true
        };
        cluster.until(&format!("{VMIS}/a"), moved).await;
        took.push(cluster.clock.now().duration_since(at).as_secs());
        let over = |list: &Value| {
            list["items"]
                .as_array()
                .is_some_and(|all| all.iter().all(|m| matches!(phase(m), "Succeeded" | "Failed")))
        };
        cluster.until(VMIMS, over).await;
    }
    assert!(took[0] >= 20, "the first one failed once: {took:?}");
    assert!(took[1] < 15, "the next one starts at once: {took:?}");
    let list = cluster.get(VMIMS).await.unwrap();
    let phases: Vec<&str> = list["items"].as_array().unwrap().iter().map(phase).collect();
    assert_eq!(phases.iter().filter(|phase| **phase == "Failed").count(), 1, "{phases:?}");
    assert_eq!(phases.iter().filter(|phase| **phase == "Succeeded").count(), 2, "{phases:?}");
    cluster.rest().await;
}

/// One slot for all.
async fn allow_one(cluster: &Cluster) {
    let settings = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";
    let one = json!({"spec": {"configuration": {"migrations": {"parallelMigrationsPerCluster": 1}}}});
    assert_eq!(cluster.send("PATCH", settings, MERGE, &one).await.0, 200);
    let mut config = cluster.operator.config();
    config.wait_for(|config| config.parallel_per_cluster == 1).await.unwrap();
}

/// Somebody asks for a migration that has the name of its guest.
async fn wish(cluster: &Cluster, name: &str) {
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name}, "spec": {"vmiName": name},
    });
    let (code, body) = cluster.create(VMIMS, &object).await;
    assert_eq!(code, 201, "{body}");
}

#[tokio::test(start_paused = true)]
async fn the_next_guest_is_under_way_before_it_is_written_that_the_last_one_arrived() {
    let cluster = Cluster::start(2).await;
    allow_one(&cluster).await;
    let quick = json!({"evac.dev/migration-seconds": "5", "evac.dev/start-seconds": "0"});
    for name in ["first", "second"] {
        create_vm(&cluster, &vm(name, "Always", &quick)).await;
        settled(&cluster, name).await;
    }
    wish(&cluster, "first").await;
    cluster.until(&format!("{VMIMS}/first"), |m| phase(m) == "Running").await;
    wish(&cluster, "second").await;
    let is_copied = |vmi: &Value| vmi["status"]["migrationState"]["startTimestamp"].is_string();
    cluster.until(&format!("{VMIS}/second"), is_copied).await;
    assert_eq!(phase(&cluster.get(&format!("{VMIMS}/first")).await.unwrap()), "Running");
    let at = cluster.clock.now();
    cluster.until(&format!("{VMIMS}/first"), |m| phase(m) == "Succeeded").await;
    let late = cluster.clock.now().duration_since(at).as_secs_f64();
    assert!(late < 1.0, "it is written {late} s later");
    cluster.rest().await;
}

/// One slot for all: what empties a node goes before what a person would like.
#[tokio::test(start_paused = true)]
async fn v37_evacuations_go_before_the_wishes_of_people() {
    let cluster = Cluster::start(2).await;
    allow_one(&cluster).await;
    let names = ["slow", "mine-1", "mine-2", "evicted-1", "evicted-2"];
    for name in names {
        let seconds = if name == "slow" { "30" } else { "5" };
        create_vm(&cluster, &vm(name, "Always", &json!({"evac.dev/migration-seconds": seconds}))).await;
    }
    for name in names {
        settled(&cluster, name).await;
    }
    wish(&cluster, "slow").await;
    cluster.until(&format!("{VMIMS}/slow"), |m| phase(m) == "Running").await;
    wish(&cluster, "mine-1").await;
    wish(&cluster, "mine-2").await;
    cluster.until(&format!("{VMIMS}/mine-2"), |m| phase(m) == "Pending").await;
    for name in ["evicted-1", "evicted-2"] {
        assert_eq!(evict(&cluster, &launcher_of(&cluster, name).await, json!({})).await.0, 429);
    }
    let over = |list: &Value| {
        list["items"]
            .as_array()
            .is_some_and(|all| all.len() == 5 && all.iter().all(|m| phase(m) == "Succeeded"))
    };
    let list = cluster.until(VMIMS, over).await;
    let mut order: Vec<(&str, &str)> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| {
            let phases = m["status"]["phaseTransitionTimestamps"].as_array().unwrap();
            let began = phases.iter().find(|at| at["phase"] == "Running").expect("it has run");
            (began["phaseTransitionTimestamp"].as_str().unwrap(), m["spec"]["vmiName"].as_str().unwrap())
        })
        .collect();
    order.sort_unstable();
    let kinds: Vec<&str> = order.iter().map(|(_, name)| name.split('-').next().unwrap()).collect();
    assert_eq!(kinds, ["slow", "evicted", "evicted", "mine", "mine"]);
    cluster.rest().await;
}

/// A busy guest takes longer and arrives; one that writes faster than the network carries never does, and is named instead of ended.
#[tokio::test(start_paused = true)]
async fn v27_a_busy_guest_is_moved_in_time_and_a_hopeless_one_is_named_and_runs_on() {
    let cluster = Cluster::start(2).await;
    for (name, rate) in [("busy", "80"), ("hopeless", "100000")] {
        let mut guest = vm(name, "Always", &json!({"evac.dev/dirty-rate": rate}));
        guest["spec"]["template"]["spec"]["domain"]["resources"]["requests"]["memory"] = json!("4Gi");
        create_vm(&cluster, &guest).await;
    }
    let before = [settled(&cluster, "busy").await, settled(&cluster, "hopeless").await];
    let at = cluster.clock.now();
    for name in ["busy", "hopeless"] {
        assert_eq!(evict(&cluster, &launcher_of(&cluster, name).await, json!({})).await.0, 429);
    }
    let after = cluster.until(&format!("{VMIS}/busy"), |vmi| node_of(vmi) != node_of(&before[0])).await;
    let took = cluster.clock.now().duration_since(at).as_secs();
    assert!(took < 180, "{took} s");
    assert_eq!(after["metadata"]["uid"], before[0]["metadata"]["uid"]);
    let failed = |n: usize| {
        move |list: &Value| {
            let failed =
                list["items"].as_array().map(|all| all.iter().filter(|m| phase(m) == "Failed").count());
            failed == Some(n)
        }
    };
    for n in 1..=3 {
        cluster.until(VMIMS, failed(n)).await;
    }
    let blocked = |vmi: &Value| {
        vmi["status"]["conditions"].as_array().is_some_and(|list| {
            list.iter().any(|c| c["type"] == "EvacuationBlocked" && c["reason"] == "MigrationsFailed")
        })
    };
    let vmi = cluster.until(&format!("{VMIS}/hopeless"), blocked).await;
    assert!(is_running(&vmi) && vmi["metadata"]["uid"] == before[1]["metadata"]["uid"]);
    assert_eq!(node_of(&vmi), node_of(&before[1]));
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn v23_a_descheduler_is_told_to_ask_before_it_evicts() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "2"}))).await;
    for _ in 0..2 {
        let before = settled(&cluster, "a").await;
        let name = launcher_of(&cluster, "a").await;
        let pod = cluster.get(&format!("{PODS}/{name}")).await.unwrap();
        let told = &pod["metadata"]["annotations"]["descheduler.alpha.kubernetes.io/request-evict-only"];
        assert!(told.is_string(), "{pod:#}");
        assert_eq!(evict(&cluster, &name, json!({})).await.0, 429);
        let moved = |vmi: &Value| {
            node_of(vmi) != node_of(&before) && vmi["status"]["migrationState"]["completed"] == true
        };
        cluster.until(&format!("{VMIS}/a"), moved).await;
    }
    cluster.rest().await;
}
