//! A PodDisruptionBudget per guest that must not be shut down.
//!
//! It stands behind the eviction webhook: when that is down or bypassed, the budget still refuses evictions of the guest's pods. It
//! asks for more pods than a guest can ever have, so it never allows one: not while a migration runs and there are two,
//! not when a failed one has left a third behind, and without any write at the moment a migration begins, which could
//! come too late. Pods that have ended are not held by any budget.

use super::action::{Action, Decision, Event, Own};
use super::names;
use super::strategy::{Course, course};
use crate::cluster::fact::Instance;
use crate::cluster::fact::{Amount, Budget, Key};
use crate::cluster::index::Index;
use crate::cluster::selector::Selector;

/// More pods than one guest can have.
pub const MIN_AVAILABLE: i32 = 1000;

/// Whether a budget refuses every eviction of the pods of an instance, and of no others.
fn protects(budget: &Budget, instance: &Instance) -> bool {
    budget.controller.as_ref().is_some_and(|owner| owner.uid == instance.uid)
        && budget.selector == Selector::from_labels([(names::CREATED_BY, instance.uid.0.as_str())])
        && budget.min_available == Some(Amount::Count(MIN_AVAILABLE))
}

/// Whether a guest must be moved or left alone rather than shut down, so that evictions of its pods have to fail.
pub fn is_needed(instance: &Instance, index: &Index) -> bool {
    !instance.deleting && !instance.is_final() && course(instance, &index.config) != Course::ShutDown
}

/// Decides about all budgets of instances of one name.
pub fn decide(index: &Index, key: &Key) -> Decision {
    let mut decision = Decision::nothing();
    let instance = index.instance(key);
    let needed = instance.filter(|instance| is_needed(instance, index));
    let mut guarded = false;
    let name = instance.map(|instance| names::budget(&key.name, &instance.uid.0));
    let mut name_is_free = true;
    for guard in index.budgets_protecting(key).filter(|guard| !guard.deleting) {
        let good = needed.is_some_and(|instance| protects(guard, instance));
        if good && !guarded {
            guarded = true;
            continue;
        }
        name_is_free &= name.as_deref() != Some(guard.key.name.as_str());
        decision.delete(guard);
        if let Some(instance) = instance {
            let message = format!("Deleted PodDisruptionBudget {}", guard.key.name);
            decision.tell(Event::normal(instance, "SuccessfulDelete", message));
        }
    }
    if let Some((instance, name)) = needed.zip(name).filter(|_| !guarded && name_is_free) {
        let (instance, uid) = (key.clone(), instance.uid.clone());
        // Creations come first: between two budgets there is never none.
        let mut all = Decision::of([Action::Own(Own::CreateBudget { instance, uid, name })]);
        all.append(decision);
        return all;
    }
    decision
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::Fact;
    use crate::machines::testing::{deletes, instance, protection, view};
    use crate::machines::{Condition, Phase};

    fn vmi(strategy: &str, migratable: bool) -> Instance {
        let mut vmi = instance("a", Phase::Running);
        vmi.eviction_strategy = Some(strategy.into());
        vmi.conditions = vec![Condition::new("LiveMigratable", migratable, "", "")];
        vmi
    }

    fn guard(name: &str, of: &str) -> Budget {
        protection(name, "a", of)
    }

    /// Names of what is created and deleted.
    fn decided(vmi: Option<&Instance>, guards: &[Budget]) -> (usize, Vec<String>) {
        let seen = vmi.map(|vmi| Fact::Instance(Box::new(vmi.clone())));
        let guards = guards.iter().map(|guard| Fact::Budget(Box::new(guard.clone())));
        let decision = decide(&view(seen.into_iter().chain(guards)), &Key::new("default", "a"));
        let created =
            decision.actions.iter().filter(|action| matches!(action, Action::Own(Own::CreateBudget { .. })));
        (created.count(), deletes(&decision, Kind::Budget))
    }

    #[test]
    fn guests_that_must_not_be_shut_down_have_one_and_others_have_none() {
        for (strategy, migratable, expected) in [
            ("LiveMigrate", true, 1),
            ("LiveMigrate", false, 1),
            ("External", false, 1),
            ("LiveMigrateIfPossible", true, 1),
            ("LiveMigrateIfPossible", false, 0),
            ("None", true, 0),
        ] {
            assert_eq!(decided(Some(&vmi(strategy, migratable)), &[]).0, expected, "{strategy} {migratable}");
        }
        let kept = decided(Some(&vmi("LiveMigrate", true)), &[guard("g", "uid-a")]);
        assert_eq!(kept, (0, Vec::new()));
    }

    #[test]
    fn p02_p05_p06_p07_p09_what_guards_nobody_is_removed() {
        let gone = ["g".to_owned()].to_vec();
        assert_eq!(decided(None, &[guard("g", "uid-a")]), (0, gone.clone()), "p05, p06: nobody to guard");
        assert_eq!(decided(Some(&vmi("None", true)), &[guard("g", "uid-a")]), (0, gone.clone()), "p02");
        assert_eq!(
            decided(Some(&vmi("LiveMigrate", true)), &[guard("g", "uid-earlier")]),
            (1, gone.clone()),
            "p07: of an earlier incarnation"
        );
        let mut ended = vmi("LiveMigrate", true);
        ended.phase = Phase::Succeeded;
        assert_eq!(decided(Some(&ended), &[guard("g", "uid-a")]), (0, gone.clone()), "p09");
        let mut legacy = guard("g", "uid-a");
        legacy.min_available = Some(Amount::Count(2));
        assert_eq!(decided(Some(&vmi("LiveMigrate", true)), &[legacy]), (1, gone), "p10");
    }

    #[test]
    fn p08_an_instance_that_is_being_deleted_gets_none() {
        let mut vmi = vmi("LiveMigrate", true);
        vmi.deleting = true;
        assert_eq!(decided(Some(&vmi), &[]), (0, Vec::new()));
    }

    #[test]
    fn one_that_was_bent_is_replaced() {
        let name = names::budget("a", "uid-a");
        let mut bent = guard(&name, "uid-a");
        bent.min_available = Some(Amount::Count(0));
        assert_eq!(
            decided(Some(&vmi("LiveMigrate", true)), &[bent]),
            (0, vec![name]),
            "its name has to be free first"
        );
    }

    #[test]
    fn two_of_them_would_make_evictions_fail_for_the_wrong_reason() {
        let both = [guard("g1", "uid-a"), guard("g2", "uid-a")];
        assert_eq!(decided(Some(&vmi("LiveMigrate", true)), &both), (0, vec!["g2".to_owned()]));
    }
}
