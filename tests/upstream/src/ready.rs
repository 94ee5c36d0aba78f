//! Waiting until a cluster can be used.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::core::DynamicObject;

/// Waits until the server asks for reviews and forwards what is to start and stop machines.
pub async fn served(client: &kube::Client) {
    let resource = kube::core::ApiResource::erase::<APIService>(&());
    let services = kube::Api::<DynamicObject>::all_with(client.clone(), &resource);
    let available = |service: Option<&DynamicObject>| {
        let conditions = service.and_then(|service| service.data["status"]["conditions"].as_array());
        conditions.is_some_and(|list| list.iter().any(|c| c["type"] == "Available" && c["status"] == "True"))
    };
    for version in ["v1", "v1alpha3"] {
        let name = format!("{version}.subresources.kubevirt.io");
        let waiting = kube::runtime::wait::await_condition(services.clone(), &name, available);
        tokio::time::timeout(Duration::from_secs(60), waiting)
            .await
            .expect("the API to start and stop machines is available in time")
            .expect("it can be watched");
    }
    let reviewed = async { while !is_reviewed(client).await {} };
    tokio::time::timeout(Duration::from_secs(60), reviewed).await.expect("reviews are asked for");
}

/// Whether the server asks for a review yet: nothing tells when it has taken a configuration in, but what comes of it does.
async fn is_reviewed(client: &kube::Client) -> bool {
    let wrong = serde_json::json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "nobody"},
        "spec": {"runStrategy": "Sometimes", "template": {"spec": {"domain": {"devices": {}}}}},
    });
    let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines?dryRun=All";
    let request = http::Request::post(path).header("content-type", "application/json");
    let answer = client.request_text(request.body(wrong.to_string().into_bytes()).unwrap()).await;
    matches!(answer, Err(kube::Error::Api(status)) if status.message.contains("Invalid RunStrategy"))
}

/// Waits until the node agent of virtual machines has reported.
pub async fn hosts_machines(client: &kube::Client, name: &str) {
    let ready = |node: Option<&Node>| {
        let labels = node.and_then(|node| node.metadata.labels.as_ref());
        labels
            .is_some_and(|labels| labels.get("kubevirt.io/schedulable").is_some_and(|value| value == "true"))
    };
    let waiting = kube::runtime::wait::await_condition(kube::Api::<Node>::all(client.clone()), name, ready);
    tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .expect("the node can host machines in time")
        .expect("the node can be watched");
}

/// Waits until a node is ready and the taint of new nodes was taken away.
pub async fn usable(client: &kube::Client, name: &str) {
    let usable = |node: Option<&Node>| {
        node.is_some_and(|node| {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            taints.is_none_or(Vec::is_empty)
                && conditions
                    .is_some_and(|list| list.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
        })
    };
    let api: kube::Api<Node> = kube::Api::all(client.clone());
    let waiting = kube::runtime::wait::await_condition(api, name, usable);
    tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .expect("the node becomes usable in time")
        .expect("the node can be watched");
}
