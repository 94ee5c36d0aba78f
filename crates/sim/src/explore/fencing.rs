//! A silent node, an agent that may switch off the wrong machine, and a kubelet that may answer again at any moment: nothing is released after a sign
//! of life.

use std::time::Duration;

use evac_api::wire;
use evac_core::Node;
use evac_core::cluster::fact::Health;
use evac_core::cluster::index::{Index, ListedAt};
use evac_core::drain::ownership::MarkState;
use evac_core::failover::step::step;
use evac_core::failover::{
    Action, Answer, Attempts, Facts, FailoverRun, FailoverSpec, FencedState, Holding, How, KubeletLease,
    NodeSnapshot, Own, ProofFrom, Silence, Suspect,
};
use serde_json::json;

use super::search::{Explored, Protocol, search};
use super::{MOST, Subject, at, flaw};

pub const SUBJECT: Subject = Subject {
    name: "fencing",
    about: "a failover of a silent node, by an agent or a person, whose kubelet may answer again and whose mark may be taken",
    flaws: &[
        flaw("reads-a-cache", "the node's lease is read as it was at first"),
        flaw(
            "proof-without-signs",
            "the proof does not carry the signs of life of its moment, and the node's clock is slow",
        ),
        flaw("looks-out-once", "before another try to switch the machine off it is not looked again"),
        flaw(
            "remembers-no-start",
            "how long the node was silent is not counted from when it was first looked at",
        ),
        flaw(
            "release-without-version",
            "the release is written without the version of the node that was judged",
        ),
        flaw("believes-its-mark", "the mark is taken for what it was at first"),
    ],
    explore,
};

fn explore(flaw: Option<&'static str>) -> Explored {
    let mut all = search(&Fencing { by: By::Person, flaw }, MOST);
    for right in [true, false] {
        if all.broken.is_none() {
            all = all.and(search(&Fencing { by: By::Agent { right }, flaw }, MOST));
        }
    }
    all
}

const NODE: &str = "n";
const OWNER: &str = "evac-operator";
const TICK: i64 = 10;
const HORIZON: i64 = 50;
const SIGNS: u8 = 1;
const FAULTS: u8 = 1;
/// Two intervals of the lease, which is valid for 40 s.
const WINDOW: i64 = 20;
/// The node's clock is that far behind.
const SLOW: i64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Agent { right: bool },
    Person,
}

struct Fencing {
    by: By,
    flaw: Option<&'static str>,
}

#[derive(Debug, Clone)]
struct State {
    now: i64,
    faults: u8,
    versions: u32,
    node: Node,
    lease: KubeletLease,
    machine_runs: bool,
    /// Signs of life so far, and when the last one was.
    signs: u8,
    last_sign: i64,
    run: FailoverRun,
    action: Option<Sent>,
    snapshot: Option<Suspect>,
    read: Option<Suspect>,
    /// What was known when the node was last read.
    known: Known,
    /// The signs that there had been, and whether the mark was ours, when it was last looked whether the machine may be switched off.
    looked_out: (u8, bool),
    /// The signs that there were when the proof on the node was made.
    signs_at_proof: u8,
    /// This run has tried to empty the node.
    drained: bool,
    strays: Vec<Sent>,
    over: bool,
    broken: Option<String>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    at: i64,
    signs: u8,
    last_sign: i64,
    /// The node was silent.
    silent: bool,
}

/// An action with what was known when it was decided.
#[derive(Debug, Clone)]
struct Sent {
    action: Action,
    known: Known,
}

#[derive(Debug, Clone)]
enum Move {
    Answer,
    AnswerLost,
    Late,
    Twice,
    NotOff,
    Arrives(usize),
    Renews,
    Reports,
    Cancelled,
    Dies,
    Tick,
}

impl State {
    fn suspect(&self) -> Suspect {
        Suspect { node: self.node.clone(), lease: Some(self.lease.clone()) }
    }

    fn touch(&mut self) {
        self.versions += 1;
        self.node.resource_version = self.versions.to_string().into();
    }

    fn is_ours(&self) -> bool {
        matches!(&self.node.mark, Some(MarkState::Valid(mark)) if mark.owner == OWNER)
    }

    fn is_refuted(&self) -> bool {
        matches!(&self.node.life.fenced, Some(FencedState::Valid(proof)) if proof.refuted.is_some())
    }

    fn breaks(&mut self, words: &str) {
        self.broken.get_or_insert_with(|| words.to_owned());
    }
}

impl Fencing {
    fn has(&self, name: &str) -> bool {
        self.flaw == Some(name)
    }

    fn new_run(&self, now: i64) -> FailoverRun {
        let proof = match self.by {
            By::Agent { .. } => ProofFrom::Agent {
                program: "fence_test".into(),
                attempts: Attempts::new(2),
                pause: Duration::from_secs(1),
            },
            By::Person => {
                ProofFrom::Said(How::Statement { by: "ann".into(), reason: "it is unplugged".into() })
            }
        };
        let spec = FailoverSpec {
            node: NODE.into(),
            owner: OWNER.into(),
            options: Vec::new(),
            proof,
            release: None,
            allow_control_plane: false,
            dry_run: false,
            timeout: None,
            stall: None,
            drain: Duration::from_secs(10),
            policy: None,
        };
        FailoverRun::new(spec, Silence::default(), at(now))
    }

    /// The node as it is shown to who reads it.
    fn shown(&self, state: &State) -> Suspect {
        let mut suspect = state.suspect();
        if let Some(first) = &state.snapshot {
            if self.has("reads-a-cache") {
                suspect.lease.clone_from(&first.lease);
            }
            if self.has("believes-its-mark") && state.read.is_some() {
                suspect.node.mark = state.read.as_ref().and_then(|read| read.node.mark.clone());
            }
        }
        suspect
    }

    fn see(&self, state: &mut State) -> Suspect {
        let suspect = self.shown(state);
        let mut silence = state.run.silence.clone();
        silence.see(&suspect, at(state.now));
        let silent = silence.answered(&suspect, at(state.now)).is_none();
        state.known = Known { at: state.now, signs: state.signs, last_sign: state.last_sign, silent };
        suspect
    }

    fn decide(&self, state: &mut State) {
        let held = |suspect: &Suspect| {
            let mut index = Index::new();
            index.reset_nodes(vec![suspect.node.clone()], &ListedAt::default());
            Holding { index, unread: None }
        };
        let snapshot = state.snapshot.clone().map(|suspect| NodeSnapshot {
            holding: held(&suspect),
            suspect,
            pods: Vec::new(),
            guests: Vec::new(),
            attachments: Vec::new(),
            unread: Vec::new(),
        });
        let node = state.read.clone().map(|suspect| {
            let holding = held(&suspect);
            (suspect, Some(holding))
        });
        if self.has("remembers-no-start") {
            // Everything was seen long ago, whatever it is.
            let mut silence = Silence::default();
            if let Some(suspect) = state.read.as_ref().or(state.snapshot.as_ref()) {
                silence.see(suspect, at(-1000));
            }
            state.run.silence = silence;
        }
        let facts = Facts { snapshot, node, ..Facts::default() };
        let mut decision = step(&facts, &mut state.run, at(state.now));
        state.over |= state.run.end().is_some();
        state.action = decision.actions.pop().map(|action| Sent { action, known: state.known });
    }

    /// Carries out a write; false where the server refuses it for its version.
    fn write(&self, state: &mut State, sent: &Sent) -> bool {
        let same = |state: &State, node: &Node| node.resource_version == state.node.resource_version;
        match &sent.action {
            Action::Cordon { resource_version, mark, .. } => {
                if *resource_version != state.node.resource_version {
                    return false;
                }
                (state.node.unschedulable, state.node.mark) = (true, Some(MarkState::Valid(mark.clone())));
            }
            Action::Own(Own::WriteProof { node, proof }) => {
                if !same(state, node) {
                    return false;
                }
                let mut proof = proof.clone();
                if self.has("proof-without-signs") {
                    proof.signs = None;
                }
                if proof.refuted.is_none() {
                    state.signs_at_proof = sent.known.signs;
                }
                state.node.life.fenced = Some(FencedState::Valid(proof));
            }
            Action::Own(Own::Release { node, proof, .. }) => {
                if !same(state, node) && !self.has("release-without-version") {
                    return false;
                }
                self.judge_release(state, &sent.known);
                let mut proof = proof.clone();
                proof.released = true;
                state.node.life.fenced = Some(FencedState::Valid(proof));
                state.over = true;
            }
            _ => return true,
        }
        state.touch();
        true
    }

    fn judge_release(&self, state: &mut State, known: &Known) {
        if known.signs != state.signs_at_proof {
            state.breaks("the node is released although it gave a sign of life after the proof");
        }
        if known.signs > 0 && known.at - known.last_sign < WINDOW {
            state.breaks("the node is released less than two lease intervals after a sign of life");
        }
        if state.now < WINDOW {
            state.breaks("the node is released before it was watched for two lease intervals");
        }
        if state.node.health == Health::Ready {
            state.breaks("the node is released while it is Ready");
        }
        if !state.is_ours() {
            state.breaks("the node is released after the failover was cancelled");
        }
        if state.machine_runs && self.by == (By::Agent { right: true }) {
            state.breaks("the node is released while its machine runs");
        }
        if state.is_refuted() {
            state.breaks("the node is released on a proof that was found to be wrong");
        }
    }

    fn answer(&self, state: &mut State, sent: &Sent) -> Answer {
        match &sent.action {
            Action::Own(Own::Look { .. }) => {
                state.snapshot = Some(state.suspect());
                let _ = self.see(state);
                Answer::Done
            }
            Action::Own(Own::Read { .. }) => {
                let seen = self.see(state);
                state.read = Some(seen);
                Answer::Done
            }
            Action::Own(Own::Watch { .. }) => {
                let seen = self.shown(state);
                state.run.silence.see(&seen, at(state.now));
                Answer::Done
            }
            Action::Own(Own::AskQuorum) => Answer::Quorum(Ok(())),
            Action::Own(Own::AskVersion) => Answer::Version((1, 33)),
            Action::Own(Own::Drain(_)) => {
                state.drained = true;
                Answer::Drained(None)
            }
            Action::Own(Own::LookOut) => {
                state.looked_out = (state.signs, state.is_ours());
                let first = state.read.clone().filter(|_| self.has("looks-out-once"));
                let suspect = first.unwrap_or_else(|| state.suspect());
                Answer::LookedOut { suspect: Box::new(suspect), policy: None, leads: true }
            }
            Action::Own(Own::SwitchOff) => {
                let (signs, ours) = state.looked_out;
                if sent.known.silent && signs > sent.known.signs {
                    state.breaks("a machine is switched off that has shown that it lives");
                }
                if !sent.known.silent && !state.drained {
                    state.breaks("a machine is switched off that answers, without a try to empty it");
                }
                if !ours {
                    state.breaks("a machine is switched off after the failover was cancelled");
                }
                if self.by == (By::Agent { right: true }) {
                    state.machine_runs = false;
                }
                Answer::Done
            }
            _ if self.write(state, sent) => Answer::Done,
            _ => Answer::Conflict,
        }
    }

    /// A run that is given up leaves everything on the node; the next one goes on from there.
    fn begin_anew(&self, state: &mut State) {
        state.run = self.new_run(state.now);
        (state.action, state.snapshot, state.read) = (None, None, None);
        (state.known, state.drained) = (Known::default(), false);
        self.decide(state);
    }

    /// What may take its time: to watch, to switch off, to wait, and to write.
    fn takes_time(sent: &Sent) -> bool {
        let own = matches!(
            sent.action,
            Action::Own(Own::Watch { .. } | Own::SwitchOff | Own::Pause(_) | Own::Drain(_) | Own::LookOut)
        );
        own || Self::is_write(sent)
    }

    fn is_write(sent: &Sent) -> bool {
        matches!(
            sent.action,
            Action::Cordon { .. } | Action::Own(Own::WriteProof { .. } | Own::Release { .. })
        )
    }
}

impl Protocol for Fencing {
    type State = State;
    type Move = Move;

    fn begin(&self) -> State {
        let node = json!({
            "metadata": {"name": NODE, "uid": "node", "resourceVersion": "1"},
            "status": {
                "nodeInfo": {"bootID": "boot"},
                "conditions": [{"type": "Ready", "status": "Unknown", "lastHeartbeatTime": "2025-01-01T00:00:00Z"}],
            },
        });
        let node = serde_json::from_value::<wire::Node>(node).map(Node::from);
        // The text above is a node.
        let Ok(node) = node else { unreachable!("a node that cannot be read") };
        let lease = KubeletLease {
            renewed: Some(at(-SLOW)),
            holder: NODE.into(),
            version: "1".into(),
            seconds: 2 * WINDOW,
        };
        let mut state = State {
            now: 0,
            faults: FAULTS,
            versions: 1,
            node,
            lease,
            machine_runs: true,
            signs: 0,
            last_sign: 0,
            run: self.new_run(0),
            action: None,
            snapshot: None,
            read: None,
            known: Known::default(),
            looked_out: (0, false),
            signs_at_proof: 0,
            drained: false,
            strays: Vec::new(),
            over: false,
            broken: None,
        };
        self.decide(&mut state);
        state
    }

    fn moves(&self, state: &State) -> Vec<Move> {
        let mut moves = Vec::new();
        if let Some(sent) = &state.action {
            let waits = match &sent.action {
                Action::Own(Own::Watch { suspect, until }) => {
                    at(state.now) < *until && **suspect == self.shown(state)
                }
                _ => false,
            };
            if !waits {
                moves.push(Move::Answer);
            }
            if matches!(sent.action, Action::Own(Own::SwitchOff)) {
                moves.push(Move::NotOff);
            }
            if state.faults > 0 && Self::is_write(sent) {
                moves.extend([Move::AnswerLost, Move::Late, Move::Twice]);
            }
            if state.faults > 0 && Self::takes_time(sent) {
                moves.push(Move::Dies);
            }
        }
        moves.extend((0..state.strays.len()).map(Move::Arrives));
        if state.over {
            moves.retain(|one| matches!(one, Move::Arrives(_)));
            return moves;
        }
        if state.machine_runs && state.signs < SIGNS {
            moves.push(Move::Renews);
            if state.node.health != Health::Ready {
                moves.push(Move::Reports);
            }
        }
        if state.faults > 0 && state.is_ours() {
            moves.push(Move::Cancelled);
        }
        if state.now < HORIZON && state.action.as_ref().is_some_and(Self::takes_time) {
            moves.push(Move::Tick);
        }
        moves
    }

    fn go(&self, state: &mut State, next: &Move) {
        match *next {
            Move::Answer | Move::AnswerLost | Move::Late | Move::Twice | Move::NotOff => {
                let Some(sent) = state.action.take() else { return };
                let fault = matches!(next, Move::AnswerLost | Move::Late | Move::Twice);
                state.faults -= u8::from(fault);
                let answer = match next {
                    Move::Late => None,
                    Move::NotOff => Some(Answer::NotOff { why: "it is busy".into(), is_final: false }),
                    _ => Some(self.answer(state, &sent)),
                };
                if matches!(next, Move::Late | Move::Twice) {
                    state.strays.push(sent);
                }
                match answer.filter(|_| !matches!(next, Move::AnswerLost)) {
                    Some(answer) => {
                        state.run.record(answer);
                        self.decide(state);
                    }
                    None => self.begin_anew(state),
                }
            }
            Move::Arrives(which) => {
                let sent = state.strays.remove(which);
                self.write(state, &sent);
            }
            Move::Renews => {
                (state.signs, state.last_sign) = (state.signs + 1, state.now);
                state.lease.renewed = Some(at(state.now - SLOW));
                state.lease.version = format!("{}", 1 + state.signs);
            }
            Move::Reports => {
                (state.signs, state.last_sign) = (state.signs + 1, state.now);
                state.node.health = Health::Ready;
                state.node.life.reported = Some(at(state.now - SLOW));
                state.touch();
            }
            Move::Cancelled => {
                state.faults -= 1;
                state.node.mark = None;
                state.touch();
            }
            Move::Dies => {
                state.faults -= 1;
                let sent = state.action.take().filter(Self::is_write);
                state.strays.extend(sent);
                self.begin_anew(state);
            }
            Move::Tick => state.now += TICK,
        }
    }

    fn broken(&self, state: &State) -> Option<String> {
        state.broken.clone()
    }
}
