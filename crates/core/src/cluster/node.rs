//! A node, as far as decisions look at it.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::key::Uid;
use super::mark::MarkState;
use super::table::object;
use super::taints::OUT_OF_SERVICE;
use super::text_map::TextMap;
use super::version::Version;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    pub effect: String,
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
    Ready,
    NotReady,
    Unknown,
    Silent,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub uid: Uid,
    pub resource_version: Version,
    pub unschedulable: bool,
    pub taints: Vec<Taint>,
    pub labels: TextMap,
    pub health: Health,
    pub health_since: Option<Timestamp>,
    /// Our ownership annotation, as found.
    pub mark: Option<MarkState>,
    pub deleting: bool,
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
