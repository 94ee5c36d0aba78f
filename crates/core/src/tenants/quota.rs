//! How much one visit to a tenant may take, and how many visits there are at once: a tenant that never stops sending must not fill the memory
//! that all roles share.
//!
//! Everything that comes during a visit is counted together, from the first answer to the last change. A visit that has had enough ends
//! in trouble and is made again later, from the beginning; the deadline of the machine holds meanwhile.

use std::fmt;
use std::time::Duration;

/// What a visit may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisitQuota {
    /// Of answers and watches, as they come from the tenant.
    pub bytes: usize,
    /// In lists, and as changes.
    pub objects: usize,
    /// Of lists.
    pub pages: usize,
}

impl VisitQuota {
    /// What each visit may take.
    pub const VISIT: Self = Self { bytes: 16 << 20, objects: 20_000, pages: 200 };
}

/// Visits at once, of all tenants together.
pub const VISITS: usize = 8;
/// A visit that others wait for ends after this time and goes on later: no tenant keeps another one out.
pub const TURN: Duration = Duration::from_secs(300);
/// How long a tenant may take to show what is on its node.
pub const OPENING: Duration = Duration::from_secs(120);
/// How long a drain that was told to end may take to do so.
pub const STOPPING: Duration = Duration::from_secs(60);

/// What came so far, or with one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes.
    pub bytes: usize,
    /// Objects.
    pub objects: usize,
    /// Pages of lists.
    pub pages: usize,
}

/// What there was too much of, with what is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaExceeded {
    /// The bytes that are allowed.
    Bytes(usize),
    /// The objects that are allowed.
    Objects(usize),
    /// The pages that are allowed.
    Pages(usize),
}

impl fmt::Display for QuotaExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "more than {} MiB", bytes >> 20),
            Self::Objects(objects) => write!(f, "more than {objects} objects"),
            Self::Pages(pages) => write!(f, "more than {pages} pages of lists"),
        }
    }
}

impl Usage {
    /// Adds what came; what there is too much of now.
    pub fn add(&mut self, more: Self, quota: &VisitQuota) -> Option<QuotaExceeded> {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.objects = self.objects.saturating_add(more.objects);
        self.pages = self.pages.saturating_add(more.pages);
        if self.bytes > quota.bytes {
            Some(QuotaExceeded::Bytes(quota.bytes))
        } else if self.objects > quota.objects {
            Some(QuotaExceeded::Objects(quota.objects))
        } else if self.pages > quota.pages {
            Some(QuotaExceeded::Pages(quota.pages))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_comes_is_counted_together_and_the_sentence_says_what_was_too_much() {
        let quota = VisitQuota { bytes: 2 << 20, objects: 10, pages: 3 };
        let mut taken = Usage::default();
        let page = Usage { bytes: 1 << 20, objects: 4, pages: 1 };
        assert_eq!(taken.add(page, &quota), None);
        assert_eq!(taken.add(page, &quota), None, "up to the bound it is enough");
        let one_byte = Usage { bytes: 1, ..Usage::default() };
        assert_eq!(taken.add(one_byte, &quota).unwrap().to_string(), "more than 2 MiB");
        let mut taken = Usage::default();
        let changes = Usage { objects: 11, ..Usage::default() };
        assert_eq!(taken.add(changes, &quota).unwrap().to_string(), "more than 10 objects");
        let mut taken = Usage::default();
        let empty = Usage { pages: 1, ..Usage::default() };
        let ends = (0..9).find_map(|_| taken.add(empty, &quota)).unwrap();
        assert_eq!(ends.to_string(), "more than 3 pages of lists");
        assert!(Usage::default().add(Usage { bytes: usize::MAX, ..page }, &quota).is_some());
    }
}
