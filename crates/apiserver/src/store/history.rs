//! The recent past of one resource: enough to resume watches and to list at an earlier revision.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use super::{Key, Object, Unavailable};

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// One commit.
#[derive(Debug, Clone)]
pub struct Change {
    pub kind: ChangeKind,
    pub key: Key,
    /// The state after the commit; for a removal the last state, at the revision of the removal.
    pub object: Object,
    /// The state before the commit.
    pub previous: Option<Object>,
}

/// All objects of a resource at one moment.
type State = BTreeMap<Key, Object>;

#[derive(Debug, Default)]
pub(super) struct History {
    changes: VecDeque<Change>,
    /// Every change after this revision is still here.
    complete_after: u64,
}

impl History {
    pub(super) fn push(&mut self, change: Change, limit: usize) {
        self.changes.push_back(change);
        while self.changes.len() > limit {
            self.drop_oldest();
        }
    }

    pub(super) fn compact(&mut self, revision: u64) {
        while self.changes.front().is_some_and(|c| c.object.revision <= revision) {
            self.drop_oldest();
        }
        self.complete_after = self.complete_after.max(revision);
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.changes.pop_front() {
            self.complete_after = self.complete_after.max(oldest.object.revision);
        }
    }

    /// The changes after a revision, oldest first.
    pub(super) fn since(&self, revision: u64) -> Result<Vec<Change>, Unavailable> {
        self.must_reach(revision)?;
        let first = self.changes.partition_point(|c| c.object.revision <= revision);
        Ok(self.changes.range(first..).cloned().collect())
    }

    /// The state at a revision: today's, with every later change undone, newest first. Other resources may have changed since, and then today's is
    /// taken as it is: a list in pages asks for one revision again and again.
    pub(super) fn state_at<'a>(&self, now: &'a State, revision: u64) -> Result<Cow<'a, State>, Unavailable> {
        self.must_reach(revision)?;
        let mut past = Cow::Borrowed(now);
        for change in self.changes.iter().rev().take_while(|c| c.object.revision > revision) {
            match &change.previous {
                Some(previous) => past.to_mut().insert(change.key.clone(), previous.clone()),
                None => past.to_mut().remove(&change.key),
            };
        }
        Ok(past)
    }

    fn must_reach(&self, revision: u64) -> Result<(), Unavailable> {
        if revision < self.complete_after {
            return Err(Unavailable::Compacted { oldest: self.complete_after });
        }
        Ok(())
    }
}
