//! Carries out the requests of one decision, one after the other.

use evac_api::Call;
use evac_api::Project as _;
use evac_api::kubevirt::{request, wire};
use evac_api::tenants::{call_for, delete};
use evac_core::machines::{Config, Instance, Kind};
use evac_core::tenants::{Action, Outcome, is_wanted};
use evac_core::{Fact, Key, Uid};
use serde::de::DeserializeOwned;

use super::firsts;
use super::reach::timeout;
use crate::http::{Http, HttpError, parse};

/// Whoever writes to an instance all the time does not keep it from being deleted.
const TRIES: usize = 10;

pub(in crate::operator) struct Done {
    pub learned: Vec<Fact>,
    pub outcomes: Vec<Outcome>,
}

pub(super) async fn carry_out(
    http: &Http,
    config: &Config,
    key: &Key,
    uid: &Uid,
    actions: Vec<Action>,
    gone: &[Uid],
) -> Done {
    let mut done = Done { learned: Vec::new(), outcomes: Vec::new() };
    for action in actions {
        let result = match &action {
            Action::Look { member } => {
                let said = timeout(http, member, &key.namespace).await;
                done.outcomes.push(Outcome::Looked(said));
                Ok(())
            }
            Action::KeepFirst { first } => {
                done.outcomes.push(Outcome::FirstKept(firsts::keep(http, uid, *first, gone).await));
                Ok(())
            }
            Action::ForgetFirst => {
                let forgotten = firsts::forget(http, uid).await;
                forgotten.map(|()| done.outcomes.push(Outcome::FirstForgotten))
            }
            Action::Tell { warning, reason, message } => {
                let now = http.clock().calendar();
                let call = request::event(Kind::Instance, key, uid, *warning, reason, message, now);
                // Events are for people; losing one changes nothing.
                if let Err(error) = http.send(&call).await {
                    tracing::debug!(%error, reason, "event was lost");
                }
                Ok(())
            }
            Action::Delete => let_go(http, config, key, uid, &mut done.learned).await,
            action => write(http, action, key, uid, &mut done.learned).await,
        };
        if let Err(error) = result {
            tracing::debug!(?action, %error, "not carried out");
            let conflict = matches!(error, HttpError::Status { status: 404 | 409 | 410, .. });
            if !conflict && matches!(action, Action::Conditions { .. } | Action::Note { .. }) {
                http.metrics().status_unwritten("VirtualMachineInstance");
            }
            done.outcomes.push(if conflict { Outcome::Conflict } else { Outcome::Refused });
            return done;
        }
    }
    done.outcomes.push(Outcome::Written);
    done
}

async fn write(
    http: &Http,
    action: &Action,
    key: &Key,
    uid: &Uid,
    learned: &mut Vec<Fact>,
) -> Result<(), HttpError> {
    let Some(call) = call_for(action, key, uid) else { return Ok(()) };
    let answer = http.send(&call).await?;
    match action {
        // Its name says what it is for; one that is there is as good.
        Action::Migrate { .. } if answer.status == 409 => return Ok(()),
        Action::Migrate { .. } => learned.push(parse::<wire::Migration>(&answer)?.seen()),
        Action::Remember { at, .. } if at.kind == Kind::Machine => {
            learned.push(parse::<wire::VirtualMachine>(&answer)?.seen());
        }
        _ => learned.push(parse::<wire::VirtualMachineInstance>(&answer)?.seen()),
    }
    Ok(())
}

async fn read<T: DeserializeOwned>(http: &Http, kind: Kind, key: &Key) -> Result<T, HttpError> {
    http.read(&Call::get(request::object_path(kind, key))).await
}

/// Looks once more, and deletes what was looked at and nothing else.
async fn let_go(
    http: &Http,
    config: &Config,
    key: &Key,
    uid: &Uid,
    learned: &mut Vec<Fact>,
) -> Result<(), HttpError> {
    let too_late = || HttpError::Status {
        status: 409,
        reason: "Conflict".into(),
        message: "it is not to be deleted any more".into(),
    };
    for _ in 0..TRIES {
        let fresh: wire::VirtualMachineInstance = read(http, Kind::Instance, key).await?;
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
            _ => {
                let object: serde_json::Value = parse(&answer)?;
                if object["kind"] == "Status" {
                    learned.push(Fact::InstanceGone(key.clone(), uid.clone()));
                } else if let Ok(deleting) = serde_json::from_value::<wire::VirtualMachineInstance>(object) {
                    learned.push(deleting.seen());
                }
                return Ok(());
            }
        }
    }
    Err(too_late())
}
