//! Quantities ("500m", "32Gi") as numbers, and what a pod takes of a node.

use evac_apimachinery::quantity::Quantity;

/// As Go reads it from an object: spaces around it do not count.
fn read(text: &str) -> Option<Quantity> {
    text.trim().parse().ok()
}

/// What a quantity says, in thousandths, rounded up; `None` when it is no quantity.
pub fn parse(text: &str) -> Option<i128> {
    read(text).map(Quantity::milli_value)
}

/// An amount of memory in bytes, rounded up.
pub fn bytes(text: &str) -> Option<u64> {
    u64::try_from(read(text)?.value()).ok()
}

/// Resource name → thousandths of its unit.
pub use evac_core::cluster::place::Amounts;

pub fn add(into: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *into.entry(name.clone()).or_default() += amount;
    }
}

fn raise(into: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let slot = into.entry(name.clone()).or_default();
        *slot = (*slot).max(*amount);
    }
}

/// What each part of a pod asks for.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    pub containers: Vec<Amounts>,
    /// In their order, and whether each goes on running beside the containers.
    pub init: Vec<(Amounts, bool)>,
    /// What the pod asks for as a whole, which replaces the sum of its parts.
    pub whole: Amounts,
    pub overhead: Amounts,
}

impl Requests {
    /// What the pod takes of a node, counted as the scheduler does: the larger of its containers together and any moment of its init phase,
    /// side cars counted as containers from where they start, plus overhead.
    pub fn taken(self) -> Amounts {
        let mut running = Amounts::new();
        for container in &self.containers {
            add(&mut running, container);
        }
        let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
        for (container, stays) in &self.init {
            let mut moment = container.clone();
            add(&mut moment, &sidecars);
            if *stays {
                add(&mut running, container);
                sidecars.clone_from(&moment);
            }
            raise(&mut peak, &moment);
        }
        raise(&mut running, &peak);
        running.extend(self.whole);
        add(&mut running, &self.overhead);
        running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_thousandths() {
        for (text, milli) in [
            ("1", 1000),
            ("500m", 500),
            ("0.1", 100),
            ("1.5Gi", 1_610_612_736_000),
            ("2k", 2_000_000),
            ("1e3", 1_000_000),
            ("1n", 1),
            ("-2", -2000),
            (" 1Ei ", (1 << 60) * 1000),
        ] {
            assert_eq!(parse(text), Some(milli), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_not_read() {
        for text in ["", "Gi", "1x"] {
            assert_eq!(parse(text), None, "{text}");
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn memory_is_counted_in_whole_bytes_whatever_way_it_is_written() {
        for (text, wanted) in [
            ("1Gi", Some(1 << 30)),
            ("0.1Gi", Some(107_374_183)),
            ("1e9", Some(1_000_000_000)),
            ("128974848000m", Some(128_974_848)),
            ("1Pi", Some(1 << 50)),
            ("-1", None),
        ] {
            assert_eq!(bytes(text), wanted, "{text}");
        }
    }
}
