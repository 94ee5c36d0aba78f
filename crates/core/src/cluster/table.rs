//! The objects of one kind, and the one place where it is decided whether what arrives is newer than what is known.
//!
//! News of an object come on three ways that overtake each other: events of a watch, answers to our own requests, and fresh lists.
//!
//! ```text
//!  event, answer ─▶ of an incarnation that is gone ─▶ passed over
//!                 ─▶ older than what is known       ─▶ passed over
//!                 ─▶ else                           ─▶ kept
//!  gone          ─▶ of the incarnation that is known ─▶ removed; remembered in any case
//!  list          ─▶ what it leaves out is gone, unless that is newer than the list;
//!                   after etcd was restored from a backup it is the truth, whatever was known
//! ```

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};

use super::key::Uid;
use super::version::{Version, is_older};

/// How many identities of gone objects are remembered.
const REMEMBERED: usize = 10_000;

/// What a table has to know of its objects.
pub trait Object: PartialEq {
    /// By what it is called: a name, or a namespace and a name.
    type Id: Ord + Clone;

    /// What it is called.
    fn id(&self) -> &Self::Id;
    /// Which incarnation of that name it is.
    fn uid(&self) -> &Uid;
    /// Its resource version.
    fn version(&self) -> &Version;
    /// Where that stands: a table puts a newer version on a state that says the same.
    fn version_mut(&mut self) -> &mut Version;
    /// It is being deleted and nothing holds it any more: the server removes it with this write.
    fn is_ending(&self) -> bool;
}

/// Says of a kind of objects how a table finds them, tells their incarnations apart and orders their states: by which fields. Those that are
/// deleted with finalizers end when nothing holds them any more.
macro_rules! object {
    ($kind:ty, $id:ty, $name:ident, $version:ident) => {
        object!($kind, $id, $name, $version, |_| false);
    };
    ($kind:ty, $id:ty, $name:ident, $version:ident, $is_ending:expr) => {
        impl $crate::cluster::table::Object for $kind {
            type Id = $id;

            fn id(&self) -> &$id {
                &self.$name
            }

            fn uid(&self) -> &$crate::cluster::key::Uid {
                &self.uid
            }

            fn version(&self) -> &$crate::cluster::version::Version {
                &self.$version
            }

            fn version_mut(&mut self) -> &mut $crate::cluster::version::Version {
                &mut self.$version
            }

            fn is_ending(&self) -> bool {
                let is_ending: fn(&$kind) -> bool = $is_ending;
                is_ending(self)
            }
        }
    };
}
pub(super) use object;

/// A position in the order of changes that an index has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Revision(pub(super) u64);

/// What became of a piece of news.
#[derive(Debug, PartialEq, Eq)]
pub enum Kept<T> {
    /// It is older than what is known, or says the same.
    Unchanged,
    /// Nothing was known under its name.
    Added,
    /// What was known before.
    Replaced(T),
}

/// Of which moment a list is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedAt {
    /// The resource version of the list; empty where it is not known, and then the list is the truth.
    pub version: String,
    /// The reader had seen a later moment before it asked: etcd was restored from a backup, and what is known counts for nothing.
    pub rewound: bool,
}

impl ListedAt {
    /// Whether the list can speak about a state with this version, or is older than that.
    ///
    /// A state that is not in a list of the same moment or a later one is not there any more. If it is there in an earlier version, the history
    /// was set back, too.
    fn covers(&self, version: &str) -> bool {
        self.rewound || !is_older(&self.version, version)
    }
}

/// Identities of objects that are gone, with the last version that was known: an answer to a write may arrive after the news of the end, and
/// must not bring the object back.
#[derive(Debug, Clone, Default)]
struct Tombstones {
    order: VecDeque<Uid>,
    last_version: BTreeMap<Uid, Version>,
}

impl Tombstones {
    fn add(&mut self, uid: &Uid, version: Version) {
        if let Some(known) = self.last_version.get_mut(uid) {
            if is_older(known, &version) {
                *known = version;
            }
            return;
        }
        self.last_version.insert(uid.clone(), version);
        self.order.push_back(uid.clone());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.last_version.remove(&oldest);
        }
    }

    fn contains(&self, uid: &Uid) -> bool {
        self.last_version.contains_key(uid)
    }

    /// A list of this moment shows it, so it is there again.
    fn recall(&mut self, uid: &Uid, at: &ListedAt) {
        if self.last_version.get(uid).is_some_and(|last| at.covers(last)) {
            self.last_version.remove(uid);
            self.order.retain(|known| known != uid);
        }
    }
}

/// The objects of one kind.
#[derive(Debug, Clone)]
pub struct Table<T: Object> {
    rows: BTreeMap<T::Id, (Revision, Box<T>)>,
    gone: Tombstones,
}

impl<T: Object> Default for Table<T> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), gone: Tombstones::default() }
    }
}

impl<T: Object> Table<T> {
    /// Takes in what an event, an answer or a list shows.
    pub fn keep(&mut self, object: impl Into<Box<T>>, revision: Revision) -> Kept<T> {
        let object = object.into();
        if self.gone.contains(object.uid()) {
            return Kept::Unchanged;
        }
        let Some((changed, known)) = self.rows.get_mut(object.id()) else {
            self.rows.insert(object.id().clone(), (revision, object));
            return Kept::Added;
        };
        // Also of another incarnation: one that came later has a later version.
        if is_older(object.version(), known.version()) {
            return Kept::Unchanged;
        }
        if known.uid() == object.uid() {
            // What differs in nothing but its version is no news; but the next write has to name that version.
            let before = std::mem::replace(known.version_mut(), object.version().clone());
            if *known == object {
                return Kept::Unchanged;
            }
            *known.version_mut() = before;
        }
        *changed = revision;
        Kept::Replaced(*std::mem::replace(known, object))
    }

    /// A late end must not remove the successor.
    pub fn remove(&mut self, id: &T::Id, uid: &Uid) -> Option<T> {
        let known = self.get(id).filter(|known| known.uid() == uid);
        let version = known.map(|known| known.version().clone());
        let is_known = version.is_some();
        self.gone.add(uid, version.unwrap_or_default());
        is_known.then(|| self.forget(id)).flatten()
    }

    /// Nothing is known of it any more; it may still be there.
    pub fn forget(&mut self, id: &T::Id) -> Option<T> {
        self.rows.remove(id).map(|(_, object)| *object)
    }

    /// Which of those that a fresh list is about are not as it says: they are gone, or the history was set back. Their end has to be taken in before
    /// the list.
    pub fn contradicted<B: Borrow<T>>(
        &self,
        list: &[B],
        at: &ListedAt,
        about: impl Fn(&T) -> bool,
    ) -> Vec<(T::Id, Uid)> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let listed: BTreeMap<&Uid, &T> =
            list.iter().map(Borrow::borrow).map(|object| (object.uid(), object)).collect();
        self.iter()
            .filter(|known| about(known) && at.covers(known.version()))
            .filter(|known| {
                listed.get(known.uid()).is_none_or(|object| is_older(object.version(), known.version()))
            })
            .map(|known| (known.id().clone(), known.uid().clone()))
            .collect()
    }

    /// A list shows these, so they are there, even if their end was told.
    pub fn recall<B: Borrow<T>>(&mut self, list: &[B], at: &ListedAt) {
        for object in list {
            self.gone.recall(object.borrow().uid(), at);
        }
    }

    /// Takes in a fresh list, for a table that stands alone. True if that changed anything.
    pub fn reset(&mut self, list: Vec<T>, at: &ListedAt, about: impl Fn(&T) -> bool) -> bool {
        let mut changed = false;
        for (id, uid) in self.contradicted(&list, at, about) {
            changed |= self.remove(&id, &uid).is_some();
        }
        self.recall(&list, at);
        for object in list {
            changed |= self.keep(object, Revision::default()) != Kept::Unchanged;
        }
        changed
    }

    /// As if nothing had ever gone.
    #[cfg(test)]
    pub(super) fn forget_gone(&mut self) {
        self.gone = Tombstones::default();
    }

    /// The object of this name.
    pub fn get(&self, id: &T::Id) -> Option<&T> {
        self.rows.get(id).map(|(_, object)| object.as_ref())
    }

    /// When the object of this name last changed.
    pub fn revision(&self, id: &T::Id) -> Revision {
        self.rows.get(id).map_or(Revision::default(), |(revision, _)| *revision)
    }

    /// Whether an object of this name is known.
    pub fn contains(&self, id: &T::Id) -> bool {
        self.rows.contains_key(id)
    }

    /// The names of all objects, in order.
    pub fn ids(&self) -> impl Iterator<Item = &T::Id> {
        self.rows.keys()
    }

    /// All objects, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.rows.values().map(|(_, object)| object.as_ref())
    }

    /// Those from this name on, in the order of names.
    pub fn starting_at(&self, id: T::Id) -> impl Iterator<Item = &T> {
        self.rows.range(id..).map(|(_, (_, object))| object.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Thing {
        name: String,
        uid: Uid,
        version: Version,
        what: u32,
    }

    object!(Thing, String, name, version);

    fn thing(uid: &str, version: &str, what: u32) -> Thing {
        Thing { name: "a".into(), uid: Uid::from(uid), version: version.into(), what }
    }

    fn known(things: &[Thing]) -> Table<Thing> {
        let mut table = Table::default();
        for (number, thing) in things.iter().enumerate() {
            table.keep(thing.clone(), Revision(number as u64));
        }
        table
    }

    fn a() -> String {
        "a".into()
    }

    fn at(version: &str, rewound: bool) -> ListedAt {
        ListedAt { version: version.into(), rewound }
    }

    fn list(table: &mut Table<Thing>, list: &[Thing], at: &ListedAt) {
        table.reset(list.to_vec(), at, |_| true);
    }

    #[test]
    fn an_older_version_is_passed_over_also_of_an_earlier_incarnation() {
        let mut table = known(&[thing("u", "9", 1)]);
        assert_eq!(table.keep(thing("u", "10", 2), Revision(1)), Kept::Replaced(thing("u", "9", 1)));
        assert_eq!(table.keep(thing("u", "9", 1), Revision(2)), Kept::Unchanged);
        assert_eq!(table.get(&a()), Some(&thing("u", "10", 2)));
        let successor = thing("v", "12", 4);
        assert_eq!(table.keep(successor.clone(), Revision(3)), Kept::Replaced(thing("u", "10", 2)));
        assert_eq!(
            table.keep(thing("u", "11", 2), Revision(4)),
            Kept::Unchanged,
            "news of the incarnation before"
        );
        assert_eq!(table.get(&a()), Some(&successor));
    }

    #[test]
    fn a_new_version_that_says_the_same_is_no_news_but_is_the_version_to_write_on() {
        let mut table = known(&[thing("u", "9", 1)]);
        assert_eq!(table.keep(thing("u", "12", 1), Revision(7)), Kept::Unchanged);
        assert_eq!(table.get(&a()), Some(&thing("u", "12", 1)));
        assert_eq!(table.revision(&a()), Revision(0));
    }

    #[test]
    fn what_is_gone_does_not_come_back_with_a_late_answer() {
        let mut table = known(&[thing("u", "9", 1)]);
        assert_eq!(table.remove(&a(), &Uid::from("u")), Some(thing("u", "9", 1)));
        assert_eq!(table.keep(thing("u", "11", 2), Revision(1)), Kept::Unchanged);
        assert_eq!(table.keep(thing("v", "12", 2), Revision(2)), Kept::Added);
        assert_eq!(table.remove(&a(), &Uid::from("u")), None, "a late end leaves the successor");
        assert!(table.contains(&a()));
    }

    #[test]
    fn no_more_than_so_many_of_the_gone_are_remembered() {
        let mut table = known(&[]);
        for number in 0..=REMEMBERED {
            table.remove(&a(), &Uid::from(number.to_string()));
        }
        assert_eq!((table.gone.order.len(), table.gone.last_version.len()), (REMEMBERED, REMEMBERED));
        assert!(!table.gone.contains(&Uid::from("0")), "the first to go is the first to be forgotten");
    }

    #[test]
    fn what_a_list_leaves_out_is_gone_unless_it_is_newer_than_the_list() {
        for (listed_at, stays) in [("10", false), ("9", false), ("8", true), ("", false)] {
            let mut table = known(&[thing("u", "9", 1)]);
            list(&mut table, &[], &at(listed_at, false));
            assert_eq!(table.contains(&a()), stays, "a list of {listed_at:?}");
        }
    }

    #[test]
    fn a_list_that_was_under_way_when_we_wrote_does_not_take_our_write_back() {
        let mut table = known(&[thing("u", "9", 1), thing("u", "20", 2)]);
        list(&mut table, &[thing("u", "9", 1)], &at("15", false));
        assert_eq!(table.get(&a()), Some(&thing("u", "20", 2)));
        table.remove(&a(), &Uid::from("u"));
        list(&mut table, &[thing("u", "9", 1)], &at("15", false));
        assert!(!table.contains(&a()), "nor bring back what has ended since");
    }

    #[test]
    fn after_a_backup_was_restored_the_list_is_the_truth() {
        for (listed_at, rewound) in [("60", true), ("950", false)] {
            let mut table = known(&[thing("u", "900", 1)]);
            list(&mut table, &[thing("u", "50", 2)], &at(listed_at, rewound));
            assert_eq!(table.get(&a()), Some(&thing("u", "50", 2)), "{listed_at}");
            assert!(
                matches!(table.keep(thing("u", "51", 3), Revision(5)), Kept::Replaced(_)),
                "events go on from there"
            );
            table.remove(&a(), &Uid::from("u"));
            list(&mut table, &[thing("u", "50", 2)], &at(listed_at, rewound));
            assert!(table.contains(&a()), "what was deleted after the backup is there again");
        }
    }

    #[test]
    fn a_list_speaks_only_of_what_it_is_about() {
        let table = known(&[thing("u", "9", 1)]);
        assert!(table.contradicted::<Thing>(&[], &ListedAt::default(), |known| known.what == 2).is_empty());
    }
}
