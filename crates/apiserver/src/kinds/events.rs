//! Events in both of their versions.
use super::strategy::Strategy;
pub(super) const CORE: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const V1: Strategy = Strategy { ..Strategy::PLAIN };
