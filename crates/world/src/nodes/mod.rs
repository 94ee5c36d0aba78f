//! What a cluster does about its nodes: who has gone silent, which taints follow, which pods must go.

pub mod lifecycle;
pub mod pod_gc;
pub mod taint_eviction;
pub mod taints;
pub mod zones;

#[cfg(test)]
mod tests;
