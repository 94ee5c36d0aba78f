//! evac-engine
