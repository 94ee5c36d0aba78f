//! The rooms of this crate, and which of them may know which: each knows only those to its left.
//!
//! ```text
//!  cluster ◀─ action ◀─ reasons ◀─ machines ◀─ drain ◀─ maintenance · tenants · failover · plan (not each other)
//! ```

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::path::Path;

use evac_rooms::Rooms;

const ROWS: &[&[&str]] = &[
    &["cluster"],
    &["action"],
    &["reasons"],
    &["machines"],
    &["drain"],
    // The operator's own affairs stand beside the roles: no room knows them.
    &["maintenance", "tenants", "failover", "plan", "certificates", "leadership"],
    &["lib"],
];

#[test]
fn each_room_knows_only_those_to_its_left() {
    let rooms = Rooms::of_crate(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    let wrong = rooms.against(ROWS);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
