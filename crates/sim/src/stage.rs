//! The cluster of a run: server, world, people, and the processes of evac.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use evac_api::Call;
use evac_api::kubevirt::{NAMESPACE, request, review};
use evac_apiserver::reply::Reply;
use evac_apiserver::server::{Api, Settings};
use evac_clock::Clock;
use evac_core::machines::{Config, Roles};
use evac_engine::Http;
use evac_engine::operator::publish::Reviews;
use evac_engine::operator::{Reviewer, Who, install, power};
use evac_world::{NodeSpec, Options, World};
use futures::future::BoxFuture;
use http::Request;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::book::Book;
use crate::line::Field;
use crate::oracle;
use crate::plan::Plan;
use crate::power::Power;

pub const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";
/// Every run begins here, so that two runs of a seed write the same times.
const BEGINNING: &str = "2026-01-01T00:00:00Z";

/// Who is on the stage.
#[derive(Clone)]
pub struct Cast {
    pub nodes: usize,
    /// The roles of each operator.
    pub roles: Roles,
    /// How many operators there are; one of them leads.
    pub operators: usize,
    /// They also fail nodes over, by the simulated power supply.
    pub fences: bool,
    /// The story cuts nodes off by itself, and nothing else does: one that is only cut off would be fenced rightly.
    pub cuts: bool,
}

impl Cast {
    /// So many nodes, and nobody but people.
    pub fn of(nodes: usize) -> Self {
        Self { nodes, roles: Roles::of([]), operators: 0, fences: false, cuts: false }
    }

    /// So many nodes, and two operators with all roles.
    pub fn operated(nodes: usize) -> Self {
        Self { roles: Roles::all(), operators: 2, ..Self::of(nodes) }
    }
}

/// An operator that answers requests.
#[derive(Clone)]
pub struct Serving {
    pub reviewer: Reviewer,
    pub http: Http,
    pub config: watch::Receiver<Config>,
}

/// A cluster in one run.
pub struct Stage {
    pub api: Arc<Api>,
    pub clock: Clock,
    pub seed: u64,
    pub field: Arc<Field>,
    pub book: Book,
    pub world: World,
    /// Ends the processes of evac.
    pub over: CancellationToken,
    person: Http,
    power: Power,
    serving: Arc<Mutex<BTreeMap<String, Serving>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    /// An empty cluster with its nodes, and without a process of evac yet.
    pub async fn set(seed: u64, plan: Plan, cast: &Cast, trace: bool) -> Result<Arc<Self>> {
        let clock = Clock::starting_at(BEGINNING.parse()?);
        let api = Api::new(clock, Settings { seed, ..Settings::default() });
        let book = Book::new(clock, trace);
        oracle::watch(&api, &book);
        let field = Field::new(api.clone(), book.clone(), seed, plan);
        let person = Http::new(field.client_of("person"), clock, Duration::ZERO);
        install::kinds(&person).await?;
        install::policies(&person).await?;
        let nodes = NodeSpec::workers(cast.nodes);
        let world = World::start(
            field.client_of(crate::book::WORLD),
            clock,
            Options { seed, ..Options::cluster(nodes) },
        );
        world.answer_for_agents(&api);
        let (over, serving) = (CancellationToken::new(), Arc::default());
        let stage = Arc::new(Self {
            api,
            clock,
            seed,
            field,
            book,
            world,
            over,
            person,
            power: Power::default(),
            serving,
        });
        stage.route();
        install::reviews(&stage.person, Reviews::of(&Roles::all())).await?;
        Ok(stage)
    }

    /// Requests of the server to the operator go to one that serves.
    fn route(&self) {
        for path in Reviewer::paths() {
            let serving = self.serving.clone();
            let handler = move |review: Value| {
                let served = lock(&serving).values().next().cloned();
                Box::pin(async move {
                    let served = served.ok_or("no endpoints available for service \"evac\"")?;
                    served.reviewer.review(Who::ApiServer, path, &review).await
                }) as BoxFuture<'static, Result<Value, String>>
            };
            self.api.webhooks().register(NAMESPACE, review::SERVICE, path, Arc::new(handler));
        }
        for version in power::VERSIONS {
            let serving = self.serving.clone();
            let handler = move |request: Request<Bytes>| {
                let served = lock(&serving).values().next().cloned();
                Box::pin(async move {
                    let Some(served) = served else { return Reply::words(503, "service unavailable\n") };
                    let (path, config) = (request.uri().path().to_owned(), served.config.borrow().clone());
                    let method = request.method().as_str();
                    let reply = power::answer(&served.http, &config, method, &path, request.body()).await;
                    match reply.body {
                        Some(body) => Reply::json(reply.code, &body),
                        None => Reply::text(reply.code, Bytes::new()),
                    }
                }) as BoxFuture<'static, Reply>
            };
            self.api.aggregate(power::GROUP, version, Arc::new(handler));
            self.api.announce(power::GROUP, version, power::resources());
        }
    }

    /// An operator of this name answers requests from now on, or does no longer.
    pub fn serves(&self, name: &str, serving: Option<Serving>) {
        let mut all = lock(&self.serving);
        match serving {
            Some(serving) => drop(all.insert(name.to_owned(), serving)),
            None => drop(all.remove(name)),
        }
    }

    pub fn person(&self) -> &Http {
        &self.person
    }

    pub fn power(&self) -> &Power {
        &self.power
    }

    pub async fn pass(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    /// What a person reads; nothing if it is not there.
    pub async fn get(&self, path: &str) -> Result<Option<Value>> {
        let answer = self.person.send(&Call::get(path)).await?;
        match answer.status {
            404 => Ok(None),
            _ if answer.is_success() => Ok(Some(serde_json::from_slice(&answer.body)?)),
            status => bail!("GET {path}: {status} {}", String::from_utf8_lossy(&answer.body)),
        }
    }

    pub async fn items(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.get(path).await?.unwrap_or_default();
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// A person's request, whatever comes of it.
    pub async fn try_send(
        &self,
        method: &'static str,
        path: &str,
        kind: &'static str,
        body: &Value,
    ) -> Result<(u16, Value)> {
        let answer = self.person.send(&request::send(method, path.to_owned(), kind, body)).await?;
        Ok((answer.status, serde_json::from_slice(&answer.body).unwrap_or_default()))
    }

    pub async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.accepted("POST", path, JSON, object).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> Result<Value> {
        self.accepted("PATCH", path, MERGE, body).await
    }

    pub async fn delete(&self, path: &str) -> Result<Value> {
        self.accepted("DELETE", path, JSON, &json!({})).await
    }

    /// Tries for a minute: what a review refuses for want of an operator is asked for again, as people do.
    async fn accepted(
        &self,
        method: &'static str,
        path: &str,
        kind: &'static str,
        body: &Value,
    ) -> Result<Value> {
        let mut tries = 0;
        loop {
            let (status, answer) = self.try_send(method, path, kind, body).await?;
            if (200..300).contains(&status) {
                return Ok(answer);
            }
            tries += 1;
            if status < 500 || tries > 60 {
                bail!("{method} {path}: {status} {answer}");
            }
            self.pass(Duration::from_secs(1)).await;
        }
    }

    /// Waits in virtual time until an object is as it should be; an object that is not there is null.
    pub async fn until(
        &self,
        path: &str,
        within: Duration,
        condition: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let limit = self.clock.now() + jiff::SignedDuration::try_from(within)?;
        loop {
            let found = self.get(path).await?.unwrap_or_default();
            if condition(&found) {
                return Ok(found);
            }
            if self.clock.now() >= limit {
                bail!("waited {} s for {path}; it is {found}", within.as_secs());
            }
            self.pass(Duration::from_millis(500)).await;
        }
    }

    /// Something happens to the cluster itself.
    pub fn happens(&self, what: &str, number: usize, class: &'static str) {
        self.book.happen(&format!("{class} {what} {number}"), class);
    }

    /// What hypervisors have on record: two writers on one disk, one machine in two places.
    pub async fn look(&self) {
        for violation in self.world.violations().await {
            self.book.violate("I1", violation.to_string());
        }
    }
}
