//! Which of two states of an object is older, by their resource versions.
//!
//! Versions are numbers that only grow, on every server in use, so an answer to our own write that overtakes the watch can be told from old news. They
//! can be compared only within one history: when etcd is restored from a backup all numbers begin again further back. So events and
//! answers are compared with what is known, and a *list* never is: it is the truth, whatever its numbers say.

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
