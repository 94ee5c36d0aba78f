//! Deployments: one ReplicaSet per version of the template, and the way from the old to the new.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::pods::Owner;
use super::revisions::template_hash;
use crate::actor::{Out, View};
use crate::effects::{Deletion, Write};
use crate::events::{Notice, event};
use crate::kinds::Kind;
use crate::objects::{Key, annotation, deleting, name, scaled, uid};

mod status;

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
const COMPONENT: &str = "deployment-controller";

/// A deployment's wishes as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub replicas: i32,
    pub surge: i32,
    pub unavailable: i32,
}

pub fn limits(deployment: &Deployment) -> Limits {
    let spec = &deployment.spec;
    let replicas = spec.replicas.unwrap_or(1);
    if recreates(deployment) {
        return Limits { replicas, surge: 0, unavailable: 0 };
    }
    let rolling = spec.strategy.as_ref().and_then(|s| s.rolling_update.as_ref());
    let quarter = IntOrString::String("25%".to_owned());
    let surge = rolling.and_then(|r| r.max_surge.as_ref()).unwrap_or(&quarter);
    let unavailable = rolling.and_then(|r| r.max_unavailable.as_ref()).unwrap_or(&quarter);
    let surge = scaled(surge, replicas, true).unwrap_or(0).max(0);
    let mut unavailable = scaled(unavailable, replicas, false).unwrap_or(0).clamp(0, replicas.max(0));
    if surge == 0 && unavailable == 0 {
        // Otherwise nothing could ever move.
        unavailable = 1;
    }
    Limits { replicas, surge, unavailable }
}

fn recreates(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.strategy.as_ref();
    strategy.and_then(|s| s.type_.as_deref()) == Some("Recreate")
}

pub fn wanted(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|s| s.available_replicas).unwrap_or(0)
}

fn revision(set: &ReplicaSet) -> i64 {
    annotation(&set.metadata, REVISION).and_then(|v| v.parse().ok()).unwrap_or(0)
}

fn same_template(set: &ReplicaSet, template: &PodTemplateSpec) -> bool {
    let Some(mut own) = set.spec.template.clone() else { return false };
    if let Some(labels) = own.metadata.as_mut().and_then(|m| m.labels.as_mut()) {
        labels.remove(HASH);
    }
    template_hash(&own) == template_hash(template)
}

struct Roll<'a> {
    view: View<'a>,
    deployment: &'a Deployment,
    limits: Limits,
    new: Option<Arc<ReplicaSet>>,
    /// Oldest first.
    old: Vec<Arc<ReplicaSet>>,
}

pub fn sync(view: View<'_>, key: &Key, out: &mut Out) {
    let Some(deployment) = view.mirror.deployments.get(key) else { return };
    let spec = &deployment.spec;
    let mut sets: Vec<_> =
        view.mirror.replica_sets.controlled_by(uid(&deployment.metadata)).cloned().collect();
    sets.sort_by_key(|s| (s.metadata.creation_timestamp.clone(), revision(s), s.metadata.name.clone()));
    let new = sets.iter().find(|s| same_template(s, &spec.template)).cloned();
    let old = sets.into_iter().filter(|s| new.as_ref().is_none_or(|n| uid(&n.metadata) != uid(&s.metadata)));
    let roll = Roll { view, deployment, limits: limits(deployment), old: old.collect(), new };
    if !deleting(&deployment.metadata) {
        roll.act(spec.paused.unwrap_or(false), out);
    }
    if out.writes.iter().all(|w| w.optional) {
        status::write(&roll, key, out);
    }
}

impl Roll<'_> {
    fn act(&self, paused: bool, out: &mut Out) {
        if self.scaling() {
            self.scale(out);
            return;
        }
        if paused {
            return;
        }
        if recreates(self.deployment) {
            self.recreate(out);
        } else {
            self.roll(out);
        }
        if out.writes.is_empty() {
            self.sync_revision(out);
        }
        if out.writes.is_empty() {
            self.clean_up(out);
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(self.new.as_ref())
    }

    fn roll(&self, out: &mut Out) {
        let Limits { replicas, surge, .. } = self.limits;
        let total: i32 = self.all().map(|s| wanted(s)).sum();
        let grow = |now: i32| (replicas + surge - total).clamp(0, (replicas - now).max(0)) + now;
        let Some(new) = &self.new else {
            self.create_set(grow(0), out);
            return;
        };
        let target = if wanted(new) > replicas { replicas } else { grow(wanted(new)) };
        if target != wanted(new) {
            self.resize(new, target, out);
            return;
        }
        self.shrink_old(new, total, out);
    }

    fn shrink_old(&self, new: &ReplicaSet, total: i32, out: &mut Out) {
        let least = self.limits.replicas - self.limits.unavailable;
        let not_up = wanted(new) - available(new);
        let mut may_go = total - least - not_up;
        let mut targets: Vec<i32> = self.old.iter().map(|s| wanted(s)).collect();
        // What is not available anyway goes first.
        for (set, target) in self.old.iter().zip(&mut targets) {
            let unhealthy = (*target - available(set)).clamp(0, may_go.max(0));
            *target -= unhealthy;
            may_go -= unhealthy;
        }
        let up: i32 = self.all().map(|s| available(s)).sum();
        let mut spare = up - least;
        for target in &mut targets {
            let step = (*target).min(spare).max(0);
            if may_go <= 0 {
                break;
            }
            *target -= step.min(may_go);
            spare -= step;
            may_go -= step;
        }
        for (set, target) in self.old.iter().zip(targets) {
            if target != wanted(set) {
                self.resize(set, target, out);
            }
        }
    }

    fn recreate(&self, out: &mut Out) {
        let mut down = false;
        for set in self.old.iter().filter(|s| wanted(s) > 0) {
            self.resize(set, 0, out);
            down = true;
        }
        let old_pods = self.old.iter().any(|s| {
            self.view.mirror.pods.controlled_by(uid(&s.metadata)).any(|p| !crate::objects::finished(p))
        });
        if down || old_pods {
            return;
        }
        match &self.new {
            None => self.create_set(self.limits.replicas, out),
            Some(new) if wanted(new) != self.limits.replicas => self.resize(new, self.limits.replicas, out),
            Some(_) => {}
        }
    }

    /// The number of replicas was changed, and not by us.
    fn scaling(&self) -> bool {
        self.all().filter(|s| wanted(s) > 0).any(|s| {
            annotation(&s.metadata, DESIRED)
                .and_then(|v| v.parse::<i32>().ok())
                .is_some_and(|v| v != self.limits.replicas)
        })
    }

    /// Shares the new number among the sets in proportion to what they have.
    fn scale(&self, out: &mut Out) {
        let mut sets: Vec<&Arc<ReplicaSet>> = self.all().filter(|s| wanted(s) > 0).collect();
        let total: i32 = sets.iter().map(|s| wanted(s)).sum();
        let rolling = sets.len() > 1 && !recreates(self.deployment);
        let goal = if self.limits.replicas == 0 {
            0
        } else if rolling {
            self.limits.replicas + self.limits.surge
        } else {
            self.limits.replicas
        };
        sets.sort_by_key(|s| std::cmp::Reverse((wanted(s), s.metadata.creation_timestamp.clone())));
        let mut left = goal - total;
        let mut targets: Vec<i32> = Vec::new();
        for set in &sets {
            let share = (f64::from(wanted(set)) * f64::from(goal) / f64::from(total.max(1))).round() as i32;
            let step = if left >= 0 {
                (share - wanted(set)).clamp(0, left)
            } else {
                (share - wanted(set)).clamp(left, 0)
            };
            left -= step;
            targets.push(wanted(set) + step);
        }
        if let Some(first) = targets.first_mut() {
            *first = (*first + left).max(0);
        }
        for (set, target) in sets.into_iter().zip(targets) {
            self.resize(set, target, out);
        }
    }

    fn marks(&self, meta: &mut ObjectMeta) {
        let annotations = meta.annotations.get_or_insert_default();
        annotations.insert(DESIRED.to_owned(), self.limits.replicas.to_string());
        annotations.insert(MAXIMUM.to_owned(), (self.limits.replicas + self.limits.surge).to_string());
    }

    fn resize(&self, set: &ReplicaSet, to: i32, out: &mut Out) {
        let from = wanted(set);
        let mut next = ReplicaSet::clone(set);
        next.spec.replicas = Some(to);
        self.marks(&mut next.metadata);
        out.write(Write::replace(Kind::ReplicaSet, Key::of(&set.metadata), &next));
        if from != to {
            let way = if to > from { "up" } else { "down" };
            let text = format!("Scaled {way} replica set {} from {from} to {to}", name(&set.metadata));
            let about = &self.deployment.metadata;
            let notice = Notice::normal(COMPONENT, "ScalingReplicaSet", &text);
            out.write(event(Kind::Deployment, about, notice, self.view.now));
        }
    }

    fn next_revision(&self) -> i64 {
        self.old.iter().map(|s| revision(s)).max().unwrap_or(0) + 1
    }

    fn create_set(&self, replicas: i32, out: &mut Out) {
        let spec = &self.deployment.spec;
        let hash = template_hash(&spec.template);
        let owner = Owner { kind: Kind::Deployment, meta: &self.deployment.metadata, component: COMPONENT };
        let mut template = spec.template.clone();
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(HASH.to_owned(), hash.clone());
        let mut selector = spec.selector.clone();
        selector.match_labels.get_or_insert_default().insert(HASH.to_owned(), hash.clone());
        let mut metadata = ObjectMeta {
            name: Some(format!("{}-{hash}", name(&self.deployment.metadata))),
            namespace: self.deployment.metadata.namespace.clone(),
            labels: template.metadata.as_ref().and_then(|m| m.labels.clone()),
            owner_references: Some(vec![owner.reference()]),
            ..Default::default()
        };
        self.marks(&mut metadata);
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(REVISION.to_owned(), self.next_revision().to_string());
        let set = ReplicaSet {
            metadata,
            spec: ReplicaSetSpec {
                replicas: Some(replicas),
                min_ready_seconds: spec.min_ready_seconds,
                selector,
                template: Some(template),
            },
            status: None,
        };
        let key = Key::of(&set.metadata);
        let text = format!("Scaled up replica set {} from 0 to {replicas}", key.name);
        out.write(Write::create(Kind::ReplicaSet, key, &set));
        let about = &self.deployment.metadata;
        let notice = Notice::normal(COMPONENT, "ScalingReplicaSet", &text);
        out.write(event(Kind::Deployment, about, notice, self.view.now));
    }

    /// A version that is rolled back to becomes the newest; the deployment names the revision it runs.
    fn sync_revision(&self, out: &mut Out) {
        let Some(new) = &self.new else { return };
        let number = revision(new).max(self.next_revision());
        if revision(new) != number {
            let mut next = ReplicaSet::clone(new);
            let annotations = next.metadata.annotations.get_or_insert_default();
            annotations.insert(REVISION.to_owned(), number.to_string());
            out.write(Write::replace(Kind::ReplicaSet, Key::of(&new.metadata), &next));
        }
        if annotation(&self.deployment.metadata, REVISION) != Some(number.to_string().as_str()) {
            let patch = serde_json::json!({ "metadata": {
                "uid": self.deployment.metadata.uid,
                "annotations": { REVISION: number.to_string() },
            }});
            // Through the status, so that it does not count as a change of what is wanted.
            out.write(Write::patch_status(Kind::Deployment, Key::of(&self.deployment.metadata), patch));
        }
    }

    fn clean_up(&self, out: &mut Out) {
        let keep = self.deployment.spec.revision_history_limit.unwrap_or(10);
        let empty = |s: &&Arc<ReplicaSet>| {
            wanted(s) == 0 && s.status.as_ref().is_none_or(|st| st.replicas == 0) && !deleting(&s.metadata)
        };
        let mut idle: Vec<_> = self.old.iter().filter(empty).collect();
        idle.sort_by_key(|s| revision(s));
        let excess = idle.len().saturating_sub(keep.max(0) as usize);
        for set in idle.into_iter().take(excess) {
            let deletion = Deletion { uid: set.metadata.uid.clone(), ..Deletion::default() };
            out.write(Write::delete(Kind::ReplicaSet, Key::of(&set.metadata), deletion));
        }
    }
}

#[cfg(test)]
mod tests;
