//! How long guests take that are moved: what is left of the copies under way, and the line behind them.
//!
//! A move is a time in which the target is scheduled and started, the copy, and a pause until the next one has the slot. Each of these was
//! measured on guests that have moved in this drain. Where none has, copies under way whose rate is known say something.

use super::Unknown;
use super::lane::{self, Range, Stay};
use super::stretch::{Pace, Stretch};
use crate::drain::transfer::Sample;
use crate::machines::retries;

/// What the node agent said last of a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The numbers of the agent.
    pub sample: Sample,
    /// How long ago, in seconds.
    pub age: f64,
    /// How many guests of the node were copied then.
    pub beside: usize,
}

/// A guest that is still on the node.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Staying {
    /// Its memory in bytes; 0 if that is not known.
    pub memory: u64,
    /// For how long its migration has been under way, and for how long its memory has been copied, in seconds.
    pub under_way: Option<f64>,
    /// None while its target is being scheduled and started.
    pub copied_for: Option<f64>,
    /// None where no metrics of it could be read.
    pub sample: Option<Measured>,
    /// When it was last measured, it changed its memory as fast as it was copied.
    pub outran: bool,
    /// Its last move failed; it is tried again after so many seconds.
    pub again_in: Option<f64>,
}

/// A guest that has moved in this drain; seconds since some moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moved {
    /// Its memory in bytes.
    pub memory: u64,
    /// When its migration left the queue.
    pub began: f64,
    /// When its memory began to be copied.
    pub copied_since: f64,
    /// When its pod here was seen to have ended.
    pub gone: f64,
}

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
/// The end of a copy, the end of the source's pod and the news of it, before that was measured.
const FINISH: Stretch = Stretch { mean: 0.5, variance: 0.2, common: 0.0 };
/// Scheduling and starting a target, before that was measured.
const PREPARE: Stretch = Stretch { mean: 2.0, variance: 1.0, common: 0.5 };
/// Until a slot is taken again, before that was measured.
const PAUSE: Stretch = Stretch { mean: 0.3, variance: 0.25, common: 0.15 };
/// How far off the rest of a copy is that is computed from its rate: networks are shared, and guests change.
const RATE_DRIFT: f64 = 0.08;
/// How far apart copies are taken to be before that shows: guests differ in what they change meanwhile.
const COPIES_APART: f64 = 0.17;
/// Under way for so many times what was expected, and so many seconds more: something is wrong with it.
const STALLED_TIMES: f64 = 3.0;
const STALLED_SECONDS: f64 = 10.0;

/// What has happened to guests of a node so far, besides those that have moved.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Past {
    /// The guests of the node that have left it by a migration, in no particular order.
    pub moved: Vec<Moved>,
    /// When migrations left the queue, those that are under way included; in seconds since the same moment.
    pub begun: Vec<f64>,
    /// How many guests have failed to move at least once.
    pub failed: usize,
}

/// When the last guest will have left. `places` says how many can be on their way at the same time.
pub fn guests(staying: &[Staying], past: &Past, places: usize) -> Result<Option<Range>, Unknown> {
    if staying.is_empty() {
        return Ok(None);
    }
    if staying.iter().any(|guest| guest.outran) {
        return Err(Unknown::GuestOutrunsCopy);
    }
    let copies = Copies::of(staying, &past.moved)?;
    let prepare = prepare(staying, &past.moved);
    let pause = pause(past, places);
    let (mut inside, mut waiting) = (Vec::new(), Vec::new());
    let mut later: Option<Range> = None;
    let mut longest: f64 = 0.0;
    let at_once = staying.iter().filter(|guest| guest.copied_for.is_some()).count().max(1);
    let mut together = Stretch::default();
    for guest in staying {
        let sampled = guest.sample.filter(|one| ahead(&one.sample, 1.0).is_some());
        if sampled.is_none() && guest.memory as f64 > BEYOND * copies.sizes.1 {
            return Err(Unknown::NothingMeasured);
        }
        let whole = prepare.then(copies.whole(guest.memory));
        let left = match (sampled, guest.copied_for, guest.under_way) {
            (Some(measured), ..) => rest(&measured, 1.0),
            (_, Some(passed), _) => copies.whole(guest.memory).after(passed),
            (_, None, Some(passed)) => prepare.after(passed).then(copies.whole(guest.memory)),
            (_, None, None) => whole,
        };
        let stalled =
            guest.under_way.is_some_and(|passed| passed > STALLED_TIMES * whole.mean + STALLED_SECONDS);
        if stalled && sampled.is_none() {
            return Err(Unknown::Stalled);
        }
        longest = longest.max(whole.mean);
        if let Some(wait) = guest.again_in {
            let range = Range::around(Stretch::new(wait, 1.0).then(whole));
            later = Some(later.map_or(range, |known| known.joined(range)));
            continue;
        }
        let stay = Stay { gone: left, free: left.then(pause) };
        let alone = sampled.map_or(left, |measured| rest(&measured, measured.beside as f64 / at_once as f64));
        together = together.then(alone).then(pause);
        if guest.under_way.is_some() { inside.push(stay) } else { waiting.push((guest.memory, stay)) }
    }
    // The largest go first.
    waiting.sort_by_key(|(memory, _)| std::cmp::Reverse(*memory));
    let waiting: Vec<Stay> = waiting.into_iter().map(|(_, stay)| stay).collect();
    let in_turn = lane::run(&inside, &waiting, places);
    let used = places.clamp(1, (inside.len() + waiting.len()).max(1));
    let shared = if copies.is_fast() { shared(together, used).at_least } else { f64::INFINITY };
    let in_turn = in_turn.map(|range| Range { at_least: range.at_least.min(shared), ..range });
    let all = [in_turn, later].into_iter().flatten().reduce(Range::joined);
    let once_more = may_fail(past, staying.len()) * (retries::BACKOFF.pause(0).as_secs_f64() + longest);
    Ok(all.map(|range| Range { at_most: range.at_most + once_more, ..range }))
}

/// So many further failures are to be expected before the latest end counts all of one.
const MAY_FAIL: f64 = 1.0;

/// Where moves have failed, further ones may: which part of a failure the latest end has to count.
fn may_fail(past: &Past, staying: usize) -> f64 {
    let tried = past.moved.len() + past.failed;
    let expected = past.failed as f64 / tried.max(1) as f64 * staying as f64;
    (expected / MAY_FAIL).min(1.0)
}

/// When all of them are gone if they share one network: those that are left at the end have it to themselves then, and so are faster. Whether they do
/// is not known, so only the lower end can be told from it.
fn shared(together: Stretch, places: usize) -> Range {
    let places = places as f64;
    Range::around(Stretch {
        mean: together.mean / places,
        variance: together.variance / places / places,
        common: together.common / places,
    })
}

/// What is left of a copy, by its rate, if that is `faster` than it was.
fn rest(measured: &Measured, faster: f64) -> Stretch {
    let Measured { sample, age, .. } = measured;
    let pace = ahead(sample, faster.max(1.0)).unwrap_or(f64::INFINITY);
    let seconds = (sample.remaining as f64 + changed(sample)) / pace;
    Stretch::new(seconds, seconds * RATE_DRIFT).then(FINISH).after(*age)
}

/// Bytes per second by which the copy gets ahead of the guest.
fn ahead(sample: &Sample, faster: f64) -> Option<f64> {
    let rate = sample.rate.filter(|rate| *rate > 0)? as f64 * faster;
    let ahead = rate - sample.dirty_rate.unwrap_or(0) as f64;
    (ahead > 0.0).then_some(ahead)
}

/// What the guest has changed since the round of copying began, which the rest of the round does not include: bytes.
fn changed(sample: &Sample) -> f64 {
    let (Some(rate), Some(dirty)) = (sample.rate.filter(|rate| *rate > 0), sample.dirty_rate) else {
        return 0.0;
    };
    let first_round = sample.total.is_none_or(|total| sample.processed <= total);
    // How long later rounds are is not in any metric; they have been going on for half of their time, on average.
    let sent = if first_round { sample.processed } else { sample.remaining };
    sent as f64 * dirty as f64 / rate as f64
}

/// How long a target takes to be there, by those that are.
fn prepare(staying: &[Staying], moved: &[Moved]) -> Stretch {
    let under_way = staying.iter().filter_map(|guest| Some(guest.under_way? - guest.copied_for?));
    let measured: Vec<f64> = moved.iter().map(|one| one.copied_since - one.began).chain(under_way).collect();
    Pace::of(&measured).map_or(PREPARE, |pace| Stretch::new(pace.mean, pace.deviation.max(0.3)))
}

/// From one guest gone to the next one begun in its place. The slot may be free before the pod is seen to have ended, so it may be negative.
fn pause(past: &Past, places: usize) -> Stretch {
    let mut begun = past.begun.clone();
    let mut gone: Vec<f64> = past.moved.iter().map(|one| one.gone).collect();
    begun.sort_by(f64::total_cmp);
    gone.sort_by(f64::total_cmp);
    let pauses: Vec<f64> =
        begun.iter().skip(places.max(1)).zip(&gone).map(|(next, gone)| next - gone).collect();
    if pauses.is_empty() {
        return PAUSE;
    }
    let count = pauses.len() as f64;
    let mean = pauses.iter().sum::<f64>() / count;
    let squares: f64 = pauses.iter().map(|one| (one - mean).powi(2)).sum();
    let deviation = ((squares + 0.1) / count).sqrt();
    // It comes again for each that waits, so what its mean is off by adds up.
    Stretch { common: deviation / count.sqrt(), ..Stretch::new(mean, deviation) }
}

/// How long copies take, by the memory of the guest: a part that every guest takes, and a part that grows.
struct Copies {
    each: f64,
    per_byte: f64,
    /// How far off a single one is, and all of them together, as shares of what is expected.
    deviation: f64,
    drift: f64,
    /// The sizes that were measured.
    sizes: (f64, f64),
}

/// How sure it is that a copy takes the time of [`FINISH`] besides the part that grows, in measurements that say otherwise.
const SURE: f64 = 0.3;
/// How far off the time of a size is that was not measured, for each time that it is 2.7 times smaller or larger.
const GUESS: f64 = 0.1;
/// A gigabit in bytes per second, roughly.
const NETWORK: f64 = 100.0 * 1024.0 * 1024.0;
/// A guest larger by this than any that was measured may be of another kind: what it takes, and whether it can be copied at all, is not known.
const BEYOND: f64 = 1.5;

impl Copies {
    fn of(staying: &[Staying], moved: &[Moved]) -> Result<Self, Unknown> {
        let finished = moved.iter().map(|one| (one.memory as f64, one.gone - one.copied_since));
        // What they will have taken, if they go on like this.
        let under_way = staying.iter().filter(|guest| guest.memory > 0).filter_map(|guest| {
            let memory = guest.memory as f64;
            Some((memory, memory / ahead(&guest.sample?.sample, 1.0)? + FINISH.mean))
        });
        let points: Vec<(f64, f64)> = finished.chain(under_way).collect();
        if points.is_empty() { Err(Unknown::NothingMeasured) } else { Ok(Self::fitted(&points)) }
    }

    /// The two parts that fit best, by the share they are off and not by the seconds: small guests count as much as large ones.
    fn fitted(points: &[(f64, f64)]) -> Self {
        let (mut same, mut cross, mut grows) = (SURE, 0.0, 0.0);
        let (mut each_goal, mut grows_goal) = (SURE * FINISH.mean, 0.0);
        for (memory, seconds) in points {
            let seconds = seconds.max(0.1);
            let (one, bytes) = (1.0 / seconds, memory / GIB / seconds);
            same += one * one;
            cross += one * bytes;
            grows += bytes * bytes;
            each_goal += one;
            grows_goal += bytes;
        }
        let determinant = same * grows - cross * cross;
        let (mut each, mut per_gib) = (each_goal / same, 0.0);
        if determinant > 1e-12 {
            let slope = (same * grows_goal - cross * each_goal) / determinant;
            let constant = (grows * each_goal - cross * grows_goal) / determinant;
            if constant < 0.0 {
                (each, per_gib) = (0.0, grows_goal / grows);
            } else if slope > 0.0 {
                (each, per_gib) = (constant, slope);
            }
        }
        let per_byte = per_gib / GIB;
        let expected = |memory: f64| (each + per_byte * memory).max(1e-3);
        let squares: f64 = points.iter().map(|one| (one.1 / expected(one.0) - 1.0).powi(2)).sum();
        let pace = Pace::spread(1.0, squares, points.len() as f64, COPIES_APART);
        let low = points.iter().map(|one| one.0).fold(f64::INFINITY, f64::min);
        let high = points.iter().map(|one| one.0).fold(0.0, f64::max);
        Self { each, per_byte, deviation: pace.deviation, drift: pace.drift, sizes: (low, high) }
    }

    fn whole(&self, memory: u64) -> Stretch {
        let memory = memory as f64;
        let expected = self.each + self.per_byte * memory;
        // Sizes that were not measured are a guess, the more so the farther off they are.
        let (low, high) = self.sizes;
        let farther = if memory > high { memory / high.max(1.0) } else { low / memory.max(1.0) };
        let guess = if memory > 0.0 && low > 0.0 { farther.max(1.0).ln().min(2.0) * GUESS } else { 0.0 };
        let common = expected * self.drift.hypot(guess);
        Stretch { common, ..Stretch::new(expected, expected * self.deviation) }
    }

    /// Whether it can be the network that they wait for; slower ones are held back by something else, such as a limit for each of them.
    fn is_fast(&self) -> bool {
        self.per_byte > 0.0 && 1.0 / self.per_byte > NETWORK
    }
}
