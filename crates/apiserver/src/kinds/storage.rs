//! Volumes, claims, classes.
use super::strategy::Strategy;
pub(super) const PERSISTENT_VOLUME: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const PERSISTENT_VOLUME_CLAIM: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const STORAGE_CLASS: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const VOLUME_ATTACHMENT: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const CSI_NODE: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const CSI_DRIVER: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const CSI_STORAGE_CAPACITY: Strategy = Strategy { ..Strategy::PLAIN };
