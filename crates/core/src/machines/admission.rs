//! What is refused when an object is created or changed. The words are KubeVirt's.

use super::condition;
use super::fact::{Instance, Migration, RunStrategy};

/// A refusal: a status code, a sentence, and the fields it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    pub code: u16,
    pub message: String,
    pub causes: Vec<Cause>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: &'static str,
    pub message: String,
    pub field: String,
}

impl Cause {
    fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self { reason: "FieldValueInvalid", message: message.into(), field: field.into() }
    }
}

impl Denial {
    fn bad(message: impl Into<String>) -> Self {
        Self { code: 400, message: message.into(), causes: Vec::new() }
    }

    /// Several wrong fields make one sentence.
    fn invalid(causes: Vec<Cause>) -> Option<Self> {
        let message = causes.iter().map(|cause| cause.message.as_str()).collect::<Vec<_>>().join(", ");
        (!causes.is_empty()).then_some(Self { code: 422, message, causes })
    }
}

/// What a machine says about running, as written.
#[derive(Debug, Clone, Copy, Default)]
pub struct MachineSpec<'a> {
    pub running: Option<bool>,
    pub strategy: Option<&'a str>,
    pub has_template: bool,
}

pub fn machine(spec: &MachineSpec<'_>) -> Option<Denial> {
    let mut causes = Vec::new();
    if !spec.has_template {
        causes.push(Cause {
            reason: "FieldValueRequired",
            message: "missing virtual machine template.".into(),
            field: "spec.template".into(),
        });
        return Denial::invalid(causes);
    }
    match (spec.running, spec.strategy) {
        (Some(_), Some(_)) => causes.push(Cause::invalid(
            "spec.running",
            "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead",
        )),
        (None, None) => causes.push(Cause::invalid("spec.running", "RunStrategy must be specified")),
        _ => {}
    }
    match spec.strategy {
        Some("WaitAsReceiver") => causes.push(Cause::invalid(
            "spec.runStrategy",
            "Invalid RunStrategy (WaitAsReceiver), DecentralizedLiveMigration feature gate is not enabled in kubevirt resource",
        )),
        Some(word) if RunStrategy::of(word).is_none() => {
            causes.push(Cause::invalid("spec.runStrategy", format!("Invalid RunStrategy ({word})")));
        }
        _ => {}
    }
    Denial::invalid(causes)
}

/// A migration that is being created. `others` are those of the same instance.
pub fn migration<'a>(
    new: &Migration,
    may_set_priority: bool,
    instance: Option<&Instance>,
    others: impl IntoIterator<Item = &'a Migration>,
) -> Option<Denial> {
    if new.instance.name.is_empty() {
        return Denial::invalid(vec![Cause {
            reason: "FieldValueRequired",
            message: "vmiName is missing".into(),
            field: "spec.vmiName".into(),
        }]);
    }
    if !new.priority.is_empty() && !may_set_priority {
        return Denial::invalid(vec![Cause {
            reason: "FieldValueForbidden",
            message: "Priority can only be set by system components".into(),
            field: "spec.priority".into(),
        }]);
    }
    let Some(instance) = instance else {
        return Some(Denial::bad(format!("the VMI \"{}\" does not exist", new.instance)));
    };
    if instance.is_final() {
        return Some(Denial::bad("Cannot migrate VMI in finalized state."));
    }
    if let Some(reason) = condition::find(&instance.conditions, "LiveMigratable")
        .filter(|condition| condition.status == "False")
    {
        return Some(Denial::bad(format!(
            "Cannot migrate VMI, Reason: {}, Message: {}",
            reason.reason.as_deref().unwrap_or_default(),
            reason.message.as_deref().unwrap_or_default()
        )));
    }
    let busy = others.into_iter().find(|other| !other.phase.is_final() && other.key != new.key)?;
    Some(Denial::bad(format!(
        "in-flight migration detected. Active migration job ({}) is currently already in progress for VMI {}.",
        busy.uid, new.instance.name
    )))
}

/// A migration keeps its specification, and while it runs its label.
pub fn migration_update(same_spec: bool, label_kept: bool, in_flight: bool) -> Option<Denial> {
    let mut causes = Vec::new();
    if !same_spec {
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            message: "update of Migration object's spec is restricted".into(),
            field: "spec".into(),
        });
    } else if in_flight && !label_kept {
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            message: "selector label can't be removed from an in-flight migration".into(),
            field: "Labels".into(),
        });
    }
    Denial::invalid(causes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::testing::instance;
    use crate::machines::{Condition, MigrationPhase, Phase};

    fn said(spec: MachineSpec<'_>) -> Option<String> {
        machine(&MachineSpec { has_template: true, ..spec }).map(|denial| denial.message)
    }

    #[test]
    fn a_machine_says_in_exactly_one_way_how_it_runs() {
        for word in ["Always", "Halted", "Manual", "RerunOnFailure", "Once"] {
            assert_eq!(said(MachineSpec { strategy: Some(word), ..MachineSpec::default() }), None);
        }
        assert_eq!(said(MachineSpec { running: Some(true), ..MachineSpec::default() }), None);
        let both = MachineSpec { running: Some(true), strategy: Some("Always"), has_template: true };
        assert!(said(both).unwrap().contains("mutually exclusive"));
        assert_eq!(said(MachineSpec::default()).as_deref(), Some("RunStrategy must be specified"));
        assert_eq!(
            said(MachineSpec { strategy: Some("always"), ..MachineSpec::default() }).as_deref(),
            Some("Invalid RunStrategy (always)")
        );
    }

    #[test]
    fn m38_m40_one_migration_at_a_time() {
        let vmi = instance("a", Phase::Running);
        let new = migration_of(&vmi, "new", MigrationPhase::Unset);
        let running = migration_of(&vmi, "old", MigrationPhase::Running);
        let denial = migration(&new, false, Some(&vmi), [&running]).unwrap();
        assert_eq!(denial.code, 400);
        assert!(denial.message.starts_with("in-flight migration detected. Active migration job (uid-old)"));
        let done = migration_of(&vmi, "old", MigrationPhase::Succeeded);
        assert_eq!(migration(&new, false, Some(&vmi), [&done]), None);
    }

    fn migration_of(vmi: &Instance, name: &str, phase: MigrationPhase) -> Migration {
        crate::machines::testing::migration(name, vmi, phase)
    }

    #[test]
    fn m39_missing_final_and_unmovable_instances_are_refused() {
        let mut vmi = instance("a", Phase::Running);
        let new = migration_of(&vmi, "new", MigrationPhase::Unset);
        let text = |vmi: Option<&Instance>| migration(&new, false, vmi, []).unwrap().message;
        assert_eq!(text(None), "the VMI \"default/a\" does not exist");
        vmi.conditions = vec![Condition::new("LiveMigratable", false, "DisksNotLiveMigratable", "why")];
        assert_eq!(text(Some(&vmi)), "Cannot migrate VMI, Reason: DisksNotLiveMigratable, Message: why");
        vmi.phase = Phase::Succeeded;
        assert_eq!(text(Some(&vmi)), "Cannot migrate VMI in finalized state.");
    }

    #[test]
    fn m41_m42_priority_is_for_the_system_and_the_specification_stays() {
        let vmi = instance("a", Phase::Running);
        let mut new = migration_of(&vmi, "new", MigrationPhase::Unset);
        new.priority = "system-critical".into();
        assert_eq!(migration(&new, false, Some(&vmi), []).unwrap().code, 422);
        assert_eq!(migration(&new, true, Some(&vmi), []), None);
        assert_eq!(migration_update(false, true, false).unwrap().code, 422);
        assert_eq!(migration_update(true, false, true).unwrap().code, 422);
        assert_eq!(migration_update(true, false, false), None);
    }
}
