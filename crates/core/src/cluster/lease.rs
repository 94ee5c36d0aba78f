//! A lease: who holds a node or leads, and for how long.

use jiff::{SignedDuration, Timestamp};

use super::key::{Key, Uid};
use super::mark::Record;
use super::table::object;
use super::version::Version;

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Namespace and name.
    pub key: Key,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `spec.holderIdentity`; empty when it was given back.
    pub holder: String,
    /// `spec.renewTime`, by the clock of the holder.
    pub renewed: Option<Timestamp>,
    /// `spec.leaseDurationSeconds`; 0 if it does not say.
    pub duration_seconds: i64,
    /// `metadata.resourceVersion`, on which it is renewed or taken over.
    pub resource_version: Version,
    /// How often the holder changed.
    pub transitions: i64,
    /// When another drain, or a person by `evac status`, last asked whether the holder is still at work, by the clock of the asker.
    pub asked: Option<Timestamp>,
    /// The last question that was answered. Only holders that watch their lease have this, and have it from the beginning.
    pub answered: Option<Timestamp>,
    /// What the holder noted about the node before it wrote on it, where only those with the right to write leases can change it.
    pub record: Option<Box<Record>>,
}

object!(Lease, Key, key, resource_version);

impl Lease {
    /// The question that a holder who answers has not answered yet.
    pub fn open_question(&self) -> Option<Timestamp> {
        self.asked.filter(|asked| self.answered.is_some_and(|answered| answered != *asked))
    }

    /// When it lapses by the times written in it.
    pub fn ends(&self) -> Option<Timestamp> {
        self.renewed?.checked_add(SignedDuration::from_secs(self.duration_seconds)).ok()
    }

    /// Until when others than the holder have to respect it, as far as that can be told from outside: its holder's clock may be late, and a
    /// lease must not be shorter for that. One whose holder's clock is ahead lasts longer.
    pub fn protects_until(&self) -> Option<Timestamp> {
        self.ends()?.checked_add(CLOCK_SKEW).ok()
    }

    /// Whether others than its holder have to respect it.
    pub fn protects(&self, now: Timestamp) -> bool {
        let held = !self.holder.is_empty() && self.renewed.is_some();
        // A moment that cannot be computed is too far in the future.
        held && self.protects_until().is_none_or(|until| now < until)
    }
}

/// By how much the clocks of two machines of a cluster may differ. Further apart than that, its tokens and certificates do not work either.
pub const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);
