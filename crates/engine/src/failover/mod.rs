//! Carries a failover out: performs what [`step`] says, and gives back what was read and what became of it. The rules are in
//! [`evac_core::failover`]; what was done is on the node itself (cordon, proof, taint), so a failover that was cut off goes on from there.

mod agent;
mod follow;
mod look;
mod perform;
mod power;
mod request;
mod watch_silence;

use std::sync::Arc;
use std::time::Duration;

use evac_api::Call;
use evac_api::wire::Named;
use evac_core::failover::step::step;
use evac_core::failover::{FailoverRun, Fault, TRIES};
use jiff::Timestamp;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

pub use agent::{Agent, Environment};
pub use evac_core::failover::{End, Event, NodeSnapshot, Report};
pub use look::{forget, look, look_back};
pub use power::{Fence, PowerError, PowerState, PowerSwitch};
pub use request::FailoverRequest;

use self::perform::Performer;
use crate::drain::DrainError;
use crate::http::{Http, HttpError, parse};

#[derive(Debug, Error)]
pub enum FailoverError {
    #[error("nodes \"{0}\" not found")]
    NodeNotFound(String),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Drain(#[from] DrainError),
    #[error(
        "how node {node} is to be released is not known, because the server's version is not: {why}. Nothing was changed; try \
         again, or choose with --release taint or --release delete-node"
    )]
    Version { node: String, why: String },
    #[error("node {node} kept changing, gave up after {tries} tries")]
    Contended { node: String, tries: u32 },
}

type Tell<'a> = &'a mut (dyn FnMut(Timestamp, &Event) + Send);

/// Fails a node over; `tell` hears everything worth telling. When `stop` is cancelled nothing new is begun.
pub async fn failover(
    http: &Http,
    request: &FailoverRequest,
    stop: &CancellationToken,
    tell: Tell<'_>,
) -> Result<End, FailoverError> {
    let mut performer = Performer::new(http, request, stop);
    let mut run = FailoverRun::new(request.spec.clone(), request.silence.clone(), http.clock().now());
    let end = drive(&mut performer, &mut run, tell).await;
    // Where it was given up, what happened until then is still told.
    performer.publish(run.take_notices()).await;
    end
}

async fn drive(
    performer: &mut Performer<'_>,
    run: &mut FailoverRun,
    tell: Tell<'_>,
) -> Result<End, FailoverError> {
    let (clock, node) = (performer.http.clock(), &performer.request.spec.node);
    loop {
        if performer.stop.is_cancelled() {
            run.stop();
        }
        performer.facts.ahead = clock.ahead();
        let now = clock.now();
        let decision = step(&performer.facts, run, now);
        for event in &decision.events {
            tell(now, event);
        }
        match run.end() {
            None => {}
            Some(Ok(end)) => return Ok(end.clone()),
            Some(Err(Fault::Contended)) => {
                return Err(FailoverError::Contended { node: node.clone(), tries: TRIES });
            }
            Some(Err(Fault::NodeGone)) => return Err(FailoverError::NodeNotFound(node.clone())),
        }
        if decision.actions.is_empty() {
            performer.wait(decision.look_again).await?;
        }
        for action in decision.actions {
            let outcome = performer.perform(action, run, tell).await?;
            run.record(outcome);
        }
    }
}

/// Sends a write that is made for one version of an object. False if the object has changed since.
async fn written(http: &Http, call: &Call) -> Result<bool, HttpError> {
    match parse::<Named>(&http.send(call).await?) {
        Ok(_) => Ok(true),
        Err(HttpError::Status { status: 409, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The fence of an agent.
pub fn fence_by(agent: Agent, tries: u32) -> Fence {
    Fence { switch: Arc::new(agent), tries, pause: PAUSE }
}

/// Between two tries to switch a machine off.
const PAUSE: Duration = Duration::from_secs(5);
