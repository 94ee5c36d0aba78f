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

use super::event::{End, Event};
use super::fencing::{Fenced, How, Void};
use super::next_step::{
    NextStep, PolicyNow, Refusal, Release, SwitchOffConditions, Witness, accept, may_switch_off, next,
    still_ours,
};
use super::run::{
    Answer, Attempts, Facts, FailoverRun, Fault, Fencing, Own, Phase, ProofFrom, ProofPhase, Proving,
    Refuted, TRIES,
};
use super::silence::Signs;
use super::step::{StepContext, Turn, seconds};
use super::suspect::{SHUT_DOWN, Sign, Suspect};
use crate::cluster::fact::Uid;
use crate::cluster::subject::{Kind, ObjectRef};

pub(super) fn begin(run: &mut FailoverRun, how: Release) -> Turn {
    let witness = Witness::new(run.spec.policy.clone());
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
    context: &mut StepContext<'_>,
) -> Turn {
    let facts = context.facts;
    match (phase, outcome) {
        (ProofPhase::Reading, outcome) => match found(facts, &outcome) {
            Some(suspect) => judge(run, proving, suspect, context),
            // It was deleted meanwhile, which releases it as well.
            None => released(run, proving.how, context.now),
        },
        (ProofPhase::LookingOut(fencing), Answer::LookedOut { suspect, policy, leads }) => {
            looked_out(run, proving, fencing, (suspect.as_ref(), policy.as_ref(), leads), context)
        }
        (ProofPhase::SwitchingOff { .. }, Answer::Stopped) => finish(run, End::Stopped { released: false }),
        (ProofPhase::SwitchingOff { fencing, .. }, Answer::NotOff { why, is_final }) => {
            context.tell(Event::FenceFailed { number: fencing.attempts.number, why: why.clone() });
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
            Some(suspect) => seen_off(run, proving, suspect, (program, began), context),
            None => lost(run),
        },
        (ProofPhase::Recording { proof, uid }, Answer::Done) => {
            proving.told = true;
            context.tell(Event::Proven { how: proof.how.words(), recorded: true });
            let message = format!("{} (recorded by {})", proof.how.words(), run.spec.owner);
            notice(run, &uid, "Fenced", message, context);
            read(run, proving)
        }
        (ProofPhase::Releasing { uid }, Answer::Done) => {
            let (how, message) = (proving.how, done_by(proving.how).to_owned());
            notice(run, &uid, "FailedOver", message, context);
            context.tell(Event::Released { how });
            released(run, how, context.now)
        }
        (ProofPhase::Refuting(refuted), Answer::Done) => {
            let message = Void::WrongMachine { sign: refuted.sign }.words();
            if let Some((suspect, _)) = &facts.node {
                notice(run, &suspect.node.uid, "WrongMachine", message, context);
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
fn judge(
    run: &mut FailoverRun,
    mut proving: Proving,
    suspect: &Suspect,
    context: &mut StepContext<'_>,
) -> Turn {
    let now = context.now;
    run.silence.see(suspect, now);
    proving.witness.see(suspect, now);
    let next = next(suspect, &run.silence, &proving.witness, now);
    // Nothing is switched off or released under the mark of another.
    if matches!(next, NextStep::Prove | NextStep::Watch { .. } | NextStep::Release)
        && let Err(refusal) = still_ours(suspect, &run.spec.owner)
    {
        return refuse(run, refusal);
    }
    match next {
        NextStep::Refuse(refusal @ Refusal::Void(Void::WrongMachine { .. })) => {
            refute(run, proving, suspect, refusal, 0)
        }
        NextStep::Refuse(refusal) => refuse(run, refusal),
        NextStep::Await => released(run, proving.how, now),
        NextStep::Prove => prove(run, proving, suspect, context),
        NextStep::Watch { until } => {
            announce(&mut proving, suspect, context);
            context.tell(Event::Watching { seconds: seconds(until, now) });
            doing(Own::Watch { suspect: Box::new(suspect.clone()), until }, proving, ProofPhase::Watching)
        }
        NextStep::Release => {
            announce(&mut proving, suspect, context);
            let Some(proof) = suspect.record() else { return read(run, proving) };
            let (node, proof, how) = (Box::new(suspect.node.clone()), Box::new(proof.clone()), proving.how);
            let uid = node.uid.clone();
            doing(Own::Release { node, proof, how }, proving, ProofPhase::Releasing { uid })
        }
    }
}

/// Tells of a proof that an earlier run has written down.
fn announce(proving: &mut Proving, suspect: &Suspect, context: &mut StepContext<'_>) {
    if !std::mem::replace(&mut proving.told, true)
        && let Some(proof) = suspect.record()
    {
        context.tell(Event::Proven { how: proof.how.words(), recorded: false });
    }
}

/// Obtains a proof, or says why there is none.
fn prove(run: &mut FailoverRun, proving: Proving, suspect: &Suspect, context: &mut StepContext<'_>) -> Turn {
    if let Some(proof) = proving.fenced.clone() {
        // The node changed before the record was written. If that was a sign of life, the record is refuted as it is written.
        return write(proving, suspect, proof);
    }
    let how = match run.spec.proof.clone() {
        // A person does not have to repeat what the provider says already.
        ProofFrom::Nowhere if suspect.is_shut_down() => Some(How::Provider { signal: SHUT_DOWN.into() }),
        ProofFrom::Agent { program, attempts, pause } => {
            return fence(run, proving, suspect, (program, attempts, pause), context);
        }
        from => from.said(),
    };
    let Some(how) = how else { return finish(run, End::NoProof { why: None }) };
    match accept(suspect, &run.silence, how, &run.spec.owner, context.now) {
        Ok(proof) => write(proving, suspect, signed(run, proof, context)),
        Err(refusal) => refuse(run, refusal),
    }
}

fn write(proving: Proving, suspect: &Suspect, proof: Fenced) -> Turn {
    let (node, proof) = (Box::new(suspect.node.clone()), Box::new(proof));
    let phase = ProofPhase::Recording { proof: proof.clone(), uid: node.uid.clone() };
    doing(Own::WriteProof { node, proof }, proving, phase)
}

fn signed(run: &FailoverRun, proof: Fenced, context: &StepContext<'_>) -> Fenced {
    Fenced { policy: run.spec.policy.clone(), at: context.facts.calendar(proof.at), ..proof }
}

/// Lets an agent switch the machine off.
fn fence(
    run: &mut FailoverRun,
    proving: Proving,
    suspect: &Suspect,
    (program, attempts, pause): (String, Attempts, Duration),
    context: &mut StepContext<'_>,
) -> Turn {
    let answers = run.silence.answered(suspect, context.now).is_some();
    // It was silent when this began, so nothing was tried to empty it in good order.
    if answers && !run.drained {
        return refuse(run, Refusal::Recovered { sign: Sign::Lease });
    }
    let before =
        SwitchOffConditions { signs: (!answers).then(|| Signs::of(suspect)), owner: run.spec.owner.clone() };
    context.tell(Event::Fencing { by: program.clone() });
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
    context: &StepContext<'_>,
) -> Turn {
    if let Err(refusal) = may_switch_off(suspect, &fencing.before, policy) {
        return refuse(run, refusal);
    }
    // Where several operators run, only the one that leads switches anything off.
    if !leads || run.stopping {
        return finish(run, End::Stopped { released: false });
    }
    doing(Own::SwitchOff, proving, ProofPhase::SwitchingOff { fencing, began: context.now })
}

/// The machine was seen off; the signs of life are those that are read then.
fn seen_off(
    run: &mut FailoverRun,
    mut proving: Proving,
    suspect: &Suspect,
    (program, began): (String, Timestamp),
    context: &StepContext<'_>,
) -> Turn {
    run.silence.see(suspect, context.now);
    match accept(suspect, &run.silence, How::Agent { program }, &run.spec.owner, began) {
        Ok(proof) => {
            let proof = signed(run, proof, context);
            proving.witness.made(&proof, context.now);
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

fn notice(
    run: &mut FailoverRun,
    uid: &Uid,
    reason: &'static str,
    message: String,
    context: &StepContext<'_>,
) {
    let node = ObjectRef::cluster(Kind::Node, &run.spec.node, uid);
    run.notices.push((context.calendar(), crate::action::Event::warning(node, reason, message)));
}

fn done_by(how: Release) -> &'static str {
    match how {
        Release::Taint => "Put out of service: its pods are removed and its volumes detached",
        Release::DeleteNode => "Deleted: its pods are removed as orphans",
    }
}
