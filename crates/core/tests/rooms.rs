//! The rooms of this crate, and which of them may know which: each knows only those to its left.
//!
//! ```text
//!  cluster ◀─ action ◀─ reasons ◀─ machines ◀─ drain ◀─ maintenance · tenants · failover (not each other)
//! ```

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs;
use std::path::{Path, PathBuf};

const IN_ORDER: [&str; 5] = ["cluster", "action", "reasons", "machines", "drain"];
const LAST: [&str; 3] = ["maintenance", "tenants", "failover"];
/// What is no room: the operator's own affairs, which know facts and are known by no room.
const BESIDE: [&str; 3] = ["certificates", "leadership", "lib"];

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
    found
}

/// Tests may look everywhere.
fn is_test(path: &str) -> bool {
    path.contains("test")
}

/// The code before its tests, without comments.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let text = text.split("#[cfg(test)]\npub(crate) mod testing {").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn rooms_named(code: &str) -> Vec<String> {
    let after = code.split("crate::").skip(1);
    let name =
        |rest: &str| rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect::<String>();
    let mut named: Vec<String> = after.map(name).filter(|name| !name.is_empty()).collect();
    named.sort();
    named.dedup();
    named
}

fn may_know(room: &str, other: &str) -> bool {
    let place = |name: &str| IN_ORDER.iter().position(|one| *one == name);
    match (place(room), place(other)) {
        (Some(room), Some(other)) => other <= room,
        (None, Some(_)) => true,
        (_, None) => room == other,
    }
}

#[test]
fn each_room_knows_only_those_to_its_left() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for path in files(&sources) {
        let inside = path.strip_prefix(&sources).unwrap().to_string_lossy().replace('\\', "/");
        let room = inside.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
        if is_test(&inside) {
            continue;
        }
        let is_room = IN_ORDER.contains(&room.as_str()) || LAST.contains(&room.as_str());
        assert!(is_room || BESIDE.contains(&room.as_str()), "{inside} is in no room");
        looked_at += 1;
        for other in rooms_named(&code(&fs::read_to_string(&path).unwrap())) {
            if !may_know(&room, &other) && room != "lib" {
                wrong.push(format!("{inside} knows {other}"));
            }
        }
    }
    assert!(looked_at > 100, "only {looked_at} files were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_order_of_rooms_is_what_is_compared() {
    assert!(may_know("drain", "cluster") && may_know("drain", "drain") && may_know("failover", "machines"));
    assert!(
        !may_know("cluster", "reasons") && !may_know("machines", "drain") && !may_know("drain", "tenants")
    );
    assert!(!may_know("tenants", "failover"), "those to the right do not know each other");
}
