//! What becomes of the guests of a node that failed: who returns, and who stays off.
//!
//! An instance whose launcher is removed has failed. Its owner sees a failure, not a clean shutdown, which is why `RerunOnFailure`
//! returns here and stays off after a drain.
//!
//! What was foretold may not come true: a machine is stopped or deleted while its guest is waited for, or its successor cannot start
//! ([`outlook`]).

use serde::Serialize;

use crate::cluster::fact::Pod;
use crate::cluster::fact::{Key, Uid};
use crate::cluster::index::Index;
use crate::machines::{Condition, Instance, Machine, Phase, RunStrategy, condition};

/// What follows for one guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Fate {
    /// Its machine starts it again on another node.
    Returns {
        /// The run strategy of its machine.
        strategy: String,
    },
    /// Its replica set makes a new one under another name.
    Replaced,
    /// Its machine leaves it off.
    StaysOff {
        /// The run strategy of its machine.
        strategy: String,
    },
    /// It has no owner: it ends and stays ended.
    Ends,
    /// It, or its machine, is being deleted.
    Deleted,
    /// What its owner does is not known.
    Unknown {
        /// Its controller as kind and name.
        owner: String,
    },
}

impl Fate {
    /// It is worth waiting for: only a guest under its own name can be recognised.
    pub fn returns(&self) -> bool {
        matches!(self, Self::Returns { .. })
    }

    /// The end of a sentence that begins with the VM.
    pub fn words(&self) -> String {
        match self {
            Self::Returns { strategy } => format!("starts again elsewhere (run strategy {strategy})"),
            Self::Replaced => "is replaced by a new instance of its set".into(),
            Self::StaysOff { strategy } => {
                format!("stays off (run strategy {strategy}); start it with: virtctl start")
            }
            Self::Ends => "ends: no VirtualMachine owns it".into(),
            Self::Deleted => "is being deleted".into(),
            Self::Unknown { owner } => format!("may not come back: what {owner} does is not known"),
        }
    }
}

/// A guest of the failed node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestFate {
    /// Its instance.
    pub instance: Key,
    /// The instance that was on the node: a new one of the same name has another.
    pub uid: Uid,
    /// The VirtualMachine that owns it, by name and identity.
    #[serde(skip)]
    pub machine: Option<(Key, Uid)>,
    /// What follows for it.
    #[serde(flatten)]
    pub fate: Fate,
}

/// The unfinished guests on a node, in the order of their names. Those whose launcher was placed there and who
/// have not begun count too: their pods are as stuck as the others.
///
/// When a failover is taken up again after the release, those that failed by it and wait for their machine count as well.
pub fn fates(index: &Index, node: &str, resumed: bool) -> Vec<GuestFate> {
    let starts_there = |instance: &Instance| {
        instance.node.is_empty()
            && index
                .launchers_of(&instance.uid)
                .iter()
                .any(|pod| pod.node_name() == node && pod.job().is_none())
    };
    let mut found: Vec<GuestFate> = index
        .instances()
        .filter(|instance| !instance.is_final() || (resumed && instance.phase == Phase::Failed))
        .filter(|instance| instance.node == node || starts_there(instance))
        .map(|instance| GuestFate {
            instance: instance.key.clone(),
            uid: instance.uid.clone(),
            machine: machine_of(instance),
            fate: fate(index, instance),
        })
        .collect();
    // A plain instance that failed is over, and was told before.
    found.retain(|guest| {
        guest.fate.returns() || index.instance(&guest.instance).is_none_or(|it| !it.is_final())
    });
    found.sort_by(|a, b| a.instance.cmp(&b.instance));
    found
}

fn machine_of(instance: &Instance) -> Option<(Key, Uid)> {
    let owner = instance.owner.as_ref().filter(|owner| owner.kind == "VirtualMachine")?;
    Some((Key::new(instance.key.namespace.clone(), owner.name.clone()), owner.uid.clone()))
}

fn fate(index: &Index, instance: &Instance) -> Fate {
    let Some(owner) = &instance.owner else {
        return if instance.deleting { Fate::Deleted } else { Fate::Ends };
    };
    match owner.kind.as_str() {
        "VirtualMachineInstanceReplicaSet" => Fate::Replaced,
        "VirtualMachine" => {
            let key = Key::new(instance.key.namespace.clone(), owner.name.clone());
            let machine = index.machine(&key).filter(|machine| machine.uid == owner.uid);
            match machine {
                Some(machine) if machine.deleting => Fate::Deleted,
                Some(machine) => match machine.power.strategy() {
                    Some(strategy @ (RunStrategy::Always | RunStrategy::RerunOnFailure)) => {
                        Fate::Returns { strategy: strategy.to_string() }
                    }
                    Some(strategy) => Fate::StaysOff { strategy: strategy.to_string() },
                    None => Fate::Unknown { owner: owner.to_string() },
                },
                None => Fate::Unknown { owner: owner.to_string() },
            }
        }
        _ => Fate::Unknown { owner: owner.to_string() },
    }
}

/// How it stands with a guest that should return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outlook {
    /// A new instance of it runs. On the failed node, too: then that was repaired meanwhile.
    Returned {
        /// The node it runs on.
        on: String,
    },
    /// Nothing speaks against it. The phase is that of its new instance, if there is one.
    OnItsWay {
        /// The phase of its new instance, if there is one.
        phase: Option<&'static str>,
    },
    /// It is to run, and as things are it cannot.
    Stuck {
        /// The phase of its new instance, if there is one.
        phase: Option<&'static str>,
        /// What keeps it, as the end of a sentence that begins with the VM.
        why: String,
    },
    /// It is the turn of the controller of machines, from whom nothing is seen yet.
    Unattended {
        /// What is not seen to happen, and what a person does about it.
        why: String,
    },
    /// It is not meant to run any more.
    NotWanted {
        /// Why, as the end of a sentence that begins with the VM.
        why: String,
    },
}

/// What is to be expected of a guest that should return, as things are now.
pub fn outlook(index: &Index, guest: &GuestFate) -> Outlook {
    let fresh = index.instance(&guest.instance).filter(|now| now.uid != guest.uid);
    if let Some(now) = fresh.filter(|now| now.phase == Phase::Running) {
        return Outlook::Returned { on: now.node.to_string() };
    }
    let mut machine = None;
    if let Some((key, uid)) = &guest.machine {
        machine = index.machine(key).filter(|machine| machine.uid == *uid);
        if let Some(why) = not_wanted(machine, fresh) {
            return Outlook::NotWanted { why };
        }
    }
    let phase = fresh.map(|now| now.phase.text());
    match stuck(index, machine, fresh) {
        Some(why) => Outlook::Stuck { phase, why },
        None if fresh.is_none() && machine.is_some() => unattended(index, guest),
        None => Outlook::OnItsWay { phase },
    }
}

const CONTROLLER: &str = "To do: see that virt-controller, or the evac operator, runs";

/// A guest without a new instance: while a pod of the old one is left, that pod has to go; then the controller of machines has to act.
fn unattended(index: &Index, guest: &GuestFate) -> Outlook {
    let old = index.instance(&guest.instance);
    let why = match old.filter(|old| !old.is_final()) {
        Some(_) if index.any_launchers_of(&guest.uid).any(|pod| !pod.is_finished()) => {
            return Outlook::OnItsWay { phase: None };
        }
        Some(old) => format!(
            "has no new instance: the old one still says {} although no pod of it is left, and KubeVirt may take up to 7 minutes to notice that. \
             {CONTROLLER}",
            old.phase.text()
        ),
        None => format!("has no new instance, although its machine is to run. {CONTROLLER}"),
    };
    Outlook::Unattended { why }
}

fn not_wanted(machine: Option<&Machine>, fresh: Option<&Instance>) -> Option<String> {
    let Some(machine) = machine else { return Some("stays off: its VirtualMachine was deleted".into()) };
    if machine.deleting {
        return Some("stays off: its VirtualMachine is being deleted".into());
    }
    let strategy = machine.power.strategy();
    match strategy {
        Some(RunStrategy::Always) => None,
        // It takes a clean shutdown for a wish.
        Some(RunStrategy::RerunOnFailure) => {
            let ended = fresh.is_some_and(|now| now.phase == Phase::Succeeded);
            ended.then(|| "stays off: it was shut down after its return".into())
        }
        // A person may have started it by hand.
        _ if fresh.is_some_and(|now| !now.is_final() && !now.deleting) => None,
        Some(strategy) => Some(format!("stays off: its run strategy is {strategy} now")),
        None => Some("stays off: its run strategy cannot be read any more".into()),
    }
}

/// What keeps the successor of a guest from starting.
fn stuck(index: &Index, machine: Option<&Machine>, fresh: Option<&Instance>) -> Option<String> {
    let said = |condition: &Condition| condition.message.clone().filter(|text| !text.is_empty());
    if let Some(now) = fresh.filter(|now| !now.is_final()) {
        let launchers = index.launchers_of(&now.uid);
        let waits = |pod: &&&Pod| pod.job().is_none() && pod.node_name().is_empty() && pod.is_unschedulable();
        if let Some(pod) = launchers.iter().find(waits) {
            let words = condition::find(pod.launcher_conditions(), "PodScheduled").and_then(said);
            let words = words.map_or(String::new(), |words| format!(": {words}"));
            return Some(format!("finds no place{words}"));
        }
        let synchronized = condition::find(&now.conditions, "Synchronized");
        if let Some(failed) = synchronized.filter(|condition| condition.status == "False") {
            let words = said(failed).map_or(String::new(), |words| format!(": {words}"));
            return Some(format!("cannot be started{words}"));
        }
    }
    let failure = machine.and_then(|machine| machine.status.start_failure.as_ref())?;
    let next = failure.retry_after.map_or(String::new(), |at| format!(", and is tried again at {at:.0}"));
    (failure.count > 0).then(|| format!("could not be started ({} times){next}", failure.count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::Fact;
    use crate::cluster::fact::StartFailure;
    use crate::machines::Power;
    use crate::machines::testing::{Known, boot, instance, launcher, machine, owned, view};

    fn of(strategy: RunStrategy) -> Fate {
        let vm = machine("a", strategy);
        let vmi = boot(&vm, Phase::Running);
        let seen = view([Fact::Machine(Box::new(vm)), Fact::Instance(Box::new(vmi))]);
        fates(&seen, "n1", false).remove(0).fate
    }

    #[test]
    fn always_and_rerun_on_failure_return_and_all_others_stay_off() {
        assert_eq!(of(RunStrategy::Always), Fate::Returns { strategy: "Always".into() });
        assert_eq!(of(RunStrategy::RerunOnFailure), Fate::Returns { strategy: "RerunOnFailure".into() });
        for strategy in [RunStrategy::Manual, RunStrategy::Halted, RunStrategy::Once] {
            assert_eq!(of(strategy), Fate::StaysOff { strategy: strategy.to_string() });
        }
    }

    #[test]
    fn the_old_way_to_say_that_a_machine_runs_counts_too() {
        let mut vm = machine("a", RunStrategy::Manual);
        vm.power = Power::Running(true);
        let vmi = boot(&vm, Phase::Running);
        let seen = view([Fact::Machine(Box::new(vm)), Fact::Instance(Box::new(vmi))]);
        assert!(fates(&seen, "n1", false)[0].fate.returns());
    }

    #[test]
    fn plain_instances_end_sets_replace_and_strangers_are_unknown() {
        let plain = instance("a", Phase::Running);
        let said = |vmi: Instance| fates(&view([Fact::Instance(Box::new(vmi))]), "n1", false).remove(0).fate;
        assert_eq!(said(plain.clone()), Fate::Ends);
        assert_eq!(said(owned(plain.clone(), "VirtualMachineInstanceReplicaSet", "s")), Fate::Replaced);
        assert!(matches!(said(owned(plain.clone(), "Widget", "w")), Fate::Unknown { .. }));
        assert!(
            matches!(said(owned(plain.clone(), "VirtualMachine", "v")), Fate::Unknown { .. }),
            "not read"
        );
        let leaving = Instance { deleting: true, ..plain };
        assert_eq!(said(leaving), Fate::Deleted);
    }

    #[test]
    fn guests_elsewhere_and_those_that_ended_are_not_counted_but_those_about_to_start_are() {
        let mut elsewhere = instance("elsewhere", Phase::Running);
        elsewhere.node = "n2".into();
        let vm = machine("ended", RunStrategy::Always);
        let ended = boot(&vm, Phase::Failed);
        let plain = instance("plain", Phase::Failed);
        let starting = instance("starting", Phase::Scheduling);
        let pod = launcher(&starting, "n1");
        let seen = view([
            Fact::Instance(Box::new(elsewhere)),
            Fact::Machine(Box::new(vm)),
            Fact::Instance(Box::new(ended)),
            Fact::Instance(Box::new(plain)),
            Fact::Instance(Box::new(starting)),
            Fact::Pod(Box::new(pod)),
        ]);
        let names = |resumed| -> Vec<String> {
            fates(&seen, "n1", resumed).into_iter().map(|guest| guest.instance.name.into()).collect()
        };
        assert_eq!(names(false), ["starting"]);
        assert_eq!(names(true), ["ended", "starting"], "it failed by the release and is to return");
    }

    fn guest(vm: &Machine) -> GuestFate {
        let old = boot(vm, Phase::Running);
        let machine = machine_of(&old);
        GuestFate { instance: old.key, uid: old.uid, machine, fate: Fate::Ends }
    }

    fn fresh(vm: &Machine, phase: Phase, node: &str) -> Instance {
        Instance { uid: Uid("new".into()), node: node.into(), ..boot(vm, phase) }
    }

    fn seen(vm: Option<&Machine>, vmi: Option<&Instance>, pod: Option<&Pod>) -> Index {
        let all = [vm.map(Known::known), vmi.map(Known::known), pod.map(Known::known)];
        view(all.into_iter().flatten())
    }

    #[test]
    fn a_guest_has_returned_when_a_new_instance_of_it_runs() {
        let vm = machine("a", RunStrategy::Always);
        let look = |vmi: Instance| outlook(&seen(Some(&vm), Some(&vmi), None), &guest(&vm));
        assert!(matches!(look(boot(&vm, Phase::Running)), Outlook::Unattended { .. }), "the old one");
        let scheduled = look(fresh(&vm, Phase::Scheduled, "n2"));
        assert_eq!(scheduled, Outlook::OnItsWay { phase: Some("Scheduled") });
        assert_eq!(look(fresh(&vm, Phase::Running, "n2")), Outlook::Returned { on: "n2".into() });
        let repaired = look(fresh(&vm, Phase::Running, "n1"));
        assert_eq!(repaired, Outlook::Returned { on: "n1".into() }, "its node was repaired meanwhile");
    }

    #[test]
    fn a_guest_that_the_controller_of_machines_does_nothing_about_is_told_from_one_whose_pod_has_to_go_first()
    {
        let vm = machine("a", RunStrategy::Always);
        let old = boot(&vm, Phase::Running);
        let pod = launcher(&old, "n1");
        let look =
            |vmi: Option<&Instance>, pod: Option<&Pod>| outlook(&seen(Some(&vm), vmi, pod), &guest(&vm));
        let why = |outlook| match outlook {
            Outlook::Unattended { why } => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(look(Some(&old), Some(&pod)), Outlook::OnItsWay { phase: None });
        let ended = Pod { phase: crate::cluster::fact::PodPhase::Succeeded, ..pod };
        let left_behind = why(look(Some(&old), Some(&ended)));
        assert!(left_behind.contains("still says Running although no pod of it is left"), "{left_behind}");
        assert!(why(look(Some(&boot(&vm, Phase::Failed)), None)).contains("its machine is to run"));
        assert!(why(look(None, None)).contains("To do: see that virt-controller"));
    }

    #[test]
    fn a_guest_whose_machine_was_stopped_or_deleted_is_not_wanted_any_more() {
        let vm = machine("a", RunStrategy::Always);
        let guest = guest(&vm);
        let why = |index: &Index| match outlook(index, &guest) {
            Outlook::NotWanted { why } => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why(&seen(None, None, None)), "stays off: its VirtualMachine was deleted");
        let again = Machine { uid: Uid("another".into()), ..vm.clone() };
        assert!(why(&seen(Some(&again), None, None)).contains("was deleted"), "another one of that name");
        let leaving = Machine { deleting: true, ..vm.clone() };
        assert!(why(&seen(Some(&leaving), None, None)).contains("is being deleted"));
        let halted = machine("a", RunStrategy::Halted);
        assert_eq!(why(&seen(Some(&halted), None, None)), "stays off: its run strategy is Halted now");
        let old = boot(&vm, Phase::Running);
        assert!(
            why(&seen(Some(&halted), Some(&old), None)).contains("Halted"),
            "its old instance says nothing"
        );
        let unclear = Machine { power: Power::Unclear, ..vm.clone() };
        assert!(why(&seen(Some(&unclear), None, None)).contains("cannot be read"));
        let rerun = machine("a", RunStrategy::RerunOnFailure);
        let ended = fresh(&vm, Phase::Succeeded, "n2");
        assert!(why(&seen(Some(&rerun), Some(&ended), None)).contains("was shut down"));
        let by_hand = machine("a", RunStrategy::Manual);
        let starts = fresh(&vm, Phase::Scheduling, "");
        let seen = seen(Some(&by_hand), Some(&starts), None);
        assert_eq!(
            outlook(&seen, &guest),
            Outlook::OnItsWay { phase: Some("Scheduling") },
            "started by hand"
        );
    }

    #[test]
    fn a_successor_that_cannot_start_is_stuck_and_the_reason_is_the_clusters() {
        let mut vm = machine("a", RunStrategy::Always);
        let guest = guest(&vm);
        let why = |index: &Index| match outlook(index, &guest) {
            Outlook::Stuck { why, .. } => why,
            other => panic!("{other:?}"),
        };
        let mut vmi = fresh(&vm, Phase::Scheduling, "");
        let mut pod = launcher(&vmi, "");
        assert!(matches!(
            outlook(&seen(Some(&vm), Some(&vmi), Some(&pod)), &guest),
            Outlook::OnItsWay { .. }
        ));
        let message = "0/3 nodes are available: 3 Insufficient memory.";
        pod.guest().conditions.push(Condition::new("PodScheduled", false, "Unschedulable", message));
        assert_eq!(why(&seen(Some(&vm), Some(&vmi), Some(&pod))), format!("finds no place: {message}"));
        vmi.conditions.push(Condition::new("Synchronized", false, "FailedCreate", "exceeded quota"));
        assert_eq!(why(&seen(Some(&vm), Some(&vmi), None)), "cannot be started: exceeded quota");
        let retry_after = Some("2026-01-01T02:00:00Z".parse().unwrap());
        vm.status.start_failure = Some(StartFailure { count: 3, last_uid: "x".into(), retry_after });
        assert_eq!(
            why(&seen(Some(&vm), None, None)),
            "could not be started (3 times), and is tried again at 2026-01-01T02:00:00Z"
        );
    }
}
