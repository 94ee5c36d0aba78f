//! How long a node has been silent: by what was seen to change, and by our own clock.
//!
//! The times in a lease, a condition or an annotation come from the clocks of other machines. A node whose clock is ten minutes slow renews its
//! lease every ten seconds and each time says that this was ten minutes ago. So these values are compared and never read as times: a
//! value that differs from the one before is a sign of life at the moment when the difference was seen, and silence is the time that has passed on our
//! clock since the last such moment, or since we began to look.
//!
//! ```text
//!   began to look        a value changed            now
//!   ─────┼──────────────────────┼────────────────────┼──▶  our clock
//!                               └───── silence ──────┘
//! ```
//!
//! Where a policy counts minutes ([`Silence::unready_since`], [`Silence::silent_since`]), a stated time that is later than all of this makes it
//! longer, never shorter. The two lease intervals before a release ([`Silence::quiet_at`]) go by what was seen alone: a node that lives
//! shows it within them whatever its clock says.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::suspect::{KUBELET_SILENCE, Sign, Suspect};
use crate::cluster::fact::{Health, Uid};

/// Kubelets renew their leases four times in the time for which a lease is valid. Two of these intervals tell whether one lives; never less
/// than this.
pub const SHORTEST_WINDOW: SignedDuration = SignedDuration::from_secs(20);
/// A lease that claims to be valid for days must not put a failover off for days.
const LONGEST_WINDOW: SignedDuration = SignedDuration::from_secs(300);

/// What a node last showed of itself, as values that are compared and never understood.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Signs {
    /// Who renewed the kubelet's lease, in which version, with which time.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
    /// The time of the kubelet's last report.
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<String>,
    /// What the kubelet says of its node, and since when. Nothing while the node controller speaks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    word: Option<String>,
    /// The time that the agent of virtual machines last wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat: Option<String>,
    /// The start of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
}

impl Signs {
    /// What the node and its lease show now.
    pub fn of(suspect: &Suspect) -> Self {
        let node = &suspect.node;
        let word = match node.health {
            Health::Ready | Health::NotReady => Some(format!("{:?} {:?}", node.health, node.health_since)),
            // This is what the node controller says about a silent node, and so no word of the node's.
            Health::Unknown | Health::Silent => None,
        };
        Self {
            lease: suspect.lease.as_ref().map(|lease| {
                let renewed = lease.renewed.map_or(String::new(), |at| at.to_string());
                format!("{} {} {renewed}", lease.holder, lease.version)
            }),
            report: suspect.reported.map(|at| at.to_string()),
            word,
            heartbeat: suspect.heartbeat.map(|at| at.to_string()),
            boot: suspect.boot.clone(),
        }
    }

    /// The sign of life that is in these and was not in `before`. What is missing now is no sign: objects are deleted by others.
    pub fn news(&self, before: &Self) -> Option<Sign> {
        let differs = |now: &Option<String>, then: &Option<String>| now.is_some() && now != then;
        [
            (Sign::Boot, differs(&self.boot, &before.boot)),
            (Sign::Lease, differs(&self.lease, &before.lease)),
            (Sign::Report, differs(&self.report, &before.report) || differs(&self.word, &before.word)),
            (Sign::Heartbeat, differs(&self.heartbeat, &before.heartbeat)),
        ]
        .into_iter()
        .find_map(|(sign, is_new)| is_new.then_some(sign))
    }

    /// Whether both are about the same start of the machine, as far as that is known.
    pub fn same_boot(&self, other: &Self) -> bool {
        self.boot.is_none() || other.boot.is_none() || self.boot == other.boot
    }

    fn only_lease(&self) -> Self {
        Self { lease: self.lease.clone(), ..Self::default() }
    }

    fn without_lease(&self) -> Self {
        Self { lease: None, ..self.clone() }
    }

    fn take(&mut self, newer: Self) {
        for (known, newer) in [
            (&mut self.lease, newer.lease),
            (&mut self.report, newer.report),
            (&mut self.word, newer.word),
            (&mut self.heartbeat, newer.heartbeat),
            (&mut self.boot, newer.boot),
        ] {
            if newer.is_some() {
                *known = newer;
            }
        }
    }
}

/// What one process has seen of one node, by its own clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Silence {
    uid: Option<Uid>,
    signs: Signs,
    /// When a sign in the node object was last seen to change, or was first looked at.
    node: Option<Timestamp>,
    /// The same for the lease. Nothing while it is not watched: that it did not change was not seen.
    lease: Option<Timestamp>,
    /// The last change that was seen.
    heard: Option<(Sign, Timestamp)>,
    /// When the lease was last seen to change.
    renewed: Option<Timestamp>,
    /// What the Ready condition says, and since when we have seen it say so.
    health: Option<(Health, Option<Timestamp>, Timestamp)>,
    /// How far the calendar is ahead of our clock, because the system's clock was stepped. What other machines state is by the calendar.
    pub ahead: SignedDuration,
}

impl Silence {
    /// Takes in a node and its lease that were just read.
    pub fn see(&mut self, suspect: &Suspect, now: Timestamp) {
        self.see_node(suspect, now);
        self.see_lease(suspect, now);
    }

    /// Takes in the node object; the lease may be older.
    pub fn see_node(&mut self, suspect: &Suspect, now: Timestamp) {
        if self.uid.as_ref() != Some(&suspect.node.uid) {
            // Another node of the same name: all that was seen was about the one before.
            let ahead = self.ahead;
            *self = Self { uid: Some(suspect.node.uid.clone()), ahead, ..Self::default() };
        }
        let signs = Signs::of(suspect).without_lease();
        let news = signs.news(&self.signs);
        if self.node.is_none() {
            self.node = Some(now);
        } else if let Some(sign) = news {
            self.node = Some(now);
            self.heard = Some((sign, now));
        }
        self.signs.take(signs);
        let says = (suspect.node.health, suspect.node.health_since);
        if self.health.is_none_or(|(health, since, _)| (health, since) != says) {
            self.health = Some((says.0, says.1, now));
        }
    }

    /// Takes in the lease; a node without one is looked at all the same.
    pub fn see_lease(&mut self, suspect: &Suspect, now: Timestamp) {
        let signs = Signs::of(suspect).only_lease();
        if self.lease.is_none() {
            self.lease = Some(now);
            // What was known from an earlier watch and differs now was renewed since.
            if self.signs.lease.is_some() && signs.news(&self.signs).is_some() {
                self.heard = Some((Sign::Lease, now));
            }
        } else if let Some(sign) = signs.news(&self.signs) {
            self.lease = Some(now);
            self.renewed = Some(now);
            self.heard = Some((sign, now));
        }
        self.signs.take(signs);
    }

    /// The lease is not watched any more.
    pub fn lose_lease(&mut self) {
        self.lease = None;
        self.renewed = None;
    }

    /// Since when nothing has been seen to change. Nothing if not everything has been looked at.
    pub fn since(&self) -> Option<Timestamp> {
        Some(self.node?.max(self.lease?))
    }

    /// The last change that was seen, and when.
    pub fn heard(&self) -> Option<(Sign, Timestamp)> {
        self.heard
    }

    /// Since when the node has been seen to be in its state without a change; a later time that is stated is believed.
    pub fn unready_since(&self, suspect: &Suspect, now: Timestamp) -> Timestamp {
        let seen = self.health.map_or(now, |(_, _, at)| at);
        self.later(seen, suspect.node.health_since)
    }

    /// Since when there has been no sign of any kind; a later time that is stated is believed. Nothing if not everything has
    /// been looked at.
    pub fn silent_since(&self, suspect: &Suspect) -> Option<Timestamp> {
        let seen = self.since()?.max(self.health.map(|(_, _, at)| at)?);
        let stated = suspect.signs().map(|(_, at)| at).chain(suspect.node.health_since).max();
        Some(self.later(seen, stated))
    }

    /// A stated time counts if it is later by the calendar and by our clock: that our own system's clock was stepped, in whichever direction,
    /// must not put a failover off.
    fn later(&self, seen: Timestamp, stated: Option<Timestamp>) -> Timestamp {
        let ahead = self.ahead.max(SignedDuration::ZERO);
        let stated = stated.and_then(|stated| stated.checked_sub(ahead).ok());
        stated.map_or(seen, |stated| stated.max(seen))
    }

    /// When two lease intervals will have passed without a sign, if none comes.
    pub fn quiet_at(&self, suspect: &Suspect, now: Timestamp) -> Timestamp {
        let since = self.since().unwrap_or(now);
        since.checked_add(window(suspect)).unwrap_or(Timestamp::MAX)
    }

    /// How long ago the kubelet renewed its lease, if it answers, whatever it says about its node. Where we have not looked for long enough to
    /// know, the time that the lease states is believed.
    pub fn answered(&self, suspect: &Suspect, now: Timestamp) -> Option<SignedDuration> {
        let recent = |at: Timestamp| {
            let ago = now.duration_since(at);
            (ago < KUBELET_SILENCE).then_some(ago.max(SignedDuration::ZERO))
        };
        if let Some(ago) = self.renewed.and_then(recent) {
            return Some(ago);
        }
        let looked_long_enough = self.lease.is_some_and(|began| now.duration_since(began) >= window(suspect));
        if looked_long_enough { None } else { suspect.renewed().and_then(recent) }
    }
}

/// Two intervals in which a kubelet renews its lease.
pub fn window(suspect: &Suspect) -> SignedDuration {
    let seconds = suspect.lease.as_ref().map_or(0, |lease| lease.seconds);
    SignedDuration::from_secs(seconds / 2).clamp(SHORTEST_WINDOW, LONGEST_WINDOW)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::failover::suspect::KubeletLease;
    use crate::failover::suspect::testing::{ready, silent};
    use crate::testing::at;

    type Change = fn(&mut Suspect);

    /// Renews its lease every ten seconds by a clock that is this many seconds off, from `from` to `to`.
    fn renewing(silence: &mut Silence, suspect: &mut Suspect, off: i64, from: i64, to: i64) {
        for second in (from..=to).step_by(10) {
            suspect.lease = Some(KubeletLease {
                renewed: Some(at(second + off)),
                holder: "n".into(),
                version: second.to_string(),
                seconds: 40,
            });
            silence.see(suspect, at(second));
        }
    }

    #[rstest]
    #[case::right(0)]
    #[case::ten_minutes_slow(-600)]
    #[case::an_hour_fast(3600)]
    fn a_node_that_renews_its_lease_answers_whatever_its_clock_says(#[case] off: i64) {
        let (mut silence, mut suspect) = (Silence::default(), silent("n"));
        renewing(&mut silence, &mut suspect, off, 1000, 1600);
        assert_eq!(silence.since(), Some(at(1600)));
        assert_eq!(silence.answered(&suspect, at(1605)), Some(SignedDuration::from_secs(5)));
        assert!(silence.silent_since(&suspect).unwrap() >= at(1600));
        assert!(silence.quiet_at(&suspect, at(1605)) >= at(1620));
    }

    #[test]
    fn a_clock_that_steps_back_and_forth_is_a_sign_of_life_each_time() {
        let (mut silence, mut suspect) = (Silence::default(), silent("n"));
        for (second, stated) in [(1000, 1000), (1010, -2600), (1020, 4600), (1030, 1000)] {
            suspect.lease.as_mut().unwrap().renewed = Some(at(stated));
            silence.see(&suspect, at(second));
            assert_eq!(silence.since(), Some(at(second)));
        }
    }

    #[test]
    fn what_happened_before_we_looked_does_not_count() {
        // Its last sign is dated second 0, and we begin at second 5000.
        let (mut silence, suspect) = (Silence::default(), silent("n"));
        assert_eq!(silence.since(), None);
        silence.see_node(&suspect, at(5000));
        assert_eq!(silence.since(), None, "nobody has looked at its lease");
        silence.see_lease(&suspect, at(5010));
        assert_eq!(silence.since(), Some(at(5010)));
        assert_eq!(silence.quiet_at(&suspect, at(5010)), at(5030));
        assert_eq!(silence.unready_since(&suspect, at(5010)), at(5000));
        silence.see(&suspect, at(5600));
        assert_eq!(silence.since(), Some(at(5010)), "nothing has changed");
    }

    #[test]
    fn a_lease_that_was_not_watched_for_a_while_is_looked_at_anew() {
        let (mut silence, mut suspect) = (Silence::default(), silent("n"));
        silence.see(&suspect, at(100));
        silence.lose_lease();
        assert_eq!(silence.since(), None);
        suspect.lease.as_mut().unwrap().version = "2".into();
        silence.see_lease(&suspect, at(900));
        assert_eq!(silence.since(), Some(at(900)));
        assert_eq!(silence.heard(), Some((Sign::Lease, at(900))));
    }

    #[test]
    fn a_fast_clock_only_makes_a_policy_wait_longer() {
        let (mut silence, mut suspect) = (Silence::default(), silent("n"));
        suspect.heartbeat = Some(at(3600));
        suspect.node.health_since = Some(at(3700));
        silence.see(&suspect, at(100));
        assert_eq!(silence.silent_since(&suspect), Some(at(3700)));
        assert_eq!(silence.unready_since(&suspect, at(100)), at(3700));
        assert_eq!(silence.quiet_at(&suspect, at(100)), at(120), "what is seen tells within two intervals");
        // Dead, with a lease from the future: believed until we have looked for long enough.
        suspect.lease.as_mut().unwrap().renewed = Some(at(3600));
        let mut silence = Silence::default();
        silence.see(&suspect, at(100));
        assert!(silence.answered(&suspect, at(119)).is_some());
        assert!(silence.answered(&suspect, at(120)).is_none());
    }

    #[test]
    fn a_step_of_our_own_systems_clock_puts_nothing_off() {
        for ahead in [3600, -3600, 0] {
            let (mut silence, mut suspect) = (Silence::default(), silent("n"));
            silence.ahead = SignedDuration::from_secs(ahead);
            // Right by the calendar, which may be an hour ahead of our clock.
            suspect.node.health_since = Some(at(100 + ahead.max(0)));
            suspect.heartbeat = suspect.node.health_since;
            silence.see(&suspect, at(100));
            assert_eq!(silence.unready_since(&suspect, at(100)), at(100), "{ahead}");
            assert_eq!(silence.silent_since(&suspect), Some(at(100)), "{ahead}");
        }
    }

    #[test]
    fn the_word_of_the_node_controller_is_no_sign_of_life_and_every_word_of_the_node_is() {
        let mut before = silent("n");
        before.node.health = Health::NotReady;
        let mut after = before.clone();
        (after.node.health, after.node.health_since) = (Health::Unknown, Some(at(900)));
        assert_eq!(Signs::of(&after).news(&Signs::of(&before)), None);
        assert_eq!(Signs::of(&before).news(&Signs::of(&after)), Some(Sign::Report));
        assert_eq!(Signs::of(&ready("n", at(5))).news(&Signs::of(&after)), Some(Sign::Lease));
        let kinds: [(Change, Sign); 4] = [
            (|it| it.boot = Some("boot-2".into()), Sign::Boot),
            (|it| it.lease.as_mut().unwrap().version = "9".into(), Sign::Lease),
            (|it| it.reported = Some(at(1)), Sign::Report),
            (|it| it.heartbeat = Some(at(1)), Sign::Heartbeat),
        ];
        for (change, sign) in kinds {
            let mut seen = before.clone();
            change(&mut seen);
            assert_eq!(Signs::of(&seen).news(&Signs::of(&before)), Some(sign));
        }
        let mut less = before.clone();
        (less.lease, less.heartbeat) = (None, None);
        assert_eq!(Signs::of(&less).news(&Signs::of(&before)), None, "others delete, too");
    }

    #[test]
    fn another_node_of_the_same_name_is_looked_at_anew() {
        let (mut silence, mut suspect) = (Silence::default(), silent("n"));
        silence.see(&suspect, at(100));
        suspect.node.uid = Uid("another".into());
        silence.see(&suspect, at(500));
        assert_eq!(silence.since(), Some(at(500)));
    }

    #[rstest]
    #[case(40, 20)]
    #[case(0, 20)]
    #[case(120, 60)]
    #[case(1_000_000_000, 300)]
    fn two_intervals_are_half_of_what_the_lease_is_valid_for(#[case] valid: i64, #[case] seconds: i64) {
        let mut suspect = silent("n");
        suspect.lease.as_mut().unwrap().seconds = valid;
        assert_eq!(window(&suspect).as_secs(), seconds);
    }
}
