//! Quantities ("500m", "32Gi") as numbers, and what a pod asks of its node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Thousandths of the unit. Wide enough for exbibytes in thousandths.
pub type Milli = i128;

/// Resource name → amount. Ordered, because it ends up in messages.
pub type Amounts = BTreeMap<String, Milli>;

/// What a quantity says, in thousandths, rounded up; `None` when it is no quantity.
pub fn parse(text: &str) -> Option<Milli> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut mantissa: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut scale: i128 = 1;
    for digit in fraction.chars().take(12) {
        mantissa = mantissa.checked_mul(10)?.checked_add(i128::from(digit.to_digit(10)?))?;
        scale *= 10;
    }
    let (up, down) = multiplier(suffix)?;
    let top = mantissa.checked_mul(up)?.checked_mul(1000)?;
    let bottom = scale.checked_mul(down)?;
    let rounded = if top % bottom == 0 { top / bottom } else { top / bottom + 1 };
    Some(sign * rounded)
}

fn multiplier(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = 10_i128.checked_pow(power.unsigned_abs())?;
            if power >= 0 { (factor, 1) } else { (1, factor) }
        }
    })
}

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
    use rstest::rstest;

    #[rstest]
    #[case("1", 1000)]
    #[case("500m", 500)]
    #[case("0.1", 100)]
    #[case("1.5Gi", 1_610_612_736_000)]
    #[case("2k", 2_000_000)]
    #[case("1e3", 1_000_000)]
    #[case("1n", 1)]
    #[case("-2", -2000)]
    fn quantities_are_read_in_thousandths(#[case] text: &str, #[case] milli: Milli) {
        assert_eq!(parse(text), Some(milli));
    }

    #[rstest]
    #[case("")]
    #[case("Gi")]
    #[case("1x")]
    fn what_is_no_quantity_is_not_read(#[case] text: &str) {
        assert_eq!(parse(text), None);
    }

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
