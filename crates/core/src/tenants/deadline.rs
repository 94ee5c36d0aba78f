//! How long a tenant may take.
//!
//! The instance may say it, else the Secret of its cluster, else the operator; no tenant gets longer than the operator's limit. The
//! moment is written on the instance once and holds from then on, whatever becomes of drain, tenant or operator.
//!
//! Annotations can be edited by every user who may edit the instance. So the operator keeps for itself when it first saw the eviction, and what deadline
//! followed ([`First`]). The limit counts from there: a deadline on the instance may be moved within it, and one that is removed, spoilt or
//! moved beyond it is written again as it was.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Marks;

/// How long tenants may take, as the operator was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// What a tenant gets that asked for nothing.
    pub usual: Duration,
    /// The most that any tenant gets, whatever it asks for.
    pub longest: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { usual: Duration::from_secs(600), longest: Duration::from_secs(24 * 3600) }
    }
}

fn after(now: Timestamp, span: Duration) -> Timestamp {
    SignedDuration::try_from(span).ok().and_then(|span| now.checked_add(span).ok()).unwrap_or(Timestamp::MAX)
}

/// When the eviction of an instance was first seen, and the deadline that was given then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct First {
    /// When the operator saw the mark of an eviction on the instance.
    pub seen: Timestamp,
    /// The deadline that was written on the instance then.
    pub deadline: Timestamp,
}

impl First {
    /// From one moment to the other, as ISO 8601 writes it.
    pub fn text(&self) -> String {
        format!("{}/{}", self.seen, self.deadline)
    }

    /// Reads what [`First::text`] has written.
    pub fn read(text: &str) -> Option<Self> {
        let (seen, deadline) = text.split_once('/')?;
        Some(Self { seen: seen.parse().ok()?, deadline: deadline.parse().ok()? })
    }

    /// Of two that claim to be the first.
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        if other.seen < self.seen { other } else { self }
    }

    /// The deadline as it was given; never beyond the limit, which may have been lowered since.
    pub fn original(&self, limits: &Limits) -> Timestamp {
        self.deadline.min(after(self.seen, limits.longest))
    }
}

/// The deadline that is written down; `None` if there is none, if it cannot be read, or if it lies beyond what is allowed to an eviction
/// that was first seen at `seen`.
pub fn written(marks: &Marks, limits: &Limits, seen: Timestamp) -> Option<Timestamp> {
    let latest = after(seen, limits.longest);
    let read = |text: &Option<String>| {
        text.as_ref().and_then(|text| text.parse::<Timestamp>().ok()).filter(|at| *at <= latest)
    };
    read(&marks.deadline).or_else(|| read(&marks.capk_deadline))
}

/// A span as people write it: `90s`, `10m`, `1h30m`.
pub fn span(text: &str) -> Option<Duration> {
    text.trim().parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok())
}

/// A new deadline, counted from now. A timeout that cannot be read is none.
pub fn fresh(marks: &Marks, cluster: Option<&str>, limits: &Limits, now: Timestamp) -> Timestamp {
    let own = marks.timeout.as_deref().and_then(span);
    let span = own.or_else(|| cluster.and_then(span)).unwrap_or(limits.usual);
    after(now, span.min(limits.longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn timeout(text: &str) -> Marks {
        Marks { timeout: Some(text.into()), ..Marks::default() }
    }

    #[test]
    fn the_instance_wins_over_its_cluster_and_the_cluster_over_the_operator() {
        let limits = Limits::default();
        let none = Marks::default();
        assert_eq!(fresh(&none, None, &limits, at(0)), at(600));
        assert_eq!(fresh(&none, Some("20m"), &limits, at(0)), at(1200));
        assert_eq!(fresh(&timeout("1h30m"), Some("20m"), &limits, at(0)), at(5400));
        assert_eq!(fresh(&timeout("0s"), None, &limits, at(7)), at(7), "a tenant may be given no time");
    }

    #[test]
    fn what_cannot_be_read_is_skipped_and_what_is_too_long_is_cut() {
        let limits = Limits::default();
        for text in ["", "soon", "-5m", "10", "P1Y"] {
            assert_eq!(fresh(&timeout(text), Some("20m"), &limits, at(0)), at(1200), "{text:?}");
        }
        assert_eq!(fresh(&timeout("9999h"), None, &limits, at(0)), at(24 * 3600));
    }

    #[test]
    fn the_limit_counts_from_the_first_sight_and_the_first_deadline_is_kept() {
        let limits = Limits { longest: Duration::from_secs(1000), ..Limits::default() };
        let first = First { seen: at(100), deadline: at(700) };
        assert_eq!(First::read(&first.text()), Some(first));
        for text in ["", "/", "1970-01-01T00:00:00Z", "now/then", "1970-01-01T00:00:00Z/"] {
            assert_eq!(First::read(text), None, "{text:?}");
        }
        assert_eq!(first.original(&limits), at(700));
        let lowered = Limits { longest: Duration::from_secs(300), ..limits };
        assert_eq!(first.original(&lowered), at(400), "a lower limit holds for what has begun as well");
        let later = First { seen: at(900), deadline: at(1900) };
        assert_eq!((later.earlier(first), first.earlier(later)), (first, first));
        let marks = |deadline: i64| Marks { deadline: Some(at(deadline).to_string()), ..Marks::default() };
        assert_eq!(
            written(&marks(1100), &limits, first.seen),
            Some(at(1100)),
            "it may be moved within the limit"
        );
        assert_eq!(written(&marks(1101), &limits, first.seen), None, "however late it is written");
    }

    #[test]
    fn ours_is_read_before_the_providers_and_neither_beyond_the_limit() {
        let limits = Limits { longest: Duration::from_secs(1000), ..Limits::default() };
        let marks = |ours: &str, theirs: &str| Marks {
            deadline: (!ours.is_empty()).then(|| ours.to_owned()),
            capk_deadline: (!theirs.is_empty()).then(|| theirs.to_owned()),
            ..Marks::default()
        };
        let (early, late) = (at(100).to_string(), at(900).to_string());
        assert_eq!(written(&marks(&late, &early), &limits, at(0)), Some(at(900)));
        assert_eq!(written(&marks("", &early), &limits, at(0)), Some(at(100)));
        assert_eq!(written(&marks("garbage", &early), &limits, at(0)), Some(at(100)));
        assert_eq!(written(&marks("garbage", ""), &limits, at(0)), None);
        assert_eq!(written(&marks(&at(1001).to_string(), ""), &limits, at(0)), None);
        assert_eq!(written(&marks(&early, ""), &limits, at(500)), Some(at(100)), "past is past");
    }
}
