//! What all roles together want done about one subject.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::action::{Decision, Kind, Subject};
use super::roles::{Role, Roles};
use super::{evacuation, guard, instance, machine, migration, replica_set};
use crate::cluster::fact::Key;
use crate::cluster::index::Index;

/// `next` is [`super::line::next_in_line`], which is the same for all who wait.
pub fn decide(
    index: &Index,
    roles: &Roles,
    subject: &Subject,
    now: Timestamp,
    next: &BTreeSet<Key>,
) -> Decision {
    let key = &subject.key;
    if subject.kind == Kind::Instance {
        return about_instance(index, roles, key, now);
    }
    if !roles.has(Role::Machines) {
        return Decision::nothing();
    }
    match subject.kind {
        Kind::Machine => machine::decide(index, key, now),
        Kind::ReplicaSet => replica_set::decide(index, key, now),
        Kind::Migration => migration::decide_in_line(index, key, now, Some(next)),
        _ => Decision::nothing(),
    }
}

/// Three roles look at instances. A patch makes the view of the others old, so there is one at a time.
fn about_instance(index: &Index, roles: &Roles, key: &Key, now: Timestamp) -> Decision {
    let mut all = Decision::nothing();
    if roles.has(Role::Budget) {
        merge(&mut all, guard::decide(index, key));
    }
    if roles.has(Role::Machines) {
        merge(&mut all, instance::decide(index, key, now));
    }
    if roles.has(Role::Evacuation) {
        merge(&mut all, evacuation::decide(index, key, now));
    }
    all
}

fn merge(all: &mut Decision, more: Decision) {
    let patches = |decision: &Decision| decision.actions.iter().any(|action| action.patches(Kind::Instance));
    if let Some(at) = more.look_again {
        all.look_at(at);
    }
    if !(patches(all) && patches(&more)) {
        all.append(more);
    }
}
