//! Which maintenances may run at the same time.
//!
//! First come, first served, within limits for the cluster and for each zone. One that has no room in its zone lets those of other zones
//! pass. Nodes of the control plane go one at a time whatever the limits are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::{Id, Maintenance, Registry};
use crate::cluster::fact::Node;
use crate::cluster::index::Index;
use crate::cluster::text::Text;
use crate::drain::quorum::is_control_plane;

const ZONE: &str = "topology.kubernetes.io/zone";

/// A number of nodes, or a share of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// So many; at least one.
    Nodes(usize),
    /// Of all nodes in the cluster or the zone, rounded down but to one at least.
    Percent(u8),
}

impl Share {
    /// At least one, or nothing could ever be maintained.
    fn of(self, all: usize) -> usize {
        match self {
            Self::Nodes(count) => count,
            Self::Percent(percent) => (all * usize::from(percent) / 100).max(1),
        }
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is neither a number of nodes from 1 nor a share such as 20%");
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent: u8 = percent.parse().map_err(|_| wrong())?;
                if (1..=100).contains(&percent) { Ok(Self::Percent(percent)) } else { Err(wrong()) }
            }
            None => match text.parse() {
                Ok(0) | Err(_) => Err(wrong()),
                Ok(count) => Ok(Self::Nodes(count)),
            },
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// How many nodes may be under maintenance at once; no limit where none is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Of all nodes.
    pub cluster: Option<Share>,
    /// Of the nodes with the same `topology.kubernetes.io/zone`; those without one count as one zone.
    pub zone: Option<Share>,
}

/// Why one has to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The reason of the condition, in CamelCase.
    pub reason: &'static str,
    /// The sentence beside it.
    pub message: String,
}

fn zone(node: &Node) -> &str {
    node.labels.get(ZONE).map_or("", Text::as_str)
}

struct Taken<'a> {
    nodes: BTreeSet<&'a str>,
    zones: BTreeMap<&'a str, usize>,
    control_plane: Option<&'a str>,
}

impl<'a> Taken<'a> {
    fn add(&mut self, node: &'a Node) {
        if self.nodes.insert(&node.name) {
            *self.zones.entry(zone(node)).or_default() += 1;
            if is_control_plane(node) {
                self.control_plane = Some(&node.name);
            }
        }
    }
}

/// Who may begin now, and why the others have to wait.
#[derive(Debug, Clone, Default)]
pub struct Turns(BTreeMap<Id, Wait>);

impl Turns {
    /// Hands out the room that is left: the oldest object first, after those that have begun.
    pub fn of(index: &Index, registry: &Registry, limits: &Limits) -> Self {
        let mut taken = Taken { nodes: BTreeSet::new(), zones: BTreeMap::new(), control_plane: None };
        let mut line: Vec<(&Maintenance, &Node)> = Vec::new();
        for one in registry.objects() {
            let Some(node) = index.node(&one.node) else { continue };
            if registry.has_begun(index, one) {
                taken.add(node);
            } else if !one.deleting && registry.first_for(index, &one.node) == Some(&one.id) {
                line.push((one, node));
            }
        }
        line.sort_by(|(a, _), (b, _)| (a.created, &a.id).cmp(&(b.created, &b.id)));
        let sizes = Sizes::of(index);
        let mut waits = BTreeMap::new();
        for (one, node) in line {
            match has_room(&sizes, limits, &taken, node) {
                Ok(()) => taken.add(node),
                Err(wait) => {
                    waits.insert(one.id.clone(), wait);
                }
            }
        }
        Self(waits)
    }

    /// Why this object has to wait; none if it may begin or has begun.
    pub fn wait_of(&self, id: &Id) -> Option<&Wait> {
        self.0.get(id)
    }
}

/// How many nodes there are, in all and in each zone.
struct Sizes<'a> {
    all: usize,
    zones: BTreeMap<&'a str, usize>,
}

impl<'a> Sizes<'a> {
    fn of(index: &'a Index) -> Self {
        let mut sizes = Self { all: 0, zones: BTreeMap::new() };
        for node in index.nodes() {
            sizes.all += 1;
            *sizes.zones.entry(zone(node)).or_default() += 1;
        }
        sizes
    }
}

fn has_room(sizes: &Sizes<'_>, limits: &Limits, taken: &Taken<'_>, node: &Node) -> Result<(), Wait> {
    if is_control_plane(node)
        && let Some(other) = taken.control_plane
    {
        let message =
            format!("waits because {other}, which is of the control plane too, is under maintenance");
        return Err(Wait { reason: "ControlPlane", message });
    }
    if let Some(limit) = limits.cluster.map(|share| share.of(sizes.all))
        && taken.nodes.len() >= limit
    {
        let message =
            format!("waits because {} of at most {limit} nodes are under maintenance", taken.nodes.len());
        return Err(Wait { reason: "ClusterLimit", message });
    }
    let here = zone(node);
    let in_zone = sizes.zones.get(here).copied().unwrap_or(0);
    let used = taken.zones.get(here).copied().unwrap_or(0);
    if let Some(limit) = limits.zone.map(|share| share.of(in_zone))
        && used >= limit
    {
        let place = if here.is_empty() { "without a zone".to_owned() } else { format!("of zone {here}") };
        let message = format!("waits because {used} of at most {limit} nodes {place} are under maintenance");
        return Err(Wait { reason: "ZoneLimit", message });
    }
    Ok(())
}
