//! Conditions, as instances, machines and migrations carry them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::action::Tree;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    // Times stay text: what others wrote goes back unchanged.
    pub last_probe_time: Option<String>,
    pub last_transition_time: Option<String>,
}

impl Condition {
    pub fn new(kind: &str, status: bool, reason: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            kind: kind.to_owned(),
            status: if status { "True" } else { "False" }.to_owned(),
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
            message: (!message.is_empty()).then_some(message),
            last_probe_time: None,
            last_transition_time: None,
        }
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.status == other.status && self.reason == other.reason && self.message == other.message
    }

    pub fn tree(&self) -> Tree {
        let text = |value: &Option<String>| value.clone().map_or(Tree::Null(()), Tree::Text);
        let mut fields = vec![
            ("type", Tree::text(&self.kind)),
            ("status", Tree::text(&self.status)),
            ("lastProbeTime", text(&self.last_probe_time)),
            ("lastTransitionTime", text(&self.last_transition_time)),
        ];
        if self.reason.is_some() {
            fields.push(("reason", text(&self.reason)));
        }
        if self.message.is_some() {
            fields.push(("message", text(&self.message)));
        }
        Tree::map(fields)
    }
}

pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

pub fn is_false(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "False")
}

/// A list of conditions under change; remembers whether anything became different.
#[derive(Debug)]
pub struct Conditions {
    list: Vec<Condition>,
    changed: bool,
}

impl Conditions {
    pub fn of(list: &[Condition]) -> Self {
        Self { list: list.to_vec(), changed: false }
    }

    /// Puts a condition in place; its transition time moves only if what it says changed.
    pub fn set(&mut self, mut wanted: Condition, now: Timestamp) {
        if let Some(known) = self.list.iter_mut().find(|known| known.kind == wanted.kind) {
            if known.says_the_same(&wanted) {
                return;
            }
            wanted.last_probe_time.clone_from(&known.last_probe_time);
            wanted.last_transition_time = Some(seconds(now));
            *known = wanted;
        } else {
            wanted.last_transition_time.get_or_insert_with(|| seconds(now));
            self.list.push(wanted);
        }
        self.changed = true;
    }

    pub fn remove(&mut self, kind: &str) {
        let before = self.list.len();
        self.list.retain(|condition| condition.kind != kind);
        self.changed |= self.list.len() != before;
    }

    pub fn list(&self) -> &[Condition] {
        &self.list
    }

    /// The whole list for a patch, if it changed.
    pub fn changed(&self) -> Option<Tree> {
        self.changed.then(|| Tree::List(self.list.iter().map(Condition::tree).collect()))
    }
}

/// A time as Kubernetes writes it: whole seconds.
pub fn seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saying_the_same_again_changes_nothing() {
        let now = "2026-01-01T00:00:00.5Z".parse().unwrap();
        let mut conditions = Conditions::of(&[]);
        conditions.set(Condition::new("Ready", true, "", ""), now);
        let written = conditions.list().to_vec();
        assert_eq!(written[0].last_transition_time.as_deref(), Some("2026-01-01T00:00:00Z"));
        let mut again = Conditions::of(&written);
        again.set(Condition::new("Ready", true, "", ""), "2026-02-01T00:00:00Z".parse().unwrap());
        assert!(again.changed().is_none());
        again.set(
            Condition::new("Ready", false, "PodTerminating", ""),
            "2026-02-01T00:00:00Z".parse().unwrap(),
        );
        assert!(again.changed().is_some());
    }
}
