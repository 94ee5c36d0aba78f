//! What becomes of a guest whose pod is evicted: does it come back?
//!
//! An eviction that shuts a guest down looks like a clean shutdown to the owner of the instance. So what follows depends on the
//! owner, and for a VirtualMachine on its run strategy.

use crate::cluster::index::Index;
use crate::machines::{Instance, RunStrategy};
use crate::reasons::AfterShutdown;

/// What becomes of an instance that is shut down.
pub fn after_shutdown(index: &Index, instance: &Instance) -> AfterShutdown {
    let Some(owner) = &instance.owner else { return AfterShutdown::Ends };
    match owner.kind.as_str() {
        "VirtualMachineInstanceReplicaSet" => AfterShutdown::Replaced,
        "VirtualMachine" => {
            let key = crate::cluster::fact::Key::new(instance.key.namespace.clone(), owner.name.clone());
            let power = index.machine(&key).filter(|machine| machine.uid == owner.uid);
            match power.map(|machine| machine.power.strategy()) {
                Some(Some(RunStrategy::Always)) => AfterShutdown::Restarts,
                Some(Some(strategy)) => AfterShutdown::StaysOff { strategy: strategy.to_string() },
                Some(None) | None => AfterShutdown::Unknown { owner: owner.to_string() },
            }
        }
        _ => AfterShutdown::Unknown { owner: owner.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::Fact;
    use crate::machines::testing::{boot, instance, machine, owned};
    use crate::machines::{Phase, Power};

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
            let mut index = Index::new();
            let vmi = boot(&vm, Phase::Running);
            index.apply(Fact::Machine(Box::new(vm)));
            assert_eq!(after_shutdown(&index, &vmi).to_string(), words);
        }
    }

    #[test]
    fn the_old_way_to_say_that_a_machine_runs_counts_too() {
        let mut vm = machine("a", RunStrategy::Manual);
        vm.power = Power::Running(true);
        let vmi = boot(&vm, Phase::Running);
        let mut index = Index::new();
        index.apply(Fact::Machine(Box::new(vm)));
        assert_eq!(after_shutdown(&index, &vmi), AfterShutdown::Restarts);
    }

    #[test]
    fn sets_replace_plain_instances_end_and_strangers_are_unknown() {
        let index = Index::new();
        let plain = instance("a", Phase::Running);
        assert_eq!(after_shutdown(&index, &plain), AfterShutdown::Ends);
        let of = |kind| after_shutdown(&index, &owned(plain.clone(), kind, "o"));
        assert_eq!(of("VirtualMachineInstanceReplicaSet"), AfterShutdown::Replaced);
        assert!(matches!(of("VirtualMachine"), AfterShutdown::Unknown { .. }), "a machine that was not read");
        assert!(!of("Widget").comes_back());
    }
}
