//! What becomes of a guest whose pod is evicted: does it come back?
//!
//! An eviction that shuts a guest down looks like a clean shutdown to whoever owns the guest. So what follows depends on the
//! owner, and for a VirtualMachine on its run strategy.

use serde::Serialize;

use crate::machines::{Instance, Machines, RunStrategy};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "after", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum After {
    /// Its machine starts it again, on another node.
    Restarts,
    /// Its replica set makes a new one; this one is gone.
    Replaced,
    /// Its machine leaves it off.
    StaysOff { strategy: String },
    /// Nobody owns it: it ends and stays ended.
    Ends,
    /// Its owner is of a kind we know nothing about, or could not be read.
    Unknown { owner: String },
}

impl After {
    pub fn comes_back(&self) -> bool {
        matches!(self, Self::Restarts | Self::Replaced)
    }

    /// The rest of a sentence that began with the shutdown.
    pub fn words(&self) -> String {
        match self {
            Self::Restarts => "restarts elsewhere".into(),
            Self::Replaced => "is replaced by a new instance of its set".into(),
            Self::StaysOff { strategy } => format!("stays off: {strategy} and a clean shutdown"),
            Self::Ends => "ends: no VirtualMachine owns it".into(),
            Self::Unknown { owner } => format!("may not come back: what {owner} does is not known"),
        }
    }
}

pub fn after_shutdown(machines: &Machines, instance: &Instance) -> After {
    let Some(owner) = &instance.owner else { return After::Ends };
    match owner.kind.as_str() {
        "VirtualMachineInstanceReplicaSet" => After::Replaced,
        "VirtualMachine" => {
            let key = crate::fact::Key::new(instance.key.namespace.clone(), owner.name.clone());
            let power = machines.machine(&key).filter(|machine| machine.uid == owner.uid);
            match power.map(|machine| machine.power.strategy()) {
                Some(Some(RunStrategy::Always)) => After::Restarts,
                Some(Some(strategy)) => After::StaysOff { strategy: strategy.to_string() },
                Some(None) | None => After::Unknown { owner: owner.to_string() },
            }
        }
        _ => After::Unknown { owner: owner.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::testing::{boot, instance, machine, owned};
    use crate::machines::{Config, Phase, Power, Seen};

    #[test]
    fn what_follows_a_shutdown_depends_on_owner_and_run_strategy() {
        for (strategy, words) in [
            (RunStrategy::Always, "restarts elsewhere"),
            (RunStrategy::RerunOnFailure, "stays off: RerunOnFailure and a clean shutdown"),
            (RunStrategy::Once, "stays off: Once and a clean shutdown"),
            (RunStrategy::Manual, "stays off: Manual and a clean shutdown"),
            (RunStrategy::Halted, "stays off: Halted and a clean shutdown"),
        ] {
            let vm = machine("a", strategy);
            let mut machines = Machines::new(Config::default());
            let vmi = boot(&vm, Phase::Running);
            machines.apply(Seen::Machine(Box::new(vm)));
            assert_eq!(after_shutdown(&machines, &vmi).words(), words);
        }
    }

    #[test]
    fn the_old_way_to_say_that_a_machine_runs_counts_too() {
        let mut vm = machine("a", RunStrategy::Manual);
        vm.power = Power::Running(true);
        let vmi = boot(&vm, Phase::Running);
        let mut machines = Machines::new(Config::default());
        machines.apply(Seen::Machine(Box::new(vm)));
        assert_eq!(after_shutdown(&machines, &vmi), After::Restarts);
    }

    #[test]
    fn sets_replace_plain_instances_end_and_strangers_are_unknown() {
        let machines = Machines::new(Config::default());
        let plain = instance("a", Phase::Running);
        assert_eq!(after_shutdown(&machines, &plain), After::Ends);
        let of = |kind| after_shutdown(&machines, &owned(plain.clone(), kind, "o"));
        assert_eq!(of("VirtualMachineInstanceReplicaSet"), After::Replaced);
        assert!(matches!(of("VirtualMachine"), After::Unknown { .. }), "a machine that was not read");
        assert!(!of("Widget").comes_back());
    }
}
