//! Promise 4 under stress: a guest that is to be moved is never shut down by an eviction, whatever fails or changes meanwhile.

use std::time::Duration;

use evac_core::Policy;
use evac_core::drain::run::End;
use evac_core::drain::step::Event;
use evac_core::machines::Roles;
use evac_engine::give_back::{Whose, call_back};
use evac_engine::{DrainRequest, drain};
use evac_world::{NodeSpec, Options, World};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, SUB, VMIMS, VMIS, vm};
use crate::guests::{
    BUDGETS, HOOKS, JSON, MERGE, PODS, cordon, create_vm, evict, launcher_of, node_of, settled, taint,
    with_strategy,
};
use crate::{is_running, phase};

const INTERCEPTOR: &str = "virt-launcher-eviction-interceptor.kubevirt.io";

/// Changes the webhook that is asked about evictions.
async fn edit_interceptor(cluster: &Cluster, edit: impl Fn(&mut Value)) {
    let mut hooks = cluster.get(HOOKS).await.unwrap();
    let list = hooks["webhooks"].as_array_mut().unwrap();
    edit(list.iter_mut().find(|hook| hook["name"] == INTERCEPTOR).expect("evictions are reviewed"));
    let (code, body) = cluster.send("PUT", HOOKS, JSON, &hooks).await;
    assert_eq!(code, 200, "{body}");
}

/// Waits until the disruption controller has counted the pods of the one budget there is.
async fn guarded(cluster: &Cluster) {
    let counted = |list: &Value| {
        list["items"].as_array().is_some_and(|items| {
            items.len() == 1 && items[0]["status"]["observedGeneration"] == items[0]["metadata"]["generation"]
        })
    };
    cluster.until(BUDGETS, counted).await;
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_nobody_answers_shuts_nothing_down_under_either_policy() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "5"}))).await;
    let before = settled(&cluster, "a").await;
    guarded(&cluster).await;
    let pod = launcher_of(&cluster, "a").await;
    for (policy, code, words) in
        [("Fail", 500, INTERCEPTOR), ("Ignore", 429, "would violate the pod's disruption budget")]
    {
        edit_interceptor(&cluster, |hook| {
            hook["failurePolicy"] = json!(policy);
            hook["clientConfig"]["service"]["name"] = json!("nobody");
        })
        .await;
        for _ in 0..5 {
            let (answer, said) =
                evict(&cluster, &pod, json!({"deleteOptions": {"gracePeriodSeconds": 0}})).await;
            assert_eq!(answer, code, "{policy}: {said}");
            assert!(said.contains(words), "{policy}: {said}");
            cluster.pass(5).await;
        }
        let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
        assert!(is_running(&vmi) && vmi["metadata"]["uid"] == before["metadata"]["uid"], "{policy}");
        assert!(vmi["status"]["evacuationNodeName"].is_null(), "{policy}: nobody was asked, so nobody marks");
    }
    // The taint needs no webhook.
    taint(&cluster, &node_of(&before), Some("kubevirt.io/drain")).await;
    let after = cluster.until(&format!("{VMIS}/a"), |vmi| node_of(vmi) != node_of(&before)).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_disruption_controller_that_is_late_shuts_nothing_down() {
    let without = Options { disruption: false, ..Options::cluster(NodeSpec::workers(2)) };
    let cluster = Cluster::start_in(without, Roles::all()).await;
    create_vm(&cluster, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "5"}))).await;
    let before = settled(&cluster, "a").await;
    cluster.until(BUDGETS, |list| list["items"].as_array().is_some_and(|items| items.len() == 1)).await;
    // Nobody reviews evictions, so that the budget alone stands before the guest, and nobody has counted for it yet.
    edit_interceptor(&cluster, |hook| {
        hook["failurePolicy"] = json!("Ignore");
        hook["clientConfig"]["service"]["name"] = json!("nobody");
    })
    .await;
    let pod = launcher_of(&cluster, "a").await;
    let refused = async || {
        let (code, said) = evict(&cluster, &pod, json!({"deleteOptions": {"gracePeriodSeconds": 0}})).await;
        assert_eq!(code, 429, "{said}");
        assert!(said.contains("would violate the pod's disruption budget"), "{said}");
    };
    for _ in 0..5 {
        refused().await;
        cluster.pass(5).await;
    }
    let uncounted = cluster.get(BUDGETS).await.unwrap();
    assert!(uncounted["items"][0]["status"]["observedGeneration"].is_null(), "{uncounted:#}");
    let late = Options {
        disruption: true,
        kubelets: false,
        hypervisors: false,
        parallel_writes: 1,
        ..Options::kubelets_only(Vec::new())
    };
    let _late = World::start(cluster.http.client().clone(), cluster.clock, late);
    guarded(&cluster).await;
    refused().await;
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(is_running(&vmi) && vmi["metadata"]["uid"] == before["metadata"]["uid"]);
    // A drain asks for a migration, and that asks no budget.
    assert!(matches!(drained(&cluster, &node_of(&before)).await.0, End::Drained { .. }));
    let after = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(node_of(&after) != node_of(&before) && after["metadata"]["uid"] == before["metadata"]["uid"]);
    cluster.rest().await;
}

/// A drain of a node with a minute of time: how it ended, and what it said it waited for.
async fn drained(cluster: &Cluster, node: &str) -> (End, Vec<String>) {
    let request = DrainRequest {
        nodes: vec![node.to_owned()],
        policy: Policy { timeout: Some(Duration::from_secs(60)), ..Policy::default() },
        owner: "tester".into(),
        instance: None,
        options: Vec::new(),
        page: None,
    };
    let mut told = (None, Vec::new());
    drain(cluster.http.clone(), request, CancellationToken::new(), &mut |_, event| match event {
        Event::Ended { end, .. } => told.0 = Some(end.clone()),
        Event::Waiting { blocker, .. } => told.1.push(blocker.reason.message()),
        _ => {}
    })
    .await
    .unwrap();
    (told.0.expect("it ended"), told.1)
}

/// The target of a migration that failed is still there, and its node does not say what became of it.
#[tokio::test(start_paused = true)]
async fn a_third_pod_holds_the_next_migration_back_is_named_and_shuts_nothing_down() {
    let cluster = Cluster::start(3).await;
    create_vm(&cluster, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "5"}))).await;
    let before = settled(&cluster, "a").await;
    let uid = before["metadata"]["uid"].as_str().unwrap();
    let away = if node_of(&before) == "node-3" { "node-2" } else { "node-3" };
    let stray = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "virt-launcher-a-left",
            "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": uid, "kubevirt.io/migrationJobUID": "earlier"},
            "annotations": {"kubevirt.io/domain": "a"},
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "a", "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"nodeName": away, "containers": [{"name": "compute", "image": "example/launcher"}]},
    });
    let (code, stray) = cluster.create(PODS, &stray).await;
    assert_eq!(code, 201, "{stray}");
    let active = json!({"status": {"activePods": {stray["metadata"]["uid"].as_str().unwrap(): away}}});
    assert_eq!(cluster.send("PATCH", &format!("{VMIS}/a"), MERGE, &active).await.0, 200);
    let (end, said) = drained(&cluster, &node_of(&before)).await;
    assert!(matches!(end, End::TimedOut { .. }), "{end:?}");
    assert!(said.iter().any(|why| why.contains(&format!("still there on node {away}"))), "{said:?}");
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(is_running(&vmi) && vmi["metadata"]["uid"] == uid && node_of(&vmi) == node_of(&before));
    let grace = json!({"gracePeriodSeconds": 0});
    assert_eq!(cluster.send("DELETE", &format!("{PODS}/virt-launcher-a-left"), JSON, &grace).await.0, 200);
    assert!(matches!(drained(&cluster, &node_of(&before)).await.0, End::Drained { .. }));
    let after = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(node_of(&after) != node_of(&before) && after["metadata"]["uid"] == uid);
    cluster.rest().await;
}

/// The strategy of a running guest is edited while it is on its way. What holds is what it says now.
#[tokio::test(start_paused = true)]
async fn a_strategy_edited_on_the_way_holds_from_then_on_and_ends_no_guest() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "30"}))).await;
    let before = settled(&cluster, "a").await;
    guarded(&cluster).await;
    let pod = launcher_of(&cluster, "a").await;
    assert_eq!(evict(&cluster, &pod, json!({})).await.0, 429);
    cluster.until(VMIMS, |list| phase(&list["items"][0]) == "Running").await;
    let edit = async |word: &str| {
        let body = json!({"spec": {"evictionStrategy": word}});
        let (code, body) = cluster.send("PATCH", &format!("{VMIS}/a"), MERGE, &body).await;
        assert_eq!(code, 200, "{body}");
    };
    // It may be shut down now. That alone shuts nothing down: the guest travels on.
    edit("None").await;
    cluster.until(BUDGETS, |list| list["items"].as_array().is_some_and(Vec::is_empty)).await;
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(is_running(&vmi) && vmi["metadata"]["deletionTimestamp"].is_null());
    let migrations = cluster.get(VMIMS).await.unwrap();
    assert_eq!(phase(&migrations["items"][0]), "Running");
    // Back again, and asked in the same instant: no budget is there yet, and the review looks at what is written now.
    edit("LiveMigrate").await;
    let (code, said) = evict(&cluster, &pod, json!({})).await;
    assert_eq!(code, 429);
    assert!(said.contains("Evacuation in progress"), "{said}");
    guarded(&cluster).await;
    let after = cluster.until(&format!("{VMIS}/a"), |vmi| node_of(vmi) != node_of(&before)).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    let migrations = cluster.get(VMIMS).await.unwrap();
    assert_eq!(migrations["items"].as_array().unwrap().len(), 1);
    // To None before anybody asks: the next eviction goes through, and the machine starts elsewhere.
    edit("None").await;
    cluster.until(BUDGETS, |list| list["items"].as_array().is_some_and(Vec::is_empty)).await;
    cordon(&cluster, &node_of(&after)).await;
    let pod = launcher_of(&cluster, "a").await;
    let (code, said) = evict(&cluster, &pod, json!({})).await;
    assert_eq!(code, 201, "{said}");
    let restarted = |vmi: &Value| is_running(vmi) && vmi["metadata"]["uid"] != before["metadata"]["uid"];
    let restarted = cluster.until(&format!("{VMIS}/a"), restarted).await;
    assert_eq!(node_of(&restarted), node_of(&before));
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn w28_w29_a_hotplugged_volume_stays_until_its_guest_has_left() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "10"}))).await;
    let before = settled(&cluster, "a").await;
    let pod = launcher_of(&cluster, "a").await;
    let owner = cluster.get(&format!("{PODS}/{pod}")).await.unwrap();
    let volume = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "hp-volume-x", "labels": {"kubevirt.io": "hotplug-disk"},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": owner["metadata"]["uid"],
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"nodeName": node_of(&before), "containers": [{"name": "hotplug-disk", "image": "example/hotplug"}]},
    });
    let (code, body) = cluster.create(PODS, &volume).await;
    assert_eq!(code, 201, "{body}");
    cluster.until(&format!("{PODS}/hp-volume-x"), is_running).await;
    let refused = async || {
        let (code, said) = evict(&cluster, "hp-volume-x", json!({})).await;
        assert_eq!(code, 429);
        assert!(
            said.ends_with(
                "cannot evict hotplug pod: hp-volume-x associated with running vmi: a in namespace default"
            ),
            "{said}"
        );
    };
    refused().await;
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(vmi["status"]["evacuationNodeName"].is_null(), "that marks nobody");
    assert_eq!(evict(&cluster, &pod, json!({})).await.0, 429);
    cluster.until(VMIMS, |list| phase(&list["items"][0]) == "Running").await;
    refused().await;
    let after = cluster.until(&format!("{VMIS}/a"), |vmi| node_of(vmi) != node_of(&before)).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    let over = |pod: &Value| pod.is_null() || phase(pod) == "Succeeded";
    cluster.until(&format!("{PODS}/{pod}"), over).await;
    let (code, said) = evict(&cluster, "hp-volume-x", json!({})).await;
    assert!(matches!(code, 201 | 404), "{code} {said}");
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn w23_w24_w02_what_cannot_be_read_or_marked_is_refused_and_what_is_not_there_is_not_ours() {
    let cluster = Cluster::start(1).await;
    create_vm(&cluster, &vm("a", "Always", &json!({}))).await;
    settled(&cluster, "a").await;
    let stray = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "virt-launcher-lost", "labels": {"kubevirt.io": "virt-launcher"},
            "annotations": {"kubevirt.io/domain": "lost"},
        },
        "spec": {"containers": [{"name": "compute", "image": "example/launcher"}]},
    });
    assert_eq!(cluster.create(PODS, &stray).await.0, 201);
    cluster.until(&format!("{PODS}/virt-launcher-lost"), is_running).await;
    let (code, said) = evict(&cluster, "virt-launcher-lost", json!({})).await;
    assert_eq!(code, 429);
    assert!(
        said.contains(
            "kubevirt failed getting the vmi: virtualmachineinstances.kubevirt.io \"lost\" not found"
        ),
        "{said}"
    );
    let (code, _) = evict(&cluster, "virt-launcher-nobody", json!({})).await;
    assert_eq!(code, 404, "the server's own answer");
    let asked = cluster.refuse_writes("virtualmachineinstances", PODS).await;
    let pod = launcher_of(&cluster, "a").await;
    let (code, said) = evict(&cluster, &pod, json!({})).await;
    assert_eq!(code, 429);
    assert!(said.contains("kubevirt failed marking the vmi for eviction: "), "{said}");
    assert!(said.contains("not today"), "{said}");
    assert!(
        asked.lock().unwrap().iter().any(|(object, _)| object["status"]["evacuationNodeName"] == "node-1"),
        "the mark was what was refused"
    );
    cluster.allow_writes().await;
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(is_running(&vmi) && vmi["status"]["evacuationNodeName"].is_null());
    cluster.rest().await;
}

/// Twice a second, with no time to say goodbye.
#[tokio::test(start_paused = true)]
async fn w32_w33_an_external_guest_outlives_every_eviction() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &with_strategy(vm("a", "Always", &json!({})), Some("External"))).await;
    let before = settled(&cluster, "a").await;
    let pod = launcher_of(&cluster, "a").await;
    for n in 0..60 {
        let (code, said) = evict(&cluster, &pod, json!({"deleteOptions": {"gracePeriodSeconds": 0}})).await;
        assert_eq!(code, 429);
        let words = "Eviction triggered evacuation of VMI \"default/a\"";
        assert!(said.contains(words) && said.contains("Evacuation in progress: ") == (n > 0), "{n}: {said}");
        cluster.pass_millis(500).await;
    }
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(is_running(&vmi) && vmi["metadata"]["uid"] == before["metadata"]["uid"]);
    assert_eq!(vmi["status"]["evacuationNodeName"], before["status"]["nodeName"]);
    assert_eq!(cluster.get(VMIMS).await.unwrap()["items"], json!([]), "v16: nobody moves it");
    cluster.rest().await;
}

/// A migration that a person asked for is as good as one of ours: both of its pods stay until it is over.
#[tokio::test(start_paused = true)]
async fn v25_w30_neither_pod_of_a_running_migration_can_be_evicted() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "60"}))).await;
    let before = settled(&cluster, "a").await;
    let wish = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "mine"}, "spec": {"vmiName": "a"},
    });
    assert_eq!(cluster.create(VMIMS, &wish).await.0, 201);
    cluster.until(&format!("{VMIMS}/mine"), |m| phase(m) == "Running").await;
    let pods = cluster.get(PODS).await.unwrap();
    let source = launcher_of(&cluster, "a").await;
    let names = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned());
    let target = names.clone().find(|name| *name != source).expect("there is a target");
    assert_eq!(names.count(), 2);
    // The target first: that must not mark the guest.
    let (code, said) = evict(&cluster, &target, json!({})).await;
    assert_eq!(code, 429);
    assert!(said.ends_with("Eviction request for target Pod"), "{said}");
    while phase(&cluster.get(&format!("{VMIMS}/mine")).await.unwrap()) == "Running" {
        for pod in [&source, &target] {
            let (code, said) = evict(&cluster, pod, json!({})).await;
            assert_eq!(code, 429, "{said}");
        }
        cluster.pass(5).await;
    }
    let after = cluster.until(&format!("{VMIS}/a"), |vmi| node_of(vmi) != node_of(&before)).await;
    assert!(is_running(&after) && after["metadata"]["uid"] == before["metadata"]["uid"]);
    assert_eq!(cluster.get(VMIMS).await.unwrap()["items"].as_array().unwrap().len(), 1, "it was moved once");
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn v36_an_evacuation_that_was_taken_back_does_not_start_again() {
    let cluster = Cluster::start(1).await;
    create_vm(&cluster, &vm("a", "Always", &json!({}))).await;
    settled(&cluster, "a").await;
    assert_eq!(evict(&cluster, &launcher_of(&cluster, "a").await, json!({})).await.0, 429);
    let list = cluster.until(VMIMS, |list| list["items"][0].is_object()).await;
    let cancel = json!({"evacuationNodeName": "node-1"});
    let path = format!("{SUB}/virtualmachineinstances/a/evacuate/cancel");
    assert_eq!(cluster.send("PUT", &path, JSON, &cancel).await.0, 200);
    let name = list["items"][0]["metadata"]["name"].as_str().unwrap();
    cluster.send("DELETE", &format!("{VMIMS}/{name}"), JSON, &json!({})).await;
    cluster.until(VMIMS, |list| list["items"] == json!([])).await;
    cluster.pass(120).await;
    assert_eq!(cluster.get(VMIMS).await.unwrap()["items"], json!([]));
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(is_running(&vmi) && vmi["status"]["evacuationNodeName"].is_null());
    cluster.rest().await;
}

/// The other way round the control plane would make another migration in the moment in between.
#[tokio::test(start_paused = true)]
async fn whoever_takes_a_drain_back_clears_marks_before_migrations() {
    let cluster = Cluster::start(2).await;
    create_vm(&cluster, &vm("a", "Always", &json!({"evac.dev/migration-seconds": "600"}))).await;
    let before = settled(&cluster, "a").await;
    assert_eq!(evict(&cluster, &launcher_of(&cluster, "a").await, json!({})).await.0, 429);
    cluster.until(VMIMS, |list| phase(&list["items"][0]) == "Running").await;
    let asked = cluster.refuse_writes("virtualmachineinstances", VMIMS).await;
    let refused = call_back(&cluster.http, &node_of(&before), Whose::Everybody, false).await.unwrap();
    assert_eq!(refused.left.len(), 1, "{refused:?}");
    let clearing = |(object, _): &&(Value, Value)| object["status"]["evacuationNodeName"].is_null();
    let then = asked.lock().unwrap().iter().find(clearing).expect("the mark was to be cleared").1.clone();
    assert!(then["items"][0]["metadata"]["deletionTimestamp"].is_null(), "{then:#}");
    cluster.allow_writes().await;
    let done = call_back(&cluster.http, &node_of(&before), Whose::Everybody, false).await.unwrap();
    assert_eq!((done.unmarked.len(), done.left.len()), (1, 0), "{done:?}");
    cluster.until(VMIMS, |list| list["items"] == json!([])).await;
    cluster.pass(120).await;
    assert_eq!(cluster.get(VMIMS).await.unwrap()["items"], json!([]));
    let vmi = cluster.get(&format!("{VMIS}/a")).await.unwrap();
    assert!(is_running(&vmi) && node_of(&vmi) == node_of(&before));
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn p01_p11_a_budget_that_somebody_made_in_the_name_of_a_guest_does_not_stay() {
    let cluster = Cluster::start(1).await;
    create_vm(&cluster, &with_strategy(vm("free", "Always", &json!({})), Some("None"))).await;
    create_vm(&cluster, &vm("kept", "Always", &json!({}))).await;
    settled(&cluster, "free").await;
    settled(&cluster, "kept").await;
    guarded(&cluster).await;
    let ours = cluster.get(BUDGETS).await.unwrap()["items"][0]["metadata"]["name"].clone();
    for guest in ["free", "kept"] {
        let vmi = cluster.get(&format!("{VMIS}/{guest}")).await.unwrap();
        let made = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": format!("made-for-{guest}"), "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": guest,
                "uid": vmi["metadata"]["uid"], "controller": true,
            }]},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"kubevirt.io/created-by": vmi["metadata"]["uid"]}}},
        });
        let (code, body) = cluster.create(BUDGETS, &made).await;
        assert_eq!(code, 201, "{body}");
    }
    // One that nobody owns is a person's own affair.
    let own = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "own"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "other"}}},
    });
    assert_eq!(cluster.create(BUDGETS, &own).await.0, 201);
    let left = |list: &Value| list["items"].as_array().is_some_and(|items| items.len() == 2);
    let list = cluster.until(BUDGETS, left).await;
    let names: Vec<&Value> =
        list["items"].as_array().unwrap().iter().map(|b| &b["metadata"]["name"]).collect();
    assert!(names.contains(&&ours) && names.contains(&&json!("own")), "{names:?}");
    cluster.rest().await;
}
