//! Two operators, one lease, one ledger: never do two of them believe to lead, and never do more migrations run than may.
//!
//! The two are explored apart: the ledger has to hold the limit also where both act, whatever the lease says.

use std::collections::BTreeSet;

use evac_core::cluster::fact::{Key, Lease, Uid};
use evac_core::cluster::version::Version;
use evac_core::leadership::{self, LeaseAction, ObservedLease, decide, writes_until};
use evac_core::machines::Config;
use evac_core::machines::slots::{Ledger, Room, Slot};
use jiff::Timestamp;

use super::cluster::{Fate, fates};
use super::search::{Explored, Protocol, search};
use super::{MOST, Subject, at, flaw};

pub const SUBJECT: Subject = Subject {
    name: "leadership",
    about: "two operators lead by one lease and take slots in one ledger for two migrations, of which one may run at a time",
    flaws: &[
        flaw("lease-without-version", "the lease is written without the version that was seen"),
        flaw(
            "leads-from-the-answer",
            "the time to lead counts from the answer to a renewal, not from its request",
        ),
        flaw(
            "judges-by-written-times",
            "a lease is judged by the time that is written in it, on a clock that is ahead",
        ),
        flaw("ledger-without-version", "the ledger is written without the version that was read"),
        flaw("starts-before-the-ledger", "a migration is started before its slot is written"),
        flaw("unseen-is-over", "a slot whose migration is not seen to run is given to another one"),
        flaw("lost-is-done", "a write of the ledger whose request was lost counts as done"),
    ],
    explore,
};

fn explore(flaw: Option<&'static str>) -> Explored {
    let ledger = search(&Leadership { part: Part::Ledger, flaw }, MOST);
    if ledger.broken.is_some() {
        return ledger;
    }
    ledger.and(search(&Leadership { part: Part::Lease, flaw }, MOST))
}

const NAMES: [&str; 2] = ["a", "b"];
const MIGRATIONS: u8 = 2;
/// How far time goes in each step, and how far in all: beyond the end of a lease that was renewed once.
const TICK: i64 = 5;
const HORIZON: i64 = 15;
const FAULTS: u8 = 1;
/// How far a clock is ahead, where a flaw goes by it.
const AHEAD: i64 = 12;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Who leads.
    Lease,
    /// Who may start a migration, where both act.
    Ledger,
}

struct Leadership {
    part: Part,
    flaw: Option<&'static str>,
}

#[derive(Debug, Clone)]
struct State {
    now: i64,
    faults: u8,
    lease_versions: u32,
    ledger_versions: u32,
    lease: Option<Lease>,
    ledger: Ledger,
    running: BTreeSet<u8>,
    over: BTreeSet<u8>,
    operators: [Operator; 2],
    /// What nobody waits for any more and may still arrive.
    strays: Vec<Request>,
    broken: Option<String>,
}

#[derive(Debug, Clone, Default)]
struct Operator {
    life: u8,
    looked: bool,
    observed: Option<ObservedLease>,
    tried: Option<Timestamp>,
    leads_until: Option<Timestamp>,
    renewal: Option<Request>,
    /// The server has carried it out, or refused it, and the answer is on its way.
    reached: Option<Answer>,
    /// The ledger and the migrations as they were last seen.
    ledger: Ledger,
    running: BTreeSet<u8>,
    over: BTreeSet<u8>,
}

/// The lease as it was written; none where that was refused.
type Answer = Option<Lease>;

#[derive(Debug, Clone, PartialEq)]
enum Request {
    Lease { holder: String, over: Option<Version>, sent: Timestamp },
    Ledger(Ledger),
    Start(u8),
}

#[derive(Debug, Clone)]
enum Move {
    /// The operator sees the lease as it is, as a list or an event shows it.
    Look(usize),
    /// The operator sees the ledger and the migrations as they are.
    See(usize),
    Renew(usize),
    Work(usize, u8, Fate),
    Reaches(usize),
    Renewal(usize, Fate),
    Arrive(usize),
    Finish(u8),
    Dies(usize),
    Tick,
}

impl Operator {
    fn leads(&self, now: i64) -> bool {
        self.leads_until.is_some_and(|until| at(now) < until)
    }

    fn name(&self, number: usize) -> String {
        format!("{}-{}", NAMES.get(number).unwrap_or(&""), self.life)
    }
}

fn slot(migration: u8) -> Slot {
    let uid = Uid::from(format!("m{migration}"));
    Slot { uid, migration: Key::new("d", format!("m{migration}")), node: "n".into() }
}

fn config() -> Config {
    Config { parallel_per_cluster: 1, ..Config::default() }
}

impl Leadership {
    fn has(&self, name: &str) -> bool {
        self.flaw == Some(name)
    }

    fn wish(&self, operator: &Operator, name: &str, now: i64) -> LeaseAction {
        let mut observed = operator.observed.clone();
        if self.has("judges-by-written-times")
            && let Some(observed) = &mut observed
            && observed.lease.holder != name
            && let Some(renewed) = observed.lease.renewed
        {
            observed.since = renewed - jiff::SignedDuration::from_secs(AHEAD);
        }
        decide(name, observed.as_ref(), operator.tried, at(now))
    }

    /// What an operator that acts does next about a migration.
    fn work(&self, operator: &Operator, migration: u8) -> Option<Request> {
        if operator.over.contains(&migration) || operator.running.contains(&migration) {
            return None;
        }
        if operator.ledger.holds(&slot(migration).uid) || self.has("starts-before-the-ledger") {
            return Some(Request::Start(migration));
        }
        let number = |slot: &Slot| (0..MIGRATIONS).find(|one| slot.uid == Uid::from(format!("m{one}")));
        let over = |slot: &Slot| {
            number(slot).is_some_and(|one| {
                operator.over.contains(&one) || self.has("unseen-is-over") && !operator.running.contains(&one)
            })
        };
        let mut next = operator.ledger.without(over);
        next.acknowledge(operator.running.iter().map(|one| slot(*one)));
        (next.enter(slot(migration), &config()) == Room::Free).then_some(Request::Ledger(next))
    }

    /// The server carries a request out, or refuses it for its version.
    fn carry(&self, state: &mut State, request: &Request) -> bool {
        match request {
            Request::Lease { holder, over, sent } => {
                let same = match (&state.lease, over) {
                    (Some(there), Some(over)) => there.resource_version == *over,
                    (there, over) => there.is_none() && over.is_none(),
                };
                if !same && !self.has("lease-without-version") {
                    return false;
                }
                state.lease_versions += 1;
                state.lease = Some(Lease {
                    key: leadership::key("evac"),
                    uid: Uid::from("lease"),
                    holder: holder.clone(),
                    renewed: Some(*sent),
                    duration_seconds: leadership::DURATION.as_secs() as i64,
                    resource_version: state.lease_versions.to_string().into(),
                    transitions: 0,
                    asked: None,
                    answered: None,
                    record: None,
                });
            }
            Request::Ledger(next) => {
                if next.version != state.ledger.version && !self.has("ledger-without-version") {
                    return false;
                }
                state.ledger_versions += 1;
                state.ledger =
                    Ledger { version: state.ledger_versions.to_string(), slots: next.slots.clone() };
            }
            Request::Start(migration) => {
                if !state.over.contains(migration) {
                    state.running.insert(*migration);
                }
                if state.running.len() > 1 {
                    state.broken = Some(format!("{} migrations run where one may", state.running.len()));
                }
            }
        }
        true
    }

    fn renewed(&self, state: &mut State, number: usize, fate: Fate) {
        let now = at(state.now);
        let Some(request) = state.operators[number].renewal.take() else { return };
        let arrived = fate.arrives();
        let answer = match state.operators[number].reached.take() {
            Some(answer) => answer,
            None if arrived && self.carry(state, &request) => state.lease.clone(),
            None => None,
        };
        if fate.strays() {
            state.strays.push(request.clone());
        }
        let (lease, Request::Lease { sent, .. }) = (state.lease.clone(), request) else { return };
        let operator = &mut state.operators[number];
        if answer.is_some() && fate != Fate::AnswerLost {
            operator.tried = None;
            ObservedLease::update(&mut operator.observed, answer, sent);
            let from = if self.has("leads-from-the-answer") { now } else { sent };
            operator.leads_until = Some(writes_until(from));
            return;
        }
        operator.tried = Some(now);
        // A conflict says that it is not as was seen: it is listed again.
        if arrived && fate != Fate::AnswerLost {
            operator.look(lease, number, now);
        }
    }

    fn worked(&self, state: &mut State, number: usize, migration: u8, fate: Fate) {
        let Some(request) = self.work(&state.operators[number], migration) else { return };
        let arrived = fate.arrives();
        let done = arrived && self.carry(state, &request);
        if fate.strays() {
            state.strays.push(request.clone());
        }
        let believed = fate == Fate::RequestLost && self.has("lost-is-done");
        match request {
            Request::Ledger(next) if believed => state.operators[number].ledger = next,
            // After a conflict it is read again.
            Request::Ledger(_) if fate != Fate::AnswerLost && arrived => {
                state.operators[number].ledger = state.ledger.clone();
            }
            Request::Start(migration) if done && fate != Fate::AnswerLost => {
                state.operators[number].running.insert(migration);
            }
            _ => {}
        }
    }
}

impl Operator {
    fn look(&mut self, lease: Option<Lease>, number: usize, now: Timestamp) {
        if self.looked {
            ObservedLease::update(&mut self.observed, lease, now);
        } else {
            ObservedLease::replace(&mut self.observed, lease, now);
        }
        self.looked = true;
        let name = self.name(number);
        if self.observed.as_ref().is_none_or(|observed| observed.lease.holder != name) {
            self.leads_until = None;
        }
    }
}

impl Protocol for Leadership {
    type State = State;
    type Move = Move;

    fn begin(&self) -> State {
        State {
            now: 0,
            faults: FAULTS,
            lease_versions: 0,
            ledger_versions: 0,
            lease: None,
            ledger: Ledger::default(),
            running: BTreeSet::new(),
            over: BTreeSet::new(),
            operators: Default::default(),
            strays: Vec::new(),
            broken: None,
        }
    }

    fn moves(&self, state: &State) -> Vec<Move> {
        let mut moves = Vec::new();
        let fates = fates(state.faults);
        // That a request is lost is that it is late and never arrives; one that is repeated is refused for its version, or starts what runs already.
        let of_renewal = |fate: &&Fate| matches!(fate, Fate::AnswerLost | Fate::Late);
        let of_work = |fate: &&Fate| **fate != Fate::Twice;
        for (number, operator) in state.operators.iter().enumerate() {
            if self.part == Part::Ledger {
                let seen = operator.ledger == state.ledger && operator.running == state.running;
                if !seen || operator.over != state.over {
                    moves.push(Move::See(number));
                }
                for one in (0..MIGRATIONS).filter(|one| self.work(operator, *one).is_some()) {
                    moves.extend(fates.iter().filter(of_work).map(|fate| Move::Work(number, one, *fate)));
                }
                continue;
            }
            let version = |lease: &Lease| lease.resource_version.clone();
            let seen = operator.observed.as_ref().map(|observed| version(&observed.lease));
            if !operator.looked || seen != state.lease.as_ref().map(version) {
                moves.push(Move::Look(number));
            }
            match &operator.renewal {
                // The answer may take its time.
                Some(_) if operator.reached.is_some() => moves.push(Move::Renewal(number, Fate::Carried)),
                Some(_) => {
                    moves.push(Move::Reaches(number));
                    moves.extend(fates.iter().filter(of_renewal).map(|fate| Move::Renewal(number, *fate)));
                }
                None => {
                    let wish = self.wish(operator, &operator.name(number), state.now);
                    if operator.looked && !matches!(wish, LeaseAction::Wait { .. }) {
                        moves.push(Move::Renew(number));
                    }
                }
            }
            if state.faults > 0 && operator.life == 0 && operator.leads(state.now) {
                moves.push(Move::Dies(number));
            }
        }
        moves.extend((0..state.strays.len()).map(Move::Arrive));
        moves.extend(state.running.iter().map(|one| Move::Finish(*one)));
        if state.now < HORIZON && self.part == Part::Lease {
            moves.push(Move::Tick);
        }
        moves
    }

    fn go(&self, state: &mut State, next: &Move) {
        let now = at(state.now);
        match next {
            Move::Look(number) => {
                let lease = state.lease.clone();
                state.operators[*number].look(lease, *number, now);
            }
            Move::See(number) => {
                let operator = &mut state.operators[*number];
                operator.ledger = state.ledger.clone();
                (operator.running, operator.over) = (state.running.clone(), state.over.clone());
            }
            Move::Renew(number) => {
                let operator = &mut state.operators[*number];
                let over = operator.observed.as_ref().map(|seen| seen.lease.resource_version.clone());
                operator.renewal = Some(Request::Lease { holder: operator.name(*number), over, sent: now });
            }
            Move::Reaches(number) => {
                if let Some(request) = state.operators[*number].renewal.clone() {
                    let done = self.carry(state, &request);
                    state.operators[*number].reached = Some(state.lease.clone().filter(|_| done));
                }
            }
            Move::Renewal(number, fate) => {
                state.faults -= u8::from(*fate != Fate::Carried);
                self.renewed(state, *number, *fate);
            }
            Move::Work(number, migration, fate) => {
                state.faults -= u8::from(*fate != Fate::Carried);
                self.worked(state, *number, *migration, *fate);
            }
            Move::Arrive(number) => {
                let request = state.strays.remove(*number);
                self.carry(state, &request);
            }
            Move::Finish(migration) => {
                state.running.remove(migration);
                state.over.insert(*migration);
            }
            Move::Dies(number) => {
                state.faults -= 1;
                let operator = std::mem::take(&mut state.operators[*number]);
                state.strays.extend(operator.renewal.filter(|_| operator.reached.is_none()));
                state.operators[*number].life = operator.life + 1;
            }
            Move::Tick => state.now += TICK,
        }
    }

    fn broken(&self, state: &State) -> Option<String> {
        let leading = state.operators.iter().filter(|operator| operator.leads(state.now)).count();
        state.broken.clone().or_else(|| (leading > 1).then(|| "two operators lead at the same moment".into()))
    }
}
