//! The cluster's settings for virtual machines, with KubeVirt's defaults.

pub use crate::cluster::settings::Config;

impl Config {
    /// How many migrations from one node can run at the same time, if no other node has any.
    pub fn at_once_from_a_node(&self) -> usize {
        self.parallel_outbound_per_node.min(self.parallel_per_cluster) as usize
    }

    /// The strategy of an instance that names none.
    pub fn default_strategy(&self) -> &str {
        self.eviction_strategy.as_deref().unwrap_or("None")
    }
}
