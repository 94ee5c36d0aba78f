//! Ranges that hold, that become narrower, that do not jump, and that are not told where nothing is known.

use std::time::Duration;

use super::guests::{Measured, Moved, Past, Staying, guests};
use super::lane::Range;
use super::pods::{Budgeted, Gone, Stopping, budgeted, stopping};
use super::*;
use crate::drain::transfer::Sample;
use crate::testing::at;

const MIB: u64 = 1 << 20;

fn covers(range: Range, seconds: f64) -> bool {
    range.at_least <= seconds && seconds <= range.at_most
}

/// Guests of 128 MiB on two places, one after the other: `prepare` and `copy` seconds each, and `pause` until the next one begins.
fn moved_in_pairs(count: usize, prepare: f64, copy: f64, pause: f64) -> Past {
    let mut past = Past::default();
    for number in 0..count {
        let began = (number / 2) as f64 * (prepare + copy + pause);
        past.begun.push(began);
        past.moved.push(Moved {
            memory: 128 * MIB,
            began,
            copied_since: began + prepare,
            gone: began + prepare + copy,
        });
    }
    past
}

fn waiting(memory: u64) -> Staying {
    Staying { memory: memory * MIB, ..Staying::default() }
}

fn copied(memory: u64, remaining: u64, rate: u64, dirty: u64) -> Staying {
    let sample = Sample {
        at: None,
        processed: (memory - remaining) * MIB,
        remaining: remaining * MIB,
        total: Some(memory * MIB),
        rate: Some(rate * MIB),
        dirty_rate: Some(dirty * MIB),
    };
    Staying {
        memory: memory * MIB,
        under_way: Some(3.0),
        copied_for: Some(2.0),
        sample: Some(Measured { sample, age: 0.0, beside: 1 }),
        outran: dirty >= rate,
        again_in: None,
    }
}

fn of_guests(staying: &[Staying], past: &Past, places: usize) -> Range {
    guests(staying, past, places).unwrap().unwrap()
}

#[test]
fn what_passes_between_two_copies_is_part_of_the_time() {
    // 20 guests on two places take ten times 1 s for the target, 0.2 s for the copy and 0.5 s until the next begins.
    let past = moved_in_pairs(10, 1.0, 0.2, 0.5);
    let range = of_guests(&[waiting(128); 20], &past, 2);
    assert!(covers(range, 16.5), "{range:?}");
    assert!(range.at_least > 11.0, "{range:?}, copies alone would take 2 s");
    let without = of_guests(&[waiting(128); 20], &moved_in_pairs(10, 1.0, 0.2, 0.0), 2);
    assert!(without.at_most < range.at_most, "{without:?}");
}

#[test]
fn more_slots_take_less_time_and_more_measurements_make_a_narrower_range() {
    let range = |measured: usize, places: usize| {
        of_guests(&[waiting(128); 20], &moved_in_pairs(measured, 1.0, 4.0, 0.1), places)
    };
    assert!(range(6, 4).at_most < range(6, 2).at_most);
    let width = |range: Range| range.at_most - range.at_least;
    assert!(width(range(20, 2)) < width(range(4, 2)), "{:?} {:?}", range(20, 2), range(4, 2));
    assert!(covers(range(20, 2), 51.0), "{:?}", range(20, 2));
}

#[test]
fn a_larger_guest_takes_longer_and_the_rest_of_a_copy_is_by_its_rate() {
    let past = moved_in_pairs(4, 1.0, 10.0, 0.0);
    let double = of_guests(&[waiting(128), waiting(180)], &past, 2);
    let same = of_guests(&[waiting(128); 2], &past, 2);
    assert!(double.at_most > same.at_most + 2.0, "{double:?} {same:?}");
    // 500 MiB at 100 MiB/s, of which the guest changes 50 again, and half of that was changed already.
    let range = of_guests(&[copied(1000, 500, 100, 50)], &Past::default(), 2);
    assert!(covers(range, 16.0) && !covers(range, 8.0) && !covers(range, 25.0), "{range:?}");
}

#[test]
fn nothing_is_said_of_guests_before_one_was_measured_or_of_one_that_outruns_its_copy() {
    let nothing = guests(&[waiting(100)], &Past::default(), 2);
    assert_eq!(nothing, Err(Unknown::NothingMeasured));
    let past = moved_in_pairs(6, 1.0, 1.0, 0.0);
    assert!(guests(&[waiting(128)], &past, 2).is_ok());
    assert_eq!(guests(&[waiting(2000)], &past, 2), Err(Unknown::NothingMeasured), "none was as large");
    let outruns = [waiting(128), copied(128, 100, 50, 50)];
    assert_eq!(guests(&outruns, &past, 2), Err(Unknown::GuestOutrunsCopy));
    let hangs = Staying { under_way: Some(60.0), copied_for: Some(59.0), ..waiting(128) };
    assert_eq!(guests(&[hangs], &past, 2), Err(Unknown::Stalled));
    assert_eq!(guests(&[], &past, 2), Ok(None));
}

#[test]
fn a_move_that_is_tried_again_is_waited_for_and_others_may_fail_as_well() {
    let past = moved_in_pairs(8, 1.0, 4.0, 0.0);
    let again = of_guests(&[Staying { again_in: Some(18.0), ..waiting(128) }], &past, 2);
    assert!(covers(again, 23.0) && again.at_least > 15.0, "{again:?}");
    let calm = of_guests(&[waiting(128); 6], &past, 2);
    let troubled = of_guests(&[waiting(128); 6], &Past { failed: 2, ..past }, 2);
    assert!(troubled.at_most > calm.at_most + 20.0, "{troubled:?} {calm:?}");
}

/// Pods of a budget that left one after the other, `cycle` seconds apart, the last of them `since` seconds ago.
fn in_turn(places: usize, left: usize, cycle: f64, since: f64, waiting: usize) -> Budgeted {
    let ago = |number: usize| since + ((left - 1 - number) / places) as f64 * cycle;
    Budgeted { places, granted: (0..left).map(ago).collect(), stops: vec![1.0; left], waiting }
}

#[test]
fn a_budget_lets_go_at_the_pace_it_has_shown() {
    let range = |lane: &Budgeted| budgeted(lane).unwrap().unwrap();
    // Nine more cycles of five seconds, of which two have passed, and a second to stop.
    let tight = range(&in_turn(1, 6, 5.0, 2.0, 10));
    assert!(covers(tight, 49.0) && tight.at_least > 38.0, "{tight:?}");
    let loose = range(&in_turn(5, 30, 5.0, 2.0, 10));
    assert!(covers(loose, 9.0) && loose.at_most < 14.0, "{loose:?}");
    assert_eq!(budgeted(&in_turn(1, 1, 5.0, 2.0, 10)), Err(Unknown::NothingMeasured), "no cycle was seen");
    assert_eq!(budgeted(&in_turn(3, 3, 5.0, 2.0, 10)), Err(Unknown::NothingMeasured), "all at once");
    assert_eq!(budgeted(&in_turn(1, 6, 5.0, 40.0, 10)), Err(Unknown::Stalled));
    assert_eq!(budgeted(&in_turn(1, 6, 5.0, 2.0, 0)), Ok(None), "nobody waits");
}

#[test]
fn a_pod_is_gone_at_the_end_of_its_grace_period_or_like_others_of_its_kind() {
    let pod = |since: f64, others: &[f64]| Stopping {
        since,
        deadline: Some(30.0 - since),
        others: others.to_vec(),
    };
    assert_eq!(
        stopping(&[pod(10.0, &[])]),
        Ok(Some(Gone::AtMost(22.0))),
        "only the end of its grace period is known"
    );
    let Ok(Some(Gone::Within(range))) = stopping(&[pod(4.0, &[10.0, 10.2, 9.9])]) else { panic!() };
    assert!(covers(range, 6.0) && range.at_least > 2.0 && range.at_most < 11.0, "{range:?}");
    // Killed at the end: not later than that.
    let Ok(Some(Gone::Within(range))) = stopping(&[pod(25.0, &[30.0, 30.0, 30.1])]) else { panic!() };
    assert!(covers(range, 5.0) && range.at_most <= 7.0, "{range:?}");
    let limit = stopping(&[pod(15.0, &[10.0, 10.2, 9.9])]);
    assert_eq!(limit, Ok(Some(Gone::AtMost(17.0))), "it is not like the others");
    assert_eq!(stopping(&[pod(40.0, &[])]), Err(Unknown::Stalled), "killed long ago, and still there");
    assert_eq!(stopping(&[]), Ok(None));
}

#[test]
fn the_latest_lane_decides_and_one_that_is_unknown_makes_all_unknown() {
    let within = |at_least: f64, at_most: f64| Ok(Some(Gone::Within(Range { at_least, at_most })));
    let both = Outlook::of([within(10.0, 20.0), within(5.0, 25.0), Ok(None)]);
    assert_eq!(both, Outlook::Within(Range { at_least: 10.0, at_most: 25.0 }));
    let limit = |seconds: f64| Ok(Some(Gone::AtMost(seconds)));
    assert_eq!(
        Outlook::of([within(10.0, 20.0), limit(15.0)]),
        Outlook::Within(Range { at_least: 10.0, at_most: 20.0 })
    );
    assert_eq!(Outlook::of([within(10.0, 20.0), limit(60.0)]), Outlook::AtMost(60.0));
    let unknown = Outlook::of([within(10.0, 20.0), Err(Unknown::Stalled)]);
    assert_eq!(unknown, Outlook::Unknown(Unknown::Stalled));
    assert_eq!(Outlook::of([Ok(None)]), Outlook::Unknown(Unknown::NothingMeasured));
}

const PAUSE: Duration = Duration::from_secs(10);

fn range(at_least: f64, at_most: f64) -> Outlook {
    Outlook::Within(Range { at_least, at_most })
}

#[test]
fn what_was_foretold_moves_towards_what_is_expected_and_does_not_jump() {
    let mut forecast = Telling::default();
    assert_eq!(forecast.tell(range(80.0, 100.0), PAUSE, at(0)), Some(range(80.0, 100.0)));
    let Some(Outlook::Within(told)) = forecast.tell(range(140.0, 180.0), PAUSE, at(9)) else { panic!() };
    // 71 to 91 would have been left.
    assert!(71.0 < told.at_least && told.at_least < 120.0, "{told:?}");
    assert!(91.0 < told.at_most && told.at_most < 150.0, "{told:?}");
    let mut last = told;
    for second in 2..30 {
        let left = 186.0 - 9.0 * f64::from(second);
        if let Some(Outlook::Within(told)) =
            forecast.tell(range((left - 20.0).max(0.0), left.max(1.0)), PAUSE, at(i64::from(second) * 9))
        {
            last = told;
        }
    }
    assert!(last.at_most < 3.0, "{last:?}: it follows in the end");
}

#[test]
fn a_range_is_told_more_often_the_less_is_left_and_unknown_once() {
    let mut forecast = Telling::default();
    let nothing = Outlook::Unknown(Unknown::NothingMeasured);
    assert_eq!(
        forecast.tell(nothing, PAUSE, at(0)),
        None,
        "nobody has to be told that before anything was known"
    );
    assert!(forecast.tell(range(100.0, 120.0), PAUSE, at(1)).is_some());
    assert_eq!(forecast.next(), Some(at(11)));
    assert_eq!(forecast.tell(range(99.0, 119.0), PAUSE, at(2)), None);
    let blocked = Outlook::Unknown(Unknown::Blocked);
    assert_eq!(forecast.tell(blocked, PAUSE, at(3)), Some(blocked), "that is told at once");
    assert_eq!(forecast.tell(blocked, PAUSE, at(60)), None);
    assert_eq!(forecast.next(), None, "there is nothing to count down");
    assert!(forecast.tell(range(10.0, 12.0), PAUSE, at(61)).is_some());
    assert_eq!(forecast.next(), Some(at(62)));
}

/// Numbers between 0 and 1, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / f64::from(1_u32 << 31)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.roll()
    }
}

/// Guests on places, with times that differ by up to a third; looked at in the middle.
fn one_drain(dice: &mut Dice) -> Option<(Range, f64)> {
    let (count, places) = (dice.between(8.0, 60.0) as usize, dice.between(1.0, 5.0) as usize);
    let (prepare, copy) = (dice.between(0.3, 5.0), dice.between(0.3, 20.0));
    let mut free = vec![0.0_f64; places];
    let mut all: Vec<Moved> = Vec::new();
    for _ in 0..count {
        let place = free.iter_mut().min_by(|a, b| a.total_cmp(b)).unwrap();
        let began = *place;
        let copied_since = began + prepare * dice.between(0.7, 1.3);
        let gone = copied_since + copy * dice.between(0.7, 1.3);
        *place = gone + dice.between(0.0, 0.3);
        all.push(Moved { memory: 128 * MIB, began, copied_since, gone });
    }
    let end = all.iter().map(|one| one.gone).fold(0.0, f64::max);
    let now = end * dice.between(0.15, 0.9);
    let staying: Vec<Staying> = all
        .iter()
        .filter(|one| one.gone > now)
        .map(|one| Staying {
            under_way: (one.began <= now).then_some(now - one.began),
            copied_for: (one.copied_since <= now).then_some(now - one.copied_since),
            ..waiting(128)
        })
        .collect();
    let past = Past {
        moved: all.iter().copied().filter(|one| one.gone <= now).collect(),
        begun: all.iter().map(|one| one.began).filter(|began| *began <= now).collect(),
        failed: 0,
    };
    // As it is told: in whole seconds.
    let Range { at_least, at_most } = guests(&staying, &past, places).ok()??;
    Some((Range { at_least: at_least.floor(), at_most: at_most.ceil() }, end - now))
}

#[test]
fn ranges_hold_nine_times_of_ten_and_are_narrower_than_half_of_what_is_left() {
    let mut dice = Dice(17);
    let drains: Vec<(Range, f64)> = (0..600).filter_map(|_| one_drain(&mut dice)).collect();
    assert!(drains.len() > 500, "{}", drains.len());
    let right = drains.iter().filter(|(range, left)| covers(*range, *left)).count();
    assert!(right * 10 >= drains.len() * 9, "{right} of {}", drains.len());
    let mut widths: Vec<f64> =
        drains.iter().map(|(range, left)| (range.at_most - range.at_least) / left).collect();
    widths.sort_by(f64::total_cmp);
    assert!(widths[widths.len() / 2] < 0.5, "{}", widths[widths.len() / 2]);
}
