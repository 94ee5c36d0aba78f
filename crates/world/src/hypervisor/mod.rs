//! Hypervisors as a model: guests in launchers on nodes, the network between the nodes, and the disks.
//!
//! Pure: time is passed in, nothing is written anywhere. Guests keep running when nobody looks, also on a
//! node whose agents are dead, which is how running one machine twice becomes visible: see [`Violation`].

pub mod disks;
pub mod guest;
pub mod transfer;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use self::disks::Ledger;
pub use self::disks::Violation;
use self::guest::{End, Guest, Plan, State};
use self::transfer::{Mode, Outcome, Step, Terms, Transfer};
use crate::objects::Key;

/// Where a guest runs: one launcher pod on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub pod: Key,
    pub pod_uid: String,
    pub node: String,
}

impl Place {
    fn name(&self) -> String {
        format!("{} on {}", self.pod, self.node)
    }
}

/// Which machine it is, and which disks it writes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    pub key: Key,
    pub uid: String,
    /// Disks that must have one writer only.
    pub disks: BTreeSet<String>,
}

#[derive(Debug, Clone)]
pub struct Domain {
    pub place: Place,
    pub machine: Machine,
    pub guest: Guest,
}

/// A migration in progress, or just over and not yet acknowledged.
#[derive(Debug, Clone)]
pub struct Move {
    pub id: String,
    pub target: Place,
    pub transfer: Transfer,
    source_node: String,
}

/// How far the copy of a guest that leaves a node is. Bytes and seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaving {
    pub machine: Key,
    pub total: f64,
    pub sent: f64,
    pub remaining: f64,
    pub rate: f64,
    pub dirty_rate: f64,
}

#[derive(Debug, Default)]
pub struct Hypervisor {
    /// By the uid of the launcher pod.
    domains: BTreeMap<String, Domain>,
    by_machine: BTreeMap<Key, BTreeSet<String>>,
    /// By the uid of the source's launcher pod.
    moves: BTreeMap<String, Move>,
    due: BTreeSet<(Timestamp, String)>,
    due_of: BTreeMap<String, Timestamp>,
    ledger: Ledger,
    /// Bytes per second that a node can send, and receive.
    bandwidth: f64,
    touched: BTreeSet<(Key, Key)>,
}

impl Hypervisor {
    pub fn new(bandwidth: f64) -> Self {
        Self { bandwidth: bandwidth.max(1.0), ..Self::default() }
    }

    pub fn domain(&self, pod_uid: &str) -> Option<&Domain> {
        self.domains.get(pod_uid)
    }

    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.values()
    }

    /// Everything that runs, or ran, under this name.
    pub fn of_machine<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Domain> {
        self.by_machine.get(key).into_iter().flatten().filter_map(|uid| self.domains.get(uid))
    }

    /// Counts a migration that was made to fail.
    pub fn note_failed_move(&mut self, pod_uid: &str, id: &str) {
        if let Some(domain) = self.domains.get_mut(pod_uid) {
            domain.guest.failed_moves.insert(id.to_owned());
        }
    }

    pub fn violations(&self) -> &[Violation] {
        self.ledger.violations()
    }

    pub fn writers(&self, disk: &str) -> impl Iterator<Item = &String> {
        self.ledger.writers(disk)
    }

    pub fn moving(&self, source_uid: &str) -> Option<&Move> {
        self.moves.get(source_uid)
    }

    /// Migrations in progress, and those just over and not yet acknowledged.
    pub fn moves(&self) -> impl Iterator<Item = &Move> {
        self.moves.values()
    }

    /// The guests that are being copied away from a node at this moment.
    pub fn leaving(&mut self, node: &str, now: Timestamp) -> Vec<Leaving> {
        self.advance(now);
        self.run_transfers(now);
        let from_here = self.moves.iter().filter(|(_, m)| m.source_node == node && m.transfer.active());
        from_here
            .filter_map(|(uid, found)| {
                let Transfer { terms, sent, remaining, .. } = &found.transfer;
                Some(Leaving {
                    machine: self.domains.get(uid)?.machine.key.clone(),
                    total: terms.memory,
                    sent: *sent,
                    remaining: *remaining,
                    rate: self.rate(found),
                    dirty_rate: found.transfer.dirty_rate(),
                })
            })
            .collect()
    }

    /// The machines (and their pods) that changed since this was last asked.
    pub fn take_touched(&mut self) -> BTreeSet<(Key, Key)> {
        std::mem::take(&mut self.touched)
    }

    /// When the state of this launcher changes next, as far as can be foreseen.
    pub fn next(&self, pod_uid: &str) -> Option<Timestamp> {
        let guest = self.due_of.get(pod_uid).copied();
        let moving = self.moves.get(pod_uid).and_then(|m| m.transfer.next(self.rate(m)));
        [guest, moving].into_iter().flatten().min()
    }

    pub fn start(&mut self, place: Place, machine: Machine, plan: Plan, now: Timestamp) {
        self.advance(now);
        self.enter(place, machine, Guest::start(plan, now), now);
    }

    /// Takes in a guest that was running before the model began.
    pub fn adopt(&mut self, place: Place, machine: Machine, plan: Plan, since: Timestamp, now: Timestamp) {
        self.advance(now);
        // Troubles that would already be over belong to the past.
        let plan = Plan { crash_after: None, power_off_after: None, ..plan };
        self.enter(place, machine, Guest::adopt(plan, since), now);
    }

    fn enter(&mut self, place: Place, machine: Machine, guest: Guest, now: Timestamp) {
        if self.domains.contains_key(&place.pod_uid) {
            return;
        }
        if guest.on() {
            self.ledger.begin(&machine.key.to_string(), &place.name(), machine.disks.iter().cloned(), now);
        }
        let uid = place.pod_uid.clone();
        self.by_machine.entry(machine.key.clone()).or_default().insert(uid.clone());
        self.domains.insert(uid.clone(), Domain { place, machine, guest });
        self.plan_next(&uid);
        self.touch(&uid);
        self.advance(now);
    }

    /// Asks the guest to stop within `grace` seconds.
    pub fn shut_down(&mut self, pod_uid: &str, grace: f64, now: Timestamp) {
        self.change(pod_uid, now, |guest| guest.shut_down(grace, now));
    }

    pub fn pause(&mut self, pod_uid: &str, now: Timestamp) {
        self.change(pod_uid, now, Guest::pause);
    }

    pub fn resume(&mut self, pod_uid: &str, now: Timestamp) {
        self.change(pod_uid, now, Guest::resume);
    }

    /// Ends the guest at once.
    pub fn destroy(&mut self, pod_uid: &str, how: End, now: Timestamp) {
        self.change(pod_uid, now, |guest| guest.end(how, now));
    }

    fn change(&mut self, pod_uid: &str, now: Timestamp, edit: impl FnOnce(&mut Guest)) {
        self.advance(now);
        let Some(domain) = self.domains.get_mut(pod_uid) else { return };
        let before = domain.guest.clone();
        edit(&mut domain.guest);
        if domain.guest == before {
            return;
        }
        self.changed(pod_uid, &before.state, now);
        self.advance(now);
    }

    /// The launcher pod is no more: its guest goes with it, and so does a migration into it.
    pub fn pod_gone(&mut self, pod_uid: &str, now: Timestamp) {
        self.destroy(pod_uid, End::Lost, now);
        self.break_moves(|source, _| source == pod_uid, "the source pod is gone", now);
        self.break_moves(|_, m| m.target.pod_uid == pod_uid, "the target pod is gone", now);
        self.forget(pod_uid);
    }

    /// Drops what ended and nobody will ask for any more.
    pub fn forget(&mut self, pod_uid: &str) {
        if self.domains.get(pod_uid).is_some_and(|d| d.guest.on()) {
            return;
        }
        if let Some(domain) = self.domains.remove(pod_uid) {
            self.moves.remove(pod_uid);
            if let Some(uids) = self.by_machine.get_mut(&domain.machine.key) {
                uids.remove(pod_uid);
                if uids.is_empty() {
                    self.by_machine.remove(&domain.machine.key);
                }
            }
            if let Some(at) = self.due_of.remove(pod_uid) {
                self.due.remove(&(at, pod_uid.to_owned()));
            }
        }
    }

    /// The machine under a node loses power.
    pub fn power_off(&mut self, node: &str, now: Timestamp) {
        self.cut_off(node, now);
        let here: Vec<String> =
            self.domains.values().filter(|d| d.place.node == node).map(|d| d.place.pod_uid.clone()).collect();
        for uid in here {
            self.destroy(&uid, End::Lost, now);
        }
    }

    /// The node cannot be reached: its guests go on, migrations from and to it break.
    pub fn cut_off(&mut self, node: &str, now: Timestamp) {
        self.break_moves(|_, m| m.source_node == node, "the source node cannot be reached", now);
        self.break_moves(|_, m| m.target.node == node, "the target node cannot be reached", now);
    }

    /// Begins to copy a guest into another launcher. `false` when there is nothing to copy.
    pub fn begin_move(
        &mut self,
        id: &str,
        source_uid: &str,
        target: Place,
        terms: Terms,
        now: Timestamp,
    ) -> bool {
        self.advance(now);
        let Some(domain) = self.domains.get(source_uid) else { return false };
        let up = matches!(domain.guest.state, State::Running | State::Paused);
        if !up || self.moves.get(source_uid).is_some_and(|m| m.transfer.active()) {
            return false;
        }
        let source_node = domain.place.node.clone();
        self.run_transfers(now);
        let transfer = Transfer::begin(terms, now);
        self.moves.insert(source_uid.to_owned(), Move { id: id.to_owned(), target, transfer, source_node });
        self.touch_moving();
        self.advance(now);
        true
    }

    /// Whether memory is still to come to the guest in this pod.
    pub fn is_arriving(&self, target_uid: &str) -> bool {
        self.moves.values().any(|m| m.target.pod_uid == target_uid && m.transfer.active())
    }

    /// Breaks a migration off; the guest stays. Not possible once it runs on the target.
    pub fn abort_move(&mut self, source_uid: &str, now: Timestamp) -> bool {
        self.advance(now);
        self.run_transfers(now);
        let Some(found) = self.moves.get_mut(source_uid) else { return false };
        if !found.transfer.active() || found.transfer.mode == Mode::PostCopy {
            return false;
        }
        found.transfer.outcome = Some(Outcome::Aborted);
        self.touch(source_uid);
        self.touch_moving();
        true
    }

    fn break_moves(&mut self, which: impl Fn(&str, &Move) -> bool, why: &str, now: Timestamp) {
        self.advance(now);
        self.run_transfers(now);
        let broken: Vec<String> = self
            .moves
            .iter()
            .filter(|(uid, m)| m.transfer.active() && which(uid, m))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in &broken {
            let Some(found) = self.moves.get_mut(uid) else { continue };
            found.transfer.outcome = Some(Outcome::Failed(why.to_owned()));
            let torn = (found.transfer.mode == Mode::PostCopy).then(|| found.target.pod_uid.clone());
            self.touch(uid);
            // Memory that was still to be fetched is lost, and the guest with it.
            if let Some(target) = torn {
                self.destroy(&target, End::Crashed, now);
            }
        }
        if !broken.is_empty() {
            self.touch_moving();
        }
    }

    /// Lets everything happen that is due by `now`, in the order of time.
    pub fn advance(&mut self, now: Timestamp) {
        loop {
            let guest = self.due.first().map(|(at, _)| *at);
            let moving = self.moves.values().filter_map(|m| m.transfer.next(self.rate(m))).min();
            let Some(at) = [guest, moving].into_iter().flatten().min().filter(|at| *at <= now) else {
                return;
            };
            self.run_transfers(at);
            self.step_transfers(at);
            self.step_guests(at);
        }
    }

    fn step_guests(&mut self, at: Timestamp) {
        while let Some((when, uid)) = self.due.first().cloned() {
            if when > at {
                return;
            }
            let Some(domain) = self.domains.get_mut(&uid) else {
                self.due.remove(&(when, uid));
                continue;
            };
            let before = domain.guest.state;
            domain.guest.advance(at);
            self.changed(&uid, &before, at);
        }
    }

    fn step_transfers(&mut self, at: Timestamp) {
        let mut ended = false;
        let rates: Vec<(String, f64)> = self
            .moves
            .iter()
            .map(|(uid, m)| (uid.clone(), self.rate(m)))
            .filter(|(uid, rate)| {
                self.moves.get(uid).and_then(|m| m.transfer.next(*rate)).is_some_and(|next| next <= at)
            })
            .collect();
        for (uid, rate) in rates {
            let Some(found) = self.moves.get_mut(&uid) else { continue };
            let mode = found.transfer.mode;
            let step = found.transfer.step(at, rate);
            let over = !found.transfer.active();
            let news = over || mode != found.transfer.mode;
            if step == Step::Moves {
                self.hand_over(&uid, at);
            }
            if news {
                self.touch(&uid);
            }
            ended |= over;
        }
        if ended {
            self.touch_moving();
        }
    }

    /// The guest stops here and goes on there, at the same moment.
    fn hand_over(&mut self, source_uid: &str, at: Timestamp) {
        let Some(target) = self.moves.get(source_uid).map(|m| m.target.clone()) else { return };
        let Some(source) = self.domains.get_mut(source_uid) else { return };
        let guest = source.guest.clone();
        let machine = source.machine.clone();
        let before = source.guest.state;
        source.guest.end(End::Migrated, at);
        self.changed(source_uid, &before, at);
        self.enter_moved(target, machine, guest, at);
    }

    fn enter_moved(&mut self, place: Place, machine: Machine, guest: Guest, at: Timestamp) {
        self.ledger.begin(&machine.key.to_string(), &place.name(), machine.disks.iter().cloned(), at);
        let uid = place.pod_uid.clone();
        self.by_machine.entry(machine.key.clone()).or_default().insert(uid.clone());
        self.domains.insert(uid.clone(), Domain { place, machine, guest });
        self.plan_next(&uid);
        self.touch(&uid);
    }

    /// Books what follows from a changed guest.
    fn changed(&mut self, pod_uid: &str, before: &State, now: Timestamp) {
        let Some(domain) = self.domains.get(pod_uid) else { return };
        let was_on = !matches!(before, State::Off { .. });
        if was_on && !domain.guest.on() {
            let (machine, place) = (domain.machine.key.to_string(), domain.place.name());
            self.ledger.end(&machine, &place, &domain.machine.disks);
            let moved = matches!(domain.guest.state, State::Off { how: End::Migrated, .. });
            if !moved && self.moves.get(pod_uid).is_some_and(|m| m.transfer.active()) {
                self.run_transfers(now);
                if let Some(found) = self.moves.get_mut(pod_uid) {
                    found.transfer.outcome = Some(Outcome::Failed("the guest stopped".to_owned()));
                }
                self.touch_moving();
            }
        }
        self.plan_next(pod_uid);
        self.touch(pod_uid);
    }

    fn plan_next(&mut self, pod_uid: &str) {
        if let Some(old) = self.due_of.remove(pod_uid) {
            self.due.remove(&(old, pod_uid.to_owned()));
        }
        if let Some((at, _)) = self.domains.get(pod_uid).and_then(|d| d.guest.next()) {
            self.due_of.insert(pod_uid.to_owned(), at);
            self.due.insert((at, pod_uid.to_owned()));
        }
    }

    fn run_transfers(&mut self, now: Timestamp) {
        let rates: Vec<f64> = self.moves.values().map(|m| self.rate(m)).collect();
        for (found, rate) in self.moves.values_mut().zip(rates) {
            found.transfer.run(now, rate);
        }
    }

    /// A node's network is shared equally by what it sends, and by what it receives; the slower side counts.
    fn rate(&self, of: &Move) -> f64 {
        let count = |is: &dyn Fn(&Move) -> bool| {
            self.moves.values().filter(|m| m.transfer.uses_network() && is(m)).count().max(1) as f64
        };
        let sending = count(&|m| m.source_node == of.source_node);
        let receiving = count(&|m| m.target.node == of.target.node);
        of.transfer.rate(self.bandwidth / sending.max(receiving))
    }

    fn touch(&mut self, pod_uid: &str) {
        if let Some(domain) = self.domains.get(pod_uid) {
            self.touched.insert((domain.machine.key.clone(), domain.place.pod.clone()));
        }
    }

    /// The shares of the network have changed, and so have all expectations.
    fn touch_moving(&mut self) {
        let uids: Vec<String> =
            self.moves.iter().filter(|(_, m)| m.transfer.active()).map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.touch(&uid);
        }
    }
}

#[cfg(test)]
mod tests;
