//! The table of reasons is complete and agrees with itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::*;

fn all() -> Vec<Reason> {
    families().into_iter().flat_map(|family| family.examples).collect()
}

#[test]
fn a_second_example_of_a_reason_shows_another_severity() {
    let shown: BTreeSet<(&str, Severity)> =
        all().iter().map(|reason| (reason.code(), reason.severity())).collect();
    assert_eq!(shown.len(), all().len());
    for (code, usual, otherwise) in [
        ("StrangeAnswer", Severity::Never, Severity::Slow),
        ("VmFitsNowhere", Severity::Slow, Severity::Never),
        ("VmShutDown", Severity::Note, Severity::Warning),
    ] {
        assert!(shown.contains(&(code, usual)) && shown.contains(&(code, otherwise)), "{code}");
    }
}

#[test]
fn a_code_belongs_to_one_reason_and_is_what_json_says() {
    let mut variants: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for reason in all() {
        let json = serde_json::to_value(&reason).unwrap();
        assert_eq!(json["code"], reason.code());
        // `Budget(BudgetNever { …` names the variant.
        let debug = format!("{reason:?}");
        let variant = debug.split(['(', ' ', ')']).take(2).collect::<Vec<_>>().join("::");
        let code = reason.code();
        assert!(variant.ends_with(&format!("::{code}")), "{variant} has the code {code}");
        variants.entry(reason.code()).or_default().insert(variant);
    }
    for (code, variants) in variants {
        assert_eq!(variants.len(), 1, "{code} is the code of {variants:?}");
    }
}

#[test]
fn what_never_clears_by_itself_has_a_remedy() {
    for reason in all().iter().filter(|reason| reason.severity() == Severity::Never) {
        assert!(reason.fix().is_some_and(|fix| !fix.is_empty()), "{}", reason.code());
    }
}

#[test]
fn sentences_go_on_after_the_object_in_one_line() {
    for reason in all() {
        let told = [Some(reason.message()), Some(reason.brief()), reason.fix(), reason.kubectl_words()];
        for words in told.into_iter().flatten() {
            assert!(!words.is_empty() && !words.contains('\n') && !words.contains("  "), "{words:?}");
            assert_eq!(words.trim(), words);
        }
        let message = reason.message();
        assert!(message.starts_with(char::is_lowercase), "it follows the name of the object: {message}");
        assert!(reason.brief().len() <= message.len(), "{}", reason.code());
    }
}

/// Scripts read these. A field may be added, none may go.
#[test]
fn facts_stand_beside_the_code() {
    let json = |reason: Reason| serde_json::to_value(reason).unwrap();
    assert_eq!(json(AnswerReason::Throttled.into()), serde_json::json!({"code": "Throttled"}));
    let examples: BTreeMap<&str, Value> =
        all().into_iter().map(|reason| (reason.code(), json(reason))).collect();
    let fields = |code: &str| -> Vec<&str> {
        let fields = examples[code].as_object().unwrap();
        fields.keys().map(String::as_str).filter(|field| *field != "code").collect()
    };
    assert_eq!(fields("Terminating"), ["ends", "graceSeconds"]);
    assert_eq!(fields("OwnedByEvac"), ["instance", "owner", "seen", "since"]);
    assert_eq!(fields("VmStaysOff"), ["after", "instance"]);
    assert_eq!(fields("VmMoveFailed"), ["failures", "message", "retryAt"]);
    assert_eq!(fields("VmMoveUnanswered"), ["component", "webhook", "why"]);
    assert_eq!(fields("KubeVirtUntested"), ["version"]);
    assert_eq!(examples["VmQueued"]["limit"]["fromNode"], "worker-1");
    assert_eq!(examples["VmHandedOver"]["tenant"]["cluster"], "blue");
}

#[test]
fn the_remedy_depends_on_whether_a_drain_or_a_maintenance_holds_the_node() {
    let fix = |by_maintenance| {
        let held = OwnerReason::OwnedByEvac {
            owner: "node-maintenance".into(),
            since: example_time(0),
            instance: None,
            seen: None,
            by_maintenance,
        };
        Reason::from(held).fix().unwrap()
    };
    assert!(fix(true).contains("evac maintenance end") && !fix(true).contains("--take-over"));
    assert!(fix(false).contains("--take-over"));
}
