//! The ledger of running migrations, as it is written in the cluster.

use serde::{Deserialize, Serialize};

use super::key::{Key, Uid};

/// The entry of one migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The identity of the migration: another one of its name has no slot.
    pub uid: Uid,
    /// The migration by name.
    pub migration: Key,
    /// The node the guest leaves.
    pub node: String,
}

/// All entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Empty when there is no such object yet.
    pub version: String,
    /// The migrations that hold a slot.
    pub slots: Vec<Slot>,
}
