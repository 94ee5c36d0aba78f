//! Proof that a machine is off, written down on the node.
//!
//! A proof is a statement about one machine at one moment. It holds for the node object it was made for, and only as long as
//! nothing is seen of the machine afterwards. What "afterwards" means is not a matter of clocks: the record carries the signs of life as they were
//! when the proof was made, and a sign that differs from them came later. An agent that switched off the machine of another node is
//! found out by this, because the node goes on renewing its lease; the record then stays on the node as [`Fenced::refuted`], so that no
//! operator lets the same agent switch off the same wrong machine again.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::silence::Signs;
use super::suspect::{Sign, Suspect};
use crate::cluster::fact::Uid;

/// The annotation of the node that carries a [`Fenced`] as JSON.
pub const ANNOTATION: &str = "evac.dev/fenced";
/// The format of [`Fenced`] that is written.
pub const VERSION: u32 = 1;

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

impl How {
    /// As a clause that names who says so.
    pub fn words(&self) -> String {
        match self {
            Self::Statement { by, reason } => format!("{by} states that it is off: {reason}"),
            Self::Agent { program } => format!("fence agent {program} switched it off and then saw it off"),
            Self::Provider { signal } => format!("its provider says that it is shut down ({signal})"),
            Self::Time { seconds, policy } => {
                let span = crate::drain::explain::span(*seconds);
                format!("policy {policy} takes {span} of silence for the end of it")
            }
        }
    }
}

/// The record of a proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fenced {
    /// Its format: [`VERSION`].
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

impl Fenced {
    /// A record with the node's signs of life as they are in `suspect`. Nothing is released by it yet.
    pub fn new(suspect: &Suspect, how: How, owner: &str, now: Timestamp) -> Self {
        Self {
            version: VERSION,
            node_uid: suspect.node.uid.clone(),
            boot: suspect.boot.clone(),
            at: now,
            owner: owner.to_owned(),
            how,
            released: false,
            signs: Some(Signs::of(suspect)),
            policy: None,
            refuted: None,
        }
    }

    /// What speaks against it, if anything does.
    pub fn void(&self, suspect: &Suspect, now: Timestamp) -> Option<Void> {
        if self.node_uid != suspect.node.uid {
            return Some(Void::OtherNode);
        }
        // Where there are signs to compare no clock matters.
        if self.signs.is_none() && self.at > now {
            return Some(Void::Future { at: self.at });
        }
        if let Some(sign) = self.refuted {
            return Some(self.life(sign));
        }
        if suspect.is_ready() {
            return Some(Void::Ready);
        }
        if self.boot.is_some() && suspect.boot.is_some() && self.boot != suspect.boot {
            return Some(Void::Rebooted);
        }
        let sign = match &self.signs {
            Some(signs) => Signs::of(suspect).news(signs),
            None => suspect
                .signs()
                .filter(|(_, at)| *at > self.at)
                .max_by_key(|(_, at)| *at)
                .map(|(sign, _)| sign),
        };
        sign.map(|sign| self.life(sign))
    }

    fn life(&self, sign: Sign) -> Void {
        match &self.how {
            How::Agent { .. } => Void::WrongMachine { sign },
            How::Statement { .. } | How::Provider { .. } | How::Time { .. } => Void::Alive { sign },
        }
    }

    /// The sign by which an agent is found to have switched off another machine than this node's: seen before the release, and without
    /// the machine having been started again.
    pub fn wrong_machine(&self, suspect: &Suspect) -> Option<Sign> {
        if !matches!(self.how, How::Agent { .. }) || self.node_uid != suspect.node.uid {
            return None;
        }
        let current = Signs::of(suspect);
        let seen = self.signs.as_ref().filter(|signs| !self.released && signs.same_boot(&current));
        self.refuted.or_else(|| current.news(seen?))
    }
}

/// Why a proof is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Void {
    /// It was made for an earlier node of the same name.
    OtherNode,
    /// It has a date that is still to come, and no signs of life to go by.
    Future {
        /// That date.
        at: Timestamp,
    },
    /// The kubelet says that the node is Ready.
    Ready,
    /// The machine has been started since.
    Rebooted,
    /// A sign of life came after it.
    Alive {
        /// Which one.
        sign: Sign,
    },
    /// An agent saw a machine off, and this node lives.
    WrongMachine {
        /// By which sign that is known.
        sign: Sign,
    },
}

impl Void {
    /// As a clause that says what speaks against it.
    pub fn words(&self) -> String {
        match self {
            Self::OtherNode => "it was made for an earlier node of the same name".into(),
            Self::Future { at } => format!("it is dated {at:.0}, which is still to come"),
            Self::Ready => "the node is Ready again".into(),
            Self::Rebooted => "the machine was started again since".into(),
            Self::Alive { sign } => format!("{} after the proof", sign.words()),
            Self::WrongMachine { sign } => format!(
                "the machine behind this agent is not this node: {} after the agent had switched it off",
                sign.words()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::suspect::testing::{lease, ready, silent};
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
        seen.lease = Some(lease("n", at(101)));
        assert_eq!(proof.void(&seen, at(102)), Some(Void::Alive { sign: Sign::Lease }));
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
    }

    fn by_agent(suspect: &Suspect, second: i64) -> Fenced {
        Fenced::new(suspect, How::Agent { program: "fence_x".into() }, "op", at(second))
    }

    #[test]
    fn an_agent_is_refuted_by_a_lease_renewed_with_a_slow_clock() {
        // By its own clock the node renewed its lease long before the proof.
        let proof = by_agent(&silent("n"), 100);
        let mut seen = silent("n");
        seen.lease = Some(lease("n", at(-490)));
        let void = proof.void(&seen, at(110)).unwrap();
        assert_eq!(void, Void::WrongMachine { sign: Sign::Lease });
        assert_eq!(
            void.words(),
            "the machine behind this agent is not this node: its kubelet renewed its lease after the agent had switched it off"
        );
        assert_eq!(proof.wrong_machine(&seen), Some(Sign::Lease));
    }

    #[test]
    fn a_lease_that_was_renewed_while_the_machine_was_switched_off_does_not_refute_the_agent() {
        // Dated when the switching off began at 100; the last lease is from 105, and the signs were read at 110.
        let mut last = silent("n");
        last.lease = Some(lease("n", at(105)));
        let proof = by_agent(&last, 100);
        assert_eq!(proof.void(&last, at(130)), None);
        assert_eq!(proof.wrong_machine(&last), None);
    }

    #[test]
    fn what_was_refuted_stays_so_until_another_record_takes_its_place() {
        let mut proof = by_agent(&silent("n"), 100);
        proof.refuted = Some(Sign::Lease);
        assert_eq!(
            proof.wrong_machine(&silent("n")),
            Some(Sign::Lease),
            "also when the signs are as they were"
        );
        assert!(proof.void(&silent("n"), at(200)).is_some());
    }

    #[test]
    fn a_machine_that_was_started_again_does_not_refute_the_agent_that_switched_it_off() {
        let proof = by_agent(&silent("n"), 100);
        let mut restarted = silent("n");
        restarted.boot = Some("boot-2".into());
        restarted.lease = Some(lease("n", at(300)));
        assert_eq!(proof.wrong_machine(&restarted), None);
        assert_eq!(proof.void(&restarted, at(300)), Some(Void::Rebooted));
        // After the release its life is another matter: the node is looked at before it is used again.
        let released = Fenced { released: true, ..proof };
        let mut seen = silent("n");
        seen.lease = Some(lease("n", at(300)));
        assert_eq!(released.wrong_machine(&seen), None);
        assert!(released.void(&seen, at(300)).is_some());
    }

    #[test]
    fn records_of_earlier_versions_are_compared_by_their_times() {
        let proof = Fenced { signs: None, ..by_agent(&silent("n"), 100) };
        assert_eq!(proof.void(&silent("n"), at(200)), None);
        assert_eq!(proof.void(&silent("n"), at(99)), Some(Void::Future { at: at(100) }));
        let mut seen = silent("n");
        seen.lease = Some(lease("n", at(101)));
        assert_eq!(proof.void(&seen, at(200)), Some(Void::WrongMachine { sign: Sign::Lease }));
    }
}
