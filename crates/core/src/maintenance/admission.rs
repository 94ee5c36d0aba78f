//! What is refused when a maintenance is asked for or changed.

use super::{ALLOW_SHUTDOWN, Id, ON_UNCORDON, cannot_spare};
use crate::cluster::fact::Node;
use crate::drain::quorum::{Shortage, is_control_plane};
use crate::machines::admission::Denial;

/// What was found out for the review of a new object.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// `spec.nodeName` of the new object.
    pub node_name: &'a str,
    /// That node; none if there is none.
    pub node: Option<&'a Node>,
    /// Other objects for the same node, also those that are being deleted.
    pub others: &'a [Id],
    /// Whether the control plane can spare the node; only asked where it is of the control plane.
    pub quorum: Option<&'a Result<(), Shortage>>,
    /// The object says that a person has looked after the control plane.
    pub may_touch_control_plane: bool,
    /// What the one who asks may not do, if anything: a verb and a resource.
    pub lacking: Option<&'a str>,
    /// The name of the one who asks, for the refusal.
    pub user: &'a str,
    /// The annotation [`ON_UNCORDON`], if it is there.
    pub on_uncordon: Option<&'a str>,
    /// The annotation [`ALLOW_SHUTDOWN`], if it is there.
    pub allow_shutdown: Option<&'a str>,
}

fn forbidden(message: String) -> Denial {
    Denial { code: 403, message, causes: Vec::new() }
}

/// Why a new object is refused, if it is.
pub fn create(request: &Request<'_>) -> Option<Denial> {
    let name = request.node_name;
    if name.is_empty() {
        return Some(forbidden("spec.nodeName is missing; give the name of the node".into()));
    }
    if let Some(denial) = words(request.on_uncordon, request.allow_shutdown) {
        return Some(denial);
    }
    let Some(node) = request.node else {
        return Some(forbidden(format!("invalid nodeName, no node with name {name} found")));
    };
    if let Some(other) = request.others.first() {
        return Some(forbidden(format!(
            "invalid nodeName, a NodeMaintenance for node {name} already exists: {}",
            other.name
        )));
    }
    if let Some(lacking) = request.lacking {
        return Some(forbidden(format!(
            "user \"{}\" may not put node {name} into maintenance, because that needs the right to {lacking}",
            request.user
        )));
    }
    if is_control_plane(node) && !request.may_touch_control_plane {
        let verdict = request.quorum.unwrap_or(&Err(Shortage::Unseen));
        return verdict.as_ref().err().map(|shortage| forbidden(cannot_spare(name, shortage)));
    }
    None
}

/// What was found out for the review of a change.
#[derive(Debug, Clone)]
pub struct Change<'a> {
    /// `spec.nodeName` as it was.
    pub old_node: &'a str,
    /// `spec.nodeName` as it would be.
    pub new_node: &'a str,
    /// The annotation [`ON_UNCORDON`] as it would be.
    pub on_uncordon: Option<&'a str>,
    /// The annotation [`ALLOW_SHUTDOWN`] as it would be.
    pub allow_shutdown: Option<&'a str>,
    /// The permissions that are given now and were not before.
    pub gained: &'a [&'a str],
    /// What the one who asks may not do, if anything: a verb and a resource. Only looked at where something is gained.
    pub lacking: Option<&'a str>,
    /// The name of the one who asks, for the refusal.
    pub user: &'a str,
}

/// Whether a permission is given that was not given before. To take one back needs no right.
pub fn is_gained(before: Option<&str>, after: Option<&str>) -> bool {
    after == Some("true") && before != Some("true")
}

/// Only the reason and the words about how may change, and who adds a permission needs the rights of who creates: otherwise an object that was
/// created without it would be the way around them.
pub fn update(change: &Change<'_>) -> Option<Denial> {
    let Change { old_node, new_node, on_uncordon, allow_shutdown, gained, lacking, user } = change;
    if old_node != new_node {
        return Some(forbidden(format!(
            "updating spec.nodeName isn't allowed; delete this object and create one for {new_node}"
        )));
    }
    if let Some(denial) = words(*on_uncordon, *allow_shutdown) {
        return Some(denial);
    }
    let (first, lacking) = (gained.first()?, (*lacking)?);
    Some(forbidden(format!(
        "user \"{user}\" may not add annotation {first} to the maintenance of node {new_node}, because that needs the right to {lacking}"
    )))
}

fn words(on_uncordon: Option<&str>, shutdown: Option<&str>) -> Option<Denial> {
    if let Some(word) = on_uncordon.filter(|word| !matches!(*word, "reapply" | "yield")) {
        return Some(forbidden(format!("annotation {ON_UNCORDON} is '{word}'; give reapply or yield")));
    }
    let word = shutdown.filter(|word| !matches!(*word, "true" | "false"))?;
    Some(forbidden(format!("annotation {ALLOW_SHUTDOWN} is '{word}'; give true or false")))
}

#[cfg(test)]
mod tests {
    use super::super::ALLOW_CONTROL_PLANE;
    use super::*;
    use crate::maintenance::Family;
    use crate::testing::node;

    fn request<'a>(name: &'a str, node: Option<&'a Node>, others: &'a [Id]) -> Request<'a> {
        Request {
            node_name: name,
            node,
            others,
            quorum: None,
            may_touch_control_plane: false,
            lacking: None,
            user: "jane",
            on_uncordon: None,
            allow_shutdown: None,
        }
    }

    fn said(request: &Request<'_>) -> String {
        create(request).map(|denial| denial.message).unwrap_or_default()
    }

    #[test]
    fn b14_b15_unknown_nodes_and_second_objects_are_refused() {
        let there = node("n");
        assert_eq!(said(&request("n", Some(&there), &[])), "");
        assert!(said(&request("x", None, &[])).contains("no node with name x found"));
        assert!(said(&request("", None, &[])).contains("spec.nodeName is missing"));
        let other = [Id { family: Family::Medik8s, name: "first".into() }];
        assert!(said(&request("n", Some(&there), &other)).ends_with("already exists: first"));
    }

    #[test]
    fn b20_the_node_stays_and_the_reason_may_change() {
        assert!(update(&change("b", None, None)).unwrap().message.contains("isn't allowed"));
        assert_eq!(update(&change("a", Some("yield"), Some("true"))), None);
        assert!(update(&change("a", Some("maybe"), None)).is_some());
        assert!(update(&change("a", None, Some("yes"))).is_some());
    }

    fn change<'a>(to: &'a str, on_uncordon: Option<&'a str>, allow_shutdown: Option<&'a str>) -> Change<'a> {
        let (gained, lacking, user) = (&[][..], None, "jane");
        Change { old_node: "a", new_node: to, on_uncordon, allow_shutdown, gained, lacking, user }
    }

    #[test]
    fn who_adds_a_permission_needs_the_rights_of_who_creates_and_who_takes_it_back_needs_none() {
        let lacks = Change { lacking: Some("create pods/eviction"), ..change("a", None, None) };
        assert_eq!(update(&lacks), None, "nothing is gained");
        for permission in [ALLOW_SHUTDOWN, ALLOW_CONTROL_PLANE] {
            let gained = [permission];
            let gains = Change { gained: &gained, ..lacks.clone() };
            let said = update(&gains).unwrap().message;
            assert!(
                said.starts_with(&format!("user \"jane\" may not add annotation {permission}")),
                "{said}"
            );
            assert!(said.ends_with("create pods/eviction"), "{said}");
            assert_eq!(update(&Change { lacking: None, ..gains }), None);
        }
        assert!(is_gained(None, Some("true")) && is_gained(Some("false"), Some("true")));
        assert!(!is_gained(Some("true"), Some("true")) && !is_gained(Some("true"), None));
        assert!(!is_gained(None, Some("false")));
    }

    #[test]
    fn b21_a_node_of_the_control_plane_needs_a_quorum_that_is_known() {
        let mut plane = node("cp-0");
        plane.labels.insert("node-role.kubernetes.io/control-plane".into(), "".into());
        let with = |quorum| Request { quorum: Some(quorum), ..request("cp-0", Some(&plane), &[]) };
        assert_eq!(said(&with(&Ok(()))), "");
        let one = Err(Shortage::TooFew { left: 0, all: 1, needed: 1 });
        assert!(said(&with(&one)).contains("0 of 1 etcd members would be left"));
        assert!(said(&request("cp-0", Some(&plane), &[])).contains("unknown"), "nothing was found out");
        let unread = Err(Shortage::Unread("the server is busy".into()));
        assert!(said(&with(&unread)).ends_with("could not be found out: the server is busy"));
        let told = Request { may_touch_control_plane: true, ..with(&one) };
        assert_eq!(said(&told), "");
    }

    #[test]
    fn who_may_not_drain_a_node_may_not_have_it_drained() {
        let there = node("n");
        let asked = Request { lacking: Some("patch nodes"), ..request("n", Some(&there), &[]) };
        assert!(said(&asked).starts_with("user \"jane\" may not put node n into maintenance"));
    }
}
