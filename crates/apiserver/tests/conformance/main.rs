//! One body, two arms: the same requests go to the embedded server and to a real kube-apiserver, and the
//! answers must be the same, up to uids, times and other things that no client may rely on.
//!
//! The cases are texts under `cases/`, one file per topic; [`script`] explains how to write one. A real
//! server is started from the program in `EVAC_KUBERNETES`; without it only the embedded server runs, and
//! must answer everything without breaking. `EVAC_CASES=part of a name` runs some cases only.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

mod arm;
mod binary;
mod compare;
mod documents;
mod generated;
mod hook;
mod kubernetes;
mod normal;
mod run;
mod script;

use std::io::Write as _;

use futures::StreamExt as _;

use self::arm::Arm;
use self::run::Outcome;
use self::script::Case;

/// Cases that run at the same time; most of the time is spent waiting for the real server's store.
const AT_ONCE: usize = 12;

const TOPICS: &[(&str, &str)] = &[
    ("create", include_str!("cases/create.txt")),
    ("reading", include_str!("cases/reading.txt")),
    ("tables", include_str!("cases/tables.txt")),
    ("watching", include_str!("cases/watching.txt")),
    ("updating", include_str!("cases/updating.txt")),
    ("patching", include_str!("cases/patching.txt")),
    ("fields", include_str!("cases/fields.txt")),
    ("applying", include_str!("cases/applying.txt")),
    ("deleting", include_str!("cases/deleting.txt")),
    ("evicting", include_str!("cases/evicting.txt")),
    ("subresources", include_str!("cases/subresources.txt")),
    ("others", include_str!("cases/others.txt")),
    ("lifecycle", include_str!("cases/lifecycle.txt")),
    ("rules", include_str!("cases/rules.txt")),
    ("webhooks", include_str!("cases/webhooks.txt")),
    ("custom", include_str!("cases/custom.txt")),
    ("access", include_str!("cases/access.txt")),
    ("paths", include_str!("cases/paths.txt")),
    ("kinds", include_str!("cases/kinds.txt")),
    ("discovering", include_str!("cases/discovering.txt")),
    ("protobuf", include_str!("cases/protobuf.txt")),
    ("statuses", include_str!("cases/statuses.txt")),
    ("devices", include_str!("cases/devices.txt")),
    ("forgetting", include_str!("cases/forgetting.txt")),
];

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_give_the_same_answers() {
    let wanted = std::env::var("EVAC_CASES").unwrap_or_default();
    let mut cases: Vec<Case> = TOPICS
        .iter()
        .flat_map(|(topic, text)| script::parse(topic, text))
        .filter(|case| case.title().contains(&wanted))
        .collect();
    if wanted.is_empty() || "generated".contains(&wanted) {
        cases.extend(generated::cases());
    }
    let (forgetting, others): (Vec<Case>, Vec<Case>) =
        cases.into_iter().partition(|case| case.topic == "forgetting");
    let count = others.len() + forgetting.len();
    let hooks = hook::Hooks::serve().await;
    let embedded = Arm::embedded();
    let documents = "documents".contains(&wanted);
    let (real, forgetful) = tokio::join!(
        kubernetes::start_if(documents || !others.is_empty(), false),
        kubernetes::start_if(!forgetting.is_empty(), true)
    );
    // What one of them forgets, the others must still know.
    let own = forgetting.iter().map(|_| Arm::embedded()).collect::<Vec<_>>();
    let arms = std::iter::repeat_n(&embedded, others.len()).chain(&own);
    let reals = std::iter::repeat_n(real.as_ref(), others.len())
        .chain(std::iter::repeat_n(forgetful.as_ref(), own.len()));
    let mut outcomes: Vec<Outcome> =
        futures::stream::iter(others.into_iter().chain(forgetting).zip(arms.zip(reals)).enumerate())
            .map(|(number, (case, (arm, real)))| {
                run::run(case, format!("c{number:04}"), arm, real.map(|r| &r.arm), &hooks)
            })
            .buffered(AT_ONCE)
            .collect()
            .await;
    if let Some(real) = real.as_ref().filter(|_| documents) {
        outcomes.extend(documents::run(&embedded, &real.arm).await);
    }
    let count = count.max(outcomes.len());
    let mut different = 0;
    for outcome in &outcomes {
        if !outcome.differences.is_empty() {
            different += 1;
            tell(&outcome.report());
        }
    }
    if real.is_none() && forgetful.is_none() {
        tell(&format!("conformance: {count} cases on the embedded server alone, {different} broken\n"));
    } else {
        tell(&format!("conformance: {count} cases, {different} differences\n"));
    }
    assert_eq!(different, 0, "see the differences above");
}

/// Straight to stderr, so that the numbers are seen when the test passes, too.
fn tell(text: &str) {
    // Nowhere to complain when stderr is gone.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
