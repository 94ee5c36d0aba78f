//! What a drain writes down: the mark on a node, and the record of it on a lease, which no kubelet can write.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::key::Uid;
use super::node::Taint;

/// What a node looked like before, as far as a drain may change it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreImage {
    /// It was cordoned before.
    #[serde(default)]
    pub unschedulable: bool,
    /// All taints that it had.
    #[serde(default)]
    pub taints: Vec<Taint>,
}

/// The annotation by which a node is known to be drained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainMark {
    /// The form of the mark, [`MARK_VERSION`].
    pub version: u32,
    /// By which name the drain, maintenance or failover is known that answers for the node.
    pub owner: String,
    /// When the mark was written, by the clock of the writer.
    pub since: Timestamp,
    /// What the node has to look like again.
    pub before: PreImage,
    /// Taints this drain added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added_taints: Vec<Taint>,
    /// Labels this drain added.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub added_labels: BTreeMap<String, String>,
    /// The options of the drain in the words of its command line, for people who find the mark.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// The version of the mark's form.
pub const MARK_VERSION: u32 = 1;
/// A mark of ours is a few hundred bytes; what is much longer is not one.
pub const MARK_SIZE: usize = 16 << 10;
/// As much of an unreadable mark as is shown.
const SHOWN: usize = 120;

impl DrainMark {
    /// Whether a drain can have written this. A name goes into sentences and leases, so it is one line of text.
    fn is_plausible(&self) -> bool {
        let line = |text: &str| !text.is_empty() && text.len() <= 512 && !text.chars().any(char::is_control);
        let taints = self.before.taints.iter().chain(&self.added_taints);
        self.version == MARK_VERSION
            && line(&self.owner)
            && self.options.iter().all(|option| option.is_empty() || line(option))
            && taints.into_iter().all(|taint| line(&taint.key) && line(&taint.effect))
    }
}

/// The annotation as found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkState {
    /// It was read, and a drain can have written it.
    Valid(Box<DrainMark>),
    /// No drain can have written it: the beginning of its text, without control characters.
    Unreadable(String),
}

impl MarkState {
    /// The annotation's text as `parse` reads it. What no drain can have written is unreadable, and only its beginning is kept.
    pub fn read(text: &str, parse: impl FnOnce(&str) -> Option<DrainMark>) -> Self {
        let mark = if text.len() <= MARK_SIZE { parse(text) } else { None };
        match mark.filter(DrainMark::is_plausible) {
            Some(mark) => Self::Valid(Box::new(mark)),
            None => Self::Unreadable(text.chars().filter(|c| !c.is_control()).take(SHOWN).collect()),
        }
    }
}

/// What a drain found and added on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The incarnation of the node.
    pub uid: Uid,
    /// The owner in the mark.
    pub owner: String,
    /// Whether the node was cordoned before.
    pub unschedulable: bool,
    /// Taints that the drain added, or may add later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Labels that the drain added.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}
