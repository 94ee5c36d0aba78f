//! Proof that a machine is off, written down where everybody can read it.
//!
//! A proof is a statement about one machine at one moment. It holds for the node object it was made for, and only as long as
//! nothing is seen of the machine afterwards.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::suspect::{Sign, Suspect};
use crate::fact::Uid;

/// The annotation of the node that carries a [`Fenced`] as JSON.
pub const ANNOTATION: &str = "evac.dev/fenced";
pub const VERSION: u32 = 1;

/// Who or what says that the machine is off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum How {
    /// A person says so, and why.
    Statement { by: String, reason: String },
    /// A fence agent switched it off and then saw it off.
    Agent { program: String },
    /// The provider of the machine says so.
    Provider { signal: String },
    /// Nobody says so, but a policy takes this much silence for it.
    Time { seconds: i64, policy: String },
}

impl How {
    pub fn words(&self) -> String {
        match self {
            Self::Statement { by, reason } => format!("{by} states that it is off: {reason}"),
            Self::Agent { program } => format!("fence agent {program} switched it off and then saw it off"),
            Self::Provider { signal } => format!("its provider says that it is shut down ({signal})"),
            Self::Time { seconds, policy } => {
                let span = crate::explain::span(*seconds);
                format!("policy {policy} takes {span} of silence for the end of it")
            }
        }
    }
}

/// The record of a proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fenced {
    pub version: u32,
    pub node_uid: Uid,
    /// The start of the machine that has ended with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    pub at: Timestamp,
    /// Who acted on it.
    pub owner: String,
    #[serde(flatten)]
    pub how: How,
    /// Whether the machine's pods were released because of it.
    #[serde(default)]
    pub released: bool,
}

impl Fenced {
    pub fn new(suspect: &Suspect, how: How, owner: &str, now: Timestamp) -> Self {
        Self {
            version: VERSION,
            node_uid: suspect.node.uid.clone(),
            boot: suspect.boot.clone(),
            at: now,
            owner: owner.to_owned(),
            how,
            released: false,
        }
    }

    /// What speaks against it, if anything does.
    pub fn void(&self, suspect: &Suspect, now: Timestamp) -> Option<Void> {
        if self.node_uid != suspect.node.uid {
            return Some(Void::OtherNode);
        }
        if self.at > now {
            return Some(Void::Future { at: self.at });
        }
        if suspect.is_ready() {
            return Some(Void::Ready);
        }
        if self.boot.is_some() && suspect.boot.is_some() && self.boot != suspect.boot {
            return Some(Void::Rebooted);
        }
        let sign = suspect.signs().filter(|(_, at)| *at > self.at).max_by_key(|(_, at)| *at);
        sign.map(|(sign, at)| Void::Alive { sign, at })
    }
}

/// Why a proof is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Void {
    /// It was made for an earlier node of the same name.
    OtherNode,
    Future {
        at: Timestamp,
    },
    Ready,
    /// The machine has been started since.
    Rebooted,
    Alive {
        sign: Sign,
        at: Timestamp,
    },
}

impl Void {
    pub fn words(&self) -> String {
        match self {
            Self::OtherNode => "it was made for an earlier node of the same name".into(),
            Self::Future { at } => format!("it is dated {at:.0}, which is still to come"),
            Self::Ready => "the node is Ready again".into(),
            Self::Rebooted => "the machine was started again since".into(),
            Self::Alive { sign, at } => format!("{} at {at:.0}, after the proof", sign.words()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::suspect::testing::{ready, silent};
    use crate::testing::at;

    fn stated(suspect: &Suspect, second: i64) -> Fenced {
        let how = How::Statement { by: "kim".into(), reason: "pulled the plug".into() };
        Fenced::new(suspect, how, "kim@desk", at(second))
    }

    #[test]
    fn a_proof_holds_while_nothing_is_seen_of_the_machine() {
        let node = silent("n");
        let proof = stated(&node, 100);
        assert_eq!(proof.void(&node, at(5000)), None);
    }

    #[test]
    fn any_sign_of_life_after_it_voids_it() {
        let proof = stated(&silent("n"), 100);
        let mut seen = silent("n");
        seen.renewed = Some(at(101));
        assert_eq!(proof.void(&seen, at(102)), Some(Void::Alive { sign: Sign::Lease, at: at(101) }));
        let mut seen = silent("n");
        seen.heartbeat = Some(at(130));
        assert!(matches!(proof.void(&seen, at(140)), Some(Void::Alive { sign: Sign::Heartbeat, .. })));
        assert_eq!(proof.void(&ready("n", at(120)), at(120)), Some(Void::Ready));
    }

    #[test]
    fn it_is_about_one_machine_one_start_and_the_past() {
        let proof = stated(&silent("n"), 100);
        let mut other = silent("n");
        other.node.uid = Uid("another".into());
        assert_eq!(proof.void(&other, at(200)), Some(Void::OtherNode));
        let mut restarted = silent("n");
        restarted.boot = Some("boot-2".into());
        assert_eq!(proof.void(&restarted, at(200)), Some(Void::Rebooted));
        assert_eq!(proof.void(&silent("n"), at(99)), Some(Void::Future { at: at(100) }));
    }
}
