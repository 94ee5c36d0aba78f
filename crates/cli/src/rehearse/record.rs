//! What happens in a rehearsal, as the store of the embedded server sees it: every commit, in order, with nothing missed.

use std::collections::{BTreeMap, BTreeSet};

use evac_apiserver::store::{Change, ChangeKind};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::objects::{key, text};

const MIGRATIONS: &str = "virtualmachineinstancemigrations.kubevirt.io";
const INSTANCES: &str = "virtualmachineinstances.kubevirt.io";

/// A guest on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    pub guest: String,
    pub from: String,
    /// Where its target pod is; missing as long as that has no place.
    pub to: Option<String>,
    /// When the migration was asked for.
    pub asked: Timestamp,
    /// When it got its slot; missing if it never did.
    pub begun: Option<Timestamp>,
    /// When the copy was over, one way or the other.
    pub ended: Option<Timestamp>,
    pub succeeded: bool,
}

/// A pod that was told to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leave {
    pub pod: String,
    pub node: String,
    pub asked: Timestamp,
    pub gone: Option<Timestamp>,
}

/// A pod that was made and found a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Start {
    pub pod: String,
    /// Kind and name of what made it.
    pub owner: Option<String>,
    pub node: String,
    pub at: Timestamp,
}

/// Everything that is worth telling about one run.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// By the uid of the migration, in the order in which they were asked for.
    moves: Vec<(String, Move)>,
    leaves: BTreeMap<String, Leave>,
    starts: BTreeMap<String, Start>,
    /// Pods that had a place at the beginning.
    known: BTreeSet<String>,
    /// Where each guest is.
    hosts: BTreeMap<String, String>,
    /// Migrations that have a slot now.
    running: BTreeSet<String>,
    peak: usize,
    refused: BTreeSet<String>,
}

impl Record {
    /// Where guests were at the beginning, and which pods there were.
    pub fn begin(instances: &[Value], pods: &[Value]) -> Self {
        let host = |one: &Value| (key(one), text(one, "/status/nodeName").to_owned());
        let placed = pods.iter().filter(|pod| !text(pod, "/spec/nodeName").is_empty());
        Self {
            hosts: instances.iter().map(host).collect(),
            known: placed.map(|pod| text(pod, "/metadata/uid").to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Guests on their way, in the order in which they were asked to go.
    pub fn moves(&self) -> Vec<Move> {
        self.moves.iter().map(|(_, one)| one.clone()).collect()
    }

    /// Pods of no guest that had to leave, by the time at which they were asked.
    pub fn leaves(&self) -> Vec<Leave> {
        let mut all: Vec<Leave> = self.leaves.values().cloned().collect();
        all.sort_by(|a, b| (a.asked, &a.pod).cmp(&(b.asked, &b.pod)));
        all
    }

    /// Pods that were started, by time.
    pub fn starts(&self) -> Vec<Start> {
        let mut all: Vec<Start> = self.starts.values().cloned().collect();
        all.sort_by(|a, b| (a.at, &a.pod).cmp(&(b.at, &b.pod)));
        all
    }

    /// The most migrations at any moment.
    pub fn peak(&self) -> usize {
        self.peak
    }

    pub fn see(&mut self, resource: &str, change: &Change, now: Timestamp) {
        let is_gone = change.kind == ChangeKind::Deleted;
        match resource {
            MIGRATIONS => self.migration(&change.object.value(), is_gone, now),
            INSTANCES => self.instance(&change.object.value(), now),
            "pods" => self.pod(&change.object.value(), is_gone, now),
            "events" => self.event(&change.object.value()),
            _ => {}
        }
    }

    /// Pods that could not be made, in the words of those who tried.
    pub fn refused(&self) -> impl Iterator<Item = &String> {
        self.refused.iter()
    }

    fn event(&mut self, object: &Value) {
        if text(object, "/reason") == "FailedCreate" {
            let about = object.pointer("/involvedObject");
            let about = about.map(|one| format!("{} {}", text(one, "/kind"), text(one, "/name")));
            let message = text(object, "/message");
            self.refused.insert(format!("{}: {message}", about.unwrap_or_default()));
        }
    }

    fn of(&mut self, uid: &str) -> Option<&mut Move> {
        self.moves.iter_mut().find(|(known, _)| known == uid).map(|(_, one)| one)
    }

    fn migration(&mut self, object: &Value, is_gone: bool, now: Timestamp) {
        let uid = text(object, "/metadata/uid");
        let guest = format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/spec/vmiName"));
        if self.of(uid).is_none() && !is_gone {
            let from = self.hosts.get(&guest).cloned().unwrap_or_default();
            let new = Move { guest, from, to: None, asked: now, begun: None, ended: None, succeeded: false };
            self.moves.push((uid.to_owned(), new));
        }
        let phase = text(object, "/status/phase");
        let is_over = is_gone || matches!(phase, "Succeeded" | "Failed");
        if is_over {
            self.ends(uid, phase == "Succeeded", now);
        }
    }

    fn ends(&mut self, uid: &str, succeeded: bool, now: Timestamp) {
        self.running.remove(uid);
        if let Some(one) = self.of(uid) {
            one.ended.get_or_insert(now);
            one.succeeded |= succeeded;
        }
    }

    fn instance(&mut self, object: &Value, now: Timestamp) {
        let guest = key(object);
        let node = text(object, "/status/nodeName");
        if !node.is_empty() {
            self.hosts.insert(guest, node.to_owned());
        }
        let state = &object["status"]["migrationState"];
        if !text(state, "/endTimestamp").is_empty() {
            self.ends(text(state, "/migrationUid"), false, now);
        }
    }

    fn pod(&mut self, object: &Value, is_gone: bool, now: Timestamp) {
        let uid = text(object, "/metadata/uid");
        let node = text(object, "/spec/nodeName");
        let job = text(object, "/metadata/labels/kubevirt.io~1migrationJobUID");
        let is_over = is_gone || matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
        if text(object, "/metadata/labels/kubevirt.io") == "virt-launcher" {
            if !job.is_empty() && !is_over {
                self.target(job, node, now);
            }
            return;
        }
        if !text(object, "/metadata/deletionTimestamp").is_empty() && !node.is_empty() {
            let leave = || Leave { pod: key(object), node: node.to_owned(), asked: now, gone: None };
            let leave = self.leaves.entry(uid.to_owned()).or_insert_with(leave);
            if is_over {
                leave.gone.get_or_insert(now);
            }
        } else if !node.is_empty() && !is_over && !self.known.contains(uid) {
            let owner = object.pointer("/metadata/ownerReferences/0");
            let owner = owner.map(|one| format!("{} {}", text(one, "/kind"), text(one, "/name")));
            let start = || Start { pod: key(object), owner, node: node.to_owned(), at: now };
            self.starts.entry(uid.to_owned()).or_insert_with(start);
        }
    }

    /// A target pod takes a slot until the copy is over.
    fn target(&mut self, job: &str, node: &str, now: Timestamp) {
        let Some(one) = self.of(job).filter(|one| one.ended.is_none()) else { return };
        one.begun.get_or_insert(now);
        if !node.is_empty() {
            one.to = Some(node.to_owned());
        }
        self.running.insert(job.to_owned());
        self.peak = self.peak.max(self.running.len());
    }
}
