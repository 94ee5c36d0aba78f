//! The proof that the operator has the rights it needs and no others.
//!
//! Scenarios run on a real API server on which the operator is installed by `evac manifests` and acts as its own account, and on
//! which whoever types `evac` is bound to the role that the installation offers to people. The audit log says what was done, as
//! whom, and what was refused. Over all of them: what was refused is nothing, and what is granted but not used is nothing.

use std::collections::BTreeSet;
use std::path::Path;

use crate::audit::{self, Deed, Used};
use crate::scenario::installed::{ACCOUNT, NAMESPACE, PERSON};
use crate::scenario::{self, Arm, Cluster, Scenario};
use crate::skip;
use evac_api::install::rights::{self, Place, Right};
use evac_core::machines::{Role, Roles};
use evac_world::NodeSpec;
use futures::{StreamExt as _, stream};

/// Together they use everything that an operator of machines may do. The longest comes first.
const MACHINES: &[&str] = &[
    "install/failover.installed",
    "vm/lifecycle.scenario",
    "vm/run-strategies.scenario",
    "vm/migrate.scenario",
    "vm/evacuate-taint.scenario",
    "vm/evacuate-owners.scenario",
    "vm/evacuate-drain.scenario",
    "vm/drain-moves.scenario",
    "tenants/kubectl-drain.scenario",
    "maintenance/plain.scenario",
    "maintenance/guests.scenario",
    "maintenance/foreign.scenario",
    "maintenance/command.scenario",
    "install/maintenance.scenario",
    "install/restored.scenario",
    "install/person.scenario",
];

/// Scenarios mostly wait, so several run at a time, each on a server of its own.
const SIDE_BY_SIDE: usize = 3;

/// What people do with `evac`.
const DRAINS: &[&str] = &[
    "drain/plain.scenario",
    "drain/blocked.scenario",
    "drain/second.scenario",
    "drain/unanswered.scenario",
    "vm/drain-moves.scenario",
    "install/person.scenario",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_has_the_rights_it_uses_and_uses_the_rights_it_has() {
    let granted = rights::of_all(&Roles::of(Role::every()));
    prove("operator", MACHINES, ACCOUNT, &granted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_drains_has_the_rights_they_use_and_uses_the_rights_they_have() {
    prove("drain", DRAINS, PERSON, &rights::drain()).await;
}

async fn prove(what: &str, scenarios: &[&str], account: &str, granted: &[Right]) {
    if std::env::var_os("EVAC_KUBERNETES").is_none() {
        skip(&format!("rights of {what}: needs the real Kubernetes programs"));
        return;
    }
    let mut runs = stream::iter(scenarios).map(|name| run(name, account)).buffer_unordered(SIDE_BY_SIDE);
    let mut deeds = BTreeSet::new();
    while let Some(done) = runs.next().await {
        deeds.extend(done);
    }
    let used = Used::of(&deeds);
    println!("{}", table(what, granted, &used));
    let refused: Vec<&Deed> = deeds.iter().filter(|deed| deed.refused).collect();
    let unused: Vec<String> =
        atoms(granted).into_iter().filter(|atom| !atom.is_used(&used)).map(|atom| atom.to_string()).collect();
    assert!(refused.is_empty(), "{what}: was refused {refused:#?}");
    assert!(unused.is_empty(), "{what}: is granted and never used: {unused:#?}");
}

/// What this account did and was refused in one scenario.
async fn run(name: &str, account: &str) -> BTreeSet<Deed> {
    let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../scenarios/{name}"));
    let scenario = Scenario::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
    let specs = NodeSpec::workers(scenario.nodes);
    let mut cluster = Cluster::start(Arm::Installed, specs, scenario.machines).await;
    if let Some(nodes) = scenario.tenant {
        cluster.tenant = Some(Box::new(Cluster::tenant(Arm::Kubernetes, nodes).await));
    }
    if account != PERSON {
        cluster.person.clone_from(&cluster.kubeconfig);
    }
    let log = cluster.kubeconfig.with_file_name("audit.log");
    let operator = cluster.kubeconfig.with_file_name("operator.log");
    let result = scenario::run(&scenario, &cluster).await;
    let deeds = audit::read(&std::fs::read_to_string(log).unwrap(), &user);
    if let Err(why) = result {
        let refused: Vec<&Deed> = deeds.iter().filter(|deed| deed.refused).collect();
        let said = std::fs::read_to_string(operator).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(20).collect();
        panic!("{name}: {why}\nrefused: {refused:#?}\noperator: {last:#?}");
    }
    cluster.stop().await;
    deeds
}

/// One verb on one resource, with one name if names are given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Atom {
    place: Place,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    name: Option<&'static str>,
}

impl std::fmt::Display for Atom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { place, verb, group, resource, name } = self;
        let group = if group.is_empty() { "core" } else { group };
        write!(f, "{place:?} {verb} {group} {resource} {}", name.unwrap_or("any"))
    }
}

fn atoms(rights: &[Right]) -> BTreeSet<Atom> {
    let mut all = BTreeSet::new();
    for right in rights {
        let Right { place, group, resource, names, verbs } = *right;
        for &verb in verbs {
            let atom = |name| Atom { place, verb, group, resource, name };
            if names.is_empty() {
                all.insert(atom(None));
            }
            all.extend(names.iter().map(|&name| atom(Some(name))));
        }
    }
    all
}

impl Atom {
    fn is_used(&self, used: &Used) -> bool {
        let namespace = match self.place {
            Place::Cluster => None,
            Place::Home => Some(NAMESPACE),
            Place::Machines => Some("kubevirt"),
            Place::System => Some("kube-system"),
            Place::NodeLeases => Some("kube-node-lease"),
            Place::Services => Some("medik8s-leases"),
        };
        used.has(self.verb, self.group, self.resource, namespace, self.name)
    }
}

/// What is granted, and whether it was used.
fn table(what: &str, granted: &[Right], used: &Used) -> String {
    let mut lines = vec![format!("rights of {what}:")];
    for atom in atoms(granted) {
        let mark = if atom.is_used(used) { "used  " } else { "UNUSED" };
        lines.push(format!("  {mark} {atom}"));
    }
    lines.join("\n")
}
