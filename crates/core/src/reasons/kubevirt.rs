//! What is told of a cluster's KubeVirt, and of migrations left in its hands.

use super::Severity::{Note, Warning};
use super::table::family;

family! {
    /// What a drain of a node with guests has to say of KubeVirt.
    KubeVirtReason in Reason::KubeVirt {
        title: "KubeVirt",
        told: "With the event `noted`: of KubeVirt itself before the guests of a node are moved, of a \
               migration that is left at the end of the drain.",
        subject: Node,
    }

    /// virt-operator says another phase than Deployed.
    KubeVirtNotDeployed {
        /// The phase of the KubeVirt object.
        phase: String = "Deploying".into(),
    } => {
        severity: Note,
        sentence: (
            "has guests of KubeVirt, which is not ready (virt-operator says {phase}): they wait here until \
             virt-api and virt-controller work"
        ),
    }

    /// A version with which evac was not tested.
    KubeVirtUntested {
        /// The version that virt-operator has installed.
        version: String = "v2.1.0".into(),
        /// The versions with which it was.
        #[serde(skip)]
        tested: &'static str = "v1.8",
    } => {
        severity: Note,
        sentence: (
            "has guests of KubeVirt {version}, with which evac was not tested (it was with {tested}); the \
             drain goes on all the same"
        ),
    }

    /// A migration of this drain that could not be called off.
    VmMigrationLeft {
        /// The VirtualMachineInstanceMigration.
        migration: String = "shop/evac-db-1".into(),
        /// The answer of the server.
        message: String = "the server answered 503: apiserver is shutting down".into(),
    } => {
        severity: Warning,
        sentence: ("keeps migration {migration}, which this drain asked for and could not call off: \
                    {message}"),
    }
}
