//! Finds out how etcd is. Nothing that could not be read counts as good news.

use evac_api::Call;
use evac_api::maintenance::{Object, request};
use evac_api::wire::{Budget, List, Pod};
use evac_core::maintenance::Family;
use evac_core::maintenance::quorum::{Etcd, Guard, Member, spare};
use serde_json::Value;

use crate::http::{Http, HttpError};

const OPENSHIFT: &str = "/apis/config.openshift.io/v1";

/// Whether the control plane can spare the node now; the error is a sentence.
pub(super) async fn ask(http: &Http, node: &str) -> Result<(), String> {
    match look(http, node).await {
        Ok(etcd) => spare(node, &etcd),
        Err(error) => Err(format!(
            "can not put control-plane node {node} into maintenance: the quorum of etcd could not be found out: {error}"
        )),
    }
}

/// How etcd is, counting the members on other nodes under maintenance as lost.
pub(super) async fn look(http: &Http, node: &str) -> Result<Etcd, HttpError> {
    let etcd = Etcd { members: members(http).await?, guard: guard(http, node).await? };
    let mut away: Vec<String> = Vec::new();
    for family in Family::ALL {
        match http.read::<List<Object>>(&Call::get(request::collection(family))).await {
            Ok(list) => away.extend(list.items.into_iter().map(|object| object.spec.node_name)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    away.retain(|other| other != node);
    Ok(etcd.without(away.iter().map(String::as_str)))
}

async fn members(http: &Http) -> Result<Vec<Member>, HttpError> {
    let call = Call::get("/api/v1/namespaces/kube-system/pods?labelSelector=component%3Detcd");
    let list: List<Pod> = http.read(&call).await?;
    Ok(list.items.into_iter().map(|pod| Member::from(&evac_core::Pod::from(pod))).collect())
}

async fn guard(http: &Http, node: &str) -> Result<Guard, HttpError> {
    match http.read::<Value>(&Call::get(OPENSHIFT)).await {
        Ok(_) => {}
        Err(error) if error.is_not_found() => return Ok(Guard::NotUsed),
        Err(error) => return Err(error),
    }
    let call = Call::get("/apis/policy/v1/namespaces/openshift-etcd/poddisruptionbudgets");
    let list: List<Budget> = http.read(&call).await?;
    let [budget] = list.items.as_slice() else { return Ok(Guard::Budgets(list.items.len())) };
    let budget = evac_core::Budget::from(budget.clone());
    let call = Call::get(format!(
        "/api/v1/namespaces/openshift-etcd/pods?fieldSelector={}",
        evac_api::call::escape(&format!("spec.nodeName={node}"))
    ));
    let pods: List<Pod> = http.read(&call).await?;
    let guards = pods.items.into_iter().map(evac_core::Pod::from);
    let guard = guards.into_iter().find(|pod| budget.selector.matches(&pod.labels));
    Ok(Guard::Budget { allowed: budget.allowed, guard_up: guard.map(|pod| pod.ready) })
}
