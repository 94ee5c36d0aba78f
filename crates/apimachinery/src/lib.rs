//! What clients and servers of the Kubernetes API must read in the same way, as `k8s.io/apimachinery` does for Go: label selectors,
//! quantities, the rules for names, and backoff.
//!
//! The embedded server, the core and the simulated cluster all need these, and the server may not depend on the other two. So they are
//! a leaf, pure like the core: no clock, no I/O, no randomness.

pub mod backoff;
pub mod labels;
pub mod quantity;
pub mod validation;
