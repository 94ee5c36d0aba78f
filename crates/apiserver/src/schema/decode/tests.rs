use super::*;
use k8s_openapi::api::{apps, core};
use proptest::prelude::*;
use serde_json::json;

fn pod() -> &'static SchemaRef {
    static POD: OnceLock<SchemaRef> = OnceLock::new();
    POD.get_or_init(|| Types::new().load::<core::v1::Pod>())
}

fn target() -> Target<'static> {
    Target { group: "", version: "v1", kind: "Pod", schema: pod(), custom: false }
}

fn json(body: &str, validation: FieldValidation) -> Result<Decoded, ApiError> {
    decode(body.as_bytes(), Media::Json, &target(), validation)
}

#[test]
fn a_wrong_type_is_refused_with_its_field_and_type() {
    let error = json(r#"{"spec":{"containers":"x"}}"#, FieldValidation::Strict).unwrap_err();
    assert_eq!(error.code, 400);
    assert_eq!(
        error.message,
        "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal string into Go struct \
         field PodSpec.spec.containers of type []v1.Container"
    );
    let error = json(
        r#"{"spec":{"containers":[{"name":"a","imagePullPolicy":5}],"priority":"high"}}"#,
        FieldValidation::Ignore,
    )
    .unwrap_err();
    assert!(
        error.message.ends_with(
            "json: cannot unmarshal number into Go struct field \
             Container.spec.containers.imagePullPolicy of type v1.PullPolicy"
        ),
        "{}",
        error.message
    );
}

#[test]
fn an_integer_that_does_not_fit_is_named() {
    let schema = Types::new().load::<apps::v1::Deployment>();
    let target = Target { group: "apps", version: "v1", kind: "Deployment", schema: &schema, custom: false };
    let body = br#"{"spec":{"replicas":99999999999}}"#;
    let error = decode(body, Media::Json, &target, FieldValidation::Warn).unwrap_err();
    assert_eq!(
        error.message,
        "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal number \
         99999999999 into Go struct field DeploymentSpec.spec.replicas of type int32"
    );
}

#[test]
fn unknown_and_duplicate_fields_are_named_in_document_order() {
    let body = r#"{"spec":{"foo":{"x":1},"nodeName":"a","nodeName":"b",
        "containers":[{"name":"c","Image":"i"}]},"bar":1}"#;
    let strict = json(body, FieldValidation::Strict).unwrap_err();
    assert_eq!(
        strict.message,
        "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"spec.foo\", \
         duplicate field \"spec.nodeName\", unknown field \"spec.containers[0].Image\", unknown field \"bar\""
    );
    let warned = json(body, FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings.len(), 4);
    assert_eq!(warned.warnings[0], "unknown field \"spec.foo\"");
    assert_eq!(
        warned.object,
        json!({"apiVersion": "v1", "kind": "Pod",
            "spec": {"nodeName": "b", "containers": [{"name": "c"}]}})
    );
    assert!(json(body, FieldValidation::Ignore).unwrap().warnings.is_empty());
}

#[test]
fn null_is_the_same_as_nothing() {
    let body = r#"{"metadata":{"name":"a","labels":{"x":null},"creationTimestamp":null},"spec":null}"#;
    let decoded = json(body, FieldValidation::Strict).unwrap();
    assert_eq!(
        decoded.object,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": ""}}})
    );
}

#[test]
fn quantities_and_times_take_the_form_of_the_server() {
    let body = r#"{"metadata":{"deletionTimestamp":"2026-01-01T02:00:00.5+01:00"},
        "spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":0.5,"memory":"1024Mi","x":2}}}]}}"#;
    let decoded = json(body, FieldValidation::Strict).unwrap();
    assert_eq!(
        decoded.object["spec"]["containers"][0]["resources"]["limits"],
        json!({"cpu": "500m", "memory": "1Gi", "x": "2"})
    );
    assert_eq!(decoded.object["metadata"]["deletionTimestamp"], "2026-01-01T01:00:00Z");

    let error = json(r#"{"spec":{"overhead":{"cpu":"lots"}}}"#, FieldValidation::Ignore).unwrap_err();
    assert!(error.message.contains("quantities must match the regular expression"), "{}", error.message);
    let error = json(r#"{"metadata":{"deletionTimestamp":"now"}}"#, FieldValidation::Ignore).unwrap_err();
    assert!(
        error.message.ends_with(
            "parsing time \"now\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"now\" as \"2006\""
        ),
        "{}",
        error.message
    );
}

#[test]
fn what_is_no_object_of_the_kind_is_told_apart() {
    let error = json("xyz", FieldValidation::Warn).unwrap_err();
    assert_eq!(
        error.message,
        "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: \
         invalid character 'x' looking for beginning of value (78797a)"
    );
    let error = json("", FieldValidation::Warn).unwrap_err();
    assert!(error.message.ends_with("unexpected end of JSON input (<empty>)"), "{}", error.message);
    let error = json(r#"{"apiVersion":"apps/v1","kind":"Pod"}"#, FieldValidation::Warn).unwrap_err();
    assert_eq!(
        error.message,
        "Pod in version \"v1\" cannot be handled as a Pod: no kind \"Pod\" is registered for version \"apps/v1\" \
         in scheme \"pkg/runtime/scheme.go:111\""
    );
}

#[test]
fn yaml_is_read_like_json() {
    let body = b"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  priority: 3\n  nope: 1\n";
    let decoded = decode(body, Media::Yaml, &target(), FieldValidation::Warn).unwrap();
    assert_eq!(decoded.object["spec"], json!({"priority": 3}));
    assert_eq!(decoded.warnings, ["unknown field \"spec.nope\""]);

    let twice = b"kind: Pod\nmetadata:\n  name: a\n  name: b\n";
    let decoded = decode(twice, Media::Yaml, &target(), FieldValidation::Warn).unwrap();
    assert_eq!(decoded.object["metadata"]["name"], "b");
    assert_eq!(decoded.warnings.len(), 1);
    assert!(decode(twice, Media::Yaml, &target(), FieldValidation::Strict).is_err());
}

#[test]
fn a_custom_resource_is_pruned_and_its_metadata_checked() {
    let spec = Schema::of(super::super::Shape::Object {
        fields: [("a".into(), SchemaRef::new(Schema::of(super::super::Shape::String)))].into(),
        required: Vec::new(),
        atomic: false,
    });
    let schema = SchemaRef::new(Schema::of(super::super::Shape::Object {
        fields: [("spec".into(), SchemaRef::new(spec))].into(),
        required: Vec::new(),
        atomic: false,
    }));
    let target = Target { group: "g.io", version: "v1", kind: "Thing", schema: &schema, custom: true };
    let body = br#"{"apiVersion":"g.io/v1","kind":"Thing","metadata":{"name":"x","odd":1},
        "spec":{"a":5,"b":{"c":1},"a":6}}"#;
    let decoded = decode(body, Media::Json, &target, FieldValidation::Warn).unwrap();
    // The wrong type of spec.a is a matter of validation.
    assert_eq!(decoded.object["spec"], json!({"a": 6}));
    assert_eq!(
        decoded.warnings,
        ["duplicate field \"spec.a\"", "unknown field \"metadata.odd\"", "unknown field \"spec.b\""]
    );
    let body = br#"{"apiVersion":"g.io/v1","kind":"Thing","metadata":{"labels":{"a":1}}}"#;
    let error = decode(body, Media::Json, &target, FieldValidation::Warn).unwrap_err();
    assert!(
        error
            .message
            .ends_with("cannot unmarshal number into Go struct field ObjectMeta.labels of type string"),
        "{}",
        error.message
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "containers",
        "name",
        "labels",
        "ports",
        "limits",
        "resources",
        "env",
        "a",
        "creationTimestamp",
        "finalizers",
        "volumes",
        "kind",
        "apiVersion",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6)
                .prop_map(|m| Value::Object(m.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_document_makes_the_decoder_panic_and_what_it_accepts_it_accepts_again(value in any_json()) {
        let body = value.to_string();
        for custom in [false, true] {
            let target = Target { custom, ..target() };
            if let Ok(first) = decode(body.as_bytes(), Media::Json, &target, FieldValidation::Ignore) {
                let again = check(first.object.clone(), &target, FieldValidation::Strict, Vec::new());
                prop_assert_eq!(again.map(|d| d.object), Ok(first.object));
            }
        }
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = decode(&bytes, Media::Json, &target(), FieldValidation::Strict);
        let _ = decode(&bytes, Media::Yaml, &target(), FieldValidation::Strict);
    }
}
