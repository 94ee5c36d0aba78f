//! Pods.
use super::strategy::Strategy;
pub(super) const POD: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
