//! Who writes to which disk, and where a guest runs: the two things that must never happen twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

/// Something happened that must not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Two guests write to one disk.
    TwoWriters { disk: String, writers: Vec<String>, at: Timestamp },
    /// One machine runs in two places.
    RunsTwice { machine: String, places: Vec<String>, at: Timestamp },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoWriters { disk, writers, at } => {
                write!(f, "{at}: disk {disk} has {} writers: {}", writers.len(), writers.join(", "))
            }
            Self::RunsTwice { machine, places, at } => {
                write!(f, "{at}: {machine} runs in {} places: {}", places.len(), places.join(", "))
            }
        }
    }
}

/// The writer sets of all disks. Violations are kept for ever: what happened, happened.
#[derive(Debug, Default)]
pub struct Ledger {
    writers: BTreeMap<String, BTreeSet<String>>,
    places: BTreeMap<String, BTreeSet<String>>,
    violations: Vec<Violation>,
}

impl Ledger {
    /// `place` (a launcher on a node) begins to run `machine` and to write to `disks`.
    pub fn begin(
        &mut self,
        machine: &str,
        place: &str,
        disks: impl IntoIterator<Item = String>,
        at: Timestamp,
    ) {
        for disk in disks {
            let writers = self.writers.entry(disk.clone()).or_default();
            if writers.insert(place.to_owned()) && writers.len() > 1 {
                let writers = writers.iter().cloned().collect();
                self.violations.push(Violation::TwoWriters { disk, writers, at });
            }
        }
        let places = self.places.entry(machine.to_owned()).or_default();
        if places.insert(place.to_owned()) && places.len() > 1 {
            let places = places.iter().cloned().collect();
            self.violations.push(Violation::RunsTwice { machine: machine.to_owned(), places, at });
        }
    }

    pub fn end<'a>(&mut self, machine: &str, place: &str, disks: impl IntoIterator<Item = &'a String>) {
        for disk in disks {
            if let Some(writers) = self.writers.get_mut(disk) {
                writers.remove(place);
                if writers.is_empty() {
                    self.writers.remove(disk);
                }
            }
        }
        if let Some(places) = self.places.get_mut(machine) {
            places.remove(place);
            if places.is_empty() {
                self.places.remove(machine);
            }
        }
    }

    pub fn writers(&self, disk: &str) -> impl Iterator<Item = &String> {
        self.writers.get(disk).into_iter().flatten()
    }

    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::at;

    #[test]
    fn a_second_writer_is_seen_and_stays_on_record() {
        let mut ledger = Ledger::default();
        ledger.begin("ns/a", "p1 on n1", ["data".to_owned()], at(1));
        assert!(ledger.violations().is_empty());
        ledger.begin("ns/b", "p2 on n2", ["data".to_owned()], at(2));
        ledger.end("ns/a", "p1 on n1", &["data".to_owned()]);
        assert_eq!(ledger.writers("data").collect::<Vec<_>>(), ["p2 on n2"]);
        let [Violation::TwoWriters { disk, writers, .. }] = ledger.violations() else {
            panic!("{:?}", ledger.violations())
        };
        assert_eq!((disk.as_str(), writers.len()), ("data", 2));
    }

    #[test]
    fn one_after_the_other_is_fine() {
        let mut ledger = Ledger::default();
        ledger.begin("ns/a", "p1", ["data".to_owned()], at(1));
        ledger.end("ns/a", "p1", &["data".to_owned()]);
        ledger.begin("ns/a", "p2", ["data".to_owned()], at(2));
        assert!(ledger.violations().is_empty());
    }

    #[test]
    fn a_machine_without_disks_must_not_run_twice_either() {
        let mut ledger = Ledger::default();
        ledger.begin("ns/a", "p1", [], at(1));
        ledger.begin("ns/a", "p2", [], at(2));
        assert!(matches!(ledger.violations(), [Violation::RunsTwice { .. }]));
    }
}
