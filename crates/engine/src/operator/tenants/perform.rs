//! Carries out the requests of one decision, one after the other.

use evac_api::kubevirt::{request, wire};
use evac_api::tenants::{call_for, delete};
use evac_api::wire::Named;
use evac_api::{Answer, Call, Project as _};
use evac_core::action::Event;
use evac_core::cluster::subject::{Kind, ObjectRef};
use evac_core::machines::{Config, Instance};
use evac_core::tenants::{Action, Own, Report, is_wanted};
use evac_core::{Fact, Uid};

use super::firsts;
use super::reach::timeout;
use crate::act;
use crate::events::publish;
use crate::http::{Http, HttpError, parse};

/// Whoever writes to an instance all the time does not keep it from being deleted.
const TRIES: usize = 10;

pub(in crate::operator) struct Done {
    pub learned: Vec<Fact>,
    pub outcomes: Vec<Report>,
}

/// What is to be carried out about one instance.
pub(super) struct Wanted {
    pub instance: ObjectRef,
    pub actions: Vec<Action>,
    pub events: Vec<Event>,
    /// Those of whom nothing has to be kept any more.
    pub gone: Vec<Uid>,
}

pub(super) async fn carry_out(http: &Http, config: &Config, wanted: Wanted) -> Done {
    let Wanted { instance, actions, events, gone } = wanted;
    let mut done = Done { learned: Vec::new(), outcomes: Vec::new() };
    let (mut carried_out, mut last) = (0, Report::Written);
    for action in &actions {
        if let Err(error) = perform(http, config, &instance, action, &gone, &mut done).await {
            tracing::debug!(?action, %error, "not carried out");
            let conflict = matches!(error, HttpError::Status { status: 404 | 409 | 410, .. });
            if !conflict && matches!(action, Action::Patch { .. } | Action::Own(Own::Note { .. })) {
                http.metrics().status_unwritten("VirtualMachineInstance");
            }
            last = if conflict { Report::Conflict } else { Report::Refused };
            break;
        }
        carried_out += 1;
    }
    let due = events.into_iter().filter(|event| event.after <= carried_out);
    publish(http, due, http.clock().calendar()).await;
    done.outcomes.push(last);
    done
}

async fn perform(
    http: &Http,
    config: &Config,
    instance: &ObjectRef,
    action: &Action,
    gone: &[Uid],
    done: &mut Done,
) -> Result<(), HttpError> {
    let ObjectRef { key, uid, .. } = instance;
    match action {
        Action::Own(Own::Look { member }) => {
            let said = timeout(http, member, &key.namespace).await;
            done.outcomes.push(Report::Looked(said));
        }
        Action::Own(Own::KeepFirst { first }) => {
            done.outcomes.push(Report::FirstKept(firsts::keep(http, uid, *first, gone).await));
        }
        Action::Own(Own::ForgetFirst) => {
            firsts::forget(http, uid).await?;
            done.outcomes.push(Report::FirstForgotten);
        }
        Action::Own(Own::LetGo) => let_go(http, config, instance, &mut done.learned).await?,
        Action::Own(own) => {
            let Some(call) = call_for(own, instance) else { return Ok(()) };
            let object = if let Own::Remember { at, .. } = own { at } else { instance };
            learn(object, &http.send(&call).await?, &mut done.learned)?;
        }
        Action::Migrate { .. } => {
            let answer = act::send(http, action).await?;
            // Its name says what it is for; one that is there is as good.
            if answer.status != 409 {
                done.learned.push(parse::<wire::Migration>(&answer)?.seen());
            }
        }
        action => learn(instance, &act::send(http, action).await?, &mut done.learned)?,
    }
    Ok(())
}

/// Learns the object in an answer, unless the answer is a failure.
fn learn(object: &ObjectRef, answer: &Answer, learned: &mut Vec<Fact>) -> Result<(), HttpError> {
    parse::<Named>(answer)?;
    learned.extend(act::shown(object, answer));
    Ok(())
}

/// Looks once more, and deletes what was looked at and nothing else.
async fn let_go(
    http: &Http,
    config: &Config,
    object: &ObjectRef,
    learned: &mut Vec<Fact>,
) -> Result<(), HttpError> {
    let ObjectRef { key, uid, .. } = object;
    let too_late = || HttpError::Status {
        status: 409,
        reason: "Conflict".into(),
        message: "it is not to be deleted any more".into(),
    };
    for _ in 0..TRIES {
        let call = Call::get(request::object_path(Kind::Instance, key));
        let fresh: wire::VirtualMachineInstance = http.read(&call).await?;
        let instance = Instance::from(fresh.clone());
        learned.push(fresh.seen());
        if instance.uid != *uid || !is_wanted(&instance, config) {
            return Err(too_late());
        }
        let answer = http.send(&delete(key, uid, &instance.version)).await?;
        match answer.status {
            409 => {}
            404 => {
                learned.push(Fact::InstanceGone(key.clone(), uid.clone()));
                return Ok(());
            }
            _ => return learn(object, &answer, learned),
        }
    }
    Err(too_late())
}
