//! How a review shows that the API server sent it: by a path that cannot be guessed.
//!
//! ```text
//!   Secret evac-serving          webhook configuration                  review
//!   next, current, former  ──▶  /review/<tag of current>/<path>  ──▶  tag of any of the three: the API server
//! ```
//!
//! The tag of a path is the HMAC of that path under a random key, so who learns the address of one webhook (an API server that cannot
//! reach us names it in its error) does not know the others. A key is in the Secret as `next` long before it is published, so every
//! replica honours it by then; the former one is honoured for a while longer, for API servers that are late.
//! [`evac_core::certificates`] says when. Keys and tags are in no message, log or `Debug` output.

use std::fmt::{self, Write as _};

use evac_core::certificates::former_pass_until;
use jiff::Timestamp;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

const BYTES: usize = 32;

/// A key under which paths get their tags, as hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key(String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// Nothing if the system has no randomness to give.
    pub(super) fn random() -> Option<Self> {
        let mut bytes = [0; BYTES];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(hex(&bytes)))
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        unhex(text).filter(|bytes| bytes.len() == BYTES).map(|_| Self(text.to_owned()))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    fn hmac(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.0.as_bytes())
    }

    fn tag(&self, path: &str) -> String {
        hex(hmac::sign(&self.hmac(), path.as_bytes()).as_ref())
    }

    /// In a time that does not depend on how much of the tag is right.
    fn made(&self, tag: &[u8], path: &str) -> bool {
        hmac::verify(&self.hmac(), path.as_bytes(), tag).is_ok()
    }
}

/// The keys that are in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Keys {
    /// The one that is published next.
    pub next: Key,
    pub current: Key,
    pub former: Option<Key>,
}

impl Keys {
    pub(super) fn random() -> Option<Self> {
        Some(Self { next: Key::random()?, current: Key::random()?, former: None })
    }

    /// What was announced is used, and something new is announced.
    pub(super) fn renewed(&self) -> Option<Self> {
        let (current, former) = (self.next.clone(), Some(self.current.clone()));
        Some(Self { next: Key::random()?, current, former })
    }
}

/// What the keys are good for: to publish paths, and to tell who uses them.
#[derive(Clone)]
pub struct Pass {
    keys: Keys,
    /// When the keys were renewed, by the certificate that was renewed with them.
    since: evac_core::certificates::Span,
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pass(…)")
    }
}

impl Pass {
    pub(super) fn new(keys: Keys, since: evac_core::certificates::Span) -> Self {
        Self { keys, since }
    }

    /// The path by which a webhook configuration leads to `path`.
    pub fn published(&self, path: &str) -> String {
        evac_api::kubevirt::review::guarded(&self.keys.current.tag(path), path)
    }

    /// Whether a tag is one that a webhook configuration has for `path`, or had until a while ago.
    pub(super) fn admits(&self, tag: &str, path: &str, now: Timestamp) -> bool {
        let Some(tag) = unhex(tag) else { return false };
        let former = self.keys.former.as_ref().filter(|_| now < former_pass_until(self.since));
        let all = [Some(&self.keys.current), Some(&self.keys.next), former];
        // All are looked at, whichever fits.
        all.into_iter().flatten().fold(false, |fits, key| fits | key.made(&tag, path))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evac_api::kubevirt::review::{EVICTION_PATH, MACHINE_PATH, split};
    use evac_core::certificates::Span;

    use super::*;

    fn pass(keys: Keys, made: i64) -> Pass {
        let made = Timestamp::from_second(made).unwrap();
        Pass::new(keys, Span::starting(made, Duration::from_secs(14 * 24 * 3600), None))
    }

    fn admits(pass: &Pass, published: &str, second: i64) -> bool {
        let (tag, path) = split(published).unwrap();
        pass.admits(tag, path, Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn a_published_path_is_admitted_by_replicas_before_and_after_a_renewal_and_not_for_ever() {
        let first = Keys::random().unwrap();
        let second = first.renewed().unwrap();
        let third = second.renewed().unwrap();
        let (one, two) = (pass(first, 0), pass(second, 1000));
        assert!(admits(&one, &one.published(EVICTION_PATH), 5));
        assert!(admits(&one, &two.published(EVICTION_PATH), 1001), "a replica that has not heard of it yet");
        assert!(admits(&two, &one.published(EVICTION_PATH), 1001), "an API server that is late");
        assert!(!admits(&two, &one.published(EVICTION_PATH), 1000 + 24 * 3600));
        assert!(!admits(&pass(third, 1000), &one.published(EVICTION_PATH), 1001), "two renewals ago");
    }

    #[test]
    fn the_tag_of_one_path_opens_no_other_and_nothing_else_is_a_tag() {
        let pass = pass(Keys::random().unwrap(), 0);
        let published = pass.published(MACHINE_PATH);
        let (tag, _) = split(&published).unwrap();
        let now = Timestamp::from_second(1).unwrap();
        assert!(!pass.admits(tag, EVICTION_PATH, now));
        for wrong in ["", "0", &tag[1..], &tag.to_uppercase(), &format!("{tag}00"), "zz", "é"] {
            assert!(!pass.admits(wrong, MACHINE_PATH, now), "{wrong:?}");
        }
    }

    #[test]
    fn neither_keys_nor_passes_show_themselves() {
        let keys = Keys::random().unwrap();
        let shown = format!("{keys:?} {:?}", pass(keys.clone(), 0));
        for key in [&keys.current, &keys.next] {
            assert!(!shown.contains(key.text()), "{shown}");
        }
    }
}
