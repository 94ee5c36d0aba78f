//! What is kept of news that overtake each other, and who finds what.

use super::*;
use crate::cluster::fact::Phase;
use crate::machines::testing::{instance, launcher};
use crate::testing::{budget, pod};

#[test]
fn a_late_deletion_of_an_earlier_incarnation_leaves_the_new_pod() {
    let mut index = Index::new();
    let old = pod("a").on("n1");
    let new = pod("a").on("n2").uid("second");
    index.apply(Fact::Pod(Box::new(old.clone())));
    index.apply(Fact::Pod(Box::new(new.clone())));
    index.apply(Fact::PodGone(old.key.clone(), old.uid.clone()));
    assert_eq!(index.pod(&new.key), Some(&new));
    assert_eq!(index.pods_on("n1").count(), 0);
    assert_eq!(index.pods_on("n2").count(), 1);
}

#[test]
fn a_fresh_list_removes_what_it_does_not_contain_and_touches_no_other_node() {
    let mut index = Index::new();
    for known in [pod("a").on("n1"), pod("b").on("n1"), pod("c").on("n2")] {
        index.apply(Fact::Pod(Box::new(known)));
    }
    index.reset_pods("n1", vec![pod("b").on("n1")], &ListedAt::default());
    let left: Vec<_> = index.pods().map(|pod| pod.key.name.as_str()).collect();
    assert_eq!(left, ["b", "c"]);
}

#[test]
fn an_event_that_changes_nothing_does_not_move_the_pods_revision() {
    let mut index = Index::new();
    let pod = pod("a").on("n1");
    index.apply(Fact::Pod(Box::new(pod.clone())));
    let before = index.pod_revision(&pod.key);
    index.apply(Fact::Pod(Box::new(pod.clone())));
    assert_eq!(index.pod_revision(&pod.key), before);
}

#[test]
fn budgets_cover_pods_of_their_own_namespace_only() {
    let mut index = Index::new();
    let mut other = budget("other");
    other.key.namespace = "elsewhere".into();
    index.reset_budgets(vec![budget("web"), other], &ListedAt::default());
    let pod = pod("a").labelled("app", "web");
    let names: Vec<_> = index.budgets_of(&pod).map(|budget| budget.key.name.as_str()).collect();
    assert_eq!(names, ["web"]);
}

#[test]
fn an_answer_that_arrives_after_the_end_does_not_bring_the_object_back() {
    let mut index = Index::new();
    let seen = instance("a", Phase::Running);
    index.apply(Fact::Instance(Box::new(seen.clone())));
    index.apply(Fact::InstanceGone(seen.key.clone(), seen.uid.clone()));
    index.apply(Fact::Instance(Box::new(seen.clone())));
    assert!(index.instance(&seen.key).is_none());
}

#[test]
fn an_older_version_does_not_replace_a_newer_one() {
    let mut index = Index::new();
    let mut new = instance("a", Phase::Running);
    new.version = "10".into();
    let mut old = instance("a", Phase::Pending);
    old.version = "9".into();
    index.apply(Fact::Instance(Box::new(new.clone())));
    assert!(index.apply(Fact::Instance(Box::new(old))).is_empty());
    assert_eq!(index.instance(&new.key), Some(&new));
}

#[test]
fn a_list_from_a_restored_backup_is_the_truth() {
    let mut index = Index::new();
    let with = |version: &str, phase| {
        let mut vmi = instance("a", phase);
        vmi.version = version.into();
        vmi
    };
    index.apply(Fact::Instance(Box::new(with("900", Phase::Succeeded))));
    let touched = index.reset(
        Kind::Instance,
        vec![Fact::Instance(Box::new(with("50", Phase::Running)))],
        &ListedAt::default(),
    );
    let key = with("50", Phase::Running).key;
    assert_eq!(index.instance(&key), Some(&with("50", Phase::Running)));
    assert!(touched.contains(&Subject::new(Kind::Instance, key.clone())));
    assert!(index.instances_on("n1").any(|vmi| vmi.key == key), "it can be found by its node");
    index.apply(Fact::Instance(Box::new(with("51", Phase::Succeeded))));
    assert_eq!(index.instance(&key), Some(&with("51", Phase::Succeeded)), "events go on from there");
}

#[test]
fn a_backup_brings_back_what_was_deleted_after_it() {
    let mut index = Index::new();
    let seen = instance("a", Phase::Running);
    index.apply(Fact::Instance(Box::new(seen.clone())));
    index.apply(Fact::InstanceGone(seen.key.clone(), seen.uid.clone()));
    index.reset(Kind::Instance, vec![Fact::Instance(Box::new(seen.clone()))], &ListedAt::default());
    assert_eq!(index.instance(&seen.key), Some(&seen));
}

#[test]
fn the_ledger_of_a_list_is_the_truth_and_of_an_event_only_if_it_is_newer() {
    let ledger = |version: &str| Ledger { version: version.into(), ..Ledger::default() };
    let mut index = Index::new();
    index.enter(ledger("900"));
    index.enter(ledger("50"));
    assert_eq!((index.ledger(), index.rewinds()), (&ledger("900"), 0));
    index.reset_ledger(ledger("50"));
    assert_eq!((index.ledger(), index.rewinds()), (&ledger("50"), 1));
    index.reset_ledger(ledger("60"));
    assert_eq!((index.ledger(), index.rewinds()), (&ledger("60"), 1));
}

#[test]
fn a_list_without_a_known_object_means_that_it_is_gone() {
    let mut index = Index::new();
    let vmi = instance("a", Phase::Running);
    let pod = launcher(&vmi, "n1");
    index.apply(Fact::Instance(Box::new(vmi.clone())));
    index.apply(Fact::Pod(Box::new(pod)));
    let touched = index.reset(Kind::Pod, Vec::new(), &ListedAt::default());
    assert!(index.launchers_of(&vmi.uid).is_empty());
    assert!(touched.contains(&Subject::new(Kind::Instance, vmi.key)));
}

#[test]
fn what_was_noted_about_an_instance_goes_with_it() {
    let mut index = Index::new();
    let seen = instance("a", Phase::Running);
    let subject = Subject::new(Kind::Instance, seen.key.clone());
    index.apply(Fact::Instance(Box::new(seen.clone())));
    index.apply(Fact::Transfers([(seen.key.clone(), Sample::default())].into()));
    index.note(&subject, Some(Trouble { reason: "FailedCreate", message: "no".into() }));
    index.apply(Fact::InstanceGone(seen.key.clone(), Uid::from("another")));
    assert!(index.transfer(&seen.key).is_some(), "it is not the one that is gone");
    index.apply(Fact::InstanceGone(seen.key.clone(), seen.uid));
    assert!(index.transfer(&seen.key).is_none() && index.trouble(Kind::Instance, &seen.key).is_none());
}
