//! The corpora of the fuzz targets and some mutations of each, as part of every test run; `evac-sim fuzz` makes many.

use evac_sim::fuzz::{ALL, named};

/// For each target.
const MUTATIONS: u64 = 400;

#[test]
fn no_text_of_others_stops_evac_or_is_believed() {
    for target in const { &ALL } {
        let tried = target.run(MUTATIONS, 1).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(tried > MUTATIONS + 10, "{}: {tried}", target.name);
    }
}

#[test]
fn each_target_has_a_name_by_which_it_is_found() {
    for target in const { &ALL } {
        assert!(named(target.name).is_some_and(|found| found.about == target.about), "{}", target.name);
    }
}
