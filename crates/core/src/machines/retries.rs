//! How often moving a guest has failed in a row, and when it may be tried again. It is KubeVirt's rule, and drains follow it too, because beside
//! KubeVirt its controller makes their migrations wait by it.

use std::time::Duration;

use evac_apimachinery::backoff::Backoff;

use crate::cluster::fact::{Migration, MigrationPhase};

/// KubeVirt states no cap. But it keeps no more than five finished migrations of a guest, so it never counts more failures than that.
pub const BACKOFF: Backoff = Backoff::new(Duration::from_secs(20), Duration::from_secs(320));

/// The migrations of a guest that count, the newest first: those that the system made. What users started neither waits nor ends a row.
pub fn automatic<'a>(oldest_first: &[&'a Migration]) -> impl Iterator<Item = &'a Migration> {
    oldest_first.iter().rev().copied().filter(|one| one.is_automatic() && !one.deleting)
}

/// The migrations that failed since the last success, the newest first.
pub fn failed_in_a_row<'a>(oldest_first: &[&'a Migration]) -> Vec<&'a Migration> {
    automatic(oldest_first)
        .take_while(|one| one.phase != MigrationPhase::Succeeded)
        .filter(|one| one.phase == MigrationPhase::Failed)
        .collect()
}

/// The failures before the newest of them, for [`Backoff::pause`].
pub fn earlier(failed: &[&Migration]) -> u32 {
    u32::try_from(failed.len().saturating_sub(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use MigrationPhase::{Failed, Pending, Succeeded};

    use super::*;
    use crate::cluster::fact::Phase;
    use crate::machines::names;
    use crate::machines::testing::{instance, migration};

    #[test]
    fn a_row_of_failures_ends_with_a_success_and_with_nothing_else() {
        let vmi = instance("a", Phase::Running);
        let one = |name: &str, phase, automatic: bool| {
            let mut one = migration(name, &vmi, phase);
            if automatic {
                one.annotations.insert(names::EVACUATION_MIGRATION.into(), "n1".into());
            }
            one
        };
        let mut deleting = one("f", Failed, true);
        deleting.deleting = true;
        let all = [
            one("a", Failed, true),
            one("b", Succeeded, true),
            one("c", Failed, true),
            one("d", Succeeded, false),
            one("e", Pending, true),
            deleting,
            one("g", Failed, true),
        ];
        let all: Vec<&Migration> = all.iter().collect();
        let failed = failed_in_a_row(&all);
        let names: Vec<&str> = failed.iter().map(|one| one.key.name.as_str()).collect();
        assert_eq!(names, ["g", "c"]);
        assert_eq!((earlier(&failed), earlier(&[])), (1, 0));
    }
}
