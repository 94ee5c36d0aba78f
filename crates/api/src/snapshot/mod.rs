//! A snapshot of a cluster in a file: enough to judge, plan and rehearse without the cluster, and nothing that is secret.
//!
//! ```text
//!   list of a kind ─▶ allow (which fields) ─▶ a line ─┐
//!                            kinds (which kinds)      ├─▶ file (gzip) ─▶ load ─▶ Index, Places
//!   what could be read, and what not ─▶ header ───────┘
//! ```
//!
//! What goes in is decided by a list of what may ([`kinds`], [`allow`]), so that a field that somebody invents tomorrow stays out.

pub mod allow;
pub mod file;
pub mod header;
pub mod kinds;
pub mod load;

#[cfg(test)]
mod tests;

pub use file::{SnapshotError, SnapshotReader, write};
pub use header::{Cluster, Gap, Header, KindState, Reading};
pub use kinds::{KINDS, SnapshotKind};
pub use load::{Loaded, load};
