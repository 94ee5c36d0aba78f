//! Who of several operators acts: the one that holds a lease.
//!
//! ```text
//!             it has no holder, or its holder was silent for too long
//!   following ─────────────────────────────────────────────────────▶ leading ──┐ renewed
//!       ▲                                                              │  ▲────┘
//!       └── another one holds it · it could not be renewed in time ────┘
//! ```
//!
//! A lease is judged by how long it has looked the same *here*, never by the time written in it, so clocks that differ do no
//! harm. A leader stops acting [`MARGIN`] before the others may take over, counted from when it sent its last renewal.

use std::time::Duration;

use jiff::Timestamp;

use crate::cluster::fact::{Key, Lease};
use crate::cluster::version::is_older;

/// The lease of operators, in the namespace they keep their objects in.
pub const NAME: &str = "evac-operator";
/// A lease that looks the same for this long has lost its holder.
pub const DURATION: Duration = Duration::from_secs(15);
/// What is under way when a leader stops has this long to arrive.
pub const MARGIN: Duration = Duration::from_secs(5);
const RENEW_EVERY: Duration = Duration::from_secs(4);
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The lease of operators that keep their own objects in this namespace.
pub fn key(home: &str) -> Key {
    Key::new(home, NAME)
}

/// The lease as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedLease {
    /// It, with the version on which a candidate would write.
    pub lease: Lease,
    /// Since when it has looked like this.
    pub since: Timestamp,
}

impl ObservedLease {
    /// Takes in an event or an answer. News that is older than what is known changes nothing.
    pub fn update(observed: &mut Option<Self>, lease: Option<Lease>, now: Timestamp) {
        let older =
            |known: &Self, lease: &Lease| is_older(&lease.resource_version, &known.lease.resource_version);
        match (&*observed, &lease) {
            (Some(known), Some(lease)) if older(known, lease) => {}
            _ => Self::replace(observed, lease, now),
        }
    }

    /// Takes in a list, which is the truth even if its versions are lower: after etcd was restored from a backup they are, and a candidate that
    /// waited for higher ones would write on a version that never comes, for ever.
    pub fn replace(observed: &mut Option<Self>, lease: Option<Lease>, now: Timestamp) {
        let same = |known: &Self, lease: &Lease| lease.resource_version == known.lease.resource_version;
        match (&*observed, &lease) {
            (Some(known), Some(lease)) if same(known, lease) => {}
            _ => *observed = lease.map(|lease| Self { lease, since: now }),
        }
    }
}

/// What a candidate does about the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseAction {
    /// There is none.
    Create,
    /// It is free, lapsed, or ours and due: write our name on the version that was seen.
    Take,
    /// Another candidate holds it, ours is not due yet, or the last attempt to write has just failed.
    Wait {
        /// When it is decided again, if nothing is seen before.
        until: Timestamp,
    },
}

/// `tried` is when the last attempt to write failed.
pub fn decide(
    me: &str,
    observed: Option<&ObservedLease>,
    tried: Option<Timestamp>,
    now: Timestamp,
) -> LeaseAction {
    let due = match observed {
        None => now,
        Some(observed) if observed.lease.holder.is_empty() => now,
        Some(observed) if observed.lease.holder == me => after(observed.since, RENEW_EVERY),
        // Its holder wrote how long to wait; a lease that says nothing gets the usual time.
        Some(observed) => match u64::try_from(observed.lease.duration_seconds) {
            Ok(seconds) if seconds > 0 => after(observed.since, Duration::from_secs(seconds)),
            _ => after(observed.since, DURATION),
        },
    };
    let due = tried.map_or(due, |tried| due.max(after(tried, RETRY_AFTER)));
    if due > now {
        return LeaseAction::Wait { until: due };
    }
    if observed.is_some() { LeaseAction::Take } else { LeaseAction::Create }
}

/// Until when a leader may write whose last renewal was sent at `sent`.
pub fn writes_until(sent: Timestamp) -> Timestamp {
    after(sent, DURATION.saturating_sub(MARGIN))
}

fn after(at: Timestamp, wait: Duration) -> Timestamp {
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    fn observed(holder: &str, since: i64) -> ObservedLease {
        let lease = Lease {
            record: None,
            key: key("evac"),
            uid: crate::cluster::fact::Uid("lease".into()),
            holder: holder.into(),
            // A clock that is years off.
            renewed: Some(at(100_000_000)),
            duration_seconds: 15,
            resource_version: "7".into(),
            transitions: 0,
            asked: None,
            answered: None,
        };
        ObservedLease { lease, since: at(since) }
    }

    #[test]
    fn a_lease_that_is_missing_or_given_back_is_taken_at_once() {
        assert_eq!(decide("me", None, None, at(0)), LeaseAction::Create);
        assert_eq!(decide("me", Some(&observed("", 0)), None, at(0)), LeaseAction::Take);
    }

    #[test]
    fn another_holder_is_waited_for_as_long_as_its_lease_says_whatever_its_clock_says() {
        let theirs = observed("them", 10);
        assert_eq!(decide("me", Some(&theirs), None, at(24)), LeaseAction::Wait { until: at(25) });
        assert_eq!(decide("me", Some(&theirs), None, at(25)), LeaseAction::Take);
    }

    #[test]
    fn a_holder_renews_several_times_before_it_would_have_to_stop() {
        let mine = observed("me", 0);
        let LeaseAction::Wait { until } = decide("me", Some(&mine), None, at(0)) else {
            panic!("not due yet")
        };
        assert_eq!(decide("me", Some(&mine), None, until), LeaseAction::Take);
        let tries = writes_until(at(0)).duration_since(until).as_secs() / RETRY_AFTER.as_secs() as i64;
        assert!(tries >= 5, "{tries} tries");
    }

    #[test]
    fn a_leader_stops_before_anybody_may_follow_it() {
        // The others see the renewal when it was written, which is not before it was sent.
        let theirs = observed("me", 0);
        let stops = writes_until(at(0));
        assert!(matches!(decide("other", Some(&theirs), None, stops), LeaseAction::Wait { .. }));
        assert_eq!(decide("other", Some(&theirs), None, after(stops, MARGIN)), LeaseAction::Take);
    }

    #[test]
    fn after_a_failed_attempt_it_rests_a_moment() {
        assert_eq!(decide("me", None, Some(at(0)), at(0)), LeaseAction::Wait { until: at(1) });
    }

    #[test]
    fn old_news_and_repeated_news_do_not_count_as_signs_of_life() {
        let mut known = Some(observed("them", 0));
        ObservedLease::update(&mut known, Some(observed("them", 0).lease), at(9));
        assert_eq!(known.as_ref().unwrap().since, at(0));
        let mut older = observed("before", 0).lease;
        older.resource_version = "6".into();
        ObservedLease::update(&mut known, Some(older), at(9));
        assert_eq!(known.as_ref().unwrap().lease.holder, "them");
        ObservedLease::update(&mut known, None, at(9));
        assert_eq!(known, None);
    }

    #[test]
    fn a_list_is_the_truth_even_if_its_version_is_lower() {
        let mut known = Some(observed("them", 0));
        let mut restored = observed("before", 0).lease;
        restored.resource_version = "6".into();
        ObservedLease::replace(&mut known, Some(restored.clone()), at(9));
        assert_eq!(known, Some(ObservedLease { lease: restored.clone(), since: at(9) }));
        ObservedLease::replace(&mut known, Some(restored), at(12));
        assert_eq!(known.unwrap().since, at(9), "the same again is no sign of life");
    }
}
