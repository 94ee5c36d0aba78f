//! Requests about running machines: pause, abort a migration, take back an evacuation; and guests that end by themselves.

use serde_json::{Value, json};

use crate::cluster::{Cluster, SUB, VMIMS, VMIS, VMS, vm};
use crate::guests::{JSON, MERGE, has};
use crate::{is_running, phase};

#[tokio::test(start_paused = true)]
async fn a_guest_is_paused_and_goes_on_when_asked() {
    let cluster = Cluster::start(1).await;
    cluster.create(VMS, &vm("a", "Always", &json!({}))).await;
    cluster.until(&format!("{VMIS}/a"), is_running).await;
    let ask = async |verb: &str| {
        cluster.send("PUT", &format!("{SUB}/virtualmachineinstances/a/{verb}"), JSON, &json!({})).await
    };
    let (code, body) = ask("unpause").await;
    assert_eq!(code, 409);
    assert!(body["message"].as_str().unwrap().ends_with("VMI is not paused"), "{body}");
    assert_eq!(ask("pause").await.0, 200);
    cluster.until(&format!("{VMIS}/a"), |vmi| has(vmi, "Paused")).await;
    let machine = cluster.until(&format!("{VMS}/a"), |vm| vm["status"]["printableStatus"] == "Paused").await;
    assert!(has(&machine, "Paused"));
    let (code, body) = ask("pause").await;
    assert_eq!(code, 409);
    assert!(body["message"].as_str().unwrap().ends_with("VMI is already paused"), "{body}");
    assert_eq!(ask("unpause").await.0, 200);
    cluster.until(&format!("{VMS}/a"), |vm| vm["status"]["printableStatus"] == "Running").await;
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn m45_a_running_migration_that_is_deleted_leaves_the_guest_where_it_is() {
    let cluster = Cluster::start(2).await;
    cluster.create(VMS, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "120"}))).await;
    let before = cluster.until(&format!("{VMIS}/a"), |vmi| has(vmi, "LiveMigratable")).await;
    let move_it = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "m"}, "spec": {"vmiName": "a"},
    });
    cluster.create(VMIMS, &move_it).await;
    cluster.until(&format!("{VMIMS}/m"), |m| phase(m) == "Running").await;
    cluster.until(&format!("{VMS}/a"), |vm| vm["status"]["printableStatus"] == "Migrating").await;
    cluster.send("DELETE", &format!("{VMIMS}/m"), JSON, &json!({})).await;
    cluster.until(&format!("{VMIMS}/m"), Value::is_null).await;
    let after =
        cluster.until(&format!("{VMIS}/a"), |vmi| vmi["status"]["migrationState"]["completed"] == true).await;
    assert_eq!(after["status"]["nodeName"], before["status"]["nodeName"]);
    assert_eq!(after["status"]["migrationState"]["abortStatus"], "Succeeded", "{after:#}");
    assert!(is_running(&after));
    // Its slot is free and its target pod gone: the next one gets through.
    let again = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "again"}, "spec": {"vmiName": "a"},
    });
    let (code, body) = cluster.create(VMIMS, &again).await;
    assert_eq!(code, 201, "{body}");
    cluster.until(&format!("{VMIMS}/again"), |m| phase(m) == "Succeeded").await;
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn m43_a_migration_without_a_place_to_go_gives_up_and_the_guest_stays() {
    let cluster = Cluster::start(1).await;
    cluster.create(VMS, &vm("a", "Always", &json!({}))).await;
    cluster.until(&format!("{VMIS}/a"), |vmi| has(vmi, "LiveMigratable")).await;
    let move_it = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "m", "annotations": {"kubevirt.io/migrationUnschedulablePodTimeoutSeconds": "20"}},
        "spec": {"vmiName": "a"},
    });
    cluster.create(VMIMS, &move_it).await;
    let over = |m: &Value| phase(m) == "Failed" && m["metadata"]["finalizers"].is_null();
    cluster.until(&format!("{VMIMS}/m"), over).await;
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(is_running(&vmi));
    let pods = cluster.get("/api/v1/namespaces/default/pods").await.unwrap();
    assert_eq!(pods["items"].as_array().unwrap().len(), 1, "only the source is left");
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn r46_r48_a_crashed_guest_comes_back_or_stays_as_its_strategy_says() {
    let cluster = Cluster::start(2).await;
    let crash = json!({"evac.dev/crash-after-seconds": "10"});
    cluster.create(VMS, &vm("rerun", "RerunOnFailure", &crash)).await;
    cluster.create(VMS, &vm("once", "Once", &crash)).await;
    let first = cluster.until(&format!("{VMIS}/rerun"), is_running).await;
    let uid = first["metadata"]["uid"].clone();
    cluster.until(&format!("{VMIS}/rerun"), |vmi| is_running(vmi) && vmi["metadata"]["uid"] != uid).await;
    cluster.until(&format!("{VMIS}/once"), |vmi| phase(vmi) == "Failed").await;
    cluster.pass(60).await;
    let once = cluster.get(&format!("{VMIS}/once")).await.unwrap();
    assert_eq!(phase(&once), "Failed");
    let machine = cluster.get(&format!("{VMS}/once")).await.unwrap();
    assert_eq!(machine["status"]["printableStatus"], "Stopped");
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn v38_to_v44_an_evacuation_is_taken_back_only_for_the_node_it_names() {
    let cluster = Cluster::start(1).await;
    cluster.create(VMS, &vm("a", "Always", &json!({}))).await;
    cluster.until(&format!("{VMS}/a"), |vm| vm["status"]["printableStatus"] == "Running").await;
    let cancel = async |what: &str, body: &Value| {
        cluster.send("PUT", &format!("{SUB}/{what}/evacuate/cancel"), JSON, body).await
    };
    let node = json!({"evacuationNodeName": "node-1"});
    assert_eq!(cancel("virtualmachines/none", &node).await.0, 404);
    assert_eq!(cancel("virtualmachineinstances/none", &node).await.0, 404);
    assert_eq!(cancel("virtualmachines/a", &node).await.0, 200, "nothing to take back");
    let mark = json!({"status": {"evacuationNodeName": "node-1"}});
    cluster.send("PATCH", &format!("{VMIS}/a"), MERGE, &mark).await;
    cluster.until(&format!("{VMIS}/a"), |vmi| has(vmi, "EvictionRequested")).await;
    assert_eq!(cancel("virtualmachines/a", &json!({})).await.0, 500, "no node named");
    assert_eq!(cancel("virtualmachines/a", &json!("what")).await.0, 400, "not an object");
    let trial = json!({"evacuationNodeName": "node-1", "dryRun": ["All"]});
    assert_eq!(cancel("virtualmachines/a", &trial).await.0, 200);
    assert!(has(&cluster.get(&format!("{VMIS}/a")).await.unwrap(), "EvictionRequested"));
    let taint = json!({"spec": {"taints": [{"key": "kubevirt.io/drain", "effect": "NoSchedule"}]}});
    cluster.send("PATCH", "/api/v1/nodes/node-1", MERGE, &taint).await;
    assert_eq!(cancel("virtualmachineinstances/a", &node).await.0, 400, "the drain goes on");
    cluster.send("PATCH", "/api/v1/nodes/node-1", MERGE, &json!({"spec": {"taints": null}})).await;
    assert_eq!(cancel("virtualmachineinstances/a", &node).await.0, 200);
    let vmi = cluster.until(&format!("{VMIS}/a"), |vmi| !has(vmi, "EvictionRequested")).await;
    assert!(vmi["status"]["evacuationNodeName"].is_null());
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn settings_of_the_old_config_map_reach_the_controllers() {
    let cluster = Cluster::start(1).await;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kubevirt-config", "namespace": "kubevirt", "labels": {"kubevirt.io": ""}},
        "data": {"feature-gates": "LiveMigration", "migrations": "nodeDrainTaintKey: mytaint/drain"},
    });
    let (code, body) = cluster.create("/api/v1/namespaces/kubevirt/configmaps", &map).await;
    assert_eq!(code, 201, "{body}");
    let mut config = cluster.operator.config();
    config.wait_for(|config| config.drain_taint_key == "mytaint/drain").await.unwrap();
    let strategy = json!({"spec": {"configuration": {"evictionStrategy": "LiveMigrate"}}});
    cluster
        .send("PATCH", "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt", MERGE, &strategy)
        .await;
    config.wait_for(|config| config.default_strategy() == "LiveMigrate").await.unwrap();
    let mut plain = vm("a", "Always", &json!({}));
    plain["spec"]["template"]["spec"].as_object_mut().unwrap().remove("evictionStrategy");
    cluster.create(VMS, &plain).await;
    let vmi = cluster.until(&format!("{VMIS}/a"), is_running).await;
    assert_eq!(vmi["spec"]["evictionStrategy"], "LiveMigrate");
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn r50_r51_a_machine_that_always_runs_comes_back_after_losing_its_pod_but_not_in_a_hurry_if_it_never_ran()
 {
    let cluster = Cluster::start(2).await;
    cluster.create(VMS, &vm("a", "Always", &json!({}))).await;
    let first = cluster.until(&format!("{VMIS}/a"), is_running).await;
    let uid = first["metadata"]["uid"].clone();
    let pods = "/api/v1/namespaces/default/pods?labelSelector=vm.kubevirt.io%2Fname%3D";
    cluster.send("DELETE", &format!("{pods}a"), JSON, &json!({})).await;
    let second =
        cluster.until(&format!("{VMIS}/a"), |vmi| is_running(vmi) && vmi["metadata"]["uid"] != uid).await;
    let machine = cluster.until(&format!("{VMS}/a"), |vm| vm["status"]["printableStatus"] == "Running").await;
    assert!(machine["status"]["startFailure"].is_null(), "it had run: {machine:#}");

    // This one never gets as far as running.
    cluster.create(VMS, &vm("b", "Always", &json!({"evac.dev/crash-after-seconds": "0"}))).await;
    let machine =
        cluster.until(&format!("{VMS}/b"), |vm| vm["status"]["printableStatus"] == "CrashLoopBackOff").await;
    assert_eq!(machine["status"]["startFailure"]["consecutiveFailCount"], 1);
    let failed_at = cluster.clock.now();
    let again = |vm: &Value| vm["status"]["startFailure"]["consecutiveFailCount"] == 2;
    cluster.until(&format!("{VMS}/b"), again).await;
    let waited = cluster.clock.now().duration_since(failed_at).as_secs();
    assert!((9..=18).contains(&waited), "waited {waited} s");
    assert!(is_running(&second));
    cluster.rest().await;
}

fn grace(vmi: &Value) -> Option<i64> {
    vmi["spec"]["terminationGracePeriodSeconds"].as_i64()
}

/// A forced restart shortens the time that the guest gets, then asks for the restart. What was not accepted has left nothing behind.
#[tokio::test(start_paused = true)]
async fn r38_a_guest_gets_its_time_back_when_the_restart_is_refused() {
    let cluster = Cluster::start(1).await;
    cluster.create(VMS, &vm("a", "Always", &json!({}))).await;
    let quiet = |vm: &Value| vm["status"]["printableStatus"] == "Running" && has(vm, "Ready");
    cluster.until(&format!("{VMS}/a"), quiet).await;
    cluster.pass(5).await;
    let instance = format!("{VMIS}/a");
    let before = cluster.get(&instance).await.unwrap();
    assert_eq!(grace(&before), Some(30));
    let restart = async || {
        let path = format!("{SUB}/virtualmachines/a/restart");
        cluster.send("PUT", &path, JSON, &json!({"gracePeriodSeconds": 0})).await
    };
    // The machine cannot be written.
    let asked = cluster.refuse_writes("virtualmachines/status", &instance).await;
    let (code, body) = restart().await;
    assert_eq!(code, 500, "{body}");
    assert!(body["message"].as_str().unwrap().contains("not today"), "{body}");
    let requests = |object: &Value| object["status"]["stateChangeRequests"].is_array();
    let at = asked.lock().unwrap().iter().find(|(object, _)| requests(object)).map(|(_, vmi)| grace(vmi));
    assert_eq!(at, Some(Some(1)), "the time was shortened first");
    let vmi = cluster.get(&instance).await.unwrap();
    assert_eq!((grace(&vmi), &vmi["metadata"]["uid"]), (Some(30), &before["metadata"]["uid"]));
    cluster.allow_writes().await;
    // The instance cannot be written: nothing is asked of the machine at all.
    cluster.refuse_writes("virtualmachineinstances", &instance).await;
    let (code, body) = restart().await;
    assert_eq!(code, 500, "{body}");
    let machine = cluster.get(&format!("{VMS}/a")).await.unwrap();
    assert!(machine["status"]["stateChangeRequests"].is_null(), "{machine:#}");
    cluster.allow_writes().await;
    // Both can.
    assert_eq!(restart().await.0, 202);
    let again = |vmi: &Value| is_running(vmi) && vmi["metadata"]["uid"] != before["metadata"]["uid"];
    assert_eq!(grace(&cluster.until(&instance, again).await), Some(30));
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn r42_a_trial_is_answered_as_if_it_were_meant_and_changes_nothing() {
    let cluster = Cluster::start(2).await;
    cluster.create(VMS, &vm("on", "Always", &json!({}))).await;
    cluster.create(VMS, &vm("rerun", "RerunOnFailure", &json!({}))).await;
    cluster.create(VMS, &vm("off", "Halted", &json!({}))).await;
    for name in ["on", "rerun"] {
        cluster.until(&format!("{VMIS}/{name}"), |vmi| has(vmi, "LiveMigratable")).await;
        cluster.until(&format!("{VMS}/{name}"), |vm| vm["status"]["printableStatus"] == "Running").await;
    }
    cluster.pass(20).await;
    let all = async || {
        let mut all = Vec::new();
        for path in [VMS, VMIS, VMIMS] {
            all.push(cluster.get(path).await.unwrap()["items"].clone());
        }
        all
    };
    let ask = async |what: &str, trial: bool, more: Value| {
        let mut body = more;
        if trial {
            body["dryRun"] = json!(["All"]);
        }
        cluster.send("PUT", &format!("{SUB}/{what}"), JSON, &body).await
    };
    let before = all().await;
    for (what, more, expected) in [
        ("virtualmachines/off/start", json!({}), 202),
        ("virtualmachines/off/start", json!({"paused": true}), 202),
        ("virtualmachines/on/stop", json!({}), 202),
        ("virtualmachines/on/stop", json!({"gracePeriod": 1}), 202),
        ("virtualmachines/rerun/stop", json!({}), 202),
        ("virtualmachines/on/restart", json!({}), 202),
        ("virtualmachines/on/restart", json!({"gracePeriodSeconds": 0}), 202),
        ("virtualmachines/on/migrate", json!({}), 202),
        ("virtualmachineinstances/on/pause", json!({}), 200),
        // What would be refused is refused in a trial too.
        ("virtualmachines/off/stop", json!({}), 409),
        ("virtualmachines/on/start", json!({}), 409),
        ("virtualmachineinstances/on/unpause", json!({}), 409),
    ] {
        let (code, body) = ask(what, true, more).await;
        assert_eq!(code, expected, "{what}: {body}");
        assert_eq!(all().await, before, "{what}");
    }
    cluster.pass(20).await;
    assert_eq!(all().await, before, "nothing follows either");
    // Meant, it does something.
    assert_eq!(ask("virtualmachineinstances/on/pause", false, json!({})).await.0, 200);
    cluster.until(&format!("{VMIS}/on"), |vmi| has(vmi, "Paused")).await;
    assert_eq!(ask("virtualmachineinstances/on/unpause", true, json!({})).await.0, 200);
    cluster.pass(5).await;
    assert!(has(&cluster.get(&format!("{VMIS}/on")).await.unwrap(), "Paused"), "that was a trial");
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn r43_a_migration_is_asked_for_only_of_a_machine_that_runs() {
    let cluster = Cluster::start(2).await;
    let migrate = async |name: &str| {
        cluster.send("PUT", &format!("{SUB}/virtualmachines/{name}/migrate"), JSON, &json!({})).await
    };
    assert_eq!(migrate("none").await.0, 404);
    cluster.create(VMS, &vm("off", "Halted", &json!({}))).await;
    cluster.pass(2).await;
    let (code, body) = migrate("off").await;
    assert_eq!(code, 404, "{body}");
    assert_eq!(body["message"], "virtualmachineinstance.kubevirt.io \"off\" not found");
    // There is an instance that never gets a place.
    let mut waiting = vm("waiting", "Always", &json!({}));
    waiting["spec"]["template"]["spec"]["nodeSelector"] = json!({"nowhere": "true"});
    cluster.create(VMS, &waiting).await;
    cluster.until(&format!("{VMIS}/waiting"), |vmi| phase(vmi) == "Scheduling").await;
    let (code, body) = migrate("waiting").await;
    assert_eq!(code, 409, "{body}");
    assert!(body["message"].as_str().unwrap().ends_with("VM is not running"), "{body}");
    assert_eq!(cluster.get(VMIMS).await.unwrap()["items"], json!([]), "nothing was created");
    cluster.create(VMS, &vm("on", "Always", &json!({"evac.dev/migration-seconds": "30"}))).await;
    cluster.until(&format!("{VMIS}/on"), |vmi| has(vmi, "LiveMigratable")).await;
    assert_eq!(migrate("on").await.0, 202);
    let (code, body) = migrate("on").await;
    assert_eq!(code, 500, "a second one cannot be created: {body}");
    assert!(body["message"].as_str().unwrap().contains("in-flight migration detected"), "{body}");
    cluster.rest().await;
}
