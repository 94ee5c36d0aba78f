//! `evac-sim`: runs scenarios under faults, and replays one of them so that a person can read what happened.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Parser, Subcommand};
use evac_sim::mode::{self, Found, Mode};
use evac_sim::mutant::Bug;
use evac_sim::plan::{Plan, Point};
use evac_sim::run::{Verdict, run};
use evac_sim::scenario::{self, Scenario, WINDOW};
use evac_sim::tally::Tally;
use evac_sim::{explore, fuzz};

/// Deterministic fault simulation of a cluster with evac in it
#[derive(Parser)]
#[command(name = "evac-sim")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run scenarios for many seeds
    Run {
        /// Its name, or `all`
        #[arg(long, default_value = "all")]
        scenario: String,
        /// The first and the one after the last, such as 1..1001
        #[arg(long, default_value = "1..101", value_parser = seeds)]
        seeds: Range<u64>,
        /// storm, single, crash, pairs or calm
        #[arg(long, default_value = "storm", conflicts_with = "faults")]
        mode: Mode,
        /// A file of faults for every seed, instead of a mode
        #[arg(long)]
        faults: Option<PathBuf>,
        /// Runs at the same time
        #[arg(long)]
        jobs: Option<usize>,
        /// Run each seed twice, and compare the logs
        #[arg(long)]
        twice: bool,
        /// Go on after this many failures
        #[arg(long, default_value_t = 5)]
        failures: u64,
    },
    /// Run one seed again and print what happened
    Replay {
        seed: u64,
        #[arg(long)]
        scenario: String,
        /// Faults at requests, such as lost@operator-1#17, instead of those of the seed's storm
        #[arg(long, value_delimiter = ',')]
        at: Option<Vec<Point>>,
        /// With --at: how far clocks are off, at most, in seconds
        #[arg(long, default_value_t = 0)]
        skew: u64,
        /// With --at: what happens besides: people, compacts, flaps
        #[arg(long, value_delimiter = ',')]
        besides: Vec<String>,
        /// With this bug planted between evac and the server
        #[arg(long)]
        bug: Option<Bug>,
        /// Find the fewest faults that are needed first
        #[arg(long)]
        minimise: bool,
    },
    /// Look for bugs that are planted between evac and the server
    Mutants {
        #[arg(long, default_value = "1..21", value_parser = seeds)]
        seeds: Range<u64>,
        /// Only this one
        #[arg(long)]
        bug: Option<Bug>,
        #[arg(long)]
        jobs: Option<usize>,
        /// Write the table into this file, between its marks
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Explore the protocols that are small enough for it completely, and with each bug that they could have
    Explore {
        /// Only this one
        #[arg(long)]
        protocol: Option<String>,
        /// Only with this bug, and tell the history that breaks something
        #[arg(long, requires = "protocol")]
        flaw: Option<String>,
    },
    /// Try texts of others: the corpora, and mutations of them
    Fuzz {
        /// Only this target
        #[arg(long)]
        target: Option<String>,
        /// For each target
        #[arg(long, default_value_t = 100_000)]
        mutations: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// The scenarios
    List,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("'{text}' is no range of seeds such as 1..101");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let range = from.parse().map_err(|_| wrong())?..to.parse().map_err(|_| wrong())?;
    if range.is_empty() { Err(format!("the range {text} has no seed in it")) } else { Ok(range) }
}

fn main() -> ExitCode {
    match work(Args::parse().what) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(what: What) -> Result<bool> {
    match what {
        What::List => {
            for one in scenario::ALL {
                println!("{:<20} {}", one.name, one.about);
            }
            Ok(true)
        }
        What::Mutants { seeds, bug, jobs, write } => mutants(&seeds, bug, threads(jobs), write.as_deref()),
        What::Run { scenario, seeds, mode, faults, jobs, twice, failures } => {
            let mode = match faults {
                Some(path) => Mode::Given(given(&path)?),
                None => mode,
            };
            let threads = threads(jobs);
            let mut all = Tally::default();
            for scenario in chosen(&scenario)? {
                let jobs = mode::jobs(scenario, &mode, seeds.clone())?;
                let failed = std::sync::atomic::AtomicU64::new(0);
                let tally = mode::carry_out(jobs, threads, |verdict| {
                    let same = !twice || is_same(scenario, verdict);
                    if verdict.is_clean() && same {
                        return true;
                    }
                    tell(scenario, verdict);
                    failed.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1 < failures
                })?;
                println!("{:<20} {tally}", scenario.name);
                all.merge(&tally);
                all.failed = all.failed.max(failed.into_inner());
            }
            println!("{:<20} seeds {}..{} {all}", "all", seeds.start, seeds.end);
            Ok(all.failed == 0)
        }
        What::Fuzz { target, mutations, seed } => tried(target.as_deref(), mutations, seed),
        What::Explore { protocol, flaw } => explore::tell(protocol.as_deref(), flaw.as_deref()),
        What::Replay { seed, scenario, at, skew, besides, bug, minimise } => {
            let [scenario] = chosen(&scenario)?[..] else { bail!("one scenario is replayed at a time") };
            let mut plan = match at {
                Some(points) => {
                    let besides = Plan::read(&besides.join("\n")).map_err(|why| anyhow!(why))?;
                    Plan { points, skew, ..besides }
                }
                None => Plan::storm(seed, WINDOW),
            };
            plan.bug = bug;
            if minimise {
                let found = run(scenario, seed, &plan, false)?;
                plan = mode::minimise(scenario, &found, 400)?.plan;
            }
            let verdict = run(scenario, seed, &plan, true)?;
            for line in &verdict.log.trace {
                println!("{line}");
            }
            println!("{}", command(&verdict));
            println!("log {}", verdict.log.hash);
            for one in &verdict.log.violations {
                println!("{:>9.3} {}: {}", one.at as f64 / 1000.0, one.rule, one.words);
            }
            Ok(verdict.is_clean())
        }
    }
}

fn tried(target: Option<&str>, mutations: u64, seed: u64) -> Result<bool> {
    let wanted: Vec<&fuzz::Target> = match target {
        Some(name) => vec![fuzz::named(name).ok_or_else(|| {
            let names: Vec<&str> = fuzz::ALL.iter().map(|one| one.name).collect();
            anyhow!("there is no target '{name}'; there are {}", names.join(", "))
        })?],
        None => const { &fuzz::ALL }.iter().collect(),
    };
    let mut clean = true;
    for target in wanted {
        match target.run(mutations, seed) {
            Ok(count) => println!("{:<12} {count} texts, nothing is wrong", target.name),
            Err(wrong) => {
                clean = false;
                println!("{wrong}");
            }
        }
    }
    Ok(clean)
}

fn threads(jobs: Option<usize>) -> usize {
    jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn given(path: &Path) -> Result<Plan> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    Plan::read(&text).map_err(|why| anyhow!("{}, {why}", path.display()))
}

const BEGIN: &str = "<!-- planted bugs, written by evac-sim mutants -->\n";
const END: &str = "<!-- end of planted bugs -->\n";

fn mutants(seeds: &Range<u64>, only: Option<Bug>, threads: usize, write: Option<&Path>) -> Result<bool> {
    let all = mode::hunt_all(only, seeds, threads)?;
    let mut table = String::from("| planted bug | breaks | found by |\n|---|---|---|\n");
    for (planted, found) in &all {
        let by = match found {
            Some(Found { scenario, seed, in_storm, rule }) => {
                let how = if *in_storm { "storm" } else { "no fault" };
                format!("{rule} in `{scenario}`, seed {seed}, {how}")
            }
            None => format!("not found with {} seeds", seeds.end - seeds.start),
        };
        // Writing into a text cannot fail.
        let _ = writeln!(table, "| {} | {} | {by} |", planted.words, planted.breaks);
    }
    let hits = all.iter().filter(|(_, found)| found.is_some()).count();
    let count = seeds.end - seeds.start;
    let _ = writeln!(table, "\nFound: {hits} of {}, with at most {count} seeds each.", all.len());
    println!("{table}");
    if let Some(path) = write {
        let text = std::fs::read_to_string(path)?;
        let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
        let Some((before, after)) = parts else { bail!("{} has no place for the table", path.display()) };
        std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}"))?;
    }
    Ok(hits == all.len())
}

fn chosen(name: &str) -> Result<Vec<Scenario>> {
    if name == "all" {
        return Ok(scenario::ALL.to_vec());
    }
    match scenario::named(name) {
        Some(found) => Ok(vec![found]),
        None => bail!("there is no scenario '{name}'; `evac-sim list` has all of them"),
    }
}

fn is_same(scenario: Scenario, verdict: &Verdict) -> bool {
    match run(scenario, verdict.seed, &verdict.plan, false) {
        Ok(again) if again.log.hash == verdict.log.hash => true,
        Ok(again) => {
            println!(
                "{} seed {}: the log is {} and then {}",
                scenario.name, verdict.seed, verdict.log.hash, again.log.hash
            );
            false
        }
        Err(error) => {
            println!("{} seed {}: {error:#}", scenario.name, verdict.seed);
            false
        }
    }
}

/// A failed run: what is wrong, and the command that shows it.
fn tell(scenario: Scenario, verdict: &Verdict) {
    for one in verdict.log.violations.iter().take(6) {
        println!(
            "{} seed {}: {:.3} {}: {}",
            scenario.name,
            verdict.seed,
            one.at as f64 / 1000.0,
            one.rule,
            one.words
        );
    }
    println!("  {}", command(verdict));
}

fn command(verdict: &Verdict) -> String {
    let plan = &verdict.plan;
    let mut words = format!("evac-sim replay --scenario {} {}", verdict.scenario, verdict.seed);
    if plan.storms.is_empty() {
        let points: Vec<String> = plan.points.iter().map(ToString::to_string).collect();
        let _ = write!(words, " --at '{}'", points.join(","));
        if plan.skew > 0 {
            let _ = write!(words, " --skew {}", plan.skew);
        }
        let besides = [("people", plan.people), ("compacts", plan.compacts), ("flaps", plan.flaps)];
        let besides: Vec<&str> =
            besides.into_iter().filter(|(_, there)| *there).map(|(word, _)| word).collect();
        if !besides.is_empty() {
            let _ = write!(words, " --besides {}", besides.join(","));
        }
    }
    if let Some(bug) = plan.bug {
        let _ = write!(words, " --bug {bug}");
    }
    words
}
