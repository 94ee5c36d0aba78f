//! Reading everything about a failed node at one moment.

use evac_api::failover::{self as requests, ATTACHMENTS, Attachment, KUBELET_LEASES, ServerVersion};
use evac_api::kubevirt::wire::{VirtualMachine, VirtualMachineInstance};
use evac_api::{Call, call, wire};
use evac_core::drain::give_back::Giver;
use evac_core::drain::ownership::{is_marked_by_other, lease_key};
use evac_core::drain::quorum::Shortage;
use evac_core::failover::leftovers::may_return;
use evac_core::failover::{Doubt, Holding, NodeSnapshot, Return, Suspect, doubts, fates};
use evac_core::{Fact, Index, Pod, VmRole};

use super::written;
use crate::http::{Http, HttpError};
use crate::nodes::{NodeError, TRIES};
use crate::watch::{Source, facts, list};
use crate::{guests, life, quorum};

const PAGE: u32 = 500;
pub(super) const MACHINES: &str = "/apis/kubevirt.io/v1/virtualmachines";
/// The query for all pods that run guests.
pub(super) const LAUNCHERS: &str = "labelSelector=kubevirt.io%3Dvirt-launcher";

/// The node as it is now, with its kubelet's lease.
pub async fn suspect(http: &Http, name: &str) -> Result<Suspect, HttpError> {
    let node: wire::Node = http.read_patiently(&Call::get(call::node_path(name))).await?;
    let lease = Call::get(format!("{KUBELET_LEASES}/{}", call::escape(name)));
    let lease = match http.read_patiently::<wire::Lease>(&lease).await {
        Ok(lease) => Some(lease.into()),
        // A node that never renewed one has none.
        Err(error) if error.is_not_found() => None,
        // Without it a living kubelet would be taken for a silent one.
        Err(error) => return Err(error),
    };
    Ok(Suspect { node: node.into(), lease })
}

/// The node and who holds it. `may_ask` is who wants to know whether a drain of somebody else is still at work.
pub(super) async fn held(
    http: &Http,
    name: &str,
    may_ask: Option<&str>,
) -> Result<(Suspect, Holding), HttpError> {
    let suspect = suspect(http, name).await?;
    let mut index = Index::new();
    index.apply(Fact::Node(Box::new(suspect.node.clone())));
    let maintenance = Call::get(call::lease_path(&lease_key(name)));
    let unread = match http.read_patiently::<wire::Lease>(&maintenance).await {
        Ok(lease) => {
            index.apply(Fact::Lease(Box::new(lease.into())));
            None
        }
        Err(error) if error.is_not_found() => None,
        Err(error) => Some(error.to_string()),
    };
    let claim = if may_ask.is_some_and(|owner| is_marked_by_other(&suspect.node, owner)) {
        life::ask(http, name).await
    } else if suspect.node.mark.is_some() {
        life::read(http, name).await
    } else {
        None
    };
    if let Some(fact) = claim {
        index.apply(fact);
    }
    Ok((suspect, Holding { index, unread }))
}

/// Everything about the node; `may_ask` as for [`held`].
pub async fn look(http: &Http, name: &str, may_ask: Option<&str>) -> Result<NodeSnapshot, HttpError> {
    let (suspect, holding) = held(http, name, may_ask).await?;
    let pods: wire::List<wire::Pod> = http.read_patiently(&Call::get(call::pods_on_node_path(name))).await?;
    let pods: Vec<Pod> = pods.items.into_iter().map(Into::into).collect();
    let mut unread = Vec::new();
    let guests = match machines(http).await {
        Ok(machines) => {
            let resumed = suspect.record().is_some_and(|record| record.released);
            fates(&machines, name, resumed)
        }
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) if pods.iter().any(|pod| matches!(pod.vm, VmRole::Launcher(_))) => {
            // Nobody could say afterwards whether its guests came back.
            return Err(error);
        }
        Err(error) => {
            unread.push(format!("virtual machines: {error}"));
            Vec::new()
        }
    };
    let mut attachments: Vec<String> = suspect.node.life.attached.clone();
    match attached(http, name).await {
        Ok(found) => attachments.extend(found),
        Err(error) => unread.push(format!("volume attachments: {error}")),
    }
    attachments.sort();
    attachments.dedup();
    Ok(NodeSnapshot { suspect, pods, guests, attachments, holding, unread })
}

/// The version of the server, or why it is not known: it does not answer, or not with a version.
pub(super) async fn version(http: &Http) -> Result<(u32, u32), String> {
    let said = http.read_patiently::<ServerVersion>(&Call::get("/version")).await;
    let said = said.map_err(|error| error.to_string())?;
    said.numbers().ok_or_else(|| format!("the server says {}", said.text()))
}

/// Whether the control plane can spare the node now, counting also those that somebody claims by a lease.
pub(super) async fn spare(http: &Http, node: &str) -> Result<(), Shortage> {
    let unread = |error: HttpError| Shortage::Unread(error.to_string());
    let (etcd, around) = quorum::look(http, node).await.map_err(unread)?;
    let now = http.clock().calendar();
    let mut away: Vec<String> = Vec::new();
    for other in around.control_plane().filter(|other| *other != node) {
        let call = Call::get(call::lease_path(&lease_key(other)));
        match http.read_patiently::<wire::Lease>(&call).await {
            Ok(lease) => {
                if evac_core::Lease::from(lease).protects(now) {
                    away.push(other.to_owned());
                }
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(unread(error)),
        }
    }
    evac_core::drain::quorum::spare(node, &etcd, &around.without(away.iter().map(String::as_str)))
}

/// All machines, instances and launchers.
pub(super) async fn machines(http: &Http) -> Result<Index, HttpError> {
    let source =
        |path: &'static str, query: &str| Source { path: path.into(), query: query.to_owned(), page: PAGE };
    let instances = source(guests::INSTANCES, "");
    let launchers = source("/api/v1/pods", LAUNCHERS);
    let owners = source(MACHINES, "");
    let (instances, owners, launchers) = futures::join!(
        list(http, &instances, facts::<VirtualMachineInstance>()),
        list(http, &owners, facts::<VirtualMachine>()),
        list(http, &launchers, facts::<wire::Pod>())
    );
    let mut index = Index::new();
    for fact in instances?.0.into_iter().chain(owners?.0).chain(launchers?.0) {
        index.apply(fact);
    }
    Ok(index)
}

/// The volumes that are attached to a node.
pub(super) async fn attached(http: &Http, node: &str) -> Result<Vec<String>, HttpError> {
    let source = Source { path: ATTACHMENTS.into(), query: String::new(), page: PAGE };
    let here = |it: Attachment| (it.spec.node_name == node).then(|| it.volume().to_owned());
    Ok(list(http, &source, here).await?.0)
}

/// What speaks against using a node again that was once given up for dead, and the node itself if it was.
pub async fn look_back(http: &Http, name: &str) -> Result<Option<(Suspect, Vec<Doubt>)>, HttpError> {
    // Whoever may uncordon a node may not be allowed to see more, and for most nodes there is nothing more to see.
    let object: wire::Node = http.read_patiently(&Call::get(call::node_path(name))).await?;
    let suspect = Suspect { node: object.into(), lease: None };
    if suspect.node.life.fenced.is_none() {
        return Ok(None);
    }
    let pods: wire::List<wire::Pod> = http.read_patiently(&Call::get(call::pods_on_node_path(name))).await?;
    let launchers: Vec<_> = pods
        .items
        .into_iter()
        .map(Pod::from)
        .filter_map(|pod| match pod.vm {
            VmRole::Launcher(launcher) => Some((
                pod.key,
                launcher.instance_name.map(String::from).unwrap_or_default(),
                pod.phase.is_finished(),
            )),
            VmRole::None | VmRole::Hotplug => None,
        })
        .collect();
    let machines = match machines(http).await {
        Ok(machines) => machines,
        Err(error) if error.is_not_found() => Index::new(),
        Err(error) => return Err(error),
    };
    let found = doubts(&suspect, &machines, &launchers);
    Ok(Some((suspect, found)))
}

/// Has the record of its failure taken off a node that is about to be given back, if it has one and nothing speaks against it. A dry run only says
/// what would become of it.
pub async fn forget(
    http: &Http,
    name: &str,
    by: Giver<'_>,
    dry_run: bool,
) -> Result<Option<Return>, NodeError> {
    for _ in 0..TRIES {
        let Some((suspect, doubts)) = look_back(http, name).await? else { return Ok(None) };
        let verdict = may_return(&suspect, doubts, by);
        if dry_run || verdict != Return::Forgotten || written(http, &requests::forget(&suspect.node)).await? {
            return Ok(Some(verdict));
        }
        // It has shown something new since it was looked at.
    }
    Err(NodeError::Contended(TRIES))
}
