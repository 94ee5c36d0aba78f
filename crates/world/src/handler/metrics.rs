//! What the agent of a node tells Prometheus about guests that are leaving it: the five numbers of a migration under KubeVirt's names. Its
//! other metrics are left out.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::hypervisor::Hypervisor;

/// Where agents serve their metrics.
pub const PORT: &str = "8443";
pub const PATH: &str = "/metrics";

const PREFIX: &str = "kubevirt_vmi_migration_";

/// The metrics of one node, each with the time it was taken at.
pub fn write(hypervisor: &mut Hypervisor, node: &str, now: Timestamp) -> String {
    let mut text = String::new();
    let millis = now.as_millisecond();
    for leaving in hypervisor.leaving(node, now) {
        let (namespace, name) = (&leaving.machine.namespace, &leaving.machine.name);
        for (metric, value) in [
            ("data_bytes_total", leaving.total),
            ("data_remaining_bytes", leaving.remaining),
            ("data_processed_bytes", leaving.sent),
            ("dirty_memory_rate_bytes", leaving.dirty_rate),
            ("memory_transfer_rate_bytes", leaving.rate),
        ] {
            // Writing into a String cannot fail.
            let _ = writeln!(
                text,
                "{PREFIX}{metric}{{name=\"{name}\",namespace=\"{namespace}\",node=\"{node}\"}} {value:e} {millis}",
                value = value.floor(),
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::at;
    use crate::hypervisor::guest::Plan;
    use crate::hypervisor::transfer::Terms;
    use crate::hypervisor::{Machine, Place};
    use crate::objects::Key;

    #[test]
    fn numbers_have_the_names_labels_and_times_of_kubevirt() {
        let mut hypervisor = Hypervisor::new(1000.0);
        let place = |pod: &str, node: &str| Place {
            pod: Key::new("ns", pod),
            pod_uid: pod.to_owned(),
            node: node.to_owned(),
        };
        let machine = Machine { key: Key::new("ns", "vm"), ..Machine::default() };
        hypervisor.start(place("source", "n1"), machine, Plan::default(), at(0));
        let terms = Terms { memory: 10_000.0, dirty_rate: 100.0, ..Terms::default() };
        assert!(hypervisor.begin_move("m", "source", place("target", "n2"), terms, at(10)));
        let text = write(&mut hypervisor, "n1", at(14));
        let millis = at(14).as_millisecond();
        let expected = [
            ("data_bytes_total", "1e4"),
            ("data_remaining_bytes", "6e3"),
            ("data_processed_bytes", "4e3"),
            ("dirty_memory_rate_bytes", "1e2"),
            ("memory_transfer_rate_bytes", "1e3"),
        ]
        .map(|(name, value)| {
            format!(
                "kubevirt_vmi_migration_{name}{{name=\"vm\",namespace=\"ns\",node=\"n1\"}} {value} {millis}\n"
            )
        });
        assert_eq!(text, expected.concat());
        assert_eq!(write(&mut hypervisor, "n2", at(14)), "");
    }
}
