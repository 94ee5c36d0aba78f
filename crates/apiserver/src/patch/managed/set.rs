//! Sets of fields in the form in which `managedFields` carries them (`FieldsV1`).
//!
//! A set is a tree of JSON objects whose keys are path elements: `f:<name>` for a field,
//! `k:{"name":"x"}` for a list element by key, `v:<value>` for an element of a set. A path is a member when
//! its object is empty or holds `.`. Keeping sets in wire form means that entries nobody touches are
//! neither decoded nor encoded.

use serde_json::{Map, Value};

const SELF: &str = ".";

/// A set of fields. The root itself is never a member.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldSet(Map<String, Value>);

/// The part of a set below one path, and whether the path itself belongs to it.
#[derive(Debug, Default)]
pub(super) struct Branch {
    pub member: bool,
    pub below: FieldSet,
}

impl Branch {
    pub fn leaf() -> Self {
        Self { member: true, below: FieldSet::default() }
    }

    pub fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

fn empty() -> &'static Map<String, Value> {
    static EMPTY: std::sync::OnceLock<Map<String, Value>> = std::sync::OnceLock::new();
    EMPTY.get_or_init(Map::new)
}

fn node(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap_or_else(|| empty())
}

fn is_member(node: &Map<String, Value>) -> bool {
    node.is_empty() || node.contains_key(SELF)
}

/// The wire form of a node; `None` for one that holds nothing.
fn made(member: bool, mut below: Map<String, Value>) -> Option<Value> {
    below.remove(SELF);
    if below.is_empty() {
        return member.then(|| Value::Object(Map::new()));
    }
    if member {
        below.insert(SELF.to_owned(), Value::Object(Map::new()));
    }
    Some(Value::Object(below))
}

fn children(map: &Map<String, Value>) -> impl Iterator<Item = (&String, &Map<String, Value>)> {
    map.iter().filter(|(key, _)| *key != SELF).map(|(key, value)| (key, node(value)))
}

impl FieldSet {
    /// Reads the wire form. Anything but nested objects is refused.
    pub fn from_fields_v1(fields: Value) -> Option<Self> {
        fn sound(map: &Map<String, Value>) -> bool {
            map.iter().all(|(key, below)| {
                (key == SELF || key.get(1..2) == Some(":")) && below.as_object().is_some_and(sound)
            })
        }
        match fields {
            Value::Null => Some(Self::default()),
            Value::Object(map) if sound(&map) => Some(Self(map)),
            _ => None,
        }
    }

    pub fn into_fields_v1(self) -> Value {
        Value::Object(self.0)
    }

    /// A set of named fields, each given as the names on the way to it.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let mut branch = Branch::leaf();
            for name in path.iter().rev() {
                let mut parent = Branch::default();
                parent.below.attach(|| format!("f:{name}"), branch);
                branch = parent;
            }
            set.unite(&branch.below);
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts a branch in place. The element is only written out when there is something to put.
    pub(super) fn attach(&mut self, element: impl FnOnce() -> String, branch: Branch) {
        if let Some(node) = made(branch.member, branch.below.0) {
            self.0.insert(element(), node);
        }
    }

    /// Adds all members of another set.
    pub fn unite(&mut self, other: &Self) {
        unite(&mut self.0, &other.0);
    }

    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        self.unite(other);
        self
    }

    /// The members that are not in another set. A member's children stay.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(difference(&self.0, &other.0))
    }

    /// Like [`FieldSet::difference`], but with a member go all paths below it.
    #[must_use]
    pub fn without_trees(&self, other: &Self) -> Self {
        Self(without_trees(&self.0, &other.0))
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(intersection(&self.0, &other.0))
    }

    pub fn intersects(&self, other: &Self) -> bool {
        intersects(&self.0, &other.0)
    }

    /// All members as readable paths (`.spec.containers[name="a"].image`), parents before children.
    pub fn paths(&self) -> Vec<String> {
        fn walk(map: &Map<String, Value>, path: &mut String, out: &mut Vec<String>) {
            let length = path.len();
            for pass_members in [true, false] {
                for (element, below) in children(map) {
                    if pass_members && !is_member(below) {
                        continue;
                    }
                    path.push_str(&readable(element));
                    if pass_members {
                        out.push(path.clone());
                    } else {
                        walk(below, path, out);
                    }
                    path.truncate(length);
                }
            }
        }
        let mut out = Vec::new();
        walk(&self.0, &mut String::new(), &mut out);
        out
    }
}

/// A view of the part of a set below one element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Below<'a>(&'a Map<String, Value>);

impl<'a> Below<'a> {
    pub fn root(set: &'a FieldSet) -> Self {
        Self(&set.0)
    }

    pub fn is_member(self) -> bool {
        is_member(self.0)
    }

    pub fn has_children(self) -> bool {
        self.0.keys().any(|key| key != SELF)
    }

    pub fn get(self, element: &str) -> Option<Below<'a>> {
        self.0.get(element).map(|value| Below(node(value)))
    }

    pub fn iter(self) -> impl Iterator<Item = (&'a str, Below<'a>)> {
        children(self.0).map(|(element, below)| (element.as_str(), Below(below)))
    }
}

fn unite(into: &mut Map<String, Value>, other: &Map<String, Value>) {
    for (element, theirs) in children(other) {
        match into.get_mut(element) {
            None => {
                into.insert(element.clone(), Value::Object(theirs.clone()));
            }
            Some(Value::Object(ours)) => {
                let member = is_member(ours) || is_member(theirs);
                unite(ours, theirs);
                if member && !ours.is_empty() {
                    ours.insert(SELF.to_owned(), Value::Object(Map::new()));
                }
            }
            Some(other) => *other = Value::Object(theirs.clone()),
        }
    }
}

fn difference(ours: &Map<String, Value>, theirs: &Map<String, Value>) -> Map<String, Value> {
    let mut left = Map::new();
    for (element, here) in children(ours) {
        let kept = match theirs.get(element).map(node) {
            None => Some(Value::Object(here.clone())),
            Some(there) => made(is_member(here) && !is_member(there), difference(here, there)),
        };
        if let Some(kept) = kept {
            left.insert(element.clone(), kept);
        }
    }
    left
}

fn without_trees(ours: &Map<String, Value>, theirs: &Map<String, Value>) -> Map<String, Value> {
    let mut left = Map::new();
    for (element, here) in children(ours) {
        let kept = match theirs.get(element).map(node) {
            None => Some(Value::Object(here.clone())),
            Some(there) if is_member(there) => None,
            Some(there) => made(is_member(here), without_trees(here, there)),
        };
        if let Some(kept) = kept {
            left.insert(element.clone(), kept);
        }
    }
    left
}

fn intersection(ours: &Map<String, Value>, theirs: &Map<String, Value>) -> Map<String, Value> {
    let mut both = Map::new();
    for (element, here) in children(ours) {
        if let Some(there) = theirs.get(element).map(node)
            && let Some(kept) = made(is_member(here) && is_member(there), intersection(here, there))
        {
            both.insert(element.clone(), kept);
        }
    }
    both
}

fn intersects(ours: &Map<String, Value>, theirs: &Map<String, Value>) -> bool {
    children(ours).any(|(element, here)| {
        theirs
            .get(element)
            .map(node)
            .is_some_and(|there| (is_member(here) && is_member(there)) || intersects(here, there))
    })
}

/// One path element for people: `.name`, `[name="x"]`, `[="value"]`, `[0]`.
fn readable(element: &str) -> String {
    let (kind, rest) = element.split_at(element.len().min(2));
    match kind {
        "f:" => format!(".{rest}"),
        "k:" => match serde_json::from_str::<Map<String, Value>>(rest) {
            Ok(keys) => {
                let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("[{}]", keys.join(","))
            }
            Err(_) => format!("[{rest}]"),
        },
        "v:" => format!("[={rest}]"),
        _ => format!("[{rest}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn set(fields: Value) -> FieldSet {
        FieldSet::from_fields_v1(fields).expect("a set")
    }

    #[test]
    fn a_parent_and_its_children_are_separate_members() {
        let whole = set(json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}}));
        let parent = set(json!({"f:a": {}}));
        assert_eq!(whole.difference(&parent), set(json!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}})));
        assert_eq!(whole.without_trees(&parent), set(json!({"f:d": {}})));
        assert_eq!(whole.intersection(&parent), parent);
        assert_eq!(
            set(json!({"f:a": {"f:b": {}}})).union(&parent),
            set(json!({"f:a": {".": {}, "f:b": {}}}))
        );
        assert!(!set(json!({"f:a": {"f:b": {}}})).intersects(&parent));
    }

    #[test]
    fn paths_are_written_as_conflicts_show_them() {
        let set = set(json!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}}},
            "f:finalizers": {"v:\"x\"": {}}, "f:replicas": {}}}));
        assert_eq!(
            set.paths(),
            [
                ".spec.replicas",
                ".spec.containers[name=\"a\"]",
                ".spec.containers[name=\"a\"].image",
                ".spec.finalizers[=\"x\"]"
            ]
        );
    }

    #[test]
    fn what_is_no_tree_of_path_elements_is_refused() {
        assert_eq!(FieldSet::from_fields_v1(json!({"spec": {}})), None);
        assert_eq!(FieldSet::from_fields_v1(json!({"f:spec": 1})), None);
        assert_eq!(FieldSet::of_fields(&[&["a", "b"], &["a"]]), set(json!({"f:a": {".": {}, "f:b": {}}})));
    }

    fn any_set() -> impl Strategy<Value = FieldSet> {
        prop::collection::vec(prop::collection::vec("[abc]", 1..4), 0..8).prop_map(|paths| {
            let mut set = FieldSet::default();
            for path in paths {
                let names: Vec<&str> = path.iter().map(String::as_str).collect();
                set.unite(&FieldSet::of_fields(&[&names]));
            }
            set
        })
    }

    proptest! {
        #[test]
        fn sets_obey_the_laws_of_sets(a in any_set(), b in any_set()) {
            let (both, left) = (a.intersection(&b), a.difference(&b));
            prop_assert_eq!(&left.clone().union(&both), &a);
            prop_assert!(left.intersection(&b).is_empty());
            prop_assert_eq!(a.intersects(&b), !both.is_empty());
            prop_assert_eq!(a.clone().union(&b), b.clone().union(&a));
            prop_assert!(a.difference(&a).is_empty());
            prop_assert!(a.without_trees(&b).difference(&left).is_empty());
        }
    }
}
