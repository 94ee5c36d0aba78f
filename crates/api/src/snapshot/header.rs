//! What a snapshot says of itself: of which cluster and when, what could be read, and what could not and why.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::kinds::SnapshotKind;

/// The name of the format.
pub const FORMAT: &str = "evac.dev/snapshot";
/// The newest version of the format that is written and read here.
pub const VERSION: u32 = 1;

/// The first line of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub format: String,
    pub version: u32,
    /// The version of evac that captured it.
    pub evac: String,
    /// When it was begun, by the clock of whoever captured it.
    pub captured: Timestamp,
    pub cluster: Cluster,
    pub kinds: Vec<KindState>,
}

/// Which cluster it is: the uid of its namespace kube-system, which nothing else has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cluster {
    Uid(String),
    /// It could not be read; the error as a sentence.
    Unknown(String),
}

/// What became of the reading of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindState {
    /// The name of the kind; see [`SnapshotKind::name`].
    pub kind: String,
    #[serde(flatten)]
    pub state: Reading,
}

/// Whether a kind could be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Reading {
    /// All of its objects, as they were at this version.
    #[serde(rename_all = "camelCase")]
    Read { objects: usize, resource_version: String },
    /// The cluster has no such kind.
    NotServed,
    /// It did not have to be read.
    NotNeeded,
    /// It may not or could not be read; the error as a sentence.
    Unread { why: String },
}

/// A part of a cluster that could not be read, and what an answer misses without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// What it is, in the plural.
    pub what: String,
    /// What is not known without it.
    pub misses: String,
    /// The answer of the server.
    #[serde(rename = "message")]
    pub why: String,
}

impl Gap {
    pub fn new(what: &str, misses: &str, why: String) -> Self {
        Self { what: what.to_owned(), misses: misses.to_owned(), why }
    }
}

impl Header {
    /// What could not be read.
    pub fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        if let Cluster::Unknown(why) = &self.cluster {
            let misses = "whether it is about the cluster that is asked later";
            gaps.push(Gap::new("the identity of the cluster", misses, why.clone()));
        }
        for KindState { kind, state } in &self.kinds {
            if let Reading::Unread { why } = state {
                let misses = SnapshotKind::named(kind).map_or("what they say", |kind| kind.misses);
                gaps.push(Gap::new(kind, misses, why.clone()));
            }
        }
        gaps
    }

    /// What became of the reading of a kind.
    pub fn reading(&self, kind: &str) -> Option<&Reading> {
        self.kinds.iter().find(|one| one.kind == kind).map(|one| &one.state)
    }

    /// How many objects of a kind it has.
    pub fn count(&self, kind: &str) -> usize {
        match self.reading(kind) {
            Some(Reading::Read { objects, .. }) => *objects,
            _ => 0,
        }
    }
}
