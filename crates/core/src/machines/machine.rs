//! The controller of machines: run strategies.
//!
//! A machine creates at most one instance, under its own name, and deletes it when its run strategy or a request says so. What
//! a strategy means is in `react`; everything else here is bookkeeping.

use jiff::Timestamp;

use super::action::{Action, Decision, Event, Kind, Own, Part, Tree};
use super::condition::{self, Condition, Conditions};
use super::{names, printable, start_failure};
use crate::cluster::fact::Key;
use crate::cluster::fact::{Instance, Machine, Phase, Power, Request, RunStrategy, StartFailure};
use crate::cluster::index::Index;
use crate::cluster::text::Text;

/// What is done about a machine: its instance made or deleted by its run strategy, and its status.
pub fn decide(index: &Index, key: &Key, now: Timestamp) -> Decision {
    let mut decision = Decision::nothing();
    let Some(machine) = index.machine(key) else { return decision };
    let instance = index.instance(key).filter(|instance| instance.is_owned_by(&machine.uid));
    if machine.deleting {
        end(machine, instance, &mut decision);
        write_status(index, machine, instance, &Plan::default(), &mut decision, now);
        return decision;
    }
    if !machine.finalizers.iter().any(|name| name == names::MACHINE_FINALIZER) {
        let finalizers = machine.finalizers.iter().map(Text::as_str).chain([names::MACHINE_FINALIZER]);
        decision.patch(machine, Part::Main, Tree::at(&["metadata", "finalizers"], Tree::texts(finalizers)));
        return decision;
    }
    release(instance, &mut decision);
    let mut plan = Plan { requests: trimmed(machine, instance), ..Plan::default() };
    if let Some(strategy) = machine.power.strategy() {
        plan.start_failure = start_failure::next(machine, strategy, instance, now);
        react(machine, strategy, instance, &mut plan, now);
    }
    plan.carry_out(machine, instance, &mut decision);
    write_status(index, machine, instance, &plan, &mut decision, now);
    decision
}

/// What should become of the instance, and of the requests.
#[derive(Debug, Default)]
struct Plan {
    create: Option<Paused>,
    delete: bool,
    requests: Vec<Request>,
    start_failure: Option<StartFailure>,
    /// Replaces what the specification says about running.
    power: Option<Power>,
    wait_until: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
struct Paused(bool);

/// A request is done when what it asked for cannot be told from what is there.
fn trimmed(machine: &Machine, instance: Option<&Instance>) -> Vec<Request> {
    let mut requests = machine.status.requests.clone();
    while let Some(first) = requests.first() {
        let done = if first.is_stop() {
            first.uid.is_none()
                || instance.is_none_or(|instance| Some(instance.uid.0.as_str()) != first.uid.as_deref())
        } else if first.is_start() {
            instance.is_some_and(|instance| !instance.deleting && !instance.is_final())
        } else {
            true
        };
        if !done {
            break;
        }
        requests.remove(0);
    }
    requests
}

/// The heart: what each strategy does with an instance that is absent, over, or asked to stop.
fn react(
    machine: &Machine,
    strategy: RunStrategy,
    instance: Option<&Instance>,
    plan: &mut Plan,
    now: Timestamp,
) {
    let first = plan.requests.first();
    let start = first.filter(|request| request.is_start()).cloned();
    let stop = first.is_some_and(|first| {
        first.is_stop()
            && instance.is_some_and(|instance| Some(instance.uid.0.as_str()) == first.uid.as_deref())
    });
    let over = instance.is_some_and(Instance::is_final);
    let paused = Paused(start.as_ref().is_some_and(Request::wants_pause));
    match (strategy, instance) {
        (RunStrategy::Always, None) => plan.create_after_backoff(machine, paused, now),
        (RunStrategy::Always, Some(_)) => plan.delete = over || stop,
        (RunStrategy::RerunOnFailure, None)
            if start.is_some() || machine.status.strategy != "RerunOnFailure" =>
        {
            plan.create_after_backoff(machine, paused, now);
        }
        (RunStrategy::RerunOnFailure, Some(instance)) => {
            plan.delete = over || stop;
            let asked = plan.requests.iter().any(Request::is_start);
            if instance.phase == Phase::Failed && !instance.deleting && !asked {
                // First the wish to run again, then the deletion: the other order could forget the wish.
                plan.requests.push(Request::start(false));
                plan.delete = false;
            }
        }
        (RunStrategy::Manual, None) if start.is_some() => plan.create_now(machine, paused),
        (RunStrategy::Manual, Some(_)) => plan.delete = stop,
        (RunStrategy::Halted, None) if start.is_some() => {
            plan.power = Some(match machine.power {
                Power::Running(_) => Power::Running(true),
                _ => Power::Strategy(RunStrategy::Always),
            });
        }
        (RunStrategy::Halted, Some(_)) => plan.delete = true,
        (RunStrategy::Once, None) => plan.create_now(machine, paused),
        _ => {}
    }
}

impl Plan {
    fn create_now(&mut self, machine: &Machine, paused: Paused) {
        if !condition::is_true(&machine.status.conditions, "ManualRecoveryRequired") {
            self.create = Some(paused);
        }
    }

    fn create_after_backoff(&mut self, machine: &Machine, paused: Paused, now: Timestamp) {
        let wait = self.start_failure.as_ref().and_then(|failure| failure.retry_after);
        match wait.filter(|until| *until > now) {
            Some(until) => self.wait_until = Some(until),
            None => self.create_now(machine, paused),
        }
    }

    fn carry_out(&self, machine: &Machine, instance: Option<&Instance>, decision: &mut Decision) {
        if let Some(power) = self.power {
            let (field, value) = match power {
                Power::Running(running) => ("running", Tree::Bool(running)),
                Power::Strategy(strategy) => ("runStrategy", Tree::text(strategy.to_string())),
                Power::Unclear => return,
            };
            decision.patch(machine, Part::Main, Tree::at(&["spec", field], value));
        }
        if let Some(Paused(paused)) = self.create {
            decision.push(Action::Own(Own::CreateInstance {
                machine: machine.key.clone(),
                uid: machine.uid.clone(),
                paused,
            }));
        }
        if let Some(instance) = instance.filter(|instance| self.delete && !instance.deleting) {
            delete(machine, instance, decision);
        }
        if let Some(until) = self.wait_until {
            decision.look_at(until);
        }
    }
}

fn delete(machine: &Machine, instance: &Instance, decision: &mut Decision) {
    decision.delete(instance);
    decision.tell(Event::normal(
        machine,
        "SuccessfulDelete",
        format!("Stopped the virtual machine by deleting the virtual machine instance {}", instance.uid),
    ));
}

/// The instance waits for its machine to have seen its end; that is now.
fn release(instance: Option<&Instance>, decision: &mut Decision) {
    let Some(instance) = instance.filter(|instance| instance.is_final()) else { return };
    if let Some(fields) = Tree::without_finalizer(&instance.finalizers, names::MACHINE_FINALIZER) {
        decision.patch(instance, Part::Main, fields);
    }
}

/// A deleted machine takes its instance along and goes after it.
fn end(machine: &Machine, instance: Option<&Instance>, decision: &mut Decision) {
    release(instance, decision);
    match instance {
        Some(instance) if !machine.orphaning => {
            if !instance.deleting {
                delete(machine, instance, decision);
            }
        }
        _ => {
            if let Some(fields) = Tree::without_finalizer(&machine.finalizers, names::MACHINE_FINALIZER) {
                decision.patch(machine, Part::Main, fields);
            }
        }
    }
}

/// Requests as they are written in `status.stateChangeRequests`.
pub fn requests_tree(requests: &[Request]) -> Tree {
    Tree::List(
        requests
            .iter()
            .map(|request| {
                let mut fields = vec![("action", Tree::text(&request.action))];
                if let Some(uid) = &request.uid {
                    fields.push(("uid", Tree::text(uid)));
                }
                if !request.data.is_empty() {
                    let data = request.data.iter().map(|(key, value)| (key.as_str(), Tree::text(value)));
                    fields.push(("data", Tree::map(data)));
                }
                Tree::map(fields)
            })
            .collect(),
    )
}

fn write_status(
    index: &Index,
    machine: &Machine,
    instance: Option<&Instance>,
    plan: &Plan,
    decision: &mut Decision,
    now: Timestamp,
) {
    // A patch of the object itself would make the version of this one old.
    let busy = decision.actions.iter().any(|action| action.patches(Kind::Machine));
    if busy {
        return;
    }
    let known = &machine.status;
    let mut fields = Tree::default();
    let mut set = |name: &str, value: Tree| fields.put(&["status", name], value);
    let created = instance.is_some();
    if known.created != created {
        set("created", if created { Tree::Bool(true) } else { Tree::null() });
    }
    let ready = instance.is_some_and(Instance::is_ready);
    if known.ready != ready {
        set("ready", if ready { Tree::Bool(true) } else { Tree::null() });
    }
    if !machine.deleting {
        if known.requests != plan.requests {
            let list = requests_tree(&plan.requests);
            set("stateChangeRequests", if plan.requests.is_empty() { Tree::null() } else { list });
        }
        if known.start_failure != plan.start_failure {
            set("startFailure", plan.start_failure.as_ref().map_or_else(Tree::null, failure_tree));
        }
        if let Some(strategy) = machine.power.strategy().filter(|_| created)
            && known.strategy != strategy.to_string()
        {
            set("runStrategy", Tree::text(strategy.to_string()));
        }
    }
    let printable = printable::status(machine, instance, plan.start_failure.as_ref(), index);
    if known.printable != printable {
        set("printableStatus", Tree::text(printable));
    }
    let mut conditions = Conditions::of(&known.conditions);
    copy_conditions(instance, &mut conditions, now);
    match index.trouble(Kind::Machine, &machine.key) {
        Some(trouble) => {
            conditions.set(Condition::new("Failure", true, trouble.reason, &trouble.message), now);
        }
        None => conditions.remove("Failure"),
    }
    if let Some(list) = conditions.changed() {
        set("conditions", list);
    }
    if !fields.is_empty() {
        decision.patch(machine, Part::Status, fields);
    }
}

fn failure_tree(failure: &StartFailure) -> Tree {
    let mut fields = vec![
        ("consecutiveFailCount", Tree::Int(failure.count)),
        ("lastFailedVMIUID", Tree::text(&failure.last_uid)),
    ];
    if let Some(at) = failure.retry_after {
        fields.push(("retryAfterTimestamp", Tree::text(condition::seconds(at))));
    }
    Tree::map(fields)
}

/// Conditions of the machine itself; all others are those of its instance.
const OWN: &[&str] = &["Failure", "RestartRequired", "ManualRecoveryRequired", "Ready"];

fn copy_conditions(instance: Option<&Instance>, conditions: &mut Conditions, now: Timestamp) {
    let theirs: &[Condition] = instance.map_or(&[], |instance| &instance.conditions);
    let ready = match instance {
        None => Condition::new("Ready", false, "VMINotExists", "VMI does not exist"),
        Some(_) => condition::find(theirs, "Ready").cloned().unwrap_or_else(|| {
            Condition::new("Ready", false, "VMIConditionMissing", "VMI is missing the Ready condition")
        }),
    };
    conditions.set(ready, now);
    let stale: Vec<Text> = conditions
        .list()
        .iter()
        .map(|condition| condition.kind.clone())
        .filter(|kind| !OWN.contains(&kind.as_str()) && condition::find(theirs, kind).is_none())
        .collect();
    for kind in stale {
        conditions.remove(&kind);
    }
    for one in theirs.iter().filter(|one| !OWN.contains(&one.kind.as_str())) {
        conditions.set(one.clone(), now);
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
