//! Small questions that every actor asks of Kubernetes objects: who controls it, is it ready, does a selector match.

use std::collections::BTreeMap;
use std::fmt;

use evac_apimachinery::labels::{self, Operator, SelectorError};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference, Time,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Namespace and name. Cluster-scoped objects have an empty namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn cluster(name: impl Into<String>) -> Self {
        Self::new("", name)
    }

    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

pub fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

pub fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Resource versions of one server grow; an unreadable one counts as the oldest.
pub fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

pub fn deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|o| o.controller == Some(true))
}

pub fn controlled_by(meta: &ObjectMeta, owner_uid: &str) -> bool {
    controller_of(meta).is_some_and(|o| o.uid == owner_uid)
}

pub fn owner_reference(api_version: &str, kind: &str, meta: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name(meta).to_owned(),
        uid: uid(meta).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

pub fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

pub fn label<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(name).map(String::as_str)
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending")
}

/// The pod has run to its end; it holds no resources any more.
pub fn finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Counts for a workload: neither finished nor on its way out.
pub fn active(pod: &Pod) -> bool {
    !finished(pod) && !deleting(&pod.metadata)
}

pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|n| !n.is_empty())
}

/// The pods that must not be where this one is.
pub fn required_anti_affinity(pod: &Pod) -> &[PodAffinityTerm] {
    pod.spec
        .as_ref()
        .and_then(|s| s.affinity.as_ref()?.pod_anti_affinity.as_ref())
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default()
}

pub fn pod_condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == kind)
}

pub fn ready(pod: &Pod) -> bool {
    pod_condition(pod, "Ready").is_some_and(|c| c.status == "True")
}

pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let condition = pod_condition(pod, "Ready").filter(|c| c.status == "True")?;
    Some(condition.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0))
}

/// Ready for at least `min_ready_seconds`: `Ok` when available now, `Err(when)` when time alone will make it so.
pub fn available_at(pod: &Pod, min_ready_seconds: i32) -> Option<Timestamp> {
    let since = ready_since(pod)?;
    Some(later(since, i64::from(min_ready_seconds)))
}

pub fn later(at: Timestamp, seconds: i64) -> Timestamp {
    at.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// The same for parts of a second.
pub fn after(at: Timestamp, seconds: f64) -> Timestamp {
    jiff::SignedDuration::try_from_secs_f64(seconds)
        .ok()
        .and_then(|d| at.checked_add(d).ok())
        .unwrap_or(Timestamp::MAX)
}

pub fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// Kubernetes writes times in whole seconds; rounding here keeps what we hold equal to what comes back.
pub fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

pub fn node_condition<'a>(node: &'a Node, kind: &str) -> Option<&'a str> {
    node.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == kind).map(|c| c.status.as_str())
}

pub fn node_ready(node: &Node) -> bool {
    node_condition(node, "Ready") == Some("True")
}

type Labels = BTreeMap<String, String>;

fn expression(one: &LabelSelectorRequirement) -> Result<(Operator, &[String]), SelectorError> {
    let values = one.values.as_deref().unwrap_or_default();
    labels::expression(&one.key, &one.operator, values).map(|operator| (operator, values))
}

/// A selector that does not parse matches nothing and says why.
pub fn selector_problem(selector: &LabelSelector) -> Option<String> {
    let mut expressions = selector.match_expressions.iter().flatten();
    expressions.find_map(|one| expression(one).err()).map(|error| error.to_string())
}

/// An absent selector matches nothing, an empty one everything. Read in place: it is asked for each pod of a namespace.
pub fn selects(selector: Option<&LabelSelector>, labels: Option<&Labels>) -> bool {
    let Some(selector) = selector else { return false };
    let value = |key: &String| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    let holds = |one: &LabelSelectorRequirement| {
        expression(one).is_ok_and(|(operator, values)| operator.holds(values, value(&one.key)))
    };
    selector.match_labels.iter().flatten().all(|(key, wanted)| value(key) == Some(wanted.as_str()))
        && selector.match_expressions.iter().flatten().all(holds)
}

/// `3` or `"30%"` of `total`; `None` for text that is neither.
pub fn scaled(value: &IntOrString, total: i32, round_up: bool) -> Option<i32> {
    match value {
        IntOrString::Int(n) => Some(*n),
        IntOrString::String(s) => {
            let percent: i64 = s.strip_suffix('%')?.parse().ok()?;
            let product = percent * i64::from(total);
            let quotient = product.div_euclid(100);
            let rounded = if round_up && product.rem_euclid(100) != 0 { quotient + 1 } else { quotient };
            i32::try_from(rounded).ok()
        }
    }
}

/// Replaces the condition of the same type, or adds it. Keeps the transition time while the status stays.
pub fn set_pod_condition(conditions: &mut Vec<PodCondition>, mut wanted: PodCondition) {
    match conditions.iter_mut().find(|c| c.type_ == wanted.type_) {
        Some(old) => {
            if old.status == wanted.status {
                wanted.last_transition_time = old.last_transition_time.clone();
            }
            *old = wanted;
        }
        None => conditions.push(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(key: &str, operator: &str, values: &[&str]) -> LabelSelectorRequirement {
        LabelSelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: Some(values.iter().map(ToString::to_string).collect()),
        }
    }

    fn selector(r: LabelSelectorRequirement) -> LabelSelector {
        LabelSelector { match_labels: None, match_expressions: Some(vec![r]) }
    }

    #[test]
    fn an_empty_selector_matches_everything_and_a_missing_one_nothing() {
        assert!(selects(Some(&LabelSelector::default()), None));
        assert!(!selects(None, None));
    }

    #[test]
    fn not_in_matches_a_missing_label() {
        let labels = Labels::from([("app".to_owned(), "web".to_owned())]);
        assert!(selects(Some(&selector(requirement("tier", "NotIn", &["a"]))), Some(&labels)));
        assert!(!selects(Some(&selector(requirement("app", "NotIn", &["web"]))), Some(&labels)));
    }

    #[test]
    fn an_unknown_operator_matches_nothing() {
        assert!(!selects(Some(&selector(requirement("a", "Unknown", &[]))), None));
        assert!(selector_problem(&selector(requirement("a", "Unknown", &[]))).is_some());
        assert!(!selects(Some(&selector(requirement("a", "NotIn", &[]))), None), "without values it is none");
    }

    #[test]
    fn percentages_round_up_or_down() {
        let p = IntOrString::String("30%".into());
        assert_eq!(scaled(&p, 7, true), Some(3));
        assert_eq!(scaled(&p, 7, false), Some(2));
        assert_eq!(scaled(&IntOrString::Int(4), 7, true), Some(4));
        assert_eq!(scaled(&IntOrString::String("many".into()), 7, true), None);
    }
}
