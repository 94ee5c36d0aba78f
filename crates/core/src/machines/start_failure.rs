//! Starts that fail are spaced out: each further failure in a row waits longer.

use jiff::{SignedDuration, Timestamp};

use super::names;
use crate::cluster::fact::{Instance, Machine, RunStrategy, StartFailure};

const LONGEST: i64 = 300;

/// The wait after the `n`th failure in a row: 10 n² seconds and up to half as much again, at most five minutes.
///
/// The extra part depends on the failed instance, so that machines that failed together do not start together.
pub fn delay(n: i64, salt: &str) -> SignedDuration {
    let n = n.max(1);
    let base = n.saturating_mul(n).saturating_mul(10);
    let share = (names::digest(&[salt]) % 1000) as i64;
    let extra = base.saturating_mul(share) / 2000;
    SignedDuration::from_secs(base.saturating_add(extra).min(LONGEST))
}

/// What `status.startFailure` should say now.
pub fn next(
    machine: &Machine,
    strategy: RunStrategy,
    instance: Option<&Instance>,
    now: Timestamp,
) -> Option<StartFailure> {
    let counts = matches!(strategy, RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Once);
    if counts { update(machine.status.start_failure.clone(), instance, now) } else { None }
}

fn update(known: Option<StartFailure>, instance: Option<&Instance>, now: Timestamp) -> Option<StartFailure> {
    let Some(instance) = instance else { return known };
    if instance.has_been_running() {
        return None;
    }
    if !instance.is_final() || known.as_ref().is_some_and(|known| instance.uid == *known.last_uid) {
        return known;
    }
    let count = known.map_or(0, |known| known.count) + 1;
    let retry_after = now.checked_add(delay(count, &instance.uid.text())).unwrap_or(now);
    let retry_after = Timestamp::from_second(retry_after.as_second()).unwrap_or(retry_after);
    Some(StartFailure { count, last_uid: instance.uid.to_string(), retry_after: Some(retry_after) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::Phase;
    use crate::machines::testing::*;

    #[test]
    fn r16_waits_grow_with_the_square_of_failures_up_to_five_minutes() {
        let ranges = [(0, 10, 15), (1, 10, 15), (2, 40, 60), (3, 90, 135), (4, 160, 240), (5, 250, 300)];
        for (n, least, most) in ranges {
            for salt in ["a", "b", "c", "d"] {
                let seconds = delay(n, salt).as_secs();
                assert!((least..=most).contains(&seconds), "n={n} {seconds}");
            }
        }
        assert_eq!(delay(6, "x").as_secs(), 300);
        assert_eq!(delay(i64::MAX, "x").as_secs(), 300);
    }

    #[test]
    fn r11_r12_early_ends_are_counted_once_per_instance() {
        let mut vm = machine("a", RunStrategy::Always);
        let failed = boot(&vm, Phase::Failed);
        let first = next(&vm, RunStrategy::Always, Some(&failed), now()).unwrap();
        assert_eq!((first.count, first.last_uid.as_str()), (1, "uid-a"));
        vm.status.start_failure = Some(first.clone());
        assert_eq!(next(&vm, RunStrategy::Always, Some(&failed), later(5)), Some(first.clone()));
        let mut second = failed.clone();
        second.uid = "other".into();
        let counted = next(&vm, RunStrategy::Always, Some(&second), later(20)).unwrap();
        assert_eq!(counted.count, 2);
        assert!(counted.retry_after > first.retry_after);
    }

    #[test]
    fn r13_r14_running_and_strategies_without_restart_clear_the_count() {
        let mut vm = machine("a", RunStrategy::Always);
        vm.status.start_failure = Some(StartFailure { count: 3, ..StartFailure::default() });
        let running = boot(&vm, Phase::Running);
        assert_eq!(next(&vm, RunStrategy::Always, Some(&running), now()), None);
        for strategy in [RunStrategy::Halted, RunStrategy::Manual] {
            assert_eq!(next(&vm, strategy, None, now()), None);
        }
        for strategy in [RunStrategy::Always, RunStrategy::RerunOnFailure, RunStrategy::Once] {
            assert!(next(&vm, strategy, None, now()).is_some());
        }
    }
}
