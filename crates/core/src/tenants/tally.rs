//! The events of the drain of a tenant's node, added up to what its host is told.

use std::collections::BTreeMap;

use super::work::Count;
use crate::cluster::fact::Key;
use crate::cluster::tenant::plain;
use crate::drain::assess::Fate;
use crate::drain::step::Event;

/// What the events of a drain come to so far.
#[derive(Debug, Default)]
pub struct Tally {
    count: Count,
    /// The node is ours; before that nothing is reported.
    begun: bool,
    /// What is in the way of which pod.
    held_up: BTreeMap<Key, String>,
}

impl Tally {
    /// Takes an event in; gives the count if it became another.
    pub fn take(&mut self, event: &Event) -> Option<Count> {
        let before = (self.begun, self.count.clone());
        match event {
            Event::Planned { assessment, .. } => {
                let moving = assessment.verdicts.iter().filter(|verdict| verdict.fate != Fate::Leave);
                self.count.total = moving.count();
                self.count.left = self.count.total;
            }
            Event::Cordoned { .. } | Event::AlreadyCordoned { .. } => self.begun = true,
            Event::Progress { left, total, .. } => {
                self.begun = true;
                (self.count.left, self.count.total) = (*left, *total);
            }
            Event::Waiting { blocker, also, .. } => {
                self.begun = true;
                let sentence = plain(&format!("pod {} {}", blocker.pod, blocker.reason.message()));
                for pod in also.iter().chain([&blocker.pod]) {
                    self.held_up.insert(pod.clone(), sentence.clone());
                }
            }
            Event::Left { pod, .. } | Event::Moved { pod, .. } | Event::Evicting { pod, .. } => {
                self.held_up.remove(pod);
            }
            _ => {}
        }
        self.count.blocker = self.held_up.values().next().cloned();
        (self.begun && before != (self.begun, self.count.clone())).then(|| self.count.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::assess::assess;
    use crate::drain::policy::Policy;
    use crate::drain::run::Blocker;
    use crate::reasons::{AnswerReason, Reason};
    use crate::testing::{self, at, index};

    fn pod(name: &str) -> Key {
        Key::new("shop", name)
    }

    fn waiting(name: &str, also: &[&str], reason: Reason) -> Event {
        Event::Waiting {
            node: "worker-1".into(),
            blocker: Blocker { pod: pod(name), owner: None, reason, since: at(0) },
            also: also.iter().map(|name| pod(name)).collect(),
        }
    }

    fn left(name: &str) -> Event {
        Event::Left { pod: pod(name), node: "worker-1".into(), by_us: true, deleting: false }
    }

    fn progress(left: usize) -> Event {
        Event::Progress { node: "worker-1".into(), left, total: 2, vms_left: 0, vms_total: 0 }
    }

    #[test]
    fn nothing_is_reported_before_the_node_is_ours() {
        let mut tally = Tally::default();
        let there = index(vec![testing::pod("a")], Vec::new());
        let assessment = assess(&there, &Policy::default(), "n", at(0));
        assert_eq!(tally.take(&Event::Planned { node: "n".into(), assessment }), None);
        let first = tally.take(&Event::Cordoned { node: "worker-1".into() });
        assert_eq!(first, Some(Count { left: 1, total: 1, blocker: None }));
        assert_eq!(tally.take(&Event::Cordoned { node: "worker-1".into() }), None, "once");
    }

    #[test]
    fn what_is_in_the_way_is_forgotten_with_the_last_pod_it_holds_up() {
        let mut tally = Tally::default();
        tally.take(&progress(2));
        let seen = tally
            .take(&waiting("a", &["b"], Reason::Answer(AnswerReason::Throttled)))
            .unwrap()
            .blocker
            .unwrap();
        assert!(seen.starts_with("pod shop/a "), "{seen}");
        assert_eq!(tally.take(&left("a")), None, "b waits for the same");
        assert_eq!(tally.take(&left("b")).unwrap().blocker, None);
        assert_eq!(tally.take(&progress(0)).unwrap(), Count { left: 0, total: 2, blocker: None });
    }

    #[test]
    fn words_of_the_tenant_are_cleaned_before_they_leave_it() {
        let mut tally = Tally::default();
        let message = "no\u{1b}[2J\nway".to_owned();
        let refused = Reason::Answer(AnswerReason::WebhookRefused { webhook: "hook".into(), message });
        let blocker = tally.take(&waiting("a", &[], refused)).unwrap().blocker.unwrap();
        assert!(!blocker.chars().any(char::is_control), "{blocker:?}");
    }
}
