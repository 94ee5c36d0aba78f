//! Rules of the store, one test each.

use serde_json::json;

use super::*;

fn pods() -> Arc<str> {
    "pods".into()
}

fn meta(name: &str, labels: &[(&str, &str)]) -> Meta {
    Meta {
        namespace: "ns".into(),
        name: name.into(),
        labels: labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        ..Meta::default()
    }
}

fn put(store: &Store, name: &str, expect: Expect, labels: &[(&str, &str)]) -> Object {
    let value = json!({"metadata": {"name": name, "namespace": "ns"}});
    store.put(&pods(), &Key::new("ns", name), expect, value, meta(name, labels)).unwrap()
}

fn seen(watching: &mut Watching) -> Vec<(ChangeKind, String, u64)> {
    std::iter::from_fn(|| watching.try_next())
        .filter_map(|event| match event {
            WatchEvent::Changed { kind, object, revision } => {
                Some((kind, object.meta.name.to_string(), revision))
            }
            _ => None,
        })
        .collect()
}

/// All of the namespace that most of these tests are in.
const NS: Page<'_> = Page { namespace: "ns", at: None, from: None, limit: None, counted: true };

#[test]
fn a_write_with_a_stale_revision_is_refused_with_what_is_stored() {
    let store = Store::new();
    let first = put(&store, "a", Expect::Absent, &[]);
    let second = put(&store, "a", Expect::Revision(first.revision), &[]);
    let refused = store
        .put(&pods(), &Key::new("ns", "a"), Expect::Revision(first.revision), json!({}), meta("a", &[]))
        .unwrap_err();
    assert_eq!(refused.current.unwrap().revision, second.revision);
    assert!(store.put(&pods(), &Key::new("ns", "a"), Expect::Absent, json!({}), meta("a", &[])).is_err());
}

#[test]
fn a_list_at_an_earlier_revision_shows_the_earlier_state() {
    let store = Store::new();
    let a = put(&store, "a", Expect::Absent, &[]);
    let b = put(&store, "b", Expect::Absent, &[]);
    put(&store, "a", Expect::Revision(a.revision), &[("new", "yes")]);
    store.remove(&pods(), &Key::new("ns", "b"), Expect::Revision(b.revision)).unwrap();
    let past = store.list("pods", &Page { at: Some(b.revision), ..NS }, |_| true).unwrap();
    let names: Vec<_> = past.objects.iter().map(|o| (o.meta.name.to_string(), o.revision)).collect();
    assert_eq!(names, [("a".to_string(), a.revision), ("b".to_string(), b.revision)]);
}

#[test]
fn a_limited_list_says_where_to_go_on_and_how_much_is_left() {
    let store = Store::new();
    for name in ["a", "b", "c", "d"] {
        put(&store, name, Expect::Absent, &[]);
    }
    let page = store.list("pods", &Page { limit: Some(1), ..NS }, |_| true).unwrap();
    let (next, left) = page.more.unwrap();
    assert_eq!((next.as_str(), left), ("ns/b", Some(3)));
    let after = Page { at: Some(page.revision), from: Some(&next), ..NS };
    let rest = store.list("pods", &after, |_| true).unwrap();
    assert_eq!(rest.objects.len(), 3);
    assert!(rest.more.is_none());
    let some = store.list("pods", &Page { limit: Some(1), counted: false, ..NS }, |_| true).unwrap();
    assert_eq!(some.more.map(|(_, left)| left), Some(None));
}

#[test]
fn a_namespace_is_not_taken_for_the_prefix_of_another() {
    let store = Store::new();
    for (ns, name) in [("a", "x"), ("a-b", "y"), ("ab", "z")] {
        let m = Meta { namespace: ns.into(), name: name.into(), ..Meta::default() };
        store.put(&pods(), &Key::new(ns, name), Expect::Absent, json!({"metadata": {}}), m).unwrap();
    }
    assert_eq!(store.all("pods", "a").len(), 1);
}

#[test]
fn compaction_makes_old_revisions_unavailable_and_future_ones_never_were() {
    let store = Store::new();
    let a = put(&store, "a", Expect::Absent, &[]);
    put(&store, "b", Expect::Absent, &[]);
    store.compact(2);
    let old = store.list("pods", &Page { at: Some(a.revision), ..Page::default() }, |_| true).unwrap_err();
    assert_eq!(old, Unavailable::Compacted { oldest: 2 });
    let watch = store.watch(&pods(), WatchFilter::everything(), WatchFrom::After(1));
    assert!(matches!(watch, Err(Unavailable::Compacted { .. })));
    let future = store.list("pods", &Page { at: Some(99), ..Page::default() }, |_| true).unwrap_err();
    assert_eq!(future, Unavailable::Future { current: 2 });
}

#[test]
fn a_watch_resumed_at_a_revision_has_neither_gap_nor_overlap() {
    let store = Store::new();
    let a = put(&store, "a", Expect::Absent, &[]);
    put(&store, "b", Expect::Absent, &[]);
    let from = WatchFrom::After(a.revision);
    let mut watching = store.watch(&pods(), WatchFilter::everything(), from).unwrap();
    put(&store, "c", Expect::Absent, &[]);
    assert_eq!(seen(&mut watching), [(ChangeKind::Added, "b".into(), 2), (ChangeKind::Added, "c".into(), 3)]);
}

#[test]
fn entering_and_leaving_a_selection_looks_like_added_and_deleted() {
    let store = Store::new();
    let filter =
        WatchFilter { selects: Arc::new(|m| m.label("app") == Some("web")), ..WatchFilter::everything() };
    let mut watching = store.watch(&pods(), filter, WatchFrom::Now { initial_events: false }).unwrap();
    let one = put(&store, "a", Expect::Absent, &[]);
    let two = put(&store, "a", Expect::Revision(one.revision), &[("app", "web")]);
    let three = put(&store, "a", Expect::Revision(two.revision), &[("app", "web"), ("x", "y")]);
    put(&store, "a", Expect::Revision(three.revision), &[]);
    assert_eq!(
        seen(&mut watching),
        [
            (ChangeKind::Added, "a".into(), 2),
            (ChangeKind::Modified, "a".into(), 3),
            (ChangeKind::Deleted, "a".into(), 4)
        ]
    );
}

#[test]
fn a_removal_carries_the_last_state_at_the_revision_of_the_removal() {
    let store = Store::new();
    let a = put(&store, "a", Expect::Absent, &[]);
    let gone = store.remove(&pods(), &Key::new("ns", "a"), Expect::Revision(a.revision)).unwrap();
    assert_eq!(gone.value()["metadata"]["resourceVersion"], "2");
    assert!(store.get("pods", &Key::new("ns", "a")).is_none());
}

#[test]
fn a_streaming_list_ends_its_initial_objects_before_anything_new() {
    let store = Store::new();
    put(&store, "a", Expect::Absent, &[]);
    let filter = WatchFilter { initial_end: true, ..WatchFilter::everything() };
    let mut watching = store.watch(&pods(), filter, WatchFrom::Now { initial_events: true }).unwrap();
    put(&store, "b", Expect::Absent, &[]);
    let order: Vec<_> = std::iter::from_fn(|| watching.try_next())
        .map(|event| match event {
            WatchEvent::Changed { object, .. } => object.meta.name.to_string(),
            WatchEvent::InitialEnd { revision } => format!("end at {revision}"),
            WatchEvent::Bookmark { .. } => "bookmark".into(),
        })
        .collect();
    assert_eq!(order, ["a", "end at 1", "b"]);
}

#[test]
fn observers_see_every_commit_in_order() {
    let store = Store::new();
    let log = Arc::new(Mutex::new(Vec::new()));
    let sink = log.clone();
    store.observe(move |resource, change| {
        sink.lock().unwrap().push(format!("{resource} {:?} {}", change.kind, change.object.revision));
    });
    let a = put(&store, "a", Expect::Absent, &[]);
    store.remove(&pods(), &Key::new("ns", "a"), Expect::Revision(a.revision)).unwrap();
    assert_eq!(*log.lock().unwrap(), ["pods Added 1", "pods Deleted 2"]);
}
