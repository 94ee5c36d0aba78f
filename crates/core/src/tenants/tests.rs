//! Decisions about tenants.
