//! What a node shows of being alive, and the record that its machine is off.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::key::Uid;

/// What tells whether a node lives, besides its Ready condition. The times are those of other machines' clocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Life {
    /// Changes each time the machine starts.
    pub boot: Option<String>,
    /// When the kubelet last reported on the node's condition.
    pub reported: Option<Timestamp>,
    /// When the agent of virtual machines last gave a sign.
    pub heartbeat: Option<Timestamp>,
    /// The record of a proof that the machine is off, as found.
    pub fenced: Option<FencedState>,
    /// Volumes that are attached to the node, as far as the cluster knows.
    pub attached: Vec<String>,
}

/// The record of the proof, as found on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FencedState {
    /// It can be read.
    Valid(Box<Fenced>),
    /// It cannot be read, for this reason.
    Unreadable(String),
}

/// How a node shows that it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sign {
    /// The kubelet's lease was renewed.
    Lease,
    /// The kubelet reported on the node's conditions.
    Report,
    /// The agent of virtual machines on the node wrote its heartbeat.
    Heartbeat,
    /// The machine started: it has another boot id.
    Boot,
}

impl Sign {
    /// What the node did, as the end of a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Lease => "its kubelet renewed its lease",
            Self::Report => "its kubelet reported",
            Self::Heartbeat => "its agent of virtual machines gave a sign of life",
            Self::Boot => "its machine was started",
        }
    }
}

/// What a node last showed of itself, as values that are compared and never understood.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Signs {
    /// Who renewed the kubelet's lease, in which version, with which time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<String>,
    /// The time of the kubelet's last report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<String>,
    /// What the kubelet says of its node, and since when. Nothing while the node controller speaks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) word: Option<String>,
    /// The time that the agent of virtual machines last wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heartbeat: Option<String>,
    /// The start of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) boot: Option<String>,
}

/// Who or what says that the machine is off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum How {
    /// A person says so, and why.
    Statement {
        /// Who says so.
        by: String,
        /// Why that is known, in that person's words.
        reason: String,
    },
    /// A fence agent switched it off and then saw it off.
    Agent {
        /// The name of the agent's program.
        program: String,
    },
    /// The provider of the machine says so.
    Provider {
        /// The taint by which it does.
        signal: String,
    },
    /// There is no such word, but a policy takes this much silence for it.
    Time {
        /// The silence that the policy wants.
        seconds: i64,
        /// Its name.
        policy: String,
    },
}

/// The record of a proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fenced {
    /// Its format: see `failover::fencing::VERSION`.
    pub version: u32,
    /// The node object it was made for: another of the same name is another node.
    pub node_uid: Uid,
    /// The start of the machine that has ended with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// When it was made; where an agent switched the machine off, when that began.
    pub at: Timestamp,
    /// Who acted on it.
    pub owner: String,
    /// Who or what says so.
    #[serde(flatten)]
    pub how: How,
    /// Whether the machine's pods were released because of it.
    #[serde(default)]
    pub released: bool,
    /// The signs of life as they were when it was made; for an agent, after it had seen the machine off. Records of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signs: Option<Signs>,
    /// The policy that asked for it. Its name in JSON is not that of a field of [`How`], which lies beside it.
    #[serde(default, rename = "forPolicy", skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyRef>,
    /// The sign of life by which it was found to be wrong before anything was released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refuted: Option<Sign>,
}

/// A policy as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRef {
    /// Its name.
    pub name: String,
    /// The object: a policy that was deleted and made again is another.
    pub uid: Uid,
    /// `metadata.generation`: a changed policy is another.
    pub generation: i64,
}
