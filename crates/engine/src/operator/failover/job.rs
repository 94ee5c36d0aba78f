//! One failover by a policy: where its proof comes from, and what is told about it.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use evac_api::Call;
use evac_api::call::escape;
use evac_core::Key;
use evac_core::action;
use evac_core::cluster::subject::{Kind, ObjectRef};
use evac_core::drain::explain::span;
use evac_core::failover::suspect::SHUT_DOWN;
use evac_core::failover::{AcceptedProof, FailoverPolicy, FailoverSpec, How, LetGo, ProofFrom, Silence};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{REST, SHORT_REST, Switches, owner};
use crate::events::publish_now;
use crate::failover::{End, Event, FailoverRequest, Fence, failover};
use crate::http::Http;

/// After a node that answers was emptied: there is nothing on it that could come back elsewhere.
const LONG_REST: SignedDuration = SignedDuration::from_secs(600);
/// How long a node whose kubelet answers is drained before it is switched off.
const DRAIN: Duration = Duration::from_secs(60);
/// A failover in which nothing has changed for so long is ended, so that it holds up nobody; it is taken up again later.
const STALL: Duration = Duration::from_secs(600);
/// Between two tries to switch a machine off.
const PAUSE: Duration = Duration::from_secs(5);

pub(super) struct Job {
    pub http: Http,
    pub switches: Switches,
    pub policy: FailoverPolicy,
    pub node: String,
    /// What the operator has seen of it.
    pub silence: Silence,
}

impl Job {
    /// Carries it out and says how long to leave the node alone then, and who did not return.
    pub async fn carry_out(&self, stop: &CancellationToken) -> (SignedDuration, Option<String>) {
        let (proof, fence) = match self.proof().await {
            Ok(proof) => proof,
            Err(why) => {
                self.tell(true, "FailoverHeld", &why).await;
                return (REST, None);
            }
        };
        let spec = FailoverSpec {
            node: self.node.clone(),
            owner: owner(&self.http),
            options: vec![format!("policy {}", self.policy.name)],
            proof,
            release: None,
            allow_control_plane: false,
            dry_run: false,
            timeout: None,
            stall: Some(STALL),
            drain: DRAIN,
            policy: Some(self.policy.reference()),
        };
        let request = FailoverRequest { spec, fence, silence: self.silence.clone() };
        let text = format!("is failed over by policy {}", self.policy.name);
        let mut unwanted = Vec::new();
        let mut log = |_: Timestamp, event: &Event| {
            tracing::info!(node = self.node, ?event);
            if let Event::LetGo(guest) = event
                && !guest.wanted
            {
                unwanted.push(guest.words());
            }
        };
        let ((), end) = tokio::join!(
            self.tell(true, "FailingOver", &text),
            failover(&self.http, &request, stop, &mut log),
        );
        let (rest, reason, words) = match end {
            Ok(End::Done { returned, off }) => (SHORT_REST, "FailedOver", summary(returned, off, &unwanted)),
            Ok(End::Left { returned, off, guests }) => {
                unwanted.extend(guests.iter().map(LetGo::words));
                (SHORT_REST, "FailedOver", summary(returned, off, &unwanted))
            }
            Ok(End::TimedOut { remains, .. }) => (
                LONG_REST,
                "FailoverStuck",
                format!(
                    "is released, and for {} nothing has changed: {}",
                    span(i64::try_from(STALL.as_secs()).unwrap_or(i64::MAX)),
                    listed(&remains.words())
                ),
            ),
            Ok(End::Drained) => {
                (LONG_REST, "Drained", "answered and was drained; nothing was released".into())
            }
            Ok(End::Refused(refusal)) => (REST, "FailoverHeld", refusal.message()),
            Ok(End::NoProof { why }) => {
                let why = why.map_or(String::new(), |why| format!(": {why}"));
                (REST, "FailoverHeld", format!("is not proven to be off, nothing is released{why}"))
            }
            Ok(End::Stopped { .. } | End::Rehearsed { .. }) => return (REST, None),
            Err(error) => (REST, "FailoverHeld", format!("could not be failed over: {error}")),
        };
        let warning = reason != "Drained" && (reason != "FailedOver" || !unwanted.is_empty());
        self.tell(warning, reason, &words).await;
        (rest, (!unwanted.is_empty()).then(|| listed(&unwanted)))
    }

    /// Publishes an event about the policy.
    async fn tell(&self, warning: bool, reason: &'static str, rest: &str) {
        let policy = ObjectRef::cluster(Kind::Policy, &self.policy.name, &self.policy.uid);
        let event = action::Event::normal(policy, reason, format!("node {} {rest}", self.node));
        publish_now(&self.http, action::Event { warning, ..event }).await;
    }

    /// Where the proof is to come from, and what switches the machine off for it.
    async fn proof(&self) -> Result<(ProofFrom, Option<Fence>), String> {
        let said = match &self.policy.proof {
            AcceptedProof::Statement => ProofFrom::Nowhere,
            AcceptedProof::Provider => ProofFrom::Said(How::Provider { signal: SHUT_DOWN.into() }),
            AcceptedProof::Time { after } => {
                ProofFrom::Said(How::Time { seconds: after.as_secs(), policy: self.policy.name.clone() })
            }
            AcceptedProof::Agent(agent) => {
                let refused = |error: &dyn std::fmt::Display| format!("cannot be switched off: {error}");
                agent.check(self.http.home()).map_err(|error| refused(&error))?;
                let secret = match &agent.secret {
                    Some(key) => self.secret(key).await?,
                    None => BTreeMap::new(),
                };
                let options = agent.options_for(&self.node, &secret).map_err(|error| refused(&error))?;
                let switch = (self.switches)(agent, options, self.http.clock());
                let switch = switch.map_err(|error| refused(&error))?;
                let fence = Fence { switch, tries: agent.tries, pause: PAUSE };
                return Ok((fence.proof(), Some(fence)));
            }
        };
        Ok((said, None))
    }

    async fn secret(&self, key: &Key) -> Result<BTreeMap<String, String>, String> {
        #[derive(Deserialize)]
        struct Secret {
            #[serde(default)]
            data: BTreeMap<String, String>,
        }
        let path = format!("/api/v1/namespaces/{}/secrets/{}", escape(&key.namespace), escape(&key.name));
        let secret: Secret = self
            .http
            .read_patiently(&Call::get(path))
            .await
            .map_err(|error| format!("cannot be switched off: Secret {key} cannot be read: {error}"))?;
        let decode = |(option, text): (String, String)| {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok();
            let value = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            let value = value
                .ok_or_else(|| format!("cannot be switched off: {option} of Secret {key} is no text"))?;
            Ok((option, value.trim_end_matches('\n').to_owned()))
        };
        secret.data.into_iter().map(decode).collect()
    }
}

/// Guests that are named in one event; more would not fit.
const NAMED: usize = 10;

fn listed(lines: &[String]) -> String {
    let shown = lines[..lines.len().min(NAMED)].join("; ");
    let more = lines.len().saturating_sub(NAMED);
    if more > 0 { format!("{shown}; and {more} more") } else { shown }
}

fn summary(returned: usize, off: usize, let_go: &[String]) -> String {
    let text = format!("is failed over: {returned} guests returned, {off} stay off");
    if let_go.is_empty() { text } else { format!("{text}; did not return: {}", listed(let_go)) }
}
