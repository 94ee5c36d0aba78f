//! The operator as it is installed: what installs it, with which rights it runs, and that it can be moved; and the command in kubectl's place.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where, and shows the table it is about"
)]

mod alone;
mod audit;
mod guard;
mod handover;
mod in_place_of_kubectl;
mod manifests;
mod rights;
#[allow(dead_code, reason = "shared with the scenarios' own test")]
#[path = "../scenario/mod.rs"]
mod scenario;
mod watches;

/// Says what was left out, and leaves a note for the summary of `cargo xtask test`.
fn skip(why: &str) {
    use std::io::Write as _;
    eprintln!("skipped: {why}");
    if let Some(path) = std::env::var_os("EVAC_SKIPPED")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(path)
    {
        let _ = writeln!(file, "{why}");
    }
}
