//! The rows V01 to V17 of the acceptance catalogue, and what goes beyond them.

use super::*;
use crate::cluster::fact::Fact;
use crate::cluster::fact::{Node, Taint};
use crate::machines::testing::{
    Known, deletes, events, instance, later, launcher, migration, now, target, view,
};
use crate::machines::{Config, Migration, Phase};
use crate::testing::node;

fn vmi(name: &str) -> Instance {
    let mut vmi = instance(name, Phase::Running);
    vmi.eviction_strategy = Some("LiveMigrate".into());
    vmi.conditions = vec![Condition::new("LiveMigratable", true, "", "")];
    vmi
}

fn host(name: &str, tainted: Option<&str>) -> Fact {
    let taint =
        |key: &str| Taint { key: key.into(), value: None, effect: "NoSchedule".into(), time_added: None };
    Fact::Node(Box::new(Node { taints: tainted.map(taint).into_iter().collect(), ..node(name) }))
}

fn tainted() -> Fact {
    host("n1", Some("kubevirt.io/drain"))
}

/// The migrations that are asked for: name, node, priority.
fn created(decision: &Decision) -> Vec<(String, String, &'static str)> {
    let of = |action: &Action| match action {
        Action::Migrate { name, node, asker: Asker::Evacuation(priority), .. } => {
            Some((name.clone(), node.clone(), *priority))
        }
        _ => None,
    };
    decision.actions.iter().filter_map(of).collect()
}

fn look(vmi: &Instance, seen: impl IntoIterator<Item = Fact>) -> Decision {
    let all = [vmi.known(), (&launcher(vmi, "n1")).known()].into_iter().chain(seen);
    decide(&view(all), &vmi.key, now())
}

fn automatic(name: &str, of: &Instance, phase: MigrationPhase) -> Migration {
    let mut one = migration(name, of, phase);
    one.annotations.insert(names::EVACUATION_MIGRATION.into(), "n1".into());
    one
}

#[test]
fn v01_v05_v08_a_taint_or_a_mark_asks_for_one_migration() {
    let asked = created(&look(&vmi("a"), [tainted()]));
    assert_eq!(asked.len(), 1);
    assert!(asked[0].0.starts_with("kubevirt-evacuation-"), "{asked:?}");
    assert_eq!((asked[0].1.as_str(), asked[0].2), ("n1", "system-critical"));
    let mut marked = vmi("a");
    marked.evacuation_node = Some("n1".into());
    assert_eq!(created(&look(&marked, [])), asked, "the same name, so never two");
}

#[test]
fn v02_what_a_descheduler_asks_for_is_less_urgent() {
    let mut vmi = vmi("a");
    vmi.evacuation_node = Some("n1".into());
    vmi.eviction_source = Some("descheduler".into());
    assert_eq!(created(&look(&vmi, []))[0].2, "system-maintenance");
}

#[test]
fn v03_v04_nobody_asked_or_asked_for_another_node() {
    assert_eq!(look(&vmi("a"), []), Decision::nothing());
    assert_eq!(look(&vmi("a"), [host("n2", Some("kubevirt.io/drain"))]), Decision::nothing());
    let mut elsewhere = vmi("a");
    elsewhere.evacuation_node = Some("n0".into());
    assert_eq!(look(&elsewhere, []), Decision::nothing(), "an old mark moves nobody");
    assert_eq!(look(&vmi("a"), [host("n1", Some("other/key"))]), Decision::nothing());
}

#[test]
fn v06_what_cannot_move_is_named_and_not_touched() {
    for condition in
        [Some(Condition::new("LiveMigratable", false, "DisksNotLiveMigratable", "disk d is local")), None]
    {
        let mut vmi = vmi("a");
        vmi.conditions = condition.into_iter().collect();
        let decision = look(&vmi, [tainted()]);
        assert!(created(&decision).is_empty());
        assert_eq!(events(&decision), [BLOCKED]);
    }
}

#[test]
fn the_condition_is_told_once_and_goes_with_its_cause() {
    let mut vmi = vmi("a");
    vmi.conditions =
        vec![Condition::new("LiveMigratable", false, "DisksNotLiveMigratable", "disk d is local")];
    let first = look(&vmi, [tainted()]);
    let Some(Action::Patch { fields, .. }) = first.actions.first() else { panic!("{first:?}") };
    assert!(format!("{fields:?}").contains("disk d is local"), "{fields:?}");
    vmi.conditions.push(Condition::new(
        BLOCKED,
        true,
        "NotLiveMigratable",
        "it must be moved off n1 and is not live-migratable: disk d is local",
    ));
    assert_eq!(look(&vmi, [tainted()]), Decision::nothing());
    let after = look(&vmi, [host("n1", None)]);
    assert_eq!(after.actions.len(), 1, "the condition is removed: {after:?}");
}

#[test]
fn v07_v15_others_waiting_do_not_keep_one_from_asking() {
    let others: Vec<Fact> = (0..10)
        .flat_map(|n| {
            let other = vmi(&format!("other-{n}"));
            let one = automatic(&format!("m-{n}"), &other, MigrationPhase::Pending);
            [(&other).known(), (&one).known()]
        })
        .collect();
    assert_eq!(created(&look(&vmi("a"), others.into_iter().chain([tainted()]))).len(), 1);
}

#[test]
fn v09_v10_one_at_a_time() {
    let vmi = vmi("a");
    for phase in [MigrationPhase::Unset, MigrationPhase::Pending, MigrationPhase::Running] {
        let running = automatic("m", &vmi, phase);
        assert!(created(&look(&vmi, [tainted(), (&running).known()])).is_empty(), "{phase:?}");
    }
}

#[test]
fn v11_v12_a_second_pod_that_has_not_ended_comes_first() {
    let vmi = vmi("a");
    let old = automatic("m", &vmi, MigrationPhase::Failed);
    let mut second = target(&vmi, &old, "n2");
    assert!(created(&look(&vmi, [tainted(), (&old).known(), (&second).known()])).is_empty());
    second.phase = crate::cluster::fact::PodPhase::Failed;
    assert_eq!(created(&look(&vmi, [tainted(), (&old).known(), (&second).known()])).len(), 1);
}

#[test]
fn v13_v14_v16_the_strategy_decides_and_the_instance_wins() {
    let mut index = view([tainted()]);
    index.configure(Config { eviction_strategy: Some("LiveMigrate".into()), ..Config::default() });
    for (strategy, expected) in
        [(None, 1), (Some("None"), 0), (Some("External"), 0), (Some("LiveMigrateIfPossible"), 1)]
    {
        let mut vmi = vmi("a");
        vmi.eviction_strategy = strategy.map(Into::into);
        let mut index = index.clone();
        index.apply((&vmi).known());
        assert_eq!(created(&decide(&index, &vmi.key, now())).len(), expected, "{strategy:?}");
    }
}

#[test]
fn v28_the_key_of_the_taint_is_the_clusters_choice() {
    let vmi = vmi("a");
    let mut index = view([vmi.known(), host("n1", Some("mytaint/drain"))]);
    assert!(created(&decide(&index, &vmi.key, now())).is_empty());
    let touched = index.configure(Config { drain_taint_key: "mytaint/drain".into(), ..Config::default() });
    assert!(touched.iter().any(|subject| subject.key == vmi.key), "the change makes everybody look again");
    assert_eq!(created(&decide(&index, &vmi.key, now())).len(), 1);
}

#[test]
fn a_failed_one_is_followed_by_another_with_another_name() {
    let vmi = vmi("a");
    let first = created(&look(&vmi, [tainted()]));
    let failed = automatic(&first[0].0, &vmi, MigrationPhase::Failed);
    let second = created(&look(&vmi, [tainted(), (&failed).known()]));
    assert_eq!(second.len(), 1);
    assert_ne!(first[0].0, second[0].0);
}

#[test]
fn many_failures_are_named_and_it_is_still_tried() {
    let mut vmi = vmi("a");
    vmi.migration = Some(Box::new(crate::machines::MigrationState {
        failure_reason: "it did not converge".into(),
        ..Default::default()
    }));
    let failed: Vec<Fact> = (0..3)
        .map(|n| {
            let mut one = automatic(&format!("m-{n}"), &vmi, MigrationPhase::Failed);
            one.created = Some(later(n));
            (&one).known()
        })
        .collect();
    let decision = look(&vmi, failed.into_iter().chain([tainted()]));
    assert_eq!(events(&decision), [BLOCKED]);
    assert_eq!(created(&decision).len(), 1);
    let text = format!("{decision:?}");
    assert!(
        text.contains("3 migrations off n1 failed in a row; the last said: it did not converge"),
        "{text}"
    );
}

#[test]
fn v36_what_is_no_longer_wanted_is_called_off_unless_it_has_begun() {
    let vmi = vmi("a");
    let name = names::evacuation(&vmi.key.name, &vmi.uid.0, "first");
    for (phase, expected) in
        [(MigrationPhase::Pending, 1), (MigrationPhase::Scheduling, 0), (MigrationPhase::Running, 0)]
    {
        let one = automatic(&name, &vmi, phase);
        let decision = look(&vmi, [host("n1", None), (&one).known()]);
        assert_eq!(deletes(&decision, Kind::Migration).len(), expected, "{phase:?}");
    }
    let by_a_person = migration("mine", &vmi, MigrationPhase::Pending);
    assert!(deletes(&look(&vmi, [(&by_a_person).known()]), Kind::Migration).is_empty());
}

#[test]
fn an_ended_or_leaving_instance_is_left_alone() {
    let mut ended = vmi("a");
    ended.phase = Phase::Succeeded;
    assert_eq!(look(&ended, [tainted()]), Decision::nothing());
    let mut leaving = vmi("a");
    leaving.deleting = true;
    assert_eq!(look(&leaving, [tainted()]), Decision::nothing());
}
