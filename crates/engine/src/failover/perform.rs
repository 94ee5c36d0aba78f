//! Performs the actions of one failover, one after the other.

use std::time::Duration;

use evac_api::failover as requests;
use evac_api::failover::policy::PolicyObject;
use evac_api::kubevirt::request::object_path;
use evac_api::{Call, classify};
use evac_core::action;
use evac_core::cluster::fact::Node;
use evac_core::drain::ownership::MarkState;
use evac_core::drain::run::End as DrainEnd;
use evac_core::drain::step;
use evac_core::failover::next_step::PolicyNow;
use evac_core::failover::suspect::out_of_service;
use evac_core::failover::{Action, Answer, Facts, FailoverRun, Fenced, Own, Release};
use evac_core::machines::Kind;
use evac_core::{Key, Outcome, Policy};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::follow::Follower;
use super::{Event, FailoverError, FailoverRequest, Tell, look, watch_silence, written};
use crate::act;
use crate::drain::{DrainRequest, drain};
use crate::events::publish;
use crate::http::{Http, HttpError};
use crate::nodes;

pub(super) struct Performer<'a> {
    pub http: &'a Http,
    pub request: &'a FailoverRequest,
    pub stop: &'a CancellationToken,
    pub facts: Facts,
    follower: Option<Follower>,
}

impl<'a> Performer<'a> {
    pub fn new(http: &'a Http, request: &'a FailoverRequest, stop: &'a CancellationToken) -> Self {
        Self { http, request, stop, facts: Facts::default(), follower: None }
    }

    fn not_found(&self, error: HttpError) -> FailoverError {
        if error.is_not_found() {
            FailoverError::NodeNotFound(self.request.spec.node.clone())
        } else {
            error.into()
        }
    }

    pub async fn perform(
        &mut self,
        action: Action,
        run: &mut FailoverRun,
        tell: Tell<'_>,
    ) -> Result<Answer, FailoverError> {
        let (http, request) = (self.http, self.request);
        let name = &request.spec.node;
        let own = match action {
            Action::Own(own) => own,
            action => {
                let answer = act::send(http, &action).await?;
                return match classify(&answer) {
                    Outcome::Done => Ok(Answer::Done),
                    Outcome::Conflict { .. } => Ok(Answer::Conflict),
                    outcome => Err(HttpError::Lost(format!("the cordon failed: {outcome:?}")).into()),
                };
            }
        };
        Ok(match own {
            Own::Look { may_ask } => {
                let may_ask = may_ask.then_some(request.spec.owner.as_str());
                let found = look::look(http, name, may_ask).await;
                self.facts.snapshot = Some(found.map_err(|error| self.not_found(error))?);
                Answer::Done
            }
            Own::Read { holder } => self.read(holder).await?,
            Own::AskQuorum => Answer::Quorum(look::spare(http, name).await),
            Own::AskVersion => match look::version(http).await {
                Ok(version) => Answer::Version(version),
                Err(why) => return Err(FailoverError::Version { node: name.clone(), why }),
            },
            Own::Watch { suspect, until } => {
                watch_silence::until_quiet(http, &suspect, &mut run.silence, until, self.stop).await?;
                Answer::Done
            }
            Own::Note(node) => {
                nodes::keep_record(http, &node, &request.spec.owner, vec![out_of_service()]).await?;
                Answer::Done
            }
            Own::Drain(limit) => Answer::Drained(self.drain(limit, tell).await?),
            Own::LookOut => self.look_out().await?,
            Own::SwitchOff => self.switch_off().await,
            Own::Pause(span) => {
                let clock = http.clock();
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => {}
                    () = clock.sleep(span) => {}
                }
                Answer::Done
            }
            Own::WriteProof { node, proof } => self.write(&requests::record(&node, &proof)).await?,
            Own::Release { node, proof, how } => self.write(&release(&node, &proof, how)).await?,
            Own::Publish(notices) => {
                self.publish(notices).await;
                Answer::Done
            }
            Own::Follow { guests } => {
                self.follower = Some(Follower::begin(http, name, guests));
                Answer::Done
            }
            Own::Untaint(node) => self.write(&requests::untaint(&node, &out_of_service())).await?,
        })
    }

    async fn read(&mut self, holder: bool) -> Result<Answer, FailoverError> {
        let (http, name) = (self.http, &self.request.spec.node);
        let found = if holder {
            let found = look::held(http, name, Some(&self.request.spec.owner)).await;
            found.map(|(suspect, holding)| (suspect, Some(holding)))
        } else {
            look::suspect(http, name).await.map(|suspect| (suspect, None))
        };
        self.facts.node = match found {
            Ok(found) => Some(found),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        Ok(if self.facts.node.is_some() { Answer::Done } else { Answer::Gone })
    }

    async fn write(&self, call: &Call) -> Result<Answer, HttpError> {
        Ok(if written(self.http, call).await? { Answer::Done } else { Answer::Conflict })
    }

    async fn drain(&self, limit: Duration, tell: Tell<'_>) -> Result<Option<DrainEnd>, FailoverError> {
        let wanted = DrainRequest {
            nodes: vec![self.request.spec.node.clone()],
            policy: Policy { timeout: Some(limit), ..Policy::thorough() },
            owner: self.request.spec.owner.clone(),
            instance: None,
            options: self.request.spec.options.clone(),
            page: None,
        };
        let mut pass = |at: Timestamp, event: &step::Event| tell(at, &Event::Drain(Box::new(event.clone())));
        let ends = drain(self.http.clone(), wanted, self.stop.clone(), &mut pass).await?;
        Ok(ends.into_iter().next().map(|(_, end)| end))
    }

    /// Looks at the node, its lease, its policy and who leads.
    async fn look_out(&self) -> Result<Answer, HttpError> {
        let suspect = Box::new(look::suspect(self.http, &self.request.spec.node).await?);
        let policy = self.policy().await?;
        // Last, because it changes fastest.
        let leads = self.http.gate().is_open(self.http.clock().now());
        Ok(Answer::LookedOut { suspect, policy, leads })
    }

    async fn policy(&self) -> Result<Option<PolicyNow>, HttpError> {
        let Some(begun) = &self.request.spec.policy else { return Ok(None) };
        let path = object_path(Kind::Policy, &Key::new("", begun.name.as_str()));
        let found = match self.http.read_patiently::<PolicyObject>(&Call::get(path)).await {
            Ok(object) => Some(object.into_policy()),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        Ok(Some(PolicyNow::of(begun, found.as_ref())))
    }

    async fn switch_off(&self) -> Answer {
        let Some(fence) = &self.request.fence else {
            return Answer::NotOff {
                why: "nothing is there that could switch it off".into(),
                is_final: true,
            };
        };
        tokio::select! {
            biased;
            off = fence.once(&self.request.spec.node) => match off {
                Ok(()) => Answer::Done,
                Err(error) => Answer::NotOff { why: error.to_string(), is_final: error.is_final() },
            },
            () = self.stop.cancelled() => Answer::Stopped,
        }
    }

    /// Publishes events about the node, each with its own time.
    pub async fn publish(&self, notices: Vec<(Timestamp, action::Event)>) {
        for (at, notice) in notices {
            publish(self.http, [notice], at).await;
        }
    }

    /// Waits until something is seen, it is time to look again, or the run is to stop.
    pub async fn wait(&mut self, look_again: Option<Timestamp>) -> Result<(), FailoverError> {
        let (clock, stop, after) = (self.http.clock(), self.stop, &mut self.facts.after);
        let time = async {
            match look_again {
                Some(at) => {
                    clock.sleep_until(at).await;
                    // Timers are coarse; without this a wake-up a hair early would spin.
                    clock.sleep(Duration::from_millis(1)).await;
                }
                None => std::future::pending().await,
            }
        };
        let seen = async {
            match &mut self.follower {
                Some(follower) => follower.see(after).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            seen = seen => Ok(seen?),
            () = time => Ok(()),
        }
    }
}

fn release(node: &Node, proof: &Fenced, how: Release) -> Call {
    let mark = match &node.mark {
        Some(MarkState::Valid(mark)) => Some(mark.as_ref()),
        _ => None,
    };
    match how {
        Release::Taint => requests::taint(node, proof, mark, &out_of_service()),
        Release::DeleteNode => requests::delete(node),
    }
}
