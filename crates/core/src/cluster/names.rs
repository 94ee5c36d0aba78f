//! Names: the keys of KubeVirt's objects, and names of objects we create.
//!
//! A created object's name is derived from what it is made for, so that acting twice on an old view collides instead of
//! creating a second object.

/// Role of a pod: `virt-launcher` or `hotplug-disk`.
pub const APP: &str = "kubevirt.io";
/// Label of a launcher: the uid of its instance.
pub const CREATED_BY: &str = "kubevirt.io/created-by";
/// On a launcher: the name of its machine, which its instance has too.
pub const MACHINE_NAME: &str = "vm.kubevirt.io/name";
/// Label of an instance: the node it is on.
pub const NODE_NAME: &str = "kubevirt.io/nodeName";
/// Annotation of a launcher: the name of its instance.
pub const DOMAIN: &str = "kubevirt.io/domain";
/// Label of a node: KubeVirt's agent works there, so launchers may be placed on it.
pub const SCHEDULABLE: &str = "kubevirt.io/schedulable";
/// Label of a target pod: the uid of its migration.
pub const MIGRATION_JOB_UID: &str = "kubevirt.io/migrationJobUID";
/// Annotation of a target pod: the name of its migration.
pub const MIGRATION_JOB_NAME: &str = "kubevirt.io/migrationJobName";
/// Label of an instance that is being moved: the node it moves to, so that the agent there takes it up.
pub const MIGRATION_TARGET_NODE: &str = "kubevirt.io/migrationTargetNodeName";
/// Label of a migration: the name of its instance.
pub const MIGRATION_SELECTOR: &str = "kubevirt.io/vmi-name";
/// Annotation of a migration that was made because a node is wanted: the name of that node.
pub const EVACUATION_MIGRATION: &str = "kubevirt.io/evacuationMigration";
/// Annotation of a migration that KubeVirt made to bring a guest to a new launcher.
pub const WORKLOAD_UPDATE_MIGRATION: &str = "kubevirt.io/workloadUpdateMigration";
/// Annotation of a migration: after how many seconds it fails because its target pod fits nowhere.
pub const UNSCHEDULABLE_TIMEOUT: &str = "kubevirt.io/migrationUnschedulablePodTimeoutSeconds";
/// Annotation of a migration: after how many seconds it fails because its target pod is not up.
pub const PENDING_TIMEOUT: &str = "kubevirt.io/migrationPendingPodTimeoutSeconds";
/// Annotation of a migration that is not spaced out after failures; KubeVirt's own tests set it.
pub const IGNORE_BACKOFF: &str = "kubevirt.io/func-test-ignore-migration-backoff";
/// Annotation of a launcher whose guest is marked to be moved, for the descheduler.
pub const EVICTION_IN_PROGRESS: &str = "descheduler.alpha.kubernetes.io/eviction-in-progress";
/// What a descheduler calls itself in the evictions it asks for.
pub const DESCHEDULER: &str = "sigs.k8s.io/descheduler";
/// Annotation of an Eviction: the program that asks for it.
pub const REQUESTED_BY: &str = "requested-by";
/// Annotation of an instance: who marked it, if that was the descheduler.
pub const EVICTION_SOURCE: &str = "kubevirt.io/eviction-source";
/// Annotation of launchers: the descheduler may ask for an eviction and has to expect that it takes its time.
pub const REQUEST_EVICT_ONLY: &str = "descheduler.alpha.kubernetes.io/request-evict-only";
/// On a migration: the drain that started it, by the name of its owner.
pub const DRAIN: &str = "evac.dev/drain";
/// Readiness gate of launchers, closed while the guest is paused.
pub const UNPAUSED_GATE: &str = "kubevirt.io/virtual-machine-unpaused";
/// What the guest should do now, for the node agent; see docs/vms.md.
pub const WANTED_GUEST_STATE: &str = "evac.dev/wanted-guest-state";

/// Holds an instance until its pods are gone.
pub const INSTANCE_FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";
/// The same under the name older releases used.
pub const LEGACY_INSTANCE_FINALIZER: &str = "foregroundDeleteVirtualMachine";
/// Holds a machine, and the instances it created, until its controller has seen their end.
pub const MACHINE_FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// Holds a migration until its end was dealt with.
pub const MIGRATION_FINALIZER: &str = "kubevirt.io/migrationJobFinalize";

const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The longest prefix the API server leaves of a generated name.
const PREFIX: usize = 58;

/// A number that depends on all parts and nothing else (FNV-1a).
pub fn digest(parts: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in part.bytes().chain([0xff]) {
            hash ^= u64::from(byte);
            hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}

/// Five characters, of the kind that generated names end with.
pub fn suffix(parts: &[&str]) -> String {
    let mut rest = digest(parts);
    let mut text = String::with_capacity(5);
    for _ in 0..5 {
        text.push(char::from(LETTERS[(rest % LETTERS.len() as u64) as usize]));
        rest /= LETTERS.len() as u64;
    }
    text
}

fn joined(prefix: &str, parts: &[&str]) -> String {
    let mut prefix: String = prefix.chars().take(PREFIX).collect();
    prefix.push_str(&suffix(parts));
    prefix
}

/// The launcher of an instance, or the target of one of its migrations.
pub fn launcher(instance: &str, instance_uid: &str, job_uid: Option<&str>) -> String {
    joined(&format!("virt-launcher-{instance}-"), &[instance_uid, job_uid.unwrap_or("boot")])
}

/// What the names of migrations begin with that were made because a node is wanted.
pub const EVACUATION_PREFIX: &str = "kubevirt-evacuation-";

/// The next migration of an instance off its node; `last` is the identity of the newest one so far.
pub fn evacuation(instance: &str, instance_uid: &str, last: &str) -> String {
    joined(&format!("{EVACUATION_PREFIX}{instance}-"), &[instance_uid, last])
}

/// The budget that guards an instance.
pub fn budget(instance: &str, instance_uid: &str) -> String {
    joined(&format!("kubevirt-disruption-budget-{instance}-"), &[instance_uid])
}

/// The migration by which a drain takes an instance off its node, `after` the newest migration known of it. It holds the name of
/// the instance, so that two instances never want the same one.
pub fn drain(instance: &str, instance_uid: &str, after: Option<&str>) -> String {
    joined(&format!("evac-{instance}-"), &[instance_uid, after.unwrap_or("first")])
}

/// The `n`th replica a set has created; `taken` numbers are skipped by the caller.
pub fn replica(set: &str, set_uid: &str, n: u64) -> String {
    joined(set, &[set_uid, &n.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_cause_gives_the_same_name_and_another_cause_another() {
        let boot = launcher("vm1", "u1", None);
        assert_eq!(boot, launcher("vm1", "u1", None));
        assert_ne!(boot, launcher("vm1", "u2", None));
        assert_ne!(boot, launcher("vm1", "u1", Some("m1")));
        assert!(boot.starts_with("virt-launcher-vm1-"), "{boot}");
        assert_eq!(boot.len(), "virt-launcher-vm1-".len() + 5);
    }

    #[test]
    fn long_names_are_cut_to_what_a_label_can_hold() {
        assert_eq!(launcher(&"x".repeat(80), "u", None).len(), 63);
    }
}
