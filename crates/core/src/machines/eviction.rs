//! What is answered to a request for the eviction of a pod that belongs to a guest. The words are KubeVirt's: other
//! programs look for them.
//!
//! A guest that is to be moved is never shut down by an eviction: the request is refused with 429 and marks the instance, and the
//! mark makes the evacuation start. Refusals that time alone will not lift say so in their cause.

use super::admission::{Cause, Denial};
use super::config::Config;
use super::names;
use super::strategy::{Course, course};
use crate::cluster::fact::Instance;
use crate::cluster::fact::Key;
use crate::cluster::index::Index;

/// The parts of a pod that the answer depends on.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.uid`, to compare with the precondition of the eviction.
    pub uid: String,
    /// The label `kubevirt.io`: `virt-launcher` or `hotplug-disk`.
    pub role: String,
    /// Its phase is Succeeded or Failed: there is no guest in it any more.
    pub finished: bool,
    /// The instance of a launcher.
    pub domain: Option<String>,
    /// `spec.nodeName`; empty until it is bound.
    pub node: String,
    /// The names of those who own it.
    pub owners: Vec<String>,
}

/// What has to be known before a request can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Nothing: it is none of ours.
    Allowed,
    /// The instance of this name.
    Launcher {
        /// In the namespace of the pod.
        instance: String,
    },
    /// The launcher this hot-plugged volume belongs to.
    Hotplug {
        /// The name of the pod that owns it.
        launcher: String,
    },
}

/// Whether an eviction with this precondition is about the pod that is there. One that names another incarnation is refused by the
/// server in its own words, and is no reason to move the guest.
pub fn is_meant(pod: &Asked, uid: Option<&str>) -> bool {
    uid.is_none_or(|uid| uid == pod.uid)
}

/// What is asked cannot be an eviction.
pub fn malformed(why: &str) -> Denial {
    Denial { code: 400, message: format!("this is not a review of an eviction: {why}"), causes: Vec::new() }
}

/// What has to be read before the eviction of this pod can be judged.
pub fn question(pod: &Asked) -> Question {
    match (pod.role.as_str(), pod.owners.as_slice()) {
        ("hotplug-disk", [launcher]) => Question::Hotplug { launcher: launcher.clone() },
        ("virt-launcher", _) if !pod.finished => match &pod.domain {
            Some(instance) => Question::Launcher { instance: instance.clone() },
            None => Question::Allowed,
        },
        _ => Question::Allowed,
    }
}

/// What is said to a request for an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The guest may be shut down, or there is none.
    Allow,
    /// The guest stays, and nothing is written.
    Deny(Denial),
    /// Write the mark first, then refuse.
    Mark {
        /// The node that the guest has to leave, for `status.evacuationNodeName`.
        node: String,
        /// The refusal that follows.
        denial: Denial,
    },
}

/// Why an eviction is refused, in a word for programs.
const IN_PROGRESS: &str = "EvacuationInProgress";
const NOT_MIGRATABLE: &str = "NotLiveMigratable";
const TARGET: &str = "MigrationTarget";
const HOTPLUG: &str = "HotplugVolume";
const UNREADABLE: &str = "InstanceUnreadable";
const NOT_MARKED: &str = "MarkFailed";

fn refuse(reason: &'static str, message: String) -> Denial {
    let cause = Cause { reason, message: message.clone(), field: String::new() };
    Denial { code: 429, message, causes: vec![cause] }
}

/// The answer about the launcher of an instance that runs on `node`.
pub fn launcher(node: &str, instance: &Instance, config: &Config) -> Answer {
    let name = &instance.key;
    match course(instance, config) {
        Course::ShutDown => return Answer::Allow,
        Course::Stuck => {
            return Answer::Deny(refuse(
                NOT_MIGRATABLE,
                format!("VMI {name} is configured with an eviction strategy but is not live-migratable"),
            ));
        }
        Course::Migrate | Course::HandOver => {}
    }
    let triggered = format!("Eviction triggered evacuation of VMI \"{name}\"");
    // A mark for a node that the guest has left is of an earlier evacuation and moves no guest.
    if instance.evacuation_node.as_ref().is_some_and(|node| *node == instance.node) {
        return Answer::Deny(refuse(IN_PROGRESS, format!("Evacuation in progress: {triggered}")));
    }
    if instance.node != node {
        return Answer::Deny(refuse(TARGET, "Eviction request for target Pod".into()));
    }
    Answer::Mark { node: node.to_owned(), denial: refuse(IN_PROGRESS, triggered) }
}

/// Why the eviction of a pod would be refused, as far as it follows from what is known. A refusal may rest on an old view, because
/// a drain asks again; a permission may not.
pub fn known_refusal(index: &Index, pod: &Key) -> Option<Denial> {
    let pod = index.launcher(pod).filter(|pod| !pod.is_finished())?;
    let runs = &pod.launcher()?.instance;
    let instance = index.instance(&pod.instance_key()?).filter(|instance| instance.uid == *runs)?;
    match launcher(pod.node_name(), instance, &index.config) {
        Answer::Deny(denial) => Some(denial),
        Answer::Allow | Answer::Mark { .. } => None,
    }
}

/// The instance could not be read, or is not there while its launcher runs: it cannot be said that it may be shut down.
pub fn unreadable(error: &str) -> Denial {
    refuse(UNREADABLE, format!("kubevirt failed getting the vmi: {error}"))
}

/// The mark could not be written, so nothing would move the guest.
pub fn not_marked(error: &str) -> Denial {
    refuse(NOT_MARKED, format!("kubevirt failed marking the vmi for eviction: {error}"))
}

/// The launcher that a hot-plugged volume belongs to could not be read.
pub fn owner_unreadable(error: &str) -> Denial {
    refuse(UNREADABLE, format!("failed getting owner for hotplug pod: {error}"))
}

/// A volume that was plugged into a running guest leaves with it, never before.
pub fn hotplug(pod: &Asked, launcher: Option<&Asked>, instance_exists: bool) -> Answer {
    let Some(Question::Launcher { instance }) = launcher.map(question) else { return Answer::Allow };
    if !instance_exists {
        return Answer::Allow;
    }
    Answer::Deny(refuse(
        HOTPLUG,
        format!(
            "cannot evict hotplug pod: {} associated with running vmi: {instance} in namespace {}",
            pod.name, pod.namespace
        ),
    ))
}

/// Marks what the evacuation of a descheduler gets a lower urgency for.
pub fn source_of(requested_by: Option<&str>) -> Option<&'static str> {
    (requested_by == Some(names::DESCHEDULER)).then_some("descheduler")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::cluster::fact::Fact;
    use crate::cluster::fact::Pod;
    use crate::cluster::fact::{PodPhase, Uid};
    use crate::machines::testing::{self, instance, view};
    use crate::machines::{Condition, Phase};

    fn pod(name: &str) -> Asked {
        Asked {
            name: name.into(),
            namespace: "default".into(),
            role: "virt-launcher".into(),
            domain: Some("a".into()),
            node: "n1".into(),
            ..Asked::default()
        }
    }

    fn vmi(strategy: Option<&str>, migratable: bool) -> Instance {
        let mut vmi = instance("a", Phase::Running);
        vmi.eviction_strategy = strategy.map(Into::into);
        vmi.conditions = vec![Condition::new("LiveMigratable", migratable, "", "")];
        vmi
    }

    fn in_words(answer: &Answer) -> &'static str {
        match answer {
            Answer::Allow => "allow",
            Answer::Mark { .. } => "mark",
            Answer::Deny(denial) if denial.message.contains("not live-migratable") => "never",
            Answer::Deny(denial) if denial.message.starts_with("Evacuation in progress: ") => "in progress",
            Answer::Deny(denial) if denial.message.contains("target Pod") => "target",
            Answer::Deny(_) => "deny",
        }
    }

    #[rstest]
    #[case::w05(None, Some("LiveMigrate"), true, "mark")]
    #[case::w06(None, Some("LiveMigrateIfPossible"), true, "mark")]
    #[case::w07(None, Some("External"), false, "mark")]
    #[case::w08(None, Some("External"), true, "mark")]
    #[case::w09(Some("LiveMigrate"), None, true, "mark")]
    #[case::w10(Some("LiveMigrateIfPossible"), None, true, "mark")]
    #[case::w11(Some("External"), None, false, "mark")]
    #[case::w12(Some("External"), None, true, "mark")]
    #[case::w13(None, None, false, "allow")]
    #[case::w14(None, None, true, "allow")]
    #[case::w15(None, Some("None"), false, "allow")]
    #[case::w16(None, Some("None"), true, "allow")]
    #[case::w17(None, Some("LiveMigrateIfPossible"), false, "allow")]
    #[case::w18(Some("None"), None, false, "allow")]
    #[case::w18_migratable(Some("None"), None, true, "allow")]
    #[case::w19(Some("LiveMigrateIfPossible"), None, false, "allow")]
    #[case::w20(None, Some("LiveMigrate"), false, "never")]
    #[case::w21(Some("LiveMigrate"), None, false, "never")]
    #[case::w34(Some("LiveMigrate"), Some("None"), true, "allow")]
    fn strategies_answer_evictions(
        #[case] cluster: Option<&str>,
        #[case] own: Option<&str>,
        #[case] migratable: bool,
        #[case] expected: &str,
    ) {
        let config = Config { eviction_strategy: cluster.map(Into::into), ..Config::default() };
        let answer = launcher("n1", &vmi(own, migratable), &config);
        assert_eq!(in_words(&answer), expected);
        if let Answer::Mark { node, denial } = answer {
            assert_eq!((node.as_str(), denial.code), ("n1", 429));
            assert_eq!(denial.message, "Eviction triggered evacuation of VMI \"default/a\"");
        }
    }

    #[test]
    fn w01_w03_w04_w31_what_is_no_running_launcher_is_none_of_ours() {
        let finished = Asked { finished: true, ..pod("virt-launcher-a") };
        let other = Asked { role: String::new(), ..pod("web") };
        let nameless = Asked { domain: None, ..pod("virt-launcher-a") };
        for asked in [finished, other, nameless] {
            assert_eq!(question(&asked), Question::Allowed, "{asked:?}");
        }
        assert_eq!(question(&pod("virt-launcher-a")), Question::Launcher { instance: "a".into() });
    }

    #[test]
    fn w25_a_marked_instance_is_on_its_way_and_an_old_mark_does_not_count() {
        let config = Config::default();
        let mut vmi = vmi(Some("LiveMigrate"), true);
        vmi.evacuation_node = Some("n1".into());
        assert_eq!(in_words(&launcher("n1", &vmi, &config)), "in progress");
        vmi.evacuation_node = Some("n0".into());
        assert_eq!(in_words(&launcher("n1", &vmi, &config)), "mark");
    }

    #[test]
    fn what_is_known_refuses_and_never_permits() {
        type Change = fn(&mut Pod);
        let refusal = |strategy: &str, migratable: bool, marked: bool, change: Change| {
            let mut vmi = vmi(Some(strategy), migratable);
            vmi.evacuation_node = marked.then(|| "n1".into());
            let mut pod = testing::launcher(&vmi, "n1");
            change(&mut pod);
            let key = pod.key.clone();
            let index = view([Fact::Instance(Box::new(vmi)), Fact::Pod(Box::new(pod))]);
            known_refusal(&index, &key).map(|denial| denial.causes[0].reason)
        };
        let elsewhere: Change = |pod| pod.node = Some("n2".into());
        assert_eq!(refusal("LiveMigrate", true, true, |_| {}), Some(IN_PROGRESS));
        assert_eq!(refusal("External", false, true, |_| {}), Some(IN_PROGRESS));
        assert_eq!(refusal("LiveMigrate", false, false, |_| {}), Some(NOT_MIGRATABLE));
        assert_eq!(refusal("LiveMigrate", true, false, elsewhere), Some(TARGET));
        // To be marked, allowed, over, or of another incarnation: that has to be read.
        assert_eq!(refusal("LiveMigrate", true, false, |_| {}), None);
        assert_eq!(refusal("None", true, true, |_| {}), None);
        assert_eq!(refusal("LiveMigrate", true, true, |pod| pod.phase = PodPhase::Succeeded), None);
        assert_eq!(
            refusal("LiveMigrate", true, true, |pod| pod.guest().instance = Uid::from("former")),
            None
        );
        assert_eq!(known_refusal(&view([]), &Key::new("default", "unknown")), None);
    }

    #[test]
    fn w30_the_target_of_a_migration_stays_and_marks_nobody() {
        let mut vmi = vmi(Some("LiveMigrate"), true);
        vmi.node = "n2".into();
        assert_eq!(in_words(&launcher("n1", &vmi, &Config::default())), "target");
    }

    #[test]
    fn w28_w29_a_hotplugged_volume_stays_while_its_guest_is_there() {
        let volume = Asked {
            name: "hp-volume-x".into(),
            role: "hotplug-disk".into(),
            owners: vec!["virt-launcher-a".into()],
            ..pod("")
        };
        assert_eq!(question(&volume), Question::Hotplug { launcher: "virt-launcher-a".into() });
        let owner = pod("virt-launcher-a");
        let Answer::Deny(denial) = hotplug(&volume, Some(&owner), true) else { panic!("allowed") };
        assert_eq!(
            denial.message,
            "cannot evict hotplug pod: hp-volume-x associated with running vmi: a in namespace default"
        );
        assert_eq!(hotplug(&volume, Some(&owner), false), Answer::Allow);
        assert_eq!(hotplug(&volume, None, true), Answer::Allow);
        let finished = Asked { finished: true, ..owner };
        assert_eq!(hotplug(&volume, Some(&finished), true), Answer::Allow);
    }

    #[test]
    fn a_refusal_says_in_a_word_whether_waiting_helps() {
        let config = Config::default();
        let reason = |answer: Answer| match answer {
            Answer::Deny(denial) | Answer::Mark { denial, .. } => denial.causes[0].reason,
            Answer::Allow => "",
        };
        assert_eq!(reason(launcher("n1", &vmi(Some("LiveMigrate"), true), &config)), IN_PROGRESS);
        assert_eq!(reason(launcher("n1", &vmi(Some("LiveMigrate"), false), &config)), NOT_MIGRATABLE);
    }
}
