//! Planted bugs: what evac would send, or not see, if it had them. They prove that the oracles bite.
//!
//! A bug is planted on the line, between evac and the server: something else is sent than what evac sends ([`send`]), or nothing, or evac is shown
//! something else than what the server shows ([`show`]). So the product has no switch for them, and what is tried is the product as it is built.

pub mod send;
pub mod show;

use std::fmt;
use std::str::FromStr;

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
    LeavesInstanceMarks,
    CordonsAfterTheEnd,
    LedgerIsEmpty,
    RemovesForeignTaints,
    RemovesForeignLabels,
    CordonIsNotSent,
    KeepsFinalizer,
    SaysDoneEarly,
    TakesProgressBack,
    TakesPhaseBack,
    DrainLeaseStays,
    RefusalIsSuccess,
    ReleasesAtOnce,
    TaintStays,
    ProofStays,
    MigrationsAreNobodys,
    CordonsAnotherNode,
    MarksUnseen,
    LeasesLapseAtOnce,
    RecordsUnseen,
    CopyingLooksOver,
    ReadinessUnseen,
    SignsUnseen,
    OldServer,
    DeletionsUnseen,
    TaintsUnseen,
    PodsUnseen,
    InstanceMarksUnseen,
    GuestsLookUnmovable,
    NodesStandStill,
    StopsAtTheNode,
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

pub const ALL: [Planted; 51] = [
    plant(
        Bug::NodesWithoutVersion,
        "I5, I8",
        "nodes are written without the version that was judged",
        &["maintenance", "cancel", "failover-policy", "drain-pods"],
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
        &["failover-policy"],
    ),
    plant(Bug::SaysNothing, "I4", "the status of a maintenance is not written", &["maintenance"]),
    plant(Bug::NeverCallsOff, "I13", "migrations are not called off when a maintenance ends", &["cancel"]),
    plant(
        Bug::LeavesInstanceMarks,
        "I6",
        "the marks on instances stay when a node is given back (as in kubevirt 5177)",
        &["cancel"],
    ),
    plant(
        Bug::CordonsAfterTheEnd,
        "I5",
        "a node is cordoned again after it was given back (as in NMO 154)",
        &["maintenance"],
    ),
    plant(
        Bug::LedgerIsEmpty,
        "I3",
        "the ledger is written without its slots",
        &["evacuate-taint", "drains-share"],
    ),
    plant(
        Bug::RemovesForeignTaints,
        "I5",
        "all taints go when a node is given back",
        &["tug", "maintenance"],
    ),
    plant(
        Bug::RemovesForeignLabels,
        "I5",
        "a label of others goes when a node is given back",
        &["maintenance"],
    ),
    plant(Bug::CordonIsNotSent, "I8", "pods are evicted from a node that is not cordoned", &["drain-pods"]),
    plant(
        Bug::KeepsFinalizer,
        "I6",
        "the finalizer of a maintenance is not taken off (as in NMO 37)",
        &["maintenance"],
    ),
    plant(
        Bug::SaysDoneEarly,
        "I4",
        "a maintenance is called done while its node is being emptied",
        &["maintenance"],
    ),
    plant(Bug::TakesProgressBack, "I12", "the progress of a maintenance goes back", &["maintenance"]),
    plant(Bug::TakesPhaseBack, "I12", "the phase of a maintenance is taken back", &["maintenance"]),
    plant(Bug::DrainLeaseStays, "I6", "the lease of a drain is not removed", &["drain-pods"]),
    plant(
        Bug::RefusalIsSuccess,
        "I4",
        "an eviction that a budget refuses counts as granted (as kubectl 172 waits for ever)",
        &["drain-budgets"],
    ),
    plant(
        Bug::ReleasesAtOnce,
        "I1",
        "a node is called out of service with the proof, without two lease intervals of silence (W2)",
        &["failover-policy"],
    ),
    plant(Bug::TaintStays, "I6", "the taint of a dead machine stays on its node", &["failover-policy"]),
    plant(Bug::ProofStays, "I6", "the proof stays on a node that is back", &["failover-policy"]),
    plant(
        Bug::MigrationsAreNobodys,
        "I13",
        "migrations do not say for which node they were asked for (as in kubevirt 9585)",
        &["cancel"],
    ),
    plant(
        Bug::CordonsAnotherNode,
        "I5",
        "another node is cordoned than the one that was asked for",
        &["drain-pods", "maintenance"],
    ),
    plant(Bug::MarksUnseen, "I8", "marks of others are not seen (W17)", &["tug"]),
    plant(
        Bug::LeasesLapseAtOnce,
        "I8",
        "leases of remediation count as lapsed (W8; as NMO uncordons what another holds)",
        &["tug"],
    ),
    plant(
        Bug::RecordsUnseen,
        "I5",
        "the record outside the node is not seen (W16)",
        &["cancel", "maintenance"],
    ),
    plant(
        Bug::CopyingLooksOver,
        "I3",
        "a migration that is copied counts as over (as in kubevirt 15201)",
        &["evacuate-taint", "drains-share"],
    ),
    plant(Bug::ReadinessUnseen, "I1", "that a node is Ready is not seen (W6)", &["failover-policy"]),
    plant(Bug::SignsUnseen, "I1", "renewals of a kubelet's lease are not seen (W1)", &["failover-policy"]),
    plant(Bug::OldServer, "I1", "the server's version is read as an old one (W18)", &["failover-policy"]),
    plant(Bug::DeletionsUnseen, "I13", "that a maintenance is deleted is not seen", &["cancel"]),
    plant(Bug::TaintsUnseen, "I4", "the taint that asks for an evacuation is not seen", &["evacuate-taint"]),
    plant(Bug::PodsUnseen, "I4", "pods on a node are not seen", &["drain-pods"]),
    plant(Bug::InstanceMarksUnseen, "I6", "marks on instances are not seen", &["cancel"]),
    plant(
        Bug::GuestsLookUnmovable,
        "I4",
        "that a guest can be moved is not seen",
        &["evacuate-taint", "drains-share"],
    ),
    plant(
        Bug::NodesStandStill,
        "I4",
        "changes of nodes are not heard (as opensearch 1471 acts on a stale cache)",
        &["evacuate-taint", "maintenance"],
    ),
    plant(
        Bug::StopsAtTheNode,
        "I6",
        "what follows the node when it is given back is not done",
        &["maintenance", "cancel"],
    ),
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
}
