//! One run: a scenario, a seed and a plan of faults in; a verdict out.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use evac_world::aftermath;

use crate::book::Closed;
use crate::plan::Plan;
use crate::scenario::{BOUND, Play, Scenario, WINDOW};
use crate::stage::Stage;

/// After the end: how long nothing may happen.
const QUIET: Duration = Duration::from_secs(120);
/// Writes of evac in that time, apart from leases and events, that are not yet taken for swinging to and fro.
const STIRRINGS: u64 = 6;
/// How often it is looked whether everything is right.
const LOOK: Duration = Duration::from_secs(5);

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub scenario: &'static str,
    pub seed: u64,
    pub plan: Plan,
    pub log: Closed,
    /// Virtual time.
    pub simulated: Duration,
    /// From the end of the faults until everything was right.
    pub settled: Option<Duration>,
}

impl Verdict {
    pub fn is_clean(&self) -> bool {
        self.log.violations.is_empty()
    }
}

/// Runs a scenario. With `trace` the log is kept for people.
pub fn run(scenario: Scenario, seed: u64, plan: &Plan, trace: bool) -> Result<Verdict> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let began = tokio::time::Instant::now();
        let mut told = (scenario.make)();
        let stage = Stage::set(seed, plan.clone(), &told.cast(), trace).await?;
        let settled = story(&stage, &mut *told).await?;
        stage.look().await;
        stage.over.cancel();
        let simulated = began.elapsed();
        Ok(Verdict {
            scenario: scenario.name,
            seed,
            plan: plan.clone(),
            log: stage.book.close(),
            simulated,
            settled,
        })
    })
}

async fn story(stage: &Arc<Stage>, play: &mut dyn Play) -> Result<Option<Duration>> {
    let cast = play.cast();
    for number in 1..=cast.operators {
        crate::process::operator(stage, &format!("operator-{number}"), &cast);
    }
    play.furnish(stage).await?;
    stage.field.begin();
    let began = tokio::time::Instant::now();
    let ending = tokio::spawn({
        let stage = stage.clone();
        async move {
            stage.pass(WINDOW).await;
            stage.field.end();
        }
    });
    if stage.field.plan.people {
        crate::scenario::people::begin(stage, cast.nodes);
    }
    if stage.field.plan.compacts {
        crate::scenario::upheaval::compact(stage);
    }
    if stage.field.plan.flaps && !cast.cuts {
        crate::scenario::upheaval::flap(stage, cast.nodes);
    }
    match tokio::time::timeout(WINDOW + BOUND, play.act(stage)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => stage.book.violate("end", format!("what people do came to nothing: {error:#}")),
        Err(_) => stage.book.violate("end", "it did not come to an end".into()),
    }
    ending.await?;
    let settled = settle(stage, play, began + WINDOW).await?;
    rest(stage, play, cast.operators > 0).await?;
    Ok(settled)
}

/// Waits until everything is right, for no longer than the bound.
async fn settle(stage: &Arc<Stage>, play: &dyn Play, calm: tokio::time::Instant) -> Result<Option<Duration>> {
    let mut right = 0;
    loop {
        stage.look().await;
        let wrong = play.wrong(stage).await?;
        right = if wrong.is_empty() { right + 1 } else { 0 };
        // Once may be by chance, between two steps that undo each other.
        if right == 2 {
            return Ok(Some(calm.elapsed()));
        }
        if calm.elapsed() > BOUND {
            for words in wrong {
                stage.book.violate("end", words);
            }
            return Ok(None);
        }
        stage.pass(LOOK).await;
    }
}

/// What is right stays right, nothing swings to and fro, and what is said is true.
async fn rest(stage: &Arc<Stage>, play: &dyn Play, machines: bool) -> Result<()> {
    let before = stage.book.stirrings();
    stage.pass(QUIET).await;
    let stirrings = stage.book.stirrings() - before;
    if stirrings > STIRRINGS {
        stage
            .book
            .violate("rest", format!("{stirrings} writes in {} s in which nothing happens", QUIET.as_secs()));
    }
    for words in play.wrong(stage).await? {
        stage.book.violate("rest", words);
    }
    if machines {
        let wrong = aftermath::at_rest(&stage.world, stage.person().client(), stage.clock, QUIET).await?;
        for words in wrong {
            stage.book.violate("said", words);
        }
    }
    Ok(())
}
