//! Giving a node back: what is undone, in which order, and for whom.
//!
//! A cancel, an uncordon, the end of a maintenance, the return of a failed node and the end of a visit to a tenant are one rule, [`plan`]:
//!
//! ```text
//!  1 node        cordon, taints, labels and mark, in one write under the version that was judged
//!  2 record      on the lease: with the mark gone it means nothing
//!  3 marks       on instances, which ask for their guest to be moved away
//!  4 migrations  that were asked for to empty the node
//!  5 3 and 4 again, where a drain was at work until now
//! ```
//!
//! The node comes before its guests, because its taint asks for moves; marks come before migrations, because a migration that is aborted
//! while its instance is still marked is followed by another one; a drain may ask for one more migration before it sees that it is over.
//!
//! Nothing of the node is undone that is another's: the owner in the mark is compared on the very version that is written. What the mark names is
//! undone as far as the closed list and a record outside the node bear it out ([`record`]), by three-way merge: before, what was applied, and
//! what is there now. What others changed meanwhile stays.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::fact::{Lease, Node, Taint};
use crate::drain::claim::Holder;
use crate::drain::ownership::MarkState;
use crate::drain::record::{self, Record};
use crate::machines::{Instance, Migration, names};

/// How long a drain may take to notice that it was cancelled.
const LAST_REQUESTS: Duration = Duration::from_secs(1);

/// What giving a node back undoes, and for whom.
#[derive(Debug, Clone, Copy)]
pub struct GiveBack<'a> {
    /// What is undone on the node itself.
    pub node: OfNode<'a>,
    /// What is undone on its guests. None for an owner that never asked for a guest to be moved, or leaves it as it is.
    pub guests: Option<OfGuests<'a>>,
    /// Nothing is written: the record on the lease stays, and there is no second round.
    pub dry_run: bool,
}

/// What is undone on the node, for whom.
#[derive(Debug, Clone, Copy)]
pub struct OfNode<'a> {
    /// Who gives it back, which decides whose mark may be undone.
    pub by: Giver<'a>,
    /// What becomes of `spec.unschedulable`.
    pub cordon: CordonAfter,
    /// Where the record is that has to bear the mark out.
    pub evidence: Evidence<'a>,
}

/// Who gives the node back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Giver<'a> {
    /// A person, whosever mark it is. Whether they may was judged before.
    Anyone,
    /// The owner of this name, and nothing is undone under the mark of another.
    Owner(&'a str),
}

/// What becomes of the cordon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CordonAfter {
    /// The pre-image in the mark decides, where the record bears it out.
    AsBefore,
    /// The node becomes schedulable even if it had been cordoned before.
    Lift,
    /// Another holds the node and relies on it.
    Keep,
}

/// Where the record outside the node is that bears a mark out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence<'a> {
    /// On a lease of the node, where it has to be read.
    OnLease,
    /// The owner has noted elsewhere that it worked on this node, as the role `tenants` has on the machine behind it. So what the mark says is
    /// believed as far as evac ever writes it.
    Elsewhere,
    /// The owner keeps it, and disposes of it.
    Kept(Option<&'a Record>),
}

/// What is undone on the guests of a node.
#[derive(Debug, Clone, Copy)]
pub struct OfGuests<'a> {
    /// Whose migrations are aborted.
    pub whose: Whose<'a>,
    /// Also where the node is gone, or its mark is not the giver's.
    pub in_any_case: bool,
    /// A drain was at work on the node until now.
    pub was_draining: bool,
}

/// Whose migrations are taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose<'a> {
    /// Those of one drainer.
    Owner(&'a str),
    /// Those of any drain.
    Drains,
    /// Also those that the control plane made because of a taint or an eviction.
    Everybody,
}

/// One thing to undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undoing<'a> {
    /// Write the node. If it has changed since it was read, the whole is planned anew.
    Node(Undo),
    /// Delete the lease with the record. Where there is none, or no right, nothing is lost.
    Record,
    /// Clear the marks of the instances that are [`is_marked`].
    Marks,
    /// Abort the migrations that are [`is_taken_back`].
    Migrations(Whose<'a>),
    /// Let a drain that was at work send its last requests, before a second round undoes those as well.
    Wait(Duration),
}

/// The mark on the node is not, or not any more, that of the owner who gives the node back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotTheirs;

/// Everything that is to be undone, in this order. `node` is none if it is gone; `on_lease` is the record that a lease of the node carries.
pub fn plan<'a>(
    node: Option<&Node>,
    request: &GiveBack<'a>,
    on_lease: Option<&Record>,
) -> Result<Vec<Undoing<'a>>, NotTheirs> {
    let mut plan = Vec::new();
    let undo = node.map(|node| on_node(node, &request.node, on_lease));
    match undo {
        Some(Some(undo)) => {
            let kept = matches!(request.node.evidence, Evidence::Kept(_));
            let record_goes = undo.remove_mark && !kept && !request.dry_run;
            plan.push(Undoing::Node(undo));
            plan.extend(record_goes.then_some(Undoing::Record));
        }
        Some(None) if !request.guests_in_any_case() => return Err(NotTheirs),
        Some(None) | None => {}
    }
    if let Some(guests) = &request.guests {
        plan.extend(guests.plan(request.dry_run));
    }
    Ok(plan)
}

impl GiveBack<'_> {
    /// Whether something is undone although the node is gone or another's.
    pub fn guests_in_any_case(&self) -> bool {
        self.guests.is_some_and(|guests| guests.in_any_case)
    }
}

impl<'a> OfGuests<'a> {
    /// What is to be undone on the guests alone, in this order: also of a node without a mark, whose giving back was cut off.
    pub fn plan(&self, dry_run: bool) -> Vec<Undoing<'a>> {
        let round = [Undoing::Marks, Undoing::Migrations(self.whose)];
        let mut plan = round.to_vec();
        if self.was_draining && !dry_run {
            plan.push(Undoing::Wait(LAST_REQUESTS));
            plan.extend(round);
        }
        plan
    }
}

fn on_node(node: &Node, wanted: &OfNode<'_>, on_lease: Option<&Record>) -> Option<Undo> {
    let noted = match (&wanted.evidence, &node.mark) {
        (Evidence::Elsewhere, Some(MarkState::Valid(mark))) => Some(Record::of(&node.uid, mark)),
        _ => None,
    };
    let record = match wanted.evidence {
        Evidence::OnLease => on_lease,
        Evidence::Elsewhere => noted.as_ref(),
        Evidence::Kept(record) => record,
    };
    let mut undo = match wanted.by {
        Giver::Anyone => undo(node, record),
        Giver::Owner(owner) => undo_of(node, owner, wanted.cordon == CordonAfter::Keep, record)?,
    };
    if wanted.cordon == CordonAfter::Lift && node.unschedulable {
        undo.unschedulable = Some(false);
        undo.left.retain(|what| what != CORDON);
    }
    Some(undo)
}

/// Whether the lease of a node's drain may be removed with the mark of this owner: nobody holds it, or a drain of that owner. Another drain may have begun
/// since the mark was taken off, and then the lease is that drain's, with a record of its own.
pub fn goes_with_mark(lease: &Lease, owner: Option<&str>) -> bool {
    lease.holder.is_empty() || owner.is_some_and(|owner| Holder::parse(&lease.holder).owner == owner)
}

/// Whether an instance is marked to be moved away from the node.
pub fn is_marked(instance: &Instance, node: &str) -> bool {
    instance.evacuation_node.as_deref() == Some(node)
}

/// Whether a migration was asked for to empty the node, by those whose migrations are taken back, and still goes on.
pub fn is_taken_back(migration: &Migration, node: &str, whose: Whose<'_>) -> bool {
    let says = |name: &str| migration.annotations.get(name).map(String::as_str);
    let theirs = match whose {
        Whose::Owner(owner) => says(names::DRAIN) == Some(owner),
        Whose::Drains | Whose::Everybody => true,
    };
    let goes_on = !migration.phase.is_final() && !migration.deleting;
    goes_on && theirs && says(names::EVACUATION_MIGRATION) == Some(node)
}

/// How what stays of the cordon is called.
const CORDON: &str = "the cordon";

/// What has to change on a node so that nothing of a drain is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    /// `Some(value)` when the field must be written.
    pub unschedulable: Option<bool>,
    /// `Some(list)` when the taints must be written.
    pub taints: Option<Vec<Taint>>,
    /// Labels to remove.
    pub labels: Vec<String>,
    /// Whether the mark's annotation is taken off; false only where there is none.
    pub remove_mark: bool,
    /// What the mark says was added and stays all the same, in words.
    pub left: Vec<String>,
}

impl Undo {
    /// Nothing on the node has to be written; what stays all the same is in `left`.
    pub fn is_nothing(&self) -> bool {
        self.unschedulable.is_none() && self.taints.is_none() && self.labels.is_empty() && !self.remove_mark
    }
}

/// The three-way merge of a cancel. A node that was cordoned before stays cordoned; a node that was uncordoned
/// meanwhile stays uncordoned; taints of others stay in their order. What the mark says is done only where the record outside the node
/// says it too.
pub fn undo(node: &Node, record: Option<&Record>) -> Undo {
    let remove_mark = node.mark.is_some();
    let Some(MarkState::Valid(claimed)) = &node.mark else {
        return Undo { unschedulable: None, taints: None, labels: Vec::new(), remove_mark, left: Vec::new() };
    };
    let mark = record::vetted(node, claimed, record);
    let unschedulable = (node.unschedulable && !mark.before.unschedulable).then_some(false);
    let kept: Vec<Taint> = node
        .taints
        .iter()
        .filter(|taint| {
            !mark.added_taints.iter().any(|ours| ours.same_as(taint) && ours.value == taint.value)
        })
        .cloned()
        .collect();
    let mut left = Vec::new();
    if node.unschedulable && unschedulable.is_none() && !claimed.before.unschedulable {
        left.push(CORDON.to_owned());
    }
    let named = kept.iter().filter(|taint| claimed.added_taints.iter().any(|named| named.same_as(taint)));
    left.extend(named.map(|taint| format!("the taint {taint}")));
    let taints = (kept.len() != node.taints.len()).then_some(kept);
    // A label that another client changed meanwhile is not ours any more.
    let there = |labels: &BTreeMap<String, String>| -> Vec<String> {
        let found =
            labels.iter().filter(|(name, value)| node.labels.get(name).is_some_and(|there| there == *value));
        found.map(|(name, _)| name.clone()).collect()
    };
    let labels = there(&mark.added_labels);
    let named = there(&claimed.added_labels).into_iter().filter(|name| !labels.contains(name));
    left.extend(named.map(|name| format!("the label {name}")));
    Undo { unschedulable, taints, labels, remove_mark, left }
}

impl Undo {
    /// One sentence about what stays although the mark names it, and what a person does about it.
    pub fn words(&self, node: &str) -> Option<String> {
        const NAMED: usize = 8;
        let (first, more) = self.left.split_at(self.left.len().min(NAMED));
        let rest = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        (!first.is_empty()).then(|| {
            format!(
                "node {node} keeps {}{rest}, because no record outside the node says that evac added it; lift a cordon with \"evac uncordon {node}\", remove taints with \"evac taint\" and labels with \"kubectl label\" if they are not wanted",
                first.join(", ")
            )
        })
    }
}

/// The same for one owner: nothing if the mark is not theirs. The cordon stays where another holder of the node relies on it.
pub fn undo_of(node: &Node, owner: &str, keep_cordon: bool, record: Option<&Record>) -> Option<Undo> {
    match &node.mark {
        Some(MarkState::Valid(mark)) if mark.owner == owner => {}
        _ => return None,
    }
    let mut undo = undo(node, record);
    if keep_cordon {
        undo.unschedulable = None;
        undo.left.retain(|what| what != CORDON);
    }
    Some(undo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::ownership::{NodeChanges, new_mark};
    use crate::drain::written_on_nodes::EXCLUDE_LABEL;
    use crate::machines::testing::{instance, migration};
    use crate::machines::{MigrationPhase, Phase};
    use crate::testing::{at, node, taint};

    fn marked(mut node: Node, owner: &str) -> Node {
        let mark = new_mark(&node, owner, &NodeChanges::default(), at(0));
        node.unschedulable = true;
        node.mark = Some(MarkState::Valid(Box::new(mark)));
        node
    }

    fn recorded(node: &Node) -> Option<Record> {
        match &node.mark {
            Some(MarkState::Valid(mark)) => Some(Record::of(&node.uid, mark)),
            _ => None,
        }
    }

    fn by(owner: &str) -> OfNode<'_> {
        OfNode { by: Giver::Owner(owner), cordon: CordonAfter::AsBefore, evidence: Evidence::OnLease }
    }

    fn cancel(owner: &str) -> GiveBack<'_> {
        let guests = OfGuests { whose: Whose::Owner(owner), in_any_case: false, was_draining: true };
        GiveBack { node: by(owner), guests: Some(guests), dry_run: false }
    }

    fn undo_in(plan: &[Undoing<'_>]) -> Undo {
        match plan.first() {
            Some(Undoing::Node(undo)) => undo.clone(),
            other => panic!("the node comes first, not {other:?}"),
        }
    }

    #[test]
    fn the_node_comes_first_then_its_record_then_marks_and_then_migrations() {
        let node = marked(node("n"), "me");
        let record = recorded(&node);
        let plan = plan(Some(&node), &cancel("me"), record.as_ref()).unwrap();
        let whose = Whose::Owner("me");
        assert_eq!(
            plan[1..],
            [
                Undoing::Record,
                Undoing::Marks,
                Undoing::Migrations(whose),
                Undoing::Wait(LAST_REQUESTS),
                Undoing::Marks,
                Undoing::Migrations(whose),
            ]
        );
        assert_eq!(undo_in(&plan).unschedulable, Some(false));
    }

    #[test]
    fn a_trial_keeps_the_record_and_does_not_wait_for_a_drain_that_goes_on() {
        let node = marked(node("n"), "me");
        let request = GiveBack { dry_run: true, ..cancel("me") };
        let plan = plan(Some(&node), &request, recorded(&node).as_ref()).unwrap();
        assert_eq!(plan[1..], [Undoing::Marks, Undoing::Migrations(Whose::Owner("me"))]);
    }

    #[test]
    fn nothing_is_undone_under_the_mark_of_another() {
        for mark in [marked(node("n"), "them").mark, Some(MarkState::Unreadable("?".into())), None] {
            let node = Node { mark, ..node("n") };
            assert_eq!(plan(Some(&node), &cancel("me"), None), Err(NotTheirs));
            let guests = OfGuests { whose: Whose::Everybody, in_any_case: true, was_draining: false };
            let ends = GiveBack { guests: Some(guests), ..cancel("me") };
            let only_guests = Ok(vec![Undoing::Marks, Undoing::Migrations(Whose::Everybody)]);
            assert_eq!(plan(Some(&node), &ends, None), only_guests, "a maintenance ends all the same");
            assert_eq!(plan(None, &ends, None), only_guests, "also if its node is gone");
        }
    }

    #[test]
    fn a_person_lifts_a_cordon_that_was_there_before_and_a_mark_that_cannot_be_read() {
        let mut before = node("n");
        before.unschedulable = true;
        let uncordon = GiveBack {
            node: OfNode { by: Giver::Anyone, cordon: CordonAfter::Lift, ..by("me") },
            guests: None,
            dry_run: false,
        };
        for mark in [marked(before.clone(), "them").mark, Some(MarkState::Unreadable("?".into())), None] {
            let node = Node { mark: mark.clone(), ..before.clone() };
            let undo = undo_in(&plan(Some(&node), &uncordon, None).unwrap());
            assert_eq!((undo.unschedulable, undo.remove_mark), (Some(false), mark.is_some()));
            assert!(undo.left.is_empty(), "{:?}", undo.left);
        }
    }

    #[test]
    fn a_mark_counts_as_far_as_the_evidence_bears_it_out() {
        let mut node = marked(node("n"), "me");
        if let Some(MarkState::Valid(mark)) = &mut node.mark {
            mark.added_taints = vec![taint("kubevirt.io/drain", "NoSchedule"), taint("theirs", "NoSchedule")];
        }
        node.taints = vec![taint("kubevirt.io/drain", "NoSchedule"), taint("theirs", "NoSchedule")];
        let record = recorded(&node);
        let undone = |evidence, on_lease: Option<&Record>| {
            let request = GiveBack { node: OfNode { evidence, ..by("me") }, guests: None, dry_run: false };
            let plan = plan(Some(&node), &request, on_lease).unwrap();
            (undo_in(&plan).taints, plan.contains(&Undoing::Record))
        };
        let theirs = Some(vec![taint("theirs", "NoSchedule")]);
        assert_eq!(undone(Evidence::OnLease, record.as_ref()), (theirs.clone(), true));
        assert_eq!(undone(Evidence::OnLease, None), (None, true), "the word of a mark alone");
        assert_eq!(undone(Evidence::Elsewhere, None), (theirs.clone(), true));
        assert_eq!(undone(Evidence::Kept(record.as_ref()), None), (theirs, false), "it is kept by its owner");
        assert_eq!(undone(Evidence::Kept(None), record.as_ref()), (None, false));
    }

    #[test]
    fn a_cordon_on_which_another_relies_is_kept() {
        let node = marked(node("n"), "me");
        let request =
            GiveBack { node: OfNode { cordon: CordonAfter::Keep, ..by("me") }, guests: None, dry_run: false };
        let undo = undo_in(&plan(Some(&node), &request, recorded(&node).as_ref()).unwrap());
        assert_eq!((undo.unschedulable, undo.remove_mark), (None, true));
        assert!(undo.left.is_empty());
    }

    #[test]
    fn migrations_are_taken_back_that_empty_this_node_and_are_of_those_who_are_meant() {
        let guest = instance("a", Phase::Running);
        let of = |owner: Option<&str>, away_from: &str| {
            let mut migration = migration("m", &guest, MigrationPhase::Running);
            let away_from = (names::EVACUATION_MIGRATION.to_owned(), away_from.to_owned());
            let owner = owner.map(|owner| (names::DRAIN.to_owned(), owner.to_owned()));
            migration.annotations.extend(owner.into_iter().chain([away_from]));
            migration
        };
        assert!(is_taken_back(&of(Some("me"), "n"), "n", Whose::Owner("me")));
        assert!(!is_taken_back(&of(Some("them"), "n"), "n", Whose::Owner("me")));
        assert!(is_taken_back(&of(Some("them"), "n"), "n", Whose::Drains));
        assert!(is_taken_back(&of(None, "n"), "n", Whose::Everybody));
        assert!(!is_taken_back(&of(Some("me"), "other"), "n", Whose::Everybody));
        let over = Migration { phase: MigrationPhase::Succeeded, ..of(Some("me"), "n") };
        assert!(!is_taken_back(&over, "n", Whose::Everybody));
        let leaving = Migration { deleting: true, ..of(Some("me"), "n") };
        assert!(!is_taken_back(&leaving, "n", Whose::Everybody));
        let marked = guest.clone().with(|vmi| vmi.evacuation_node = Some("n".into()));
        assert!(is_marked(&marked, "n") && !is_marked(&marked, "other") && !is_marked(&guest, "n"));
    }

    #[test]
    fn a_cancel_uncordons_a_node_that_was_schedulable_before() {
        let node = marked(node("n"), "me");
        assert_eq!(
            undo(&node, recorded(&node).as_ref()),
            Undo {
                unschedulable: Some(false),
                taints: None,
                labels: Vec::new(),
                remove_mark: true,
                left: Vec::new()
            }
        );
    }

    #[test]
    fn a_cancel_keeps_the_cordon_somebody_else_had_made_before() {
        let mut cordoned = node("n");
        cordoned.unschedulable = true;
        let node = marked(cordoned, "me");
        assert_eq!(
            undo(&node, recorded(&node).as_ref()),
            Undo {
                unschedulable: None,
                taints: None,
                labels: Vec::new(),
                remove_mark: true,
                left: Vec::new()
            }
        );
    }

    #[test]
    fn a_cancel_leaves_a_node_that_was_uncordoned_meanwhile_and_taints_of_others() {
        let mut node = marked(node("n"), "me");
        node.unschedulable = false;
        node.taints = vec![taint("theirs", "NoExecute")];
        assert_eq!(
            undo(&node, recorded(&node).as_ref()),
            Undo {
                unschedulable: None,
                taints: None,
                labels: Vec::new(),
                remove_mark: true,
                left: Vec::new()
            }
        );
    }

    #[test]
    fn a_cancel_does_not_bring_back_a_cordon_that_others_have_lifted() {
        let mut cordoned = node("n");
        cordoned.unschedulable = true;
        let mut node = marked(cordoned, "me");
        node.unschedulable = false;
        assert_eq!(
            undo(&node, recorded(&node).as_ref()),
            Undo {
                unschedulable: None,
                taints: None,
                labels: Vec::new(),
                remove_mark: true,
                left: Vec::new()
            }
        );
    }

    #[test]
    fn a_cancel_removes_our_taints_only() {
        let mut node = marked(node("n"), "me");
        if let Some(MarkState::Valid(mark)) = &mut node.mark {
            mark.added_taints = vec![taint("kubevirt.io/drain", "NoSchedule")];
        }
        node.taints = vec![
            taint("theirs", "NoSchedule"),
            taint("kubevirt.io/drain", "NoSchedule"),
            taint("kubevirt.io/drain", "NoExecute"),
        ];
        let kept = undo(&node, recorded(&node).as_ref()).taints.unwrap();
        assert_eq!(kept, vec![taint("theirs", "NoSchedule"), taint("kubevirt.io/drain", "NoExecute")]);
    }

    #[test]
    fn what_a_maintenance_puts_on_is_taken_off_and_what_was_there_before_stays() {
        let changes = NodeChanges {
            options: Vec::new(),
            taints: vec![taint("kubevirt.io/drain", "NoSchedule"), taint("medik8s.io/drain", "NoSchedule")],
            labels: BTreeMap::from([(EXCLUDE_LABEL.into(), "true".into()), ("theirs".into(), "true".into())]),
        };
        let mut node = node("n");
        node.taints = vec![taint("medik8s.io/drain", "NoSchedule")];
        node.labels.insert("theirs".into(), "true".into());
        let mark = new_mark(&node, "me", &changes, at(0));
        assert_eq!(mark.added_taints, [taint("kubevirt.io/drain", "NoSchedule")]);
        assert_eq!(mark.added_labels.keys().collect::<Vec<_>>(), [EXCLUDE_LABEL]);
        assert!(!changes.are_on(&node));
        node.taints = changes.taints_on(&node).unwrap();
        node.labels.insert(EXCLUDE_LABEL.into(), "true".into());
        node.unschedulable = true;
        node.mark = Some(MarkState::Valid(Box::new(mark)));
        assert!(changes.are_on(&node));
        let again = new_mark(&node, "me", &changes, at(5));
        assert_eq!(again.added_taints, [taint("kubevirt.io/drain", "NoSchedule")], "what is ours stays ours");
        let undo = undo(&node, recorded(&node).as_ref());
        assert_eq!(undo.unschedulable, Some(false));
        assert_eq!(undo.taints, Some(vec![taint("medik8s.io/drain", "NoSchedule")]));
        assert_eq!(undo.labels, [EXCLUDE_LABEL]);
        node.labels.insert(EXCLUDE_LABEL.into(), "changed".into());
        assert!(
            super::undo(&node, recorded(&node).as_ref()).labels.is_empty(),
            "whoever changed it owns it now"
        );
    }

    #[test]
    fn the_lease_goes_with_the_mark_unless_another_drain_holds_it_by_now() {
        let goes = |holder: &str, owner| {
            let lease = Lease {
                key: crate::drain::claim::key("n"),
                uid: crate::cluster::fact::Uid::from("lease"),
                holder: holder.into(),
                renewed: Some(at(0)),
                duration_seconds: 90,
                resource_version: "1".into(),
                transitions: 0,
                asked: None,
                answered: None,
                record: None,
            };
            goes_with_mark(&lease, owner)
        };
        assert!(goes("", Some("me")) && goes("me/box:7", Some("me")));
        assert!(!goes("them/box:7", Some("me")));
        assert!(goes("", None) && !goes("me/box:7", None));
    }
}
