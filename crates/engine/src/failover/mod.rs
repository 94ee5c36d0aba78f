//! Carries a failover out: look, cordon, drain what answers, see the machine off, release what it held, wait for the guests.
//!
//! Each step is decided on the node and its lease as they are at that moment, and written under the node's version: a node that reports
//! between the look and the write makes the write fail, and is looked at again. What was done is on the node itself (cordon,
//! proof, taint), so a failover that was cut off goes on from there.

mod agent;
mod look;
mod power;
mod prove;
mod story;
mod vigil;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use evac_api::Call;
use evac_api::wire::Named;
use evac_core::drain::ownership::{Attire, Ownership, new_mark};
use evac_core::drain::quorum::is_control_plane;
use evac_core::drain::run::End as DrainEnd;
use evac_core::drain::step;
use evac_core::failover::course::{Witness, foresee, health_words, settled, suitable};
use evac_core::failover::silence::window;
use evac_core::failover::suspect::{SHUT_DOWN, out_of_service};
use evac_core::failover::{Aftermath, How, Next, Refusal, Release, Silence, Suspect, next};
use evac_core::{Action, Outcome, Policy};
use jiff::Timestamp;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

pub use agent::{Agent, Environment};
pub use look::{Look, forget, look, look_back};
pub use power::{Fence, Halt, Lookout, PowerError, PowerState, PowerSwitch, Unfenced};
pub use story::{End, Event, FailoverRequest, Report, Source};

use self::wait::Limits;
use crate::act::perform;
use crate::drain::{DrainError, DrainRequest, drain};
use crate::http::{Http, HttpError, parse};
use crate::nodes;
use prove::{Progress, prove_and_release};

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
    let mut silence = request.silence.clone();
    silence.see(&found.suspect, now);
    tell(now, &Event::Report(Box::new(report(&found, &silence, now))));
    let owned = match found.holding.judge(&found.suspect, &request.owner, clock.calendar()) {
        Ok(owned) => owned,
        Err(refusal) => return Ok(End::Refused(refusal)),
    };
    if let Err(refusal) = spared(http, request, &found.suspect).await {
        return Ok(End::Refused(refusal));
    }
    let how = way_of_release(http, request, &found.suspect).await?;
    if request.dry_run {
        return Ok(rehearse(&found.suspect, &silence, request, now));
    }
    if matters(request, &found.suspect) {
        watch(http, &found.suspect, &mut silence, stop, tell).await?;
        if stop.is_cancelled() {
            return Ok(End::Stopped { released: false });
        }
    }
    if !matches!(owned, Ownership::Ours(_)) {
        nodes::keep_record(http, &found.suspect.node, &request.owner, vec![out_of_service()]).await?;
    }
    let answers = silence.answered(&found.suspect, clock.now()).is_some();
    let (found, owned) = if answers {
        let end = drain_first(http, request, stop, tell).await?;
        if matches!(end, Some(DrainEnd::Drained { .. })) {
            return Ok(End::Drained);
        }
        if let Some(DrainEnd::Refused { reason }) = end {
            return Ok(End::Refused(Refusal::Owned { message: reason.message() }));
        }
        // The drain may have changed much of what was seen.
        let found = look(http, &request.node, None).await?;
        silence.see(&found.suspect, clock.now());
        // Nothing is written for a proof that would be refused.
        if let Some(Err(refusal)) =
            told(&request.source).map(|how| foresee(&found.suspect, &silence, &how, clock.now()))
        {
            return Ok(End::Refused(refusal));
        }
        match found.holding.judge(&found.suspect, &request.owner, clock.calendar()) {
            Ok(owned) => (found, owned),
            Err(refusal) => return Ok(End::Refused(refusal)),
        }
    } else {
        (found, owned)
    };
    // A drain that found nothing it could do has not cordoned the node either.
    let cordoned = found.suspect.node.unschedulable && matches!(owned, Ownership::Ours(_));
    if !(answers && cordoned)
        && let Some(refusal) = cordon(http, request, &found.suspect, owned, tell).await?
    {
        return Ok(End::Refused(refusal));
    }
    if stop.is_cancelled() {
        return Ok(End::Stopped { released: false });
    }
    // Others may have taken a node of the control plane before they could see our mark.
    if let Err(refusal) = spared(http, request, &found.suspect).await {
        return Ok(End::Refused(refusal));
    }
    match prove_and_release(http, request, how, &mut silence, stop, tell).await? {
        Progress::Released(at) => {
            let after = Aftermath::new(&request.node, found.guests, &found.pods, at, how);
            wait::wait(http, after, how, Limits { deadline, stall: request.stall }, stop, tell).await
        }
        Progress::End(end) => Ok(end),
    }
}

/// Whether the control plane can do without the node. One that was released is gone already.
async fn spared(http: &Http, request: &FailoverRequest, suspect: &Suspect) -> Result<(), Refusal> {
    let now = http.clock().now();
    let released = suspect.record().is_some_and(|it| it.released && it.void(suspect, now).is_none());
    if request.allow_control_plane || released || !is_control_plane(&suspect.node) {
        return Ok(());
    }
    look::spare(http, &request.node).await.map_err(Refusal::Quorum)
}

/// Known before anything is written: a version that cannot be read is not an old one, and a node must not be deleted for it.
async fn way_of_release(
    http: &Http,
    request: &FailoverRequest,
    suspect: &Suspect,
) -> Result<Release, FailoverError> {
    if let Some(how) = settled(request.release, suspect) {
        return Ok(how);
    }
    match look::version(http).await {
        Ok(version) => Ok(suitable(version)),
        Err(why) => Err(FailoverError::Version { node: request.node.clone(), why }),
    }
}

fn not_found(error: HttpError, node: &str) -> FailoverError {
    if error.is_not_found() { FailoverError::NodeNotFound(node.to_owned()) } else { error.into() }
}

/// Whether something would follow from the node's silence.
fn matters(request: &FailoverRequest, suspect: &Suspect) -> bool {
    !matches!(request.source, Source::Nowhere) || suspect.is_shut_down() || suspect.record().is_some()
}

/// Sees whether the node gives signs of life, unless that is known already.
async fn watch(
    http: &Http,
    suspect: &Suspect,
    silence: &mut Silence,
    stop: &CancellationToken,
    tell: Tell<'_>,
) -> Result<(), FailoverError> {
    let now = http.clock().now();
    let until = silence.quiet_at(suspect, now);
    if until <= now || silence.answered(suspect, now).is_some() {
        return Ok(());
    }
    tell(now, &Event::Watching { seconds: seconds(until, now) });
    // Gone or Ready, it is looked at again in a moment.
    vigil::keep(http, suspect, silence, until, stop).await?;
    Ok(())
}

/// How long it is until then, in whole seconds that are surely enough.
fn seconds(until: Timestamp, now: Timestamp) -> i64 {
    let left = until.duration_since(now);
    left.as_secs() + i64::from(left.subsec_nanos() > 0)
}

fn report(found: &Look, silence: &Silence, now: Timestamp) -> Report {
    let suspect = &found.suspect;
    let record = suspect.record();
    Report {
        node: suspect.node.name.clone(),
        state: health_words(suspect.node.health),
        since: suspect.node.health_since,
        lease_renewed: suspect.renewed(),
        last_report: suspect.reported,
        machine_agent_seen: suspect.heartbeat,
        kubelet_answers: silence.answered(suspect, now).is_some(),
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

/// Whether there would be proof, without asking anybody to switch anything off and without waiting.
fn rehearse(suspect: &Suspect, silence: &Silence, request: &FailoverRequest, now: Timestamp) -> End {
    let witness = Witness::new(request.policy.clone());
    let unwatched = window(suspect).as_secs();
    let proven = End::Rehearsed { proven: true, unwatched };
    match next(suspect, silence, &witness, now) {
        Next::Refuse(refusal) => return End::Refused(refusal),
        Next::Release | Next::Watch { .. } => return proven,
        Next::Await => return End::Rehearsed { proven: true, unwatched: 0 },
        Next::Prove => {}
    }
    let how = match &request.source {
        Source::Nowhere if suspect.is_shut_down() => told(&Source::Provider),
        Source::Fence(_) => return proven,
        said => told(said),
    };
    match how.map(|how| foresee(suspect, silence, &how, now)) {
        Some(Err(refusal)) => End::Refused(refusal),
        Some(Ok(())) => proven,
        None => End::Rehearsed { proven: false, unwatched },
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

/// Cordons with a mark, as a drain does, so that it can be undone. Whoever marked the node first has it.
async fn cordon(
    http: &Http,
    request: &FailoverRequest,
    suspect: &Suspect,
    mut owned: Ownership,
    tell: Tell<'_>,
) -> Result<Option<Refusal>, FailoverError> {
    let mut suspect = suspect.clone();
    for _ in 0..TRIES {
        let node = &suspect.node;
        let already = node.unschedulable;
        if already && matches!(&owned, Ownership::Ours(_)) {
            tell(http.clock().now(), &Event::Cordoned { already });
            return Ok(None);
        }
        let now = http.clock().now();
        let attire = Attire { options: request.options.clone(), ..Attire::default() };
        let action = Action::Cordon {
            node: node.name.clone(),
            uid: node.uid.clone(),
            resource_version: node.resource_version.clone(),
            mark: Box::new(new_mark(node, &request.owner, &attire, http.clock().calendar())),
            taints: None,
            dry_run: false,
        };
        match perform(http, action).await.outcome {
            Outcome::Done => {
                tell(now, &Event::Cordoned { already });
                return Ok(None);
            }
            // Somebody changed it, and may have taken it.
            Outcome::Conflict { .. } => {
                let again = look::held(http, &request.node, Some(&request.owner)).await;
                let (found, holding) = again.map_err(|error| not_found(error, &request.node))?;
                owned = match holding.judge(&found, &request.owner, http.clock().calendar()) {
                    Ok(owned) => owned,
                    Err(refusal) => return Ok(Some(refusal)),
                };
                suspect = found;
            }
            outcome => return Err(HttpError::Lost(format!("the cordon failed: {outcome:?}")).into()),
        }
    }
    Err(contended(request))
}

fn contended(request: &FailoverRequest) -> FailoverError {
    FailoverError::Contended { node: request.node.clone(), tries: TRIES }
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
