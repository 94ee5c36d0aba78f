//! Quantities ("500m", "32Gi") as numbers, and what a pod asks of its node.

use std::collections::BTreeMap;

use evac_api::quantity::Requests;
pub use evac_api::quantity::{Amounts, add, parse};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Thousandths of the unit. Wide enough for exbibytes in thousandths.
pub type Milli = i128;

pub fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    list.into_iter()
        .flatten()
        .filter_map(|(name, quantity)| Some((name.clone(), parse(&quantity.0)?)))
        .collect()
}

pub fn subtract(from: &mut Amounts, less: &Amounts) {
    for (name, amount) in less {
        *from.entry(name.clone()).or_default() -= amount;
    }
}

fn requests(resources: Option<&ResourceRequirements>) -> Amounts {
    amounts(resources.and_then(|r| r.requests.as_ref()))
}

fn of_container(container: &Container) -> Amounts {
    requests(container.resources.as_ref())
}

/// What the pod takes of a node.
pub fn pod_requests(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let init = |one: &Container| (of_container(one), one.restart_policy.as_deref() == Some("Always"));
    Requests {
        containers: spec.containers.iter().map(of_container).collect(),
        init: spec.init_containers.iter().flatten().map(init).collect(),
        whole: requests(spec.resources.as_ref()),
        overhead: amounts(spec.overhead.as_ref()),
    }
    .taken()
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
