//! Webhook configurations and admission policies.
use super::strategy::Strategy;
pub(super) const VALIDATING: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const MUTATING: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const POLICY: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const POLICY_BINDING: Strategy = Strategy { ..Strategy::PLAIN };
