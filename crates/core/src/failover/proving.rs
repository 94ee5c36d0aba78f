//! From a node that is cordoned to one that is released: the proof, the watch over it, the release.
//!
//! ```text
//!            ┌──────────────────── the node has changed ◀───────────────────┐
//!            ▼                                                              │
//!  read ─▶ next? ─▶ prove ─▶ look out ─▶ switch off ─▶ read ─▶ write proof ─┤
//!            │                   ▲  failed │ pause                          │
//!            │                   └─────────┘                                │
//!            ├────▶ watch ──────────────────────────────────────────────────┤
//!            ├────▶ release ─▶ released                                     │
//!            └────▶ refused (a proof that is found to be wrong is marked so first)
//! ```
//!
//! A proof by an agent is dated when its `off` began. Before each try it is looked whether the machine may still be switched off: between two tries
//! a node may recover, a policy may be paused and another operator may lead.

use std::time::Duration;

use jiff::Timestamp;

use super::course::{
    Before, Next, PolicyNow, Refusal, Release, Witness, accept, may_switch_off, next, still_ours,
};
use super::event::{End, Event};
use super::fencing::{Fenced, How, Void};
use super::run::{
    Answer, Attempts, Facts, FailoverRun, Fault, Fencing, Own, Phase, ProofFrom, ProofPhase, Proving,
    Refuted, TRIES,
};
use super::silence::Signs;
use super::step::{Turn, View, seconds};
use super::suspect::{SHUT_DOWN, Suspect};
use crate::cluster::fact::Uid;
use crate::cluster::subject::{Kind, ObjectRef};

pub(super) fn begin(run: &mut FailoverRun, how: Release) -> Turn {
    let witness = Witness::new(run.wish.policy.clone());
    read(run, Proving { how, tries: 0, witness, fenced: None, told: false })
}

/// The node is looked at, and then the next thing is done.
fn read(run: &mut FailoverRun, mut proving: Proving) -> Turn {
    if proving.tries >= TRIES {
        return publish(run, Phase::Ended(Err(Fault::Contended)));
    }
    if run.stopping {
        return finish(run, End::Stopped { released: false });
    }
    proving.tries += 1;
    Turn::ask(Own::Read { holder: false }, Phase::Proving(Box::new(proving), ProofPhase::Reading))
}

/// Events are sent when the proof is over: no guest that is down waits for them.
fn publish(run: &mut FailoverRun, then: Phase) -> Turn {
    let notices = run.take_notices();
    if notices.is_empty() {
        return Turn::Go(then);
    }
    Turn::ask(Own::Publish(notices), Phase::Publishing(Box::new(then)))
}

fn finish(run: &mut FailoverRun, end: End) -> Turn {
    publish(run, Phase::Ended(Ok(end)))
}

fn refuse(run: &mut FailoverRun, refusal: Refusal) -> Turn {
    finish(run, End::Refused(refusal))
}

fn released(run: &mut FailoverRun, how: Release, at: Timestamp) -> Turn {
    publish(run, Phase::Released { at, how })
}

fn lost(run: &mut FailoverRun) -> Turn {
    publish(run, Phase::Ended(Err(Fault::NodeGone)))
}

fn doing(own: Own, proving: Proving, phase: ProofPhase) -> Turn {
    Turn::ask(own, Phase::Proving(Box::new(proving), phase))
}

/// The node as it was just read; none if it is gone.
fn found<'a>(facts: &'a Facts, outcome: &Answer) -> Option<&'a Suspect> {
    match (outcome, &facts.node) {
        (Answer::Gone, _) | (_, None) => None,
        (_, Some((suspect, _))) => Some(suspect),
    }
}

pub(super) fn go_on(
    run: &mut FailoverRun,
    mut proving: Proving,
    phase: ProofPhase,
    outcome: Answer,
    view: &mut View<'_>,
) -> Turn {
    let facts = view.facts;
    match (phase, outcome) {
        (ProofPhase::Reading, outcome) => match found(facts, &outcome) {
            Some(suspect) => judge(run, proving, suspect, view),
            // It was deleted meanwhile, which releases it as well.
            None => released(run, proving.how, view.now),
        },
        (ProofPhase::LookingOut(fencing), Answer::LookedOut { suspect, policy, leads }) => {
            looked_out(run, proving, fencing, (suspect.as_ref(), policy.as_ref(), leads), view)
        }
        (ProofPhase::SwitchingOff { .. }, Answer::Stopped) => finish(run, End::Stopped { released: false }),
        (ProofPhase::SwitchingOff { fencing, .. }, Answer::NotOff { why, is_final }) => {
            view.tell(Event::FenceFailed { number: fencing.attempts.number, why: why.clone() });
            let Some(attempts) = fencing.attempts.after_failure(is_final) else {
                return finish(run, End::NoProof { why: Some(why) });
            };
            let pause = fencing.pause;
            doing(Own::Pause(pause), proving, ProofPhase::Pausing(Fencing { attempts, ..fencing }))
        }
        (ProofPhase::SwitchingOff { fencing, began }, _) => {
            let program = fencing.program;
            doing(Own::Read { holder: false }, proving, ProofPhase::SeenOff { program, began })
        }
        (ProofPhase::Pausing(fencing), _) => look_out(run, proving, fencing),
        (ProofPhase::SeenOff { program, began }, outcome) => match found(facts, &outcome) {
            Some(suspect) => seen_off(run, proving, suspect, (program, began), view),
            None => lost(run),
        },
        (ProofPhase::Recording { proof, uid }, Answer::Done) => {
            proving.told = true;
            view.tell(Event::Proven { how: proof.how.words(), recorded: true });
            let message = format!("{} (recorded by {})", proof.how.words(), run.wish.owner);
            notice(run, &uid, "Fenced", message, view);
            read(run, proving)
        }
        (ProofPhase::Releasing { uid }, Answer::Done) => {
            let (how, message) = (proving.how, done_by(proving.how).to_owned());
            notice(run, &uid, "FailedOver", message, view);
            view.tell(Event::Released { how });
            released(run, how, view.now)
        }
        (ProofPhase::Refuting(refuted), Answer::Done) => {
            let message = Void::WrongMachine { sign: refuted.sign }.words();
            if let Some((suspect, _)) = &facts.node {
                notice(run, &suspect.node.uid, "WrongMachine", message, view);
            }
            refuse(run, refuted.refusal)
        }
        (ProofPhase::Refuting(refuted), _) if refuted.tries >= TRIES => {
            publish(run, Phase::Ended(Err(Fault::Contended)))
        }
        (ProofPhase::Refuting(refuted), _) => {
            doing(Own::Read { holder: false }, proving, ProofPhase::RefuteReading(refuted))
        }
        (ProofPhase::RefuteReading(refuted), outcome) => match found(facts, &outcome) {
            Some(suspect) => refute(run, proving, suspect, refuted.refusal, refuted.tries),
            None => lost(run),
        },
        // The node has changed before something was written, or it was watched: it is looked at again.
        (ProofPhase::Watching | ProofPhase::Recording { .. } | ProofPhase::Releasing { .. }, _) => {
            read(run, proving)
        }
        (phase @ ProofPhase::LookingOut(_), _) => Turn::Rest(Phase::Proving(Box::new(proving), phase), None),
    }
}

/// Decides on the node as it is at this moment.
fn judge(run: &mut FailoverRun, mut proving: Proving, suspect: &Suspect, view: &mut View<'_>) -> Turn {
    let now = view.now;
    run.silence.see(suspect, now);
    proving.witness.see(suspect, now);
    let next = next(suspect, &run.silence, &proving.witness, now);
    // Nothing is switched off or released under the mark of another.
    if matches!(next, Next::Prove | Next::Watch { .. } | Next::Release)
        && let Err(refusal) = still_ours(suspect, &run.wish.owner)
    {
        return refuse(run, refusal);
    }
    match next {
        Next::Refuse(refusal @ Refusal::Void(Void::WrongMachine { .. })) => {
            refute(run, proving, suspect, refusal, 0)
        }
        Next::Refuse(refusal) => refuse(run, refusal),
        Next::Await => released(run, proving.how, now),
        Next::Prove => prove(run, proving, suspect, view),
        Next::Watch { until } => {
            announce(&mut proving, suspect, view);
            view.tell(Event::Watching { seconds: seconds(until, now) });
            doing(Own::Watch { suspect: Box::new(suspect.clone()), until }, proving, ProofPhase::Watching)
        }
        Next::Release => {
            announce(&mut proving, suspect, view);
            let Some(proof) = suspect.record() else { return read(run, proving) };
            let (node, proof, how) = (Box::new(suspect.node.clone()), Box::new(proof.clone()), proving.how);
            let uid = node.uid.clone();
            doing(Own::Release { node, proof, how }, proving, ProofPhase::Releasing { uid })
        }
    }
}

/// Tells of a proof that an earlier run has written down.
fn announce(proving: &mut Proving, suspect: &Suspect, view: &mut View<'_>) {
    if !std::mem::replace(&mut proving.told, true)
        && let Some(proof) = suspect.record()
    {
        view.tell(Event::Proven { how: proof.how.words(), recorded: false });
    }
}

/// Obtains a proof, or says why there is none.
fn prove(run: &mut FailoverRun, proving: Proving, suspect: &Suspect, view: &mut View<'_>) -> Turn {
    if let Some(proof) = proving.fenced.clone() {
        // The node changed before the record was written. If that was a sign of life, the record is refuted as it is written.
        return write(proving, suspect, proof);
    }
    let how = match run.wish.proof.clone() {
        // A person does not have to repeat what the provider says already.
        ProofFrom::Nowhere if suspect.is_shut_down() => Some(How::Provider { signal: SHUT_DOWN.into() }),
        ProofFrom::Agent { program, attempts, pause } => {
            return fence(run, proving, suspect, (program, attempts, pause), view);
        }
        from => from.said(),
    };
    let Some(how) = how else { return finish(run, End::NoProof { why: None }) };
    match accept(suspect, &run.silence, how, &run.wish.owner, view.now) {
        Ok(proof) => write(proving, suspect, signed(run, proof, view)),
        Err(refusal) => refuse(run, refusal),
    }
}

fn write(proving: Proving, suspect: &Suspect, proof: Fenced) -> Turn {
    let (node, proof) = (Box::new(suspect.node.clone()), Box::new(proof));
    let phase = ProofPhase::Recording { proof: proof.clone(), uid: node.uid.clone() };
    doing(Own::WriteProof { node, proof }, proving, phase)
}

fn signed(run: &FailoverRun, proof: Fenced, view: &View<'_>) -> Fenced {
    Fenced { policy: run.wish.policy.clone(), at: view.facts.calendar(proof.at), ..proof }
}

/// Lets an agent switch the machine off.
fn fence(
    run: &mut FailoverRun,
    proving: Proving,
    suspect: &Suspect,
    (program, attempts, pause): (String, Attempts, Duration),
    view: &mut View<'_>,
) -> Turn {
    let answers = run.silence.answered(suspect, view.now).is_some();
    let before = Before { signs: (!answers).then(|| Signs::of(suspect)), owner: run.wish.owner.clone() };
    view.tell(Event::Fencing { by: program.clone() });
    look_out(run, proving, Fencing { program, attempts, pause, before })
}

fn look_out(run: &mut FailoverRun, proving: Proving, fencing: Fencing) -> Turn {
    if run.stopping {
        return finish(run, End::Stopped { released: false });
    }
    doing(Own::LookOut, proving, ProofPhase::LookingOut(fencing))
}

fn looked_out(
    run: &mut FailoverRun,
    proving: Proving,
    fencing: Fencing,
    (suspect, policy, leads): (&Suspect, Option<&PolicyNow>, bool),
    view: &View<'_>,
) -> Turn {
    if let Err(refusal) = may_switch_off(suspect, &fencing.before, policy) {
        return refuse(run, refusal);
    }
    // Where several operators run, only the one that leads switches anything off.
    if !leads || run.stopping {
        return finish(run, End::Stopped { released: false });
    }
    doing(Own::SwitchOff, proving, ProofPhase::SwitchingOff { fencing, began: view.now })
}

/// The machine was seen off; the signs of life are those that are read then.
fn seen_off(
    run: &mut FailoverRun,
    mut proving: Proving,
    suspect: &Suspect,
    (program, began): (String, Timestamp),
    view: &View<'_>,
) -> Turn {
    run.silence.see(suspect, view.now);
    match accept(suspect, &run.silence, How::Agent { program }, &run.wish.owner, began) {
        Ok(proof) => {
            let proof = signed(run, proof, view);
            proving.witness.made(&proof, view.now);
            proving.fenced = Some(proof.clone());
            write(proving, suspect, proof)
        }
        Err(refusal) => refuse(run, refusal),
    }
}

/// Notes on the record that it was wrong, so that no operator acts on it or lets the same agent do the same again.
fn refute(run: &mut FailoverRun, proving: Proving, suspect: &Suspect, refusal: Refusal, tries: u32) -> Turn {
    let record = suspect.record().filter(|record| record.refuted.is_none());
    let Some((record, sign)) = record.and_then(|record| Some((record, record.wrong_machine(suspect)?)))
    else {
        return refuse(run, refusal);
    };
    let proof = Box::new(Fenced { refuted: Some(sign), ..record.clone() });
    let node = Box::new(suspect.node.clone());
    let refuted = Refuted { refusal, sign, tries: tries + 1 };
    doing(Own::WriteProof { node, proof }, proving, ProofPhase::Refuting(refuted))
}

fn notice(run: &mut FailoverRun, uid: &Uid, reason: &'static str, message: String, view: &View<'_>) {
    let node = ObjectRef::cluster(Kind::Node, &run.wish.node, uid);
    run.notices.push((view.calendar(), crate::action::Event::warning(node, reason, message)));
}

fn done_by(how: Release) -> &'static str {
    match how {
        Release::Taint => "Put out of service: its pods are removed and its volumes detached",
        Release::DeleteNode => "Deleted: its pods are removed as orphans",
    }
}
