//! Services and endpoints.
use super::strategy::Strategy;
pub(super) const SERVICE: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const ENDPOINTS: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const ENDPOINT_SLICE: Strategy = Strategy { ..Strategy::PLAIN };
