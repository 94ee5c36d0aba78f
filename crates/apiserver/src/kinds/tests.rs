use super::*;

#[test]
fn every_builtin_kind_is_found_by_resource_and_by_kind() {
    let kinds = Kinds::builtin();
    for kind in kinds.iter() {
        let a = kinds.by_plural(&kind.group, &kind.version, &kind.plural).unwrap();
        let b = kinds.by_kind(&kind.group, &kind.version, &kind.kind).unwrap();
        assert!(Arc::ptr_eq(a, b), "{}", kind.kind);
    }
    assert!(kinds.by_plural("", "v1", "pods").unwrap().namespaced);
    assert!(!kinds.by_plural("", "v1", "nodes").unwrap().namespaced);
    assert_eq!(kinds.by_kind("policy", "v1", "PodDisruptionBudget").unwrap().plural, "poddisruptionbudgets");
}

#[test]
fn both_event_kinds_share_one_storage() {
    let kinds = Kinds::builtin();
    let core = kinds.by_plural("", "v1", "events").unwrap();
    let new = kinds.by_plural("events.k8s.io", "v1", "events").unwrap();
    assert_eq!(core.storage, new.storage);
}

#[test]
fn a_kind_inserted_again_replaces_the_first() {
    let mut kinds = Kinds::builtin();
    let count = kinds.iter().count();
    let mut pod = Kind::clone(kinds.by_plural("", "v1", "pods").unwrap());
    pod.short_names.clear();
    kinds.insert(pod);
    assert_eq!(kinds.iter().count(), count);
    assert!(kinds.by_kind("", "v1", "Pod").unwrap().short_names.is_empty());
    kinds.remove("", "v1", "pods");
    assert!(kinds.by_kind("", "v1", "Pod").is_none());
}
