//! What a role wants done and told about one subject.

use jiff::Timestamp;

use super::{Action, Part, Tree};
use crate::cluster::subject::ObjectRef;
use crate::cluster::table::Object;

/// What to do and tell now, and when to look again even if nothing is heard. `A` is one action, `E` what is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<A, E = Event> {
    /// What to carry out, in this order.
    pub actions: Vec<A>,
    /// What to tell.
    pub events: Vec<E>,
    /// When to decide again, if nothing happens until then.
    pub look_again: Option<Timestamp>,
}

/// An event about an object, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub about: ObjectRef,
    /// Whether it is a warning.
    pub warning: bool,
    /// The reason in one word.
    pub reason: &'static str,
    /// The sentence.
    pub message: String,
    /// How many actions of its decision come before it: it is published once they are carried out.
    pub after: usize,
}

impl Event {
    /// What went as it should.
    pub fn normal(about: impl Into<ObjectRef>, reason: &'static str, message: impl Into<String>) -> Self {
        Self { about: about.into(), warning: false, reason, message: message.into(), after: 0 }
    }

    /// What a person should look at.
    pub fn warning(about: impl Into<ObjectRef>, reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: true, ..Self::normal(about, reason, message) }
    }
}

impl<A, E> Default for Decision<A, E> {
    fn default() -> Self {
        Self { actions: Vec::new(), events: Vec::new(), look_again: None }
    }
}

impl<A, E> Decision<A, E> {
    /// There is nothing to do or to tell.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// These actions and nothing else.
    pub fn of(actions: impl IntoIterator<Item = A>) -> Self {
        Self { actions: actions.into_iter().collect(), ..Self::default() }
    }

    /// One more action.
    pub fn push(&mut self, action: A) {
        self.actions.push(action);
    }

    /// Has it decided again at this time, or sooner if that was asked for before.
    pub fn look_at(&mut self, at: Timestamp) {
        self.look_again = Some(self.look_again.map_or(at, |known| known.min(at)));
    }

    /// The same, decided again at this time at the latest.
    #[must_use]
    pub fn until(mut self, at: Timestamp) -> Self {
        self.look_at(at);
        self
    }

    /// Whether there is nothing to carry out and nothing to tell.
    pub fn is_idle(&self) -> bool {
        self.actions.is_empty() && self.events.is_empty()
    }
}

impl<A> Decision<A> {
    /// Has an event published once the actions so far are carried out.
    pub fn tell(&mut self, event: Event) {
        self.events.push(Event { after: self.actions.len(), ..event });
    }

    /// The same with an event that is published once the actions so far are carried out.
    #[must_use]
    pub fn telling(mut self, event: Event) -> Self {
        self.tell(event);
        self
    }

    /// What another role decided about the same subject, after this.
    pub fn append(&mut self, more: Self) {
        let before = self.actions.len();
        self.actions.extend(more.actions);
        let later = more.events.into_iter().map(|event| Event { after: event.after + before, ..event });
        self.events.extend(later);
    }
}

impl<O> Decision<Action<O>> {
    /// Deletes this object.
    pub fn delete(&mut self, object: impl Into<ObjectRef>) {
        self.push(Action::Delete { object: object.into(), grace_seconds: None, dry_run: false });
    }

    /// Changes this object as it was looked at.
    pub fn patch<'a, T>(&mut self, object: &'a T, part: Part, fields: Tree)
    where
        T: Object,
        ObjectRef: From<&'a T>,
    {
        let version = object.version().clone();
        self.push(Action::Patch { object: object.into(), version, part, fields });
    }
}
