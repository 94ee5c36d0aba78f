//! The core stays pure: nothing in its dependency tree can reach a network, a clock, a runtime or a random number.

use std::collections::BTreeSet;
use std::process::Command;

/// Everything the core may stand on, directly or not.
const ALLOWED: &[&str] = &[
    "arcstr",
    "evac-apimachinery",
    "evac-core",
    "jiff",
    "jiff-core",
    "jiff-static",
    "proc-macro2",
    "quote",
    "serde",
    "serde_core",
    "serde_derive",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
];

#[test]
fn the_core_depends_on_nothing_that_does_io_or_tells_the_time() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "-p", "evac-core", "-e", "normal", "--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo is there, it runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo writes text");
    let found: BTreeSet<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(found.contains("evac-core"), "{text}");
    let strangers: Vec<_> = found.iter().filter(|name| !ALLOWED.contains(*name)).collect();
    assert!(strangers.is_empty(), "not allowed under the core: {strangers:?}");
}
