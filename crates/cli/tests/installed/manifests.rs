//! What installs the operator is accepted as it is, by the sandbox and by a real server, with every field known to them; and the
//! Helm chart makes the same objects.

use std::collections::BTreeMap;
use std::process::Command;

use crate::scenario::{Arm, Cluster};
use crate::skip;
use evac_upstream::kubectl::{apply, kubectl};
use evac_world::NodeSpec;
use serde_json::Value;

fn manifests(words: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_evac")).arg("manifests").args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The chart as Helm renders it; none where Helm's engine could not be built.
fn chart(roles: &str) -> Option<Vec<u8>> {
    let program = std::env::var_os("EVAC_HELM")?;
    let output = Command::new(program)
        .args(["--set", &format!("roles={{{roles}}}")])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../chart/evac"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

const EVERYTHING: &str = "machines,evacuation,budget,tenants,maintenance,failover";

async fn accepted(arm: Arm) {
    if std::env::var_os("EVAC_KUBERNETES").is_none() {
        skip(&format!("manifests on {arm:?}: needs the real Kubernetes programs"));
        return;
    }
    let cluster = Cluster::start(arm, NodeSpec::workers(1), false).await;
    // In a trial nothing comes to be, so the namespaces have to be there before.
    for namespace in ["evac", "kubevirt", "medik8s-leases"] {
        kubectl(&cluster.kubeconfig, &["create", "namespace", namespace]).await;
    }
    let mut texts = vec![
        manifests(&[]),
        manifests(&["--roles", EVERYTHING]),
        manifests(&["--roles", "all", "-o", "json"]),
    ];
    texts.extend(chart(EVERYTHING));
    for text in texts {
        let text = if arm == Arm::Sandbox { without_policies(&text) } else { text };
        apply(&cluster.kubeconfig, &["--dry-run=server"], &text).await;
    }
    cluster.stop().await;
}

/// The sandbox has no network to which policies could apply, and none of admission: its nodes are part of it.
fn without_policies(text: &[u8]) -> Vec<u8> {
    let mut objects: Vec<Value> = by_name(text).into_values().collect();
    // A list in JSON is one object.
    if let [list] = objects.as_slice() {
        objects = list["items"].as_array().unwrap().clone();
    }
    let policies = ["NetworkPolicy", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    objects.retain(|object| !policies.iter().any(|kind| object["kind"] == *kind));
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    texts.join("\n---\n").into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_accepts_them() {
    accepted(Arm::Sandbox).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_server_accepts_them() {
    accepted(Arm::Kubernetes).await;
}

/// Objects by kind, namespace and name.
fn by_name(text: &[u8]) -> BTreeMap<[String; 3], Value> {
    let text = String::from_utf8(text.to_vec()).unwrap();
    text.split("\n---\n")
        .map(|document| serde_saphyr::from_str::<Value>(document).unwrap())
        // A template whose condition does not hold leaves a comment.
        .filter(|object| !object.is_null())
        .map(|object| {
            let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            ([word("/kind"), word("/metadata/namespace"), word("/metadata/name")].map(str::to_owned), object)
        })
        .collect()
}

#[test]
fn the_chart_makes_the_same_objects() {
    for roles in ["maintenance", "tenants,maintenance", EVERYTHING] {
        let Some(chart) = chart(roles) else {
            skip("chart: needs Helm's engine");
            return;
        };
        // Namespaces are made by whoever installs a chart, and definitions of its directory are always there.
        let compared = |text: &[u8]| -> BTreeMap<[String; 3], Value> {
            let mut all = by_name(text);
            all.retain(|[kind, ..], _| kind != "Namespace" && kind != "CustomResourceDefinition");
            all
        };
        let (mut ours, charts) = (compared(&manifests(&["--roles", roles])), compared(&chart));
        assert!(charts.len() > 10);
        for (name, object) in &charts {
            assert_eq!(ours.remove(name).as_ref(), Some(object), "{roles}: {name:?}");
        }
        assert!(ours.is_empty(), "{roles}: not in the chart: {:?}", ours.keys());
    }
}
