//! The table of acceptance rows is complete, and every test it names exists.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(dir: &Path, all: &mut String) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|end| end == "rs") {
            all.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_row_about_drains_is_there_and_every_test_named_in_it_exists() {
    let rows = (1..=129).map(|number| format!("A{number:03}")).collect();
    check("acceptance.md", "drain", &rows);
}

#[test]
fn every_row_about_maintenance_is_there_and_every_test_named_in_it_exists() {
    let rows = (1..=24).map(|number| format!("B{number:02}")).collect();
    check("acceptance-maintenance.md", "maintenance", &rows);
}

#[test]
fn every_row_about_tenants_is_there_and_every_test_named_in_it_exists() {
    let rows = (1..=16)
        .map(|number| format!("C{number:02}"))
        .chain((1..=14).map(|number| format!("S{number:02}")))
        .collect();
    check("acceptance-tenants.md", "tenants", &rows);
}

#[test]
fn every_row_about_failed_nodes_is_there_and_every_test_named_in_it_exists() {
    let rows = (1..=31).map(|number| format!("D{number:02}")).collect();
    check("acceptance-failover.md", "failover", &rows);
}

#[test]
fn every_promise_is_there_with_what_would_break_it_and_every_test_named_in_it_exists() {
    let rows = (1..=15)
        .map(|number| format!("I{number}"))
        .chain((1..=19).map(|number| format!("W{number}")))
        .collect();
    check("safety.md", "failover", &rows);
}

fn check(document: &str, scenarios: &str, wanted: &BTreeSet<String>) {
    let table = fs::read_to_string(root().join("docs").join(document)).unwrap();
    let mut code = String::new();
    sources(&root().join("crates"), &mut code);
    let cases = root().join("crates/apiserver/tests/conformance/cases/evicting.txt");
    let cases = fs::read_to_string(cases).unwrap();
    let mut rows = BTreeSet::new();
    let is_row = |line: &&str| {
        line.strip_prefix("| ")
            .and_then(|rest| rest.split(' ').next())
            .is_some_and(|row| wanted.contains(row))
    };
    for line in table.lines().filter(is_row) {
        let (row, rest) = line.trim_start_matches("| ").split_once(" | ").unwrap();
        assert!(rows.insert(row.to_owned()), "{row} is there twice");
        let shown = rest.split_once(" | ").unwrap().1;
        let names: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        let excused = shown.contains("does not apply") || shown.contains("as A075");
        assert!(excused || !names.is_empty(), "{row} names no test and no reason");
        for name in names {
            let exists = if let Some(case) = name.strip_prefix("evicting: ") {
                cases.lines().any(|line| line == format!("== {case}"))
            } else if name.ends_with(".scenario") {
                root().join("scenarios").join(scenarios).join(name).exists()
            } else if let Some(beginning) = name.strip_suffix('…') {
                code.contains(&format!("fn {beginning}"))
            } else if name.contains('_') && !name.contains('/') {
                code.contains(&format!("fn {name}("))
            } else {
                true
            };
            assert!(exists, "{row}: there is no {name}");
        }
    }
    assert_eq!(rows, *wanted);
}
