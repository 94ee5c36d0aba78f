//! What the role knows besides the cluster's nodes and leases, which are in the [`Index`]: its objects, where each drain stands, and what it has
//! ordered itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::vouched::Reviewing;
use super::{Family, Id, Maintenance, OWNER, is_maintenance};
use crate::cluster::fact::{Key, Lease, Node, Uid};
use crate::cluster::index::{Index, ListedAt, Revision};
use crate::cluster::subject::{Kind, Subject};
use crate::cluster::table::{Kept, Object, Table};
use crate::drain::ownership::{MarkState, lease_key};
use crate::drain::record::Record;
use crate::drain::run::after;
use crate::drain::survey::Survey;
use crate::machines::remains::Remains;

/// After this long it does not count any more how often a node was given to the drain.
const FORGOTTEN: SignedDuration = SignedDuration::from_mins(10);

/// How long after its lease is gone the record of a node counts: a cordon that was given up may land as late as the API server carries out a
/// request, which is a minute by default. Later our mark on a node is not a late cordon, whatever was noted once, and a node's own
/// kubelet can have written it.
const LANDS_LATE: Duration = Duration::from_secs(120);

/// What was last noted about a node on its lease.
#[derive(Debug, Clone)]
struct Noted {
    record: Box<Record>,
    /// Set when the lease is gone.
    until: Option<Timestamp>,
}

/// One observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// An object as it is now.
    Object(Box<Maintenance>),
    /// An object was deleted.
    ObjectGone(Id, Uid),
    /// How far the drain of a node is.
    Survey(Survey),
    /// Whether the control plane can spare a node, or why not.
    Quorum(String, Result<(), String>, Timestamp),
    /// A node was given to the drain, and whether it may shut down machines that would not come back.
    Begun(String, Id, bool, Timestamp),
    /// The drain lets a node be.
    Ended(String),
    /// Whether objects are reviewed here.
    Reviewing(Reviewing),
    /// The drain cannot say how a node is; the sentence says why.
    Blind(String, String, Timestamp),
    /// Something that decisions rest on cannot be read, and why.
    Unread(String, String, Timestamp),
    /// It can be read again.
    Read(String),
    /// What giving a node back could not undo about its guests.
    Left(String, Vec<Remains>),
}

/// What cannot be read, why, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// What: a list, or the node and its pods.
    pub what: String,
    /// The error.
    pub why: String,
    /// When it could not be read first.
    pub since: Timestamp,
    /// How far the drain is cannot be said either.
    pub blind: bool,
}

/// A node that the drain was told to empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// For which object.
    pub id: Id,
    /// Whether machines that would not come back may be shut down.
    pub may_shut_down: bool,
    /// When it was last told.
    pub at: Timestamp,
    /// How often it was given, which decides how soon it is given again.
    pub times: u32,
}

/// Whose situation may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    /// These; may be none.
    Some(BTreeSet<Id>),
    /// Room may have become free for any object that waits.
    Everybody,
}

impl Touched {
    fn nobody() -> Self {
        Self::Some(BTreeSet::new())
    }
}

/// The name of this installation in marks and leases.
#[derive(Debug, Clone)]
struct Owner(String);

impl Default for Owner {
    fn default() -> Self {
        Self(OWNER.to_owned())
    }
}

impl Object for Maintenance {
    type Id = Id;

    fn id(&self) -> &Id {
        &self.id
    }

    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn version(&self) -> &String {
        &self.resource_version
    }

    fn version_mut(&mut self) -> &mut String {
        &mut self.resource_version
    }

    fn is_ending(&self) -> bool {
        self.deleting && !self.held && self.other_finalizers.is_empty()
    }
}

/// What one operator knows about all maintenances.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    owner: Owner,
    objects: Table<Maintenance>,
    by_node: BTreeMap<String, BTreeSet<Id>>,
    /// How many nodes there were when we last looked.
    nodes: usize,
    surveys: BTreeMap<String, Survey>,
    orders: BTreeMap<String, Order>,
    quorum: BTreeMap<String, (Result<(), String>, Timestamp)>,
    reviewing: Reviewing,
    /// By the lease.
    records: BTreeMap<Key, Noted>,
    /// Nodes of which the drain cannot say how they are.
    blind: BTreeMap<String, (String, Timestamp)>,
    unread: BTreeMap<String, (String, Timestamp)>,
    /// By the node that was to be given back.
    left: BTreeMap<String, Vec<Remains>>,
}

/// The lease by which a node is claimed.
fn lease<'a>(index: &'a Index, node: &str) -> Option<&'a Lease> {
    index.lease(&lease_key(node))
}

impl Registry {
    /// For an installation that goes by this name.
    pub fn of(owner: String) -> Self {
        Self { owner: Owner(owner), ..Self::default() }
    }

    /// The owner in marks, and the holder of leases.
    pub fn owner(&self) -> &str {
        &self.owner.0
    }

    /// Takes in one observation; says whose decision may be another now.
    pub fn apply(&mut self, index: &Index, seen: Seen) -> Touched {
        match seen {
            Seen::Object(object) => self.apply_object(index, *object),
            Seen::ObjectGone(id, uid) => {
                self.remove(&id, &uid);
                Touched::Everybody
            }
            Seen::Survey(survey) => {
                let node = survey.node.clone();
                // One about a node that was taken back is no news.
                if self.orders.contains_key(&node) {
                    self.surveys.insert(node.clone(), survey);
                    self.blind.remove(&node);
                }
                self.about(index, &node)
            }
            Seen::Quorum(node, verdict, at) => {
                self.quorum.insert(node.clone(), (verdict, at));
                self.about(index, &node)
            }
            Seen::Begun(node, id, may_shut_down, at) => {
                let recent = self.orders.get(&node).filter(|order| at.duration_since(order.at) < FORGOTTEN);
                let times = recent.map_or(0, |order| order.times) + 1;
                self.surveys.remove(&node);
                self.orders.insert(node.clone(), Order { id, may_shut_down, at, times });
                self.about(index, &node)
            }
            Seen::Ended(node) => {
                self.orders.remove(&node);
                self.surveys.remove(&node);
                self.blind.remove(&node);
                Touched::Everybody
            }
            Seen::Reviewing(reviewing) => {
                self.reviewing = reviewing;
                Touched::Everybody
            }
            Seen::Blind(node, why, at) => {
                if !self.orders.contains_key(&node) {
                    return Touched::nobody();
                }
                // Where it stood is not where it stands.
                self.surveys.remove(&node);
                let known = self.blind.entry(node.clone()).or_insert_with(|| (String::new(), at));
                known.0 = why;
                self.about(index, &node)
            }
            Seen::Unread(what, why, at) => {
                let new = !self.unread.contains_key(&what);
                let known = self.unread.entry(what).or_insert_with(|| (String::new(), at));
                let same = !new && known.0 == why;
                known.0 = why;
                if same { Touched::nobody() } else { Touched::Everybody }
            }
            Seen::Left(node, left) => {
                let touched = self.about(index, &node);
                self.left.insert(node, left);
                touched
            }
            Seen::Read(what) => match self.unread.remove(&what) {
                Some(_) => Touched::Everybody,
                None => Touched::nobody(),
            },
        }
    }

    /// Something changed about nodes or leases of the cluster.
    pub fn hear(&mut self, index: &Index, touched: &BTreeSet<Subject>, now: Timestamp) -> Touched {
        let mut ids = BTreeSet::new();
        for Subject { kind, key } in touched {
            let node = match kind {
                Kind::Node => {
                    if index.node(&key.name).is_none() {
                        self.quorum.remove(key.name.as_str());
                        self.records.remove(&lease_key(&key.name));
                    }
                    key.name.as_str()
                }
                Kind::Lease => {
                    self.note_record(index, key, now);
                    // Names of leases are in lower case; those of nodes are by rule.
                    key.name.strip_prefix("node-").unwrap_or_default()
                }
                _ => continue,
            };
            if let Touched::Some(about) = self.about(index, node) {
                ids.extend(about);
            }
        }
        // More or fewer nodes are more or less room within the limits.
        let nodes = std::mem::replace(&mut self.nodes, index.nodes().len());
        if nodes == self.nodes { Touched::Some(ids) } else { Touched::Everybody }
    }

    fn note_record(&mut self, index: &Index, key: &Key, now: Timestamp) {
        match index.lease(key) {
            Some(lease) => {
                if let Some(record) = lease.record.clone().filter(|record| record.owner == self.owner.0) {
                    self.records.insert(key.clone(), Noted { record, until: None });
                }
            }
            None => {
                if let Some(noted) = self.records.get_mut(key) {
                    noted.until.get_or_insert(after(now, LANDS_LATE));
                }
            }
        }
    }

    /// There is a fresh list of leases. When one went that it does not have is not known; so its record does not count any more.
    pub fn listed_leases(&mut self, index: &Index) {
        self.records.retain(|key, noted| noted.until.is_some() || index.lease(key).is_some());
    }

    /// A fresh list of the objects of one family.
    pub fn list(&mut self, family: Family, list: Vec<Maintenance>, at: &ListedAt) -> Touched {
        self.objects.reset(list, at, |object| object.id.family == family);
        self.by_node.clear();
        for object in self.objects.iter() {
            self.by_node.entry(object.node.clone()).or_default().insert(object.id.clone());
        }
        self.left.retain(|node, _| self.by_node.contains_key(node));
        Touched::Everybody
    }

    /// What is not known about an object, if anything: the drain of its node, or a list that decisions rest on.
    pub fn unread_for(&self, node: &str) -> Option<Unread> {
        let blind = self.blind.get(node).map(|(why, since)| Unread {
            what: format!("node {node} and its pods"),
            why: why.clone(),
            since: *since,
            blind: true,
        });
        let lists = self.unread.iter().map(|(what, (why, since))| Unread {
            what: what.clone(),
            why: why.clone(),
            since: *since,
            blind: false,
        });
        blind.or_else(|| lists.min_by_key(|unread| unread.since))
    }

    /// What giving this node back could not undo so far.
    pub fn left_on(&self, node: &str) -> &[Remains] {
        self.left.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// The record of a node: what its lease says, or said a moment ago.
    pub fn record<'a>(&'a self, index: &'a Index, node: &str, now: Timestamp) -> Option<&'a Record> {
        let said = lease(index, node).and_then(|lease| lease.record.as_deref());
        let is_this = |noted: &&Noted| index.node(node).is_some_and(|node| node.uid == noted.record.uid);
        let counts = |noted: &&Noted| noted.until.is_none_or(|until| now < until);
        let noted = || self.records.get(&lease_key(node)).filter(is_this).filter(counts);
        said.filter(|record| record.owner == self.owner.0).or_else(|| noted().map(|noted| &*noted.record))
    }

    /// A node that carries our mark although no object is about it: a cordon that landed after it was given up, or a forgery.
    fn is_stray(&self, node: &Node) -> bool {
        self.is_marked(node)
            && !self.by_node.contains_key(&node.name)
            && !self.orders.contains_key(&node.name)
    }

    /// Stands for a stray node among the objects; no object can have this name.
    fn stray_id(node: &Node) -> Id {
        Id { family: Family::Medik8s, name: format!("node/{}", node.name) }
    }

    /// The stray node that is meant, if it is still one.
    pub fn stray<'a>(&self, index: &'a Index, id: &Id) -> Option<&'a Node> {
        let name = id.name.strip_prefix("node/")?;
        index.node(name).filter(|node| self.is_stray(node))
    }

    /// Another installation looks after the node: its lease is on it and has not lapsed.
    pub fn is_served_elsewhere(&self, index: &Index, node: &str, now: Timestamp) -> bool {
        lease(index, node).is_some_and(|lease| {
            is_maintenance(&lease.holder) && lease.holder != self.owner.0 && lease.protects(now)
        })
    }

    fn apply_object(&mut self, index: &Index, object: Maintenance) -> Touched {
        if object.is_ending() {
            self.remove(&object.id, &object.uid);
            return Touched::Everybody;
        }
        let (id, node, deleting, uid) =
            (object.id.clone(), object.node.clone(), object.deleting, object.uid.clone());
        let (leaves, replaced) = match self.objects.keep(object, Revision::default()) {
            Kept::Unchanged => return Touched::nobody(),
            Kept::Added => (false, false),
            Kept::Replaced(before) => {
                let replaced = before.uid != uid || before.node != node;
                if replaced {
                    self.forget_link(&before);
                }
                (deleting && !before.deleting, replaced)
            }
        };
        self.by_node.entry(node.clone()).or_default().insert(id);
        if leaves || replaced { Touched::Everybody } else { self.about(index, &node) }
    }

    fn remove(&mut self, id: &Id, uid: &Uid) {
        if let Some(object) = self.objects.remove(id, uid) {
            self.forget_link(&object);
        }
    }

    fn forget_link(&mut self, object: &Maintenance) {
        if let Some(ids) = self.by_node.get_mut(&object.node) {
            ids.remove(&object.id);
            self.left.remove(&object.node);
            if ids.is_empty() {
                self.by_node.remove(&object.node);
            }
        }
    }

    /// The drain was dropped: nothing is ordered any more.
    pub fn forget_orders(&mut self) {
        self.orders.clear();
        self.surveys.clear();
        self.blind.clear();
    }

    /// The nodes that the drain was told to empty.
    pub fn ordered(&self) -> impl Iterator<Item = &String> {
        self.orders.keys()
    }

    /// All there are, and those that are gone but whose node is still drained.
    pub fn everybody(&self, index: &Index) -> BTreeSet<Id> {
        let ordered = self.orders.values().map(|order| order.id.clone());
        let strays = index.nodes().filter(|node| self.is_stray(node)).map(Self::stray_id);
        self.objects.ids().cloned().chain(ordered).chain(strays).collect()
    }

    fn about(&self, index: &Index, node: &str) -> Touched {
        let ordered = self.orders.get(node).map(|order| order.id.clone());
        let named = self.by_node.get(node).into_iter().flatten().cloned();
        let stray = index.node(node).filter(|node| self.is_stray(node)).map(Self::stray_id);
        Touched::Some(named.chain(ordered).chain(stray).collect())
    }

    /// An object as it was last seen.
    pub fn object(&self, id: &Id) -> Option<&Maintenance> {
        self.objects.get(id)
    }

    /// All objects, by kind and name.
    pub fn objects(&self) -> impl Iterator<Item = &Maintenance> {
        self.objects.iter()
    }

    /// How far the drain of this node was when it last told; none before its first word.
    pub fn survey(&self, node: &str) -> Option<&Survey> {
        self.surveys.get(node)
    }

    /// What the drain was told about this node; none if nothing, or if the node was taken back.
    pub fn order(&self, node: &str) -> Option<&Order> {
        self.orders.get(node)
    }

    /// The node that is drained for an object.
    pub fn ordered_by(&self, id: &Id) -> Option<&str> {
        self.orders.iter().find(|(_, order)| order.id == *id).map(|(node, _)| node.as_str())
    }

    /// What was last found out about the control plane without this node, and when.
    pub fn quorum(&self, node: &str) -> Option<&(Result<(), String>, Timestamp)> {
        self.quorum.get(node)
    }

    /// What is known about the review of objects.
    pub fn reviewing(&self) -> &Reviewing {
        &self.reviewing
    }

    /// Our mark is on the node.
    pub fn is_marked(&self, node: &Node) -> bool {
        matches!(&node.mark, Some(MarkState::Valid(mark)) if mark.owner == self.owner.0)
    }

    /// Whether something was done to its node for this object.
    pub fn has_begun(&self, index: &Index, object: &Maintenance) -> bool {
        match self.orders.get(&object.node) {
            Some(order) => order.id == object.id,
            None => {
                index.node(&object.node).is_some_and(|node| self.is_marked(node))
                    && self.first_for(index, &object.node) == Some(&object.id)
            }
        }
    }

    fn rivals(&self, node: &str) -> impl Iterator<Item = &Maintenance> {
        let ids = self.by_node.get(node).into_iter().flatten();
        ids.filter_map(|id| self.objects.get(id))
    }

    /// Whether another object that stays is about the same node.
    pub fn has_successor(&self, object: &Maintenance) -> bool {
        self.rivals(&object.node).any(|other| other.id != object.id && !other.deleting)
    }

    /// Of several objects for a node the one that counts: the one in the mark, else the oldest that stays.
    pub fn first_for(&self, index: &Index, node: &str) -> Option<&Id> {
        if let Some(Node { mark: Some(MarkState::Valid(mark)), .. }) = index.node(node)
            && mark.owner == self.owner.0
            && let Some(named) =
                self.rivals(node).find(|object| mark.options.first() == Some(&object.id.to_string()))
        {
            return Some(&named.id);
        }
        let mut rivals: Vec<&Maintenance> = self.rivals(node).collect();
        // A deletion that is under way ends first.
        rivals.sort_by_key(|object| (!(object.deleting && object.held), object.created, &object.id));
        rivals.first().map(|object| &object.id)
    }
}
