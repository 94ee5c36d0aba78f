use super::*;
use crate::schema::builtin::Types;
use crate::schema::crd::from_openapi;
use k8s_openapi::api::{apps, core};
use proptest::prelude::*;
use serde_json::json;
use std::sync::OnceLock;

fn deployment() -> &'static SchemaRef {
    static DEPLOYMENT: OnceLock<SchemaRef> = OnceLock::new();
    DEPLOYMENT.get_or_init(|| Types::new().load::<apps::v1::Deployment>())
}

fn service() -> &'static SchemaRef {
    static SERVICE: OnceLock<SchemaRef> = OnceLock::new();
    SERVICE.get_or_init(|| Types::new().load::<core::v1::Service>())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn by(manager: &str, second: i64) -> Writer<'_> {
    Writer { manager, api_version: "apps/v1", subresource: "", now: at(second), ignored: None }
}

fn config(spec: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": spec})
}

fn owners(object: &Value) -> Vec<(String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let word = |e: &Value, key: &str| e[key].as_str().unwrap_or_default().to_owned();
    entries.iter().map(|e| (word(e, "manager"), word(e, "operation"), e["fieldsV1"].clone())).collect()
}

fn applied(live: Option<&Value>, spec: &Value, manager: &str, force: bool) -> Result<Value, ApplyError> {
    apply(deployment(), live, &config(spec), force, &by(manager, 0))
}

#[test]
fn a_create_owns_what_it_set_in_the_form_of_the_server() {
    let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}, "uid": "u", "resourceVersion": "1"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}]}],
                "volumes": [{"name": "v", "emptyDir": {}}]}}}});
    track(deployment(), None, &mut object, &by("kubectl-create", 0));
    assert_eq!(
        owners(&object),
        [(
            "kubectl-create".to_owned(),
            "Update".to_owned(),
            json!({
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:replicas": {},
                    "f:selector": {},
                    "f:template": {
                        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                        "f:spec": {
                            "f:containers": {"k:{\"name\":\"c\"}": {
                                ".": {}, "f:name": {}, "f:image": {}, "f:resources": {},
                                "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                                    ".": {}, "f:containerPort": {}, "f:protocol": {}}},
                            }},
                            "f:volumes": {".": {}, "k:{\"name\":\"v\"}": {".": {}, "f:emptyDir": {}, "f:name": {}}},
                        },
                    },
                },
            })
        )]
    );
    assert_eq!(object["metadata"]["managedFields"][0]["time"], "2027-01-15T08:00:00Z");
    assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["resources"], json!({}));
}

#[test]
fn an_update_takes_the_fields_it_changes_and_leaves_the_rest() {
    let mut first = config(&json!({"replicas": 1, "paused": true, "minReadySeconds": 5}));
    track(deployment(), None, &mut first, &by("a", 0));
    let mut second = first.clone();
    second["spec"]["replicas"] = json!(2);
    second["spec"].as_object_mut().unwrap().remove("paused");
    track(deployment(), Some(&first), &mut second, &by("b", 60));
    assert_eq!(
        owners(&second),
        [
            ("a".to_owned(), "Update".to_owned(), json!({"f:spec": {"f:minReadySeconds": {}}})),
            ("b".to_owned(), "Update".to_owned(), json!({"f:spec": {"f:replicas": {}}})),
        ]
    );
    // The same manager again: one entry, later time.
    let mut third = second.clone();
    third["spec"]["replicas"] = json!(3);
    track(deployment(), Some(&second), &mut third, &by("b", 120));
    assert_eq!(owners(&third).len(), 2);
    assert_eq!(third["metadata"]["managedFields"][1]["time"], "2027-01-15T08:02:00Z");
    // Nothing changed: nothing is recorded, not even a time.
    let mut fourth = third.clone();
    track(deployment(), Some(&third), &mut fourth, &by("c", 180));
    assert_eq!(fourth, third);
    // A client that knows nothing of managed fields does not remove them.
    let mut fifth = third.clone();
    fifth["metadata"].as_object_mut().unwrap().remove("managedFields");
    track(deployment(), Some(&third), &mut fifth, &by("c", 180));
    assert_eq!(fifth, third);
    // One empty entry starts over.
    let mut sixth = third.clone();
    sixth["metadata"]["managedFields"] = json!([{}]);
    track(deployment(), Some(&third), &mut sixth, &by("c", 180));
    assert_eq!(owners(&sixth), []);
}

#[test]
fn a_subresource_has_an_entry_of_its_own_and_ignored_fields_are_nobodys() {
    let mut first = config(&json!({"replicas": 1}));
    first["status"] = json!({"replicas": 9});
    let status = FieldSet::of_fields(&[&["status"]]);
    track(deployment(), None, &mut first, &Writer { ignored: Some(&status), ..by("a", 0) });
    assert_eq!(owners(&first)[0].2, json!({"f:spec": {"f:replicas": {}}}));
    let mut second = first.clone();
    second["status"] = json!({"replicas": 1});
    track(deployment(), Some(&first), &mut second, &Writer { subresource: "status", ..by("a", 1) });
    assert_eq!(owners(&second)[1].2, json!({"f:status": {"f:replicas": {}}}));
    assert_eq!(second["metadata"]["managedFields"][1]["subresource"], "status");
}

#[test]
fn old_updaters_are_folded_together() {
    let mut object = config(&json!({}));
    track(deployment(), None, &mut object, &by("m0", 0));
    for index in 0..14_i64 {
        let mut next = object.clone();
        next["metadata"]["annotations"][format!("a{index}")] = json!("x");
        let manager = format!("m{index:02}");
        track(deployment(), Some(&object), &mut next, &by(&manager, index));
        object = next;
    }
    let owners = owners(&object);
    assert_eq!(owners.len(), 10);
    assert_eq!(owners[0].0, "ancient-changes");
    assert!(owners[0].2["f:metadata"]["f:annotations"]["f:a0"].is_object());
    assert_eq!(owners[9].0, "m13");
}

#[test]
fn applying_creates_owns_exactly_what_was_asked_for_and_twice_is_once() {
    let spec = json!({"replicas": 3, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
    let object = applied(None, &spec, "me", false).unwrap();
    assert_eq!(
        owners(&object),
        [(
            "me".to_owned(),
            "Apply".to_owned(),
            json!({"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers":
                {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}}}}}})
        )]
    );
    let again = apply(deployment(), Some(&object), &config(&spec), false, &by("me", 500)).unwrap();
    assert_eq!(again, object);
}

#[test]
fn a_field_of_another_manager_is_a_conflict_unless_the_value_is_the_same() {
    let live = applied(None, &json!({"replicas": 3, "paused": true}), "first", false).unwrap();
    let error = applied(Some(&live), &json!({"replicas": 4}), "second", false).unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"first\": .spec.replicas");
    let answer = ApiError::from(error);
    assert_eq!((answer.code, answer.reason.as_ref()), (409, "Conflict"));
    assert_eq!(answer.details.causes[0].reason, "FieldManagerConflict");
    assert_eq!(answer.details.causes[0].message, "conflict with \"first\"");
    assert_eq!(answer.details.causes[0].field, ".spec.replicas");

    // The same value is shared.
    let shared = applied(Some(&live), &json!({"replicas": 3}), "second", false).unwrap();
    assert_eq!(owners(&shared).len(), 2);
    // Force takes it.
    let forced = applied(Some(&live), &json!({"replicas": 4}), "second", true).unwrap();
    assert_eq!(forced["spec"]["replicas"], 4);
    assert_eq!(owners(&forced)[0].2, json!({"f:spec": {"f:paused": {}}}));
}

#[test]
fn several_conflicts_are_listed_by_manager() {
    let mut live = config(&json!({"replicas": 3, "paused": true}));
    track(deployment(), None, &mut live, &by("kubectl-client-side-apply", 0));
    let error = applied(Some(&live), &json!({"replicas": 4, "paused": false}), "me", false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"kubectl-client-side-apply\" using apps/v1:\n\
         - .spec.paused\n- .spec.replicas"
    );
}

#[test]
fn what_is_no_longer_asked_for_goes_unless_somebody_else_owns_it() {
    let first = json!({"replicas": 3, "paused": true, "template": {"spec": {"containers": [
        {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "2"}]}}});
    let live = applied(None, &first, "me", false).unwrap();
    let shared = applied(Some(&live), &json!({"replicas": 3}), "other", false).unwrap();
    let second = json!({"template": {"spec": {"containers": [{"name": "a", "image": "1"}]}}});
    let left = applied(Some(&shared), &second, "me", false).unwrap();
    assert_eq!(left["spec"]["replicas"], 3);
    assert!(left["spec"].get("paused").is_none());
    assert_eq!(left["spec"]["template"]["spec"]["containers"], json!([{"name": "a", "image": "1"}]));
}

#[test]
fn fields_nobody_owns_stay_when_their_neighbours_go() {
    let mut live = applied(None, &json!({"replicas": 3, "paused": true}), "me", false).unwrap();
    // A default that the server filled in.
    live["spec"]["revisionHistoryLimit"] = json!(10);
    let left = applied(Some(&live), &json!({"replicas": 3}), "me", false).unwrap();
    assert_eq!(left["spec"]["revisionHistoryLimit"], 10);
    assert!(left["spec"].get("paused").is_none());
}

#[test]
fn keys_with_a_default_name_the_same_element_whether_given_or_not() {
    let by = Writer { api_version: "v1", ..by("me", 0) };
    let config = |ports: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": ports}});
    let mut live = apply(service(), None, &config(json!([{"port": 80, "name": "x"}])), false, &by).unwrap();
    live["spec"]["ports"][0]["protocol"] = json!("TCP");
    let applied =
        apply(service(), Some(&live), &config(json!([{"port": 80, "name": "y"}])), false, &by).unwrap();
    assert_eq!(applied["spec"]["ports"], json!([{"port": 80, "name": "y", "protocol": "TCP"}]));
    assert!(owners(&applied)[0].2["f:spec"]["f:ports"]["k:{\"port\":80,\"protocol\":\"TCP\"}"].is_object());
}

#[test]
fn lists_merge_in_the_order_of_the_configuration_and_keep_strangers_in_place() {
    let list = |names: &[&str]| -> Value {
        let containers: Vec<Value> = names.iter().map(|n| json!({"name": n})).collect();
        json!({"template": {"spec": {"containers": containers}}})
    };
    let names = |object: &Value| -> Vec<String> {
        let list = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        list.iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect()
    };
    let live = applied(None, &list(&["a", "b", "c"]), "first", false).unwrap();
    let merged = applied(Some(&live), &list(&["c", "x", "a"]), "second", false).unwrap();
    assert_eq!(names(&merged), ["b", "c", "x", "a"]);
}

#[test]
fn sets_and_atomic_lists_are_owned_by_element_and_as_one() {
    let mut object = config(&json!({"template": {"spec": {"tolerations": [{"key": "a"}]}}}));
    object["metadata"]["finalizers"] = json!(["x", "y"]);
    let live = apply(deployment(), None, &object, false, &by("me", 0)).unwrap();
    assert_eq!(
        owners(&live)[0].2,
        json!({"f:metadata": {"f:finalizers": {"v:\"x\"": {}, "v:\"y\"": {}}},
            "f:spec": {"f:template": {"f:spec": {"f:tolerations": {}}}}})
    );
    let mut other = config(&json!({"template": {"spec": {"tolerations": [{"key": "a"}, {"key": "b"}]}}}));
    other["metadata"]["finalizers"] = json!(["z"]);
    let error = apply(deployment(), Some(&live), &other, false, &by("you", 0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"me\": .spec.template.spec.tolerations"
    );
    let merged = apply(deployment(), Some(&live), &other, true, &by("you", 0)).unwrap();
    assert_eq!(merged["metadata"]["finalizers"], json!(["x", "y", "z"]));
}

#[test]
fn null_gives_up_what_was_ours_and_leaves_what_others_own() {
    let mut object = config(&json!({}));
    object["metadata"]["annotations"] = json!({"mine": "1"});
    let live = apply(deployment(), None, &object, false, &by("me", 0)).unwrap();
    let mut more = live.clone();
    more["metadata"]["annotations"]["theirs"] = json!("2");
    track(deployment(), Some(&live), &mut more, &by("them", 0));
    object["metadata"]["annotations"] = Value::Null;
    let left = apply(deployment(), Some(&more), &object, false, &by("me", 0)).unwrap();
    assert_eq!(left["metadata"]["annotations"], json!({"theirs": "2"}));
}

#[test]
fn a_configuration_that_does_not_fit_is_refused_with_its_path() {
    let error = applied(None, &json!({"replica": 1}), "me", false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to create typed patch object (default/web; apps/v1, Kind=Deployment): .spec.replica: field not \
         declared in schema"
    );
    let twice = json!({"template": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}});
    assert!(
        applied(None, &twice, "me", false)
            .unwrap_err()
            .to_string()
            .ends_with(".spec.template.spec.containers: duplicate entries for key [name=\"a\"]")
    );
    let mut with_fields = config(&json!({}));
    with_fields["metadata"]["managedFields"] = json!([]);
    let error = apply(deployment(), None, &with_fields, false, &by("me", 0)).unwrap_err();
    assert_eq!(error, ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
}

#[test]
fn kubectl_takes_over_what_it_applied_on_the_client_side() {
    let applied_then = config(&json!({"replicas": 3}));
    let mut live = applied_then.clone();
    live["metadata"]["annotations"] = json!({LAST_APPLIED: applied_then.to_string()});
    track(deployment(), None, &mut live, &by("kubectl-client-side-apply", 0));
    let mut wanted = config(&json!({"replicas": 4}));
    let taken = apply(deployment(), Some(&live), &wanted, false, &by("kubectl", 0)).unwrap();
    assert_eq!(taken["spec"]["replicas"], 4);
    assert_eq!(taken["metadata"]["annotations"][LAST_APPLIED], format!("{wanted}\n"));
    // Another field that was changed since is a conflict.
    live["spec"]["replicas"] = json!(7);
    wanted["spec"]["replicas"] = json!(5);
    assert!(apply(deployment(), Some(&live), &wanted, false, &by("kubectl", 0)).is_err());
}

#[test]
fn custom_resources_own_their_fields_with_the_objects_around_them() {
    let schema = from_openapi(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "size": {"type": "integer"}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}),
        "schema",
    )
    .unwrap();
    let mut object = json!({"apiVersion": "g/v1", "kind": "T", "metadata": {"name": "x"},
        "spec": {"size": 1, "free": {"a": {"b": [1]}}}});
    track(&schema, None, &mut object, &Writer { api_version: "g/v1", ..by("me", 0) });
    assert_eq!(
        owners(&object)[0].2,
        json!({"f:spec": {".": {}, "f:size": {}, "f:free": {".": {}, "f:a": {".": {}, "f:b": {}}}}})
    );
}

#[test]
fn only_times_make_no_difference() {
    let mut object = config(&json!({"replicas": 1}));
    track(deployment(), None, &mut object, &by("a", 0));
    let mut later = object.clone();
    later["metadata"]["managedFields"][0]["time"] = json!("2030-01-01T00:00:00Z");
    assert!(same_but_for_times(&object, &later));
    later["spec"]["replicas"] = json!(2);
    assert!(!same_but_for_times(&object, &later));
}

fn any_spec() -> impl Strategy<Value = Value> {
    let container = ("[abc]", prop::option::of("[xy]"), prop::collection::btree_map("[XY]", "[12]", 0..3))
        .prop_map(|(name, image, env)| {
            let mut container = json!({"name": name});
            if let Some(image) = image {
                container["image"] = json!(image);
            }
            if !env.is_empty() {
                let env: Vec<Value> = env.into_iter().map(|(n, v)| json!({"name": n, "value": v})).collect();
                container["env"] = json!(env);
            }
            container
        });
    (
        prop::option::of(1..4),
        prop::option::of(any::<bool>()),
        prop::collection::vec(container, 0..4),
        prop::collection::btree_map("[kl]", "[12]", 0..3),
    )
        .prop_map(|(replicas, paused, containers, labels)| {
            let mut spec = json!({"selector": {"matchLabels": {"a": "b"}}});
            if let Some(replicas) = replicas {
                spec["replicas"] = json!(replicas);
            }
            if paused == Some(true) {
                spec["paused"] = json!(true);
            }
            let mut seen = std::collections::BTreeSet::new();
            let containers: Vec<Value> =
                containers.into_iter().filter(|c| seen.insert(c["name"].to_string())).collect();
            if !containers.is_empty() {
                spec["template"] = json!({"spec": {"containers": containers}});
                if !labels.is_empty() {
                    spec["template"]["metadata"] = json!({"labels": labels});
                }
            }
            spec
        })
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(first in any_spec(), second in any_spec()) {
        let live = applied(None, &first, "one", false).unwrap();
        let merged = applied(Some(&live), &second, "two", true).unwrap();
        let again = applied(Some(&merged), &second, "two", false).unwrap();
        prop_assert_eq!(&again, &merged);
        // What was applied is there.
        prop_assert!(typed::fields_of(deployment().get(), &config(&second))
            .difference(&typed::fields_of(deployment().get(), &merged)).is_empty());
        // Updating with the same content changes no owner.
        let mut same = merged.clone();
        track(deployment(), Some(&merged), &mut same, &by("three", 9));
        let kept = same.clone();
        track(deployment(), Some(&kept), &mut same, &by("four", 10));
        prop_assert_eq!(same, kept);
    }

    #[test]
    fn an_applier_that_is_alone_gets_exactly_its_configuration(first in any_spec(), second in any_spec()) {
        let live = applied(None, &first, "one", false).unwrap();
        let moved = applied(Some(&live), &second, "one", false).unwrap();
        let fresh = applied(None, &second, "one", false).unwrap();
        prop_assert_eq!(owners(&moved), owners(&fresh));
        prop_assert_eq!(&moved["spec"]["replicas"], &fresh["spec"]["replicas"]);
        prop_assert_eq!(
            typed::fields_of(deployment().get(), &moved).difference(&typed::fields_of(deployment().get(), &fresh)),
            FieldSet::default()
        );
    }

    #[test]
    fn no_object_makes_tracking_or_applying_panic(
        old in super::super::strategic::tests::object(), new in super::super::strategic::tests::object()
    ) {
        let mut tracked = new.clone();
        track(deployment(), Some(&old), &mut tracked, &by("x", 0));
        let mut config = new;
        config["apiVersion"] = json!("apps/v1");
        let _ = apply(deployment(), Some(&old), &config, true, &by("x", 0));
    }
}
