//! What a Deployment says about itself.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};

use super::{Roll, wanted};
use crate::actor::Out;
use crate::effects::Write;
use crate::kinds::Kind;
use crate::objects::{Key, later, name, time};

pub(super) fn write(roll: &Roll<'_>, key: &Key, out: &mut Out) {
    let Roll { view, deployment, limits, old, .. } = roll;
    let new = roll.new.as_ref();
    let held = deployment.status.clone().unwrap_or_default();
    let sum = |of: &dyn Fn(&ReplicaSet) -> i32| -> i32 { old.iter().chain(new).map(|s| of(s)).sum() };
    let status_of = |s: &ReplicaSet| s.status.clone().unwrap_or_default();
    let total_wanted = sum(&wanted);
    let available = sum(&|s| status_of(s).available_replicas.unwrap_or(0));
    let some = |n: i32| (n != 0).then_some(n);
    let mut next = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(sum(&|s| status_of(s).replicas)),
        updated_replicas: some(new.map_or(0, |s| status_of(s).replicas)),
        ready_replicas: some(sum(&|s| status_of(s).ready_replicas.unwrap_or(0))),
        available_replicas: some(available),
        unavailable_replicas: some((total_wanted - available).max(0)),
        terminating_replicas: held.terminating_replicas,
        collision_count: held.collision_count,
        conditions: held.conditions.clone(),
    };
    let up = available >= limits.replicas - limits.unavailable;
    let now = time(view.now);
    let mut set = |kind: &str, status: &str, reason: &str, message: String, touch: bool| {
        let conditions = next.conditions.get_or_insert_default();
        let fresh = DeploymentCondition {
            type_: Some(kind.to_owned()),
            status: Some(status.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(now.clone()),
            last_update_time: Some(now.clone()),
        };
        match conditions.iter_mut().find(|c| c.type_.as_deref() == Some(kind)) {
            Some(old) if old.status == fresh.status && old.reason == fresh.reason && !touch => {}
            Some(old) => {
                let kept = (old.status == fresh.status).then(|| old.last_transition_time.clone()).flatten();
                *old = DeploymentCondition {
                    last_transition_time: kept.or(fresh.last_transition_time),
                    ..fresh
                };
            }
            None => conditions.push(fresh),
        }
    };
    let (state, reason, text) = if up {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set("Available", state, reason, text.to_owned(), false);

    let updated = new.map_or(0, |s| status_of(s).replicas);
    let all = sum(&|s| status_of(s).replicas);
    let complete = updated == limits.replicas && all == limits.replicas && available == limits.replicas;
    let title = new.map_or_else(
        || format!("Deployment \"{}\"", name(&deployment.metadata)),
        |s| format!("ReplicaSet \"{}\"", name(&s.metadata)),
    );
    let spec = &deployment.spec;
    if spec.paused == Some(true) {
        set("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused".to_owned(), false);
    } else if complete {
        let text = format!("{title} has successfully progressed.");
        set("Progressing", "True", "NewReplicaSetAvailable", text, false);
    } else {
        let moved = held.updated_replicas.unwrap_or(0) < updated
            || held.available_replicas.unwrap_or(0) < available
            || held.replicas.unwrap_or(0) > all;
        let progressing =
            held.conditions.iter().flatten().find(|c| c.type_.as_deref() == Some("Progressing"));
        let deadline = i64::from(spec.progress_deadline_seconds.unwrap_or(600));
        let since = progressing.and_then(|c| c.last_update_time.as_ref()).map(|t| t.0);
        let was_done = progressing.is_none_or(|c| c.reason.as_deref() == Some("NewReplicaSetAvailable"));
        let expires = since.filter(|_| !was_done && !moved).map(|at| later(at, deadline));
        if let Some(at) = expires.filter(|at| *at <= view.now) {
            tracing::debug!(%key, %at, "deployment is late");
            let text = format!("{title} has timed out progressing.");
            set("Progressing", "False", "ProgressDeadlineExceeded", text, false);
        } else {
            set("Progressing", "True", "ReplicaSetUpdated", format!("{title} is progressing."), moved);
            out.again_at(expires.unwrap_or_else(|| later(view.now, deadline + 1)));
        }
    }
    if next != held {
        let body = Deployment { status: Some(next), ..Deployment::clone(deployment) };
        out.write(Write::status(Kind::Deployment, key.clone(), &body));
    }
}
