//! Whether the permissions on an object count. Only the review of a creation or a change sees who gives one, so a permission on an object that
//! no review can have seen does not count: who gave it is unknown, and the strictest rule holds.
//!
//! What proves a review is the webhook configuration. Its time of creation and the object's are both set by the API server, so that no foreign
//! clock is believed, and to forge them takes rights on webhook configurations, which are more than any permission here.

use jiff::{SignedDuration, Timestamp};

use super::{ALLOW_CONTROL_PLANE, ALLOW_SHUTDOWN, Family, Maintenance};

/// The name of the configuration by which the API server asks the operator about objects.
pub const CONFIGURATION: &str = "evac-nodemaintenance";
/// The plural by which rules name the kind.
pub const RESOURCE: &str = "nodemaintenances";

/// An object has to be this much younger than the configuration. API servers learn of a new configuration by a watch, a moment after it was
/// written, and let objects pass without a review until then; besides, their times are whole seconds, and several servers have several clocks.
const MARGIN: SignedDuration = SignedDuration::from_secs(5);

/// What is known about reviews in this cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Reviewing {
    /// The configuration could not be read, or not yet.
    #[default]
    Unread,
    /// There is none: the operator runs without `--listen`.
    Absent,
    /// There is one.
    By(Configuration),
}

/// A ValidatingWebhookConfiguration, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Configuration {
    /// When the API server took it.
    pub created: Option<Timestamp>,
    /// All webhooks in it.
    pub hooks: Vec<Hook>,
}

/// One webhook of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hook {
    /// Its failurePolicy is Fail: without an answer of the operator a request is refused.
    pub fails_closed: bool,
    /// It has an objectSelector or matchConditions, by which objects may pass it.
    pub is_partial: bool,
    /// What it is asked about.
    pub rules: Vec<Rule>,
}

/// Which requests a webhook is asked about; the lists may have `*` for all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// API groups.
    pub groups: Vec<String>,
    /// API versions.
    pub versions: Vec<String>,
    /// `CREATE`, `UPDATE` and so on.
    pub operations: Vec<String>,
    /// Plurals of kinds.
    pub resources: Vec<String>,
    /// Empty means all, as `*` does.
    pub scope: String,
}

impl Rule {
    fn covers(&self, family: Family, operation: &str) -> bool {
        let has = |list: &[String], word: &str| list.iter().any(|known| known == word || known == "*");
        has(&self.groups, family.group())
            && has(&self.versions, family.version())
            && has(&self.operations, operation)
            && has(&self.resources, RESOURCE)
            && matches!(self.scope.as_str(), "" | "*" | "Cluster")
    }
}

impl Configuration {
    /// No object of this family is created or changed without a review.
    fn is_tight(&self, family: Family) -> bool {
        let mut strict = self.hooks.iter().filter(|hook| hook.fails_closed && !hook.is_partial);
        strict.any(|hook| {
            ["CREATE", "UPDATE"].iter().all(|what| hook.rules.iter().any(|rule| rule.covers(family, what)))
        })
    }
}

/// Why the permissions on an object do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    Unread,
    Absent,
    Loose,
    Older,
}

impl Doubt {
    fn words(self) -> String {
        match self {
            Self::Unread => format!(
                "the operator cannot read the webhook configuration {CONFIGURATION}, so it is unknown whether anybody has reviewed who gave it. To \
                 do: give the operator the right to list and watch validatingwebhookconfigurations"
            ),
            Self::Absent => "the operator's webhook is not installed, so nobody has reviewed who gave it. To do: start the operator with --listen, \
                 then delete and create the object again"
                .to_owned(),
            Self::Loose => format!(
                "the webhook configuration {CONFIGURATION} was changed and lets objects pass without a review, so nobody may have reviewed who \
                 gave it. To do: delete the configuration, which an operator with --listen writes again, then delete and create the object again"
            ),
            Self::Older => format!(
                "the object is older than the operator's webhook, or less than {} s younger, so nobody has reviewed who gave it. To do: delete and \
                 create the object again",
                MARGIN.as_secs()
            ),
        }
    }
}

fn doubt(reviewing: &Reviewing, family: Family, created: Option<Timestamp>) -> Option<Doubt> {
    let configuration = match reviewing {
        Reviewing::Unread => return Some(Doubt::Unread),
        Reviewing::Absent => return Some(Doubt::Absent),
        Reviewing::By(configuration) => configuration,
    };
    if !configuration.is_tight(family) {
        return Some(Doubt::Loose);
    }
    match (configuration.created, created) {
        (Some(since), Some(created)) if created.duration_since(since) >= MARGIN => None,
        _ => Some(Doubt::Older),
    }
}

/// What an object may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// Machines that would not come back may be shut down.
    pub shut_down: bool,
    /// The quorum of the control plane is not asked about.
    pub control_plane: bool,
    /// The sentence about permissions on the object that do not count.
    pub ignored: Option<String>,
}

/// The permissions on an object that count.
pub fn granted(object: &Maintenance, reviewing: &Reviewing) -> Granted {
    let annotations =
        [(object.may_shut_down, ALLOW_SHUTDOWN), (object.may_touch_control_plane, ALLOW_CONTROL_PLANE)];
    let names: Vec<&str> =
        annotations.into_iter().filter(|(given, _)| *given).map(|(_, name)| name).collect();
    let doubt = doubt(reviewing, object.id.family, object.created).filter(|_| !names.is_empty());
    let says = |doubt: Doubt| {
        let (noun, verb) = if names.len() > 1 { ("permissions", "do") } else { ("permission", "does") };
        format!("{noun} {} {verb} not count: {}", names.join(" and "), doubt.words())
    };
    Granted {
        shut_down: object.may_shut_down && doubt.is_none(),
        control_plane: object.may_touch_control_plane && doubt.is_none(),
        ignored: doubt.map(says),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    const SINCE: i64 = 100;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    fn rule() -> Rule {
        Rule {
            groups: words(&["kubevirt.io", "nodemaintenance.medik8s.io"]),
            versions: words(&["v1alpha1", "v1beta1"]),
            operations: words(&["CREATE", "UPDATE"]),
            resources: words(&[RESOURCE]),
            scope: "Cluster".into(),
        }
    }

    fn hook() -> Hook {
        Hook { fails_closed: true, is_partial: false, rules: vec![rule()] }
    }

    fn by(hook: Hook) -> Reviewing {
        Reviewing::By(Configuration { created: Some(at(SINCE)), hooks: vec![hook] })
    }

    fn judged(reviewing: &Reviewing, created: i64) -> Option<Doubt> {
        let all = Family::ALL.map(|family| doubt(reviewing, family, Some(at(created))));
        assert_eq!(all[0], all[1], "both kinds are treated alike");
        all[0]
    }

    #[test]
    fn an_object_that_is_younger_than_the_webhook_by_the_margin_is_vouched_for() {
        let good = by(hook());
        assert_eq!(judged(&good, SINCE + 5), None);
        assert_eq!(
            judged(&good, SINCE + 4),
            Some(Doubt::Older),
            "the API server may not have known the webhook"
        );
        assert_eq!(judged(&good, SINCE), Some(Doubt::Older));
        assert_eq!(judged(&good, SINCE - 1000), Some(Doubt::Older));
        assert_eq!(doubt(&good, Family::Medik8s, None), Some(Doubt::Older));
        let timeless = Reviewing::By(Configuration { created: None, hooks: vec![hook()] });
        assert_eq!(judged(&timeless, SINCE + 1000), Some(Doubt::Older));
    }

    #[test]
    fn without_a_configuration_that_is_known_nobody_is_vouched_for() {
        assert_eq!(judged(&Reviewing::default(), SINCE + 1000), Some(Doubt::Unread));
        assert_eq!(judged(&Reviewing::Absent, SINCE + 1000), Some(Doubt::Absent));
    }

    #[test]
    fn a_configuration_that_lets_anything_pass_vouches_for_nobody() {
        let with = |change: fn(&mut Rule)| {
            let mut rule = rule();
            change(&mut rule);
            Hook { rules: vec![rule], ..hook() }
        };
        let loose = [
            Hook { fails_closed: false, ..hook() },
            Hook { is_partial: true, ..hook() },
            Hook { rules: Vec::new(), ..hook() },
            with(|rule| rule.operations = words(&["CREATE"])),
            with(|rule| rule.operations = words(&["UPDATE"])),
            with(|rule| rule.groups = words(&["apps"])),
            with(|rule| rule.versions = words(&["v1"])),
            with(|rule| rule.resources = words(&["nodes"])),
            with(|rule| rule.scope = "Namespaced".into()),
        ];
        for hook in loose {
            assert_eq!(judged(&by(hook.clone()), SINCE + 1000), Some(Doubt::Loose), "{hook:?}");
        }
        let none = Reviewing::By(Configuration { created: Some(at(SINCE)), hooks: Vec::new() });
        assert_eq!(judged(&none, SINCE + 1000), Some(Doubt::Loose));
        let all = with(|rule| {
            rule.operations = words(&["*"]);
            rule.scope = String::new();
        });
        assert_eq!(judged(&by(all), SINCE + 1000), None);
        let one = Hook { rules: vec![Rule { groups: words(&["kubevirt.io"]), ..rule() }], ..hook() };
        assert_eq!(doubt(&by(one.clone()), Family::KubeVirt, Some(at(SINCE + 5))), None);
        assert_eq!(doubt(&by(one), Family::Medik8s, Some(at(SINCE + 5))), Some(Doubt::Loose));
    }

    #[test]
    fn every_doubt_says_what_to_do() {
        for doubt in [Doubt::Unread, Doubt::Absent, Doubt::Loose, Doubt::Older] {
            let said = doubt.words();
            assert!(said.contains(" To do: ") && !said.contains("  "), "{said}");
        }
    }
}
