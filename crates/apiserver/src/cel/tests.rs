use rstest::rstest;
use serde_json::json;

use super::check::Variables;
use super::decl::Decl;
use super::types::Type;
use super::value::Val;
use super::{CALL_LIMIT, CompileError, Program};
use crate::schema::crd::from_openapi;
use crate::schema::rules::{check_schema, evaluate};

fn self_of(schema: &serde_json::Value) -> Variables {
    [("self", Decl::of(schema, false).expect("typed").cel_type("selfType"))].into()
}

fn schema() -> serde_json::Value {
    json!({"type": "object", "properties": {
        "i": {"type": "integer"}, "s": {"type": "string"}, "any": {"x-kubernetes-int-or-string": true},
        "list": {"type": "array", "items": {"type": "integer"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "nothing": {"x-kubernetes-preserve-unknown-fields": true}}})
}

#[rstest]
#[case("self.i > 1", "bool")]
#[case("self.any", "dyn")]
#[case("self.list.map(x, string(x))", "list(string)")]
#[case("self.map", "map(string, string)")]
#[case("[] + [1]", "list(int)")]
#[case("[]", "list(dyn)")]
#[case("{}", "map(dyn, dyn)")]
#[case("self.?s", "optional_type(string)")]
#[case("self.any + 1", "int")]
#[case("self.i == 1 ? self.s : 'x'", "string")]
#[case("self.list[0] + size(self.s)", "int")]
#[case("optional.none().orValue(3)", "int")]
#[case("self.map.filter(k, k != 'x')", "list(string)")]
fn expressions_have_types(#[case] source: &str, #[case] wanted: &str) {
    let program = Program::compile(source, &self_of(&schema())).expect("compiles");
    assert_eq!(program.result.to_string(), wanted);
}

#[rstest]
#[case("self.nothing == 1", "ERROR: <input>:1:5: undefined field 'nothing'\n | self.nothing == 1\n | ....^")]
#[case("self.free.x", "ERROR: <input>:1:10: undefined field 'x'\n | self.free.x\n | .........^")]
#[case(
    "'ä' == x",
    "ERROR: <input>:1:8: undeclared reference to 'x' (in container '')\n | 'ä' == x\n | .．.....^"
)]
#[case(
    "self.s - 'x'",
    "ERROR: <input>:1:8: found no matching overload for '_-_' applied to '(string, string)'\n | self.s - 'x'\n | .......^"
)]
#[case(
    "self.s.size(1)",
    "ERROR: <input>:1:12: found no matching overload for 'size' applied to 'string.(int)'\n | self.s.size(1)\n | ...........^"
)]
#[case(
    "self.s == null",
    "ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(string, null)'\n | self.s == null\n | .......^"
)]
fn mistakes_are_told_with_their_place(#[case] source: &str, #[case] wanted: &str) {
    let found = Program::compile(source, &self_of(&schema())).expect_err("a mistake");
    assert_eq!(found, CompileError::Invalid(wanted.into()));
}

#[rstest]
#[case("quantity(self.s).isLessThan(quantity('1Gi'))", "quantity()")]
#[case("isURL(self.s)", "isURL()")]
#[case("self.list.all(i, v, v > i)", "all() with two variables")]
#[case("type(self.s) == string", "type()")]
#[case("self.list.sort() == self.list", "sort()")]
#[case("math.greatest(1, 2) > 1", "math.greatest()")]
#[case("timestamp(0).getHours('Europe/Berlin') == 1", "getHours() with a time zone")]
#[case("[1.5].sum() > 1.0", "sum() of other than whole numbers")]
fn what_only_real_servers_have_is_named(#[case] source: &str, #[case] wanted: &str) {
    let found = Program::compile(source, &self_of(&schema())).expect_err("not here");
    assert!(matches!(&found, CompileError::Unsupported(what) if what.contains(wanted)), "{found:?}");
}

#[test]
fn deep_and_long_expressions_are_refused() {
    let none = Variables::new();
    for source in [
        "(".repeat(100_000),
        "-".repeat(99_999) + "x",
        "1+".repeat(40_000) + "1",
        "[".repeat(50_000),
        "a.b".repeat(30_000),
        "a?b:".repeat(20_000) + "c",
        "x".repeat(100_001),
        "a(".repeat(40_000),
        "a[".repeat(40_000),
    ] {
        assert!(Program::compile(&source, &none).is_err());
    }
    // As deep as it may be, in a thread of the usual size.
    for source in [
        format!("{}1{}", "[".repeat(115), "]".repeat(115)),
        "1+".repeat(115) + "1",
        "[1].map(x, ".repeat(50) + "1" + &")".repeat(50),
    ] {
        let program = Program::compile(&source, &none).expect("not too deep");
        assert!(program.run(&[], CALL_LIMIT).0.is_ok());
    }
    // A chain of `&&` is flat.
    assert!(Program::compile(&("true && ".repeat(5_000) + "true"), &none).is_ok());
}

#[test]
fn work_is_bounded() {
    let variables: Variables = [("l", Type::list(Type::Int))].into();
    let list = Val::list((0..20_000).map(Val::Int).collect());
    for source in [
        "l.all(a, l.all(b, l.all(c, a + b + c >= 0)))",
        "l.map(a, l).size() > 0 && l.map(a, l + l).size() == 1",
        "l.all(a, a in l)",
        "l.all(a, l == l)",
    ] {
        let program = Program::compile(source, &variables).expect("compiles");
        let (result, left) = program.run(&[("l", list.clone())], CALL_LIMIT);
        assert_eq!(
            result.expect_err("too expensive").to_string(),
            "operation cancelled: actual cost limit exceeded"
        );
        assert_eq!(left, 0);
    }
}

#[test]
fn a_rule_that_costs_too_much_says_so_and_ends_the_evaluation() {
    let schema = from_openapi(
        &json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"},
            "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))"}]},
            "z": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 0"}]}}}),
        "schema",
    )
    .expect("structural");
    let object = json!({"l": (0..2_000).collect::<Vec<i32>>(), "z": 1});
    let found: Vec<String> =
        evaluate(schema.get(), &object, None).errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "l: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation \
          rules will be run due to call cost exceeds limit for rule: self.all(a, self.all(b, self.all(c, a + b \
          + c >= 0)))"
        ]
    );
}

#[test]
fn lists_with_keys_and_sets_are_compared_without_order() {
    let schema = json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"],
                "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}}}}});
    let decl = Decl::of(&schema, false).expect("typed");
    let value = decl.value(&json!({"set": ["a", "b"], "keyed": [{"name": "x", "n": 1}, {"name": "y"}]}));
    let other = decl.value(&json!({"set": ["b", "a"], "keyed": [{"name": "y"}, {"name": "x", "n": 2}]}));
    let own = decl.cel_type("selfType");
    let variables: Variables = [("self", own.clone()), ("other", own)].into();
    for (source, wanted) in [
        ("self.set == other.set", true),
        ("self.keyed == other.keyed", false),
        ("self.set + ['a', 'c'] == ['c', 'b', 'a']", true),
        ("(self.keyed + other.keyed)[0].n == 2 && size(self.keyed + other.keyed) == 2", true),
        ("self.set.map(x, x) == ['b', 'a']", false),
    ] {
        let program = Program::compile(source, &variables).expect("compiles");
        let (result, _) = program.run(&[("self", value.clone()), ("other", other.clone())], CALL_LIMIT);
        assert!(matches!(result, Ok(Val::Bool(found)) if found == wanted), "{source}");
    }
}

#[test]
fn rules_look_back_only_where_the_old_value_is_known() {
    let list = |kind: serde_json::Value| {
        let mut list = json!({"type": "array", "items": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"},
            "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}}});
        list.as_object_mut().expect("object").extend(kind.as_object().expect("object").clone());
        json!({"type": "object", "properties": {"l": list}})
    };
    let keyed = list(json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}));
    assert_eq!(check_schema(&keyed, "schema"), Ok(Vec::new()));
    let complaints = check_schema(&list(json!({})), "schema").expect("known functions");
    assert!(complaints[0].detail.ends_with("within schema.properties[l]"), "{}", complaints[0]);
    let schema = from_openapi(&keyed, "schema").expect("structural");
    let old = json!({"l": [{"name": "a", "n": 5}, {"name": "b", "n": 1}]});
    let new = json!({"l": [{"name": "b", "n": 2}, {"name": "a", "n": 4}, {"name": "c", "n": 0}]});
    let found = evaluate(schema.get(), &new, Some(&old));
    let fields: Vec<&str> = found.errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["l[1].n"]);
    assert!(evaluate(schema.get(), &new, None).errors.is_empty());
}

mod garbage {
    use proptest::prelude::*;

    use super::*;

    fn word() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "self",
            ".",
            "s",
            "i",
            "list",
            "map",
            "any",
            "(",
            ")",
            "[",
            "]",
            "{",
            "}",
            ",",
            "?",
            ":",
            "==",
            "<",
            "+",
            "-",
            "*",
            "/",
            "%",
            "!",
            "&&",
            "||",
            "1",
            "0",
            "-9223372036854775808",
            "1.5",
            "2u",
            "'a'",
            "\"\"",
            "b'x'",
            "r'\\'",
            "in",
            "has",
            "all",
            "exists",
            "map",
            "filter",
            "x",
            "size",
            "matches",
            "'['",
            "split",
            "substring",
            "indexOf",
            "charAt",
            "int",
            "duration",
            "timestamp",
            "'1h'",
            "null",
            "true",
            ".?",
            "[?",
            "orValue",
            "optional",
            "of",
            "ä",
            "\\",
            "'",
            "\n",
            "//",
            "0x",
            "1e",
            "findAll",
            "join",
            "sum",
            "min",
        ])
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn nothing_written_as_an_expression_panics(words in prop::collection::vec(word(), 0..14), text in ".{0,40}") {
            let decl = Decl::of(&schema(), false).expect("typed");
            let value = decl.value(&json!({"i": -1, "s": "aä", "any": "x", "list": [1, 0], "map": {"a": "b"}}));
            for source in [words.concat(), words.join(" "), text] {
                if let Ok(program) = Program::compile(&source, &self_of(&schema())) {
                    let _ = program.run(&[("self", value.clone())], CALL_LIMIT);
                }
            }
        }
    }
}
