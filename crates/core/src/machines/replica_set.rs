//! The controller of replica sets of instances: keep as many alive as wanted.
//!
//! An instance whose pod is on the way out counts as lost although its guest may still be shutting down, so the replacement
//! starts at once.

use jiff::Timestamp;

use super::action::{Action, Decision, Event, Kind, Own, Part, Tree};
use super::condition::{Condition, Conditions};
use super::names;
use crate::cluster::fact::Key;
use crate::cluster::fact::{Instance, ReplicaSet};
use crate::cluster::index::Index;

/// How many instances are created or deleted in one go.
pub const BURST: usize = 250;

fn is_active(instance: &Instance) -> bool {
    !instance.is_final() && !instance.deleting && !instance.is_losing_its_pod()
}

/// What is done about a set: instances made, adopted or deleted, and its status.
pub fn decide(index: &Index, key: &Key, now: Timestamp) -> Decision {
    let mut decision = Decision::nothing();
    let Some(set) = index.replica_set(key) else { return decision };
    let Some(selector) = &set.selector else { return decision };
    let mut members = Vec::new();
    for instance in index.instances_in(&set.key.namespace) {
        let fits = instance.labels.satisfies(selector);
        if instance.is_owned_by(&set.uid) {
            if fits {
                members.push(instance);
            } else if !set.deleting {
                own(instance, None, &mut decision);
            }
        } else if instance.owner.is_none() && fits && !instance.deleting && !set.deleting {
            own(instance, Some(set), &mut decision);
        }
    }
    let active: Vec<&Instance> = members.iter().copied().filter(|member| is_active(member)).collect();
    if !set.paused && !set.deleting {
        scale(index, set, &members, &active, &mut decision);
    }
    write_status(index, set, &active, &mut decision, now);
    decision
}

fn scale(
    index: &Index,
    set: &ReplicaSet,
    members: &[&Instance],
    active: &[&Instance],
    decision: &mut Decision,
) {
    let wanted = usize::try_from(set.replicas).unwrap_or(0);
    if active.len() < wanted {
        let missing = (wanted - active.len()).min(BURST);
        let free =
            |name: &String| index.instance(&Key::new(set.key.namespace.clone(), name.clone())).is_none();
        // Names count up from what is there, so two looks at one state choose the same ones.
        let names = (0_u64..).map(|n| names::replica(&set.prefix, &set.uid.0, n)).filter(free);
        for name in names.take(missing) {
            let (set, uid) = (set.key.clone(), set.uid.clone());
            decision.push(Action::Own(Own::CreateReplica { set, uid, name }));
        }
    }
    let surplus = active.len().saturating_sub(wanted).min(BURST);
    let mut victims: Vec<&Instance> = active.to_vec();
    // Instances that are not ready go first, and one that is moving goes last.
    victims.sort_by_key(|member| (member.is_ready(), member.is_migrating()));
    for member in victims.into_iter().take(surplus) {
        delete(set, member, decision);
    }
    let lost = members.iter().filter(|member| !member.deleting && !is_active(member)).take(BURST);
    for member in lost {
        delete(set, member, decision);
    }
}

fn delete(set: &ReplicaSet, member: &Instance, decision: &mut Decision) {
    decision.delete(member);
    decision.tell(Event::normal(
        set,
        "SuccessfulDelete",
        format!("Stopped the virtual machine by deleting the virtual machine instance {}", member.uid),
    ));
}

/// Adopts an orphan, or lets a member go that no longer fits.
fn own(instance: &Instance, set: Option<&ReplicaSet>, decision: &mut Decision) {
    let references = set.map_or_else(Vec::new, |set| {
        vec![Tree::map([
            ("apiVersion", Tree::text("kubevirt.io/v1")),
            ("kind", Tree::text("VirtualMachineInstanceReplicaSet")),
            ("name", Tree::text(&set.key.name)),
            ("uid", Tree::text(&set.uid.0)),
            ("controller", Tree::Bool(true)),
            ("blockOwnerDeletion", Tree::Bool(true)),
        ])]
    });
    decision.patch(instance, Part::Main, Tree::at(&["metadata", "ownerReferences"], Tree::List(references)));
}

fn write_status(
    index: &Index,
    set: &ReplicaSet,
    active: &[&Instance],
    decision: &mut Decision,
    now: Timestamp,
) {
    let replicas = active.len() as i64;
    let ready = active.iter().filter(|member| member.is_ready()).count() as i64;
    let mut fields = Tree::default();
    let mut put = |name: &str, value: Tree| fields.put(&["status", name], value);
    if set.status.replicas != replicas {
        put("replicas", Tree::Int(replicas));
    }
    if set.status.ready != ready {
        put("readyReplicas", Tree::Int(ready));
    }
    if set.status.selector != set.selector_text {
        put("labelSelector", Tree::text(&set.selector_text));
    }
    let mut conditions = Conditions::of(&set.status.conditions);
    let was_paused = super::condition::find(&set.status.conditions, "ReplicaPaused").is_some();
    if set.paused {
        conditions.set(Condition::new("ReplicaPaused", true, "Paused", "Controller got paused"), now);
    } else {
        conditions.remove("ReplicaPaused");
    }
    match index.trouble(Kind::ReplicaSet, &set.key) {
        Some(trouble) => {
            conditions.set(Condition::new("ReplicaFailure", true, trouble.reason, &trouble.message), now);
        }
        None => conditions.remove("ReplicaFailure"),
    }
    if let Some(list) = conditions.changed() {
        put("conditions", list);
    }
    if set.paused != was_paused {
        let (reason, message) =
            if set.paused { ("SuccessfulPaused", "Paused") } else { ("SuccessfulResumed", "Resumed") };
        decision.tell(Event::normal(set, reason, message));
    }
    if !fields.is_empty() {
        decision.patch(set, Part::Status, fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::Fact;
    use crate::cluster::fact::Phase;
    use crate::machines::testing::*;

    fn member(of: &ReplicaSet, name: &str, phase: Phase) -> Instance {
        let mut vmi = owned(instance(name, phase), "VirtualMachineInstanceReplicaSet", &of.key.name);
        vmi.labels.insert("app".into(), of.key.name.clone());
        vmi.conditions = vec![Condition::new("Ready", true, "", "")];
        vmi
    }

    fn on(of: &ReplicaSet, members: &[Instance]) -> Decision {
        let seen: Vec<Fact> = [of.known()].into_iter().chain(members.iter().map(Known::known)).collect();
        decide(&view(seen), &of.key, now())
    }

    fn created(decision: &Decision) -> Vec<String> {
        let name = |action: &Action| match action {
            Action::Own(Own::CreateReplica { name, .. }) => Some(name.clone()),
            _ => None,
        };
        decision.actions.iter().filter_map(name).collect()
    }

    #[test]
    fn x01_missing_replicas_are_created_in_bursts_under_names_that_repeat() {
        let rs = set("a", 3);
        let names = created(&on(&rs, &[]));
        assert_eq!(names.len(), 3);
        assert_eq!(names, created(&on(&rs, &[])));
        assert_eq!(created(&on(&set("a", 1000), &[])).len(), BURST);
    }

    #[test]
    fn x02_a_paused_set_does_not_scale_and_says_so() {
        let mut rs = set("a", 3);
        rs.paused = true;
        let decision = on(&rs, &[]);
        assert!(created(&decision).is_empty());
        assert_eq!(events(&decision), ["SuccessfulPaused"]);
        rs.paused = false;
        rs.status.conditions = vec![Condition::new("ReplicaPaused", true, "Paused", "")];
        let decision = on(&rs, &[]);
        assert_eq!(created(&decision).len(), 3);
        assert!(events(&decision).contains(&"SuccessfulResumed"));
    }

    #[test]
    fn x03_x06_a_member_on_its_way_out_is_replaced_at_once() {
        let rs = set("a", 1);
        let mut leaving = member(&rs, "one", Phase::Running);
        leaving.deleting = true;
        let decision = on(&rs, &[leaving.clone()]);
        assert_eq!(created(&decision).len(), 1);
        assert!(deletes(&decision, Kind::Instance).is_empty());

        leaving.deleting = false;
        leaving.conditions = vec![Condition::new("Ready", false, "PodTerminating", "")];
        let decision = on(&rs, &[leaving]);
        assert_eq!(created(&decision).len(), 1);
        assert_eq!(deletes(&decision, Kind::Instance), ["one"]);
    }

    #[test]
    fn x04_surplus_goes_and_those_that_go_already_are_not_counted() {
        let rs = set("a", 1);
        let mut going = member(&rs, "going", Phase::Running);
        going.deleting = true;
        let mut cold = member(&rs, "cold", Phase::Scheduling);
        cold.conditions.clear();
        let decision = on(&rs, &[member(&rs, "warm", Phase::Running), cold, going]);
        assert_eq!(deletes(&decision, Kind::Instance), ["cold"], "the ready one stays");
    }

    #[test]
    fn x05_a_finished_member_is_deleted_and_replaced() {
        let rs = set("a", 1);
        let decision = on(&rs, &[member(&rs, "over", Phase::Succeeded)]);
        assert_eq!(deletes(&decision, Kind::Instance), ["over"]);
        assert_eq!(created(&decision).len(), 1);
    }

    #[test]
    fn x07_orphans_that_match_are_adopted_and_others_ignored() {
        let rs = set("a", 0);
        let mut orphan = member(&rs, "orphan", Phase::Running);
        orphan.owner = None;
        let stranger = instance("stranger", Phase::Running);
        let decision = on(&rs, &[orphan, stranger]);
        let adopted = patches(&decision, Kind::Instance);
        assert_eq!(adopted.len(), 1);
        assert!(adopted[0].get(&["metadata", "ownerReferences"]).is_some());
    }

    #[test]
    fn x08_what_could_not_be_done_is_said_until_it_could() {
        let rs = set("a", 1);
        let mut index = view([rs.known()]);
        let subject = crate::machines::Subject::new(Kind::ReplicaSet, rs.key.clone());
        let trouble = crate::machines::Trouble { reason: "FailedCreate", message: "no".into() };
        assert!(index.note(&subject, Some(trouble)));
        let decision = decide(&index, &rs.key, now());
        let Some(Tree::List(list)) = patches(&decision, Kind::ReplicaSet)[0].get(&["status", "conditions"])
        else {
            panic!("no condition")
        };
        assert_eq!(text(&list[0], &["reason"]), Some("FailedCreate"));
        assert!(index.note(&subject, None));
    }

    #[test]
    fn x09_the_count_of_ready_members_follows() {
        let rs = set("a", 2);
        let mut cold = member(&rs, "two", Phase::Running);
        cold.conditions = vec![Condition::new("Ready", false, "GuestNotRunning", "")];
        let decision = on(&rs, &[member(&rs, "one", Phase::Running), cold]);
        let fields = patches(&decision, Kind::ReplicaSet)[0];
        assert_eq!(fields.get(&["status", "replicas"]), Some(&Tree::Int(2)));
        assert_eq!(fields.get(&["status", "readyReplicas"]), Some(&Tree::Int(1)));
    }
}
