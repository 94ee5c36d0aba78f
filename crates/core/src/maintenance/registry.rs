//! What the role knows: objects, nodes, leases, where each drain stands, and what it has ordered itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::vouched::Reviewing;
use super::{Family, Id, Maintenance, OWNER, is_maintenance};
use crate::cluster::fact::{Key, Lease, Node, Uid};
use crate::cluster::version::is_older;
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
struct Kept {
    record: Box<Record>,
    /// Set when the lease is gone.
    until: Option<Timestamp>,
}

/// One observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Object(Box<Maintenance>),
    ObjectGone(Id, Uid),
    Node(Box<Node>),
    NodeGone(String),
    Lease(Lease),
    /// With the time at which that was seen.
    LeaseGone(Key, Timestamp),
    Survey(Survey),
    /// Whether the control plane can spare a node, or why not.
    Quorum(String, Result<(), String>, Timestamp),
    /// A node was given to the drain, and whether it may shut down machines that would not come back.
    Begun(String, Id, bool, Timestamp),
    /// The drain lets a node be.
    Ended(String),
    /// Whether objects are reviewed here.
    Reviewing(Reviewing),
    /// The drain cannot read the cluster; the sentence says why.
    Blind(String, Timestamp),
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
    pub what: String,
    pub why: String,
    pub since: Timestamp,
    /// How far the drain is cannot be said either.
    pub blind: bool,
}

/// A node that the drain was told to empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub id: Id,
    pub may_shut_down: bool,
    pub at: Timestamp,
    /// How often it was given, which decides how soon it is given again.
    pub times: u32,
}

/// Whose situation may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    Some(BTreeSet<Id>),
    /// Room may have become free for anybody who waits.
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

#[derive(Debug, Clone, Default)]
pub struct Registry {
    owner: Owner,
    objects: BTreeMap<Id, Maintenance>,
    by_node: BTreeMap<String, BTreeSet<Id>>,
    nodes: BTreeMap<String, Node>,
    leases: BTreeMap<Key, Lease>,
    surveys: BTreeMap<String, Survey>,
    orders: BTreeMap<String, Order>,
    quorum: BTreeMap<String, (Result<(), String>, Timestamp)>,
    reviewing: Reviewing,
    /// By the lease.
    records: BTreeMap<Key, Kept>,
    /// Nodes of which the drain cannot say how they are.
    blind: BTreeMap<String, (String, Timestamp)>,
    unread: BTreeMap<String, (String, Timestamp)>,
    /// By the node that was to be given back.
    left: BTreeMap<String, Vec<Remains>>,
}

impl Registry {
    /// For an installation that goes by this name.
    pub fn of(owner: String) -> Self {
        Self { owner: Owner(owner), ..Self::default() }
    }

    pub fn owner(&self) -> &str {
        &self.owner.0
    }

    pub fn apply(&mut self, seen: Seen) -> Touched {
        match seen {
            Seen::Object(object) => self.apply_object(*object),
            Seen::ObjectGone(id, uid) => {
                if self.objects.get(&id).is_some_and(|known| known.uid == uid) {
                    self.remove(&id);
                }
                Touched::Everybody
            }
            Seen::Node(node) => self.apply_node(*node),
            Seen::NodeGone(name) => {
                self.nodes.remove(&name);
                self.quorum.remove(&name);
                self.records.remove(&lease_key(&name));
                Touched::Everybody
            }
            Seen::Lease(lease) => {
                let key = lease.key.clone();
                let older = |known: &Lease| is_older(&lease.resource_version, &known.resource_version);
                if self.leases.get(&key).is_some_and(older) {
                    return Touched::nobody();
                }
                if let Some(record) = lease.record.clone().filter(|record| record.owner == self.owner.0) {
                    self.records.insert(key.clone(), Kept { record, until: None });
                }
                self.leases.insert(key.clone(), lease);
                self.leased(&key)
            }
            Seen::LeaseGone(key, at) => {
                self.leases.remove(&key);
                if let Some(kept) = self.records.get_mut(&key) {
                    kept.until.get_or_insert(after(at, LANDS_LATE));
                }
                self.leased(&key)
            }
            Seen::Survey(survey) => {
                let node = survey.node.clone();
                // One about a node that was taken back is no news.
                if self.orders.contains_key(&node) {
                    self.surveys.insert(node.clone(), survey);
                    self.blind.remove(&node);
                }
                self.about(&node)
            }
            Seen::Quorum(node, verdict, at) => {
                self.quorum.insert(node.clone(), (verdict, at));
                self.about(&node)
            }
            Seen::Begun(node, id, may_shut_down, at) => {
                let recent = self.orders.get(&node).filter(|order| at.duration_since(order.at) < FORGOTTEN);
                let times = recent.map_or(0, |order| order.times) + 1;
                self.surveys.remove(&node);
                self.orders.insert(node.clone(), Order { id, may_shut_down, at, times });
                self.about(&node)
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
            Seen::Blind(why, at) => {
                for node in self.orders.keys() {
                    // Where it stood is not where it stands.
                    self.surveys.remove(node);
                    let known = self.blind.entry(node.clone()).or_insert_with(|| (String::new(), at));
                    known.0.clone_from(&why);
                }
                Touched::Everybody
            }
            Seen::Unread(what, why, at) => {
                let new = !self.unread.contains_key(&what);
                let known = self.unread.entry(what).or_insert_with(|| (String::new(), at));
                let same = !new && known.0 == why;
                known.0 = why;
                if same { Touched::nobody() } else { Touched::Everybody }
            }
            Seen::Left(node, left) => {
                let touched = self.about(&node);
                self.left.insert(node, left);
                touched
            }
            Seen::Read(what) => match self.unread.remove(&what) {
                Some(_) => Touched::Everybody,
                None => Touched::nobody(),
            },
        }
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
    pub fn record(&self, node: &str, now: Timestamp) -> Option<&Record> {
        let lease = self.lease(node).and_then(|lease| lease.record.as_deref());
        let is_this = |kept: &&Kept| self.nodes.get(node).is_some_and(|node| node.uid == kept.record.uid);
        let counts = |kept: &&Kept| kept.until.is_none_or(|until| now < until);
        let kept = || self.records.get(&lease_key(node)).filter(is_this).filter(counts);
        lease.filter(|record| record.owner == self.owner.0).or_else(|| kept().map(|kept| &*kept.record))
    }

    /// A node that carries our mark although no object is about it: a cordon that landed after it was given up, or a forgery.
    fn is_stray(&self, node: &str) -> bool {
        self.is_marked(node) && !self.by_node.contains_key(node) && !self.orders.contains_key(node)
    }

    /// Stands for a stray node among the objects; no object can have this name.
    fn stray_id(node: &str) -> Id {
        Id { family: Family::Medik8s, name: format!("node/{node}") }
    }

    /// The stray node that is meant, if it is still one.
    pub fn stray(&self, id: &Id) -> Option<&Node> {
        let name = id.name.strip_prefix("node/")?;
        self.nodes.get(name).filter(|_| self.is_stray(name))
    }

    /// Another installation looks after the node: its lease is on it and has not lapsed.
    pub fn is_served_elsewhere(&self, node: &str, now: Timestamp) -> bool {
        self.lease(node).is_some_and(|lease| {
            is_maintenance(&lease.holder) && lease.holder != self.owner.0 && lease.protects(now)
        })
    }

    fn apply_object(&mut self, object: Maintenance) -> Touched {
        let (id, node) = (object.id.clone(), object.node.clone());
        let known = self.objects.get(&id);
        let older = |known: &Maintenance| is_older(&object.resource_version, &known.resource_version);
        if known.is_some_and(|known| known.uid == object.uid && older(known)) {
            return Touched::nobody();
        }
        let leaves = object.deleting && known.is_some_and(|known| !known.deleting);
        let replaced = known.is_some_and(|known| known.uid != object.uid || known.node != object.node);
        if replaced {
            self.remove(&id);
        }
        self.by_node.entry(node.clone()).or_default().insert(id.clone());
        self.objects.insert(id, object);
        if leaves || replaced { Touched::Everybody } else { self.about(&node) }
    }

    fn remove(&mut self, id: &Id) {
        if let Some(object) = self.objects.remove(id)
            && let Some(ids) = self.by_node.get_mut(&object.node)
        {
            ids.remove(id);
            self.left.remove(&object.node);
            if ids.is_empty() {
                self.by_node.remove(&object.node);
            }
        }
    }

    fn apply_node(&mut self, node: Node) -> Touched {
        let name = node.name.clone();
        let known = self.nodes.get(&name);
        let older = |known: &Node| is_older(&node.resource_version, &known.resource_version);
        if known.is_some_and(|known| known.uid == node.uid && older(known)) {
            return Touched::nobody();
        }
        let new = known.is_none();
        // Nodes report all the time; what does not concern us is no reason to look.
        let bare = |node: &Node| Node { resource_version: String::new(), health_since: None, ..node.clone() };
        let same = known.is_some_and(|known| bare(known) == bare(&node));
        self.nodes.insert(name.clone(), node);
        match (new, same) {
            (true, _) => Touched::Everybody,
            (_, true) => Touched::nobody(),
            _ => self.about(&name),
        }
    }

    /// Forgets what a fresh list is about to say again.
    pub fn clear(&mut self, covered: impl Fn(&Subject<'_>) -> bool) {
        let gone: Vec<Id> = self
            .objects
            .values()
            .filter(|object| covered(&Subject::Object(object)))
            .map(|object| object.id.clone())
            .collect();
        for id in &gone {
            self.remove(id);
        }
        self.nodes.retain(|_, node| !covered(&Subject::Node(node)));
        self.leases.retain(|_, lease| !covered(&Subject::Lease(lease)));
        // When a lease went that the list does not have is not known; so its record does not count any more.
        self.records.retain(|key, kept| kept.until.is_some() || self.leases.contains_key(key));
        if covered(&Subject::Reviewing) {
            self.reviewing = Reviewing::Absent;
        }
    }

    /// The drain was dropped: nothing is ordered any more.
    pub fn forget_orders(&mut self) {
        self.orders.clear();
        self.surveys.clear();
        self.blind.clear();
    }

    /// All there are, and those that are gone but whose node is still drained.
    pub fn everybody(&self) -> BTreeSet<Id> {
        let ordered = self.orders.values().map(|order| order.id.clone());
        let strays = self.nodes.keys().filter(|node| self.is_stray(node)).map(|node| Self::stray_id(node));
        self.objects.keys().cloned().chain(ordered).chain(strays).collect()
    }

    fn about(&self, node: &str) -> Touched {
        let ordered = self.orders.get(node).map(|order| order.id.clone());
        let named = self.by_node.get(node).into_iter().flatten().cloned();
        let stray = self.is_stray(node).then(|| Self::stray_id(node));
        Touched::Some(named.chain(ordered).chain(stray).collect())
    }

    fn leased(&self, key: &Key) -> Touched {
        // Names of leases are in lower case; those of nodes are by rule.
        let node = key.name.strip_prefix("node-").unwrap_or_default();
        self.about(node)
    }

    pub fn object(&self, id: &Id) -> Option<&Maintenance> {
        self.objects.get(id)
    }

    pub fn objects(&self) -> impl Iterator<Item = &Maintenance> {
        self.objects.values()
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub fn lease(&self, node: &str) -> Option<&Lease> {
        self.leases.get(&lease_key(node))
    }

    pub fn survey(&self, node: &str) -> Option<&Survey> {
        self.surveys.get(node)
    }

    pub fn order(&self, node: &str) -> Option<&Order> {
        self.orders.get(node)
    }

    /// The node that is drained for an object.
    pub fn ordered_by(&self, id: &Id) -> Option<&str> {
        self.orders.iter().find(|(_, order)| order.id == *id).map(|(node, _)| node.as_str())
    }

    pub fn quorum(&self, node: &str) -> Option<&(Result<(), String>, Timestamp)> {
        self.quorum.get(node)
    }

    pub fn reviewing(&self) -> &Reviewing {
        &self.reviewing
    }

    /// Our mark is on the node.
    pub fn is_marked(&self, node: &str) -> bool {
        matches!(
            self.nodes.get(node).and_then(|node| node.mark.as_ref()),
            Some(MarkState::Valid(mark)) if mark.owner == self.owner.0
        )
    }

    /// Whether something was done to its node for this object.
    pub fn has_begun(&self, object: &Maintenance) -> bool {
        match self.orders.get(&object.node) {
            Some(order) => order.id == object.id,
            None => self.is_marked(&object.node) && self.first_for(&object.node) == Some(&object.id),
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

    /// Of several objects for a node the one that counts: whoever was written into the mark, else the oldest that stays.
    pub fn first_for(&self, node: &str) -> Option<&Id> {
        if let Some(Node { mark: Some(MarkState::Valid(mark)), .. }) = self.nodes.get(node)
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

/// What a fresh list may replace.
pub enum Subject<'a> {
    Object(&'a Maintenance),
    Node(&'a Node),
    Lease(&'a Lease),
    /// The configuration by which objects are reviewed.
    Reviewing,
}
