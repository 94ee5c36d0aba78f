//! How a guest behaves. An instance says so itself, with annotations (in a VirtualMachine they stand in the template):
//!
//! | annotation | meaning | default |
//! |---|---|---|
//! | `evac.dev/boot-seconds` | from the start of the guest until the system inside is up, has its agent, and hears the power button | 5 |
//! | `evac.dev/shutdown-seconds` | how long the system inside takes to shut down | 3 |
//! | `evac.dev/dirty-rate` | MiB of memory that become dirty per second | 50 |
//! | `evac.dev/migration-seconds` | a migration takes this long, whatever memory and network say | – |
//! | `evac.dev/migration-fails` | `true`: every migration fails · a number: the first so many of them | – |
//! | `evac.dev/not-migratable` | it cannot be moved, for this reason: a word, a colon and a sentence | – |
//! | `evac.dev/ignores-acpi` | `true`: the power button does nothing, the guest is killed at the end of its grace | `false` |
//! | `evac.dev/crash-after-seconds` | the guest crashes so long after the order to start it (0: before it runs) | – |
//! | `evac.dev/power-off-after-seconds` | the system inside shuts down by itself | – |
//! | `evac.dev/guest-agent` | `false`: no guest agent | `true` |
//! | `evac.dev/wanted-guest-state` | `Paused` or `Running`: what the pause and unpause subresources want | – |

use serde_json::Value;

use crate::hypervisor::guest::Plan;
use crate::hypervisor::transfer::Terms;
use crate::instance::VirtualMachineInstance;
use crate::objects::annotation;
use crate::quantity;
use crate::random::between;

/// Says of an instance that it cannot be moved, and why.
pub const NOT_MIGRATABLE: &str = "evac.dev/not-migratable";
const MIB: f64 = 1024.0 * 1024.0;
const DEFAULT_MEMORY: f64 = 1024.0 * MIB;
const DEFAULT_DIRTY: f64 = 50.0;
/// Seconds per (decimal, begun) gigabyte, and without progress, after which a migration is given up.
const COMPLETION_PER_GIGABYTE: f64 = 150.0;
const PROGRESS_TIMEOUT: f64 = 150.0;
const MAX_DOWNTIME: f64 = 0.3;

fn number(vmi: &VirtualMachineInstance, name: &str) -> Option<f64> {
    let value = annotation(&vmi.metadata, name)?.trim().parse::<f64>().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value)
}

fn yes(vmi: &VirtualMachineInstance, name: &str) -> bool {
    annotation(&vmi.metadata, name).is_some_and(|v| v.trim() == "true")
}

pub fn has_agent(vmi: &VirtualMachineInstance) -> bool {
    annotation(&vmi.metadata, "evac.dev/guest-agent").is_none_or(|v| v.trim() != "false")
}

/// What the user last wanted of a running guest, if anything.
pub fn wants_paused(vmi: &VirtualMachineInstance) -> Option<bool> {
    match annotation(&vmi.metadata, "evac.dev/wanted-guest-state")?.trim() {
        "Paused" => Some(true),
        "Running" => Some(false),
        _ => None,
    }
}

/// Why the guest cannot be moved, where that is given: the reason and its sentence.
pub fn not_migratable(vmi: &VirtualMachineInstance) -> Option<(String, String)> {
    let text = annotation(&vmi.metadata, NOT_MIGRATABLE)?;
    let (reason, message) = text.split_once(':').unwrap_or((text, ""));
    Some((reason.trim().to_owned(), message.trim().to_owned()))
}

pub fn plan(vmi: &VirtualMachineInstance, seed: u64) -> Plan {
    Plan {
        start: between(seed, &format!("start of {}", vmi.key()), 0.3, 1.0),
        boot: number(vmi, "evac.dev/boot-seconds").unwrap_or(5.0),
        shutdown: number(vmi, "evac.dev/shutdown-seconds").unwrap_or(3.0),
        acpi: vmi.has_acpi(),
        ignores_acpi: yes(vmi, "evac.dev/ignores-acpi"),
        crash_after: number(vmi, "evac.dev/crash-after-seconds"),
        power_off_after: number(vmi, "evac.dev/power-off-after-seconds"),
        starts_paused: vmi.spec["startStrategy"] == "Paused",
        memory: vmi.memory_bytes().unwrap_or(DEFAULT_MEMORY),
        vcpus: vmi.vcpus(),
        dirty_rate: number(vmi, "evac.dev/dirty-rate").unwrap_or(DEFAULT_DIRTY) * MIB,
    }
}

/// What a migration may do, from the configuration that the control plane handed over with it.
pub fn terms(vmi: &VirtualMachineInstance, failed_before: usize) -> Terms {
    let config = &vmi.migration().0["migrationConfiguration"];
    let memory = vmi.memory_bytes().unwrap_or(DEFAULT_MEMORY);
    let flag = |name: &str| config[name].as_bool().unwrap_or(false);
    let seconds = |name: &str, default: f64| {
        let value = config[name].as_f64().unwrap_or(default);
        (value > 0.0).then_some(value)
    };
    let per_gigabyte = seconds("completionTimeoutPerGiB", COMPLETION_PER_GIGABYTE);
    let bandwidth = match &config["bandwidthPerMigration"] {
        Value::String(text) => quantity::parse(text).map(|milli| milli as f64 / 1000.0),
        other => other.as_f64(),
    };
    let fails = annotation(&vmi.metadata, "evac.dev/migration-fails").is_some_and(|v| {
        let v = v.trim();
        v == "true" || v.parse::<usize>().is_ok_and(|count| failed_before < count)
    });
    Terms {
        memory,
        dirty_rate: number(vmi, "evac.dev/dirty-rate").unwrap_or(DEFAULT_DIRTY) * MIB,
        max_downtime: config["maxDowntimeMs"].as_f64().map_or(MAX_DOWNTIME, |ms| ms / 1000.0),
        bandwidth: bandwidth.filter(|b| *b > 0.0),
        auto_converge: flag("allowAutoConverge"),
        post_copy: flag("allowPostCopy"),
        may_disrupt: config["allowWorkloadDisruption"].as_bool().unwrap_or_else(|| flag("allowPostCopy")),
        completion_limit: per_gigabyte.map(|s| s * (memory / 1e9).ceil()),
        stall_limit: seconds("progressTimeout", PROGRESS_TIMEOUT),
        fixed: number(vmi, "evac.dev/migration-seconds"),
        fails: fails.then(|| "the migration was made to fail".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn instance(annotations: &[(&str, &str)], status: Value) -> VirtualMachineInstance {
        let mut vmi =
            VirtualMachineInstance { metadata: crate::build::meta("ns", "vm"), ..Default::default() };
        vmi.metadata.annotations = Some(crate::build::labels(annotations));
        vmi.spec = json!({ "domain": { "memory": { "guest": "4Gi" } } });
        vmi.status = status;
        vmi
    }

    #[test]
    fn annotations_decide_and_nonsense_is_ignored() {
        let vmi = instance(
            &[
                ("evac.dev/boot-seconds", "40"),
                ("evac.dev/shutdown-seconds", "soon"),
                ("evac.dev/dirty-rate", "200"),
                ("evac.dev/ignores-acpi", "true"),
            ],
            json!({}),
        );
        let plan = plan(&vmi, 1);
        assert!((plan.boot - 40.0).abs() < f64::EPSILON);
        assert!((plan.shutdown - 3.0).abs() < f64::EPSILON);
        assert!((plan.dirty_rate - 200.0 * MIB).abs() < 1.0);
        assert!(plan.ignores_acpi);
        assert!((plan.memory - 4096.0 * MIB).abs() < 1.0);
    }

    #[test]
    fn limits_follow_the_configuration_and_the_size_in_begun_decimal_gigabytes() {
        let config = json!({ "migrationState": { "migrationConfiguration": {
            "completionTimeoutPerGiB": 20, "progressTimeout": 0, "bandwidthPerMigration": "64Mi",
            "allowPostCopy": true } } });
        let terms = terms(&instance(&[], config), 0);
        // 4 GiB are 4.29 GB.
        assert_eq!(terms.completion_limit, Some(100.0));
        assert_eq!(terms.stall_limit, None);
        assert_eq!(terms.bandwidth, Some(64.0 * MIB));
        assert!(terms.post_copy && terms.may_disrupt);
    }

    #[test]
    fn migrations_fail_always_or_so_many_times() {
        let always = instance(&[("evac.dev/migration-fails", "true")], json!({}));
        assert!(terms(&always, 7).fails.is_some());
        let twice = instance(&[("evac.dev/migration-fails", "2")], json!({}));
        assert!(terms(&twice, 1).fails.is_some());
        assert!(terms(&twice, 2).fails.is_none());
    }
}
