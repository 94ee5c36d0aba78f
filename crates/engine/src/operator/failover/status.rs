//! What policies show of themselves: their status, and events when something is held back.

use std::collections::{BTreeMap, BTreeSet};

use evac_api::failover::policy::{PolicyObject, status, status_unread, write_status};
use evac_api::wire::{Meta, Named};
use evac_core::Uid;
use evac_core::action::Event;
use evac_core::cluster::subject::{Kind, ObjectRef};
use evac_core::failover::warnings::Cause;
use evac_core::failover::watchman::Standing;
use jiff::Timestamp;
use serde_json::Value;

use crate::events::publish;
use crate::http::{Http, parse};

/// What was written and told already.
#[derive(Default)]
pub(super) struct Book {
    written: BTreeMap<String, Value>,
    told: BTreeMap<String, BTreeSet<Cause>>,
    /// Policies of which something is being sent. What is newer waits for that and is then the newest.
    sending: BTreeSet<String>,
}

/// What is new about a policy.
pub(super) struct News {
    pub policy: String,
    status: Option<Value>,
    events: Vec<Event>,
    at: Timestamp,
}

impl Book {
    pub fn forget(&mut self, policy: &str) {
        self.written.remove(policy);
        self.told.remove(policy);
    }

    /// The status if it says something new, and what is newly held back. It counts as known from now on; see [`Self::sent`].
    pub fn enter(&mut self, object: &PolicyObject, standing: &Standing, now: Timestamp) -> Option<News> {
        let meta = &object.metadata;
        if self.sending.contains(&meta.name) {
            return None;
        }
        self.compare(meta, status(standing, object, now), standing.warnings(now), now)
    }

    /// What a policy says while nothing can be judged.
    pub fn enter_unread(&mut self, object: &PolicyObject, words: &str, now: Timestamp) -> Option<News> {
        if self.sending.contains(&object.metadata.name) {
            return None;
        }
        let mut warnings = BTreeMap::new();
        warnings.insert((String::new(), "CannotRead"), words.to_owned());
        self.compare(&object.metadata, status_unread(words, object, now), warnings, now)
    }

    fn compare(
        &mut self,
        meta: &Meta,
        next: Value,
        current: BTreeMap<Cause, String>,
        now: Timestamp,
    ) -> Option<News> {
        let key = comparable(&next);
        let status = (self.written.get(&meta.name) != Some(&key)).then_some(next);
        let before = self.told.get(&meta.name);
        let known = |what: &Cause| before.is_some_and(|before| before.contains(what));
        let about = ObjectRef::cluster(Kind::Policy, &meta.name, &Uid(meta.uid.as_str().into()));
        let new = current.iter().filter(|(what, _)| !known(what));
        let events: Vec<Event> =
            new.map(|(what, words)| Event::warning(about.clone(), what.1, words.clone())).collect();
        self.told.insert(meta.name.clone(), current.into_keys().collect());
        if status.is_none() && events.is_empty() {
            return None;
        }
        self.written.insert(meta.name.clone(), key);
        self.sending.insert(meta.name.clone());
        Some(News { policy: meta.name.clone(), status, events, at: now })
    }

    /// The news of a policy are out. A status that the server did not take is news again.
    pub fn sent(&mut self, policy: &str, taken: bool) {
        self.sending.remove(policy);
        if !taken {
            self.written.remove(policy);
        }
    }
}

impl News {
    /// Sends everything; false if the server did not take the status. An event that is lost stays lost.
    pub async fn send(&self, http: &Http) -> bool {
        let mut taken = true;
        if let Some(status) = &self.status {
            let answer = http.send(&write_status(&self.policy, status)).await;
            if let Err(error) = answer.and_then(|answer| parse::<Named>(&answer)) {
                tracing::warn!(policy = self.policy, %error, "status was not written");
                http.metrics().status_unwritten("FailoverPolicy");
                taken = false;
            }
        }
        publish(http, self.events.iter().cloned(), self.at).await;
        taken
    }
}

/// A status without its times: that a condition has held since another moment is not news.
fn comparable(status: &Value) -> Value {
    let mut status = status.clone();
    for condition in status["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(fields) = condition.as_object_mut() {
            fields.remove("lastTransitionTime");
        }
    }
    status
}
