//! Who refuses that a node is given back by hand: what `evac cancel` and `evac uncordon` have in common.
//!
//! A NodeMaintenance that would cordon the node again is not overruled by `--force`: the node would be in use for seconds, while the operator
//! goes on to empty it.

use jiff::Timestamp;

use super::{Maintenance, Uncordoned};
use crate::cluster::fact::Node;
use crate::cluster::index::Index;
use crate::drain::ownership::{FAILOVER, MAINTENANCE, MarkState, Ownership, is_role, ownership};
use crate::reasons::{OwnerReason, Reason};

/// By whom a node is to be given back, and how.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The owner who asks: a mark of the same owner is no reason to refuse.
    pub owner: &'a str,
    /// The words of the verb in "use --force to … all the same".
    pub verb: &'a str,
    /// `--force` was given.
    pub force: bool,
    /// This verb is how a repaired node comes back after a failover.
    pub after_failover: bool,
}

/// Why a node is not given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The object would cordon the node again.
    UnderMaintenance {
        /// Its name.
        object: String,
    },
    /// The object is being deleted, and its operator gives the node back.
    Ending {
        /// Its name.
        object: String,
    },
    /// The mark is of a maintenance, and its objects may not be listed.
    Unlisted,
    /// The mark is of a maintenance, and no object is about the node.
    Orphan(Reason),
    /// Another owner's drain or lease holds the node.
    Held(Reason),
}

impl Refusal {
    /// As a sentence that says what to do instead. `verb` is that of [`Wish::verb`].
    pub fn words(&self, node: &str, verb: &str) -> String {
        let under = |object: &str| format!("node {node} is under maintenance by NodeMaintenance {object}");
        match self {
            Self::UnderMaintenance { object } => {
                format!("{}; end it with `evac maintenance end {node}`", under(object))
            }
            Self::Ending { object } => format!(
                "{}, which is being ended; wait for its operator, or use --force to {verb} if that is gone",
                under(object)
            ),
            Self::Unlisted => format!(
                "node {node} is under maintenance, and you may not list NodeMaintenance objects to see by which one; end it with `evac maintenance end {node}`, or ask who may"
            ),
            Self::Orphan(reason) => format!(
                "node {node} {}, and no NodeMaintenance object for it is seen; if its operator is gone, use --force to {verb} all the same",
                reason.message()
            ),
            Self::Held(reason) => {
                format!("node {node} {}; use --force to {verb} all the same", reason.message())
            }
        }
    }
}

/// What the NodeMaintenance objects alone decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ByObjects {
    /// An object is in the way.
    Refused(Refusal),
    /// An object about this node gives way, so that nothing else has to be asked.
    Allowed,
    /// They say nothing about it: who holds the node decides.
    Silent,
}

/// `objects` are all there are, or `None` where they may not be listed.
pub fn by_objects(node: &Node, objects: Option<&[Maintenance]>, wish: &Wish<'_>) -> ByObjects {
    let Some(objects) = objects else {
        return if is_marked_by(node, MAINTENANCE) {
            ByObjects::Refused(Refusal::Unlisted)
        } else {
            ByObjects::Silent
        };
    };
    for object in objects.iter().filter(|object| object.node == node.name) {
        let name = || object.id.name.clone();
        match object.when_uncordoned() {
            Uncordoned::CordonsAgain => {
                return ByObjects::Refused(Refusal::UnderMaintenance { object: name() });
            }
            Uncordoned::GivesBack if !wish.force => {
                return ByObjects::Refused(Refusal::Ending { object: name() });
            }
            Uncordoned::GivesBack => {}
            Uncordoned::GivesWay => return ByObjects::Allowed,
        }
    }
    ByObjects::Silent
}

/// What the holder of the node decides, where the objects say nothing.
pub fn by_holder(index: &Index, node: &Node, wish: &Wish<'_>, now: Timestamp) -> Option<Refusal> {
    let Ownership::Other(reason) = ownership(index, node, wish.owner, now) else { return None };
    // Whether a failed node may be used again is a question about the node, and not about the failover's mark.
    let returns = wish.after_failover
        && matches!(&reason, Reason::Owner(OwnerReason::OwnedByEvac { instance: None, .. }))
        && is_marked_by(node, FAILOVER);
    if wish.force || returns {
        return None;
    }
    Some(if is_marked_by(node, MAINTENANCE) { Refusal::Orphan(reason) } else { Refusal::Held(reason) })
}

fn is_marked_by(node: &Node, role: &str) -> bool {
    matches!(&node.mark, Some(MarkState::Valid(mark)) if is_role(&mark.owner, role))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::Uid;
    use crate::drain::ownership::{Attire, new_mark};
    use crate::maintenance::{Family, Id, OnUncordon, Status};
    use crate::testing::{at, node};

    const WISH: Wish<'_> = Wish { owner: "me", verb: "cancel it", force: false, after_failover: false };
    const FORCED: Wish<'_> = Wish { force: true, ..WISH };

    fn object(on_uncordon: OnUncordon, deleting: bool) -> Maintenance {
        Maintenance {
            id: Id { family: Family::Medik8s, name: "fans".into() },
            uid: Uid("1".into()),
            resource_version: "1".into(),
            node: "n".into(),
            reason: String::new(),
            created: None,
            deleting,
            held: true,
            other_finalizers: Vec::new(),
            status: Status::default(),
            on_uncordon,
            may_shut_down: false,
            may_touch_control_plane: false,
        }
    }

    fn marked(owner: &str) -> Node {
        let mut node = node("n");
        node.mark = Some(MarkState::Valid(Box::new(new_mark(&node, owner, &Attire::default(), at(0)))));
        node.unschedulable = true;
        node
    }

    fn by_one(object: Maintenance, wish: &Wish<'_>) -> ByObjects {
        by_objects(&marked(MAINTENANCE), Some(&[object]), wish)
    }

    #[test]
    fn an_object_that_would_cordon_again_refuses_whatever_is_forced() {
        for wish in [WISH, FORCED] {
            let ByObjects::Refused(refusal) = by_one(object(OnUncordon::Reapply, false), &wish) else {
                panic!("{wish:?}")
            };
            assert_eq!(
                refusal.words("n", "cancel it"),
                "node n is under maintenance by NodeMaintenance fans; end it with `evac maintenance end n`"
            );
        }
        let elsewhere = Maintenance { node: "m".into(), ..object(OnUncordon::Reapply, false) };
        assert_eq!(by_one(elsewhere, &WISH), ByObjects::Silent, "it is about another node");
    }

    #[test]
    fn an_object_that_is_being_ended_refuses_until_it_is_forced() {
        let refused = ByObjects::Refused(Refusal::Ending { object: "fans".into() });
        assert_eq!(by_one(object(OnUncordon::Yield, true), &WISH), refused);
        assert_eq!(by_one(object(OnUncordon::Yield, true), &FORCED), ByObjects::Silent);
        assert_eq!(by_one(object(OnUncordon::Yield, false), &WISH), ByObjects::Allowed, "it gives way");
    }

    #[test]
    fn objects_that_may_not_be_listed_refuse_where_the_mark_is_theirs() {
        let unlisted = |owner: &str| by_objects(&marked(owner), None, &FORCED);
        assert_eq!(unlisted(MAINTENANCE), ByObjects::Refused(Refusal::Unlisted));
        assert_eq!(unlisted("node-maintenance@blue"), ByObjects::Refused(Refusal::Unlisted));
        assert_eq!(unlisted("kim@desk"), ByObjects::Silent);
    }

    #[test]
    fn another_holder_refuses_and_is_named_until_it_is_forced() {
        let index = Index::new();
        let held = |owner: &str, wish: &Wish<'_>| {
            by_holder(&index, &marked(owner), wish, at(9)).map(|refusal| refusal.words("n", wish.verb))
        };
        assert_eq!(held("me", &WISH), None, "our own");
        let other = held("kim@desk", &WISH).unwrap();
        assert!(
            other.contains("kim@desk") && other.ends_with("use --force to cancel it all the same"),
            "{other}"
        );
        assert_eq!(held("kim@desk", &FORCED), None);
        let orphan = held(MAINTENANCE, &WISH).unwrap();
        assert!(orphan.contains("no NodeMaintenance object for it is seen"), "{orphan}");
        assert_eq!(held(MAINTENANCE, &FORCED), None);
    }

    #[test]
    fn a_failover_gives_way_to_the_verb_by_which_a_repaired_node_comes_back() {
        let index = Index::new();
        let returning = Wish { after_failover: true, ..WISH };
        assert_eq!(by_holder(&index, &marked(FAILOVER), &returning, at(9)), None);
        assert!(matches!(by_holder(&index, &marked(FAILOVER), &WISH, at(9)), Some(Refusal::Held(_))));
        assert!(by_holder(&index, &marked("kim@desk"), &returning, at(9)).is_some(), "a drain is none");
    }
}
