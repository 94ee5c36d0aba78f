//! A few seeds of each scenario, as part of every test run; `make sim` and `make sim-long` look at many.

use std::sync::atomic::{AtomicUsize, Ordering};

use evac_sim::mode::hunt;
use evac_sim::mutant::{self, Bug};
use evac_sim::plan::Plan;
use evac_sim::run::run;
use evac_sim::scenario::{self, WINDOW};

/// On both cores: a run is one thread.
fn each<T: Sync>(all: &[T], check: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(one);
                }
            });
        }
    });
}

#[test]
fn no_promise_is_broken_in_a_storm_and_a_seed_is_the_same_history_each_time() {
    each(&scenario::ALL, |scenario| {
        let seed = 3;
        let plan = Plan::storm(seed, WINDOW);
        let first = run(*scenario, seed, &plan, true).unwrap();
        assert_eq!(first.log.violations, [], "evac-sim replay --scenario {} {seed}", scenario.name);
        assert!(first.log.commits > 50, "{}: {} commits", scenario.name, first.log.commits);
        let again = run(*scenario, seed, &plan, true).unwrap();
        if let Some((a, b)) = first.log.trace.iter().zip(&again.log.trace).find(|(a, b)| a != b) {
            panic!("{}: the runs part at\n{a}\n{b}", scenario.name);
        }
        assert_eq!(first.log.hash, again.log.hash, "{}", scenario.name);
    });
}

#[test]
fn another_seed_is_another_history() {
    let scenario = scenario::named("drain-pods").unwrap();
    let hash = |seed| run(scenario, seed, &Plan::default(), false).unwrap().log.hash;
    assert_ne!(hash(1), hash(2));
}

#[test]
fn bugs_that_are_planted_are_found() {
    let bugs = [Bug::DeletesInsteadOfEvicting, Bug::EndsGuests, Bug::LeavesTaints, Bug::DeletesByForce];
    each(&bugs, |bug| {
        let planted = mutant::ALL.iter().find(|one| one.bug == *bug).unwrap();
        let found = hunt(planted, 1..3).unwrap();
        assert!(found.is_some(), "{bug} is not found");
    });
}
