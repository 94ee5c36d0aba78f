//! What is refused when an object is created or changed. The words are KubeVirt's.

use super::condition;
use super::strategy::Strategy;
use crate::cluster::fact::{Instance, Migration, RunStrategy};
use crate::cluster::selector::is_qualified_name;

/// A refusal: a status code, a sentence, and the fields it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The HTTP status: 400, 403, 422 or 429.
    pub code: u16,
    /// The sentence for people; programs match on KubeVirt's.
    pub message: String,
    /// The fields that are wrong, or a word for programs; may be empty.
    pub causes: Vec<Cause>,
}

/// An entry of `status.details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// In one word, such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// What is wrong, as a sentence.
    pub message: String,
    /// The path of the field, such as `spec.template`; empty where it is about none.
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
    /// `spec.running`, the deprecated field.
    pub running: Option<bool>,
    /// `spec.runStrategy`.
    pub strategy: Option<&'a str>,
    /// Whether `spec.template` is there.
    pub has_template: bool,
    /// The eviction strategy of its template.
    pub eviction_strategy: Option<&'a str>,
}

fn eviction_strategy(word: Option<&str>, field: &str) -> Option<Cause> {
    let unknown = word.filter(|word| Strategy::of(word).is_none())?;
    let message = format!("{field} is set with an unrecognized option: {unknown}; give {}", Strategy::WORDS);
    Some(Cause::invalid(field, message))
}

/// An instance that is being created.
pub fn instance(strategy: Option<&str>) -> Option<Denial> {
    Denial::invalid(eviction_strategy(strategy, "spec.evictionStrategy").into_iter().collect())
}

/// What the KubeVirt object says about moving guests. A bad setting is refused, so what held before goes on.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClusterSpec<'a> {
    /// `spec.configuration.evictionStrategy`.
    pub eviction_strategy: Option<&'a str>,
    /// `spec.configuration.migrations.nodeDrainTaintKey`.
    pub drain_taint_key: Option<&'a str>,
    /// `spec.configuration.migrations.parallelMigrationsPerCluster`.
    pub parallel_per_cluster: Option<i64>,
    /// `spec.configuration.migrations.parallelOutboundMigrationsPerNode`.
    pub parallel_outbound_per_node: Option<i64>,
}

/// The KubeVirt object that is being created or changed.
pub fn cluster(spec: &ClusterSpec<'_>) -> Option<Denial> {
    let mut causes: Vec<Cause> =
        eviction_strategy(spec.eviction_strategy, "spec.configuration.evictionStrategy")
            .into_iter()
            .collect();
    if let Some(key) = spec.drain_taint_key.filter(|key| !is_qualified_name(key)) {
        let field = "spec.configuration.migrations.nodeDrainTaintKey";
        causes.push(Cause::invalid(
            field,
            format!("{field} is no key of a taint: {key:?}; write it as domain/name"),
        ));
    }
    for (field, limit) in [
        ("spec.configuration.migrations.parallelMigrationsPerCluster", spec.parallel_per_cluster),
        ("spec.configuration.migrations.parallelOutboundMigrationsPerNode", spec.parallel_outbound_per_node),
    ] {
        if let Some(limit) = limit.filter(|limit| *limit < 1) {
            causes.push(Cause::invalid(
                field,
                format!("{field} must be at least 1, not {limit}: nothing could move"),
            ));
        }
    }
    Denial::invalid(causes)
}

/// A machine that is being created or changed.
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
    causes.extend(eviction_strategy(spec.eviction_strategy, "spec.template.spec.evictionStrategy"));
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
        let both = MachineSpec { running: Some(true), strategy: Some("Always"), ..MachineSpec::default() };
        assert!(said(both).unwrap().contains("mutually exclusive"));
        assert_eq!(said(MachineSpec::default()).as_deref(), Some("RunStrategy must be specified"));
        assert_eq!(
            said(MachineSpec { strategy: Some("always"), ..MachineSpec::default() }).as_deref(),
            Some("Invalid RunStrategy (always)")
        );
    }

    #[test]
    fn settings_that_make_no_sense_are_refused_with_what_to_write_instead() {
        let always = MachineSpec { strategy: Some("Always"), ..MachineSpec::default() };
        assert_eq!(
            said(MachineSpec { eviction_strategy: Some("Evict"), ..always }).as_deref(),
            Some(
                "spec.template.spec.evictionStrategy is set with an unrecognized option: Evict; \
                 give LiveMigrate, LiveMigrateIfPossible, None or External"
            )
        );
        assert_eq!(said(MachineSpec { eviction_strategy: Some("External"), ..always }), None);
        assert_eq!(instance_review(Some("livemigrate")), Some(422));
        assert_eq!(instance_review(None), None);
        let bad = ClusterSpec {
            eviction_strategy: Some("x"),
            drain_taint_key: Some("not a key"),
            parallel_per_cluster: Some(0),
            parallel_outbound_per_node: Some(-1),
        };
        assert_eq!(cluster(&bad).unwrap().causes.len(), 4);
        let good = ClusterSpec {
            eviction_strategy: Some("LiveMigrate"),
            drain_taint_key: Some("mytaint/drain"),
            parallel_per_cluster: Some(1),
            parallel_outbound_per_node: None,
        };
        assert_eq!(cluster(&good), None);
    }

    fn instance_review(word: Option<&str>) -> Option<u16> {
        super::instance(word).map(|denial| denial.code)
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
