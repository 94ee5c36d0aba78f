//! Quantities ("500m", "32Gi") as numbers, and what a pod asks of its node.

use std::collections::BTreeMap;

pub use evac_api::quantity::parse;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Thousandths of the unit. Wide enough for exbibytes in thousandths.
pub type Milli = i128;

/// Resource name → amount. Ordered, because it ends up in messages.
pub type Amounts = BTreeMap<String, Milli>;

pub fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    list.into_iter()
        .flatten()
        .filter_map(|(name, quantity)| Some((name.clone(), parse(&quantity.0)?)))
        .collect()
}

pub fn add(into: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *into.entry(name.clone()).or_default() += amount;
    }
}

pub fn subtract(from: &mut Amounts, less: &Amounts) {
    for (name, amount) in less {
        *from.entry(name.clone()).or_default() -= amount;
    }
}

fn raise(into: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let slot = into.entry(name.clone()).or_default();
        *slot = (*slot).max(*amount);
    }
}

fn requests(resources: Option<&ResourceRequirements>) -> Amounts {
    amounts(resources.and_then(|r| r.requests.as_ref()))
}

fn of_container(container: &Container) -> Amounts {
    requests(container.resources.as_ref())
}

/// What the pod takes of a node: the larger of its containers together and any moment of its init phase,
/// side cars counted as containers from where they start, plus overhead.
pub fn pod_requests(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let mut running = Amounts::new();
    for container in &spec.containers {
        add(&mut running, &of_container(container));
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let mut moment = of_container(container);
        add(&mut moment, &sidecars);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut running, &of_container(container));
            sidecars.clone_from(&moment);
        }
        raise(&mut peak, &moment);
    }
    raise(&mut running, &peak);
    let whole_pod = requests(spec.resources.as_ref());
    for (name, amount) in whole_pod {
        running.insert(name, amount);
    }
    add(&mut running, &amounts(spec.overhead.as_ref()));
    running
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PodSpec;

    fn container(cpu: &str, restart: Option<&str>) -> Container {
        Container {
            resources: Some(ResourceRequirements {
                requests: Some(BTreeMap::from([("cpu".to_owned(), Quantity(cpu.to_owned()))])),
                ..Default::default()
            }),
            restart_policy: restart.map(str::to_owned),
            ..Default::default()
        }
    }

    #[test]
    fn a_large_init_container_decides_and_a_sidecar_adds() {
        let pod = Pod {
            spec: Some(PodSpec {
                containers: vec![container("1", None), container("500m", None)],
                init_containers: Some(vec![container("200m", Some("Always")), container("3", None)]),
                ..Default::default()
            }),
            ..Default::default()
        };
        assert_eq!(pod_requests(&pod)["cpu"], 3200);
    }
}
