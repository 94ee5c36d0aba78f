//! Eviction strategies: what should become of a guest when it has to leave its node.

use serde::Serialize;

use super::config::Config;
use crate::cluster::fact::{Instance, Machine};
pub use crate::cluster::settings::Origin;

/// `spec.evictionStrategy`, or the default that stands in for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Strategy {
    /// Moved, never shut down.
    LiveMigrate,
    /// Moved where that is possible, otherwise shut down.
    LiveMigrateIfPossible,
    /// Shut down.
    None,
    /// Left to a controller outside, such as that of Cluster API; the mark tells it.
    External,
}

impl Strategy {
    /// All words, for sentences about one that is not among them.
    pub const WORDS: &str = "LiveMigrate, LiveMigrateIfPossible, None or External";

    /// Reads a word; `None` for one that is not known.
    pub fn of(word: &str) -> Option<Self> {
        Some(match word {
            "LiveMigrate" => Self::LiveMigrate,
            "LiveMigrateIfPossible" => Self::LiveMigrateIfPossible,
            "None" => Self::None,
            "External" => Self::External,
            _ => return None,
        })
    }

    /// The word in the API.
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

impl Origin {
    /// Where it comes from, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Instance => "on the instance",
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
    /// The strategy.
    pub strategy: Strategy,
    /// Who said so.
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

/// Where the strategy of an instance comes from, in words. A word on the instance does not say who put it there: the default of the cluster is
/// written to each instance when it is created, as the template of its machine is. So it is compared with both, and where that cannot tell, this says so.
/// `machine` is what owns it, if that was read.
pub fn provenance(instance: &Instance, machine: Option<&Machine>, config: &Config) -> String {
    let Some(word) = &instance.eviction_strategy else { return config.strategy_origin.words().into() };
    let default = config.default_strategy();
    let cluster = config.strategy_origin.words();
    let owner = instance.owner.as_ref();
    let machine = machine.filter(|machine| owner.is_some_and(|owner| owner.uid == machine.uid));
    let template = machine.map(|machine| (&machine.key.name, machine.template_strategy.as_ref()));
    match (template, owner) {
        (Some((name, Some(said))), _) if said == word => {
            format!("set in the template of VirtualMachine {name}")
        }
        (Some((name, Some(said))), _) => format!(
            "written to the instance when it was created; the template of VirtualMachine {name} now says {said}"
        ),
        (Some(_), _) if default == word => {
            format!("{cluster}; written to the instance when it was created")
        }
        (Some((name, None)), _) => format!(
            "on the instance; not from the template of VirtualMachine {name}, and the cluster's default is {default} now"
        ),
        (None, None) if default != word => "set on the instance".into(),
        (None, Some(owner)) if default != word => {
            format!("on the instance, set there or in the template of {owner}")
        }
        (None, owner) => {
            let other = owner.map_or("set there".into(), |owner| format!("from the template of {owner}"));
            format!(
                "on the instance; {other} or the cluster's default, which is the same: that cannot be told"
            )
        }
    }
}

/// What a strategy comes down to for one guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Course {
    /// It is moved.
    Migrate,
    /// It must be moved and cannot be.
    Stuck,
    /// It is shut down, as any pod is.
    ShutDown,
    /// It is left to a controller outside, which is told by the mark.
    HandOver,
}

/// What an eviction, a mark or the drain taint comes down to for this guest now.
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
    fn a_word_on_the_instance_is_traced_to_the_template_or_to_the_cluster() {
        use crate::machines::RunStrategy;
        use crate::machines::testing::{boot, machine};
        let live = Config {
            eviction_strategy: Some("LiveMigrate".into()),
            strategy_origin: Origin::HyperConverged,
            ..Config::default()
        };
        let told = |on_instance: Option<&str>, template: Option<&str>, config: &Config| {
            let mut vm = machine("a", RunStrategy::Always);
            vm.template_strategy = template.map(Into::into);
            let mut vmi = boot(&vm, Phase::Running);
            vmi.eviction_strategy = on_instance.map(Into::into);
            (provenance(&vmi, Some(&vm), config), provenance(&vmi, None, config))
        };
        let (copied, unread) = told(Some("LiveMigrate"), None, &live);
        assert_eq!(
            copied,
            "the cluster's default, from the HyperConverged object; written to the instance when it was created"
        );
        assert!(unread.ends_with("that cannot be told"), "{unread}");
        let template = told(Some("LiveMigrate"), Some("LiveMigrate"), &live).0;
        assert_eq!(template, "set in the template of VirtualMachine a");
        let changed = told(Some("LiveMigrate"), Some("None"), &live).0;
        assert!(changed.ends_with("the template of VirtualMachine a now says None"), "{changed}");
        let stale = told(Some("External"), None, &live).0;
        assert!(stale.contains("the cluster's default is LiveMigrate now"), "{stale}");
        assert_eq!(told(None, None, &live).0, "the cluster's default, from the HyperConverged object");
        let mut plain = instance("a", Phase::Running);
        plain.eviction_strategy = Some("LiveMigrate".into());
        assert_eq!(provenance(&plain, None, &Config::default()), "set on the instance");
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
