//! What now? The one function that moves a failover forward: look, cordon, drain what answers, see the machine off, release what it held,
//! wait for the guests.
//!
//! ```text
//!  look ─▶ spare? ─▶ version? ─▶ watch ─▶ note ─▶ cordon ─▶ spare? ─▶ prove ─▶ release ─▶ wait ─▶ restore ─▶ ended
//!    │       │                     │        │       ▲ │       │       │  ▲  │
//!    │       │                     │        ▼       │ │       │       │  └──┘ the node changed, or has to be watched:
//!    │       │                     │  drain ─▶ look─┘ │       │       │       it is looked at again
//!    ▼       ▼                     ▼        ▼         ▼       ▼       ▼
//!  refused: it is Ready, another's, alive, or cannot be spared; or stopped; or not proven to be off
//! ```
//!
//! Each write is decided on the node and its lease as they are at that moment, and sent under the node's version: a node that reports
//! between the look and the write makes the write fail, and is looked at again. One action is under way at a time. From the proof to the
//! release is `proving.rs`, the wait is `waiting.rs`.

use jiff::Timestamp;

use super::event::{End, Event};
use super::fencing::How;
use super::next_step::{NextStep, Refusal, Release, Witness, foresee, next, settled, suitable};
use super::proving;
use super::run::{Action, Answer, Begun, Cordoning, Facts, FailoverRun, Fault, Own, Phase, ProofFrom, TRIES};
use super::silence::window;
use super::snapshot::NodeSnapshot;
use super::suspect::{SHUT_DOWN, Suspect};
use super::waiting;
use crate::drain::ownership::{NodeChanges, Ownership, new_mark};
use crate::drain::quorum::is_control_plane;
use crate::drain::run::End as DrainEnd;

/// What is to be done and told now. There is at most one action: what follows depends on it.
pub type Decision = crate::action::Decision<Action, Event>;

/// What a phase leads to.
pub(super) enum Turn {
    Do(Action, Phase),
    Go(Phase),
    Rest(Phase, Option<Timestamp>),
}

impl Turn {
    /// Asks for what only a failover asks for.
    pub(super) fn ask(own: Own, next: Phase) -> Self {
        Self::Do(Action::Own(own), next)
    }

    pub(super) fn end(end: End) -> Self {
        Self::Go(Phase::Ended(Ok(end)))
    }

    pub(super) fn refuse(refusal: Refusal) -> Self {
        Self::end(End::Refused(refusal))
    }
}

/// What a phase is judged by, and where it tells its events.
pub(super) struct StepContext<'a> {
    pub facts: &'a Facts,
    pub now: Timestamp,
    pub events: &'a mut Vec<Event>,
}

impl StepContext<'_> {
    pub fn tell(&mut self, event: Event) {
        self.events.push(event);
    }

    pub fn calendar(&self) -> Timestamp {
        self.facts.calendar(self.now)
    }
}

/// Decides on what was read and on what became of the last action, which [`FailoverRun::record`] has taken in.
pub fn step(facts: &Facts, run: &mut FailoverRun, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    loop {
        let phase = std::mem::take(&mut run.phase);
        let mut context = StepContext { facts, now, events: &mut decision.events };
        match turn(run, phase, &mut context) {
            Turn::Go(next) => run.phase = next,
            Turn::Do(action, next) => {
                (run.phase, run.outcome) = (next, None);
                decision.actions.push(action);
                return decision;
            }
            Turn::Rest(next, at) => {
                run.phase = next;
                decision.look_again = at;
                return decision;
            }
        }
    }
}

fn turn(run: &mut FailoverRun, phase: Phase, context: &mut StepContext<'_>) -> Turn {
    match phase {
        Phase::New => Turn::ask(Own::Look { may_ask: !run.spec.dry_run }, Phase::Looking),
        Phase::Ended(end) => Turn::Rest(Phase::Ended(end), None),
        Phase::Released { at, how } => waiting::begin(run, at, how, context),
        Phase::Waiting(waiting) => waiting::go_on(run, waiting, context),
        phase => match run.outcome.take() {
            Some(outcome) => answered(run, phase, outcome, context),
            None => Turn::Rest(phase, None),
        },
    }
}

/// The phases that wait for the outcome of an action.
fn answered(run: &mut FailoverRun, phase: Phase, outcome: Answer, context: &mut StepContext<'_>) -> Turn {
    if let Phase::Proving(proving, doing) = phase {
        return proving::go_on(run, *proving, doing, outcome, context);
    }
    let Some(found) = &context.facts.snapshot else { return Turn::Rest(phase, None) };
    match (phase, outcome) {
        (Phase::Looking, _) => looked(run, found, context),
        (Phase::Sparing(_) | Phase::SparingAgain { .. }, Answer::Quorum(Err(shortage))) => {
            Turn::refuse(Refusal::Quorum(shortage))
        }
        (Phase::Sparing(owned), _) => spared(run, found, owned, context),
        (Phase::Versioning(owned), Answer::Version(version)) => {
            begin(run, found, Begun { owned, how: suitable(version) }, context)
        }
        (Phase::Watching(begun), _) => watched(run, found, begun, context),
        (Phase::Noting(begun), _) => noted(run, found, begun, context),
        (Phase::Draining { .. }, Answer::Drained(Some(DrainEnd::Drained { .. }))) => Turn::end(End::Drained),
        (Phase::Draining { .. }, Answer::Drained(Some(DrainEnd::Refused { reason }))) => {
            Turn::refuse(Refusal::Owned { message: reason.message() })
        }
        // The drain may have changed much of what was seen.
        (Phase::Draining { how }, _) => Turn::ask(Own::Look { may_ask: false }, Phase::LookingAgain { how }),
        (Phase::LookingAgain { how }, _) => looked_again(run, found, how, context),
        // Another client changed it, and may have taken it.
        (Phase::Cordoning(cordoning), Answer::Conflict) => {
            Turn::ask(Own::Read { holder: true }, Phase::ReadingHolder(cordoning))
        }
        (Phase::Cordoning(cordoning), _) => {
            context.tell(Event::Cordoned { already: cordoning.suspect.node.unschedulable });
            cordoned(run, found, cordoning.how, context)
        }
        (Phase::ReadingHolder(Cordoning { how, tries, .. }), _) => held_again(run, how, tries, context),
        (Phase::SparingAgain { how }, _) => proving::begin(run, how),
        (Phase::Publishing(then), _) => Turn::Go(*then),
        (Phase::Restoring { tries, end }, outcome) => waiting::restore(tries, end, &outcome, context),
        (Phase::Untainting { tries, end }, outcome) => waiting::restored(tries, end, &outcome, context),
        // No other phase waits, and no other answer fits.
        (phase, _) => Turn::Rest(phase, None),
    }
}

fn looked(run: &mut FailoverRun, found: &NodeSnapshot, context: &mut StepContext<'_>) -> Turn {
    run.silence.see(&found.suspect, context.now);
    context.tell(Event::Report(Box::new(found.report(&run.silence, context.now))));
    let owned = match found.holding.judge(&found.suspect, &run.spec.owner, context.calendar()) {
        Ok(owned) => owned,
        Err(refusal) => return Turn::refuse(refusal),
    };
    if asks_quorum(run, &found.suspect, context.now) {
        return Turn::ask(Own::AskQuorum, Phase::Sparing(owned));
    }
    spared(run, found, owned, context)
}

/// Whether it has to be known that the control plane can do without the node. One that was released is gone already.
fn asks_quorum(run: &FailoverRun, suspect: &Suspect, now: Timestamp) -> bool {
    let released = suspect.record().is_some_and(|it| it.released && it.void(suspect, now).is_none());
    !run.spec.allow_control_plane && !released && is_control_plane(&suspect.node)
}

/// How it is released is known before anything is written: a version that cannot be read is not an old one, and a node must not be deleted for it.
fn spared(
    run: &mut FailoverRun,
    found: &NodeSnapshot,
    owned: Ownership,
    context: &mut StepContext<'_>,
) -> Turn {
    match settled(run.spec.release, &found.suspect) {
        Some(how) => begin(run, found, Begun { owned, how }, context),
        None => Turn::ask(Own::AskVersion, Phase::Versioning(owned)),
    }
}

/// Sees whether the node gives signs of life, unless that is known already.
fn begin(run: &mut FailoverRun, found: &NodeSnapshot, begun: Begun, context: &mut StepContext<'_>) -> Turn {
    let (suspect, now) = (&found.suspect, context.now);
    if run.spec.dry_run {
        return Turn::end(rehearse(run, suspect, now));
    }
    let until = run.silence.quiet_at(suspect, now);
    if !matters(run, suspect) || until <= now || run.silence.answered(suspect, now).is_some() {
        return watched(run, found, begun, context);
    }
    context.tell(Event::Watching { seconds: seconds(until, now) });
    // Gone or Ready, it is looked at again in a moment.
    Turn::ask(Own::Watch { suspect: Box::new(suspect.clone()), until }, Phase::Watching(begun))
}

/// Whether something would follow from the node's silence.
fn matters(run: &FailoverRun, suspect: &Suspect) -> bool {
    run.spec.proof != ProofFrom::Nowhere || suspect.is_shut_down() || suspect.record().is_some()
}

/// How long it is until then, in whole seconds that are surely enough.
pub(super) fn seconds(until: Timestamp, now: Timestamp) -> i64 {
    let left = until.duration_since(now);
    left.as_secs() + i64::from(left.subsec_nanos() > 0)
}

fn watched(run: &mut FailoverRun, found: &NodeSnapshot, begun: Begun, context: &mut StepContext<'_>) -> Turn {
    if run.stopping && matters(run, &found.suspect) {
        return Turn::end(End::Stopped { released: false });
    }
    if matches!(begun.owned, Ownership::Ours(_)) {
        return noted(run, found, begun, context);
    }
    let node = Box::new(found.suspect.node.clone());
    Turn::ask(Own::Note(node), Phase::Noting(begun))
}

/// A node that is not Ready but answers can still be emptied in good order, at least in part.
fn noted(run: &mut FailoverRun, found: &NodeSnapshot, begun: Begun, context: &mut StepContext<'_>) -> Turn {
    if run.silence.answered(&found.suspect, context.now).is_some() {
        let limit = run.spec.drain;
        run.drained = true;
        context.tell(Event::Drains { limit_seconds: limit.as_secs() });
        return Turn::ask(Own::Drain(limit), Phase::Draining { how: begun.how });
    }
    let Begun { owned, how } = begun;
    let cordoning = Cordoning { how, suspect: Box::new(found.suspect.clone()), owned, tries: 0 };
    cordon(run, cordoning, context)
}

fn looked_again(
    run: &mut FailoverRun,
    found: &NodeSnapshot,
    how: Release,
    context: &mut StepContext<'_>,
) -> Turn {
    let suspect = &found.suspect;
    run.silence.see(suspect, context.now);
    // Nothing is written for a proof that would be refused.
    let said = run.spec.proof.said();
    if let Some(Err(refusal)) = said.map(|said| foresee(suspect, &run.silence, &said, context.now)) {
        return Turn::refuse(refusal);
    }
    let owned = match found.holding.judge(suspect, &run.spec.owner, context.calendar()) {
        Ok(owned) => owned,
        Err(refusal) => return Turn::refuse(refusal),
    };
    // A drain that found nothing it could do has not cordoned the node either.
    if suspect.node.unschedulable && matches!(owned, Ownership::Ours(_)) {
        return cordoned(run, found, how, context);
    }
    cordon(run, Cordoning { how, suspect: Box::new(suspect.clone()), owned, tries: 0 }, context)
}

/// Cordons with a mark, as a drain does, so that it can be undone. The owner that marked the node first has it.
fn cordon(run: &mut FailoverRun, cordoning: Cordoning, context: &mut StepContext<'_>) -> Turn {
    if cordoning.tries >= TRIES {
        return Turn::Go(Phase::Ended(Err(Fault::Contended)));
    }
    let node = &cordoning.suspect.node;
    if node.unschedulable && matches!(&cordoning.owned, Ownership::Ours(_)) {
        context.tell(Event::Cordoned { already: true });
        let Some(found) = &context.facts.snapshot else {
            return Turn::Rest(Phase::Cordoning(cordoning), None);
        };
        return cordoned(run, found, cordoning.how, context);
    }
    let changes = NodeChanges { options: run.spec.options.clone(), ..NodeChanges::default() };
    let action = Action::Cordon {
        node: node.name.clone(),
        uid: node.uid.clone(),
        resource_version: node.resource_version.clone(),
        mark: Box::new(new_mark(node, &run.spec.owner, &changes, context.calendar())),
        taints: None,
        dry_run: false,
    };
    Turn::Do(action, Phase::Cordoning(cordoning))
}

fn held_again(run: &mut FailoverRun, how: Release, tries: u32, context: &mut StepContext<'_>) -> Turn {
    let Some((suspect, Some(holding))) = &context.facts.node else {
        return Turn::Go(Phase::Ended(Err(Fault::NodeGone)));
    };
    match holding.judge(suspect, &run.spec.owner, context.calendar()) {
        Ok(owned) => {
            let suspect = Box::new(suspect.clone());
            cordon(run, Cordoning { how, suspect, owned, tries: tries + 1 }, context)
        }
        Err(refusal) => Turn::refuse(refusal),
    }
}

fn cordoned(
    run: &mut FailoverRun,
    found: &NodeSnapshot,
    how: Release,
    context: &mut StepContext<'_>,
) -> Turn {
    if run.stopping {
        return Turn::end(End::Stopped { released: false });
    }
    // Others may have taken a node of the control plane before they could see our mark.
    if asks_quorum(run, &found.suspect, context.now) {
        return Turn::ask(Own::AskQuorum, Phase::SparingAgain { how });
    }
    proving::begin(run, how)
}

/// Whether there would be proof, without switching anything off and without waiting.
fn rehearse(run: &FailoverRun, suspect: &Suspect, now: Timestamp) -> End {
    let witness = Witness::new(run.spec.policy.clone());
    let unwatched = window(suspect).as_secs();
    let proven = End::Rehearsed { proven: true, unwatched };
    match next(suspect, &run.silence, &witness, now) {
        NextStep::Refuse(refusal) => return End::Refused(refusal),
        NextStep::Release | NextStep::Watch { .. } => return proven,
        NextStep::Await => return End::Rehearsed { proven: true, unwatched: 0 },
        NextStep::Prove => {}
    }
    let how = match &run.spec.proof {
        ProofFrom::Nowhere if suspect.is_shut_down() => Some(How::Provider { signal: SHUT_DOWN.into() }),
        ProofFrom::Agent { .. } => return proven,
        from => from.said(),
    };
    match how.map(|how| foresee(suspect, &run.silence, &how, now)) {
        Some(Err(refusal)) => End::Refused(refusal),
        Some(Ok(())) => proven,
        None => End::Rehearsed { proven: false, unwatched },
    }
}
