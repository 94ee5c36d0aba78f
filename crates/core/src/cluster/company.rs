//! Whether a pod may go to a node because of where other pods are: required affinity to them, and anti-affinity.
//!
//! A term means a group of pods, and a label of nodes that says which nodes count as the same place. Wherever such a group has a pod, the value of that label
//! there is taken; whether a node will do depends on these values alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::fact::Key;

/// The pods that a required term means, and what counts as near.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Company {
    /// `topologyKey`: nodes with the same value of this label are one place.
    pub topology: String,
    /// The pods, and the nodes they are on.
    pub members: BTreeMap<Key, String>,
}

/// What other pods mean for one pod that looks for a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Neighbours<'a> {
    /// For each required affinity the label and its values where there are pods of that kind.
    pub near: Vec<(&'a str, BTreeSet<String>)>,
    /// There are no pods to be near to yet, and the pod would be one of them: the first of a group may go anywhere that has the labels.
    pub first_of_group: bool,
    /// The same for each required anti-affinity of the pod.
    pub apart: Vec<(&'a str, BTreeSet<String>)>,
    /// And for those of other pods that mean this pod.
    pub repelled: Vec<(&'a str, BTreeSet<String>)>,
}

/// The rule by which other pods keep one off a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeptOff {
    /// A pod that it has to be near to is not there.
    NotNear,
    /// A pod that it must not be near to is there.
    NotApart,
    /// A pod is there that must not be near to it.
    Repelled,
}

impl Neighbours<'_> {
    /// The rule that keeps the pod off a node with these labels.
    pub fn against(&self, labels: &BTreeMap<String, String>) -> Option<KeptOff> {
        let taken = |(key, values): &(&str, BTreeSet<String>)| {
            labels.get(*key).is_some_and(|value| values.contains(value))
        };
        let near = |term: &(&str, BTreeSet<String>)| {
            taken(term) || (self.first_of_group && labels.contains_key(term.0))
        };
        if !self.near.iter().all(near) {
            return Some(KeptOff::NotNear);
        }
        if self.apart.iter().any(taken) {
            return Some(KeptOff::NotApart);
        }
        self.repelled.iter().any(taken).then_some(KeptOff::Repelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(host: &str) -> BTreeMap<String, String> {
        [("host".to_owned(), host.to_owned())].into()
    }

    fn at(hosts: &[&str]) -> Vec<(&'static str, BTreeSet<String>)> {
        vec![("host", hosts.iter().map(|host| (*host).to_owned()).collect())]
    }

    #[test]
    fn near_is_where_the_others_are_and_the_first_of_a_group_goes_anywhere_that_is_labelled() {
        let follows = Neighbours { near: at(&["a"]), ..Neighbours::default() };
        assert_eq!(follows.against(&on("a")), None);
        assert_eq!(follows.against(&on("b")), Some(KeptOff::NotNear));
        let first = Neighbours { near: at(&[]), first_of_group: true, ..Neighbours::default() };
        assert_eq!(first.against(&on("b")), None);
        assert_eq!(
            first.against(&BTreeMap::new()),
            Some(KeptOff::NotNear),
            "a node without the label is no place"
        );
    }

    #[test]
    fn apart_holds_both_ways() {
        let shy = Neighbours { apart: at(&["a"]), ..Neighbours::default() };
        assert_eq!((shy.against(&on("a")), shy.against(&on("b"))), (Some(KeptOff::NotApart), None));
        let shunned = Neighbours { repelled: at(&["a"]), ..Neighbours::default() };
        assert_eq!((shunned.against(&on("a")), shunned.against(&on("b"))), (Some(KeptOff::Repelled), None));
        assert_eq!(shy.against(&BTreeMap::new()), None);
    }
}
