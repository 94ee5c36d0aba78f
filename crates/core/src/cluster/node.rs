//! A node, as far as decisions look at it.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::key::Uid;
use super::life::Life;
use super::mark::MarkState;
use super::table::object;
use super::taints::OUT_OF_SERVICE;
use super::text_map::TextMap;

/// A taint, as `spec.taints` has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Such as `kubevirt.io/drain`.
    pub key: String,
    /// What tolerations may ask for; `None` and empty mean the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// `timeAdded` as written; `None` where the author of the taint left it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

impl Taint {
    /// Kubernetes treats key and effect as a taint's identity.
    pub fn same_as(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) if !value.is_empty() => write!(f, "{}={}:{}", self.key, value, self.effect),
            _ => write!(f, "{}:{}", self.key, self.effect),
        }
    }
}

/// What a node says about its own health. `Silent` means it never reported a Ready condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// Its condition Ready is true.
    Ready,
    /// The kubelet says itself that it is not ready.
    NotReady,
    /// The kubelet has not been heard of for a while: the node controller says so.
    Unknown,
    /// There is no condition Ready.
    Silent,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`: a machine that is registered anew is another node.
    pub uid: Uid,
    /// `metadata.resourceVersion`, on which changes are written.
    pub resource_version: String,
    /// `spec.unschedulable`: it is cordoned.
    pub unschedulable: bool,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `metadata.labels`.
    pub labels: TextMap,
    /// What its condition Ready says.
    pub health: Health,
    /// Since when it says so, by the clock of the writer; `None` if that is not written.
    pub health_since: Option<Timestamp>,
    /// Our ownership annotation, as found.
    pub mark: Option<MarkState>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// What else tells whether it lives.
    pub life: Life,
}

/// Whether the taint with this key asks for the evacuation of a node. Only key and effect count.
pub fn asks_for_evacuation(taints: &[Taint], key: &str) -> bool {
    taints.iter().any(|taint| taint.key == key && taint.effect == "NoSchedule")
}

impl Node {
    /// Whether the taint that asks for an evacuation is on it.
    pub fn is_to_be_drained(&self, key: &str) -> bool {
        asks_for_evacuation(&self.taints, key)
    }

    /// Whether it was said of it that it is off and stays off until that is taken back.
    pub fn is_out_of_service(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
    }
}

object!(Node, String, name, resource_version);
