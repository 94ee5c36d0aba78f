//! Who is told when something changes. A subject that would be decided otherwise and is not looked at again stays as it is until something
//! else happens to it, which may be never.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::cluster::fact::{
    Amount, Deletion, Fact, Instance, Machine, Migration, MigrationPhase, MigrationState, Node, Phase, Pod,
    PodPhase, RunStrategy, Uid,
};
use crate::cluster::index::Index;
use crate::cluster::subject::{Kind, Subject};
use crate::machines::testing::{
    Known, boot, instance, launcher, machine, migration, now, owned, protection, set, target,
};
use crate::machines::{Condition, Decision, Roles, decide, line, names};
use crate::testing::node;

/// What a cluster of one machine, one instance of a set and one plain instance can look like, object by object.
fn facts() -> impl Strategy<Value = Fact> {
    prop_oneof![
        machines(),
        instances(),
        instances(),
        launchers(),
        migrations(),
        migrations(),
        hosts(),
        guards(),
        Just((&set("s", 1)).known()),
        Just(Fact::ReplicaSetGone(set("s", 1).key, set("s", 1).uid)),
    ]
}

fn vm() -> Machine {
    machine("a", RunStrategy::Always)
}

/// The instances: of the machine, of the set, without an owner.
fn bare(which: usize, phase: Phase) -> Instance {
    let mut vmi = match which {
        0 => boot(&vm(), phase),
        1 => {
            let mut vmi = owned(instance("s-1", phase), "VirtualMachineInstanceReplicaSet", "s");
            vmi.labels = [("app", "s")].into();
            vmi
        }
        _ => instance("p", phase),
    };
    vmi.eviction_strategy = Some("LiveMigrate".into());
    vmi
}

fn machines() -> impl Strategy<Value = Fact> {
    let strategies = [RunStrategy::Always, RunStrategy::Halted, RunStrategy::RerunOnFailure];
    let shown = prop::sample::select(vec!["Running", "Migrating", "Stopped"]);
    prop_oneof![
        4 => (prop::sample::select(strategies.to_vec()), any::<bool>(), shown).prop_map(|(strategy, deleting, shown)| {
            let mut vm = Machine { deleting, ..machine("a", strategy) };
            (vm.status.printable, vm.status.created) = (shown.into(), true);
            (&vm).known()
        }),
        1 => Just(Fact::MachineGone(vm().key, vm().uid)),
    ]
}

fn instances() -> impl Strategy<Value = Fact> {
    let phases = [Phase::Pending, Phase::Scheduling, Phase::Scheduled, Phase::Running, Phase::Failed];
    let account = prop::option::of((0..3usize, any::<bool>(), any::<bool>(), any::<bool>()));
    prop_oneof![
        6 => (0..3usize, prop::sample::select(phases.to_vec()), any::<bool>(), any::<bool>(), account).prop_map(
            |(which, phase, deleting, marked, account)| {
                let mut vmi = bare(which, phase);
                vmi.deleting = deleting;
                vmi.evacuation_node = (marked && !vmi.node.is_empty()).then(|| "n1".into());
                vmi.conditions = vec![Condition::new("LiveMigratable", true, "", "")];
                vmi.migration = account.map(|(of, started, over, failed)| Box::new(MigrationState {
                    uid: job(which, of).uid.to_string(),
                    source_node: "n1".into(),
                    target_node: "n2".into(),
                    started,
                    ended: over,
                    completed: over,
                    failed: over && failed,
                    ..MigrationState::default()
                }));
                (&vmi).known()
            }
        ),
        1 => (0..3usize).prop_map(|which| {
            let vmi = bare(which, Phase::Running);
            Fact::InstanceGone(vmi.key, vmi.uid)
        }),
    ]
}

fn job(which: usize, number: usize) -> Migration {
    let vmi = bare(which, Phase::Running);
    migration(&format!("m{number}-{}", vmi.key.name), &vmi, MigrationPhase::Pending)
}

fn migrations() -> impl Strategy<Value = Fact> {
    let phases = [
        MigrationPhase::Unset,
        MigrationPhase::Pending,
        MigrationPhase::Scheduling,
        MigrationPhase::Running,
        MigrationPhase::Succeeded,
        MigrationPhase::Failed,
    ];
    prop_oneof![
        6 => (0..3usize, 0..3usize, prop::sample::select(phases.to_vec()), any::<bool>(), any::<bool>()).prop_map(
            |(which, number, phase, deleting, automatic)| {
                let mut job = Migration { deleting, phase, ..job(which, number) };
                if automatic {
                    job.annotations.insert(names::EVACUATION_MIGRATION.into(), "n1".into());
                }
                if phase == MigrationPhase::Failed {
                    job.phase_times.push(("Failed".into(), "2026-01-01T00:59:55Z".into()));
                }
                (&job).known()
            }
        ),
        1 => (0..3usize, 0..3usize).prop_map(|(which, number)| {
            let job = job(which, number);
            Fact::MigrationGone(job.key, job.uid)
        }),
    ]
}

fn launchers() -> impl Strategy<Value = Fact> {
    let phases = [PodPhase::Pending, PodPhase::Running, PodPhase::Succeeded, PodPhase::Failed];
    let of = |which: usize, number: Option<usize>| {
        let vmi = bare(which, Phase::Running);
        match number {
            None => launcher(&vmi, "n1"),
            Some(number) => target(&vmi, &job(which, number), "n2"),
        }
    };
    let which = (0..3usize, prop::option::of(0..3usize));
    prop_oneof![
        6 => (which.clone(), prop::sample::select(phases.to_vec()), any::<bool>()).prop_map(
            move |((which, number), phase, deleting)| {
                let mut pod = Pod { phase, ..of(which, number) };
                pod.deletion = deleting.then(|| Deletion { ends: now(), grace_seconds: 30 });
                pod.guest().up = phase == PodPhase::Running;
                (&pod).known()
            }
        ),
        1 => which.prop_map(move |(which, number)| {
            let pod = of(which, number);
            Fact::PodGone(pod.key, pod.uid)
        }),
    ]
}

fn hosts() -> impl Strategy<Value = Fact> {
    let taints = prop::sample::select(vec!["", "kubevirt.io/drain", crate::cluster::taints::OUT_OF_SERVICE]);
    prop_oneof![
        4 => taints.prop_map(|key| {
            let effect = if key == crate::cluster::taints::OUT_OF_SERVICE { "NoExecute" } else { "NoSchedule" };
            let taint = crate::cluster::fact::Taint { key: key.into(), value: None, effect: effect.into(), time_added: None };
            let taints = if key.is_empty() { Vec::new() } else { vec![taint] };
            Fact::Node(Box::new(Node { taints, ..node("n1") }))
        }),
        1 => Just(Fact::NodeGone("n1".into(), Uid("uid-n1".into()))),
    ]
}

fn guards() -> impl Strategy<Value = Fact> {
    (0..3usize, any::<bool>(), any::<bool>()).prop_map(|(which, gone, bent)| {
        let vmi = bare(which, Phase::Running);
        let mut guard = protection(&names::budget(&vmi.key.name, &vmi.uid.0), &vmi.key.name, &vmi.uid.0);
        if bent {
            guard.min_available = Some(Amount::Count(1));
        }
        if gone { Fact::BudgetGone(guard.key, guard.uid) } else { Fact::Budget(Box::new(guard)) }
    })
}

/// A migration never returns to an earlier phase.
fn goes_back(index: &Index, seen: &Fact) -> bool {
    let Fact::Migration(job) = seen else { return false };
    index.migration(&job.key).is_some_and(|known| known.phase.is_final() || job.phase < known.phase)
}

/// What is to be done about everybody now.
fn decisions(index: &Index) -> BTreeMap<Subject, Decision> {
    let next = line::next_in_line(index, now());
    let decided = |subject: Subject| {
        let decision = decide(index, &Roles::all(), &subject, now(), &next);
        (subject, decision)
    };
    index.subjects().into_iter().map(decided).collect()
}

#[test]
fn a_machine_is_looked_at_again_when_the_migration_of_its_guest_ends() {
    let guest = bare(0, Phase::Running);
    let job = migration("m", &guest, MigrationPhase::Running);
    let mut index = Index::new();
    for seen in [(&vm()).known(), (&guest).known(), (&job).known()] {
        index.apply(seen);
    }
    let ended = Migration { phase: MigrationPhase::Succeeded, ..job };
    assert!(index.apply((&ended).known()).contains(&Subject::new(Kind::Machine, vm().key)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn whoever_is_to_be_treated_otherwise_after_a_change_is_looked_at_again(
        history in prop::collection::vec(facts(), 1..40)
    ) {
        let mut index = Index::new();
        for (step, seen) in history.iter().enumerate() {
            if goes_back(&index, seen) {
                continue;
            }
            let before = decisions(&index);
            // Identities do not come back here: an object that is gone may be seen again in this test.
            index.forget_gone();
            let mut touched = index.apply(seen.clone());
            if index.take_line_moved() {
                touched.extend(line::called(&index, now()));
            }
            for (subject, decision) in decisions(&index) {
                // Who waits in line is called when those before it are through with what this made of them.
                if subject.kind == Kind::Migration && line::waits(&index, &subject.key) {
                    continue;
                }
                let asked_for = |decision: &Decision| (decision.actions.clone(), decision.events.clone(), decision.look_again);
                let same = before.get(&subject).is_some_and(|known| asked_for(known) == asked_for(&decision));
                prop_assert!(
                    same || decision == Decision::nothing() || touched.contains(&subject),
                    "after {step} ({seen:?}) nobody looks at {subject:?}, for whom there is to be done: {decision:?}"
                );
            }
        }
    }
}
