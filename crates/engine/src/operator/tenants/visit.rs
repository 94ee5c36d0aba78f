//! What is done inside a tenant's cluster: its node is drained, or given back. There is a bound to what a visit takes, and to how many there are
//! ([`evac_core::tenants::ration`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evac_api::Call;
use evac_api::call::node_path;
use evac_api::install::MEMORY_LIMIT;
use evac_api::tenants::TenantNode;
use evac_core::drain::give_back::{Cordon, Evidence, GiveBack, Giver, OfNode};
use evac_core::drain::run::{End, Left};
use evac_core::drain::step::Event;
use evac_core::machines::Instance;
use evac_core::tenants::member::contradiction;
use evac_core::tenants::ration::{OPENING, Ration, STOPPING, TURN, VISITS};
use evac_core::tenants::{Member, OWNER, Report, Tally, Trouble, terms};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::reach::tenant;
use crate::drain::{DrainError, DrainRequest, drain};
use crate::give_back::give_back;
use crate::http::{Http, HttpError};
use crate::meter::Meter;
use crate::nodes::{self, NodeError};

/// The other half of the memory is shared by the HTTPS server and everything that is known.
const _: () = assert!(VISITS * Ration::VISIT.bytes <= MEMORY_LIMIT / 4);

/// Those who visit, and those who wait for it, in the order in which they came.
#[derive(Clone)]
pub(super) struct Visits {
    places: Arc<Semaphore>,
    waiting: watch::Sender<usize>,
}

impl Visits {
    pub fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(VISITS)), waiting: watch::Sender::new(0) }
    }

    /// A place, at once or after `told` that one has to wait.
    async fn enter(&self, told: impl FnOnce()) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Some(place);
        }
        told();
        let _waiting = Waiting::new(&self.waiting);
        self.places.clone().acquire_owned().await.ok()
    }

    /// Waits until somebody waits.
    async fn wanted(&self) {
        let mut waiting = self.waiting.subscribe();
        if waiting.wait_for(|number| *number > 0).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Counts as one who waits while it lives.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|number| *number += 1);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|number| *number -= 1);
    }
}

/// One visit to the cluster of an instance.
pub(super) struct Visit {
    pub host: Http,
    pub visits: Visits,
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

    async fn enter(&self, meter: &Arc<Meter>) -> Result<Http, Trouble> {
        let (namespace, loopback) = (&self.instance.key.namespace, self.settings.loopback);
        tenant(&self.host, &self.member, namespace, loopback, meter.clone()).await
    }

    fn slow(&self) -> Trouble {
        let why = format!("it does not show within {} s what is on its node", OPENING.as_secs());
        Trouble::Unreachable { cluster: self.member.cluster.clone(), why }
    }

    /// Drains the node when it is its turn; `tell` hears how that goes.
    pub async fn drain(&self, stop: CancellationToken, tell: &mut (dyn FnMut(Report) + Send)) -> Report {
        let waits = Report::Waits(Trouble::Waits { cluster: self.member.cluster.clone() });
        let _place = tokio::select! {
            biased;
            () = stop.cancelled() => return Report::Stopped,
            place = self.visits.enter(|| tell(waits)) => place,
        };
        let (clock, meter) = (self.host.clock(), Arc::new(Meter::new(Ration::VISIT)));
        let (enough, opened) = (stop.child_token(), AtomicBool::new(false));
        let turn = async {
            clock.sleep(TURN).await;
            self.visits.wanted().await;
            enough.cancel();
            std::future::pending::<()>().await;
        };
        let overdue = async {
            enough.cancelled().await;
            clock.sleep(STOPPING).await;
        };
        let slow = async {
            clock.sleep(OPENING).await;
            if opened.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        let drained = tokio::select! {
            biased;
            () = meter.spent() => Err(self.slow()),
            drained = self.try_drain(&meter, &enough, &opened, tell) => drained,
            () = slow => Err(self.slow()),
            () = overdue => Err(self.slow()),
            () = turn => Err(self.slow()),
        };
        match (drained, meter.excess()) {
            (Ok(()), _) => Report::Drained,
            _ if stop.is_cancelled() => Report::Stopped,
            (_, Some(excess)) => {
                Report::Failed(Trouble::TooMuch { cluster: self.member.cluster.clone(), excess })
            }
            _ if enough.is_cancelled() => Report::MadeWay,
            (Err(trouble), None) => Report::Failed(trouble),
        }
    }

    async fn try_drain(
        &self,
        meter: &Arc<Meter>,
        stop: &CancellationToken,
        opened: &AtomicBool,
        tell: &mut (dyn FnMut(Report) + Send),
    ) -> Result<(), Trouble> {
        let http = self.enter(meter).await?;
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
            let (end, lost_touch) = self.run(&http, unreachable, stop, opened, tell).await?;
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
        opened: &AtomicBool,
        tell: &mut (dyn FnMut(Report) + Send),
    ) -> Result<(End, bool), Trouble> {
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
            opened.store(true, Ordering::Relaxed);
            if let Some(count) = tally.take(event) {
                tell(Report::Counted(count));
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
        let stopped = End::Stopped { left: Left::Nothing, to_leave: Vec::new(), blockers: Vec::new() };
        Ok((end.unwrap_or(stopped), lost_touch))
    }

    /// Takes our cordon back, and nobody else's. A node that is gone needs nothing.
    pub async fn uncordon(&self) -> Report {
        match self.try_uncordon().await {
            Ok(()) => Report::Uncordoned,
            Err(trouble) => Report::Failed(trouble),
        }
    }

    async fn try_uncordon(&self) -> Result<(), Trouble> {
        let _place = self.visits.enter(|| {}).await;
        let http = self.enter(&Arc::new(Meter::new(Ration::VISIT))).await?;
        let name = &self.member.node;
        // That it worked on this node is noted on the instance.
        let node =
            OfNode { by: Giver::Owner(OWNER), cordon: Cordon::AsBefore, evidence: Evidence::Elsewhere };
        let wish = GiveBack { node, guests: None, dry_run: false };
        match give_back(&http, name, &wish, &mut |_| {}).await {
            Ok(_) => Ok(()),
            Err(NodeError::Http(error)) if error.is_not_found() => Ok(()),
            Err(NodeError::Http(error)) => Err(self.failed(&error)),
            Err(error) => Err(self.ended(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn there_are_so_many_visits_at_once_and_those_who_wait_are_told_and_are_known_to_those_who_visit() {
        let visits = Visits::new();
        let mut places = Vec::new();
        for _ in 0..VISITS {
            places.push(visits.enter(|| panic!("there is room")).await.unwrap());
        }
        let nobody = tokio::time::timeout(TURN, visits.wanted()).await;
        assert!(nobody.is_err(), "nobody waits, so nobody has to make way");
        let told = AtomicBool::new(false);
        let next = visits.enter(|| told.store(true, Ordering::Relaxed));
        tokio::pin!(next);
        assert!(tokio::time::timeout(Duration::from_secs(3600), &mut next).await.is_err());
        assert!(told.load(Ordering::Relaxed));
        tokio::time::timeout(Duration::ZERO, visits.wanted()).await.expect("somebody waits");
        places.pop();
        let _place = next.await.unwrap();
        assert_eq!(*visits.waiting.borrow(), 0, "whoever visits does not wait any more");
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_stops_waiting_keeps_nobody_from_staying() {
        let visits = Visits::new();
        let _all = visits.places.clone().acquire_many_owned(u32::try_from(VISITS).unwrap()).await.unwrap();
        let waited = tokio::time::timeout(Duration::from_secs(1), visits.enter(|| {})).await;
        assert!(waited.is_err());
        assert_eq!(*visits.waiting.borrow(), 0);
    }
}
