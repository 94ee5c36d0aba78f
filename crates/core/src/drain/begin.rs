//! How the work on a node begins: verdicts first, then who owns the node, then the record on the lease, then the cordon.

use crate::cluster::fact::{Node, VmRole};
use crate::cluster::index::Index;
use crate::drain::action::Action;
use crate::drain::assess::assess;
use crate::drain::claim::{self, Trace, probe};
use crate::drain::context::Context;
use crate::drain::forecast::{Forecast, forecast};
use crate::drain::node::Draining;
use crate::drain::ownership::{self, MarkState, Ownership};
use crate::drain::policy::{DryRun, Policy};
use crate::drain::record::{self, Record};
use crate::drain::run::{End, Left, NodePhase, NodeRun, Run};
use crate::drain::step::{Event, Step, end};
use crate::machines::beside;
use crate::reasons::{NodeReason, OwnerReason, Reason};

/// What is foretold of a node, among all that are drained together.
pub(crate) fn foretell(context: Context<'_>, run: &Run, name: &str) -> Option<Forecast> {
    let Context { index, policy, now } = context;
    // Only a trial is about more than whether to begin.
    let nodes: Vec<String> = match policy.dry_run {
        DryRun::None => vec![name.to_owned()],
        DryRun::Client | DryRun::Server => run.nodes.iter().map(|node| node.name.clone()).collect(),
    };
    forecast(index, policy, &nodes, now).into_iter().find(|one| one.node == name)
}

/// Plans before touching: verdicts first, then who owns the node, then the cordon.
pub(crate) fn begin(context: Context<'_>, run: &mut Run, position: usize, step: &mut Step) {
    let Context { index, policy, now } = context;
    let NodePhase::Waiting(cordon) = run.nodes[position].phase else { return };
    let name = run.nodes[position].name.clone();
    if run.stopping {
        if cordon.trace == Trace::Unsure {
            run.nodes[position].phase = NodePhase::LookingUp { cordon, asked: false, refused: None };
            return;
        }
        let left = Left::on(index.node(&name), &run.owner);
        let stopped = End::Stopped { left, to_leave: Vec::new(), blockers: Vec::new() };
        return end(run, position, stopped, step);
    }
    if let Some(at) = cordon.retry.rests(now) {
        return step.look_at(at);
    }
    let Some(node) = index.node(&name) else {
        let reason = Reason::Node(NodeReason::NodeMissing);
        return end(run, position, End::Failed { reason, blockers: Vec::new() }, step);
    };
    let assessment = assess(index, policy, &name, now);
    let foretold = foretell(context, run, &name);
    let blockers = foretold.as_ref().map(Forecast::refusals).unwrap_or_default();
    let hopeless = !blockers.is_empty() && !policy.keep_empty;
    if !hopeless && probe::is_awaited(context, run, position, step) {
        return;
    }
    let owner = ownership::ownership(index, node, &run.owner, now);
    let refused = owner.refuses(policy.take_over);
    if !hopeless && !refused && notes_first(context, node, run, position) {
        return;
    }
    let is_first_try = cordon.retry.failures() == 0;
    if is_first_try {
        step.events.push(Event::Planned { node: name.clone(), assessment });
    }
    if hopeless {
        tell_foretold(policy, foretold, step);
        return end(run, position, End::NotStarted { blockers }, step);
    }
    match &owner {
        Ownership::Other(reason) if refused => {
            return end(run, position, End::Refused { reason: reason.clone() }, step);
        }
        Ownership::Other(reason) => {
            let owner = match reason {
                Reason::Owner(OwnerReason::OwnedByEvac { owner, .. }) => owner.clone(),
                Reason::Owner(OwnerReason::OwnedByLease { holder, .. }) => holder.clone(),
                _ => "an unreadable mark".into(),
            };
            step.events
                .push(Event::Noted { node: name.clone(), reason: OwnerReason::TakenOver { owner }.into() });
        }
        Ownership::ForeignCordon => {
            step.events.push(Event::Noted { node: name.clone(), reason: NodeReason::ForeignCordon.into() });
        }
        Ownership::Abandoned(reason) => {
            step.events.push(Event::Noted { node: name.clone(), reason: reason.clone() });
        }
        Ownership::Ours(_) => {
            if let Some((holder, seen)) = claim::life(index, &name, now).perhaps_alive()
                && holder.owner == run.owner
                && run.instance.as_ref().is_some_and(|instance| *instance != holder.instance)
            {
                let reason =
                    Reason::Owner(OwnerReason::Continued { instance: holder.instance.clone(), seen });
                step.events.push(Event::Noted { node: name.clone(), reason });
            }
        }
        Ownership::Free => {}
    }
    if is_first_try {
        tell_of_kubevirt(index, &name, step);
    }
    if node.unschedulable {
        step.events.push(Event::AlreadyCordoned { node: name.clone() });
    }
    if policy.dry_run == DryRun::Client {
        if !node.unschedulable {
            step.events.push(Event::Cordoned { node: name });
        }
        let blockers = foretold.as_ref().map(Forecast::blockers).unwrap_or_default();
        tell_foretold(policy, foretold, step);
        return end(run, position, End::Rehearsed { blockers }, step);
    }
    let changes = &run.nodes[position].changes;
    let known = index.lease(&claim::key(&name)).and_then(|lease| lease.record.clone());
    if matches!(owner, Ownership::Ours(_)) && changes.are_on(node) {
        // Where the answer to our own cordon was lost, what we noted then still holds.
        let NodeRun { claim, phase, .. } = &mut run.nodes[position];
        claim.noted = known.or(claim.noted.take());
        *phase = NodePhase::Draining(Draining::since(now));
        return;
    }
    let mark = match &node.mark {
        // Who keeps a record of its own takes over only what is borne out by the one before.
        Some(MarkState::Valid(_)) if run.instance.is_some() => {
            let node = record::borne_out(node, known.as_deref());
            ownership::new_mark(&node, &run.owner, changes, now)
        }
        _ => ownership::new_mark(node, &run.owner, changes, now),
    };
    let noted = Some(Box::new(Record::of(&node.uid, &mark)));
    step.actions.push(Action::Cordon {
        node: name,
        uid: node.uid.clone(),
        resource_version: node.resource_version.clone(),
        mark: Box::new(mark),
        taints: changes.taints_on(node),
        dry_run: policy.dry_run == DryRun::Server,
    });
    run.nodes[position].claim.noted = noted;
    run.nodes[position].phase = NodePhase::Cordoning(cordon);
}

/// Before the first guest is moved, what there is to know about KubeVirt's control plane.
fn tell_of_kubevirt(index: &Index, name: &str, step: &mut Step) {
    if !index.pods_on(name).any(|pod| matches!(pod.vm, VmRole::Launcher(_)) && !pod.phase.is_finished()) {
        return;
    }
    for note in beside::notes(&index.config.upstream) {
        step.events.push(Event::Noted { node: name.to_owned(), reason: note });
    }
}

/// A trial tells what it is for.
pub(crate) fn tell_foretold(policy: &Policy, foretold: Option<Forecast>, step: &mut Step) {
    if policy.dry_run != DryRun::None
        && let Some(forecast) = foretold
    {
        step.events.push(Event::Forecast { forecast });
    }
}

/// Whether the record of a node without a mark is still to be written. It comes before the cordon, so that a run that dies right after that leaves
/// nothing that cannot be taken back. Without the right to write leases, or where that fails, the drain goes on all the same.
fn notes_first(context: Context<'_>, node: &Node, run: &mut Run, position: usize) -> bool {
    let Context { index, policy, now } = context;
    let claims = run.instance.is_some() && policy.dry_run == DryRun::None;
    if !claims || node.mark.is_some() || !run.nodes[position].claim.is_first_try() {
        return false;
    }
    if claim::is_of_another(index, &node.name, &run.owner, now) {
        return false;
    }
    let mark = ownership::new_mark(node, &run.owner, &run.nodes[position].changes, now);
    run.nodes[position].claim.noted = Some(Box::new(Record::of(&node.uid, &mark)));
    true
}
