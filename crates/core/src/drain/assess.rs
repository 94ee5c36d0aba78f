//! How may each pod of a node leave, and what stands in the way?
//!
//! The filters are those of `kubectl drain`, in its order: a pod that stays is not asked further questions. Unlike there,
//! every remark about a pod survives, not only the last one.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::fact::{Existence, Key, Pod, Uid, VmRole};
use crate::cluster::index::{Index, Sight};
use crate::drain::guest;
use crate::drain::policy::Policy;
use crate::drain::run::after;
use crate::reasons::{FilterReason, GuestReason, Reason, Severity};

/// What will become of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// It is asked to leave.
    Evict,
    /// Its guest is moved to another node, and it ends by that.
    Migrate,
    /// It leaves with something else; we wait for it and do not touch it.
    Follow,
    /// It stays, and the node counts as empty all the same.
    Leave,
    /// It may not be touched under this policy, so the node cannot be emptied.
    Blocked,
}

/// How one pod may leave its node, or why it stays there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The pod that was judged.
    pub pod: Key,
    /// The incarnation that was judged: an eviction names it, so that a pod re-created under the same name is not meant.
    #[serde(skip)]
    pub uid: Uid,
    /// What a drain does about the pod.
    pub fate: Fate,
    /// Every remark about the pod, in the order of the filters; empty where the pod is simply evicted.
    pub reasons: Vec<Reason>,
    /// The virtual machine instance it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<Key>,
}

/// The verdicts for all pods of one node, ordered by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Assessment {
    /// The name of the node.
    pub node: String,
    /// One for each pod that the index has on the node, those that stay included.
    pub verdicts: Vec<Verdict>,
}

impl Assessment {
    /// The verdicts with this fate, in the order of [`Assessment::verdicts`].
    pub fn of_fate(&self, fate: Fate) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter().filter(move |verdict| verdict.fate == fate)
    }

    /// The pods that are in the way of an empty node, whether they have been asked to leave or not. Every count of what is left, on a screen or in a status, is of these.
    pub fn to_leave(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter().filter(|verdict| verdict.fate != Fate::Leave)
    }

    /// Pods grouped by what keeps them, in kubectl's words: `cannot delete <words>: ns/a, ns/b`.
    pub fn refusals(&self) -> Vec<String> {
        grouped(self.of_fate(Fate::Blocked), Severity::Never)
            .into_iter()
            .map(|(words, pods)| format!("cannot delete {words}: {pods}"))
            .collect()
    }

    /// Remarks grouped in kubectl's words: `<words>: ns/a, ns/b`.
    pub fn warnings(&self) -> Vec<String> {
        let mut groups = grouped(self.verdicts.iter(), Severity::Note);
        groups.extend(grouped(self.verdicts.iter(), Severity::Warning));
        groups.into_iter().map(|(words, pods)| format!("{words}: {pods}")).collect()
    }
}

fn grouped<'a>(verdicts: impl Iterator<Item = &'a Verdict>, severity: Severity) -> BTreeMap<String, String> {
    let mut groups: BTreeMap<String, String> = BTreeMap::new();
    for verdict in verdicts {
        for reason in verdict.reasons.iter().filter(|reason| reason.severity() == severity) {
            if let Some(words) = reason.kubectl_words() {
                let pods = groups.entry(words).or_default();
                if !pods.is_empty() {
                    pods.push_str(", ");
                }
                pods.push_str(&verdict.pod.to_string());
            }
        }
    }
    groups
}

/// Judges all pods of a node by the options of a drain. `now` decides which pods count as overdue.
pub fn assess(index: &Index, policy: &Policy, node: &str, now: Timestamp) -> Assessment {
    let verdicts = index.pods_on(node).map(|pod| assess_pod(index, policy, pod, now)).collect();
    Assessment { node: node.to_owned(), verdicts }
}

/// Judges one pod, whichever node it is on.
pub fn assess_pod(index: &Index, policy: &Policy, pod: &Pod, now: Timestamp) -> Verdict {
    let mut reasons = Vec::new();
    let fate = fate_of(index, policy, pod, now, &mut reasons);
    Verdict { pod: pod.key.clone(), uid: pod.uid.clone(), fate, reasons, instance: pod.instance_key() }
}

fn fate_of(index: &Index, policy: &Policy, pod: &Pod, now: Timestamp, reasons: &mut Vec<Reason>) -> Fate {
    if !pod.labels.satisfies(&policy.pod_selector) {
        reasons.push(FilterReason::NotSelected.into());
        return Fate::Leave;
    }
    if let Some(seconds) = overdue_beyond(policy, pod, now) {
        reasons.push(FilterReason::SkippedDeleting { seconds }.into());
        return Fate::Leave;
    }
    let finished = pod.phase.is_finished();
    let mut blocked = false;
    if !finished && let Some(daemon_set) = pod.daemon_set() {
        match index.daemon_set(&daemon_set) {
            Some(Existence::Gone(message)) if policy.force => {
                reasons.push(FilterReason::DaemonSetGoneForced { message: message.clone() }.into());
            }
            Some(Existence::Gone(message)) => {
                reasons.push(FilterReason::DaemonSetGone { message: message.clone() }.into());
                return Fate::Blocked;
            }
            Some(Existence::Unreadable(message)) => {
                reasons.push(FilterReason::DaemonSetUnreadable { message: message.clone() }.into());
                return Fate::Blocked;
            }
            // Not looked up yet: the owner reference alone says that a DaemonSet wants the pod here.
            Some(Existence::Found) | None if policy.ignore_daemonsets => {
                reasons.push(FilterReason::DaemonSetIgnored.into());
                return Fate::Leave;
            }
            Some(Existence::Found) | None => {
                reasons.push(FilterReason::DaemonSetPod.into());
                return Fate::Blocked;
            }
        }
    }
    if pod.mirror {
        reasons.push(FilterReason::MirrorPod.into());
        return Fate::Leave;
    }
    // Scratch space of a hypervisor is no data, and a guest's own owner is not its pod's.
    match &pod.vm {
        VmRole::Launcher(_) if finished && *index.sight() == Sight::Clear => {
            return guest::remains(index, pod, pod.instance_name(), reasons);
        }
        VmRole::Launcher(_) | VmRole::Hotplug if finished && *index.sight() != Sight::Absent => {
            reasons.push(FilterReason::Finished.into());
            return Fate::Leave;
        }
        VmRole::Launcher(_) if !finished => {
            if let Some(fate) = guest::fate(index, policy, pod, pod.instance_name(), reasons) {
                return fate;
            }
        }
        VmRole::Hotplug if *index.sight() != Sight::Absent => {
            reasons.push(GuestReason::VmHotplug.into());
            return Fate::Follow;
        }
        _ => {}
    }
    if pod.empty_dir && !finished {
        if policy.delete_emptydir_data {
            reasons.push(FilterReason::LocalStorageLost.into());
        } else {
            reasons.push(FilterReason::LocalStorage.into());
            blocked = true;
        }
    }
    if pod.controller.is_none() && !finished {
        if policy.force {
            reasons.push(FilterReason::NoControllerLost.into());
        } else {
            reasons.push(FilterReason::NoController.into());
            blocked = true;
        }
    }
    if blocked {
        return Fate::Blocked;
    }
    if finished {
        reasons.push(FilterReason::Finished.into());
        return Fate::Evict;
    }
    match &pod.vm {
        VmRole::Hotplug => {
            reasons.push(GuestReason::VmHotplug.into());
            Fate::Follow
        }
        VmRole::Launcher(_) if policy.disable_eviction => {
            reasons.push(GuestReason::VmUnprotected.into());
            Fate::Blocked
        }
        VmRole::Launcher(launcher) => {
            reasons.push(
                GuestReason::VmLauncher { instance: launcher.instance_name.as_ref().map(String::from) }
                    .into(),
            );
            Fate::Evict
        }
        VmRole::None => Fate::Evict,
    }
}

/// When a pod that should have ended is not waited for any more, where the policy says so.
pub(crate) fn given_up_at(policy: &Policy, pod: &Pod) -> Option<Timestamp> {
    let limit = policy.skip_wait_for_delete.filter(|limit| !limit.is_zero())?;
    // Longer than the limit, in whole seconds.
    Some(after(pod.deletion?.ends, Duration::from_secs(limit.as_secs().saturating_add(1))))
}

/// Whole seconds since the end of the grace period, if that is longer than the policy waits for.
fn overdue_beyond(policy: &Policy, pod: &Pod, now: Timestamp) -> Option<i64> {
    given_up_at(policy, pod).filter(|at| *at <= now)?;
    Some(now.duration_since(pod.deletion?.ends).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::{Fact, PodPhase};
    use crate::cluster::selector::Selector;
    use crate::testing::{at, index, pod};

    fn daemon(name: &str) -> Pod {
        pod(name).owned_by("DaemonSet", "apps/v1", "ds")
    }

    fn verdict(policy: &Policy, pod: Pod) -> Verdict {
        let index = index(vec![pod], Vec::new());
        assess(&index, policy, "n", at(0)).verdicts.remove(0)
    }

    fn with(change: impl FnOnce(&mut Policy)) -> Policy {
        let mut policy = Policy::default();
        change(&mut policy);
        policy
    }

    #[test]
    fn a010_a019_pods_of_any_controller_are_evicted_without_flags() {
        for kind in
            ["ReplicationController", "ReplicaSet", "StatefulSet", "VirtualMachineInstance", "Anything"]
        {
            let verdict = verdict(&Policy::default(), pod("a").owned_by(kind, "x/v1", "o"));
            assert_eq!(verdict.fate, Fate::Evict, "{kind}");
        }
    }

    #[test]
    fn a011_a_daemonset_pod_without_flags_is_refused() {
        let verdict = verdict(&Policy::default(), daemon("a"));
        assert_eq!(
            (verdict.fate, verdict.reasons),
            (Fate::Blocked, vec![Reason::Filter(FilterReason::DaemonSetPod)])
        );
    }

    #[test]
    fn a012_a_finished_daemonset_pod_is_evicted() {
        assert_eq!(verdict(&Policy::default(), daemon("a").in_phase(PodPhase::Succeeded)).fate, Fate::Evict);
    }

    #[test]
    fn a013_a014_a_daemonset_pod_whose_daemonset_is_gone_needs_force() {
        let mut index = index(vec![daemon("a")], Vec::new());
        index.apply(Fact::DaemonSet(Key::new("default", "ds"), Existence::Gone("not found".into())));
        let refused = assess(&index, &with(|policy| policy.ignore_daemonsets = true), "n", at(0));
        assert_eq!(refused.verdicts[0].fate, Fate::Blocked);
        let forced = assess(&index, &with(|policy| policy.force = true), "n", at(0));
        assert_eq!(forced.verdicts[0].fate, Fate::Evict);
        assert_eq!(forced.warnings(), ["not found: default/a"]);
    }

    #[test]
    fn a015_a016_an_ignored_daemonset_pod_stays_and_is_not_asked_about_its_emptydir() {
        let verdict = verdict(&with(|policy| policy.ignore_daemonsets = true), daemon("a").with_empty_dir());
        assert_eq!(
            (verdict.fate, verdict.reasons),
            (Fate::Leave, vec![Reason::Filter(FilterReason::DaemonSetIgnored)])
        );
    }

    #[test]
    fn daemonsets_of_other_api_groups_are_ordinary_controllers() {
        let theirs = pod("a").owned_by("DaemonSet", "apps.kruise.io/v1alpha1", "ds");
        assert_eq!(verdict(&Policy::default(), theirs).fate, Fate::Evict);
    }

    #[test]
    fn a017_a024_an_emptydir_pod_leaves_with_its_flag_and_both_warnings_survive() {
        let policy = with(|policy| {
            policy.force = true;
            policy.delete_emptydir_data = true;
        });
        let verdict = verdict(&policy, pod("a").bare().with_empty_dir());
        assert_eq!(verdict.fate, Fate::Evict);
        assert_eq!(
            verdict.reasons,
            [Reason::Filter(FilterReason::LocalStorageLost), Reason::Filter(FilterReason::NoControllerLost)]
        );
    }

    #[test]
    fn a018_a023_finished_pods_leave_with_no_flags_whatever_they_hold() {
        for phase in [PodPhase::Succeeded, PodPhase::Failed] {
            let verdict = verdict(&Policy::default(), pod("a").bare().with_empty_dir().in_phase(phase));
            assert_eq!(verdict.fate, Fate::Evict);
        }
    }

    #[test]
    fn a020_a021_a_bare_pod_needs_force() {
        let refused = verdict(&Policy::default(), pod("a").bare());
        assert_eq!(
            (refused.fate, refused.reasons),
            (Fate::Blocked, vec![Reason::Filter(FilterReason::NoController)])
        );
        assert_eq!(verdict(&with(|policy| policy.force = true), pod("a").bare()).fate, Fate::Evict);
    }

    #[test]
    fn a022_an_emptydir_pod_with_force_only_is_refused() {
        let verdict = verdict(&with(|policy| policy.force = true), pod("a").bare().with_empty_dir());
        assert_eq!(verdict.fate, Fate::Blocked);
        assert!(verdict.reasons.contains(&Reason::Filter(FilterReason::LocalStorage)));
    }

    #[test]
    fn a_mirror_pod_stays_silently() {
        let mut mirror = pod("a").bare().with_empty_dir();
        mirror.mirror = true;
        assert_eq!(verdict(&Policy::default(), mirror).fate, Fate::Leave);
    }

    #[test]
    fn a029_a_pod_outside_the_selector_is_neither_evicted_nor_validated() {
        let policy = with(|policy| policy.pod_selector = Selector::parse("app=web").unwrap());
        assert_eq!(verdict(&policy, pod("a").bare()).fate, Fate::Leave);
        assert_eq!(verdict(&policy, pod("a").labelled("app", "web")).fate, Fate::Evict);
    }

    #[test]
    fn a045_a055_only_pods_overdue_for_longer_than_the_skip_time_are_skipped() {
        let policy = with(|policy| policy.skip_wait_for_delete = Some(Duration::from_secs(20)));
        let fate = |pod: Pod, now: i64| assess_pod(&Index::new(), &policy, &pod, at(now)).fate;
        assert_eq!(fate(pod("a"), 100), Fate::Evict, "not deleting");
        assert_eq!(fate(pod("a").deleting(99, 0), 100), Fate::Evict, "for one second");
        assert_eq!(fate(pod("a").deleting(80, 0), 100), Fate::Evict, "for exactly the limit");
        assert_eq!(fate(pod("a").deleting(0, 0), 100), Fate::Leave, "for a hundred seconds");
    }

    #[test]
    fn refusals_are_grouped_in_the_words_of_kubectl() {
        let index = index(vec![pod("a").bare(), pod("b").bare(), daemon("c")], Vec::new());
        let assessment = assess(&index, &Policy::default(), "n", at(0));
        assert_eq!(
            assessment.refusals(),
            [
                "cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): default/c",
                "cannot delete Pods that declare no controller (use --force to override): default/a, default/b",
            ]
        );
    }

    #[test]
    fn the_pod_of_a_virtual_machine_is_never_deleted_past_its_eviction_strategy() {
        let launcher = pod("virt-launcher-a").running("a", "uid-a");
        assert_eq!(verdict(&Policy::default(), launcher.clone()).fate, Fate::Evict);
        let policy = with(|policy| policy.disable_eviction = true);
        assert_eq!(verdict(&policy, launcher).fate, Fate::Blocked);
    }

    #[test]
    fn a_hotplug_pod_is_waited_for_and_not_touched() {
        let mut hotplug = pod("hp-volume-x");
        hotplug.vm = VmRole::Hotplug;
        assert_eq!(verdict(&Policy::default(), hotplug).fate, Fate::Follow);
    }
}
