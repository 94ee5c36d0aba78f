//! A `FailoverPolicy` becomes a policy, and how it stands becomes its status.

use std::collections::BTreeMap;

use evac_core::cluster::condition::Condition;
use evac_core::cluster::fact::Amount;
use evac_core::failover::evaluator::{NodeVerdict, PolicyEvaluation};
use evac_core::failover::policy::{Agent, DEFAULT_NOT_READY_FOR, SHORTEST, SHORTEST_ASSUMPTION, Storm};
use evac_core::failover::{AcceptedProof, Brake, FailoverPolicy, PolicyError};
use evac_core::machines::Kind;
use evac_core::machines::condition::seconds;
use evac_core::{Key, Uid};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::{Call, FIELD_MANAGER, MERGE_PATCH};
use crate::kubevirt::request::{object_path, send};
use crate::wire::{IntOrString, LabelSelector, Meta};

const DEFAULT_AGENT_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);
const DEFAULT_TRIES: u32 = 3;
/// The condition of a policy that rests on something that cannot be read, as that of a maintenance.
const UNREAD: &str = evac_core::maintenance::status::UNREAD;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PolicyObject {
    pub metadata: Meta,
    /// As it was written. It may be older than the kind's schema: one that cannot be read must not hide the others.
    spec: Raw,
    pub status: PolicyStatus,
}

/// What may hold a secret.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
struct Raw(Value);

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("..")
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PolicySpec {
    node_selector: LabelSelector,
    not_ready_for: Option<String>,
    proof: ProofSpec,
    min_healthy: Option<IntOrString>,
    max_unhealthy: Option<IntOrString>,
    storm_cooldown: Option<String>,
    pause: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProofSpec {
    statement: Option<serde::de::IgnoredAny>,
    provider: Option<serde::de::IgnoredAny>,
    agent: Option<AgentSpec>,
    assume_off_after: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AgentSpec {
    command: String,
    options: Option<BTreeMap<String, String>>,
    node_options: Option<BTreeMap<String, BTreeMap<String, String>>>,
    options_secret: Option<SecretName>,
    timeout: Option<String>,
    tries: Option<u32>,
}

impl std::fmt::Debug for AgentSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What an agent is told may be a secret.
        f.debug_struct("AgentSpec").field("command", &self.command).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SecretName {
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyStatus {
    storm_since: Option<Timestamp>,
    cooling_until: Option<Timestamp>,
    conditions: Option<Vec<Condition>>,
}

/// Words of the parser can quote what they stumbled over, and that may be a secret; so only the place is said.
fn read(spec: Value) -> Result<PolicySpec, PolicyError> {
    let unreadable = |part: &str| PolicyError::Unreadable {
        message: format!("{part} is not of the type that kubectl explain failoverpolicy.spec shows"),
    };
    let Value::Object(fields) = spec else { return Err(unreadable("it")) };
    for (field, value) in &fields {
        let alone = Value::Object([(field.clone(), value.clone())].into_iter().collect());
        if serde_json::from_value::<PolicySpec>(alone).is_err() {
            return Err(unreadable(field));
        }
    }
    serde_json::from_value(Value::Object(fields)).map_err(|_| unreadable("it"))
}

/// As much of a text with words of others in it as is repeated: one line.
fn shown(text: &str) -> String {
    const SHOWN: usize = 400;
    text.chars().filter(|letter| !letter.is_control()).take(SHOWN).collect()
}

fn duration(field: &'static str, text: &str) -> Result<SignedDuration, PolicyError> {
    let wrong = || PolicyError::Duration { field, text: shown(text) };
    text.parse::<SignedDuration>()
        .map_err(|_| wrong())
        .and_then(|found| if found.is_negative() { Err(wrong()) } else { Ok(found) })
}

fn at_least(
    field: &'static str,
    text: &str,
    least: SignedDuration,
    words: &'static str,
) -> Result<SignedDuration, PolicyError> {
    let found = duration(field, text)?;
    if found < least {
        return Err(PolicyError::TooShort { field, text: shown(text), least: words });
    }
    Ok(found)
}

fn amount(value: IntOrString) -> Amount {
    match value {
        IntOrString::Int(count) => Amount::Count(count),
        IntOrString::String(text) => Amount::Percent(text),
    }
}

fn brake(min: Option<IntOrString>, max: Option<IntOrString>) -> Result<Brake, PolicyError> {
    let brake = match (min, max) {
        (Some(_), Some(_)) => return Err(PolicyError::BothBrakes),
        (None, None) => return Err(PolicyError::NoBrake),
        (Some(min), None) => Brake::MinHealthy(amount(min)),
        (None, Some(max)) => Brake::MaxUnhealthy(amount(max)),
    };
    // A share or count that is wrong is wrong for any number of nodes.
    match brake.needed(usize::MAX / 100) {
        Ok(_) | Err(PolicyError::MoreThanAll { .. }) => Ok(brake),
        Err(error) => Err(error),
    }
}

fn proof(spec: ProofSpec) -> Result<AcceptedProof, PolicyError> {
    let mut found = Vec::new();
    found.extend(spec.statement.map(|_| AcceptedProof::Statement));
    found.extend(spec.provider.map(|_| AcceptedProof::Provider));
    if let Some(agent) = spec.agent {
        found.push(AcceptedProof::Agent(self::agent(agent)?));
    }
    if let Some(text) = &spec.assume_off_after {
        let after = at_least("proof.assumeOffAfter", text, SHORTEST_ASSUMPTION, "3m")?;
        found.push(AcceptedProof::Time { after });
    }
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => Err(PolicyError::ProofCount),
    }
}

fn agent(spec: AgentSpec) -> Result<Agent, PolicyError> {
    let timeout = match &spec.timeout {
        Some(text) => at_least("proof.agent.timeout", text, SignedDuration::from_secs(1), "1s")?,
        None => DEFAULT_AGENT_TIMEOUT,
    };
    let agent = Agent {
        command: spec.command,
        options: spec.options.unwrap_or_default(),
        node_options: spec.node_options.unwrap_or_default(),
        secret: spec.options_secret.map(|secret| Key::new(secret.namespace, secret.name)),
        timeout,
        tries: spec.tries.unwrap_or(DEFAULT_TRIES).clamp(1, 10),
    };
    agent.check_words()?;
    Ok(agent)
}

impl PolicyObject {
    pub fn into_policy(self) -> Result<FailoverPolicy, PolicyError> {
        let Self { metadata, spec, status } = self;
        let spec = read(spec.0)?;
        let selector = spec
            .node_selector
            .selector()
            .map_err(|error| PolicyError::Selector { message: shown(&error.to_string()) })?;
        if selector.is_everything() {
            return Err(PolicyError::NoSelector);
        }
        let not_ready_for = match &spec.not_ready_for {
            Some(text) => at_least("notReadyFor", text, SHORTEST, "1m")?,
            None => DEFAULT_NOT_READY_FOR,
        };
        let storm_cooldown =
            spec.storm_cooldown.as_deref().map(|text| duration("stormCooldown", text)).transpose()?;
        let storm = match (status.storm_since, status.cooling_until) {
            (_, Some(until)) => Storm::Cooling { until },
            (Some(since), None) => Storm::Active { since },
            (None, None) => Storm::None,
        };
        Ok(FailoverPolicy {
            name: metadata.name,
            uid: Uid::from(metadata.uid),
            generation: metadata.generation,
            selector,
            not_ready_for,
            proof: proof(spec.proof)?,
            brake: brake(spec.min_healthy, spec.max_unhealthy)?,
            storm_cooldown,
            pause: spec.pause.unwrap_or_default(),
            storm,
        })
    }

    /// The condition that says whether the policy can be used, as it was last written.
    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().flatten().find(|condition| condition.kind == kind)
    }
}

/// How a policy stands, as its status. `before` is the condition as it was, whose time is kept if it still holds.
pub fn status(evaluation: &PolicyEvaluation, object: &PolicyObject, now: Timestamp) -> Value {
    let generation = object.metadata.generation;
    let before = object.condition("Valid");
    let (verdict, reason, message) = match &evaluation.error {
        None => ("True", "Accepted", "the policy is in force".to_owned()),
        Some(error @ PolicyError::EveryNode { .. }) => ("False", "MatchesEveryNode", error.to_string()),
        Some(error) => ("False", "Invalid", error.to_string()),
    };
    let since = before
        .filter(|before| before.status == verdict)
        .and_then(Condition::last_transition_time)
        .unwrap_or_else(|| seconds(now).into());
    let (storm_since, cooling_until) = match evaluation.storm {
        Storm::None => (Value::Null, Value::Null),
        Storm::Active { since } => (json!(seconds(since)), Value::Null),
        Storm::Cooling { until } => (Value::Null, json!(seconds(until))),
    };
    let nodes: Vec<Value> = evaluation
        .nodes
        .iter()
        .map(|(name, verdict)| match verdict {
            NodeVerdict::Act => {
                json!({"name": name, "verdict": "FailingOver", "message": "is being failed over"})
            }
            // Without the time that is left: a status that changes every second is written every second.
            NodeVerdict::Hold(hold) => {
                let message = hold.words(now);
                let message = message.split(" (in ").next().unwrap_or_default();
                json!({"name": name, "verdict": hold.code(), "message": message})
            }
        })
        .collect();
    json!({"status": {
        "observedGeneration": generation,
        "observedNodes": evaluation.observed,
        "healthyNodes": evaluation.healthy,
        "neededNodes": evaluation.needed,
        "stormSince": storm_since,
        "coolingUntil": cooling_until,
        "nodes": nodes,
        "conditions": conditions(
            json!({
                "type": "Valid", "status": verdict, "reason": reason, "message": message,
                "lastTransitionTime": since, "observedGeneration": generation,
            }),
            unread(evaluation.unread.as_deref(), object, now),
        ),
    }})
}

fn conditions(valid: Value, unread: Option<Value>) -> Vec<Value> {
    [valid].into_iter().chain(unread).collect()
}

/// The condition that says what cannot be read. That everything can is worth saying only after it could not.
fn unread(words: Option<&str>, object: &PolicyObject, now: Timestamp) -> Option<Value> {
    let before = object.condition(UNREAD);
    let (status, reason) = if words.is_some() { ("True", "CannotRead") } else { ("False", "Read") };
    if words.is_none() && before.is_none() {
        return None;
    }
    let since = before.filter(|before| before.status == status).and_then(Condition::last_transition_time);
    Some(json!({
        "type": UNREAD, "status": status, "reason": reason, "message": words.unwrap_or_default(),
        "lastTransitionTime": since.unwrap_or_else(|| seconds(now).into()), "observedGeneration": object.metadata.generation,
    }))
}

/// What is written while so little can be read that nothing can be judged: why, and nothing else. What was found out before stays.
pub fn status_unread(words: &str, object: &PolicyObject, now: Timestamp) -> Value {
    let valid = object.condition("Valid").map(|before| {
        json!({
            "type": "Valid", "status": before.status, "reason": before.reason, "message": before.message,
            "lastTransitionTime": before.last_transition_time().unwrap_or_else(|| seconds(now).into()),
        })
    });
    let all: Vec<Value> = valid.into_iter().chain(unread(Some(words), object, now)).collect();
    json!({"status": {"conditions": all}})
}

/// Writes a status.
pub fn write_status(name: &str, status: &Value) -> Call {
    let path =
        format!("{}/status?fieldManager={FIELD_MANAGER}", object_path(Kind::Policy, &Key::new("", name)));
    send("PATCH", path, MERGE_PATCH, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(spec: &Value) -> Result<FailoverPolicy, PolicyError> {
        let object = json!({"metadata": {"name": "p", "uid": "u", "generation": 2}, "spec": spec});
        serde_json::from_value::<PolicyObject>(object).unwrap().into_policy()
    }

    fn good() -> Value {
        json!({
            "nodeSelector": {"matchLabels": {"role": "worker"}},
            "proof": {"statement": {}}, "maxUnhealthy": "40%",
        })
    }

    fn with(field: &str, value: Value) -> Value {
        let mut spec = good();
        spec[field] = value;
        spec
    }

    #[test]
    fn a_policy_is_read_with_its_defaults() {
        let policy = policy(&good()).unwrap();
        assert_eq!(policy.not_ready_for, DEFAULT_NOT_READY_FOR);
        assert_eq!(policy.brake, Brake::MaxUnhealthy(Amount::Percent("40%".into())));
        assert_eq!(policy.proof, AcceptedProof::Statement);
        assert_eq!((policy.pause.len(), policy.storm_cooldown, policy.storm), (0, None, Storm::None));
    }

    #[test]
    fn an_agent_is_read_and_its_options_are_never_shown() {
        let spec = with(
            "proof",
            json!({"agent": {
                "command": "fence_ipmilan", "options": {"username": "admin", "password": "hunter2"},
                "nodeOptions": {"n": {"ip": "10.0.0.1"}}, "optionsSecret": {"namespace": "a", "name": "b"},
                "timeout": "20s",
            }}),
        );
        let policy = policy(&spec).unwrap();
        let AcceptedProof::Agent(agent) = &policy.proof else { panic!("{:?}", policy.proof) };
        assert_eq!((agent.timeout.as_secs(), agent.tries), (20, 3));
        assert_eq!(agent.secret, Some(Key::new("a", "b")));
        assert!(!format!("{policy:?}").contains("hunter2"), "{policy:?}");
    }

    #[test]
    fn d18_what_is_wrong_with_a_policy_is_said_in_a_sentence() {
        for (spec, words) in [
            (with("nodeSelector", json!({})), "spec.nodeSelector is empty"),
            (
                with("nodeSelector", json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})),
                "spec.nodeSelector cannot be read",
            ),
            (with("minHealthy", json!(1)), "not both"),
            (with("maxUnhealthy", Value::Null), "without a brake"),
            (with("maxUnhealthy", json!(-1)), "spec.maxUnhealthy is negative"),
            (with("maxUnhealthy", json!("half")), "which is not a share"),
            (with("notReadyFor", json!("soon")), "which is not a duration"),
            (with("notReadyFor", json!("10s")), "less than 1m is not possible"),
            (with("proof", json!({})), "exactly one of spec.proof"),
            (with("proof", json!({"statement": {}, "provider": {}})), "exactly one of spec.proof"),
            (with("proof", json!({"assumeOffAfter": "1m"})), "less than 3m is not possible"),
            (with("proof", json!({"agent": {"command": " "}})), "spec.proof.agent.command is empty"),
            (with("stormCooldown", json!("-1m")), "which is not a duration"),
            (with("notReadyFor", json!("1\nnode n is fenced")), "'1node n is fenced', which"),
        ] {
            let said = policy(&spec).expect_err(&spec.to_string()).to_string();
            assert!(said.contains(words), "{said}");
        }
    }
}
