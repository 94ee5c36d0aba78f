//! Finds out how etcd is. Nothing that could not be read counts as good news.

use evac_api::Call;
use evac_api::call::on_node;
use evac_api::wire::{Budget, List, Pod};
use evac_core::drain::quorum::{ClusterNodes, Etcd, EtcdGuard, EtcdMember};
use serde_json::Value;

use crate::http::{Http, HttpError};
use crate::nodes;
use crate::watch::{Source, list};

const OPENSHIFT: &str = "/apis/config.openshift.io/v1";

/// Where the members of etcd are: as kubeadm runs them, and as OpenShift does.
const MEMBERS: [(&str, &str); 2] = [
    ("/api/v1/namespaces/kube-system/pods", "labelSelector=component%3Detcd"),
    ("/api/v1/namespaces/openshift-etcd/pods", "labelSelector=app%3Detcd"),
];

/// All places where members of etcd are.
pub(crate) fn members() -> [Source; 2] {
    MEMBERS.map(|(path, query)| Source { path: path.into(), query: query.to_owned(), page: 500 })
}

/// How etcd is, with the guard of this node, and which nodes of the cluster are away.
pub(crate) async fn look(http: &Http, node: &str) -> Result<(Etcd, ClusterNodes), HttpError> {
    let mut found = Vec::new();
    for source in members() {
        let member = |pod: Pod| Some(EtcdMember::from(&evac_core::Pod::from(pod)));
        found.extend(list(http, &source, member).await?.0);
    }
    let etcd = Etcd { members: found, guard: guard(http, node).await? };
    let nodes = nodes::by_selector(http, "", 500).await?;
    Ok((etcd, ClusterNodes::of(&nodes)))
}

async fn guard(http: &Http, node: &str) -> Result<EtcdGuard, HttpError> {
    match http.read::<Value>(&Call::get(OPENSHIFT)).await {
        Ok(_) => {}
        Err(error) if error.is_not_found() => return Ok(EtcdGuard::NotUsed),
        Err(error) => return Err(error),
    }
    let call = Call::get("/apis/policy/v1/namespaces/openshift-etcd/poddisruptionbudgets");
    let list: List<Budget> = http.read(&call).await?;
    let [budget] = list.items.as_slice() else { return Ok(EtcdGuard::Budgets(list.items.len())) };
    let budget = evac_core::Budget::from(budget.clone());
    let call = Call::get(format!("/api/v1/namespaces/openshift-etcd/pods?{}", on_node(node)));
    let pods: List<Pod> = http.read(&call).await?;
    let guards = pods.items.into_iter().map(evac_core::Pod::from);
    let guard = guards.into_iter().find(|pod| pod.labels.satisfies(&budget.selector));
    Ok(EtcdGuard::Budget { allowed: budget.allowed, guard_up: guard.map(|pod| pod.ready) })
}
