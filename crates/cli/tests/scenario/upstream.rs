//! KubeVirt's own controllers in place of ours, on a real API server with our simulated nodes.
//!
//! Only `virt-controller` is upstream's. What KubeVirt's operator would have installed is made here: our definitions
//! of the kinds that matter, empty ones of those its controllers merely look at, and of what its API server fills in
//! that without which its controllers go wrong.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use evac_api::kubevirt::crds;
use evac_core::machines::names;
use evac_engine::Http;
use evac_engine::operator::install;
use k8s_openapi::api::admissionregistration::v1::{MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{conditions, wait};
use serde_json::json;
use tokio::process::{Child, Command};

use super::cluster::kubevirt_program;

/// Kinds that upstream's controllers watch and that no machine of ours uses: group, version, plural, kind, is namespaced.
const LOOKED_AT: &[(&str, &str, &str, &str, bool)] = &[
    ("pool.kubevirt.io", "v1beta1", "virtualmachinepools", "VirtualMachinePool", true),
    ("backup.kubevirt.io", "v1alpha1", "virtualmachinebackups", "VirtualMachineBackup", true),
    ("backup.kubevirt.io", "v1alpha1", "virtualmachinebackuptrackers", "VirtualMachineBackupTracker", true),
    ("export.kubevirt.io", "v1beta1", "virtualmachineexports", "VirtualMachineExport", true),
    ("snapshot.kubevirt.io", "v1beta1", "virtualmachinesnapshots", "VirtualMachineSnapshot", true),
    (
        "snapshot.kubevirt.io",
        "v1beta1",
        "virtualmachinesnapshotcontents",
        "VirtualMachineSnapshotContent",
        true,
    ),
    ("snapshot.kubevirt.io", "v1beta1", "virtualmachinerestores", "VirtualMachineRestore", true),
    ("migrations.kubevirt.io", "v1alpha1", "migrationpolicies", "MigrationPolicy", false),
    ("clone.kubevirt.io", "v1beta1", "virtualmachineclones", "VirtualMachineClone", true),
    (
        "instancetype.kubevirt.io",
        "v1beta1",
        "virtualmachineinstancetypes",
        "VirtualMachineInstancetype",
        true,
    ),
    (
        "instancetype.kubevirt.io",
        "v1beta1",
        "virtualmachineclusterinstancetypes",
        "VirtualMachineClusterInstancetype",
        false,
    ),
    ("instancetype.kubevirt.io", "v1beta1", "virtualmachinepreferences", "VirtualMachinePreference", true),
    (
        "instancetype.kubevirt.io",
        "v1beta1",
        "virtualmachineclusterpreferences",
        "VirtualMachineClusterPreference",
        false,
    ),
];

/// Installs what the controllers need, and starts them. Their words go to `log`.
pub async fn start(client: &kube::Client, http: &Http, kubeconfig: &Path, log: &Path) -> Child {
    install::kinds(http).await.expect("the kinds can be installed");
    install::define(http, &[crds::hyperconverged()]).await.expect("so can a neighbour's");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (group, version, plural, kind, namespaced) in LOOKED_AT {
        let definition = serde_json::from_value(json!({
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group,
                "scope": if *namespaced { "Namespaced" } else { "Cluster" },
                "names": {"plural": plural, "kind": kind},
                "versions": [{
                    "name": version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        }));
        definitions.create(&PostParams::default(), &definition.unwrap()).await.unwrap();
    }
    for (group, _, plural, ..) in LOOKED_AT {
        let name = format!("{plural}.{group}");
        let known = conditions::is_crd_established();
        wait::await_condition(definitions.clone(), &name, known).await.expect("the definition is accepted");
    }
    deployed(client).await;
    instances_are_held(client).await;
    Command::new(kubevirt_program().expect("EVAC_KUBEVIRT"))
        .args(["virt-controller", "--listen", "127.0.0.1", "--port", "0", "--kubeconfig"])
        .arg(kubeconfig)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(log).unwrap())
        .kill_on_drop(true)
        .spawn()
        .expect("virt-controller starts")
}

/// Has every new instance held until its pods are gone, as KubeVirt's API server does.
///
/// Without that an instance can be gone, and another of its name be there, while a pod of the first still ends.
/// virt-controller keeps account of the pods it waits for by that name, and no longer recognises the old pod as its own
/// when it goes: it may then wait for it for minutes, while the second instance has no pod.
async fn instances_are_held(client: &kube::Client) {
    let finalizer = names::INSTANCE_FINALIZER;
    let add = |path: &str, value: &str| format!("[JSONPatch{{op: 'add', path: '{path}', value: {value}}}]");
    let expression = format!(
        "has(object.metadata.finalizers) ? {} : {}",
        add("/metadata/finalizers/-", &format!("'{finalizer}'")),
        add("/metadata/finalizers", &format!("['{finalizer}']")),
    );
    let policies: Api<MutatingAdmissionPolicy> = Api::all(client.clone());
    let policy = serde_json::from_value(json!({
        "metadata": {"name": "instances-are-held"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["kubevirt.io"], "apiVersions": ["v1"],
                "resources": ["virtualmachineinstances"], "operations": ["CREATE"],
            }]},
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        },
    }));
    policies.create(&PostParams::default(), &policy.unwrap()).await.unwrap();
    let bindings: Api<MutatingAdmissionPolicyBinding> = Api::all(client.clone());
    let binding = serde_json::from_value(json!({
        "metadata": {"name": "instances-are-held"},
        "spec": {"policyName": "instances-are-held"},
    }));
    bindings.create(&PostParams::default(), &binding.unwrap()).await.unwrap();
    let asking = async { while !is_held(client, finalizer).await {} };
    tokio::time::timeout(Duration::from_secs(60), asking).await.expect("the policy is in force in time");
}

/// Whether an instance would be held: nothing tells when a policy is in force, but what comes of it does.
async fn is_held(client: &kube::Client, finalizer: &str) -> bool {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let nobody = DynamicObject::new("nobody", &kind).data(json!({"spec": {"domain": {"devices": {}}}}));
    let only_asked = PostParams { dry_run: true, ..PostParams::default() };
    let made =
        api.create(&only_asked, &nobody).await.map(|made| made.metadata.finalizers.unwrap_or_default());
    made.is_ok_and(|finalizers| finalizers.iter().any(|one| one == finalizer))
}

/// Says what KubeVirt's operator says when it has installed everything.
async fn deployed(client: &kube::Client) {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "kubevirt", &kind);
    let status = json!({"status": {"phase": "Deployed"}});
    api.patch_status("kubevirt", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}
