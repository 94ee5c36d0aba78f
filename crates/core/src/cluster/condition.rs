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
    times: Times,
}

/// The times of a condition: mostly one, so that two do not make every condition larger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Times {
    #[default]
    None,
    /// Since when it says this, in seconds.
    Since(i64),
    Other(Box<(Option<WrittenTime>, Option<WrittenTime>)>),
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
        Self::from(Said { kind: r#type, status, reason, message }).at(last_probe_time, last_transition_time)
    }
}

impl From<Condition> for Form {
    fn from(condition: Condition) -> Self {
        let (last_probe_time, last_transition_time) =
            (condition.last_probe_time(), condition.last_transition_time());
        let Said { kind, status, reason, message } = Arc::unwrap_or_clone(condition.said);
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
        Self { said: Arc::new(said), times: Times::None }
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

    /// When it was last looked at.
    pub fn last_probe_time(&self) -> Option<WrittenTime> {
        match &self.times {
            Times::None | Times::Since(_) => None,
            Times::Other(times) => times.0.clone(),
        }
    }

    /// Since when it says this.
    pub fn last_transition_time(&self) -> Option<WrittenTime> {
        match &self.times {
            Times::None => None,
            Times::Since(seconds) => Some(WrittenTime::of(*seconds)),
            Times::Other(times) => times.1.clone(),
        }
    }

    /// The same with other times: when it was last looked at, and since when it says this.
    #[must_use]
    pub fn at(self, probe: Option<WrittenTime>, transition: Option<WrittenTime>) -> Self {
        let seconds = transition.as_ref().map(WrittenTime::seconds);
        let times = match (probe, seconds) {
            (None, None) => Times::None,
            (None, Some(Some(seconds))) => Times::Since(seconds),
            (probe, _) => Times::Other(Box::new((probe, transition))),
        };
        Self { times, ..self }
    }

    /// The same, said since then.
    #[must_use]
    pub fn since(self, transition: Option<WrittenTime>) -> Self {
        let probe = self.last_probe_time();
        self.at(probe, transition)
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
