//! Which of two states of an object is older, by their resource versions.
//!
//! Versions are numbers that only grow, on every server in use, so an answer to our own write that overtakes the watch can be told from old news. They
//! can be compared only within one history: when etcd is restored from a backup all numbers begin again further back. So events and
//! answers are compared with what is known, and a *list* never is: it is the truth, whatever its numbers say.

use std::fmt;
use std::ops::Deref;

use serde::{Serialize, Serializer};

/// A resource version, as it is written. One of a usual length takes no memory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(Form);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    /// With zeros after it.
    Short([u8; SHORT]),
    #[allow(clippy::box_collection, reason = "it is rare, and must not make the others larger")]
    Long(Box<String>),
}

/// A server that writes a thousand times in a second needs thirty thousand years for longer ones.
const SHORT: usize = 15;

impl Deref for Version {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            // What was made from a text is one.
            Form::Short(text) => std::str::from_utf8(text).unwrap_or_default().trim_end_matches('\0'),
            Form::Long(text) => text,
        }
    }
}

impl From<&str> for Version {
    fn from(version: &str) -> Self {
        let mut text = [0; SHORT];
        match text.get_mut(..version.len()).filter(|_| !version.ends_with('\0')) {
            Some(place) => place.copy_from_slice(version.as_bytes()),
            None => return Self(Form::Long(Box::new(version.to_owned()))),
        }
        Self(Form::Short(text))
    }
}

impl From<String> for Version {
    fn from(version: String) -> Self {
        version.as_str().into()
    }
}

impl Default for Version {
    fn default() -> Self {
        "".into()
    }
}

impl PartialEq<&str> for Version {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

/// Whether `version` is older than `than`. Where one of them is not a number nothing can be said, and the last word wins: to wait for a
/// number would be to wait for ever on a server that has none.
///
/// As in Kubernetes (`k8s.io/apimachinery/pkg/util/resourceversion`) a version is a decimal number of any length without leading zeros.
pub fn is_older(version: &str, than: &str) -> bool {
    is_number(version) && is_number(than) && (version.len(), version) < (than.len(), than)
}

fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| ('1'..='9').contains(&first))
        && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_written_again_as_it_was_however_long_it_is() {
        for text in [
            "",
            "7",
            "999999999999999",
            "9999999999999999",
            "7\0",
            "a restored cluster's own",
            "äääääää",
            "ääääääää",
        ] {
            let version = Version::from(text);
            assert_eq!((&*version, version == text, version == "8"), (text, true, false));
            assert_eq!(version, Version::from(text.to_owned()));
        }
    }

    #[test]
    fn versions_are_numbers_and_what_is_none_is_never_older() {
        assert!(is_older("9", "10"));
        assert!(!is_older("10", "10"));
        assert!(!is_older("10", "9"));
        assert!(is_older("99999999999999999999", "100000000000000000000"), "more than 64 bits");
        for (version, than) in [("", "10"), ("x9", "10"), ("9", ""), ("9", "x10"), ("09", "10"), ("-9", "10")]
        {
            assert!(!is_older(version, than), "{version:?} and {than:?}");
        }
    }
}
