//! Conditions, as pods, instances, machines and migrations carry them.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::text::Text;
use super::written_time::WrittenTime;

/// What a condition says, apart from when: the same on most objects of a kind, so it is shared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Said {
    /// Which condition it is.
    pub kind: Text,
    /// `True`, `False` or `Unknown`.
    pub status: Text,
    /// Why, in one word.
    pub reason: Option<Text>,
    /// Why, in a sentence.
    pub message: Option<Text>,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Form", into = "Form")]
pub struct Condition {
    pub(crate) said: Arc<Said>,
    /// When it was last looked at.
    pub last_probe_time: Option<WrittenTime>,
    /// Since when it says this.
    pub last_transition_time: Option<WrittenTime>,
}

/// A condition as it is written.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Form {
    r#type: Text,
    status: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Text>,
    // What others wrote goes back unchanged.
    last_probe_time: Option<WrittenTime>,
    last_transition_time: Option<WrittenTime>,
}

impl From<Form> for Condition {
    fn from(form: Form) -> Self {
        let Form { r#type, status, reason, message, last_probe_time, last_transition_time } = form;
        Self {
            said: Arc::new(Said { kind: r#type, status, reason, message }),
            last_probe_time,
            last_transition_time,
        }
    }
}

impl From<Condition> for Form {
    fn from(condition: Condition) -> Self {
        let Said { kind, status, reason, message } = Arc::unwrap_or_clone(condition.said);
        let Condition { last_probe_time, last_transition_time, .. } = condition;
        Self { r#type: kind, status, reason, message, last_probe_time, last_transition_time }
    }
}

impl Deref for Condition {
    type Target = Said;

    fn deref(&self) -> &Said {
        &self.said
    }
}

impl DerefMut for Condition {
    fn deref_mut(&mut self) -> &mut Said {
        Arc::make_mut(&mut self.said)
    }
}

impl From<Said> for Condition {
    fn from(said: Said) -> Self {
        Self { said: Arc::new(said), last_probe_time: None, last_transition_time: None }
    }
}

impl Condition {
    /// A condition without times; an empty `reason` or `message` is left out.
    pub fn new(kind: &str, status: bool, reason: &str, message: impl Into<Text>) -> Self {
        let message = message.into();
        Self::from(Said {
            kind: kind.into(),
            status: if status { "True" } else { "False" }.into(),
            reason: (!reason.is_empty()).then(|| reason.into()),
            message: (!message.is_empty()).then_some(message),
        })
    }

    /// Whether it says the same as another, whenever that was written.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.status == other.status && self.reason == other.reason && self.message == other.message
    }
}

/// The condition of that type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Whether the condition is there and true.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

/// Whether the condition is there and false.
pub fn is_false(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "False")
}
