//! The end of a maintenance whose guests cannot be given back as they were.

use std::time::Duration;

use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_engine::Http;
use evac_engine::operator::Operator;
use serde_json::{Value, json};

use crate::cluster::{Cluster, VMIMS, VMIS, VMS, vm};
use crate::counted::{Fault, Wire};

const OBJECTS: &str = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances";
const MERGE: &str = "application/merge-patch+json";

fn says(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == kind && one["status"] == "True"))
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_cannot_be_cleared_keeps_the_object_which_says_so_until_it_can() {
    for code in [406, 500] {
        let cluster = Cluster::start_roles(2, "machines".parse().unwrap()).await;
        let slow = json!({"evac.dev/migration-seconds": "900"});
        assert_eq!(cluster.create(VMS, &vm("db", "Always", &slow)).await.0, 201);
        let path = format!("{VMIS}/db");
        let vmi = cluster.until(&path, |vmi| vmi["status"]["migrationMethod"].is_string()).await;
        let node = vmi["status"]["nodeName"].clone();
        let wire = Wire::new();
        let service = Service::trusted(cluster.api.clone(), Identity::admin());
        let http = Http::new(wire.client(service), cluster.clock, Duration::ZERO);
        let operator = Operator::start_roles(http, "maintenance".parse().unwrap());
        let object = json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": "a"}, "spec": {"nodeName": node},
        });
        assert_eq!(cluster.create(OBJECTS, &object).await.0, 201);
        cluster.until(VMIMS, |list| list["items"][0]["status"]["phase"] == "Running").await;
        let mark = json!({"status": {"evacuationNodeName": node}});
        let (status, body) = cluster.send("PATCH", &path, MERGE, &mark).await;
        assert_eq!(status, 200, "{body}");
        wire.fail(move |_, path| {
            path.ends_with("/evacuate/cancel").then(|| Fault::status(code, "NotAcceptable", "cannot do that"))
        });
        let object = format!("{OBJECTS}/a");
        assert_eq!(cluster.send("DELETE", &object, "application/json", &json!({})).await.0, 200);
        let held = cluster.until(&object, |object| says(object, "NotTakenBack")).await;
        let left = &held["status"]["blockers"][0];
        assert_eq!(left["object"], "virtual machine default/db", "{held:#}");
        assert!(
            left["message"].as_str().unwrap().contains(&format!("virt-api answered {code}"))
                || left["message"].as_str().unwrap().contains(&format!("answered {code}")),
            "{left}"
        );
        assert!(
            left["fix"].as_str().unwrap().contains("virtctl evacuate-cancel vmi db -n default"),
            "{left}"
        );
        let given = cluster.get(&format!("/api/v1/nodes/{}", node.as_str().unwrap())).await.unwrap();
        assert!(given["spec"]["unschedulable"].is_null(), "the node itself is given back: {given:#}");
        cluster.pass(60).await;
        assert!(cluster.get(&object).await.is_some(), "it stays while something is left");
        wire.fail(|_, _| None);
        cluster.until(&object, Value::is_null).await;
        let vmi = cluster.get(&path).await.unwrap();
        assert!(vmi["status"]["evacuationNodeName"].is_null(), "{vmi:#}");
        operator.stop().await;
        cluster.rest().await;
    }
}
