//! The rooms of this crate, from its leaves on: each knows only those of earlier rows.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::path::Path;

use evac_rooms::Rooms;

const ROWS: &[&[&str]] = &[
    // What is known of objects, and what can be done to them.
    &["objects", "options", "quantity", "random"],
    &["instance"],
    &["kinds"],
    &["effects", "mirror"],
    &["actor", "discovery", "events"],
    &["queue"],
    // The actors. A node agent knows its kubelet and its hypervisor, and controllers know what the scheduler asks of nodes.
    &["disruption", "gc", "hypervisor", "kubelet", "scheduler"],
    &["handler", "nodes", "truth", "workloads"],
    // The loop.
    &["actors", "asks", "perform", "watch"],
    &["runtime"],
    &["lib"],
    &["aftermath"],
];

#[test]
fn each_room_knows_only_those_of_earlier_rows() {
    let rooms = Rooms::of_crate(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    let wrong = rooms.against(ROWS);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
