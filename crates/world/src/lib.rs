//! evac-world
