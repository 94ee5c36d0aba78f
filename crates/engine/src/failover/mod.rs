//! Carries a failover out: look, cordon, drain what answers, see the machine off, release what it held, wait for the guests.
//!
//! Each step is decided on the node and its lease as they are at that moment, and written under the node's version: a node that reports
//! between the look and the write makes the write fail, and is looked at again. What was done is on the node itself (cordon,
//! proof, taint), so a failover that was cut off goes on from there.

mod agent;
mod look;
mod power;
mod story;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use evac_api::Call;
use evac_api::failover::{self as requests, About};
use evac_api::wire::Named;
use evac_core::failover::course::{accept, health_words, may_begin, suitable};
use evac_core::failover::suspect::{SHUT_DOWN, out_of_service};
use evac_core::failover::{Aftermath, Fenced, How, Next, Refusal, Release, Suspect, next};
use evac_core::ownership::{self, Attire, MarkState, Ownership, new_mark};
use evac_core::run::End as DrainEnd;
use evac_core::{Action, Outcome, Policy, step};
use jiff::Timestamp;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

pub use agent::Agent;
pub use look::{Look, look, look_back};
pub use power::{Fence, PowerError, PowerState, PowerSwitch};
pub use story::{End, Event, FailoverRequest, Report, Source};

use crate::act::perform;
use crate::drain::{DrainError, DrainRequest, drain};
use crate::http::{Http, HttpError, parse};
use crate::nodes;

#[derive(Debug, Error)]
pub enum FailoverError {
    #[error("nodes \"{0}\" not found")]
    NodeNotFound(String),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Drain(#[from] DrainError),
    #[error("node {node} kept changing, gave up after {tries} tries")]
    Contended { node: String, tries: u32 },
}

type Tell<'a> = &'a mut (dyn FnMut(Timestamp, &Event) + Send);

/// Conflicts with concurrent writers that are looked at again.
const TRIES: u32 = 20;

/// Fails a node over; `tell` hears everything worth telling. When `stop` is cancelled nothing new is begun.
pub async fn failover(
    http: &Http,
    request: &FailoverRequest,
    stop: &CancellationToken,
    tell: Tell<'_>,
) -> Result<End, FailoverError> {
    let clock = http.clock();
    let deadline = request.timeout.and_then(|limit| clock.now().checked_add(limit).ok());
    let may_ask = (!request.dry_run).then_some(request.owner.as_str());
    let found = look(http, &request.node, may_ask).await.map_err(|error| not_found(error, &request.node))?;
    let now = clock.now();
    tell(now, &Event::Report(Box::new(report(&found, now))));
    let owned = ownership::ownership(&found.index, &found.suspect.node, &request.owner, now);
    if let Err(refusal) = may_begin(&found.suspect, &owned) {
        return Ok(End::Refused(refusal));
    }
    if request.dry_run {
        return Ok(rehearse(&found.suspect, request, now));
    }
    if !matches!(owned, Ownership::Ours(_)) {
        nodes::keep_record(http, &found.suspect.node, &request.owner, vec![out_of_service()]).await?;
    }
    let answers = found.suspect.kubelet_answers(now);
    if answers {
        let end = drain_first(http, request, stop, tell).await?;
        if matches!(end, Some(DrainEnd::Drained { .. })) {
            return Ok(End::Drained);
        }
        if let Some(DrainEnd::Refused { reason }) = end {
            return Ok(End::Refused(Refusal::Owned { message: reason.message() }));
        }
    } else {
        cordon(http, request, &found.suspect, &owned, tell).await?;
    }
    if stop.is_cancelled() {
        return Ok(End::Stopped { released: false });
    }
    // A drain may have changed much of what was seen.
    let found = if answers { look(http, &request.node, None).await? } else { found };
    let how = request.release.unwrap_or_else(|| suitable(found.server));
    match prove_and_release(http, request, how, stop, tell).await? {
        Progress::Released(at) => {
            let after = Aftermath::new(&request.node, found.guests, &found.pods, at, how);
            wait::wait(http, after, how, deadline, stop, tell).await
        }
        Progress::End(end) => Ok(end),
    }
}

fn not_found(error: HttpError, node: &str) -> FailoverError {
    if error.is_not_found() { FailoverError::NodeNotFound(node.to_owned()) } else { error.into() }
}

fn report(found: &Look, now: Timestamp) -> Report {
    let suspect = &found.suspect;
    let record = suspect.record();
    Report {
        node: suspect.node.name.clone(),
        state: health_words(suspect.node.health),
        since: suspect.node.health_since,
        lease_renewed: suspect.renewed,
        last_report: suspect.reported,
        machine_agent_seen: suspect.heartbeat,
        kubelet_answers: suspect.kubelet_answers(now),
        cordoned: suspect.node.unschedulable,
        out_of_service: suspect.is_out_of_service(),
        shut_down_by_provider: suspect.is_shut_down(),
        proof: record.map(|record| record.how.words()),
        proof_void: record.and_then(|record| record.void(suspect, now)).map(|void| void.words()),
        attachments: found.attachments.clone(),
        pods: found.pods.len(),
        guests: found.guests.clone(),
        unread: found.unread.clone(),
    }
}

/// Whether there would be proof, without asking anybody to switch anything off.
fn rehearse(suspect: &Suspect, request: &FailoverRequest, now: Timestamp) -> End {
    match next(suspect, now) {
        Next::Refuse(refusal) => return End::Refused(refusal),
        Next::Release | Next::Await => return End::Rehearsed { proven: true },
        Next::Prove => {}
    }
    let how = match &request.source {
        Source::Nowhere if suspect.is_shut_down() => told(&Source::Provider),
        Source::Nowhere => return End::Rehearsed { proven: false },
        Source::Fence(_) => return End::Rehearsed { proven: true },
        said => told(said),
    };
    match how.map(|how| accept(suspect, how, &request.owner, now)) {
        Some(Err(refusal)) => End::Refused(refusal),
        Some(Ok(_)) => End::Rehearsed { proven: true },
        None => End::Rehearsed { proven: false },
    }
}

/// What a source says without being asked to do anything.
fn told(source: &Source) -> Option<How> {
    match source {
        Source::Nowhere | Source::Fence(_) => None,
        Source::Statement { by, reason } => Some(How::Statement { by: by.clone(), reason: reason.clone() }),
        Source::Provider => Some(How::Provider { signal: SHUT_DOWN.into() }),
        Source::Time { seconds, policy } => Some(How::Time { seconds: *seconds, policy: policy.clone() }),
    }
}

/// A node that is not Ready but answers can still be emptied in good order, at least in part.
async fn drain_first(
    http: &Http,
    request: &FailoverRequest,
    stop: &CancellationToken,
    tell: Tell<'_>,
) -> Result<Option<DrainEnd>, FailoverError> {
    tell(http.clock().now(), &Event::Drains { limit_seconds: request.drain.as_secs() });
    let policy = Policy { timeout: Some(request.drain), ..Policy::thorough() };
    let wanted = DrainRequest {
        nodes: vec![request.node.clone()],
        policy,
        owner: request.owner.clone(),
        instance: None,
        options: request.options.clone(),
        page: None,
    };
    let mut pass = |at: Timestamp, event: &step::Event| tell(at, &Event::Drain(Box::new(event.clone())));
    let ends = drain(http.clone(), wanted, stop.clone(), &mut pass).await?;
    Ok(ends.into_iter().next().map(|(_, end)| end))
}

/// Cordons with a mark, as a drain does, so that it can be undone.
async fn cordon(
    http: &Http,
    request: &FailoverRequest,
    suspect: &Suspect,
    owned: &Ownership,
    tell: Tell<'_>,
) -> Result<(), FailoverError> {
    let mut suspect = suspect.clone();
    for _ in 0..TRIES {
        let node = &suspect.node;
        let already = node.unschedulable;
        if already && matches!(owned, Ownership::Ours(_)) {
            tell(http.clock().now(), &Event::Cordoned { already });
            return Ok(());
        }
        let now = http.clock().now();
        let attire = Attire { options: request.options.clone(), ..Attire::default() };
        let action = Action::Cordon {
            node: node.name.clone(),
            uid: node.uid.clone(),
            resource_version: node.resource_version.clone(),
            mark: Box::new(new_mark(node, &request.owner, &attire, now)),
            taints: None,
            dry_run: false,
        };
        match perform(http, action).await.outcome {
            Outcome::Done => {
                tell(now, &Event::Cordoned { already });
                return Ok(());
            }
            Outcome::Conflict { .. } => {
                suspect =
                    look::suspect(http, &request.node).await.map_err(|e| not_found(e, &request.node))?;
            }
            outcome => return Err(HttpError::Lost(format!("the cordon failed: {outcome:?}")).into()),
        }
    }
    Err(contended(request))
}

fn contended(request: &FailoverRequest) -> FailoverError {
    FailoverError::Contended { node: request.node.clone(), tries: TRIES }
}

enum Progress {
    Released(Timestamp),
    End(End),
}

/// Proves and releases, then sends the events about it: nobody whose guests are down waits for those.
async fn prove_and_release(
    http: &Http,
    request: &FailoverRequest,
    how: Release,
    stop: &CancellationToken,
    tell: Tell<'_>,
) -> Result<Progress, FailoverError> {
    let mut events = Vec::new();
    let progress = step_by_step(http, request, how, stop, tell, &mut events).await;
    for call in events {
        // For people; losing one changes nothing, because the record is on the node.
        if let Err(error) = http.send(&call).await {
            tracing::debug!(%error, "event was lost");
        }
    }
    progress
}

/// Looks at the node, does the next thing, looks again.
async fn step_by_step(
    http: &Http,
    request: &FailoverRequest,
    how: Release,
    stop: &CancellationToken,
    tell: Tell<'_>,
    events: &mut Vec<Call>,
) -> Result<Progress, FailoverError> {
    let clock = http.clock();
    let mut switched_off = None;
    let mut told_proof = false;
    for _ in 0..TRIES {
        if stop.is_cancelled() {
            return Ok(Progress::End(End::Stopped { released: false }));
        }
        let suspect = match look::suspect(http, &request.node).await {
            Ok(suspect) => suspect,
            // Somebody deleted it meanwhile, which releases it as well.
            Err(error) if error.is_not_found() => return Ok(Progress::Released(clock.now())),
            Err(error) => return Err(error.into()),
        };
        let now = clock.now();
        match next(&suspect, now) {
            Next::Refuse(refusal) => return Ok(Progress::End(End::Refused(refusal))),
            Next::Await => return Ok(Progress::Released(now)),
            Next::Prove => {
                let proof = match prove(http, request, &suspect, &mut switched_off, stop, tell).await {
                    Ok(proof) => proof,
                    Err(end) => return Ok(Progress::End(end)),
                };
                if written(http, &requests::record(&suspect.node, &proof)).await? {
                    told_proof = true;
                    tell(clock.now(), &Event::Proven { how: proof.how.words(), recorded: true });
                    let message = format!("{} (recorded by {})", proof.how.words(), request.owner);
                    events.push(event(&suspect, "Fenced", &message, clock.now()));
                }
            }
            Next::Release => {
                let Some(proof) = suspect.record() else { continue };
                if !told_proof {
                    told_proof = true;
                    tell(now, &Event::Proven { how: proof.how.words(), recorded: false });
                }
                if let Some(message) = release(http, how, &suspect, proof).await? {
                    events.push(event(&suspect, "FailedOver", message, clock.now()));
                    tell(clock.now(), &Event::Released { how });
                    return Ok(Progress::Released(clock.now()));
                }
            }
        }
    }
    Err(contended(request))
}

/// Obtains a proof. A machine is switched off once; if the node changes meanwhile, the record is made anew.
async fn prove(
    http: &Http,
    request: &FailoverRequest,
    suspect: &Suspect,
    switched_off: &mut Option<How>,
    stop: &CancellationToken,
    tell: Tell<'_>,
) -> Result<Fenced, End> {
    let clock = http.clock();
    let how = match &request.source {
        // Nobody has to repeat what the provider says already.
        Source::Nowhere if suspect.is_shut_down() => told(&Source::Provider),
        Source::Fence(_) if switched_off.is_some() => switched_off.clone(),
        // Where several operators run, only the one that leads switches anything off.
        Source::Fence(_) if !http.gate().is_open(clock.now()) => {
            return Err(End::Stopped { released: false });
        }
        Source::Fence(fence) => {
            let by = fence.switch.name();
            tell(clock.now(), &Event::Fencing { by: by.clone() });
            let mut heard = |number: u32, error: &PowerError| {
                tell(clock.now(), &Event::FenceFailed { number, why: error.to_string() });
            };
            let fenced = tokio::select! {
                biased;
                fenced = fence.fence(clock, &request.node, &mut heard) => fenced,
                () = stop.cancelled() => return Err(End::Stopped { released: false }),
            };
            match fenced {
                Ok(()) => {
                    *switched_off = Some(How::Agent { program: by });
                    switched_off.clone()
                }
                Err(error) => return Err(End::NoProof { why: Some(error.to_string()) }),
            }
        }
        said => told(said),
    };
    let Some(how) = how else { return Err(End::NoProof { why: None }) };
    accept(suspect, how, &request.owner, clock.now()).map_err(End::Refused)
}

/// Sends a write that is made for one version of an object. False if the object has changed since.
async fn written(http: &Http, call: &Call) -> Result<bool, HttpError> {
    match parse::<Named>(&http.send(call).await?) {
        Ok(_) => Ok(true),
        Err(HttpError::Status { status: 409, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What was done, in words; nothing if the node has changed since it was looked at.
async fn release(
    http: &Http,
    how: Release,
    suspect: &Suspect,
    proof: &Fenced,
) -> Result<Option<&'static str>, HttpError> {
    let node = &suspect.node;
    let mark = match &node.mark {
        Some(MarkState::Valid(mark)) => Some(mark.as_ref()),
        _ => None,
    };
    let (call, message) = match how {
        Release::Taint => (
            requests::taint(node, proof, mark, &out_of_service()),
            "Put out of service: its pods are removed and its volumes detached",
        ),
        Release::DeleteNode => (requests::delete(node), "Deleted: its pods are removed as orphans"),
    };
    Ok(written(http, &call).await?.then_some(message))
}

fn event(suspect: &Suspect, reason: &str, message: &str, now: Timestamp) -> Call {
    let about = About::node(&suspect.node.name, &suspect.node.uid);
    requests::event(&about, true, reason, message, now)
}

/// The fence of an agent.
pub fn fence_by(agent: Agent, tries: u32) -> Fence {
    Fence { switch: Arc::new(agent), tries, pause: PAUSE }
}

/// Between two tries to switch a machine off.
const PAUSE: Duration = Duration::from_secs(5);
