//! Everything that evac ever writes on nodes besides the cordon. A mark on a node that claims anything else was not written by evac.

use std::collections::BTreeMap;

use crate::cluster::fact::Taint;
use crate::cluster::taints::OUT_OF_SERVICE;

/// Tells remediation operators to leave the node alone.
pub const EXCLUDE_LABEL: &str = "remediation.medik8s.io/exclude-from-remediation";
/// The taints that a node under maintenance carries.
pub fn taints() -> Vec<Taint> {
    let taint = |key: &str| Taint {
        key: key.to_owned(),
        value: None,
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    let keys = ["node.kubernetes.io/unschedulable", "kubevirt.io/drain", "medik8s.io/drain"];
    keys.into_iter().map(taint).collect()
}

/// The labels that a node under maintenance carries.
pub fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([(EXCLUDE_LABEL.to_owned(), "true".to_owned())])
}

/// The taint as the documents of Kubernetes write it.
pub fn out_of_service() -> Taint {
    Taint {
        key: OUT_OF_SERVICE.into(),
        value: Some("nodeshutdown".into()),
        effect: "NoExecute".into(),
        time_added: None,
    }
}
