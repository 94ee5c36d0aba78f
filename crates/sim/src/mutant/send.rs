//! What evac would send with a planted bug.

use serde_json::{Value, json};

use super::Bug;

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
    /// The one, and after it the other.
    Both(Sent, Sent),
    /// Nothing; the sender believes that it was done.
    Nothing,
}

const FENCED: &str = "/metadata/annotations/evac.dev~1fenced";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
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
            _ => return self.send_more(sent, &path, number),
        }
        Instead::Send(sent)
    }

    fn send_more(self, mut sent: Sent, path: &str, number: usize) -> Instead {
        let node = path.starts_with("/api/v1/nodes/") && sent.method == "PATCH";
        let gives_back = node && sent.body.pointer(MARK).is_some_and(Value::is_null);
        let cordons = node && sent.body["spec"]["unschedulable"] == true;
        let status = path.contains("/nodemaintenances/") && path.ends_with("/status");
        let proof = text(&sent.body, FENCED);
        let untaints = node && !cordons && proof.is_none() && sent.body.pointer("/spec/taints").is_some();
        let proves = node && proof.is_some_and(|proof| !proof.contains("\"released\":true"));
        match self {
            Self::LeavesInstanceMarks if path.ends_with("/evacuate/cancel") => return Instead::Nothing,
            Self::CordonsAfterTheEnd if gives_back => {
                let again = Sent { body: json!({"spec": {"unschedulable": true}}), ..sent.clone() };
                return Instead::Both(sent, again);
            }
            Self::LedgerIsEmpty if path.contains("/configmaps") => sent.body["data"] = json!({}),
            Self::RemovesForeignTaints if gives_back => sent.body["spec"]["taints"] = Value::Null,
            Self::RemovesForeignLabels if gives_back => {
                sent.body["metadata"]["labels"]["kubevirt.io/schedulable"] = Value::Null;
            }
            Self::CordonIsNotSent if cordons => forget(&mut sent.body, "/spec", "unschedulable"),
            Self::KeepsFinalizer if path.contains("/nodemaintenances/") && !status => {
                return Instead::Nothing;
            }
            Self::SaysDoneEarly if status && sent.body["status"]["phase"] == "Running" => {
                sent.body["status"]["phase"] = json!("Succeeded");
            }
            Self::TakesProgressBack if status => {
                let progress = sent.body["status"]["drainProgress"].as_i64().unwrap_or_default();
                if progress > 1 && number % 2 == 1 {
                    sent.body["status"]["drainProgress"] = json!(1);
                }
            }
            Self::TakesPhaseBack if status && sent.body["status"]["phase"] == "Succeeded" => {
                sent.body["status"]["phase"] = Value::Null;
            }
            Self::DrainLeaseStays
                if path.contains("/leases/evac-drain-")
                    && sent.body.pointer("/spec/holderIdentity").is_some_and(Value::is_null) =>
            {
                return Instead::Nothing;
            }
            Self::ReleasesAtOnce if proves => {
                let taint = json!({"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"});
                sent.body["spec"]["taints"] = json!([taint]);
            }
            Self::TaintStays if untaints => return Instead::Nothing,
            Self::ProofStays if node && sent.body.pointer(FENCED).is_some_and(Value::is_null) => {
                return Instead::Nothing;
            }
            Self::MigrationsAreNobodys if sent.method == "POST" && path.ends_with("migrations") => {
                forget(&mut sent.body, "/metadata", "annotations");
            }
            Self::CordonsAnotherNode if cordons => {
                sent.path = sent.path.replace("/nodes/node-1", "/nodes/node-2");
                forget(&mut sent.body, "/metadata", "resourceVersion");
                forget(&mut sent.body, "/metadata", "uid");
            }
            Self::StopsAtTheNode => {
                let lease = path.contains("/leases/") && sent.method == "DELETE";
                let migration =
                    path.contains("/virtualmachineinstancemigrations/") && sent.method == "DELETE";
                if lease || migration || path.ends_with("/evacuate/cancel") {
                    return Instead::Nothing;
                }
            }
            _ => {}
        }
        Instead::Send(sent)
    }
}

fn text<'a>(body: &'a Value, pointer: &str) -> Option<&'a str> {
    body.pointer(pointer).and_then(Value::as_str)
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
