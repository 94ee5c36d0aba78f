//! What now, about one instance of a tenant?

use std::time::Duration;

use jiff::Timestamp;

use super::action::{Action, Decision, Own};
use super::deadline::{self, First, Limits};
use super::member::{Member, member};
use super::work::{Stage, Work};
use super::{BLOCKED, Marks};
use crate::action::{Asker, Event, Part, Tree};
use crate::cluster::fact::{Key, Uid};
use crate::cluster::index::Index;
use crate::cluster::subject::ObjectRef;
use crate::cluster::tenant::TenantProgress;
use crate::drain::run::after;
use crate::machines::condition::{self, Condition, Conditions};
use crate::machines::strategy::{Strategy, effective};
use crate::machines::{Config, Instance, Phase, names, retries};

/// Migrations that may fail before the node is drained instead.
const MOVES: usize = 2;
/// How urgent a migration is, where evac is the control plane of machines.
const PRIORITY: &str = "system-critical";
/// Progress is written at most this often.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// What a decision is made from.
#[derive(Debug, Clone, Copy)]
pub struct TenantContext<'a> {
    /// The host's instances, machines and migrations.
    pub index: &'a Index,
    /// What this process is doing about the instance.
    pub work: &'a Work,
    /// How long a tenant may take.
    pub limits: &'a Limits,
    /// When the eviction of the instance was first seen, as it was kept outside the instance.
    pub first: Option<First>,
}

/// What becomes of an instance as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EvictionState {
    /// It goes already, by whichever request.
    Ending,
    Wanted,
    /// It is not to leave its node, or it is not left to us any more.
    Unwanted,
    /// The cluster's default would decide, and may just not be known yet.
    Unclear,
}

fn eviction_state(instance: &Instance, config: &Config) -> EvictionState {
    let marked = instance.evacuation_node.as_ref().is_some_and(|node| *node == instance.node);
    match effective(instance, config).strategy {
        _ if instance.deleting || instance.is_final() => EvictionState::Ending,
        _ if !marked => EvictionState::Unwanted,
        Strategy::External => EvictionState::Wanted,
        _ if instance.eviction_strategy.is_none() => EvictionState::Unclear,
        _ => EvictionState::Unwanted,
    }
}

/// Whether an instance has to go and that is up to us; asked again right before it is deleted.
pub fn is_wanted(instance: &Instance, config: &Config) -> bool {
    eviction_state(instance, config) == EvictionState::Wanted && member(instance).is_some()
}

/// What is to be done about this instance now; nothing if it is not a machine of a tenant's cluster.
pub fn decide(context: &TenantContext<'_>, key: &Key, now: Timestamp) -> Decision {
    let Some(instance) = context.index.instance(key) else { return Decision::default() };
    let Some(member) = member(instance) else { return stop_if_draining(context.work) };
    if let Some(at) = context.work.writes_not_before.filter(|at| *at > now) {
        return Decision::default().until(at);
    }
    match eviction_state(instance, &context.index.config) {
        EvictionState::Ending => stop_if_draining(context.work),
        EvictionState::Unclear => Decision::default(),
        EvictionState::Wanted => evacuate(context, instance, &member, now),
        EvictionState::Unwanted => release(context, instance, member, now),
    }
}

/// The condition of an instance that has to go while lists of its own cluster cannot be read, on which decisions about it rest.
const UNREAD: &str = "TenantUnread";

/// Says on an instance that has to go what cannot be read, and takes it back. Nothing else is decided here.
pub fn say_unread(context: &TenantContext<'_>, key: &Key, words: Option<&str>, now: Timestamp) -> Decision {
    let Some(instance) = context.index.instance(key) else { return Decision::default() };
    let mut conditions = Conditions::of(&instance.conditions);
    match words.filter(|_| is_wanted(instance, &context.index.config)) {
        Some(words) => conditions.set(Condition::new(UNREAD, true, "CannotRead", words), now),
        None => conditions.remove(UNREAD),
    }
    let Some(list) = changed(context, &conditions) else { return Decision::default() };
    if let Some(at) = context.work.writes_not_before.filter(|at| *at > now) {
        return Decision::default().until(at);
    }
    let mut decision = Decision::default();
    write(instance, list, &mut decision);
    decision
}

/// Writes the conditions of the instance as they were seen, changed.
fn write(instance: &Instance, list: Tree, decision: &mut Decision) {
    decision.patch(instance, Part::Main, Tree::at(&["status", "conditions"], list));
}

fn stop_if_draining(work: &Work) -> Decision {
    Decision::of((work.stage == Stage::Draining).then_some(Action::Own(Own::Stop)))
}

fn marks(instance: &Instance) -> Marks {
    instance.tenant.as_deref().cloned().unwrap_or_default()
}

fn evacuate(context: &TenantContext<'_>, instance: &Instance, member: &Member, now: Timestamp) -> Decision {
    let marks = marks(instance);
    let Some(first) = context.first else { return anchor(context, instance, member, now) };
    // To remove it or to move it too far gains nothing, however often that is done.
    let (written, original) =
        (deadline::written(&marks, context.limits, first.seen), first.original(context.limits));
    let work = context.work;
    // A clock that was set forward takes nothing from the time a tenant was given.
    let due = |deadline: Timestamp| deadline.checked_add(work.leap).unwrap_or(Timestamp::MAX);
    if written.is_none() && now < due(original) {
        return Decision::of([Action::Own(Own::Anchor(original))]).until(due(original));
    }
    let deadline = written.unwrap_or(original);
    if now >= due(deadline) {
        let mut decision = stop_if_draining(work);
        decision.push(Action::Own(Own::LetGo));
        return decision.telling(told_at_the_deadline(instance, work, member));
    }
    let moving = instance.is_migrating()
        || context.index.migrations_of(&instance.key).iter().any(|one| !one.phase.is_final());
    let wants_move = marks.migrates_first()
        && instance.is_migratable()
        && retries::failed_in_a_row(&context.index.migrations_of(&instance.key)).len() < MOVES;
    let decision = match work.stage {
        Stage::Stopping | Stage::Uncordoning => Decision::default(),
        Stage::Draining => say(context, instance, &marks, member, deadline, now),
        // It is about to leave by itself, whichever program moves it.
        _ if moving => Decision::default(),
        Stage::Idle | Stage::Uncordoned if wants_move => migrate(context.index, instance),
        Stage::Drained => {
            let (node, cluster) = (&member.node, &member.cluster);
            let message = format!("node {node} of cluster {cluster} is empty; the machine is deleted");
            let told = Event::normal(instance, "TenantDrained", message);
            Decision::of([Action::Own(Own::LetGo)]).telling(told)
        }
        Stage::Idle | Stage::Uncordoned => match work.not_before.filter(|at| *at > now) {
            Some(at) => say(context, instance, &marks, member, deadline, now).until(at),
            None => begin(context.index, instance, &marks, member),
        },
    };
    decision.until(due(deadline))
}

/// Writes the deadline before anything else is done, and keeps when that was. Only where the instance does not say how long the tenant gets, its
/// cluster is asked.
fn anchor(context: &TenantContext<'_>, instance: &Instance, member: &Member, now: Timestamp) -> Decision {
    let marks = &marks(instance);
    // Of Cluster API's provider, or of an operator that kept nothing else.
    if let Some(deadline) = deadline::written(marks, context.limits, now) {
        return Decision::of([Action::Own(Own::KeepFirst(First { seen: now, deadline }))]);
    }
    let own = marks.timeout.as_deref().and_then(deadline::span);
    let cluster = match (&own, &context.work.cluster_timeout) {
        (None, None) => return Decision::of([Action::Own(Own::Look(member.clone()))]),
        (_, said) => said.clone().flatten(),
    };
    let deadline = deadline::fresh(marks, cluster.as_deref(), context.limits, now);
    let message = format!(
        "node {} of cluster {} is drained before this machine goes, which is at {} at the latest",
        member.node,
        member.cluster,
        condition::seconds(deadline)
    );
    Decision::of([
        Action::Own(Own::KeepFirst(First { seen: now, deadline })),
        Action::Own(Own::Anchor(deadline)),
    ])
    .telling(Event::normal(instance, "TenantDrainStarted", message))
}

fn told_at_the_deadline(instance: &Instance, work: &Work, member: &Member) -> Event {
    let left = match (&work.count, &work.trouble) {
        (_, Some(trouble)) => trouble.to_string(),
        (Some(count), None) => {
            let blocker = count.blocker.as_ref().map_or(String::new(), |blocker| format!(": {blocker}"));
            format!("{} of {} pods were left{blocker}", count.left, count.total)
        }
        (None, None) => "nothing is known of its pods".into(),
    };
    let message = format!(
        "the time for draining node {} of cluster {} is up, the machine is deleted; {left}",
        member.node, member.cluster
    );
    Event::warning(instance, "TenantDeadline", message)
}

fn migrate(index: &Index, instance: &Instance) -> Decision {
    let all = index.migrations_of(&instance.key);
    let last = all.last().map_or("first".into(), |one| one.uid.text());
    let name = names::evacuation(&instance.key.name, &instance.uid.text(), &last);
    let priority = (!index.config.upstream.is_in_charge()).then_some(PRIORITY);
    Decision::of([Action::Migrate {
        instance: instance.into(),
        name,
        node: instance.node.to_string(),
        asker: Asker::Evacuation(priority),
        dry_run: false,
    }])
}

/// Before a node is cordoned it is written down that it was, where that outlives the instance.
fn begin(index: &Index, instance: &Instance, marks: &Marks, member: &Member) -> Decision {
    let (at, cordoned) = record(index, instance, marks);
    if cordoned.as_ref() != Some(&instance.uid) {
        return Decision::of([Action::Own(Own::Remember { at, instance: Some(instance.uid.clone()) })]);
    }
    Decision::of([Action::Own(Own::Begin(member.clone()))])
}

/// Where the cordon is remembered: on the machine that starts the next incarnation, if there is one.
fn record(index: &Index, instance: &Instance, marks: &Marks) -> (ObjectRef, Option<Uid>) {
    let owner = instance.owner.as_ref().filter(|owner| owner.kind == "VirtualMachine");
    let machine = owner.and_then(|owner| {
        let key = Key::new(instance.key.namespace.clone(), owner.name.clone());
        index.machine(&key).filter(|machine| machine.uid == owner.uid && !machine.deleting)
    });
    match machine {
        Some(machine) => (machine.into(), machine.tenant_cordoned.clone()),
        None => (instance.into(), marks.cordoned.clone()),
    }
}

/// Keeps condition and progress true to what is known. A new kind of trouble is told once.
fn say(
    context: &TenantContext<'_>,
    instance: &Instance,
    marks: &Marks,
    member: &Member,
    deadline: Timestamp,
    now: Timestamp,
) -> Decision {
    let work = context.work;
    let mut decision = Decision::default();
    let mut conditions = Conditions::of(&instance.conditions);
    let sentence = work.trouble.as_ref().map(ToString::to_string);
    match (&work.trouble, &sentence) {
        (Some(trouble), Some(sentence)) => {
            conditions.set(Condition::new(BLOCKED, true, trouble.code(), sentence), now);
        }
        // After a restart nothing is known yet, and what is written holds until something is.
        _ if work.count.is_some() => conditions.remove(BLOCKED),
        _ => {}
    }
    if let Some(list) = changed(context, &conditions) {
        write(instance, list, &mut decision);
        let before = condition::find(&instance.conditions, BLOCKED).and_then(|known| known.reason.clone());
        if let (Some(trouble), Some(message)) = (&work.trouble, &sentence)
            && before.as_deref() != Some(trouble.code())
        {
            decision.tell(Event::warning(instance, BLOCKED, message));
        }
    }
    let count = work.count.as_ref();
    if count.is_none() && sentence.is_none() {
        return decision;
    }
    let news = sentence.clone().filter(|words| {
        let noted = marks.progress.as_ref().and_then(|progress| progress.blocker.as_ref());
        !may_write_status(context) && noted != Some(words)
    });
    let progress = TenantProgress {
        cluster: member.cluster.clone(),
        node: member.node.clone(),
        left: count.map(|count| count.left),
        total: count.map(|count| count.total),
        blocker: sentence.or_else(|| count.and_then(|count| count.blocker.clone())),
        deadline,
    };
    if marks.progress.as_ref() == Some(&progress) {
        return decision;
    }
    if let Some(at) = work.noted.map(|noted| after(noted, NOTE_EVERY)).filter(|at| *at > now) {
        return decision.until(at);
    }
    decision.push(Action::Own(Own::Note(progress)));
    // Where there is no condition to compare with, what was noted tells what is new.
    if let Some(message) = news {
        decision.tell(Event::warning(instance, BLOCKED, message));
    }
    decision
}

/// Beside KubeVirt conditions are not ours to write: virt-api takes back, without a word, what others than its own accounts write to the status of an instance.
fn may_write_status(context: &TenantContext<'_>) -> bool {
    !context.index.config.upstream.is_in_charge()
}

fn changed(context: &TenantContext<'_>, conditions: &Conditions) -> Option<Tree> {
    conditions.changed().filter(|_| may_write_status(context))
}

/// The machine stays: nothing of ours is left on it or in its cluster.
fn release(context: &TenantContext<'_>, instance: &Instance, member: Member, now: Timestamp) -> Decision {
    let marks = marks(instance);
    match context.work.stage {
        Stage::Draining => return Decision::of([Action::Own(Own::Stop)]),
        Stage::Stopping | Stage::Uncordoning => return Decision::default(),
        Stage::Idle | Stage::Drained | Stage::Uncordoned => {}
    }
    let mut conditions = Conditions::of(&instance.conditions);
    conditions.remove(BLOCKED);
    let list = changed(context, &conditions);
    // First, so that a deadline of this time is not found by the next.
    if marks.are_left() || list.is_some() || context.first.is_some() {
        let mut decision = Decision::default();
        if let Some(list) = list {
            write(instance, list, &mut decision);
        }
        let clear = marks.are_left().then_some(Action::Own(Own::Clear));
        let forget = context.first.map(|_| Action::Own(Own::ForgetFirst));
        decision.actions.extend(clear.into_iter().chain(forget));
        return decision;
    }
    let (at, cordoned) = record(context.index, instance, &marks);
    match cordoned {
        None => Decision::default(),
        // The next incarnation has to be there before its node is made use of.
        Some(uid) if uid != instance.uid && instance.phase != Phase::Running => Decision::default(),
        Some(_) if context.work.stage == Stage::Uncordoned => {
            Decision::of([Action::Own(Own::Remember { at, instance: None })])
        }
        Some(_) => match context.work.not_before.filter(|at| *at > now) {
            Some(at) => Decision::default().until(at),
            None => Decision::of([Action::Own(Own::Uncordon(member))]),
        },
    }
}
