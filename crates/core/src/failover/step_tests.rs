use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::event::{End, Event};
use super::fencing::{Fenced, How, Void};
use super::next_step::{PolicyNow, Release};
use super::run::{Action, Answer, Attempts, Facts, FailoverRun, FailoverSpec, Fault, Own, ProofFrom, TRIES};
use super::silence::Silence;
use super::snapshot::{Holding, NodeSnapshot};
use super::step::step;
use super::suspect::testing::{lease, silent};
use super::suspect::{FencedState, Suspect, out_of_service};
use super::{Refusal, fates};
use crate::cluster::fact::{Fact, Uid};
use crate::cluster::index::Index;
use crate::drain::ownership::{MarkState, NodeChanges, new_mark};
use crate::drain::quorum::Shortage;
use crate::machines::testing::{Known, boot, machine, view};
use crate::machines::{Phase, RunStrategy};
use crate::testing::at;

type Change = fn(&mut Suspect);

/// A cluster with one failed node, which does at once what a failover wants.
struct Bench {
    node: Suspect,
    facts: Facts,
    run: FailoverRun,
    now: Timestamp,
    /// What was done, in words.
    done: Vec<&'static str>,
    events: Vec<Event>,
    notices: Vec<&'static str>,
    /// How many tries to switch the machine off fail.
    failing: u32,
    leads: bool,
    policy: Option<PolicyNow>,
    quorum: Vec<Result<(), Shortage>>,
    /// What happens to the node just before the action of this name.
    meddling: Vec<(&'static str, Change)>,
    /// When the run is told to stop: before the action of this name.
    stops_at: &'static str,
    /// Whether guests return as soon as they are released.
    return_at_once: bool,
}

fn spec(proof: ProofFrom) -> FailoverSpec {
    FailoverSpec {
        node: "n".into(),
        owner: "op".into(),
        options: Vec::new(),
        proof,
        release: None,
        allow_control_plane: false,
        dry_run: false,
        timeout: None,
        stall: None,
        drain: Duration::from_secs(30),
        policy: None,
    }
}

fn statement() -> ProofFrom {
    ProofFrom::Said(How::Statement { by: "kim".into(), reason: "pulled the plug".into() })
}

fn agent(tries: u32) -> ProofFrom {
    let pause = Duration::from_secs(5);
    ProofFrom::Agent { program: "fence_x".into(), attempts: Attempts::new(tries), pause }
}

impl Bench {
    fn new(spec: FailoverSpec) -> Self {
        let now = at(1000);
        Self {
            node: silent("n"),
            facts: Facts::default(),
            run: FailoverRun::new(spec, Silence::default(), now),
            now,
            done: Vec::new(),
            events: Vec::new(),
            notices: Vec::new(),
            failing: 0,
            leads: true,
            policy: None,
            quorum: Vec::new(),
            meddling: Vec::new(),
            stops_at: "",
            return_at_once: true,
        }
    }

    fn pass(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    /// Runs until it ends, or until it waits for what the cluster does not do.
    fn run(&mut self) -> Result<End, Fault> {
        for _ in 0..500 {
            let mut decision = step(&self.facts, &mut self.run, self.now);
            self.events.append(&mut decision.events);
            if let Some(end) = self.run.end() {
                return end.cloned();
            }
            match decision.actions.pop() {
                Some(action) => {
                    let outcome = self.perform(action);
                    self.run.record(outcome);
                }
                None => self.now = decision.look_again.expect("it waits for something"),
            }
        }
        panic!("it does not end: {:?}", self.done);
    }

    fn perform(&mut self, action: Action) -> Answer {
        let name = name(&action);
        if name == self.stops_at {
            self.run.stop();
        }
        if let Some(place) = self.meddling.iter().position(|(before, _)| *before == name) {
            let (_, change) = self.meddling.remove(place);
            change(&mut self.node);
            self.node.node.resource_version = format!("{}x", self.node.node.resource_version).into();
        }
        self.done.push(name);
        let own = match action {
            Action::Own(own) => own,
            Action::Cordon { mark, resource_version, .. } => {
                return self.write(&resource_version, |node| {
                    (node.node.unschedulable, node.node.mark) = (true, Some(MarkState::Valid(mark)));
                });
            }
            other => panic!("{other:?}"),
        };
        match own {
            Own::Look { .. } => {
                self.facts.snapshot = Some(self.look());
                Answer::Done
            }
            Own::Read { holder } => {
                let holding = holder.then(|| self.look().holding);
                self.facts.node = Some((self.node.clone(), holding));
                Answer::Done
            }
            Own::AskQuorum => Answer::Quorum(self.quorum.remove(0)),
            Own::AskVersion => Answer::Version((1, 30)),
            Own::Watch { until, .. } => {
                self.now = until;
                self.run.silence.see(&self.node, until);
                Answer::Done
            }
            Own::Note(_) => Answer::Done,
            Own::Drain(_) => Answer::Drained(None),
            Own::LookOut => {
                let (suspect, policy) = (Box::new(self.node.clone()), self.policy.clone());
                Answer::LookedOut { suspect, policy, leads: self.leads }
            }
            Own::SwitchOff => {
                self.pass(3);
                if self.failing == 0 {
                    return Answer::Done;
                }
                self.failing -= 1;
                Answer::NotOff { why: "no answer".into(), is_final: false }
            }
            Own::Pause(span) => {
                self.pass(i64::try_from(span.as_secs()).unwrap());
                Answer::Done
            }
            Own::WriteProof { node, proof } => self.write(&node.resource_version, |node| {
                node.node.life.fenced = Some(FencedState::Valid(proof));
            }),
            Own::Release { node, proof, how } => {
                assert_eq!(how, Release::Taint);
                let released = Box::new(Fenced { released: true, ..*proof });
                self.write(&node.resource_version, |node| {
                    node.node.taints.push(out_of_service());
                    node.node.life.fenced = Some(FencedState::Valid(released));
                })
            }
            Own::Publish(notices) => {
                self.notices.extend(notices.iter().map(|(_, notice)| notice.reason));
                Answer::Done
            }
            Own::Follow { .. } => {
                self.facts.after.is_whole = true;
                self.facts.after.index = guests(self.return_at_once);
                Answer::Done
            }
            Own::Untaint(node) => self.write(&node.resource_version, |node| {
                node.node.taints.retain(|taint| !taint.same_as(&out_of_service()));
            }),
        }
    }

    fn write(&mut self, seen: &str, change: impl FnOnce(&mut Suspect)) -> Answer {
        if *seen != *self.node.node.resource_version {
            return Answer::Conflict;
        }
        change(&mut self.node);
        self.node.node.resource_version = format!("{seen}1").into();
        Answer::Done
    }

    fn look(&self) -> NodeSnapshot {
        let mut index = Index::new();
        index.apply(Fact::Node(Box::new(self.node.node.clone())));
        NodeSnapshot {
            suspect: self.node.clone(),
            pods: Vec::new(),
            guests: fates(&guests(false), "n1", false),
            attachments: Vec::new(),
            holding: Holding { index, unread: None },
            unread: Vec::new(),
        }
    }

    fn count(&self, name: &str) -> usize {
        self.done.iter().filter(|done| **done == name).count()
    }
}

/// The guest of the failed node, or its successor.
fn guests(returned: bool) -> Index {
    let vm = machine("a", RunStrategy::Always);
    let mut guest = boot(&vm, Phase::Running);
    if returned {
        (guest.uid, guest.node) = (Uid::from("new"), "n2".into());
    }
    view([(&vm).known(), (&guest).known()])
}

fn name(action: &Action) -> &'static str {
    let Action::Own(own) = action else { return "cordon" };
    match own {
        Own::Look { .. } => "look",
        Own::Read { .. } => "read",
        Own::AskQuorum => "quorum",
        Own::AskVersion => "version",
        Own::Watch { .. } => "watch",
        Own::Note(_) => "note",
        Own::Drain(_) => "drain",
        Own::LookOut => "look out",
        Own::SwitchOff => "switch off",
        Own::Pause(_) => "pause",
        Own::WriteProof { .. } => "write proof",
        Own::Release { .. } => "release",
        Own::Publish(_) => "publish",
        Own::Follow { .. } => "follow",
        Own::Untaint(_) => "untaint",
    }
}

fn renews(node: &mut Suspect) {
    node.lease = Some(lease("n", at(1500)));
}

fn is_taken_over(node: &mut Suspect) {
    let mark = new_mark(&silent("n").node, "lee", &NodeChanges::default(), at(0));
    node.node.mark = Some(MarkState::Valid(Box::new(mark)));
}

fn changes(_: &mut Suspect) {}

fn before(action: &'static str, change: Change) -> (&'static str, Change) {
    (action, change)
}

#[test]
fn a_statement_leads_from_the_first_look_to_guests_that_run_elsewhere() {
    let mut bench = Bench::new(spec(statement()));
    assert_eq!(bench.run(), Ok(End::Done { returned: 1, off: 0 }));
    let begins = ["look", "version", "watch", "note", "cordon"];
    let proves = ["read", "write proof", "read", "release", "publish"];
    let ends = ["follow", "read", "untaint"];
    assert_eq!(bench.done, [&begins[..], &proves, &ends].concat());
    assert_eq!(bench.notices, ["Fenced", "FailedOver"]);
    assert!(bench.node.node.unschedulable && bench.node.node.taints.is_empty());
}

#[test]
fn a_proof_by_an_agent_is_dated_when_its_off_began_and_two_lease_intervals_pass_before_the_release() {
    let mut bench = Bench::new(spec(agent(3)));
    bench.failing = 1;
    assert_eq!(bench.run(), Ok(End::Done { returned: 1, off: 0 }));
    // Watched for 20 s, a try of 3 s that failed, a pause of 5 s.
    assert_eq!(bench.node.record().unwrap().at, at(1028));
    assert_eq!(bench.now, at(1031 + 20));
    let proves: Vec<&str> = bench
        .done
        .iter()
        .copied()
        .filter(|name| ["look out", "switch off", "watch", "release"].contains(name))
        .collect();
    assert_eq!(proves, ["watch", "look out", "switch off", "look out", "switch off", "watch", "release"]);
}

#[test]
fn a_sign_of_life_after_the_machine_was_seen_off_voids_the_proof_and_nothing_is_released() {
    let mut bench = Bench::new(spec(agent(3)));
    bench.meddling = vec![before("write proof", changes), before("write proof", renews)];
    let end = bench.run();
    assert!(matches!(end, Ok(End::Refused(Refusal::Void(Void::WrongMachine { .. })))), "{end:?}");
    assert_eq!((bench.count("switch off"), bench.count("release")), (1, 0), "{:?}", bench.done);
    assert!(bench.node.record().unwrap().refuted.is_some());
    assert_eq!(bench.notices, ["Fenced", "WrongMachine"]);
}

#[test]
fn a_node_that_gives_a_sign_before_the_release_is_not_released_on_a_statement() {
    let mut bench = Bench::new(spec(statement()));
    bench.meddling = vec![before("release", renews)];
    let end = bench.run();
    assert!(matches!(end, Ok(End::Refused(Refusal::Answers { .. }))), "{end:?}");
    assert!(!bench.node.is_out_of_service());
}

#[test]
fn a_node_that_answers_again_before_the_first_try_is_not_switched_off_without_a_try_to_empty_it() {
    let mut bench = Bench::new(spec(agent(3)));
    bench.meddling.push(before("read", renews));
    let end = bench.run();
    assert!(matches!(end, Ok(End::Refused(Refusal::Recovered { .. }))), "{end:?}");
    assert_eq!((bench.count("drain"), bench.count("switch off")), (0, 0));
}

#[test]
fn exclusion_leadership_and_marks_are_looked_at_before_each_try() {
    let second_try = |change: fn(&mut Bench)| {
        let mut bench = Bench::new(spec(agent(5)));
        bench.failing = 9;
        bench.policy = Some(PolicyNow::InForce);
        let mut end = None;
        while end.is_none() {
            let mut decision = step(&bench.facts, &mut bench.run, bench.now);
            end = bench.run.end().map(|end| end.cloned().unwrap());
            if let Some(action) = decision.actions.pop() {
                let outcome = bench.perform(action);
                bench.run.record(outcome);
            }
            if bench.count("switch off") == 1 {
                change(&mut bench);
            }
        }
        (end.unwrap(), bench.count("switch off"))
    };
    let (end, tries) = second_try(|bench| bench.leads = false);
    assert_eq!((end, tries), (End::Stopped { released: false }, 1));
    let (end, tries) = second_try(|bench| bench.policy = Some(PolicyNow::Changed));
    assert_eq!((end, tries), (End::Refused(Refusal::PolicyChanged), 1));
    let (end, tries) = second_try(|bench| is_taken_over(&mut bench.node));
    assert!(matches!(end, End::Refused(Refusal::Owned { .. })) && tries == 1, "{end:?}");
    let (end, tries) = second_try(|bench| renews(&mut bench.node));
    assert!(matches!(end, End::Refused(Refusal::Recovered { .. })) && tries == 1, "{end:?}");
    let (end, tries) = second_try(|_| {});
    assert_eq!((end, tries), (End::NoProof { why: Some("no answer".into()) }, 5));
}

#[test]
fn the_quorum_is_asked_for_before_anything_is_written_and_again_under_the_mark() {
    let of_the_control_plane = |quorum: Vec<Result<(), Shortage>>| {
        let mut bench = Bench::new(spec(agent(1)));
        bench.node.node.labels.insert("node-role.kubernetes.io/control-plane".into(), "".into());
        bench.quorum = quorum;
        (bench.run(), bench)
    };
    let refused = Ok(End::Refused(Refusal::Quorum(Shortage::Unseen)));
    let (end, bench) = of_the_control_plane(vec![Err(Shortage::Unseen)]);
    assert_eq!((end, bench.done), (refused.clone(), vec!["look", "quorum"]));
    let (end, bench) = of_the_control_plane(vec![Ok(()), Err(Shortage::Unseen)]);
    assert_eq!(end, refused);
    assert_eq!((bench.count("cordon"), bench.count("switch off")), (1, 0));
    let (end, bench) = of_the_control_plane(vec![Ok(()), Ok(())]);
    assert_eq!((end, bench.count("release")), (Ok(End::Done { returned: 1, off: 0 }), 1));
}

#[test]
fn whoever_marks_the_node_first_has_it() {
    let mut bench = Bench::new(spec(statement()));
    bench.meddling = vec![before("cordon", is_taken_over)];
    let end = bench.run();
    assert!(matches!(end, Ok(End::Refused(Refusal::Owned { .. }))), "{end:?}");
    assert_eq!(bench.count("write proof"), 0);
}

#[test]
fn a_node_that_changes_before_each_write_is_given_up() {
    let mut bench = Bench::new(spec(statement()));
    bench.meddling = vec![before("cordon", changes); 100];
    assert_eq!(bench.run(), Err(Fault::Contended));
    assert_eq!(bench.count("cordon"), usize::try_from(TRIES).unwrap());
    let mut bench = Bench::new(spec(statement()));
    bench.meddling = vec![before("release", changes)];
    assert_eq!(bench.run(), Ok(End::Done { returned: 1, off: 0 }), "a change that means nothing");
    assert_eq!(bench.count("release"), 2);
}

#[test]
fn without_a_proof_the_node_is_cordoned_and_nothing_is_released() {
    let mut bench = Bench::new(spec(ProofFrom::Nowhere));
    assert_eq!(bench.run(), Ok(End::NoProof { why: None }));
    assert_eq!(bench.done, ["look", "version", "note", "cordon", "read"]);
}

#[test]
fn a_rehearsal_reads_and_does_nothing() {
    for (proof, proven) in [(statement(), true), (agent(3), true), (ProofFrom::Nowhere, false)] {
        let mut bench = Bench::new(FailoverSpec { dry_run: true, ..spec(proof) });
        assert_eq!(bench.run(), Ok(End::Rehearsed { proven, unwatched: 20 }));
        assert_eq!(bench.done, ["look", "version"]);
    }
}

#[test]
fn a_stop_begins_nothing_new() {
    for (stops_at, released) in [("watch", false), ("cordon", false), ("look out", false), ("follow", true)] {
        let mut bench = Bench::new(spec(agent(3)));
        // Of the control plane, whose quorum would be asked for next.
        bench.node.node.labels.insert("node-role.kubernetes.io/control-plane".into(), "".into());
        bench.quorum = vec![Ok(()), Ok(())];
        (bench.stops_at, bench.return_at_once) = (stops_at, false);
        assert_eq!(bench.run(), Ok(End::Stopped { released }), "{stops_at}");
        assert_eq!(bench.done.last(), Some(&stops_at));
    }
}

#[test]
fn a_guest_that_does_not_return_is_waited_for_until_the_time_is_up() {
    let limits: [fn(&mut FailoverSpec); 2] = [
        |spec| spec.timeout = Some(Duration::from_secs(300)),
        |spec| spec.stall = Some(Duration::from_secs(100)),
    ];
    for limit in limits {
        let mut spec = spec(statement());
        limit(&mut spec);
        let mut bench = Bench::new(spec);
        bench.return_at_once = false;
        let Ok(End::TimedOut { remains, released: true }) = bench.run() else { panic!("it is still waited") };
        assert_eq!(remains.guests.len(), 1);
        assert!(bench.node.is_out_of_service(), "the taint has still something to do");
        assert_eq!(bench.run.end(), Some(Ok(&End::TimedOut { remains, released: true })));
    }
}

#[test]
fn a_run_that_was_cut_off_goes_on_from_what_is_on_the_node() {
    let mut first = Bench::new(spec(agent(3)));
    first.stops_at = "follow";
    first.return_at_once = false;
    assert_eq!(first.run(), Ok(End::Stopped { released: true }));
    let mut second = Bench::new(spec(agent(3)));
    second.node = first.node;
    assert_eq!(second.run(), Ok(End::Done { returned: 1, off: 0 }));
    assert_eq!((second.count("switch off"), second.count("release")), (0, 0));
}
