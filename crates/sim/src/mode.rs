//! Which runs are made of a scenario: storms, one fault at every request, crashes around every write, pairs of faults, and the hunt for planted bugs.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::book::{Asked, Class};
use crate::draw;
use crate::fault::{ALL, Kind};
use crate::mutant::{self, Bug, Planted};
use crate::plan::{Plan, Point};
use crate::run::{Verdict, run};
use crate::scenario::{Scenario, WINDOW, named};
use crate::tally::Tally;

#[derive(Debug, Clone, PartialEq)]
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
    /// The same faults for each seed.
    Given(Plan),
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
pub fn jobs(scenario: Scenario, mode: &Mode, seeds: Range<u64>) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for seed in seeds {
        let job = |plan| Job { scenario, seed, plan };
        match mode {
            Mode::Calm => jobs.push(job(Plan::default())),
            Mode::Given(plan) => jobs.push(job(plan.clone())),
            Mode::Storm => jobs.push(job(Plan::storm(seed, WINDOW))),
            Mode::Single | Mode::Crash => {
                let points = points(&asked(scenario, seed)?, *mode == Mode::Crash);
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
    on_threads(threads, work)?;
    let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.wall = Duration::try_from(evac_clock::time_of_day().duration_since(began)).unwrap_or_default();
    Ok(tally)
}

/// The fewest of the faults that happened in a run with which the same rule is still broken.
pub fn minimise(scenario: Scenario, verdict: &Verdict, most: usize) -> Result<Verdict> {
    let broken = |verdict: &Verdict| verdict.log.violations.first().map(|one| one.rule);
    let wanted = broken(verdict);
    let mut tries = 0;
    let mut attempt = |plan: Plan| -> Result<Option<Verdict>> {
        tries += 1;
        let found = if tries > most { None } else { Some(run(scenario, verdict.seed, &plan, false)?) };
        Ok(found.filter(|found| broken(found) == wanted))
    };
    let points = verdict.log.activated.clone();
    let points = Plan { points, storms: Vec::new(), ..verdict.plan.clone() };
    let Some(mut least) = attempt(points)? else { return Ok(verdict.clone()) };
    // What happens besides is needed seldom.
    let calmer: [fn(&mut Plan); 4] = [
        |plan| plan.people = false,
        |plan| plan.compacts = false,
        |plan| plan.flaps = false,
        |plan| plan.skew = 0,
    ];
    for change in calmer {
        let mut plan = least.plan.clone();
        change(&mut plan);
        if plan != least.plan
            && let Some(found) = attempt(plan)?
        {
            least = found;
        }
    }
    let mut chunk = least.plan.points.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < least.plan.points.len() {
            let mut points = least.plan.points.clone();
            points.drain(at..(at + chunk).min(points.len()));
            match attempt(Plan { points, ..least.plan.clone() })? {
                Some(found) => least = found,
                None => at += chunk,
            }
        }
        chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
    }
    Ok(least)
}

/// Where a planted bug was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub scenario: &'static str,
    pub seed: u64,
    /// It took faults to find it.
    pub in_storm: bool,
    pub rule: &'static str,
}

/// Looks for the effects of a planted bug: for each seed first without faults, then in a storm.
pub fn hunt(planted: &Planted, seeds: Range<u64>) -> Result<Option<Found>> {
    for seed in seeds {
        for name in planted.scenarios {
            let scenario = named(name).ok_or_else(|| anyhow!("there is no scenario {name}"))?;
            for in_storm in [false, true] {
                let plan = if in_storm { Plan::storm(seed, WINDOW) } else { Plan::default() };
                let plan = Plan { bug: Some(planted.bug), ..plan };
                let verdict = run(scenario, seed, &plan, false)?;
                if let Some(violation) = verdict.log.violations.first() {
                    return Ok(Some(Found { scenario: name, seed, in_storm, rule: violation.rule }));
                }
            }
        }
    }
    Ok(None)
}

/// Hunts all planted bugs, or one, on so many threads; in the order of the list.
pub fn hunt_all(
    only: Option<Bug>,
    seeds: &Range<u64>,
    threads: usize,
) -> Result<Vec<(&'static Planted, Option<Found>)>> {
    let wanted: Vec<&'static Planted> =
        mutant::ALL.iter().filter(|one| only.is_none_or(|only| one.bug == only)).collect();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeMap::new());
    let work = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(planted) = wanted.get(number) else { return Ok(()) };
            let result = hunt(planted, seeds.clone())?;
            found.lock().unwrap_or_else(PoisonError::into_inner).insert(number, (*planted, result));
        }
    };
    on_threads(threads, work)?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect())
}

fn on_threads(count: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..count.max(1)).map(|_| scope.spawn(&work)).collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a run panicked"))??;
        }
        Ok(())
    })
}
