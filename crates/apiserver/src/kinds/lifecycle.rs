//! lifecycle.k8s.io.
use super::strategy::Strategy;
pub(super) const EVICTION_REQUEST: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const EVICTION: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
