//! Roles and bindings.
use super::strategy::Strategy;
pub(super) const ROLE: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const ROLE_BINDING: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const CLUSTER_ROLE_BINDING: Strategy = Strategy { ..Strategy::PLAIN };
