//! Why a PodDisruptionBudget does not let a pod go.

use jiff::Timestamp;

use super::Severity::{Never, Slow};
use super::example_time;
use super::table::family;
use crate::cluster::fact::Key;

family! {
    /// What a pod waits for that is covered by a PodDisruptionBudget.
    BudgetReason in Reason::Budget {
        title: "Disruption budgets",
        told: "In blockers and forecasts, of pods that a PodDisruptionBudget covers.",
        subject: Pod,
    }

    /// Too few pods are healthy now.
    BudgetExhausted {
        /// The budget that covers the pod.
        budget: Key = Key::new("shop", "web"),
        /// How many healthy pods it asks for.
        needs: i32 = 2,
        /// How many there are.
        has: i32 = 2,
    } => {
        severity: Slow,
        sentence: ("waits for PodDisruptionBudget {budget}, which needs {needs} healthy pods and has {has}"),
        brief: ("budget {} needs {needs} healthy pods and has {has}", budget.name),
        remedy: ("{RECOVERING}"),
    }

    /// All that the budget allows is given out to evictions that are still being accounted for.
    BudgetGivenOut {
        /// The budget that covers the pod.
        budget: Key = Key::new("shop", "web"),
    } => {
        severity: Slow,
        sentence: ("waits for its turn: PodDisruptionBudget {budget} has given out all it allows for now"),
        brief: ("budget {} has given out all it allows for now", budget.name),
    }

    /// An eviction was granted and cut off before the pod was deleted, because its asker was killed; the
    /// budget counts that pod as gone for two minutes.
    BudgetCutOff {
        /// The budget that covers the pod.
        budget: Key = Key::new("shop", "web"),
        /// The pods that it counts as gone.
        pods: Vec<String> = vec!["web-2".into()],
        /// When the eviction was granted.
        since: Timestamp = example_time(0),
        /// When the disruption controller gives up on it.
        until: Timestamp = example_time(120),
    } => {
        severity: Slow,
        sentence: (
            "waits for PodDisruptionBudget {budget}, which counts {} as evicted since {since}; that eviction \
             was cut off before the deletion, and the disruption controller gives up on it at {until}",
            pods.join(", ")
        ),
        brief: ("a cut-off eviction at budget {}, until {until}", budget.name),
        remedy: ("nothing, it goes on by itself at {until}"),
    }

    /// It allows nothing even with all pods healthy.
    BudgetNever {
        /// The budget that covers the pod.
        budget: Key = Key::new("shop", "web"),
        /// What its spec asks for.
        rule: String = "maxUnavailable is 0".into(),
    } => {
        severity: Never,
        sentence: ("is protected by PodDisruptionBudget {budget}, which never allows a disruption ({rule})"),
        brief: ("budget {} never allows it", budget.name),
        remedy: ("add a replica or relax the budget: kubectl edit pdb {} -n \
                  {}", budget.name, budget.namespace),
    }

    /// The disruption controller has not seen the newest spec of the budget.
    BudgetBehind {
        /// The budget that covers the pod.
        budget: Key = Key::new("shop", "web"),
    } => {
        severity: Slow,
        sentence: ("waits until the disruption controller has processed PodDisruptionBudget {budget}"),
        brief: ("budget {} is being computed", budget.name),
    }

    /// The disruption controller cannot compute the budget.
    BudgetSyncFailed {
        /// The budget that covers the pod.
        budget: Key = Key::new("shop", "web"),
        /// What the disruption controller wrote into its status.
        message: String = "jobs.batch does not implement the scale subresource".into(),
    } => {
        severity: Never,
        sentence: ("is protected by PodDisruptionBudget {budget}, which cannot be computed: {message}"),
        brief: ("budget {} cannot be computed", budget.name),
        remedy: ("give the budget an integer minAvailable, the only form that works for such pods"),
    }

    /// More than one budget covers the pod.
    ManyBudgets {
        /// All of them; empty where only the server knows them.
        budgets: Vec<Key> = vec![Key::new("shop", "web"), Key::new("shop", "all")],
    } => {
        severity: Never,
        sentence: ("is covered by {}, which the eviction API does not support", counted(budgets)),
        brief: ("more than one budget"),
        remedy: ("let only one budget select the pod"),
    }

    /// The server says that the budget allows nothing, and that is not a matter of time.
    BudgetRefused {
        /// The answer of the server.
        message: String = "the disruption budget web does not allow evicting unhealthy pods".into(),
    } => {
        severity: Never,
        sentence: ("is refused by its disruption budget: {message}"),
        brief: ("refused by its budget"),
        remedy: ("look at the status of the budget"),
    }

    /// The server said no though what we see said yes: one of the two is behind.
    BudgetDisagrees {
        /// The answer of the server.
        message: String = "the disruption budget web needs 2 healthy pods and has 2 currently".into(),
    } => {
        severity: Slow,
        sentence: ("waits for its disruption budget: {message}"),
        brief: ("refused by its budget"),
        remedy: ("{RECOVERING}"),
    }
}

const RECOVERING: &str = "nothing, if the workload is recovering; otherwise look at its unready pods";

/// `2 PodDisruptionBudgets (shop/web, shop/all)`, or that there is more than one where they are not known.
fn counted(budgets: &[Key]) -> String {
    if budgets.is_empty() {
        return "more than one PodDisruptionBudget".to_owned();
    }
    let names: Vec<String> = budgets.iter().map(ToString::to_string).collect();
    format!("{} PodDisruptionBudgets ({})", names.len(), names.join(", "))
}
