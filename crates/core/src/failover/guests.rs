//! What becomes of the guests of a node that failed: who returns, and who stays off.
//!
//! An instance whose launcher is removed has failed. Its owner sees a failure, not a clean shutdown, which is why `RerunOnFailure`
//! returns here and stays off after a drain.

use serde::Serialize;

use crate::fact::{Key, Uid};
use crate::machines::{Instance, Machines, Phase, RunStrategy};

/// What follows for one guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Fate {
    /// Its machine starts it again on another node.
    Returns { strategy: String },
    /// Its replica set makes a new one under another name.
    Replaced,
    /// Its machine leaves it off.
    StaysOff { strategy: String },
    /// Nobody owns it: it ends and stays ended.
    Ends,
    /// It, or its machine, is being deleted.
    Deleted,
    /// What its owner does is not known.
    Unknown { owner: String },
}

impl Fate {
    pub fn returns(&self) -> bool {
        matches!(self, Self::Returns { .. })
    }

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
    pub instance: Key,
    pub uid: Uid,
    #[serde(flatten)]
    pub fate: Fate,
}

/// The unfinished guests on a node, in the order of their names. Those whose launcher was placed there and who
/// have not begun count too: their pods are as stuck as the others.
///
/// When a failover is taken up again after the release, those that failed by it and wait for their machine count as well.
pub fn fates(machines: &Machines, node: &str, resumed: bool) -> Vec<GuestFate> {
    let starts_there = |instance: &Instance| {
        instance.node.is_empty()
            && machines.launchers_of(&instance.uid).iter().any(|pod| pod.node == node && pod.job.is_none())
    };
    let mut found: Vec<GuestFate> = machines
        .instances()
        .filter(|instance| !instance.is_final() || (resumed && instance.phase == Phase::Failed))
        .filter(|instance| instance.node == node || starts_there(instance))
        .map(|instance| GuestFate {
            instance: instance.key.clone(),
            uid: instance.uid.clone(),
            fate: fate(machines, instance),
        })
        .collect();
    // A plain instance that failed is over, and was told before.
    found.retain(|guest| {
        guest.fate.returns() || machines.instance(&guest.instance).is_none_or(|it| !it.is_final())
    });
    found.sort_by(|a, b| a.instance.cmp(&b.instance));
    found
}

fn fate(machines: &Machines, instance: &Instance) -> Fate {
    let Some(owner) = &instance.owner else {
        return if instance.deleting { Fate::Deleted } else { Fate::Ends };
    };
    match owner.kind.as_str() {
        "VirtualMachineInstanceReplicaSet" => Fate::Replaced,
        "VirtualMachine" => {
            let key = Key::new(instance.key.namespace.clone(), owner.name.clone());
            let machine = machines.machine(&key).filter(|machine| machine.uid == owner.uid);
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

/// Where a guest that should return runs now, if it does: a new instance on another node.
pub fn returned<'a>(machines: &'a Machines, guest: &GuestFate, node: &str) -> Option<&'a Instance> {
    machines
        .instance(&guest.instance)
        .filter(|now| now.uid != guest.uid && now.phase == Phase::Running && now.node != node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::testing::{boot, instance, launcher, machine, owned, view};
    use crate::machines::{Power, Seen};

    fn of(strategy: RunStrategy) -> Fate {
        let vm = machine("a", strategy);
        let vmi = boot(&vm, Phase::Running);
        let seen = view([Seen::Machine(Box::new(vm)), Seen::Instance(Box::new(vmi))]);
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
        let seen = view([Seen::Machine(Box::new(vm)), Seen::Instance(Box::new(vmi))]);
        assert!(fates(&seen, "n1", false)[0].fate.returns());
    }

    #[test]
    fn plain_instances_end_sets_replace_and_strangers_are_unknown() {
        let plain = instance("a", Phase::Running);
        let said = |vmi: Instance| fates(&view([Seen::Instance(Box::new(vmi))]), "n1", false).remove(0).fate;
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
            Seen::Instance(Box::new(elsewhere)),
            Seen::Machine(Box::new(vm)),
            Seen::Instance(Box::new(ended)),
            Seen::Instance(Box::new(plain)),
            Seen::Instance(Box::new(starting)),
            Seen::Launcher(Box::new(pod)),
        ]);
        let names = |resumed| -> Vec<String> {
            fates(&seen, "n1", resumed).into_iter().map(|guest| guest.instance.name).collect()
        };
        assert_eq!(names(false), ["starting"]);
        assert_eq!(names(true), ["ended", "starting"], "it failed by the release and is to return");
    }

    #[test]
    fn a_guest_has_returned_when_a_new_instance_runs_on_another_node() {
        let old = instance("a", Phase::Running);
        let guest = GuestFate { instance: old.key.clone(), uid: old.uid.clone(), fate: Fate::Ends };
        let look = |vmi: Instance| {
            let seen = view([Seen::Instance(Box::new(vmi))]);
            returned(&seen, &guest, "n1").is_some()
        };
        assert!(!look(old.clone()), "the old one");
        let fresh = Instance { uid: Uid("new".into()), ..old };
        assert!(!look(fresh.clone()), "on the failed node");
        let moved = Instance { node: "n2".into(), ..fresh };
        assert!(!look(Instance { phase: Phase::Scheduled, ..moved.clone() }), "not yet running");
        assert!(look(moved));
    }
}
