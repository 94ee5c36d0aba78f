//! evac-api
