//! Workloads.
use super::strategy::Strategy;
pub(super) const POD_TEMPLATE: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const REPLICATION_CONTROLLER: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const DEPLOYMENT: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const REPLICA_SET: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const DAEMON_SET: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const STATEFUL_SET: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const CONTROLLER_REVISION: Strategy = Strategy { ..Strategy::PLAIN };
pub(super) const JOB: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
pub(super) const CRON_JOB: Strategy = Strategy { ..Strategy::SPEC_AND_STATUS };
