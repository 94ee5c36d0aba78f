//! The cluster's settings, from the KubeVirt object, the old ConfigMap and the HyperConverged object.

use evac_core::cluster::selector::is_qualified_name;
use evac_core::machines::Config;
use evac_core::machines::beside::Upstream;
use evac_core::machines::strategy::{Origin, Strategy};
use serde_json::Value;

use super::wire::{Configuration, KubeVirt, Migrations};

/// Where each setting may come from; later sources win over the defaults, and the KubeVirt object over the ConfigMap. KubeVirt's own
/// control plane has not read the ConfigMap since v0.48, so where that is at work one that was left behind says nothing.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// `data.migrations` of the ConfigMap `kubevirt-config`, parsed.
    pub legacy: Option<Migrations>,
    pub kubevirt: Option<Configuration>,
    pub hyperconverged: HyperConverged,
    /// What virt-operator says of its work.
    pub upstream: Upstream,
    /// How many nodes there are: HyperConverged's default depends on it.
    pub nodes: usize,
}

/// What the HyperConverged object says of eviction strategies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HyperConverged {
    /// There is no such object.
    #[default]
    Absent,
    Silent,
    Says(String),
}

impl HyperConverged {
    pub fn of(object: Option<&Value>) -> Self {
        match object.map(hyperconverged_strategy) {
            None => Self::Absent,
            Some(None) => Self::Silent,
            Some(Some(word)) => Self::Says(word),
        }
    }
}

impl Sources {
    pub fn config(&self) -> Config {
        let mut config = Config { upstream: self.upstream.clone(), ..Config::default() };
        if let Some(legacy) = &self.legacy
            && !self.upstream.is_in_charge()
        {
            overlay(&mut config, legacy);
        }
        match &self.hyperconverged {
            HyperConverged::Says(word) => set_strategy(&mut config, word, Origin::HyperConverged),
            HyperConverged::Silent => {
                let word = if self.nodes > 1 { Strategy::LiveMigrate } else { Strategy::None };
                set_strategy(&mut config, word.word(), Origin::NodeCount);
            }
            HyperConverged::Absent => {}
        }
        if let Some(kubevirt) = &self.kubevirt {
            if let Some(migrations) = &kubevirt.migrations {
                overlay(&mut config, migrations);
            }
            if let Some(word) = &kubevirt.eviction_strategy {
                // The operator of HyperConverged copies its own word here, and takes back what others write.
                let copied = config.eviction_strategy.as_ref() == Some(word);
                let origin = if copied { config.strategy_origin } else { Origin::KubeVirt };
                set_strategy(&mut config, word, origin);
            }
        }
        config
    }
}

/// An unknown word is ignored, as an unknown setting is.
fn set_strategy(config: &mut Config, word: &str, origin: Origin) {
    if Strategy::of(word).is_some() {
        config.eviction_strategy = Some(word.to_owned());
        config.strategy_origin = origin;
    }
}

fn overlay(config: &mut Config, from: &Migrations) {
    fn set<T: Clone>(field: &mut T, value: Option<&T>) {
        if let Some(value) = value {
            *field = value.clone();
        }
    }
    let key = from.node_drain_taint_key.as_ref().filter(|key| is_qualified_name(key));
    set(&mut config.drain_taint_key, key);
    // A limit that lets nothing move is a mistake, not a wish: what held before goes on.
    let limit =
        |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0);
    set(&mut config.parallel_per_cluster, limit(from.parallel_migrations_per_cluster).as_ref());
    set(&mut config.parallel_outbound_per_node, limit(from.parallel_outbound_migrations_per_node).as_ref());
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

/// What the KubeVirt objects of a cluster say of its control plane. KubeVirt allows one; where somebody made another, the one virt-operator looks after counts.
pub fn upstream(objects: &[KubeVirt]) -> Upstream {
    let looked_after = objects.iter().find(|object| !object.status.phase.is_empty());
    looked_after.map_or_else(Upstream::default, |object| Upstream {
        phase: object.status.phase.clone(),
        version: object.status.observed_kube_virt_version.clone(),
        virt_api: false,
    })
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

    fn all_places(upstream: Upstream) -> Sources {
        let legacy = json!({"nodeDrainTaintKey": "mytaint/drain", "parallelMigrationsPerCluster": 3});
        let migrations = json!({"parallelMigrationsPerCluster": 9, "bandwidthPerMigration": "64Mi"});
        Sources {
            legacy: serde_json::from_value(legacy).ok(),
            kubevirt: serde_json::from_value(json!({"migrations": migrations})).ok(),
            hyperconverged: HyperConverged::Says("LiveMigrate".into()),
            upstream,
            nodes: 3,
        }
    }

    #[test]
    fn the_kubevirt_object_wins_over_older_places() {
        let config = all_places(Upstream::default()).config();
        assert_eq!(config.drain_taint_key, "mytaint/drain");
        assert_eq!(config.parallel_per_cluster, 9);
        assert_eq!(config.parallel_outbound_per_node, 2);
        assert_eq!(config.bandwidth_per_migration, "64Mi");
        assert_eq!(config.default_strategy(), "LiveMigrate");
        assert_eq!(Sources::default().config(), Config::default());
    }

    #[test]
    fn beside_kubevirt_a_config_map_that_was_left_behind_says_nothing() {
        let config = all_places(Upstream { phase: "Deployed".into(), ..Upstream::default() }).config();
        assert!(config.upstream.is_in_charge());
        assert_eq!(config.drain_taint_key, Config::default().drain_taint_key);
        assert_eq!(config.parallel_per_cluster, 9);
    }

    #[test]
    fn a_setting_that_makes_no_sense_changes_nothing() {
        let bad = json!({"evictionStrategy": "livemigrate", "migrations": {
            "nodeDrainTaintKey": "not a key", "parallelMigrationsPerCluster": 0, "parallelOutboundMigrationsPerNode": -1,
        }});
        let sources = Sources { kubevirt: serde_json::from_value(bad).ok(), ..Sources::default() };
        assert!(sources.kubevirt.is_some());
        assert_eq!(sources.config(), Config::default());
    }

    #[test]
    fn a_silent_hyperconverged_object_means_migration_where_there_is_a_second_node() {
        let config =
            |nodes| Sources { hyperconverged: HyperConverged::Silent, nodes, ..Sources::default() }.config();
        assert_eq!(config(1).default_strategy(), "None");
        assert_eq!(config(2).default_strategy(), "LiveMigrate");
        assert_eq!(config(2).strategy_origin, Origin::NodeCount);
    }

    #[test]
    fn a_word_that_hyperconverged_copied_to_the_kubevirt_object_is_its_own() {
        let origin = |hyperconverged, word: &str| {
            let kubevirt = serde_json::from_value(json!({"evictionStrategy": word})).ok();
            Sources { kubevirt, hyperconverged, nodes: 2, ..Sources::default() }.config().strategy_origin
        };
        let says = || HyperConverged::Says("LiveMigrate".into());
        assert_eq!(origin(says(), "LiveMigrate"), Origin::HyperConverged);
        assert_eq!(origin(says(), "None"), Origin::KubeVirt);
        assert_eq!(origin(HyperConverged::Silent, "LiveMigrate"), Origin::NodeCount);
        assert_eq!(origin(HyperConverged::Absent, "LiveMigrate"), Origin::KubeVirt);
    }

    #[test]
    fn the_object_that_virt_operator_looks_after_says_what_is_deployed() {
        let read = |objects: Value| upstream(&serde_json::from_value::<Vec<KubeVirt>>(objects).unwrap());
        assert!(!read(json!([{"spec": {}}])).is_in_charge(), "one for settings only");
        let status = json!({"phase": "Deployed", "observedKubeVirtVersion": "v1.8.0"});
        let known = read(json!([{"spec": {}}, {"status": status}]));
        assert_eq!((known.phase.as_str(), known.version.as_str()), ("Deployed", "v1.8.0"));
        assert!(known.is_in_charge());
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
