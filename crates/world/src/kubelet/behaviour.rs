//! How a pod's containers behave on a simulated node. A pod says so itself, with annotations:
//!
//! | annotation | meaning | default |
//! |---|---|---|
//! | `evac.dev/start-seconds` | from binding to running containers | 0.2 to 1, by seed |
//! | `evac.dev/init-seconds` | how long each init container runs | 0.1 |
//! | `evac.dev/ready-after-seconds` | from running to Ready | 0 |
//! | `evac.dev/stop-seconds` | from the deletion to the end of the containers, at most the grace period | 1 |
//! | `evac.dev/run-seconds` | containers end by themselves after this | never (0 for pods of a Job: 1) |
//! | `evac.dev/exit-code` | what they end with | 0 |
//! | `evac.dev/fail` | `crash`: end at once with exit code 1 · `image`: the image cannot be pulled · `unready`: never Ready · `stuck`: once deleted, never goes away (a hung unmount) | – |
//!
//! `fail` is read anew each time, so removing it from the pod heals the pod.

use k8s_openapi::api::core::v1::Pod;

use crate::objects::{annotation, controller_of, uid};
use crate::random::between;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fail {
    Crash,
    Image,
    Unready,
    Stuck,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Behaviour {
    pub start: f64,
    pub init: f64,
    pub ready_after: f64,
    pub stop: f64,
    pub run: Option<f64>,
    pub exit_code: i32,
    pub fail: Option<Fail>,
}

pub fn behaviour(pod: &Pod, seed: u64) -> Behaviour {
    let meta = &pod.metadata;
    let number = |name: &str| {
        annotation(meta, name)
            .and_then(|v| v.trim().parse::<f64>().ok())
            .filter(|v| v.is_finite() && *v >= 0.0)
    };
    let of_job = controller_of(meta).is_some_and(|o| o.kind == "Job");
    let fail = annotation(meta, "evac.dev/fail").and_then(|v| match v.trim() {
        "crash" | "true" => Some(Fail::Crash),
        "image" => Some(Fail::Image),
        "unready" => Some(Fail::Unready),
        "stuck" => Some(Fail::Stuck),
        _ => None,
    });
    Behaviour {
        start: number("evac.dev/start-seconds").unwrap_or_else(|| between(seed, uid_or_name(pod), 0.2, 1.0)),
        init: number("evac.dev/init-seconds").unwrap_or(0.1),
        ready_after: number("evac.dev/ready-after-seconds").unwrap_or(0.0),
        stop: number("evac.dev/stop-seconds").unwrap_or(1.0),
        run: number("evac.dev/run-seconds").or_else(|| of_job.then_some(1.0)),
        exit_code: number("evac.dev/exit-code").map_or(0, |v| v as i32),
        fail,
    }
}

/// The name decides, not the uid: names are ours and repeat from run to run, uids are the server's.
fn uid_or_name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_else(|| uid(&pod.metadata))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::pod;

    #[test]
    fn without_annotations_a_pod_starts_within_a_second_and_stops_in_one() {
        let b = behaviour(&pod("ns", "a").make(), 1);
        assert!((0.2..1.0).contains(&b.start));
        assert!((b.stop - 1.0).abs() < f64::EPSILON);
        assert_eq!(b.run, None);
    }

    #[test]
    fn annotations_decide_and_nonsense_is_ignored() {
        let p = pod("ns", "a")
            .annotate("evac.dev/stop-seconds", "45")
            .annotate("evac.dev/ready-after-seconds", "soon")
            .annotate("evac.dev/fail", "stuck")
            .make();
        let b = behaviour(&p, 1);
        assert!((b.stop - 45.0).abs() < f64::EPSILON);
        assert!(b.ready_after.abs() < f64::EPSILON);
        assert_eq!(b.fail, Some(Fail::Stuck));
    }

    #[test]
    fn pods_of_a_job_end_by_themselves() {
        let p = pod("ns", "a").owner("batch/v1", "Job", "j", "u").make();
        assert_eq!(behaviour(&p, 1).run, Some(1.0));
    }
}
