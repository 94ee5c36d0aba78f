//! Budgets, leases, priorities.
use super::strategy::Strategy;
pub(super) const POD_DISRUPTION_BUDGET: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const LEASE: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const PRIORITY_CLASS: Strategy = Strategy { ..Strategy::PLAIN };
