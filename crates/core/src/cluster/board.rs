//! Where the pods of some nodes would go: all nodes of a cluster at once, and room that is given once.
//!
//! ```text
//!  Places ─▶ Board   for each kind of pod: nodes that its rules allow ─ those with room, the best first   (made once, when first asked for)
//!              │
//!              └─▶ Seating   one drain: nodes that are emptied, room that was given, pods that have moved   (small, made for each drain)
//! ```
//!
//! Pods that ask for the same are one kind and are judged once. A drain changes the room of few nodes, so a pod finds its place among these and the best of
//! the untouched ones, however large the cluster is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use serde::Serialize;

use super::bits::Bits;
use super::company::{Company, Neighbours};
use super::place::{
    Amounts, CORDON, Lasting, ONE, Place, Places, Wants, has_room, is_cpu, keeps_off, lacking, lasting,
};
use super::score::{Stock, UNSAID_CPU, UNSAID_MEMORY, emptiness, preference, soft_taints, together};
use crate::cluster::fact::{Key, Taint};

/// All nodes, arranged for many questions.
#[derive(Debug)]
pub struct Board<'a> {
    places: &'a Places,
    names: Vec<&'a str>,
    nodes: Vec<&'a Place>,
    position: BTreeMap<&'a str, usize>,
    resources: BTreeMap<&'a str, usize>,
    /// For each node what is free of each resource.
    free: Vec<Vec<i128>>,
    all: Bits,
    cordoned: Bits,
    /// Nodes with the same taints.
    tainted: Vec<(&'a [Taint], Bits)>,
    /// Nodes that take new pods which tolerate nothing.
    open: Bits,
    /// By the number of a resource, what is free of it on these while nothing has moved.
    spare: BTreeMap<usize, i128>,
    labelled: BTreeMap<(&'a str, &'a str), Bits>,
    /// By where what is wanted is in memory: what pods want alike is there once.
    kinds: BTreeMap<usize, Rc<Kind>>,
}

/// Pods that ask for the same.
#[derive(Debug)]
struct Kind {
    /// What is asked of each resource; none has a resource without a number.
    requests: Vec<(Option<usize>, i128)>,
    /// Nodes that its rules allow, full ones included.
    allowed: Bits,
    /// Allowed nodes with room while nothing has moved, the best first.
    ranking: Vec<(i64, usize)>,
    /// What soft taints and preferences add to the score of each node; empty where they are alike everywhere.
    liking: Vec<i64>,
}

/// The kinds that are kept; a cluster in which each guest is different would need too much memory otherwise.
const KINDS: usize = 4096;

/// What one drain has changed.
#[derive(Debug, Clone, Default)]
pub struct Seating {
    closed: Bits,
    /// What is free on nodes where a pod was put.
    left: BTreeMap<usize, Vec<i128>>,
    /// Where pods are that have moved.
    moved: BTreeMap<Key, usize>,
}

/// The place of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seat {
    /// Other nodes, or what the pod asks for, were not looked at.
    Unlooked,
    /// No node takes it, however few others move.
    Nowhere,
    /// A node would take it, and others have taken the room before it.
    Taken,
    /// A node has room for it, but other pods that it has to be near to, or must not be near to, are not where they would have to be yet.
    Company,
    /// It goes there.
    On {
        /// The node it most likely goes to.
        node: String,
        /// No other node would take it.
        only: bool,
    },
}

/// How much a node lacks of a resource for one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Short {
    /// The resource.
    pub resource: String,
    /// In thousandths of its unit.
    pub milli: i128,
}

impl<'a> Board<'a> {
    /// Arranges the nodes.
    pub fn new(places: &'a Places) -> Self {
        let names: Vec<&str> = places.nodes.keys().map(String::as_str).collect();
        let nodes: Vec<&Place> = places.nodes.values().collect();
        let mut resources: BTreeMap<&str, usize> = BTreeMap::new();
        for resource in
            ["pods"].into_iter().chain(nodes.iter().flat_map(|node| node.free.keys().map(String::as_str)))
        {
            let next = resources.len();
            resources.entry(resource).or_insert(next);
        }
        let free = nodes
            .iter()
            .map(|node| {
                let mut row = vec![0; resources.len()];
                for (resource, amount) in &node.free {
                    row[resources[resource.as_str()]] = *amount;
                }
                row
            })
            .collect();
        let mut tainted: BTreeMap<&[Taint], Vec<usize>> = BTreeMap::new();
        for (at, node) in nodes.iter().enumerate().filter(|(_, node)| !node.taints.is_empty()) {
            tainted.entry(&node.taints).or_default().push(at);
        }
        let count = nodes.len();
        let with = |positions: Vec<usize>| {
            let mut bits = Bits::none(count);
            for at in positions {
                bits.add(at);
            }
            bits
        };
        let shut =
            |node: &Place| node.unschedulable || node.taints.iter().any(|taint| keeps_off(&taint.effect));
        Self {
            places,
            open: Bits::of(count, |at| !shut(nodes[at])),
            all: Bits::of(count, |_| true),
            cordoned: Bits::of(count, |at| nodes[at].unschedulable),
            tainted: tainted.into_iter().map(|(taints, at)| (taints, with(at))).collect(),
            position: names.iter().enumerate().map(|(at, name)| (*name, at)).collect(),
            names,
            nodes,
            resources,
            free,
            spare: BTreeMap::new(),
            labelled: BTreeMap::new(),
            kinds: BTreeMap::new(),
        }
    }

    /// Begins a drain of these nodes.
    pub fn seating<'n>(&self, closed: impl IntoIterator<Item = &'n str>) -> Seating {
        let mut bits = Bits::none(self.nodes.len());
        for at in closed.into_iter().filter_map(|name| self.position.get(name)) {
            bits.add(*at);
        }
        Seating { closed: bits, ..Seating::default() }
    }

    /// Nodes with this label.
    fn labelled(&mut self, key: &'a str, value: &'a str) -> &Bits {
        let nodes = &self.nodes;
        self.labelled.entry((key, value)).or_insert_with(|| {
            Bits::of(nodes.len(), |at| nodes[at].labels.get(key).is_some_and(|has| has == value))
        })
    }

    /// The taint of a group of nodes that keeps a pod off them.
    fn untolerated(wants: &Wants, taints: &'a [Taint]) -> Option<&'a Taint> {
        let tolerated = |taint: &Taint| {
            wants.tolerates(&taint.key, taint.value.as_deref().unwrap_or_default(), &taint.effect)
        };
        taints.iter().find(|taint| keeps_off(&taint.effect) && !tolerated(taint))
    }

    fn kind(&mut self, wants: &'a Arc<Wants>) -> Rc<Kind> {
        let at = Arc::as_ptr(wants).addr();
        if let Some(known) = self.kinds.get(&at) {
            return known.clone();
        }
        if self.kinds.len() >= KINDS {
            self.kinds.clear();
        }
        let kind = Rc::new(self.judged(wants));
        self.kinds.insert(at, kind.clone());
        kind
    }

    fn judged(&mut self, wants: &'a Wants) -> Kind {
        let mut allowed = self.all.clone();
        if !wants.tolerates(CORDON.0, "", CORDON.1) {
            allowed.less(&self.cordoned);
        }
        for (taints, nodes) in &self.tainted {
            if Self::untolerated(wants, taints).is_some() {
                allowed.less(nodes);
            }
        }
        for (key, value) in &wants.selector {
            allowed.keep(self.labelled(key, value));
        }
        if wants.affinity.is_some() {
            let fits = |at: usize| allowed.has(at) && !wants.excludes(self.names[at], self.nodes[at]);
            allowed = Bits::of(self.nodes.len(), fits);
        }
        let requests = wants
            .requests
            .iter()
            .map(|(resource, amount)| (self.resources.get(resource.as_str()).copied(), *amount))
            .collect();
        let mut kind = Kind { requests, allowed, ranking: Vec::new(), liking: self.liking(wants) };
        let open = kind.allowed.iter().filter(|at| kind.has_room(&self.free[*at]));
        kind.ranking = open.map(|at| (self.score(&kind, wants, at, &self.free[at]), at)).collect();
        kind.ranking.sort_by_key(|(score, at)| (Reverse(*score), *at));
        kind
    }

    fn liking(&self, wants: &Wants) -> Vec<i64> {
        let soft = |taint: &Taint| !keeps_off(&taint.effect);
        if wants.preferred.is_empty() && !self.tainted.iter().any(|(taints, _)| taints.iter().any(soft)) {
            return Vec::new();
        }
        let disliked = |place: &Place| {
            let value = |taint: &Taint| taint.value.clone().unwrap_or_default();
            let minds =
                |taint: &&Taint| soft(taint) && !wants.tolerates(&taint.key, &value(taint), &taint.effect);
            place.taints.iter().filter(minds).count()
        };
        let one = |(name, place): (&&str, &&Place)| {
            let terms =
                wants.preferred.iter().map(|(weight, term)| (*weight, term.holds(name, &place.labels)));
            together(0, preference(terms), soft_taints(disliked(place)))
        };
        self.names.iter().zip(&self.nodes).map(one).collect()
    }

    fn score(&self, kind: &Kind, wants: &Wants, at: usize, free: &[i128]) -> i64 {
        let node = self.nodes[at];
        let stock = |resource: &str, unsaid: i128| {
            let capacity = node.size.get(resource).copied().unwrap_or(0);
            let free = self.resources.get(resource).map_or(0, |number| free[*number]);
            Stock { capacity, said: capacity - free, unsaid }
        };
        let pods = stock("pods", ONE).said / ONE;
        let wanted = |resource: &str| wants.requests.get(resource).copied();
        let empty = emptiness(
            stock("cpu", UNSAID_CPU),
            stock("memory", UNSAID_MEMORY),
            pods,
            (wanted("cpu"), wanted("memory")),
        );
        empty + kind.liking.get(at).copied().unwrap_or(0)
    }

    /// What other pods mean for one that leaves its node. One that is moved is there until its copy runs, so its copy has to get along with it.
    fn neighbours(&self, pod: &Key, wants: &Wants, seating: &Seating, is_moved: bool) -> Neighbours<'a> {
        let values = |company: &usize| -> Option<(&'a str, BTreeSet<String>)> {
            let company = self.places.companies.get(*company)?;
            let members = company.members.iter().filter(|(member, _)| is_moved || *member != pod);
            let nodes = members.filter_map(|(member, node)| match seating.moved.get(member) {
                Some(at) => Some(*at),
                None => self.position.get(node.as_str()).copied(),
            });
            let domain = |at: usize| self.nodes[at].labels.get(&company.topology).cloned();
            Some((company.topology.as_str(), nodes.filter_map(domain).collect()))
        };
        let near: Vec<_> = wants.near.iter().filter_map(values).collect();
        let is_one_of = |company: &usize| {
            self.places.companies.get(*company).is_some_and(|company| company.members.contains_key(pod))
        };
        let first_of_group = !is_moved
            && !near.is_empty()
            && near.iter().all(|(_, values)| values.is_empty())
            && wants.near.iter().all(is_one_of);
        let apart = wants.apart.iter().filter_map(values).collect();
        Neighbours { near, first_of_group, apart, repelled: Vec::new() }
    }

    /// Gives a pod the best place that is left, if there is one. `is_moved` tells a guest whose copy starts before it ends from a pod that ends first.
    pub fn seat(&mut self, seating: &mut Seating, pod: &Key, is_moved: bool) -> Seat {
        let places = self.places;
        let Some(wants) = places.wants.get(pod) else { return Seat::Unlooked };
        let kind = self.kind(wants);
        let neighbours = (!wants.near.is_empty() || !wants.apart.is_empty())
            .then(|| self.neighbours(pod, wants, seating, is_moved));
        let gets_along = |at: usize| {
            neighbours.as_ref().is_none_or(|others| others.against(&self.nodes[at].labels).is_none())
        };
        let mut open = kind.ranking.iter().filter(|(_, at)| !seating.closed.has(*at));
        let Some(first) = open.clone().next() else { return Seat::Nowhere };
        let only = open.clone().nth(1).is_none();
        let mut has_room = false;
        // The best of those that are as they were, against each that has taken somebody in.
        let untouched = open.find(|(_, at)| {
            let untouched = !seating.left.contains_key(at);
            has_room |= untouched;
            untouched && gets_along(*at)
        });
        let mut best = untouched.map(|(score, at)| (*score, Reverse(*at)));
        for (at, free) in &seating.left {
            if kind.allowed.has(*at) && !seating.closed.has(*at) && kind.has_room(free) {
                has_room = true;
                if gets_along(*at) {
                    best = best.max(Some((self.score(&kind, wants, *at, free), Reverse(*at))));
                }
            }
        }
        let Some((_, Reverse(at))) = best else {
            return if has_room { Seat::Company } else { Seat::Taken };
        };
        debug_assert!(!only || first.1 == at, "the only node is the best one");
        let left = seating.left.entry(at).or_insert_with(|| self.free[at].clone());
        kind.take(left);
        seating.moved.insert(pod.clone(), at);
        Seat::On { node: self.names[at].to_owned(), only }
    }

    /// What is free of a resource on all nodes that take new pods, in thousandths.
    pub fn spare(&mut self, seating: &Seating, resource: &str) -> Option<i128> {
        let number = *self.resources.get(resource)?;
        let free = |at: usize| self.free[at][number].max(0);
        let mut spare = *self.spare.entry(number).or_insert_with(|| self.open.iter().map(free).sum());
        // A drain changes few of them.
        for at in seating.closed.iter().filter(|at| self.open.has(*at)) {
            spare -= free(at);
        }
        for (at, left) in seating.left.iter().filter(|(at, _)| self.open.has(**at)) {
            spare += left[number].max(0) - free(*at);
        }
        Some(spare)
    }

    /// What the node lacks that comes closest to taking a pod, if nothing but room keeps it off some node.
    pub fn short(&mut self, seating: &Seating, pod: &Key) -> Option<Short> {
        let places = self.places;
        let wants = places.wants.get(pod)?;
        let kind = self.kind(wants);
        let mut closest: Option<(usize, i128, &str)> = None;
        for at in kind.allowed.iter().filter(|at| !seating.closed.has(*at)) {
            let row = seating.left.get(&at).unwrap_or(&self.free[at]);
            let free = |resource: &str| self.resources.get(resource).map_or(0, |number| row[*number]);
            let lacking: Vec<_> = lacking(&wants.requests, free).collect();
            if let Some((resource, amount)) = lacking.first() {
                let this = (lacking.len(), amount - free(resource), *resource);
                if closest.is_none_or(|known| this < known) {
                    closest = Some(this);
                }
            }
        }
        closest.map(|(_, milli, resource)| Short { resource: resource.to_owned(), milli })
    }

    /// The nodes that would take a pod while nothing has moved, or in one sentence why none does.
    pub fn targets(&mut self, pod: &Key, closed: &[String]) -> Option<Result<Vec<String>, String>> {
        let places = self.places;
        let wants = places.wants.get(pod)?;
        let kind = self.kind(wants);
        let seating = self.seating(closed.iter().map(String::as_str));
        let neighbours = self.neighbours(pod, wants, &seating, true);
        let open = kind.ranking.iter().map(|(_, at)| *at).filter(|at| !seating.closed.has(*at));
        let mut fitting: Vec<usize> =
            open.filter(|at| neighbours.against(&self.nodes[*at].labels).is_none()).collect();
        if fitting.is_empty() {
            return Some(Err(self.why_nowhere(pod, &seating)));
        }
        fitting.sort_unstable();
        Some(Ok(fitting.into_iter().map(|at| self.names[at].to_owned()).collect()))
    }

    /// Why none of the open nodes takes a pod: the first rule against each of them, in the order in which the scheduler asks.
    pub fn why_nowhere(&mut self, pod: &Key, seating: &Seating) -> String {
        let places = self.places;
        let mut rest = self.all.clone();
        rest.less(&seating.closed);
        let nodes = match rest.count() {
            0 => return "there is no other node".into(),
            1 => "1 other node".to_owned(),
            more => format!("{more} other nodes"),
        };
        let Some(wants) = places.wants.get(pod) else { return nodes };
        let mut against: BTreeMap<String, usize> = BTreeMap::new();
        let mut cut = |rest: &mut Bits, out: &Bits, why: &dyn Fn() -> String| {
            let out = rest.common(out);
            let count = out.count();
            if count > 0 {
                rest.less(&out);
                *against.entry(why()).or_default() += count;
            }
        };
        if !wants.tolerates(CORDON.0, "", CORDON.1) {
            cut(&mut rest, &self.cordoned, &|| "is cordoned".into());
        }
        for (taints, nodes) in &self.tainted {
            if let Some(taint) = Self::untolerated(wants, taints) {
                cut(&mut rest, nodes, &|| format!("has taint {taint}, which it does not tolerate"));
            }
        }
        for (key, value) in &wants.selector {
            let mut lacking = self.all.clone();
            lacking.less(self.labelled(key, value));
            let asks = if is_cpu(key) { "its CPU model asks for" } else { "its node selector asks for" };
            cut(&mut rest, &lacking, &|| format!("lacks label {key}={value}, which {asks}"));
        }
        let excluded =
            Bits::of(self.nodes.len(), |at| rest.has(at) && wants.excludes(self.names[at], self.nodes[at]));
        cut(&mut rest, &excluded, &|| "does not match its node affinity".into());
        let neighbours = self.neighbours(pod, wants, seating, true);
        for at in rest.iter() {
            let free = seating.left.get(&at).unwrap_or(&self.free[at]);
            let why = match self.lacking(&wants.requests, free) {
                Some("pods") => "takes no more pods".to_owned(),
                Some(other) => format!("has too little {other} left"),
                None if neighbours.against(&self.nodes[at].labels).is_some() => {
                    "does not match its affinity to other pods".to_owned()
                }
                None => "would take it".to_owned(),
            };
            *against.entry(why).or_default() += 1;
        }
        let rules: Vec<String> = against.iter().map(|(why, count)| format!("{count} {why}")).collect();
        format!("{nodes}: {}", rules.join(", "))
    }

    /// Reads a row of numbers by the names of resources.
    fn lacking<'w>(&self, requests: &'w Amounts, free: &[i128]) -> Option<&'w str> {
        let free = |resource: &str| self.resources.get(resource).map_or(0, |number| free[*number]);
        lacking(requests, free).next().map(|(resource, _)| resource)
    }

    /// Why no other node can ever take a pod, as long as nodes keep their labels and their size. Cordons, taints and full nodes are not counted: those clear.
    pub fn never(&mut self, pod: &Key, node: &str) -> Option<String> {
        let places = self.places;
        let wants = places.wants.get(pod)?;
        let here = self.position.get(node).copied();
        let mut rules = BTreeSet::new();
        let mut rest = self.all.clone();
        rest.less(&self.seating([node]).closed);
        for (key, value) in &wants.selector {
            let labelled = self.labelled(key, value);
            if rest.common(labelled) != rest {
                rules.insert(if is_cpu(key) { Lasting::CpuModel } else { Lasting::Selector });
                rest.keep(labelled);
            }
        }
        // The first that could take it one day ends the search.
        for at in rest.iter() {
            match lasting(wants, self.names[at], self.nodes[at]) {
                Some(rule) => rules.insert(rule),
                None if self.clings(pod, node) => {
                    return Some(format!(
                        "it has to be near to pods on {node}, and these cannot leave before it"
                    ));
                }
                None => return None,
            };
        }
        let matches_here = here.is_some_and(|at| lasting(wants, node, self.nodes[at]).is_none());
        let only = if matches_here { format!("only {node}") } else { "no node".to_owned() };
        Some(match rules.into_iter().collect::<Vec<_>>().as_slice() {
            [] => "there is no other node".into(),
            [Lasting::Selector] => format!("{only} matches its nodeSelector"),
            [Lasting::CpuModel] => format!("{only} has the CPU model it needs"),
            [Lasting::Affinity] => format!("{only} matches its node affinity"),
            [Lasting::Size] => format!("{only} is large enough for it"),
            _ => self.targets(pod, &[node.to_owned()])?.err()?,
        })
    }

    /// Whether a pod has to be near to others on its node that cannot leave before it: itself among them, or such as have to be near to it.
    fn clings(&self, pod: &Key, node: &str) -> bool {
        let places = self.places;
        let near = |pod: &Key| {
            let positions = places.wants.get(pod).map(|wants| wants.near.as_slice()).unwrap_or_default();
            positions.iter().filter_map(|position| places.companies.get(*position))
        };
        let is_here =
            |company: &Company, member: &Key| company.members.get(member).is_some_and(|on| on == node);
        // Near to a member there may be other nodes, where the label stands for more than one.
        let reaches_out = |company: &Company, on: &str| {
            let value = places.nodes.get(on).and_then(|place| place.labels.get(&company.topology));
            let same = |place: &Place| place.labels.get(&company.topology) == value;
            value.is_some() && places.nodes.iter().any(|(name, place)| name != node && same(place))
        };
        let mut stuck: BTreeSet<&Key> = [pod].into();
        let mut unseen = vec![pod];
        while let Some(next) = unseen.pop() {
            for company in near(next) {
                let here = company.members.keys().filter(|member| is_here(company, member));
                unseen.extend(here.filter(|member| near(member).next().is_some() && stuck.insert(member)));
            }
        }
        loop {
            let free: Vec<&Key> = stuck
                .iter()
                .copied()
                .filter(|pod| {
                    near(pod).all(|company| {
                        company.members.iter().any(|(member, on)| {
                            reaches_out(company, on)
                                || (is_here(company, member) && !stuck.contains(member) && member != *pod)
                        })
                    })
                })
                .collect();
            if free.is_empty() {
                return stuck.contains(pod);
            }
            for pod in free {
                stuck.remove(pod);
            }
        }
    }
}

impl Kind {
    fn has_room(&self, free: &[i128]) -> bool {
        let of = |number: &Option<usize>| number.map_or(0, |number| free[number]);
        // The first number is that of pods.
        has_room(free[0], ONE) && self.requests.iter().all(|(number, amount)| has_room(of(number), *amount))
    }

    fn take(&self, free: &mut [i128]) {
        free[0] -= ONE;
        for (number, amount) in &self.requests {
            if let Some(number) = number {
                free[*number] -= amount;
            }
        }
    }
}
