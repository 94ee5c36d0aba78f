//! Jobs: pods that run to their end, so many times.
//!
//! A pod carries the tracking finalizer until it has been counted, so a finished pod that someone deletes
//! is neither lost nor counted twice. Not built: pod failure and success policies, per-index back-off.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::{EnvVar, Pod};
use serde_json::json;

use super::pods::{Owner, claim, create, delete, from_template};
use crate::actor::{Out, View};
use crate::effects::{Deletion, Write};
use crate::kinds::Kind;
use crate::objects::{Key, annotation, deleting, finished, later, name, phase, ready, time, uid};
use crate::random::Streams;

const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub fn has(job: &Job, condition: &str) -> bool {
    let conditions = job.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == condition && c.status == "True")
}

fn tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|f| f == TRACKING)
}

fn untrack(pod: &Pod, out: &mut Out) {
    let rest: Vec<_> = pod.metadata.finalizers.iter().flatten().filter(|f| *f != TRACKING).collect();
    let patch = json!({ "metadata": { "uid": pod.metadata.uid, "finalizers": rest } });
    out.write(Write::merge(Kind::Pod, Key::of(&pod.metadata), patch));
}

pub fn sync(view: View<'_>, streams: &mut Streams, key: &Key, out: &mut Out) {
    let Some(job) = view.mirror.jobs.get(key) else { return };
    let Some(spec) = &job.spec else { return };
    if spec.managed_by.as_deref().is_some_and(|m| m != "kubernetes.io/job-controller") {
        return;
    }
    let owner = Owner { kind: Kind::Job, meta: &job.metadata, component: "job-controller" };
    let pods = claim(view, &owner, spec.selector.as_ref(), out);
    if has(job, "Complete") || has(job, "Failed") {
        for pod in pods.iter().filter(|p| tracked(p)) {
            untrack(pod, out);
        }
        expire(view, job, spec, key, out);
        return;
    }
    if deleting(&job.metadata) {
        for pod in pods.iter().filter(|p| tracked(p) && deleting(&p.metadata)) {
            untrack(pod, out);
        }
        return;
    }
    Tick { view, job, spec, owner, pods, key }.act(streams, out);
}

/// A finished job is deleted after its time to live.
fn expire(view: View<'_>, job: &Job, spec: &JobSpec, key: &Key, out: &mut Out) {
    let Some(ttl) = spec.ttl_seconds_after_finished else { return };
    let ended = job
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten())
        .filter(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True")
        .find_map(|c| c.last_transition_time.as_ref());
    let Some(at) = ended.map(|t| later(t.0, i64::from(ttl))) else { return };
    if at > view.now {
        out.again_at(at);
    } else if !deleting(&job.metadata) {
        let deletion = Deletion {
            uid: job.metadata.uid.clone(),
            propagation: Some("Foreground"),
            ..Deletion::default()
        };
        out.write(Write::delete(Kind::Job, key.clone(), deletion));
    }
}

struct Tick<'a> {
    view: View<'a>,
    job: &'a Job,
    spec: &'a JobSpec,
    owner: Owner<'a>,
    pods: Vec<Arc<Pod>>,
    key: &'a Key,
}

impl Tick<'_> {
    fn act(&self, streams: &mut Streams, out: &mut Out) {
        let held = self.job.status.clone().unwrap_or_default();
        let mut next = held.clone();
        let suspended = self.spec.suspend == Some(true);
        if next.start_time.is_none() && !suspended {
            next.start_time = Some(time(self.view.now));
        }
        self.count(&mut next);
        let active: Vec<Arc<Pod>> =
            self.pods.iter().filter(|p| !finished(p) && !deleting(&p.metadata)).cloned().collect();
        let verdict = self.verdict(&next, out);
        let ending =
            verdict.is_some() || has(self.job, "SuccessCriteriaMet") || has(self.job, "FailureTarget");
        if let Some((kind, reason, message)) = &verdict
            && !has(self.job, kind)
        {
            push(&mut next, kind, reason, message, self.view.now);
        }
        let wanted = if ending || suspended { 0 } else { self.wanted(&next, active.len() as i32) };
        next.active = Some(active.len() as i32).filter(|n| *n > 0);
        next.ready = Some(active.iter().filter(|p| ready(p)).count() as i32);
        next.terminating =
            Some(self.pods.iter().filter(|p| deleting(&p.metadata) && !finished(p)).count() as i32);
        let uncounted = next.uncounted_terminated_pods.clone().unwrap_or_default();
        let settled = uncounted.succeeded.as_ref().is_none_or(Vec::is_empty)
            && uncounted.failed.as_ref().is_none_or(Vec::is_empty);
        if ending && settled && active.is_empty() && next.terminating == Some(0) {
            self.finish(&mut next);
        }
        if next != held {
            let body = Job { status: Some(next.clone()), ..Job::clone(self.job) };
            out.write(Write::status(Kind::Job, self.key.clone(), &body));
        }
        let counted: BTreeSet<String> =
            uncounted.succeeded.into_iter().flatten().chain(uncounted.failed.into_iter().flatten()).collect();
        for pod in self.pods.iter().filter(|p| tracked(p) && counted.contains(uid(&p.metadata))) {
            untrack(pod, out);
        }
        let difference = wanted - active.len() as i32;
        if difference > 0 {
            self.start(difference, streams, &next, out);
        } else {
            for pod in active.iter().take((-difference) as usize) {
                delete(&self.owner, pod, self.view.now, out);
            }
        }
    }

    /// Adds pods that ended since, once each.
    fn count(&self, next: &mut JobStatus) {
        let mut uncounted: UncountedTerminatedPods =
            next.uncounted_terminated_pods.clone().unwrap_or_default();
        let still: BTreeSet<&str> =
            self.pods.iter().filter(|p| tracked(p)).map(|p| uid(&p.metadata)).collect();
        let prune = |list: &mut Option<Vec<String>>| {
            if let Some(uids) = list {
                uids.retain(|u| still.contains(u.as_str()));
            }
            if list.as_ref().is_some_and(Vec::is_empty) {
                *list = None;
            }
        };
        prune(&mut uncounted.succeeded);
        prune(&mut uncounted.failed);
        for pod in self.pods.iter().filter(|p| tracked(p)) {
            let own = uid(&pod.metadata).to_owned();
            let known = |list: &Option<Vec<String>>| list.iter().flatten().any(|u| *u == own);
            if known(&uncounted.succeeded) || known(&uncounted.failed) {
                continue;
            }
            if phase(pod) == "Succeeded" {
                next.succeeded = Some(next.succeeded.unwrap_or(0) + 1);
                uncounted.succeeded.get_or_insert_default().push(own);
                if let Some(index) = annotation(&pod.metadata, INDEX).and_then(|i| i.parse().ok()) {
                    let mut done = indexes(next.completed_indexes.as_deref());
                    done.insert(index);
                    next.completed_indexes = Some(show_indexes(&done));
                }
            } else if phase(pod) == "Failed" || deleting(&pod.metadata) {
                next.failed = Some(next.failed.unwrap_or(0) + 1);
                uncounted.failed.get_or_insert_default().push(own);
            }
        }
        let empty = uncounted.succeeded.is_none() && uncounted.failed.is_none();
        next.uncounted_terminated_pods = if empty { None } else { Some(uncounted) };
        if self
            .job
            .status
            .as_ref()
            .is_some_and(|s| s.uncounted_terminated_pods == Some(UncountedTerminatedPods::default()))
            && next.uncounted_terminated_pods.is_none()
        {
            next.uncounted_terminated_pods = Some(UncountedTerminatedPods::default());
        }
    }

    fn verdict(&self, next: &JobStatus, out: &mut Out) -> Option<(&'static str, &'static str, String)> {
        let succeeded = next.succeeded.unwrap_or(0);
        let reached = match self.spec.completions {
            Some(completions) => succeeded >= completions,
            None => succeeded > 0 && self.pods.iter().all(|p| finished(p)),
        };
        if reached {
            let text = "Reached expected number of succeeded pods".to_owned();
            return Some(("SuccessCriteriaMet", "CompletionsReached", text));
        }
        if next.failed.unwrap_or(0) > self.spec.backoff_limit.unwrap_or(6) {
            let text = "Job has reached the specified backoff limit".to_owned();
            return Some(("FailureTarget", "BackoffLimitExceeded", text));
        }
        if let (Some(limit), Some(start)) = (self.spec.active_deadline_seconds, &next.start_time) {
            let at = later(start.0, limit);
            if at <= self.view.now {
                let text = "Job was active longer than specified deadline".to_owned();
                return Some(("FailureTarget", "DeadlineExceeded", text));
            }
            out.again_at(at);
        }
        None
    }

    fn wanted(&self, next: &JobStatus, active: i32) -> i32 {
        let parallel = self.spec.parallelism.unwrap_or(1);
        let succeeded = next.succeeded.unwrap_or(0);
        match self.spec.completions {
            Some(completions) => parallel.min(completions - succeeded).max(0),
            // A work queue: once one has succeeded no new pods are started.
            None if succeeded > 0 => active.min(parallel),
            None => parallel,
        }
    }

    fn finish(&self, next: &mut JobStatus) {
        let conditions = next.conditions.clone().unwrap_or_default();
        for (target, end) in [("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed")] {
            if let Some(cause) = conditions.iter().find(|c| c.type_ == target && c.status == "True") {
                let reason = cause.reason.clone().unwrap_or_default();
                let message = cause.message.clone().unwrap_or_default();
                push(next, end, &reason, &message, self.view.now);
                if end == "Complete" {
                    next.completion_time = Some(time(self.view.now));
                }
            }
        }
    }

    fn start(&self, count: i32, streams: &mut Streams, next: &JobStatus, out: &mut Out) {
        let indexed = self.spec.completion_mode.as_deref() == Some("Indexed");
        let mut taken = indexes(next.completed_indexes.as_deref());
        for pod in self.pods.iter().filter(|p| !finished(p) && !deleting(&p.metadata)) {
            taken.extend(annotation(&pod.metadata, INDEX).and_then(|i| i.parse::<i32>().ok()));
        }
        let entity = format!("{}/{}", self.owner.namespace(), name(self.owner.meta));
        let mut free = (0..self.spec.completions.unwrap_or(0)).filter(|i| !taken.contains(i));
        for _ in 0..count {
            let suffix = streams.suffix(&entity);
            let index = if indexed {
                let Some(index) = free.next() else { return };
                Some(index)
            } else {
                None
            };
            let base = name(self.owner.meta);
            let pod_name =
                index.map_or_else(|| format!("{base}-{suffix}"), |i| format!("{base}-{i}-{suffix}"));
            let mut pod = from_template(&self.owner, &self.spec.template, &pod_name, true);
            pod.metadata.finalizers.get_or_insert_default().push(TRACKING.to_owned());
            if let Some(index) = index {
                let text = index.to_string();
                pod.metadata.annotations.get_or_insert_default().insert(INDEX.to_owned(), text.clone());
                pod.metadata.labels.get_or_insert_default().insert(INDEX.to_owned(), text.clone());
                for container in &mut pod.spec.get_or_insert_default().containers {
                    container.env.get_or_insert_default().push(EnvVar {
                        name: "JOB_COMPLETION_INDEX".to_owned(),
                        value: Some(text.clone()),
                        ..Default::default()
                    });
                }
            }
            create(&self.owner, &pod, self.view.now, out);
        }
    }
}

fn push(status: &mut JobStatus, kind: &str, reason: &str, message: &str, now: Timestamp) {
    status.conditions.get_or_insert_default().push(JobCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(time(now)),
        last_transition_time: Some(time(now)),
    });
}

/// `"0,2-4"` as numbers.
fn indexes(text: Option<&str>) -> BTreeSet<i32> {
    let mut set = BTreeSet::new();
    for part in text.unwrap_or_default().split(',').filter(|p| !p.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<i32>(), to.parse::<i32>()) {
            set.extend(from..=to);
        }
    }
    set
}

fn show_indexes(set: &BTreeSet<i32>) -> String {
    let mut ranges: Vec<(i32, i32)> = Vec::new();
    for n in set {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == *n => *end = *n,
            _ => ranges.push((*n, *n)),
        }
    }
    let show = |(from, to): &(i32, i32)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    ranges.iter().map(show).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::Answers;
    use crate::build::{at, labels, meta, pod, selector};
    use crate::effects::Verb;
    use crate::mirror::Mirror;
    use k8s_openapi::api::core::v1::PodTemplateSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn job(completions: i32, parallelism: i32) -> Job {
        Job {
            metadata: meta("ns", "j"),
            spec: Some(JobSpec {
                completions: Some(completions),
                parallelism: Some(parallelism),
                backoff_limit: Some(1),
                selector: Some(selector(&[("job", "j")])),
                template: PodTemplateSpec {
                    metadata: Some(ObjectMeta {
                        labels: Some(labels(&[("job", "j")])),
                        ..Default::default()
                    }),
                    spec: None,
                },
                ..Default::default()
            }),
            status: None,
        }
    }

    /// The job and its pods; each write is applied.
    struct Bench {
        mirror: Mirror,
        version: u64,
        streams: Streams,
    }

    impl Bench {
        fn new(job: &Job) -> Self {
            let mut bench = Self { mirror: Mirror::default(), version: 5, streams: Streams::new(1) };
            bench.put(Kind::Job, crate::effects::as_value(job));
            bench
        }

        fn put(&mut self, kind: Kind, mut value: serde_json::Value) {
            self.version += 1;
            value["metadata"]["resourceVersion"] = self.version.to_string().into();
            if value["metadata"]["uid"].is_null() {
                value["metadata"]["uid"] = format!("uid-{}", self.version).into();
            }
            self.mirror.put(kind.parse(value).unwrap());
        }

        fn settle(&mut self) {
            for _ in 0..20 {
                let mut out = Out::default();
                let answers = Answers::new();
                let view = View { mirror: &self.mirror, now: at(0), answers: &answers };
                sync(view, &mut self.streams, &Key::new("ns", "j"), &mut out);
                out.writes.retain(|w| !w.optional);
                if out.writes.is_empty() {
                    return;
                }
                for write in out.writes {
                    let kind = Kind::of(&write.resource).unwrap();
                    match write.verb {
                        Verb::Create(body) | Verb::Replace(body) => self.put(kind, body),
                        Verb::MergePatch(_) => {
                            let mut pod = Pod::clone(self.mirror.pods.get(&write.key).unwrap());
                            pod.metadata.finalizers = None;
                            self.put(Kind::Pod, crate::effects::as_value(&pod));
                        }
                        Verb::Delete(_) => {
                            self.mirror.deleted(kind, &write.key, "");
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            panic!("does not settle");
        }

        fn end_active(&mut self, phase: &str) {
            let pods: Vec<_> = self.mirror.pods.values().filter(|p| !finished(p)).cloned().collect();
            for p in pods {
                let mut p = Pod::clone(&p);
                p.status = pod("ns", "x").phase(phase).make().status;
                self.put(Kind::Pod, crate::effects::as_value(&p));
            }
        }

        fn job(&self) -> Arc<Job> {
            self.mirror.jobs.get(&Key::new("ns", "j")).unwrap().clone()
        }
    }

    #[test]
    fn a_job_runs_until_its_completions_are_reached() {
        let mut bench = Bench::new(&job(3, 2));
        bench.settle();
        assert_eq!(bench.mirror.pods.len(), 2);
        bench.end_active("Succeeded");
        bench.settle();
        assert_eq!(bench.mirror.pods.len(), 3);
        bench.end_active("Succeeded");
        bench.settle();
        let job = bench.job();
        assert!(has(&job, "Complete"), "{:?}", job.status);
        assert_eq!(job.status.as_ref().unwrap().succeeded, Some(3));
        assert!(bench.mirror.pods.values().all(|p| !tracked(p)));
    }

    #[test]
    fn a_job_fails_beyond_its_backoff_limit() {
        let mut bench = Bench::new(&job(1, 1));
        for _ in 0..2 {
            bench.settle();
            bench.end_active("Failed");
        }
        bench.settle();
        let job = bench.job();
        assert!(has(&job, "Failed"));
        assert_eq!(job.status.as_ref().unwrap().failed, Some(2));
        assert_eq!(bench.mirror.pods.len(), 2);
    }

    #[test]
    fn a_finished_pod_that_is_deleted_after_counting_is_not_run_again() {
        let mut bench = Bench::new(&job(2, 1));
        bench.settle();
        bench.end_active("Succeeded");
        bench.settle();
        let first = bench.mirror.pods.iter().find(|(_, p)| finished(p)).map(|(k, _)| k.clone()).unwrap();
        bench.mirror.deleted(Kind::Pod, &first, "");
        bench.settle();
        assert_eq!(bench.job().status.as_ref().unwrap().succeeded, Some(1));
        assert_eq!(bench.mirror.pods.values().filter(|p| !finished(p)).count(), 1);
    }

    #[test]
    fn indexes_are_written_as_ranges() {
        let set = indexes(Some("0,2-4"));
        assert_eq!(set.into_iter().collect::<Vec<_>>(), [0, 2, 3, 4]);
        assert_eq!(show_indexes(&BTreeSet::from([0, 2, 3, 4, 9])), "0,2-4,9");
    }
}
