//! Who owns whom, over all kinds of object, by uid.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::kinds::Resource;
use crate::mirror::Change;
use crate::objects::{Key, deleting, uid};

#[derive(Debug, Clone)]
pub struct Item {
    pub resource: Resource,
    pub key: Key,
    pub uid: String,
    pub version: String,
    pub owners: Vec<OwnerReference>,
    pub finalizers: Vec<String>,
    pub deleting: bool,
}

#[derive(Debug, Default)]
pub struct Graph {
    items: BTreeMap<String, Item>,
    children: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    pub fn get(&self, uid: &str) -> Option<&Item> {
        self.items.get(uid)
    }

    pub fn children(&self, uid: &str) -> impl Iterator<Item = &Item> {
        self.children.get(uid).into_iter().flatten().filter_map(|child| self.items.get(child))
    }

    /// Takes a change of the mirror; answers who has to be looked at.
    pub fn note(&mut self, change: &Change) -> Vec<String> {
        let mut touched = Vec::new();
        if let Some(old) = &change.old
            && change.new.as_ref().is_none_or(|new| uid(new.meta()) != uid(old.meta()))
        {
            touched.extend(self.remove(uid(old.meta())));
        }
        if let Some(new) = &change.new {
            touched.extend(self.put(&change.kind.resource(), new.meta()));
        }
        touched
    }

    pub fn put(&mut self, resource: &Resource, meta: &ObjectMeta) -> Vec<String> {
        let item = Item {
            resource: resource.clone(),
            key: Key::of(meta),
            uid: uid(meta).to_owned(),
            version: meta.resource_version.clone().unwrap_or_default(),
            owners: meta.owner_references.clone().unwrap_or_default(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            deleting: deleting(meta),
        };
        let mut touched = Vec::new();
        let old = self.items.remove(&item.uid);
        let old_owners: BTreeSet<String> =
            old.iter().flat_map(|o| &o.owners).map(|o| o.uid.clone()).collect();
        let owners: BTreeSet<String> = item.owners.iter().map(|o| o.uid.clone()).collect();
        for former in old_owners.difference(&owners) {
            self.unlink(former, &item.uid);
            touched.push(former.clone());
        }
        for owner in &owners {
            self.children.entry(owner.clone()).or_default().insert(item.uid.clone());
            // An owner that waits for its dependents wants to know how they are.
            if self.items.get(owner).is_some_and(|o| o.deleting) {
                touched.push(owner.clone());
            }
        }
        let fresh = old.as_ref().is_none_or(|o| {
            o.deleting != item.deleting || old_owners != owners || o.finalizers != item.finalizers
        });
        if fresh && (item.deleting || !item.owners.is_empty()) {
            touched.push(item.uid.clone());
        }
        if item.deleting && old.as_ref().is_some_and(|o| !o.deleting) {
            touched.extend(self.children.get(&item.uid).into_iter().flatten().cloned());
        }
        self.items.insert(item.uid.clone(), item);
        touched
    }

    /// Forgets an object; its dependents and its owners have to be looked at.
    pub fn remove(&mut self, uid: &str) -> Vec<String> {
        let Some(item) = self.items.remove(uid) else { return Vec::new() };
        let mut touched: Vec<String> = self.children.get(uid).into_iter().flatten().cloned().collect();
        for owner in &item.owners {
            self.unlink(&owner.uid, uid);
            if self.items.get(&owner.uid).is_some_and(|o| o.deleting) {
                touched.push(owner.uid.clone());
            }
        }
        touched
    }

    /// A full list of a resource: forgets what it does not name.
    pub fn keep_only(&mut self, resource: &Resource, uids: &[String]) -> Vec<String> {
        let kept: BTreeSet<&String> = uids.iter().collect();
        let gone: Vec<String> = self
            .items
            .values()
            .filter(|i| i.resource == *resource && !kept.contains(&i.uid))
            .map(|i| i.uid.clone())
            .collect();
        gone.iter().flat_map(|uid| self.remove(uid)).collect()
    }

    fn unlink(&mut self, owner: &str, child: &str) {
        if let Some(children) = self.children.get_mut(owner) {
            children.remove(child);
            if children.is_empty() {
                self.children.remove(owner);
            }
        }
    }
}
