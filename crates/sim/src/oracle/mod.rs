//! What must never happen, seen from outside: each oracle looks at every commit of the store at the moment it is made.
//!
//! None of them asks evac anything. Who has written is known from the line a request came on, everything else from the objects themselves.

mod budgets;
mod guests;
mod limits;
mod nodes;
mod progress;

use std::cell::OnceCell;

use evac_apiserver::server::Api;
use evac_apiserver::store::{Change, ChangeKind, Object};
use serde_json::Value;

use crate::book::Book;

/// One commit.
pub struct Seen<'a> {
    /// Milliseconds since the run began.
    pub at: i64,
    /// The process or person on whose behalf it was made.
    pub author: &'a str,
    pub resource: &'a str,
    change: &'a Change,
    now: OnceCell<Value>,
    before: OnceCell<Value>,
}

impl Seen<'_> {
    /// Whether evac has written this.
    pub fn by_evac(&self) -> bool {
        is_evac(self.author)
    }

    /// `namespace/name`, or `name`.
    pub fn key(&self) -> &str {
        self.change.key.as_str()
    }

    pub fn deleted(&self) -> bool {
        self.change.kind == ChangeKind::Deleted
    }

    pub fn object(&self) -> &Value {
        self.now.get_or_init(|| self.change.object.value())
    }

    /// As it was; null if there was nothing.
    pub fn before(&self) -> &Value {
        self.before.get_or_init(|| self.change.previous.as_ref().map(Object::value).unwrap_or_default())
    }
}

/// Whether an actor of this name is evac: its operators are `operator-N`, its drains `drain-…`, and failovers of people `failover-…`.
pub fn is_evac(author: &str) -> bool {
    author.starts_with("operator-") || is_command(author)
}

/// Whether it is evac as a person runs it. The name is the owner's then.
pub fn is_command(author: &str) -> bool {
    author.starts_with("drain-") || author.starts_with("failover-")
}

/// One rule, or some that look at the same objects.
pub trait Oracle: Send {
    /// The violations that this commit is, each with its invariant.
    fn see(&mut self, seen: &Seen<'_>, violate: &mut dyn FnMut(&'static str, String));
}

/// Lets all oracles look at every commit from now on, and writes each commit into the book.
pub fn watch(api: &Api, book: &Book) {
    let mut oracles: Vec<Box<dyn Oracle>> = vec![
        Box::<guests::Guests>::default(),
        Box::<limits::Limits>::default(),
        Box::<nodes::Nodes>::default(),
        Box::<budgets::Budgets>::default(),
        Box::<progress::Progress>::default(),
    ];
    let book = book.clone();
    api.store.observe(move |resource, change| {
        book.commit(resource, change);
        let author = book.writing();
        let (now, before) = (OnceCell::new(), OnceCell::new());
        let seen = Seen { at: book.millis(), author: &author, resource, change, now, before };
        let mut found = Vec::new();
        for oracle in &mut oracles {
            oracle.see(&seen, &mut |rule, words| found.push((rule, words)));
        }
        for (rule, words) in found {
            book.violate(rule, words);
        }
    });
}

/// A text in an object, or nothing.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn has(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).is_some_and(|value| !value.is_null())
}
