//! Eviction strategies: what should become of a guest when somebody wants its node.

use serde::Serialize;

use super::config::Config;
use super::fact::Instance;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Strategy {
    /// Moved, never shut down.
    LiveMigrate,
    /// Moved where that is possible, otherwise shut down.
    LiveMigrateIfPossible,
    /// Shut down.
    None,
    /// Left to whoever looks after it from outside.
    External,
}

impl Strategy {
    pub const WORDS: &str = "LiveMigrate, LiveMigrateIfPossible, None or External";

    pub fn of(word: &str) -> Option<Self> {
        Some(match word {
            "LiveMigrate" => Self::LiveMigrate,
            "LiveMigrateIfPossible" => Self::LiveMigrateIfPossible,
            "None" => Self::None,
            "External" => Self::External,
            _ => return None,
        })
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::LiveMigrate => "LiveMigrate",
            Self::LiveMigrateIfPossible => "LiveMigrateIfPossible",
            Self::None => "None",
            Self::External => "External",
        }
    }
}

impl std::fmt::Display for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// Who said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// The instance itself. The default of the cluster is written there when an instance is created.
    Instance,
    KubeVirt,
    HyperConverged,
    /// HyperConverged says nothing, so the number of nodes decides.
    NodeCount,
    #[default]
    BuiltIn,
}

impl Origin {
    pub fn words(self) -> &'static str {
        match self {
            Self::Instance => "set on the instance",
            Self::KubeVirt => "the cluster's default, from the KubeVirt object",
            Self::HyperConverged => "the cluster's default, from the HyperConverged object",
            Self::NodeCount => "the default of HyperConverged for this number of nodes",
            Self::BuiltIn => "the built-in default",
        }
    }
}

/// What holds for an instance, and where that comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Effective {
    pub strategy: Strategy,
    pub origin: Origin,
}

/// An unknown word protects nothing, as in KubeVirt: such an instance is shut down.
pub fn effective(instance: &Instance, config: &Config) -> Effective {
    if let Some(word) = &instance.eviction_strategy {
        return Effective {
            strategy: Strategy::of(word).unwrap_or(Strategy::None),
            origin: Origin::Instance,
        };
    }
    let strategy = Strategy::of(config.default_strategy()).unwrap_or(Strategy::None);
    Effective { strategy, origin: config.strategy_origin }
}

/// What a strategy comes down to for one guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Course {
    Migrate,
    /// It must be moved and cannot be.
    Stuck,
    ShutDown,
    HandOver,
}

pub fn course(instance: &Instance, config: &Config) -> Course {
    match (effective(instance, config).strategy, instance.is_migratable()) {
        (Strategy::LiveMigrate | Strategy::LiveMigrateIfPossible, true) => Course::Migrate,
        (Strategy::LiveMigrate, false) => Course::Stuck,
        (Strategy::LiveMigrateIfPossible, false) | (Strategy::None, _) => Course::ShutDown,
        (Strategy::External, _) => Course::HandOver,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::testing::instance;
    use crate::machines::{Condition, Phase};

    fn vmi(strategy: Option<&str>, migratable: bool) -> Instance {
        let mut vmi = instance("a", Phase::Running);
        vmi.eviction_strategy = strategy.map(Into::into);
        vmi.conditions = vec![Condition::new("LiveMigratable", migratable, "", "")];
        vmi
    }

    #[test]
    fn the_instance_wins_over_the_cluster_and_the_cluster_over_the_built_in_default() {
        let live = Config {
            eviction_strategy: Some("LiveMigrate".into()),
            strategy_origin: Origin::KubeVirt,
            ..Config::default()
        };
        let said = |strategy, config: &Config| {
            let found = effective(&vmi(strategy, true), config);
            (found.strategy, found.origin)
        };
        assert_eq!(said(Some("None"), &live), (Strategy::None, Origin::Instance));
        assert_eq!(said(None, &live), (Strategy::LiveMigrate, Origin::KubeVirt));
        assert_eq!(said(None, &Config::default()), (Strategy::None, Origin::BuiltIn));
        assert_eq!(said(Some("livemigrate"), &live), (Strategy::None, Origin::Instance));
    }

    #[test]
    fn each_strategy_takes_its_course() {
        let config = Config::default();
        for (word, movable, fixed) in [
            ("LiveMigrate", Course::Migrate, Course::Stuck),
            ("LiveMigrateIfPossible", Course::Migrate, Course::ShutDown),
            ("None", Course::ShutDown, Course::ShutDown),
            ("External", Course::HandOver, Course::HandOver),
        ] {
            assert_eq!(course(&vmi(Some(word), true), &config), movable, "{word}");
            assert_eq!(course(&vmi(Some(word), false), &config), fixed, "{word}, fixed");
        }
    }
}
