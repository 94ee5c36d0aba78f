//! What a drain keeps beside the cluster: what was asked of it, its run, and what it has sent and not been answered. The index is lent to it, so the
//! command line and the operator drain alike: the one on an index of its own, the other on the one that all roles share.

use std::collections::BTreeSet;

use evac_api::Call;
use evac_api::wire::{self, List};
use evac_clock::Clock;
use evac_core::cluster::fact::Existence;
use evac_core::drain::check;
use evac_core::drain::step::Event;
use evac_core::machines::Subject;
use evac_core::machines::strategy::{Course, course};
use evac_core::{Action, Fact, Index, Key, Outcome, Pod, Run, Sight, VmRole, step};
use jiff::Timestamp;

use super::{DrainError, DrainRequest};
use crate::act::{Done, Learned, perform};
use crate::guests;
use crate::http::{Http, HttpError, parse};
use crate::nodes;
use crate::stated::Stated;

/// Hears everything worth telling.
pub type Tell<'a> = &'a mut (dyn FnMut(Timestamp, &Event) + Send);

pub struct Drainer {
    http: Http,
    clock: Clock,
    pub request: DrainRequest,
    pub run: Run,
    /// The times in leases, as they were read.
    stated: Stated,
    /// How many requests were sent, and those without an answer.
    sent: u64,
    open: BTreeSet<u64>,
    /// Machines that were asked for.
    asked: BTreeSet<Key>,
}

impl Drainer {
    pub fn new(http: Http, request: DrainRequest, run: Run) -> Self {
        let clock = http.clock();
        let (sent, open, asked) = (0, BTreeSet::new(), BTreeSet::new());
        Self { http, clock, request, run, stated: Stated::new(clock), sent, open, asked }
    }

    /// Steps until nothing more is to be done at this instant, and has what the core asks for carried out: `spawn` gets each request with its number.
    pub fn decide(
        &mut self,
        index: &Index,
        tell: Tell<'_>,
        mut spawn: impl FnMut(u64, Sending),
    ) -> Result<Option<Timestamp>, DrainError> {
        let now = self.clock.now();
        let next = step(index, &self.request.policy, &mut self.run, now);
        for event in &next.events {
            tell(now, event);
        }
        let violations = check::check(index, &next.actions);
        if let Some(violation) = violations.first() {
            return Err(DrainError::Invariant(format!("{violation:?}")));
        }
        for action in next.actions {
            self.sent += 1;
            self.open.insert(self.sent);
            let action = self.stated.written(action);
            spawn(self.sent, Sending { http: self.http.clone(), action });
        }
        Ok(next.look_again)
    }

    /// Puts an answer into the index and the run, and says who has to be looked at again.
    pub fn answered(
        &mut self,
        index: &mut Index,
        number: u64,
        done: Done,
        tell: Tell<'_>,
    ) -> BTreeSet<Subject> {
        self.open.remove(&number);
        let Done { action, outcome, learned } = done;
        let mut touched = BTreeSet::new();
        for learned in learned {
            touched.extend(match learned {
                Learned::Fact(fact) => self.learn(index, fact),
                Learned::Pods(node, pods, at) => index.reset_pods(&node, pods, &at),
            });
        }
        let now = self.clock.now();
        announce(index, &action, &outcome, now, tell);
        self.run.record(index, &action, outcome, now);
        touched
    }

    /// Puts a fact into the index that may have times to be compared with ours.
    pub fn learn(&mut self, index: &mut Index, fact: Fact) -> BTreeSet<Subject> {
        index.apply(self.stated.fact(fact))
    }

    /// A lease with its times on the steady line.
    pub fn lease(&mut self, lease: evac_core::Lease) -> evac_core::Lease {
        self.stated.lease(lease)
    }

    /// How many requests were sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether all requests up to this one were answered.
    pub fn is_answered(&self, number: u64) -> bool {
        self.open.first().is_none_or(|oldest| *oldest > number)
    }

    /// A request was answered, and nobody needs to know what.
    pub fn forget_answer(&mut self, number: u64) {
        self.open.remove(&number);
    }

    pub fn has_guests(&self, index: &Index) -> bool {
        guests::are_on(index, &self.request.nodes)
    }

    /// Machines that have to be read because it matters what they do when their guests are shut down; each once.
    pub fn machines_to_read(&mut self, index: &Index) -> BTreeSet<Key> {
        if *index.sight() != Sight::Clear {
            return BTreeSet::new();
        }
        let matter = guests::machines_that_matter(index, &self.request.nodes);
        matter.into_iter().filter(|key| self.asked.insert(key.clone())).collect()
    }

    /// Whether a pod is there that may be evicted, and so may be protected by a budget.
    pub fn needs_budgets(&self, index: &Index) -> bool {
        let pods = self.request.nodes.iter().flat_map(|node| index.pods_on(node));
        pods.filter(|pod| !pod.phase.is_finished() && !pod.mirror && pod.daemon_set().is_none()).any(|pod| {
            match &pod.vm {
                VmRole::None => true,
                VmRole::Hotplug => false,
                VmRole::Launcher(_) => match index.sight() {
                    Sight::Absent => true,
                    Sight::Unlooked | Sight::Denied(_) => false,
                    Sight::Clear => index.instance_of(pod).is_some_and(|instance| {
                        matches!(course(instance, &index.config), Course::ShutDown | Course::HandOver)
                    }),
                },
            }
        })
    }

    /// DaemonSets of which it is not known whether they exist.
    pub fn daemon_sets_to_read(&self, index: &Index) -> BTreeSet<Key> {
        self.request
            .nodes
            .iter()
            .flat_map(|node| index.pods_on(node))
            .filter(|pod| !pod.phase.is_finished())
            .filter_map(Pod::daemon_set)
            .filter(|key| index.daemon_set(key).is_none())
            .collect()
    }
}

/// One request that is to be sent.
pub struct Sending {
    http: Http,
    action: Action,
}

impl Sending {
    pub async fn carry_out(self) -> Done {
        perform(&self.http, self.action).await
    }
}

fn announce(index: &Index, action: &Action, outcome: &Outcome, now: Timestamp, tell: Tell<'_>) {
    match (action, outcome) {
        (Action::Cordon { node, .. }, Outcome::Done) => tell(now, &Event::Cordoned { node: node.clone() }),
        (
            Action::Evict { object, dry_run: true, .. } | Action::Delete { object, dry_run: true, .. },
            outcome,
        ) => {
            let pod = &object.key;
            let node = index.pod(pod).and_then(|pod| pod.node.clone()).unwrap_or_default();
            tell(
                now,
                &Event::Rehearsed { pod: pod.clone(), node: node.to_string(), outcome: outcome.clone() },
            );
        }
        _ => {}
    }
}

/// Up to this many DaemonSets are read one by one.
const DAEMON_SETS_BY_NAME: usize = 1;

/// Finds out which of these DaemonSets exist: a few by name, many with one list.
pub async fn read_daemon_sets(http: &Http, wanted: BTreeSet<Key>) -> Vec<Fact> {
    if wanted.len() > DAEMON_SETS_BY_NAME
        && let Ok(found) = list_daemon_sets(http).await
    {
        let exists = |key: Key| {
            let existence = if found.contains(&key) {
                Existence::Found
            } else {
                Existence::Gone(format!("daemonsets.apps \"{}\" not found", key.name))
            };
            Fact::DaemonSet(key, existence)
        };
        return wanted.into_iter().map(exists).collect();
    }
    let mut facts = Vec::new();
    for key in wanted {
        let existence = nodes::daemon_set(http, &key).await;
        facts.push(Fact::DaemonSet(key, existence));
    }
    facts
}

async fn list_daemon_sets(http: &Http) -> Result<BTreeSet<Key>, HttpError> {
    let names_only = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    let answer = http.send_accepting(&Call::get("/apis/apps/v1/daemonsets"), names_only).await?;
    let list: List<wire::Named> = parse(&answer)?;
    Ok(list.items.into_iter().map(|item| Key::new(item.metadata.namespace, item.metadata.name)).collect())
}
