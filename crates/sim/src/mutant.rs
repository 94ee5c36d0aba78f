//! Planted bugs: what evac would send if it had them. They prove that the oracles bite.
//!
//! A bug is planted on the line, between evac and the server, by sending something else than what evac sends, or nothing, or by answering something else than what
//! the server answers. So the product has no switch for them, and what is tried is the product as it is built.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

/// A bug that evac does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    NodesWithoutVersion,
    LedgerWithoutVersion,
    LeadershipWithoutVersion,
    ActsWithoutLeading,
    ConflictIsSuccess,
    LostIsUnsent,
    SendsTwice,
    DeletesInsteadOfEvicting,
    DeletesByForce,
    NewNameForEachMigration,
    EndsGuests,
    LiftsEveryCordon,
    LeavesTaints,
    LeavesMark,
    LeavesLease,
    KeepsNoRecord,
    CordonsWithoutMark,
    ReleasesWithoutProof,
    SaysNothing,
    NeverCallsOff,
}

/// A bug, in words, and the scenarios that attack what it breaks.
pub struct Planted {
    pub bug: Bug,
    pub words: &'static str,
    /// The invariant that it breaks.
    pub breaks: &'static str,
    pub scenarios: &'static [&'static str],
}

const fn plant(
    bug: Bug,
    breaks: &'static str,
    words: &'static str,
    scenarios: &'static [&'static str],
) -> Planted {
    Planted { bug, words, breaks, scenarios }
}

pub const ALL: [Planted; 20] = [
    plant(
        Bug::NodesWithoutVersion,
        "I5, I8",
        "nodes are written without the version that was judged",
        &["maintenance", "cancel", "failover", "drain-pods"],
    ),
    plant(
        Bug::LedgerWithoutVersion,
        "I3",
        "the ledger of slots is written without its version",
        &["drains-share", "evacuate-taint"],
    ),
    plant(
        Bug::LeadershipWithoutVersion,
        "I3, I11",
        "the lease of the leader is written without its version",
        &["evacuate-taint", "maintenance", "drains-share"],
    ),
    plant(
        Bug::ActsWithoutLeading,
        "I12, I14",
        "an operator writes although another one leads",
        &["maintenance", "cancel", "evacuate-taint"],
    ),
    plant(
        Bug::ConflictIsSuccess,
        "I5, I6",
        "a conflict counts as done",
        &["maintenance", "cancel", "drain-pods", "evacuate-taint"],
    ),
    plant(
        Bug::LostIsUnsent,
        "I6, I12",
        "a write whose answer was lost counts as not sent",
        &["maintenance", "cancel", "drain-pods", "evacuate-taint"],
    ),
    plant(
        Bug::SendsTwice,
        "I11, I14",
        "each write is sent twice",
        &["maintenance", "drain-budgets", "evacuate-taint"],
    ),
    plant(
        Bug::DeletesInsteadOfEvicting,
        "I7",
        "pods are deleted instead of evicted",
        &["drain-budgets", "drain-pods"],
    ),
    plant(Bug::DeletesByForce, "I1", "pods are deleted with a grace period of zero", &["drain-pods"]),
    plant(
        Bug::NewNameForEachMigration,
        "I11",
        "a migration has a new name at each try",
        &["evacuate-taint", "drains-share", "maintenance"],
    ),
    plant(
        Bug::EndsGuests,
        "I2",
        "a guest is ended instead of moved",
        &["evacuate-taint", "maintenance", "drains-share"],
    ),
    plant(Bug::LiftsEveryCordon, "I5", "a node that is given back is always uncordoned", &["cancel"]),
    plant(Bug::LeavesTaints, "I6", "the taints stay on a node that is given back", &["maintenance"]),
    plant(Bug::LeavesMark, "I6", "the mark stays on a node that is given back", &["maintenance"]),
    plant(Bug::LeavesLease, "I6", "the lease of a maintenance is not removed", &["maintenance"]),
    plant(Bug::KeepsNoRecord, "I5", "no record is kept outside the node", &["maintenance", "cancel"]),
    plant(Bug::CordonsWithoutMark, "I5, I6", "a node is cordoned without a mark", &["drain-pods", "cancel"]),
    plant(
        Bug::ReleasesWithoutProof,
        "I1",
        "a node is called out of service without a proof on it",
        &["failover"],
    ),
    plant(Bug::SaysNothing, "I4", "the status of a maintenance is not written", &["maintenance"]),
    plant(Bug::NeverCallsOff, "I13", "migrations are not called off when a maintenance ends", &["cancel"]),
];

impl Bug {
    pub fn word(self) -> String {
        let mut word = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !word.is_empty() {
                word.push('-');
            }
            word.extend(letter.to_lowercase());
        }
        word
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word())
    }
}

impl FromStr for Bug {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = ALL.iter().find(|one| one.bug.word() == text);
        found.map(|one| one.bug).ok_or_else(|| format!("there is no planted bug '{text}'"))
    }
}

/// A request as evac sends it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    pub method: String,
    /// With its query.
    pub path: String,
    pub body: Value,
}

/// What is sent in its place.
#[derive(Debug, Clone, PartialEq)]
pub enum Instead {
    /// This, perhaps changed.
    Send(Sent),
    /// This, twice.
    Twice(Sent),
    /// Nothing; the sender believes that it was done.
    Nothing,
}

const MARK: &str = "/metadata/annotations/evac.dev~1drain";

impl Bug {
    /// What is sent with this bug; `number` is that of the request.
    pub fn send(self, mut sent: Sent, number: usize) -> Instead {
        let path = sent.path.split('?').next().unwrap_or_default().to_owned();
        let node = path.starts_with("/api/v1/nodes/") && sent.method == "PATCH";
        let gives_back = node && sent.body.pointer(MARK).is_some_and(Value::is_null);
        let (create, delete) = (sent.method == "POST", sent.method == "DELETE");
        match self {
            Self::NodesWithoutVersion if node => forget(&mut sent.body, "/metadata", "resourceVersion"),
            Self::LedgerWithoutVersion if path.contains("/configmaps/") => {
                forget(&mut sent.body, "/metadata", "resourceVersion");
            }
            Self::LeadershipWithoutVersion if path.ends_with("/leases/evac-operator") => {
                forget(&mut sent.body, "/metadata", "resourceVersion");
            }
            Self::SendsTwice => return Instead::Twice(sent),
            Self::DeletesInsteadOfEvicting | Self::DeletesByForce if path.ends_with("/eviction") => {
                let mut options = sent.body["deleteOptions"].take();
                if self == Self::DeletesByForce {
                    options["gracePeriodSeconds"] = json!(0);
                }
                let path = path.trim_end_matches("/eviction").to_owned();
                sent = Sent { method: "DELETE".into(), path, body: options };
            }
            Self::NewNameForEachMigration if create && path.ends_with("migrations") => {
                let name = sent.body["metadata"]["name"].as_str().unwrap_or_default();
                sent.body["metadata"]["name"] = json!(format!("{name}-{number}"));
            }
            Self::EndsGuests if create && path.ends_with("migrations") => {
                let name = sent.body["spec"]["vmiName"].as_str().unwrap_or_default();
                let path = path.replace("virtualmachineinstancemigrations", "virtualmachineinstances");
                sent = Sent { method: "DELETE".into(), path: format!("{path}/{name}"), body: json!({}) };
            }
            Self::LiftsEveryCordon if gives_back => sent.body["spec"]["unschedulable"] = Value::Null,
            Self::LeavesTaints if gives_back => forget(&mut sent.body, "/spec", "taints"),
            Self::LeavesMark if gives_back => {
                forget(&mut sent.body, "/metadata/annotations", "evac.dev/drain");
            }
            Self::LeavesLease if delete && path.contains("/medik8s-leases/") => return Instead::Nothing,
            Self::KeepsNoRecord if path.contains("/leases") && !path.contains("evac-operator") => {
                forget(&mut sent.body, "/metadata/annotations", "evac.dev/record");
            }
            Self::CordonsWithoutMark if node && sent.body["spec"]["unschedulable"] == true => {
                forget(&mut sent.body, "/metadata/annotations", "evac.dev/drain");
            }
            Self::ReleasesWithoutProof if node => {
                forget(&mut sent.body, "/metadata/annotations", "evac.dev/fenced");
            }
            Self::SaysNothing if path.contains("/nodemaintenances/") && path.ends_with("/status") => {
                return Instead::Nothing;
            }
            Self::NeverCallsOff if delete && path.contains("/virtualmachineinstancemigrations/") => {
                return Instead::Nothing;
            }
            _ => {}
        }
        Instead::Send(sent)
    }
}

fn forget(body: &mut Value, object: &str, field: &str) {
    if let Some(map) = body.pointer_mut(object).and_then(Value::as_object_mut) {
        map.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bug_has_a_name_by_which_it_is_found() {
        for one in &ALL {
            assert_eq!(one.bug.word().parse(), Ok(one.bug));
            assert!(one.scenarios.iter().all(|name| crate::scenario::named(name).is_some()), "{}", one.bug);
        }
        assert_eq!(Bug::SendsTwice.word(), "sends-twice");
    }

    #[test]
    fn an_eviction_becomes_a_deletion_of_the_same_incarnation() {
        let sent = Sent {
            method: "POST".into(),
            path: "/api/v1/namespaces/a/pods/b/eviction".into(),
            body: json!({"deleteOptions": {"preconditions": {"uid": "u"}}}),
        };
        let instead = Bug::DeletesInsteadOfEvicting.send(sent.clone(), 0);
        let Instead::Send(instead) = instead else { panic!("{instead:?}") };
        assert_eq!((&*instead.method, &*instead.path), ("DELETE", "/api/v1/namespaces/a/pods/b"));
        assert_eq!(instead.body["preconditions"]["uid"], "u");
        assert_eq!(Bug::LeavesTaints.send(sent.clone(), 0), Instead::Send(sent), "that is another bug");
    }
}
