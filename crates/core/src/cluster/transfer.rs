//! How far a guest has been copied, as the metrics of its node's agent say.

use jiff::Timestamp;

/// What a node agent said about one migration at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// By the clock of the node.
    pub at: Option<Timestamp>,
    /// Bytes copied so far, those that had to be copied again included.
    pub processed: u64,
    /// Bytes that are still to be copied.
    pub remaining: u64,
    /// Bytes of the whole guest, if the agent says so.
    pub total: Option<u64>,
    /// Bytes per second that are copied, and that the guest changes.
    pub rate: Option<u64>,
    /// Bytes per second that the guest changes.
    pub dirty_rate: Option<u64>,
}
