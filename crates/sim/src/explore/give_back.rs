//! A node is given back while its drain still works and another drain begins: nothing of the other is undone, and the node is as it was.

use evac_core::cluster::fact::{Lease, Node};
use evac_core::cluster::version::Version;
use evac_core::drain::give_back::{
    CordonAfter, Evidence, GiveBack, Giver, OfNode, Undo, Undoing, goes_with_mark, plan,
};
use evac_core::drain::ownership::MarkState;
use evac_core::{Action, Outcome};

use super::cluster::{Blind, Cluster, Fate, Worker, fates, time};
use super::search::{Explored, Protocol, search};
use super::{MOST, Subject, flaw};

pub const SUBJECT: Subject = Subject {
    name: "ownership",
    about: "a node is given back while its drain works and another drain begins; it was cordoned before, or was not",
    flaws: &[
        flaw("node-without-version", "the node is written without the version that was judged"),
        flaw("undoes-for-anyone", "whose mark it is is not asked"),
        flaw("plans-once", "after a conflict the same is written on the new version"),
        flaw(
            "record-without-version",
            "the lease with the record is removed without the version that was read",
        ),
        flaw("reads-no-record", "the record outside the node is not read"),
        flaw("lifts-every-cordon", "a node that is given back is always uncordoned"),
        flaw("lost-is-done", "a request that was lost counts as done"),
    ],
    explore,
};

fn explore(flaw: Option<&'static str>) -> Explored {
    let open = search(&GivenBack { cordoned: false, flaw }, MOST);
    if open.broken.is_some() {
        return open;
    }
    open.and(search(&GivenBack { cordoned: true, flaw }, MOST))
}

const FAULTS: u8 = 1;
const FIRST: &str = "ann";
const SECOND: &str = "bob";
/// How often it is tried again when the node changes in between.
const TRIES: u8 = 3;

struct GivenBack {
    /// The node was cordoned by a person before all this.
    cordoned: bool,
    flaw: Option<&'static str>,
}

#[derive(Debug, Clone)]
struct State {
    faults: u8,
    cluster: Cluster,
    first: Worker,
    second: Option<Worker>,
    person: Person,
    strays: Vec<Request>,
    broken: Option<String>,
}

/// Who gives the node back.
#[derive(Debug, Clone, Default)]
struct Person {
    tries: u8,
    doing: Doing,
}

#[derive(Debug, Clone, Default)]
enum Doing {
    #[default]
    Nothing,
    /// The node was read.
    Read(Box<Node>),
    /// The node is to be written, and the lease was like this.
    Undoes {
        version: Version,
        undo: Undo,
        lease: Option<Box<Lease>>,
    },
    /// The lease with the record is to be removed.
    Removes(Version),
    Over,
}

#[derive(Debug, Clone)]
enum Request {
    Of(Action),
    Undo(Version, Undo),
    Remove(Version),
}

#[derive(Debug, Clone)]
enum Move {
    SecondBegins,
    Sees(usize),
    Answer(usize, usize),
    ReadsNode,
    ReadsRecord,
    Undoes(Fate),
    Removes(Fate),
    Arrives(usize),
    Dies(usize),
}

impl GivenBack {
    fn has(&self, name: &str) -> bool {
        self.flaw == Some(name)
    }

    fn worker(state: &mut State, number: usize) -> Option<&mut Worker> {
        if number == 0 { Some(&mut state.first) } else { state.second.as_mut() }
    }

    fn decide(state: &mut State, number: usize) {
        if let Some(worker) = Self::worker(state, number) {
            worker.decide(time(0), |worker| worker.lease.clone());
        }
    }

    /// What is to be done about the node as it was read.
    fn plan(&self, node: &Node, lease: Option<&Lease>) -> Option<Undo> {
        let by = if self.has("undoes-for-anyone") { Giver::Anyone } else { Giver::Owner(FIRST) };
        let cordon = if self.has("lifts-every-cordon") { CordonAfter::Lift } else { CordonAfter::AsBefore };
        let of_node = OfNode { by, cordon, evidence: Evidence::OnLease };
        let request = GiveBack { node: of_node, guests: None, dry_run: false };
        let record = lease.and_then(|lease| lease.record.as_deref()).filter(|_| !self.has("reads-no-record"));
        match plan(Some(node), &request, record).ok()?.into_iter().next() {
            Some(Undoing::Node(undo)) => Some(undo),
            _ => None,
        }
    }

    /// Whether the server did it.
    fn carry(&self, state: &mut State, request: &Request) -> (Outcome, Vec<evac_core::Fact>) {
        let conflict = (Outcome::Conflict { message: "it has been modified".into() }, Vec::new());
        let done = (Outcome::Done, Vec::new());
        match request {
            Request::Of(action) => state.cluster.carry(action, Blind::default()),
            Request::Undo(version, undo) => {
                if *version != state.cluster.node.resource_version && !self.has("node-without-version") {
                    return conflict;
                }
                if let Some(owner) = state.cluster.marked_by().filter(|owner| *owner != FIRST) {
                    state.broken = Some(format!("what {owner} holds is given back"));
                }
                let version = state.cluster.node_version();
                let node = &mut state.cluster.node;
                node.resource_version = version;
                node.unschedulable = undo.unschedulable.unwrap_or(node.unschedulable);
                if undo.remove_mark {
                    node.mark = None;
                }
                done
            }
            Request::Remove(version) => {
                let Some(lease) = &state.cluster.lease else { return (Outcome::Gone, Vec::new()) };
                if lease.resource_version != *version && !self.has("record-without-version") {
                    return conflict;
                }
                if let Some(holder) = state.cluster.holder().filter(|holder| holder.owner != FIRST) {
                    state.broken = Some(format!("the lease of {holder} is removed with its record"));
                }
                state.cluster.lease = None;
                done
            }
        }
    }

    /// One request of the person, and whether it was done; nothing where that is not known.
    fn sends(&self, state: &mut State, request: &Request, fate: Fate) -> Option<Outcome> {
        state.faults -= u8::from(fate.is_fault());
        let outcome = fate.arrives().then(|| self.carry(state, request).0);
        if fate.strays() {
            state.strays.push(request.clone());
        }
        if fate == Fate::RequestLost && self.has("lost-is-done") {
            return Some(Outcome::Done);
        }
        outcome.filter(|_| matches!(fate, Fate::Carried | Fate::Twice))
    }

    fn undoes(&self, state: &mut State, fate: Fate) {
        let Doing::Undoes { version, undo, lease } = std::mem::take(&mut state.person.doing) else { return };
        let outcome = self.sends(state, &Request::Undo(version, undo.clone()), fate);
        state.person.doing = match outcome {
            Some(Outcome::Done) => match lease.filter(|lease| goes_with_mark(lease, Some(FIRST))) {
                Some(lease) => Doing::Removes(lease.resource_version.clone()),
                None => Doing::Over,
            },
            Some(Outcome::Conflict { .. }) if self.has("plans-once") => {
                let version = state.cluster.node.resource_version.clone();
                Doing::Undoes { version, undo, lease }
            }
            // It is tried again, also by a person whose command failed.
            _ => Doing::Nothing,
        };
        state.person.tries += 1;
    }

    fn removes(&self, state: &mut State, fate: Fate) {
        let Doing::Removes(version) = std::mem::take(&mut state.person.doing) else { return };
        let outcome = self.sends(state, &Request::Remove(version), fate);
        let theirs = state.cluster.lease.as_ref().filter(|lease| goes_with_mark(lease, Some(FIRST)));
        state.person.doing = match (outcome, theirs) {
            (Some(Outcome::Conflict { .. }), Some(lease)) if state.person.tries < TRIES => {
                Doing::Removes(lease.resource_version.clone())
            }
            _ => Doing::Over,
        };
        state.person.tries += 1;
    }
}

impl Protocol for GivenBack {
    type State = State;
    type Move = Move;

    /// The first drain has begun and works.
    fn begin(&self) -> State {
        let mut cluster = Cluster::new();
        cluster.node.unschedulable = self.cordoned;
        let mut first = Worker::begin(FIRST, 1, &cluster);
        first.decide(time(0), |worker| worker.lease.clone());
        while let Some(action) = first.sent.pop() {
            let (outcome, learned) = cluster.carry(&action, Blind::default());
            first.hear(&action, outcome, learned, time(0));
            first.decide(time(0), |worker| worker.lease.clone());
        }
        State {
            faults: FAULTS,
            cluster,
            first,
            second: None,
            person: Person::default(),
            strays: Vec::new(),
            broken: None,
        }
    }

    fn moves(&self, state: &State) -> Vec<Move> {
        let mut moves = Vec::new();
        if state.second.is_none() {
            moves.push(Move::SecondBegins);
        }
        for (number, worker) in [Some(&state.first), state.second.as_ref()].into_iter().enumerate() {
            let Some(worker) = worker.filter(|worker| !worker.is_over()) else { continue };
            if !worker.knows(&state.cluster) {
                moves.push(Move::Sees(number));
            }
            moves.extend((0..worker.sent.len()).map(|which| Move::Answer(number, which)));
            if state.faults > 0 {
                moves.push(Move::Dies(number));
            }
        }
        match &state.person.doing {
            Doing::Nothing if state.person.tries < TRIES => moves.push(Move::ReadsNode),
            Doing::Read(_) => moves.push(Move::ReadsRecord),
            Doing::Undoes { .. } => moves.extend(fates(state.faults).iter().map(|fate| Move::Undoes(*fate))),
            Doing::Removes(_) => moves.extend(fates(state.faults).iter().map(|fate| Move::Removes(*fate))),
            Doing::Nothing | Doing::Over => {}
        }
        moves.extend((0..state.strays.len()).map(Move::Arrives));
        moves
    }

    fn go(&self, state: &mut State, next: &Move) {
        match *next {
            Move::SecondBegins => {
                state.second = Some(Worker::begin(SECOND, 2, &state.cluster));
                Self::decide(state, 1);
            }
            Move::Sees(number) => {
                let (node, lease) = (state.cluster.node.clone(), state.cluster.lease.clone());
                if let Some(worker) = Self::worker(state, number) {
                    (worker.node, worker.lease) = (Some(node), lease);
                }
                Self::decide(state, number);
            }
            Move::Answer(number, which) => {
                let Some(worker) = Self::worker(state, number) else { return };
                let action = worker.sent.remove(which);
                let (outcome, learned) = self.carry(state, &Request::Of(action.clone()));
                if let Some(worker) = Self::worker(state, number) {
                    worker.hear(&action, outcome, learned, time(0));
                }
                Self::decide(state, number);
            }
            Move::ReadsNode => state.person.doing = Doing::Read(Box::new(state.cluster.node.clone())),
            Move::ReadsRecord => {
                let Doing::Read(node) = std::mem::take(&mut state.person.doing) else { return };
                let lease = state.cluster.lease.clone();
                state.person.doing = match self.plan(&node, lease.as_ref()) {
                    Some(undo) => Doing::Undoes {
                        version: node.resource_version.clone(),
                        undo,
                        lease: lease.map(Box::new),
                    },
                    None => Doing::Over,
                };
            }
            Move::Undoes(fate) => self.undoes(state, fate),
            Move::Removes(fate) => self.removes(state, fate),
            Move::Arrives(which) => {
                let request = state.strays.remove(which);
                self.carry(state, &request);
            }
            Move::Dies(number) => {
                state.faults -= 1;
                let Some(worker) = Self::worker(state, number) else { return };
                worker.alive = false;
                (worker.node, worker.lease) = (None, None);
                let sent: Vec<Action> = worker.sent.drain(..).collect();
                state.strays.extend(sent.into_iter().map(Request::Of));
            }
        }
    }

    fn broken(&self, state: &State) -> Option<String> {
        if state.broken.is_some() {
            return state.broken.clone();
        }
        let (node, over) = (&state.cluster.node, matches!(state.person.doing, Doing::Over));
        let marked = match &node.mark {
            Some(MarkState::Valid(mark)) => Some(&mark.owner),
            _ => None,
        };
        if over && state.strays.is_empty() && marked.is_none() && node.unschedulable != self.cordoned {
            return Some("the node was given back and is not as it was".into());
        }
        if over && state.strays.is_empty() && marked.is_some_and(|owner| owner == FIRST) {
            return Some("the node counts as given back and is not".into());
        }
        None
    }
}
