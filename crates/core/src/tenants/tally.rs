//! The events of the drain of a tenant's node, added up to what its host is told.

use std::collections::BTreeMap;

use super::progress::plain;
use super::work::Count;
use crate::assess::Fate;
use crate::fact::Key;
use crate::step::Event;

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
