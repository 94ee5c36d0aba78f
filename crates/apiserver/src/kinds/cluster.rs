//! Namespaces, nodes, configuration.
use super::strategy::Strategy;
pub(super) const NAMESPACE: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const NODE: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const CONFIG_MAP: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const SECRET: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const SERVICE_ACCOUNT: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const RESOURCE_QUOTA: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const LIMIT_RANGE: Strategy = Strategy { ..Strategy::PLAIN };
