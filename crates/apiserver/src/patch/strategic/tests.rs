use super::*;
use crate::schema::builtin::Types;
use k8s_openapi::api::{apps, core};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;
use std::sync::OnceLock;

fn pod() -> &'static Schema {
    static POD: OnceLock<SchemaRef> = OnceLock::new();
    POD.get_or_init(|| Types::new().load::<core::v1::Pod>()).get()
}

fn deployment() -> &'static Schema {
    static DEPLOYMENT: OnceLock<SchemaRef> = OnceLock::new();
    DEPLOYMENT.get_or_init(|| Types::new().load::<apps::v1::Deployment>()).get()
}

fn containers(list: &Value) -> Value {
    json!({"spec": {"containers": list}})
}

#[rstest]
// An element with a known key is merged, a new one is added.
#[case(json!([{"name": "a", "image": "1"}, {"name": "b"}]), json!([{"name": "b", "image": "2"}, {"name": "c"}]),
    json!([{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c"}]))]
// $patch: delete removes an element.
#[case(json!([{"name": "a"}, {"name": "b"}]), json!([{"name": "a", "$patch": "delete"}]), json!([{"name": "b"}]))]
// $patch: replace replaces the whole list.
#[case(json!([{"name": "a"}, {"name": "b"}]), json!([{"name": "c"}, {"$patch": "replace"}]), json!([{"name": "c"}]))]
// null deletes a field of an element.
#[case(json!([{"name": "a", "image": "1"}]), json!([{"name": "a", "image": null}]), json!([{"name": "a"}]))]
// Keyed lists nest.
#[case(json!([{"name": "a", "env": [{"name": "X", "value": "1"}]}]),
    json!([{"name": "a", "env": [{"name": "Y", "value": "2"}]}]),
    json!([{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]}]))]
// A list without a merge strategy is replaced.
#[case(json!([{"name": "a", "args": ["1", "2"]}]), json!([{"name": "a", "args": ["3"]}]),
    json!([{"name": "a", "args": ["3"]}]))]
fn lists_of_containers_are_merged(#[case] old: Value, #[case] patch: Value, #[case] wanted: Value) {
    let merged = strategic_merge(pod(), &containers(&old), &containers(&patch)).unwrap();
    assert_eq!(merged, containers(&wanted));
}

#[test]
fn plain_lists_are_united_and_can_lose_elements() {
    let current = json!({"metadata": {"finalizers": ["a", "b", "c"]}});
    let patch = json!({"metadata": {"finalizers": ["d"]}});
    let merged = strategic_merge(pod(), &current, &patch).unwrap();
    assert_eq!(merged, json!({"metadata": {"finalizers": ["d", "a", "b", "c"]}}));
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"]}});
    let merged = strategic_merge(pod(), &current, &patch).unwrap();
    assert_eq!(merged, json!({"metadata": {"finalizers": ["a", "c"]}}));
}

#[test]
fn the_order_of_elements_can_be_asked_for() {
    let current = containers(&json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]));
    let patch = json!({"spec": {
        "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "d"}],
        "containers": [{"name": "d", "image": "i"}],
    }});
    let merged = strategic_merge(pod(), &current, &patch).unwrap();
    let names: Vec<&str> =
        merged["spec"]["containers"].as_array().unwrap().iter().filter_map(|c| c["name"].as_str()).collect();
    assert_eq!(names, ["b", "c", "a", "d"]);

    let wrong = json!({"spec": {"$setElementOrder/containers": [{"name": "a"}],
        "containers": [{"name": "z", "image": "i"}]}});
    assert!(matches!(strategic_merge(pod(), &current, &wrong), Err(PatchError::Unmergeable(_))));
}

#[test]
fn retain_keys_clears_the_other_members_of_a_union() {
    let current = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    let merged = strategic_merge(deployment(), &current, &patch).unwrap();
    assert_eq!(merged, json!({"spec": {"strategy": {"type": "Recreate"}}}));

    let wrong = json!({"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}});
    let error = strategic_merge(deployment(), &current, &wrong).unwrap_err();
    assert_eq!(error, PatchError::Malformed("invalid patch format of retainKeys".to_owned()));
}

#[test]
fn objects_can_be_replaced_and_emptied() {
    let current =
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"securityContext": {"runAsUser": 1}}});
    let patch = json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}},
        "spec": {"securityContext": {"$patch": "delete"}}});
    let merged = strategic_merge(pod(), &current, &patch).unwrap();
    assert_eq!(merged, json!({"metadata": {"labels": {"c": "3"}}, "spec": {"securityContext": {}}}));
}

#[test]
fn an_element_without_its_key_is_an_error_that_names_it() {
    let current = containers(&json!([{"name": "a"}]));
    let error = strategic_merge(pod(), &current, &containers(&json!([{"image": "x"}]))).unwrap_err();
    assert_eq!(
        error,
        PatchError::Unmergeable("map: map[image:x] does not contain declared merge key: name".to_owned())
    );
}

#[test]
fn a_new_list_is_taken_without_directives_and_nulls() {
    let patch =
        json!({"spec": {"containers": [{"name": "a", "image": null}, {"name": "b", "$patch": "delete"}]}});
    let merged = strategic_merge(pod(), &json!({}), &patch).unwrap();
    assert_eq!(merged, json!({"spec": {"containers": [{"name": "a"}]}}));
}

/// Arbitrary objects with the field names and directives that matter.
pub fn object() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "metadata",
        "spec",
        "containers",
        "name",
        "labels",
        "ports",
        "env",
        "finalizers",
        "volumes",
        "a",
        "b",
        "conditions",
        "status",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/finalizers",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..5_i64).prop_map(Value::from),
        prop::sample::select(vec!["a", "b", "delete", "replace", ""]).prop_map(Value::from),
    ];
    let inner_key = key.clone();
    let value = leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(inner_key.clone(), inner, 0..5)
                .prop_map(|m| Value::Object(m.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    });
    prop::collection::btree_map(key, value, 0..6)
        .prop_map(|m| Value::Object(m.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()))
}

proptest! {
    #[test]
    fn no_patch_panics_and_an_empty_one_changes_nothing(current in object(), patch in object()) {
        let _ = strategic_merge(pod(), &current, &patch);
        prop_assert_eq!(strategic_merge(pod(), &current, &json!({})).unwrap(), current);
    }

    #[test]
    fn keyed_elements_are_never_lost_or_doubled(
        old in prop::collection::btree_set("[a-e]", 0..5), new in prop::collection::btree_set("[a-e]", 0..5)
    ) {
        let list = |names: &std::collections::BTreeSet<String>| {
            containers(&names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>().into())
        };
        let merged = strategic_merge(pod(), &list(&old), &list(&new)).unwrap();
        let mut names: Vec<String> = merged["spec"]["containers"].as_array().unwrap().iter()
            .filter_map(|c| c["name"].as_str().map(str::to_owned)).collect();
        names.sort();
        prop_assert_eq!(names, old.union(&new).cloned().collect::<Vec<_>>());
    }
}
