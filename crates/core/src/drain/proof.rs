//! Is it safe to power the node off?
//!
//! The answer is made from a fresh reading of the store, never from the absence of errors. "Unknown" is an answer: a node
//! that does not report can keep running what the API no longer shows.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::fact::{Health, Key};
use crate::cluster::index::Index;
use crate::drain::assess::{Fate, assess};
use crate::drain::policy::Policy;
use crate::reasons::{FilterReason, Reason};

/// Whether the machine behind a node may be switched off, as far as the API shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "safeToPowerOff", rename_all = "lowercase")]
pub enum Proof {
    /// The node is cordoned, no pod is left that would have to leave, and no kubelet is known to be out of reach.
    Yes,
    /// Pods are left.
    No {
        /// Which ones: those that have to leave, and those that the pod selector left out.
        left: Vec<Key>,
        /// All that is left was excluded by the options of this drain.
        #[serde(rename = "byChoice")]
        by_choice: bool,
    },
    /// Nothing is left that is seen to run, and something may run all the same.
    Unknown {
        /// What is in doubt, as a sentence.
        why: String,
        /// What was asked for is done; the doubt is about what the options left out or a drain cannot clear up.
        #[serde(rename = "byChoice")]
        by_choice: bool,
    },
}

impl Proof {
    /// What was asked for is done: either all is gone, or only what the options left out is in doubt.
    pub fn fulfils_request(&self) -> bool {
        match self {
            Self::Yes => true,
            Self::No { by_choice, .. } | Self::Unknown { by_choice, .. } => *by_choice,
        }
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => f.write_str("yes"),
            Self::No { left, .. } => {
                let names: Vec<String> = left.iter().map(|key| format!("pod {key}")).collect();
                write!(f, "no ({})", names.join(", "))
            }
            Self::Unknown { why, .. } => write!(f, "unknown ({why})"),
        }
    }
}

/// Judges an index into which the fresh reading has just been put.
pub fn prove(index: &Index, policy: &Policy, node: &str, now: Timestamp) -> Proof {
    let Some(found) = index.node(node) else {
        return Proof::Unknown { why: "the node object is gone".into(), by_choice: false };
    };
    let mut left = Vec::new();
    let mut unconfirmed = Vec::new();
    let mut by_choice = true;
    for verdict in assess(index, policy, node, now).verdicts {
        let finished = index.pod(&verdict.pod).is_some_and(|pod| pod.phase.is_finished());
        match verdict.fate {
            Fate::Leave if verdict.reasons.contains(&Reason::Filter(FilterReason::NotSelected)) => {
                let stays_anyway =
                    index.pod(&verdict.pod).is_some_and(|pod| pod.mirror || pod.daemon_set().is_some());
                if !finished && !stays_anyway {
                    left.push(verdict.pod);
                }
            }
            Fate::Leave
                if verdict
                    .reasons
                    .iter()
                    .any(|reason| matches!(reason, Reason::Filter(FilterReason::SkippedDeleting { .. }))) =>
            {
                unconfirmed.push(verdict.pod);
            }
            Fate::Leave => {}
            Fate::Evict | Fate::Migrate | Fate::Follow | Fate::Blocked => {
                by_choice = false;
                left.push(verdict.pod);
            }
        }
    }
    if !left.is_empty() {
        return Proof::No { left, by_choice };
    }
    if !found.unschedulable {
        return Proof::Unknown { why: "the node is schedulable, new pods may come".into(), by_choice: false };
    }
    if !unconfirmed.is_empty() {
        let names: Vec<String> = unconfirmed.iter().map(ToString::to_string).collect();
        let why = format!("not confirmed stopped: {}", names.join(", "));
        return Proof::Unknown { why, by_choice: true };
    }
    match found.health {
        Health::Ready | Health::Silent if policy.grace_seconds == Some(0) => Proof::Unknown {
            why: "pods were removed with a grace period of 0, the kubelet was not waited for".into(),
            by_choice: true,
        },
        Health::Ready | Health::Silent => Proof::Yes,
        Health::NotReady | Health::Unknown => Proof::Unknown {
            why: "the node is not ready, so what its kubelet still runs cannot be seen".into(),
            // All pods are gone from the API, which is all a drain was asked to do.
            by_choice: true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::{Fact, Node, Pod};
    use crate::cluster::index::ListedAt;
    use crate::cluster::selector::Selector;
    use crate::testing::{at, node, pod};

    fn proof(policy: &Policy, node: Node, pods: Vec<Pod>) -> Proof {
        let mut index = Index::new();
        index.apply(Fact::Node(Box::new(node)));
        index.reset_pods("n", pods, &ListedAt::default());
        prove(&index, policy, "n", at(0))
    }

    fn cordoned() -> Node {
        let mut node = node("n");
        node.unschedulable = true;
        node
    }

    #[test]
    fn an_empty_cordoned_node_is_safe() {
        assert_eq!(proof(&Policy::default(), cordoned(), Vec::new()), Proof::Yes);
    }

    #[test]
    fn a_pod_that_is_left_makes_it_unsafe_and_is_named() {
        let answer = proof(&Policy::default(), cordoned(), vec![pod("a")]);
        assert_eq!(answer.to_string(), "no (pod default/a)");
        assert!(!answer.fulfils_request());
    }

    #[test]
    fn pods_outside_the_selector_make_it_unsafe_though_the_request_is_fulfilled() {
        let policy = Policy { pod_selector: Selector::parse("app=web").unwrap(), ..Policy::default() };
        let answer = proof(&policy, cordoned(), vec![pod("a")]);
        assert!(matches!(answer, Proof::No { by_choice: true, .. }));
    }

    #[test]
    fn a_node_that_does_not_report_is_unknown() {
        let mut silent = cordoned();
        silent.health = Health::Unknown;
        assert!(matches!(proof(&Policy::default(), silent, Vec::new()), Proof::Unknown { .. }));
    }

    #[test]
    fn a_schedulable_node_is_never_safe() {
        assert!(!proof(&Policy::default(), node("n"), Vec::new()).fulfils_request());
    }
}
