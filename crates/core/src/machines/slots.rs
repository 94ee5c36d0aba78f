//! How many migrations may run at once, decided in one place.
//!
//! The ledger is one object in the cluster that names the running migrations. A migration gets a target pod only after its entry
//! was written, and every write states which version of the ledger it read. So the limits hold with any number of writers:
//! two operators that both believe to lead, or one with an old view, collide on the ledger and not in the cluster.
//! An entry leaves when nothing is copied for it any more or its migration is gone, both of which can never become untrue again.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::config::Config;
use crate::cluster::fact::{Key, Uid};
pub use crate::cluster::ledger::{Ledger, Slot};
use crate::cluster::version::is_older;

/// Whether one more fits, and if not, what is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// One more fits.
    Free,
    /// As many are running as the cluster may have at once.
    ClusterFull,
    /// As many are leaving the node as it may have at once.
    NodeFull,
}

impl Ledger {
    /// Whether the migration has an entry.
    pub fn holds(&self, uid: &Uid) -> bool {
        self.slots.iter().any(|slot| slot.uid == *uid)
    }

    /// The later of two views of one history.
    pub fn newer_of<'a>(&'a self, other: &'a Self) -> &'a Self {
        if self.version.is_empty() || is_older(&self.version, &other.version) { other } else { self }
    }

    /// The ledger without the entries that are over.
    #[must_use]
    pub fn without(&self, over: impl Fn(&Slot) -> bool) -> Self {
        let slots = self.slots.iter().filter(|slot| !over(slot)).cloned().collect();
        Self { version: self.version.clone(), slots }
    }

    /// Whether one more may leave this node.
    pub fn room(&self, config: &Config, node: &str) -> Room {
        if self.slots.len() >= config.parallel_per_cluster as usize {
            return Room::ClusterFull;
        }
        let outbound = self.slots.iter().filter(|slot| slot.node == node).count();
        if outbound >= config.parallel_outbound_per_node as usize { Room::NodeFull } else { Room::Free }
    }

    /// Notes migrations that run without an entry: the ledger was lost, or another controller started them.
    pub fn acknowledge(&mut self, running: impl IntoIterator<Item = Slot>) {
        for slot in running {
            if !self.holds(&slot.uid) {
                self.slots.push(slot);
            }
        }
    }

    /// Enters a migration if there is room; already being in it is fine.
    pub fn enter(&mut self, slot: Slot, config: &Config) -> Room {
        if self.holds(&slot.uid) {
            return Room::Free;
        }
        let room = self.room(config, &slot.node);
        if room == Room::Free {
            self.slots.push(slot);
        }
        room
    }
}

/// A migration that lacks nothing but a slot.
#[derive(Debug, Clone)]
pub struct Waiting<'a> {
    /// The migration.
    pub key: &'a Key,
    /// The node the guest leaves.
    pub node: &'a str,
    /// The higher, the earlier; see [`Migration::rank`](crate::cluster::fact::Migration::rank).
    pub rank: u32,
    /// How often it was tried in vain.
    pub failures: usize,
    /// How long it is expected to take, by the guest's memory; 0 where the order of asking counts alone.
    pub size: u64,
    /// When it was asked for.
    pub created: Option<jiff::Timestamp>,
}

/// Which migrations the free slots go to. The highest rank first; then those never tried in vain, so that a guest that fits nowhere holds up
/// no other; then the node with the fewest on their way, so that nodes share; then the largest, which would otherwise
/// be waited for at the end; then the longest wait. A full node does not hold up others.
pub fn admitted<'a>(ledger: &Ledger, config: &Config, mut waiting: Vec<Waiting<'a>>) -> Vec<&'a Key> {
    let mut outbound: BTreeMap<&str, usize> = BTreeMap::new();
    for slot in &ledger.slots {
        *outbound.entry(slot.node.as_str()).or_default() += 1;
    }
    let mut free = (config.parallel_per_cluster as usize).saturating_sub(ledger.slots.len());
    let mut granted = Vec::new();
    while free > 0 {
        waiting.retain(|one| {
            outbound.get(one.node).copied().unwrap_or(0) < config.parallel_outbound_per_node as usize
        });
        let order = |one: &Waiting<'a>| {
            let leaving = outbound.get(one.node).copied().unwrap_or(0);
            (Reverse(one.rank), one.failures, leaving, Reverse(one.size), one.created, one.key)
        };
        let Some(next) = (0..waiting.len()).min_by(|a, b| order(&waiting[*a]).cmp(&order(&waiting[*b])))
        else {
            break;
        };
        let one = waiting.swap_remove(next);
        *outbound.entry(one.node).or_default() += 1;
        free -= 1;
        granted.push(one.key);
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(name: &str, node: &str) -> Slot {
        Slot { uid: Uid::from(format!("u-{name}")), migration: Key::new("d", name), node: node.into() }
    }

    #[test]
    fn m03_m04_m06_the_ledger_never_holds_more_than_the_limits() {
        let config = Config::default();
        let mut ledger = Ledger::default();
        assert_eq!(ledger.enter(slot("a", "n1"), &config), Room::Free);
        assert_eq!(ledger.enter(slot("b", "n1"), &config), Room::Free);
        assert_eq!(ledger.enter(slot("c", "n1"), &config), Room::NodeFull);
        assert_eq!(ledger.enter(slot("a", "n1"), &config), Room::Free, "entering twice takes one slot");
        for name in ["d", "e", "f"] {
            assert_eq!(ledger.enter(slot(name, name), &config), Room::Free);
        }
        assert_eq!(ledger.enter(slot("g", "n9"), &config), Room::ClusterFull);
        assert_eq!(ledger.slots.len(), 5);
        let ledger = ledger.without(|slot| slot.migration.name == "a");
        assert_eq!(ledger.room(&config, "n1"), Room::Free);
    }

    #[test]
    fn m05_what_runs_without_an_entry_counts_all_the_same() {
        let config = Config::default();
        let mut ledger = Ledger::default();
        ledger.acknowledge([slot("a", "n1"), slot("b", "n1"), slot("a", "n1")]);
        assert_eq!(ledger.slots.len(), 2);
        assert_eq!(ledger.enter(slot("c", "n1"), &config), Room::NodeFull);
    }

    #[test]
    fn m35_free_slots_go_by_rank_then_age_and_around_full_nodes() {
        let config = Config { parallel_per_cluster: 3, ..Config::default() };
        let at = |second| jiff::Timestamp::from_second(second).ok();
        let keys: Vec<Key> = ["a", "b", "c", "d", "e"].iter().map(|name| Key::new("d", *name)).collect();
        let wait = |rank, second, n: usize, node| Waiting {
            key: &keys[n],
            node,
            rank,
            failures: 0,
            size: 0,
            created: at(second),
        };
        let waiting = vec![
            wait(0, 1, 0, "n1"),
            wait(100, 9, 1, "n1"),
            wait(100, 8, 2, "n1"),
            wait(20, 2, 3, "n2"),
            wait(100, 9, 4, "n1"),
        ];
        let granted: Vec<_> =
            admitted(&Ledger::default(), &config, waiting).iter().map(|key| key.name.as_str()).collect();
        assert_eq!(granted, ["c", "b", "d"]);
    }

    #[test]
    fn nodes_share_the_slots_and_the_largest_goes_first() {
        let config = Config::default();
        let keys: Vec<Key> = (0..6).map(|n| Key::new("d", n.to_string())).collect();
        let wait = |n: usize, node, size, failures| Waiting {
            key: &keys[n],
            node,
            rank: 100,
            failures,
            size,
            created: None,
        };
        let order = |waiting: Vec<Waiting<'_>>| -> String {
            admitted(&Ledger::default(), &config, waiting).iter().map(|key| key.name.as_str()).collect()
        };
        let both = vec![wait(0, "n1", 1, 0), wait(1, "n1", 9, 0), wait(2, "n1", 5, 0), wait(3, "n2", 1, 0)];
        assert_eq!(order(both), "132", "the largest of n1, then n2 has its turn, then n1 again");
        let tried = vec![wait(0, "n1", 9, 2), wait(1, "n1", 1, 0), wait(2, "n1", 1, 0)];
        assert_eq!(order(tried), "12", "what failed before waits for those that may succeed");
    }
}
