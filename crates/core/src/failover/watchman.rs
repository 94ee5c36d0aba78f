//! Who is to be failed over now, by which policy, and what holds the others back.
//!
//! Everything that looks like many failures at once is more likely one failure of something else: of the network, of the API server,
//! of ourselves. So besides the brake there are two more conditions. The operator must see the cluster: some kubelet's lease must have been
//! renewed within half a minute, or else no node's silence means anything ([`Sight`]). And after we were blind, or have just begun
//! to look, a minute has to pass in which the others had the time to report.
//!
//! ```text
//!          too few healthy            enough again                cooled down
//!   None ────────────────▶ Active ───────────────▶ Cooling ─────────────────▶ None
//!                             ▲                        │
//!                             └──── too few again ─────┘
//! ```

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::fencing::{ANNOTATION, Fenced};
use super::policy::{FailoverPolicy, PolicyError, Proof, Storm};
use super::silence::Silence;
use super::suspect::{Sign, Suspect};
use crate::cluster::fact::Lease;
use crate::drain::explain::span;
use crate::drain::ownership::{LEASE_NAMESPACE, MarkState};
use crate::drain::quorum::{Around, Etcd, Shortage, is_control_plane, spare};

/// Kubelets renew their leases every ten seconds; if none did for this long, it is not the nodes that are silent.
pub const BLIND_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// How long the operator must have seen the cluster before a node's silence counts.
pub const SETTLE: SignedDuration = SignedDuration::from_secs(60);
/// `true` keeps a node from being failed over. The name is the remediation operators'.
pub const EXCLUDE: &str = "remediation.medik8s.io/exclude-from-remediation";

/// Whether we see the cluster, and since when without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sight {
    since: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl Sight {
    /// A kubelet's lease was renewed just now.
    pub fn sign(&mut self, now: Timestamp) {
        if !self.sees(now) {
            self.since = Some(now);
        }
        self.last = Some(now);
    }

    /// A lease was renewed within the last [`BLIND_AFTER`].
    pub fn sees(&self, now: Timestamp) -> bool {
        self.last.is_some_and(|last| now.duration_since(last) < BLIND_AFTER)
    }
}

/// What keeps a node that is not Ready from being failed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// It has not been down for as long as the policy wants, or its proof is a silence that still has to last.
    Waiting {
        /// When that will be so.
        until: Timestamp,
        /// Why nothing would be done then, as things are: a sentence about the node.
        missing: Option<String>,
    },
    /// It carries the label [`EXCLUDE`].
    Excluded,
    /// The policy begins nothing new.
    Paused {
        /// The reasons that its `spec.pause` gives.
        why: String,
    },
    /// No kubelet is seen to renew its lease: see [`Sight`].
    Blind,
    /// The cluster is seen again, but not for [`SETTLE`] yet.
    Settling {
        /// When that will be so.
        until: Timestamp,
    },
    /// Fewer nodes are healthy than the policy wants.
    Brake {
        /// Selected nodes that are Ready and not being failed over.
        healthy: usize,
        /// How many that has to be.
        needed: usize,
    },
    /// Too many nodes are down together, or were a moment ago.
    Storm {
        /// When that is trusted to be over; none while it lasts.
        until: Option<Timestamp>,
    },
    /// A remediation operator holds the node's lease.
    Lease {
        /// Its name in the lease.
        holder: String,
        /// When the lease lapses if it is not renewed.
        until: Option<Timestamp>,
    },
    /// Whether a remediation operator works on it cannot be found out.
    Unknown {
        /// Why the leases cannot be read.
        why: String,
    },
    /// Another owner's mark is on the node.
    Drained {
        /// The owner, if the mark can be read.
        owner: String,
    },
    /// All has been done for it; now the machine has to be repaired.
    FailedOver,
    /// The same, and not everyone had returned when it ended.
    Incomplete {
        /// Who had not returned, in words.
        left: String,
    },
    /// Nothing proves yet that it is off.
    Proof {
        /// What a person or a provider has to do for it.
        wanted: &'static str,
    },
    /// Nodes of the control plane are failed over one by one.
    ControlPlane {
        /// The one that goes first.
        other: String,
    },
    /// Without it the control plane would lose its quorum, or it is not known whether it would.
    Quorum(Shortage),
    /// A failover did not succeed a short while ago.
    Resting {
        /// When it is tried again.
        until: Timestamp,
    },
    /// The policy's agent switched off another machine than this node's.
    WrongMachine {
        /// How that is known.
        sign: Sign,
    },
}

impl Hold {
    /// In one word, for the status of the policy.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "Waiting",
            Self::Excluded => "Excluded",
            Self::Paused { .. } => "Paused",
            Self::Blind => "Blind",
            Self::Settling { .. } => "Settling",
            Self::Brake { .. } => "Brake",
            Self::Storm { .. } => "Storm",
            Self::Lease { .. } => "Leased",
            Self::Unknown { .. } => "Unknown",
            Self::Drained { .. } => "Drained",
            Self::FailedOver | Self::Incomplete { .. } => "FailedOver",
            Self::Proof { .. } => "AwaitingProof",
            Self::ControlPlane { .. } => "ControlPlane",
            Self::Quorum(_) => "Quorum",
            Self::Resting { .. } => "Resting",
            Self::WrongMachine { .. } => "WrongMachine",
        }
    }

    /// The end of a sentence that begins with the node.
    pub fn words(&self, now: Timestamp) -> String {
        let left = |until: &Timestamp| span(until.duration_since(now).as_secs().max(0));
        match self {
            Self::Waiting { until, missing: None } => {
                format!("will be failed over at {until:.0} unless it returns (in {})", left(until))
            }
            Self::Waiting { until, missing: Some(missing) } => format!(
                "is due at {until:.0} unless it returns (in {}), but as things are nothing would be done then: it {missing}",
                left(until)
            ),
            Self::Excluded => format!("is excluded by the label {EXCLUDE}"),
            Self::Paused { why } => format!("is left alone: the policy is paused ({why})"),
            Self::Blind => "is left alone: no node has renewed its lease for half a minute, so it is the API server or the \
                            network that fails"
                .into(),
            Self::Settling { until } => {
                format!("is left alone until {until:.0}: the cluster is seen again only since a moment")
            }
            Self::Brake { healthy, needed } => {
                format!("is left alone: only {healthy} nodes are healthy, and the policy wants {needed}")
            }
            Self::Storm { until: Some(until) } => {
                format!("is left alone until {until:.0}: many nodes were down together shortly before")
            }
            Self::Storm { until: None } => "is left alone: many nodes are down together".into(),
            Self::Lease { holder, .. } => format!("is left to {holder}, who holds the maintenance lease"),
            Self::Unknown { why } => format!(
                "is left alone: whether somebody else works on it is not known, because the leases in the namespace \
                 {LEASE_NAMESPACE} cannot be read: {why}"
            ),
            Self::Drained { owner } => format!("is left to {owner}, who is draining it"),
            Self::FailedOver => "has been failed over; it is used again when it is repaired and Ready".into(),
            Self::Incomplete { left } => format!(
                "has been failed over, and when that ended not everyone had returned: {left}; it is used again when it is \
                 repaired and Ready"
            ),
            Self::Proof { wanted } => format!("has failed and is not proven to be off: {wanted}"),
            Self::ControlPlane { other } => {
                format!("waits: node {other} of the control plane is down, too, and they go one by one")
            }
            Self::Quorum(shortage) => {
                format!(
                    "is of the control plane and left alone, because it cannot be spared: {}",
                    shortage.words()
                )
            }
            Self::Resting { until } => format!("is tried again at {until:.0}: the last try did not succeed"),
            Self::WrongMachine { sign } => format!(
                "is left alone: the machine behind this agent is not this node ({} after the agent had switched it off), so \
                 the agent is not called again. Correct the policy, or take the annotation {ANNOTATION} from the node",
                sign.words()
            ),
        }
    }

    fn shift(&mut self, by: SignedDuration) {
        let until = match self {
            Self::Waiting { until, .. } | Self::Settling { until } | Self::Resting { until } => Some(until),
            Self::Storm { until } | Self::Lease { until, .. } => until.as_mut(),
            _ => None,
        };
        if let Some(until) = until {
            *until = until.checked_add(by).unwrap_or(*until);
        }
    }

    fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Waiting { until, .. } | Self::Settling { until } | Self::Resting { until } => Some(*until),
            Self::Storm { until } | Self::Lease { until, .. } => *until,
            _ => None,
        }
    }
}

/// What is decided about a node that is not Ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is done, for this reason.
    Hold(Hold),
    /// To be failed over now, or already under way.
    Act,
}

/// How one policy stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its name.
    pub policy: String,
    /// Why nothing can be done by it, if so.
    pub error: Option<PolicyError>,
    /// Nodes that it selects.
    pub observed: usize,
    /// Of those, nodes that are Ready and not being failed over.
    pub healthy: usize,
    /// How many that has to be.
    pub needed: usize,
    /// Whether many are down together.
    pub storm: Storm,
    /// The selected nodes that are not healthy, except those that a policy before this one decides about.
    pub nodes: Vec<(String, Verdict)>,
    /// Nodes whose label to exclude them has no meaning.
    pub odd_labels: Vec<String>,
    /// What cannot be read that this rests on, in a sentence.
    pub unread: Option<String>,
}

impl Standing {
    /// The same in times of day, for people, where the calendar is so far ahead of the clock by which all of this is measured.
    #[must_use]
    pub fn on_calendar(&self, ahead: SignedDuration) -> Self {
        let mut shown = self.clone();
        shown.storm = shown.storm.shifted(ahead);
        for (_, verdict) in &mut shown.nodes {
            if let Verdict::Hold(hold) = verdict {
                hold.shift(ahead);
            }
        }
        shown
    }
}

/// The cluster as seen at one moment.
pub struct View<'a> {
    /// All nodes by name.
    pub nodes: &'a BTreeMap<String, Suspect>,
    /// What was seen of each of them, by our own clock.
    pub silences: &'a BTreeMap<String, Silence>,
    /// All policies by name; an error where one cannot be understood.
    pub policies: &'a BTreeMap<String, Result<FailoverPolicy, PolicyError>>,
    /// The leases of remediation operators, by node.
    pub leases: &'a BTreeMap<String, Lease>,
    /// Why those cannot be read, if they cannot.
    pub leases_unread: Option<&'a str>,
    /// Which of the other lists cannot be read, and why, in a sentence.
    pub unread: Option<&'a str>,
    /// The members of etcd, or why they are not known. Asked for only where a node of the control plane is not Ready.
    pub etcd: Result<&'a Etcd, &'a str>,
    /// Failovers of ours that are under way.
    pub active: &'a BTreeSet<String>,
    /// When a failover that did not succeed may be tried again.
    pub resting: &'a BTreeMap<String, Timestamp>,
    /// Who had not returned when a failover ended, in words, by node.
    pub left: &'a BTreeMap<String, String>,
    /// The name under which this operator marks nodes.
    pub owner: &'a str,
}

/// The one who looks after all policies, and remembers what a single look does not show.
#[derive(Debug, Clone, Default)]
pub struct Watchman {
    /// Whether kubelets are seen to renew their leases; the operator tells it of each renewal.
    pub sight: Sight,
    storms: BTreeMap<String, Storm>,
}

impl Watchman {
    /// How all policies stand, and when to look again if nothing happens.
    pub fn judge(&mut self, view: &View<'_>, now: Timestamp) -> (Vec<Standing>, Option<Timestamp>) {
        let mut taken = BTreeSet::new();
        let mut standings = Vec::new();
        self.storms.retain(|name, _| view.policies.contains_key(name));
        for (name, policy) in view.policies {
            standings.push(match policy {
                Ok(policy) => self.stand(policy, view, &mut taken, now),
                Err(error) => broken(name, error, view),
            });
        }
        spare_control_plane(&mut standings, view, now);
        let holds = standings.iter().flat_map(|standing| &standing.nodes);
        let times = holds.filter_map(|(_, verdict)| match verdict {
            Verdict::Hold(hold) => hold.until(),
            Verdict::Act => None,
        });
        let cooling = standings.iter().filter_map(|standing| match standing.storm {
            Storm::Cooling { until } => Some(until),
            _ => None,
        });
        let again = times.chain(cooling).filter(|at| *at > now).min();
        (standings, again)
    }

    fn stand(
        &mut self,
        policy: &FailoverPolicy,
        view: &View<'_>,
        taken: &mut BTreeSet<String>,
        now: Timestamp,
    ) -> Standing {
        let counted = match policy.check(view.nodes) {
            Ok(counted) => counted,
            Err(error) => return broken(&policy.name, &error, view),
        };
        let mine = || counted.selected.iter().filter_map(|name| view.nodes.get(name));
        let is_healthy = |node: &&Suspect| node.is_ready() && !view.active.contains(&node.node.name);
        let healthy = mine().filter(is_healthy).count();
        let storm = self.weather(policy, healthy < counted.needed, now);
        let mut standing = Standing {
            policy: policy.name.clone(),
            error: None,
            observed: counted.selected.len(),
            healthy,
            needed: counted.needed,
            storm,
            nodes: Vec::new(),
            odd_labels: Vec::new(),
            unread: view.unread.map(ToOwned::to_owned),
        };
        for node in mine().filter(|node| !is_healthy(node)) {
            let name = &node.node.name;
            let label = node.node.labels.get(EXCLUDE);
            if label.is_some_and(|value| value.is_empty()) {
                standing.odd_labels.push(name.clone());
            }
            // Of two policies with the same node one acts: the first by name.
            if !taken.insert(name.clone()) {
                continue;
            }
            let verdict = if view.active.contains(name) {
                Verdict::Act
            } else {
                self.hold(policy, node, &standing, view, now).map_or(Verdict::Act, Verdict::Hold)
            };
            standing.nodes.push((name.clone(), verdict));
        }
        standing
    }

    fn weather(&mut self, policy: &FailoverPolicy, too_few: bool, now: Timestamp) -> Storm {
        let Some(cooldown) = policy.storm_cooldown else { return Storm::None };
        let before = self.storms.get(&policy.name).copied().unwrap_or(policy.storm);
        let storm = match (before, too_few) {
            (Storm::Active { since }, true) => Storm::Active { since },
            (_, true) => Storm::Active { since: now },
            (Storm::Active { .. }, false) => {
                Storm::Cooling { until: now.checked_add(cooldown).unwrap_or(Timestamp::MAX) }
            }
            (Storm::Cooling { until }, false) if until > now => Storm::Cooling { until },
            (Storm::Cooling { .. } | Storm::None, false) => Storm::None,
        };
        self.storms.insert(policy.name.clone(), storm);
        storm
    }

    fn hold(
        &self,
        policy: &FailoverPolicy,
        node: &Suspect,
        standing: &Standing,
        view: &View<'_>,
        now: Timestamp,
    ) -> Option<Hold> {
        let name = &node.node.name;
        if node.is_excluded() {
            return Some(Hold::Excluded);
        }
        if is_failed_over(node, now) {
            let left = view.left.get(name).cloned();
            return Some(left.map_or(Hold::FailedOver, |left| Hold::Incomplete { left }));
        }
        // A change from one kind of not being Ready to another is the kubelet's word, and so a sign of life.
        let nothing_seen = Silence::default();
        let silence = view.silences.get(name).unwrap_or(&nothing_seen);
        let since = silence.unready_since(node, now);
        let due = since.checked_add(policy.not_ready_for).unwrap_or(Timestamp::MAX);
        if due > now {
            return Some(foretold(policy, node, silence, standing, due));
        }
        if !policy.pause.is_empty() {
            return Some(Hold::Paused { why: policy.pause.join(", ") });
        }
        if !self.sight.sees(now) {
            return Some(Hold::Blind);
        }
        let settled = self.sight.since.and_then(|since| since.checked_add(SETTLE).ok());
        if let Some(until) = settled.filter(|until| *until > now) {
            return Some(Hold::Settling { until });
        }
        if standing.healthy < standing.needed {
            return Some(Hold::Brake { healthy: standing.healthy, needed: standing.needed });
        }
        match standing.storm {
            Storm::None => {}
            Storm::Active { .. } => return Some(Hold::Storm { until: None }),
            Storm::Cooling { until } => return Some(Hold::Storm { until: Some(until) }),
        }
        if let Some(lease) = view.leases.get(name).filter(|lease| lease.protects(now)) {
            return Some(Hold::Lease { holder: lease.holder.clone(), until: lease.protects_until() });
        }
        if let Some(why) = view.leases_unread {
            return Some(Hold::Unknown { why: why.to_owned() });
        }
        match &node.node.mark {
            Some(MarkState::Valid(mark)) if mark.owner != view.owner => {
                return Some(Hold::Drained { owner: mark.owner.clone() });
            }
            Some(MarkState::Unreadable(_)) => return Some(Hold::Drained { owner: "somebody".into() }),
            _ => {}
        }
        if let Some(until) = view.resting.get(name).copied().filter(|until| *until > now) {
            return Some(Hold::Resting { until });
        }
        without_proof(policy, node, silence, now)
    }
}

/// Released, and the taint that did it was taken away because nothing was left.
fn is_failed_over(node: &Suspect, now: Timestamp) -> bool {
    was_released(node, now) && !node.is_out_of_service()
}

/// By a proof that still holds: the machine is off, and what it held was let go.
fn was_released(node: &Suspect, now: Timestamp) -> bool {
    let released = |record: &Fenced| record.released && record.void(node, now).is_none();
    node.record().is_some_and(released)
}

/// What is to be said of a node before its time is up: what would be done then, judged by all of it that does not pass by itself.
fn foretold(
    policy: &FailoverPolicy,
    node: &Suspect,
    silence: &Silence,
    standing: &Standing,
    due: Timestamp,
) -> Hold {
    let (healthy, needed) = (standing.healthy, standing.needed);
    let lasting = if !policy.pause.is_empty() {
        Some(Hold::Paused { why: policy.pause.join(", ") })
    } else if healthy < needed {
        Some(Hold::Brake { healthy, needed })
    } else {
        without_proof(policy, node, silence, due)
    };
    match lasting {
        // Its proof comes by itself, later than the policy's own time.
        Some(Hold::Waiting { until, .. }) => Hold::Waiting { until, missing: None },
        Some(hold) => Hold::Waiting { until: due, missing: Some(hold.words(due)) },
        None => Hold::Waiting { until: due, missing: None },
    }
}

/// What is missing for a proof, where nothing can be done about it. A node is not even cordoned before.
fn without_proof(policy: &FailoverPolicy, node: &Suspect, silence: &Silence, now: Timestamp) -> Option<Hold> {
    if node.record().is_some_and(|record| record.void(node, now).is_none()) {
        return None;
    }
    let waiting = |until: Timestamp| (until > now).then_some(Hold::Waiting { until, missing: None });
    match &policy.proof {
        // It would switch off the same wrong machine again, until the policy is another or a person took the record away.
        Proof::Agent(_) => node
            .record()
            .filter(|record| record.policy == Some(policy.reference()))
            .and_then(|record| record.wrong_machine(node))
            .map(|sign| Hold::WrongMachine { sign }),
        Proof::Statement => {
            Some(Hold::Proof { wanted: "state it with evac failover NODE --fenced-by NAME --reason TEXT" })
        }
        Proof::Provider if node.is_shut_down() => waiting(silence.quiet_at(node, now)),
        Proof::Provider => Some(Hold::Proof { wanted: "its provider does not say that it is shut down" }),
        Proof::Time { after } => {
            let since = silence.silent_since(node).unwrap_or(now);
            waiting(since.checked_add(*after).unwrap_or(Timestamp::MAX))
        }
    }
}

fn broken(policy: &str, error: &PolicyError, view: &View<'_>) -> Standing {
    Standing {
        policy: policy.to_owned(),
        error: Some(error.clone()),
        observed: 0,
        healthy: 0,
        needed: 0,
        storm: Storm::None,
        nodes: Vec::new(),
        odd_labels: Vec::new(),
        unread: view.unread.map(ToOwned::to_owned),
    }
}

/// Nodes of the control plane are failed over one after the other, and only as long as etcd keeps its majority. One count for all
/// policies: two of them must not each take the one node that can be spared.
fn spare_control_plane(standings: &mut [Standing], view: &View<'_>, now: Timestamp) {
    let is_plane = |name: &str| view.nodes.get(name).is_some_and(|node| is_control_plane(&node.node));
    let leased = view.leases.iter().filter(|(_, lease)| lease.protects(now)).map(|(name, _)| name.as_str());
    let around = Around::of(view.nodes.values().map(|suspect| &suspect.node))
        .without(view.active.iter().map(String::as_str))
        .without(leased);
    let mut first = view.active.iter().find(|name| is_plane(name)).cloned();
    for (name, verdict) in standings.iter_mut().flat_map(|standing| &mut standing.nodes) {
        if *verdict != Verdict::Act || view.active.contains(name) || !is_plane(name) {
            continue;
        }
        // It is off already; what is left to do takes nothing away any more.
        if view.nodes.get(name).is_some_and(|node| was_released(node, now)) {
            continue;
        }
        if let Some(other) = &first {
            *verdict = Verdict::Hold(Hold::ControlPlane { other: other.clone() });
            continue;
        }
        let etcd = view.etcd.map_err(|why| Shortage::Unread(why.to_owned()));
        match etcd.and_then(|etcd| spare(name, etcd, &around)) {
            Ok(()) => first = Some(name.clone()),
            Err(shortage) => *verdict = Verdict::Hold(Hold::Quorum(shortage)),
        }
    }
}

#[cfg(test)]
#[path = "watchman_tests.rs"]
mod tests;
