//! The policy by which the operator looks after failed nodes by itself: which nodes, after how long, on which proof, and the brake.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use super::agent::{self, AgentError};
use super::fencing::PolicyRef;
use super::suspect::Suspect;
use crate::cluster::fact::{Amount, Key, Uid};
use crate::cluster::selector::Selector;

/// A policy shorter than this would act on every hiccup of a kubelet: Kubernetes itself takes 50 seconds to notice.
pub const SHORTEST: SignedDuration = SignedDuration::from_secs(60);
/// What holds where the policy does not say it.
pub const DEFAULT_NOT_READY_FOR: SignedDuration = SignedDuration::from_secs(300);
/// Self-fencing machines need about three minutes until they are surely off; less is a guess.
pub const SHORTEST_ASSUMPTION: SignedDuration = SignedDuration::from_secs(180);

/// A FailoverPolicy, as far as it could be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailoverPolicy {
    /// Its name.
    pub name: String,
    /// Its identity, for the records that are made because of it.
    pub uid: Uid,
    /// `metadata.generation`, for the same.
    pub generation: i64,
    /// Which nodes it may fail over; never all.
    pub selector: Selector,
    /// How long a node has to be not Ready, at least [`SHORTEST`].
    pub not_ready_for: SignedDuration,
    /// On what it takes a silent machine for off.
    pub proof: Proof,
    /// Nothing is done while fewer nodes than this are healthy.
    pub brake: Brake,
    /// How long nothing new is begun after too many nodes were down; none if storms do not matter to it.
    pub storm_cooldown: Option<SignedDuration>,
    /// Why nothing new is begun; empty means go.
    pub pause: Vec<String>,
    /// What the status says of an earlier storm, for an operator that has just started.
    pub storm: Storm,
}

impl FailoverPolicy {
    /// This policy as it is now, for the record of what was done because of it.
    pub fn reference(&self) -> PolicyRef {
        PolicyRef { name: self.name.clone(), uid: self.uid.clone(), generation: self.generation }
    }
}

/// What the operator takes for proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// Only what people state with `evac failover --fenced-by`; the operator goes on from there.
    Statement,
    /// The word of the machine's provider.
    Provider,
    /// A fence agent that switches the machine off.
    Agent(Agent),
    /// Silence for this long. Only for machines that switch themselves off when they lose the cluster.
    Time {
        /// How long.
        after: SignedDuration,
    },
}

/// A fence agent and what it is told.
#[derive(Clone, PartialEq, Eq)]
pub struct Agent {
    /// The name of its program, without a path.
    pub command: String,
    /// What it is told for every node.
    pub options: BTreeMap<String, String>,
    /// What is different for single nodes, such as the address of their controllers.
    pub node_options: BTreeMap<String, BTreeMap<String, String>>,
    /// A Secret with more options.
    pub secret: Option<Key>,
    /// How long one call of it may take.
    pub timeout: SignedDuration,
    /// How often it is tried to switch a machine off.
    pub tries: u32,
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What an agent is told may be a secret.
        f.debug_struct("Agent").field("command", &self.command).finish_non_exhaustive()
    }
}

impl Agent {
    /// The options for one node. An option that is given in two places is a mistake that could switch off the wrong machine.
    pub fn options_for(
        &self,
        node: &str,
        secret: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, PolicyError> {
        // Policies can be older than what is checked when they are written, and nothing else has seen the Secret.
        self.check_words()?;
        agent::options(secret)?;
        let mut all = self.options.clone();
        for (key, value) in self.node_options.get(node).into_iter().flatten().chain(secret) {
            if all.insert(key.clone(), value.clone()).is_some() {
                return Err(AgentError::Twice { option: key.clone() }.into());
            }
        }
        agent::options(&all)?;
        Ok(all)
    }
}

/// How many nodes must be healthy for anything to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Brake {
    /// `spec.minHealthy`: so many of the selected nodes must be healthy.
    MinHealthy(Amount),
    /// `spec.maxUnhealthy`: so many of the selected nodes may be down.
    MaxUnhealthy(Amount),
}

impl Brake {
    /// The number of healthy nodes that are needed among `total`. Shares are rounded up, as the remediation operators do.
    pub fn needed(&self, total: usize) -> Result<usize, PolicyError> {
        match self {
            Self::MinHealthy(amount) => count(amount, total, "minHealthy"),
            Self::MaxUnhealthy(amount) => {
                let most = count(amount, total, "maxUnhealthy")?;
                total.checked_sub(most).ok_or(PolicyError::MoreThanAll { most, total })
            }
        }
    }
}

fn count(amount: &Amount, total: usize, field: &'static str) -> Result<usize, PolicyError> {
    match amount {
        Amount::Count(count) => usize::try_from(*count).map_err(|_| PolicyError::Negative { field }),
        Amount::Percent(text) => {
            let share = text.strip_suffix('%').and_then(|number| number.parse::<usize>().ok());
            let share = share.filter(|share| *share <= 100);
            let share = share.ok_or_else(|| PolicyError::Share { field, text: text.clone() })?;
            Ok((total * share).div_ceil(100))
        }
    }
}

/// Many nodes were down together, and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Storm {
    /// Enough nodes are healthy, or the policy has no cooldown.
    #[default]
    None,
    /// Too few are healthy.
    Active {
        /// When too few were healthy first.
        since: Timestamp,
    },
    /// Enough are healthy again, but that is too new to be trusted.
    Cooling {
        /// When it is over, if it lasts.
        until: Timestamp,
    },
}

impl Storm {
    /// The same on a clock that is so far ahead.
    #[must_use]
    pub fn shifted(self, by: SignedDuration) -> Self {
        let shift = |at: Timestamp| at.checked_add(by).unwrap_or(at);
        match self {
            Self::None => Self::None,
            Self::Active { since } => Self::Active { since: shift(since) },
            Self::Cooling { until } => Self::Cooling { until: shift(until) },
        }
    }
}

/// What is wrong with a policy; the sentence is the one people read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// No nodes are selected.
    #[error("spec.nodeSelector is empty; a policy must say which nodes it may fail over")]
    NoSelector,
    /// It cannot be parsed.
    #[error("spec.nodeSelector cannot be read: {message}")]
    Selector {
        /// What the parser says.
        message: String,
    },
    /// It leaves no node out.
    #[error("spec.nodeSelector matches every node of the cluster ({total}); leave out those that must stay")]
    EveryNode {
        /// How many there are.
        total: usize,
    },
    /// Both brakes are given.
    #[error("give one of spec.minHealthy and spec.maxUnhealthy, not both")]
    BothBrakes,
    /// No brake is given.
    #[error(
        "give spec.minHealthy or spec.maxUnhealthy; without a brake a broken network would look like failed nodes"
    )]
    NoBrake,
    /// A brake is less than nothing.
    #[error("spec.{field} is negative")]
    Negative {
        /// The field under `spec`.
        field: &'static str,
    },
    /// A brake is not a percentage.
    #[error("spec.{field} is '{text}', which is not a share between 0% and 100%")]
    Share {
        /// The field under `spec`.
        field: &'static str,
        /// What it says.
        text: String,
    },
    /// More may be down than there are.
    #[error("spec.maxUnhealthy is {most}, but only {total} nodes are selected")]
    MoreThanAll {
        /// What `maxUnhealthy` comes to.
        most: usize,
        /// How many nodes are selected.
        total: usize,
    },
    /// A time cannot be understood.
    #[error("spec.{field} is '{text}', which is not a duration such as 5m")]
    Duration {
        /// The field under `spec`.
        field: &'static str,
        /// What it says.
        text: String,
    },
    /// A time is too short to be safe.
    #[error("spec.{field} is {text}; less than {least} is not possible")]
    TooShort {
        /// The field under `spec`.
        field: &'static str,
        /// What it says.
        text: String,
        /// The shortest that is possible.
        least: &'static str,
    },
    /// Not exactly one kind of proof is given.
    #[error("give exactly one of spec.proof.statement, provider, agent and assumeOffAfter")]
    ProofCount,
    /// What is wrong with its fence agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The object does not have the form of a policy.
    #[error("spec cannot be read: {message}")]
    Unreadable {
        /// What the decoder says.
        message: String,
    },
}

impl FailoverPolicy {
    /// Whether the policy's selector takes this node.
    pub fn selects(&self, suspect: &Suspect) -> bool {
        suspect.node.labels.satisfies(&self.selector)
    }

    /// What can only be judged with the nodes in sight.
    pub fn check(&self, nodes: &BTreeMap<String, Suspect>) -> Result<Counted, PolicyError> {
        if self.selector.is_everything() {
            return Err(PolicyError::NoSelector);
        }
        let selected: BTreeSet<String> =
            nodes.values().filter(|node| self.selects(node)).map(|node| node.node.name.clone()).collect();
        if !nodes.is_empty() && selected.len() == nodes.len() {
            return Err(PolicyError::EveryNode { total: nodes.len() });
        }
        let needed = self.brake.needed(selected.len())?;
        Ok(Counted { selected, needed })
    }
}

/// The nodes of a policy and how many of them must be healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The names of the nodes that the policy selects.
    pub selected: BTreeSet<String>,
    /// How many of them must be healthy for anything to be done.
    pub needed: usize,
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub fn policy(name: &str) -> FailoverPolicy {
        FailoverPolicy {
            name: name.into(),
            uid: Uid(format!("uid-{name}").into()),
            generation: 1,
            selector: Selector::everything(),
            not_ready_for: DEFAULT_NOT_READY_FOR,
            proof: Proof::Statement,
            brake: Brake::MaxUnhealthy(Amount::Count(1)),
            storm_cooldown: None,
            pause: Vec::new(),
            storm: Storm::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(text: &str) -> Amount {
        Amount::Percent(text.into())
    }

    #[test]
    fn d16_the_brake_counts_and_rounds_up() {
        let needed = |brake: Brake| brake.needed(10);
        assert_eq!(needed(Brake::MinHealthy(Amount::Count(8))), Ok(8));
        assert_eq!(needed(Brake::MinHealthy(percent("80%"))), Ok(8));
        assert_eq!(needed(Brake::MinHealthy(percent("75%"))), Ok(8));
        assert_eq!(needed(Brake::MinHealthy(percent("0%"))), Ok(0));
        assert_eq!(needed(Brake::MinHealthy(percent("100%"))), Ok(10));
        assert_eq!(needed(Brake::MaxUnhealthy(percent("75%"))), Ok(2));
        assert_eq!(
            needed(Brake::MaxUnhealthy(Amount::Count(12))),
            Err(PolicyError::MoreThanAll { most: 12, total: 10 })
        );
        assert!(matches!(needed(Brake::MinHealthy(Amount::Count(-1))), Err(PolicyError::Negative { .. })));
        for bad in ["101%", "half", "-1%"] {
            assert!(
                matches!(needed(Brake::MinHealthy(percent(bad))), Err(PolicyError::Share { .. })),
                "{bad}"
            );
        }
    }

    #[test]
    fn d24_an_option_in_two_places_is_refused_before_anything_runs() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let agent = Agent {
            command: "fence_x".into(),
            options: map(&[("username", "admin")]),
            node_options: [("n".to_owned(), map(&[("ip", "10.0.0.1")]))].into(),
            secret: None,
            timeout: SignedDuration::from_secs(60),
            tries: 3,
        };
        let all = agent.options_for("n", &map(&[("password", "x")])).unwrap();
        assert_eq!(all, map(&[("username", "admin"), ("ip", "10.0.0.1"), ("password", "x")]));
        let twice = agent.options_for("n", &map(&[("username", "root")]));
        assert_eq!(twice, Err(AgentError::Twice { option: "username".into() }.into()));
    }
}
