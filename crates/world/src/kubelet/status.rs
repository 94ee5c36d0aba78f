//! A pod's status as its kubelet reports it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};

use super::behaviour::{Behaviour, Fail};
use super::life::{Run, Stage, init_steps};
use crate::objects::{after, pod_condition, time};
use crate::random::stable_hash;

/// The status that follows from what the containers do at `now`. Conditions of others are not part of it.
pub fn status(pod: &Pod, behaviour: &Behaviour, run: &Run, host_ip: &str, now: Timestamp) -> PodStatus {
    let spec = pod.spec.clone().unwrap_or_default();
    let inits = spec.init_containers.clone().unwrap_or_default();
    let steps_done = inits_done(pod, behaviour, run, now);
    let initialized = steps_done >= init_steps(pod);
    let ready = containers_ready(behaviour, run, now);

    let mut step = 0;
    let init_statuses: Vec<ContainerStatus> = inits
        .iter()
        .map(|c| {
            let sidecar = c.restart_policy.as_deref() == Some("Always");
            let place = InitPlace { sidecar, step, done: steps_done };
            step += u32::from(!sidecar);
            init_status(pod, c, run, place, now)
        })
        .collect();
    let statuses: Vec<ContainerStatus> = spec
        .containers
        .iter()
        .map(|c| container_status(pod, c, behaviour, run, initialized, ready))
        .collect();

    let phase = match run.stage {
        Stage::Creating => "Pending",
        Stage::Running { .. } | Stage::Waiting { .. } => "Running",
        Stage::Done { code: 0, .. } => "Succeeded",
        Stage::Done { .. } => "Failed",
    };
    let names = |all: &[Container]| all.iter().map(|c| c.name.clone()).collect::<Vec<_>>().join(" ");
    let unready = format!("containers with unready status: [{}]", names(&spec.containers));
    let done = matches!(run.stage, Stage::Done { .. });
    let not_ready_reason = if done { "PodCompleted" } else { "ContainersNotReady" };
    let not_ready_message = if done { "" } else { unready.as_str() };
    let sandbox = !matches!(run.stage, Stage::Creating | Stage::Done { .. })
        || (run.stage == Stage::Creating && steps_done > 0);

    let mut conditions = Vec::new();
    let mut condition = |kind: &str, holds: bool, reason: &str, message: &str| {
        conditions.push(build_condition(pod, kind, holds, reason, message, now));
    };
    condition("PodReadyToStartContainers", sandbox, "", "");
    let waiting_for = format!("containers with incomplete status: [{}]", names(&inits));
    condition("Initialized", initialized, "ContainersNotInitialized", &waiting_for);
    let closed = closed_gates(pod);
    if ready && !closed.is_empty() {
        condition("Ready", false, "ReadinessGatesNotReady", &closed.join(", "));
    } else {
        condition("Ready", ready, not_ready_reason, not_ready_message);
    }
    condition("ContainersReady", ready, not_ready_reason, not_ready_message);
    condition("PodScheduled", true, "", "");

    let has_ip = !matches!(run.stage, Stage::Creating) && !run.ip.is_empty();
    PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(conditions),
        container_statuses: Some(statuses),
        init_container_statuses: (!init_statuses.is_empty()).then_some(init_statuses),
        host_ip: Some(host_ip.to_owned()),
        host_ips: Some(vec![HostIP { ip: host_ip.to_owned() }]),
        pod_ip: has_ip.then(|| run.ip.clone()),
        pod_ips: has_ip.then(|| vec![PodIP { ip: run.ip.clone() }]),
        start_time: pod.status.as_ref().and_then(|s| s.start_time.clone()).or_else(|| Some(time(run.seen))),
        observed_generation: pod.metadata.generation,
        ..Default::default()
    }
}

/// A pod that the node does not take.
pub fn rejected(reason: &str, message: &str, now: Timestamp) -> PodStatus {
    PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        start_time: Some(time(now)),
        ..Default::default()
    }
}

fn containers_ready(behaviour: &Behaviour, run: &Run, now: Timestamp) -> bool {
    match run.stage {
        Stage::Running { since } => {
            behaviour.fail != Some(Fail::Unready) && now >= after(since, behaviour.ready_after)
        }
        _ => false,
    }
}

/// What is missing for the pod to be ready besides its containers, in a kubelet's words.
fn closed_gates(pod: &Pod) -> Vec<String> {
    let gates = pod.spec.iter().flat_map(|s| s.readiness_gates.iter().flatten());
    let kinds = gates.map(|gate| gate.condition_type.as_str());
    kinds
        .filter_map(|kind| match pod_condition(pod, kind) {
            None => Some(format!("corresponding condition of pod readiness gate \"{kind}\" does not exist.")),
            Some(c) if c.status != "True" => {
                Some(format!("the status of pod readiness gate \"{kind}\" is not \"True\", but {}", c.status))
            }
            Some(_) => None,
        })
        .collect()
}

fn inits_done(pod: &Pod, behaviour: &Behaviour, run: &Run, now: Timestamp) -> u32 {
    let all = init_steps(pod);
    if run.stage != Stage::Creating {
        return all;
    }
    (0..all)
        .take_while(|i| now >= after(run.seen, behaviour.start + behaviour.init * f64::from(i + 1)))
        .count() as u32
}

fn build_condition(
    pod: &Pod,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> PodCondition {
    let status = if holds { "True" } else { "False" };
    let text = |s: &str| (!holds && !s.is_empty()).then(|| s.to_owned());
    let old = pod_condition(pod, kind).filter(|c| c.status == status);
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: text(reason),
        message: text(message),
        last_transition_time: old.and_then(|c| c.last_transition_time.clone()).or_else(|| Some(time(now))),
        observed_generation: pod.metadata.generation,
        last_probe_time: None,
    }
}

fn base(pod: &Pod, container: &Container) -> ContainerStatus {
    let image = container.image.clone().unwrap_or_default();
    let image_hash = stable_hash(&[&image]);
    ContainerStatus {
        name: container.name.clone(),
        image_id: format!("sha256:{image_hash:016x}"),
        container_id: Some(format!(
            "containerd://{:016x}",
            stable_hash(&[pod.metadata.uid.as_deref().unwrap_or_default(), &container.name])
        )),
        image,
        ..Default::default()
    }
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..Default::default()
    }
}

fn running(since: Timestamp) -> ContainerState {
    ContainerState {
        running: Some(ContainerStateRunning { started_at: Some(time(since)) }),
        ..Default::default()
    }
}

fn terminated(since: Timestamp, ended: Timestamp, code: i32) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: code,
            reason: Some(if code == 0 { "Completed" } else { "Error" }.to_owned()),
            started_at: Some(time(since)),
            finished_at: Some(time(ended)),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn container_status(
    pod: &Pod,
    container: &Container,
    behaviour: &Behaviour,
    run: &Run,
    initialized: bool,
    ready: bool,
) -> ContainerStatus {
    let mut status = base(pod, container);
    status.restart_count = run.restarts;
    status.ready = ready;
    status.started = Some(matches!(run.stage, Stage::Running { .. }));
    let (state, last) = match run.stage {
        Stage::Creating => {
            status.container_id = None;
            let image = container.image.as_deref().unwrap_or_default();
            let state = if behaviour.fail == Some(Fail::Image) {
                waiting("ImagePullBackOff", Some(format!("Back-off pulling image \"{image}\"")))
            } else if !initialized {
                waiting("PodInitializing", None)
            } else {
                waiting("ContainerCreating", None)
            };
            (state, None)
        }
        Stage::Running { since } => (running(since), None),
        Stage::Waiting { since, ended, code, until } => {
            let pause = until.duration_since(ended).as_secs();
            let name = &container.name;
            let text = format!("back-off {pause}s restarting failed container={name}");
            (waiting("CrashLoopBackOff", Some(text)), Some(terminated(since, ended, code)))
        }
        Stage::Done { since, ended, code } => (terminated(since, ended, code), None),
    };
    status.state = Some(state);
    status.last_state = Some(last.unwrap_or_default());
    status
}

/// Where an init container stands in its pod's start.
#[derive(Clone, Copy)]
struct InitPlace {
    /// It goes on beside the main containers and holds up nothing.
    sidecar: bool,
    /// How many steps come before it.
    step: u32,
    /// How many steps the pod has behind it.
    done: u32,
}

fn init_status(
    pod: &Pod,
    container: &Container,
    run: &Run,
    InitPlace { sidecar, step, done }: InitPlace,
    now: Timestamp,
) -> ContainerStatus {
    let mut status = base(pod, container);
    let since = run.seen;
    let state = match (sidecar, run.stage) {
        (true, Stage::Running { since } | Stage::Waiting { since, .. }) => running(since),
        (true, Stage::Done { since, ended, .. }) => terminated(since, ended, 0),
        (_, Stage::Creating) if done < step || sidecar => waiting("PodInitializing", None),
        (false, Stage::Creating) if done == step => running(since),
        _ => terminated(since, since.min(now), 0),
    };
    status.ready = state.terminated.is_some() || (sidecar && state.running.is_some());
    status.started = Some(sidecar && state.running.is_some());
    status.last_state = Some(ContainerState::default());
    status.state = Some(state);
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{at, pod};
    use crate::kubelet::behaviour::behaviour;
    use crate::objects::ready;

    fn seen(pod: &Pod, run: &Run, now: Timestamp) -> Pod {
        let mut pod = pod.clone();
        pod.status = Some(status(&pod, &behaviour(&pod, 1), run, "10.0.0.1", now));
        pod
    }

    #[test]
    fn a_pod_goes_from_pending_to_running_to_ready() {
        let p = pod("ns", "a")
            .annotate("evac.dev/start-seconds", "1")
            .annotate("evac.dev/ready-after-seconds", "4")
            .make();
        let mut run = Run::begin(at(0), "10.1.0.1".into());
        let b = behaviour(&p, 1);
        run.advance(&p, &b, at(0));
        let first = seen(&p, &run, at(0));
        assert_eq!(first.status.as_ref().unwrap().phase.as_deref(), Some("Pending"));
        assert_eq!(first.status.as_ref().unwrap().pod_ip, None);
        run.advance(&p, &b, at(1));
        let second = seen(&first, &run, at(1));
        assert_eq!(second.status.as_ref().unwrap().phase.as_deref(), Some("Running"));
        assert!(!ready(&second));
        let third = seen(&second, &run, at(5));
        assert!(ready(&third));
        assert_eq!(
            pod_condition(&third, "Initialized").unwrap().last_transition_time.as_ref().unwrap().0,
            at(0)
        );
        assert_eq!(pod_condition(&third, "Ready").unwrap().last_transition_time.as_ref().unwrap().0, at(5));
    }

    #[test]
    fn an_image_that_cannot_be_pulled_keeps_the_pod_pending() {
        let p = pod("ns", "a").annotate("evac.dev/fail", "image").make();
        let mut run = Run::begin(at(0), String::new());
        run.advance(&p, &behaviour(&p, 1), at(100));
        let status = seen(&p, &run, at(100)).status.unwrap();
        assert_eq!(status.phase.as_deref(), Some("Pending"));
        let state = status.container_statuses.unwrap()[0].state.clone().unwrap();
        assert_eq!(state.waiting.unwrap().reason.as_deref(), Some("ImagePullBackOff"));
    }

    #[test]
    fn a_readiness_gate_of_someone_else_holds_ready_back() {
        let p = pod("ns", "a")
            .with(|p| {
                p.spec.as_mut().unwrap().readiness_gates =
                    Some(vec![k8s_openapi::api::core::v1::PodReadinessGate { condition_type: "x/y".into() }]);
            })
            .make();
        let mut run = Run::begin(at(0), String::new());
        run.advance(&p, &behaviour(&p, 1), at(5));
        assert!(!ready(&seen(&p, &run, at(5))));
        let open = Pod { status: p.status.clone(), ..p.clone() };
        let mut open = open;
        open.status.as_mut().unwrap().conditions =
            Some(vec![PodCondition { type_: "x/y".into(), status: "True".into(), ..Default::default() }]);
        assert!(ready(&seen(&open, &run, at(5))));
    }
}
