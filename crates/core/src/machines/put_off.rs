//! What can be put off while guests are on their way.
//!
//! When a guest arrives, its slot becomes free and the next guest is prepared: a handful of requests, one after the other, while
//! nothing is copied. What has to be written about the one that arrived, such as that its migration has succeeded, is for people
//! to read. Sent at the same moment it would make every step to the next copy slower, so it waits until that has begun.

use jiff::{SignedDuration, Timestamp};

use super::action::{Action, Decision, Kind, Part, Subject};
use super::line::{has_ended, is_filling};
use crate::cluster::index::Index;

/// After this long it is known whether a slot is being filled.
const PAUSE: SignedDuration = SignedDuration::from_millis(100);
/// Too short for a person to notice. A target that finds no place does not keep others from being told about.
const LONGEST: SignedDuration = SignedDuration::from_secs(1);

/// Until when a decision is put off that could have been carried out since a time. Then it has to be asked about again.
pub fn put_off(
    index: &Index,
    subject: &Subject,
    decision: &Decision,
    since: Timestamp,
    now: Timestamp,
) -> Option<Timestamp> {
    let others_are_moving = || index.unfinished().any(|one| !has_ended(index, one));
    if !is_about_a_move(index, subject) || !decision.actions.iter().all(is_told) || !others_are_moving() {
        return None;
    }
    let waited = now.duration_since(since);
    if waited < PAUSE {
        since.checked_add(PAUSE).ok()
    } else if waited < LONGEST && is_filling(index) {
        now.checked_add(PAUSE).ok()
    } else {
        None
    }
}

/// It is about a migration that went well, or about the machine of a guest that is or was moved.
fn is_about_a_move(index: &Index, subject: &Subject) -> bool {
    match subject.kind {
        Kind::Migration => index.migration(&subject.key).is_some_and(|migration| {
            let guest = index.instance(&migration.instance);
            let account = guest.and_then(|guest| guest.account_of(migration));
            account.is_some_and(|account| account.completed && !account.failed)
        }),
        Kind::Machine => index.instance(&subject.key).is_some_and(|guest| guest.migration.is_some()),
        _ => false,
    }
}

/// It changes nothing but what is read about a migration or a machine.
fn is_told(action: &Action) -> bool {
    match action {
        Action::Patch { object, part, .. } => match object.kind {
            Kind::Migration => true,
            Kind::Machine => *part == Part::Status,
            _ => false,
        },
        Action::Delete { object, .. } => object.kind == Kind::Migration,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cluster::fact::Fact;
    use crate::machines::slots::{Ledger, Slot};
    use crate::machines::testing::{boot, instance, machine, migration, now, view};
    use crate::machines::{
        Instance, Migration, MigrationPhase, MigrationState, Phase, Roles, RunStrategy, decide,
    };

    fn moving(name: &str, completed: bool) -> (Instance, Migration) {
        let mut guest = instance(name, Phase::Running);
        let one = migration(&format!("move-{name}"), &guest, MigrationPhase::Running);
        guest.migration = Some(Box::new(MigrationState {
            uid: one.uid.to_string(),
            started: true,
            ended: completed,
            completed,
            ..MigrationState::default()
        }));
        (guest, one)
    }

    fn seen(moves: &[(Instance, Migration)]) -> Vec<Fact> {
        let both = |(guest, one): &(Instance, Migration)| {
            [Fact::Instance(Box::new(guest.clone())), Fact::Migration(Box::new(one.clone()))]
        };
        moves.iter().flat_map(both).collect()
    }

    fn after(millis: i64) -> Timestamp {
        now().checked_add(SignedDuration::from_millis(millis)).unwrap()
    }

    fn decided(index: &Index, subject: &Subject) -> Decision {
        let decision = decide(index, &Roles::all(), subject, now(), &BTreeSet::new());
        assert!(!decision.actions.is_empty());
        decision
    }

    /// Until when it is put off if it could be carried out now.
    fn first(index: &Index, subject: &Subject) -> Option<Timestamp> {
        put_off(index, subject, &decided(index, subject), now(), now())
    }

    fn about(one: &Migration) -> Subject {
        Subject::new(Kind::Migration, one.key.clone())
    }

    #[test]
    fn that_a_guest_has_arrived_is_written_when_the_next_is_under_way() {
        let (arrived, copied) = (moving("a", true), moving("b", false));
        let (mut prepared, waiting) = moving("c", false);
        prepared.migration = None;
        let mut index = view(seen(&[arrived.clone(), copied.clone(), (prepared, waiting.clone())]));
        let subject = about(&arrived.1);
        let decision = decided(&index, &subject);
        let until = |index: &Index, millis| put_off(index, &subject, &decision, now(), after(millis));
        assert_eq!(until(&index, 0), Some(after(100)));
        assert_eq!(until(&index, 40), Some(after(100)), "looked at in between");
        assert_eq!(until(&index, 100), None, "nobody has got its slot");
        let slots = [&arrived.1, &copied.1, &waiting].map(|one| Slot {
            uid: one.uid.clone(),
            migration: one.key.clone(),
            node: "n1".into(),
        });
        index.enter(Ledger { version: "1".into(), slots: slots.into() });
        assert_eq!(until(&index, 100), Some(after(200)), "the slot is being filled");
        assert_eq!(until(&index, 999), Some(after(1099)));
        assert_eq!(until(&index, 1000), None, "that takes long");
        index.apply(seen(&[moving("c", false)]).remove(0));
        assert_eq!(until(&index, 200), None, "it is being copied");
    }

    #[test]
    fn nothing_is_put_off_when_nobody_else_is_on_the_way() {
        let (last, other) = (moving("a", true), moving("b", true));
        let index = view(seen(&[last.clone(), other]));
        assert_eq!(first(&index, &about(&last.1)), None);
    }

    #[test]
    fn a_failure_is_told_and_cleared_away_at_once() {
        let (mut failed, next) = (moving("a", true), moving("b", false));
        failed.0.migration.as_mut().unwrap().failed = true;
        let index = view(seen(&[failed.clone(), next]));
        assert_eq!(first(&index, &about(&failed.1)), None);
    }

    #[test]
    fn the_status_of_a_machine_waits_only_where_its_guest_was_moved_and_nothing_else_is_to_do() {
        let vm = machine("a", RunStrategy::Always);
        let (moved, one) = moving("a", true);
        let guest = Instance { migration: moved.migration, ..boot(&vm, Phase::Running) };
        let next = moving("b", false);
        let subject = Subject::new(Kind::Machine, vm.key.clone());
        let with = |guest: &Instance| {
            let mut all = seen(&[(guest.clone(), one.clone()), next.clone()]);
            all.push(Fact::Machine(Box::new(vm.clone())));
            view(all)
        };
        assert!(first(&with(&guest), &subject).is_some());
        let never_moved = Instance { migration: None, ..guest.clone() };
        assert_eq!(first(&with(&never_moved), &subject), None);
        let mut without_finalizer = vm.clone();
        without_finalizer.finalizers.clear();
        let mut changed = with(&guest);
        changed.apply(Fact::Machine(Box::new(without_finalizer)));
        assert_eq!(first(&changed, &subject), None, "what keeps a machine is more than told");
        let ended = with(&Instance { phase: Phase::Succeeded, ..guest });
        assert!(!decided(&ended, &subject).actions.iter().all(is_told));
        assert_eq!(first(&ended, &subject), None, "a guest that is to be started anew is");
    }
}
