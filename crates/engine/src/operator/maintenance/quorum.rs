//! Asks whether the control plane can spare a node, counting what is under maintenance or will be.

use evac_api::Call;
use evac_api::failover::MAINTENANCE_LEASES;
use evac_api::maintenance::{Object, request};
use evac_api::wire::{Lease, List};
use evac_core::drain::quorum::{ClusterNodes, Etcd, Shortage, spare};
use evac_core::maintenance::Family;

use crate::http::{Http, HttpError};
use crate::quorum;
use crate::watch::{Source, list};

/// Whether the control plane can spare the node now.
pub(super) async fn ask(http: &Http, node: &str) -> Result<(), Shortage> {
    let found = look(http, node).await.map_err(|error| Shortage::Unread(error.to_string()));
    found.and_then(|(etcd, around)| spare(node, &etcd, &around))
}

/// How etcd is, and which nodes are away: also those that an object names, or that somebody claims by a lease.
async fn look(http: &Http, node: &str) -> Result<(Etcd, ClusterNodes), HttpError> {
    let (etcd, around) = quorum::look(http, node).await?;
    let mut away: Vec<String> = Vec::new();
    for family in Family::ALL {
        match http.read::<List<Object>>(&Call::get(request::collection(family))).await {
            Ok(list) => away.extend(list.items.into_iter().map(|object| object.spec.node_name)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    let source = Source { path: MAINTENANCE_LEASES.into(), query: String::new(), page: 500 };
    let now = http.clock().calendar();
    match list::<Lease, _>(http, &source, Some).await {
        Ok((leases, _)) => {
            let held = leases.into_iter().map(evac_core::Lease::from).filter(|lease| lease.protects(now));
            away.extend(held.filter_map(|lease| Some(lease.key.name.strip_prefix("node-")?.to_owned())));
        }
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    away.retain(|other| other != node);
    Ok((etcd, around.without(away.iter().map(String::as_str))))
}
