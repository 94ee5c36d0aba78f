//! Protocols that are explored completely, as part of every test run: nothing is broken, and each flaw that is planted is found.

use evac_sim::explore::{Subject, named};

fn explored(name: &str) {
    let Some(subject): Option<&Subject> = named(name) else { panic!("there is no protocol {name}") };
    let whole = (subject.explore)(None);
    assert!(whole.complete, "{whole}\n{:#?}", whole.broken);
    for flaw in subject.flaws {
        let found = (subject.explore)(Some(flaw.name));
        assert!(found.broken.is_some(), "{}: {found}", flaw.words);
    }
}

#[test]
fn two_drains_never_both_work_on_a_node_and_each_flaw_of_the_claim_is_found() {
    explored("claim");
}

#[test]
fn nothing_of_another_is_given_back_and_each_flaw_of_ownership_is_found() {
    explored("ownership");
}

#[test]
fn two_operators_never_both_lead_nor_exceed_a_limit_and_each_flaw_of_leadership_is_found() {
    explored("leadership");
}

#[test]
fn nothing_is_released_after_a_sign_of_life_and_each_flaw_of_fencing_is_found() {
    explored("fencing");
}
