//! Conditions under change, and how they are written.

use jiff::Timestamp;

use super::action::Tree;
pub use crate::cluster::condition::{Condition, find, is_false, is_true};
use crate::cluster::written_time::WrittenTime;

impl Condition {
    /// As it is written in a patch.
    pub fn tree(&self) -> Tree {
        let time =
            |value: Option<WrittenTime>| value.map_or(Tree::Null(()), |time| Tree::text(time.to_string()));
        let mut fields = vec![
            ("type", Tree::text(&self.kind)),
            ("status", Tree::text(&self.status)),
            ("lastProbeTime", time(self.last_probe_time())),
            ("lastTransitionTime", time(self.last_transition_time())),
        ];
        fields.extend(self.reason.as_ref().map(|reason| ("reason", Tree::text(reason))));
        fields.extend(self.message.as_ref().map(|message| ("message", Tree::text(message))));
        Tree::map(fields)
    }
}

/// A list of conditions under change; remembers whether anything became different.
#[derive(Debug)]
pub struct Conditions {
    list: Vec<Condition>,
    changed: bool,
}

impl Conditions {
    /// The conditions of an object, unchanged yet.
    pub fn of(list: &[Condition]) -> Self {
        Self { list: list.to_vec(), changed: false }
    }

    /// Puts a condition in place; its transition time moves only if what it says changed.
    pub fn set(&mut self, wanted: Condition, now: Timestamp) {
        if let Some(known) = self.list.iter_mut().find(|known| known.kind == wanted.kind) {
            if known.says_the_same(&wanted) {
                return;
            }
            *known = wanted.at(known.last_probe_time(), Some(seconds(now).into()));
        } else {
            let since = wanted.last_transition_time().unwrap_or_else(|| seconds(now).into());
            self.list.push(wanted.since(Some(since)));
        }
        self.changed = true;
    }

    /// Takes the condition of this type away, if it is there.
    pub fn remove(&mut self, kind: &str) {
        let before = self.list.len();
        self.list.retain(|condition| condition.kind != kind);
        self.changed |= self.list.len() != before;
    }

    /// The conditions as they are by now.
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
        assert_eq!(written[0].last_transition_time(), Some("2026-01-01T00:00:00Z".into()));
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
