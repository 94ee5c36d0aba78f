//! How much one visit to a tenant may take, and how many visits there are at once: a tenant that never stops sending must not fill the memory
//! that all roles share.
//!
//! Everything that comes during a visit is counted together, from the first answer to the last change. A visit that has had enough ends
//! in trouble and is made again later, from the beginning; the deadline of the machine holds meanwhile.

use std::fmt;
use std::time::Duration;

/// What a visit may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ration {
    /// Of answers and watches, as they come from the tenant.
    pub bytes: usize,
    /// In lists, and as changes.
    pub objects: usize,
    /// Of lists.
    pub pages: usize,
}

impl Ration {
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
pub struct Taken {
    /// Bytes.
    pub bytes: usize,
    /// Objects.
    pub objects: usize,
    /// Pages of lists.
    pub pages: usize,
}

/// What there was too much of, with what is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// The bytes that are allowed.
    Bytes(usize),
    /// The objects that are allowed.
    Objects(usize),
    /// The pages that are allowed.
    Pages(usize),
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "more than {} MiB", bytes >> 20),
            Self::Objects(objects) => write!(f, "more than {objects} objects"),
            Self::Pages(pages) => write!(f, "more than {pages} pages of lists"),
        }
    }
}

impl Taken {
    /// Adds what came; what there is too much of now.
    pub fn add(&mut self, more: Self, ration: &Ration) -> Option<Excess> {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.objects = self.objects.saturating_add(more.objects);
        self.pages = self.pages.saturating_add(more.pages);
        if self.bytes > ration.bytes {
            Some(Excess::Bytes(ration.bytes))
        } else if self.objects > ration.objects {
            Some(Excess::Objects(ration.objects))
        } else if self.pages > ration.pages {
            Some(Excess::Pages(ration.pages))
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
        let ration = Ration { bytes: 2 << 20, objects: 10, pages: 3 };
        let mut taken = Taken::default();
        let page = Taken { bytes: 1 << 20, objects: 4, pages: 1 };
        assert_eq!(taken.add(page, &ration), None);
        assert_eq!(taken.add(page, &ration), None, "up to the bound it is enough");
        let one_byte = Taken { bytes: 1, ..Taken::default() };
        assert_eq!(taken.add(one_byte, &ration).unwrap().to_string(), "more than 2 MiB");
        let mut taken = Taken::default();
        let changes = Taken { objects: 11, ..Taken::default() };
        assert_eq!(taken.add(changes, &ration).unwrap().to_string(), "more than 10 objects");
        let mut taken = Taken::default();
        let empty = Taken { pages: 1, ..Taken::default() };
        let ends = (0..9).find_map(|_| taken.add(empty, &ration)).unwrap();
        assert_eq!(ends.to_string(), "more than 3 pages of lists");
        assert!(Taken::default().add(Taken { bytes: usize::MAX, ..page }, &ration).is_some());
    }
}
