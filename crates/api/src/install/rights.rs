//! What each role may do, and nothing more. The one source of the operator's RBAC rules.
//!
//! A test runs the operator with exactly these rights on a real API server and compares them with the audit log: nothing may be
//! refused, and nothing may be granted that was not used.

use std::collections::{BTreeMap, BTreeSet};

use evac_core::machines::{Role, Roles};
use serde_json::{Value, json};

use crate::kubevirt::{GROUP, render};
use crate::tenants::FIRSTS;

/// Where a right holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Cluster,
    /// The operator's own namespace.
    Home,
    /// The namespace of the settings of virtual machines.
    Machines,
    /// `kube-system`.
    System,
    /// `kube-node-lease`, where drains say that they are alive.
    NodeLeases,
    /// `medik8s-leases`, where everybody who services nodes says which.
    Services,
}

/// Verbs on one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    pub place: Place,
    pub group: &'static str,
    /// With its subresource, such as `pods/eviction`.
    pub resource: &'static str,
    /// Only objects with these names; empty means all.
    pub names: &'static [&'static str],
    pub verbs: &'static [&'static str],
}

const fn everywhere(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Right {
    Right { place: Place::Cluster, group, resource, names: &[], verbs }
}

const fn within(
    place: Place,
    group: &'static str,
    resource: &'static str,
    names: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Right {
    Right { place, group, resource, names, verbs }
}

const LOOK: &[&str] = &["list", "watch"];
const HCO: &str = "hco.kubevirt.io";
const HOOKS: &str = "admissionregistration.k8s.io";
const LEASES: &str = "coordination.k8s.io";
const MEDIK8S: &str = "nodemaintenance.medik8s.io";
/// Where migration slots are entered, and old settings were kept.
const LEDGER: &[&str] = &[render::LEDGER];
const SETTINGS: &[&str] = &["kubevirt-config"];

/// To lead, or to wait for it.
const LEADING: &[Right] = &[
    within(Place::Home, LEASES, "leases", &[], &["create"]),
    within(Place::Home, LEASES, "leases", &["evac-operator"], &["list", "watch", "patch"]),
];

/// The view that every role decides on, and telling people.
const VIEW: &[Right] = &[
    everywhere("", "nodes", LOOK),
    everywhere("", "pods", LOOK),
    everywhere("", "events", &["create"]),
    everywhere("policy", "poddisruptionbudgets", LOOK),
    everywhere(GROUP, "virtualmachines", LOOK),
    everywhere(GROUP, "virtualmachineinstances", LOOK),
    everywhere(GROUP, "virtualmachineinstancereplicasets", LOOK),
    everywhere(GROUP, "virtualmachineinstancemigrations", LOOK),
    everywhere(GROUP, "kubevirts", LOOK),
    everywhere(HCO, "hyperconvergeds", LOOK),
    // Wherever KubeVirt is installed, if it is.
    within(Place::Cluster, "", "configmaps", LEDGER, LOOK),
    within(Place::Cluster, "", "configmaps", SETTINGS, LOOK),
];

/// To be asked by the API server: certificates, where we are and whom to trust, who calls, and whether they may.
const SERVING: &[Right] = &[
    within(Place::Home, "", "secrets", &[], &["create"]),
    within(Place::Home, "", "secrets", &["evac-serving"], &["list", "watch", "update"]),
    within(Place::Home, "", "services", &[], &["list", "watch", "get", "create", "patch"]),
    everywhere(HOOKS, "validatingwebhookconfigurations", LOOK),
    within(Place::System, "", "configmaps", &["extension-apiserver-authentication"], LOOK),
    everywhere("authorization.k8s.io", "subjectaccessreviews", &["create"]),
];

/// The control plane of machines: it makes and removes their pods, and is asked by the API server.
const MACHINES: &[Right] = &[
    everywhere(GROUP, "virtualmachines", &["get", "patch"]),
    everywhere(GROUP, "virtualmachines/status", &["patch"]),
    everywhere(GROUP, "virtualmachineinstances", &["get", "create", "patch", "delete"]),
    everywhere(GROUP, "virtualmachineinstancereplicasets", &["get"]),
    everywhere(GROUP, "virtualmachineinstancereplicasets/status", &["patch"]),
    everywhere(GROUP, "virtualmachineinstancemigrations", &["get", "create", "patch", "delete"]),
    everywhere(GROUP, "virtualmachineinstancemigrations/status", &["patch"]),
    everywhere("", "pods", &["get", "create", "patch", "delete"]),
    everywhere("", "pods/status", &["patch"]),
    everywhere("", "nodes", &["get"]),
    within(Place::Machines, "", "configmaps", &[], &["create"]),
    within(Place::Machines, "", "configmaps", LEDGER, &["get", "update"]),
    everywhere(HOOKS, "mutatingwebhookconfigurations", LOOK),
    within(
        Place::Cluster,
        HOOKS,
        "validatingwebhookconfigurations",
        &["virt-api-validator"],
        &["get", "create", "patch"],
    ),
    within(
        Place::Cluster,
        HOOKS,
        "mutatingwebhookconfigurations",
        &["virt-api-mutator"],
        &["get", "create", "patch"],
    ),
    everywhere("apiregistration.k8s.io", "apiservices", LOOK),
    within(
        Place::Cluster,
        "apiregistration.k8s.io",
        "apiservices",
        &["v1.subresources.kubevirt.io", "v1alpha3.subresources.kubevirt.io"],
        &["get", "create", "patch"],
    ),
];

const EVACUATION: &[Right] = &[
    everywhere(GROUP, "virtualmachineinstances", &["patch"]),
    everywhere(GROUP, "virtualmachineinstancemigrations", &["create"]),
];

const BUDGET: &[Right] = &[everywhere("policy", "poddisruptionbudgets", &["create", "delete"])];

/// To say in the host what becomes of a tenant's node, and to let its machine go. The secrets of tenants have names that nobody
/// knows beforehand; they are read one by one and never listed.
const TENANTS: &[Right] = &[
    everywhere("", "secrets", &["get"]),
    // When each eviction was first seen, where nobody else can roll it back.
    within(Place::Home, "", "configmaps", &[], &["create"]),
    within(Place::Home, "", "configmaps", &[FIRSTS], &["get", "patch"]),
    everywhere(GROUP, "virtualmachines", &["patch"]),
    everywhere(GROUP, "virtualmachineinstances", &["get", "patch", "delete"]),
    everywhere(GROUP, "virtualmachineinstancemigrations", &["create"]),
];

/// To empty nodes and to say how far that is. It can neither begin nor end a maintenance by itself.
const MAINTENANCE: &[Right] = &[
    everywhere(GROUP, "nodemaintenances", &["list", "watch", "patch"]),
    everywhere(GROUP, "nodemaintenances/status", &["patch"]),
    everywhere(MEDIK8S, "nodemaintenances", &["list", "watch", "patch"]),
    everywhere(MEDIK8S, "nodemaintenances/status", &["patch"]),
    everywhere("", "nodes", &["get", "patch"]),
    everywhere("", "pods/eviction", &["create"]),
    everywhere("apps", "daemonsets", &["get", "list"]),
    everywhere(GROUP, "virtualmachines", &["get"]),
    everywhere(GROUP, "virtualmachineinstancemigrations", &["create", "delete"]),
    everywhere("subresources.kubevirt.io", "virtualmachineinstances/evacuate", &["update"]),
    everywhere("subresources.kubevirt.io", "virtualmachineinstances/evacuate/cancel", &["update"]),
    within(Place::Services, LEASES, "leases", &[], &["list", "watch", "create", "patch", "delete"]),
    within(
        Place::Cluster,
        HOOKS,
        "validatingwebhookconfigurations",
        &["evac-nodemaintenance"],
        &["get", "create", "patch"],
    ),
];

/// To see whether nodes are alive, and to release the guests of those that are proven to be off. It deletes no pod and no node: the taint for
/// nodes out of service lets Kubernetes do that. The secrets of fence agents have names that nobody knows beforehand, and are in the operator's
/// own namespace.
const FAILOVER: &[Right] = &[
    // Read once more before each try to switch a machine off.
    everywhere("evac.dev", "failoverpolicies", &["get", "list", "watch"]),
    everywhere("evac.dev", "failoverpolicies/status", &["patch"]),
    everywhere("", "nodes", &["get", "patch"]),
    within(Place::Home, "", "secrets", &[], &["get"]),
    // A node that is not Ready and answers is drained first: guests that can move are not fenced.
    everywhere("", "pods/eviction", &["create"]),
    everywhere("apps", "daemonsets", &["get", "list"]),
    everywhere(GROUP, "virtualmachines", &["get"]),
    everywhere(GROUP, "virtualmachineinstancemigrations", &["create"]),
    within(
        Place::Cluster,
        HOOKS,
        "validatingwebhookconfigurations",
        &["evac-failoverpolicy"],
        &["get", "create", "patch"],
    ),
    everywhere("storage.k8s.io", "volumeattachments", LOOK),
    // The kubelets' signs of life, what a drain left that died, and the record of how a node was before.
    within(Place::NodeLeases, LEASES, "leases", &[], &["get", "list", "watch", "create", "patch", "delete"]),
    within(Place::Services, LEASES, "leases", &[], &["get", "list", "watch"]),
];

/// What a person needs for `evac drain`, `evac cancel` and `evac status`, with virtual machines.
const DRAIN: &[Right] = &[
    everywhere("", "nodes", &["get", "list", "watch", "patch"]),
    everywhere("", "pods", &["get", "list", "watch"]),
    everywhere("", "pods/eviction", &["create"]),
    everywhere("apps", "daemonsets", &["get", "list"]),
    everywhere("policy", "poddisruptionbudgets", LOOK),
    everywhere(GROUP, "virtualmachines", &["get"]),
    everywhere(GROUP, "virtualmachineinstances", &["get", "list", "watch"]),
    // Marks of evictions that are cancelled are cleared.
    // The API server asks for the first of these, whoever serves it for the second.
    everywhere("subresources.kubevirt.io", "virtualmachineinstances/evacuate", &["update"]),
    everywhere("subresources.kubevirt.io", "virtualmachineinstances/evacuate/cancel", &["update"]),
    everywhere(GROUP, "virtualmachineinstancemigrations", &["list", "watch", "create", "delete"]),
    everywhere(GROUP, "kubevirts", &["list"]),
    everywhere(HCO, "hyperconvergeds", &["list"]),
    within(Place::Cluster, "", "configmaps", SETTINGS, &["get"]),
    // A node under a NodeMaintenance is not given back by a person: its operator would cordon it again.
    everywhere(GROUP, "nodemaintenances", &["list"]),
    everywhere(MEDIK8S, "nodemaintenances", &["list"]),
    // Whoever else works on a node says so in a lease.
    everywhere(LEASES, "leases", &["get"]),
    within(Place::NodeLeases, LEASES, "leases", &[], &["list", "watch", "create", "patch", "delete"]),
];

/// What a role needs beyond [`shared`], whether another one brings it, too, or not.
pub fn of(role: Role) -> Vec<Right> {
    match role {
        Role::Machines => [MACHINES, SERVING].concat(),
        Role::Evacuation => EVACUATION.to_vec(),
        Role::Budget => BUDGET.to_vec(),
        Role::Tenants => TENANTS.to_vec(),
        Role::Maintenance => [MAINTENANCE, SERVING].concat(),
        Role::Failover => [FAILOVER, SERVING].concat(),
    }
}

/// What an operator needs to look, and to be one of several, whatever it does.
pub fn shared() -> Vec<Right> {
    [LEADING, VIEW].concat()
}

/// What an operator with these roles needs.
pub fn of_all(roles: &Roles) -> Vec<Right> {
    let mut all = shared();
    for role in Role::every().filter(|role| roles.has(*role)) {
        all.extend(of(role));
    }
    all
}

/// What a person needs who drains nodes.
pub fn drain() -> Vec<Right> {
    DRAIN.to_vec()
}

/// The places where any of these hold, in a fixed order.
pub fn places(rights: &[Right]) -> Vec<Place> {
    let mut places: Vec<Place> = rights.iter().map(|right| right.place).collect();
    places.sort();
    places.dedup();
    places
}

/// The rules of a role for one place: one for each resource and set of names, verbs put together.
pub fn rules(rights: &[Right], place: Place) -> Vec<Value> {
    let mut merged: BTreeMap<(&str, &str, &[&str]), BTreeSet<&str>> = BTreeMap::new();
    for right in rights.iter().filter(|right| right.place == place) {
        merged.entry((right.group, right.resource, right.names)).or_default().extend(right.verbs);
    }
    merged
        .into_iter()
        .map(|((group, resource, names), verbs)| {
            let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
            if !names.is_empty() {
                rule["resourceNames"] = json!(names);
            }
            rule
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every() -> Vec<Right> {
        [of_all(&Roles::all()), drain()].concat()
    }

    #[test]
    fn nothing_is_granted_by_wildcard_and_nobody_lists_secrets_by_and_large() {
        for right in every() {
            let words = [&[right.group, right.resource], right.verbs, right.names].concat();
            assert!(!words.contains(&"*"), "{right:?}");
            let reads = right.verbs.iter().any(|verb| matches!(*verb, "get" | "list" | "watch"));
            if right.resource == "secrets" && reads {
                let named = right.place == Place::Home && !right.names.is_empty();
                assert!(named || right.verbs == ["get"], "{right:?}");
            }
            for verb in ["impersonate", "escalate", "bind", "deletecollection"] {
                assert!(!right.verbs.contains(&verb), "{right:?}");
            }
        }
    }

    #[test]
    fn pods_are_deleted_only_by_the_role_that_makes_them() {
        let deletes = |rights: &[Right]| {
            rights.iter().any(|right| right.resource == "pods" && right.verbs.contains(&"delete"))
        };
        assert!(deletes(&of(Role::Machines)));
        for role in Role::every().filter(|role| *role != Role::Machines) {
            assert!(!deletes(&of(role)), "{role:?}");
        }
        assert!(!deletes(&drain()));
    }

    #[test]
    fn rules_of_one_resource_are_one_rule() {
        let rights = [everywhere("", "pods", &["watch", "list"]), everywhere("", "pods", &["get", "list"])];
        assert_eq!(
            rules(&rights, Place::Cluster),
            [json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]})]
        );
        assert!(rules(&rights, Place::Home).is_empty());
    }
}
