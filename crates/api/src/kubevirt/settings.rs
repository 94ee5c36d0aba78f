//! The cluster's settings, from the KubeVirt object, the old ConfigMap and the HyperConverged object.

use evac_core::machines::Config;
use serde_json::Value;

use super::wire::{Configuration, Migrations};

/// Where each setting may come from; later sources win over the defaults, and the KubeVirt object over the ConfigMap.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// `data.migrations` of the ConfigMap `kubevirt-config`, parsed.
    pub legacy: Option<Migrations>,
    pub kubevirt: Option<Configuration>,
    /// The eviction strategy of the HyperConverged object.
    pub hyperconverged: Option<String>,
}

impl Sources {
    pub fn config(&self) -> Config {
        let mut config = Config::default();
        if let Some(legacy) = &self.legacy {
            overlay(&mut config, legacy);
        }
        if let Some(strategy) = &self.hyperconverged {
            config.eviction_strategy = Some(strategy.clone());
        }
        if let Some(kubevirt) = &self.kubevirt {
            if let Some(migrations) = &kubevirt.migrations {
                overlay(&mut config, migrations);
            }
            if kubevirt.eviction_strategy.is_some() {
                config.eviction_strategy.clone_from(&kubevirt.eviction_strategy);
            }
        }
        config
    }
}

fn overlay(config: &mut Config, from: &Migrations) {
    fn set<T: Clone>(field: &mut T, value: Option<&T>) {
        if let Some(value) = value {
            *field = value.clone();
        }
    }
    set(&mut config.drain_taint_key, from.node_drain_taint_key.as_ref());
    set(&mut config.parallel_per_cluster, from.parallel_migrations_per_cluster.as_ref());
    set(&mut config.parallel_outbound_per_node, from.parallel_outbound_migrations_per_node.as_ref());
    set(&mut config.completion_seconds_per_gib, from.completion_timeout_per_gib.as_ref());
    set(&mut config.progress_timeout_seconds, from.progress_timeout.as_ref());
    set(&mut config.utility_volumes_seconds, from.utility_volumes_timeout.as_ref());
    set(&mut config.allow_auto_converge, from.allow_auto_converge.as_ref());
    set(&mut config.allow_post_copy, from.allow_post_copy.as_ref());
    set(&mut config.unsafe_override, from.unsafe_migration_override.as_ref());
    set(&mut config.max_downtime_ms, from.max_downtime_ms.as_ref());
    if from.allow_workload_disruption.is_some() {
        config.allow_workload_disruption = from.allow_workload_disruption;
    }
    if let Some(bandwidth) = &from.bandwidth_per_migration {
        config.bandwidth_per_migration = bandwidth.text();
    }
}

/// The eviction strategy of a HyperConverged object: v1 moved it.
pub fn hyperconverged_strategy(object: &Value) -> Option<String> {
    object
        .pointer("/spec/virtualization/evictionStrategy")
        .or_else(|| object.pointer("/spec/evictionStrategy"))
        .and_then(Value::as_str)
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_kubevirt_object_wins_over_older_places() {
        let sources = Sources {
            legacy: serde_json::from_value(
                json!({"nodeDrainTaintKey": "mytaint/drain", "parallelMigrationsPerCluster": 3}),
            )
            .ok(),
            kubevirt: serde_json::from_value(
                json!({"migrations": {"parallelMigrationsPerCluster": 9, "bandwidthPerMigration": "64Mi"}}),
            )
            .ok(),
            hyperconverged: Some("LiveMigrate".into()),
        };
        let config = sources.config();
        assert_eq!(config.drain_taint_key, "mytaint/drain");
        assert_eq!(config.parallel_per_cluster, 9);
        assert_eq!(config.parallel_outbound_per_node, 2);
        assert_eq!(config.bandwidth_per_migration, "64Mi");
        assert_eq!(config.default_strategy(), "LiveMigrate");
        assert_eq!(Sources::default().config(), Config::default());
    }

    #[test]
    fn both_places_of_the_hyperconverged_strategy_are_known() {
        let old = json!({"spec": {"evictionStrategy": "None"}});
        let new = json!({"spec": {"virtualization": {"evictionStrategy": "LiveMigrate"}}});
        assert_eq!(hyperconverged_strategy(&old).as_deref(), Some("None"));
        assert_eq!(hyperconverged_strategy(&new).as_deref(), Some("LiveMigrate"));
        assert_eq!(hyperconverged_strategy(&json!({})), None);
    }
}
