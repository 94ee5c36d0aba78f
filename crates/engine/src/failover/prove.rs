//! From a node that is cordoned to one that is released: the proof, the watch over it, the release.

use evac_api::failover::policy::PolicyObject;
use evac_api::failover::{self as requests, About, POLICIES};
use evac_api::{Call, call};
use evac_core::drain::ownership::MarkState;
use evac_core::failover::course::{Before, PolicyNow, Witness, accept, may_switch_off, still_ours};
use evac_core::failover::suspect::out_of_service;
use evac_core::failover::{Fenced, How, Next, Refusal, Release, Signs, Silence, Suspect, Void, next};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::power::{Fence, Halt, Lookout, PowerError, Unfenced};
use super::{
    End, Event, FailoverError, FailoverRequest, Source, TRIES, Tell, contended, look, seconds, told, vigil,
    written,
};
use crate::http::{Http, HttpError};

pub(super) enum Progress {
    Released(Timestamp),
    End(End),
}

/// Proves and releases, then sends the events about it: nobody whose guests are down waits for those.
pub(super) async fn prove_and_release(
    http: &Http,
    request: &FailoverRequest,
    how: Release,
    silence: &mut Silence,
    stop: &CancellationToken,
    tell: Tell<'_>,
) -> Result<Progress, FailoverError> {
    let mut run = Run {
        http,
        request,
        silence,
        stop,
        witness: Witness::new(request.policy.clone()),
        fenced: None,
        told: false,
        events: Vec::new(),
    };
    let progress = run.step_by_step(how, tell).await;
    for call in run.events {
        // For people; losing one changes nothing, because the record is on the node.
        if let Err(error) = http.send(&call).await {
            tracing::debug!(%error, "event was lost");
        }
    }
    progress
}

struct Run<'a> {
    http: &'a Http,
    request: &'a FailoverRequest,
    silence: &'a mut Silence,
    stop: &'a CancellationToken,
    witness: Witness,
    /// What an agent proved in this run. A machine is switched off once, and the signs of life are those of that moment.
    fenced: Option<Fenced>,
    /// Whether the proof was told.
    told: bool,
    events: Vec<Call>,
}

impl Run<'_> {
    fn now(&self) -> Timestamp {
        self.http.clock().now()
    }

    /// For what is written.
    fn calendar(&self) -> Timestamp {
        self.http.clock().calendar()
    }

    /// Looks at the node, does the next thing, looks again.
    async fn step_by_step(&mut self, how: Release, tell: Tell<'_>) -> Result<Progress, FailoverError> {
        let (http, request) = (self.http, self.request);
        for _ in 0..TRIES {
            if self.stop.is_cancelled() {
                return Ok(Progress::End(End::Stopped { released: false }));
            }
            let suspect = match look::suspect(http, &request.node).await {
                Ok(suspect) => suspect,
                // It was deleted meanwhile, which releases it as well.
                Err(error) if error.is_not_found() => return Ok(Progress::Released(self.now())),
                Err(error) => return Err(error.into()),
            };
            let now = self.now();
            self.silence.see(&suspect, now);
            self.witness.see(&suspect, now);
            let next = next(&suspect, self.silence, &self.witness, now);
            // Nothing is switched off or released under the mark of another.
            if matches!(next, Next::Prove | Next::Watch { .. } | Next::Release)
                && let Err(refusal) = still_ours(&suspect, &request.owner)
            {
                return Ok(Progress::End(End::Refused(refusal)));
            }
            match next {
                Next::Refuse(refusal) => {
                    if let Refusal::Void(Void::WrongMachine { .. }) = &refusal {
                        self.refute(&suspect).await?;
                    }
                    return Ok(Progress::End(End::Refused(refusal)));
                }
                Next::Await => return Ok(Progress::Released(now)),
                Next::Prove => {
                    let (suspect, proof) = match self.prove(suspect, tell).await? {
                        Ok(proof) => proof,
                        Err(end) => return Ok(Progress::End(end)),
                    };
                    self.record(&suspect, &proof, tell).await?;
                }
                Next::Watch { until } => {
                    self.announce(&suspect, tell);
                    tell(now, &Event::Watching { seconds: seconds(until, now) });
                    vigil::keep(http, &suspect, self.silence, until, self.stop).await?;
                }
                Next::Release => {
                    self.announce(&suspect, tell);
                    let Some(proof) = suspect.record() else { continue };
                    if let Some(message) = release(http, how, &suspect, proof).await? {
                        self.events.push(event(&suspect, "FailedOver", message, self.calendar()));
                        tell(self.now(), &Event::Released { how });
                        return Ok(Progress::Released(self.now()));
                    }
                }
            }
        }
        Err(contended(request))
    }

    /// Tells of a proof that an earlier run has written down.
    fn announce(&mut self, suspect: &Suspect, tell: Tell<'_>) {
        if !std::mem::replace(&mut self.told, true)
            && let Some(proof) = suspect.record()
        {
            tell(self.now(), &Event::Proven { how: proof.how.words(), recorded: false });
        }
    }

    /// Writes a proof onto the node, unless that has changed since it was read; then it is looked at again.
    async fn record(
        &mut self,
        suspect: &Suspect,
        proof: &Fenced,
        tell: Tell<'_>,
    ) -> Result<(), FailoverError> {
        if !written(self.http, &requests::record(&suspect.node, proof)).await? {
            return Ok(());
        }
        self.told = true;
        tell(self.now(), &Event::Proven { how: proof.how.words(), recorded: true });
        let message = format!("{} (recorded by {})", proof.how.words(), self.request.owner);
        self.events.push(event(suspect, "Fenced", &message, self.calendar()));
        Ok(())
    }

    /// Notes on the record that it was wrong, so that nobody acts on it or lets the same agent do the same again.
    async fn refute(&mut self, suspect: &Suspect) -> Result<(), FailoverError> {
        let mut suspect = suspect.clone();
        for _ in 0..TRIES {
            let Some(record) = suspect.record().filter(|record| record.refuted.is_none()) else {
                return Ok(());
            };
            let Some(sign) = record.wrong_machine(&suspect) else { return Ok(()) };
            let refuted = Fenced { refuted: Some(sign), ..record.clone() };
            if written(self.http, &requests::record(&suspect.node, &refuted)).await? {
                let message = Void::WrongMachine { sign }.words();
                self.events.push(event(&suspect, "WrongMachine", &message, self.calendar()));
                return Ok(());
            }
            suspect = look::suspect(self.http, &self.request.node).await?;
        }
        Err(contended(self.request))
    }

    /// Obtains a proof, with the node as it was when the proof was made or, if that was in an earlier step, as it is.
    async fn prove(
        &mut self,
        suspect: Suspect,
        tell: Tell<'_>,
    ) -> Result<Result<(Suspect, Fenced), End>, FailoverError> {
        if let Some(proof) = &self.fenced {
            // The node changed before the record was written. If that was a sign of life, the record is refuted as it is written.
            return Ok(Ok((suspect, proof.clone())));
        }
        let how = match &self.request.source {
            // Nobody has to repeat what the provider says already.
            Source::Nowhere if suspect.is_shut_down() => told(&Source::Provider),
            Source::Fence(fence) => return self.fence(fence, &suspect, tell).await,
            said => told(said),
        };
        let Some(how) = how else { return Ok(Err(End::NoProof { why: None })) };
        let now = self.now();
        let accepted = accept(&suspect, self.silence, how, &self.request.owner, now);
        Ok(match accepted {
            Ok(proof) => Ok((suspect, self.signed(proof))),
            Err(refusal) => Err(End::Refused(refusal)),
        })
    }

    fn signed(&self, proof: Fenced) -> Fenced {
        Fenced { policy: self.request.policy.clone(), at: self.http.clock().on_calendar(proof.at), ..proof }
    }

    /// Lets an agent switch the machine off, and reads the signs of life as they are then.
    async fn fence(
        &mut self,
        fence: &Fence,
        suspect: &Suspect,
        tell: Tell<'_>,
    ) -> Result<Result<(Suspect, Fenced), End>, FailoverError> {
        let clock = self.http.clock();
        let answers = self.silence.answered(suspect, clock.now()).is_some();
        let before =
            Before { signs: (!answers).then(|| Signs::of(suspect)), owner: self.request.owner.clone() };
        let mut eyes = Eyes { http: self.http, request: self.request, before };
        let by = fence.switch.name();
        tell(clock.now(), &Event::Fencing { by: by.clone() });
        let mut heard = |number: u32, error: &PowerError| {
            tell(clock.now(), &Event::FenceFailed { number, why: error.to_string() });
        };
        let fenced = tokio::select! {
            biased;
            fenced = fence.fence(clock, &self.request.node, &mut eyes, &mut heard) => fenced,
            () = self.stop.cancelled() => return Ok(Err(End::Stopped { released: false })),
        };
        let began = match fenced {
            Ok(began) => began,
            Err(Unfenced::Power(error)) => return Ok(Err(End::NoProof { why: Some(error.to_string()) })),
            Err(Unfenced::Halted(Halt::Refused(refusal))) => return Ok(Err(End::Refused(refusal))),
            Err(Unfenced::Halted(Halt::NotLeading)) => return Ok(Err(End::Stopped { released: false })),
            Err(Unfenced::Halted(Halt::Unseen(error))) => return Err(error.into()),
        };
        let suspect = look::suspect(self.http, &self.request.node).await?;
        self.silence.see(&suspect, clock.now());
        let how = How::Agent { program: by };
        Ok(match accept(&suspect, self.silence, how, &self.request.owner, began) {
            Ok(proof) => {
                let proof = self.signed(proof);
                self.witness.made(&proof, clock.now());
                self.fenced = Some(proof.clone());
                Ok((suspect, proof))
            }
            Err(refusal) => Err(End::Refused(refusal)),
        })
    }
}

/// Looks at the node, its lease, its policy and who leads.
struct Eyes<'a> {
    http: &'a Http,
    request: &'a FailoverRequest,
    before: Before,
}

impl Lookout for Eyes<'_> {
    fn may_switch_off(&mut self) -> BoxFuture<'_, Result<(), Halt>> {
        async move {
            let suspect = look::suspect(self.http, &self.request.node).await.map_err(Halt::Unseen)?;
            let policy = self.policy().await.map_err(Halt::Unseen)?;
            may_switch_off(&suspect, &self.before, policy.as_ref()).map_err(Halt::Refused)?;
            // Last, because it changes fastest: where several operators run, only the one that leads switches anything off.
            let leads = self.http.gate().is_open(self.http.clock().now());
            if leads { Ok(()) } else { Err(Halt::NotLeading) }
        }
        .boxed()
    }
}

impl Eyes<'_> {
    async fn policy(&self) -> Result<Option<PolicyNow>, HttpError> {
        let Some(begun) = &self.request.policy else { return Ok(None) };
        let path = format!("{POLICIES}/{}", call::escape(&begun.name));
        let found = match self.http.read_patiently::<PolicyObject>(&Call::get(path)).await {
            Ok(object) => Some(object.into_policy()),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        Ok(Some(PolicyNow::of(begun, found.as_ref())))
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
