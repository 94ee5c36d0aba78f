//! Which runs are made of a scenario: storms, one fault at every request, crashes around every write, and pairs of faults.

use std::collections::VecDeque;
use std::ops::Range;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::book::{Asked, Class};
use crate::draw;
use crate::fault::{ALL, Kind};
use crate::plan::{Plan, Point};
use crate::run::{Verdict, run};
use crate::scenario::{Scenario, WINDOW};
use crate::tally::Tally;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Faults at random, for each seed others.
    Storm,
    /// Every fault at every request that it fits.
    Single,
    /// A crash before and after every write, and before every read.
    Crash,
    /// Two faults at random places, for each seed others.
    Pairs,
    /// No fault at all: only another order of things.
    Calm,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "storm" => Ok(Self::Storm),
            "single" => Ok(Self::Single),
            "crash" => Ok(Self::Crash),
            "pairs" => Ok(Self::Pairs),
            "calm" => Ok(Self::Calm),
            _ => Err(format!("there is no mode '{text}'; there are storm, single, crash, pairs and calm")),
        }
    }
}

/// A run to be made.
#[derive(Debug, Clone)]
pub struct Job {
    pub scenario: Scenario,
    pub seed: u64,
    pub plan: Plan,
}

/// The runs of a scenario for these seeds. A sweep first runs once without faults, to see which requests there are.
pub fn jobs(scenario: Scenario, mode: Mode, seeds: Range<u64>) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for seed in seeds {
        let job = |plan| Job { scenario, seed, plan };
        match mode {
            Mode::Calm => jobs.push(job(Plan::default())),
            Mode::Storm => jobs.push(job(Plan::storm(seed, WINDOW))),
            Mode::Single | Mode::Crash => {
                let points = points(&asked(scenario, seed)?, mode == Mode::Crash);
                jobs.extend(points.into_iter().map(|point| job(Plan::at_points(vec![point]))));
            }
            Mode::Pairs => {
                let points = points(&asked(scenario, seed)?, false);
                let one = |what: &str| draw::one_of(seed, &["pairs", what], &points).cloned();
                jobs.push(job(Plan::at_points(one("first").into_iter().chain(one("second")).collect())));
            }
        }
    }
    Ok(jobs)
}

/// The requests of a run without faults.
fn asked(scenario: Scenario, seed: u64) -> Result<Vec<Asked>> {
    let verdict = run(scenario, seed, &Plan::default(), false)?;
    if let Some(violation) = verdict.log.violations.first() {
        return Err(anyhow!(
            "{} with seed {seed} is wrong without any fault: {}",
            scenario.name,
            violation.words
        ));
    }
    Ok(verdict.log.asked)
}

fn points(asked: &[Asked], crashes: bool) -> Vec<Point> {
    let mut points = Vec::new();
    for one in asked {
        for kind in ALL {
            let wanted = !crashes || matches!(kind, Kind::DiesBefore | Kind::DiesAfter);
            if wanted && kind.fits(one.class) && (one.class != Class::Read || kind != Kind::Broken) {
                points.push(Point { actor: one.actor.clone(), request: one.number, kind });
            }
        }
    }
    points
}

/// Makes all runs, on so many threads, and tells each verdict. Stops early when `failed` says so.
pub fn carry_out(jobs: Vec<Job>, threads: usize, tell: impl Fn(&Verdict) -> bool + Sync) -> Result<Tally> {
    let began = evac_clock::time_of_day();
    let queue = Mutex::new(VecDeque::from(jobs));
    let tally = Mutex::new(Tally::default());
    let work = || -> Result<()> {
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(Job { scenario, seed, plan }) = next else { return Ok(()) };
            let verdict = run(scenario, seed, &plan, false)?;
            tally.lock().unwrap_or_else(PoisonError::into_inner).add(&verdict);
            if !tell(&verdict) {
                queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a run panicked"))??;
        }
        Ok(())
    })?;
    let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.wall = Duration::try_from(evac_clock::time_of_day().duration_since(began)).unwrap_or_default();
    Ok(tally)
}

/// The fewest of the faults that happened in a run with which the same rule is still broken.
pub fn minimise(scenario: Scenario, verdict: &Verdict, most: usize) -> Result<Verdict> {
    let broken = |verdict: &Verdict| verdict.log.violations.first().map(|one| one.rule);
    let wanted = broken(verdict);
    let mut tries = 0;
    let mut attempt = |points: Vec<Point>| -> Result<Option<Verdict>> {
        tries += 1;
        let plan = Plan { points, storms: Vec::new(), ..verdict.plan.clone() };
        let tried = if tries > most { None } else { Some(run(scenario, verdict.seed, &plan, false)?) };
        Ok(tried.filter(|tried| broken(tried) == wanted))
    };
    let Some(mut least) = attempt(verdict.log.activated.clone())? else { return Ok(verdict.clone()) };
    let mut chunk = least.plan.points.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < least.plan.points.len() {
            let mut points = least.plan.points.clone();
            points.drain(at..(at + chunk).min(points.len()));
            match attempt(points)? {
                Some(found) => least = found,
                None => at += chunk,
            }
        }
        chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
    }
    Ok(least)
}
