//! evac-core
