//! The rooms of this crate, from its leaves on: each knows only those of earlier rows.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::path::Path;

use evac_rooms::Rooms;

const ROWS: &[&[&str]] = &[
    // What can be said of one request or one object.
    &["cel", "identity", "ids", "jsonpath", "path", "protobuf", "selector", "status", "store"],
    &["reply", "schema", "webhooks"],
    &["kinds", "patch"],
    &["aggregated", "discovery", "table"],
    &["openapi"],
    // The server as a value, and what is asked of it.
    &["server"],
    &["admission", "auth"],
    &["rest"],
    // Its ways in.
    &["service"],
    &["front"],
    &["lib"],
];

#[test]
fn each_room_knows_only_those_of_earlier_rows() {
    let rooms = Rooms::of_crate(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    let wrong = rooms.against(ROWS);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
