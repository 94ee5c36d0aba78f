//! Sequences nobody thought of: random writes to a few objects, read back after every step.
//!
//! Every sequence has a number, and the same number always gives the same sequence. `EVAC_SEQUENCES=N`
//! runs more of them, `EVAC_SEQUENCES_FROM=N` others.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use super::script::{Case, Step};

const SEQUENCES: u64 = 64;
const LONGEST: usize = 12;

pub fn cases() -> Vec<Case> {
    let number = |name: &str, otherwise| {
        std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(otherwise)
    };
    let first = number("EVAC_SEQUENCES_FROM", 0);
    (first..first + number("EVAC_SEQUENCES", SEQUENCES)).map(case).collect()
}

fn case(number: u64) -> Case {
    let mut seed = [0u8; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let steps = vec(any_step(), 3..LONGEST).new_tree(&mut runner).unwrap().current();
    Case {
        topic: "generated".into(),
        name: format!("sequence {number}"),
        steps: steps.into_iter().flatten().collect(),
    }
}

#[derive(Debug, Clone, Copy)]
enum Target {
    ConfigMap,
    Pod,
    Deployment,
    Budget,
}

impl Target {
    fn path(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Pod => "pods",
            Self::Deployment => "apps/v1:deployments",
            Self::Budget => "policy/v1:poddisruptionbudgets",
        }
    }

    fn body(self, variant: u8) -> Value {
        let containers = json!([{"name": "c", "image": format!("image:{variant}")}]);
        match self {
            Self::ConfigMap => json!({"data": {"k": variant.to_string(), format!("k{variant}"): "v"}}),
            Self::Pod => json!({"spec": {"containers": containers}}),
            Self::Deployment => json!({"spec": {
                "replicas": variant, "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}}}),
            Self::Budget => json!({"spec": {
                "minAvailable": variant, "selector": {"matchLabels": {"a": "b"}}}}),
        }
    }

    fn api_version(self) -> (&'static str, &'static str) {
        match self {
            Self::ConfigMap => ("v1", "ConfigMap"),
            Self::Pod => ("v1", "Pod"),
            Self::Deployment => ("apps/v1", "Deployment"),
            Self::Budget => ("policy/v1", "PodDisruptionBudget"),
        }
    }
}

fn any_step() -> impl Strategy<Value = Vec<Step>> {
    let target = prop_oneof![
        Just(Target::ConfigMap),
        Just(Target::Pod),
        Just(Target::Deployment),
        Just(Target::Budget)
    ];
    (target, prop_oneof![3 => Just("a"), 1 => Just("b")], any_metadata(), 0u8..3, 0u8..11).prop_map(
        |(target, name, metadata, variant, deed)| {
            let (api_version, kind) = target.api_version();
            let mut object = target.body(variant);
            object["metadata"] = metadata;
            let one = format!("{}/{name}", target.path());
            let mut named = object.clone();
            named["metadata"]["name"] = json!(name);
            let step = match deed {
                0..=2 => Step::request("POST", target.path(), &named.to_string()),
                3 => Step::request("PUT", &one, &named.to_string()),
                4 => Step::request("MERGE", &one, &object.to_string()),
                5 => Step::request("STRATEGIC", &one, &object.to_string()),
                6 => {
                    let patch = json!([{"op": "add", "path": "/metadata/labels", "value": object["metadata"]["labels"]}]);
                    Step::request("JSON", &one, &patch.to_string())
                }
                7 => {
                    named["apiVersion"] = json!(api_version);
                    named["kind"] = json!(kind);
                    let path = format!("{one}?fieldManager=applier{}", variant % 2);
                    Step::request("APPLY", &path, &named.to_string())
                }
                8 => {
                    named["apiVersion"] = json!(api_version);
                    named["kind"] = json!(kind);
                    Step::request("APPLY", &format!("{one}?fieldManager=applier0&force=true"), &named.to_string())
                }
                9 => Step::request("DELETE", &one, r#"{"gracePeriodSeconds":0}"#),
                _ => Step::request("MERGE", &one, r#"{"metadata":{"finalizers":null}}"#),
            };
            vec![step, Step::request("GET", &one, "")]
        },
    )
}

fn any_metadata() -> impl Strategy<Value = Value> {
    (0u8..4, prop::bool::weighted(0.2)).prop_map(|(label, held)| {
        let mut metadata = match label {
            0 => json!({}),
            1 => json!({"labels": {"a": "b"}}),
            2 => json!({"labels": {"a": "c", "x": "y"}}),
            _ => json!({"labels": {"x": "z"}, "annotations": {"note": "n"}}),
        };
        if held {
            metadata["finalizers"] = json!(["example.com/hold"]);
        }
        metadata
    })
}
