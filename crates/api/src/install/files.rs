//! The same objects as files: `deploy/` for `kubectl create -f`, and a Helm chart. `cargo xtask deploy` writes them.

use evac_core::drain::ownership::LEASE_NAMESPACE;
use evac_core::machines::{Role, Roles};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Bundle, Plan, Step, bindings, bundles, namespace, objects_of, roles};
use crate::kubevirt::{NAMESPACE as MACHINES, crds};
use crate::{failover, maintenance};

/// A file of the repository: its path and what is in it.
pub type File = (String, String);

const MARK: &str = "# Made by `cargo xtask deploy`; edit crates/api/src/install instead.\n";

/// Objects as a stream of YAML documents.
pub fn yaml(objects: &[Value]) -> String {
    let texts: Vec<String> = objects.iter().map(one).collect();
    texts.join("---\n")
}

fn one(object: &impl Serialize) -> String {
    // Values without a form in YAML do not occur in JSON.
    serde_saphyr::to_string(object).unwrap_or_default()
}

/// Everything that is generated.
pub fn all() -> Vec<File> {
    [deploy(), chart()].concat()
}

/// The files that a walk-through of the node maintenance operator names, in its order.
fn deploy() -> Vec<File> {
    let mut plan = Plan::new(Roles::of([Role::Maintenance]));
    plan.name = "node-maintenance-operator".into();
    plan.namespace.clone_from(&plan.name);
    let steps = [
        ("deploy/crds/nodemaintenance_crd.yaml", Step::Definitions),
        ("deploy/namespace.yaml", Step::Namespace),
        ("deploy/service_account.yaml", Step::Account),
        ("deploy/role.yaml", Step::Rights),
        ("deploy/role_binding.yaml", Step::Bindings),
        ("deploy/guard.yaml", Step::Guard),
        ("deploy/operator.yaml", Step::Operator),
        ("deploy/network_policy.yaml", Step::Network),
    ];
    let file =
        |(path, step): (&str, Step)| (path.to_owned(), format!("{MARK}{}", yaml(&objects_of(&plan, step))));
    let mut files: Vec<File> = steps.into_iter().map(file).collect();
    files.push(("deploy/crds/nodemaintenance_cr.yaml".to_owned(), EXAMPLE.to_owned()));
    files
}

/// What a user fills in to have a node serviced.
const EXAMPLE: &str = "\
apiVersion: kubevirt.io/v1alpha1
kind: NodeMaintenance
metadata:
  name: nodemaintenance-xyz
spec:
  nodeName: <Node-Name>
  reason: \"Test node maintenance\"
";

/// A number in a template must not become a text.
const REPLICAS: &str = "{{ .Values.replicas }}";

fn chart() -> Vec<File> {
    let mut plan = Plan::new(Roles::of(Role::every()));
    plan.namespace = "{{ .Release.Namespace }}".into();
    plan.name = "{{ .Release.Name }}".into();
    plan.image = "{{ .Values.image }}".into();
    plan.roles_argument = "{{ join \",\" .Values.roles }}".into();
    plan.replicas = json!(REPLICAS);
    let template = |objects: &[Value]| {
        let quoted = [format!("\"{REPLICAS}\""), format!("'{REPLICAS}'")];
        quoted.iter().fold(yaml(objects), |text, quoted| text.replace(quoted, REPLICAS))
    };
    let mut files = vec![
        ("Chart.yaml".to_owned(), one(&about())),
        ("values.yaml".to_owned(), values()),
        ("templates/account.yaml".to_owned(), template(&objects_of(&plan, Step::Account))),
        ("templates/guard.yaml".to_owned(), template(&objects_of(&plan, Step::Guard))),
        ("templates/operator.yaml".to_owned(), template(&objects_of(&plan, Step::Operator))),
        ("templates/network.yaml".to_owned(), template(&objects_of(&plan, Step::Network))),
    ];
    for bundle in bundles(&plan) {
        let what = match bundle.role {
            Some(role) => role.word(),
            None if bundle.for_operator => "shared",
            None => "drain",
        };
        let mut objects = roles(&plan, &bundle);
        if bundle.for_operator {
            objects.extend(bindings(&plan, &bundle));
        }
        files.push((format!("templates/rights-{what}.yaml"), when(&bundle, &template(&objects))));
    }
    // Helm installs these once and never removes them, and with them everybody's objects.
    files.push(("crds/nodemaintenance.yaml".to_owned(), template(&maintenance::crds::all())));
    let policies = [failover::definition::definition()];
    files.push(("crds/failoverpolicy.yaml".to_owned(), template(&policies)));
    let machines = [crds::all(), vec![namespace(MACHINES)]].concat();
    files.push(("templates/machines.yaml".to_owned(), when_any(&[Role::Machines], &template(&machines))));
    let services = [namespace(LEASE_NAMESPACE)];
    let leases = when_any(&[Role::Maintenance, Role::Failover], &template(&services));
    files.push(("templates/leases.yaml".to_owned(), leases));
    files.into_iter().map(|(path, text)| (format!("chart/evac/{path}"), format!("{MARK}{text}"))).collect()
}

fn when(bundle: &Bundle, text: &str) -> String {
    bundle.role.map_or_else(|| text.to_owned(), |role| when_any(&[role], text))
}

/// What is there only if one of these roles is taken on.
fn when_any(roles: &[Role], text: &str) -> String {
    let wanted: Vec<String> =
        roles.iter().map(|role| format!("(has \"{}\" .Values.roles)", role.word())).collect();
    format!("{{{{- if or {} }}}}\n{text}{{{{- end }}}}\n", wanted.join(" "))
}

fn about() -> Value {
    json!({
        "apiVersion": "v2",
        "name": "evac",
        "description": "Empties Kubernetes nodes of virtual machines and pods, safely and provably",
        "type": "application",
        "version": env!("CARGO_PKG_VERSION"),
        "appVersion": env!("CARGO_PKG_VERSION"),
        "kubeVersion": ">= 1.31.0-0",
    })
}

fn values() -> String {
    let usual: Vec<&str> =
        Role::ALL.into_iter().filter(|role| !Role::KUBEVIRT.contains(role)).map(Role::word).collect();
    format!(
        "# The image of the operator; `docker build .` makes it.\n\
         image: {}\n\
         # One acts, the others are ready to.\n\
         replicas: 2\n\
         # What the operator does, and has the rights for. Without KubeVirt, add {}.\n\
         roles: [{}]\n",
        Plan::IMAGE,
        Role::KUBEVIRT.map(Role::word).join(", "),
        usual.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_in_the_repository_is_what_is_generated() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (path, text) in all() {
            let there = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
            assert!(there == text, "{path} is out of date; run `cargo xtask deploy`");
        }
    }

    #[test]
    fn every_file_is_yaml_and_every_object_has_a_name() {
        for (path, text) in deploy() {
            for document in text.split("---\n") {
                let object: Value = serde_saphyr::from_str(document).unwrap();
                assert!(object["metadata"]["name"].is_string(), "{path}: {object}");
            }
        }
    }
}
