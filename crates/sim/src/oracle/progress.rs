//! I12: what a maintenance has said is not taken back without a cause.

use std::collections::BTreeMap;

use super::{Oracle, Seen, text};

const MAINTENANCES: [&str; 2] =
    ["nodemaintenances.nodemaintenance.medik8s.io", "nodemaintenances.kubevirt.io"];

#[derive(Default)]
pub struct Progress {
    /// The highest progress of each drain that was said, by object and number of pods.
    said: BTreeMap<String, i64>,
}

impl Oracle for Progress {
    fn see(&mut self, seen: &Seen<'_>, violate: &mut dyn FnMut(&'static str, String)) {
        if !MAINTENANCES.contains(&seen.resource) || seen.deleted() || !seen.by_evac() {
            return;
        }
        let status = &seen.object()["status"];
        let phase = text(status, "/phase");
        let before = text(seen.before(), "/status/phase");
        let unread = status["conditions"].as_array().is_some_and(|all| {
            all.iter()
                .any(|one| matches!(text(one, "/type"), "Unread" | "Waiting") && one["status"] == "True")
        });
        if phase.is_empty() && !before.is_empty() {
            violate("I12", format!("maintenance {} was {before} and says nothing any more", seen.key()));
        }
        let progress = status["drainProgress"].as_i64().unwrap_or_default();
        let most = self.said.entry(text(seen.object(), "/metadata/uid").to_owned()).or_default();
        // While nothing can be read no number is shown; where pods came later it begins anew.
        if phase == "Running" && before == "Running" && !unread && progress < *most && progress != 0 {
            violate(
                "I12",
                format!("maintenance {} went back from {most} to {progress} per cent", seen.key()),
            );
        }
        *most = if phase == "Running" { progress.max(*most) } else { 0 };
    }
}
