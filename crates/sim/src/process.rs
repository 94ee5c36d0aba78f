//! The processes of evac: operators with their leases of leadership, and `evac drain`. Whoever dies is started again, as a Deployment does, or a person.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use evac_clock::Clock;
use evac_core::Policy;
use evac_core::drain::give_back::Giver;
use evac_core::drain::run::End;
use evac_core::failover::{FailoverSpec, ProofFrom, Refusal, Silence};
use evac_engine::failover::{self, FailoverRequest, Fence};
use evac_engine::operator::failover as role;
use evac_engine::operator::leader::Candidate;
use evac_engine::operator::{Operator, Reviewer, Settings};
use evac_engine::{DrainRequest, Http, drain, nodes};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::draw;
use crate::line::Line;
use crate::mutant::Bug;
use crate::power::Controller;
use crate::scenario::PODS;
use crate::stage::{Cast, Serving, Stage};

/// Starts an operator that is started again whenever it dies.
pub fn operator(stage: &Arc<Stage>, name: &str, cast: &Cast) {
    let (stage, name, cast) = (stage.clone(), name.to_owned(), cast.clone());
    tokio::spawn(async move {
        let clock = clock_of(&stage, &name);
        for number in 1_u32.. {
            let life = Life::begin(&stage, &name, number, &cast, clock);
            tokio::select! {
                biased;
                () = stage.over.cancelled() => return,
                () = life.line.died() => {}
            }
            life.halt();
            let pause = draw::between(stage.seed, &[&name, &number.to_string(), "restart"], 500, 20_000);
            stage.pass(Duration::from_millis(pause)).await;
        }
    });
}

/// How often the pods of operators are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Runs an operator for each running pod of this app, as its kubelet would: it is told to end when its pod is, and dies with it.
pub fn operators_in_pods(stage: &Arc<Stage>, app: &'static str, cast: &Cast) {
    let (stage, cast) = (stage.clone(), cast.clone());
    tokio::spawn(async move {
        let mut lives: BTreeMap<String, Life> = BTreeMap::new();
        let mut number = 0;
        while !stage.over.is_cancelled() {
            let pods = stage.items(PODS).await.unwrap_or_default();
            let mut running = BTreeSet::new();
            for pod in pods.iter().filter(|pod| pod["metadata"]["labels"]["app"] == app) {
                let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                let ends = pod["metadata"]["deletionTimestamp"].is_string();
                let runs = pod["status"]["phase"] == "Running";
                let dead = lives.get(&uid).is_some_and(|life| life.line.is_dead());
                if runs && !ends && !lives.contains_key(&uid) {
                    number += 1;
                    let name = format!("operator-{number}");
                    let clock = clock_of(&stage, &name);
                    lives.insert(uid.clone(), Life::begin(&stage, &name, 1, &cast, clock));
                } else if ends && let Some(life) = lives.get_mut(&uid) {
                    life.end();
                } else if dead && runs {
                    // Its container starts anew after a crash.
                    let next = lives.remove(&uid).map(Life::again);
                    lives.extend(next.map(|next| (uid.clone(), next)));
                }
                if runs {
                    running.insert(uid);
                }
            }
            let gone: Vec<String> = lives.keys().filter(|uid| !running.contains(*uid)).cloned().collect();
            for life in gone.into_iter().filter_map(|uid| lives.remove(&uid)) {
                life.line.kill();
                life.halt();
            }
            stage.pass(LOOK).await;
        }
    });
}

/// One life of an operator.
struct Life {
    stage: Arc<Stage>,
    name: String,
    number: u32,
    cast: Cast,
    clock: Clock,
    line: Line,
    candidate: Option<Candidate>,
    operator: Operator,
    fencing: Option<DropGuard>,
}

impl Life {
    fn begin(stage: &Arc<Stage>, name: &str, number: u32, cast: &Cast, clock: Clock) -> Self {
        let line = Line::new(&stage.field, name);
        let http = Http::new(line.client(), clock, Duration::ZERO);
        let candidate = Candidate::run(http.clone(), format!("{name}-{number}"));
        let acting = if stage.field.plan.bug == Some(Bug::ActsWithoutLeading) {
            http.clone()
        } else {
            http.clone().behind(candidate.gate().clone())
        };
        let fencing = cast.fences.then(|| fence(stage, acting.clone()));
        let operator = Operator::start_set(acting, cast.roles.clone(), Settings::default());
        let reviewer = Reviewer::new(http.clone(), operator.view());
        stage.serves(name, Some(Serving { reviewer, http, config: operator.config() }));
        let (stage, name, cast) = (stage.clone(), name.to_owned(), cast.clone());
        Self { stage, name, number, cast, clock, line, candidate: Some(candidate), operator, fencing }
    }

    /// The next life of a process that is dead.
    fn again(self) -> Self {
        let (stage, name, cast) = (self.stage.clone(), self.name.clone(), self.cast.clone());
        let (number, clock) = (self.number + 1, self.clock);
        self.halt();
        Self::begin(&stage, &name, number, &cast, clock)
    }

    /// It is told to end: what is under way comes to its end, and another one may lead.
    fn end(&mut self) {
        if let Some(candidate) = self.candidate.take() {
            self.stage.book.note(&format!("{} is told to end", self.name));
            self.stage.serves(&self.name, None);
            tokio::spawn(candidate.hand_over());
        }
    }

    /// It is dead.
    fn halt(mut self) {
        self.fencing = None;
        if let Some(candidate) = self.candidate.take() {
            candidate.halt();
        }
        self.operator.halt();
        self.stage.serves(&self.name, None);
    }
}

/// The role `failover`, with simulated controllers in the place of fence agents. It ends when what is returned is dropped.
fn fence(stage: &Arc<Stage>, http: Http) -> DropGuard {
    let stop = CancellationToken::new();
    let controller = Controller::of(stage);
    let switches: role::Switches = Arc::new(move |_, _, _| Ok(controller.clone()));
    tokio::spawn(role::run(http, switches, stop.clone(), mpsc::channel(1).1));
    stop.drop_guard()
}

/// A clock whose time of day is off, and perhaps stepped in the middle, where the plan says so.
fn clock_of(stage: &Arc<Stage>, name: &str) -> Clock {
    let most = stage.field.plan.skew;
    if most == 0 {
        return stage.clock;
    }
    // As many as there are actors, in a program that ends.
    let seconds: &'static AtomicI64 = Box::leak(Box::default());
    let off = |what: &str| draw::between(stage.seed, &[name, what], 0, 2 * most) as i64 - most as i64;
    seconds.store(off("offset"), Ordering::Relaxed);
    if draw::share(stage.seed, &[name, "step"]) < 0.5 {
        let (after, step) = (draw::between(stage.seed, &[name, "step at"], 5, 90), off("step to"));
        let stage = stage.clone();
        tokio::spawn(async move {
            stage.pass(Duration::from_secs(after)).await;
            stage.book.note("a clock is stepped");
            seconds.store(step, Ordering::Relaxed);
        });
    }
    stage.clock.stepped_by(seconds)
}

/// What has become of a drain that a person runs.
#[derive(Debug, Clone, Default)]
pub struct Ran {
    /// How often it was started.
    pub runs: u32,
    /// The ends of the last run that came to one.
    pub ends: Vec<(String, End)>,
    /// It has ended, and is not started again.
    pub over: bool,
    /// Why the last run failed.
    pub error: Option<String>,
}

impl Ran {
    /// What has not come about yet.
    pub fn in_the_way(&self) -> Option<String> {
        let Self { runs, ends, over, error } = self;
        (!over).then(|| format!("the drain has not succeeded after {runs} runs: {ends:?} {error:?}"))
    }
}

/// Who gives up before this many tries would not be a test of anything.
const RUNS: u32 = 40;

/// A person who runs `evac drain` until the nodes are empty. The name is the owner's.
pub fn drainer(stage: &Arc<Stage>, name: &str, nodes: &[&str], policy: Policy) -> watch::Receiver<Ran> {
    let (sender, receiver) = watch::channel(Ran::default());
    let (stage, name) = (stage.clone(), name.to_owned());
    let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
    tokio::spawn(async move {
        let clock = clock_of(&stage, &name);
        for run in 1..=RUNS {
            let line = Line::new(&stage.field, &name);
            let request = DrainRequest {
                nodes: nodes.clone(),
                policy: policy.clone(),
                owner: name.clone(),
                instance: Some(format!("box:{run}")),
                options: Vec::new(),
                page: None,
            };
            let http = Http::new(line.client(), clock, Duration::ZERO);
            let mut hear = |_, event: &evac_core::drain::step::Event| {
                stage.book.note(&format!("{name} says {}", words(event)));
            };
            let result = tokio::select! {
                biased;
                () = stage.over.cancelled() => return,
                () = line.died() => None,
                result = drain(http, request, CancellationToken::new(), &mut hear) => Some(result),
            };
            sender.send_modify(|ran| {
                ran.runs = run;
                match result {
                    Some(Ok(ends)) => {
                        ran.over = ends.iter().all(|(_, end)| matches!(end, End::Drained { .. }));
                        stage.book.note(&format!("{name} ends: {ends:?}"));
                        ran.ends = ends;
                    }
                    Some(Err(error)) => {
                        stage.book.note(&format!("{name} fails: {error}"));
                        ran.error = Some(error.to_string());
                    }
                    None => {}
                }
            });
            if sender.borrow().over {
                return;
            }
            pause(&stage, &name, run).await;
        }
    });
    receiver
}

/// The beginning of an event, for the log.
fn words(event: &evac_core::drain::step::Event) -> String {
    format!("{event:?}").chars().take(160).collect()
}

/// Where a proof is to come from, and what switches the machine off for it.
pub type Proof = (ProofFrom, Option<Fence>);

/// A person who runs `evac failover` until it has come to its end, or is refused because the node is Ready again.
pub async fn fail_over(stage: &Arc<Stage>, name: &str, node: &str, by: &Proof) -> Result<()> {
    let clock = clock_of(stage, name);
    for run in 1..=RUNS {
        let line = Line::new(&stage.field, name);
        let http = Http::new(line.client(), clock, Duration::ZERO);
        let (proof, fence) = by.clone();
        let spec = FailoverSpec {
            node: node.to_owned(),
            owner: name.to_owned(),
            options: Vec::new(),
            proof,
            release: None,
            allow_control_plane: false,
            dry_run: false,
            timeout: Some(Duration::from_secs(300)),
            stall: None,
            drain: Duration::from_secs(30),
            policy: None,
        };
        let request = FailoverRequest { spec, fence, silence: Silence::default() };
        let stop = CancellationToken::new();
        let mut hear = |_, event: &failover::Event| {
            let said: String = format!("{event:?}").chars().take(160).collect();
            stage.book.note(&format!("{name} says {said}"));
        };
        let result = tokio::select! {
            biased;
            () = line.died() => None,
            result = failover::failover(&http, &request, &stop, &mut hear) => Some(result),
        };
        stage.book.note(&format!("{name} ends: {result:?}"));
        let over = matches!(
            result,
            Some(Ok(failover::End::Done { .. }
                | failover::End::Drained
                | failover::End::Refused(Refusal::Ready { .. })))
        );
        if over {
            return Ok(());
        }
        pause(stage, name, run).await;
    }
    bail!("{name} has not failed {node} over in {RUNS} runs")
}

/// A person who gives a node back that has returned, until it is given back.
pub async fn give_back(stage: &Arc<Stage>, name: &str, node: &str) -> Result<()> {
    for run in 1..=RUNS {
        let line = Line::new(&stage.field, name);
        let http = Http::new(line.client(), stage.clock, Duration::ZERO);
        let back = async {
            failover::forget(&http, node, Giver::Owner(name), false).await?;
            nodes::undo_of(&http, node, name, false).await
        };
        let result = tokio::select! {
            biased;
            () = line.died() => None,
            result = back => Some(result),
        };
        stage.book.note(&format!("{name} gives back: {result:?}"));
        // Without an answer it is looked at again: then there is no mark of this owner any more.
        if matches!(result, Some(Ok(_))) {
            return Ok(());
        }
        pause(stage, name, RUNS + run).await;
    }
    bail!("{name} has not given {node} back in {RUNS} runs")
}

async fn pause(stage: &Stage, name: &str, run: u32) {
    let pause = draw::between(stage.seed, &[name, &run.to_string(), "again"], 1_000, 15_000);
    stage.pass(Duration::from_millis(pause)).await;
}
