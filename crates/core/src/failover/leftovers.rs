//! A node that was given up for dead comes back: may it be used again, or does something old still run on it?
//!
//! Its guests have been started elsewhere. If the machine was really off, nothing of them is left. If it was not, a guest may
//! run twice at this very moment, and people have to know before anything else is done with the node.

use serde::Serialize;

use super::suspect::Suspect;
use crate::cluster::fact::Key;
use crate::cluster::index::Index;
use crate::drain::give_back::Giver;
use crate::drain::ownership::MarkState;

/// Why an old guest may still run on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "doubt", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Doubt {
    /// What runs there cannot be seen: the node does not answer.
    Unseen,
    /// The machine never restarted, so it was not off when it was said to be.
    SameBoot {
        /// By whom that was said.
        by: String,
    },
    /// A launcher on the node, of a guest that now runs elsewhere or is gone.
    Launcher {
        /// The launcher.
        pod: Key,
        /// The name of the guest.
        instance: String,
        /// The node it runs on now; none if it is gone.
        runs_on: Option<String>,
    },
}

impl Doubt {
    /// One sentence that says what a person has to do.
    pub fn words(&self, node: &str) -> String {
        match self {
            Self::Unseen => format!(
                "node {node} was given up for dead and does not answer; what runs on it cannot be seen. To do: start the \
                 machine and wait until the node is Ready"
            ),
            Self::SameBoot { by } => format!(
                "node {node} answers and was never restarted, although {by}: its old guests may have run beside their \
                 successors, and may still. To do: restart the machine, and check the disks of the guests"
            ),
            Self::Launcher { pod, instance, runs_on } => {
                let now =
                    runs_on.as_ref().map_or("is gone".to_owned(), |on| format!("runs on node {on} now"));
                format!(
                    "pod {pod} is still on node {node}, but its virtual machine {instance} {now}. To do: wait until the \
                     kubelet has ended it, or restart the machine"
                )
            }
        }
    }
}

/// What speaks against using this node again. Nodes that were never released have nothing to answer for.
pub fn doubts(suspect: &Suspect, index: &Index, launchers: &[(Key, String, bool)]) -> Vec<Doubt> {
    let Some(record) = suspect.record().filter(|record| record.released) else { return Vec::new() };
    let mut found = Vec::new();
    if !suspect.is_ready() {
        found.push(Doubt::Unseen);
    } else if record.boot.is_some() && record.boot == suspect.boot {
        found.push(Doubt::SameBoot { by: record.how.words() });
    }
    for (pod, instance, finished) in launchers {
        if *finished {
            continue;
        }
        let key = Key::new(pod.namespace.clone(), instance.clone());
        let now = index.instance(&key);
        if now.is_some_and(|now| now.node == suspect.node.name || now.node.is_empty()) {
            continue;
        }
        found.push(Doubt::Launcher {
            pod: pod.clone(),
            instance: instance.clone(),
            runs_on: now.map(|now| now.node.to_string()),
        });
    }
    found
}

/// Whether a node that has the record of a failure may be given back, and what becomes of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Return {
    /// Not before these are answered.
    InDoubt(Vec<Doubt>),
    /// It is not Ready, or its mark is not that of the owner who would give it back.
    NotTheirs,
    /// The record says that the agent of a policy switches off another machine. It goes when the policy is corrected and by a person's hand.
    Remembered,
    /// The record goes first, under the version of the node that was judged.
    Forgotten,
}

/// Decided on a node that was just read, with what speaks against it. A person has been asked for the node's owner before.
pub fn may_return(suspect: &Suspect, doubts: Vec<Doubt>, by: Giver<'_>) -> Return {
    if !doubts.is_empty() {
        return Return::InDoubt(doubts);
    }
    let Giver::Owner(owner) = by else { return Return::Forgotten };
    if suspect.record().is_some_and(|record| record.wrong_machine(suspect).is_some()) {
        return Return::Remembered;
    }
    if is_back(suspect, owner) { Return::Forgotten } else { Return::NotTheirs }
}

/// Ready, and marked by this owner.
pub fn is_back(suspect: &Suspect, owner: &str) -> bool {
    suspect.is_ready() && matches!(&suspect.node.mark, Some(MarkState::Valid(mark)) if mark.owner == owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::Fact;
    use crate::drain::ownership::{Attire, new_mark};
    use crate::failover::fencing::{Fenced, How};
    use crate::failover::suspect::FencedState;
    use crate::failover::suspect::testing::{ready, silent};
    use crate::machines::Phase;
    use crate::machines::testing::{instance, view};
    use crate::testing::at;

    fn released(mut suspect: Suspect) -> Suspect {
        let how = How::Statement { by: "kim".into(), reason: "off".into() };
        let mut record = Fenced::new(&silent("n"), how, "kim", at(100));
        record.released = true;
        suspect.fenced = Some(FencedState::Valid(Box::new(record)));
        suspect
    }

    #[test]
    fn a_machine_that_restarted_is_above_suspicion() {
        let mut back = released(ready("n", at(500)));
        back.boot = Some("boot-2".into());
        assert_eq!(doubts(&back, &view([]), &[]), []);
    }

    #[test]
    fn a_machine_that_did_not_restart_was_never_off() {
        let back = released(ready("n", at(500)));
        let found = doubts(&back, &view([]), &[]);
        assert!(matches!(found.as_slice(), [Doubt::SameBoot { .. }]), "{found:?}");
        assert!(found[0].words("n").contains("kim states that it is off: off"));
    }

    #[test]
    fn what_does_not_answer_cannot_be_seen() {
        assert_eq!(doubts(&released(silent("n")), &view([]), &[]), [Doubt::Unseen]);
    }

    #[test]
    fn launchers_of_guests_that_run_elsewhere_or_are_gone_are_leftovers() {
        let mut back = released(ready("n", at(500)));
        back.boot = Some("boot-2".into());
        let mut elsewhere = instance("a", Phase::Running);
        elsewhere.node = "n2".into();
        let mut here = instance("b", Phase::Running);
        here.node = "n".into();
        let index = view([Fact::Instance(Box::new(elsewhere)), Fact::Instance(Box::new(here))]);
        let pod = |name: &str, of: &str, finished| (Key::new("default", name), of.to_owned(), finished);
        let pods =
            [pod("pa", "a", false), pod("pb", "b", false), pod("pc", "c", false), pod("pd", "c", true)];
        let found = doubts(&back, &index, &pods);
        let names: Vec<(&str, Option<&str>)> = found
            .iter()
            .filter_map(|doubt| match doubt {
                Doubt::Launcher { pod, runs_on, .. } => Some((pod.name.as_str(), runs_on.as_deref())),
                _ => None,
            })
            .collect();
        assert_eq!(names, [("pa", Some("n2")), ("pc", None)]);
    }

    #[test]
    fn a_node_that_was_never_released_has_nothing_to_answer_for() {
        let pods = [(Key::new("default", "p"), "gone".to_owned(), false)];
        assert_eq!(doubts(&ready("n", at(500)), &view([]), &pods), []);
    }

    fn marked(mut suspect: Suspect, owner: &str) -> Suspect {
        let mark = new_mark(&suspect.node, owner, &Attire::default(), at(0));
        suspect.node.mark = Some(MarkState::Valid(Box::new(mark)));
        suspect
    }

    #[test]
    fn the_record_goes_with_nothing_in_doubt_under_the_mark_of_who_gives_the_node_back() {
        let back = marked(released(ready("n", at(500))), "op");
        let doubts = || vec![Doubt::SameBoot { by: "kim".into() }];
        assert_eq!(may_return(&back, doubts(), Giver::Anyone), Return::InDoubt(doubts()));
        assert_eq!(may_return(&back, doubts(), Giver::Owner("op")), Return::InDoubt(doubts()));
        assert_eq!(may_return(&back, Vec::new(), Giver::Owner("op")), Return::Forgotten);
        assert_eq!(may_return(&back, Vec::new(), Giver::Owner("another")), Return::NotTheirs);
        let silent = marked(released(silent("n")), "op");
        assert_eq!(may_return(&silent, Vec::new(), Giver::Owner("op")), Return::NotTheirs);
    }

    #[test]
    fn that_an_agent_switches_off_another_machine_is_remembered_until_a_person_takes_it_back() {
        let how = How::Agent { program: "fence_x".into() };
        let record = Fenced::new(&silent("n"), how, "op", at(100));
        let mut back = marked(ready("n", at(500)), "op");
        back.fenced = Some(FencedState::Valid(Box::new(record)));
        assert_eq!(may_return(&back, Vec::new(), Giver::Owner("op")), Return::Remembered);
        assert_eq!(may_return(&back, Vec::new(), Giver::Anyone), Return::Forgotten);
    }
}
