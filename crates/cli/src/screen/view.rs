//! What is known of a drain at one moment, from what was told of it so far.

use std::collections::BTreeMap;

use evac_core::cluster::fact::Key;
use evac_core::cluster::natural::natural;
use evac_core::drain::step::Event;
use evac_core::drain::transfer::Copied;
use evac_core::{Fate, Reason};
use jiff::Timestamp;

use super::time_left::Told;

/// All nodes of a drain.
#[derive(Debug, Default)]
pub struct View {
    /// Those that are being emptied, by name in natural order.
    pub nodes: Vec<NodeView>,
    /// The work on so many is over.
    pub ended: usize,
    /// What left the nodes whose work is over, and what had to.
    pub ended_pods: Gone,
    pub pods: BTreeMap<Key, PodView>,
    pub tally: Tally,
    /// When the first was told, and the last.
    pub began: Option<Timestamp>,
    pub last: Option<Timestamp>,
}

#[derive(Debug)]
pub struct NodeView {
    pub name: String,
    /// Pods without those of machines.
    pub pods: Gone,
    pub vms: Gone,
    pub told: Option<Told>,
}

/// How many have left, of how many that have to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gone {
    pub gone: usize,
    pub total: usize,
}

impl std::ops::Add for Gone {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { gone: self.gone + other.gone, total: self.total + other.total }
    }
}

/// A pod that still has to leave.
#[derive(Debug)]
pub struct PodView {
    pub node: String,
    pub instance: Option<Key>,
    pub since: Timestamp,
    pub doing: Doing,
}

#[derive(Debug)]
pub enum Doing {
    NotAsked,
    /// Its eviction or deletion was sent.
    Asked,
    /// Its migration has not begun.
    InLine,
    Moving {
        phase: String,
        copied: Option<(u32, Copied)>,
    },
    /// Its migration failed and is tried again.
    Failed {
        failures: u32,
        retry_at: Option<Timestamp>,
    },
    /// What its tenant does about it.
    Tenant(String),
    Waiting(Box<Reason>),
}

/// What left, and how. Only what was seen is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Guests that run on another node.
    pub moved: usize,
    /// Pods of guests that were evicted: the guest was shut down. Whether it runs again is not seen here.
    pub shut_down: usize,
    pub evicted: usize,
    pub deleted: usize,
    /// By somebody else's doing.
    pub by_others: usize,
}

impl View {
    pub fn take(&mut self, at: Timestamp, event: &Event) {
        self.began.get_or_insert(at);
        self.last = Some(at);
        match event {
            Event::Planned { node, assessment } => {
                let mut known =
                    NodeView { name: node.clone(), pods: Gone::default(), vms: Gone::default(), told: None };
                for verdict in assessment.verdicts.iter().filter(|verdict| verdict.fate != Fate::Leave) {
                    let kind = if verdict.instance.is_some() { &mut known.vms } else { &mut known.pods };
                    kind.total += 1;
                    let instance = verdict.instance.clone();
                    let pod = PodView { node: node.clone(), instance, since: at, doing: Doing::NotAsked };
                    self.pods.insert(verdict.pod.clone(), pod);
                }
                self.nodes.push(known);
                self.nodes.sort_by(|one, other| natural(&one.name, &other.name));
            }
            Event::Progress { node, left, total, vms_left, vms_total } => {
                if let Some(known) = self.node(node) {
                    known.vms = Gone { gone: vms_total - vms_left, total: *vms_total };
                    let (left, total) = (left - vms_left, total - vms_total);
                    known.pods = Gone { gone: total - left, total };
                }
            }
            Event::Outlook { node, at_least_seconds, at_most_seconds, .. } => {
                if let Some(known) = self.node(node) {
                    known.told = Some(Told { at, at_least: *at_least_seconds, at_most: *at_most_seconds });
                }
            }
            Event::Evicting { finished: true, .. } => {}
            Event::Evicting { pod, node, .. } => self.set(at, node, pod, Doing::Asked),
            Event::Moving { node, pod, instance, .. } | Event::Adopted { node, pod, instance, .. } => {
                self.set_machine(at, node, pod, instance, Doing::InLine);
            }
            Event::MovePhase { node, pod, instance, phase, .. } => {
                let doing = match phase.as_str() {
                    "" | "Pending" => Doing::InLine,
                    phase => Doing::Moving { phase: phase.to_owned(), copied: self.copied(pod) },
                };
                self.set_machine(at, node, pod, instance, doing);
            }
            Event::Copying { node, pod, instance, attempt, copied, .. } => {
                let doing = Doing::Moving { phase: "Running".into(), copied: Some((*attempt, *copied)) };
                self.set_machine(at, node, pod, instance, doing);
            }
            Event::MoveFailed { node, pod, instance, failures, retry_at, .. } => {
                let doing = Doing::Failed { failures: *failures, retry_at: *retry_at };
                self.set_machine(at, node, pod, instance, doing);
            }
            Event::Tenant { node, pod, instance, tenant } => {
                self.set_machine(at, node, pod, instance, Doing::Tenant(tenant.words()));
            }
            Event::Waiting { node, blocker, also } => {
                for pod in std::iter::once(&blocker.pod).chain(also) {
                    self.set(at, node, pod, Doing::Waiting(Box::new(blocker.reason.clone())));
                }
            }
            Event::Left { pod, by_us, deleting, .. } => {
                let guest = self.pods.remove(pod).is_some_and(|pod| pod.instance.is_some());
                let count = match (by_us, guest, deleting) {
                    (false, ..) => &mut self.tally.by_others,
                    (true, true, _) => &mut self.tally.shut_down,
                    (true, false, true) => &mut self.tally.deleted,
                    (true, false, false) => &mut self.tally.evicted,
                };
                *count += 1;
            }
            Event::Moved { pod, .. } => {
                self.pods.remove(pod);
                self.tally.moved += 1;
            }
            Event::Ended { node, .. } => {
                self.pods.retain(|_, pod| pod.node != *node);
                if let Some(position) = self.nodes.iter().position(|known| known.name == *node) {
                    let known = self.nodes.remove(position);
                    self.ended += 1;
                    self.ended_pods = self.ended_pods + known.all();
                }
            }
            _ => {}
        }
    }

    /// From the first to the last that was told, in seconds.
    pub fn seconds(&self) -> f64 {
        let took = self.began.zip(self.last).map(|(began, last)| last.duration_since(began));
        took.map_or(0.0, |took| took.as_secs_f64().max(0.0))
    }

    fn node(&mut self, name: &str) -> Option<&mut NodeView> {
        self.nodes.iter_mut().find(|known| known.name == name)
    }

    fn set(&mut self, at: Timestamp, node: &str, pod: &Key, doing: Doing) {
        if let Some(known) = self.pods.get_mut(pod) {
            if std::mem::discriminant(&known.doing) != std::mem::discriminant(&doing) {
                known.since = at;
            }
            known.doing = doing;
        } else {
            // It came after the plan.
            let new = PodView { node: node.to_owned(), instance: None, since: at, doing };
            self.pods.insert(pod.clone(), new);
        }
    }

    fn set_machine(&mut self, at: Timestamp, node: &str, pod: &Key, instance: &Key, doing: Doing) {
        self.set(at, node, pod, doing);
        if let Some(known) = self.pods.get_mut(pod) {
            known.instance.get_or_insert_with(|| instance.clone());
        }
    }

    fn copied(&mut self, pod: &Key) -> Option<(u32, Copied)> {
        match &mut self.pods.get_mut(pod)?.doing {
            Doing::Moving { copied, .. } => copied.take(),
            _ => None,
        }
    }
}

impl NodeView {
    pub fn all(&self) -> Gone {
        self.pods + self.vms
    }
}
