//! Whether the time left that a drain tells comes true: drains of many shapes, each range beside what was left when it was told.
//!
//! Most run in simulated time, where a drain of ten minutes takes a second. A few are repeated in real time, to see that both say the same.

mod shapes;
mod stage;
mod table;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow};
use evac_clock::Clock;
use shapes::{Draw, Make, SHAPES};
use table::Row;

/// Which drains are run.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// The first seed, and how many there are of each shape.
    pub first: u64,
    pub seeds: u64,
    pub real: bool,
}

/// Shapes that end within seconds, for real time.
const QUICK: [&str; 4] = ["small guests", "pods without budgets", "a tight budget", "a loose budget"];

pub fn run(size: Size, only: Option<&str>) -> Result<()> {
    let jobs: Vec<(usize, u64)> = (0..SHAPES.len())
        .filter(|shape| only.is_none_or(|only| SHAPES[*shape].0.contains(only)))
        .filter(|shape| !size.real || QUICK.contains(&SHAPES[*shape].0))
        .flat_map(|shape| (size.first..size.first + size.seeds).map(move |seed| (shape, seed)))
        .collect();
    let next = AtomicUsize::new(0);
    let rows: Mutex<BTreeMap<usize, Row>> = Mutex::new(BTreeMap::new());
    // Real drains share the machine; each gets it alone.
    let workers = if size.real { 1 } else { std::thread::available_parallelism().map_or(2, usize::from) };
    std::thread::scope(|scope| -> Result<()> {
        let work = || -> Result<()> {
            while let Some((shape, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (name, make) = SHAPES[*shape];
                let story = one(make, *shape as u64 * 1000 + *seed, size.real)
                    .map_err(|error| error.context(format!("{name}, seed {seed}")))?;
                if std::env::var_os("EVAC_BENCH_VERBOSE").is_some() {
                    tell(name, *seed, &story);
                }
                rows.lock().map_err(|_| anyhow!("a drain panicked"))?.entry(*shape).or_default().add(&story);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a drain panicked"))??;
        }
        Ok(())
    })?;
    println!("{}", Row::head());
    let mut all = Row::default();
    for (shape, row) in rows.into_inner().map_err(|_| anyhow!("a drain panicked"))? {
        println!("{}", row.line(SHAPES[shape].0));
        all.merge(row);
    }
    println!("{}", all.line("all"));
    Ok(())
}

/// One drain on a runtime of its own: what one does must not hold up the time of another.
fn one(make: Make, seed: u64, real: bool) -> Result<stage::Story> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(!real).build()?;
    runtime.block_on(async {
        let draw = Draw { seed };
        let clock = if real { Clock::real() } else { Clock::starting_at("2026-01-01T00:00:00Z".parse()?) };
        stage::play(&make(&draw), &draw, clock).await
    })
}

/// Every range of a drain, for whoever looks for the reason of a bad one.
fn tell(name: &str, seed: u64, story: &stage::Story) {
    eprintln!("{name}, seed {seed}: {:.1} s{}", story.took, if story.drained { "" } else { ", not drained" });
    for said in &story.said {
        let left = story.took - said.at;
        eprintln!("  at {:.1}: {:?} to {:?}, was {left:.1}", said.at, said.at_least, said.at_most);
    }
}
