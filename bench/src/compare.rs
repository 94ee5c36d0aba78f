//! Two evac programs beside each other: does a change make anything slower?
//!
//! The benches of drains and maintenances, without their peers: the old and the new program do the same work on the same real
//! API server by turns, and a round is one turn of each. What is compared is the ratio within a round, because a machine that is shared
//! changes its pace from minute to minute. Only flags that both know are used; kinds are installed by the new one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::report::{median, spread_to};
use crate::{drain, maintenance};

/// How many bare evictions are under way at once in the floor; of the widths that the drain bench tries, the best or close to it.
const FLOOR_WIDTH: usize = 32;

/// The kinds of work that can be chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Drain,
    Maintenance,
}

impl Work {
    const ALL: [Self; 2] = [Self::Drain, Self::Maintenance];

    fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "drain" => Self::Drain,
            "maintenance" => Self::Maintenance,
            other => bail!("there is no {other:?} to compare; choose drain or maintenance"),
        })
    }
}

/// Which of the two programs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Old,
    New,
}

struct Programs {
    kubernetes: PathBuf,
    old: PathBuf,
    new: PathBuf,
}

impl Programs {
    fn of(&self, side: Side) -> &Path {
        match side {
            Side::Old => &self.old,
            Side::New => &self.new,
        }
    }
}

/// One turn of one program.
struct Turn {
    seconds: f64,
    requests: f64,
    /// CPU time of the program (a drain) or of the operator (maintenances).
    cpu_ms: f64,
}

/// All turns of a case.
#[derive(Default)]
struct Turns {
    floors: Vec<f64>,
    old: Vec<Turn>,
    new: Vec<Turn>,
}

impl Turns {
    fn push(&mut self, side: Side, turn: Turn) {
        match side {
            Side::Old => self.old.push(turn),
            Side::New => self.new.push(turn),
        }
    }
}

/// `OLD_BINARY [--rounds N] [--only drain|maintenance]…`
pub async fn run(words: &[&str]) -> Result<()> {
    let [old, options @ ..] = words else { bail!("which program is the old one? compare OLD_BINARY") };
    let (mut rounds, mut chosen) = (3, Vec::new());
    for pair in options.chunks(2) {
        match pair {
            ["--rounds", number] => rounds = number.parse().context("--rounds takes a number")?,
            ["--only", name] => chosen.push(Work::named(name)?),
            other => bail!("compare knows --rounds N and --only CASE, not {other:?}"),
        }
    }
    let program = |name: &str| -> Result<PathBuf> {
        Ok(std::env::var_os(name).with_context(|| format!("{name} is not set; use bench/run.sh"))?.into())
    };
    let programs =
        Programs { kubernetes: program("EVAC_KUBERNETES")?, old: old.into(), new: program("EVAC")? };
    println!(
        "| case | floor, s | old, s | new, s | new ÷ old, medians | new ÷ old, by rounds | mean of rounds, 95 % | requests, old / new | CPU, ms, old / new |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for work in Work::ALL.into_iter().filter(|work| chosen.is_empty() || chosen.contains(work)) {
        match work {
            Work::Drain => drains(&programs, rounds).await?,
            Work::Maintenance => maintenances(&programs, rounds).await?,
        }
    }
    Ok(())
}

/// Whose turn is first in a round. The work leaves for the other nodes in each turn, and a round has three with the floor, so the order changes
/// with every second round: each program works in each direction, and is first as often as second.
fn order(round: usize) -> [Side; 2] {
    if round / 2 % 2 == 1 { [Side::New, Side::Old] } else { [Side::Old, Side::New] }
}

async fn drains(programs: &Programs, rounds: usize) -> Result<()> {
    let tool =
        |side| drain::Tool { name: "evac drain", program: programs.of(side).to_owned(), agent: "evac/" };
    for case in drain::CASES {
        let stage = drain::Stage::set(&programs.kubernetes, case).await?;
        let mut turns = Turns::default();
        for round in 0..rounds {
            let floors = stage.floors(case, &[FLOOR_WIDTH]).await?;
            turns.floors.extend(floors.iter().map(|(_, seconds)| seconds));
            for side in order(round) {
                let measured = stage.drain(&tool(side), case).await?;
                let cpu_ms = measured.cpu.as_secs_f64() * 1000.0;
                let turn = Turn { seconds: measured.seconds, requests: measured.requests, cpu_ms };
                turns.push(side, turn);
            }
        }
        stage.strike().await;
        report(case.name, &turns);
    }
    Ok(())
}

async fn maintenances(programs: &Programs, rounds: usize) -> Result<()> {
    let stage = maintenance::Stage::set(&programs.kubernetes).await?;
    stage.operate(&programs.new).await?.stop().await?;
    for owner in maintenance::OWNERS {
        let mut turns = Turns::default();
        for round in 0..rounds {
            turns.floors.push(stage.bare(owner).await?);
            for side in order(round) {
                let operator = stage.operate(programs.of(side)).await?;
                let used = operator.cpu()?;
                let measured = stage.maintain(owner).await?;
                let cpu_ms = operator.cpu()?.saturating_sub(used).as_secs_f64() * 1000.0;
                operator.stop().await?;
                turns.push(side, Turn { seconds: measured.empty, requests: measured.requests, cpu_ms });
            }
        }
        report(&format!("20 maintenances, {}", owner.words()), &turns);
    }
    stage.strike().await;
    Ok(())
}

fn report(case: &str, turns: &Turns) {
    let all = |turns: &[Turn], part: fn(&Turn) -> f64| -> Vec<f64> { turns.iter().map(part).collect() };
    let (old, new) = (all(&turns.old, |turn| turn.seconds), all(&turns.new, |turn| turn.seconds));
    let ratios: Vec<f64> = new.iter().zip(&old).map(|(new, old)| new / old).collect();
    let of = |part: fn(&Turn) -> f64, middle: fn(&[f64]) -> f64| -> String {
        format!("{:.0} / {:.0}", middle(&all(&turns.old, part)), middle(&all(&turns.new, part)))
    };
    println!(
        "| {case} | {:.2} | {} | {} | {:.3} | {} | {:.3} ± {:.3} | {} | {} |",
        median(&turns.floors),
        spread_to(&old, 2),
        spread_to(&new, 2),
        median(&new) / median(&old),
        spread_to(&ratios, 3),
        mean(&ratios),
        uncertainty(&ratios),
        of(|turn| turn.requests, median),
        // CPU time is told in steps of 10 ms, so its mean says more than its median.
        of(|turn| turn.cpu_ms, mean),
    );
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Half the width of the range that holds the true mean nineteen times of twenty, by Student's distribution.
fn uncertainty(values: &[f64]) -> f64 {
    const STUDENT: [f64; 12] =
        [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179];
    let Some(free) = values.len().checked_sub(2) else { return f64::NAN };
    let (count, middle) = (values.len() as f64, mean(values));
    let variance = values.iter().map(|value| (value - middle).powi(2)).sum::<f64>() / (count - 1.0);
    STUDENT.get(free).copied().unwrap_or(2.1) * (variance / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_works_in_each_direction_and_is_first_as_often_as_second() {
        let (mut moves, mut seen) = (0, Vec::new());
        for round in 0..4 {
            // The floor's.
            moves += 1;
            for (place, side) in order(round).into_iter().enumerate() {
                seen.push((side == Side::New, moves % 2, place));
                moves += 1;
            }
        }
        for new in [false, true] {
            let count = |wanted: fn(&(bool, usize, usize)) -> bool| {
                seen.iter().filter(|one| one.0 == new && wanted(one)).count()
            };
            assert_eq!(count(|one| one.1 == 0), 2, "as often from the first nodes as from the others");
            assert_eq!(count(|one| one.2 == 0), 2, "as often first as second");
        }
    }

    #[test]
    fn the_range_of_a_mean_is_students() {
        let half = uncertainty(&[0.9, 1.0, 1.1]);
        assert!((half - 4.303 * 0.1 / 3.0_f64.sqrt()).abs() < 1e-9, "{half}");
        assert!(uncertainty(&[1.0]).is_nan(), "one round says nothing about the next");
    }
}
