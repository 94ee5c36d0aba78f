//! What kubelets and hypervisors know, whatever is written about it.

use std::collections::BTreeSet;

use crate::hypervisor::Hypervisor;
use crate::hypervisor::guest::State;
use crate::kubelet::Kubelets;
use crate::objects::Key;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    Starting,
    Running,
    Paused,
}

/// A guest that is switched on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resident {
    pub instance: Key,
    pub instance_uid: String,
    pub pod_uid: String,
    pub node: String,
    pub doing: Doing,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Truth {
    /// Node agents of virtual machines are at work. Without them nobody speaks for instances.
    pub hosts_machines: bool,
    pub residents: Vec<Resident>,
    /// The migrations whose guest is being copied, by their uid.
    pub moves: BTreeSet<String>,
    /// Nodes of ours that can be reached.
    pub reachable: BTreeSet<String>,
    /// What must never happen and did.
    pub violations: Vec<String>,
}

impl Truth {
    pub(crate) fn of(hypervisor: &Hypervisor, kubelets: &Kubelets, hosts_machines: bool) -> Self {
        let residents = hypervisor.domains().filter_map(|domain| {
            let doing = match domain.guest.state {
                State::Starting { .. } => Doing::Starting,
                State::Running => Doing::Running,
                State::Paused => Doing::Paused,
                State::Off { .. } => return None,
            };
            Some(Resident {
                instance: domain.machine.key.clone(),
                instance_uid: domain.machine.uid.clone(),
                pod_uid: domain.place.pod_uid.clone(),
                node: domain.place.node.clone(),
                doing,
            })
        });
        Self {
            hosts_machines,
            residents: residents.collect(),
            moves: hypervisor.moves().filter(|one| one.transfer.active()).map(|one| one.id.clone()).collect(),
            reachable: kubelets.names().filter(|node| kubelets.alive(node)).cloned().collect(),
            violations: hypervisor.violations().iter().map(|one| format!("{one:?}")).collect(),
        }
    }

    /// The guest of an incarnation of an instance, if it is switched on.
    pub fn guest(&self, instance_uid: &str) -> Option<&Resident> {
        self.residents.iter().find(|one| one.instance_uid == instance_uid)
    }
}
