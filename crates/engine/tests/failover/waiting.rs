//! A failover ends although a guest does not come back: who it is and why is told, and nothing is held up by it.

use evac_engine::failover::End;
use serde_json::{Value, json};

use crate::bench::{Bench, Controller, request, statement};
use crate::machines::{VMIS, VMS};

const NONE: Vec<String> = Vec::new();

/// What was told about a policy for one reason.
async fn told(bench: &Bench, policy: &str, reason: &str) -> Vec<String> {
    let list = bench.cluster.get("/api/v1/namespaces/default/events").await.unwrap_or_default();
    let events = list["items"].as_array().cloned().unwrap_or_default();
    let wanted = |event: &&Value| event["involvedObject"]["name"] == policy && event["reason"] == reason;
    let message = |event: &Value| event["message"].as_str().unwrap_or_default().to_owned();
    events.iter().filter(wanted).map(message).collect()
}

async fn stop(bench: &Bench, name: &str) {
    let path = format!("{VMS}/{name}");
    let halted = json!({"spec": {"runStrategy": "Halted"}});
    let (code, body) = bench.cluster.send("PATCH", &path, "application/merge-patch+json", &halted).await;
    assert_eq!(code, 200, "{body}");
}

async fn delete(bench: &Bench, name: &str) {
    let (code, body) =
        bench.cluster.send("DELETE", &format!("{VMS}/{name}"), "application/json", &json!({})).await;
    assert_eq!(code, 200, "{body}");
}

/// The successor of a guest is there and finds no place.
async fn has_no_place(bench: &Bench, name: &str) {
    let waits = |vmi: &Value| vmi["status"]["phase"] == "Scheduling" && vmi["status"]["nodeName"].is_null();
    bench.cluster.until(&format!("{VMIS}/{name}"), waits).await;
}

#[tokio::test(start_paused = true)]
async fn guests_that_are_stopped_deleted_or_find_no_place_are_told_and_let_go() {
    let bench = Bench::start(4).await;
    for name in ["deleted", "stopped", "unplaced"] {
        bench.machine(name, "Always").await;
    }
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    // There is room for them on the failed node only.
    bench.only_node_1(true).await;
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    for name in ["deleted", "stopped", "unplaced"] {
        has_no_place(&bench, name).await;
    }
    stop(&bench, "stopped").await;
    delete(&bench, "deleted").await;
    bench.cluster.pass(240).await;
    assert_eq!(bench.verdict("p", "node-1").await, "FailedOver");
    assert!(!bench.out_of_service("node-1").await, "nothing is left for the taint to do");
    let said = told(&bench, "p", "FailedOver").await.join("\n");
    for words in ["vm default/deleted", "vm default/stopped", "vm default/unplaced", "no place"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // The place is free again: the repaired node is given back, and the last guest finds its room there.
    bench.cluster.world.kubelet("node-1").reboot();
    bench.given_back("node-1").await;
    assert_eq!(bench.runs("unplaced").await["status"]["nodeName"], "node-1");
    assert_eq!(*controllers.asked.lock().unwrap(), ["off node-1"]);
    assert_eq!(bench.violations().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn a_command_does_not_wait_for_a_guest_that_somebody_stopped_or_deleted() {
    for end_of in ["stopped", "deleted"] {
        let bench = Bench::start(3).await;
        bench.machine("a", "Always").await;
        bench.only_node_1(true).await;
        bench.cluster.world.kubelet("node-1").power_off();
        bench.unreachable("node-1").await;
        let somebody = async {
            has_no_place(&bench, "a").await;
            if end_of == "stopped" { stop(&bench, "a").await } else { delete(&bench, "a").await }
        };
        let request = request("node-1", statement());
        let ((end, _), ()) = futures::join!(bench.failover(&request), somebody);
        assert!(matches!(end, Ok(End::Done { returned: 0, .. })), "{end:?}");
        assert!(!bench.out_of_service("node-1").await);
        assert_eq!(bench.violations().await, NONE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_does_not_wait_for_ever_for_a_volume_that_nobody_detaches() {
    let bench = Bench::start(4).await;
    bench.machine("a", "Always").await;
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "stuck"},
        "spec": {"attacher": "x", "nodeName": "node-1", "source": {"persistentVolumeName": "pv-stuck"}},
    });
    let attachments = "/apis/storage.k8s.io/v1/volumeattachments";
    assert_eq!(bench.cluster.create(attachments, &attachment).await.0, 201);
    let controllers = bench.controllers(Controller::Good);
    let _role = bench.role(&controllers);
    assert_eq!(bench.policy("p", |_| {}).await.0, 201);
    bench.cluster.world.kubelet("node-1").stop();
    bench.unreachable("node-1").await;
    bench.cluster.pass(60 + 60 + 660).await;
    assert_eq!(bench.verdict("p", "node-1").await, "Resting");
    let said = told(&bench, "p", "FailoverStuck").await.join("\n");
    assert!(said.contains("pv-stuck"), "{said}");
    assert!(bench.out_of_service("node-1").await, "the taint still has something to do");
    // It is looked at again, and ends when the volume is gone.
    bench.cluster.send("DELETE", &format!("{attachments}/stuck"), "application/json", &json!({})).await;
    bench.cluster.pass(900).await;
    assert_eq!(bench.verdict("p", "node-1").await, "FailedOver");
    assert!(!bench.out_of_service("node-1").await);
    assert_eq!(*controllers.asked.lock().unwrap(), ["off node-1"], "it is switched off once");
    assert_eq!(bench.violations().await, NONE);
}
