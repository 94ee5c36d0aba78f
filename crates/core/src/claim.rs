//! Signs of life: a lease beside the mark tells a drain that works from one that was killed.
//!
//! The mark on the node says who drains it and decides between two drainers, because it is written under a condition. It
//! cannot say whether its writer still lives. So while a drain runs it holds a lease, renews it now and then, and removes it
//! at the end. Mark and living lease: somebody is at work. Mark and lapsed lease: somebody was killed, others may go on from
//! there. Mark without a lease: the drain came to its end, was stopped, or may not write leases.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::action::{Action, Outcome};
use crate::fact::{Key, Lease};
use crate::index::Index;
use crate::policy::DryRun;
use crate::reason::Reason;
use crate::run::{End, NodePhase, NodeRun, Run, after, failure_text};
use crate::step::{Event, Step};

/// Every cluster has this namespace, and the leases in it are about nodes.
pub const NAMESPACE: &str = "kube-node-lease";
/// How long a drain counts as living after its last sign. Clocks of different machines may differ, so this is generous.
pub const DURATION: Duration = Duration::from_secs(90);
/// Two signs may get lost before a living drain counts as dead.
const RENEW_EVERY: Duration = Duration::from_secs(30);
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Conflicts at the same instant that are answered by looking again at once.
const CONFLICT_PATIENCE: u32 = 5;
/// How often a release that failed is tried again; after that the lease lapses by itself.
const RELEASE_PATIENCE: u32 = 3;

/// Where the lease of a node's drain lives.
pub fn key(node: &str) -> Key {
    Key::new(NAMESPACE, format!("evac-drain-{node}"))
}

/// Who holds a claim: a person, and which of that person's runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub owner: String,
    pub instance: String,
}

impl Holder {
    pub fn parse(text: &str) -> Self {
        let (owner, instance) = text.rsplit_once('/').unwrap_or((text, ""));
        Self { owner: owner.to_owned(), instance: instance.to_owned() }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.instance)
    }
}

/// What the lease says about the drain that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    /// No lease: nothing runs, or it may not write leases.
    Unclaimed,
    Alive {
        holder: Holder,
        seen: Timestamp,
    },
    Dead {
        holder: Holder,
        seen: Timestamp,
    },
}

pub fn life(index: &Index, node: &str, now: Timestamp) -> Life {
    index.lease(&key(node)).map_or(Life::Unclaimed, |lease| life_of(lease, now))
}

fn life_of(lease: &Lease, now: Timestamp) -> Life {
    let (false, Some(seen)) = (lease.holder.is_empty(), lease.renewed) else { return Life::Unclaimed };
    let holder = Holder::parse(&lease.holder);
    // A sign from the future comes from a clock that is ahead; its writer lives.
    let age = now.duration_since(seen);
    if age < SignedDuration::from_secs(lease.duration_seconds) {
        Life::Alive { holder, seen }
    } else {
        Life::Dead { holder, seen }
    }
}

/// Where a run stands with its claim on one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Claim {
    /// This run makes no claims, the cluster does not let it, or it is over.
    #[default]
    Without,
    Wanted {
        not_before: Option<Timestamp>,
    },
    Asked,
    Held {
        renew_at: Timestamp,
    },
    Releasing,
}

/// Whether we know what there is of our lease in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    Known,
    /// A write failed or its answer was lost, so it may be there although we do not hold it.
    Unsure,
}

/// Asks for claims, renews them, and gives them back when the work on a node is over.
pub(crate) fn claim(index: &Index, dry_run: DryRun, run: &mut Run, now: Timestamp, step: &mut Step) {
    let Some(instance) = run.instance.clone() else { return };
    if dry_run != DryRun::None {
        return;
    }
    let holder = Holder { owner: run.owner.clone(), instance };
    let mut refusal = None;
    for node in &mut run.nodes {
        let lease = index.lease(&key(&node.name));
        if let Some(message) = node.claim_refused.take() {
            refusal.get_or_insert((node.name.clone(), message));
        }
        let working = matches!(node.phase, NodePhase::Draining { .. } | NodePhase::Proving { .. });
        let over = matches!(node.phase, NodePhase::Ended(_));
        let settled = node.claim_is_settled();
        let due = match &node.claim {
            Claim::Held { .. } if over => {
                if let Some(at) = node.release_not_before.filter(|at| *at > now) {
                    step.wake_at(at);
                    continue;
                }
                step.actions.push(Action::Release {
                    node: node.name.clone(),
                    resource_version: lease.map(|lease| lease.resource_version.clone()).unwrap_or_default(),
                });
                node.claim = Claim::Releasing;
                continue;
            }
            Claim::Wanted { not_before } if working => *not_before,
            // What may be there has to be held before it can be given back.
            Claim::Wanted { .. } if over && !settled => node.release_not_before,
            Claim::Held { renew_at } if working => Some(*renew_at),
            _ => continue,
        };
        if let Some(at) = due.filter(|at| *at > now) {
            step.wake_at(at);
            continue;
        }
        let Some(uid) = index.node(&node.name).map(|found| found.uid.clone()) else { continue };
        step.actions.push(Action::Hold {
            node: node.name.clone(),
            uid,
            holder: holder.to_string(),
            at: now,
            over: lease.map(|lease| Box::new(lease.clone())),
        });
        node.claim = Claim::Asked;
    }
    if let Some((node, message)) = refusal
        && !run.claim_refusal_told
    {
        run.claim_refusal_told = true;
        step.events.push(Event::Noted { node, reason: Reason::LeaseUnavailable { message } });
    }
}

impl NodeRun {
    /// Nothing of ours is left in the cluster, as far as we know or can do something about it.
    pub(crate) fn claim_is_settled(&self) -> bool {
        match self.claim {
            Claim::Without => true,
            Claim::Wanted { .. } => {
                self.claim_trace == Trace::Known || self.release_failures > RELEASE_PATIENCE
            }
            Claim::Asked | Claim::Held { .. } | Claim::Releasing => false,
        }
    }
}

impl Run {
    /// From here on the run gives signs of life. `instance` tells it from other runs of the same owner.
    #[must_use]
    pub fn claiming(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        for node in &mut self.nodes {
            node.claim = Claim::Wanted { not_before: None };
        }
        self
    }

    pub(crate) fn record_hold(&mut self, index: &Index, name: &str, outcome: &Outcome, now: Timestamp) {
        let (owner, instance) = (self.owner.clone(), self.instance.clone());
        let Some(node) = self.node_mut(name) else { return };
        if matches!(node.phase, NodePhase::Ended(_)) && *outcome != Outcome::Done {
            node.release_failures += 1;
            if let Outcome::Throttled { retry_after } = outcome {
                node.release_not_before =
                    Some(after(now, retry_after.unwrap_or(RETRY_AFTER).min(RETRY_AFTER)));
            }
        }
        node.claim = match outcome {
            Outcome::Done => {
                node.claim_trace = Trace::Known;
                node.claim_conflicts = 0;
                node.claim_held_before = true;
                Claim::Held { renew_at: after(now, RENEW_EVERY) }
            }
            Outcome::Conflict { .. } => {
                let holder = index.lease(&key(name)).map(|lease| Holder::parse(&lease.holder));
                let other_run = holder.clone().filter(|holder| {
                    node.claim_held_before
                        && holder.owner == owner
                        && Some(&holder.instance) != instance.as_ref()
                });
                let ours = Holder { owner: owner.clone(), instance: instance.clone().unwrap_or_default() };
                if holder.as_ref() != Some(&ours) {
                    node.claim_trace = Trace::Known;
                }
                if let Some(other) = other_run {
                    node.claim_lost = Some(other.instance);
                    Claim::Without
                } else {
                    node.claim_conflicts += 1;
                    let not_before =
                        (node.claim_conflicts > CONFLICT_PATIENCE).then(|| after(now, RETRY_AFTER));
                    Claim::Wanted { not_before }
                }
            }
            // Renewing what somebody removed: claim anew. Creating where the namespace is missing: do without.
            Outcome::Gone if node.claim_held_before => {
                node.claim_held_before = false;
                node.claim_trace = Trace::Known;
                Claim::Wanted { not_before: None }
            }
            other if other.is_transient() || matches!(other, Outcome::Throttled { .. }) => {
                if node.claim_held_before || matches!(other, Outcome::Unknown { .. }) {
                    node.claim_trace = Trace::Unsure;
                }
                Claim::Wanted { not_before: Some(after(now, RETRY_AFTER)) }
            }
            other => {
                node.claim_refused = Some(failure_text(other));
                Claim::Without
            }
        };
    }

    /// A lease that is left behind shows a living drain until it lapses, so a failure that decides nothing is not the end.
    pub(crate) fn record_release(&mut self, name: &str, outcome: &Outcome, now: Timestamp) {
        let Some(node) = self.node_mut(name) else { return };
        let again = match outcome {
            Outcome::Server { .. } | Outcome::Unknown { .. } | Outcome::Transport { .. } => {
                Some(Duration::ZERO)
            }
            // The work is done; a busy server is waited for, but not for long.
            Outcome::Throttled { retry_after } => {
                Some(retry_after.unwrap_or(Duration::from_secs(1))).filter(|wait| *wait <= RETRY_AFTER)
            }
            _ => None,
        };
        node.claim = if let Some(wait) = again.filter(|_| node.release_failures < RELEASE_PATIENCE) {
            node.release_failures += 1;
            node.release_not_before = Some(after(now, wait));
            Claim::Held { renew_at: now }
        } else {
            Claim::Without
        };
    }

    /// Another run of the same owner took the claim over, so that one goes on and this one ends.
    pub(crate) fn end_of_lost_claim(&self, position: usize) -> Option<End> {
        let instance = self.nodes[position].claim_lost.clone()?;
        Some(End::Refused { reason: Reason::ContinuedElsewhere { instance } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::Fact;
    use crate::ownership::{MarkState, new_mark};
    use crate::policy::Policy;
    use crate::step::step;
    use crate::testing::{at, node, pod};

    fn lease(holder: &str, renewed: i64) -> Lease {
        Lease {
            key: key("n"),
            holder: holder.into(),
            renewed: Some(at(renewed)),
            duration_seconds: 90,
            resource_version: "1".into(),
            transitions: 0,
        }
    }

    #[test]
    fn a_lease_tells_living_dead_and_absent_drains_apart() {
        let mut index = Index::new();
        assert_eq!(life(&index, "n", at(0)), Life::Unclaimed);
        index.apply(Fact::Lease(lease("ann@box/box:7", 0)));
        assert!(matches!(life(&index, "n", at(89)), Life::Alive { holder, .. } if holder.owner == "ann@box"));
        assert!(matches!(life(&index, "n", at(90)), Life::Dead { holder, .. } if holder.instance == "box:7"));
        index.apply(Fact::Lease(lease("", 0)));
        assert_eq!(life(&index, "n", at(0)), Life::Unclaimed, "a lease that was given back holds nobody");
    }

    #[test]
    fn a_sign_of_life_from_a_clock_that_is_ahead_is_one() {
        assert!(matches!(life_of(&lease("a/b", 500), at(0)), Life::Alive { .. }));
    }

    #[test]
    fn a_holder_keeps_slashes_in_the_name_of_the_owner() {
        let holder = Holder { owner: "team/ann".into(), instance: "box:7".into() };
        assert_eq!(Holder::parse(&holder.to_string()), holder);
    }

    /// A claiming run on a node it has cordoned, with its time.
    struct Held {
        index: Index,
        run: Run,
        policy: Policy,
    }

    impl Held {
        fn new() -> Self {
            let mut node = node("n");
            let mark = new_mark(&node, "me", &crate::ownership::Attire::default(), at(0));
            node.unschedulable = true;
            node.mark = Some(MarkState::Valid(Box::new(mark)));
            let mut index = Index::new();
            index.apply(Fact::Node(Box::new(node)));
            index.reset_pods("n", vec![pod("stays").deleting(0, 3600)]);
            let run = Run::new("me", Vec::new(), ["n".to_owned()]).claiming("box:1");
            Self { index, run, policy: Policy::default() }
        }

        /// The claims asked for at a time.
        fn at(&mut self, seconds: i64) -> Vec<Action> {
            let all = step(&self.index, &self.policy, &mut self.run, at(seconds)).actions;
            all.into_iter().filter(|a| matches!(a, Action::Hold { .. } | Action::Release { .. })).collect()
        }

        fn answer(&mut self, seconds: i64, action: &Action, outcome: Outcome, holder: Option<&str>) {
            if let Some(holder) = holder {
                self.index.apply(Fact::Lease(lease(holder, seconds)));
            }
            self.run.record(&self.index, action, outcome, at(seconds));
        }
    }

    fn conflict() -> Outcome {
        Outcome::Conflict { message: "exists".into() }
    }

    #[test]
    fn a_claim_is_asked_for_once_renewed_in_time_and_given_back() {
        let mut held = Held::new();
        let asked = held.at(0);
        assert!(matches!(asked.as_slice(), [Action::Hold { over: None, .. }]), "{asked:?}");
        assert!(held.at(1).is_empty(), "the answer is awaited");
        held.answer(1, &asked[0], Outcome::Done, Some("me/box:1"));
        assert!(held.at(30).is_empty());
        let renewed = held.at(31);
        assert!(matches!(renewed.as_slice(), [Action::Hold { over: Some(_), .. }]), "{renewed:?}");
        held.answer(31, &renewed[0], Outcome::Done, Some("me/box:1"));
        held.run.stop();
        let released = held.at(32);
        assert!(matches!(released.as_slice(), [Action::Release { .. }]), "{released:?}");
        assert!(!held.run.is_over(), "it is over when the claim is given back");
        held.answer(32, &released[0], conflict(), None);
        assert!(held.run.is_over());
    }

    #[test]
    fn a_lease_whose_writing_went_astray_is_found_and_given_back() {
        let lost = || Outcome::Unknown { message: "broken pipe".into() };
        let failed = || Outcome::Server { status: 500, message: "no".into() };
        for (held_before, outcome) in [(false, lost()), (true, lost()), (true, failed())] {
            let mut held = Held::new();
            let mut asked = held.at(0);
            if held_before {
                held.answer(0, &asked[0], Outcome::Done, Some("me/box:1"));
                asked = held.at(30);
            }
            held.answer(30, &asked[0], outcome, None);
            held.run.stop();
            let again = held.at(31);
            assert!(matches!(again.as_slice(), [Action::Hold { .. }]), "{again:?}");
            held.answer(31, &again[0], conflict(), Some("me/box:1"));
            let renewed = held.at(31);
            assert!(matches!(renewed.as_slice(), [Action::Hold { over: Some(_), .. }]), "{renewed:?}");
            held.answer(31, &renewed[0], Outcome::Done, Some("me/box:1"));
            let released = held.at(31);
            assert!(matches!(released.as_slice(), [Action::Release { .. }]), "{released:?}");
            held.answer(31, &released[0], Outcome::Done, None);
            assert!(held.run.is_over());
        }
    }

    #[test]
    fn a_lease_that_cannot_be_found_out_about_does_not_keep_a_drain_for_ever() {
        let mut held = Held::new();
        let mut asked = held.at(0);
        held.run.stop();
        let mut tries = 0;
        while let [action] = asked.as_slice() {
            held.answer(0, action, Outcome::Unknown { message: "broken pipe".into() }, None);
            asked = held.at(0);
            tries += 1;
            assert!(tries < 20);
        }
        assert!(held.run.is_over());
    }

    #[test]
    fn a_busy_server_is_waited_for_with_the_release_but_not_for_long() {
        for (asked, over) in [(Some(2), false), (None, false), (Some(60), true)] {
            let mut held = Held::new();
            let claimed = held.at(0);
            held.answer(0, &claimed[0], Outcome::Done, Some("me/box:1"));
            held.run.stop();
            let released = held.at(1);
            let retry_after = asked.map(Duration::from_secs);
            held.answer(1, &released[0], Outcome::Throttled { retry_after }, None);
            assert!(held.at(1).is_empty());
            assert_eq!(held.run.is_over(), over, "{asked:?}");
            let again = held.at(3);
            assert_eq!(again.len(), usize::from(!over), "{asked:?}: {again:?}");
        }
    }

    #[test]
    fn a_lease_left_by_somebody_is_taken_over_by_whoever_has_the_mark() {
        let mut held = Held::new();
        let asked = held.at(0);
        held.answer(0, &asked[0], conflict(), Some("them/lab:9"));
        let again = held.at(0);
        assert!(
            matches!(again.as_slice(), [Action::Hold { over: Some(seen), .. }] if seen.holder == "them/lab:9"),
            "{again:?}"
        );
    }

    #[test]
    fn a_run_whose_claim_another_run_of_its_owner_took_ends() {
        let mut held = Held::new();
        let asked = held.at(0);
        held.answer(0, &asked[0], Outcome::Done, Some("me/box:1"));
        let renewed = held.at(30);
        held.answer(30, &renewed[0], conflict(), Some("me/box:2"));
        assert!(held.at(30).is_empty(), "the lease is theirs and stays");
        let NodePhase::Ended(end) = &held.run.nodes[0].phase else { panic!("{:?}", held.run.nodes[0].phase) };
        assert_eq!(*end, End::Refused { reason: Reason::ContinuedElsewhere { instance: "box:2".into() } });
    }

    #[test]
    fn a_server_in_trouble_is_asked_again_later_and_one_that_forbids_is_not() {
        let mut held = Held::new();
        let asked = held.at(0);
        held.answer(0, &asked[0], Outcome::Server { status: 500, message: "no".into() }, None);
        assert!(held.at(4).is_empty());
        let again = held.at(5);
        assert_eq!(again.len(), 1);
        held.answer(5, &again[0], Outcome::Forbidden { message: "no".into() }, None);
        assert!(held.at(500).is_empty());
    }
}
