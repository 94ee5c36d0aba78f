//! What goes when its owner goes: the garbage collector, the deletion of namespaces, and the small
//! bookkeeping controllers for service accounts and volumes.

pub mod accounts;
pub mod graph;
pub mod namespaces;
pub mod volumes;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;

use self::graph::{Graph, Item};
use crate::actor::{Ask, Out, Reply, View};
use crate::effects::{Deletion, Verb, Write};
use crate::objects::Key;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

fn write(item: &Item, verb: Verb) -> Write {
    Write { resource: item.resource.clone(), key: item.key.clone(), subresource: "", verb, optional: false }
}

fn delete(item: &Item, propagation: &'static str) -> Write {
    let deletion = Deletion {
        uid: Some(item.uid.clone()),
        resource_version: Some(item.version.clone()),
        propagation: Some(propagation),
        ..Deletion::default()
    };
    write(item, Verb::Delete(deletion))
}

/// A merge patch that only applies to the object we looked at.
fn patch(item: &Item, metadata: serde_json::Value) -> Write {
    let mut metadata = metadata;
    metadata["uid"] = json!(item.uid);
    metadata["resourceVersion"] = json!(item.version);
    write(item, Verb::MergePatch(json!({ "metadata": metadata })))
}

fn without_finalizer(item: &Item, finalizer: &str) -> Write {
    let rest: Vec<&String> = item.finalizers.iter().filter(|f| *f != finalizer).collect();
    patch(item, json!({ "finalizers": rest }))
}

/// Decides about one object: whether its owners still hold it, and whether it waits for what it owns.
pub fn collect(view: View<'_>, graph: &Graph, uid: &str, out: &mut Out) {
    let Some(item) = graph.get(uid) else { return };
    if item.deleting {
        if item.finalizers.iter().any(|f| f == ORPHAN) {
            orphan_dependents(graph, item, out);
            return;
        }
        if item.finalizers.iter().any(|f| f == FOREGROUND) {
            wait_for_dependents(graph, item, out);
            return;
        }
        return;
    }
    if item.owners.is_empty() {
        return;
    }
    let (mut solid, mut leaving, mut dangling) = (Vec::new(), Vec::new(), Vec::new());
    for owner in &item.owners {
        match state(view, graph, item, owner, out) {
            State::Solid => solid.push(owner),
            State::WaitsForUs => leaving.push(owner),
            State::Absent => dangling.push(owner),
            State::Unknown => return,
        }
    }
    if !solid.is_empty() {
        if dangling.is_empty() && leaving.is_empty() {
            return;
        }
        out.write(patch(item, json!({ "ownerReferences": solid })));
    } else if !leaving.is_empty() && graph.children(uid).next().is_some() {
        // What blocks the owner has dependents of its own, which go first.
        out.write(delete(item, "Foreground"));
    } else {
        out.write(delete(item, "Background"));
    }
}

enum State {
    Solid,
    /// The owner is deleted in the foreground and waits for its dependents.
    WaitsForUs,
    Absent,
    /// Asked; the answer decides.
    Unknown,
}

fn state(view: View<'_>, graph: &Graph, item: &Item, owner: &OwnerReference, out: &mut Out) -> State {
    if let Some(held) = graph.get(&owner.uid) {
        let same_place = held.key.namespace.is_empty() || held.key.namespace == item.key.namespace;
        if !same_place {
            return State::Absent;
        }
        let foreground = held.deleting && held.finalizers.iter().any(|f| f == FOREGROUND);
        return if foreground { State::WaitsForUs } else { State::Solid };
    }
    let ask = Ask::Object {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        key: Key::new(item.key.namespace.clone(), owner.name.clone()),
    };
    match view.answers.get(&ask) {
        None => {
            out.ask(ask);
            State::Unknown
        }
        Some(Reply::Found(object)) if object["metadata"]["uid"] == owner.uid => State::Solid,
        Some(Reply::Found(_) | Reply::NotFound) => State::Absent,
        Some(Reply::NoScale(_) | Reply::Failed(_)) => {
            // An owner of a kind that the server does not know may be served later.
            out.again_at(crate::objects::later(view.now, 30));
            State::Unknown
        }
    }
}

/// The owner goes alone: its dependents lose the reference first.
fn orphan_dependents(graph: &Graph, item: &Item, out: &mut Out) {
    for child in graph.children(&item.uid) {
        let rest: Vec<&OwnerReference> = child.owners.iter().filter(|o| o.uid != item.uid).collect();
        out.write(patch(child, json!({ "ownerReferences": rest })));
    }
    out.write(without_finalizer(item, ORPHAN));
}

/// The owner goes last: what blocks it is deleted, and then the finalizer.
fn wait_for_dependents(graph: &Graph, item: &Item, out: &mut Out) {
    let blocks =
        |child: &Item| child.owners.iter().any(|o| o.uid == item.uid && o.block_owner_deletion == Some(true));
    let mut waiting = false;
    for child in graph.children(&item.uid) {
        waiting |= blocks(child);
        if !child.deleting && child.owners.iter().all(|o| o.uid == item.uid) {
            let nested = graph.children(&child.uid).next().is_some();
            out.write(delete(child, if nested { "Foreground" } else { "Background" }));
        }
    }
    if !waiting && out.writes.is_empty() {
        out.write(without_finalizer(item, FOREGROUND));
    }
}

#[cfg(test)]
mod tests;
