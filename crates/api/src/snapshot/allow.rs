//! What of an object may stand in a snapshot: a list of fields, read once, and everything that is not on it is left out.
//!
//! | a path ends with | what is kept |
//! |---|---|
//! | a name | one text, number or truth value; a map or a list in its place is left out |
//! | `{}` | a map of such values, as labels are |
//! | `[]` | a list of such values |
//! | `*` | all that is below: for the few structures that consist of selectors and nothing else |
//! | `!` | that there is something, and not what |
//!
//! `[]` within a path stands for each entry of a list.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The fields that are kept.
#[derive(Debug, Default)]
pub struct Allowed(BTreeMap<String, Keep>);

#[derive(Debug)]
enum Keep {
    Scalar,
    Scalars,
    List,
    Whole,
    Presence,
    Inside(Allowed),
    Each(Allowed),
}

impl Allowed {
    /// Reads paths, of which each begins with `prefix`.
    pub fn add<'a>(&mut self, prefix: &str, paths: impl IntoIterator<Item = &'a str>) {
        for path in paths {
            self.insert(&format!("{prefix}{path}"));
        }
    }

    fn insert(&mut self, path: &str) {
        let Some((first, rest)) = path.split_once('.') else {
            let (name, keep) = match path.as_bytes() {
                [.., b'{', b'}'] => (path.trim_end_matches("{}"), Keep::Scalars),
                [.., b'[', b']'] => (path.trim_end_matches("[]"), Keep::List),
                [.., b'*'] => (path.trim_end_matches('*'), Keep::Whole),
                [.., b'!'] => (path.trim_end_matches('!'), Keep::Presence),
                _ => (path, Keep::Scalar),
            };
            self.0.insert(name.to_owned(), keep);
            return;
        };
        let (name, is_list) = match first.strip_suffix("[]") {
            Some(name) => (name, true),
            None => (first, false),
        };
        let new = || if is_list { Keep::Each(Self::default()) } else { Keep::Inside(Self::default()) };
        if let Keep::Each(inner) | Keep::Inside(inner) = self.0.entry(name.to_owned()).or_insert_with(new) {
            inner.insert(rest);
        }
    }

    /// Leaves of an object what is allowed.
    pub fn reduce(&self, object: &Value) -> Value {
        let mut kept = Map::new();
        for (name, keep) in &self.0 {
            if let Some(value) = object.get(name).and_then(|value| keep.of(value)) {
                kept.insert(name.clone(), value);
            }
        }
        Value::Object(kept)
    }
}

impl Keep {
    fn of(&self, value: &Value) -> Option<Value> {
        match (self, value) {
            (_, Value::Null) => None,
            (Self::Scalar, value) => scalar(value),
            (Self::Scalars, Value::Object(map)) => {
                let kept: Map<String, Value> =
                    map.iter().filter_map(|(name, value)| Some((name.clone(), scalar(value)?))).collect();
                Some(Value::Object(kept))
            }
            (Self::List, Value::Array(list)) => Some(list.iter().filter_map(scalar).collect()),
            (Self::Whole, value) => Some(value.clone()),
            (Self::Presence, _) => Some(Value::Object(Map::new())),
            (Self::Inside(fields), Value::Object(_)) => Some(fields.reduce(value)),
            (Self::Each(fields), Value::Array(list)) => {
                Some(list.iter().filter(|one| one.is_object()).map(|one| fields.reduce(one)).collect())
            }
            _ => None,
        }
    }
}

fn scalar(value: &Value) -> Option<Value> {
    (!matches!(value, Value::Null | Value::Object(_) | Value::Array(_))).then(|| value.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reduced(paths: &[&str], object: &Value) -> Value {
        let mut allowed = Allowed::default();
        allowed.add("", paths.iter().copied());
        allowed.reduce(object)
    }

    #[test]
    fn only_what_is_on_the_list_is_left_of_an_object() {
        let object = json!({
            "name": "a", "secret": "x", "labels": {"a": "b", "deep": {"x": "y"}}, "args": ["x"], "names": ["n", {"x": "y"}],
            "affinity": {"deep": [{"key": "zone"}]}, "volumes": [{"name": "v", "cloudInit": {"userData": "x"}}, "x"],
            "nothing": null,
        });
        let paths =
            ["name", "labels{}", "names[]", "affinity*", "volumes[].name", "volumes[].cloudInit!", "nothing"];
        let expected = json!({
            "name": "a", "labels": {"a": "b"}, "names": ["n"], "affinity": {"deep": [{"key": "zone"}]},
            "volumes": [{"name": "v", "cloudInit": {}}],
        });
        assert_eq!(reduced(&paths, &object), expected);
    }

    #[test]
    fn a_structure_in_the_place_of_a_value_is_left_out() {
        let object =
            json!({"name": {"secret": "x"}, "labels": "x", "list": {"a": "x"}, "each": {"name": "x"}});
        let paths = ["name", "labels{}", "list[]", "each[].name", "labels.more"];
        assert_eq!(reduced(&paths, &object), json!({}));
    }
}
