//! What the lease of a drain says about it, and the question that finds out.
//!
//! A drain that watches its lease need not renew it now and then: it is asked when another drain or `evac status` wants to know. The question is
//! a time written on the lease, the answer is the same time written beside it together with a renewal.
//!
//! ```text
//!             ┌───────────── question ─────────────┐
//!             ▼                                    │
//!   unheard, waits for an answer ── answer ──▶ alive ── a moment later ──▶ unheard
//!             │
//!             └── none in time ──▶ dead ── answer after all ──▶ alive
//! ```
//!
//! A drain that may not watch leases says so by leaving the answer away, and renews often instead. Both kinds are dead when their
//! lease has lapsed.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::cluster::fact::{Key, Lease};
use crate::cluster::index::Index;

/// Every cluster has this namespace, and the leases in it are about nodes.
pub const NAMESPACE: &str = "kube-node-lease";
/// How long a living drain may take to answer. It answers in milliseconds, unless its way to the server is cut off for a while.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long an answer is good for: longer than one may have to wait for those of others. After that the question is put again.
const ANSWER_LASTS: Duration = Duration::from_secs(20);

/// Where the lease of a node's drain lives.
pub fn key(node: &str) -> Key {
    Key::new(NAMESPACE, format!("evac-drain-{node}"))
}

/// Who holds a claim: a person, and which of that person's runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// As the mark on the node names it.
    pub owner: String,
    /// Which run of this owner; empty where the lease does not say.
    pub instance: String,
}

impl Holder {
    /// Reads `holderIdentity` of a lease, `owner/instance`: the last slash divides, and a text without one is the owner.
    pub fn parse(text: &str) -> Self {
        let (owner, instance) = text.rsplit_once('/').unwrap_or((text, ""));
        Self { owner: owner.to_owned(), instance: instance.to_owned() }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.instance)
    }
}

/// What the lease says about the drain that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    /// No lease: nothing runs, or it may not write leases.
    Unclaimed,
    /// It renews often and the lease has not lapsed, or it has answered a question of the last seconds.
    Alive {
        /// The run that holds the lease.
        holder: Holder,
        /// `renewTime`, by the clock of the holder.
        seen: Timestamp,
    },
    /// It would answer, and was not asked lately or has not answered yet. Until then it counts as living.
    Unheard {
        /// The run that holds the lease.
        holder: Holder,
        /// `renewTime`, by the clock of the holder.
        seen: Timestamp,
    },
    /// The lease has lapsed, or a question was not answered within [`ANSWER_WITHIN`].
    Dead {
        /// The run that held the lease.
        holder: Holder,
        /// Its last `renewTime`, by its own clock.
        seen: Timestamp,
    },
}

impl Life {
    /// The run behind the lease unless it is known to be dead, and its last sign of life.
    pub fn perhaps_alive(&self) -> Option<(&Holder, Timestamp)> {
        match self {
            Self::Alive { holder, seen } | Self::Unheard { holder, seen } => Some((holder, *seen)),
            Self::Unclaimed | Self::Dead { .. } => None,
        }
    }
}

/// One word for how it stands with a node: whether it carries the mark of a drain, is cordoned, and has nothing left that is to leave.
///
/// That a node is empty does not make its drain a finished one: a drain that was killed has proven nothing, and the person who finds the node
/// has to know that no drain looks after it.
pub fn standing(is_marked: bool, is_cordoned: bool, is_empty: bool, life: &Life) -> &'static str {
    match (is_marked, is_cordoned, life) {
        (true, true, Life::Dead { .. }) => "abandoned",
        (true, true, _) if is_empty => "drained",
        (true, true, Life::Unclaimed) => "stopped",
        (true, true, _) => "draining",
        (true, false, _) => "uncordoned meanwhile",
        (false, true, _) => "cordoned",
        (false, false, _) => "in use",
    }
}

/// What the lease in the index says about the drain of a node.
pub fn life(index: &Index, node: &str, now: Timestamp) -> Life {
    index.lease(&key(node)).map_or(Life::Unclaimed, |lease| life_of(lease, now))
}

/// What one lease says. `now` is by the calendar, as the times in leases are.
pub fn life_of(lease: &Lease, now: Timestamp) -> Life {
    let (false, Some(seen)) = (lease.holder.is_empty(), lease.renewed) else { return Life::Unclaimed };
    let holder = Holder::parse(&lease.holder);
    // A sign from the future comes from a clock that is ahead; its writer lives.
    let has_passed = |since: Timestamp, time: SignedDuration| now.duration_since(since) >= time;
    if has_passed(seen, SignedDuration::from_secs(lease.duration_seconds)) {
        return Life::Dead { holder, seen };
    }
    if lease.answered.is_none() {
        return Life::Alive { holder, seen };
    }
    match (lease.open_question(), lease.asked) {
        (Some(asked), _) if has_passed(asked, signed(ANSWER_WITHIN)) => Life::Dead { holder, seen },
        (None, Some(asked)) if !has_passed(asked, signed(ANSWER_LASTS)) => Life::Alive { holder, seen },
        _ => Life::Unheard { holder, seen },
    }
}

fn signed(time: Duration) -> SignedDuration {
    SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::Fact;
    use crate::drain::claim::tests::lease;
    use crate::testing::at;

    #[test]
    fn a_killed_drain_is_abandoned_also_where_its_node_is_empty() {
        let holder = Holder::parse("ann@box/box:7");
        let dead = Life::Dead { holder: holder.clone(), seen: at(0) };
        let alive = Life::Alive { holder, seen: at(0) };
        for is_empty in [true, false] {
            assert_eq!(standing(true, true, is_empty, &dead), "abandoned");
        }
        assert_eq!(standing(true, true, true, &Life::Unclaimed), "drained");
        assert_eq!(standing(true, true, false, &Life::Unclaimed), "stopped");
        assert_eq!(standing(true, true, false, &alive), "draining");
        assert_eq!(standing(true, true, true, &alive), "drained", "a maintenance keeps its node");
        assert_eq!(standing(true, false, true, &dead), "uncordoned meanwhile");
        assert_eq!(standing(false, true, true, &Life::Unclaimed), "cordoned");
        assert_eq!(standing(false, false, true, &Life::Unclaimed), "in use");
    }

    #[test]
    fn a_lease_tells_living_dead_and_absent_drains_apart() {
        let mut index = Index::new();
        assert_eq!(life(&index, "n", at(0)), Life::Unclaimed);
        index.apply(Fact::Lease(Box::new(lease("ann@box/box:7", 0))));
        assert!(matches!(life(&index, "n", at(89)), Life::Alive { holder, .. } if holder.owner == "ann@box"));
        assert!(matches!(life(&index, "n", at(90)), Life::Dead { holder, .. } if holder.instance == "box:7"));
        index.apply(Fact::Lease(Box::new(lease("", 0))));
        assert_eq!(life(&index, "n", at(0)), Life::Unclaimed, "a lease that was given back holds nobody");
    }

    #[test]
    fn a_sign_of_life_from_a_clock_that_is_ahead_is_one() {
        assert!(matches!(life_of(&lease("a/b", 500), at(0)), Life::Alive { .. }));
    }

    #[test]
    fn a_holder_keeps_slashes_in_the_name_of_the_owner() {
        let holder = Holder { owner: "team/ann".into(), instance: "box:7".into() };
        assert_eq!(Holder::parse(&holder.to_string()), holder);
    }

    #[test]
    fn who_watches_its_lease_lives_if_it_answers_and_is_dead_if_it_does_not() {
        let word = |asked: Option<i64>, answered: i64, now: i64| {
            let lease = Lease {
                duration_seconds: 3600,
                asked: asked.map(at),
                answered: Some(at(answered)),
                ..lease("ann/box:7", 0)
            };
            match life_of(&lease, at(now)) {
                Life::Unclaimed => "unclaimed",
                Life::Alive { .. } => "alive",
                Life::Unheard { .. } => "unheard",
                Life::Dead { .. } => "dead",
            }
        };
        assert_eq!(word(None, 0, 0), "unheard", "that it began is no sign that it still works");
        assert_eq!(word(None, 0, 3599), "unheard");
        assert_eq!(word(None, 0, 3600), "dead", "the lease has lapsed");
        assert_eq!(word(Some(100), 0, 100), "unheard");
        assert_eq!(word(Some(100), 0, 109), "unheard", "the answer may still come");
        assert_eq!(word(Some(100), 0, 110), "dead");
        assert_eq!(word(Some(100), 100, 101), "alive");
        assert_eq!(word(Some(100), 100, 119), "alive");
        assert_eq!(word(Some(100), 100, 120), "unheard", "that was then");
        assert_eq!(word(Some(100), 40, 101), "unheard", "the answer to an earlier question");
        assert_eq!(word(Some(500), 0, 100), "unheard", "asked by a clock that is ahead");
    }
}
