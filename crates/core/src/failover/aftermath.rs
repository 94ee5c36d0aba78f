//! After the release: what is still to come, and when it is over.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::course::Release;
use super::guests::{GuestFate, returned};
use crate::fact::{Key, Pod, Uid};
use crate::machines::{Instance, Machines};

/// A node that was released, and what was on it then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aftermath {
    pub node: String,
    pub guests: Vec<GuestFate>,
    pods: Vec<(Key, Uid)>,
    released: Timestamp,
    how: Release,
}

/// What has not happened yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Remains {
    /// Guests that should run and do not yet, with the phase of their new instance if there is one.
    pub guests: Vec<Missing>,
    pub pods: Vec<Key>,
    pub attachments: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    pub instance: Key,
    pub phase: Option<&'static str>,
}

impl Missing {
    pub fn words(&self) -> String {
        match self.phase {
            None => format!("vm {} has no new instance yet", self.instance),
            Some(phase) => format!("vm {} has a new instance that is {phase}", self.instance),
        }
    }
}

impl Remains {
    pub fn is_nothing(&self) -> bool {
        self.guests.is_empty() && self.pods.is_empty() && self.attachments.is_empty()
    }
}

impl Aftermath {
    pub fn new(node: &str, guests: Vec<GuestFate>, pods: &[Pod], released: Timestamp, how: Release) -> Self {
        // Agents that belong to every node tolerate everything and come back with it.
        let pods = pods
            .iter()
            .filter(|pod| !pod.mirror && pod.daemon_set().is_none())
            .map(|pod| (pod.key.clone(), pod.uid.clone()))
            .collect();
        Self { node: node.to_owned(), guests, pods, released, how }
    }

    /// When a pod that nobody has begun to remove is not going to be: it tolerates the taint, or is held by somebody else.
    pub fn patience_ends(&self) -> Timestamp {
        let patience = match self.how {
            Release::Taint => SignedDuration::from_secs(60),
            // Orphans are collected after 40 seconds, every 20 seconds.
            Release::DeleteNode => SignedDuration::from_secs(120),
        };
        self.released.checked_add(patience).unwrap_or(self.released)
    }

    pub fn remains(
        &self,
        machines: &Machines,
        pods: &[Pod],
        attachments: Vec<String>,
        now: Timestamp,
    ) -> Remains {
        let fresh = |guest: &GuestFate| -> Option<&Instance> {
            machines.instance(&guest.instance).filter(|it| it.uid != guest.uid)
        };
        let guests = self
            .guests
            .iter()
            .filter(|guest| guest.fate.returns() && returned(machines, guest, &self.node).is_none())
            .map(|guest| Missing {
                instance: guest.instance.clone(),
                phase: fresh(guest).map(|it| it.phase.text()),
            })
            .collect();
        let patient = now < self.patience_ends();
        let pods = pods
            .iter()
            .filter(|pod| self.pods.iter().any(|(key, uid)| *key == pod.key && *uid == pod.uid))
            .filter(|pod| patient || pod.deletion.is_some())
            .map(|pod| pod.key.clone())
            .collect();
        Remains { guests, pods, attachments }
    }

    /// Those that do not come back by themselves.
    pub fn stay_off(&self) -> impl Iterator<Item = &GuestFate> {
        self.guests.iter().filter(|guest| !guest.fate.returns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::guests::Fate;
    use crate::machines::testing::{instance, view};
    use crate::machines::{Phase, Seen};
    use crate::testing::{at, pod};

    fn guest(name: &str, fate: Fate) -> GuestFate {
        let old = instance(name, Phase::Running);
        GuestFate { instance: old.key, uid: old.uid, fate }
    }

    fn always() -> Fate {
        Fate::Returns { strategy: "Always".into() }
    }

    #[test]
    fn it_is_over_when_everyone_who_returns_runs_elsewhere_and_nothing_is_left() {
        let guests = vec![guest("a", always()), guest("b", Fate::Ends)];
        let pods = [pod("p").on("n1"), pod("agent").on("n1").owned_by("DaemonSet", "apps/v1", "agent")];
        let after = Aftermath::new("n1", guests, &pods, at(0), Release::Taint);
        let none = view([]);
        let remains = after.remains(&none, &pods, vec!["disk".into()], at(1));
        assert_eq!(remains.guests, [Missing { instance: Key::new("default", "a"), phase: None }]);
        assert_eq!(remains.pods, [Key::new("default", "p")]);
        assert_eq!(remains.attachments, ["disk"]);
        let mut back = instance("a", Phase::Scheduling);
        back.uid = Uid("new".into());
        let seen = view([Seen::Instance(Box::new(back.clone()))]);
        assert_eq!(after.remains(&seen, &[], vec![], at(2)).guests[0].phase, Some("Scheduling"));
        (back.phase, back.node) = (Phase::Running, "n2".into());
        let seen = view([Seen::Instance(Box::new(back))]);
        assert!(after.remains(&seen, &[], vec![], at(3)).is_nothing());
        assert_eq!(after.stay_off().count(), 1);
    }

    #[test]
    fn pods_that_nobody_removes_are_not_waited_for_for_ever_and_pods_that_are_leaving_are() {
        let stays = [pod("p").on("n1")];
        let after = Aftermath::new("n1", Vec::new(), &stays, at(0), Release::Taint);
        assert_eq!(after.remains(&view([]), &stays, vec![], at(59)).pods.len(), 1);
        assert!(after.remains(&view([]), &stays, vec![], at(60)).is_nothing());
        let leaving = [pod("p").on("n1").deleting(30, 30)];
        assert_eq!(after.remains(&view([]), &leaving, vec![], at(600)).pods.len(), 1);
        let anew = [pod("p").on("n1").uid("another")];
        assert!(after.remains(&view([]), &anew, vec![], at(1)).is_nothing(), "another pod of that name");
    }
}
