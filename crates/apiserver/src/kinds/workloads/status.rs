//! Checks of the numbers in the status of workloads.

use serde_json::Value;

use crate::kinds::meta::NON_NEGATIVE;
use crate::status::FieldError;

type Errors = Vec<FieldError>;

/// What must hold between the numbers of a status.
pub(super) struct Numbers {
    /// None of them may be below zero.
    pub counted: &'static [&'static str],
    /// None of them may be above `replicas`.
    pub bounded: &'static [&'static str],
    /// How the number of ready replicas is called when there are more available ones, if that matters.
    pub ready: Option<&'static str>,
}

pub(super) const DAEMON_SET: Numbers = Numbers {
    counted: &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ],
    bounded: &[],
    ready: None,
};

pub(super) const REPLICA_SET: Numbers = Numbers {
    counted: &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ],
    bounded: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    ready: Some("readyReplicas"),
};

pub(super) const STATEFUL_SET: Numbers = Numbers {
    counted: &[
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ],
    bounded: &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
    ready: Some("status.readyReplicas"),
};

pub(super) const DEPLOYMENT: Numbers = Numbers {
    counted: &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ],
    bounded: &["updatedReplicas", "readyReplicas", "availableReplicas"],
    ready: Some("readyReplicas"),
};

/// What is wrong with the numbers of a status. Only some kinds remember collisions, and none forgets them.
pub(super) fn check(old: &Value, new: &Value, numbers: &Numbers, errors: &mut Errors) {
    let number = |object: &Value, field: &str| {
        object.pointer(&format!("/status/{field}")).and_then(Value::as_i64).unwrap_or_default()
    };
    let mut complain = |field: &str, why: &str| {
        errors.push(FieldError::invalid(format!("status.{field}"), number(new, field), why));
    };
    for field in numbers.counted {
        if number(new, field) < 0 {
            complain(field, NON_NEGATIVE);
        }
    }
    for field in numbers.bounded {
        if number(new, field) > number(new, "replicas") {
            complain(field, "cannot be greater than status.replicas");
        }
    }
    if let Some(ready) = numbers.ready
        && number(new, "availableReplicas") > number(new, "readyReplicas")
    {
        complain("availableReplicas", &format!("cannot be greater than {ready}"));
    }
    if numbers.counted.contains(&"collisionCount")
        && number(new, "collisionCount") < number(old, "collisionCount")
    {
        complain("collisionCount", "cannot be decremented");
    }
}
