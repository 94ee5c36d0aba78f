//! Guests leave a node that somebody wants: by an eviction, by the taint; what must stay, stays and is named.

use std::collections::BTreeSet;
use std::time::Duration;

use evac_core::Policy;
use evac_engine::{DrainRequest, drain};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, VMIMS, VMIRS, VMIS, VMS, vm};
use crate::guests::{
    BUDGETS, HOOKS, MERGE, PODS, cordon, create_vm, evict, launcher_of, node_of, pinned, settled, taint,
    with_strategy,
};
use crate::{is_running, phase};

#[tokio::test(start_paused = true)]
async fn v24_v31_v32_an_eviction_marks_the_guest_and_moves_it() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "5"}))).await;
    let before = settled(&cluster, "a").await;
    let pod = launcher_of(&cluster, "a").await;
    let (code, said) = evict(&cluster, &pod, json!({})).await;
    assert_eq!(code, 429);
    assert_eq!(
        said,
        "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: \
         Eviction triggered evacuation of VMI \"default/a\""
    );
    let (code, said) = evict(&cluster, &pod, json!({})).await;
    assert_eq!(code, 429);
    assert!(
        said.contains("Evacuation in progress: Eviction triggered evacuation of VMI \"default/a\""),
        "{said}"
    );
    let moved = |vmi: &Value| {
        node_of(vmi) != node_of(&before) && vmi["status"]["migrationState"]["completed"] == true
    };
    let after = cluster.until(&format!("{VMIS}/a"), moved).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "it never stopped");
    assert!(after["status"]["evacuationNodeName"].is_null(), "the mark is gone: {after:#}");
    assert_eq!(after["status"]["migrationState"]["sourceNode"], before["status"]["nodeName"]);
    // The pod it left has ended, and may be evicted.
    cluster
        .until(&format!("{PODS}/{pod}"), |pod| pod.is_null() || pod["status"]["phase"] == "Succeeded")
        .await;
    let (code, said) = evict(&cluster, &pod, json!({})).await;
    assert!(matches!(code, 201 | 404), "{code} {said}");
    let migrations = cluster.get(VMIMS).await.unwrap();
    assert_eq!(migrations["items"].as_array().unwrap().len(), 1, "v26: exactly once");
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn w22_w26_w27_trials_leave_no_mark_and_a_descheduler_is_remembered() {
    let cluster = Cluster::start(1).await;
    create_vm(&cluster, &vm("a", "Always", &json!({}))).await;
    settled(&cluster, "a").await;
    let pod = launcher_of(&cluster, "a").await;
    let (code, said) = evict(&cluster, &pod, json!({"deleteOptions": {"dryRun": ["All"]}})).await;
    assert_eq!(code, 429);
    assert!(said.contains("Eviction triggered evacuation"), "{said}");
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(vmi["status"]["evacuationNodeName"].is_null(), "{vmi:#}");
    let by = json!({"metadata": {"name": pod, "namespace": "default", "annotations": {"requested-by": "sigs.k8s.io/descheduler"}}});
    evict(&cluster, &pod, by).await;
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert_eq!(vmi["status"]["evacuationNodeName"], vmi["status"]["nodeName"]);
    assert_eq!(vmi["metadata"]["annotations"]["kubevirt.io/eviction-source"], "descheduler");
    let list =
        cluster.until(VMIMS, |list| list["items"].as_array().is_some_and(|items| !items.is_empty())).await;
    assert_eq!(list["items"][0]["spec"]["priority"], "system-maintenance");
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn v05_v28_v30_a_taint_moves_all_guests_within_limits_and_removing_it_stops_new_ones() {
    let cluster = Cluster::start(2).await;
    cordon(&cluster, "node-2").await;
    for n in 0..6 {
        create_vm(&cluster, &vm(&format!("vm-{n}"), "Always", &json!({"evac.dev/migration-seconds": "10"})))
            .await;
    }
    for n in 0..6 {
        settled(&cluster, &format!("vm-{n}")).await;
    }
    let free = json!({"spec": {"unschedulable": null}});
    cluster.send("PATCH", "/api/v1/nodes/node-2", MERGE, &free).await;
    taint(&cluster, "node-1", Some("kubevirt.io/drain")).await;
    let count = |list: &Value, wanted: &[&str]| {
        list["items"]
            .as_array()
            .map_or(0, |items| items.iter().filter(|one| wanted.contains(&phase(one))).count())
    };
    cluster.until(VMIMS, |list| count(list, &["Running"]) == 2).await;
    taint(&cluster, "node-1", None).await;
    // The two on their way arrive, those that had not begun are called off.
    cluster.until(VMIMS, |list| count(list, &["Succeeded"]) == 2).await;
    cluster.pass(30).await;
    let list = cluster.get(VMIMS).await.unwrap();
    assert_eq!(count(&list, &["Succeeded"]), 2, "{list:#}");
    assert_eq!(count(&list, &["", "Pending", "Running"]), 0, "{list:#}");
    // An own key by the legacy settings.
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubevirt-config", "namespace": "kubevirt"},
        "data": {"migrations": "nodeDrainTaintKey: mytaint/drain\n"},
    });
    let (code, body) = cluster.create("/api/v1/namespaces/kubevirt/configmaps", &map).await;
    assert_eq!(code, 201, "{body}");
    taint(&cluster, "node-1", Some("mytaint/drain")).await;
    let gone = |list: &Value| {
        list["items"].as_array().is_some_and(|all| all.iter().all(|vmi| node_of(vmi) == "node-2"))
    };
    cluster.until(VMIS, gone).await;
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_move_stays_and_says_why() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &pinned(vm("fixed", "Always", &json!({})))).await;
    let before = settled(&cluster, "fixed").await;
    taint(&cluster, &node_of(&before), Some("kubevirt.io/drain")).await;
    let blocked = |vmi: &Value| {
        vmi["status"]["conditions"].as_array().is_some_and(|list| {
            list.iter().any(|c| c["type"] == "EvacuationBlocked" && c["reason"] == "NotLiveMigratable")
        })
    };
    cluster.until(&format!("{VMIS}/fixed"), blocked).await;
    let (code, said) = evict(&cluster, &launcher_of(&cluster, "fixed").await, json!({})).await;
    assert_eq!(code, 429);
    assert!(
        said.contains("VMI default/fixed is configured with an eviction strategy but is not live-migratable"),
        "{said}"
    );
    taint(&cluster, &node_of(&before), None).await;
    let after = cluster.until(&format!("{VMIS}/fixed"), |vmi| !blocked(vmi)).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert!(is_running(&after));
    cluster.rest().await;
}

/// I2 without the webhook: the budget alone refuses, with one pod, with two, and with the rest of a failed migration.
#[tokio::test(start_paused = true)]
async fn without_the_webhook_the_budget_still_keeps_the_guest() {
    let cluster = Cluster::start(3).await;
    create_vm(&cluster, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "30"}))).await;
    let before = settled(&cluster, "a").await;
    let guarded = |list: &Value| {
        list["items"].as_array().is_some_and(|items| {
            items.len() == 1 && items[0]["status"]["observedGeneration"] == items[0]["metadata"]["generation"]
        })
    };
    cluster.until(BUDGETS, guarded).await;
    let (code, _) = cluster.send("DELETE", HOOKS, "application/json", &json!({})).await;
    assert_eq!(code, 200);
    let pod = launcher_of(&cluster, "a").await;
    let (code, said) = evict(&cluster, &pod, json!({})).await;
    assert_eq!(code, 429);
    assert!(said.contains("would violate the pod's disruption budget"), "{said}");
    let wish = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "m"}, "spec": {"vmiName": "a"},
    });
    let (code, body) = cluster.create(VMIMS, &wish).await;
    assert_eq!(code, 201, "{body}");
    cluster.until(&format!("{VMIMS}/m"), |m| phase(m) == "Running").await;
    let pods = cluster.get(PODS).await.unwrap();
    let pods: Vec<String> = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|pod| pod["status"]["phase"] == "Running")
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(pods.len(), 2, "source and target");
    for pod in &pods {
        let (code, said) = evict(&cluster, pod, json!({})).await;
        assert_eq!(code, 429, "{said}");
    }
    // A third pod with the guest's label, as a failed migration leaves it.
    let uid = &before["metadata"]["uid"];
    let third = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "left-over", "labels": {"kubevirt.io/created-by": uid}},
        "spec": {"containers": [{"name": "compute", "image": "example/left"}]},
    });
    let (code, body) = cluster.create(PODS, &third).await;
    assert_eq!(code, 201, "{body}");
    // The target of a migration is not ready before the guest has arrived.
    let all_three = |list: &Value| {
        let status = &list["items"][0]["status"];
        status["expectedPods"] == 3 && status["currentHealthy"].as_i64() >= Some(2)
    };
    cluster.until(BUDGETS, all_three).await;
    let (code, said) = evict(&cluster, &pod, json!({})).await;
    assert_eq!(code, 429, "{said}");
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(is_running(&vmi) && vmi["metadata"]["uid"] == before["metadata"]["uid"]);
    cluster.rest().await;
}

/// 22 guests of which 2 fit nowhere: the others do not wait for them, and the 2 are named at once.
#[tokio::test(start_paused = true)]
async fn nobody_starves_behind_a_guest_that_fits_nowhere() {
    let cluster = Cluster::start(3).await;
    for node in ["node-2", "node-3"] {
        cordon(&cluster, node).await;
    }
    for n in 0..22 {
        let mut guest = vm(&format!("vm-{n:02}"), "Always", &json!({"evac.dev/migration-seconds": "5"}));
        if n < 2 {
            guest["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "node-1"});
        }
        create_vm(&cluster, &guest).await;
    }
    for n in 0..22 {
        settled(&cluster, &format!("vm-{n:02}")).await;
    }
    for node in ["node-2", "node-3"] {
        let free = json!({"spec": {"unschedulable": null}});
        cluster.send("PATCH", &format!("/api/v1/nodes/{node}"), MERGE, &free).await;
    }
    let start = cluster.clock.now();
    taint(&cluster, "node-1", Some("kubevirt.io/drain")).await;
    let stuck = |vmi: &Value| {
        vmi["status"]["conditions"].as_array().is_some_and(|list| {
            list.iter().any(|c| c["type"] == "EvacuationBlocked" && c["reason"] == "Unschedulable")
        })
    };
    let left = |list: &Value| -> BTreeSet<String> {
        let all = list["items"].as_array().unwrap();
        let there = all.iter().filter(|vmi| node_of(vmi) == "node-1");
        there.map(|vmi| vmi["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    for name in ["vm-00", "vm-01"] {
        cluster.until(&format!("{VMIS}/{name}"), stuck).await;
    }
    let named = cluster.clock.now().duration_since(start).as_secs();
    assert!(named <= 5, "named after {named} s");
    cluster.until(VMIS, |list| left(list).len() == 2).await;
    let took = cluster.clock.now().duration_since(start).as_secs();
    // Ten rounds of two, five seconds each; what a target needs to come up is on top.
    assert!(took <= 80, "the twenty took {took} s");
    let list = cluster.get(VMIS).await.unwrap();
    assert_eq!(left(&list), ["vm-00", "vm-01"].map(str::to_owned).into());
    for name in ["vm-00", "vm-01"] {
        cluster.until(&format!("{VMIS}/{name}"), stuck).await;
        assert!(is_running(&cluster.get(&format!("{VMIS}/{name}")).await.unwrap()));
    }
    cluster.rest().await;
}

/// A migration that failed is tried again after its back-off, elsewhere.
#[tokio::test(start_paused = true)]
async fn v33_v34_a_failed_migration_is_repeated_after_its_back_off() {
    let cluster = Cluster::start(3).await;
    let guest =
        vm("a", "Always", &json!({"evac.dev/migration-seconds": "5", "evac.dev/migration-fails": "1"}));
    create_vm(&cluster, &guest).await;
    let before = settled(&cluster, "a").await;
    evict(&cluster, &launcher_of(&cluster, "a").await, json!({})).await;
    let one =
        |list: &Value| list["items"].as_array().is_some_and(|all| all.iter().any(|m| phase(m) == "Failed"));
    let failed = cluster.until(VMIMS, one).await;
    let first_target = failed["items"][0]["status"]["migrationState"]["targetNode"].clone();
    let at = cluster.clock.now();
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert_eq!(vmi["status"]["evacuationNodeName"], before["status"]["nodeName"], "the mark stays");
    let after = cluster.until(&format!("{VMIS}/a"), |vmi| node_of(vmi) != node_of(&before)).await;
    let waited = cluster.clock.now().duration_since(at).as_secs();
    assert!((20..40).contains(&waited), "{waited} s after the failure");
    assert_ne!(after["status"]["nodeName"], first_target, "another target");
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn bad_settings_are_refused_and_what_held_before_goes_on() {
    let cluster = Cluster::start(1).await;
    let refused = |answer: (u16, Value), part: &str| {
        let said = answer.1["message"].as_str().unwrap_or_default();
        assert!(answer.0 == 422 && said.contains(part), "{} {said}", answer.0);
    };
    let guest = with_strategy(vm("a", "Always", &json!({})), Some("Shutdown"));
    refused(cluster.create(VMS, &guest).await, "unrecognized option: Shutdown");
    let settings = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";
    for (bad, part) in [
        (json!({"evictionStrategy": "Shutdown"}), "unrecognized option: Shutdown"),
        (json!({"migrations": {"nodeDrainTaintKey": "no key"}}), "is no key of a taint"),
        (json!({"migrations": {"parallelMigrationsPerCluster": 0}}), "must be at least 1, not 0"),
        (json!({"migrations": {"parallelOutboundMigrationsPerNode": -3}}), "must be at least 1, not -3"),
    ] {
        let body = json!({"spec": {"configuration": bad}});
        refused(cluster.send("PATCH", settings, MERGE, &body).await, part);
    }
    assert_eq!(*cluster.operator.config().borrow(), evac_core::machines::Config::default());
    cluster.rest().await;
}

/// Strategy × migratable × cluster default × entry × run strategy: what each guest is like afterwards, as a table.
#[tokio::test(start_paused = true)]
async fn the_matrix_of_strategies_entries_and_run_strategies() {
    let mut table = String::from(
        "cluster default        own strategy           movable  entry      run strategy    after\n",
    );
    let mut wrong = Vec::new();
    for default in [None, Some("LiveMigrate")] {
        let cluster = Cluster::start(2).await;
        if let Some(word) = default {
            let body = json!({"spec": {"configuration": {"evictionStrategy": word}}});
            let (code, body) = cluster
                .send("PATCH", "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt", MERGE, &body)
                .await;
            assert_eq!(code, 200, "{body}");
        }
        for entry in ["eviction", "taint", "evac drain"] {
            for own in
                [None, Some("LiveMigrate"), Some("LiveMigrateIfPossible"), Some("None"), Some("External")]
            {
                for movable in [true, false] {
                    for run in ["Always", "RerunOnFailure", "Manual", "Once", "set", "plain"] {
                        let found = one_cell(&cluster, entry, own, movable, run).await;
                        let expected = expected(entry, own.or(default).unwrap_or("None"), movable, run);
                        let row = format!(
                            "{:<22} {:<22} {movable:<8} {entry:<10} {run:<15} {found}\n",
                            default.unwrap_or("-"),
                            own.unwrap_or("-")
                        );
                        table.push_str(&row);
                        if found != expected {
                            wrong.push(format!("expected {expected}: {row}"));
                        }
                    }
                }
            }
        }
        cluster.rest().await;
    }
    println!("{table}");
    assert!(wrong.is_empty(), "{}\n{} of {} rows", wrong.concat(), wrong.len(), table.lines().count() - 1);
}

/// The rules in words, independent of the code under test.
fn expected(entry: &str, strategy: &str, movable: bool, run: &str) -> &'static str {
    match (strategy, movable, entry) {
        ("LiveMigrate" | "LiveMigrateIfPossible", true, _) => "moved",
        ("External", _, "eviction" | "evac drain") => "stays, marked",
        ("LiveMigrate" | "External", _, _) | (_, _, "taint") => "stays",
        // What would not come back is refused unless it is allowed.
        (_, _, "evac drain") if !matches!(run, "Always" | "set") => "stays",
        _ => match run {
            "Always" => "restarted elsewhere",
            "set" => "replaced",
            // A clean shutdown is no failure.
            "RerunOnFailure" | "Manual" | "Once" | "plain" => "off",
            _ => "?",
        },
    }
}

async fn drain_node(cluster: &Cluster, node: &str) {
    let timeout = Some(Duration::from_secs(20));
    let request = DrainRequest {
        nodes: vec![node.to_owned()],
        policy: Policy { timeout, ..Policy::default() },
        owner: "tester".into(),
        instance: None,
        options: Vec::new(),
        page: None,
    };
    // However it ends: the table says what became of the guest.
    drain(cluster.http.clone(), request, CancellationToken::new(), &mut |_, _| {}).await.unwrap();
}

async fn one_cell(
    cluster: &Cluster,
    entry: &str,
    own: Option<&str>,
    movable: bool,
    run: &str,
) -> &'static str {
    let base = with_strategy(
        vm(
            "x",
            "Always",
            &json!({"evac.dev/migration-seconds": "1", "evac.dev/boot-seconds": "1", "evac.dev/shutdown-seconds": "1"}),
        ),
        own,
    );
    let base = if movable { base } else { pinned(base) };
    let template = base["spec"]["template"].clone();
    let name = match run {
        "set" => {
            let set = json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
                "metadata": {"name": "x"},
                "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "guest"}}, "template": template},
            });
            assert_eq!(cluster.create(VMIRS, &set).await.0, 201);
            let one = |list: &Value| list["items"].as_array().is_some_and(|all| all.len() == 1);
            let list = cluster.until(VMIS, one).await;
            list["items"][0]["metadata"]["name"].as_str().unwrap().to_owned()
        }
        "plain" => {
            let vmi = json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                "metadata": {"name": "x", "annotations": template["metadata"]["annotations"]}, "spec": template["spec"],
            });
            assert_eq!(cluster.create(VMIS, &vmi).await.0, 201);
            "x".to_owned()
        }
        strategy => {
            let mut object = base.clone();
            object["spec"]["runStrategy"] = json!(strategy);
            create_vm(cluster, &object).await;
            if strategy == "Manual" {
                let path = format!("{}/virtualmachines/x/start", crate::cluster::SUB);
                cluster.send("PUT", &path, "application/json", &json!({})).await;
            }
            "x".to_owned()
        }
    };
    let before = settled(cluster, &name).await;
    let node = node_of(&before);
    match entry {
        "taint" => taint(cluster, &node, Some("kubevirt.io/drain")).await,
        "evac drain" => drain_node(cluster, &node).await,
        _ => {
            cordon(cluster, &node).await;
            evict(cluster, &launcher_of(cluster, &name).await, json!({})).await;
        }
    }
    cluster.pass(20).await;
    let list = cluster.get(VMIS).await.unwrap();
    let all = list["items"].as_array().unwrap();
    let same = all.iter().find(|vmi| vmi["metadata"]["uid"] == before["metadata"]["uid"]);
    let other = all.iter().find(|vmi| vmi["metadata"]["uid"] != before["metadata"]["uid"] && is_running(vmi));
    let after = match (same, other) {
        (Some(vmi), None) if is_running(vmi) && node_of(vmi) != node => "moved",
        (Some(vmi), None) if is_running(vmi) && vmi["status"]["evacuationNodeName"].is_string() => {
            "stays, marked"
        }
        (Some(vmi), None) if is_running(vmi) => "stays",
        (_, Some(vmi)) if node_of(vmi) == node => "restarted on the same node",
        (_, Some(_)) if run == "set" => "replaced",
        (_, Some(_)) => "restarted elsewhere",
        (_, None) => "off",
    };
    let restored = json!({
        "metadata": {"annotations": {"evac.dev/drain": null}},
        "spec": {"taints": [], "unschedulable": null},
    });
    cluster.send("PATCH", &format!("/api/v1/nodes/{node}"), MERGE, &restored).await;
    let kind = match run {
        "set" => VMIRS,
        "plain" => VMIS,
        _ => VMS,
    };
    cluster.send("DELETE", &format!("{kind}/x"), "application/json", &json!({})).await;
    let nothing = |list: &Value| list["items"].as_array().is_some_and(Vec::is_empty);
    cluster.until(VMIS, nothing).await;
    cluster.until(PODS, nothing).await;
    after
}
