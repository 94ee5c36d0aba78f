//! Everything an installation consists of, from one source: `evac manifests`, the files under `deploy/`, and the Helm chart.

pub mod files;
mod guard;
pub mod rights;
pub mod workload;

pub use workload::MEMORY_LIMIT;

use evac_core::drain::ownership::LEASE_NAMESPACE;
use evac_core::machines::{Role, Roles};
use serde_json::{Value, json};

use crate::kubevirt::{NAMESPACE as MACHINES, crds};
use crate::{failover, maintenance};
use rights::{Place, Right};

/// What is installed, where, and under which name.
#[derive(Debug, Clone)]
pub struct Plan {
    pub namespace: String,
    /// The name of the Deployment, the account and everything around it.
    pub name: String,
    pub image: String,
    pub roles: Roles,
    /// The roles as the operator is told them.
    pub roles_argument: String,
    /// A number, or what stands for one in a template.
    pub replicas: Value,
}

impl Plan {
    pub const NAMESPACE: &str = "evac";
    pub const NAME: &str = "evac-operator";
    pub const IMAGE: &str = concat!("evac:", env!("CARGO_PKG_VERSION"));

    pub fn new(roles: Roles) -> Self {
        Self {
            namespace: Self::NAMESPACE.into(),
            name: Self::NAME.into(),
            image: Self::IMAGE.into(),
            roles_argument: roles.to_string(),
            roles,
            replicas: json!(2),
        }
    }

    pub(crate) fn labels(&self) -> Value {
        json!({
            workload::APP.0: workload::APP.1,
            "app.kubernetes.io/instance": self.name,
            "app.kubernetes.io/managed-by": "evac",
        })
    }

    fn namespace_of(&self, place: Place) -> &str {
        match place {
            Place::Cluster => "",
            Place::Home => &self.namespace,
            Place::Machines => MACHINES,
            Place::System => "kube-system",
            Place::NodeLeases => "kube-node-lease",
            Place::Services => LEASE_NAMESPACE,
        }
    }
}

/// The steps of an installation, in the order in which they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Definitions,
    Namespace,
    Account,
    Rights,
    Bindings,
    /// Keeps the accounts of nodes off what evac writes on nodes.
    Guard,
    Operator,
    /// Apart from the operator, because not every cluster has a use for it.
    Network,
}

impl Step {
    pub const ALL: [Self; 8] = [
        Self::Definitions,
        Self::Namespace,
        Self::Account,
        Self::Rights,
        Self::Bindings,
        Self::Guard,
        Self::Operator,
        Self::Network,
    ];
}

/// All objects, in an order in which they can be applied.
pub fn objects(plan: &Plan) -> Vec<Value> {
    Step::ALL.into_iter().flat_map(|step| objects_of(plan, step)).collect()
}

pub fn objects_of(plan: &Plan, step: Step) -> Vec<Value> {
    match step {
        Step::Definitions => definitions(&plan.roles),
        Step::Namespace => namespaces(plan),
        Step::Account => vec![account(plan)],
        Step::Rights => bundles(plan).iter().flat_map(|bundle| roles(plan, bundle)).collect(),
        Step::Bindings => bundles(plan)
            .iter()
            .filter(|bundle| bundle.for_operator)
            .flat_map(|bundle| bindings(plan, bundle))
            .collect(),
        Step::Guard => guard::all(plan),
        Step::Operator => {
            vec![workload::deployment(plan), workload::service(plan), workload::budget(plan)]
        }
        Step::Network => vec![workload::network_policy(plan)],
    }
}

fn definitions(roles: &Roles) -> Vec<Value> {
    let mut all = Vec::new();
    if roles.has(Role::Maintenance) {
        all.extend(maintenance::crds::all());
    }
    if roles.has(Role::Failover) {
        all.push(failover::definition::definition());
    }
    // KubeVirt brings its own; ours are for clusters without it.
    if roles.has(Role::Machines) {
        all.extend(crds::all());
    }
    all
}

fn namespace(name: &str) -> Value {
    let labels = json!({"app.kubernetes.io/managed-by": "evac"});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn namespaces(plan: &Plan) -> Vec<Value> {
    let mut home = namespace(&plan.namespace);
    for mode in ["enforce", "warn"] {
        home["metadata"]["labels"][format!("pod-security.kubernetes.io/{mode}")] = json!("restricted");
    }
    let mut all = vec![home];
    // The settings of machines live there; no pod does.
    if plan.roles.has(Role::Machines) && plan.namespace != MACHINES {
        all.push(namespace(MACHINES));
    }
    if plan.roles.has(Role::Maintenance) || plan.roles.has(Role::Failover) {
        all.push(namespace(LEASE_NAMESPACE));
    }
    all
}

fn account(plan: &Plan) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": plan.name, "namespace": plan.namespace, "labels": plan.labels()},
        // Only the operator's own pods ask for its token.
        "automountServiceAccountToken": false,
    })
}

/// Rights under one name.
pub struct Bundle {
    /// The role they are for; none for those that every operator has.
    pub role: Option<Role>,
    pub name: String,
    pub rights: Vec<Right>,
    /// Otherwise they are for people.
    pub for_operator: bool,
}

/// The rights by role, so that an installation has only those of the roles it takes on.
pub fn bundles(plan: &Plan) -> Vec<Bundle> {
    let mut all =
        vec![Bundle { role: None, name: plan.name.clone(), rights: rights::shared(), for_operator: true }];
    for role in Role::every().filter(|role| plan.roles.has(*role)) {
        let name = format!("{}-{}", plan.name, role.word());
        all.push(Bundle { role: Some(role), name, rights: rights::of(role), for_operator: true });
    }
    all.push(Bundle {
        role: None,
        name: format!("{}-drain", plan.name),
        rights: rights::drain(),
        for_operator: false,
    });
    all
}

fn roles(plan: &Plan, bundle: &Bundle) -> Vec<Value> {
    rights::places(&bundle.rights)
        .into_iter()
        .map(|place| {
            let mut role = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": metadata(plan, bundle, place),
                "rules": rights::rules(&bundle.rights, place),
            });
            if place == Place::Cluster {
                role["kind"] = json!("ClusterRole");
            }
            role
        })
        .collect()
}

fn metadata(plan: &Plan, bundle: &Bundle, place: Place) -> Value {
    let mut metadata = json!({"name": bundle.name, "labels": plan.labels()});
    if place != Place::Cluster {
        metadata["namespace"] = json!(plan.namespace_of(place));
    }
    metadata
}

fn bindings(plan: &Plan, bundle: &Bundle) -> Vec<Value> {
    rights::places(&bundle.rights)
        .into_iter()
        .map(|place| {
            let whole = place == Place::Cluster;
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": if whole { "ClusterRoleBinding" } else { "RoleBinding" },
                "metadata": metadata(plan, bundle, place),
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": if whole { "ClusterRole" } else { "Role" },
                    "name": bundle.name,
                },
                "subjects": [{"kind": "ServiceAccount", "name": plan.name, "namespace": plan.namespace}],
            })
        })
        .collect()
}
