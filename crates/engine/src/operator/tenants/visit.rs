//! What is done inside a tenant's cluster: its node is drained, or given back.

use evac_api::Call;
use evac_api::call::node_path;
use evac_api::tenants::TenantNode;
use evac_core::machines::Instance;
use evac_core::step::Event;
use evac_core::tenants::member::contradiction;
use evac_core::tenants::{Count, Member, OWNER, Outcome, Tally, Trouble, terms};
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::reach::tenant;
use crate::drain::{DrainError, DrainRequest, drain};
use crate::http::{Http, HttpError};
use crate::nodes::{self, NodeError};

/// One visit to the cluster of an instance.
pub(super) struct Visit {
    pub host: Http,
    pub settings: Settings,
    pub member: Member,
    pub instance: Instance,
}

impl Visit {
    fn failed(&self, error: &HttpError) -> Trouble {
        let (cluster, why) = (self.member.cluster.clone(), error.to_string());
        if error.is_forbidden() {
            Trouble::Forbidden { cluster, why }
        } else {
            Trouble::Unreachable { cluster, why }
        }
    }

    fn unknown(&self) -> Trouble {
        Trouble::NodeUnknown { cluster: self.member.cluster.clone(), node: self.member.node.clone() }
    }

    fn ended(&self, why: String) -> Trouble {
        Trouble::DrainEnded { cluster: self.member.cluster.clone(), node: self.member.node.clone(), why }
    }

    async fn enter(&self) -> Result<Http, Trouble> {
        tenant(&self.host, &self.member, &self.instance.key.namespace, self.settings.loopback).await
    }

    /// Drains the node; `tell` hears how much is left.
    pub async fn drain(&self, stop: CancellationToken, tell: &mut (dyn FnMut(Count) + Send)) -> Outcome {
        match self.try_drain(&stop, tell).await {
            Ok(()) => Outcome::Drained,
            Err(_) if stop.is_cancelled() => Outcome::Stopped,
            Err(trouble) => Outcome::Failed(trouble),
        }
    }

    async fn try_drain(
        &self,
        stop: &CancellationToken,
        tell: &mut (dyn FnMut(Count) + Send),
    ) -> Result<(), Trouble> {
        let http = self.enter().await?;
        let name = &self.member.node;
        let found = http.read::<TenantNode>(&Call::get(node_path(name))).await;
        let node =
            found.map_err(|error| if error.is_not_found() { self.unknown() } else { self.failed(&error) })?;
        if let Some(why) = contradiction(&self.member, &self.instance, &node.into()) {
            let (cluster, node) = (self.member.cluster.clone(), name.clone());
            return Err(Trouble::NodeForeign { cluster, node, why });
        }
        let health = nodes::get(&http, name).await.map_err(|error| self.failed(&error))?.health;
        let mut unreachable = terms::is_unreachable(health);
        loop {
            let (end, lost_touch) = self.run(&http, unreachable, stop, tell).await?;
            if lost_touch && !unreachable && !stop.is_cancelled() {
                unreachable = true;
                continue;
            }
            return terms::judge(&end).map_err(|why| self.ended(why));
        }
    }

    /// One drain on one set of terms, and whether it was given up because the node fell silent.
    async fn run(
        &self,
        http: &Http,
        unreachable: bool,
        stop: &CancellationToken,
        tell: &mut (dyn FnMut(Count) + Send),
    ) -> Result<(evac_core::run::End, bool), Trouble> {
        let request = DrainRequest {
            nodes: vec![self.member.node.clone()],
            policy: terms::policy(unreachable),
            owner: OWNER.into(),
            instance: Some(self.settings.instance.clone()),
            options: vec![format!("for vmi {}", self.instance.key)],
            page: None,
        };
        let enough = stop.child_token();
        let (mut tally, mut lost_touch) = (Tally::default(), false);
        let give_up = enough.clone();
        let mut hear = |_, event: &Event| {
            if let Some(count) = tally.take(event) {
                tell(count);
            }
            if !unreachable && terms::lost_touch(event) {
                lost_touch = true;
                give_up.cancel();
            }
        };
        let ends = drain(http.clone(), request, enough, &mut hear).await.map_err(|error| match error {
            DrainError::NodeNotFound(_) => self.unknown(),
            DrainError::Read { source, .. } => self.failed(&source),
            error @ DrainError::Invariant(_) => self.ended(error.to_string()),
        })?;
        let end = ends.into_iter().next().map(|(_, end)| end);
        Ok((end.unwrap_or(evac_core::run::End::Stopped { blockers: Vec::new() }), lost_touch))
    }

    /// Takes our cordon back, and nobody else's. A node that is gone needs nothing.
    pub async fn uncordon(&self) -> Outcome {
        match self.try_uncordon().await {
            Ok(()) => Outcome::Uncordoned,
            Err(trouble) => Outcome::Failed(trouble),
        }
    }

    async fn try_uncordon(&self) -> Result<(), Trouble> {
        let http = self.enter().await?;
        let name = &self.member.node;
        match nodes::undo_of(&http, name, OWNER, false).await {
            Ok(_) => Ok(()),
            Err(NodeError::Http(error)) if error.is_not_found() => Ok(()),
            Err(NodeError::Http(error)) => Err(self.failed(&error)),
            Err(error) => Err(self.ended(error.to_string())),
        }
    }
}
