//! Two drains of one node, of two people or of one who began again: one of them works, and the other knows it.

use evac_core::cluster::fact::Lease;
use evac_core::drain::ownership::MarkState;
use evac_core::{Action, Outcome};

use super::cluster::{Blind, Cluster, Fate, Worker, fates, time};
use super::search::{Explored, Protocol, search};
use super::{MOST, Subject, flaw};

pub const SUBJECT: Subject = Subject {
    name: "claim",
    about: "two drains of one node, of two owners or of one, with its mark and the lease by which a drain shows that it lives",
    flaws: &[
        flaw("node-without-version", "the node is marked without the version that was judged"),
        flaw("lease-without-version", "the lease is written and removed without the version that was seen"),
        flaw("silence-is-death", "a drain that has not been asked yet is taken for dead"),
        flaw("answers-nobody", "a drain does not answer the question whether it lives"),
        flaw("keeps-a-lost-lease", "a drain does not see that another run has taken its lease over"),
        flaw("lost-is-done", "a request that was lost counts as done"),
    ],
    explore,
};

/// Both pairs; the first one that is broken is told.
fn explore(flaw: Option<&'static str>) -> Explored {
    let two = search(&Drains { owners: ["ann", "bob"], flaw }, MOST);
    if two.broken.is_some() {
        return two;
    }
    two.and(search(&Drains { owners: ["ann", "ann"], flaw }, MOST))
}

const FAULTS: u8 = 1;
/// Long enough to ask twice and to wait for both answers.
const HORIZON: i64 = 45_000;

struct Drains {
    owners: [&'static str; 2],
    flaw: Option<&'static str>,
}

#[derive(Debug, Clone)]
struct State {
    now: i64,
    faults: u8,
    cluster: Cluster,
    workers: [Option<Worker>; 2],
    strays: Vec<(usize, Action)>,
    broken: Option<String>,
}

#[derive(Debug, Clone)]
enum Move {
    Begin(usize),
    SeesNode(usize),
    SeesLease(usize),
    Answer(usize, usize, Fate),
    Arrives(usize),
    Dies(usize),
    Freezes(usize),
    Thaws(usize),
    TimePasses,
}

impl Drains {
    fn has(&self, name: &str) -> bool {
        self.flaw == Some(name)
    }

    /// The lease as a drain is shown it.
    fn shown(&self, worker: &Worker) -> Option<Lease> {
        let mut lease = worker.lease.clone();
        if let Some(lease) = &mut lease {
            let mine = worker.holder().to_string();
            if self.has("silence-is-death") && lease.holder != mine {
                lease.duration_seconds = 0;
            }
            let same_owner = lease.holder.starts_with(worker.owner);
            if self.has("keeps-a-lost-lease") && same_owner && worker.works() {
                lease.holder = mine;
            }
        }
        lease
    }

    fn decide(&self, state: &mut State, number: usize) {
        let now = time(state.now);
        if let Some(worker) = &mut state.workers[number] {
            worker.decide(now, |worker| self.shown(worker));
        }
    }

    /// The server carries out what a drain has sent, and it is looked at who is hurt by it.
    fn carry(&self, state: &mut State, number: usize, action: &Action) -> (Outcome, Vec<evac_core::Fact>) {
        let blind =
            Blind { to_node: self.has("node-without-version"), to_lease: self.has("lease-without-version") };
        let (mark, lease) = (state.cluster.marked_by().map(ToOwned::to_owned), state.cluster.holder());
        let mut action = action.clone();
        if self.has("answers-nobody")
            && let Action::Hold { answered, over: Some(over), .. } = &mut action
        {
            *answered = over.answered;
        }
        let answer = state.cluster.carry(&action, blind);
        let unhurt = |worker: &&Worker| worker.works() && !worker.suffered && !worker.frozen;
        let others = |state: &State| -> Vec<Worker> {
            let others = state.workers.iter().enumerate().filter(|(other, _)| *other != number);
            others.filter_map(|(_, worker)| worker.clone()).collect()
        };
        if answer.0 != Outcome::Done {
            return answer;
        }
        let me = state.workers[number].as_ref().map(Worker::holder);
        let broken = match &action {
            Action::Cordon { mark: ours, .. } => others(state)
                .iter()
                .filter(unhurt)
                .find(|other| mark.as_deref() == Some(other.owner) && other.owner != ours.owner)
                .map(|other| format!("the mark of {}, who works, is replaced", other.owner)),
            Action::Hold { .. } => others(state)
                .iter()
                .filter(unhurt)
                .find(|other| {
                    Some(other.holder()) == lease && Some(other.owner) != me.as_ref().map(|me| &*me.owner)
                })
                .map(|other| format!("the lease of {}, who works, is taken", other.owner)),
            Action::Release { .. } => {
                let theirs = lease.filter(|holder| Some(holder) != me.as_ref());
                theirs.map(|holder| format!("the lease of {holder} is removed by another run"))
            }
            _ => None,
        };
        state.broken = state.broken.take().or(broken);
        answer
    }

    fn answer(&self, state: &mut State, number: usize, which: usize, fate: Fate) {
        state.faults -= u8::from(fate.is_fault());
        let Some(worker) = &mut state.workers[number] else { return };
        let action = worker.sent.remove(which);
        worker.suffered |= fate.is_fault();
        let (mut outcome, mut learned) = (Outcome::Done, Vec::new());
        if fate.arrives() {
            (outcome, learned) = self.carry(state, number, &action);
        }
        if fate.strays() {
            state.strays.push((number, action.clone()));
        }
        if !matches!(fate, Fate::Carried | Fate::Twice) {
            learned.clear();
        }
        outcome = fate.in_place_of(outcome);
        if fate == Fate::RequestLost && self.has("lost-is-done") {
            outcome = Outcome::Done;
        }
        let now = time(state.now);
        if let Some(worker) = &mut state.workers[number] {
            worker.hear(&action, outcome, learned, now);
        }
        self.decide(state, number);
    }
}

/// Everybody who is awake knows how things are, and nothing is under way.
fn is_still(state: &State) -> bool {
    let mut awake = state.workers.iter().flatten().filter(|worker| worker.alive && !worker.frozen);
    awake.all(|worker| worker.sent.is_empty() && (worker.run.is_over() || worker.knows(&state.cluster)))
}

/// When the first of those who are awake wants to look again.
fn next_look(state: &State) -> Option<i64> {
    let awake = state.workers.iter().flatten().filter(|worker| worker.alive && !worker.frozen);
    let at = awake.filter_map(|worker| worker.look_again).min()?;
    let millis = at.duration_since(time(0)).as_millis() as i64;
    (millis > state.now && millis <= HORIZON).then_some(millis)
}

/// Nobody who is awake tries anything again soon: what was lost is tried again after some seconds.
fn is_settled(state: &State) -> bool {
    const SOON: i64 = 60_000;
    let awake = state.workers.iter().flatten().filter(|worker| worker.alive && !worker.frozen);
    let mut looks = awake.filter_map(|worker| worker.look_again);
    is_still(state) && looks.all(|at| at > time(state.now + SOON))
}

impl Protocol for Drains {
    type State = State;
    type Move = Move;

    fn begin(&self) -> State {
        let cluster = Cluster::new();
        State { now: 0, faults: FAULTS, cluster, workers: [None, None], strays: Vec::new(), broken: None }
    }

    fn moves(&self, state: &State) -> Vec<Move> {
        let mut moves = Vec::new();
        for (number, worker) in state.workers.iter().enumerate() {
            let Some(worker) = worker else {
                moves.push(Move::Begin(number));
                continue;
            };
            if worker.frozen {
                moves.push(Move::Thaws(number));
            }
            if worker.is_over() || worker.frozen {
                continue;
            }
            if worker.node.as_ref() != Some(&state.cluster.node) {
                moves.push(Move::SeesNode(number));
            }
            if worker.lease != state.cluster.lease {
                moves.push(Move::SeesLease(number));
            }
            for which in 0..worker.sent.len() {
                moves.extend(fates(state.faults).iter().map(|fate| Move::Answer(number, which, *fate)));
            }
            if state.faults > 0 {
                moves.extend([Move::Dies(number), Move::Freezes(number)]);
            }
        }
        moves.extend((0..state.strays.len()).map(Move::Arrives));
        if is_still(state) && next_look(state).is_some() {
            moves.push(Move::TimePasses);
        }
        moves
    }

    fn go(&self, state: &mut State, next: &Move) {
        match *next {
            Move::Begin(number) => {
                let worker = Worker::begin(self.owners[number], number as u8 + 1, &state.cluster);
                state.workers[number] = Some(worker);
                self.decide(state, number);
            }
            Move::SeesNode(number) => {
                let node = state.cluster.node.clone();
                state.workers[number].iter_mut().for_each(|worker| worker.node = Some(node.clone()));
                self.decide(state, number);
            }
            Move::SeesLease(number) => {
                let lease = state.cluster.lease.clone();
                state.workers[number].iter_mut().for_each(|worker| worker.lease.clone_from(&lease));
                self.decide(state, number);
            }
            Move::Answer(number, which, fate) => self.answer(state, number, which, fate),
            Move::Arrives(which) => {
                let (number, action) = state.strays.remove(which);
                self.carry(state, number, &action);
            }
            Move::Dies(number) => {
                state.faults -= 1;
                if let Some(worker) = &mut state.workers[number] {
                    worker.alive = false;
                    (worker.node, worker.lease) = (None, None);
                    state.strays.extend(worker.sent.drain(..).map(|action| (number, action)));
                }
            }
            Move::Freezes(number) => {
                state.faults -= 1;
                state.workers[number]
                    .iter_mut()
                    .for_each(|worker| (worker.frozen, worker.suffered) = (true, true));
            }
            Move::Thaws(number) => {
                state.workers[number].iter_mut().for_each(|worker| worker.frozen = false);
                self.decide(state, number);
            }
            Move::TimePasses => {
                state.now = next_look(state).unwrap_or(state.now);
                for number in 0..state.workers.len() {
                    let awake = |worker: &Worker| !worker.is_over() && !worker.frozen;
                    if state.workers[number].as_ref().is_some_and(awake) {
                        self.decide(state, number);
                    }
                }
            }
        }
    }

    fn broken(&self, state: &State) -> Option<String> {
        if state.broken.is_some() {
            return state.broken.clone();
        }
        if let Some(MarkState::Valid(mark)) = &state.cluster.node.mark
            && mark.before.unschedulable
        {
            return Some("a drain takes the cordon of a drain for what was there before".into());
        }
        if !is_still(state) {
            return None;
        }
        let working: Vec<&Worker> =
            state.workers.iter().flatten().filter(|worker| worker.works() && !worker.frozen).collect();
        if working.len() > 1 && is_settled(state) {
            return Some("two drains work on the node and know it".into());
        }
        if let Some(worker) = working.first()
            && (state.cluster.marked_by() != Some(worker.owner) || !state.cluster.node.unschedulable)
        {
            return Some(format!("{} works on a node without its cordon and its mark", worker.owner));
        }
        let holder = state.cluster.holder()?;
        let left = state.workers.iter().flatten().find(|worker| worker.holder() == holder);
        // A request of its own that was repeated after the lease was removed makes another one, which lapses.
        let ended = left.filter(|worker| worker.alive && worker.run.is_over() && !worker.suffered);
        ended.map(|worker| format!("{} has ended and left its lease", worker.owner))
    }
}
