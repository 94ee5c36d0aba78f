//! What people are warned of: where a policy would fail a node over and something keeps it from doing so.
//!
//! What passes by itself, or was meant so by a person, such as a pause, is shown in the status of the policy and not warned of.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::watchman::{EXCLUDE, Hold, Standing, Verdict};

/// What a warning is about: a node, or no node where it is the policy itself, and the reason.
pub type Cause = (String, &'static str);

impl Standing {
    /// All that holds now, in words. A cause that was warned of before is not news, however its words change.
    pub fn warnings(&self, now: Timestamp) -> BTreeMap<Cause, String> {
        let mut warnings = BTreeMap::new();
        if let Some(error) = &self.error {
            warnings.insert((String::new(), "InvalidPolicy"), error.to_string());
        }
        if let Some(unread) = &self.unread {
            warnings.insert((String::new(), "CannotRead"), unread.clone());
        }
        for (node, verdict) in &self.nodes {
            let Verdict::Hold(hold) = verdict else { continue };
            if let Some(reason) = reason(hold) {
                warnings.insert((node.clone(), reason), format!("node {node} {}", hold.words(now)));
            }
        }
        for node in &self.odd_labels {
            let words = format!(
                "node {node} has the label {EXCLUDE} without a value, which means nothing; true would exclude it"
            );
            warnings.insert((node.clone(), "InvalidNodeLabel"), words);
        }
        warnings
    }
}

fn reason(hold: &Hold) -> Option<&'static str> {
    match hold {
        Hold::Brake { .. } | Hold::Storm { .. } | Hold::Blind | Hold::Unknown { .. } | Hold::Quorum(_) => {
            Some("FailoverSkipped")
        }
        Hold::Proof { .. } => Some("ProofNeeded"),
        Hold::WrongMachine { .. } => Some("WrongMachine"),
        Hold::Waiting { .. }
        | Hold::Excluded
        | Hold::Paused { .. }
        | Hold::Settling { .. }
        | Hold::Lease { .. }
        | Hold::Drained { .. }
        | Hold::FailedOver
        | Hold::Incomplete { .. }
        | Hold::ControlPlane { .. }
        | Hold::Resting { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::PolicyError;
    use crate::failover::policy::Storm;
    use crate::testing::at;

    fn standing(nodes: &[(&str, Hold)]) -> Standing {
        Standing {
            policy: "p".into(),
            error: None,
            observed: 3,
            healthy: 1,
            needed: 2,
            storm: Storm::None,
            nodes: nodes.iter().map(|(node, hold)| ((*node).into(), Verdict::Hold(hold.clone()))).collect(),
            odd_labels: Vec::new(),
            unread: None,
        }
    }

    #[test]
    fn a_node_that_stays_down_because_of_the_policy_is_warned_of() {
        let standing = standing(&[
            ("n1", Hold::Brake { healthy: 1, needed: 2 }),
            ("n2", Hold::Proof { wanted: "say so" }),
        ]);
        let warnings = standing.warnings(at(0));
        assert_eq!(
            warnings[&("n1".into(), "FailoverSkipped")],
            "node n1 is left alone: only 1 nodes are healthy, and the policy wants 2"
        );
        assert!(warnings[&("n2".into(), "ProofNeeded")].starts_with("node n2 has failed and is not proven"));
    }

    #[test]
    fn what_passes_or_was_meant_is_not_warned_of() {
        let standing = standing(&[
            ("n1", Hold::Waiting { until: at(60), missing: None }),
            ("n2", Hold::Paused { why: "upgrade".into() }),
            ("n3", Hold::Excluded),
            ("n4", Hold::FailedOver),
        ]);
        assert!(standing.warnings(at(0)).is_empty());
    }

    #[test]
    fn a_policy_and_a_label_that_mean_nothing_are_warned_of() {
        let mut standing = standing(&[]);
        standing.error = Some(PolicyError::NoBrake);
        standing.odd_labels = vec!["n1".into()];
        let causes: Vec<Cause> = standing.warnings(at(0)).into_keys().collect();
        assert_eq!(causes, [(String::new(), "InvalidPolicy"), ("n1".into(), "InvalidNodeLabel")]);
    }
}
