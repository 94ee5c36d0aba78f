//! When the certificates of the operator's HTTPS server are made, renewed and replaced.
//!
//! ```text
//!            old age              announced for a day            old authority expires
//!   current ─────────▶ + next ───────────────────────▶ next is current, + former ─────▶ current
//! ```
//!
//! API servers that call an operator trust a bundle that the operator publishes. A new authority is therefore first
//! *announced*: it stands in the bundle while the old one still signs, so every caller trusts it before anything is signed
//! by it. The former one stays in the bundle until it expires, for callers and replicas that are late.
//!
//! With every serving certificate the key changes from which the paths of reviews are made. It is known to all replicas long
//! before it is published, and the former one is honoured for a day after.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

const HOUR: u64 = 3600;
/// How long an authority is valid; the next is announced when a third of that is left.
pub const AUTHORITY_LIFE: Duration = Duration::from_secs(90 * 24 * HOUR);
/// How long a serving certificate is valid; the next is made when a third of that is left.
pub const SERVING_LIFE: Duration = Duration::from_secs(14 * 24 * HOUR);
/// How long a new authority is announced before it signs.
pub const ANNOUNCED_FOR: Duration = Duration::from_secs(24 * HOUR);
/// Certificates are valid from a little before they were made, for clocks that are behind.
pub const BACKDATED: Duration = Duration::from_secs(HOUR);

/// From when to when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// `notBefore`.
    pub from: Timestamp,
    /// `notAfter`.
    pub until: Timestamp,
}

impl Span {
    /// The span of a certificate made now; none outlives the one that signs it.
    pub fn starting(now: Timestamp, life: Duration, signed_by: Option<Self>) -> Self {
        let until = plus(now, life);
        Self {
            from: minus(now, BACKDATED),
            until: signed_by.map_or(until, |authority| until.min(authority.until)),
        }
    }

    /// The moment at which a third of its life is left.
    fn old_from(self) -> Timestamp {
        let life = self.until.duration_since(self.from);
        self.until.checked_sub(life / 3).unwrap_or(self.until)
    }

    fn made(self) -> Timestamp {
        plus(self.from, BACKDATED)
    }
}

/// The certificates that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The authority that signs.
    pub authority: Span,
    /// An authority that is announced and signs nothing yet.
    pub next: Option<Span>,
    /// The authority that signed before, which callers may still need.
    pub former: Option<Span>,
    /// What the server shows to callers.
    pub serving: Span,
    /// The serving certificate is signed by the current authority and bears every name it is called by, and there are keys for the
    /// paths of reviews.
    pub fits: bool,
}

/// What a replica does about the certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// All is well.
    Nothing {
        /// When that may change.
        look_again: Timestamp,
    },
    /// There is nothing that could be used: authority and serving certificate are made.
    Create,
    /// A new serving certificate of the same authority.
    Renew,
    /// A new authority that signs nothing yet.
    Announce,
    /// The announced authority becomes the current one and signs a serving certificate.
    Promote,
    /// The former authority has expired.
    Forget,
}

/// What is to be done now; one thing at a time, and then asked again.
pub fn decide(known: Option<&Known>, now: Timestamp) -> Work {
    let Some(known) = known else { return Work::Create };
    if let Some(next) = known.next {
        // Waiting for a day does not help when what is there has ended.
        if plus(next.made(), ANNOUNCED_FOR) <= now || known.authority.until <= now {
            return if next.until <= now { Work::Create } else { Work::Promote };
        }
    } else if known.authority.until <= now {
        return Work::Create;
    }
    if !known.fits || known.serving.old_from() <= now && !at_its_end(known) || known.serving.until <= now {
        return Work::Renew;
    }
    if known.next.is_none() && known.authority.old_from() <= now {
        return Work::Announce;
    }
    if known.former.is_some_and(|former| former.until <= now) {
        return Work::Forget;
    }
    let next = known.next.map_or(known.authority.old_from(), |next| plus(next.made(), ANNOUNCED_FOR));
    let serving = if at_its_end(known) { known.serving.until } else { known.serving.old_from() };
    let former = known.former.map_or(Timestamp::MAX, |former| former.until);
    Work::Nothing { look_again: next.min(serving).min(former) }
}

/// A serving certificate that ends with its authority would not live longer if it were made again.
fn at_its_end(known: &Known) -> bool {
    known.serving.until >= known.authority.until
}

/// Until when the former paths of reviews are honoured, given the serving certificate that was made with the current ones: API servers
/// learn of a new configuration late, and as late as of a new authority.
pub fn former_pass_until(serving: Span) -> Timestamp {
    plus(serving.made(), ANNOUNCED_FOR)
}

fn plus(at: Timestamp, wait: Duration) -> Timestamp {
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

fn minus(at: Timestamp, back: Duration) -> Timestamp {
    SignedDuration::try_from(back).ok().and_then(|back| at.checked_sub(back).ok()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::at;

    const DAY: i64 = 24 * 3600;

    /// What a keeper holds, and which authorities have been in the bundle since when.
    #[derive(Debug)]
    struct Keeper {
        known: Option<Known>,
        signer: Span,
        bundle: Vec<(Span, Timestamp)>,
        log: Vec<(i64, Work)>,
    }

    impl Keeper {
        fn new() -> Self {
            let never = Span { from: at(0), until: at(0) };
            Self { known: None, signer: never, bundle: Vec::new(), log: Vec::new() }
        }

        /// Works until there is nothing to do; the answer is when to look again.
        fn look(&mut self, now: Timestamp) -> Timestamp {
            for _ in 0..10 {
                let work = decide(self.known.as_ref(), now);
                self.log.push((now.as_second(), work));
                match (work, &mut self.known) {
                    (Work::Nothing { look_again }, _) => return look_again,
                    (Work::Create, known) => {
                        let authority = Span::starting(now, AUTHORITY_LIFE, None);
                        self.bundle = vec![(authority, now)];
                        self.signer = authority;
                        let serving = Span::starting(now, SERVING_LIFE, Some(authority));
                        *known = Some(Known { authority, next: None, former: None, serving, fits: true });
                    }
                    (Work::Renew, Some(known)) => {
                        known.serving = Span::starting(now, SERVING_LIFE, Some(known.authority));
                        known.fits = true;
                        self.signer = known.authority;
                    }
                    (Work::Announce, Some(known)) => {
                        let next = Span::starting(now, AUTHORITY_LIFE, None);
                        known.next = Some(next);
                        self.bundle.push((next, now));
                    }
                    (Work::Promote, Some(known)) => {
                        known.former = Some(known.authority);
                        known.authority = known.next.take().unwrap();
                        known.serving = Span::starting(now, SERVING_LIFE, Some(known.authority));
                        self.signer = known.authority;
                        let keep = [Some(known.authority), known.former];
                        self.bundle.retain(|(span, _)| keep.contains(&Some(*span)));
                    }
                    (Work::Forget, Some(known)) => {
                        let former = known.former.take();
                        self.bundle.retain(|(span, _)| Some(*span) != former);
                    }
                    (work, None) => panic!("{work:?} without certificates"),
                }
            }
            panic!("it does not come to rest: {:?}", self.log);
        }
    }

    #[test]
    fn in_a_year_of_keeping_watch_nothing_ever_expires_and_nothing_new_is_used_unannounced() {
        let mut keeper = Keeper::new();
        let mut now = at(0);
        while now < at(400 * DAY) {
            let next = keeper.look(now);
            assert!(next > now);
            let known = keeper.known.unwrap();
            assert!(known.serving.until > next, "the serving certificate ends before somebody looks");
            let trusted = keeper.bundle.iter().find(|(span, _)| *span == keeper.signer).unwrap();
            let announced = now.duration_since(trusted.1);
            let first = trusted.1 == at(0);
            assert!(first || announced >= SignedDuration::from_hours(24), "{announced:?}");
            now = next;
        }
        let promoted = keeper.log.iter().filter(|(_, work)| *work == Work::Promote).count();
        assert!((5..=8).contains(&promoted), "{promoted} authorities in 400 days");
        assert!(!keeper.log.iter().skip(1).any(|(_, work)| *work == Work::Create), "{:?}", keeper.log);
        assert!(keeper.log.iter().any(|(_, work)| *work == Work::Forget));
    }

    proptest! {
        /// Looked at only now and then, with long breaks: it heals, and comes to rest.
        #[test]
        fn after_any_break_there_is_a_valid_certificate(breaks in proptest::collection::vec(1..200 * DAY, 1..30)) {
            let mut keeper = Keeper::new();
            let mut now = at(0);
            for wait in breaks {
                keeper.look(now);
                let known = keeper.known.unwrap();
                prop_assert!(known.serving.until > now && known.authority.until > now);
                prop_assert!(keeper.bundle.iter().any(|(span, _)| *span == keeper.signer));
                now = plus(now, Duration::from_secs(wait as u64));
            }
        }
    }

    #[test]
    fn a_certificate_that_lacks_a_name_is_made_again_at_once() {
        let authority = Span::starting(at(0), AUTHORITY_LIFE, None);
        let serving = Span::starting(at(0), SERVING_LIFE, Some(authority));
        let known = Known { authority, next: None, former: None, serving, fits: false };
        assert_eq!(decide(Some(&known), at(1)), Work::Renew);
    }
}
