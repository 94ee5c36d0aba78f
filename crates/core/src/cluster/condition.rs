//! Conditions, as pods, instances, machines and migrations carry them.

use serde::{Deserialize, Serialize};

/// One condition.
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
