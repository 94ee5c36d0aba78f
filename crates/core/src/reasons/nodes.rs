//! Why a node could not be taken out of service, or is not any more.

use super::Severity::{Never, Note};
use super::table::family;

family! {
    /// What is the matter with the node itself or with its cordon.
    NodeReason in Reason::Node {
        title: "Nodes",
        told: "In `reason` of the ends `failed` and `refused`; `ForeignCordon` with the event `noted`.",
        subject: Node,
    }

    /// There is no such node.
    NodeMissing => {
        severity: Never,
        sentence: ("does not exist"),
        remedy: ("check its name: kubectl get nodes"),
    }

    /// The server did not take the cordon.
    CordonRefused {
        /// The answer of the server.
        message: String = "User \"kim\" cannot patch resource \"nodes\"".into(),
    } => {
        severity: Never,
        sentence: ("could not be cordoned: {message}"),
        remedy: ("ask for the right to patch nodes"),
    }

    /// The answer to the cordon was lost, and the node could not be read afterwards.
    CordonUnknown {
        /// What became of the cordon.
        message: String = "the server answered 500: etcdserver: request timed out".into(),
        /// Why the node could not be read.
        why: String = "connection refused".into(),
    } => {
        severity: Never,
        sentence: ("may have been cordoned or not: {message}; and it could not be read again: {why}"),
        remedy: (
            "when the API server answers again, `evac status` shows whether it is cordoned, and `evac \
             cancel` takes that back"
        ),
    }

    /// The node was cordoned before, without a mark of evac.
    ForeignCordon => {
        severity: Note,
        sentence: ("was cordoned before this drain and not by evac, so it stays cordoned after a cancel"),
    }

    /// The cordon of this drain was taken away during the drain, and its mark was not.
    UncordonedMeanwhile => {
        severity: Never,
        sentence: ("was uncordoned during the drain, and not by evac"),
        remedy: ("agree on who drains the node, then run again"),
    }
}
