//! The rows of the acceptance catalogue about NodeMaintenance that are decisions, and what the earlier operator got wrong.

mod course;
mod marks;
mod said;
mod turns;

use super::queue::{Limits, Turns};
use super::status::{BLOCKED, DRAINED, PERMISSION_IGNORED, WAITING, YIELDED};
use super::*;
use crate::cluster::fact::{Fact, Health, Key, Lease, Node};
use crate::cluster::index::{Index, ListedAt};
use crate::drain::ownership::{MarkState, lease_key, new_mark};
use crate::drain::progress::{DrainProgress, DrainStage};
use crate::drain::proof::Proof;
use crate::drain::run::{Blocker, End};
use crate::reasons::Reason;
use crate::testing::{at, node};

fn id(name: &str) -> Id {
    Id { family: Family::Medik8s, name: name.into() }
}

fn object(name: &str, node: &str) -> Maintenance {
    Maintenance {
        id: id(name),
        uid: Uid::from(format!("uid-{name}")),
        resource_version: "1".into(),
        node: node.into(),
        reason: "disk swap".into(),
        created: Some(at(0)),
        deleting: false,
        held: true,
        other_finalizers: Vec::new(),
        status: Status::default(),
        on_uncordon: OnUncordon::Reapply,
        may_shut_down: false,
        may_touch_control_plane: false,
    }
}

fn lease(node: &str, holder: &str, renewed: i64) -> Lease {
    Lease {
        key: lease_key(node),
        uid: Uid::from("lease"),
        holder: holder.into(),
        renewed: Some(at(renewed)),
        duration_seconds: LEASE_SECONDS,
        resource_version: "7".into(),
        transitions: 0,
        asked: None,
        answered: None,
        record: None,
    }
}

/// A cluster in which actions are carried out as if every request succeeded.
struct Case {
    index: Index,
    registry: Registry,
    limits: Limits,
    now: i64,
    told: Vec<&'static str>,
    done: Vec<Action>,
}

impl Case {
    fn new(nodes: &[&str]) -> Self {
        let mut case = Self::empty(Registry::default());
        for name in nodes {
            case.learn(Fact::Node(Box::new(node(name))));
        }
        case
    }

    fn empty(registry: Registry) -> Self {
        Self {
            index: Index::new(),
            registry,
            limits: Limits::default(),
            now: 0,
            told: Vec::new(),
            done: Vec::new(),
        }
    }

    fn learn(&mut self, fact: Fact) -> Touched {
        // In these tests objects go and come back as they were.
        self.index.forget_gone();
        let touched = self.index.apply(fact);
        self.registry.hear(&self.index, &touched, at(self.now))
    }

    fn apply(&mut self, seen: MaintenanceFact) -> Touched {
        self.registry.apply(&self.index, seen)
    }

    fn lease(&self, node: &str) -> Option<&Lease> {
        self.index.lease(&lease_key(node))
    }

    fn with(mut self, object: Maintenance) -> Self {
        self.apply(MaintenanceFact::Object(Box::new(object)));
        self
    }

    fn edit(&mut self, name: &str, change: impl FnOnce(&mut Maintenance)) {
        let mut object = self.registry.object(&id(name)).unwrap().clone();
        change(&mut object);
        self.apply(MaintenanceFact::Object(Box::new(object)));
    }

    fn edit_node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        let mut node = self.index.node(name).unwrap().clone();
        change(&mut node);
        self.learn(Fact::Node(Box::new(node)));
    }

    fn decide(&self, name: &str) -> Decision {
        let turns = Turns::of(&self.index, &self.registry, &self.limits);
        decide(&self.index, &self.registry, &turns, &id(name), at(self.now))
    }

    /// Decides and carries out until nothing more is wanted at this instant.
    fn settle(&mut self, name: &str) -> Option<Timestamp> {
        for _ in 0..20 {
            let decision = self.decide(name);
            if decision.is_idle() {
                return decision.look_again;
            }
            self.told.extend(decision.events.iter().map(|event| event.reason));
            for action in decision.actions {
                self.carry_out(&action);
                self.done.push(action);
            }
        }
        panic!("{name} never settles: {:?}", self.done.last());
    }

    fn carry_out(&mut self, action: &Action) {
        match action {
            Action::Own(Own::Finalize { id, held: true, .. }) => {
                self.edit(&id.name, |object| object.held = true);
            }
            Action::Own(Own::Finalize { id, uid, held: false, .. }) => {
                self.apply(MaintenanceFact::ObjectGone(id.clone(), uid.clone()));
            }
            Action::Hold { node, at, over, holder, record, .. } => {
                let before = over.as_ref().and_then(|lease| lease.record.clone());
                let record = record.clone().or(before);
                let lease = Lease { renewed: Some(*at), record, ..lease(node, holder, 0) };
                self.learn(Fact::Lease(Box::new(lease)));
            }
            Action::Release { node, .. } => {
                self.learn(Fact::LeaseAbsent(lease_key(node)));
            }
            Action::Own(Own::Begin { node, id, changes, may_shut_down }) => {
                let begun = MaintenanceFact::Begun(node.clone(), id.clone(), *may_shut_down, at(self.now));
                self.apply(begun);
                let seen = self.index.node(node).unwrap().clone();
                let mark = new_mark(&seen, OWNER, changes, at(self.now));
                self.edit_node(node, |node| {
                    node.taints = changes.taints_on(node).unwrap_or_else(|| node.taints.clone());
                    node.labels.extend(changes.labels.clone());
                    node.unschedulable = true;
                    node.mark = Some(MarkState::Valid(Box::new(mark)));
                });
            }
            Action::Own(Own::End(node)) => {
                self.apply(MaintenanceFact::Ended(node.clone()));
            }
            Action::Own(Own::GiveBack { node, keep_cordon, record }) => self.edit_node(node, |node| {
                let undo = crate::drain::give_back::undo_of(node, OWNER, *keep_cordon, record.as_deref());
                let Some(undo) = undo else { return };
                node.taints = undo.taints.unwrap_or_else(|| node.taints.clone());
                undo.labels.iter().for_each(|label| node.labels.remove(label));
                node.unschedulable &= undo.unschedulable != Some(false);
                node.mark = None;
            }),
            Action::Own(Own::WriteStatus { id, status, .. }) => {
                self.edit(&id.name, |object| object.status = *status.clone());
            }
            Action::Own(Own::AskQuorum(_) | Own::Ascertain(_)) => {}
            other => panic!("{other:?}"),
        }
    }

    fn progress(&mut self, node: &str, stage: DrainStage, pending: &[&str]) {
        let pending: Vec<Key> = pending.iter().map(|name| Key::new("default", *name)).collect();
        let still_applied = self.node(node).unschedulable;
        let progress = DrainProgress {
            node: node.into(),
            stage,
            still_applied,
            total: pending.len(),
            pending,
            blockers: Vec::new(),
            end: None,
        };
        self.apply(MaintenanceFact::DrainProgress(progress));
    }

    fn drained(&mut self, node: &str) {
        self.progress(node, DrainStage::Ended(End::Drained { proof: Proof::Yes }), &[]);
    }

    fn status(&self, name: &str) -> &Status {
        &self.registry.object(&id(name)).unwrap().status
    }

    fn node(&self, name: &str) -> &Node {
        self.index.node(name).unwrap()
    }
}

fn begun() -> Case {
    let mut case = Case::new(&["n", "m"]).with(object("a", "n"));
    case.settle("a");
    case.progress("n", DrainStage::Draining, &["p", "q"]);
    case.settle("a");
    case
}
