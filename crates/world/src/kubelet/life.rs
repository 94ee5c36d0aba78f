//! The life of one pod's containers on a node, as a function of time.

use std::time::Duration;

use evac_apimachinery::backoff::Backoff;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::behaviour::{Behaviour, Fail};
use crate::objects::{after, deleting, finished};

/// How long a crashing container runs.
const CRASH_AFTER: f64 = 0.1;
/// Between the restarts of a container, as kubelet does.
const CRASH_LOOP: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(300));

/// What the node remembers of a pod; survives a restart of the kubelet, as containers do.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub seen: Timestamp,
    pub stop_seen: Option<Timestamp>,
    pub restarts: i32,
    pub stage: Stage,
    pub ip: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage {
    Creating,
    Running {
        since: Timestamp,
    },
    /// Ended and waiting to be started again.
    Waiting {
        since: Timestamp,
        ended: Timestamp,
        until: Timestamp,
        code: i32,
    },
    Done {
        since: Timestamp,
        ended: Timestamp,
        code: i32,
    },
}

impl Run {
    /// First sight of a pod that has not run yet.
    pub fn begin(now: Timestamp, ip: String) -> Self {
        Self { seen: now, stop_seen: None, restarts: 0, stage: Stage::Creating, ip }
    }

    /// First sight of a pod that an earlier world has already run.
    pub fn adopt(pod: &Pod, now: Timestamp, ip: String) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let container = status.container_statuses.as_ref().and_then(|c| c.first());
        let started = container
            .and_then(|c| c.state.as_ref()?.running.as_ref()?.started_at.as_ref())
            .or(status.start_time.as_ref())
            .map_or(now, |t| t.0);
        let stage = if finished(pod) {
            let code = i32::from(status.phase.as_deref() == Some("Failed"));
            Stage::Done { since: started, ended: started, code }
        } else if status.phase.as_deref() == Some("Running") {
            Stage::Running { since: started }
        } else {
            Stage::Creating
        };
        let restarts = container.map_or(0, |c| c.restart_count);
        Self { seen: now, stop_seen: None, restarts, stage, ip: status.pod_ip.unwrap_or(ip) }
    }

    /// Moves the containers on to `now`; answers when they will next move by themselves.
    pub fn advance(&mut self, pod: &Pod, behaviour: &Behaviour, now: Timestamp) -> Option<Timestamp> {
        if deleting(&pod.metadata) {
            self.stop_seen.get_or_insert(now);
        }
        loop {
            let next = match self.stage {
                Stage::Creating => {
                    let runs =
                        after(self.seen, behaviour.start + behaviour.init * f64::from(init_steps(pod)));
                    if self.stop_seen.is_some() || behaviour.fail == Some(Fail::Image) {
                        return self.end_if_stopped(pod, behaviour, now);
                    }
                    if now >= runs {
                        self.stage = Stage::Running { since: runs };
                        continue;
                    }
                    runs
                }
                Stage::Running { since } => {
                    if self.stop_seen.is_some() {
                        return self.end_if_stopped(pod, behaviour, now);
                    }
                    let (run, code) = if behaviour.fail == Some(Fail::Crash) {
                        (Some(CRASH_AFTER), 1)
                    } else {
                        (behaviour.run, behaviour.exit_code)
                    };
                    let end = run.map(|seconds| after(since, seconds));
                    if let Some(end) = end.filter(|end| now >= *end) {
                        self.stage = self.ended(pod, since, end, code);
                        continue;
                    }
                    let ready = Some(after(since, behaviour.ready_after)).filter(|at| now < *at);
                    return [end, ready].into_iter().flatten().min();
                }
                Stage::Waiting { until, .. } => {
                    if self.stop_seen.is_some() {
                        return self.end_if_stopped(pod, behaviour, now);
                    }
                    if now >= until {
                        self.restarts += 1;
                        self.stage = Stage::Running { since: until };
                        continue;
                    }
                    until
                }
                Stage::Done { .. } => return None,
            };
            return Some(next);
        }
    }

    fn ended(&self, pod: &Pod, since: Timestamp, ended: Timestamp, code: i32) -> Stage {
        let policy = pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref()).unwrap_or("Always");
        let again = policy == "Always" || (policy == "OnFailure" && code != 0);
        if !again {
            return Stage::Done { since, ended, code };
        }
        let earlier = u32::try_from(self.restarts).unwrap_or_default();
        Stage::Waiting { since, ended, until: CRASH_LOOP.until(ended, earlier), code }
    }

    fn end_if_stopped(&mut self, pod: &Pod, behaviour: &Behaviour, now: Timestamp) -> Option<Timestamp> {
        let stop_seen = self.stop_seen?;
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(30).max(0) as f64;
        let (since, needs, code) = match self.stage {
            Stage::Running { since } if behaviour.stop > grace => (since, grace, 137),
            Stage::Running { since } => (since, behaviour.stop, 0),
            Stage::Creating => (stop_seen, 0.0, 137),
            Stage::Waiting { since, code, .. } => (since, 0.0, code),
            Stage::Done { .. } => return None,
        };
        let end = after(stop_seen, needs);
        if now < end {
            return Some(end);
        }
        self.stage = Stage::Done { since, ended: end, code };
        None
    }
}

/// Init containers that run one after the other; side cars start and stay, at no cost of time.
pub fn init_steps(pod: &Pod) -> u32 {
    let containers = pod.spec.as_ref().and_then(|s| s.init_containers.as_ref());
    containers.map_or(0, |list| {
        list.iter().filter(|c| c.restart_policy.as_deref() != Some("Always")).count() as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{at, pod};
    use crate::kubelet::behaviour::behaviour;

    fn starts_in(seconds: &str) -> crate::build::PodBuilder {
        pod("ns", "a").annotate("evac.dev/start-seconds", seconds)
    }

    #[test]
    fn a_pod_starts_after_its_start_time() {
        let p = starts_in("3").make();
        let b = behaviour(&p, 1);
        let mut run = Run::begin(at(0), String::new());
        assert_eq!(run.advance(&p, &b, at(0)), Some(at(3)));
        assert_eq!(run.advance(&p, &b, at(3)), None);
        assert_eq!(run.stage, Stage::Running { since: at(3) });
    }

    #[test]
    fn a_stop_longer_than_the_grace_period_is_cut_short_with_137() {
        let p = starts_in("0").annotate("evac.dev/stop-seconds", "100").make();
        let b = behaviour(&p, 1);
        let mut run = Run::begin(at(0), String::new());
        run.advance(&p, &b, at(1));
        let dying = starts_in("0").annotate("evac.dev/stop-seconds", "100").deleting(30).make();
        assert_eq!(run.advance(&dying, &b, at(10)), Some(at(40)));
        run.advance(&dying, &b, at(40));
        assert!(matches!(run.stage, Stage::Done { code: 137, .. }));
    }

    #[test]
    fn a_shortened_grace_period_ends_the_pod_earlier() {
        let b = behaviour(&starts_in("0").annotate("evac.dev/stop-seconds", "100").make(), 1);
        let mut run = Run::begin(at(0), String::new());
        run.stage = Stage::Running { since: at(0) };
        assert_eq!(run.advance(&starts_in("0").deleting(60).make(), &b, at(0)), Some(at(60)));
        assert_eq!(run.advance(&starts_in("0").deleting(5).make(), &b, at(2)), Some(at(5)));
    }

    #[test]
    fn crashes_are_retried_with_growing_pauses() {
        let p = starts_in("0").annotate("evac.dev/fail", "crash").make();
        let b = behaviour(&p, 1);
        let mut run = Run::begin(at(0), String::new());
        run.advance(&p, &b, at(1));
        assert!(matches!(run.stage, Stage::Waiting { code: 1, .. }));
        run.advance(&p, &b, at(12));
        assert_eq!(run.restarts, 1);
        let Stage::Waiting { ended, until, .. } = run.stage else { panic!("{run:?}") };
        assert_eq!(until.duration_since(ended).as_secs(), 20);
    }

    #[test]
    fn a_pod_that_must_not_restart_is_done() {
        let p = starts_in("0")
            .annotate("evac.dev/run-seconds", "5")
            .with(|p| p.spec.as_mut().unwrap().restart_policy = Some("Never".into()))
            .make();
        let b = behaviour(&p, 1);
        let mut run = Run::begin(at(0), String::new());
        assert_eq!(run.advance(&p, &b, at(1)), Some(at(5)));
        assert_eq!(run.advance(&p, &b, at(5)), None);
        assert!(matches!(run.stage, Stage::Done { code: 0, .. }));
    }
}
